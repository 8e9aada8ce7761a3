//! The choice of a value by the name of the server that a client asks for (SNI, RFC 6066 §3).
//!
//! Names are compared without case and without a dot at their end, label by label. An exact name comes before a wildcard, a
//! wildcard before the default. Names have the form of DNS on the wire: international names are A-labels (RFC 5890 §2.3.2.1),
//! `xn--bcher-kva.example`. Addresses are no names.
//!
//! Reading list: RFC 9525 §6.3 for wildcards of certificates, RFC 1035 §2.3.4 for lengths.

use std::collections::BTreeMap;

/// The bytes of a name without a dot at its end: 255 on the wire of DNS. Clients that ask for a longer one get the default.
pub const NAME_BYTES_MAX: usize = 253;
/// The bytes of a label.
const LABEL_BYTES_MAX: usize = 63;

/// Values by name, and those for all other names. A wildcard covers one label, as in certificates: `*.example.org` covers
/// `www.example.org`, but not `a.www.example.org`.
///
/// ```
/// use tls::Names;
///
/// let mut names = Names::new(vec!["default"]);
/// names.add("*.example.org", "RSA")?;
/// names.add("*.example.org", "ECDSA")?;
/// let choose = |name| names.choose(name, |value| value.len() > 4);
/// assert_eq!(choose(Some("www.example.org")), Some(&"ECDSA"));
/// assert_eq!(choose(Some("example.org")), Some(&"default"));
/// # Ok::<(), tls::InvalidName>(())
/// ```
#[derive(Clone, Debug)]
pub struct Names<P> {
    default: Vec<P>,
    /// The root of a tree of names: `org` is a child of the root, and `example` a child of `org`.
    root: Node<P>,
}

/// A node of the tree of names.
#[derive(Clone, Debug)]
struct Node<P> {
    /// The values of this name.
    exact: Vec<P>,
    /// The values of the wildcard below this name.
    below: Vec<P>,
    /// The children, by their labels in lower case.
    labels: BTreeMap<Box<[u8]>, Self>,
}

/// A name that no client can ask for, such as an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidName;

impl<P> Names<P> {
    /// No names. All clients get the values `default`, in their order.
    pub const fn new(default: Vec<P>) -> Self {
        Self { default, root: Node::new() }
    }

    /// Adds a value for a name such as `example.org`, or for a wildcard such as `*.example.org`. It comes after those that
    /// the name has.
    ///
    /// # Errors
    ///
    /// [`InvalidName`] for addresses and for what is no name in DNS. Nothing was added.
    pub fn add(&mut self, name: &str, value: P) -> Result<(), InvalidName> {
        let (name, is_wildcard) =
            name.strip_prefix("*.").map_or((name, false), |name| (name, true));
        let mut buffer = [0; NAME_BYTES_MAX];
        let mut node = &mut self.root;
        for label in canonical(name, &mut buffer)?.rsplit(|&byte| byte == b'.') {
            node = node.labels.entry(label.into()).or_insert_with(Node::new);
        }
        let values = if is_wildcard { &mut node.below } else { &mut node.exact };
        values.push(value);
        Ok(())
    }

    /// Returns the values for the name that a client asks for, the best first: those of the name itself, then those of the
    /// wildcard that covers it. If there are none, or the client asks for no name, they are the default.
    ///
    /// A text that is no name in DNS is covered by no name.
    pub fn find(&self, name: Option<&str>) -> impl Iterator<Item = &P> {
        let (exact, wildcard) = name.and_then(|name| self.covering(name)).unwrap_or_default();
        let is_covered = !exact.is_empty() || !wildcard.is_empty();
        let default = if is_covered { &[] } else { &self.default[..] };
        exact.iter().chain(wildcard).chain(default)
    }

    /// Returns the first value of [`find`](Self::find) that the client can use, or else the first.
    pub fn choose(&self, name: Option<&str>, is_usable: impl Fn(&P) -> bool) -> Option<&P> {
        self.find(name).find(|value| is_usable(value)).or_else(|| self.find(name).next())
    }

    /// Returns the values of a name, and those of a wildcard that covers it; nothing if it is no name.
    fn covering(&self, name: &str) -> Option<(&[P], &[P])> {
        let mut buffer = [0; NAME_BYTES_MAX];
        let name = canonical(name, &mut buffer).ok()?;
        let mut node = Some(&self.root);
        let mut wildcard: &[P] = &[];
        for label in name.rsplit(|&byte| byte == b'.') {
            let Some(parent) = node else { return Some((&[], &[])) };
            wildcard = &parent.below;
            node = parent.labels.get(label);
        }
        Some((node.map_or(&[], |node| &node.exact), wildcard))
    }
}

impl core::fmt::Display for InvalidName {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.write_str("not a name in DNS, such as example.org or *.example.org")
    }
}

impl core::error::Error for InvalidName {}

impl<P> Node<P> {
    const fn new() -> Self {
        Self { exact: Vec::new(), below: Vec::new(), labels: BTreeMap::new() }
    }
}

/// Returns a name in lower case and without a dot at its end. Some names in use have underscores.
fn canonical<'a>(
    name: &str,
    buffer: &'a mut [u8; NAME_BYTES_MAX],
) -> Result<&'a [u8], InvalidName> {
    let name = name.strip_suffix('.').unwrap_or(name);
    let lower = buffer.get_mut(..name.len()).ok_or(InvalidName)?;
    lower.copy_from_slice(name.as_bytes());
    lower.make_ascii_lowercase();
    let mut labels = lower.rsplit(|&byte| byte == b'.');
    let is_valid = !labels.clone().next().is_none_or(is_number) && labels.all(is_label);
    if is_valid { Ok(lower) } else { Err(InvalidName) }
}

fn is_label(label: &[u8]) -> bool {
    let is_valid = |&byte: &u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (1..=LABEL_BYTES_MAX).contains(&label.len())
        && label.iter().all(is_valid)
        && label.first() != Some(&b'-')
        && label.last() != Some(&b'-')
}

/// Returns true for a label at whose end a name would be an IPv4 address (URL Standard, "ends in a number checker").
fn is_number(label: &[u8]) -> bool {
    match label.strip_prefix(b"0x") {
        Some(digits) => digits.iter().all(u8::is_ascii_hexdigit),
        None => !label.is_empty() && label.iter().all(u8::is_ascii_digit),
    }
}

#[cfg(test)]
mod tests;

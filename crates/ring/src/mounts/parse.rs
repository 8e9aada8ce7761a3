//! The lines of `/proc/self/mountinfo`, proc(5).

use crate::gate::Device;

/// One mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mount<'a> {
    /// The device of the superblock: all mounts of one file system have the same.
    pub(super) device: Device,
    /// The type of the file system.
    pub(super) kind: &'a [u8],
    /// The options of the superblock, escaped.
    options: &'a [u8],
}

/// The mount with this id, if it exists and its line is well-formed.
pub(super) fn find(mountinfo: &[u8], id: u64) -> Option<Mount<'_>> {
    mountinfo.split(|byte| *byte == b'\n').find_map(|line| {
        let mut fields = line.split(|byte| *byte == b' ');
        if number(fields.next()?)? != id {
            return None;
        }
        let device = numbers(fields.nth(1)?)?;
        // The root, the path and the options of the mount; then a number of tags that ends with a dash.
        fields.nth(2)?;
        fields.find(|field| *field == b"-")?;
        let kind = fields.next()?;
        let _source = fields.next()?;
        Some(Mount { device, kind, options: fields.next()? })
    })
}

impl Mount<'_> {
    /// The directories of all layers of an overlay, as they were named when it was mounted.
    pub(super) fn layers(&self) -> Vec<Vec<u8>> {
        let mut layers = Vec::new();
        for option in self.options.split(|byte| *byte == b',') {
            let mut parts = option.splitn(2, |byte| *byte == b'=');
            let (Some(name), Some(value)) = (parts.next(), parts.next()) else { continue };
            match name {
                b"lowerdir" => layers.extend(split(&unescape(value))),
                b"lowerdir+" | b"datadir+" | b"upperdir" => layers.push(unescape(value)),
                _ => {}
            }
        }
        layers
    }
}

/// The directories of `lowerdir`: one or two colons separate them, and a backslash escapes the next byte
/// (`ovl_split_lowerdirs` and `ovl_unescape` in fs/overlayfs/params.c).
fn split(value: &[u8]) -> Vec<Vec<u8>> {
    let mut layers = vec![Vec::new()];
    let mut bytes = value.iter();
    while let Some(&byte) = bytes.next() {
        let layer = layers.last_mut().expect("there is one from the start");
        match byte {
            b':' => layers.push(Vec::new()),
            b'\\' => layer.extend(bytes.next()),
            byte => layer.push(byte),
        }
    }
    layers.retain(|layer| !layer.is_empty());
    layers
}

/// Replaces `\ooo`, as `seq_escape` in fs/seq_file.c writes some bytes.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut all = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, behind)) = rest.split_first() {
        match (first, octal(behind)) {
            (b'\\', Some(byte)) => {
                all.push(byte);
                rest = &behind[3..];
            }
            _ => {
                all.push(first);
                rest = behind;
            }
        }
    }
    all
}

fn octal(digits: &[u8]) -> Option<u8> {
    let digits = digits.first_chunk::<3>()?;
    digits.iter().try_fold(0_u8, |value, digit| {
        let digit = Some(digit.wrapping_sub(b'0')).filter(|digit| *digit < 8)?;
        value.checked_mul(8)?.checked_add(digit)
    })
}

fn number(text: &[u8]) -> Option<u64> {
    core::str::from_utf8(text).ok()?.parse().ok()
}

/// `major:minor`.
fn numbers(text: &[u8]) -> Option<Device> {
    let mut parts = text.splitn(2, |byte| *byte == b':');
    let mut next = || u32::try_from(number(parts.next()?)?).ok();
    let (major, minor) = (next()?, next()?);
    Some(Device::of(u64::from(major) << 32 | u64::from(minor)))
}

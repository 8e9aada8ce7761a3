//! The contexts of the ciphers of connections that had something to do a short time ago.
//!
//! A context takes some hundred bytes, too much for each idle connection. To make the two of a connection takes as long as
//! to seal a short response. So a worker keeps those of a few connections.

use core::cell::{Cell, RefCell};

use tls_record::Contexts;

/// The most connections whose contexts are kept while they have nothing to do: about 200 KiB. A further connection replaces
/// the one that came so many connections before it.
const KEPT_MAX: usize = 128;

/// The contexts that a worker keeps.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// The place of a connection is the rest of its number.
    places: RefCell<Vec<Option<(usize, Contexts)>>>,
    /// The number of connections so far.
    count: Cell<usize>,
}

impl Kept {
    /// A number for one more connection.
    pub(crate) fn number(&self) -> usize {
        self.count.replace(self.count.get().wrapping_add(1))
    }

    /// Keeps the contexts of a connection.
    pub(crate) fn put(&self, number: usize, contexts: Contexts) {
        let mut places = self.places.borrow_mut();
        if places.is_empty() {
            places.resize_with(KEPT_MAX, || None);
        }
        places[number % KEPT_MAX] = Some((number, contexts));
    }

    /// Takes the contexts of a connection out, unless those of another one have replaced them.
    pub(crate) fn take(&self, number: usize) -> Option<Contexts> {
        let mut places = self.places.borrow_mut();
        let place = places.get_mut(number % KEPT_MAX)?;
        place.take_if(|(owner, _)| *owner == number).map(|(_, contexts)| contexts)
    }
}

#[cfg(test)]
mod tests {
    use tls_record::{Cipher, Keys, Records};

    use super::*;

    #[test]
    fn a_connection_gets_its_own_contexts_and_each_once() {
        let contexts = || {
            let keys = || Keys::tls13(Cipher::Aes128Gcm, &[7; 32], 0).expect("a length of SHA-256");
            Records::new(keys(), keys()).rest()
        };
        let kept = Kept::default();
        let numbers: Vec<_> = (0..=KEPT_MAX).map(|_| kept.number()).collect();
        assert!(kept.take(numbers[0]).is_none());
        for number in &numbers {
            kept.put(*number, contexts());
        }
        let found: Vec<_> = numbers.iter().map(|number| kept.take(*number).is_some()).collect();
        assert!(!found[0] && found[1..].iter().all(|is_there| *is_there), "{found:?}");
        assert!(kept.take(numbers[1]).is_none());
    }
}

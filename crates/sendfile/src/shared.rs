//! Memory that several streams keep alive together, and that is charged once.

use core::cell::Cell;
use core::ops::Deref;
use std::rc::Rc;

/// A sum of bytes of memory. Each [`Charge`] adds to it for as long as it lives.
///
/// A clone refers to the same account. It belongs to one thread.
#[derive(Clone, Debug, Default)]
pub struct Account(Rc<Cell<u64>>);

/// Bytes charged to an [`Account`] until this is dropped. The charge belongs inside the memory that
/// it is for. So memory shared by many owners is charged once, until the last owner drops it.
#[derive(Debug)]
pub struct Charge {
    account: Account,
    bytes: u64,
}

/// A buffer that several streams send from. A clone is the same buffer.
#[derive(Clone, Debug)]
pub struct Shared(Rc<Buffer>);

#[derive(Debug)]
struct Buffer {
    bytes: Box<[u8]>,
    _charge: Charge,
}

impl Account {
    /// The bytes charged now.
    #[must_use]
    pub fn charged(&self) -> u64 {
        self.0.get()
    }

    /// Charges `bytes` until the result is dropped.
    #[must_use]
    pub fn charge(&self, bytes: u64) -> Charge {
        self.0.set(self.0.get() + bytes);
        Charge { account: self.clone(), bytes }
    }
}

impl Charge {
    /// Charges this many bytes from now on, instead of the earlier number.
    #[inline]
    pub fn set(&mut self, bytes: u64) {
        let account = &self.account.0;
        account.set(account.get() - core::mem::replace(&mut self.bytes, bytes) + bytes);
    }

    /// The charged bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let account = &self.account.0;
        account.set(account.get() - self.bytes);
    }
}

impl Shared {
    /// Takes bytes, and charges them to `account` until the last clone is dropped.
    #[must_use]
    pub fn new(bytes: Vec<u8>, account: &Account) -> Self {
        let charge = account.charge(bytes.len() as u64);
        Self(Rc::new(Buffer { bytes: bytes.into(), _charge: charge }))
    }

    /// The bytes, for changing them; `None` while another clone exists.
    pub fn get_mut(&mut self) -> Option<&mut [u8]> {
        Rc::get_mut(&mut self.0).map(|buffer| &mut *buffer.bytes)
    }
}

impl Deref for Shared {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_charged_once_however_many_streams_send_it() {
        let account = Account::default();
        let mut first = Shared::new(vec![0; 1000], &account);
        let others: Vec<_> = (0..1000).map(|_| first.clone()).collect();
        assert_eq!(account.charged(), 1000);
        assert_eq!(first.get_mut(), None, "others send it");
        drop(others);
        first.get_mut().expect("the only owner")[0] = 1;
        assert_eq!((account.charged(), first[0]), (1000, 1));
        drop(first);
        assert_eq!(account.charged(), 0);
    }

    #[test]
    fn a_charge_can_change() {
        let account = Account::default();
        let (mut one, other) = (account.charge(10), account.charge(1));
        for bytes in [0, 100, 5] {
            one.set(bytes);
            assert_eq!((one.bytes(), account.charged()), (bytes, bytes + 1));
        }
        drop(other);
        drop(one);
        assert_eq!(account.charged(), 0);
    }
}

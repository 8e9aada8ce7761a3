//! A connection after its handshake: its records, what the handshake has said, and where its contexts are.

use std::rc::Rc;

use tls_record::Records;

use crate::established::Established;

/// A connection after its handshake.
#[derive(Debug)]
pub(crate) struct Open {
    records: Records,
    pub(crate) established: Rc<Established>,
    /// Its number among those of the worker.
    number: usize,
    /// True while the worker may keep the contexts of its records.
    is_resting: bool,
}

impl Open {
    pub(crate) fn new(records: Records, established: Established) -> Self {
        let number = established.listening().kept.number();
        Self { records, established: Rc::new(established), number, is_resting: false }
    }

    /// The records, as they are to be opened or sealed.
    pub(crate) fn records(&mut self) -> &mut Records {
        if core::mem::take(&mut self.is_resting)
            && let Some(contexts) = self.established.listening().kept.take(self.number)
        {
            self.records.wake(contexts);
        }
        &mut self.records
    }

    /// The records, as they are to be looked at.
    pub(crate) const fn seen(&self) -> &Records {
        &self.records
    }

    /// Gives the contexts to the worker, because the connection has nothing to do for now.
    pub(crate) fn rest(&mut self) {
        if !core::mem::replace(&mut self.is_resting, true) {
            self.established.listening().kept.put(self.number, self.records.rest());
        }
    }
}

/// Contexts hold the keys of a connection, so the worker keeps none of a connection that has ended.
impl Drop for Open {
    fn drop(&mut self) {
        if self.is_resting {
            drop(self.established.listening().kept.take(self.number));
        }
    }
}

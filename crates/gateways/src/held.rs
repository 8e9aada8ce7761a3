//! A request that is held back until the gateway that answers is known.

use core::cell::RefCell;
use std::rc::{Rc, Weak};

use crate::input::Input;
use crate::interest::Interest;

/// The client and the body of a request, which any gateway may use.
#[derive(Debug)]
pub struct Held {
    interest: Weak<Interest>,
    input: Option<Rc<RefCell<Input>>>,
}

impl Held {
    /// Holds back a request with this body before a gateway is chosen.
    pub const fn of_body(input: Option<Rc<RefCell<Input>>>) -> Self {
        Self { interest: Weak::new(), input }
    }

    /// Holds back a request whose body, if the request had a body, was for another gateway.
    pub fn of_client(interest: Weak<Interest>) -> Self {
        Self { interest, input: None }
    }

    /// Holds back a request of a client, with this body.
    pub(crate) fn new(interest: Weak<Interest>, input: Option<Rc<RefCell<Input>>>) -> Self {
        Self { interest, input }
    }

    /// Takes the body out. The rest of the body is not dropped.
    pub fn into_body(mut self) -> Option<Rc<RefCell<Input>>> {
        self.input.take()
    }

    /// Takes out the interest of the client, unless the client has gone, and the body.
    pub(crate) fn into_parts(mut self) -> (Option<Rc<Interest>>, Option<Rc<RefCell<Input>>>) {
        (self.interest.upgrade(), self.input.take())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(input) = self.input.take() {
            input.borrow_mut().drop_rest();
        }
    }
}

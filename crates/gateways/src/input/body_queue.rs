//! Bodies that are being collected, in the order in which they were offered.

use core::cell::RefCell;
use std::collections::VecDeque;
use std::rc::{Rc, Weak};

use super::Input;

/// The bodies that are being collected, and some that were, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct BodyQueue {
    bodies: VecDeque<Weak<RefCell<Input>>>,
    /// The number of them at which those that have gone are looked for.
    tidied_at: usize,
}

impl BodyQueue {
    /// Adds a body, and forgets those that have gone, now and then.
    pub(crate) fn push(&mut self, input: &Rc<RefCell<Input>>) {
        if self.bodies.len() >= self.tidied_at {
            self.bodies.retain(|input| input.strong_count() > 0);
            self.tidied_at = 2 * self.bodies.len().max(8);
        }
        self.bodies.push_back(Rc::downgrade(input));
    }

    /// Takes the oldest body out that has not gone.
    pub(super) fn pop(&mut self) -> Option<Rc<RefCell<Input>>> {
        while let Some(input) = self.bodies.pop_front() {
            if let Some(input) = input.upgrade() {
                return Some(input);
            }
        }
        None
    }

    /// The bodies that have not gone.
    pub(crate) fn all(&self) -> impl Iterator<Item = Rc<RefCell<Input>>> {
        self.bodies.iter().filter_map(Weak::upgrade)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Stage;
    use super::*;

    #[test]
    fn bodies_that_have_gone_are_forgotten() {
        let new = || Rc::new(RefCell::new(Input::new(Stage::Streamed, Rc::default())));
        let (mut queue, first) = (BodyQueue::default(), new());
        queue.push(&first);
        for _ in 1..1000 {
            queue.push(&new());
        }
        assert!(queue.bodies.len() <= 16, "{}", queue.bodies.len());
        assert!(Rc::ptr_eq(&queue.pop().expect("it is there"), &first));
        assert!(queue.pop().is_none());
    }
}

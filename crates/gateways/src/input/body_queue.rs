//! Bodies that are being collected, in the order in which they were offered.

use core::cell::RefCell;
use std::collections::VecDeque;
use std::rc::{Rc, Weak};

use super::Input;

/// The bodies that are being collected, the oldest first. Bodies that have gone may still have an entry.
#[derive(Debug, Default)]
pub(crate) struct BodyQueue {
    bodies: VecDeque<Weak<RefCell<Input>>>,
    /// When the queue has this many entries, the entries of bodies that have gone are removed.
    tidied_at: usize,
}

impl BodyQueue {
    /// Adds a body. Now and then this call removes the entries of bodies that have gone.
    pub(crate) fn push(&mut self, input: &Rc<RefCell<Input>>) {
        if self.bodies.len() >= self.tidied_at {
            self.bodies.retain(|input| input.strong_count() > 0);
            self.tidied_at = 2 * self.bodies.len().max(8);
        }
        self.bodies.push_back(Rc::downgrade(input));
    }

    /// Takes out the oldest body that has not gone.
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

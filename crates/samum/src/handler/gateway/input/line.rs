//! Bodies that are being collected, in the order in which they were offered.

use core::cell::RefCell;
use std::collections::VecDeque;
use std::rc::{Rc, Weak};

use ring::Key;

use super::Input;

/// The bodies that are being collected, and some that were, the oldest first.
#[derive(Debug, Default)]
pub(in crate::handler) struct Line {
    bodies: VecDeque<Weak<RefCell<Input>>>,
    /// The number of them at which those that have gone are looked for.
    tidied_at: usize,
}

impl Line {
    /// Adds a body, and forgets those that have gone, now and then.
    pub(in crate::handler) fn push(&mut self, input: &Rc<RefCell<Input>>) {
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

    /// Takes the oldest body out whose rest is awaited by something that has a name, and returns that.
    pub(in crate::handler) fn pop_awaited(&mut self) -> Option<Key> {
        if !self.awaits_any() {
            return None;
        }
        // A request that is held back has no name yet.
        let key = |input: &Weak<RefCell<Input>>| {
            let input = input.upgrade()?;
            let input = input.borrow();
            input.key().filter(|_| input.is_awaited())
        };
        let (place, key) = (0..).zip(&self.bodies).find_map(|(at, it)| Some((at, key(it)?)))?;
        self.bodies.remove(place);
        Some(key)
    }

    /// Returns whether the rest of any body is awaited; forgets older ones that are not.
    pub(in crate::handler) fn awaits_any(&mut self) -> bool {
        while let Some(input) = self.bodies.front() {
            if input.upgrade().is_some_and(|input| input.borrow().is_awaited()) {
                return true;
            }
            self.bodies.pop_front();
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::super::Stage;
    use super::*;

    #[test]
    fn bodies_that_have_gone_are_forgotten() {
        let new = || Rc::new(RefCell::new(Input::new(Stage::Streamed, Rc::default())));
        let (mut line, first) = (Line::default(), new());
        line.push(&first);
        for _ in 1..1000 {
            line.push(&new());
        }
        assert!(line.bodies.len() <= 16, "{}", line.bodies.len());
        assert!(Rc::ptr_eq(&line.pop().expect("it is there"), &first));
        assert!(line.pop().is_none());
    }
}

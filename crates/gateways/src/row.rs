//! A queue that mostly has one element, or none.

use std::collections::VecDeque;

/// A queue whose first element needs no allocation: a response that has come in one piece costs no allocation for
/// its place.
#[derive(Debug)]
pub(super) struct Row<T> {
    /// `None` if there are no elements.
    first: Option<T>,
    rest: VecDeque<T>,
}

impl<T> Row<T> {
    /// No elements.
    pub(super) const fn new() -> Self {
        Self { first: None, rest: VecDeque::new() }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(super) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.rest.len()
    }

    /// The elements in their order.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.first.iter().chain(&self.rest)
    }

    pub(super) fn back_mut(&mut self) -> Option<&mut T> {
        self.rest.back_mut().or(self.first.as_mut())
    }

    pub(super) fn push_back(&mut self, element: T) {
        if self.first.is_none() {
            self.first = Some(element);
        } else {
            self.rest.push_back(element);
        }
    }

    pub(super) fn push_front(&mut self, element: T) {
        if let Some(second) = self.first.replace(element) {
            self.rest.push_front(second);
        }
    }

    pub(super) fn pop_front(&mut self) -> Option<T> {
        core::mem::replace(&mut self.first, self.rest.pop_front())
    }

    /// Takes the last `count` elements.
    ///
    /// # Panics
    ///
    /// If there are fewer.
    pub(super) fn split_last(&mut self, count: usize) -> VecDeque<T> {
        match self.rest.len().checked_sub(count) {
            Some(kept) => self.rest.split_off(kept),
            None => {
                assert!(count == self.len(), "{count} of {} elements", self.len());
                let mut all = core::mem::take(&mut self.rest);
                self.first.take().into_iter().for_each(|first| all.push_front(first));
                all
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_queue(steps in proptest::collection::vec((0..5_u8, 0..4_usize), 0..40)) {
            let (mut row, mut model) = (Row::new(), VecDeque::new());
            for (number, (step, count)) in steps.into_iter().enumerate() {
                match step {
                    0 | 1 => {
                        row.push_back(number);
                        model.push_back(number);
                    }
                    2 => {
                        row.push_front(number);
                        model.push_front(number);
                    }
                    3 => prop_assert_eq!(row.pop_front(), model.pop_front()),
                    _ => {
                        let count = count.min(model.len());
                        prop_assert_eq!(row.split_last(count), model.split_off(model.len() - count));
                    }
                }
                prop_assert_eq!((row.len(), row.is_empty()), (model.len(), model.is_empty()));
                prop_assert_eq!(row.back_mut(), model.back_mut());
                prop_assert!(row.iter().eq(&model));
            }
        }
    }
}

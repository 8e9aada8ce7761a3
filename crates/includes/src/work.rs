//! The work of a page: the amount between two looks at the clock.

use super::fault::Fault;

/// Work for one directive, beyond which it looks at no further variable.
pub const WORK_MAX: usize = 128 * 1024;
/// Work between two pauses.
const PAUSE_WORK: usize = 32 * 1024;

/// The minimum work for each directive, and for each variable.
const DIRECTIVE_WORK: usize = 128;
const VARIABLE_WORK: usize = 64;

/// The work that was done, in bytes that were read or made. One byte takes a few nanoseconds at most.
#[derive(Debug)]
pub(super) struct Work {
    /// The work of the directive.
    directive: usize,
    /// The work of the directives before it, since the last pause.
    before: usize,
}

impl Work {
    /// No work.
    pub(super) const fn new() -> Self {
        Self { directive: 0, before: 0 }
    }

    /// A directive begins.
    pub(super) const fn begin_directive(&mut self) {
        *self = Self { directive: DIRECTIVE_WORK, before: self.before + self.directive };
    }

    /// Looks at another variable, or says that the directive has looked at too much.
    pub(super) const fn begin_variable(&mut self) -> Result<(), Fault> {
        self.add(VARIABLE_WORK);
        if self.directive > WORK_MAX { Err(Fault::Work) } else { Ok(()) }
    }

    /// Adds bytes that were read or made.
    pub(super) const fn add(&mut self, bytes: usize) {
        self.directive += bytes;
    }

    /// Returns whether it is time for a pause.
    pub(super) const fn is_enough(&self) -> bool {
        self.before + self.directive >= PAUSE_WORK
    }
}

//! What can be wrong with a directive.

/// The reason why an error message stands in a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A directive cannot be understood, or there are too many.
    Malformed,
    /// A condition cannot be understood.
    Condition,
    /// An `elif`, `else` or `endif` without an `if`.
    Unbalanced,
    /// More than [`IF_DEPTH_MAX`](super::evaluator::IF_DEPTH_MAX) conditions within one another.
    Depth,
    /// A value has more than [`VALUE_BYTES_MAX`](super::expression::VALUE_BYTES_MAX) bytes.
    Value,
    /// More than [`VARIABLES_MAX`](super::evaluator::VARIABLES_MAX) variables.
    Variables,
    /// A `file` that is not beside the page or below.
    File,
}

impl Fault {
    /// The fault as the operator is told.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Malformed => "a directive cannot be understood, or there are too many",
            Self::Condition => "a condition cannot be understood",
            Self::Unbalanced => "an elif, else or endif has no if",
            Self::Depth => "there are too many conditions within one another",
            Self::Value => "a value is too long",
            Self::Variables => "there are too many variables",
            Self::File => {
                "an included file is not beside the page or below; use virtual for other paths"
            }
        }
    }
}

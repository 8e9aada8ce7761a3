//! The faults of a directive.

/// The reason why an error message stands in a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A directive cannot be understood, or there are too many.
    Malformed,
    /// A condition cannot be understood.
    Condition,
    /// An `elif`, `else` or `endif` without an `if`.
    Unbalanced,
    /// More than [`IF_DEPTH_MAX`](crate::IF_DEPTH_MAX) conditions within one another.
    Depth,
    /// A value has more than [`VALUE_BYTES_MAX`](crate::VALUE_BYTES_MAX) bytes.
    Value,
    /// More than [`VARIABLES_MAX`](crate::VARIABLES_MAX) variables.
    Variables,
    /// More than [`BYTES_MAX`](crate::BYTES_MAX) bytes of variables in all pages of the response.
    Memory,
    /// The variables of one directive need a look at more than [`WORK_MAX`](crate::WORK_MAX) bytes.
    Work,
    /// A `file` that is neither in the directory of the page nor below it.
    File,
}

impl Fault {
    /// The text for the operator.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Malformed => "a directive cannot be understood, or there are too many",
            Self::Condition => "a condition cannot be understood",
            Self::Unbalanced => "an elif, else or endif has no if",
            Self::Depth => "there are too many conditions within one another",
            Self::Value => "a value is too long",
            Self::Variables => "there are too many variables",
            Self::Memory => "the pages of the response have variables of more than 2 MiB",
            Self::Work => "a directive has too many variables of the request",
            Self::File => {
                "an included file is not beside the page or below; use virtual for other paths"
            }
        }
    }
}

const _: () = assert!(super::memory::BYTES_MAX == 2 * 1024 * 1024, "the message says so");

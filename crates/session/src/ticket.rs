//! The names of requests.

/// Names a request whose answer comes later. The caller chooses the two numbers; the part that answers returns them
/// with the answer and gives them no meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// The first number: the connection.
    pub connection: u64,
    /// The second number: the request on it.
    pub request: u32,
}

impl Ticket {
    /// The first number of requests that no handler was asked about.
    pub const UNNAMED: u64 = u64::MAX;
}

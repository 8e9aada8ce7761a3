//! Congestion control: how many bytes may be in flight.

/// The algorithm that sizes the congestion window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// CUBIC (RFC 9438).
    #[default]
    Cubic,
    /// NewReno (RFC 5681 and 6582).
    NewReno,
}

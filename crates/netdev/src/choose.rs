//! The way of each frame to the interface. Pure.

/// A way to the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// The rings of AF_XDP.
    Xdp,
    /// A packet socket, which also cuts large segments.
    Packet,
}

/// The ways of frames by their size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ways {
    /// The way of frames up to the interface's MTU.
    pub(crate) small: By,
    /// The way of what is larger: cut by the kernel, or, with AF_XDP, by the stack.
    pub(crate) large: By,
}

impl Ways {
    /// All frames by one way.
    pub(crate) const fn all(by: By) -> Self {
        Self { small: by, large: by }
    }
}

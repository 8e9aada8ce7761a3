//! Error codes, and the faults of a peer.
//!
//! Reading list: RFC 9113 §5.4, §7.

use core::error::Error;
use core::fmt;

/// Declares [`ErrorCode`] and its names from one table.
macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal $text:literal,)*) => {
        /// The reason for the end of a stream or of a connection (RFC 9113 §7).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ErrorCode {
            $($(#[$doc])* $name,)*
            /// Any other number. It means nothing special.
            Other(u32),
        }

        impl ErrorCode {
            /// Every code with a name.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The code of this number.
            #[must_use]
            pub const fn of_number(number: u32) -> Self {
                match number { $($code => Self::$name,)* other => Self::Other(other) }
            }

            /// The number, as it is sent.
            #[must_use]
            pub const fn number(self) -> u32 {
                match self { $(Self::$name => $code,)* Self::Other(other) => other }
            }

            /// The name in the RFC.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* Self::Other(_) => "unknown" }
            }
        }
    };
}

codes! {
    /// Nothing is wrong.
    NoError = 0 "NO_ERROR",
    /// The peer broke the protocol in a way that has no other code.
    Protocol = 1 "PROTOCOL_ERROR",
    /// A failure of this side.
    Internal = 2 "INTERNAL_ERROR",
    /// The peer sent more than its window.
    FlowControl = 3 "FLOW_CONTROL_ERROR",
    /// The peer did not acknowledge the settings in time.
    SettingsTimeout = 4 "SETTINGS_TIMEOUT",
    /// A frame came for a stream that the peer had ended.
    StreamClosed = 5 "STREAM_CLOSED",
    /// A frame has an invalid length.
    FrameSize = 6 "FRAME_SIZE_ERROR",
    /// The request was not processed, and may be sent again.
    RefusedStream = 7 "REFUSED_STREAM",
    /// The stream is no longer needed.
    Cancel = 8 "CANCEL",
    /// A header block cannot be decoded.
    Compression = 9 "COMPRESSION_ERROR",
    /// The connection of a CONNECT has failed.
    Connect = 10 "CONNECT_ERROR",
    /// The peer causes too much work.
    EnhanceYourCalm = 11 "ENHANCE_YOUR_CALM",
    /// The security of the transport is not enough.
    InadequateSecurity = 12 "INADEQUATE_SECURITY",
    /// The request needs HTTP/1.1.
    Http11Required = 13 "HTTP_1_1_REQUIRED",
}

/// Declares [`Attack`] and its names from one table.
macro_rules! attacks {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// A limit that only an attack reaches. Each has a counter in the metrics.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Attack {
            $($(#[$doc])* $name,)*
        }

        impl Attack {
            /// Every attack, in the order of the enum.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The name for metrics and logs.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

attacks! {
    /// Streams that are reset, by the peer (CVE-2023-44487) or because the peer makes this side reset them
    /// (CVE-2025-8671): more than [`RESETS_MAX`](crate::limits::RESETS_MAX).
    Resets = "resets",
    /// Frames that carry nothing: more than [`IDLE_FRAMES_MAX`](crate::limits::IDLE_FRAMES_MAX).
    IdleFrames = "idle_frames",
    /// CONTINUATION frames of one block: more than [`CONTINUATIONS_MAX`](crate::limits::CONTINUATIONS_MAX).
    Continuations = "continuations",
    /// The bytes of a header block: more than [`BLOCK_BYTES_MAX`](crate::limits::BLOCK_BYTES_MAX).
    Block = "block",
    /// The fields of a header block: more than [`BLOCK_FIELDS_MAX`](crate::limits::BLOCK_FIELDS_MAX).
    Fields = "fields",
    /// Answers to control frames that the peer does not receive: more than
    /// [`CONTROL_BYTES_MAX`](crate::limits::CONTROL_BYTES_MAX).
    Control = "control",
    /// The settings in one frame: more than [`SETTINGS_MAX`](crate::limits::SETTINGS_MAX).
    Settings = "settings",
    /// A window that is larger than 2^31 - 1, or data beyond a window.
    Window = "window",
}

/// The reason why a connection ends: the peer broke the protocol or a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fault {
    /// The code that the peer is told.
    pub code: ErrorCode,
    /// The limit that was reached, if it is one.
    pub attack: Option<Attack>,
    /// A fragment of an English sentence for the log, such as "a frame that is too large".
    pub reason: &'static str,
}

impl Fault {
    /// A fault that is no attack.
    #[must_use]
    pub const fn new(code: ErrorCode, reason: &'static str) -> Self {
        Self { code, attack: None, reason }
    }

    /// The most common fault: PROTOCOL_ERROR.
    pub(crate) const fn protocol(reason: &'static str) -> Self {
        Self::new(ErrorCode::Protocol, reason)
    }

    /// A limit against attacks was reached.
    pub(crate) const fn attack(attack: Attack, reason: &'static str) -> Self {
        let code = match attack {
            Attack::Window => ErrorCode::FlowControl,
            _ => ErrorCode::EnhanceYourCalm,
        };
        Self { code, attack: Some(attack), reason }
    }
}

impl From<hpack::Fault> for Fault {
    fn from(fault: hpack::Fault) -> Self {
        match fault {
            hpack::Fault::TooManyFields => Self::attack(Attack::Fields, fault.reason()),
            _ => Self::new(ErrorCode::Compression, fault.reason()),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.name(), self.reason)
    }
}

impl Error for Fault {}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn numbers_name_their_codes() {
        for (number, &code) in (0..).zip(ErrorCode::ALL) {
            assert_eq!((ErrorCode::of_number(number), code.number()), (code, number));
        }
        assert_eq!(ErrorCode::of_number(14), ErrorCode::Other(14));
        assert_eq!(ErrorCode::Other(14).number(), 14);
    }

    #[test]
    fn a_fault_reads_as_a_sentence() {
        let fault = Fault::from(hpack::Fault::Index);
        assert_eq!(format!("{fault}"), "COMPRESSION_ERROR: an index of no field");
        let fault = Fault::from(hpack::Fault::TooManyFields);
        assert_eq!((fault.code, fault.attack), (ErrorCode::EnhanceYourCalm, Some(Attack::Fields)));
    }
}

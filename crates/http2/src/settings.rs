//! The settings of a client (RFC 9113 §6.5), as far as they concern a server.

use alloc::vec::Vec;

use crate::fault::{Attack, ErrorCode, Fault};
use crate::frame::{self, Kind};
use crate::limits::{
    FRAME_BYTES_MAX, LIST_BYTES_MAX, Limits, SETTINGS_MAX, STREAM_WINDOW, STREAMS_MAX,
    WINDOW_CEILING,
};

/// The identifiers of the settings.
mod id {
    pub(super) const HEADER_TABLE_SIZE: u16 = 0x1;
    pub(super) const ENABLE_PUSH: u16 = 0x2;
    pub(super) const MAX_CONCURRENT_STREAMS: u16 = 0x3;
    pub(super) const INITIAL_WINDOW_SIZE: u16 = 0x4;
    pub(super) const MAX_FRAME_SIZE: u16 = 0x5;
    pub(super) const MAX_HEADER_LIST_SIZE: u16 = 0x6;
    /// RFC 8441
    pub(super) const ENABLE_CONNECT_PROTOCOL: u16 = 0x8;
    /// RFC 9218
    pub(super) const NO_RFC7540_PRIORITIES: u16 = 0x9;
}

/// The settings of the client that matter to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// The window with which each stream begins.
    pub(crate) initial_window: u32,
    /// The largest payload of a frame that the client accepts.
    pub(crate) frame_bytes_max: u32,
    /// The size of the table for header blocks that the client decodes.
    pub(crate) table_size: u32,
}

impl Settings {
    /// The settings of every connection in the beginning.
    pub(crate) const INITIAL: Self =
        Self { initial_window: STREAM_WINDOW, frame_bytes_max: FRAME_BYTES_MAX, table_size: 4096 };

    /// Handles the settings in a payload. `handle_table_size` gets each size of the table, because the smallest of them
    /// counts, too (RFC 7541 §4.2).
    pub(crate) fn update(
        &mut self,
        payload: &[u8],
        mut handle_table_size: impl FnMut(u32),
    ) -> Result<(), Fault> {
        let (settings, []) = payload.as_chunks::<6>() else {
            return Err(Fault::new(
                ErrorCode::FrameSize,
                "settings that are no multiple of six bytes",
            ));
        };
        if settings.len() > SETTINGS_MAX {
            return Err(Fault::attack(Attack::Settings, "too many settings in one frame"));
        }
        for &[a, b, c, d, e, f] in settings {
            let (id, value) = (u16::from_be_bytes([a, b]), u32::from_be_bytes([c, d, e, f]));
            match id {
                id::HEADER_TABLE_SIZE => {
                    self.table_size = value;
                    handle_table_size(value);
                }
                id::INITIAL_WINDOW_SIZE if value > WINDOW_CEILING => {
                    return Err(Fault::attack(
                        Attack::Window,
                        "an initial window that is too large",
                    ));
                }
                id::INITIAL_WINDOW_SIZE => self.initial_window = value,
                id::MAX_FRAME_SIZE if !(FRAME_BYTES_MAX..1 << 24).contains(&value) => {
                    return Err(Fault::protocol("a maximum frame size that is not allowed"));
                }
                id::MAX_FRAME_SIZE => self.frame_bytes_max = value,
                id::ENABLE_PUSH | id::NO_RFC7540_PRIORITIES | id::ENABLE_CONNECT_PROTOCOL
                    if value > 1 =>
                {
                    return Err(Fault::protocol("a setting that is neither 0 nor 1"));
                }
                // Nothing is pushed, and unknown settings have no meaning (RFC 9113 §6.5.2).
                _ => {}
            }
        }
        Ok(())
    }
}

/// Appends the settings of the server: its first frame.
pub(crate) fn push_own(limits: &Limits, out: &mut Vec<u8>) {
    let mut payload = Vec::with_capacity(24);
    let mut add = |id: u16, value: u32| {
        payload.extend_from_slice(&id.to_be_bytes());
        payload.extend_from_slice(&value.to_be_bytes());
    };
    add(id::MAX_CONCURRENT_STREAMS, STREAMS_MAX);
    add(id::MAX_HEADER_LIST_SIZE, LIST_BYTES_MAX);
    add(id::NO_RFC7540_PRIORITIES, 1);
    if limits.extended_connect {
        add(id::ENABLE_CONNECT_PROTOCOL, 1);
    }
    frame::push(Kind::Settings, 0, 0, &payload, out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn payload(settings: &[(u16, u32)]) -> Vec<u8> {
        let pair =
            |&(id, value): &(u16, u32)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat();
        settings.iter().flat_map(pair).collect()
    }

    #[test]
    fn rfc9113_6_5_2_values() {
        for (id, value, expected) in [
            (1, u32::MAX, Ok(Settings { table_size: u32::MAX, ..Settings::INITIAL })),
            (2, 1, Ok(Settings::INITIAL)),
            (2, 2, Err(ErrorCode::Protocol)),
            (3, 0, Ok(Settings::INITIAL)),
            (4, 0, Ok(Settings { initial_window: 0, ..Settings::INITIAL })),
            (4, 1 << 31, Err(ErrorCode::FlowControl)),
            (5, 16_383, Err(ErrorCode::Protocol)),
            (5, 20_000, Ok(Settings { frame_bytes_max: 20_000, ..Settings::INITIAL })),
            (5, 1 << 24, Err(ErrorCode::Protocol)),
            (8, 2, Err(ErrorCode::Protocol)),
            (9, 2, Err(ErrorCode::Protocol)),
            (0xff, 7, Ok(Settings::INITIAL)),
        ] {
            let mut settings = Settings::INITIAL;
            let result = settings.update(&payload(&[(id, value)]), |_| ());
            assert_eq!(result.map(|()| settings).map_err(|fault| fault.code), expected, "{id}");
        }
        let short = Settings::INITIAL.clone().update(&[0; 5], |_| ());
        assert_eq!(short.map_err(|fault| fault.code), Err(ErrorCode::FrameSize));
    }

    #[test]
    fn each_table_size_is_seen_and_many_settings_are_refused() {
        let mut sizes = vec![];
        let mut settings = Settings::INITIAL;
        let several = payload(&[(1, 0), (1, 4096)]);
        assert_eq!(settings.update(&several, |size| sizes.push(size)), Ok(()));
        assert_eq!(sizes, [0, 4096]);
        let many = payload(&[(0xff, 0); SETTINGS_MAX + 1]);
        let fault = settings.update(&many, |_| ()).unwrap_err();
        assert_eq!(fault.attack, Some(Attack::Settings));
        assert_eq!(settings.update(&many[6..], |_| ()), Ok(()));
    }
}

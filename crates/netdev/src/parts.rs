//! The parts of a frame as the kernel accepts them.

use std::io::IoSlice;

use netstack::Frame;

/// The maximum slices of one system call (the kernel's `UIO_MAXIOV` is 1024; the stack's frames have far fewer
/// parts).
const SLICES_MAX: usize = 64;

/// Calls `send` with a header in front of a frame and the frame's parts.
///
/// Parts that do not fit into the array are joined into its last slice.
pub(crate) fn with_slices<T>(
    header: &[u8],
    frame: &Frame<'_>,
    send: impl FnOnce(&[IoSlice<'_>]) -> T,
) -> T {
    let mut slices = [IoSlice::new(&[]); SLICES_MAX];
    slices[0] = IoSlice::new(header);
    slices[1] = IoSlice::new(frame.head);
    let (parts, rest) = frame.parts.split_at(frame.parts.len().min(SLICES_MAX - 3));
    let joined = rest.concat();
    for (slice, part) in slices[2..].iter_mut().zip(parts) {
        *slice = IoSlice::new(part);
    }
    let mut count = 2 + parts.len();
    if !joined.is_empty() {
        slices[count] = IoSlice::new(&joined);
        count += 1;
    }
    send(&slices[..count])
}

/// Copies the head and the parts of a frame to the begin of `into`, which has room for them.
pub(crate) fn gather(frame: &Frame<'_>, into: &mut [u8]) {
    let mut at = 0;
    for part in core::iter::once(&frame.head).chain(frame.parts) {
        into[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_parts_leave_in_order_however_many() {
        let bytes: Vec<u8> = (0..=255).collect();
        for count in [0, 1, 2, 60, 61, 62, 63, 200] {
            let parts: Vec<_> = bytes.chunks(1).take(count).collect();
            let frame = Frame { head: b"head", parts: &parts, segment_bytes: None, checksum: None };
            let wanted = [b"vnethead", &bytes[..count]].concat();
            let sent = with_slices(b"vnet", &frame, |slices| {
                assert!(slices.len() <= SLICES_MAX);
                slices.iter().flat_map(|slice| slice.to_vec()).collect::<Vec<_>>()
            });
            assert_eq!(sent, wanted);
            let mut gathered = vec![0; frame.len()];
            gather(&frame, &mut gathered);
            assert_eq!(gathered, wanted[4..]);
        }
    }
}

//! The last head of a request, because many clients send the same head again and again.
//!
//! A header block means the same as the one before if its bytes are the same, and if no block in between has changed the
//! table of the decoder. Then the head need not be decoded and checked again.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::head::Found;
use crate::limits::Limits;

/// The bytes of a block that is kept. Longer ones are seldom repeated: they have values that no table has.
const BLOCK_BYTES_MAX: usize = 256;
/// The bytes of the text of a head that is kept.
const TEXT_BYTES_MAX: usize = 2048;

/// The last head, if it may be repeated.
#[derive(Clone, Debug, Default)]
pub(super) struct Last(Option<Box<Kept>>);

#[derive(Clone, Debug)]
struct Kept {
    block: Vec<u8>,
    limits: Limits,
    text: Vec<u8>,
    found: Found,
}

impl Last {
    /// The head of this block, if it is the last one again. Its text is appended to `text`, which is empty.
    pub(super) fn repeat(
        &self,
        block: &[u8],
        has_ended: bool,
        limits: &Limits,
        text: &mut Vec<u8>,
    ) -> Option<Found> {
        let Kept { block: last, limits: its, text: its_text, found } = self.0.as_deref()?;
        if last != block || found.has_ended != has_ended || its != limits {
            return None;
        }
        text.extend_from_slice(its_text);
        Some(found.clone())
    }

    /// Keeps the head of a block that has not changed the table of the decoder.
    pub(super) fn keep(&mut self, block: &[u8], limits: &Limits, text: &[u8], found: &Found) {
        if block.len() > BLOCK_BYTES_MAX || text.len() > TEXT_BYTES_MAX {
            return self.forget();
        }
        match &mut self.0 {
            Some(kept) => {
                block.clone_into(&mut kept.block);
                text.clone_into(&mut kept.text);
                (kept.limits, kept.found) = (*limits, found.clone());
            }
            None => {
                let (block, text) = (block.to_vec(), text.to_vec());
                let kept = Kept { block, limits: *limits, text, found: found.clone() };
                self.0 = Some(Box::new(kept));
            }
        }
    }

    /// Forgets the head, because its block would mean something else now, or to give back memory.
    pub(super) fn forget(&mut self) {
        self.0 = None;
    }

    /// The bytes of memory that are allocated.
    pub(super) fn memory(&self) -> usize {
        let of = |kept: &Kept| size_of::<Kept>() + kept.block.capacity() + kept.text.capacity();
        self.0.as_deref().map_or(0, of)
    }
}

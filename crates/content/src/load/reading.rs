//! Reads the small parts into memory, and checks each part's state after its read.

use std::io;

use ring::{Buffer, Caching};

use super::{Ask, LOOKS_MAX, Load, Look, Next, Outcome, Parts, Reply, Seen, Step, Tools, no_parts};
use crate::errors::{Refusal, is_unsupported};

/// The bytes of a part.
#[derive(Debug)]
pub(super) enum Body {
    /// The bytes are sent from the file.
    InFile,
    Reading(Caching),
    /// The bytes were read into the page cache, too, and are being dropped from it.
    Dropping(Buffer),
    /// The bytes were read, and the state of the file is being read again. The entity tag is right
    /// for the bytes only if the file has not changed meanwhile.
    Confirming(Buffer),
    Confirmed(Buffer),
    /// The disk has failed.
    Unreadable(io::Error),
}

impl<F: Clone> Load<F> {
    pub(super) fn begin_reading(
        &mut self,
        look: Look<F>,
        open: Parts<Seen<F>>,
        tools: &mut Tools<'_, F>,
    ) -> Next<F> {
        if let Some(previous) = self.unchanged(&open) {
            return Next::End(Outcome::Unchanged(look, previous));
        }
        let mut parts = no_parts();
        for (part, seen) in (0..).zip(*open) {
            let Some(seen) = seen else { continue };
            let is_small = (1..=tools.in_memory.max()).contains(&seen.stat.size);
            let want = usize::try_from(seen.stat.size).ok().filter(|_| is_small);
            let body = match want.and_then(|want| tools.pool.take(want)) {
                Some(buffer) => {
                    let caching = tools.caching();
                    tools.asks.push_back((part, Ask::Read(seen.file.clone(), buffer, caching)));
                    Body::Reading(caching)
                }
                None => Body::InFile,
            };
            parts[part] = Some((seen, body));
        }
        self.go_on_reading(look, parts, false)
    }

    pub(super) fn read(
        &mut self,
        look: Look<F>,
        mut parts: Parts<(Seen<F>, Body)>,
        mut is_changed: bool,
        part: usize,
        reply: Reply<F>,
        tools: &mut Tools<'_, F>,
    ) -> Next<F> {
        let (seen, body) = parts[part].as_mut().expect("only parts that exist are asked about");
        *body = match (core::mem::replace(body, Body::InFile), reply) {
            (Body::Reading(caching), Reply::Read(buffer)) if caching != tools.caching() => {
                tools.asks.push_back((part, Ask::Drop(seen.file.clone())));
                Body::Dropping(buffer)
            }
            (Body::Reading(_), Reply::Read(buffer)) | (Body::Dropping(buffer), _) => {
                tools.asks.push_back((part, Ask::Stat(seen.file.clone())));
                Body::Confirming(buffer)
            }
            // Nothing has been promised yet, so the request can still be refused.
            (Body::Reading(_), Reply::Failed(error)) if Refusal::of_read(&error).is_some() => {
                Body::Unreadable(error)
            }
            // The file system cannot bypass the page cache. Another read shows if the disk works.
            (Body::Reading(Caching::Drop), Reply::Failed(error)) if is_unsupported(&error) => {
                let want = usize::try_from(seen.stat.size).ok();
                match want.and_then(|want| tools.pool.take(want)) {
                    Some(buffer) => {
                        let file = seen.file.clone();
                        tools.asks.push_back((part, Ask::Read(file, buffer, Caching::Keep)));
                        Body::Reading(Caching::Keep)
                    }
                    None => Body::InFile,
                }
            }
            (Body::Reading(_), _) => Body::InFile,
            (Body::Confirming(buffer), Reply::Stat(stat)) if stat == seen.stat => {
                Body::Confirmed(buffer)
            }
            // The file has changed. It is sent from the file, with the bytes that it has when it is sent, and is not
            // cached.
            (_, reply) => {
                is_changed = true;
                if let Reply::Stat(stat) = reply {
                    seen.stat = stat;
                }
                Body::InFile
            }
        };
        self.go_on_reading(look, parts, is_changed)
    }

    fn go_on_reading(
        &mut self,
        look: Look<F>,
        parts: Parts<(Seen<F>, Body)>,
        is_changed: bool,
    ) -> Next<F> {
        let is_pending = |(_, body): &(_, Body)| {
            matches!(body, Body::Reading(_) | Body::Dropping(_) | Body::Confirming(_))
        };
        if parts.iter().flatten().any(is_pending) {
            return self.wait(Step::Reading { look, parts, is_changed });
        }
        if is_changed && self.looks < LOOKS_MAX && !self.is_outdated {
            return Next::Look;
        }
        let parts = match *parts {
            [Some((_, Body::Unreadable(error))), ..] => {
                return Next::End(Outcome::Failed(error, None));
            }
            parts => parts,
        };
        let parts = parts.map(|part| match part? {
            // A sibling that cannot be read is left out.
            (_, Body::Unreadable(_)) => None,
            (seen, Body::Confirmed(buffer)) => Some((seen, Some(buffer))),
            (seen, _) => Some((seen, None)),
        });
        Next::End(Outcome::File { look, parts: Box::new(parts), is_changed })
    }
}

impl<F> Tools<'_, F> {
    /// The effect of reads on the page cache.
    fn caching(&self) -> Caching {
        match self.rules.policy.caching {
            sendfile::Caching::Never => Caching::Drop,
            _ => Caching::Keep,
        }
    }
}

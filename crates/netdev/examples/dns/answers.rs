//! The answers of a zone, prepared when it is loaded.
//!
//! A message is a header, the question as received, and a tail with the records. The tails of a name differ only by
//! the requested type. Names in a tail are compressed against the question, whose name begins at offset 12: the
//! tail for a name that exists is complete. A tail for all names below another name (they do not exist, are
//! delegated, or match a wildcard) is made as if the other name were the question. Its pointers move by the
//! difference in length.

use std::collections::{BTreeMap, HashMap};

use crate::name::{self, NAME_BYTES_MAX, Name};
use crate::zone::{Error, Part, Record, kind, soa_minimum};

/// Bytes of a message's header, after which the question begins.
pub(crate) const HEADER_BYTES: usize = 12;
/// Bytes of the type and the class after the question's name.
pub(crate) const TYPE_AND_CLASS_BYTES: usize = 4;
/// The name of the question, compressed (RFC 1035, 4.1.4).
const QUESTION: u16 = 0xc000 | 12;
/// No pointer can reach offsets from here on after a tail has moved.
const POINTER_END: usize = 0x4000 - NAME_BYTES_MAX;
/// Bytes of the longest tail: a message over TCP has at most 65,535 bytes with its header, question and OPT record.
const TAIL_BYTES_MAX: usize = 65_535 - HEADER_BYTES - NAME_BYTES_MAX - TYPE_AND_CLASS_BYTES - 11;
/// The longest chain of CNAMEs that the server follows. A resolver asks for the rest.
const CHAIN_MAX: usize = 16;
/// A type that no record has.
const NO_KIND: u16 = 0;

/// The header bit of an authoritative answer (AA).
const AUTHORITATIVE: u16 = 0x0400;
const NXDOMAIN: u16 = 3;

/// The answers of a zone.
#[derive(Debug)]
pub(crate) struct Zone {
    /// The nodes by their names in lower case.
    nodes: HashMap<Box<[u8]>, Node>,
    /// The maximum labels of a name in the zone: a name with more labels does not exist.
    labels_max: usize,
}

/// The answers to questions for a name, and for names below it that do not exist.
#[derive(Debug)]
struct Node {
    own: Answers,
    below: Answers,
}

/// The answers to questions for a name.
#[derive(Debug)]
struct Answers {
    by_kind: Box<[(u16, Answer)]>,
    /// The answer for any other type.
    other: Answer,
}

/// The tail of an answer, and the answer's fields of the header.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// AA and the response code.
    pub(crate) flags: u16,
    /// The numbers of records in the answer, authority and additional sections.
    pub(crate) counts: [u16; 3],
    bytes: Box<[u8]>,
    /// The positions of the pointers that move with the length of the question's name.
    pointers: Box<[u16]>,
}

/// An answer to a question.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found<'a> {
    pub(crate) answer: &'a Answer,
    /// The difference in bytes between the question's name and the name for which the tail was made.
    extra: u16,
}

impl<'a> Found<'a> {
    /// The tail. `moved` gets a copy if its pointers have to move.
    pub(crate) fn tail(&self, moved: &'a mut Vec<u8>) -> &'a [u8] {
        let Answer { bytes, pointers, .. } = self.answer;
        if self.extra == 0 || pointers.is_empty() {
            return bytes;
        }
        moved.clear();
        moved.extend_from_slice(bytes);
        for at in pointers {
            let pointer = &mut moved[usize::from(*at)..][..2];
            let offset = u16::from_be_bytes([pointer[0], pointer[1]]) + self.extra;
            pointer.copy_from_slice(&offset.to_be_bytes());
        }
        moved
    }
}

impl Zone {
    /// Prepares the answers.
    ///
    /// # Errors
    ///
    /// If the records do not form a zone with this origin.
    pub(crate) fn new(records: Vec<Record>, origin: &Name) -> Result<Self, Error> {
        Sets::new(records, origin.lowercase())?.prepare()
    }

    /// Finds the answer to a question for a name, in wire format and any case; `None` if the name is not
    /// in the zone.
    pub(crate) fn find(&self, name: &[u8], kind: u16) -> Option<Found<'_>> {
        let mut buffer = [0; NAME_BYTES_MAX];
        let lower = &mut buffer[..name.len()];
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        let labels = name::suffixes(lower).count();
        let mut candidates = name::suffixes(lower).skip(labels.saturating_sub(self.labels_max));
        let (at, node) =
            candidates.find_map(|(at, suffix)| self.nodes.get(suffix).map(|node| (at, node)))?;
        let answers = if at == 0 { &node.own } else { &node.below };
        let answer = answers.by_kind.iter().find(|(own, _)| *own == kind);
        let answer = answer.map_or(&answers.other, |(_, answer)| answer);
        Some(Found { answer, extra: u16::try_from(at).expect("less than a name") })
    }
}

/// The records of a name by type.
type Kinds = BTreeMap<u16, Set>;

/// The records of a name and a type (RFC 2181, 5).
#[derive(Debug)]
struct Set {
    ttl: u32,
    data: Vec<Vec<Part>>,
}

/// The records of a zone, in order.
#[derive(Debug)]
struct Sets {
    origin: Name,
    /// All names in lower case, also the names without records between the origin and a name with records.
    names: BTreeMap<Name, Kinds>,
    /// The SOA of negative answers. Its TTL is the lifetime of these answers (RFC 2308, 3).
    negative_soa: Set,
}

/// The result of the search for a name in the zone (RFC 1034, 4.3.2).
#[derive(Clone, Copy)]
enum Place<'a> {
    /// The zone ends at this name, and a delegated zone begins.
    Delegated(&'a Name),
    /// The records of the name, or of the wildcard that it matches.
    Present(&'a Kinds),
    Missing,
}

/// The records of an answer.
#[derive(Default)]
struct Draft<'a> {
    flags: u16,
    sections: [Vec<Shared<'a>>; 3],
    /// The types at the end of the chain of CNAMEs.
    kinds: Vec<u16>,
}

/// Records with the same owner and type. The owner `None` is the question's name.
struct Shared<'a> {
    owner: Option<Name>,
    kind: u16,
    set: &'a Set,
}

impl Sets {
    fn new(records: Vec<Record>, origin: Name) -> Result<Self, Error> {
        let mut names = BTreeMap::<Name, Kinds>::new();
        for Record { line, owner, kind, ttl, data } in records {
            let between = core::iter::successors(Some(owner.clone()), Name::parent);
            for name in between.take_while(|name| name.is_within(&origin)) {
                names.entry(name).or_default();
            }
            let kinds = names.entry(owner.clone()).or_default();
            let set = kinds.entry(kind).or_insert_with(|| Set { ttl, data: Vec::new() });
            // The TTLs of a set are the same (RFC 2181, 5.2), and a set has no record twice (5).
            set.ttl = set.ttl.min(ttl);
            if !set.data.contains(&data) {
                set.data.push(data);
            }
            let is_alone = matches!(kind, kind::SOA | kind::CNAME);
            if is_alone && set.data.len() > 1 {
                return Err(Error::new(line, "a second SOA or CNAME of the same name"));
            }
            if kinds.contains_key(&kind::CNAME) && kinds.len() > 1 {
                return Err(Error::new(line, "a name with a CNAME and other records"));
            }
            if kind == kind::SOA && owner != origin {
                return Err(Error::new(line, "a SOA that is not at the origin"));
            }
        }
        let apex = names.get(&origin);
        let soa = apex.and_then(|kinds| kinds.get(&kind::SOA));
        let soa = soa.ok_or_else(|| Error::new(1, "no SOA at the origin"))?;
        let ttl = soa.ttl.min(soa_minimum(&soa.data[0]));
        let negative_soa = Set { ttl, data: soa.data.clone() };
        Ok(Self { origin, names, negative_soa })
    }

    /// The highest name at or above this one where the zone ends.
    fn cut_of(&self, name: &Name) -> Option<&Name> {
        let above = core::iter::successors(Some(name.clone()), Name::parent);
        let inside = above.take_while(|name| *name != self.origin && name.is_within(&self.origin));
        let cuts = inside.filter_map(|name| {
            let (name, kinds) = self.names.get_key_value(&name)?;
            kinds.contains_key(&kind::NS).then_some(name)
        });
        cuts.last()
    }

    fn place_of(&self, name: &Name, kind: u16) -> Place<'_> {
        if let Some(cut) = self.cut_of(name) {
            // A DS belongs to the parent's side (RFC 4035, 3.1.4.1).
            if kind != kind::DS || cut != name {
                return Place::Delegated(cut);
            }
        }
        if let Some(kinds) = self.names.get(name) {
            return Place::Present(kinds);
        }
        let mut above = core::iter::successors(name.parent(), Name::parent);
        above
            .find(|name| self.names.contains_key(name))
            .map_or(Place::Missing, |encloser| self.place_below(&encloser))
    }

    /// The result for names that do not exist below an existing name, their closest encloser (RFC 4592, 3.3.1).
    fn place_below(&self, encloser: &Name) -> Place<'_> {
        self.names.get(&encloser.wildcard()).map_or(Place::Missing, Place::Present)
    }

    /// The records of the answer for a name with this search result. The name is `None` if the answer is for many
    /// names.
    fn draft<'a>(&'a self, name: Option<&Name>, mut place: Place<'a>, asked: u16) -> Draft<'a> {
        let mut draft = Draft { flags: AUTHORITATIVE, ..Draft::default() };
        let mut owner = None;
        let [answer, authority, additional] = &mut draft.sections;
        let negative = || Shared {
            owner: Some(self.origin.clone()),
            kind: kind::SOA,
            set: &self.negative_soa,
        };
        while answer.len() < CHAIN_MAX {
            let kinds = match place {
                Place::Present(kinds) => kinds,
                Place::Missing => {
                    draft.flags |= NXDOMAIN;
                    authority.push(negative());
                    break;
                }
                Place::Delegated(cut) => {
                    // AA concerns the owner at the begin of the chain, which is in this zone (RFC 1035, 4.1.1).
                    draft.flags = if answer.is_empty() { 0 } else { AUTHORITATIVE };
                    self.refer(cut, authority, additional);
                    break;
                }
            };
            draft.kinds = kinds.keys().copied().collect();
            // One set of any type answers a question for all types (RFC 8482, 4.1).
            let wanted = match asked {
                kind::ANY => kinds.keys().next().copied().unwrap_or(NO_KIND),
                asked => asked,
            };
            if let Some(set) = kinds.get(&wanted) {
                answer.push(Shared { owner, kind: wanted, set });
                break;
            }
            let Some(set) = kinds.get(&kind::CNAME) else {
                authority.push(negative());
                break;
            };
            let target = Record::target(&set.data[0]).expect("a CNAME has one");
            answer.push(Shared { owner, kind: kind::CNAME, set });
            let is_seen = name == Some(&target)
                || answer.iter().any(|shared| shared.owner.as_ref() == Some(&target));
            if is_seen || !target.is_within(&self.origin) {
                break;
            }
            place = self.place_of(&target, asked);
            owner = Some(target);
        }
        draft
    }

    /// Refers to the servers of a delegated zone. The addresses of servers within a delegated zone are added
    /// (glue).
    fn refer<'a>(
        &'a self,
        cut: &Name,
        authority: &mut Vec<Shared<'a>>,
        additional: &mut Vec<Shared<'a>>,
    ) {
        let set = &self.names[cut][&kind::NS];
        authority.push(Shared { owner: Some(cut.clone()), kind: kind::NS, set });
        for server in set.data.iter().filter_map(|data| Record::target(data)) {
            let Some(kinds) = self.names.get(&server) else { continue };
            for kind in [kind::A, kind::AAAA] {
                let Some(set) = kinds.get(&kind) else { continue };
                additional.push(Shared { owner: Some(server.clone()), kind, set });
            }
        }
    }

    fn prepare(&self) -> Result<Zone, Error> {
        let mut nodes = HashMap::<Box<[u8]>, Node>::new();
        for name in self.names.keys() {
            let cut = self.cut_of(name);
            if cut.is_some_and(|cut| cut != name) {
                continue;
            }
            let own = self.answers(name, Base::Question, |kind| self.place_of(name, kind));
            let below = self.answers(name, Base::Above, |_| match cut {
                Some(cut) => Place::Delegated(cut),
                None => self.place_below(name),
            });
            let too_long = |TooLong| {
                let reason =
                    format!("the answers for {:?} are too long for a message", name.bytes());
                Error::new(1, reason)
            };
            let node = Node { own: own.map_err(too_long)?, below: below.map_err(too_long)? };
            nodes.insert(name.bytes().into(), node);
        }
        let labels = nodes.keys().map(|name| name::suffixes(name).count());
        Ok(Zone { labels_max: labels.max().expect("the origin"), nodes })
    }

    /// Prepares the answers for names with this search result.
    fn answers<'a>(
        &'a self,
        name: &Name,
        base: Base,
        place: impl Fn(u16) -> Place<'a>,
    ) -> Result<Answers, TooLong> {
        let question = (base == Base::Question).then_some(name);
        let other = self.draft(question, place(NO_KIND), NO_KIND);
        let mut kinds = other.kinds.clone();
        if let Place::Present(own) = place(NO_KIND)
            && !own.is_empty()
        {
            kinds.push(kind::ANY);
            kinds.extend(own.contains_key(&kind::CNAME).then_some(kind::CNAME));
        }
        let is_cut = matches!(place(NO_KIND), Place::Delegated(_));
        kinds.extend((is_cut && base == Base::Question).then_some(kind::DS));
        kinds.sort_unstable();
        kinds.dedup();
        let by_kind: Result<_, _> = kinds
            .into_iter()
            .map(|kind| Ok((kind, encode(name, base, &self.draft(question, place(kind), kind))?)))
            .collect();
        Ok(Answers { by_kind: by_kind?, other: encode(name, base, &other)? })
    }
}

/// The name for which an answer is made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Base {
    /// The question's own name.
    Question,
    /// A name above the question's name.
    Above,
}

/// An answer is longer than a message may be.
#[derive(Debug)]
struct TooLong;

fn encode(name: &Name, base: Base, draft: &Draft<'_>) -> Result<Answer, TooLong> {
    let mut encoder = Encoder {
        begin: HEADER_BYTES + name.bytes().len() + TYPE_AND_CLASS_BYTES,
        ..Encoder::default()
    };
    for (at, suffix) in name::suffixes(name.bytes()) {
        encoder.offsets.insert(suffix.to_vec(), HEADER_BYTES + at);
    }
    let mut counts = [0; 3];
    for (section, count) in draft.sections.iter().zip(&mut counts) {
        for shared in section {
            for data in &shared.set.data {
                encoder.record(shared, data);
            }
            *count += u16::try_from(shared.set.data.len()).map_err(|_| TooLong)?;
        }
    }
    if encoder.bytes.len() > TAIL_BYTES_MAX {
        return Err(TooLong);
    }
    let pointers = match base {
        Base::Question => Vec::new(),
        Base::Above => encoder.pointers,
    };
    Ok(Answer {
        flags: draft.flags,
        counts,
        bytes: encoder.bytes.into(),
        pointers: pointers.into(),
    })
}

/// Writes the records of a tail.
#[derive(Default)]
struct Encoder {
    bytes: Vec<u8>,
    /// The offset of the tail in the message.
    begin: usize,
    /// The offsets in the message of the names that pointers can reach, by their names in lower case.
    offsets: HashMap<Vec<u8>, usize>,
    /// The positions of the pointers in the tail.
    pointers: Vec<u16>,
}

impl Encoder {
    fn record(&mut self, shared: &Shared<'_>, data: &[Part]) {
        match &shared.owner {
            None => self.bytes.extend(QUESTION.to_be_bytes()),
            Some(owner) => self.name(owner),
        }
        self.bytes.extend(shared.kind.to_be_bytes());
        self.bytes.extend(1_u16.to_be_bytes());
        self.bytes.extend(shared.set.ttl.to_be_bytes());
        let length_at = self.bytes.len();
        self.bytes.extend([0, 0]);
        for part in data {
            match part {
                Part::Bytes(bytes) => self.bytes.extend(bytes),
                Part::Name(name) => self.name(name),
            }
        }
        let length = u16::try_from(self.bytes.len() - length_at - 2).unwrap_or(u16::MAX);
        self.bytes[length_at..length_at + 2].copy_from_slice(&length.to_be_bytes());
    }

    /// Writes a name, compressed against the names that are already in the message.
    fn name(&mut self, name: &Name) {
        for (_, suffix) in name::suffixes(name.bytes()) {
            let label = &suffix[..=usize::from(suffix[0])];
            let lower = suffix.to_ascii_lowercase();
            let here = self.begin + self.bytes.len();
            if label != [0] {
                if let Some(offset) = self.offsets.get(&lower) {
                    let offset = u16::try_from(*offset).expect("less than 2¹⁴");
                    // A tail with positions above 16 bits is too long anyway.
                    self.pointers.push(u16::try_from(self.bytes.len()).unwrap_or(u16::MAX));
                    self.bytes.extend((0xc000 | offset).to_be_bytes());
                    return;
                }
                if here < POINTER_END {
                    self.offsets.insert(lower, here);
                }
            }
            self.bytes.extend(label);
        }
    }
}

#[cfg(test)]
#[path = "answers/tests.rs"]
mod tests;

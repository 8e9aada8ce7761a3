//! The thread that keeps the certificates of a plan: it finds the certificates that are due, and orders them.
//!
//! It looks each second at the challenges that others have put into the storage, and at the certificates when one may be
//! due. While another process has the lock, it leaves everything to that one.

use core::time::Duration;
use std::collections::HashMap;
use std::sync::Arc;
use std::thread;

use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};

use crate::clock::unix;
use crate::issue::{Issue, held, renewal_id_of};
use crate::plan::{DAY, HOUR, MINUTE, Next, next, pause};
use crate::protocol::{Authority, Failure, directory_file};
use crate::record::{Challenge, Record};
use crate::storage::{Marks, Storage};
use crate::wanted::{Operator, Plan, Wanted};

/// The time between two looks at the storage.
const LOOK: Duration = Duration::from_secs(1);
/// Seconds after which all certificates are looked at again, because another process may have changed them.
const LOOK_AGAIN: i64 = MINUTE;
/// Seconds after which a lock of another process is tried again.
const LOCK_AGAIN: i64 = 2;
/// Seconds to the next question about the time of renewal, if the authority does not say (RFC 9773 §4.3.2), and the least.
const ASK_AGAIN: i64 = 6 * HOUR;
const ASK_AGAIN_MIN: i64 = MINUTE;
/// Keeps the certificates of the operator's plan, until there is no plan any more. `user` is the user of the process.
pub fn keep(operator: &dyn Operator, user: u32) {
    let mut keeper = Keeper::new(operator, user);
    while let Some(plan) = operator.plan() {
        keeper.look(&plan);
        thread::sleep(LOOK);
    }
    operator.set_challenges(&[]);
}

/// The state of the thread.
struct Keeper<'a> {
    operator: &'a dyn Operator,
    user: u32,
    plan: Option<Arc<Plan>>,
    /// The time for the next look at the certificates.
    due_at: i64,
    /// The marks of the storage when its challenges were read.
    marks: Option<Marks>,
    challenges: Vec<Challenge>,
    /// The last sentence about each certificate, and about the storage (under an empty name).
    said: HashMap<String, String>,
}

impl<'a> Keeper<'a> {
    fn new(operator: &'a dyn Operator, user: u32) -> Self {
        Self {
            operator,
            user,
            plan: None,
            due_at: 0,
            marks: None,
            challenges: Vec::new(),
            said: HashMap::new(),
        }
    }

    /// Looks at the storage, and takes the steps that are due.
    fn look(&mut self, plan: &Arc<Plan>) {
        if !self.plan.as_ref().is_some_and(|known| Arc::ptr_eq(known, plan)) {
            self.plan = Some(Arc::clone(plan));
            self.due_at = 0;
            self.marks = None;
        }
        let now = unix();
        let looked = Storage::open(&plan.storage, self.user).map_err(|unfit| unfit.to_string());
        let looked = looked.and_then(|storage| {
            self.take_challenges(&storage, now)?;
            // A clock that was set back must not stop it.
            if now < self.due_at && self.due_at - now <= LOOK_AGAIN {
                return Ok(None);
            }
            self.act(plan, &storage, now).map(Some)
        });
        match looked {
            Ok(None) => {}
            Ok(Some(due_at)) => {
                self.due_at = due_at;
                self.said.remove("");
            }
            Err(why) => {
                self.due_at = now + LOOK_AGAIN;
                self.say("", &format!("{why}; no certificate is ordered meanwhile"));
            }
        }
    }

    /// Answers the challenges that any process has put into the storage.
    fn take_challenges(&mut self, storage: &Storage, now: i64) -> Result<(), String> {
        let marks = storage.marks()?;
        // Two changes in a short time may have the same marks.
        if self.marks == Some(marks) && !marks.are_fresh(now) {
            return Ok(());
        }
        let all = storage.challenges()?;
        if all != self.challenges {
            self.operator.set_challenges(&all);
            self.challenges = all;
        }
        self.marks = Some(marks);
        Ok(())
    }

    /// Takes the steps that are due. Returns the time for the next look.
    fn act(&mut self, plan: &Plan, storage: &Storage, now: i64) -> Result<i64, String> {
        let mut soonest = now + LOOK_AGAIN;
        let mut is_due = false;
        for wanted in &plan.certificates {
            match self.step(plan, storage, wanted, now)? {
                (Next::Wait(until), ..) => soonest = soonest.min(until),
                _ => is_due = true,
            }
        }
        if !is_due {
            return Ok(soonest);
        }
        // The directory itself may be failing. It has a record of its own.
        let of_directory = directory_file(&plan.directory);
        let mut directory = read_record(storage, &of_directory)?;
        if let Next::Wait(until) = next(&directory, None, now) {
            return Ok(soonest.min(until));
        }
        let Some(_lock) = storage.lock()? else { return Ok(now + LOCK_AGAIN) };
        self.remove_stale(plan, storage)?;
        let asked = self.ask(plan, storage);
        // The challenges were set by the orders.
        (self.marks, self.challenges) = (None, Vec::new());
        match asked? {
            None if directory == Record::default() => {}
            None => storage.remove(&of_directory)?,
            Some((text, wait)) => {
                let now = unix();
                directory.note_failure(now, wait.map(|wait| now + wait));
                storage.write(&of_directory, directory.to_text().as_bytes())?;
                let again = wait.unwrap_or(0).max(pause(directory.streak));
                self.operator.say(&format!(
                    "the ACME server cannot be asked for certificates: {text}; the next try is in {}, and certificates that there are stay in use",
                    Span(again)
                ));
            }
        }
        Ok(unix())
    }

    /// The next step for a certificate, with its files in the storage.
    fn step(
        &mut self,
        plan: &Plan,
        storage: &Storage,
        wanted: &Wanted,
        now: i64,
    ) -> Result<(Next, Record, Option<Vec<u8>>), String> {
        let record = read_record(storage, &record_of(wanted))?;
        let record = record.narrow(&plan.directory, &wanted.names);
        let file = storage.read(&wanted.file())?;
        let mut held = file.as_ref().and_then(|file| held(&wanted.names, file));
        if let Some(held) = &mut held {
            // One of another authority is replaced at once: the operator has named this one.
            held.covers &= record.issued_by.as_ref().is_none_or(|by| *by == plan.directory);
        }
        let step = next(&record, held, now);
        if let Some(held) = held
            && (held.is_early(now) || held.came_late(&record))
        {
            self.say(wanted.name(), &format!(
                "the certificate of {} does not fit to the clock of this machine: set the clock; it is not ordered again before tomorrow",
                wanted.shown()
            ));
        }
        // The chain has no part of the key.
        let chain = file.as_ref().and_then(|file| {
            let begin = file.windows(CERTIFICATE.len()).position(|part| part == CERTIFICATE)?;
            Some(file[begin..].to_vec())
        });
        Ok((step, record, chain))
    }

    /// Asks the authority for all that is due. Returns the reason if it could not be asked.
    fn ask(
        &mut self,
        plan: &Plan,
        storage: &Storage,
    ) -> Result<Option<(String, Option<i64>)>, String> {
        let mut authority = None;
        for wanted in &plan.certificates {
            // Another process may have done it before this one had the lock.
            let (step, mut record, chain) = self.step(plan, storage, wanted, unix())?;
            if matches!(step, Next::Wait(_)) {
                continue;
            }
            let record_file = record_of(wanted);
            if step == Next::Order {
                // It counts even if this process dies before the answer. A storage that cannot be written to ends here.
                record.order = None;
                record.note_order(unix());
                storage.write(&record_file, record.to_text().as_bytes())?;
            }
            let done = match &mut authority {
                Some(authority) => Ok(authority),
                none => self.open(plan, storage).map(|opened| none.insert(opened)),
            };
            let done = done.and_then(|authority| match step {
                Next::Wait(_) => Ok(()),
                Next::AskWindow => ask_window(authority, &mut record, chain.as_deref()),
                Next::Order | Next::Continue => {
                    let is_own = record.issued_by.as_ref() == Some(&plan.directory);
                    let replaces = chain.as_deref().filter(|_| is_own).and_then(renewal_id_of);
                    let (operator, kinds) = (self.operator, &*plan.kinds);
                    if step == Next::Order {
                        operator.say(&format!("ordering a certificate for {}", wanted.shown()));
                    } else {
                        operator.say(&format!(
                            "going on with the order of a certificate for {}",
                            wanted.shown()
                        ));
                    }
                    let record = &mut record;
                    let record_file = &*record_file;
                    Issue { authority, storage, operator, wanted, kinds, record, record_file }
                        .run(replaces.as_deref())
                }
            });
            match done {
                Ok(()) if step == Next::AskWindow => {
                    storage.write(&record_file, record.to_text().as_bytes())?;
                }
                Ok(()) => {
                    let life = storage.read(&wanted.file())?;
                    let life = life.and_then(|file| held(&wanted.names, &file));
                    let due = life.map_or(0, |held| held.due_at(&record) - unix());
                    self.operator.say(&format!(
                        "got a certificate for {}; it is renewed in {}",
                        wanted.shown(),
                        Span(due)
                    ));
                }
                Err(Failure::Unreachable { text, wait }) => {
                    // The authority has taken the order, so the order stays and counts.
                    storage.write(&record_file, record.to_text().as_bytes())?;
                    return Ok(Some((text, wait)));
                }
                Err(Failure::Storage(why)) => return Err(why),
                Err(failure @ (Failure::Refused { .. } | Failure::NoAccount)) => {
                    let now = unix();
                    let wait =
                        if let Failure::Refused { wait, .. } = &failure { *wait } else { None };
                    record.note_failure(now, wait.map(|wait| now + wait));
                    if matches!(failure, Failure::NoAccount) {
                        Authority::forget_account(
                            storage,
                            &plan.directory,
                            plan.external.as_ref(),
                        )?;
                        authority = None;
                    }
                    storage.write(&record_file, record.to_text().as_bytes())?;
                    let again = wait.unwrap_or(0).max(pause(record.streak));
                    let stays = if chain.is_some() { "; the one before stays in use" } else { "" };
                    self.operator.say(&format!(
                        "no certificate for {}: {failure}; the next try is in {}{stays}",
                        wanted.shown(),
                        Span(again)
                    ));
                }
            }
        }
        Ok(None)
    }

    fn open(&self, plan: &Plan, storage: &Storage) -> Result<Authority, Failure> {
        let Plan { directory, contact, roots, external, .. } = plan;
        let mut said = Vec::new();
        let opened =
            Authority::open(storage, directory, roots, contact, external.as_ref(), &mut said);
        said.iter().for_each(|text| self.operator.say(text));
        opened
    }

    /// Removes challenges of orders that are not under way any more: their process has died.
    fn remove_stale(&self, plan: &Plan, storage: &Storage) -> Result<(), String> {
        let mut names = Vec::new();
        for wanted in &plan.certificates {
            if read_record(storage, &record_of(wanted))?.order.is_some() {
                names.extend(&wanted.names);
            }
        }
        let stale = storage.challenges()?.into_iter().filter(|it| !names.contains(&&it.name));
        for challenge in stale {
            storage.remove_challenge(&challenge.token)?;
        }
        Ok(())
    }

    /// Says a sentence about something, unless it was the last one about it.
    fn say(&mut self, about: &str, text: &str) {
        if self.said.get(about).is_none_or(|said| said != text) {
            self.operator.say(text);
            self.said.insert(about.to_owned(), text.to_owned());
        }
    }
}

/// The beginning of a certificate in the format PEM.
const CERTIFICATE: &[u8] = b"-----BEGIN CERTIFICATE-----";

fn record_of(wanted: &Wanted) -> String {
    format!("{}.json", wanted.name())
}

/// Reads a record. One that is damaged counts as none: its certificate is in another file.
fn read_record(storage: &Storage, name: &str) -> Result<Record, String> {
    let text = storage.read_text(name)?;
    Ok(text.and_then(|text| Record::from_text(&text)).unwrap_or_default())
}

/// Asks when to renew a certificate. A server that does not know, or does not answer, changes nothing.
fn ask_window(
    authority: &mut Authority,
    record: &mut Record,
    chain: Option<&[u8]>,
) -> Result<(), Failure> {
    let id = chain.and_then(renewal_id_of);
    let window = id.map_or(Ok(None), |id| authority.window(&id));
    let now = unix();
    let again = match window {
        Ok(Some(window)) => {
            // All clients of the authority take another moment of the window (RFC 9773 §4.2).
            let is_same =
                record.renew_at.is_some_and(|at| (window.start..=window.end).contains(&at));
            if !is_same {
                record.renew_at = Some(random_between(window.start, window.end));
            }
            window.wait.unwrap_or(ASK_AGAIN)
        }
        Ok(None) => {
            record.renew_at = None;
            DAY
        }
        Err(failure @ Failure::Unreachable { .. }) => {
            record.ask_at = Some(now + HOUR);
            return Err(failure);
        }
        Err(_) => ASK_AGAIN,
    };
    record.ask_at = Some(now + again.clamp(ASK_AGAIN_MIN, DAY));
    Ok(())
}

/// A random time between two; the first if the system has no random numbers.
fn random_between(start: i64, end: i64) -> i64 {
    let mut bytes = [0; 8];
    if SystemRandom::new().fill(&mut bytes).is_err() {
        return start;
    }
    let span = end.abs_diff(start).saturating_add(1);
    start.saturating_add_unsigned(u64::from_le_bytes(bytes) % span)
}

/// A span of time in words: `5 min`.
struct Span(i64);

impl core::fmt::Display for Span {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.0.max(0) {
            seconds @ ..MINUTE => write!(out, "{seconds} s"),
            seconds @ MINUTE..HOUR => write!(out, "{} min", seconds / MINUTE),
            seconds @ HOUR..DAY => write!(out, "{} h", seconds / HOUR),
            seconds if seconds < 2 * DAY => out.write_str("1 day"),
            seconds => write!(out, "{} days", seconds / DAY),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_shown_in_words() {
        let shown =
            [-1, 59, 60, 3599, 3600, 86_399, 86_400, 172_800].map(|span| Span(span).to_string());
        assert_eq!(shown, ["0 s", "59 s", "1 min", "59 min", "1 h", "23 h", "1 day", "2 days"]);
    }

    #[test]
    fn a_random_time_lies_in_its_window() {
        for (start, end) in [(5, 5), (-3, 3), (i64::MIN, i64::MAX)] {
            for _ in 0..100 {
                assert!((start..=end).contains(&random_between(start, end)));
            }
        }
    }
}

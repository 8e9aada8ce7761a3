//! The steps of a request after the first file was not found: a directory, a fallback, the page of an error.
//!
//! ```text
//! Asked ──(404)──► the route of the path with a slash, if there is one: a redirect
//!   │
//!   ├──(404)──► Fallback ──(a file)──► that file
//!   │              │
//!   ▼              ▼ (an error; anything but a file is a 404)
//! (an error)    Page ──(a file)──► the error with that file as its page
//!                  │
//!                  └──(anything else)──► the error with the page of the server
//! ```
//!
//! A fallback has no fallback and a page has no page, so the steps end whatever the configuration says.

use core::convert::Infallible;
use std::rc::Rc;

use http::Status;

use super::answer::{Answer, Outcome, Paged};
use super::script::script_at;
use super::{Router, Waiting};
use crate::content::{self, Kind};
use crate::handler::{Found, Request, Ticket};
use crate::route::RouteId;
use crate::serving::{Page, Place, Serving, TreeId};
use crate::shell::Shell;
use crate::site::SiteId;

/// The step of a request: the file that is looked for.
#[derive(Debug)]
pub(super) enum Step {
    /// The file that was asked for. The route has its path with a slash at the end.
    Asked(Option<RouteId>),
    /// The fallback, or none if the request was refused.
    Fallback,
    /// The page of this error.
    Page(Box<Outcome>),
}

impl Step {
    /// The first step of a request for a path of a site.
    #[inline(never)]
    pub(super) fn first(serving: &Serving, site: SiteId, path: &[u8]) -> Self {
        Self::Asked(serving.directory(site, path))
    }
}

impl Outcome {
    /// The status, if this is an error.
    pub(super) const fn error(&self) -> Option<Status> {
        match self {
            Self::Error(status) | Self::Content(_, content::Answer::Error(status)) => Some(*status),
            Self::Content(_, content::Answer::Rejected(reject)) => Some(reject.status),
            Self::Refused(refusal) => Some(refusal.status()),
            Self::NotAllowed(_) => Some(Status::MethodNotAllowed),
            Self::Content(..)
            | Self::Page(_)
            | Self::Program(_)
            | Self::Passed(_)
            | Self::HandedOver(_)
            | Self::Directory(_)
            | Self::Moved(_)
            | Self::Options(_)
            | Self::Metrics
            | Self::Fixed(_)
            | Self::Paged(_) => None,
        }
    }

    /// The same error with the page of the server.
    pub(super) fn unpaged(&self) -> Self {
        match self {
            Self::Content(id, answer) => Self::Content(*id, answer.clone()),
            Self::Refused(refusal) => Self::Refused(*refusal),
            Self::NotAllowed(allow) => Self::NotAllowed(allow),
            error => Self::Error(error.error().expect("only errors have pages")),
        }
    }

    /// Returns whether nothing was found. It may have a page.
    pub(super) fn is_missing(&self) -> bool {
        match self {
            Self::Paged(paged) => paged.error.is_missing(),
            outcome => outcome.error() == Some(Status::NotFound),
        }
    }

    fn is_file(&self) -> bool {
        let Self::Content(_, content::Answer::Resource(resource)) = self else { return false };
        matches!(resource.kind, Kind::File(_))
    }
}

impl Router {
    /// Goes on with a request that was refused.
    #[inline(never)]
    pub(super) fn settle_refused(
        &mut self,
        shell: &mut Shell,
        ticket: Ticket,
        (serving, place): (Rc<Serving>, Place),
        outcome: Outcome,
    ) -> Found<Answer> {
        self.settle(shell, ticket, (serving, place), Step::Fallback, outcome)
    }

    /// Goes on with a request for a path for which this was found at once.
    #[inline(never)]
    pub(super) fn settle_asked(
        &mut self,
        shell: &mut Shell,
        request: &Request<'_>,
        (serving, place): (Rc<Serving>, Place),
        path: &[u8],
        outcome: Outcome,
    ) -> Found<Answer> {
        let step = Step::first(&serving, place.site, path);
        self.settle(shell, request.ticket, (serving, place), step, outcome)
    }

    /// Goes on with a request after a step that has found something.
    pub(super) fn settle(
        &mut self,
        shell: &mut Shell,
        ticket: Ticket,
        (serving, place): (Rc<Serving>, Place),
        step: Step,
        outcome: Outcome,
    ) -> Found<Answer> {
        let found = follow(&serving, place, step, outcome, |tree, path, step| {
            let found = match step {
                Step::Page(_) => self.files.find_page(shell, tree, path, ticket),
                _ => self.files.find(shell, tree, path, ticket),
            };
            match found {
                content::Found::Now(answer) => Ok(answer),
                content::Found::Later => Err(Later),
            }
        });
        match found {
            Ok(outcome) => Found::Now(Answer { serving, place, outcome }),
            Err((Later, route, step)) => {
                self.waiting.insert(ticket, Waiting::for_file(serving, place, route, step));
                Found::Later(None)
            }
        }
    }

    /// Answers a request with an error at once: with its page, if that can be had without a wait.
    pub(super) fn settle_at_once(
        &mut self,
        shell: &mut Shell,
        (serving, place): (Rc<Serving>, Place),
        error: Outcome,
    ) -> Answer {
        let find = |tree, path: &[u8], _: &Step| {
            let found = self.files.find_at_once(shell, tree, path);
            Ok::<_, Infallible>(found.map_or(
                content::Answer::Error(Status::ServiceUnavailable),
                content::Answer::Resource,
            ))
        };
        let Ok(outcome) = follow(&serving, place, Step::Fallback, error, find);
        Answer { serving, place, outcome }
    }
}

/// What follows a step.
#[derive(Debug)]
enum Next<'a> {
    /// This is the answer.
    End(Outcome),
    /// This file is looked for.
    Find(&'a Page, Step),
}

/// A file is looked for, and will be found later.
#[derive(Debug)]
struct Later;

/// Follows the steps of a request from one that has found `outcome` to the answer. `find` finds the file of a step.
///
/// # Errors
///
/// Those of `find`, with the route of the file and the step.
fn follow<E>(
    serving: &Serving,
    place: Place,
    mut step: Step,
    mut outcome: Outcome,
    mut find: impl FnMut(TreeId, &[u8], &Step) -> Result<content::Answer, E>,
) -> Result<Outcome, (E, RouteId, Step)> {
    loop {
        match next(serving, place, step, outcome) {
            Next::End(outcome) => return Ok(outcome),
            Next::Find(page, following) => {
                let tree = serving.tree(page.route).expect("a page is a file of its route");
                match find(tree, &page.path, &following) {
                    Ok(answer) => outcome = Outcome::Content(page.route, answer),
                    Err(error) => return Err((error, page.route, following)),
                }
                step = following;
            }
        }
    }
}

/// Decides what follows a step that has found `outcome`, for a request of a place.
fn next(serving: &Serving, place: Place, step: Step, outcome: Outcome) -> Next<'_> {
    let route = place.route;
    let outcome = match outcome {
        // A script is run where its own route leads to it. It is not sent in any case.
        Outcome::Content(id, content::Answer::Resource(resource))
            if (matches!(step, Step::Page(_)) || route != Some(id))
                && script_at(serving, id, &resource).is_some() =>
        {
            Outcome::Error(Status::NotFound)
        }
        outcome => outcome,
    };
    let outcome = match (&step, outcome) {
        (Step::Fallback, outcome @ Outcome::Content(_, content::Answer::Resource(_)))
            if !outcome.is_file() =>
        {
            Outcome::Error(Status::NotFound)
        }
        (_, outcome) => outcome,
    };
    let directory = match step {
        Step::Page(error) => {
            return Next::End(match outcome {
                Outcome::Content(_, page) if matches!(&page, content::Answer::Resource(resource) if matches!(resource.kind, Kind::File(_))) => {
                    Outcome::Paged(Box::new(Paged { error: *error, page }))
                }
                _ => *error,
            });
        }
        Step::Asked(directory) => Some(directory),
        Step::Fallback => None,
    };
    let Some(status) = outcome.error() else { return Next::End(outcome) };
    // A path that is too long for a file has none either.
    if let (Status::NotFound | Status::UriTooLong, Some(directory)) = (status, directory) {
        if let Some(id) = directory {
            return Next::End(Outcome::Directory(id));
        }
        if let Some(page) = route.and_then(|id| serving.fallback(id)) {
            return Next::Find(page, Step::Fallback);
        }
    }
    match serving.page(place, status) {
        Some(page) => Next::Find(page, Step::Page(Box::new(outcome))),
        None => Next::End(outcome),
    }
}

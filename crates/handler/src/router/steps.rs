//! The steps of a request after the first file was not found: a directory, a fallback, an error page.
//!
//! ```text
//! Asked ──(404)──► the route of the path with a slash, if there is one: a redirect
//!   │
//!   ├──(404)──► Fallback ──(a file)──► that file
//!   │              │
//!   ▼              ▼ (an error; anything but a file is a 404)
//! (an error)    ErrorPage ──(a file)──► the error with that file as its page
//!                  │
//!                  └──(anything else)──► the error with the page of the server
//! ```
//!
//! A fallback has no fallback and an error page has no error page, so the steps end whatever the configuration says.

use std::borrow::Cow;
use std::rc::Rc;

use http::Status;

use super::answer::{Outcome, Paged};
use super::destination::Ground;
use super::script::script_at;
use crate::serving::NamedFile;
use config::route::RouteId;
use content::{self, Kind};
use session::reason::Reason;
use session::record::UpstreamTimes;

/// The step of a request: the file that is looked for.
#[derive(Debug)]
pub(super) enum Step<'a> {
    /// The file that was asked for.
    Asked(Slash<'a>),
    /// The fallback, or none if the request was refused.
    Fallback,
    /// The error page of this error.
    ErrorPage(Box<Outcome>),
}

/// The route whose path is the request's path with a slash at its end. Few requests need this route.
#[derive(Clone, Copy, Debug)]
pub(super) enum Slash<'a> {
    /// The route for this path, which was not looked for yet.
    Of(&'a [u8]),
    /// The route, if there is one.
    Found(Option<RouteId>),
}

impl<'a> Slash<'a> {
    /// The route for a path. If the path is not lent, the route is looked for at once.
    pub(super) fn of(path: Cow<'a, [u8]>, ground: Ground<'_>) -> Self {
        match path {
            Cow::Borrowed(path) => Slash::Of(path),
            Cow::Owned(path) => Slash::Found(Slash::Of(&path).find(ground)),
        }
    }

    fn find(self, Ground { serving, destination }: Ground<'_>) -> Option<RouteId> {
        match self {
            Slash::Of(path) => serving.directory(destination.site, path),
            Slash::Found(directory) => directory,
        }
    }
}

impl Step<'_> {
    /// The same step, without the path of the request.
    pub(super) fn keep(self, ground: Ground<'_>) -> Step<'static> {
        match self {
            Step::Asked(slash) => Step::Asked(Slash::Found(slash.find(ground))),
            Step::Fallback => Step::Fallback,
            Step::ErrorPage(error) => Step::ErrorPage(error),
        }
    }
}

impl Outcome {
    /// The status, if the outcome is an error.
    pub(super) const fn error(&self) -> Option<Status> {
        match self {
            Self::Error(status, _) | Self::Content(_, content::PathAnswer::Error(status, _)) => {
                Some(*status)
            }
            Self::Content(_, content::PathAnswer::Rejected(reject)) => Some(reject.status),
            Self::Refused(refusal) => Some(refusal.status()),
            Self::Denied(denial) => Some(denial.status),
            Self::NotAllowed(_) => Some(Status::MethodNotAllowed),
            Self::Content(..)
            | Self::Page(_)
            | Self::Program(_)
            | Self::Passed(_)
            | Self::Recalled(_)
            | Self::HandedOver(_)
            | Self::Directory(_)
            | Self::Moved(_)
            | Self::Options(_)
            | Self::Challenge(_)
            | Self::Metrics
            | Self::StatusPage(_)
            | Self::Fixed(_)
            | Self::Paged(_)
            | Self::Postponed => None,
        }
    }

    /// The reason for the operator, if the outcome is an error.
    pub(super) fn reason(&self) -> Option<&Reason> {
        match self {
            Self::Error(_, reason) | Self::Content(_, content::PathAnswer::Error(_, reason)) => {
                Some(reason)
            }
            Self::Refused(refusal) => Some(refusal.reason()),
            Self::Denied(_) => Some(&Reason::Authorizer),
            Self::NotAllowed(_) => Some(&Reason::Method),
            Self::Fixed(_) => Some(&Reason::Fixed),
            Self::Program(answer) => answer.reason(),
            Self::Passed(answer) => answer.reason(),
            Self::Paged(paged) => paged.error.reason(),
            // These outcomes are no errors, and a page shows the errors of its directives.
            Self::Content(..)
            | Self::Page(_)
            | Self::Recalled(_)
            | Self::HandedOver(_)
            | Self::Directory(_)
            | Self::Moved(_)
            | Self::Options(_)
            | Self::Challenge(_)
            | Self::Metrics
            | Self::StatusPage(_)
            | Self::Postponed => None,
        }
    }

    /// The times of the upstream, if an upstream has answered and there is a log.
    pub(super) fn times(&self) -> Option<&Rc<UpstreamTimes>> {
        if let Self::Passed(answer) = self { answer.times() } else { None }
    }

    /// The same error with the server's own page.
    pub(super) fn unpaged(&self) -> Self {
        match self {
            Self::Content(id, answer) => Self::Content(*id, answer.clone()),
            Self::Refused(refusal) => Self::Refused(*refusal),
            Self::Denied(denial) => Self::Denied(denial.clone()),
            Self::NotAllowed(allow) => Self::NotAllowed(allow),
            error => Self::Error(
                error.error().expect("only errors have pages"),
                error.reason().cloned().unwrap_or(Reason::Page),
            ),
        }
    }

    /// Returns true if nothing was found. Such an outcome may have a page.
    pub(super) fn is_missing(&self) -> bool {
        match self {
            Self::Paged(paged) => paged.error.is_missing(),
            outcome => outcome.error() == Some(Status::NotFound),
        }
    }

    fn is_file(&self) -> bool {
        let Self::Content(_, content::PathAnswer::Resource(resource)) = self else { return false };
        matches!(resource.kind, Kind::File(_))
    }
}

/// The continuation after a step.
#[derive(Debug)]
pub(super) enum Further<'a> {
    /// No further step: this was found.
    End(Outcome),
    /// This file is looked for.
    Find(&'a NamedFile, Step<'static>),
}

/// Decides how a request continues after its step has found `outcome`.
pub(super) fn further<'a>(ground: Ground<'a>, step: Step<'_>, outcome: Outcome) -> Further<'a> {
    let Ground { serving, destination } = ground;
    let route = destination.route;
    let outcome = match outcome {
        // A script is run only by its own route, and is never sent.
        Outcome::Content(id, content::PathAnswer::Resource(resource))
            if (matches!(step, Step::ErrorPage(_)) || route != Some(id))
                && script_at(serving, id, &resource).is_some() =>
        {
            Outcome::Error(Status::NotFound, Reason::Source)
        }
        outcome => outcome,
    };
    let outcome = match (&step, outcome) {
        (Step::Fallback, outcome @ Outcome::Content(_, content::PathAnswer::Resource(_)))
            if !outcome.is_file() =>
        {
            Outcome::Error(Status::NotFound, Reason::NotRegular)
        }
        (_, outcome) => outcome,
    };
    let slash = match step {
        Step::ErrorPage(error) => {
            return Further::End(match outcome {
                Outcome::Content(_, page) if matches!(&page, content::PathAnswer::Resource(resource) if matches!(resource.kind, Kind::File(_))) => {
                    Outcome::Paged(Box::new(Paged { error: *error, page }))
                }
                _ => *error,
            });
        }
        Step::Asked(slash) => Some(slash),
        Step::Fallback => None,
    };
    let Some(status) = outcome.error() else { return Further::End(outcome) };
    // A path that is too long for a file has no file either.
    if let (Status::NotFound | Status::UriTooLong, Some(slash)) = (status, slash) {
        if let Some(id) = slash.find(ground) {
            return Further::End(Outcome::Directory(id));
        }
        if let Some(file) = route.and_then(|id| serving.fallback(id)) {
            return Further::Find(file, Step::Fallback);
        }
    }
    match serving.error_page(destination, status) {
        Some(file) => Further::Find(file, Step::ErrorPage(Box::new(outcome))),
        None => Further::End(outcome),
    }
}

//! The handler of the server: finds the route of each request, and does what the route says.

use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use http::{Head, Method, ResponseHead, Status, Target, path};
use ring::{Completion, Fd};

use super::files::{self, Files, bare};
use super::page::{self, ALLOW};
use super::{AnswerSize, Consumer, Found, Handler, Request, Response, Ticket, metrics};
use crate::config::Action;
use crate::content;
use crate::context::Context;
use crate::metrics::Metrics;
use crate::route::RouteId;
use crate::serving::{Place, Serving};
use crate::shell::Shell;
use crate::site::SiteId;

/// The handler of the server.
#[derive(Debug)]
pub struct Router {
    files: Files,
    /// The requests whose files are being looked for.
    waiting: HashMap<Ticket, Waiting>,
    /// Paths that are not in their normal form are normalized here.
    scratch: Vec<u8>,
    metrics: Arc<Metrics>,
}

/// A request whose file is being looked for.
#[derive(Debug)]
struct Waiting {
    serving: Rc<Serving>,
    place: Place,
    /// The route whose files they are.
    route: RouteId,
}

/// The answer to a request: its place, and what is there.
#[derive(Debug)]
pub struct Answer {
    serving: Rc<Serving>,
    place: Place,
    what: What,
}

/// The thing that a request is answered with.
#[derive(Debug)]
enum What {
    /// A file or a directory of this route, or a reason why there is none.
    Content(RouteId, content::Answer),
    /// The path of this route with a slash at its end.
    Directory(RouteId),
    /// The list of allowed methods.
    Options,
    /// The numbers of all workers.
    Metrics,
    /// A page for this status.
    Error(Status),
}

impl Handler for Router {
    type Answer = Answer;

    fn consumer(
        &mut self,
        _shell: &mut Shell,
        _request: &Request<'_>,
    ) -> Option<Box<dyn Consumer>> {
        None
    }

    #[inline]
    fn find(&mut self, shell: &mut Shell, request: &Request<'_>) -> Found<Answer> {
        let serving = Rc::clone(&shell.cx.serving);
        let site = serving.site(request.origin.listener, request.head);
        match request.head.target {
            Target::Origin { path, .. } if path::is_normal(path) => {
                self.find_path(shell, request, serving, site, path)
            }
            Target::Origin { path, .. } => self.find_unusual(shell, request, serving, site, path),
            Target::Asterisk | Target::Authority => {
                let what = match &request.head.method {
                    Method::Options => What::Options,
                    Method::Get | Method::Head => What::Error(Status::BadRequest),
                    method => What::Error(refusal_of(method)),
                };
                let place = Place { site, route: None };
                Found::Now(Answer { serving, place, what })
            }
        }
    }

    fn size(&self, answer: &Answer) -> AnswerSize {
        match &answer.what {
            What::Content(_, content) => {
                let (shared, holds_files) = content.holds();
                AnswerSize { shared, holds_files, unique: false }
            }
            What::Directory(_) | What::Options | What::Metrics | What::Error(_) => {
                AnswerSize::default()
            }
        }
    }

    #[inline]
    fn response<'a>(
        &mut self,
        cx: &mut Context,
        head: &Head<'_>,
        answer: &'a Answer,
    ) -> Response<'a> {
        let Answer { serving, place, what } = answer;
        let mut response = match what {
            What::Content(id, content) => {
                let Action::Files(files) = &serving.route(*id).action else {
                    unreachable!("content is of a route with files")
                };
                files::response(cx, head, serving.prefix(*id), files.rules.policy, content)
            }
            What::Directory(id) => directory(head, serving.prefix(*id)),
            What::Options => Response::bare(ResponseHead {
                allow: Some(ALLOW.into()),
                ..bare(Status::NoContent)
            }),
            What::Metrics => metrics::response(&self.metrics, bare(Status::Ok)),
            What::Error(status) => page::error(bare(*status)),
        };
        let terms = &mut response.terms;
        terms.recording = serving.recording(place.site);
        terms.is_from_disk = matches!(what, What::Content(..));
        terms.server_timing = place.route.is_some_and(|id| serving.route(id).server_timing);
        response
    }

    fn handle(&mut self, shell: &mut Shell, completion: Completion) {
        self.files.handle(shell, completion);
    }

    fn next_answer(&mut self) -> Option<(Ticket, Answer)> {
        let (ticket, content) = self.files.next_answer()?;
        let Waiting { serving, place, route } =
            self.waiting.remove(&ticket).expect("a request waits for each answer");
        Some((ticket, Answer { serving, place, what: What::Content(route, content) }))
    }
}

impl Router {
    /// Serves the snapshot of the worker from its directories, which are open, in the order of
    /// [`Snapshot::roots`](crate::serving::Snapshot::roots). At most `descriptors_max` files stay open.
    ///
    /// # Errors
    ///
    /// Those of `mmap(2)`.
    ///
    /// # Panics
    ///
    /// If there is not one open directory for each root.
    pub fn new(roots: &[Fd], descriptors_max: usize, shell: &mut Shell) -> io::Result<Self> {
        let snapshot = Arc::clone(&shell.cx.serving.snapshot);
        let recordings = shell.recordings(&snapshot);
        let (files, serving) = Files::new(snapshot, roots, descriptors_max, shell)?;
        shell.cx.serving = Rc::new(serving.recorded(recordings));
        let metrics = Arc::clone(shell.meters.metrics());
        Ok(Self { files, waiting: HashMap::new(), scratch: Vec::new(), metrics })
    }

    /// Serves a root directory from another one from now on. Responses that have begun are completed from
    /// the old one.
    pub(crate) fn replace_root(&mut self, shell: &mut Shell, root: usize, directory: &Fd) {
        let serving = Rc::clone(&shell.cx.serving);
        for tree in serving.trees_of(root) {
            self.files.replace_root(shell, tree, directory.clone());
        }
    }

    /// Finds the answer to a request for a path that is in its normal form.
    // Each request comes here, and a call would cost 30 instructions.
    #[inline(always)]
    fn find_path(
        &mut self,
        shell: &mut Shell,
        request: &Request<'_>,
        serving: Rc<Serving>,
        site: SiteId,
        path: &[u8],
    ) -> Found<Answer> {
        let place = serving.place(site, path);
        let Some(id) = place.route else {
            return Found::Now(Answer { serving, place, what: What::Error(Status::NotFound) });
        };
        let what = match (&request.head.method, serving.tree(id)) {
            (Method::Get | Method::Head, Some(tree)) => {
                match path.get(serving.prefix(id).len()..) {
                    Some(rest) => match self.files.find(shell, tree, rest, request.ticket) {
                        content::Found::Now(answer) => What::Content(id, answer),
                        content::Found::Later => {
                            self.waiting
                                .insert(request.ticket, Waiting { serving, place, route: id });
                            return Found::Later(None);
                        }
                    },
                    None => What::Directory(id),
                }
            }
            (Method::Get | Method::Head, None) if serving.route(id).action == Action::Metrics => {
                What::Metrics
            }
            (Method::Options, _) => What::Options,
            (method, _) => What::Error(refusal_of(method)),
        };
        Found::Now(Answer { serving, place, what })
    }

    /// Finds the answer to a request for a path that is not in its normal form.
    #[inline(never)]
    fn find_unusual(
        &mut self,
        shell: &mut Shell,
        request: &Request<'_>,
        serving: Rc<Serving>,
        site: SiteId,
        url_path: &[u8],
    ) -> Found<Answer> {
        let mut name = core::mem::take(&mut self.scratch);
        let found = match path::normalize(url_path, &mut name) {
            Ok(normal) => {
                name.insert(0, b'/');
                if normal.directory && name.len() > 1 {
                    name.push(b'/');
                }
                self.find_path(shell, request, serving, site, &name)
            }
            Err(error) => {
                let place = Place { site, route: None };
                Found::Now(Answer { serving, place, what: What::Error(error.status()) })
            }
        };
        self.scratch = name;
        found
    }
}

/// The status for a method that no route of files has.
fn refusal_of(method: &Method<'_>) -> Status {
    if method.is_known() { Status::MethodNotAllowed } else { Status::NotImplemented }
}

/// Redirects a request for the path of a route to the same with a slash at the end.
fn directory<'a>(head: &Head<'_>, prefix: &[u8]) -> Response<'a> {
    let mut location = Vec::new();
    path::encode(prefix, &mut location);
    if let Target::Origin { query: Some(query), .. } = head.target {
        location.push(b'?');
        location.extend_from_slice(query);
    }
    page::explained(ResponseHead {
        location: Some(location.into()),
        ..bare(Status::MovedPermanently)
    })
}

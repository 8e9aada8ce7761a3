//! The responses of routes that serve files and directories.

use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use http::{
    ContentRange, Field, Head, Plan, Representation, ResponseHead, Status, Target, Validators,
    encoding, negotiate, path,
};
use media::Layout;
use ring::{Completion, Fd};
use sendfile::{Piece, Policy, Takes, Window};

use super::listing::ListingProducer;
use super::page;
use super::{Body, Part, Response, Ticket, whole_body};
use crate::serving::{Serving, Snapshot, Succession, TreeId, TreeSpec};
use content::copies::Copier;
use content::{
    Content, Entries, FileSet, Found, InMemory, Kind, PathAnswer, Resource, Tree, Whole,
    last_modified,
};
use session::context::Context;
use session::fields::{self, Rules};
use session::kind;
use session::page::bare;
use session::shell::Shell;

/// The files of all routes.
#[derive(Debug)]
pub(crate) struct Files {
    content: Content,
}

impl Files {
    /// Serves the trees of a snapshot from its open directories; at most `descriptors_max` files stay open.
    ///
    /// # Errors
    ///
    /// Those of `mmap(2)`.
    ///
    /// # Panics
    ///
    /// If there is not one open directory for each of [`Snapshot::roots`].
    pub(crate) fn new(
        snapshot: Arc<Snapshot>,
        roots: &[Fd],
        descriptors_max: usize,
        cx: &Context,
    ) -> io::Result<(Self, Serving)> {
        assert_eq!(roots.len(), snapshot.roots().len(), "a directory is opened once");
        let tree = |spec: &TreeSpec| Tree::new(roots[spec.root].clone(), spec);
        let trees: Vec<_> = snapshot.trees().iter().map(tree).collect();
        let ids = (0..trees.len()).map(TreeId::new).collect();
        let account = cx.budget.shared.clone();
        let in_memory = InMemory::of(cx.takes);
        let content = Content::new(trees, descriptors_max, in_memory, account)?;
        Ok((Self { content }, Serving::new(snapshot, ids)))
    }

    /// Finds the resource of a path of a tree. See [`Content::find`].
    #[inline(always)]
    pub(super) fn find(
        &mut self,
        shell: &mut Shell,
        tree: TreeId,
        path: &[u8],
        ticket: Ticket,
    ) -> Found {
        self.content.find(shell, tree, path, ticket)
    }

    /// Finds an error page.
    pub(super) fn find_error_page(
        &mut self,
        shell: &mut Shell,
        tree: TreeId,
        path: &[u8],
        ticket: Ticket,
    ) -> Found {
        self.content.find_error_page(shell, tree, path, ticket)
    }

    /// The resource of a path if it can be found without a wait.
    pub(super) fn find_at_once(
        &mut self,
        shell: &mut Shell,
        tree: TreeId,
        path: &[u8],
    ) -> Option<Rc<Resource>> {
        self.content.find_at_once(shell, tree, path)
    }

    /// Handles a completion of one of the content's operations.
    pub(super) fn handle(&mut self, shell: &mut Shell, completion: Completion) {
        match completion.token & kind::MASK {
            kind::LOAD => self.content.handle_load(shell, completion),
            kind::LAYOUT => self.content.handle_layout(shell, completion),
            kind::WATCH => self.content.handle_watch(shell, completion),
            kind::TIDY => self.content.handle_tidy(shell, &completion),
            kind::WAKE => self.content.handle_wake(shell),
            _ => unreachable!("no operation has the token {:x}", completion.token),
        }
    }

    /// The next answer that was found since [`Found::Later`].
    pub(super) fn next_answer(&mut self) -> Option<(Ticket, PathAnswer)> {
        self.content.answers.pop_front()
    }

    /// From now on, keeps in memory the files that the transports need there. It depends on the pieces that they send:
    /// see [`Context::takes`].
    pub(super) const fn set_takes(&mut self, takes: Option<Takes>) {
        self.content.set_in_memory(InMemory::of(takes));
    }

    /// Asks a copier for copies of files from now on.
    pub(super) fn set_copier(&mut self, copier: Box<dyn Copier>) {
        self.content.set_copier(copier);
    }

    /// Serves a tree from another directory from now on, or responds with 503 if there is none. Responses that have
    /// begun are completed from the old directory.
    pub(super) fn replace_root(&mut self, shell: &mut Shell, tree: TreeId, root: Option<Fd>) {
        self.content.replace_root(shell, tree, root);
    }

    /// Makes the trees of the next snapshot; trees that `before` has are kept. `roots` has the open directories of the
    /// other trees, by their indices among [`Snapshot::roots`].
    pub(super) fn successor(
        &mut self,
        before: &Serving,
        snapshot: Arc<Snapshot>,
        succession: &Succession,
        roots: &HashMap<usize, Fd>,
    ) -> Serving {
        let mut tree = |(spec, kept): (&TreeSpec, &Option<usize>)| match kept {
            Some(index) => before.trees()[*index],
            None => {
                let root = roots.get(&spec.root).expect("opened for its trees");
                self.content.add_tree(Tree::new(root.clone(), spec))
            }
        };
        let trees = snapshot.trees().iter().zip(succession.trees()).map(&mut tree).collect();
        Serving::new(snapshot, trees)
    }

    /// Removes a tree for which no request will ask any more.
    pub(super) fn remove_tree(&mut self, shell: &mut Shell, tree: TreeId) {
        self.content.remove_tree(shell, tree);
    }
}

/// Makes the response of an answer. `prefix` goes before a resource's path in its URL.
/// Responses about resources obey `rules`, the route's rules for fields.
#[inline]
pub(super) fn response<'a>(
    cx: &mut Context,
    head: &Head<'_>,
    prefix: &[u8],
    policy: Policy,
    rules: &Rules,
    answer: &'a PathAnswer,
) -> Response<'a> {
    match answer {
        PathAnswer::Resource(resource) => match &resource.kind {
            Kind::File(files) => file(cx, head, policy, files),
            Kind::Redirect => {
                let to = [&resource.path, &b"/"[..]].concat();
                let response = redirect(Status::MovedPermanently, head, prefix, &to);
                obeying(rules, prefix, resource, response)
            }
            Kind::Unclean(len) => {
                let location = location(head.target, prefix, &resource.path[..*len]);
                let head = bare(Status::PermanentRedirect);
                let response =
                    page::moved(ResponseHead { location: Some(location.into()), ..head });
                obeying(rules, prefix, resource, response)
            }
            Kind::Directory(entries) => {
                let response = listing(cx, head, prefix, resource, entries);
                obeying(rules, prefix, resource, response)
            }
        },
        PathAnswer::Error(status, _) => page::error(bare(*status)),
        PathAnswer::Rejected(reject) => page::refused(*reject, bare(reject.status)),
    }
}

/// The same response with the fields that the route's rules demand for the path of a resource.
#[inline(never)]
fn obeying<'a>(
    rules: &Rules,
    prefix: &[u8],
    resource: &Resource,
    mut response: Response<'a>,
) -> Response<'a> {
    if !rules.is_empty() {
        let path = [prefix, &resource.path].concat();
        fields::apply(&fields::matching(rules, &[&path]), &mut response.made().head);
    }
    response
}

/// Gives a response the contents of a file as its body; its status and other fields stay.
pub(super) fn dress<'a>(head: &Head<'_>, files: &'a FileSet, response: &mut Response<'a>) {
    let coding = encoding::choose(head.lines(Field::AcceptEncoding), files.codings);
    let whole = Whole::new(files, coding, Policy::default());
    let made = response.made();
    let page = whole.head(made.head.status);
    made.head = ResponseHead {
        content_type: page.content_type,
        content_length: page.content_length,
        content_encoding: page.content_encoding,
        vary: page.vary,
        ..made.head.clone()
    };
    made.body = whole_body(whole);
    response.shows_id = false;
}

#[inline]
fn file<'a>(cx: &mut Context, head: &Head<'_>, policy: Policy, files: &'a FileSet) -> Response<'a> {
    let coding = if files.codings.is_empty() {
        None
    } else {
        encoding::choose(head.lines(Field::AcceptEncoding), files.codings)
    };
    let whole = Whole::new(files, coding, policy_at(policy, files, 0));
    if asks_more(head) { part(cx, head, policy, files, whole) } else { Response::whole(whole) }
}

/// The response to a request with conditions or ranges.
fn part<'a>(
    cx: &mut Context,
    head: &Head<'_>,
    policy: Policy,
    files: &FileSet,
    whole: Whole<'a>,
) -> Response<'a> {
    let variant = whole.variant();
    let size = variant.size;
    let representation = Representation {
        size,
        validators: Validators {
            etag: &variant.etag,
            last_modified: last_modified(&variant.stat),
            strong_date: !variant.stat.from_image,
        },
    };
    match http::plan_up_to(head, &representation, cx.unix, cx.tuning.ranges_max) {
        Plan::Full => {
            let body = Body::from(Part::of(variant, 0..size, whole.policy()));
            Response::new(whole.head(Status::Ok), body)
        }
        Plan::Partial(range) => {
            let mut head = whole.head(Status::PartialContent);
            head.content_length = Some(range.len());
            head.content_range = Some(ContentRange::Part { range, size });
            let range = range.start..range.start + range.len();
            let policy = policy_at(policy, files, range.start);
            Response::new(head, Body::from(Part::of(variant, range, policy)))
        }
        Plan::Multipart(multipart) => {
            // The boundary is random, so the author of a file cannot put it into the file.
            let token = cx.next_token();
            let wrapping = multipart.wrapping(files.content_type.as_bytes(), token);
            let head = ResponseHead {
                content_type: Some(wrapping.content_type().into()),
                content_length: Some(wrapping.content_length()),
                ..whole.head(Status::PartialContent)
            };
            let mut body = Body::EMPTY;
            for part in wrapping.parts() {
                let range = part.range.start..part.range.start + part.range.len();
                body.push(Part::Piece(Piece::Bytes(part.head)));
                let policy = policy_at(policy, files, range.start);
                body.push(Part::of(variant, range, policy));
            }
            body.push(Part::Piece(Piece::Bytes(wrapping.end().to_vec())));
            Response::new(head, body)
        }
        Plan::NotModified => {
            let mut head = whole.head(Status::NotModified);
            fields::leave_out_content(&mut head);
            Response::bare(head)
        }
        Plan::PreconditionFailed => {
            let mut response = page::error(bare(Status::PreconditionFailed));
            fields::apply(&files.fields, &mut response.made().head);
            response
        }
        Plan::Unsatisfiable => {
            let mut response = page::explained(ResponseHead {
                content_range: Some(ContentRange::Unsatisfied { size }),
                accept_ranges: true,
                ..bare(Status::RangeNotSatisfiable)
            });
            fields::apply(&files.fields, &mut response.made().head);
            response
        }
    }
}

/// The policy for a file from an offset on. A film is prefetched as far as it will be played soon.
#[inline]
fn policy_at(policy: Policy, files: &FileSet, offset: u64) -> Policy {
    match &files.layout {
        Some(layout) => paced(policy, layout.get(), offset),
        None => policy,
    }
}

/// A layout that is not known yet gives the smallest window; a layout without a rate gives no window.
#[inline(never)]
fn paced(policy: Policy, layout: Option<&Option<Layout>>, offset: u64) -> Policy {
    let expected = match layout {
        None => Some(0),
        Some(layout) => layout.as_ref().and_then(|layout| expected(layout, offset)),
    };
    let window = expected.map_or(policy.window, |bytes| policy.window.paced(bytes));
    Policy { window, ..policy }
}

/// The bytes that a player receives in [`Window::PACE`] from this offset, or at the film's mean rate if that is more,
/// because the player goes on.
fn expected(layout: &Layout, offset: u64) -> Option<u64> {
    let ms = u64::try_from(Window::PACE.as_millis()).ok()?;
    let mean = layout.bytes_per_second()?.checked_mul(Window::PACE.as_secs());
    Some(layout.window(offset, ms)?.max(mean.unwrap_or(u64::MAX)))
}

/// Redirects a request to a path of its tree; an empty path is the tree itself.
pub(super) fn redirect<'a>(
    status: Status,
    head: &Head<'_>,
    prefix: &[u8],
    to: &[u8],
) -> Response<'a> {
    let location = location(head.target, prefix, to);
    page::explained(ResponseHead { location: Some(location.into()), ..bare(status) })
}

/// The URL of a path below a prefix, with the query of a target.
pub(super) fn location(target: Target<'_>, prefix: &[u8], to: &[u8]) -> Vec<u8> {
    let mut location = Vec::with_capacity(prefix.len() + to.len() + 8);
    path::encode_location(prefix, &mut location);
    path::encode_location(to, &mut location);
    if let Target::Origin { query: Some(query), .. } = target {
        location.push(b'?');
        location.extend_from_slice(query);
    }
    location
}

fn listing<'a>(
    cx: &Context,
    head: &Head<'_>,
    prefix: &[u8],
    resource: &Rc<Resource>,
    entries: &Rc<Entries>,
) -> Response<'a> {
    if cx.budget.is_spent() {
        return page::error(bare(Status::ServiceUnavailable));
    }
    let json = negotiate::prefers_json(head.lines(Field::Accept));
    let producer = ListingProducer::new(prefix, resource, entries, json);
    let head = ResponseHead {
        content_type: Some(producer.content_type().as_bytes().into()),
        cache_control: Some(b"no-cache".into()),
        vary: Some(b"Accept".into()),
        nosniff: true,
        ..bare(Status::Ok)
    };
    Response::new(head, Body::from(Part::Producer(Box::new(producer))))
}

/// Returns true if a request has conditions or ranges.
fn asks_more(head: &Head<'_>) -> bool {
    head.has_any(&[
        Field::Range,
        Field::IfNoneMatch,
        Field::IfModifiedSince,
        Field::IfMatch,
        Field::IfUnmodifiedSince,
    ])
}

//! Parts that attach to the router from outside: an authorizer in addition to the guards of routes, a wrapper around
//! their answers, and a copier of files.

use core::cell::RefCell;
use core::fmt;
use std::rc::Rc;

use config::Route;
pub use content::copies::{Copied, Copier, Name, Original};
use http::{FieldSection, Status};
use ring::Completion;
use sendfile::Weight;

use super::{AnswerSize, Found, Request, Response, Search, Ticket};
use crate::serving::Snapshot;
use session::shell::Shell;
pub use session::user::User;

/// The parts that attach to the router of one worker. By default there are none.
#[derive(Debug, Default)]
pub struct Attachments {
    /// Decides about requests, in addition to the guards of routes.
    pub authorizer: Option<Box<dyn Authorizer>>,
    /// Wraps the answers of routes.
    pub wrapper: Option<Box<dyn Wrapper>>,
    /// Makes encoded copies of files. It depends on no configuration.
    pub copier: Option<Box<dyn Copier>>,
}

/// Decides about requests that the guards of their routes have let pass: a check of passwords, or a question to an
/// application. Meanwhile the body comes, as far as there is room for it.
///
/// An authorizer is asked about requests of clients, about requests for what pages include, and about requests that a
/// program or an upstream hands over to another path (`X-Accel-Redirect`, a local redirect). The last are asked about
/// by the route of that path, also if it is internal, and have its target and the other fields of the client. nginx
/// does the same: the rules of a location hold for internal redirects. A request to a route is asked about once, when
/// its turn to be answered has come. There is one exception: a listing that did not fit into its page is looked for
/// again, and asked about again.
pub trait Authorizer: fmt::Debug {
    /// Returns true if it decides about requests of this route. Requests of other routes only cost the call of this
    /// function.
    fn has_say(&self, route: &Route) -> bool;

    /// Prepares for the routes of a configuration: when the part is attached, and at each reload. Requests that began before
    /// a reload keep their routes. By default nothing changes.
    fn configure(&mut self, _shell: &mut Shell, _snapshot: &Snapshot) {}

    /// Lets a request of such a route pass or refuses it, now or later.
    fn admit(&mut self, shell: &mut Shell, request: &Request<'_>, route: &Route) -> Admission;

    /// Handles a completion of its own operations, whose tokens begin with `kind::AUTHORIZER`. By default there are none.
    fn handle(&mut self, _shell: &mut Shell, _completion: Completion) {}

    /// Returns true if [`next_admitted`](Self::next_admitted) may have a decision. A worker asks in each turn, so this
    /// should be cheap.
    fn may_have_news(&self) -> bool;

    /// The next request about which the authorizer has decided since [`Admission::Waiting`]. It decides about each of
    /// these requests once, also if the client has left.
    fn next_admitted(&mut self) -> Option<(Ticket, Result<Grant, Denial>)>;
}

/// Says for which routes there is an authorizer, as its [`has_say`](Authorizer::has_say) does. `samum explain` has no
/// authorizer, but says by this that one would be asked.
pub type HasSay = fn(&Route) -> bool;

/// The routes for which a server without an authorizer asks one: none.
pub const NO_AUTHORIZER: HasSay = |_| false;

/// The decision of an authorizer.
#[derive(Debug)]
pub enum Admission {
    /// The request may pass, or is refused.
    Now(Result<Grant, Denial>),
    /// [`Authorizer::next_admitted`] will have the decision. The search is dropped when nothing waits for the decision any
    /// more: the client has left, or the decision was made. After a hand-over it is dropped only with the decision. Then
    /// the authorizer may give up its work, and any decision will do.
    Waiting(Option<Rc<dyn Search>>),
}

/// The consent of an authorizer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// The user who has made the request, for the access log and for programs (`REMOTE_USER`). After a hand-over an earlier
    /// user stays unless the authorizer names another.
    pub user: Option<User>,
}

/// The refusal of an authorizer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// The status of the response, which is an error. Its page is that of the route.
    pub status: Status,
    /// Fields of the response: a challenge (`WWW-Authenticate`, RFC 9110 §11.6.1), a cookie.
    pub fields: FieldSection<'static>,
}

impl From<Status> for Denial {
    fn from(status: Status) -> Self {
        Self { status, fields: FieldSection::EMPTY }
    }
}

/// Wraps the answers of routes, such as a cache. Before that, the coding and the entity tag of a file were chosen, and the
/// conditions and ranges of the request were applied. So a wrapper leaves the content as it is, and compresses nothing.
pub trait Wrapper: fmt::Debug {
    /// Returns true if it wraps the answers of this route. Requests of other routes only cost the call of this function.
    fn has_say(&self, route: &Route) -> bool;

    /// Prepares for the routes of a configuration: when the part is attached, and at each reload. Requests that began before
    /// a reload keep their routes. By default nothing changes.
    fn configure(&mut self, _snapshot: &Snapshot) {}

    /// Recalls the answer to a request of such a route that was let pass, before the request goes to its route.
    fn recall(&mut self, request: &Request<'_>, route: &Route) -> Found<Option<Rc<dyn Recalled>>>;

    /// Returns true if [`next_recalled`](Self::next_recalled) may have an answer, or [`act`](Self::act) may have work. A
    /// worker asks in each turn, so this should be cheap.
    fn may_have_news(&self) -> bool;

    /// The next request whose recall was decided since [`Found::Later`], with the recalled answer if there is one.
    fn next_recalled(&mut self) -> Option<(Ticket, Option<Rc<dyn Recalled>>)>;

    /// Wraps the response to a request: its fields and its body. The request has the listener, the scheme and the host, as
    /// for [`recall`](Self::recall). The route is the one that has answered: after a hand-over that of the other path. Each
    /// response that is sent is wrapped once, unless it was recalled.
    fn wrap(&mut self, request: &Request<'_>, route: &Route, response: &mut Response<'_>);

    /// Continues bodies whose clients have left. Returns true if there may be more to do in another worker turn.
    fn act(&mut self) -> bool;
}

/// An answer that a wrapper recalls.
pub trait Recalled: fmt::Debug {
    /// The memory that the answer keeps.
    fn size(&self) -> AnswerSize;

    /// The response to a request with this answer.
    fn response(&self) -> Response<'_>;
}

/// The search for a client whose gateway is not chosen yet; it leads to the search of the authorizer or the wrapper, and to
/// the search of the gateway once there is one.
#[derive(Debug, Default)]
pub(super) struct Deferred(RefCell<Option<Rc<dyn Search>>>);

impl Deferred {
    /// Sets the search for which the client waits.
    pub(super) fn set(&self, search: Option<Rc<dyn Search>>) {
        *self.0.borrow_mut() = search;
    }
}

impl Search for Deferred {
    fn weight(&self) -> Weight {
        self.0.borrow().as_ref().map_or_else(Weight::default, |search| search.weight())
    }

    fn ends_with_client(&self) -> bool {
        self.0.borrow().as_ref().is_some_and(|search| search.ends_with_client())
    }
}

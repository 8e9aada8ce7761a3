//! samum's own: `Stream`, `KernelTcp` and `Disk` of the crate `sendfile`.

use std::io;
use std::rc::Rc;

use ring::{Completion, Ring, Token};
use sendfile::{
    Caching, Disk, DiskConfig, File, KernelTcp, Owner, Policy, Progress, ReadDone, Stream,
    Transport as _,
};

use super::{MOVER, Mover, Source, Step, Turn};

/// The mover.
pub(super) struct Samum {
    disk: Disk,
    policy: Policy,
    /// A `File` keeps its knowledge of residency, so all transfers of a file share one.
    files: std::collections::HashMap<u64, Rc<File>>,
}

impl Samum {
    pub(super) fn new(caching: Caching) -> io::Result<Self> {
        let config = DiskConfig { token_base: MOVER, ..DiskConfig::default() };
        let policy = Policy { caching, ..Policy::default() };
        Ok(Self { disk: Disk::new(config)?, policy, files: std::collections::HashMap::new() })
    }
}

/// A transfer of a file.
pub(super) struct Transfer {
    stream: Stream,
    /// `Some` from the first turn on.
    transport: Option<KernelTcp>,
}

impl Mover for Samum {
    type Transfer = Transfer;
    type Arrival = ReadDone;

    fn begin(&mut self, file: &Rc<Source>) -> Transfer {
        let known = self.files.entry(file.stat.ino);
        let known = known.or_insert_with(|| Rc::new(File::new(file.fd.clone(), &file.stat)));
        let mut stream = Stream::new();
        stream.push_file(known, 0..file.stat.size, self.policy);
        Transfer { stream, transport: None }
    }

    fn advance(&mut self, turn: Turn<'_>, transfer: &mut Transfer) -> io::Result<Step> {
        let Turn { ring, socket, name } = turn;
        let Transfer { stream, transport } = transfer;
        let transport = transport.get_or_insert_with(|| KernelTcp::new(socket.clone(), name, name));
        match stream.pump(ring, &mut self.disk, transport, Owner::of(name)) {
            Progress::Drained => Ok(Step::Done),
            // The transport itself waits for its socket.
            Progress::Blocked | Progress::Waiting => Ok(Step::Waiting),
            Progress::More => Ok(Step::More),
            Progress::Failed(failure) => Err(io::Error::other(format!("{failure:?}"))),
        }
    }

    fn complete(
        &mut self,
        ring: &mut Ring,
        done: Completion,
        arrivals: &mut Vec<(Token, ReadDone)>,
    ) {
        if self.disk.owns(done.token)
            && let Some(done) = self.disk.handle(ring, done)
        {
            arrivals.push((done.owner.connection, done));
        }
    }

    fn arrive(&mut self, _ring: &mut Ring, transfer: &mut Transfer, done: ReadDone) {
        transfer.stream.handle_read(done);
    }

    fn writable(&mut self, transfer: &mut Transfer) {
        if let Some(transport) = &mut transfer.transport {
            transport.handle_writable();
        }
    }

    fn works_ahead(&self) -> bool {
        true
    }

    fn next_waiting(&mut self) -> Option<Token> {
        self.disk.next_waiting().map(|owner| owner.connection)
    }
}

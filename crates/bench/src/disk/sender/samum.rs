//! samum's own: `Stream` and `Disk` of the crate `sendfile`.

use std::io;
use std::rc::Rc;

use ring::{Completion, Ring, Token};
use sendfile::{Caching, Disk, DiskConfig, File, Progress, ReadDone, Stream, Window};

use super::{MOVER, Mover, Source, Step, Turn};

/// The mover.
pub(super) struct Samum {
    disk: Disk,
    /// What is known of residency is kept with a file, so each is one for all transfers of it.
    files: std::collections::HashMap<u64, Rc<File>>,
}

impl Samum {
    pub(super) fn new(caching: Caching) -> io::Result<Self> {
        let config = DiskConfig { caching, token_base: MOVER, ..DiskConfig::default() };
        Ok(Self { disk: Disk::new(config)?, files: std::collections::HashMap::new() })
    }
}

impl Mover for Samum {
    type Transfer = Stream;
    type Arrival = ReadDone;

    fn begin(&mut self, file: &Rc<Source>) -> Stream {
        let known = self.files.entry(file.stat.ino);
        let known = known.or_insert_with(|| Rc::new(File::new(file.fd.clone(), &file.stat)));
        let mut stream = Stream::new();
        stream.push_file(known, 0..file.stat.size);
        stream
    }

    fn advance(&mut self, turn: Turn<'_>, stream: &mut Stream) -> io::Result<Step> {
        let Turn { ring, socket, name } = turn;
        match stream.pump(ring, &mut self.disk, socket, name, Window::default()) {
            Progress::Drained => Ok(Step::Done),
            Progress::Blocked => Ok(Step::Blocked),
            Progress::Waiting => Ok(Step::Waiting),
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
        if self.disk.is_read(done.token)
            && let Some(done) = self.disk.handle(ring, done)
        {
            arrivals.push((done.owner, done));
        }
    }

    fn arrive(&mut self, ring: &mut Ring, stream: &mut Stream, done: ReadDone) {
        stream.handle_read(ring, done);
    }

    fn writable(&mut self, stream: &mut Stream) {
        stream.handle_writable();
    }

    fn works_ahead(&self) -> bool {
        true
    }

    fn next_waiting(&mut self) -> Option<Token> {
        self.disk.next_waiting()
    }
}

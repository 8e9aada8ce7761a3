//! Records frames in files of the format pcapng (`--pcap`).
//!
//! The worker copies frames into batches, and a thread of its own writes them, because a disk may be slow. When the
//! thread is behind, batches are lost and counted, and no connection waits.

use core::cell::Cell;
use core::convert::Infallible;
use core::fmt;
use core::time::Duration;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;

use netdev::{Device, Received};
use netstack::channel::{Batch, Channel, Filter, Network};
use netstack::{Frame, Full, Limits, Transmit};
use rustix::fs::Mode;

use logs::location::Location;
use logs::say::say;

/// The most bytes of a frame that are recorded; the largest frame fits.
const FRAME_BYTES_MAX: u32 = 64 * 1024 + 256;
/// Batches that may wait to be written, each of at most 256 KiB and one frame.
const BATCHES_MAX: usize = 32;

/// An order to the thread that writes.
#[derive(Debug)]
enum Order {
    Append(Vec<u8>),
    /// Continue with another file, which begins with these bytes.
    Next(Vec<u8>),
}

/// The files of one receive queue, which are open.
#[derive(Debug)]
pub(super) struct Files {
    path: PathBuf,
    file: File,
    files_max: u16,
}

impl Files {
    /// Begins the first file.
    ///
    /// # Errors
    ///
    /// A message for the operator.
    pub(super) fn open(path: PathBuf, files_max: u16) -> Result<Self, String> {
        let file = create(&path)
            .map_err(|error| format!("cannot record frames in {}: {error}", path.display()))?;
        Ok(Self { path, file, files_max })
    }

    /// The name of an older file.
    fn older(&self, number: u16) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number}"));
        name.into()
    }

    fn next(&mut self) -> io::Result<()> {
        for number in (1..self.files_max).rev() {
            let from = if number == 1 { self.path.clone() } else { self.older(number - 1) };
            match std::fs::rename(from, self.older(number)) {
                // The files may be fewer by now.
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        self.file = create(&self.path)?;
        Ok(())
    }

    fn run(mut self, orders: &Receiver<Order>) {
        for order in orders {
            let done = match order {
                Order::Append(bytes) => self.file.write_all(&bytes),
                Order::Next(bytes) => self.next().and_then(|()| self.file.write_all(&bytes)),
            };
            if let Err(error) = done {
                say(&format!(
                    "cannot record frames in {}: {error}; recording ends",
                    self.path.display()
                ));
                return;
            }
        }
    }
}

/// Makes a file, which replaces an old one. Other users may not read the bytes of clients, and cannot redirect the
/// file.
fn create(path: &Path) -> io::Result<File> {
    Location::find_name(path)?.replace(Mode::RUSR | Mode::WUSR).map(File::from)
}

/// The name of the file of one of several queues: the interface and the number stand in front of the extension.
pub(super) fn path_of(path: &Path, interface: &str, queue: usize) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let extension = path.extension().map(|extension| format!(".{}", extension.to_string_lossy()));
    path.with_file_name(format!("{stem}-{interface}-{queue}{}", extension.unwrap_or_default()))
}

type Deliver = Box<dyn FnMut(Batch<'_>)>;

/// The record of one receive queue, on the thread of its worker.
pub(super) struct Recorder {
    channel: Channel<Deliver>,
    /// A frame is recorded if one of these applies to it, or if there is none.
    filters: Vec<Filter>,
    /// Frames that were not recorded because the disk was too slow.
    lost: Rc<Cell<u64>>,
    /// Ends with the thread that writes.
    writing: Receiver<Infallible>,
    path: PathBuf,
}

impl Recorder {
    /// Begins to record. `epoch` is the time at which the stack's clock was 0, in nanoseconds since 1970.
    ///
    /// # Errors
    ///
    /// If the thread that writes cannot be started.
    pub(super) fn start(
        files: Files,
        settings: &config::Capture,
        interface: &str,
        epoch: u64,
    ) -> io::Result<Self> {
        let (sender, orders) = sync_channel(BATCHES_MAX);
        let (is_writing, writing) = mpsc::channel();
        let path = files.path.clone();
        thread::Builder::new().name("pcap".to_owned()).spawn(move || {
            files.run(&orders);
            drop(is_writing);
        })?;
        let lost = Rc::new(Cell::new(0));
        let writer = Writer {
            capture: netstack::capture::Capture::new(interface, FRAME_BYTES_MAX, epoch),
            sender,
            bytes_max: settings.bytes_max,
            lost: Rc::clone(&lost),
        };
        let network = |prefix: &config::Prefix| {
            let (addr, prefix) = prefix.network();
            Filter { network: Some(Network { addr, prefix }), ..Filter::default() }
        };
        let filters = settings.peers.iter().map(network).collect();
        let deliver = writer.into_deliver();
        let channel = Channel::new(Filter::default(), FRAME_BYTES_MAX as usize, deliver);
        Ok(Self { channel, filters, lost, writing, path })
    }

    /// Waits until all frames are written, for `limit` at most: a disk may hang.
    fn finish(self, limit: Duration) {
        let Self { mut channel, writing, path, .. } = self;
        channel.flush();
        // The thread ends after the last order.
        drop(channel);
        if writing.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
            say(&format!(
                "the last frames are missing in {}: its disk is too slow",
                path.display()
            ));
        }
    }

    /// The number of frames that were lost to a slow disk.
    pub(super) fn lost(&self) -> u64 {
        self.lost.get()
    }

    fn wants(&self, frame: &[u8]) -> bool {
        self.filters.is_empty() || self.filters.iter().any(|filter| filter.applies_to(frame))
    }
}

/// Turns batches into the bytes of files.
struct Writer {
    capture: netstack::capture::Capture,
    sender: SyncSender<Order>,
    bytes_max: u64,
    lost: Rc<Cell<u64>>,
}

impl Writer {
    fn into_deliver(mut self) -> Deliver {
        Box::new(move |batch| self.deliver(batch))
    }

    fn deliver(&mut self, batch: Batch<'_>) {
        // A lost batch leaves no trace, also if it would have begun a file.
        let mut capture = self.capture.clone();
        let is_first = capture.file_bytes() == 0;
        let is_full = !is_first && capture.file_bytes() >= self.bytes_max;
        let mut bytes = Vec::new();
        if is_first || is_full {
            capture.begin(&mut bytes);
        }
        let mut count = 0;
        for frame in batch.frames() {
            capture.write(&frame, &mut bytes);
            count += 1;
        }
        let order = if is_full { Order::Next(bytes) } else { Order::Append(bytes) };
        match self.sender.try_send(order) {
            Ok(()) => self.capture = capture,
            Err(_) => self.lost.set(self.lost.get() + count),
        }
    }
}

/// A device whose frames may be recorded.
pub(super) struct Port {
    pub(super) device: Device,
    pub(super) recorder: Option<Box<Recorder>>,
    /// The time of the frames.
    pub(super) now: netstack::Time,
}

impl Port {
    pub(super) fn receive(&mut self, now: netstack::Time) -> Option<Received> {
        self.now = now;
        let frame = self.device.receive()?;
        if let Some(recorder) = &mut self.recorder
            && recorder.wants(&frame)
        {
            recorder.channel.received(now, &frame);
        }
        Some(frame)
    }

    /// Ends the record.
    pub(super) fn finish(&mut self, limit: Duration) {
        if let Some(recorder) = self.recorder.take() {
            recorder.finish(limit);
        }
    }

    /// Sends frames that wait; returns true if all have left.
    pub(super) fn flush(&mut self) -> bool {
        if let Some(recorder) = &mut self.recorder {
            recorder.channel.flush();
        }
        self.device.flush()
    }
}

impl Transmit for Port {
    fn limits(&self) -> Limits {
        self.device.limits()
    }

    fn send(&mut self, frame: &Frame<'_>) -> Result<(), Full> {
        self.device.send(frame)?;
        if let Some(recorder) = &mut self.recorder
            && recorder.wants(frame.head)
        {
            recorder.channel.sent(self.now, frame);
        }
        Ok(())
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("lost", &self.lost).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::io::{PipeWriter, Read as _};
    use std::os::fd::OwnedFd;
    use std::sync::Arc;

    use super::*;

    fn record_to(pipe: PipeWriter) -> Recorder {
        let path = PathBuf::from("a.pcapng");
        let files = Files { path: path.clone(), file: OwnedFd::from(pipe).into(), files_max: 1 };
        Recorder::start(files, &config::Capture::new(path), "eth1", 0).unwrap()
    }

    #[test]
    fn files_have_names_by_age() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.pcapng");
        let mut files = Files::open(path.clone(), 3).unwrap();
        for text in ["1", "2", "3", "4"] {
            files.file.write_all(text.as_bytes()).unwrap();
            files.next().unwrap();
        }
        let read = |name: &str| std::fs::read_to_string(directory.path().join(name));
        assert_eq!(read("a.pcapng").unwrap(), "");
        assert_eq!(read("a.pcapng.1").unwrap(), "4");
        assert_eq!(read("a.pcapng.2").unwrap(), "3");
        assert!(read("a.pcapng.3").is_err());
        let name = path_of(&path, "eth1", 2);
        assert_eq!(name, directory.path().join("a-eth1-2.pcapng"));
    }

    #[test]
    fn a_record_is_private_and_leaves_what_links_lead_to() {
        use std::os::unix::fs::{PermissionsExt as _, symlink};
        let directory = tempfile::tempdir().unwrap();
        let [path, precious] = ["a.pcapng", "precious"].map(|name| directory.path().join(name));
        std::fs::write(&precious, "data").unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        symlink(&precious, &path).unwrap();
        let error = Files::open(path.clone(), 3).unwrap_err();
        assert!(error.contains("symbolic link"), "{error}");
        std::fs::remove_file(&path).unwrap();
        // One that was there, whatever its rights and its other names, is another file afterwards.
        std::fs::hard_link(&precious, &path).unwrap();
        let mut files = Files::open(path.clone(), 3).unwrap();
        assert_eq!(mode(&path), 0o600);
        std::fs::remove_file(&path).unwrap();
        symlink(&precious, &path).unwrap();
        files.next().unwrap();
        assert!(path.with_extension("pcapng.1").is_symlink());
        assert_eq!(mode(&path), 0o600);
        assert_eq!(std::fs::read(&precious).unwrap(), b"data");
    }

    #[test]
    fn all_frames_are_written_when_the_record_ends() {
        const FRAMES: usize = 1000;
        const PIPE_BYTES: usize = 64 * 1024;
        // A slow disk.
        let (mut reader, pipe) = io::pipe().unwrap();
        let written = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&written);
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(100));
            let mut bytes = vec![0; PIPE_BYTES];
            while let Ok(1..) =
                reader.read(&mut bytes).inspect(|read| _ = count.fetch_add(*read, SeqCst))
            {
            }
        });
        let mut recorder = record_to(pipe);
        for _ in 0..FRAMES {
            recorder.channel.received(netstack::Time::default(), &[0xa0; 1500]);
        }
        recorder.finish(Duration::from_secs(60));
        // As many bytes as the pipe holds may be in it, and as many again read but not counted.
        assert!(written.load(SeqCst) + 2 * PIPE_BYTES >= FRAMES * 1500, "{written:?}");
    }

    #[test]
    fn a_disk_that_hangs_does_not_keep_the_record_from_ending() {
        // Nothing reads what is written to it.
        let (_reader, pipe) = io::pipe().unwrap();
        let mut recorder = record_to(pipe);
        for _ in 0..1000 {
            recorder.channel.received(netstack::Time::default(), &[0xa0; 1500]);
        }
        recorder.finish(Duration::from_millis(10));
    }

    /// The thread writes what waits before some of the batches: all choices are tried.
    #[test]
    fn every_file_begins_with_a_section_header_whatever_is_lost() {
        const BATCHES: u8 = 8;
        let mut losses = 0;
        for choices in 0..1_u32 << BATCHES {
            let (sender, orders) = sync_channel(2);
            let lost = Rc::new(Cell::new(0));
            let writer = Writer {
                capture: netstack::capture::Capture::new("eth1", FRAME_BYTES_MAX, 0),
                sender,
                bytes_max: 200,
                lost: Rc::clone(&lost),
            };
            let mut channel = Channel::new(Filter::default(), 1500, writer.into_deliver());
            let mut files = vec![Vec::new()];
            let mut write = || {
                for order in orders.try_iter() {
                    match order {
                        Order::Append(bytes) => files.last_mut().unwrap().extend(bytes),
                        Order::Next(bytes) => files.push(bytes),
                    }
                }
            };
            for batch in 0..BATCHES {
                if choices >> batch & 1 == 1 {
                    write();
                }
                channel.received(netstack::Time::default(), &[0xa0 + batch; 60]);
                channel.flush();
            }
            write();
            let has_begun = |file: &Vec<u8>| file.starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]);
            assert!(files.iter().all(has_begun), "{choices:08b}: {files:02x?}");
            let is_frame = |bytes: &&[u8]| bytes.iter().all(|byte| *byte >= 0xa0);
            let recorded = files.iter().flat_map(|file| file.windows(60)).filter(is_frame).count();
            assert_eq!(recorded as u64, u64::from(BATCHES) - lost.get(), "{choices:08b}");
            losses += lost.get();
        }
        assert!(losses > 0);
    }
}

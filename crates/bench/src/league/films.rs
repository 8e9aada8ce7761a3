//! Measures players of films on a slow disk: the time to the first picture, and the bytes that the server
//! reads from the disk for each byte that is played.
//!
//! Each player has a film of its own. It reads the head, reads the index if that is elsewhere, seeks to two
//! places one after the other, and plays each at the rate of the film. The starts of the players are spread
//! evenly over the time for which a player plays a place. So one of them seeks while the others play. Films
//! come in four containers. One of them is also served under a name without a meaning, so that a server that
//! prefetches films in another way can be compared with itself.

use core::net::SocketAddr;
use core::ops::Range;
use core::time::Duration;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;
use std::thread;
use std::time::Instant;

use media::{Layout, Probe};

use super::League;
use super::peers::Peer;
use super::rounds::Rounds;
use super::site::Site;
use super::throttle::Throttle;
use crate::load::pin;
use crate::run::Table;
use crate::stats::float;
use crate::sys::socket::connect_with_segments;
use crate::{Fault, Recorder, Test, Unit};

/// The containers: a name, the ending of the file, and the arguments of ffmpeg.
const CONTAINERS: [(&str, &str, &[&str]); 5] = [
    ("index behind", "mp4", &[]),
    ("index in front", "mp4", &["-movflags", "+faststart"]),
    ("fragmented", "mp4", &["-movflags", "+frag_keyframe+empty_moov"]),
    ("Matroska", "mkv", &[]),
    (UNNAMED, "bin", &["-movflags", "+faststart", "-f", "mp4"]),
];
const UNNAMED: &str = "index in front, not named as a film";

/// The test.
#[must_use]
pub fn test(league: &Rc<League>) -> Test {
    let league = Rc::clone(league);
    Test::new("films", "Players of films on a slow disk", move |recorder| run(&league, recorder))
        .scales("as many bytes read as are played")
        .x("round")
        .warm_up("none: no film is in memory")
        .tabled()
}

fn run(league: &League, recorder: &mut Recorder<'_>) -> Result<(), Fault> {
    let site = Site::new(league.root.as_deref())?;
    site.needs_a_disk()?;
    Throttle::new(site.root()).map_err(Fault::Skip)?;
    let seconds = if league.quick { 10 } else { 60 };
    let mut films = Vec::new();
    for (container, ending, options) in CONTAINERS {
        let first = site.root().join(format!("film.{ending}"));
        make(&first, seconds, options).map_err(Fault::Skip)?;
        let of_container =
            (0..league.players).map(|nth| Film::copy(&site, &first, container, ending, nth));
        films.push((container, of_container.collect::<io::Result<Vec<_>>>()?));
        fs::remove_file(first)?;
    }
    recorder.note(format!(
        "disk slowed down to {}; {} players, of films of {}; each plays two places for {:.1} s, and they begin within \
         that time. Segments are those of Ethernet, so that the kernel buffers no more than there",
        Unit::BytesPerSecond.show(float(league.rate)),
        league.players,
        Unit::BytesPerSecond.show(float(films[0].1[0].rate)),
        league.length.as_secs_f64(),
    ));
    let mut rounds = Rounds::default();
    let result = league.take_turns(recorder, |recorder, peer, x| {
        for (container, films) in &films {
            let Some(round) = round(league, recorder, &site, peer, films)? else { break };
            let name = line(&peer.name, container);
            for (what, unit, value) in [
                (FIRST, Unit::Nanoseconds, round.first.as_secs_f64() * 1e9),
                (SEEK, Unit::Nanoseconds, round.seek.as_secs_f64() * 1e9),
                (READ, Unit::Percent, 100.0 * float(round.read) / float(round.played.max(1))),
            ] {
                rounds.record(recorder, &name, what, unit, x, value);
            }
        }
        Ok(())
    });
    let lines = CONTAINERS
        .iter()
        .flat_map(|(container, ..)| league.peers.iter().map(move |peer| (peer, *container)));
    let time = |ns: f64| Unit::Nanoseconds.show(ns);
    let rows = lines
        .filter(|(peer, container)| rounds.spread(&line(&peer.name, container), FIRST).is_some());
    let rows = rows.map(|(peer, container)| {
        let name = line(&peer.name, container);
        vec![
            container.to_owned(),
            peer.name.clone(),
            rounds.cell(&name, FIRST, time),
            rounds.cell(&name, SEEK, time),
            rounds.cell(&name, READ, |percent| format!("{:.2}", percent / 100.0)),
        ]
    });
    let rows = rows.collect();
    let head =
        ["film", "server", "first picture", "picture after a seek", "bytes read per byte played"];
    recorder.table(Table {
        title: "Players of films: median (least–greatest) of rounds; times are medians of the players, \
                until a second of the film has come"
            .into(),
        head: head.map(str::to_owned).to_vec(),
        rows,
    });
    league.describe(recorder);
    result
}

fn line(server: &str, container: &str) -> String {
    format!("{server}, {container}")
}

/// The figures of one server and one container.
struct Round {
    /// Medians of the players.
    first: Duration,
    seek: Duration,
    /// The bytes that the server has read from the disk.
    read: u64,
    played: u64,
}

fn round(
    league: &League,
    recorder: &mut Recorder<'_>,
    site: &Site,
    peer: &Peer,
    films: &[Film],
) -> Result<Option<Round>, Fault> {
    let throttle = Throttle::new(site.root()).map_err(Fault::Skip)?;
    let names: Vec<String> = films.iter().map(|film| film.name.clone()).collect();
    site.evict(&names)?;
    let Some(server) = league.start(recorder, peer, site, &[], Some(&throttle)) else {
        return Ok(None);
    };
    throttle.limit(Some(league.rate))?;
    let before = server.read_bytes();
    let (address, length, cpu) = (server.address(), league.length, league.client_cpu);
    let count = u32::try_from(films.len()).unwrap_or(u32::MAX);
    let played = thread::scope(|scope| {
        let players = films.iter().zip(0_u32..).map(|(film, nth)| {
            scope.spawn(move || {
                pin(cpu)?;
                thread::sleep(length * nth / count);
                film.play(address, length)
            })
        });
        let players: Vec<_> = players.collect();
        let join = |player: thread::ScopedJoinHandle<'_, io::Result<Played>>| {
            player.join().map_err(|_| io::Error::other("a player panicked"))?
        };
        players.into_iter().map(join).collect::<io::Result<Vec<Played>>>()
    })?;
    let read = server.read_bytes() - before;
    throttle.limit(None)?;
    let median = |times: &dyn Fn(&Played) -> Duration| {
        let mut times: Vec<_> = played.iter().map(times).collect();
        times.sort_unstable();
        times[times.len() / 2]
    };
    Ok(Some(Round {
        first: median(&|played| played.first),
        seek: median(&|played| played.seek),
        read,
        played: played.iter().map(|played| played.bytes).sum(),
    }))
}

/// Makes a film of noise, which no coding makes small.
fn make(path: &Path, seconds: u64, options: &[&str]) -> Result<(), String> {
    let pictures = format!("nullsrc=s=160x90:r=25:d={seconds},format=yuv420p,noise=alls=60:allf=t");
    let output = Command::new("ffmpeg")
        .args(["-nostdin", "-loglevel", "error", "-y", "-f", "lavfi", "-i", &pictures])
        .args(["-c:v", "mpeg4", "-b:v", "2M", "-g", "50"])
        .args(options)
        .arg(path)
        .output()
        .map_err(|error| format!("ffmpeg is not installed: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("ffmpeg made no film: {}", said.lines().last().unwrap_or_default()))
}

/// A film on the site.
#[derive(Debug)]
struct Film {
    name: String,
    size: u64,
    index: Vec<Range<u64>>,
    /// The rate of the film in bytes per second.
    rate: u64,
}

/// The results of one player.
#[derive(Debug)]
struct Played {
    first: Duration,
    seek: Duration,
    bytes: u64,
}

impl Film {
    /// Copies a film for one player.
    fn copy(
        site: &Site,
        film: &Path,
        container: &str,
        ending: &str,
        nth: usize,
    ) -> io::Result<Self> {
        let name = format!("{}-{nth}.{ending}", container.replace([' ', ','], "-"));
        let bytes = fs::read(film)?;
        let path = site.root().join(&name);
        fs::write(&path, &bytes)?;
        fs::File::open(path)?.sync_all()?;
        let layout = layout(&bytes).ok_or_else(|| io::Error::other("ffmpeg's film is none"))?;
        let rate = layout.bytes_per_second().unwrap_or(1);
        Ok(Self { name, size: bytes.len() as u64, index: layout.index().to_vec(), rate })
    }

    /// Plays two places for `length` each.
    fn play(&self, address: SocketAddr, length: Duration) -> io::Result<Played> {
        let begun = Instant::now();
        let mut head = Download::begin(address, self, 0)?;
        head.take(HEAD_BYTES)?;
        let elsewhere = self.index.iter().filter(|range| range.start > HEAD_BYTES);
        for range in elsewhere.clone() {
            Download::begin(address, self, range.start)?.take(range.end - range.start)?;
        }
        drop(head);
        let mut played = Played { first: Duration::ZERO, seek: Duration::ZERO, bytes: 0 };
        for (part, begun) in [(self.size / 5, begun), (self.size * 3 / 5, Instant::now())] {
            // The second place is sought after the first has been played.
            let begun = if played.bytes > 0 { Instant::now() } else { begun };
            let mut film = Download::begin(address, self, part)?;
            film.take(self.rate)?;
            if played.bytes == 0 {
                played.first = begun.elapsed()
            } else {
                played.seek = begun.elapsed()
            }
            let playing = Instant::now();
            while playing.elapsed() < length {
                let due = playing.elapsed().as_millis() * u128::from(self.rate) / 1000;
                film.take(self.rate + u64::try_from(due).unwrap_or(u64::MAX))?;
                thread::sleep(FRAME);
            }
            played.bytes += film.taken;
        }
        Ok(played)
    }
}

fn layout(film: &[u8]) -> Option<Layout> {
    let mut probe = Probe::new(film.len() as u64);
    while let Some(range) = probe.wants() {
        let range = usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?;
        probe.handle_bytes(&film[range]);
    }
    probe.into_layout()
}

/// A response with the rest of a film.
struct Download {
    stream: TcpStream,
    taken: u64,
}

impl Download {
    fn begin(address: SocketAddr, film: &Film, start: u64) -> io::Result<Self> {
        let mut stream = connect_with_segments(address, ETHERNET_SEGMENT)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        let Film { name, .. } = film;
        write!(stream, "GET /{name} HTTP/1.1\r\nHost: films\r\nRange: bytes={start}-\r\n\r\n")?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte)?;
            head.extend(byte);
        }
        if !head.starts_with(b"HTTP/1.1 206") {
            return Err(io::Error::other(format!("no part of {name}")));
        }
        Ok(Self { stream, taken: 0 })
    }

    /// Receives bytes until there are `until` of them, or the film ends.
    fn take(&mut self, until: u64) -> io::Result<()> {
        let mut bytes = vec![0; 16 * 1024];
        while self.taken < until {
            let want = usize::try_from(until - self.taken).unwrap_or(bytes.len()).min(bytes.len());
            match self.stream.read(&mut bytes[..want]) {
                Ok(0) => break,
                Ok(count) => self.taken += count as u64,
                // The process was stopped for a while, and goes on.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// The figures of samum for a film, and for the same one under another name.
pub const NAMED: [&str; 2] =
    ["samum, index in front", "samum, index in front, not named as a film"];
/// Nanoseconds, a median of the players.
pub const FIRST: &str = "first picture";
const SEEK: &str = "picture after a seek";
/// Percent.
pub const READ: &str = "bytes read for bytes played";

/// The bytes at the start of a film that a player reads to find its format.
const HEAD_BYTES: u64 = 32 * 1024;
/// A player receives bytes once in this time.
const FRAME: Duration = Duration::from_millis(20);
/// The largest segment of TCP on Ethernet. With the segments of the loopback interface, the kernel would
/// take megabytes of a film in one step.
const ETHERNET_SEGMENT: u16 = 1448;
/// For each receive of a player.
const TIMEOUT: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_names_of_a_film_are_among_the_lines() {
        let [front, unnamed] = [CONTAINERS[1].0, UNNAMED].map(|container| line("samum", container));
        assert_eq!([front.as_str(), unnamed.as_str()], NAMED);
    }
}

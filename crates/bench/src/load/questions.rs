//! Questions to a DNS server, in datagrams (RFC 1035): each client waits for the answer before its next question.

use core::net::SocketAddr;
use core::time::Duration;
use std::io;
use std::net::UdpSocket;
use std::time::Instant;

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;

use super::account::{Bottleneck, OWN_CPU_MAX};
use super::engine::thread_cpu;
use super::pin;
use crate::interrupt;

/// The parameters of the load.
#[derive(Clone, Debug)]
pub struct Questions {
    /// The server.
    pub address: SocketAddr,
    /// The names that are asked for in turn; at least one. Each has an address (A) at the server.
    pub names: Vec<String>,
    /// Clients, each with a socket of its own; at least one.
    pub clients: usize,
    /// The time for which they ask.
    pub duration: Duration,
    /// Their CPU.
    pub cpu: Option<usize>,
}

/// The figures of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answered {
    /// Answers without an error, to the question that was asked.
    pub answers: u64,
    /// Errors, and datagrams that are no answers.
    pub wrong: u64,
    /// Questions that were asked again, because no answer had come for [`PATIENCE`].
    pub lost: u64,
    /// The time from the first question to the last answer.
    pub time: Duration,
    /// The CPU time of this thread meanwhile.
    pub own_cpu: Duration,
}

impl Answered {
    /// The reason why the clients, and not the server, may have limited the figures; `None` without one.
    #[must_use]
    pub fn bottleneck(&self) -> Option<Bottleneck> {
        let used = self.own_cpu.as_secs_f64() / self.time.as_secs_f64();
        (used > OWN_CPU_MAX).then_some(Bottleneck::OwnCpu(used))
    }
}

impl Questions {
    /// Asks for the given time, on this thread.
    ///
    /// # Errors
    /// As socket(2), connect(2), epoll(7) and send(2); when the server's port is closed; when ctrl-C came.
    ///
    /// # Panics
    /// Without a name, or with one that no domain can have (RFC 1035, 2.3.4).
    pub fn ask(&self) -> io::Result<Answered> {
        pin(self.cpu)?;
        let messages: Vec<Vec<u8>> = self.names.iter().map(|name| message(name)).collect();
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let mut clients = Vec::new();
        for number in 0..self.clients {
            let socket = UdpSocket::bind((unspecified(self.address), 0))?;
            socket.connect(self.address)?;
            socket.set_nonblocking(true)?;
            epoll::add(&epoll, &socket, EventData::new_u64(number as u64), EventFlags::IN)?;
            clients.push(Client { socket, id: 0, asked: Instant::now() });
        }
        let mut next = messages.iter().cycle();
        let mut ask =
            |client: &mut Client, now| client.ask(next.next().expect("there is a name"), now);
        let (begun, cpu) = (Instant::now(), thread_cpu());
        for client in &mut clients {
            ask(client, begun)?;
        }
        let mut answered = Answered::default();
        let mut events = Vec::with_capacity(self.clients);
        let (mut looked, mut under_way) = (begun, self.clients);
        while under_way > 0 && answered.time < self.duration + PATIENCE {
            let limit = Timespec::try_from(PATIENCE).expect("it is short");
            match epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), Some(&limit)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let now = Instant::now();
            answered.time = now - begun;
            // A later answer could meet the next client with this port.
            let is_over = answered.time >= self.duration;
            for event in events.drain(..) {
                let number = usize::try_from(event.data.u64()).expect("a number of ours");
                let client = &mut clients[number];
                match client.receive()? {
                    Some(Received::Answer) if is_over => {
                        answered.answers += 1;
                        under_way -= 1;
                    }
                    Some(Received::Answer) => {
                        answered.answers += 1;
                        ask(client, now)?;
                    }
                    Some(Received::Late) | None => {}
                    Some(Received::Wrong) => answered.wrong += 1,
                }
            }
            if !is_over && now - looked >= PATIENCE {
                interrupt::check()?;
                looked = now;
                for client in clients.iter_mut().filter(|client| now - client.asked >= PATIENCE) {
                    answered.lost += 1;
                    ask(client, now)?;
                }
            }
        }
        answered.own_cpu = thread_cpu().saturating_sub(cpu);
        Ok(answered)
    }
}

/// A client and its question under way.
#[derive(Debug)]
struct Client {
    socket: UdpSocket,
    id: u16,
    asked: Instant,
}

impl Client {
    fn ask(&mut self, message: &[u8], now: Instant) -> io::Result<()> {
        (self.id, self.asked) = (self.id.wrapping_add(1), now);
        let mut bytes = [0; MESSAGE_BYTES_MAX];
        let bytes = &mut bytes[..message.len()];
        bytes.copy_from_slice(message);
        bytes[..2].copy_from_slice(&self.id.to_be_bytes());
        match self.socket.send(bytes) {
            // The question is sent again, as after a loss.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            result => result.map(drop),
        }
    }

    /// Receives a datagram, if there is one.
    fn receive(&self) -> io::Result<Option<Received>> {
        let mut bytes = [0; MESSAGE_BYTES_MAX];
        match self.socket.recv(&mut bytes) {
            Ok(len) => Ok(Some(Received::of(&bytes[..len], self.id))),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// A question for the addresses of a name (RFC 1035, 4.1), with the size of a datagram that its client accepts
/// (RFC 6891, 6.1.2).
fn message(name: &str) -> Vec<u8> {
    let mut bytes = vec![0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1];
    for label in name.split('.') {
        bytes.push(u8::try_from(label.len()).expect("a label has 63 bytes at most"));
        bytes.extend_from_slice(label.as_bytes());
    }
    bytes.extend_from_slice(&[0, 0, 1, 0, 1]);
    bytes.extend_from_slice(&[0, 0, 41, 0x04, 0xd0, 0, 0, 0, 0, 0, 0]);
    bytes
}

/// A datagram that has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Received {
    /// A response without an error, with at least one record.
    Answer,
    /// A response to an earlier question, which was taken for lost.
    Late,
    Wrong,
}

impl Received {
    fn of(message: &[u8], id: u16) -> Self {
        let Some(header) = message.first_chunk::<12>() else { return Self::Wrong };
        let (is_response, error) = (header[2] & 0x80 != 0, header[3] & 0x0f);
        if !is_response || error != 0 || header[6..8] == [0, 0] {
            Self::Wrong
        } else if header[..2] == id.to_be_bytes() {
            Self::Answer
        } else {
            Self::Late
        }
    }
}

/// The address from which any of that family is reached.
fn unspecified(address: SocketAddr) -> core::net::IpAddr {
    if address.is_ipv4() {
        core::net::Ipv4Addr::UNSPECIFIED.into()
    } else {
        core::net::Ipv6Addr::UNSPECIFIED.into()
    }
}

/// The time after which a question without an answer is asked again.
pub const PATIENCE: Duration = Duration::from_millis(200);

/// The largest datagram, as the questions say (RFC 6891).
const MESSAGE_BYTES_MAX: usize = 1232;

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_question_has_its_name_and_one_more_record() {
        let bytes = message("a7.example.org");
        assert_eq!(&bytes[12..32], b"\x02a7\x07example\x03org\0\0\x01\0\x01");
        assert_eq!(bytes[32..], [0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn only_responses_without_an_error_are_answers() {
        let answer = [0, 7, 0x84, 0, 0, 1, 0, 1, 0, 0, 0, 0];
        assert_eq!(Received::of(&answer, 7), Received::Answer);
        assert_eq!(Received::of(&answer, 8), Received::Late);
        assert_eq!(Received::of(&answer[..11], 7), Received::Wrong);
        for (at, value) in [(2, 0x04), (3, 3), (7, 0)] {
            let mut other = answer;
            other[at] = value;
            assert_eq!(Received::of(&other, 7), Received::Wrong, "byte {at}");
        }
    }

    #[test]
    fn answers_are_counted_and_lost_questions_are_asked_again() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        thread::spawn(move || {
            let mut bytes = [0; 512];
            // Of the first three questions one gets no answer, and one gets an error.
            for number in 0.. {
                let (len, peer) = server.recv_from(&mut bytes).unwrap();
                bytes[2] = 0x84;
                bytes[3] = if number == 1 { 2 } else { 0 };
                bytes[7] = 1;
                if number != 0 {
                    server.send_to(&bytes[..len], peer).unwrap();
                }
            }
        });
        let duration = 4 * PATIENCE;
        let names = vec!["a.example.org".to_owned()];
        let questions = Questions { address, names, clients: 3, duration, cpu: None };
        let answered = questions.ask().unwrap();
        assert_eq!((answered.wrong, answered.lost), (1, 2), "{answered:?}");
        assert!(answered.answers > 100, "{answered:?}");
        assert!(answered.time >= duration);
    }
}

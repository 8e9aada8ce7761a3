//! Hundreds of downloads at the same time, by clients of every speed, from servers with every fault: each byte that
//! arrives is right, no response that was cut off looks whole, and everything is given back.

use testkit::Random;

use super::*;

const DOWNLOADS: usize = 500;

/// A connection to the server, and the response that it sends now.
struct Sending {
    peer: Peer,
    unread: Vec<u8>,
    left: Vec<u8>,
    /// True if it ends before all was sent, by a reset if the second is true.
    ends: Option<bool>,
}

struct Download {
    client: Client,
    /// The seed and the length of its content.
    seed: u64,
    len: usize,
    /// Steps until it leaves, if it does.
    leaves_after: Option<usize>,
    is_over: bool,
}

impl Sending {
    /// Answers requests: `/SEED/LENGTH` by a response of that content, perhaps with a fault.
    fn step(&mut self, chance: &mut Random) -> bool {
        self.unread.extend(self.peer.take());
        if let Some((head, body)) = split(&self.unread).filter(|_| self.left.is_empty()) {
            self.unread.drain(..head.len() + body.len());
            let mut parts = head.split([' ', '/']).skip(2);
            let mut number =
                || parts.next().and_then(|part| part.parse::<u64>().ok()).expect(&head);
            let (seed, len) = (number(), usize::try_from(number()).expect("a length"));
            let content = content(seed, len);
            let is_faulty = chance.one_in(6);
            self.left = match chance.below(3) {
                // A response until the end is whole for its reader wherever it ends.
                0 if !is_faulty => {
                    self.ends = Some(false);
                    [b"HTTP/1.1 200 OK\r\n\r\n", &content[..]].concat()
                }
                1 => {
                    let mut answer =
                        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
                    for piece in content.chunks(1 + chance.below(20_000)) {
                        answer.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
                        answer.extend_from_slice(piece);
                        answer.extend_from_slice(b"\r\n");
                    }
                    answer.extend_from_slice(b"0\r\n\r\n");
                    answer
                }
                _ => {
                    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {len}\r\n\r\n");
                    [head.as_bytes(), &content].concat()
                }
            };
            if is_faulty {
                self.ends = Some(chance.one_in(2));
                let kept = chance.below(self.left.len());
                match chance.below(8) {
                    0 => self.left = b"\0garbage\r\n\r\n".to_vec(),
                    _ => self.left.truncate(kept),
                }
            }
        }
        if !self.left.is_empty() && chance.one_in(3) {
            let count = (1 + chance.below(100_000)).min(self.left.len());
            self.peer.send(&self.left.drain(..count).collect::<Vec<u8>>());
        }
        if self.left.is_empty()
            && let Some(resets) = self.ends
        {
            if resets {
                self.peer.reset()
            } else {
                self.peer.close()
            }
            return false;
        }
        self.peer.end().is_none()
    }
}

impl Download {
    fn begin(stage: &Stage, chance: &mut Random) -> Self {
        let (seed, len) = (chance.bits() % 1_000_000, chance.below(200_000));
        let client = stage.client();
        match chance.below(4) {
            0 => client.peer.set_read_rate(Some(20_000 + chance.bits() % 200_000)),
            1 => client.peer.set_read_rate(Some(1_000_000)),
            _ => {}
        }
        client.peer.send(format!("GET /{seed}/{len} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
        let leaves_after = chance.one_in(5).then(|| chance.below(200));
        Self { client, seed, len, leaves_after, is_over: false }
    }

    /// Returns whether it has got all of a response.
    fn step(&mut self) -> bool {
        let Client { plain, peer, .. } = &mut self.client;
        if let Some(left) = &mut self.leaves_after {
            if *left == 0 {
                peer.reset();
                self.is_over = true;
                return false;
            }
            *left -= 1;
        }
        plain.look();
        let has_ended = plain.end().is_some();
        // A whole response has more bytes than its content. Others are short.
        let may_be_whole = plain.received().len() > self.len;
        if !has_ended && !may_be_whole && plain.received().starts_with(b"HTTP/1.1 200") {
            return false;
        }
        let Some(response) = parse(plain.received()) else {
            self.is_over = has_ended;
            return false;
        };
        if response.status != 200 {
            assert!([502, 503, 504].contains(&response.status), "{}", response.head);
            self.is_over = response.whole || has_ended;
            return false;
        }
        assert!(!response.head.contains("\r\nConnection: close\r\n"), "{}", response.head);
        self.is_over = response.whole || has_ended;
        if self.is_over {
            let expected = content(self.seed, self.len);
            assert!(expected.starts_with(&response.body), "other bytes");
            assert!(!response.whole || response.body.len() == self.len, "it looks whole");
        }
        response.whole
    }
}

#[test]
fn hundreds_of_downloads_end_right_or_visibly_wrong() {
    for_seeds(3, |seed| {
        let mut stage = Stage::with_rules(config(seed), |rules| rules.buffer = 32 * 1024);
        let mut chance = Random::new(seed);
        let mut downloads: Vec<Download> =
            (0..DOWNLOADS).map(|_| Download::begin(&stage, &mut chance)).collect();
        let (mut sendings, mut whole) = (Vec::new(), 0);
        while !downloads.is_empty() {
            let until = stage.worker.ring().now() + Duration::from_millis(2);
            stage.worker.turn(Some(until)).expect("a ring that waits");
            while let Some(peer) = stage.listener.as_ref().and_then(PeerListener::accept) {
                sendings.push(Sending { peer, unread: Vec::new(), left: Vec::new(), ends: None });
            }
            sendings.retain_mut(|sending| sending.step(&mut chance));
            for download in &mut downloads {
                whole += usize::from(download.step());
            }
            downloads.retain(|download| !download.is_over);
        }
        assert!(whole > DOWNLOADS / 2, "{whole} downloads were whole");
        assert!(stage.stats().proxy_failed > 0);
        let servers = sendings.into_iter().map(|sending| sending.peer).collect();
        stage.check_nothing_is_left(Vec::new(), servers);
    });
}

//! The echo server of the examples at a virtual cable, with one receive queue and with several.

use core::net::SocketAddr;
use core::time::Duration;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::thread;

use crate::net::{Net, SEVERAL};

/// The address of the example, which the kernel does not own.
const OWN: &str = "10.9.0.7:7";
/// A time longer than any step of a test.
const SOON: Duration = Duration::from_secs(30);
/// More connections than queues, so that each queue has some.
const CONNECTIONS: usize = 16;

fn connect() -> TcpStream {
    let own: SocketAddr = OWN.parse().unwrap();
    for _ in 0..100 {
        if let Ok(stream) = TcpStream::connect_timeout(&own, SOON) {
            stream.set_read_timeout(Some(SOON)).unwrap();
            return stream;
        }
        thread::sleep(Duration::from_millis(100));
    }
    panic!("{OWN} does not answer");
}

/// Sends `bytes` bytes, and ends the sending side. Returns true if the same bytes came back, followed by the end.
fn comes_back(bytes: usize) -> bool {
    let sent: Vec<u8> = (0..bytes).map(|at| u8::try_from(at * 31 % 251).unwrap()).collect();
    let mut stream = connect();
    let mut writer = stream.try_clone().unwrap();
    let mut received = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            writer.write_all(&sent).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        });
        stream.read_to_end(&mut received).unwrap();
    });
    received == sent
}

#[test]
fn all_clients_get_back_what_they_send() {
    for queues in [1, SEVERAL] {
        let Some(net) = Net::with_queues(queues) else { return };
        let example = crate::running::example("echo_server");
        let _echo = crate::running::start(&net.server, example.to_str().unwrap(), &["srv", OWN]);
        net.client.enter(connect);
        net.client.enter(|| {
            thread::scope(|scope| {
                let bytes = |number| if number == 0 { 8 << 20 } else { number * 1000 };
                let start = |number| scope.spawn(move || comes_back(bytes(number)));
                let all: Vec<_> = (0..CONNECTIONS).map(start).collect();
                for (number, one) in all.into_iter().enumerate() {
                    assert!(one.join().unwrap(), "connection {number}, {queues} queues");
                }
            });
        });
    }
}

//! Requests for more files at the same time than the limit of descriptors allows.

use std::fs::File;
use std::process::Command;
use std::thread;

use testkit::{Server, Tree};

use crate::common::{SAMUM, connect, descriptors, on_both_drivers, request, text};

/// The number of connections, and of different files that each requests at the same time.
const CONNECTIONS: usize = 20;
const FILES: usize = 64;

#[test]
fn opens_wait_in_line_when_descriptors_are_few() {
    // Large enough to stay open while they are sent, and sparse, so that the disk reads nothing.
    for bytes in [70_000, 1_000] {
        let tree = Tree::new();
        for number in 0..CONNECTIONS * FILES {
            File::create(tree.path().join(number.to_string())).unwrap().set_len(bytes).unwrap();
        }
        on_both_drivers(|driver| {
            let mut command = Command::new("sh");
            let script = "ulimit -n 1024 && exec \"$0\" \"$@\"";
            command.args(["-c", script, SAMUM, "serve", text(tree.path())]);
            command.args(["--listen", "127.0.0.1:0", "--threads", "1", "--driver", driver]);
            let server = Server::spawn(&mut command).unwrap();
            thread::scope(|scope| {
                for connection in 0..CONNECTIONS {
                    let server = &server;
                    scope.spawn(move || {
                        let mut client = connect(server);
                        let numbers = connection * FILES..(connection + 1) * FILES;
                        let get = |number| request(&format!("GET /{number}"));
                        client.send(numbers.clone().map(get).collect::<String>()).unwrap();
                        for number in numbers {
                            let response = client.response().unwrap();
                            assert_eq!(response.status, 200, "{number}");
                            assert_eq!(response.body.len() as u64, bytes, "{number}");
                        }
                    });
                }
            });
            let open = descriptors(&server);
            assert!(open < 400, "{open} descriptors");
            assert_eq!(server.stderr().iter().filter(|line| line.contains("out of")).count(), 0);
        });
    }
}

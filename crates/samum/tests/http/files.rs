//! Files of all sizes, cold and warm, compared byte for byte.

use std::thread;

use testkit::{Content, Tree};

use crate::common::{ask_on, connect, on_both_drivers, serve};

const SIZES: [u64; 9] = [
    0,
    1,
    4096,
    64 * 1024 - 1,
    64 * 1024,
    64 * 1024 + 1,
    256 * 1024 + 1,
    1024 * 1024,
    20 * 1024 * 1024,
];

/// The files by size. They are made once, because making `Content` takes time.
fn contents() -> Vec<(u64, Content)> {
    SIZES.map(|size| (size, Content::pseudo_random(size, size).to_vec().into())).into()
}

fn tree(contents: &[(u64, Content)]) -> Tree {
    let tree = Tree::new();
    for (size, content) in contents {
        tree.write(size.to_string(), content.clone());
    }
    tree
}

fn evict(tree: &Tree) {
    for size in SIZES {
        tree.evict(size.to_string());
    }
}

#[test]
fn every_size_arrives_whole_cold_and_warm() {
    let contents = contents();
    let tree = tree(&contents);
    on_both_drivers(|driver| {
        for cache in ["popular", "always", "never", "auto"] {
            evict(&tree);
            let server = serve(driver, tree.path(), &["--cache", cache]);
            let mut client = connect(&server);
            for round in ["cold", "warm", "hot"] {
                for (size, content) in &contents {
                    let response = ask_on(&mut client, &format!("GET /{size}"));
                    assert_eq!(response.status, 200, "{cache} {round} {size}");
                    content.assert_is(&response.body);
                }
            }
        }
    });
}

#[test]
fn sixteen_clients_at_once_each_get_their_file() {
    let contents = contents();
    let tree = tree(&contents);
    on_both_drivers(|driver| {
        for readahead in ["0", "512k"] {
            evict(&tree);
            let server = serve(driver, tree.path(), &["--threads", "2", "--readahead", readahead]);
            thread::scope(|scope| {
                for client in 0..16 {
                    let (server, contents) = (&server, &contents);
                    scope.spawn(move || {
                        let mut connection = connect(server);
                        for step in 0..SIZES.len() {
                            let (size, content) = &contents[(client + step) % SIZES.len()];
                            let response = ask_on(&mut connection, &format!("GET /{size}"));
                            content.assert_is(&response.body);
                        }
                    });
                }
            });
        }
    });
}

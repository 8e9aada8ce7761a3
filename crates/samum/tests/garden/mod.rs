//! A garden of servers behind samum, and proxies in front of it. Each server tells how it has parsed a request,
//! and that must be what the client meant. What it answers must reach the client as if samum were not there.

mod origins;
mod requests;
mod responses;

use testkit::{Address, Client, Server, Tree};

use crate::common::serve_config;

/// Serves all paths from the server at this address. `keys` are of the server.
fn pass_on(driver: &str, tree: &Tree, address: &Address, keys: &str) -> Server {
    let Address::Tcp(address) = address else { panic!("not TCP") };
    let config = format!(
        "[server]\nthreads = 1\ndriver = '{driver}'\n{keys}\n[[site]]\nlisten = ['127.0.0.1:0']\n\
         [[site.route]]\npath = '/'\nproxy = 'http://{address}'\n"
    );
    serve_config(tree, &config)
}

/// A connection.
#[track_caller]
fn connect(address: &Address) -> Client {
    Client::connect(address).expect("the server accepts")
}

//! The `Location` of servers behind this one.

use std::io::Write as _;

use testkit::{Address, Client, Tree, request};

use super::bodies::{Origin, read_until};
use super::{configure, origin, serve};
use crate::common::{SOON, ask, on_both_drivers};

/// A server that has another path than the route, and sends a client to a directory.
#[test]
fn a_redirect_of_a_server_leads_to_the_path_of_the_route() {
    on_both_drivers(|driver| {
        let tree = Tree::new();
        tree.write("1/v1/dir/index.html", "found");
        let behind = origin(&tree, 1, 0);
        let Address::Tcp(address) = behind.address() else { panic!("it listens on TCP") };
        let routes = format!("[[site.route]]\npath = '/api/'\nproxy = ['http://{address}/v1/']");
        configure(&tree, driver, &[format!("http://{address}")], &routes);
        let server = serve(&tree);
        for (path, location) in [("/api/dir", "/api/dir/"), ("/v1/dir?q", "/v1/dir/?q")] {
            let response = ask(&server, &format!("GET {path}"));
            assert_eq!((response.status, response.header("location")), (301, Some(location)));
            assert_eq!(ask(&server, &format!("GET {location}")).body, b"found");
        }
    });
}

#[test]
fn a_client_does_not_get_the_address_of_a_server() {
    on_both_drivers(|driver| {
        let (tree, origin) = (Tree::new(), Origin::new());
        let address = origin.address();
        configure(&tree, driver, &[format!("http://{address}/v1/")], "");
        let server = serve(&tree);
        let mut client = Client::connect(&server.address()).expect("the server accepts");
        client.set_limit(SOON);
        client.send(request("POST /orders\nContent-Length: 0")).expect("the server receives");
        let mut link = origin.accept();
        for (status, location, expected) in [
            ("201 Created", format!("http://{address}/v1/orders/7"), "/orders/7".to_owned()),
            ("302 Found", "http://test/v1/a".to_owned(), "http://test/a".to_owned()),
            ("302 Found", "https://login.example/".to_owned(), "https://login.example/".to_owned()),
            // Only there it says where to go.
            ("200 OK", "/v1/orders/7".to_owned(), "/v1/orders/7".to_owned()),
        ] {
            read_until(&mut link, "\r\n\r\n");
            let head = format!(
                "HTTP/1.1 {status}\r\nX-Before: 1\r\nlocation: {location}\r\nX-Behind: 2\r\nContent-Length: 0\r\n\r\n"
            );
            link.write_all(head.as_bytes()).expect("the server receives");
            let response = client.response().expect("a response");
            assert_eq!(response.header("location"), Some(&expected[..]), "{location}");
            let others = (response.header("x-before"), response.header("x-behind"));
            assert_eq!(others, (Some("1"), Some("2")));
            client.send(request("GET /next")).expect("the server receives");
        }
    });
}

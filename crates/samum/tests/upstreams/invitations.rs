//! Clients that wait for an invitation to send the bodies of their requests (`Expect: 100-continue`).

use std::io::Write as _;

use testkit::{Client, Tree, request};

use super::bodies::{Origin, read_until};
use crate::common::{SOON, on_both_drivers, serve_config};

/// A client that waits for an invitation gets the final status at once if that is known without the body. Where the body
/// is wanted, it is invited.
#[test]
fn only_a_body_that_is_wanted_is_invited() {
    on_both_drivers(|driver| {
        let tree =
            Tree::new().file("www/a.txt", "hello").file("www/no.html", "no").directory("cgi");
        let (origin, root) = (Origin::new(), tree.path().display());
        let url = origin.address();
        let config = format!(
            "[server]\nthreads = 1\ndriver = '{driver}'\n\
             [[site]]\nlisten = ['127.0.0.1:0']\nerrors = {{ 403 = '/no.html' }}\n\
             [[site.route]]\nfiles = '{root}/www'\n\
             [[site.route]]\npath = '/app/'\nproxy = 'http://{url}'\n\
             [[site.route]]\npath = '/short/'\nproxy = 'http://{url}'\nmax-body = 2\n\
             [[site.route]]\npath = '/closed/'\nproxy = 'http://{url}'\nallow = ['192.0.2.1']\n\
             [[site.route]]\npath = '/tool/'\ncgi = '{root}/cgi'\n\
             [[site.route]]\npath = '/closed-tool/'\ncgi = '{root}/cgi'\nallow = ['192.0.2.1']\n"
        );
        let server = serve_config(&tree, &config);
        for framing in ["Content-Length: 3", "Transfer-Encoding: chunked"] {
            for (line, status) in [
                ("POST /a.txt", 405),
                ("PUT /missing", 405),
                ("GET /missing", 404),
                ("GET /a.txt", 200),
                ("POST /closed/x", 403),
                ("POST /closed-tool/x", 403),
                ("TRACE /tool/x", 405),
                ("POST /short/x", 413),
                ("POST /app", 308),
            ] {
                if (line, framing) == ("POST /short/x", "Transfer-Encoding: chunked") {
                    continue;
                }
                let mut client = Client::connect(&server.address()).expect("the server accepts");
                client.set_limit(SOON);
                let head = request(&format!("{line}\n{framing}\nExpect: 100-continue"));
                client.send(head).expect("the server receives");
                let response = client.response().expect("a response");
                assert_eq!(response.status, status, "{line} {framing}");
                assert_eq!(response.header("Connection"), Some("close"), "{line} {framing}");
                assert_eq!(client.read_to_end().expect("the end"), b"", "{line} {framing}");
            }
            // A client that has not waited gets the same; what it sends is dropped.
            let body = if framing.ends_with('3') { "abc" } else { "3\r\nabc\r\n0\r\n\r\n" };
            let head = request(&format!("POST /closed/x\n{framing}\nExpect: 100-continue"));
            let mut client = Client::connect(&server.address()).expect("the server accepts");
            client.send(head + body + &request("GET /a.txt")).expect("the server receives");
            let response = client.response().expect("a response");
            assert_eq!((response.status, &response.body[..]), (403, &b"no"[..]));
            assert_eq!(client.read_to_end().expect("the end"), b"");
            origin.expect_nothing();
            // A body that is wanted is invited.
            let head = request(&format!("POST /app/x\n{framing}\nExpect: 100-continue"));
            let mut client = Client::connect(&server.address()).expect("the server accepts");
            client.set_limit(SOON);
            client.send(head).expect("the server receives");
            assert_eq!(client.response().expect("an invitation").status, 100);
            let mut link = origin.accept();
            client.send(body).expect("the server receives");
            read_until(&mut link, body);
            link.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
                .expect("the server receives");
            let response = client.response().expect("a response");
            assert_eq!((response.status, response.header("Connection")), (200, None));
            drop(link);
        }
    });
}

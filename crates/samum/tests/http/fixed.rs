//! Routes with `status`: responses that are always the same.

use testkit::{Server, Tree, request};

use crate::common::{ask, connect, on_both_drivers, serve_config};

fn serve(driver: &str, tree: &Tree) -> Server {
    let root = tree.path().display();
    let config = format!(
        "[server]\nthreads = 1\ndriver = '{driver}'\n\
         [[site]]\nlisten = ['127.0.0.1:0']\nheaders = [{{ set = {{ X-Site = 'ours' }} }}]\n\
         [[site.route]]\nfiles = '{root}/www'\nincludes = true\n\
         [[site.route]]\npath = '/forbidden/'\nstatus = 403\nerrors = {{ 403 = '/403.html' }}\n\
         [[site.route]]\npath = '/gone'\nstatus = 410\n\
         [[site.route]]\npath = '/closed/'\nstatus = 405\n\
         [[site.route]]\npath = '/closed/text'\nstatus = {{ code = 405, text = 'no' }}\n\
         [[site.route]]\npath = '/busy/'\nstatus = {{ code = 503, text = \"later\\n\" }}\n\
         errors = {{ 503 = '/403.html' }}\n\
         [[site.route]]\npath = '/health'\nstatus = {{ code = 200, text = \"ok\\n\" }}\n\
         [[site.route]]\npath = '/empty'\nstatus = 200\n\
         [[site.route]]\npath = '/none'\nstatus = 204\n\
         [[site.route]]\npath = '/own/'\nstatus = 203\ndeny = ['127.0.0.0/8']\n\
         [[site.route]]\npath = '/odd'\nstatus = 599\n"
    );
    serve_config(tree, &config)
}

#[test]
fn a_route_answers_with_a_status_whatever_is_asked() {
    on_both_drivers(|driver| {
        let tree = Tree::new().file("www/403.html", "not yours");
        let server = serve(driver, &tree);
        for (path, status, body) in [
            ("/forbidden/x", 403, Some("not yours")),
            ("/forbidden/", 403, Some("not yours")),
            ("/gone", 410, None),
            ("/busy/", 503, Some("later\n")),
            ("/health", 200, Some("ok\n")),
            ("/health?x=y", 200, Some("ok\n")),
            ("/empty", 200, Some("")),
            ("/none", 204, Some("")),
            ("/own/", 403, None),
            ("/odd", 599, None),
        ] {
            for method in ["GET", "HEAD", "POST", "DELETE", "OPTIONS", "BREW"] {
                let response = ask(&server, &format!("{method} {path}"));
                assert_eq!(response.status, status, "{method} {path}");
                assert_eq!(response.header("X-Site"), Some("ours"), "{method} {path}");
                match (body, method) {
                    (_, "HEAD") => assert_eq!(response.body, b""),
                    (Some(body), _) => assert_eq!(response.body, body.as_bytes(), "{path}"),
                    (None, _) => {
                        assert!(response.body.starts_with(b"<!DOCTYPE html>"), "{path}");
                    }
                }
                let length = body.filter(|_| status != 204).map(|body| body.len().to_string());
                if length.is_some() || status == 204 {
                    assert_eq!(response.header("Content-Length"), length.as_deref(), "{path}");
                }
            }
        }
        let health = ask(&server, "GET /health");
        assert_eq!(health.header("Content-Type"), Some("text/plain; charset=utf-8"));
        for path in ["/closed/", "/closed/text"] {
            let response = ask(&server, &format!("GET {path}"));
            assert_eq!((response.status, response.header("Allow")), (405, Some("")), "{path}");
        }
    });
}

#[test]
fn a_connection_goes_on_behind_a_status() {
    on_both_drivers(|driver| {
        let tree = Tree::new().file("www/a", "a file");
        let server = serve(driver, &tree);
        let mut client = connect(&server);
        // Their bodies are skipped.
        client.send(request("POST /health\nContent-Length: 5") + "hello").expect("received");
        client
            .send(request("PUT /gone\nTransfer-Encoding: chunked") + "0\r\n\r\n")
            .expect("received");
        client.send(request("GET /a")).expect("the server receives");
        for (status, body) in [(200, Some("ok\n")), (410, None), (200, Some("a file"))] {
            let response = client.response().expect("a response");
            assert_eq!(response.status, status);
            assert!(body.is_none_or(|body| response.body == body.as_bytes()));
        }
    });
}

#[test]
fn a_text_can_be_included_and_an_error_cannot() {
    on_both_drivers(|driver| {
        let tree = Tree::new().file(
            "www/page.html",
            "<!--#config errmsg='no' --><!--#include virtual='/health' --><!--#include virtual='/gone' -->",
        );
        let server = serve(driver, &tree);
        assert_eq!(ask(&server, "GET /page.html").body, b"ok\nno");
    });
}

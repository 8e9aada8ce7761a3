//! The responses that programs make.

use testkit::{Address, Framing, Tree, request};

use crate::cgi::stage::{
    Counts, Stage, on_both_drivers, pid_in, script, serve, text, tree, wait_for_end,
};
use crate::fastcgi::application::{Act, application, end, output};

#[test]
fn a_program_decides_about_status_fields_and_content() {
    on_both_drivers(|driver| {
        let tree = tree();
        script(&tree, "out", "printf \"$(printf %s \"$QUERY_STRING\" | sed 's/+/ /g')\"");
        let stage = serve(driver, &tree);
        for (output, status, body) in [
            ("Content-Type:text/plain\\n\\nhello", 200, "hello"),
            ("Content-Type:text/plain\\r\\n\\r\\nhello", 200, "hello"),
            ("Content-Type:a/b\\nStatus:+404+Gone\\n\\nhello", 404, "hello"),
            ("Content-Type:a/b\\nStatus:+299\\n\\n", 299, ""),
            ("Content-Type:a/b\\nContent-Length:+5\\n\\nhello", 200, "hello"),
            ("Content-Type:a/b\\nContent-Length:+0\\n\\n", 200, ""),
            // What was promised is sent, and no more.
            ("Content-Type:a/b\\nContent-Length:+2\\n\\nhello", 200, "he"),
            ("Status:+201\\n\\n", 201, ""),
            ("X-A:+1\\n\\nhello", 200, "hello"),
            ("\\nhello", 200, "hello"),
            ("Content-Length:+-1\\n\\nhello", 200, "hello"),
            ("Location:+/b\\043c\\n\\n", 302, ""),
            ("Location:+/a.txt\\n\\n", 200, "a file"),
            ("Set-Cookie:+a=b\\nLocation:+/a.txt\\n\\n", 302, ""),
            ("HTTP/2+404+Not+Found\\nContent-Type:a/b\\n\\nnone", 404, "none"),
            ("Status:+204\\n\\nlost", 204, ""),
            ("Status:+304\\nETag:+\"x\"\\n\\nlost", 304, ""),
            ("Location:+http://a.example/\\n\\nlost", 302, ""),
            ("Status:+301\\nLocation:+/b\\nContent-Type:a/b\\n\\nthere", 301, "there"),
            ("Status:+201\\nLocation:+/b\\n\\nmade", 201, "made"),
        ] {
            // Each on the same connection, with another request after it.
            let mut client = stage.connect();
            client
                .send(request(&format!("GET /tool/out?{output}")) + &request("GET /a.txt"))
                .unwrap();
            let response = client.response().unwrap();
            assert_eq!((response.status, text(&response)), (status, body), "{output}");
            assert_eq!(text(&client.response().unwrap()), "a file", "{output}");
        }
        let response = stage.ask("GET /tool/out?Content-Type:+a/b\\nX-A:+1\\nSet-Cookie:+a=b\\nSet-Cookie:+c=d\\nConnection:+close\\nServer:+me\\nX-CGI-A:+1\\nX-Accel-Redirect:+/a\\nx-sendfile:+/b\\n\\n");
        assert_eq!(response.framing, Framing::Chunked);
        let names: Vec<_> = response.headers.iter().map(|(name, _)| &name[..]).collect();
        assert_eq!(
            names,
            [
                "Date",
                "Server",
                "Content-Type",
                "Transfer-Encoding",
                "X-A",
                "Set-Cookie",
                "Set-Cookie"
            ]
        );
        assert_eq!(response.header("Server"), Some("samum"));
        let response = stage.ask("GET /tool/out?Location:+http://a.example/b?c\\n\\n");
        assert_eq!(response.header("Location"), Some("http://a.example/b?c"));
        // HTTP/1.0 knows no chunks.
        let mut client = stage.connect();
        client.send("GET /tool/out?Content-Type:+a/b\\n\\nhello HTTP/1.0\r\n\r\n").unwrap();
        let response = client.response().unwrap();
        assert_eq!((response.framing, text(&response)), (Framing::Close, "hello"));
        stage.wait_for_log(
            "/tool/out: it put out more than its Content-Length; the rest is dropped",
        );
        assert_eq!(stage.counts().failed, 0);
    });
}

#[test]
fn a_faulty_header_is_a_bad_gateway_and_a_line_for_the_operator() {
    on_both_drivers(|driver| {
        let tree = tree();
        let faults = [
            ("", "it ended before its header was complete"),
            ("exit 3", "it ended before its header was complete"),
            ("printf 'Content-Type: a/b\\n'", "it ended before its header was complete"),
            ("echo hello", "a line in its header that is no field"),
            ("echo ': x'; echo; echo hello", "a header without fields"),
            ("printf 'HTTP/1.1 20 OK\\n\\n'", "a Status that is no status"),
            ("printf 'Content-Type: a/b\\nStatus: 1000\\n\\n'", "a Status that is no status"),
            ("printf 'X: '; head -c 40000 /dev/zero | tr '\\0' x", "a header that is too long"),
            ("printf 'X: y\\0\\n\\n'", "a CR or a NUL in a field"),
            ("kill -SEGV $$", "signal 11 (SIGSEGV) ended it before its header was complete"),
            ("kill -9 $$", "signal 9 (SIGKILL) ended it before its header was complete"),
        ];
        for (number, (fault, _)) in faults.iter().enumerate() {
            script(&tree, &number.to_string(), fault);
        }
        let stage = serve(driver, &tree);
        for (number, (fault, reason)) in faults.iter().enumerate() {
            for method in ["GET", "HEAD"] {
                let response = stage.ask(&format!("{method} /tool/{number}"));
                assert_eq!(response.status, 502, "{fault}");
            }
            stage.wait_for_log(&format!("/tool/{number}: {reason}"));
        }
        assert_eq!(stage.counts().failed, 2 * faults.len() as u64);
    });
}

#[test]
fn what_is_the_business_of_the_gateway_is_ignored() {
    on_both_drivers(|driver| {
        let tree = tree();
        let heads = [
            "Content-Type: a/b\\nTransfer-Encoding: chunked\\n",
            "Content-Type: a/b\\nTransfer_Encoding: chunked\\nConnection: close, X\\nX: y\\n",
            "HTTP/1.1 200 OK\\r\\nContent-Type: a/b\\r\\n",
            "Content-Type : a/b\\nLocation:\\nStatus:\\n",
            "Content-Type:\\nContent-Type: a/b\\n",
        ];
        for (number, head) in heads.iter().enumerate() {
            script(&tree, &number.to_string(), &format!("printf '{head}\\nhello'"));
        }
        let stage = serve(driver, &tree);
        for (number, head) in heads.iter().enumerate() {
            let response = stage.ask(&format!("GET /tool/{number}"));
            assert_eq!((response.status, text(&response)), (200, "hello"), "{head}");
            assert_eq!(response.header("Content-Type"), Some("a/b"), "{head}");
            for name in ["Transfer_Encoding", "X", "Location", "Status"] {
                assert_eq!(response.header(name), None, "{head}");
            }
        }
        assert_eq!(stage.counts().failed, 0);
    });
}

#[test]
fn a_response_that_fails_after_its_header_is_cut_off() {
    on_both_drivers(|driver| {
        let tree = tree();
        let head = "printf 'Content-Type: a/b\\n";
        script(&tree, "short", &format!("{head}Content-Length: 10\\n\\nhello'"));
        script(&tree, "killed", &format!("{head}\\nhello'; kill -SEGV $$"));
        let stage = serve(driver, &tree);
        for name in ["short", "killed"] {
            for version in ["HTTP/1.1", "HTTP/1.0"] {
                let mut client = stage.connect();
                client.send(format!("GET /tool/{name} {version}\r\nHost: test\r\n\r\n")).unwrap();
                let result = client.response();
                if version == "HTTP/1.1" || name == "short" {
                    let error = result.unwrap_err();
                    assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof, "{name}: {error}");
                }
            }
        }
        stage.wait_for_log(
            "/tool/short: it put out less than its Content-Length; its response is cut off",
        );
        stage.wait_for_log("/tool/killed: signal 11 (SIGSEGV) ended it; its response is cut off");
        assert_eq!(stage.counts().failed, 4);
    });
}

/// RFC 3875 §6.2.2 does not ask what kind of route the path has.
#[test]
fn a_request_is_handed_over_to_a_gateway_of_another_kind_and_back() {
    on_both_drivers(|driver| {
        let tree = tree().file("mixed/index.php", "<?php source").file("mixed/README", "read me");
        script(&tree, "go", "printf 'Location: %s\\n\\n' \"$QUERY_STRING\"");
        script(
            &tree,
            "show",
            "printf 'Content-Type: a/b\\n\\n%s' \"$REQUEST_METHOD $REQUEST_URI $CONTENT_LENGTH$CONTENT_TYPE\"; cat",
        );
        let acts = [
            "Content-Type: a/b\r\n\r\nscript",
            "Location: /tool/show?back\r\n\r\n",
            "Location: /server/x\r\n\r\n",
        ];
        let acts = acts.map(|text| Act::Close([output(text), end(0)].concat()));
        let _seen = application(&tree.path().join("php.sock"), acts.into());
        let root = tree.path().display();
        let behind = Tree::new().file("www/x", "from a server").directory("cgi");
        let other = serve(driver, &behind);
        let Address::Tcp(address) = other.server.address() else { panic!("it has a port") };
        let config = format!(
            "[server]\nthreads = 1\ndriver = '{driver}'\n\
             [[site]]\nlisten = ['127.0.0.1:0']\n\
             [[site.route]]\npath = '/tool/'\ncgi = '{root}/cgi'\n\
             [[site.route]]\npath = '/server/'\nproxy = 'http://{address}/'\n\
             [[site.route]]\npath = '/mixed/'\nfiles = '{root}/mixed'\nindex = 'index.php'\n\
             fastcgi = {{ server = 'unix:{root}/php.sock' }}\n\
             [[site.route]]\npath = '/metrics'\nmetrics = true\n",
        );
        let stage = Stage::new(&tree, &config);
        for (to, body) in [
            ("/mixed/README", "read me"),
            ("/server/x", "from a server"),
            ("/mixed/", "script"),
            // By the script back to a program, and to a server.
            ("/mixed/index.php", "GET /tool/show?back "),
            ("/mixed/index.php", "from a server"),
        ] {
            let response = stage.ask(&format!("GET /tool/go?{to}"));
            assert_eq!((response.status, text(&response)), (200, body), "{to}");
        }
        let response = stage.post("POST /tool/go?/server/x\nContent-Type: c/d", b"lost");
        assert_eq!((response.status, text(&response)), (200, "from a server"));
        assert_eq!(stage.counts().failed, 0);
    });
}

#[test]
fn a_request_is_handed_over_to_another_path() {
    on_both_drivers(|driver| {
        let tree = tree();
        let go = "printf 'Location: %s\\n\\n' \"$QUERY_STRING\"";
        script(&tree, "go", go);
        script(&tree, "loop", "printf 'Location: /tool/loop?x%s\\n\\n' \"$QUERY_STRING\"");
        script(
            &tree,
            "show",
            "printf 'Content-Type: a/b\\n\\n%s' \"$REQUEST_METHOD $REQUEST_URI $CONTENT_LENGTH$CONTENT_TYPE\"; cat",
        );
        let stage = serve(driver, &tree);
        for (path, status, body) in [
            ("go?/a.txt", 200, "a file"),
            ("go?//a.txt", 200, "a file"),
            ("go?/tool/../a%2Etxt", 200, "a file"),
            ("go?/tool/show?a=b", 200, "GET /tool/show?a=b "),
            ("go?/tool/go?/tool/go?/a.txt", 200, "a file"),
        ] {
            let response = stage.ask(&format!("GET /tool/{path}"));
            assert_eq!((response.status, text(&response)), (status, body), "{path}");
        }
        let response = stage.post("POST /tool/go?/tool/show\nContent-Type: c/d", b"lost");
        assert_eq!(text(&response), "GET /tool/show ");
        for (path, status) in [
            ("go?/missing", 404),
            ("go?/tool/missing", 404),
            // The rules of the other route hold.
            ("go?/closed/show", 403),
            ("go?/../x", 400),
            ("go?/%00", 400),
            ("go?/%zz", 400),
            ("loop", 502),
        ] {
            assert_eq!(stage.ask(&format!("GET /tool/{path}")).status, status, "{path}");
        }
        assert_eq!(stage.ask("HEAD /tool/go?/a.txt").header("Content-Length"), Some("6"));
        stage.wait_for_log("a request was handed over 10 times");
        assert_eq!(stage.counts().failed, 1);
        // Ranges and conditions are those of the request.
        let response = stage.ask("GET /tool/go?/a.txt\nRange: bytes=2-");
        assert_eq!((response.status, text(&response)), (206, "file"));
    });
}

#[test]
fn content_is_sent_while_it_is_made() {
    on_both_drivers(|driver| {
        let tree = tree();
        script(
            &tree,
            "slow",
            "printf 'Content-Type: a/b\\n\\n'; for n in 1 2 3; do echo $n; sleep 0.2; done",
        );
        script(&tree, "much", "printf 'Content-Type: a/b\\n\\n'; head -c 3000000 /dev/zero");
        let stage = serve(driver, &tree);
        assert_eq!(text(&stage.ask("GET /tool/slow")), "1\n2\n3\n");
        let mut clients: Vec<_> = (0..4).map(|_| stage.connect()).collect();
        for client in &mut clients {
            client.send(request("GET /tool/much")).unwrap();
        }
        // None takes anything for a while.
        std::thread::sleep(core::time::Duration::from_millis(300));
        for client in &mut clients {
            assert_eq!(client.response().unwrap().body.len(), 3_000_000);
        }
        // Several requests of one connection are answered in order.
        let mut client = stage.connect();
        client
            .send(request("GET /tool/slow") + &request("GET /a.txt") + &request("GET /tool/slow"))
            .unwrap();
        for expected in ["1\n2\n3\n", "a file", "1\n2\n3\n"] {
            assert_eq!(text(&client.response().unwrap()), expected);
        }
    });
}

#[test]
fn a_head_request_lets_the_program_end() {
    on_both_drivers(|driver| {
        let tree = tree();
        let done = tree.path().join("done");
        let text = format!(
            "printf 'Content-Type: a/b\\nContent-Length: 7\\n\\n'; sleep 0.2; head -c 300000 /dev/zero; echo $$ >{}",
            done.display()
        );
        script(&tree, "run", &text);
        let stage = serve(driver, &tree);
        let response = stage.ask("HEAD /tool/run");
        assert_eq!((response.status, response.header("Content-Length")), (200, Some("7")));
        wait_for_end(pid_in(&tree, "done"));
        stage.expect(Counts { started: 1, ..Counts::default() });
    });
}

/// It would work for nobody. A client whose body has come may end its side.
#[test]
fn a_program_is_stopped_when_its_client_breaks_the_body_off_behind_the_header() {
    on_both_drivers(|driver| {
        let tree = tree();
        let begin = "printf 'Content-Type: a/b\\n\\nbegun'";
        let pid = "echo $$ > \"$DOCUMENT_ROOT/../$QUERY_STRING\"";
        script(&tree, "reads", &format!("{pid}; {begin}; cat > /dev/null; exec sleep 60"));
        script(&tree, "deaf", &format!("exec <&-; {pid}; {begin}; exec sleep 60"));
        script(&tree, "ends", &format!("{begin}; cat > /dev/null; sleep 0.5; printf ' and ended'"));
        let stage = serve(driver, &tree);
        let begun = |client: &mut testkit::Client| {
            let mut seen = Vec::new();
            while !seen.ends_with(b"begun\r\n") {
                seen.extend(client.read_exactly(1).unwrap());
            }
        };
        for name in ["reads", "deaf"] {
            let mut client = stage.connect();
            let head = request(&format!("POST /tool/{name}?{name}\nContent-Length: 2000000"));
            client.send(head).unwrap();
            client.send(vec![b'x'; 1_500_000]).unwrap();
            let pid = pid_in(&tree, name);
            begun(&mut client);
            client.shutdown_write().unwrap();
            wait_for_end(pid);
            assert_eq!(client.read_to_end().unwrap_or_default(), b"", "{name}");
        }
        stage.expect(Counts { started: 2, killed: 2, ..Counts::default() });
        let mut client = stage.connect();
        client.send(request("POST /tool/ends\nContent-Length: 2000000")).unwrap();
        client.send(vec![b'x'; 2_000_000]).unwrap();
        begun(&mut client);
        client.shutdown_write().unwrap();
        assert_eq!(client.read_to_end().unwrap(), b"a\r\n and ended\r\n0\r\n\r\n");
    });
}

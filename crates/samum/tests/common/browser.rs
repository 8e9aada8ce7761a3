//! A browser that a test drives: Chromium, by its own protocol (DevTools) over a WebSocket (RFC 6455).

use core::net::SocketAddr;
use core::time::Duration;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::thread;

use serde_json::{Value, json};
use testkit::{Address, Client, Tree, request, tether};

use super::{SOON, wait_until};

/// The time in which a busy machine starts a browser and shows a page.
const PATIENCE: Duration = Duration::from_secs(60);

/// A browser with one page.
pub(crate) struct Browser {
    child: Child,
    socket: TcpStream,
    calls: u64,
    _profile: Tree,
}

impl Browser {
    /// Starts the browser; the error says why there is none.
    pub(crate) fn new() -> Result<Self, String> {
        Self::with(&[])
    }

    /// The same with further options.
    pub(crate) fn with(options: &[&str]) -> Result<Self, String> {
        let profile = Tree::new();
        let mut command = Command::new("chromium");
        command.args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]);
        command.args(["--disable-background-networking", "--remote-debugging-port=0"]);
        command.arg(format!("--user-data-dir={}", profile.path().display()));
        command.args(options).arg("about:blank").stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child =
            tether(&mut command).spawn().map_err(|error| format!("chromium: {error}"))?;
        let address = address_of(child.stderr.take().expect("a pipe"));
        let mut page = None;
        let has_page = wait_until(PATIENCE, || {
            let mut client = Client::connect(&Address::Tcp(address)).expect("the browser accepts");
            client.send(request(&format!("GET /json/list\nHost: {address}"))).expect("it reads");
            let list = client.response().expect("the browser answers");
            let list: Value = serde_json::from_slice(&list.body).expect("JSON");
            let of_page = list.as_array().into_iter().flatten().find(|one| one["type"] == "page");
            page = of_page.and_then(|one| Some(one["id"].as_str()?.to_owned()));
            page.is_some()
        });
        assert!(has_page, "the browser has no page");
        let socket = open(address, &format!("/devtools/page/{}", page.unwrap_or_default()));
        Ok(Self { child, socket, calls: 0, _profile: profile })
    }

    /// Loads a page.
    pub(crate) fn load(&mut self, url: &str) {
        self.call("Page.navigate", &json!({ "url": url }));
    }

    /// The value of an expression in the page.
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        let arguments = json!({ "expression": expression, "returnByValue": true });
        let mut result = self.call("Runtime.evaluate", &arguments);
        assert!(result.get("exceptionDetails").is_none(), "{expression}: {result}");
        result["result"]["value"].take()
    }

    /// Waits until an expression is true in the page.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, expression: &str) {
        let is_so = wait_until(PATIENCE, || self.value(expression) == true);
        assert!(is_so, "{expression}: {}", self.value("document.body.innerText"));
    }

    /// Shows the page with this width, in dark colours or in light ones.
    pub(crate) fn show(&mut self, width: u32, height: u32, is_dark: bool) {
        let screen =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", &screen);
        let scheme = if is_dark { "dark" } else { "light" };
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call("Emulation.setEmulatedMedia", &json!({ "features": features }));
    }

    /// Presses a key.
    pub(crate) fn press(&mut self, key: &str, code: u32, text: &str) {
        for kind in ["keyDown", "keyUp"] {
            let mut event = json!({ "type": kind, "key": key, "windowsVirtualKeyCode": code });
            if kind == "keyDown" {
                event["text"] = text.into();
            }
            self.call("Input.dispatchKeyEvent", &event);
        }
    }

    /// A picture of the page as a PNG, in base64.
    pub(crate) fn picture(&mut self) -> String {
        let result = self
            .call("Page.captureScreenshot", &json!({ "format": "png", "optimizeForSpeed": false }));
        result["data"].as_str().expect("a picture").to_owned()
    }

    fn call(&mut self, method: &str, arguments: &Value) -> Value {
        self.calls += 1;
        let call = json!({ "id": self.calls, "method": method, "params": arguments });
        self.send(call.to_string().as_bytes());
        loop {
            let mut message: Value = serde_json::from_slice(&self.receive()).expect("JSON");
            // Others are events.
            if message["id"] == self.calls {
                assert!(message.get("error").is_none(), "{method}: {message}");
                return message["result"].take();
            }
        }
    }

    /// Sends a message in one frame, masked by zeros.
    fn send(&mut self, text: &[u8]) {
        let mut frame = vec![0x81, 0x80 | 127];
        frame.extend_from_slice(&(text.len() as u64).to_be_bytes());
        frame.extend_from_slice(&[0; 4]);
        frame.extend_from_slice(text);
        self.socket.write_all(&frame).expect("the browser reads");
    }

    /// Receives a message, which may have several frames.
    fn receive(&mut self) -> Vec<u8> {
        let mut message = Vec::new();
        loop {
            let [first, length] = self.bytes::<2>();
            let length = match length {
                126 => u16::from_be_bytes(self.bytes()).into(),
                127 => u64::from_be_bytes(self.bytes()),
                length => length.into(),
            };
            let before = message.len();
            message.resize(before + usize::try_from(length).expect("it fits into memory"), 0);
            self.socket.read_exact(&mut message[before..]).expect("the browser answers");
            if first & 0x80 != 0 {
                return message;
            }
        }
    }

    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.socket.read_exact(&mut bytes).expect("the browser answers");
        bytes
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Its helpers end with it, and with the test.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The address at which the browser receives commands, as it says. The rest that it says is read, so that it goes on.
fn address_of(stderr: ChildStderr) -> SocketAddr {
    let mut lines = BufReader::new(stderr).lines();
    let address = loop {
        let line = lines.next().expect("the browser starts").expect("text");
        if let Some((_, url)) = line.split_once("DevTools listening on ws://") {
            let (address, _) = url.split_once('/').expect("a path");
            break address.parse().expect("an address");
        }
    };
    thread::spawn(move || lines.for_each(drop));
    address
}

/// Opens a WebSocket.
fn open(address: SocketAddr, path: &str) -> TcpStream {
    let mut socket = TcpStream::connect_timeout(&address, SOON).expect("the browser accepts");
    socket.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    );
    socket.write_all(request.as_bytes()).expect("the browser reads");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        socket.read_exact(&mut byte).expect("the browser answers");
        head.push(byte[0]);
    }
    assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", head.escape_ascii());
    socket
}

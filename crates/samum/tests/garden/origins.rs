//! The servers of the garden. A server that is missing is a reason to skip a test.

use core::net::SocketAddr;
use core::time::Duration;
use std::env;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Instant, SystemTime};

use testkit::{Address, Server, Tree, tether};

use crate::common::set_modified;

const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/garden/programs");

/// A server of the garden.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) address: Address,
    process: Process,
    #[expect(dead_code, reason = "kept for its drop")]
    tree: Tree,
}

/// It is killed at the end.
#[derive(Debug)]
enum Process {
    /// It announces its address.
    #[expect(dead_code, reason = "kept for its drop")]
    Announced(Server),
    Child(Child),
    /// A thread of this process.
    Thread,
}

impl Drop for Origin {
    fn drop(&mut self) {
        if let Process::Child(child) = &mut self.process {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A way to start a server, or the reason why it is missing.
pub(crate) type Start = fn() -> Result<Origin, String>;

/// The servers that are programs: they answer the paths of the table of responses, too.
pub(crate) const PROGRAMMED: [(&str, Start); 4] =
    [("Go", go), ("Node", node), ("h11", h11), ("hyper", hyper)];

/// The servers with files and a CGI program.
pub(crate) const SERVERS: [(&str, Start); 3] =
    [("nginx", nginx), ("lighttpd", lighttpd), ("Apache", apache)];

/// A way to start a proxy in front of the server at this address.
type StartBefore = fn(&Address) -> Result<Origin, String>;

/// The proxies in front of samum.
pub(crate) const FRONTS: [(&str, StartBefore); 2] =
    [("nginx", nginx_before), ("HAProxy", haproxy_before)];

static BUILDING: Mutex<()> = Mutex::new(());

/// net/http of Go. The program is built once.
pub(crate) fn go() -> Result<Origin, String> {
    let go = program("go", &["/usr/local/go/bin/go"])?;
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let built = directory.join("garden-echo");
    let source = Path::new(PROGRAMS).join("echo.go");
    let time = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    // Two tests need it.
    let one_builds = BUILDING.lock();
    if time(&built) < time(&source) {
        let status = Command::new(go)
            .args(["build", "-o"])
            .args([&built, &source])
            .env("GOCACHE", directory.join("go"))
            .env("GO111MODULE", "off")
            .status();
        assert!(status.expect("go runs").success(), "the program is built");
    }
    drop(one_builds);
    announced(Command::new(built))
}

/// node:http.
pub(crate) fn node() -> Result<Origin, String> {
    let mut command = Command::new(program("node", &[])?);
    command.arg(Path::new(PROGRAMS).join("echo.js"));
    announced(command)
}

/// h11 of Python: the strictest of all.
pub(crate) fn h11() -> Result<Origin, String> {
    let python = program("python3", &["/usr/bin/python3"])?;
    let has_h11 = |python: &Path| {
        let status = Command::new(python).args(["-c", "import h11"]).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    };
    // The packages of the system are for the Python of the system.
    let python =
        [python, PathBuf::from("/usr/bin/python3")].into_iter().find(|python| has_h11(python));
    let mut command = Command::new(python.ok_or("no h11 for Python")?);
    command.arg(Path::new(PROGRAMS).join("echo.py"));
    announced(command)
}

/// hyper, in this process.
pub(crate) fn hyper() -> Result<Origin, String> {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = Address::Tcp(listener.local_addr().expect("bound"));
    thread::spawn(move || hyper_origin::serve(listener));
    Ok(Origin { address, process: Process::Thread, tree: Tree::new() })
}

/// nginx. It tells what it has parsed by its variables, all but the body.
pub(crate) fn nginx() -> Result<Origin, String> {
    let nginx = program("nginx", &["/usr/sbin/nginx"])?;
    let fields: String =
        FIELDS.iter().map(|name| format!("{name}: $http_{}\\n", name.replace('-', "_"))).collect();
    nginx_with(&nginx, |port, root| {
        format!(
            "server {{ listen 127.0.0.1:{port}; root {root}/files; \
             location /echo {{ return 200 \"$request_method $request_uri\\n{fields}\\n\"; }} }}"
        )
    })
}

/// nginx as a proxy in front of a server.
fn nginx_before(server: &Address) -> Result<Origin, String> {
    let nginx = program("nginx", &["/usr/sbin/nginx"])?;
    let Address::Tcp(server) = server else { panic!("not TCP") };
    nginx_with(&nginx, |port, _| {
        format!(
            "upstream samum {{ server {server}; keepalive 4; }} \
             server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://samum; \
             proxy_http_version 1.1; proxy_request_buffering off; proxy_set_header Connection ''; \
             proxy_set_header Host $http_host; \
             proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; }} }}"
        )
    })
}

fn nginx_with(nginx: &Path, http: impl Fn(u16, &str) -> String) -> Result<Origin, String> {
    let tree = with_files();
    let root = tree.path().to_str().expect("UTF-8").to_owned();
    let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("{name}_temp_path {root}/{name};"))
        .concat();
    on_a_port(tree, |port, tree| {
        let config = format!(
            "daemon off; master_process off; user root; pid {root}/pid; error_log {root}/error.log; \
             events {{}} http {{ access_log off; {paths} {} }}",
            http(port, &root)
        );
        tree.write("nginx.conf", config.as_str());
        let mut command = Command::new(nginx);
        command.args(["-p", &root, "-e", "error.log", "-c"]).arg(tree.path().join("nginx.conf"));
        command
    })
}

/// HAProxy as a proxy in front of a server.
fn haproxy_before(server: &Address) -> Result<Origin, String> {
    let haproxy = program("haproxy", &["/usr/sbin/haproxy"])?;
    let Address::Tcp(server) = server else { panic!("not TCP") };
    on_a_port(Tree::new(), |port, tree| {
        let config = format!(
            "defaults\n mode http\n timeout connect 10s\n timeout client 30s\n timeout server 30s\n \
             option forwardfor\n\
             frontend front\n bind 127.0.0.1:{port}\n default_backend back\n\
             backend back\n server samum {server}\n"
        );
        tree.write("haproxy.cfg", config.as_str());
        let mut command = Command::new(&haproxy);
        command.args(["-db", "-f"]).arg(tree.path().join("haproxy.cfg"));
        command
    })
}

/// lighttpd.
pub(crate) fn lighttpd() -> Result<Origin, String> {
    let lighttpd = program("lighttpd", &["/usr/sbin/lighttpd"])?;
    let tree = with_files();
    let root = tree.path().to_str().expect("UTF-8").to_owned();
    on_a_port(tree, |port, tree| {
        let config = format!(
            "server.modules = (\"mod_cgi\", \"mod_alias\")\nserver.document-root = \"{root}/files\"\n\
             server.bind = \"127.0.0.1\"\nserver.port = {port}\nserver.upload-dirs = (\"{root}\")\n\
             mimetype.assign = (\".bin\" => \"application/octet-stream\")\n\
             alias.url = (\"/echo\" => \"{root}/echo.sh\")\ncgi.assign = (\"echo.sh\" => \"\")\n"
        );
        tree.write("lighttpd.conf", config.as_str());
        let mut command = Command::new(&lighttpd);
        command.args(["-D", "-f"]).arg(tree.path().join("lighttpd.conf"));
        command
    })
}

/// The HTTP server of Apache, in one process, so that none is left when it is killed.
pub(crate) fn apache() -> Result<Origin, String> {
    let apache = program("apache2", &["/usr/sbin/apache2"])?;
    let tree = with_files();
    let root = tree.path().to_str().expect("UTF-8").to_owned();
    let modules: String = ["mpm_event", "authz_core", "alias", "cgi", "mime"]
        .map(|name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"))
        .concat();
    on_a_port(tree, |port, tree| {
        let config = format!(
            "ServerRoot {root}\nServerName localhost\nListen 127.0.0.1:{port}\nPidFile {root}/pid\n\
             DefaultRuntimeDir {root}\nErrorLog {root}/error.log\n{modules}User www-data\nGroup www-data\n\
             TypesConfig /dev/null\nAddType application/octet-stream .bin\n\
             DocumentRoot {root}/files\nAllowEncodedSlashes NoDecode\n\
             ScriptAlias /echo {root}/echo.sh\n\
             <Directory {root}>\nRequire all granted\nAcceptPathInfo On\n</Directory>\n"
        );
        tree.write("apache.conf", config.as_str());
        let mut command = Command::new(&apache);
        command.args(["-X", "-f"]).arg(tree.path().join("apache.conf"));
        command
    })
}

/// The fields that servers tell of.
pub(crate) const FIELDS: [&str; 18] = [
    "connection",
    "cookie",
    "expect",
    "forwarded",
    "host",
    "keep-alive",
    "proxy",
    "proxy-authorization",
    "te",
    "trailer",
    "upgrade",
    "via",
    "x-a",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-hop",
    "x-real-ip",
];

/// A directory with files, and the CGI program.
fn with_files() -> Tree {
    let tree = Tree::new().file("files/data.bin", "0123456789".repeat(10_000).as_str());
    tree.write("files/empty.bin", "");
    let script = tree.path().join("echo.sh");
    fs::copy(Path::new(PROGRAMS).join("echo.sh"), &script).expect("the program is there");
    // A tag is weak while a file has changed in the second of the request (Apache): then two requests have two tags.
    let old = SystemTime::now() - Duration::from_secs(3600);
    for name in ["files/data.bin", "files/empty.bin"] {
        set_modified(&tree.path().join(name), old);
    }
    // Servers leave their rights.
    for path in [tree.path(), &tree.path().join("files"), &script] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("own files");
    }
    tree
}

/// Finds a program on the path, or at one of these places.
fn program(name: &str, places: &[&str]) -> Result<PathBuf, String> {
    let path = env::var_os("PATH").unwrap_or_default();
    let on_path = env::split_paths(&path).map(|directory| directory.join(name));
    let places = places.iter().map(PathBuf::from);
    on_path.chain(places).find(|path| path.is_file()).ok_or_else(|| format!("no {name}"))
}

/// Starts a server that announces its address.
fn announced(mut command: Command) -> Result<Origin, String> {
    let server = Server::spawn(&mut command).expect("the server starts");
    let address = server.address();
    Ok(Origin { address, process: Process::Announced(server), tree: Tree::new() })
}

/// Starts a server that must be told its port: one that was free just now.
fn on_a_port(tree: Tree, command: impl Fn(u16, &Tree) -> Command) -> Result<Origin, String> {
    const TRIES: u32 = 5;
    const LIMIT: Duration = Duration::from_secs(20);
    for _ in 0..TRIES {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address: SocketAddr = listener.local_addr().expect("bound");
        drop(listener);
        let mut command = command(address.port(), &tree);
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
        let mut child = tether(command).spawn().expect("the server runs");
        let began = Instant::now();
        // It ends immediately if another process has taken the port.
        while child.try_wait().expect("a child").is_none() && began.elapsed() < LIMIT {
            if TcpStream::connect(address).is_ok() {
                let process = Process::Child(child);
                return Ok(Origin { address: Address::Tcp(address), process, tree });
            }
            thread::sleep(Duration::from_millis(20));
        }
        let _ = child.kill();
        let _ = child.wait();
    }
    panic!("{} does not start", command(0, &tree).get_program().display())
}

mod hyper_origin;

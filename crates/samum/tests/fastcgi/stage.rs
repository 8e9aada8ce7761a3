//! A server with scripts, and php-fpm.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use testkit::{Tree, tether};

pub(crate) use crate::common::on_both_drivers;
pub(crate) use crate::common::stage::{Stage, text};
use crate::common::{SOON, wait_until};

/// The names by which php-fpm is installed.
const PHP_FPM: [&str; 5] = [
    "/usr/sbin/php-fpm8.2",
    "/usr/sbin/php-fpm8.4",
    "/usr/sbin/php-fpm8.3",
    "/usr/sbin/php-fpm",
    "/usr/bin/php-fpm",
];

/// A directory with files in `www`.
pub(crate) fn tree() -> Tree {
    Tree::new().file("www/a.txt", "a file")
}

/// php-fpm with two processes, at the socket `php.sock` of a tree.
pub(crate) struct Php(Child);

impl Php {
    /// Starts it; `Err` says why there is none.
    pub(crate) fn start(tree: &Tree) -> Result<Self, String> {
        let program = PHP_FPM.into_iter().find(|program| Path::new(program).exists());
        let program = program.ok_or("no php-fpm")?;
        let root = tree.path().display();
        let config = format!(
            "[global]\nerror_log = {root}/php.log\ndaemonize = no\n\
             [www]\nuser = root\ngroup = root\nlisten = {root}/php.sock\npm = static\n\
             pm.max_children = 2\nphp_admin_value[post_max_size] = 64M\n\
             php_admin_flag[log_errors] = on\nphp_admin_flag[display_errors] = off\n"
        );
        tree.write("php.conf", config.as_str());
        let mut command = Command::new(program);
        command.args(["-R", "-F", "-n", "-y"]).arg(tree.path().join("php.conf"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child =
            tether(&mut command).spawn().map_err(|error| format!("{program}: {error}"))?;
        let socket = tree.path().join("php.sock");
        // The socket has its name before php-fpm listens on it.
        let listens = || UnixStream::connect(&socket).is_ok();
        if wait_until(SOON, || listens() || !matches!(child.try_wait(), Ok(None))) && listens() {
            return Ok(Self(child));
        }
        let log = fs::read_to_string(tree.path().join("php.log")).unwrap_or_default();
        let _ = child.kill();
        let _ = child.wait();
        panic!("{program} does not start: {log}");
    }
}

impl Drop for Php {
    fn drop(&mut self) {
        // Its processes end with it.
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

/// Runs the scripts in `www` by the application at `php.sock`.
pub(crate) fn serve(driver: &str, tree: &Tree) -> Stage {
    serve_with(driver, tree, "", "")
}

/// The same with these keys of the table `fastcgi`, and of the route.
pub(crate) fn serve_with(driver: &str, tree: &Tree, keys: &str, of_route: &str) -> Stage {
    let root = tree.path().display();
    let route = format!(
        "files = '{root}/www'\nindex = 'index.php'\nfallback = '/index.php'\n\
         fastcgi = {{ server = 'unix:{root}/php.sock'{keys} }}\n{of_route}"
    );
    serve_route(driver, tree, "", &route)
}

/// A server with these keys of the table `server`, and this route for all paths.
pub(crate) fn serve_route(driver: &str, tree: &Tree, keys: &str, route: &str) -> Stage {
    let root = tree.path().display();
    let config = format!(
        "[server]\nthreads = 1\ndriver = '{driver}'\n{keys}\n\
         [[site]]\nlisten = ['127.0.0.1:0']\n\
         log = {{ file = '{root}/access.log', format = 'json' }}\n\
         [[site.route]]\n{route}\n\
         [[site.route]]\npath = '/metrics'\nmetrics = true\n"
    );
    Stage::new(tree, &config)
}

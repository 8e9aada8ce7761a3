//! New processes that fail, and commands at a bad time: the old process serves as before, and says why.

use std::process::Stdio;

use super::*;

/// Writes a program.
fn script(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// What makes the program, and the reason that is told then.
type Failure<'f> = (&'f dyn Fn(&Path), &'f str);

/// A process that says that it is ready, and ends.
const LIAR: &str = r#"#!/usr/bin/python3
import array, os, socket, struct
line = socket.socket(fileno=0)
def take(fd, count):
    return socket.recv_fds(fd, 65536, count)
_, (channel,), _, _ = take(line, 1)
channel = socket.socket(fileno=channel)
take(channel, 1)
take(channel, 128)
channel.send(b"ready" + struct.pack(">II", os.getpid(), 0))
"#;

#[test]
fn a_new_process_that_fails_changes_nothing() {
    on_both_drivers(|driver| {
        let tree = tree();
        let sites = site(&tree, "\"127.0.0.1:0\"");
        let family = Family::start(driver, &tree, "", &sites);
        let address = family.server.address();
        let download = begin_download(&address);
        let mut kept = Client::connect(&address).unwrap();
        let foreign = |path: &Path| {
            // The head of a program for another processor (elf(5)): machine 8 is MIPS.
            let mut head = b"\x7fELF\x02\x01\x01".to_vec();
            head.resize(16, 0);
            head.extend([2, 0, 8, 0, 1, 0, 0, 0]);
            head.resize(120, 0);
            fs::write(path, head).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        };
        let failures: [Failure<'_>; 6] = [
            (&|path| fs::write(path, "no program").unwrap(), "cannot execute"),
            (&foreign, "it is no program for this machine"),
            (&|path| script(path, "#!/nonexistent\n"), "does not exist"),
            (&|path| script(path, "#!/bin/sh\nexit 3\n"), "has ended before it was ready"),
            (&|path| script(path, "#!/bin/sh\nkill -SEGV $$\n"), "has ended before it was ready"),
            (&|path| script(path, LIAR), "has ended right after it said that it is ready"),
        ];
        let count = match python() {
            Ok(_) => failures.len(),
            Err(why) => {
                testkit::announce_skip(format_args!(
                    "a process that ends after it was ready: {why}"
                ));
                failures.len() - 1
            }
        };
        for &(make, why) in &failures[..count] {
            family.replace_program(make);
            let error = family.refused();
            assert!(error.contains(why), "{why}: {error}");
            assert!(family.server.wait_for_stderr(why, SOON).is_some(), "the log says it, too");
            assert_eq!(ask_on(&mut kept, "GET /a.txt").body, b"hello");
            assert_eq!(testkit::get(&address, "/a.txt").unwrap().body, b"hello");
        }
        family.replace_program(|path| symlink(SAMUM, path).unwrap());
        configure(&tree, driver, "", "listn = 1");
        let error = family.refused();
        assert!(error.contains("unknown key `listn`"), "{error}");
        let elsewhere = site(&tree, "\"192.0.2.1:80\"");
        configure(&tree, driver, "", &elsewhere);
        let error = family.refused();
        assert!(error.contains("cannot listen on 192.0.2.1:80"), "{error}");
        assert_eq!(ask_on(&mut kept, "GET /a.txt").body, b"hello");
        // What has failed before does not matter.
        configure(&tree, driver, "", &sites);
        family.upgrade();
        finish_download(download);
        family.stop();
        family.assert_ends();
    });
}

#[test]
fn a_new_process_that_hangs_is_killed_and_a_second_upgrade_is_refused_meanwhile() {
    on_both_drivers_at_once(|driver| {
        let tree = tree();
        let family = Family::start(driver, &tree, "", &site(&tree, "\"127.0.0.1:0\""));
        let address = family.server.address();
        let hung = tree.path().join("hung");
        let text = format!("#!/bin/sh\necho $$ >{}\nexec sleep 600\n", text(&hung));
        family.replace_program(|path| script(path, &text));
        // Commands that run at the same time: the family is not shared between threads.
        let command = || {
            let mut command = Command::new(SAMUM);
            command.arg("upgrade").arg("--control").arg(&family.control);
            command
        };
        let first = command().stderr(Stdio::piped()).spawn().unwrap();
        assert!(wait_until(SOON, || fs::read_to_string(&hung).is_ok_and(|pid| pid.ends_with('\n'))));
        let pid = fs::read_to_string(&hung).unwrap().trim().parse().unwrap();
        let second = command().output().unwrap();
        let error = String::from_utf8_lossy(&second.stderr);
        assert!(error.contains("an upgrade is under way"), "{error}");
        assert_eq!(testkit::get(&address, "/a.txt").unwrap().body, b"hello");
        let output = first.wait_with_output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains("is not ready after 30 s"), "{error}");
        assert!(wait_until(SOON, || !runs(pid)), "the starter kills it");
        family.replace_program(|path| symlink(SAMUM, path).unwrap());
        family.upgrade();
        assert_eq!(testkit::get(&address, "/a.txt").unwrap().body, b"hello");
        family.stop();
        family.assert_ends();
    });
}

#[test]
fn a_stop_during_an_upgrade_ends_both_processes() {
    on_both_drivers(|driver| {
        for seconds in [0.0, 0.2, 0.6, 1.2] {
            let tree = tree();
            let mut family = Family::start(driver, &tree, "", &site(&tree, "\"127.0.0.1:0\""));
            let mut command = Command::new(SAMUM);
            command.arg("upgrade").arg("--control").arg(&family.control);
            let upgrade = command.stderr(Stdio::null()).spawn().unwrap();
            thread::sleep(Duration::from_secs_f64(seconds));
            // At the latest time it may have ended already.
            let _ = family.server.signal(Signal::TERM);
            assert!(family.server.wait(SOON).unwrap().success());
            let output = upgrade.wait_with_output().unwrap();
            if output.status.success() {
                // The new process had taken over before the signal came, which was for the old one.
                let said = family.server.wait_for_stderr("serves now", SOON).unwrap();
                let pid: u32 = said.split(' ').nth(2).unwrap().parse().unwrap();
                family.note(pid);
                assert!(family.control.exists());
                family.stop();
            }
            family.assert_ends();
            assert!(!family.control.exists());
        }
    });
}

#[test]
fn a_stop_of_the_new_process_before_it_has_taken_over_changes_nothing() {
    on_both_drivers(|driver| {
        let tree = tree();
        let family = Family::start(driver, &tree, "", &site(&tree, "\"127.0.0.1:0\""));
        let address = family.server.address();
        let known = family.pids();
        for milliseconds in [0, 100, 400] {
            let mut command = Command::new(SAMUM);
            command.arg("upgrade").arg("--control").arg(&family.control);
            let upgrade = command.stderr(Stdio::piped()).spawn().unwrap();
            // The copies of the starter that execute the program have its name until they do.
            let is_program = |pid: &u32| {
                fs::read_to_string(format!("/proc/{pid}/comm"))
                    .is_ok_and(|name| name == "program\n")
            };
            let is_new = |pid: &u32| !known.contains(pid) && is_program(pid);
            let new = || family.pids().into_iter().find(is_new);
            assert!(wait_until(SOON, || new().is_some()));
            let new = new().expect("it was just there");
            thread::sleep(Duration::from_millis(milliseconds));
            kill(new, Signal::TERM);
            let output = upgrade.wait_with_output().unwrap();
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success() && error.contains("the new process"), "{output:?}");
            assert_eq!(testkit::get(&address, "/a.txt").unwrap().body, b"hello");
            assert!(wait_until(SOON, || family.pids() == known));
        }
        family.upgrade();
        family.stop();
        family.assert_ends();
    });
}

#[test]
fn strangers_at_the_control_socket_get_nothing() {
    let tree = tree();
    let family = Family::start("auto", &tree, "", &site(&tree, "\"127.0.0.1:0\""));
    or_skip!(rustix::process::geteuid().is_root().then_some(()).ok_or("needs root"));
    // Even if the rights of the socket are given away.
    fs::set_permissions(&family.control, fs::Permissions::from_mode(0o666)).unwrap();
    fs::set_permissions(tree.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = Path::new(SAMUM);
    let mut command = Command::new(program);
    command.arg("upgrade").arg("--control").arg(&family.control);
    let output = or_skip!(
        crate::common::as_nobody(&mut command).output().map_err(|error| format!("{error}"))
    );
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("permission denied"), "{error}");
    assert_eq!(family.pid(), family.server.pid());
    assert_eq!(testkit::get(&family.server.address(), "/a.txt").unwrap().body, b"hello");
    family.stop();
    family.assert_ends();
}

#[test]
fn without_a_starter_the_error_says_restart() {
    let tree = tree();
    let family = Family::start("auto", &tree, "", &site(&tree, "\"127.0.0.1:0\""));
    let starter = family.pids().into_iter().find(|pid| *pid != family.server.pid());
    kill(starter.expect("a starter"), Signal::KILL);
    let error = family.refused();
    assert!(error.contains("the starter has ended: restart the server"), "{error}");
    assert_eq!(testkit::get(&family.server.address(), "/a.txt").unwrap().body, b"hello");
}

#[test]
fn signals_for_all_processes_of_the_name_do_not_end_the_starter() {
    let tree = tree();
    let family = Family::start("auto", &tree, "", &site(&tree, "\"127.0.0.1:0\""));
    for pid in family.pids() {
        kill(pid, Signal::HUP);
        kill(pid, Signal::USR1);
        kill(pid, Signal::WINCH);
    }
    assert!(family.server.wait_for_stderr("loaded the configuration", SOON).is_some());
    family.upgrade();
    family.stop();
    family.assert_ends();
}

#[test]
fn process_1_of_a_container_has_to_be_restarted() {
    let tree = tree();
    configure(&tree, "auto", "", &site(&tree, "\"127.0.0.1:0\""));
    let config = tree.path().join("samum.toml");
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child", "--mount-proc", SAMUM, "serve", "--config"]);
    let server = or_skip!(Server::spawn(command.arg(config)).map_err(|error| error.to_string()));
    assert!(server.wait_for_stderr(" on ", SOON).is_some());
    let unshare = server.pid();
    let children = fs::read_to_string(format!("/proc/{unshare}/task/{unshare}/children")).unwrap();
    kill(children.trim().parse().unwrap(), Signal::USR2);
    let said = server.wait_for_stderr("the server is process 1", SOON).expect("an answer");
    assert!(said.contains("restart the server"), "{said}");
    assert_eq!(testkit::get(&server.address(), "/a.txt").unwrap().body, b"hello");
}

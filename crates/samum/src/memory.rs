//! Finds the memory that this process may use: the machine's, or less if a control group limits it.
//!
//! Reading list: cgroups(7), Documentation/admin-guide/cgroup-v2.rst ("Memory Interface Files") and
//! cgroup-v1/memory.rst. A container and a systemd unit (`MemoryMax=`, `MemoryHigh=`) are both control groups; the
//! limit of every ancestor counts, too.

use std::fs;

/// Returns the bytes of memory that this process may use.
///
/// It reads small files of `/proc` and `/sys`, so call it only at the start.
pub(crate) fn limit() -> u64 {
    let info = rustix::system::sysinfo();
    let machine = info.totalram.saturating_mul(info.mem_unit.into());
    // If `/proc` or `/sys` cannot be read, only the machine's memory is known.
    let read = |path: &str| fs::read(path).map(|text| String::from_utf8_lossy(&text).into_owned());
    let groups = read("/proc/self/cgroup").unwrap_or_default();
    let mounts = read("/proc/self/mountinfo").unwrap_or_default();
    let limits = limit_files(&groups, &mounts).into_iter().filter_map(|path| read(&path).ok());
    limits.filter_map(|text| parse_limit(&text)).fold(machine, u64::min)
}

/// The files with the memory limits of a process, given its `/proc/PID/cgroup` and `/proc/PID/mountinfo`: of its groups
/// and of all visible ancestors of these.
fn limit_files(groups: &str, mounts: &str) -> Vec<String> {
    let mut files = Vec::new();
    for mount in mounts.lines().filter_map(Mount::parse) {
        let Some(group) = groups.lines().find_map(|line| mount.version.path_in(line)) else {
            continue;
        };
        // In a container the mount shows a part of the hierarchy, whose root is the container's group. For a group
        // outside this part, only the limits at that root are visible.
        let below = strip_directory(group, &mount.root).unwrap_or_default();
        let mut directory = format!("{}{below}", mount.point.trim_end_matches('/'));
        loop {
            files.extend(mount.version.files().iter().map(|file| format!("{directory}/{file}")));
            match directory.rfind('/') {
                Some(at) if directory.len() > mount.point.len() => directory.truncate(at),
                _ => break,
            }
        }
    }
    files
}

/// The rest of a path after a directory, with the slash before it, or empty.
fn strip_directory<'a>(path: &'a str, directory: &str) -> Option<&'a str> {
    let rest = path.strip_prefix(directory.trim_end_matches('/'))?;
    let rest = rest.trim_end_matches('/');
    let is_below = rest.is_empty() || rest.starts_with('/');
    (is_below && !rest.split('/').any(|name| name == "..")).then_some(rest)
}

/// The number of bytes in a file of limits; `max` means no limit.
fn parse_limit(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// The two kinds of control groups that can limit memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    /// The controller `memory` of version 1.
    One,
    Two,
}

impl Version {
    /// The path of the group in a line of `/proc/PID/cgroup`, if the line is about this hierarchy:
    /// `4:cpu,memory:/a/b` or `0::/a/b`.
    fn path_in(self, line: &str) -> Option<&str> {
        let mut fields = line.splitn(3, ':');
        let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let is_it = match self {
            Self::One => controllers.split(',').any(|name| name == "memory"),
            Self::Two => number == "0" && controllers.is_empty(),
        };
        is_it.then_some(path)
    }

    const fn files(self) -> &'static [&'static str] {
        match self {
            Self::One => &["memory.limit_in_bytes"],
            // Beyond `memory.high` the kernel does not kill a process, but slows it down until it has given memory
            // back. So a cache has to treat it as a limit.
            Self::Two => &["memory.max", "memory.high"],
        }
    }
}

/// A mounted hierarchy of control groups.
#[derive(Debug)]
struct Mount {
    version: Version,
    /// The group that is visible at [`point`](Self::point).
    root: String,
    point: String,
}

impl Mount {
    /// Parses a line of `/proc/PID/mountinfo` (proc(5)) that is about such a mount:
    /// `35 31 0:32 ROOT POINT rw,relatime shared:1 - cgroup SOURCE rw,memory`.
    fn parse(line: &str) -> Option<Self> {
        let (mount, file_system) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = (unescape(fields.next()?), unescape(fields.next()?));
        let mut fields = file_system.split(' ');
        let version = match fields.next()? {
            "cgroup2" => Version::Two,
            "cgroup" if fields.nth(1)?.split(',').any(|option| option == "memory") => Version::One,
            _ => return None,
        };
        Some(Self { version, root, point })
    }
}

/// Reverses the escapes of `mountinfo` for blanks, tabs, newlines and backslashes: `\040` and similar.
fn unescape(text: &str) -> String {
    let mut pieces = text.split('\\');
    let mut plain = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let code = piece.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(code) if code.is_ascii() => {
                plain.push(char::from(code));
                plain.push_str(&piece[3..]);
            }
            _ => {
                plain.push('\\');
                plain.push_str(piece);
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n\
        39 31 0:36 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids\n";
    const V2: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";

    #[test]
    fn a_unit_of_systemd_has_its_own_limits_and_those_of_its_slices() {
        let groups = "0::/system.slice/samum.service\n";
        let files = limit_files(groups, V2);
        let expected = [
            "/sys/fs/cgroup/system.slice/samum.service/memory.max",
            "/sys/fs/cgroup/system.slice/samum.service/memory.high",
            "/sys/fs/cgroup/system.slice/memory.max",
            "/sys/fs/cgroup/system.slice/memory.high",
            "/sys/fs/cgroup/memory.max",
            "/sys/fs/cgroup/memory.high",
        ];
        assert_eq!(files, expected);
    }

    #[test]
    fn version_1_is_found_by_its_controller() {
        let groups = "9:name=systemd:/a\n4:cpu,memory:/b/c\n0::/\n";
        let expected = ["/b/c", "/b", ""]
            .map(|group| format!("/sys/fs/cgroup/memory{group}/memory.limit_in_bytes"));
        assert_eq!(limit_files(groups, V1), expected);
    }

    #[test]
    fn a_container_sees_its_own_group_at_the_mount_point() {
        // With a namespace of its own, and without one.
        let v2 = V2.replace(" / /sys", " /docker/1f /sys");
        for (groups, mounts) in [("0::/\n", V2), ("0::/docker/1f\n", &v2)] {
            let files = limit_files(groups, mounts);
            assert_eq!(files, ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.high"]);
        }
        let deeper = limit_files("0::/docker/1f/web", &v2);
        assert_eq!(deeper[0], "/sys/fs/cgroup/web/memory.max");
        assert_eq!(deeper.len(), 4);
    }

    #[test]
    fn a_group_that_cannot_be_seen_leaves_the_root_of_the_mount() {
        let v2 = V2.replace(" / /sys", " /docker/1f /sys");
        for groups in ["0::/docker/1f2\n", "0::/../2e\n", "0::/docker/1f/../2e\n"] {
            assert_eq!(limit_files(groups, &v2).len(), 2, "{groups}");
        }
        assert!(limit_files("", &v2).is_empty());
        assert!(limit_files("0::/a\n", V1).is_empty());
    }

    #[test]
    fn hybrid_machines_have_both() {
        let groups = "4:memory:/m\n0::/u\n";
        let mounts = format!("{V1}41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
        let files = limit_files(groups, &mounts);
        assert_eq!(files.len(), 2 + 4, "{files:?}");
    }

    #[test]
    fn malformed_lines_are_ignored() {
        for line in ["", " - ", "1 2 3", "1 2 3 / /x - cgroup", "1 2 3 / /x - cgroup2", ":::", "0"]
        {
            assert!(limit_files(line, line).len() <= 2, "{line}");
        }
        assert_eq!(unescape(r"/a\040b\134c\0\777"), r"/a b\c\0\777");
    }

    #[test]
    fn limits_are_bytes_or_none() {
        assert_eq!(parse_limit("max\n"), None);
        assert_eq!(parse_limit("67108864\n"), Some(64 << 20));
        // Version 1 without a limit.
        assert_eq!(parse_limit("9223372036854771712\n"), Some(9_223_372_036_854_771_712));
        assert_eq!(parse_limit(""), None);
    }

    #[test]
    fn this_process_has_memory_and_no_more_than_the_machine() {
        let info = rustix::system::sysinfo();
        assert!((1 << 20..=info.totalram * u64::from(info.mem_unit)).contains(&limit()));
    }
}

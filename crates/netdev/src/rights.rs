//! The rights that a process needs to open an interface.

use rustix::thread::CapabilitySet;

use crate::error::Error;

/// Each right, its name, and its purpose.
const RIGHTS: [(CapabilitySet, &str); 3] = [
    (CapabilitySet::NET_RAW, "CAP_NET_RAW"),
    (CapabilitySet::NET_ADMIN, "CAP_NET_ADMIN"),
    (CapabilitySet::BPF, "CAP_BPF"),
];

/// Checks that the calling thread may take frames from an interface.
pub(crate) fn check(interface: &str) -> Result<(), Error> {
    let failed = |errno| Error::system("asking for the rights of the process", errno);
    let effective = rustix::thread::capabilities(None).map_err(failed)?.effective;
    match missing(effective) {
        None => Ok(()),
        Some(names) => {
            let what = format!("interface {interface}: to take frames from it lacks {names}");
            Err(Error::new(what).advise(
                "run as root, with `AmbientCapabilities=CAP_NET_RAW CAP_NET_ADMIN CAP_BPF` of systemd, \
                 or after `setcap cap_net_raw,cap_net_admin,cap_bpf+ep FILE`; ports below 1024 also need \
                 CAP_NET_BIND_SERVICE",
            ))
        }
    }
}

/// The names of the rights that are missing; `None` if none is.
fn missing(effective: CapabilitySet) -> Option<String> {
    let missing = RIGHTS.iter().filter(|(right, _)| !effective.contains(*right));
    let names: Vec<_> = missing.map(|(_, name)| *name).collect();
    (!names.is_empty()).then(|| names.join(" and "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_rights_are_named() {
        assert_eq!(missing(CapabilitySet::all()), None);
        let without_one = CapabilitySet::all() - CapabilitySet::BPF;
        assert_eq!(missing(without_one).as_deref(), Some("CAP_BPF"));
        let none = missing(CapabilitySet::empty());
        assert_eq!(none.as_deref(), Some("CAP_NET_RAW and CAP_NET_ADMIN and CAP_BPF"));
    }
}

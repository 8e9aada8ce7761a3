//! Shares out the descriptors of the process: among workers, and among connections, files and all other uses.

/// Descriptors that are reserved for uses other than connections and files, if there are at least 256. A server with
/// one worker has 15 from its start on (measured). A program, a reload or the log needs a few for a moment.
const RESERVED: usize = 64;
/// The same number if there are few descriptors.
const RESERVED_MIN: usize = 24;
/// The number of parts of a worker's descriptors: five for connections, one for connections that are accepted in one
/// step beyond them, one for files that stay open, and one for pipes and files that are being opened.
pub(crate) const PARTS: usize = 8;
/// The parts for connections.
const CONNECTION_PARTS: usize = 5;
/// The least number of open files that a worker may keep.
const FILES_MIN: usize = 8;
/// Descriptors of an idle worker (measured: 7.4): its ring or epoll, wakers, inotify, and duplicates of
/// the listeners, the directory, the log and standard error.
pub(crate) const OF_WORKER: usize = 8;
/// The least descriptors of each of several workers: with 32, a worker may have 20 clients.
const OF_WORKER_MIN: usize = 32;
/// The number of connections below which a shortage is reported at the start, if more are allowed.
const FEW: usize = 512;

/// The number of descriptors that are reserved for uses other than connections and files.
pub(crate) fn reserved(limit: usize) -> usize {
    (limit / 4).clamp(RESERVED_MIN, RESERVED)
}

/// The number of workers by default: one for each core, but fewer if each would have too few descriptors.
pub(crate) fn workers(limit: usize, cores: usize) -> usize {
    let rest = limit.saturating_sub(reserved(limit)).saturating_add(OF_WORKER);
    (rest / (OF_WORKER_MIN + OF_WORKER)).clamp(1, cores.max(1))
}

/// The share of one worker for its connections and files. `beyond` descriptors are for uses that not every server has.
///
/// # Errors
///
/// A sentence for the operator, if the share of each of several workers is too small.
pub(crate) fn of_worker(
    limit: usize,
    beyond: usize,
    workers: usize,
    cores: usize,
) -> Result<usize, String> {
    let rest = limit.saturating_sub(beyond);
    // The descriptors of the first worker are among the reserved ones.
    let own = reserved(rest).saturating_add((workers - 1).saturating_mul(OF_WORKER));
    let share = rest.saturating_sub(own) / workers;
    if workers > 1 && share < OF_WORKER_MIN {
        let fewer = self::workers(rest, cores.min(workers - 1));
        return Err(format!(
            "cannot run {workers} workers: of the {limit} descriptors that `ulimit -Hn` allows, each \
             would have {share} for its clients and files, and needs {OF_WORKER_MIN} (start with \
             --threads {fewer}, or allow more descriptors)"
        ));
    }
    Ok(share)
}

/// The connections of `workers` workers with this share each; at least one.
pub(crate) fn places(share: usize, workers: usize) -> usize {
    (share * workers / PARTS * CONNECTION_PARTS).max(1)
}

/// The open files that a worker with this share may keep.
pub(crate) fn files(share: usize) -> usize {
    (share / PARTS).max(FILES_MIN)
}

/// A message for the operator, if there is room for few connections and `wanted` are allowed.
pub(crate) fn shortage(places: usize, wanted: usize, limit: usize) -> Option<String> {
    let plural = if places == 1 { "" } else { "s" };
    (places < wanted.min(FEW)).then(|| {
        format!(
            "there is room for {places} connection{plural} at once, and others wait: `ulimit -Hn` allows {limit} \
             descriptors. Allow more, for example 20000: by `ulimit -n 20000` as root, `LimitNOFILE=20000` of \
             systemd, or `--ulimit nofile=20000` of Docker"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_have_descriptors_or_are_refused() {
        assert_eq!(of_worker(20_000, 0, 1, 2), Ok(19_936));
        assert_eq!(of_worker(20_000, 0, 2, 2), Ok(9_964));
        // A single worker starts with any number.
        assert_eq!(of_worker(64, 0, 1, 2), Ok(40));
        assert_eq!(of_worker(16, 0, 1, 2), Ok(0));
        let error = of_worker(20_000, 0, 1000, 2).unwrap_err();
        assert!(error.contains("each would have 11 ") && error.contains("--threads 2"), "{error}");
        let error = of_worker(64, 12, 2, 2).unwrap_err();
        assert!(error.contains("of the 64 descriptors"), "{error}");
        assert!(error.contains("--threads 1, or allow more"), "{error}");
        assert!(of_worker(1 << 20, 0, 1024, 1).is_ok());
    }

    #[test]
    fn as_many_workers_run_by_default_as_have_descriptors() {
        for (limit, cores, expected) in
            [(0, 2, 1), (64, 2, 1), (95, 2, 1), (128, 2, 2), (1024, 64, 24), (20_000, 64, 64)]
        {
            let workers = workers(limit, cores);
            assert_eq!(workers, expected, "{limit} descriptors, {cores} cores");
            assert!(of_worker(limit, 0, workers, cores).is_ok());
            assert!(workers == cores || of_worker(limit, 0, workers + 1, cores).is_err());
        }
    }

    #[test]
    fn a_shortage_of_places_is_told() {
        let at =
            |limit, wanted| shortage(places(of_worker(limit, 0, 1, 1).unwrap(), 1), wanted, limit);
        for (limit, wanted) in [(1024, 16_384), (64, 20), (20_000, 16_384)] {
            assert_eq!(at(limit, wanted), None, "{limit} {wanted}");
        }
        assert!(at(64, 16_384).unwrap().starts_with("there is room for 25 connections at once"));
        assert!(at(16, 16_384).unwrap().starts_with("there is room for 1 connection at once"));
    }

    #[test]
    fn all_together_are_within_the_limit() {
        for limit in 64..2048 {
            let share = of_worker(limit, 0, 1, 1).unwrap();
            // Loads have half as many as files, and pipes two for a quarter of them.
            let files = files(share) * 2;
            let connections = places(share, 1) + share / PARTS;
            assert!(12 + connections + files <= limit, "{limit}: {connections} and {files}");
        }
    }
}

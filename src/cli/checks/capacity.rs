//! The number of sessions that fit on this machine.

use nix::sys::resource::{Resource, getrlimit};

use super::Check;

const MIB: u64 = 1 << 20;
/// The memory of an agent on Node: 300 to 500 MiB, with its child processes.
const MEMORY_EACH: u64 = 500 * MIB;
/// The daemon's descriptors for one session: pipes, journal and sockets.
const DESCRIPTORS_EACH: u64 = 10;
/// The daemon's other descriptors: database, port, clients.
const DESCRIPTORS_OWN: u64 = 100;
/// The number of free sessions below which there is a warning.
const FEW: u64 = 2;

pub(in crate::cli) fn capacity(max_sessions: usize) -> Check {
    let most = getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(_, most)| most);
    report(available_memory(), most, max_sessions)
}

/// Returns the check. `descriptors` is the maximum, because the daemon raises its limit itself.
fn report(memory: Option<u64>, descriptors: u64, max_sessions: usize) -> Check {
    let by_memory = memory.map(|memory| memory / MEMORY_EACH);
    let by_descriptors = descriptors.saturating_sub(DESCRIPTORS_OWN) / DESCRIPTORS_EACH;
    let by_config = u64::try_from(max_sessions).unwrap_or(u64::MAX);
    let fit = by_memory.unwrap_or(u64::MAX).min(by_descriptors).min(by_config);
    let memory = match memory {
        Some(memory) => format!("{} MiB of memory available at 500 MiB each", memory / MIB),
        None => "memory unknown".to_owned(),
    };
    let detail = format!(
        "about {fit} more fit: {memory}, descriptors for {by_descriptors}, max_sessions = {by_config}"
    );
    if fit < FEW {
        Check::warning("sessions", detail, "stop some, or give the machine more memory")
    } else {
        Check::ok("sessions", detail)
    }
}

/// Returns the available memory of the machine, or of the container if that is less.
fn available_memory() -> Option<u64> {
    let table = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = table.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let machine = line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024;
    Some(container_memory().map_or(machine, |container| container.min(machine)))
}

fn container_memory() -> Option<u64> {
    let read = |name: &str| std::fs::read_to_string(format!("/sys/fs/cgroup/{name}")).ok();
    let most: u64 = read("memory.max")?.trim().parse().ok()?; // "max" means no limit
    let used: u64 = read("memory.current")?.trim().parse().ok()?;
    Some(most.saturating_sub(used))
}

#[cfg(test)]
mod tests {
    use super::super::CheckStatus;
    use super::*;

    #[test]
    fn the_scarcest_thing_says_how_many_fit() {
        let fit = |memory, descriptors, most| {
            let check = report(memory, descriptors, most);
            (check.status, check.detail.split(':').next().unwrap().to_owned())
        };
        assert_eq!(fit(Some(5000 * MIB), 4096, 1000), (CheckStatus::Ok, "about 10 more fit".to_owned()));
        assert_eq!(fit(Some(5000 * MIB), 150, 1000), (CheckStatus::Ok, "about 5 more fit".to_owned()));
        assert_eq!(fit(None, 4096, 3), (CheckStatus::Ok, "about 3 more fit".to_owned()));
        assert_eq!(fit(Some(600 * MIB), 4096, 1000), (CheckStatus::Warning, "about 1 more fit".to_owned()));
    }
}

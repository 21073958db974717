//! Which process it is, so that a pid that was given to somebody else is never signalled.

use nix::sys::signal::Signal;
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

/// A pid means nothing without the boot and the time at which its process started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub pid: i32,
    pub boot: String,
    /// In clock ticks since boot; 0 where the system does not tell.
    pub started: u64,
}

impl Identity {
    /// Of a process that is running now.
    pub(super) fn of(pid: i32) -> Self {
        Self { pid, boot: boot_id(), started: stat(pid).map_or(0, |stat| stat.started) }
    }

    /// Ends what is left of an agent's group after a daemon that died with it. Returns whether there was anything.
    pub fn kill_leftovers(&self) -> bool {
        let same = self.boot == boot_id()
            && self.started != 0
            && stat(self.pid).is_some_and(|stat| stat.started == self.started && stat.group == self.pid);
        if same {
            nix::sys::signal::killpg(Pid::from_raw(self.pid), Signal::SIGKILL).ok(); // it may have just gone
        }
        same
    }
}

pub(super) struct Stat {
    pub(super) state: char,
    pub(super) group: i32,
    pub(super) started: u64,
}

fn boot_id() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

pub(super) fn stat(pid: i32) -> Option<Stat> {
    parse_stat(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The name in the second field may hold anything, also brackets and spaces: count from its end.
fn parse_stat(text: &str) -> Option<Stat> {
    let fields: Vec<&str> = text[text.rfind(')')? + 1..].split_ascii_whitespace().collect();
    Some(Stat {
        state: fields.first()?.chars().next()?,
        group: fields.get(2)?.parse().ok()?,
        started: fields.get(19)?.parse().ok()?,
    })
}

/// The living members of a process group, its leader included.
pub(super) fn group_members(group: i32) -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| stat(*pid).is_some_and(|stat| stat.group == group && stat.state != 'Z'))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_with_brackets_does_not_confuse() {
        let rest = "S 1 42 42 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 777 0 0";
        let stat = parse_stat(&format!("42 (a) b) {rest}")).unwrap();
        assert_eq!((stat.state, stat.group, stat.started), ('S', 42, 777));
        assert!(parse_stat("garbage").is_none());
    }

    #[test]
    fn we_find_ourselves_and_not_a_process_of_another_time() {
        let me = i32::try_from(std::process::id()).unwrap();
        let identity = Identity::of(me);
        assert!(identity.started > 0);
        let other = Identity { started: identity.started + 1, ..identity };
        assert!(!other.kill_leftovers());
    }
}

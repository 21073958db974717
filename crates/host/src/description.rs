//! The description of a process for people: its name, its age and its directory.

use std::path::PathBuf;
use std::time::Duration;

use super::identity::{short, stat};
use super::tree::children;

/// The description of a process for a person who decides whether to end it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessDescription {
    pub name: String,
    pub age: Duration,
    /// The current directory, if it is readable.
    pub directory: Option<PathBuf>,
}

/// Describes a process; `None` if it has exited.
pub fn describe_process(pid: i32) -> Option<ProcessDescription> {
    let stat = stat(pid)?;
    let ticks_per_second = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok().flatten();
    let ticks_per_second = ticks_per_second.and_then(|ticks| u64::try_from(ticks).ok()).unwrap_or(100).max(1);
    let uptime = short("/proc/uptime")?;
    let uptime: u64 = uptime.split('.').next()?.parse().ok()?;
    let age = Duration::from_secs(uptime.saturating_sub(stat.started / ticks_per_second));
    let directory = std::fs::read_link(format!("/proc/{pid}/cwd")).ok();
    Some(ProcessDescription { name: stat.name, age, directory })
}

/// Returns the name of the agent's process below a shim; `None` if it has ended.
pub fn agent_program(shim: i32) -> Option<String> {
    let agent = children(shim)?.into_iter().next()?;
    stat(agent).map(|stat| stat.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_a_name_an_age_and_a_directory() {
        let mut sleeper = std::process::Command::new("sleep").arg("1000").current_dir("/").spawn().unwrap();
        let pid = i32::try_from(sleeper.id()).unwrap();
        let found = describe_process(pid);
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        let found = found.unwrap();
        assert_eq!(found.directory, Some("/".into()));
        assert!(found.age < Duration::from_mins(10), "{found:?}");
        assert_eq!(describe_process(0), None);
    }
}

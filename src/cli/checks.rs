//! The checks of `intercom doctor`. None of them needs a daemon, and none changes anything.

mod audit;
mod capacity;
mod configured_agents;
mod known_agents;
mod leftovers;
mod port;
mod shims;

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit};
use nix::sys::statvfs::statvfs;
use nix::unistd::{Uid, User};
use serde::Serialize;

use super::CliContext;
use super::failure::CliFailure;
use super::output;
use super::transport::RemoteDaemon;
use super::url::url;
use intercom_daemon::config::{self, Config, DaemonPaths};
use intercom_host as host;
use intercom_host::socket;
use intercom_types::text::clean;
use intercom_types::{Health, HealthDetails, LogMigration};

pub(super) use self::audit::audit;
pub(super) use self::capacity::capacity;
pub(super) use self::known_agents::agents;
pub(super) use self::leftovers::{orphans, strays};
pub(super) use self::port::port;
pub(super) use self::shims::shims;

/// The name of the check of the daemon's Slack connection.
pub(super) const SLACK: &str = "slack";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CheckStatus {
    Ok,
    Warning,
    Wrong,
}

#[derive(Debug, Serialize)]
pub(super) struct Check {
    pub(super) name: String,
    pub(super) status: CheckStatus,
    pub(super) detail: String,
    pub(super) hint: Option<String>,
    /// The figures of the detail, for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) facts: Option<serde_json::Value>,
}

impl Check {
    pub(super) fn ok(name: &str, detail: impl Into<String>) -> Self {
        Self {
            name: name.to_owned(),
            status: CheckStatus::Ok,
            detail: detail.into(),
            hint: None,
            facts: None,
        }
    }

    pub(super) fn warning(name: &str, detail: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { status: CheckStatus::Warning, hint: Some(hint.into()), ..Self::ok(name, detail) }
    }

    pub(super) fn wrong(name: &str, detail: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { status: CheckStatus::Wrong, ..Self::warning(name, detail, hint) }
    }
}

pub(super) fn configuration(paths: &DaemonPaths) -> (Option<Config>, Check) {
    let file = paths.config.display();
    match config::load(Some(&paths.config), paths.config_explicit) {
        Ok(config) if paths.config.exists() => {
            (Some(config), Check::ok("configuration", format!("{file} is valid")))
        }
        Ok(config) => {
            (Some(config), Check::ok("configuration", format!("{file} does not exist, and is not needed")))
        }
        Err(error) => {
            (None, Check::wrong("configuration", error.to_string(), "the daemon does not start with this"))
        }
    }
}

pub(super) fn state_dir(dir: &Path) -> Check {
    let shown = dir.display();
    let meta = match dir.metadata() {
        Ok(meta) => meta,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Check::ok("state", format!("{shown} does not exist yet; the daemon creates it"));
        }
        Err(error) => {
            return Check::wrong("state", format!("{shown}: {error}"), "the daemon needs this directory");
        }
    };
    let mode = meta.permissions().mode() & 0o7777;
    if !meta.is_dir() {
        Check::wrong("state", format!("{shown} is not a directory"), "move it away, or use --state-dir")
    } else if meta.uid() != Uid::effective().as_raw() {
        Check::wrong(
            "state",
            format!("{shown} belongs to {}", user(meta.uid())),
            "use a directory of your own",
        )
    } else if mode != 0o700 {
        Check::wrong("state", format!("{shown} has mode {mode:04o}"), format!("chmod 700 {shown}"))
    } else {
        Check::ok("state", format!("{shown}, mode 0700"))
    }
}

pub(super) async fn daemon(cx: &CliContext) -> Check {
    let socket = cx.paths.socket.display();
    let stream = match socket::connect(&cx.paths.socket).await {
        Ok(stream) => stream,
        Err(error) => {
            let detail = format!("none at {socket} ({error})");
            return match error.kind() {
                std::io::ErrorKind::NotFound | std::io::ErrorKind::ConnectionRefused => Check::warning(
                    "daemon",
                    detail,
                    "`intercom daemon restart` starts one in the background, and so does `intercom run`",
                ),
                _ => Check::wrong("daemon", detail, "check whether this socket is yours"),
            };
        }
    };
    let whose = stream.peer_cred().map_or_else(
        |_| "of an unknown user".to_owned(),
        |peer| {
            let pid = peer.pid().map(|pid| format!(", pid {pid}")).unwrap_or_default();
            format!("of {}{pid}", user(peer.uid()))
        },
    );
    drop(stream);
    health(&format!("{whose}, at {socket}"), "check its log", cx).await
}

/// Checks the daemon that `INTERCOM_URL` names.
pub(super) async fn remote_daemon(remote: &RemoteDaemon, cx: &CliContext) -> Check {
    let place = format!("at {} (INTERCOM_URL)", remote.console());
    health(&place, "check INTERCOM_URL and INTERCOM_TOKEN", cx).await
}

async fn health(place: &str, hint: &str, cx: &CliContext) -> Check {
    let asked = tokio::time::timeout(Duration::from_secs(5), cx.client.get(&url(&["health"], &[]))).await;
    let health = match asked {
        Ok(Ok(answer)) => answer.parse::<Health>(),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(CliFailure::failed("it does not answer").into()),
    };
    let ours = env!("CARGO_PKG_VERSION");
    match health {
        Ok(Health { more: None, .. }) => {
            Check::wrong("daemon", format!("{place}: it does not accept you"), hint)
        }
        Ok(Health { more: Some(HealthDetails { quarantined_lines: lines @ 1.., .. }), .. }) => Check::wrong(
            "daemon",
            format!("{place}: it failed at {lines} lines of agents and rejected them"),
            "please report this bug, with the `line.rejected` events that say \"intercom failed\" (`intercom logs`)",
        ),
        Ok(Health { status, version, more: Some(HealthDetails { warnings, log_migration, you, .. }) }) => {
            let migration = log_migration.map_or_else(String::new, |LogMigration { done, total }| {
                format!("; it compresses the log of an earlier release: {done} of {total} events")
            });
            let detail =
                format!("{version} {place}: {status}, you are {} ({}){migration}", you.name, you.role);
            if !warnings.is_empty() {
                Check::warning("daemon", format!("{detail}; {}", warnings.join("; ")), hint)
            } else if version == ours {
                Check::ok("daemon", detail)
            } else {
                Check::warning(
                    "daemon",
                    detail,
                    format!("this command is {ours}; run `intercom daemon restart`, and it runs the same"),
                )
            }
        }
        Err(error) => Check::wrong("daemon", format!("{place}: {error:#}"), hint),
    }
}

/// Returns the number of live sessions of the daemon; 0 if none answers.
pub(super) async fn live_sessions(cx: &CliContext) -> u64 {
    let asked = tokio::time::timeout(Duration::from_secs(5), cx.client.get(&url(&["health"], &[]))).await;
    let health = asked.ok().and_then(Result::ok).and_then(|answer| answer.parse::<Health>().ok());
    health.and_then(|health| health.more).map_or(0, |more| u64::try_from(more.sessions.live).unwrap_or(0))
}

/// Prints the daemon's warnings, for commands that people use first.
pub(super) async fn tell_warnings(cx: &CliContext) {
    let answer = cx.client.get(&url(&["health"], &[])).await.ok();
    let Some(Ok(health)) = answer.map(|answer| answer.parse::<Health>()) else { return };
    for warning in health.more.into_iter().flat_map(|more| more.warnings) {
        output::advise(&format!("warning: {}", clean(&warning)));
    }
}

pub(super) fn database(file: &Path) -> Check {
    let shown = file.display();
    if !file.exists() {
        return Check::ok("database", format!("{shown} does not exist yet; the daemon creates it"));
    }
    match schema_version(file) {
        Ok(version) => Check::ok("database", format!("{shown}, schema version {version}")),
        Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy) => Check::warning(
            "database",
            format!("{shown}: only the daemon can open it, because it started on a full disk"),
            "free some space, then run `intercom daemon restart`",
        ),
        Err(error) => {
            Check::wrong("database", format!("{shown}: {error}"), "restore a backup, if it is damaged")
        }
    }
}

fn schema_version(file: &Path) -> rusqlite::Result<i64> {
    open_database(file)?.query_row("PRAGMA user_version", [], |row| row.get(0))
}

/// Opens the database without a daemon and without changing anything.
fn open_database(file: &Path) -> rusqlite::Result<rusqlite::Connection> {
    use rusqlite::{Connection, OpenFlags};
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut log = file.as_os_str().to_owned();
    log.push("-wal");
    let connection = if Path::new(&log).exists() {
        Connection::open_with_flags(file, flags)?
    } else {
        // Nobody uses it: it is opened as immutable, without the side files that SQLite would leave behind.
        Connection::open_with_flags(immutable(file), flags | OpenFlags::SQLITE_OPEN_URI)?
    };
    connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
    Ok(connection)
}

fn immutable(file: &Path) -> String {
    let escaped = file.to_string_lossy().replace('%', "%25").replace('?', "%3f").replace('#', "%23");
    format!("file:{escaped}?immutable=1")
}

/// Checks the limit of open files, because each session takes a handful.
pub(super) fn descriptors() -> Check {
    match getrlimit(Resource::RLIMIT_NOFILE) {
        Ok((soft, hard)) if soft < 1024 => {
            let hint = format!("each session takes about four; `ulimit -n {hard}` raises it");
            Check::warning("descriptors", format!("{soft} (at most {hard})"), hint)
        }
        Ok((soft, hard)) => Check::ok("descriptors", format!("{soft} (at most {hard})")),
        Err(error) => Check::warning("descriptors", error.to_string(), "the limit could not be read"),
    }
}

/// Checks the ways to kill an agent's process tree. `None` is a configuration that cannot be read.
pub(super) fn killing(config: Option<&Config>) -> Check {
    const NAME: &str = "killing";
    match config {
        None => {
            return Check::ok(NAME, "by sweeping the tree; the use of cgroups depends on the configuration");
        }
        Some(config) if !config.daemon.cgroups => {
            return Check::ok(NAME, "by sweeping the tree; [daemon] cgroups is false");
        }
        Some(_) => {}
    }
    match host::CgroupBase::find() {
        Some(cgroups) => Check::ok(
            "killing",
            format!("by cgroup, below {}, and by sweeping the tree", cgroups.base().display()),
        ),
        None => Check::ok("killing", "by sweeping the tree; no cgroup can be made here"),
    }
}

#[allow(clippy::useless_conversion, reason = "a count of blocks has 32 bits on some systems")]
pub(super) fn disk(dir: &Path, min_free_mib: u64) -> Check {
    const MIB: u64 = 1024 * 1024;
    /// The free space below which the database itself soon has no room.
    const LITTLE_MIB: u64 = 100;
    let place = dir.ancestors().find(|dir| dir.exists()).unwrap_or(Path::new("/"));
    let free = match statvfs(place) {
        Ok(stat) => u64::from(stat.blocks_available()).saturating_mul(stat.fragment_size()) / MIB,
        Err(error) => return Check::warning("disk", error.to_string(), "the free space could not be read"),
    };
    let detail = format!("{free} MiB free at {}", place.display());
    if free < min_free_mib {
        let hint = format!(
            "nothing is read from agents below {min_free_mib} MiB ([limits] min_free_disk_mib): free some space"
        );
        return Check::wrong("disk", detail, hint);
    }
    match free {
        ..LITTLE_MIB => {
            Check::wrong("disk", detail, "on a full disk the daemon is read-only: free some space")
        }
        LITTLE_MIB..1024 => Check::warning("disk", detail, "the log of busy agents grows quickly"),
        _ => Check::ok("disk", detail),
    }
}

/// Finds a command as a shell would: a path unchanged, a bare name on the search path.
fn find(command: &Path, search: Option<&std::ffi::OsStr>) -> Option<PathBuf> {
    let runs = |file: &PathBuf| {
        file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    if command.components().count() > 1 {
        return Some(command.to_owned()).filter(runs);
    }
    std::env::split_paths(search?).map(|dir| dir.join(command)).find(runs)
}

fn user(uid: u32) -> String {
    match User::from_uid(Uid::from_raw(uid)) {
        Ok(Some(user)) => user.name,
        _ => format!("user {uid}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_directory_that_others_can_read_is_wrong() {
        let dir = tempfile::tempdir().unwrap();
        let mode =
            |mode| std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        mode(0o755);
        let check = state_dir(dir.path());
        assert_eq!(check.status, CheckStatus::Wrong);
        assert!(check.detail.ends_with("has mode 0755"), "{}", check.detail);
        mode(0o700);
        assert_eq!(state_dir(dir.path()).status, CheckStatus::Ok);
        assert_eq!(state_dir(&dir.path().join("none")).status, CheckStatus::Ok);
    }

    #[test]
    fn the_schema_version_is_read_and_garbage_is_wrong() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("db");
        assert_eq!(database(&file).status, CheckStatus::Ok);
        rusqlite::Connection::open(&file)
            .unwrap()
            .execute_batch("CREATE TABLE t (x); PRAGMA user_version = 7")
            .unwrap();
        assert!(database(&file).detail.ends_with("schema version 7"));
        std::fs::write(&file, "garbage ".repeat(1000)).unwrap();
        assert_eq!(database(&file).status, CheckStatus::Wrong);
    }

    #[test]
    fn commands_are_found_as_a_shell_finds_them() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("agent");
        std::fs::write(&file, "").unwrap();
        let search = Some(dir.path().as_os_str());
        assert_eq!(find(Path::new("agent"), search), None, "it is not executable");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(find(Path::new("agent"), search), Some(file.clone()));
        assert_eq!(find(&file, None), Some(file));
        assert_eq!(find(Path::new("none"), search), None);
    }
}

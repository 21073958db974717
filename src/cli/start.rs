//! Starts a daemon in the background if there is none: the installed service, or else a process of its own, which
//! outlives the command that needed it.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use nix::fcntl::{Flock, FlockArg};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout_at};

use super::daemon::InstalledService;
use super::daemon_info::DaemonInfo;
use super::failure::CliFailure;
use super::shell_variables::Variables;
use super::transport::{Transport, is_listening};
use super::{CliContext, console, output, shell_variables};
use crate::lifecycle;
use intercom_daemon::config::{self, AGENT_CATALOG, Config, DaemonPaths};
use intercom_host::{PART_VARIABLE, SESSION_VARIABLE};
use intercom_types::text::clean;

/// The time limit from the decision to start a daemon until it can be reached.
const READY: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// The maximum size of the log. A longer one is replaced when a daemon starts, and one older log is kept.
const MAX_LOG: u64 = 10 << 20;
/// The number of log lines that are shown after a failed start.
const LOG_LINES: usize = 10;
const LOG_TAIL: u64 = 4096;

/// The variables that every daemon gets besides those that are meant for it: programs need them.
const KEPT: &[&str] =
    &["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "RUST_LOG"];
const KEPT_PREFIXES: &[&str] = &["LC_", "XDG_", "INTERCOM_", "SSL_CERT_"];

/// Prefixes of variables that people set for the daemon, and for no other program.
const DAEMON_PREFIXES: &[&str] = &["INTERCOM_SLACK_", "INTERCOM_API_"];

#[derive(Debug)]
pub(super) struct DaemonStarter {
    paths: DaemonPaths,
    service: Option<InstalledService>,
    /// Variables of the previous daemon that a new one gets if this shell does not set them.
    kept: Variables,
}

impl DaemonStarter {
    fn new(cx: &CliContext) -> Self {
        Self { paths: cx.paths.clone(), service: InstalledService::installed(cx), kept: Variables::new() }
    }

    /// Returns the names of variables for agents and bridges that the running daemon has and this shell does not set. A
    /// daemon that this process starts keeps them; a service has its own environment.
    pub(super) fn keep_variables(&mut self, running: &DaemonInfo) -> KeptVariables {
        let (Some(theirs), Ok(config)) = (running.environment(), self.config()) else {
            return KeptVariables::default();
        };
        let set_here = |name: &OsString| std::env::var_os(name).is_some();
        let names_of = |variables: &Variables| {
            variables.iter().map(|(name, _)| name.to_string_lossy().into_owned()).collect()
        };
        // A service gets its environment from the service manager, before and after a restart.
        let is_managed = shell_variables::value(&theirs, "INVOCATION_ID").is_some();
        let theirs: Variables =
            handed_on(theirs, &config).into_iter().filter(|(name, _)| !set_here(name)).collect();
        if self.service.is_some() {
            let lost = if is_managed { Vec::new() } else { names_of(&theirs) };
            return KeptVariables { kept: Vec::new(), lost };
        }
        let kept = names_of(&theirs);
        self.kept = theirs;
        KeptVariables { kept, lost: Vec::new() }
    }

    /// Fails if a daemon would not start with this configuration. A service has a configuration of its own.
    pub(super) fn check_config(&self) -> anyhow::Result<()> {
        if self.service.is_none() {
            self.config()?;
        }
        Ok(())
    }

    fn config(&self) -> anyhow::Result<Config> {
        config::load(Some(&self.paths.config), self.paths.config_explicit).map_err(|error| {
            CliFailure::failed(format!("no daemon can be started: {:#}", anyhow::Error::new(error))).into()
        })
    }

    /// Returns the starter for this machine; `None` if the daemon is remote.
    pub(super) fn local(cx: &CliContext) -> Option<Self> {
        matches!(cx.client.transport(), Transport::Unix(_)).then(|| Self::new(cx))
    }

    /// Makes sure that a daemon runs, and reports if a new one has no console.
    pub(super) async fn ensure_with_console(&self, cx: &CliContext) -> anyhow::Result<()> {
        let was_there = self.is_there().await;
        self.ensure().await?;
        if !was_there {
            console::say_if_missing(cx).await;
        }
        Ok(())
    }

    /// Makes sure that a daemon runs, or fails with the reason.
    pub(super) async fn ensure(&self) -> anyhow::Result<()> {
        if self.is_there().await {
            return Ok(());
        }
        lifecycle::make_private_dir(&self.paths.state_dir)?;
        let until = Instant::now() + READY;
        // Held until the daemon is ready: another command that needs one waits for the lock, and then finds the daemon.
        let _lock = loop {
            if let Some(lock) = self.lock()? {
                break lock;
            }
            if self.is_there().await {
                return Ok(());
            }
            if Instant::now() >= until {
                return Err(CliFailure::failed(
                    "another `intercom` is starting a daemon and does not finish",
                )
                .into());
            }
            sleep(LOOK_AGAIN).await;
        };
        if self.is_there().await {
            return Ok(());
        }
        if let Some(service) = &self.service {
            match start_service(service, until).await {
                Ok(()) => return self.service_ready(service, until).await,
                Err(why) => output::print_note(&format!(
                    "the installed service does not start ({why}); starting a daemon without it"
                )),
            }
        }
        self.detached(until).await
    }

    async fn is_there(&self) -> bool {
        is_listening(&self.paths.socket).await
    }

    fn lock(&self) -> anyhow::Result<Option<Flock<File>>> {
        let path = self.paths.state_dir.join("start.lock");
        let open = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = open.with_context(|| format!("cannot open {}", path.display()))?;
        Ok(Flock::lock(file, FlockArg::LockExclusiveNonblock).ok())
    }

    async fn service_ready(&self, service: &InstalledService, until: Instant) -> anyhow::Result<()> {
        while !self.is_there().await {
            if Instant::now() >= until {
                let socket = self.paths.socket.display();
                let message = format!("the service was started, but does not listen on {socket} after 5 s");
                return Err(CliFailure::failed(message).hint(service.log).into());
            }
            sleep(LOOK_AGAIN).await;
        }
        Ok(())
    }

    async fn detached(&self, until: Instant) -> anyhow::Result<()> {
        let config = self.config()?;
        let path = self.paths.state_dir.join("daemon.log");
        let log = open_log(&path).with_context(|| format!("cannot write {}", path.display()))?;
        let begin = log.metadata()?.len();
        let mut child = self.spawn(&config, log)?;
        loop {
            if self.is_there().await {
                output::print_note(&format!("started a daemon (pid {})", child.id().unwrap_or_default()));
                return Ok(());
            }
            let ended = child.try_wait()?;
            let end = log_end(&path, begin);
            // Two commands started a daemon: the other one is about to listen.
            let other = end.iter().any(|line| line.contains("another intercom"));
            if (ended.is_some() && !other) || Instant::now() >= until {
                output::print_note(&format!("the end of {}:", path.display()));
                for line in &end {
                    output::print_note(&format!("  {}", clean(line)));
                }
                return Err(match ended {
                    Some(status) => {
                        CliFailure::failed(format!("a daemon was started, and ended with {status}"))
                    }
                    None => CliFailure::failed("a daemon was started, and cannot be reached after 5 s"),
                }
                .hint("`intercom serve` in a terminal shows the cause")
                .into());
            }
            sleep(LOOK_AGAIN).await;
        }
    }

    fn spawn(&self, config: &Config, log: File) -> anyhow::Result<Child> {
        let mut command = Command::new(program()?);
        command.arg("--state-dir").arg(&self.paths.state_dir).arg("--socket").arg(&self.paths.socket);
        if self.paths.config_explicit {
            command.arg("--config").arg(&self.paths.config);
        }
        command.args(["serve", "--detached"]).current_dir("/");
        command.env_clear().envs(self.kept.iter().cloned()).envs(environment(std::env::vars_os(), config));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        command.spawn().context("cannot start a daemon")
    }
}

/// Asks the system's service manager to start the service.
async fn start_service(service: &InstalledService, until: Instant) -> Result<(), String> {
    let mut command = Command::new(service.program);
    command.args(&service.args).stdin(Stdio::null()).kill_on_drop(true);
    let output = timeout_at(until, command.output()).await.map_err(|_| "no answer within 5 s".to_owned())?;
    let output = output.map_err(|error| format!("{}: {error}", service.program))?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(clean(stderr.trim().lines().next().unwrap_or("the reason is not known")))
}

/// Returns our own program; after an upgrade, the one that has replaced it.
fn program() -> io::Result<PathBuf> {
    let path = std::env::current_exe()?;
    if path.exists() {
        return Ok(path);
    }
    let newer = path.to_str().and_then(|path| path.strip_suffix(" (deleted)")).map(PathBuf::from);
    Ok(newer.filter(|newer| newer.exists()).unwrap_or_else(|| "/proc/self/exe".into()))
}

/// The names of a daemon's variables that a restart must not lose.
#[derive(Debug, Default)]
pub(super) struct KeptVariables {
    pub(super) kept: Vec<String>,
    pub(super) lost: Vec<String>,
}

/// Returns the names of the variables that profiles pass on to their agents.
fn passed_names(config: &Config) -> BTreeSet<String> {
    let known = AGENT_CATALOG.iter().flat_map(|known| known.profile(|_| true, |_| true).pass_env);
    config.agents.values().flat_map(|profile| profile.pass_env.iter().cloned()).chain(known).collect()
}

/// Returns the daemon's variables for agents and for bridges. Others belong to the shell that starts it.
fn handed_on(theirs: Variables, config: &Config) -> Variables {
    let passed = passed_names(config);
    let is_kept =
        |name: &str| passed.contains(name) || DAEMON_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    theirs
        .into_iter()
        .filter(|(name, value)| !value.is_empty() && name.to_str().is_some_and(is_kept))
        .collect()
}

/// Selects the variables for the daemon itself, and those that the profiles pass on to their agents.
fn environment(ours: impl IntoIterator<Item = (OsString, OsString)>, config: &Config) -> Variables {
    let passed = passed_names(config);
    let kept = |name: &str| {
        // The daemon does not belong to an agent, even if an agent started it.
        let marked = name == SESSION_VARIABLE || name == PART_VARIABLE;
        let named = KEPT.contains(&name) || passed.contains(name);
        !marked && (named || KEPT_PREFIXES.iter().any(|prefix| name.starts_with(prefix)))
    };
    ours.into_iter().filter(|(name, _)| name.to_str().is_some_and(kept)).collect()
}

/// Opens the log for this user only, because it may contain agent output.
fn open_log(path: &Path) -> io::Result<File> {
    if path.metadata().is_ok_and(|log| log.len() > MAX_LOG) {
        std::fs::rename(path, path.with_extension("log.old"))?;
    }
    let log = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    log.set_permissions(std::fs::Permissions::from_mode(0o600))?;
    Ok(log)
}

/// Returns the last lines that were written after `begin`.
fn log_end(path: &Path, begin: u64) -> Vec<String> {
    let read = || -> io::Result<Vec<u8>> {
        let mut log = File::open(path)?;
        let from = log.metadata()?.len().saturating_sub(LOG_TAIL).max(begin);
        log.seek(SeekFrom::Start(from))?;
        let mut end = Vec::new();
        log.take(LOG_TAIL).read_to_end(&mut end)?;
        Ok(end)
    };
    let end = read().unwrap_or_default(); // there may be no log
    let text = String::from_utf8_lossy(&end);
    let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].iter().map(|line| (*line).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_daemon_gets_what_it_needs_and_nothing_else_of_our_environment() {
        let config =
            config::parse("[agents.a]\ncommand = 'x'\npass_env = ['MY_KEY']\n", Path::new("c")).unwrap();
        let ours = [
            "PATH",
            "HOME",
            "LC_ALL",
            "XDG_RUNTIME_DIR",
            "INTERCOM_SLACK_BOT_TOKEN",
            "RUST_LOG",
            "SSL_CERT_FILE",
            "MY_KEY",
            "ANTHROPIC_API_KEY",
            "INTERCOM_SESSION",
            "INTERCOM_PART",
            "EDITOR_SECRET",
            "LD_PRELOAD",
            "NODE_OPTIONS",
        ];
        let env = environment(ours.map(|name| (name.into(), "1".into())), &config);
        let names: Vec<&str> = env.iter().map(|(name, _)| name.to_str().unwrap()).collect();
        assert_eq!(names, ours[..9]);
    }

    #[test]
    fn a_long_log_makes_room_and_is_nobody_elses() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("daemon.log");
        std::fs::write(&path, "short").unwrap();
        assert_eq!(open_log(&path).unwrap().metadata().unwrap().len(), 5);
        File::options().write(true).open(&path).unwrap().set_len(MAX_LOG + 1).unwrap();
        let log = open_log(&path).unwrap().metadata().unwrap();
        assert_eq!((log.len(), log.permissions().mode() & 0o777), (0, 0o600));
        assert_eq!(dir.path().join("daemon.log.old").metadata().unwrap().len(), MAX_LOG + 1);
    }

    #[test]
    fn of_the_log_the_end_is_shown_but_nothing_of_an_earlier_daemon() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("daemon.log");
        assert_eq!(log_end(&path, 0), [] as [&str; 0]);
        let text = (0..20).map(|n| format!("line {n}\n\n")).collect::<Vec<_>>().concat();
        std::fs::write(&path, format!("before\n{text}")).unwrap();
        let end = log_end(&path, 7);
        assert_eq!((end.len(), end[0].as_str(), end[9].as_str()), (10, "line 10", "line 19"));
        std::fs::write(&path, "before\nafter\n").unwrap();
        assert_eq!(log_end(&path, 7), ["after"]);
    }
}

//! The daemon from start to stop.
//!
//! ```text
//!   state directory ─► lock ─► store ─► recovery of earlier sessions ─► socket ─► serve … signal
//!   agents left running, or stopped in parallel ─► streams closed ─► store closed ─► socket and daemon.json removed
//! ```

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{IsTerminal, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use nix::fcntl::{Flock, FlockArg};
use nix::unistd::Uid;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

mod daemon_info;
mod demo;
mod port;

use intercom_bridges::acp::AcpBridge;
use intercom_bridges::api::{ApiBridge, serve};
use intercom_bridges::health::HealthRegistry;
use intercom_bridges::slack::SlackBridge;
use intercom_bridges::webhook::WebhookSender;
use intercom_daemon::config::{Config, DaemonPaths, OnStop};
pub(crate) use intercom_daemon::ops::ConfigReader;
use intercom_daemon::ops::{NoConsole, Operations};
use intercom_daemon::supervisor::{RecoveryReport, Supervisor};
use intercom_host as host;
use intercom_host::socket;
use intercom_store::bus::Bell;
use intercom_store::{self as store, Store, StoreError, inspect_audit};
use intercom_types::text::shell_word;
use intercom_types::{LedgerRebuild, RebuildMode, RebuildProgress};

pub(crate) use self::daemon_info::DaemonInfo;
pub(crate) use self::port::OccupiedPortPolicy;
use self::port::PortOpening;

/// The time for open requests to finish once everything else has stopped.
const LAST_ANSWERS: Duration = Duration::from_millis(300);
/// The interval at which a slow recovery is checked.
const RECOVERY_LOOK: Duration = Duration::from_secs(1);
/// The pause before a start that could not be recorded is recorded again.
const RECORD_AGAIN: Duration = Duration::from_secs(2);

pub(crate) struct ServeOptions {
    pub(crate) paths: DaemonPaths,
    pub(crate) config: Config,
    /// Reads the configuration again.
    pub(crate) read_config: ConfigReader,
    pub(crate) demo: bool,
    pub(crate) taken_port: OccupiedPortPolicy,
    /// A token that is valid besides the stored ones.
    pub(crate) token: Option<String>,
}

impl std::fmt::Debug for ServeOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServeOptions").field("paths", &self.paths).finish_non_exhaustive()
    }
}

/// Runs the daemon until it is stopped.
pub(crate) fn serve(options: ServeOptions) -> anyhow::Result<()> {
    intercom_daemon::telemetry::init();
    // The one TLS provider of the process; every client and server of it uses this one.
    tokio_rustls::rustls::crypto::ring::default_provider().install_default().ok(); // it is installed already
    make_private_dir(&options.paths.state_dir)?;
    make_socket_dir(&options.paths.socket)?;
    let lock = lock(&options.paths)?;
    host::raise_open_files();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = runtime.block_on(run(options));
    runtime.shutdown_timeout(Duration::from_millis(200));
    drop(lock);
    result
}

async fn run(options: ServeOptions) -> anyhow::Result<()> {
    let ServeOptions { paths, config, read_config, demo, taken_port, token } = options;
    // Handled from the very start: a signal during start-up must not kill a half-open store.
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;

    let on_stop = config.daemon.on_stop;
    let bell = Bell::new();
    let database = paths.database();
    let store = Store::open_anchored(&database, bell.clone(), config.audit.anchor_file.as_deref())
        .with_context(|| format!("cannot open the database {}", database.display()))?;
    make_private_file(&database)?;
    let supervisor = Supervisor::new(config, store);
    supervisor.load_policy().await.context("cannot read the rules and grants in force")?;
    let recovery = recover(&supervisor).await?;
    supervisor.keep_house();

    let closing = CancellationToken::new();
    let conditions = HealthRegistry::default();
    let ops = Operations::new(supervisor.clone(), bell.clone(), read_config);
    let api = ApiBridge::open(ops.clone(), conditions.clone(), token, closing.clone()).await?;
    let start_recorded = ops.record_start().await;
    let port = port::open(&supervisor.config().api, taken_port, &ops).await?;
    let webhook = WebhookSender::open(&supervisor.config(), &ops)?;
    // Before the daemon can be reached, because an earlier daemon's file is outdated.
    DaemonInfo::of_this_process(paths.socket.clone(), port.url()).write(&paths.daemon_json());
    let listener = socket::listen(&paths.socket)
        .await
        .with_context(|| format!("cannot listen on {}", paths.socket.display()))?;
    let others = supervisor.config().operators.iter().any(|operator| operator.uid.is_some());
    if others {
        // The kernel identifies the caller, so the permissions depend on that and not on the file's mode.
        std::fs::set_permissions(&paths.socket, std::fs::Permissions::from_mode(0o666))?;
    }
    let acp = AcpBridge::new(ops.clone(), closing.clone());
    let router = api.clone().router(acp.router(&conditions));
    let servers = TaskTracker::new();
    let missing = match port {
        PortOpening::Off => None,
        PortOpening::Taken(taken) => {
            let missing = no_console(&taken, &paths);
            ops.set_console_unavailable(missing.clone());
            Some(missing)
        }
        PortOpening::Port(port) => {
            tracing::info!(url = port.url(), "the API has a port");
            ops.set_console_url(port.url());
            servers.spawn(serve::tcp(port.listener, port.tls, router.clone(), closing.clone()));
            None
        }
    };
    let slack = SlackBridge::new(ops.clone(), conditions);
    servers.spawn(slack.run(closing.clone()));
    servers.spawn(serve::unix(listener, router, closing.clone()));
    servers.spawn(acp.run_housekeeping());
    let late = LateWork { recovery, start_recorded, ops: ops.clone() };
    late.spawn(&servers, &closing);
    if let Some(webhook) = webhook {
        servers.spawn(webhook.run(closing.clone()));
    }
    servers.close();
    tracing::info!(socket = %paths.socket.display(), pid = std::process::id(), "intercom is ready");

    match missing {
        None => greet(&ops),
        Some(missing) => say(&format!("\nThere is no console: {missing}\n")),
    }
    let guide = if demo { Some(demo::start(&supervisor, &bell, &paths.socket).await?) } else { None };
    let terminal = std::io::stderr().is_terminal();
    let (cause, how) = loop {
        tokio::select! {
            // Ctrl-C on a terminal is meant for everything that was started there, so the agents stop as well.
            _ = interrupt.recv() => break ("SIGINT", if terminal { OnStop::Drain } else { on_stop }),
            _ = terminate.recv() => break ("SIGTERM", on_stop),
            // A SIGHUP from a closed terminal is a stop; otherwise it is a request to reload the configuration.
            _ = hangup.recv() => if terminal { break ("SIGHUP", on_stop) } else { ops.reload_on_signal().await },
        }
    };
    drop(guide); // its advice does not apply any more
    tracing::info!(cause, agents = %how, "stopping");
    match how {
        OnStop::Leave => supervisor.leave().await,
        OnStop::Drain => {
            let impatience = async {
                // A second signal comes from a person who does not want to wait: no gentle steps, but nothing is lost.
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                    _ = hangup.recv() => {}
                }
                tracing::info!("a second signal: killing the remaining agents");
            };
            supervisor.shut_down(impatience).await;
        }
    }
    closing.cancel();
    let finished = async { tokio::join!(servers.wait(), ops.finish()) };
    tokio::time::timeout(LAST_ANSWERS, finished).await.ok(); // a client that does not read is not waited for
    std::fs::remove_file(&paths.socket).ok(); // the file may be removed already
    std::fs::remove_file(paths.daemon_json()).ok(); // as above
    tracing::info!("stopped");
    Ok(())
}

/// The part of the start that may finish after the daemon can be reached.
struct LateWork {
    recovery: Option<RecoveryTask>,
    start_recorded: bool,
    ops: Operations,
}

impl LateWork {
    fn spawn(self, servers: &TaskTracker, closing: &CancellationToken) {
        let Self { recovery, start_recorded, ops } = self;
        if let Some(recovery) = recovery {
            servers.spawn(closing.clone().run_until_cancelled_owned(finish_recovery(recovery)));
        }
        servers.spawn(closing.clone().run_until_cancelled_owned(async move {
            let mut recorded = start_recorded;
            while !recorded {
                tokio::time::sleep(RECORD_AGAIN).await;
                recorded = ops.record_start().await;
            }
            ops.store().count_old_events().await;
            ops.store().pack_events().await;
        }));
    }
}

type RecoveryTask = AbortOnDropHandle<Result<RecoveryReport, StoreError>>;

/// Recovers the sessions of the last run. If the database cannot be written, recovery ends only when it can. The rest
/// is then returned as a task, because people must be able to reach the daemon and stop agents meanwhile.
async fn recover(supervisor: &Supervisor) -> anyhow::Result<Option<RecoveryTask>> {
    let theirs = supervisor.clone();
    let mut recovery = RecoveryTask::new(tokio::spawn(async move { theirs.recover().await }));
    loop {
        match tokio::time::timeout(RECOVERY_LOOK, &mut recovery).await {
            Ok(recovered) => return recovered_sessions(recovered).map(|()| None),
            // As long as the store works, nobody can connect before all sessions are recovered.
            Err(_) => {
                if let Some(why) = supervisor.store().write_failure() {
                    tracing::warn!(
                        "the database cannot be written ({why}): commands are refused, agents can be stopped"
                    );
                    return Ok(Some(recovery));
                }
            }
        }
    }
}

async fn finish_recovery(recovery: RecoveryTask) {
    if let Err(error) = recovered_sessions(recovery.await) {
        tracing::error!("{error:#}; the next start retries it");
    }
}

fn recovered_sessions(
    recovered: Result<Result<RecoveryReport, StoreError>, JoinError>,
) -> anyhow::Result<()> {
    let recovered = recovered.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
    let recovered = recovered.context("cannot read the sessions of the last run")?;
    if recovered != RecoveryReport::default() {
        tracing::info!("{recovered}");
    }
    Ok(())
}

/// Prints the console's address; on a terminal with a link that signs in. Such a link is for the person at the
/// terminal, and is never written into a file, a pipe or the journal, which others may read: there, `intercom open`
/// makes one.
fn greet(ops: &Operations) {
    let Some(url) = ops.console_url() else { return };
    let link = std::io::stderr().is_terminal().then(|| ops.first_link()).flatten();
    match link {
        // On a line of its own, so that it fits 80 columns and a double click selects all of it.
        Some(link) => say(&format!(
            "\nOpen the console:\n  {link}\nThe link works once, within ten minutes; `intercom open` opens another.\n"
        )),
        None => say(&format!("\nThe console is at {url}/; `intercom open` opens it, signed in.\n")),
    }
}

/// Prints a message on stderr. A stderr that cannot be written, such as a file on a full disk, must not end the daemon.
fn say(text: &str) {
    writeln!(std::io::stderr(), "{text}").ok();
}

/// Returns the breaks of the audit chain; works without a daemon and beside one.
pub(crate) fn audit_warnings(paths: &DaemonPaths, config: &Config) -> anyhow::Result<Vec<String>> {
    let (database, anchor) = (paths.database(), config.audit.anchor_file.as_deref());
    Ok(if database.exists() { inspect_audit(&database, anchor)? } else { Vec::new() })
}

/// Returns the reason why there is no console, and the way to get one.
fn no_console(taken: &port::OccupiedPort, paths: &DaemonPaths) -> NoConsole {
    let free = taken.free;
    let line: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let in_background =
        std::env::var_os("JOURNAL_STREAM").is_some() || line.iter().any(|word| word == "--detached");
    let remedy = if in_background {
        let file = paths.config.display();
        format!("set `listen = \"{free}\"` below `[api]` in {file}, and run `intercom daemon restart`")
    } else {
        let words: Vec<String> = line.iter().map(|word| shell_word(word)).collect();
        format!("stop this daemon and start it with a free port:\n  {} --listen {free}", words.join(" "))
    };
    NoConsole { why: taken.why().to_owned(), remedy }
}

/// Creates the state directory if it does not exist, and makes it private.
pub(crate) fn make_private_dir(dir: &Path) -> anyhow::Result<()> {
    let create = || -> std::io::Result<()> {
        if !dir.exists() {
            return DirBuilder::new().recursive(true).mode(0o700).create(dir);
        }
        // It contains agents' output and operators' decisions, which are private.
        let mode = dir.metadata()?.permissions().mode();
        if mode & 0o077 != 0 {
            let known = |name: &str| dir.join(name).exists();
            let ours =
                known("daemon.lock") || known("intercom.db") || std::fs::read_dir(dir)?.next().is_none();
            if !ours {
                let message = "others can read it, and it contains files of other programs: use another one";
                return Err(std::io::Error::other(message));
            }
            std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o700))?;
        }
        Ok(())
    };
    create().with_context(|| format!("cannot use the directory {}", dir.display()))
}

/// Creates the socket's directory. Only one level, in a directory of ours: a longer missing path is more likely a
/// typing mistake.
fn make_socket_dir(socket: &Path) -> anyhow::Result<()> {
    let Some(dir) = socket.parent().filter(|dir| !dir.exists()) else { return Ok(()) };
    let above = dir.parent().and_then(|above| above.metadata().ok());
    match above.filter(|above| above.uid() == Uid::effective().as_raw()) {
        Some(_) => make_private_dir(dir),
        None => bail!(
            "the directory of the socket, {}, does not exist: create it, or use another one",
            dir.display()
        ),
    }
}

fn make_private_file(file: &Path) -> anyhow::Result<()> {
    let mode = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(file, mode).with_context(|| format!("cannot protect {}", file.display()))
}

/// Compares the ledger with the log, and replaces it if requested; then the caller must hold the lock.
pub(crate) fn rebuild_ledger(
    paths: &DaemonPaths,
    mode: RebuildMode,
    progress: &mut dyn FnMut(RebuildProgress),
) -> Result<LedgerRebuild, StoreError> {
    store::rebuild_ledger(&paths.database(), mode, progress)
}

/// Takes the lock that ensures one daemon per state directory. The kernel releases it with the process, however that
/// ends.
pub(crate) fn lock(paths: &DaemonPaths) -> anyhow::Result<Flock<File>> {
    let path = paths.lock();
    let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
    let file = open.with_context(|| format!("cannot open {}", path.display()))?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(mut lock) => {
            // Only the lock matters. The pid is for the message below, and on a full disk there is no room for it.
            let noted = lock.set_len(0).and_then(|()| lock.rewind());
            noted.and_then(|()| write!(lock, "{}", std::process::id())).ok();
            Ok(lock)
        }
        Err((mut file, _)) => {
            let mut pid = String::new();
            file.read_to_string(&mut pid).ok(); // the pid is only for the message
            let pid = if pid.is_empty() { "unknown" } else { pid.trim() };
            bail!("another intercom (pid {pid}) uses the state directory {}", paths.state_dir.display())
        }
    }
}

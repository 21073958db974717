//! `intercom doctor`: one line for each check of an installation.

mod rebuild;

use std::fmt::Write as _;

use super::checks::{self, Check, CheckStatus};
use super::daemon_info::DaemonInfo;
use super::failure::CliFailure;
use super::gutter::{advice_lines, wrapped};
use super::terminal::{Paint, TerminalStyle, stdout_size};
use super::transport::Transport;
use super::{CliContext, output};
use intercom_types::text::{clean, columns, plural};

/// The column of the details.
const INDENT: usize = 23;
/// The column of the hints.
const HINT_INDENT: usize = 9;

/// Check the installation: configuration, state, daemon, console, limits and agents
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Works with and without a daemon. With INTERCOM_URL it checks the daemon there. Exit code 1 means that something is \
wrong."
)]
pub(super) struct DoctorArgs {
    /// Rebuild clearances, questions and prompts from the log, and report the differences; the daemon must be stopped
    #[arg(long)]
    rebuild_ledger: bool,
    /// Only report the differences
    #[arg(long, requires = "rebuild_ledger")]
    dry_run: bool,
}

pub(super) async fn run(args: DoctorArgs, cx: &CliContext) -> anyhow::Result<()> {
    if args.rebuild_ledger {
        return rebuild::run(args.dry_run, cx);
    }
    let (config, configured) = checks::configuration(&cx.paths);
    let mut checks = vec![configured];
    if let Transport::Remote(remote) = cx.client.transport() {
        checks.push(checks::remote_daemon(remote, cx).await);
        if !remote.is_local() {
            let detail = "not checked: the daemon is on another machine";
            checks.push(Check::ok("this machine", detail));
            checks.extend(super::slack::daemon(cx).await);
            return report(&checks, cx);
        }
    } else {
        checks.push(checks::daemon(cx).await);
    }
    let limits = config.as_ref().map(|config| config.limits.clone()).unwrap_or_default();
    let daemon = DaemonInfo::read(&cx.paths.daemon_json());
    let live = if daemon.is_some() { checks::live_sessions(cx).await } else { 0 };
    checks.extend([
        checks::state_dir(&cx.paths.state_dir),
        checks::database(&cx.paths.database()),
        checks::descriptors(),
        checks::capacity(daemon.as_ref().map(|daemon| daemon.pid), live, limits.max_sessions),
        checks::disk(&cx.paths.state_dir, limits.min_free_disk_mib),
        checks::killing(config.as_ref()),
        checks::strays(&cx.paths),
    ]);
    checks.extend(checks::orphans(&cx.paths));
    checks.extend(checks::shims(&cx.paths).await);
    if let Some(config) = &config {
        checks.push(checks::audit(&cx.paths, config));
        checks.extend(checks::port(&config.api, cx));
        checks.extend(checks::agents(config, daemon.as_ref(), cx).await);
    }
    checks.extend(super::slack::daemon(cx).await);
    report(&checks, cx)
}

pub(super) fn report(checks: &[Check], cx: &CliContext) -> anyhow::Result<()> {
    let wrong = checks.iter().filter(|check| check.status == CheckStatus::Wrong).count();
    if cx.json {
        output::print(&serde_json::json!({"ok": wrong == 0, "checks": checks}).to_string())?;
    } else {
        output::print(&checks.iter().map(|check| show(check, cx.paint)).collect::<String>())?;
    }
    if wrong > 0 {
        return Err(CliFailure::failed(format!("{} failed", plural(wrong, "check"))).into());
    }
    Ok(())
}

fn show(check: &Check, paint: Paint) -> String {
    let (style, word) = match check.status {
        CheckStatus::Ok => (TerminalStyle::Green, "ok     "),
        CheckStatus::Warning => (TerminalStyle::Yellow, "warning"),
        CheckStatus::Wrong => (TerminalStyle::Red, "wrong  "),
    };
    let name = format!("  {:<13} ", clean(&check.name));
    let used = columns(word) + columns(&name);
    let detail = wrapped(&clean(&check.detail), used, INDENT, stdout_size().map(|size| size.columns));
    let mut shown = format!("{}{name}{detail}\n", paint.style(style, word));
    for hint in check.hint.iter().flat_map(|hint| hint.lines()) {
        let room = stdout_size().map(|size| size.columns.saturating_sub(HINT_INDENT));
        for line in advice_lines(&format!("hint: {}", clean(hint)), room) {
            writeln!(shown, "{:HINT_INDENT$}{line}", "").expect("a string takes every write");
        }
    }
    shown
}

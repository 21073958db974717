//! `intercom doctor`: everything that can be wrong with an installation, one line each.

use super::checks::{self, Check, Status};
use super::failure::Failure;
use super::terminal::{Paint, Style};
use super::{Context, out};
use crate::text::{clean, plural};

/// Check the installation: configuration, state, daemon, limits and agents
#[derive(Debug, clap::Args)]
#[command(after_help = "Works with and without a daemon. Exit code 1 means that something is wrong.")]
pub(super) struct Args {}

pub(super) async fn run(Args {}: Args, cx: &Context) -> anyhow::Result<()> {
    let (config, configured) = checks::configuration(&cx.paths);
    let mut checks = vec![
        configured,
        checks::state_dir(&cx.paths.state_dir),
        checks::daemon(cx).await,
        checks::database(&cx.paths.database()),
        checks::descriptors(),
        checks::disk(&cx.paths.state_dir),
        checks::killing(),
        checks::strays(),
    ];
    if let Some(config) = &config {
        checks.extend(checks::agents(config));
        checks.extend(checks::known(config).await);
    }
    checks.extend(super::slack::daemon(cx).await);
    report(&checks, cx)
}

pub(super) fn report(checks: &[Check], cx: &Context) -> anyhow::Result<()> {
    let wrong = checks.iter().filter(|check| check.status == Status::Wrong).count();
    if cx.json {
        out::print(&serde_json::json!({"ok": wrong == 0, "checks": checks}).to_string())?;
    } else {
        out::print(&checks.iter().map(|check| show(check, cx.paint)).collect::<String>())?;
    }
    if wrong > 0 {
        return Err(Failure::failed(format!("{} failed", plural(wrong, "check"))).into());
    }
    Ok(())
}

fn show(check: &Check, paint: Paint) -> String {
    let (style, word) = match check.status {
        Status::Ok => (Style::Green, "ok     "),
        Status::Warning => (Style::Yellow, "warning"),
        Status::Wrong => (Style::Red, "wrong  "),
    };
    let hint =
        check.hint.as_ref().map(|hint| format!("         hint: {}\n", clean(hint))).unwrap_or_default();
    let name = clean(&check.name);
    format!("{}  {name:<13} {}\n{hint}", paint.style(style, word), clean(&check.detail))
}

//! `intercom slack`: the setup of the Slack app, and its checks.

use super::checks::{self, Check};
use super::url::url;
use super::{CliContext, doctor, output};
use intercom_bridges::slack::doctor::{SetupFinding, check};
use intercom_bridges::slack::manifest::MANIFEST;
use intercom_daemon::config;
use intercom_types::Health;

/// Set up Slack: the app's manifest, and what is missing
#[derive(Debug, clap::Args)]
#[command(after_help = "docs/SLACK.md leads to the first approval in ten minutes.")]
pub(super) struct SlackArgs {
    #[command(subcommand)]
    verb: SlackSetupCommand,
}

#[derive(Debug, clap::Subcommand)]
enum SlackSetupCommand {
    /// Print the manifest of the Slack app, for Slack's page for new apps
    Manifest,
    /// Check everything from the tokens to the channel, and report what is missing
    Doctor,
}

pub(super) async fn run(args: SlackArgs, cx: &CliContext) -> anyhow::Result<()> {
    match args.verb {
        SlackSetupCommand::Manifest => output::print(MANIFEST.trim_end()),
        SlackSetupCommand::Doctor => {
            let config = config::load(Some(&cx.paths.config), cx.paths.config_explicit)?;
            let daemon = daemon(cx).await;
            let mut found: Vec<Check> = check(&config).await.into_iter().map(shown).collect();
            found.extend(daemon);
            doctor::report(&found, cx)
        }
    }
}

fn shown(finding: SetupFinding) -> Check {
    let SetupFinding { name, detail, hint } = finding;
    match hint {
        None => Check::ok(&name, detail),
        Some(hint) => Check::wrong(&name, detail, hint),
    }
}

/// Checks the running daemon's view of Slack.
pub(super) async fn daemon(cx: &CliContext) -> Option<Check> {
    let health: Health = cx.client.get(&url(&["health"], &[])).await.ok()?.parse().ok()?;
    let more = health.more?;
    let words = more.bridges.get("slack")?;
    Some(match words.as_str() {
        "ok" => Check::ok(checks::SLACK, "the daemon is connected"),
        "connecting" => Check::warning(checks::SLACK, "the daemon is connecting", "check again in a moment"),
        words => Check::wrong(checks::SLACK, words, "`intercom slack doctor` shows the remedy"),
    })
}

//! `intercom agents`: the profiles that the daemon can start, and the command that adds one.

mod add;
mod config_file;
mod install;
mod registry;

use serde::Deserialize;
use serde_json::Value;

use super::client::DaemonListing;
use super::failure::CliFailure;
use super::table::{TerminalCell, TerminalColumnFit, TerminalTable};
use super::transport::{Transport, is_listening};
use super::{CliContext, json_text, output};
use intercom_daemon::config;
use intercom_daemon::ops::agents_of;

/// List the agent profiles that the daemon knows, or add one
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Well-known agents need no configuration; docs/AGENTS.md has the requirements of each. `intercom doctor` \
shows which of them have a log-in."
)]
pub(super) struct AgentsArgs {
    #[command(subcommand)]
    verb: Option<AgentProfileCommand>,
}

#[derive(Debug, clap::Subcommand)]
enum AgentProfileCommand {
    Add(add::AddAgentArgs),
}

#[derive(Debug, Deserialize)]
struct Profile {
    name: String,
    description: Option<String>,
    command: Option<Value>,
    protocol: Option<String>,
    availability: Option<String>,
}

pub(super) async fn run(args: AgentsArgs, cx: &CliContext) -> anyhow::Result<()> {
    match args.verb {
        Some(AgentProfileCommand::Add(args)) => add::run(&args, cx),
        None => list(cx).await,
    }
}

/// Returns the agents that a daemon with our configuration and our search path would offer.
fn without_daemon(cx: &CliContext) -> anyhow::Result<DaemonListing> {
    let config = config::load(Some(&cx.paths.config), cx.paths.config_explicit)
        .map_err(|error| CliFailure::usage(format!("{:#}", anyhow::Error::new(error))))?;
    if !cx.json {
        output::print_note("no daemon is running; a daemon that is started here can run these");
    }
    Ok(DaemonListing { body: agents_of(&config).to_string() })
}

async fn list(cx: &CliContext) -> anyhow::Result<()> {
    let list = match cx.client.transport() {
        Transport::Unix(socket) if !is_listening(socket).await => without_daemon(cx)?,
        _ => cx.client.list(&["agents"], &[]).await?,
    };
    if cx.json {
        return output::print_json(&list.body);
    }
    let mut table = TerminalTable::new(&["NAME", "PROTOCOL", "INSTALLED", "COMMAND", "DESCRIPTION"])
        .fit(&["NAME", "PROTOCOL", "INSTALLED"], TerminalColumnFit::Whole)
        .fit(&["COMMAND"], TerminalColumnFit::CutMiddle);
    for profile in list.items::<Profile>()? {
        let installed = match profile.availability.as_deref() {
            Some("built_in" | "installed") => "yes",
            Some("on_demand") => "when run",
            Some("missing") => "no",
            _ => "-",
        };
        table.row([
            TerminalCell::new(&profile.name),
            TerminalCell::new(profile.protocol.as_deref().unwrap_or("-")),
            TerminalCell::new(installed),
            TerminalCell::new(&json_text::list(profile.command.as_ref()).unwrap_or_default()),
            TerminalCell::new(profile.description.as_deref().unwrap_or_default()),
        ]);
    }
    cx.table(&table, "no profiles; the configuration file names them under [agents]")
}

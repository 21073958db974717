//! `intercom agents`: the profiles that the daemon can start, and the command that adds one.

mod add;
mod config_file;
mod install;
mod registry;

use super::client::DaemonListing;
use super::failure::CliFailure;
use super::table::{TerminalCell, TerminalColumnFit, TerminalTable};
use super::transport::{Transport, is_listening};
use super::{CliContext, output};
use intercom_daemon::config;
use intercom_daemon::ops::agents_of;
use intercom_types::ListedAgent;

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
    for agent in list.items::<ListedAgent>()? {
        let installed = match agent.availability.as_str() {
            "built_in" | "installed" => "yes",
            "on_demand" => "when run",
            "missing" => "no",
            _ => "-",
        };
        table.row([
            TerminalCell::new(&agent.name),
            TerminalCell::new(&agent.protocol),
            TerminalCell::new(installed),
            TerminalCell::new(&agent.command),
            TerminalCell::new(agent.description.as_deref().unwrap_or_default()),
        ]);
    }
    cx.table(&table, "no profiles; the configuration file names them under [agents]")
}

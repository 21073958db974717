//! `intercom agents`: the profiles that the daemon can start, and how another one is added.

mod add;
mod config_file;
mod install;
mod registry;

use serde::Deserialize;
use serde_json::Value;

use super::client::List;
use super::failure::Failure;
use super::table::{Cell, Fit, Table};
use super::transport::{Transport, is_listening};
use super::{Context, json_text, out};
use intercom_daemon::config;
use intercom_daemon::ops::agents_of;

/// List the agent profiles that the daemon knows, or add one
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
The agents that everybody knows need no configuration; docs/AGENTS.md says what each of them needs. `intercom doctor` \
tells who has logged in to them."
)]
pub(super) struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    Add(add::Args),
}

#[derive(Debug, Deserialize)]
struct Profile {
    name: String,
    description: Option<String>,
    command: Option<Value>,
    protocol: Option<String>,
    availability: Option<String>,
}

pub(super) async fn run(args: Args, cx: &Context) -> anyhow::Result<()> {
    match args.verb {
        Some(Verb::Add(args)) => add::run(&args, cx),
        None => list(cx).await,
    }
}

/// The agents that a daemon with our configuration and our search path would offer.
fn without_daemon(cx: &Context) -> anyhow::Result<List> {
    let config = config::load(Some(&cx.paths.config), cx.paths.config_explicit)
        .map_err(|error| Failure::usage(format!("{:#}", anyhow::Error::new(error))))?;
    if !cx.json {
        out::talk("no daemon is running; one that is started here can run these");
    }
    Ok(List { body: agents_of(&config).to_string() })
}

async fn list(cx: &Context) -> anyhow::Result<()> {
    let list = match cx.client.transport() {
        Transport::Unix(socket) if !is_listening(socket).await => without_daemon(cx)?,
        _ => cx.client.list(&["agents"], &[]).await?,
    };
    if cx.json {
        return out::print_json(&list.body);
    }
    let mut table = Table::new(&["NAME", "PROTOCOL", "INSTALLED", "COMMAND", "DESCRIPTION"])
        .fit(&["NAME", "PROTOCOL", "INSTALLED"], Fit::Whole)
        .fit(&["COMMAND"], Fit::CutMiddle);
    for profile in list.items::<Profile>()? {
        let installed = match profile.availability.as_deref() {
            Some("built_in" | "installed") => "yes",
            Some("on_demand") => "when run",
            Some("missing") => "no",
            _ => "-",
        };
        table.row([
            Cell::new(&profile.name),
            Cell::new(profile.protocol.as_deref().unwrap_or("-")),
            Cell::new(installed),
            Cell::new(&json_text::list(profile.command.as_ref()).unwrap_or_default()),
            Cell::new(profile.description.as_deref().unwrap_or_default()),
        ]);
    }
    cx.table(&table, "no profiles; the configuration file names them under [agents]")
}

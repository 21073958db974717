//! `intercom agents`: the profiles that the daemon can start.

use serde::Deserialize;
use serde_json::Value;

use super::table::{Cell, Table};
use super::{Context, out, render};

/// List the agent profiles that the daemon knows
#[derive(Debug, clap::Args)]
pub(super) struct Args {}

#[derive(Debug, Deserialize)]
struct Profile {
    name: String,
    description: Option<String>,
    command: Option<Value>,
    protocol: Option<String>,
}

pub(super) async fn run(Args {}: Args, cx: &Context) -> anyhow::Result<()> {
    let list = cx.client.list(&["agents"], &[]).await?;
    if cx.json {
        return out::print_json(&list.body);
    }
    let mut table = Table::new(&["NAME", "PROTOCOL", "COMMAND", "DESCRIPTION"]);
    for profile in list.items::<Profile>()? {
        table.row([
            Cell::new(&profile.name),
            Cell::new(profile.protocol.as_deref().unwrap_or("-")),
            Cell::new(&render::list(profile.command.as_ref()).unwrap_or_default()),
            Cell::new(profile.description.as_deref().unwrap_or_default()),
        ]);
    }
    cx.table(&table, "no profiles; the configuration file names them under [agents]")
}

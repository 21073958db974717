//! `intercom sessions`: an agent's own sessions.

use anyhow::Context as _;
use serde_json::{Value, json};

use super::CliContext;
use super::table::{TerminalCell, TerminalColumnFit, TerminalTable};
use super::time::date_time;
use super::url::url;
use intercom_types::text::clean;

/// List an ACP agent's own sessions; `run --resume ID` continues one
#[derive(Debug, clap::Args)]
pub(super) struct SessionsArgs {
    /// A session of a running agent
    #[arg(value_name = "SES", value_parser = super::non_empty_id())]
    session: String,
}

pub(super) async fn run(args: SessionsArgs, cx: &CliContext) -> anyhow::Result<()> {
    let answer = cx.client.post(&url(&["sessions", &args.session, "list"], &[]), &json!({})).await?;
    if cx.json {
        return super::output::print_json(&answer.body);
    }
    let body: Value = answer.parse()?;
    let listed = body.get("sessions").and_then(Value::as_array).context("an unexpected answer")?;
    let mut table = TerminalTable::new(&["ID", "UPDATED", "CWD", "TITLE"])
        .fit(&["ID", "UPDATED"], TerminalColumnFit::Whole)
        .fit(&["CWD"], TerminalColumnFit::CutMiddle);
    for one in listed {
        let get = |key: &str| one.get(key).and_then(Value::as_str).map(clean).unwrap_or_default();
        table.row([
            TerminalCell::new(&get("sessionId")),
            TerminalCell::new(&date_time(&get("updatedAt"))),
            TerminalCell::new(&get("cwd")),
            TerminalCell::new(&get("title")),
        ]);
    }
    cx.table(&table, "the agent has no sessions")
}

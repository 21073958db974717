//! `intercom sessions`: the sessions that an agent itself remembers.

use anyhow::Context as _;
use serde_json::{Value, json};

use super::Context;
use super::table::{Cell, Fit, Table};
use super::time::date_time;
use super::url::url;
use intercom_types::text::clean;

/// List the sessions that an ACP agent itself remembers; `run --resume ID` goes on with one
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A session of an agent that runs
    #[arg(value_name = "SES", value_parser = super::id())]
    session: String,
}

pub(super) async fn run(args: Args, cx: &Context) -> anyhow::Result<()> {
    let answer = cx.client.post(&url(&["sessions", &args.session, "list"], &[]), &json!({})).await?;
    if cx.json {
        return super::out::print_json(&answer.body);
    }
    let body: Value = answer.parse()?;
    let listed = body.get("sessions").and_then(Value::as_array).context("an odd answer")?;
    let mut table = Table::new(&["ID", "UPDATED", "CWD", "TITLE"])
        .fit(&["ID", "UPDATED"], Fit::Whole)
        .fit(&["CWD"], Fit::CutMiddle);
    for one in listed {
        let get = |key: &str| one.get(key).and_then(Value::as_str).map(clean).unwrap_or_default();
        table.row([
            Cell::new(&get("sessionId")),
            Cell::new(&date_time(&get("updatedAt"))),
            Cell::new(&get("cwd")),
            Cell::new(&get("title")),
        ]);
    }
    cx.table(&table, "it remembers none")
}

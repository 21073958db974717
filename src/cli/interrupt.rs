//! `intercom interrupt`: the turn ends, the session stays.

use serde_json::json;

use super::names::name_and_id;
use super::url::url;
use super::{Context, decide};
use crate::answers::Sent;

/// Ask an agent to drop what it is doing; the session goes on
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A session
    #[arg(value_name = "SES", value_parser = super::id())]
    session: String,
    /// Why; the agent is told
    reason: Option<String>,
}

pub(super) async fn run(args: Args, cx: &Context) -> anyhow::Result<()> {
    let body = args.reason.map_or_else(|| json!({}), |reason| json!({"reason": reason}));
    let answer = cx.client.post(&url(&["sessions", &args.session, "interrupt"], &[]), &body).await?;
    let sent: Sent = answer.parse()?;
    let delivery = sent.delivery();
    let name = name_and_id(sent.session.as_deref(), &args.session, &cx.client).await;
    cx.answer(&answer, || Ok(format!("{name} interrupted{}", delivery.unless_delivered())))?;
    decide::settle(&delivery)
}

//! `intercom nudge`: a word to an agent that seems to sleep.

use serde_json::json;

use super::names::name_and_id;
use super::url::url;
use super::{Context, decide};
use crate::answers::Sent;

/// Remind an agent to go on
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A session
    #[arg(value_name = "SES", value_parser = super::id())]
    session: String,
    /// What to tell it
    message: Option<String>,
}

pub(super) async fn run(args: Args, cx: &Context) -> anyhow::Result<()> {
    let body = args.message.map_or_else(|| json!({}), |message| json!({"message": message}));
    let answer = cx.client.post(&url(&["sessions", &args.session, "nudge"], &[]), &body).await?;
    let sent: Sent = answer.parse()?;
    let delivery = sent.delivery();
    let name = name_and_id(sent.session.as_deref(), &args.session, &cx.client).await;
    cx.answer(&answer, || Ok(format!("{name} nudged{}", delivery.unless_delivered())))?;
    decide::settle(&delivery)
}

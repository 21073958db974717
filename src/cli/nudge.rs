//! `intercom nudge`: a word to an agent that seems to sleep.

use serde_json::json;

use super::names::name_and_id;
use super::url::url;
use super::{Context, decide};
use intercom_types::{NudgeAnswer, NudgeRequest};

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
    let body = json!(NudgeRequest { message: args.message });
    let answer = cx.client.post(&url(&["sessions", &args.session, "nudge"], &[]), &body).await?;
    let NudgeAnswer { session, delivery, .. } = answer.parse()?;
    let name = name_and_id(Some(&session), &args.session, &cx.client).await;
    cx.answer(&answer, || Ok(format!("{name} nudged{}", decide::unless_delivered(&delivery))))?;
    decide::settle(&delivery)
}

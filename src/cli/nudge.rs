//! `intercom nudge`: a word to an agent that seems to sleep.

use serde_json::json;

use super::session_names::name_and_id;
use super::url::url;
use super::{CliContext, decide};
use intercom_types::{NudgeAnswer, NudgeRequest};

/// Remind an agent to go on
#[derive(Debug, clap::Args)]
pub(super) struct NudgeArgs {
    /// A session
    #[arg(value_name = "SES", value_parser = super::non_empty_id())]
    session: String,
    /// What to tell it
    message: Option<String>,
}

pub(super) async fn run(args: NudgeArgs, cx: &CliContext) -> anyhow::Result<()> {
    let body = json!(NudgeRequest { message: args.message });
    let answer = cx.client.post(&url(&["sessions", &args.session, "nudge"], &[]), &body).await?;
    let NudgeAnswer { session, delivery, .. } = answer.parse()?;
    let name = name_and_id(Some(&session), &args.session, &cx.client).await;
    cx.print_answer(&answer, || Ok(format!("{name} nudged{}", decide::delivery_note(&delivery))))?;
    decide::check_delivery(&delivery)
}

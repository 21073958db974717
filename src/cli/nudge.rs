//! `intercom nudge`: a reminder for a silent agent.

use serde_json::json;

use super::session_names::name_and_id;
use super::url::url;
use super::{CliContext, decide};
use intercom_types::{NudgeAnswer, NudgeRequest};

/// Remind a silent agent to continue
#[derive(Debug, clap::Args)]
pub(super) struct NudgeArgs {
    /// A session
    #[arg(value_name = "SES", value_parser = super::non_empty_id())]
    session: String,
    /// The message [default: as configured]
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

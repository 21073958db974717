//! `intercom interrupt`: ends the turn; the session stays.

use serde_json::json;

use super::session_names::name_and_id;
use super::url::url;
use super::{CliContext, decide};
use intercom_types::{InterruptAnswer, InterruptRequest};

/// Interrupt an agent's turn; the session continues
#[derive(Debug, clap::Args)]
pub(super) struct InterruptArgs {
    /// A session
    #[arg(value_name = "SES", value_parser = super::non_empty_id())]
    session: String,
    /// The reason, which is sent to the agent
    reason: Option<String>,
}

pub(super) async fn run(args: InterruptArgs, cx: &CliContext) -> anyhow::Result<()> {
    let body = json!(InterruptRequest { reason: args.reason, wait: None });
    let answer = cx.client.post(&url(&["sessions", &args.session, "interrupt"], &[]), &body).await?;
    let InterruptAnswer { session, delivery, .. } = answer.parse()?;
    let name = name_and_id(Some(&session), &args.session, &cx.client).await;
    cx.print_answer(&answer, || Ok(format!("{name} interrupted{}", decide::delivery_note(&delivery))))?;
    decide::check_delivery(&delivery)
}

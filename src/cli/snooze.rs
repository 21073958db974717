//! `intercom snooze`: suspends the ladder for a while.

use serde_json::json;

use super::CliContext;
use super::time::show_time;
use super::url::url;
use intercom_types::text::clean;
use intercom_types::{Session, SnoozeRequest};

/// Suspend the steps against a stuck session for a while
#[derive(Debug, clap::Args)]
pub(super) struct SnoozeArgs {
    /// A session
    #[arg(value_name = "SES", value_parser = super::non_empty_id())]
    session: String,
    /// The duration, such as `30m` or `2h`; `off` ends it
    #[arg(value_name = "TIME")]
    time: String,
}

pub(super) async fn run(args: SnoozeArgs, cx: &CliContext) -> anyhow::Result<()> {
    let path = url(&["sessions", &args.session, "snooze"], &[]);
    let answer = cx.client.post(&path, &json!(SnoozeRequest { r#for: args.time })).await?;
    let session: Session = answer.parse()?;
    let name = clean(&session.name_and_id());
    let until = session.standing.and_then(|standing| standing.snoozed_until);
    cx.print_answer(&answer, || {
        Ok(match until {
            Some(until) => format!("{name} is snoozed until {}", show_time(until)),
            None => format!("{name} is no longer snoozed"),
        })
    })
}

//! `intercom ladder`: the steps against a stuck session.

use serde_json::json;

use super::CliContext;
use super::url::url;
use intercom_types::text::clean;
use intercom_types::{LadderChange, Session};

/// Show or change the steps that are taken when a session is stuck
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The steps are alert, nudge, interrupt, restart and escalate; `[stall]` in the configuration has the steps of all other sessions.

Examples:
  intercom ladder shop                          shows it
  intercom ladder shop off                      nothing is done
  intercom ladder shop alert,nudge,escalate     its own steps
  intercom ladder shop on                       as configured")]
pub(super) struct LadderArgs {
    /// A session
    #[arg(value_name = "SES", value_parser = super::non_empty_id())]
    session: String,
    /// `on`, `off`, or steps with commas between them
    #[arg(value_name = "on|off|STEPS")]
    ladder: Option<String>,
}

pub(super) async fn run(args: LadderArgs, cx: &CliContext) -> anyhow::Result<()> {
    let answer = match args.ladder {
        None => cx.client.get(&url(&["sessions", &args.session], &[])).await?,
        Some(ladder) => {
            let path = url(&["sessions", &args.session, "ladder"], &[]);
            cx.client.post(&path, &json!(LadderChange { ladder })).await?
        }
    };
    let session: Session = answer.parse()?;
    let name = clean(&session.name_and_id());
    cx.print_answer(&answer, || {
        let ladder = session.standing.map(|standing| standing.ladder);
        Ok(match ladder.as_deref() {
            None => format!("{name} has no process to watch"),
            Some("on") => "on, as configured in [stall]".to_owned(),
            Some(ladder) => clean(ladder),
        })
    })
}

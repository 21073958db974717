//! `intercom resume`: starts the next generation of a session.

use serde_json::json;

use super::logs::session;
use super::startup_wait::{StartedAgent, StartupWaitArgs};
use super::url::url;
use super::wait::last_seq;
use super::{CliContext, ctrl_c, output};
use intercom_types::Session;
use intercom_types::text::clean;

/// Resume an ended session with a new process of its agent
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The command waits like `intercom run`: until the agent is ready and, with a queued prompt, until its first output or the end of \
its turn, 30 seconds at most. If the agent fails meanwhile, the exit code is 1, with the reason and advice.

Examples:
  intercom resume shop
  intercom stop shop && intercom resume shop      restarts a running agent")]
pub(super) struct ResumeArgs {
    /// A session
    #[arg(value_name = "SES", value_parser = super::non_empty_id())]
    session: String,
    #[command(flatten)]
    wait: StartupWaitArgs,
}

pub(super) async fn run(args: ResumeArgs, cx: &CliContext) -> anyhow::Result<()> {
    let limit = args.wait.limit(cx);
    ctrl_c::set_session_note(&args.session, cx);
    // Read before the start: a prompt leaves the queue as soon as its agent runs.
    let prompted = session(&args.session, cx).await?.queue > 0;
    let after = last_seq(&cx.client).await?;
    let answer = cx.client.post(&url(&["sessions", &args.session, "resume"], &[]), &json!({})).await?;
    let session: Session = answer.parse()?;
    if !cx.json {
        let life = format!(", generation {}", session.generation);
        output::print(&format!("{} {}{life}", clean(&session.label()), clean(&session.phase)))?;
    }
    StartedAgent { answer, session, prompted, after }.follow(limit, cx).await
}

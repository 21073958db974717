//! `intercom resume`: the next generation of a session.

use serde_json::json;

use super::logs::session;
use super::startup_wait::{StartedAgent, StartupWaitArgs};
use super::url::url;
use super::wait::last_seq;
use super::{CliContext, ctrl_c, output};
use intercom_types::Session;
use intercom_types::text::clean;

/// Start the agent of an ended session again
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The agent is waited for as `intercom run` does: until it is ready and, with a queued prompt, until its first words or the end of \
its turn, 30 seconds at most. An agent that fails meanwhile is exit code 1, with the reason and what to do.

Examples:
  intercom resume shop
  intercom stop shop && intercom resume shop      restarts an agent that runs")]
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
    // Read before it starts: a prompt leaves the queue as soon as its agent runs.
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

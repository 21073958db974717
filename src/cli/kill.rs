//! `intercom kill`: like `stop`, but by force at once.

use super::{CliContext, stop};

/// End sessions by force, at once
#[derive(Debug, clap::Args)]
#[command(after_help = "Returns when every process of the sessions is gone. `intercom stop` asks first.")]
pub(super) struct KillArgs {
    /// One or more sessions
    #[arg(value_name = "SES", required = true, value_parser = super::non_empty_id())]
    sessions: Vec<String>,
}

pub(super) async fn run(args: KillArgs, cx: &CliContext) -> anyhow::Result<()> {
    stop::end(cx, args.sessions, "kill").await
}

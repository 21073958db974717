//! `intercom deny`: decides a clearance with no.

use super::Context;
use super::decide::{Decision, decide};

/// Refuse what an agent asks for
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  intercom deny 7k2m --reason \"not on this branch\"")]
pub(super) struct Args {
    /// A clearance; see `intercom clearances`
    #[arg(value_name = "CLR", value_parser = super::id())]
    clearance: String,
    /// Why; the agent is told
    #[arg(long, short)]
    reason: Option<String>,
}

pub(super) async fn run(args: Args, cx: &Context) -> anyhow::Result<()> {
    decide(cx, &args.clearance, Decision::Deny, args.reason, None, None).await
}

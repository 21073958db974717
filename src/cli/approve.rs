//! `intercom approve`: decides a clearance with yes.

use super::Context;
use super::decide::{Decision, decide};

/// Allow what an agent asks for
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The first decision counts; a later one is told who was faster. Exit code 1 also means that the decision is \
recorded but did not reach the agent.

Examples:
  intercom approve clr_7k2m4q8x
  intercom approve 7k2m --reason \"looks right\"
  intercom approve 7k2m --option allow_once")]
pub(super) struct Args {
    /// A clearance; see `intercom clearances`
    #[arg(value_name = "CLR", value_parser = super::id())]
    clearance: String,
    /// Why; the agent is told
    #[arg(long, short)]
    reason: Option<String>,
    /// Which of the answers that the agent offers
    #[arg(long, value_name = "ID")]
    option: Option<String>,
}

pub(super) async fn run(args: Args, cx: &Context) -> anyhow::Result<()> {
    decide(cx, &args.clearance, Decision::Approve, args.reason, args.option).await
}

//! `intercom deny`: denies a clearance.

use super::CliContext;
use super::decide::decide;
use intercom_types::{Decision, Verdict};

/// Refuse what an agent asks for
#[derive(Debug, clap::Args)]
#[command(after_help = "\
With several clearances each is reported, the exit code is 1 if one of them failed, and --json prints \
`{\"items\": […], \"next\": null}` with one answer for each, in their order.

Examples:
  intercom deny 7k2m --reason \"not on this branch\"
  intercom deny 7k2m 9x3p 4ab1")]
pub(super) struct DenyArgs {
    /// Clearances; see `intercom clearances`
    #[arg(value_name = "CLR", required = true, value_parser = super::non_empty_id())]
    clearances: Vec<String>,
    /// The reason, which is sent to the agent
    #[arg(long, short)]
    reason: Option<String>,
}

pub(super) async fn run(args: DenyArgs, cx: &CliContext) -> anyhow::Result<()> {
    decide(cx, &args.clearances, &Decision { reason: args.reason, ..Verdict::Deny.into() }).await
}

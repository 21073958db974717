//! `intercom approve`: approves a clearance.

use std::io::IsTerminal;

use anyhow::bail;

use super::decide::decide;
use super::failure::CliFailure;
use super::url::url;
use super::{CliContext, output};
use intercom_policy::sentence;
use intercom_types::text::clean;
use intercom_types::{ClearanceExplanation, Decision, RememberChoice, RememberedRule, Verdict};

/// Allow what an agent asks for
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The first decision counts; a later one fails and shows who decided. Exit code 1 also means that the decision is \
recorded but will never reach the agent. If the agent receives it later, the exit code is 0, with a note \
on stderr.

With several clearances each is reported, the exit code is 1 if one of them failed, and --json prints \
`{\"items\": […], \"next\": null}` with one answer for each, in their order: the daemon's answer, or its error.

Examples:
  intercom approve clr_7k2m4q8x
  intercom approve 7k2m 9x3p 4ab1
  intercom approve 7k2m --reason \"looks right\"
  intercom approve 7k2m --option allow_once
  intercom approve 7k2m --always --for 2h")]
pub(super) struct ApproveArgs {
    /// Clearances; see `intercom clearances`
    #[arg(value_name = "CLR", required = true, value_parser = super::non_empty_id())]
    clearances: Vec<String>,
    /// The reason, which is sent to the agent
    #[arg(long, short)]
    reason: Option<String>,
    /// The id of one of the agent's options
    #[arg(long, value_name = "ID")]
    option: Option<String>,
    /// Also create a rule that allows similar requests; the exact rule is shown first, and decides pending ones, too
    #[arg(long)]
    always: bool,
    /// The lifetime of the rule, such as 2h; without it, the rule lasts until it is revoked
    #[arg(long, value_name = "TIME", requires = "always")]
    r#for: Option<String>,
    /// Do not ask for confirmation of the rule
    #[arg(long, short, requires = "always")]
    yes: bool,
}

pub(super) async fn run(args: ApproveArgs, cx: &CliContext) -> anyhow::Result<()> {
    let remember = if args.always {
        let [clearance] = args.clearances.as_slice() else {
            bail!(
                CliFailure::usage("--always takes one clearance")
                    .hint("the rule decides similar requests that are pending, too")
            );
        };
        let path = url(&["clearances", clearance, "explanation"], &[]);
        let ClearanceExplanation { proposal, no_proposal, .. } = cx.client.get(&path).await?.parse()?;
        let Some(rule) = proposal else {
            let why = no_proposal.unwrap_or_else(|| "no rule fits".to_owned());
            bail!(
                CliFailure::failed(format!("it cannot be allowed always: {why}"))
                    .hint("approve it without --always")
            );
        };
        let shown = sentence(&serde_json::from_value(rule.clone())?);
        let lasts =
            args.r#for.as_ref().map_or("until it is revoked".to_owned(), |lasts| format!("for {lasts}"));
        output::print_note(&format!("{}, {lasts}", clean(&shown)));
        if !args.yes && !confirmed()? {
            bail!(CliFailure::failed("nothing was decided").hint("use --yes to skip this question"));
        }
        Some(RememberChoice::Rule(RememberedRule { rule, r#for: args.r#for }))
    } else {
        None
    };
    let ApproveArgs { clearances, reason, option, .. } = args;
    decide(cx, &clearances, &Decision { verdict: Verdict::Approve, reason, option, remember }).await
}

/// Asks a person at a terminal for confirmation; without a terminal the answer is no.
fn confirmed() -> anyhow::Result<bool> {
    if !std::io::stdin().is_terminal() {
        return Ok(false);
    }
    output::print_note("allow this always? [y/N]");
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

//! `intercom policy`: the rules that decide clearances, and their explanations.

use std::path::PathBuf;

use anyhow::Context as _;
use serde_json::json;

use super::audit::moment;
use super::failure::CliFailure;
use super::gutter::wrapped;
use super::style::risk_style;
use super::table::{TerminalCell, TerminalColumnFit, TerminalTable};
use super::terminal::{TerminalStyle, stdout_size};
use super::time::{date_time, date_time_zone, show_time};
use super::url::url;
use super::{CliContext, non_empty_id, output};
use intercom_daemon::config;
use intercom_policy::{Rule, sentence};
use intercom_types::action::line;
use intercom_types::text::{clean, columns, plural, short};
use intercom_types::{
    ClearanceExplanation, ListedGrant, PolicySummary, RulesTest, RulesTestResult, Time, span,
};

/// See, check and try out the rules that decide clearances
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Rules are [[rule]] tables in the configuration, never in a workspace. The first that matches decides; without a match, \
people are asked. docs/POLICY.md has the details.")]
pub(super) struct PolicyArgs {
    #[command(subcommand)]
    verb: PolicyCommand,
}

#[derive(Debug, clap::Subcommand)]
enum PolicyCommand {
    /// Show the active rules, one sentence each
    Show,
    /// Check a configuration file without using it, and print its rules as sentences; needs no daemon
    Check {
        /// The file; without one, the active configuration
        #[arg(long, value_name = "FILE")]
        rules: Option<PathBuf>,
    },
    /// Explain which rule decided a clearance, and the result of each rule now
    Explain {
        #[arg(value_name = "CLEARANCE", value_parser = non_empty_id())]
        id: String,
    },
    /// Try other rules on past requests, riskiest differences first; changes nothing
    Test {
        /// The file with the proposed `[[rule]]`s
        #[arg(long, value_name = "FILE")]
        rules: PathBuf,
        /// Only requests since then: an age such as 30d, or a time
        #[arg(long)]
        since: Option<String>,
    },
    /// List the grants: rules that people created with `approve --always`
    Grants,
    /// Revoke a grant
    Revoke {
        #[arg(value_name = "GRANT", value_parser = non_empty_id())]
        id: String,
    },
}

pub(super) async fn run(args: PolicyArgs, cx: &CliContext) -> anyhow::Result<()> {
    match args.verb {
        PolicyCommand::Show => show(cx).await,
        PolicyCommand::Check { rules } => check(rules, cx),
        PolicyCommand::Explain { id } => explain(&id, cx).await,
        PolicyCommand::Test { rules, since } => test(&rules, since, cx).await,
        PolicyCommand::Grants => grants(cx).await,
        PolicyCommand::Revoke { id } => {
            let answer = cx.client.delete(&url(&["grants", &id], &[])).await?;
            cx.print_answer(&answer, || Ok(format!("{} revoked", clean(&id))))
        }
    }
}

async fn show(cx: &CliContext) -> anyhow::Result<()> {
    let answer = cx.client.get(&url(&["policy"], &[])).await?;
    cx.print_answer(&answer, || {
        let PolicySummary { loaded_at, rules, ends_at, grants } = answer.parse()?;
        let grants = if grants == 0 { String::new() } else { format!(", {}", plural(grants, "grant")) };
        output::print_note(&format!(
            "{}{grants}, loaded {}",
            plural(rules.len(), "rule"),
            show_time(loaded_at)
        ));
        Ok(sentences(&rules, &ends_at, Time::now()))
    })
}

fn check(file: Option<PathBuf>, cx: &CliContext) -> anyhow::Result<()> {
    let explicit = file.is_some() || cx.paths.config_explicit;
    let file = file.unwrap_or_else(|| cx.paths.config.clone());
    let config = config::load(Some(&file), explicit)
        .map_err(|error| CliFailure::usage(format!("{:#}", anyhow::Error::new(error))))?;
    if cx.json {
        return output::print_json(&json!({ "rules": config.rules }).to_string());
    }
    output::print_note(&format!("{}: {}, all valid", file.display(), plural(config.rules.len(), "rule")));
    output::print(&sentences(&config.rules, &[], Time::now()))
}

/// Returns one line for each rule, with its end if that is known.
fn sentences(rules: &[Rule], ends_at: &[Option<String>], now: Time) -> String {
    let ends_at = ends_at.iter().map(Option::as_deref).chain(std::iter::repeat(None));
    let line = |(n, (rule, ends_at)): (usize, (&Rule, Option<&str>))| {
        let end = ends_at.map(|at| format!("; {}", end(at, now))).unwrap_or_default();
        let number = format!("{n:>3}. ");
        let width = stdout_size().map(|size| size.columns);
        let text =
            wrapped(&format!("{}{end}", clean(&sentence(rule))), columns(&number), columns(&number), width);
        number + &text
    };
    let lines: Vec<String> = (1..).zip(rules.iter().zip(ends_at)).map(line).collect();
    lines.join("\n")
}

/// Returns the end of a rule: "it ends in 7h59m, at 2026-03-04 14:02:11 UTC".
fn end(at: &str, now: Time) -> String {
    let time = format!("at {}", date_time_zone(at));
    match Time::parse(at) {
        Some(at) if at > now => format!("it ends in {}, {time}", span(at.since(now))),
        Some(at) => format!("it ended {} ago, {time}", span(now.since(at))),
        None => format!("it ends {time}"),
    }
}

async fn explain(id: &str, cx: &CliContext) -> anyhow::Result<()> {
    let answer = cx.client.get(&url(&["clearances", id, "explanation"], &[])).await?;
    cx.print_answer(&answer, || {
        let ClearanceExplanation { clearance, now, rules, proposal, no_proposal, .. } = answer.parse()?;
        let mut lines =
            vec![format!("{}: {}", short(&clearance.id), intercom_types::action::line_of(&clearance))];
        let why = match clearance.risk_why.as_slice() {
            [] => String::new(),
            why => format!(": {}", clean(&why.join(", "))),
        };
        lines.push(format!(
            "  risk {} (claimed {}, seen {}{why})",
            clean(&clearance.risk),
            clean(clearance.claimed_risk.as_deref().unwrap_or("none")),
            clean(&clearance.computed_risk)
        ));
        if let Some(then) = &clearance.ruling {
            lines.push(format!("  then: {}", clean(&then.why)));
        }
        if let Some(by) = &clearance.decided_by {
            lines.push(format!("  {} by {}", clean(&clearance.status), clean(by)));
        }
        lines.push(format!("  now: {} ({})", now.outcome.as_str(), clean(&now.why)));
        for rule in rules {
            let mark = if rule.decides {
                "→"
            } else if rule.matches {
                "·"
            } else {
                " "
            };
            let why = match (&rule.unmet, &rule.why) {
                (Some(key), Some(why)) => format!("does not match: {} ({})", clean(why), clean(key)),
                _ => "matches".to_owned(),
            };
            lines.push(format!(
                "  {mark} {:>3}. {} [{}] {why}",
                rule.n,
                clean(&rule.name),
                clean(&rule.then)
            ));
        }
        match (proposal, no_proposal) {
            (Some(rule), _) => {
                lines.push(format!("  always: {}", clean(&sentence(&serde_json::from_value(rule)?))));
            }
            (None, Some(why)) => lines.push(format!("  always: not possible, {}", clean(&why))),
            (None, None) => {}
        }
        Ok(lines.join("\n"))
    })
}

async fn test(file: &PathBuf, since: Option<String>, cx: &CliContext) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(file).with_context(|| format!("{} cannot be read", file.display()))?;
    let since = since.map(|since| moment(&since)).transpose()?;
    let body = json!(RulesTest { rules: text, file: Some(file.display().to_string()), since });
    let answer = cx.client.post(&url(&["policy", "test"], &[]), &body).await?;
    if cx.json {
        return output::print_json(&answer.body);
    }
    let tested: RulesTestResult = answer.parse()?;
    output::print_note(&format!(
        "{}: {} allowed, {} denied, {} asked; {} with another result than before",
        plural(tested.requests, "request"),
        tested.allowed,
        tested.denied,
        tested.asked,
        tested.different
    ));
    let mut table = TerminalTable::new(&["CLEARANCE", "RISK", "WAS", "WOULD", "WHAT", "WHY"])
        .fit(&["CLEARANCE", "RISK", "WAS", "WOULD"], TerminalColumnFit::Whole)
        .fit(&["WHAT", "WHY"], TerminalColumnFit::Below);
    for found in &tested.differences {
        let was =
            if found.was == "asked" { found.status.to_string() } else { format!("{} by rule", found.was) };
        table.row([
            TerminalCell::new(&short(&found.clearance)),
            TerminalCell::styled(risk_style(&found.risk), &found.risk),
            TerminalCell::new(&was),
            TerminalCell::styled(TerminalStyle::Bold, found.would.outcome.as_str()),
            TerminalCell::new(&line(found.action.as_deref(), &found.title)),
            TerminalCell::new(&found.would.why),
        ]);
    }
    cx.table(&table, "no request would have had another result")
}

async fn grants(cx: &CliContext) -> anyhow::Result<()> {
    let list = cx.client.list(&["grants"], &[]).await?;
    if cx.json {
        return output::print_json(&list.body);
    }
    let mut table = TerminalTable::new(&["GRANT", "STATE", "BY", "MADE", "RULE"])
        .fit(&["GRANT", "STATE", "BY", "MADE"], TerminalColumnFit::Whole)
        .fit(&["RULE"], TerminalColumnFit::Below);
    for grant in list.items::<ListedGrant<Rule>>()? {
        let at = |at: Time| date_time(&at.to_string());
        let state = match (grant.revoked_at, grant.expires_at) {
            (Some(revoked), _) => format!("revoked {}", at(revoked)),
            (None, Some(end)) if grant.valid => format!("until {}", at(end)),
            (None, Some(end)) => format!("ended {}", at(end)),
            (None, None) => "always".to_owned(),
        };
        table.row([
            TerminalCell::new(&grant.id.short()),
            TerminalCell::new(&state),
            TerminalCell::new(&grant.created_by),
            TerminalCell::new(&at(grant.created_at)),
            TerminalCell::new(&sentence(&grant.rule)),
        ]);
    }
    cx.table(&table, "there are no grants")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_says_in_words_when_it_ends() {
        let now = Time::parse("2026-03-04T12:00:00Z").unwrap();
        let rules: Vec<Rule> = serde_json::from_value(
            json!([{ "then": "ask" }, { "for": "8h", "then": "deny" }, { "for": "1h", "then": "deny" }]),
        )
        .unwrap();
        let ends =
            [None, Some("2026-03-04T19:30:00.000Z".to_owned()), Some("2026-03-04T11:57:00.000Z".to_owned())];
        insta::assert_snapshot!(sentences(&rules, &ends, now), @r"
          1. ask about everything
          2. deny requests for 8h; it ends in 7h30m, at 2026-03-04 19:30:00 UTC
          3. deny requests for 1h; it ended 3m ago, at 2026-03-04 11:57:00 UTC
        ");
        assert!(sentences(&rules, &[], now).ends_with("3. deny requests for 1h"));
    }
}

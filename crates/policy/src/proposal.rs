//! The rule that "always allow" would add: as narrow as possible, or none.

use super::glob::literal;
use super::harmless_table::TABLE;
use super::launch::Options;
use super::rule::{CommandEntry, Commands, Names, RiskLimit, Rule, RuleAction, Rules};
use super::{PolicyOutcome, ResolvedRequest, RiskAssessment, decide, launch};
use intercom_types::{Risk, Time};

/// Proposes a rule for the same agent, workspace, tool and at most the same risk: with exactly these paths, and with
/// the command's program and subcommand, or exactly this command if its arguments could mean anything.
pub fn proposal(request: &ResolvedRequest, assessment: &RiskAssessment) -> Result<Rule, String> {
    let subject = &request.subject;
    let workspace = request.workspace.to_str().filter(|path| path.starts_with('/'));
    let workspace = workspace.ok_or("the workspace has no name that a rule can hold")?;
    let agent =
        subject.agent.clone().ok_or("its agent has no profile, so the rule would be for any agent")?;
    if assessment.risk == Risk::Critical {
        return Err("the risk is critical".to_owned());
    }
    let path = exact_paths(request)?;
    let mut rule = Rule {
        agent: Some(Names::One(agent)),
        workspace: Some(literal(workspace)),
        tool: subject.tool.clone().map(Names::One),
        path: path.clone(),
        risk: Some(RiskLimit::UpTo(assessment.risk)),
        ..Rule::new(RuleAction::Allow)
    };
    if let Some(words) = &request.words {
        let (words, exact) = leading_words(words.as_ref().map_err(Clone::clone)?, assessment.risk)?;
        rule.name = Some(format!("always {}", words.join(" ")));
        rule.command = Some(Commands::Any(vec![CommandEntry::Words(words)]));
        rule.exact = exact;
    } else {
        let tool = subject.tool.as_deref().ok_or("the tool is not known")?;
        let path = path.ok_or("there is nothing to match on")?;
        let path = match &path {
            Names::One(path) => path.clone(),
            Names::Any(paths) => paths.join(", "),
        };
        rule.name = Some(format!("always {tool} {path}"));
    }
    holds(&rule, request, assessment)?;
    Ok(rule)
}

fn exact_paths(request: &ResolvedRequest) -> Result<Option<Names>, String> {
    let mut globs = Vec::new();
    for place in request.unnamed_places() {
        if let Some(doubt) = place.doubt() {
            return Err(doubt);
        }
        let inside = place.real.as_deref().and_then(|real| real.strip_prefix(&request.workspace).ok());
        let inside = inside.ok_or_else(|| format!("{:?} is outside of the workspace", place.written))?;
        let text = inside.to_str().filter(|text| !text.is_empty());
        globs.push(literal(text.ok_or_else(|| format!("{:?} cannot be written as a glob", place.written))?));
    }
    globs.dedup();
    Ok(match globs.len() {
        0 => None,
        1 => globs.pop().map(Names::One),
        _ => Some(Names::Any(globs)),
    })
}

/// Returns the words for the rule, and whether it must be exact.
fn leading_words(argv: &[String], risk: Risk) -> Result<(Vec<String>, bool), String> {
    let chain = launch::chain(argv)?;
    let words = launch::innermost(&chain, argv)?;
    let known = |word: &String| TABLE.subcommands.get(&words[0]).is_some_and(|names| names.contains(word));
    let length = match words {
        _ if risk >= Risk::High => None,
        // The action of `npm run` and `cargo nextest` is in the next word.
        [_, group, name, ..] if known(group) && matches!(group.as_str(), "run" | "nextest") => {
            (!name.starts_with('-')).then_some(3)
        }
        [_, name, ..] if known(name) => Some(2),
        _ => None,
    };
    // If such a rule would not allow these words, the rule is for exactly this command.
    let length =
        length.filter(|length| launch::allows(&words[..*length], false, Options::Known, words).is_ok());
    Ok((words[..length.unwrap_or(words.len())].to_vec(), length.is_none()))
}

/// Checks that a rule would have allowed this request; otherwise it is not proposed.
fn holds(rule: &Rule, request: &ResolvedRequest, assessment: &RiskAssessment) -> Result<(), String> {
    let now = Time::from_millis(0);
    let rules = Rules::compile(vec![rule.clone()], |_| now).map_err(|bad| bad.message)?;
    let ruling = decide(&rules, request, assessment, now);
    if ruling.outcome == PolicyOutcome::Allow {
        Ok(())
    } else {
        Err("no rule can allow only this request".to_owned())
    }
}

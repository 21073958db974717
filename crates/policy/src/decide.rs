//! The decision about a request: the first rule that matches decides.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::later_run_files::LaterRunFile;
use super::launch::Options;
use super::rule::{CompiledRule, PathGlob, RiskLimit, RuleAction, Rules};
use super::{ResolvedPath, ResolvedRequest, RiskAssessment, command, launch, words};
use intercom_types::{Risk, Time};

/// The note on a permission that depends on links.
const LINKS_MAY_CHANGE: &str = "links were followed now, and can change afterwards";

/// The verdict of the rules on a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyRuling {
    pub outcome: PolicyOutcome,
    /// The rule that decided, counted from 0, and its name.
    pub rule: Option<(usize, String)>,
    pub why: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PolicyOutcome {
    Allow,
    /// Denied; the rule's reason is for the agent.
    Deny {
        reason: Option<String>,
    },
    /// Ask the people in `whom`; anybody if it is empty.
    Ask {
        whom: Vec<String>,
    },
}

/// The result of one rule for a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleEvaluation {
    /// The index of the rule, counted from 0.
    pub index: usize,
    pub name: String,
    pub then: RuleAction,
    /// `None` if the rule matches; otherwise the first unmet criterion and the reason.
    pub unmet: Option<(&'static str, String)>,
    /// It is the first rule that matches.
    pub decides: bool,
}

pub fn decide(
    rules: &Rules,
    request: &ResolvedRequest,
    assessment: &RiskAssessment,
    now: Time,
) -> PolicyRuling {
    let found = rules.0.iter().enumerate().find(|(_, rule)| check(rule, request, assessment, now).is_ok());
    let Some((index, compiled)) = found else {
        let why = "no rule matches".to_owned();
        return PolicyRuling { outcome: PolicyOutcome::Ask { whom: Vec::new() }, rule: None, why };
    };
    let rule = &compiled.rule;
    let (outcome, verb) = match rule.then {
        RuleAction::Allow => (PolicyOutcome::Allow, "allows it"),
        RuleAction::Deny => (PolicyOutcome::Deny { reason: rule.reason.clone() }, "denies it"),
        RuleAction::Ask => {
            (PolicyOutcome::Ask { whom: rule.ask.clone().unwrap_or_default() }, "asks a person to decide")
        }
    };
    let mut why = format!("{} {verb}", compiled.name);
    if let Some(reason) = &rule.reason {
        why = format!("{why}: {reason}");
    }
    // A decision that depends on links says that they may change.
    let looked_up = !request.places.is_empty()
        || request.operands.as_ref().is_some_and(|operands| !operands.places.is_empty());
    if rule.then == RuleAction::Allow && looked_up {
        why = format!("{why} ({LINKS_MAY_CHANGE})");
    }
    PolicyRuling { outcome, rule: Some((index, compiled.name.clone())), why }
}

/// Returns the result of every rule for the request, including those after the one that decides.
pub fn explain(
    rules: &Rules,
    request: &ResolvedRequest,
    assessment: &RiskAssessment,
    now: Time,
) -> Vec<RuleEvaluation> {
    let mut over = false;
    let explain = |(index, compiled): (usize, &CompiledRule)| {
        let unmet = check(compiled, request, assessment, now).err();
        let decides = unmet.is_none() && !over;
        over |= decides;
        RuleEvaluation { index, name: compiled.name.clone(), then: compiled.rule.then, unmet, decides }
    };
    rules.0.iter().enumerate().map(explain).collect()
}

type UnmetCriterion = (&'static str, String);

/// Checks the criteria in order and returns the first unmet one.
fn check(
    compiled: &CompiledRule,
    request: &ResolvedRequest,
    assessment: &RiskAssessment,
    now: Time,
) -> Result<(), UnmetCriterion> {
    let rule = &compiled.rule;
    let subject = &request.subject;
    let allows = rule.then == RuleAction::Allow;
    if let Some(ends) = compiled.ends.filter(|ends| now >= *ends) {
        let key = if rule.until.is_some() { "until" } else { "for" };
        return Err((key, format!("the rule ended at {ends}")));
    }
    if let Some(agents) = &rule.agent {
        match &subject.agent {
            Some(agent) if agents.contains(agent) => {}
            Some(agent) => return Err(("agent", format!("the agent is {agent}"))),
            None => return Err(("agent", "the agent is not known".to_owned())),
        }
    }
    if let Some(glob) = &compiled.workspace
        && !glob.matches(bytes(&request.workspace))
        && !glob.matches(bytes(&subject.workspace))
    {
        return Err(("workspace", format!("the workspace is {}", request.workspace.display())));
    }
    tools(compiled, request).map_err(|why| ("tool", why))?;
    let usual = RiskLimit::UpTo(if allows { Risk::High } else { Risk::Critical });
    if !rule.risk.as_ref().unwrap_or(&usual).holds(assessment.risk) {
        return Err(("risk", format!("the risk is {}", assessment.risk.as_str())));
    }
    if let Some(most) = rule.max_diff_lines {
        match request.diff.as_ref().map(|diff| diff.changed) {
            Some(lines) if lines <= most => {}
            Some(lines) => return Err(("max_diff_lines", format!("{lines} lines are changed"))),
            None => return Err(("max_diff_lines", "there is no diff".to_owned())),
        }
    }
    paths(compiled, request).map_err(|why| ("path", why))?;
    commands(compiled, request).map_err(|why| ("command", why))
}

/// Checks the tools. To deny or ask, one tool of the request is sufficient. To allow, the rule must cover all of them:
/// a command by `command` if not by `tool`, a diff by `path` or `max_diff_lines`.
fn tools(compiled: &CompiledRule, request: &ResolvedRequest) -> Result<(), String> {
    let rule = &compiled.rule;
    let Some(wanted) = &rule.tool else { return Ok(()) };
    let used = request.tools();
    if rule.then != RuleAction::Allow {
        return match used.as_slice() {
            [] => Err("the tool is not known".to_owned()),
            used if used.iter().any(|tool| wanted.contains(tool)) => Ok(()),
            used => Err(format!("the tool is {}", used.join(" and "))),
        };
    }
    let Some(named) = request.subject.tool.as_deref() else { return Err("the tool is not known".to_owned()) };
    if !wanted.contains(named) {
        return Err(format!("the tool is {named}"));
    }
    let speaks_of = |tool: &&&str| match **tool {
        "execute" => rule.command.is_some(),
        "edit" => rule.path.is_some() || rule.max_diff_lines.is_some(),
        _ => false,
    };
    let other = used.iter().filter(|tool| !wanted.contains(tool)).find(|tool| !speaks_of(tool));
    other.map_or(Ok(()), |tool| Err(format!("the request also is of the tool {tool}")))
}

fn paths(compiled: &CompiledRule, request: &ResolvedRequest) -> Result<(), String> {
    let allows = compiled.rule.then == RuleAction::Allow;
    if allows && let Some(doubt) = request.places.iter().find_map(ResolvedPath::doubt) {
        return Err(doubt);
    }
    if allows && request.diff.as_ref().is_some_and(|diff| diff.unclear) {
        return Err("it is not certain which files the diff changes".to_owned());
    }
    // An executed program may touch other files than those named.
    if allows && compiled.paths.is_some() && request.subject.tool.as_deref() == Some("execute") {
        return Err("a rule about paths does not allow to execute".to_owned());
    }
    let Some(globs) = &compiled.paths else {
        let outside = request.places.iter().find(|place| allows && !place.inside);
        return outside
            .map_or(Ok(()), |place| Err(format!("{:?} is outside of the workspace", place.written)));
    };
    if !allows && request.diff.as_ref().is_some_and(|diff| diff.unreadable) {
        return Ok(());
    }
    // Words of a command count for deny and ask rules; if there are too many to look up, they may be any path.
    let operands: &[ResolvedPath] = match &request.operands {
        None if !allows => return Ok(()),
        Some(operands) if !allows => &operands.places,
        _ => &[],
    };
    let others = || operands.iter().chain(request.other_names.iter().filter(|_| !allows));
    if request.places.is_empty() && others().next().is_none() {
        return Err("the request names no path".to_owned());
    }
    let matches = |place: &ResolvedPath| {
        let real =
            place.real.as_deref().is_some_and(|real| any_glob_matches(globs, &request.workspace, real));
        // The path before links are followed counts for deny and ask rules, never for allow rules.
        real || (!allows && any_glob_matches(globs, &request.subject.workspace, &place.lexical))
    };
    if allows {
        let other = request.places.iter().find(|place| !matches(place));
        other.map_or(Ok(()), |place| Err(format!("{:?} does not match", place.written)))
    } else if request.places.iter().chain(others()).any(matches) {
        Ok(())
    } else {
        Err("no path of the request matches".to_owned())
    }
}

fn any_glob_matches(globs: &[PathGlob], workspace: &Path, path: &Path) -> bool {
    let within = path.strip_prefix(workspace).ok();
    globs.iter().any(|PathGlob { absolute, glob }| {
        if *absolute {
            glob.matches(bytes(path))
        } else {
            within.is_some_and(|path| glob.matches(bytes(path)))
        }
    })
}

fn commands(compiled: &CompiledRule, request: &ResolvedRequest) -> Result<(), String> {
    let rule = &compiled.rule;
    let allows = rule.then == RuleAction::Allow;
    let Some(prefixes) = &compiled.commands else {
        return match &request.subject.command {
            Some(_) if allows && request.script.as_ref().is_some_and(|script| script.opaque) => {
                Err("it is unclear what the command runs".to_owned())
            }
            Some(text) if allows => may_ignore(compiled, text),
            _ => Ok(()),
        };
    };
    let (Some(words), Some(script)) = (&request.words, &request.script) else {
        return Err("the request contains no command".to_owned());
    };
    if !allows {
        let meant = prefixes.iter().any(|prefix| command::may_match(prefix, rule.exact, script));
        return if meant {
            Ok(())
        } else {
            Err("no command inside the text begins with these words".to_owned())
        };
    }
    // If the request also changes files, the command is not everything.
    let more = request.diff.is_some() || request.unnamed_places().next().is_some();
    if more && compiled.paths.is_none() {
        return Err("the request is not about the command alone".to_owned());
    }
    let of_commands = [None, Some("execute"), Some("read"), Some("search"), Some("think"), Some("other")];
    if rule.tool.is_none() && !of_commands.contains(&request.subject.tool.as_deref()) {
        return Err("the request is not about the command alone".to_owned());
    }
    let argv = words.as_ref().map_err(Clone::clone)?;
    let mut why = String::new();
    for prefix in prefixes {
        match launch::allows(prefix, rule.exact, rule.options, argv) {
            // `options = "any"` and `exact` do not confine a command to the workspace.
            Ok(()) if rule.exact || rule.options == Options::Any => return Ok(()),
            Ok(()) => match first_outside_link(request, prefix) {
                Some(word) => why = format!("`{word}` leads out of the workspace by a link"),
                None => match runs_later(request, prefix) {
                    None => return Ok(()),
                    Some(file) => {
                        why = format!("`{file}` is run later by other programs; write it into the rule");
                    }
                },
            },
            Err(reason) => why = reason,
        }
    }
    Err(why)
}

/// Returns the first word beyond the rule's own that leads out of the workspace by a link. Valid for the time at which
/// the request was resolved: links can change afterwards.
fn first_outside_link<'a>(request: &'a ResolvedRequest, prefix: &[String]) -> Option<&'a str> {
    let Some(operands) = &request.operands else { return Some("the command") };
    operands.outside_links.iter().find(|word| !prefix.contains(word)).map(String::as_str)
}

/// Returns the first file that is written through a link or into a directory, and that other programs run later.
fn runs_later<'a>(request: &'a ResolvedRequest, prefix: &[String]) -> Option<&'a str> {
    let mut written = request.operands.iter().flat_map(|operands| &operands.written);
    let is_new = |later: &&LaterRunFile| later.risk == Risk::High && !prefix.contains(&later.word);
    written.find(is_new).map(|later| later.file.as_str())
}

/// Checks whether an allow rule without `command` covers a command: only if it is about executing or about everything,
/// not if it is about some paths or another tool.
fn may_ignore(compiled: &CompiledRule, text: &str) -> Result<(), String> {
    let rule = &compiled.rule;
    if text.len() > words::MAX_BYTES || words::hidden(&text.replace('\n', " ")).is_some() {
        return Err("the command is unreadable for people".to_owned());
    }
    match &rule.tool {
        Some(tools) if tools.contains("execute") => Ok(()),
        None if rule.path.is_none() => Ok(()),
        _ => Err("the rule has no criterion for commands".to_owned()),
    }
}

fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

//! Tables of requests and what the rules make of them.

use std::path::PathBuf;

use serde::Deserialize;

use super::*;
use intercom_types::Time;

mod commands;
mod criteria;
mod differential;
mod patches;
mod property;
mod reach;
mod reader;
mod risks;

const NOW: Time = Time::from_millis(1_700_000_000_000);

/// Rules as they stand in a file.
fn rules(text: &str) -> Rules {
    try_rules(text).unwrap()
}

fn try_rules(text: &str) -> Result<Rules, BadRule> {
    #[derive(Deserialize)]
    struct File {
        #[serde(default)]
        rule: Vec<Rule>,
    }
    Rules::compile(toml::from_str::<File>(text).unwrap().rule, |_| NOW)
}

/// One rule in short: `allow: command = "cargo test"`.
fn one(text: &str) -> Rules {
    let (then, criteria) = text.split_once(':').unwrap();
    rules(&format!("[[rule]]\nthen = \"{then}\"\n{}", criteria.trim().replace("; ", "\n")))
}

/// A request to run something; nothing of it is looked up.
fn running(command: &str) -> ResolvedRequest {
    let subject = PolicyRequest {
        agent: Some("claude".to_owned()),
        workspace: PathBuf::from("/nowhere/ws"),
        tool: Some("execute".to_owned()),
        command: Some(command.to_owned()),
        ..PolicyRequest::default()
    };
    resolve(subject)
}

/// A request to do something to paths.
fn touching(workspace: &std::path::Path, tool: &str, paths: &[&str]) -> ResolvedRequest {
    let subject = PolicyRequest {
        agent: Some("claude".to_owned()),
        workspace: workspace.to_owned(),
        tool: Some(tool.to_owned()),
        paths: paths.iter().map(|path| (*path).to_owned()).collect(),
        ..PolicyRequest::default()
    };
    resolve(subject)
}

fn outcome(rules: &Rules, request: &ResolvedRequest) -> &'static str {
    match decide(rules, request, &assess(request), NOW).outcome {
        PolicyOutcome::Allow => "allow",
        PolicyOutcome::Deny { .. } => "deny",
        PolicyOutcome::Ask { .. } => "ask",
    }
}

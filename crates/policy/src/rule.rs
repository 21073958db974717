//! Rules as people write them, and compiled.

use serde::{Deserialize, Serialize};

use super::glob::Glob;
use super::launch::{self, Options};
use super::{TOOLS, words};
use intercom_types::{Risk, Time, parse_duration};

/// A rule. All given criteria must hold; a list is a list of alternatives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) agent: Option<Names>,
    /// An absolute path glob.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) workspace: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tool: Option<Names>,
    /// Globs, absolute or relative to the workspace. All paths of a request must match to allow it, any to deny or ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) path: Option<Names>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Commands>,
    /// The command must consist of exactly these words.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) exact: bool,
    /// The words that may follow those of an allow rule. `"known"`, if not given: operands that stay inside
    /// of the workspace, and options from a table of harmless ones; what the rule itself spells is never
    /// checked. `"any"`: all but the options that are known to run or write something else, which accepts
    /// that no such list is ever complete.
    #[serde(default, skip_serializing_if = "Options::is_known")]
    pub(crate) options: Options,
    /// The maximum number of changed lines. A request without a diff does not match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) max_diff_lines: Option<usize>,
    /// The risk. By default up to high for an allow rule, any risk for the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) risk: Option<RiskLimit>,
    /// An RFC 3339 timestamp after which the rule is ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) until: Option<String>,
    /// The lifetime of the rule, counted from the time when it was first seen in the configuration: `2h`.
    #[serde(rename = "for", default, skip_serializing_if = "Option::is_none")]
    pub lasts: Option<String>,
    pub(crate) then: RuleAction,
    /// The people to ask; only with `then = "ask"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ask: Option<Vec<String>>,
    /// The reason, for people and for the agent that is denied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
}

impl Rule {
    /// Returns the rule's text, which identifies it: a changed rule is another one.
    pub fn content(&self) -> String {
        serde_json::to_string(self).expect("a rule has string keys only")
    }

    /// A rule without criteria.
    pub fn new(then: RuleAction) -> Self {
        Self {
            name: None,
            agent: None,
            workspace: None,
            tool: None,
            path: None,
            command: None,
            exact: false,
            options: Options::Known,
            max_diff_lines: None,
            risk: None,
            until: None,
            lasts: None,
            then,
            ask: None,
            reason: None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(strum::Display)]
#[strum(serialize_all = "snake_case")]
pub enum RuleAction {
    Allow,
    Deny,
    Ask,
}

/// A string or a list of strings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Names {
    One(String),
    Any(Vec<String>),
}

impl Names {
    fn all(&self) -> &[String] {
        match self {
            Self::One(name) => std::slice::from_ref(name),
            Self::Any(names) => names,
        }
    }
}

/// A string is the highest risk, a list the exact risks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum RiskLimit {
    UpTo(Risk),
    Exactly(Vec<Risk>),
}

impl RiskLimit {
    pub(super) fn holds(&self, risk: Risk) -> bool {
        match self {
            Self::UpTo(highest) => risk <= *highest,
            Self::Exactly(risks) => risks.contains(&risk),
        }
    }
}

/// The leading words of commands: `"cargo test"`, `["cargo", "test"]`, or a list of such with at least one list
/// among them. A list of strings alone is always the words of one command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Commands {
    Line(String),
    Words(Vec<String>),
    Any(Vec<CommandEntry>),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum CommandEntry {
    Line(String),
    Words(Vec<String>),
}

/// A rule that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("rule {}: {key}: {message}", .index + 1)]
pub struct BadRule {
    /// The index of the rule, counted from 0.
    pub index: usize,
    pub key: &'static str,
    pub message: String,
}

/// Rules that are ready for use, in order.
#[derive(Debug, Clone, Default)]
pub struct Rules(pub(super) Vec<CompiledRule>);

#[derive(Debug, Clone)]
pub(super) struct CompiledRule {
    pub(super) name: String,
    pub(super) rule: Rule,
    pub(super) workspace: Option<Glob>,
    pub(super) paths: Option<Vec<PathGlob>>,
    pub(super) commands: Option<Vec<Vec<String>>>,
    pub(super) ends: Option<Time>,
}

#[derive(Debug, Clone)]
pub(super) struct PathGlob {
    pub(super) absolute: bool,
    pub(super) glob: Glob,
}

impl Rules {
    /// Compiles rules. A rule that could never match is an error. `first_seen` returns the time since when a rule with
    /// `for` has existed.
    pub fn compile(rules: Vec<Rule>, first_seen: impl Fn(&Rule) -> Time) -> Result<Self, BadRule> {
        let compile = |(index, rule): (usize, Rule)| {
            let since = first_seen(&rule);
            compile(index, rule, since).map_err(|(key, message)| BadRule { index, key, message })
        };
        rules.into_iter().enumerate().map(compile).collect::<Result<_, _>>().map(Self)
    }

    /// Returns the end of each rule, in order; `None` for those without an end.
    pub fn ends(&self) -> impl Iterator<Item = Option<Time>> {
        self.0.iter().map(|compiled| compiled.ends)
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }
}

type RuleFault = (&'static str, String);

fn compile(index: usize, rule: Rule, first_seen: Time) -> Result<CompiledRule, RuleFault> {
    let bad = |key: &'static str, message: &str| (key, message.to_owned());
    for (key, names) in [("agent", &rule.agent), ("tool", &rule.tool), ("path", &rule.path)] {
        if names
            .as_ref()
            .is_some_and(|names| names.all().is_empty() || names.all().iter().any(String::is_empty))
        {
            return Err(bad(key, "is empty"));
        }
    }
    if let Some(tool) = rule.tool.iter().flat_map(Names::all).find(|tool| !TOOLS.contains(&tool.as_str())) {
        return Err(("tool", format!("`{tool}` is not one of {}", TOOLS.join(", "))));
    }
    if matches!(&rule.risk, Some(RiskLimit::Exactly(risks)) if risks.is_empty()) {
        return Err(bad("risk", "is empty"));
    }
    match &rule.ask {
        Some(_) if rule.then != RuleAction::Ask => return Err(bad("ask", "requires `then = \"ask\"`")),
        Some(whom) if whom.is_empty() || whom.iter().any(|name| name.trim().is_empty()) => {
            return Err(bad("ask", "names no person or role"));
        }
        Some(whom) => {
            let roles = whom.iter().filter_map(|name| name.strip_prefix('@'));
            if let Some(role) = roles.into_iter().find(|role| !["approver", "admin"].contains(role)) {
                return Err(("ask", format!("`@{role}` cannot decide; use @approver, @admin or a name")));
            }
        }
        _ => {}
    }
    let workspace = match &rule.workspace {
        Some(glob) if !glob.starts_with('/') => return Err(bad("workspace", "must be an absolute path")),
        Some(glob) => Some(Glob::parse(glob).map_err(|message| ("workspace", message))?),
        None => None,
    };
    let path = |glob: &String| {
        Glob::parse(glob).map(|parsed| PathGlob { absolute: glob.starts_with('/'), glob: parsed })
    };
    let paths =
        rule.path.as_ref().map(|globs| globs.all().iter().map(path).collect::<Result<_, _>>()).transpose();
    let commands = rule.command.as_ref().map(|commands| prefixes(commands, rule.then)).transpose();
    if rule.exact && rule.command.is_none() {
        return Err(bad("exact", "requires `command`"));
    }
    if rule.options == Options::Any
        && (rule.command.is_none() || rule.exact || rule.then != RuleAction::Allow)
    {
        return Err(bad("options", "is possible only for an allow rule with `command` and without `exact`"));
    }
    Ok(CompiledRule {
        name: rule.name.clone().unwrap_or_else(|| format!("rule {}", index + 1)),
        workspace,
        paths: paths.map_err(|message| ("path", message))?,
        commands: commands.map_err(|message| ("command", message))?,
        ends: ends(&rule, first_seen)?,
        rule,
    })
}

/// Returns the end of the rule: the earlier of `until` and `for`.
fn ends(rule: &Rule, first_seen: Time) -> Result<Option<Time>, RuleFault> {
    let until = match &rule.until {
        Some(text) => {
            let message = "is not an RFC 3339 timestamp such as 2026-03-01T18:00:00Z";
            Some(Time::parse(text).ok_or(("until", message.to_owned()))?)
        }
        None => None,
    };
    let lasts = match &rule.lasts {
        Some(text) => {
            let duration =
                parse_duration(text).ok_or(("for", "is not a duration such as 2h or 30d".to_owned()))?;
            Some(first_seen.plus(duration))
        }
        None => None,
    };
    Ok(until.into_iter().chain(lasts).min())
}

fn prefixes(commands: &Commands, then: RuleAction) -> Result<Vec<Vec<String>>, String> {
    let line =
        |text: &String| words::plain(text).map_err(|why| format!("{why}; write it as a list of words"));
    let list = |words: &Vec<String>| match words.first() {
        Some(first) if first.contains([' ', '\t']) => {
            Err("a list is the words of one command; write several as a list of lists".to_owned())
        }
        Some(first) if !first.is_empty() => Ok(words.clone()),
        _ => Err("names no program".to_owned()),
    };
    let prefixes = match commands {
        Commands::Line(text) => vec![line(text)?],
        Commands::Words(words) => vec![list(words)?],
        Commands::Any(entries) => {
            let entry = |entry: &CommandEntry| match entry {
                CommandEntry::Line(text) => line(text),
                CommandEntry::Words(words) => list(words),
            };
            entries.iter().map(entry).collect::<Result<_, _>>()?
        }
    };
    if then == RuleAction::Allow {
        for prefix in &prefixes {
            launch::can_allow(prefix)?;
        }
    }
    Ok(prefixes)
}

impl Names {
    pub(super) fn contains(&self, name: &str) -> bool {
        self.all().iter().any(|known| known == name)
    }
}

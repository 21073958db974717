//! What the operators' rules say to a request of an agent, before anybody is asked.
//!
//! ```text
//!  Subject ──resolve──► Resolved ──assess──► Assessment
//!  (as the agent        (where its    │      (how risky, and why)
//!   wrote it)            paths lead)  └─────────┬─────────┘
//!                                    Rules ──decide──► Ruling: allow, deny, or ask a person
//! ```
//!
//! Everything but `resolve` is pure. The rules are read in order and the first that matches decides; if none does, a
//! person is asked. Doubt never allows:
//!
//! - An **allow** rule matches only what can be read with certainty: commands of plain words that begin with the
//!   rule's, paths that are where they seem to be, no characters that people cannot see. It reaches outside of the
//!   workspace only by an absolute `path`, and critical requests only with `risk = "critical"`.
//! - A **deny** or **ask** rule matches whatever could be meant: any path of the request, any command inside its text.
//!
//! What this is not: a sandbox. The agent says what it is about to do, and can lie.

use std::collections::HashSet;
use std::path::{Component, Path, PathBuf};

use intercom_types::Risk;

mod command;
mod contradiction;
mod decide;
mod diff;
mod git;
mod glob;
mod harmless;
mod later_run_files;
mod launch;
mod paths;
mod preset;
mod programs;
mod proposal;
mod risk;
mod rule;
mod sentence;
mod shell;
#[cfg(test)]
mod tests;
mod words;

pub use contradiction::CONTRADICTION;
pub use decide::{PolicyOutcome, PolicyRuling, RuleEvaluation, decide, explain};
pub use paths::resolve;
pub use preset::{forbidden_by, forbids};
pub use proposal::proposal;
pub use risk::{RiskAssessment, assess};
pub use rule::{BadRule, CommandEntry, Commands, Names, Options, RiskLimit, Rule, RuleAction, Rules};
pub use sentence::sentence;

/// The kinds of tools that agents speak of (those of ACP).
pub const TOOLS: &[&str] =
    &["read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"];

/// What is known of a request, whoever the agent is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicyRequest {
    pub agent: Option<String>,
    pub workspace: PathBuf,
    /// One of [`TOOLS`], if the agent said which.
    pub tool: Option<String>,
    pub title: String,
    /// As the agent wrote them.
    pub paths: Vec<String>,
    /// Shell text, as the agent wrote it.
    pub command: Option<String>,
    pub diff: Option<String>,
    /// For agents that claim a risk: what [`Risk::of_claim`] makes of it. `None` for those that cannot.
    pub claimed: Option<Risk>,
}

/// The programs in a shell text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandReading {
    /// The file names of all programs that the text may run.
    pub programs: Vec<String>,
    /// The reason why the text cannot be read with certainty, if so: it may run other programs too.
    pub unreadable: Option<&'static str>,
}

/// Reads a shell text the way that bash and dash would run it.
pub fn read_command(text: &str) -> CommandReading {
    let script = shell::read(text);
    CommandReading { programs: script.programs(), unreadable: script.reason }
}

/// The files that a diff names.
pub fn files_in_diff(text: &str) -> Vec<String> {
    diff::read(text).names
}

/// The parts of this module that the crate's `fuzzing` checks.
#[doc(hidden)]
pub mod fuzzing {
    /// All names of files that a diff may mean.
    pub fn names_in_diff(text: &str) -> Vec<String> {
        let diff = super::diff::read(text);
        diff.names.into_iter().chain(diff.other_names).collect()
    }
}

/// A request with everything known about where its paths lead and what its command runs.
#[derive(Debug, Clone)]
pub struct ResolvedRequest {
    subject: PolicyRequest,
    /// Where the workspace really is.
    workspace: PathBuf,
    places: Vec<ResolvedPath>,
    /// Places that a diff may mean as well; they count for rules that hold back.
    other_names: Vec<ResolvedPath>,
    /// `None` if there are too many to look up.
    operands: Option<CommandOperands>,
    /// The words of the command, or why it is not just words.
    words: Option<Result<Vec<String>, String>>,
    script: Option<shell::ShellScript>,
    diff: Option<diff::DiffSummary>,
}

impl ResolvedRequest {
    /// The places of the request that its command does not name. What the command names is judged with the command.
    fn unnamed_places(&self) -> impl Iterator<Item = &ResolvedPath> {
        let names = |operands: &CommandOperands, place: &ResolvedPath| {
            let same = |operand: &ResolvedPath| operand.real.is_some() && operand.real == place.real;
            operands.names.contains(&place.lexical) || operands.places.iter().any(same)
        };
        let is_workspace = |place: &ResolvedPath| place.real.as_ref() == Some(&self.workspace);
        let is_named = move |place: &ResolvedPath| {
            is_workspace(place) || self.operands.as_ref().is_some_and(|operands| names(operands, place))
        };
        self.places.iter().filter(move |place| !is_named(place))
    }

    /// The tools that the request uses: the one that the agent names, and those that its command and its diff amount to.
    fn tools(&self) -> Vec<&str> {
        let named = self.subject.tool.as_deref();
        let executes = self.subject.command.is_some() && named != Some("execute");
        let edits = self.subject.diff.is_some() && !matches!(named, Some("edit" | "delete" | "move"));
        named.into_iter().chain(executes.then_some("execute")).chain(edits.then_some("edit")).collect()
    }

    pub fn subject(&self) -> &PolicyRequest {
        &self.subject
    }

    /// Where the workspace really is.
    pub fn workspace(&self) -> &Path {
        &self.workspace
    }

    pub fn places(&self) -> &[ResolvedPath] {
        &self.places
    }
}

/// The words of a command that may be paths.
#[derive(Debug, Clone, Default)]
struct CommandOperands {
    /// Those that look like paths or exist.
    places: Vec<ResolvedPath>,
    /// All of them, absolute, links not followed.
    names: HashSet<PathBuf>,
    /// Words that lead out of the workspace by a link.
    outside_links: Vec<String>,
    /// Files that are written elsewhere than their words say, and run later.
    written: Vec<later_run_files::LaterRunFile>,
}

/// A path of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedPath {
    pub written: String,
    /// Absolute, links not followed.
    pub lexical: PathBuf,
    /// Absolute, links followed; `None` if that cannot be told.
    pub real: Option<PathBuf>,
    /// Really inside of the workspace.
    pub inside: bool,
    /// Really somewhere else than it seems.
    pub linked: bool,
}

impl ResolvedPath {
    /// Whether it holds `..`.
    pub fn has_parent_dir(&self) -> bool {
        Path::new(&self.written).components().any(|component| component == Component::ParentDir)
    }

    /// Whether it holds characters that people cannot see.
    pub fn is_hidden(&self) -> bool {
        words::hidden(&self.written).is_some()
    }

    /// Why no allow rule may match it.
    fn doubt(&self) -> Option<String> {
        let doubt = match self {
            _ if self.is_hidden() => "holds characters that cannot be seen",
            _ if self.has_parent_dir() => "holds `..`",
            _ if self.real.is_none() => "cannot be resolved",
            _ => return None,
        };
        Some(format!("{:?} {doubt}", self.written))
    }
}

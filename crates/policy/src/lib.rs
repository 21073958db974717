//! Policy: the decision of the operators' rules about a request of an agent, before people are asked.
//!
//! ```text
//!  PolicyRequest ──resolve──► ResolvedRequest ──assess──► RiskAssessment
//!  (as the agent              (paths with       │         (the risk and its reasons)
//!   wrote it)                  links followed)  └────────────┬────────────┘
//!                                               Rules ──decide──► PolicyRuling: allow, deny, or ask a person
//! ```
//!
//! Everything except `resolve` is pure. The rules are read in order and the first that matches decides; if none does, a
//! person is asked. Doubt never allows:
//!
//! - An **allow** rule matches only unambiguous requests: commands of plain words that begin with the rule's, paths
//!   that no link redirects, no invisible characters. It reaches outside of the workspace only by an absolute `path`,
//!   and critical requests only with `risk = "critical"`.
//! - A **deny** or **ask** rule matches everything that the request could mean: any of its paths, any command inside its
//!   text.
//!
//! Policy is not a sandbox: the agent announces its actions, and can lie.

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
mod harmless_table;
mod later_run_files;
mod launch;
mod location;
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
pub use rule::{BadRule, CommandEntry, Commands, Rule, RuleAction, Rules};
pub use sentence::sentence;

/// The kinds of tools of requests (those of ACP).
pub(crate) const TOOLS: &[&str] =
    &["read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"];

/// The known facts of a request, independent of the agent's protocol.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicyRequest {
    pub agent: Option<String>,
    pub workspace: PathBuf,
    /// One of [`TOOLS`], if the agent names one.
    pub tool: Option<String>,
    pub title: String,
    /// The paths as the agent wrote them.
    pub paths: Vec<String>,
    /// The shell text as the agent wrote it.
    pub command: Option<String>,
    pub diff: Option<String>,
    /// The result of [`Risk::of_claim`] for agents that claim a risk; `None` for others.
    pub claimed: Option<Risk>,
}

/// The programs in a shell text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandReading {
    /// The file names of all programs that the text may run.
    pub programs: Vec<String>,
    /// The reason why the text is ambiguous, if it is: it may run other programs, too.
    pub unreadable: Option<&'static str>,
}

/// Reads a shell text as bash and dash would run it.
pub fn read_command(text: &str) -> CommandReading {
    let script = shell::read(text);
    CommandReading { programs: script.programs(), unreadable: script.reason }
}

/// Returns the files that a diff names.
pub fn files_in_diff(text: &str) -> Vec<String> {
    diff::read(text).names
}

/// Functions for the crate's fuzz targets.
#[doc(hidden)]
pub mod fuzzing {
    /// Returns all names of files that a diff may mean.
    pub fn names_in_diff(text: &str) -> Vec<String> {
        let diff = super::diff::read(text);
        diff.names.into_iter().chain(diff.other_names).collect()
    }
}

/// A request with its paths resolved and its command parsed.
#[derive(Debug, Clone)]
pub struct ResolvedRequest {
    subject: PolicyRequest,
    /// The workspace, with links followed.
    workspace: PathBuf,
    places: Vec<ResolvedPath>,
    /// Further paths that a diff may mean; they count for deny and ask rules.
    other_names: Vec<ResolvedPath>,
    /// `None` if there are too many to look up.
    operands: Option<CommandOperands>,
    /// The words of the command, or the reason why it is more than plain words.
    words: Option<Result<Vec<String>, String>>,
    script: Option<shell::ShellScript>,
    diff: Option<diff::DiffSummary>,
}

impl ResolvedRequest {
    /// Returns the paths of the request that its command does not name. Those of the command are assessed with it.
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

    /// Returns the tools that the request uses: the one that the agent names, and those that its command and its diff
    /// imply.
    fn tools(&self) -> Vec<&str> {
        let named = self.subject.tool.as_deref();
        let executes = self.subject.command.is_some() && named != Some("execute");
        let edits = self.subject.diff.is_some() && !matches!(named, Some("edit" | "delete" | "move"));
        named.into_iter().chain(executes.then_some("execute")).chain(edits.then_some("edit")).collect()
    }

    pub fn subject(&self) -> &PolicyRequest {
        &self.subject
    }

    /// Returns the workspace, with links followed.
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
    /// The words that look like paths or exist.
    places: Vec<ResolvedPath>,
    /// All words as absolute paths, links not followed.
    names: HashSet<PathBuf>,
    /// Words that lead out of the workspace by a link.
    outside_links: Vec<String>,
    /// Files that run later and are written without being named.
    written: Vec<later_run_files::LaterRunFile>,
}

/// A path of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedPath {
    pub(crate) written: String,
    /// The absolute path, links not followed.
    pub(crate) lexical: PathBuf,
    /// The absolute path with links followed; `None` if it cannot be resolved.
    pub real: Option<PathBuf>,
    /// Inside of the workspace, after links are followed.
    pub(crate) inside: bool,
    /// Links lead to another place than its text.
    pub(crate) linked: bool,
}

impl ResolvedPath {
    /// Reports whether it contains `..`.
    pub(crate) fn has_parent_dir(&self) -> bool {
        Path::new(&self.written).components().any(|component| component == Component::ParentDir)
    }

    /// Reports whether it contains invisible characters.
    pub(crate) fn is_hidden(&self) -> bool {
        words::hidden(&self.written).is_some()
    }

    /// Returns the reason why no allow rule may match it.
    fn doubt(&self) -> Option<String> {
        let doubt = match self {
            _ if self.is_hidden() => "contains invisible characters",
            _ if self.has_parent_dir() => "contains `..`",
            _ if self.real.is_none() => "cannot be resolved",
            _ => return None,
        };
        Some(format!("{:?} {doubt}", self.written))
    }
}

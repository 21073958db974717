//! Failures: when a session has failed, in which words, and when that is over.
//!
//! ```text
//!            a turn with an error, a start that fails, a crash
//!  null ──────────────────────────────────────────────────────► failed
//!   ▲                                                             │
//!   └─── an operator has seen it or resumes it, a turn succeeds ──┘
//! ```
//! It stands beside the phase: a session that is idle may have failed, and one that has failed may work again.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::interrupt::INTERRUPTED;
use super::{Gone, Out, Stage, State};
use crate::domain::{Exit, Failure, FailureKind, Json, Kind, Time};
use crate::text::quoted;

/// A reason is one line, as far as people would read it.
const MAX_REASON: usize = 500;
/// The agent's own last line in it is shorter.
const MAX_LINE: usize = 200;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Failures {
    /// The last failure, until somebody has seen it.
    unseen: Option<Failure>,
    /// The error of the last turn, seen or not, until one succeeds.
    pub(super) last_turn: Option<String>,
    /// The agent wants a log-in: why, and how to. Until its turn, or its start, is over.
    pub(super) log_in: Option<(String, String)>,
    /// The last line of stdout that was no message of its protocol.
    rejected_line: Option<String>,
    /// The exit of the last process, in words.
    pub(super) exit: Option<String>,
}

impl Failures {
    pub(super) fn next_process(&mut self) {
        *self = Self { unseen: self.unseen.take(), ..Self::default() };
    }

    pub(super) fn forget(&mut self) {
        self.unseen = None;
    }

    pub(super) fn rejected(&mut self, excerpt: &str) {
        self.rejected_line = last_line(excerpt).or(self.rejected_line.take());
    }
}

impl State {
    /// The failure that nobody has seen yet.
    pub fn failed(&self) -> Option<&Failure> {
        self.failures.unseen.as_ref()
    }

    fn fail(&mut self, kind: FailureKind, reason: &str, at: Time) {
        let failure = match self.failures.log_in.take() {
            Some((reason, how)) => {
                let reason = one_line(&reason, MAX_REASON);
                Failure { kind: FailureKind::LogIn, reason, at, log_in: Some(one_line(&how, MAX_REASON)) }
            }
            None => Failure { kind, reason: one_line(reason, MAX_REASON), at, log_in: None },
        };
        self.failures.unseen = Some(failure);
        self.dirty = true;
    }

    /// The end of a turn. An error that answers our own cancelling is none.
    pub(super) fn judge_turn(&mut self, stop_reason: &str, failed: bool, now: Time) {
        let cancelled = self.cancelled_by.is_some() || ["cancelled", INTERRUPTED].contains(&stop_reason);
        if cancelled {
            self.failures.log_in = None;
        } else if failed || self.failures.log_in.is_some() {
            let said = stop_reason.strip_prefix("error:").unwrap_or(stop_reason).trim();
            self.fail(FailureKind::Turn, said.trim_end_matches('.'), now);
            self.failures.last_turn = self.failed().map(|failed| failed.reason.clone());
        } else {
            (self.failures.unseen, self.failures.last_turn, self.dirty) = (None, None, true);
        }
    }

    /// The agent did not become ready.
    pub(super) fn fail_start(&mut self, why: &str, now: Time) {
        self.fail(FailureKind::Start, why.trim_end_matches('.'), now);
    }

    /// The agent is not started again by us, whatever ended it: people have to.
    pub(super) fn fail_for_good(&mut self, history: &str, reason: &str, now: Time) {
        let exit = self.failures.exit.take();
        let why = format!("{}; it {history}", exit.as_deref().unwrap_or(reason));
        self.fail(FailureKind::Exit, &why, now);
        self.failures.exit = Some(why);
    }

    /// The end of a process, in words, unless somebody ended it. A clean exit of an agent that has worked is no failure.
    pub(super) fn judge_exit(&mut self, gone: &Gone, now: Time) -> Option<String> {
        if matches!(self.stage, Stage::Stopping { .. }) {
            return None;
        }
        let strict = self.about.strict;
        let starting = self.stage == Stage::Starting || (!strict && !self.spoke);
        let when = match gone.unanswered {
            _ if !strict && !self.spoke => " before it said anything".to_owned(),
            Some(method) if self.stage == Stage::Starting => format!(" before it answered `{method}`"),
            None if self.stage == Stage::Starting => " before it was ready".to_owned(),
            _ if self.turn.is_some() => " during a turn".to_owned(),
            _ => String::new(),
        };
        let line = last_line(&gone.stderr_tail).or_else(|| self.failures.rejected_line.clone());
        let line = line.map(|line| format!(": {}", quoted(&line))).unwrap_or_default();
        let why = match gone.exit {
            Exit { code: Some(code), .. } => format!("exited with code {code}{when}{line}"),
            Exit { signal: Some(signal), .. } => format!("was ended by signal {signal}{when}{line}"),
            Exit { .. } => gone.reason.clone(),
        };
        // Without a handshake, a command that was told nothing and says nothing may just be done.
        let mute = !strict && self.told.first_prompt.is_none() && line.is_empty();
        let clean = gone.exit.code == Some(0) && (!starting || mute) && !(strict && self.turn.is_some());
        if !clean {
            self.fail(if starting { FailureKind::Start } else { FailureKind::Exit }, &why, now);
        }
        self.failures.exit = Some(why.clone());
        Some(why)
    }

    /// The reason of an end as people want it: the exit in words, where nobody else ended it.
    pub(super) fn end_in_words(&self, reason: &str) -> String {
        match (&self.failures.exit, &self.exit) {
            (Some(exit), _) => exit.clone(),
            (None, Some(exit)) => format!("{reason} ({exit})"),
            (None, None) => reason.to_owned(),
        }
    }

    /// An operator has seen it. A newer failure than the one that was shown stays.
    pub(super) fn seen(&mut self, at: Option<Time>, by: &str, out: &mut Out<'_, '_>) {
        let shown = |failure: &mut Failure| at.is_none_or(|at| at == failure.at);
        if let Some(failure) = self.failures.unseen.take_if(shown) {
            let data = json!({ "reason": failure.reason, "failed_at": failure.at.to_string(), "by": by });
            out.record(Kind::SessionSeen, Json::of(&data));
        }
    }
}

/// The last line with words in it, as far as it is kept.
fn last_line(text: &str) -> Option<String> {
    text.lines().rev().map(|line| one_line(line, MAX_LINE)).find(|line| !line.is_empty())
}

/// Text of others on one line: without colours, cursor movements and other control characters.
fn one_line(text: &str, most: usize) -> String {
    let mut line = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' if chars.as_str().starts_with('[') => {
                chars.by_ref().skip(1).find(|c| ('@'..='~').contains(c));
            }
            '\n' | '\t' => line.push(' '),
            c if c.is_control() => {}
            c => line.push(c),
        }
    }
    let line = line.trim();
    match line.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", line[..end].trim_end()),
        None => line.to_owned(),
    }
}

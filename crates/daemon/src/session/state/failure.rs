//! Failures: when a session has failed, the reason, and when that is over.
//!
//! ```text
//!            a turn with an error, a start that fails, a crash
//!  null ──────────────────────────────────────────────────────► failed
//!   ▲                                                             │
//!   └─── an operator sees it or resumes it, a turn succeeds ──────┘
//! ```
//! A failure is independent of the phase: an idle session may have failed, and a failed one may work again.

use serde::{Deserialize, Serialize};

use super::interrupt::INTERRUPTED;
use super::{AgentExit, EffectSink, LifeStage, OutboundKind, QueuedPrompt, SessionState};
use intercom_host::STREAM_CLOSED;
use intercom_redact::redact;
use intercom_types::event::{PromptRequeued, PromptWithdrawn, SessionSeen};
use intercom_types::text::quoted;
use intercom_types::{Event, Exit, Failure, FailureKind, Time};

/// The maximum length of a reason, which is one line for people.
const MAX_REASON: usize = 500;
/// The maximum length of the agent's own last line in a reason.
const MAX_LINE: usize = 200;
/// The maximum size of a prompt that is kept while its turn runs, because it is part of every snapshot.
const MAX_KEPT: usize = 64 * 1024;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct FailureState {
    /// The last failure, until somebody has seen it.
    unseen: Option<Failure>,
    /// The error of the last turn, seen or not, until one succeeds.
    pub(super) last_turn: Option<String>,
    /// The reason why the agent needs a log-in, and the advice, until its turn or its start is over.
    pub(super) log_in: Option<(String, String)>,
    /// True if the agent has done nothing about its prompt except for asking for a log-in.
    pub(super) untouched: bool,
    /// The prompt of the running turn, as long as the agent may not have begun with it.
    pub(super) unserved: Option<QueuedPrompt>,
    /// True if the last turn failed because of a missing log-in. The queue waits for the next process, or for a person
    /// who retries.
    pub(super) awaits_log_in: bool,
    /// The last line of stdout that was not a message of the protocol.
    rejected_line: Option<String>,
    /// The exit of the last process, in words.
    pub(super) exit: Option<String>,
}

impl FailureState {
    pub(super) fn next_process(&mut self) {
        *self = Self { unseen: self.unseen.take(), ..Self::default() };
    }

    pub(super) fn forget(&mut self) {
        self.unseen = None;
    }

    /// Keeps a prompt that is sent. A prompt with content blocks is not kept: its ACP client sees the failure and asks
    /// again.
    pub(super) fn sends(&mut self, prompt: &QueuedPrompt) {
        let is_kept = !prompt.by_daemon && prompt.content.is_none() && prompt.text.len() <= MAX_KEPT;
        self.unserved = is_kept.then(|| prompt.clone());
    }

    /// Records that the agent needs a log-in. The agent's own words are quoted.
    pub(super) fn wants_log_in(&mut self, reason: &str, words: &str, how: String) {
        let words = one_line(&redact(words).text, MAX_LINE);
        let words = if words.is_empty() { String::new() } else { format!(": {}", quoted(&words)) };
        self.log_in = Some((format!("{reason}{words}"), how));
    }

    pub(super) fn rejected(&mut self, excerpt: &str) {
        self.rejected_line = last_line(excerpt).or(self.rejected_line.take());
    }
}

impl SessionState {
    /// Returns the failure that nobody has seen yet.
    pub(crate) fn failed(&self) -> Option<&Failure> {
        self.failures.unseen.as_ref()
    }

    /// Records a failure. The reason is redacted, because agents may repeat a key in it.
    fn fail(&mut self, kind: FailureKind, reason: &str, at: Time) {
        let reason = &redact(reason).text;
        let (kind, reason, log_in) = match self.failures.log_in.take() {
            Some((reason, how)) => {
                (FailureKind::LogIn, one_line(&reason, MAX_REASON), Some(one_line(&how, MAX_REASON)))
            }
            None => (kind, one_line(reason, MAX_REASON), None),
        };
        let failure = Failure { kind, reason, at, log_in, prompt_lost: false };
        self.failures.unseen = Some(failure);
    }

    /// Updates the failure at the end of a turn. An error that follows our own cancellation is not a failure.
    pub(super) fn judge_turn(&mut self, stop_reason: &str, failed: bool, now: Time) {
        let cancelled =
            self.turns.cancel_deadline.is_some() || ["cancelled", INTERRUPTED].contains(&stop_reason);
        if cancelled {
            self.failures.log_in = None;
        } else if failed || self.failures.log_in.is_some() {
            let words =
                stop_reason.strip_prefix("error:").unwrap_or(stop_reason).trim().trim_end_matches('.');
            self.failures.awaits_log_in = self.failures.log_in.is_some();
            // Without a handshake these are the agent's own words; from an ACP agent they are quoted already.
            let why =
                if self.agent_owns_turns() { words.to_owned() } else { quoted(&one_line(words, MAX_LINE)) };
            self.fail(FailureKind::Turn, &why, now);
            self.failures.last_turn = self.failed().map(|failed| failed.reason.clone());
        } else {
            (self.failures.unseen, self.failures.last_turn) = (None, None);
            self.failures.awaits_log_in = false;
        }
    }

    /// Puts a prompt back to the front of the queue, once, if its turn has ended because of a missing log-in. Prompts
    /// that were not sent yet are in the queue anyway.
    pub(super) fn keep_unserved(&mut self, out: &mut EffectSink<'_, '_>) {
        let unserved = self.failures.unserved.take();
        let untouched = std::mem::take(&mut self.failures.untouched);
        if !self.failures.awaits_log_in {
            return;
        }
        let Some(prompt) = unserved.filter(|_| untouched) else {
            if let Some(failure) = &mut self.failures.unseen {
                failure.prompt_lost = true;
            }
            return;
        };
        // The prompt was answered, so it has arrived, even without an acknowledgement. A late acknowledgement would
        // otherwise remove it from the queue.
        let kind = OutboundKind::Prompt(prompt.id);
        if let Some(n) = self.outbox.in_flight.iter().find(|(_, known)| **known == kind).map(|(n, _)| *n) {
            self.settle(n, None, out);
        }
        let (id, cause) = (prompt.id, "the agent needs a log-in".to_owned());
        let place = self.turns.queue.iter().take_while(|queued| queued.by_daemon).count();
        self.turns.queue.insert(place, prompt);
        let order = if self.turns.queue.len() > 1 { self.queue_order() } else { Vec::new() };
        out.record(Event::PromptRequeued(PromptRequeued { prompt: id, cause, order }));
    }

    /// Retries after a missing log-in, on a person's prompt. A queued prompt with the same text is withdrawn, so that
    /// the text is sent once.
    pub(super) fn try_again(&mut self, text: &str, by: &str, out: &mut EffectSink<'_, '_>) {
        if !std::mem::take(&mut self.failures.awaits_log_in) {
            return;
        }
        let same = self.turns.queue.iter().position(|queued| !queued.by_daemon && queued.text == text);
        if let Some(QueuedPrompt { id, .. }) = same.and_then(|at| self.turns.queue.remove(at)) {
            out.record(Event::PromptWithdrawn(PromptWithdrawn { prompt: id, by: by.to_owned() }));
        }
    }

    /// Records that the agent did not become ready.
    pub(super) fn fail_start(&mut self, why: &str, now: Time) {
        self.fail(FailureKind::Start, why.trim_end_matches('.'), now);
    }

    /// Records that the agent is not restarted any more and needs people, whatever the cause of its end.
    pub(super) fn fail_for_good(&mut self, history: &str, reason: &str, now: Time) {
        let exit = self.failures.exit.take();
        let why = format!("{}; it {history}", exit.as_deref().unwrap_or(reason));
        self.fail(FailureKind::Exit, &why, now);
        self.failures.exit = Some(why);
    }

    /// Returns the end of a process in words, unless somebody ended it. A clean exit of an agent that has worked is not
    /// a failure.
    pub(super) fn judge_exit(&mut self, agent_exit: &AgentExit, now: Time) -> Option<String> {
        if matches!(self.life.stage, LifeStage::Stopping { .. }) {
            return None;
        }
        let has_handshake = self.agent_owns_turns();
        let starting = self.life.stage == LifeStage::Starting || (!has_handshake && !self.turns.has_spoken);
        let when = match agent_exit.unanswered {
            _ if !has_handshake && !self.turns.has_spoken => " before any output".to_owned(),
            Some(method) if self.life.stage == LifeStage::Starting => {
                format!(" before it answered `{method}`")
            }
            None if self.life.stage == LifeStage::Starting => " before it was ready".to_owned(),
            _ if self.turns.turn.is_some() => " during a turn".to_owned(),
            _ => String::new(),
        };
        let line = last_line(&agent_exit.stderr_tail).or_else(|| self.failures.rejected_line.clone());
        let line = line.map(|line| format!(": {}", quoted(&line))).unwrap_or_default();
        let why = match agent_exit.exit {
            // Our signal ended it, but the cause is the closed stream.
            _ if agent_exit.reason == STREAM_CLOSED && !agent_exit.steps.is_empty() => {
                format!("{STREAM_CLOSED}: it closed its stdout{when}, kept running, and was stopped{line}")
            }
            Exit { code: Some(code), .. } => format!("exited with code {code}{when}{line}"),
            Exit { signal: Some(signal), .. } => format!("was ended by signal {signal}{when}{line}"),
            Exit { .. } => agent_exit.reason.clone(),
        };
        // Without a handshake, a command without a prompt and without output may simply be done.
        let mute = !has_handshake && self.agent.info.first_prompt.is_none() && line.is_empty();
        let clean = agent_exit.exit.code == Some(0)
            && (!starting || mute)
            && !(has_handshake && self.turns.turn.is_some());
        if !clean {
            self.fail(if starting { FailureKind::Start } else { FailureKind::Exit }, &why, now);
        }
        self.failures.exit = Some(why.clone());
        Some(why)
    }

    /// Returns the reason of an end for people: the exit in words, unless somebody ended the process.
    pub(super) fn end_in_words(&self, reason: &str) -> String {
        match (&self.failures.exit, &self.life.exit) {
            (Some(exit), _) => exit.clone(),
            (None, Some(exit)) => format!("{reason} ({exit})"),
            (None, None) => reason.to_owned(),
        }
    }

    /// Records that an operator has seen the failure. A newer failure than the one shown stays.
    pub(super) fn seen(&mut self, at: Option<Time>, by: &str, out: &mut EffectSink<'_, '_>) {
        let shown = |failure: &mut Failure| at.is_none_or(|at| at == failure.at);
        if let Some(failure) = self.failures.unseen.take_if(shown) {
            let event = SessionSeen { reason: failure.reason, failed_at: failure.at, by: by.to_owned() };
            out.record(Event::SessionSeen(event));
        }
    }
}

/// Returns the last line with words in it, shortened.
fn last_line(text: &str) -> Option<String> {
    text.lines().rev().map(|line| one_line(line, MAX_LINE)).find(|line| !line.is_empty())
}

/// Returns foreign text on one line, without colours, cursor movements and other control characters.
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

//! Interrupts, and whose `turn/end` comes after one.
//!
//! ```text
//!                interrupt                 the agent ends its turn
//!   turn runs ─────────────► interrupted ─────────────────────────► over
//!                                 │ silence, or its bound
//!                                 └───────────────────────────────► over, unconfirmed: its `turn/end` may still come
//! ```
//!
//! Until an interrupted turn is over, prompts wait: they are for the next turn. A `turn/end` that names a turn ends that turn or
//! none. One that names none may confirm an interrupt of an earlier turn: it does if the agent has said nothing else
//! since the prompt that began this turn, and at most once per interrupt.

use intercom_types::event::Interrupted;
use serde::{Deserialize, Serialize};

use super::{CommandRefusal, EffectSink, LifeStage, OutboundKind, SessionState};
use intercom_types::{AgentCommand, AgentMessage, Event, Json, StopMode, Time, TurnId};

/// Why something of a cancelled turn is withdrawn.
pub(super) const CANCELLED: &str = "the turn was cancelled";
/// Why an interrupted turn ended.
pub(super) const INTERRUPTED: &str = "interrupted";
/// An agent that talks on after an interrupt has this many times the silence that is waited for.
const LONGEST: u32 = 6;

/// The interrupts that an agent without turn ids may still confirm. Part of the session's snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PendingInterrupts {
    /// Interrupts of the turn that runs.
    current: u32,
    /// Interrupts of turns that are over, and of no turn.
    unconfirmed: u32,
    /// The agent has said something since the prompt that began the turn.
    #[serde(rename = "heard")]
    heard_since_prompt: bool,
    /// The turn that was interrupted ends at this time, however much the agent says.
    latest: Option<Time>,
}

impl PendingInterrupts {
    pub(super) fn turn_began(&mut self, by_prompt: bool) {
        self.heard_since_prompt = !by_prompt;
    }

    pub(super) fn turn_over(&mut self) {
        self.unconfirmed = self.unconfirmed.saturating_add(std::mem::take(&mut self.current));
        self.latest = None;
    }
}

impl SessionState {
    /// Open requests stay open; only the agent's exit withdraws them. Where the protocol cancels the requests of a cancelled
    /// turn, they are withdrawn.
    pub(super) fn interrupt(
        &mut self,
        reason: String,
        by: &str,
        out: &mut EffectSink<'_, '_>,
    ) -> Result<(), CommandRefusal> {
        self.running()?;
        out.record(Event::Interrupted(Interrupted { reason: reason.clone(), by: by.to_owned() }));
        self.cancel_turn(reason, out);
        Ok(())
    }

    pub(super) fn cancel_turn(&mut self, reason: String, out: &mut EffectSink<'_, '_>) {
        self.send(AgentCommand::Interrupt { reason }, OutboundKind::Interrupt, out);
        if self.agent_owns_turns() {
            self.cancel_open(CANCELLED, out);
        }
        if self.turns.turn.is_none() {
            self.turns.interrupts.unconfirmed = self.turns.interrupts.unconfirmed.saturating_add(1);
            return;
        }
        self.turns.interrupts.current = self.turns.interrupts.current.saturating_add(1);
        if self.turns.cancel_deadline.is_none() {
            self.await_end(out);
        }
    }

    /// The agent never got an interrupt: nothing of it is to be confirmed, and its turn goes on.
    pub(super) fn interrupt_undelivered(&mut self) {
        if self.turns.interrupts.current == 0 {
            self.turns.interrupts.unconfirmed = self.turns.interrupts.unconfirmed.saturating_sub(1);
            return;
        }
        self.turns.interrupts.current -= 1;
        if self.turns.interrupts.current == 0 && !self.agent_owns_turns() {
            (self.turns.cancel_deadline, self.turns.interrupts.latest) = (None, None);
        }
    }

    /// The time for the agent to end its interrupted turn begins.
    pub(super) fn await_end(&mut self, out: &EffectSink<'_, '_>) {
        let quiet = out.watch_policy().interrupt_quiet;
        self.turns.cancel_deadline = Some(out.now().plus(quiet));
        self.turns.interrupts.latest = Some(out.now().plus(quiet.saturating_mul(LONGEST)));
    }

    /// Requests that an agent makes in a cancelled turn are withdrawn, where its protocol says so.
    pub(super) fn withdraws(&self) -> bool {
        self.agent_owns_turns() && self.turns.cancel_deadline.is_some()
    }

    /// Tells whether prompts wait: for the turn after this one, or for a log-in.
    pub(super) fn holds_prompts(&self) -> bool {
        let in_turn =
            self.turns.turn.is_some() && (self.agent_owns_turns() || self.turns.cancel_deadline.is_some());
        in_turn || self.failures.awaits_log_in
    }

    /// The agent said something. Heartbeats do not show that it winds down.
    pub(super) fn not_quiet(&mut self, message: Option<&AgentMessage>, out: &EffectSink<'_, '_>) {
        if matches!(message, Some(AgentMessage::TurnEnd { .. })) {
            return;
        }
        if !self.turns.interrupts.heard_since_prompt {
            self.turns.mut_unchanged().interrupts.heard_since_prompt = true;
            // Only then does it matter whether the agent has said something.
            let matters = self.turns.interrupts.unconfirmed > 0;
            self.turns.touch_if(matters);
        }
        if matches!(message, Some(AgentMessage::Heartbeat { .. })) {
            return;
        }
        if let (Some(_), Some(latest)) = (self.turns.cancel_deadline, self.turns.interrupts.latest) {
            self.turns.cancel_deadline = Some(out.now().plus(out.watch_policy().interrupt_quiet).min(latest));
        }
    }

    /// Takes a `turn/end` that belongs to another turn than the one that runs: it ends nothing.
    pub(super) fn takes_late_end(&mut self, named: Option<TurnId>) -> bool {
        if self.agent_owns_turns() {
            return false; // its driver knows which prompt was answered
        }
        let running = self.turns.turn.as_ref().map(|turn| turn.id);
        let late = match (named, running) {
            (Some(named), running) => running != Some(named),
            (None, Some(_)) => {
                self.turns.interrupts.unconfirmed > 0 && !self.turns.interrupts.heard_since_prompt
            }
            (None, None) => self.turns.interrupts.unconfirmed > 0,
        };
        if late {
            self.turns.interrupts.unconfirmed = self.turns.interrupts.unconfirmed.saturating_sub(1);
        }
        late
    }

    /// The agent is done with everything that it meant to do.
    pub(super) fn complete_turn(&mut self, out: &mut EffectSink<'_, '_>) {
        let stop_reason = if self.turns.cancel_deadline.is_some() { INTERRUPTED } else { "completed" };
        self.judge_turn(stop_reason, false, out.now());
        self.end_turn(stop_reason, out);
        self.flush_prompts(out);
    }

    /// The agent says that the turn that runs is over.
    pub(super) fn agent_ends_turn(
        &mut self,
        stop_reason: &str,
        params: Json,
        failed: bool,
        out: &mut EffectSink<'_, '_>,
    ) {
        match (self.confirms(), self.agent_owns_turns()) {
            (true, false) => self.end_turn_as_told(INTERRUPTED, params, false, out),
            // An error is how some agents say that they have stopped.
            (true, true) if failed => self.end_turn_as_told("cancelled", params, false, out),
            _ => self.end_turn_as_told(stop_reason, params, failed, out),
        }
        if self.agent_owns_turns() {
            self.cancel_open("its turn ended before it was decided", out);
        }
        self.flush_prompts(out);
    }

    /// Returns true if the end of the turn that runs confirms an interrupt, and updates the counts.
    fn confirms(&mut self) -> bool {
        let stopping = matches!(self.life.stage, LifeStage::Stopping { mode: StopMode::Stop, .. });
        let confirms = self.turns.cancel_deadline.is_some() || (stopping && !self.agent_owns_turns());
        if confirms {
            self.turns.interrupts.current = self.turns.interrupts.current.saturating_sub(1);
        } else {
            // It has gone on to the next turn: what it has not confirmed by now, it never does.
            self.turns.interrupts.unconfirmed = 0;
        }
        confirms
    }

    /// An interrupted turn that the agent does not end has ended after a silence.
    pub(super) fn end_if_quiet(&mut self, out: &mut EffectSink<'_, '_>) {
        if self.turns.cancel_deadline.is_none_or(|by| by > out.now()) {
            return;
        }
        let reason = if self.agent_owns_turns() {
            // Its answer to this prompt is too late.
            self.send(AgentCommand::AbandonTurn, OutboundKind::Other, out);
            "cancelled, and never confirmed"
        } else {
            INTERRUPTED
        };
        self.end_turn_unconfirmed(reason, out);
        self.flush_prompts(out);
    }
}

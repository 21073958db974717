//! Interrupts, and the turn to which a following `turn/end` belongs.
//!
//! ```text
//!                interrupt                 the agent ends its turn
//!   turn runs ─────────────► interrupted ─────────────────────────► over
//!   turn runs ─────────────► interrupted ─────────────────────────► over
//!                                 │ silence, or the longest wait
//! ```
//!
//! Until an interrupted turn is over, prompts wait: they are for the next turn. A `turn/end` that names a turn ends
//! that turn or none. One without a turn may confirm an interrupt of an earlier turn: it does if the agent has sent
//! nothing else since the prompt that began this turn, and at most once per interrupt.

use intercom_types::event::Interrupted;
use serde::{Deserialize, Serialize};

use super::{CommandRefusal, EffectSink, LifeStage, OutboundKind, SessionState};
use intercom_types::{AgentCommand, AgentMessage, Event, Json, StopMode, Time, TurnId};

/// The reason why requests of a cancelled turn are withdrawn.
pub(super) const CANCELLED: &str = "the turn was cancelled";
/// The stop reason of an interrupted turn.
pub(super) const INTERRUPTED: &str = "interrupted";
/// The longest wait for an interrupted turn, as a multiple of the silence that ends it.
const LONGEST: u32 = 6;

/// The interrupts that an agent without turn ids may still confirm. Part of the session's snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PendingInterrupts {
    /// The number of interrupts of the running turn.
    current: u32,
    /// The number of interrupts of turns that are over, or without a turn.
    unconfirmed: u32,
    /// True if the agent has sent something since the prompt that began the turn.
    #[serde(rename = "heard")]
    heard_since_prompt: bool,
    /// The time at which an interrupted turn ends even if the agent is not silent.
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
    /// Interrupts the turn. Open requests stay open, because only the agent's exit withdraws them; where the protocol
    /// cancels the requests of a cancelled turn, they are withdrawn.
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

    /// Takes back an interrupt that never reached the agent: there is nothing to confirm, and the turn continues.
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

    /// Starts the time in which the agent may end its interrupted turn.
    pub(super) fn await_end(&mut self, out: &EffectSink<'_, '_>) {
        let quiet = out.watch_policy().interrupt_quiet;
        self.turns.cancel_deadline = Some(out.now().plus(quiet));
        self.turns.interrupts.latest = Some(out.now().plus(quiet.saturating_mul(LONGEST)));
    }

    /// Returns true if requests of the running turn are withdrawn: it was cancelled, and the protocol cancels its
    /// requests.
    pub(super) fn withdraws(&self) -> bool {
        self.agent_owns_turns() && self.turns.cancel_deadline.is_some()
    }

    /// Returns true if prompts wait, for the next turn or for a log-in.
    pub(super) fn holds_prompts(&self) -> bool {
        let in_turn =
            self.turns.turn.is_some() && (self.agent_owns_turns() || self.turns.cancel_deadline.is_some());
        in_turn || self.failures.awaits_log_in
    }

    /// Records a message of the agent. A heartbeat does not extend the wait for the end of an interrupted turn.
    pub(super) fn not_quiet(&mut self, message: Option<&AgentMessage>, out: &EffectSink<'_, '_>) {
        if matches!(message, Some(AgentMessage::TurnEnd { .. })) {
            return;
        }
        if !self.turns.interrupts.heard_since_prompt {
            self.turns.mut_unchanged().interrupts.heard_since_prompt = true;
            // Worth a snapshot only if an interrupt is not confirmed: nothing else depends on it.
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

    /// Handles a `turn/end` of another turn than the running one, which ends nothing. Returns true if it was one.
    pub(super) fn takes_late_end(&mut self, named: Option<TurnId>) -> bool {
        if self.agent_owns_turns() {
            return false; // the driver matches answers with prompts
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

    /// Completes a turn that the agent has finished.
    pub(super) fn complete_turn(&mut self, out: &mut EffectSink<'_, '_>) {
        let stop_reason = if self.turns.cancel_deadline.is_some() { INTERRUPTED } else { "completed" };
        self.judge_turn(stop_reason, false, out.now());
        self.end_turn(stop_reason, out);
        self.flush_prompts(out);
    }

    /// Ends the running turn on the agent's message.
    pub(super) fn agent_ends_turn(
        &mut self,
        stop_reason: &str,
        params: Json,
        failed: bool,
        out: &mut EffectSink<'_, '_>,
    ) {
        match (self.confirms(), self.agent_owns_turns()) {
            (true, false) => self.end_turn_as_told(INTERRUPTED, params, false, out),
            // Some agents report a cancellation as an error.
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
            // The agent has moved on to the next turn: it will not confirm older interrupts any more.
            self.turns.interrupts.unconfirmed = 0;
        }
        confirms
    }

    /// Ends an interrupted turn after the silence, if the agent does not end it.
    pub(super) fn end_if_quiet(&mut self, out: &mut EffectSink<'_, '_>) {
        if self.turns.cancel_deadline.is_none_or(|by| by > out.now()) {
            return;
        }
        let reason = if self.agent_owns_turns() {
            // The agent may still answer this prompt; the driver must ignore that.
            self.send(AgentCommand::AbandonTurn, OutboundKind::Other, out);
            "cancelled, and never confirmed"
        } else {
            INTERRUPTED
        };
        self.end_turn_unconfirmed(reason, out);
        self.flush_prompts(out);
    }
}

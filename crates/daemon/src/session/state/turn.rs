//! Turns, and the queue of prompts that wait for them.
//!
//! Invariant: at most one turn runs; a prompt is in the queue until it is sent to the agent, and in no other
//! place.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::interrupt::PendingInterrupts;
use super::{EffectSink, SessionState};
use intercom_types::event::{TurnEnded, TurnStarted};
use intercom_types::{Content, Event, Json, PromptId, Time, Turn, TurnId};

/// The running turn, and the queue.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TurnState {
    pub(super) turn: Option<Turn>,
    /// The time at which an interrupted turn counts as over, if the agent does not end it.
    #[serde(rename = "cancelled_by")]
    pub(super) cancel_deadline: Option<Time>,
    pub(super) interrupts: PendingInterrupts,
    /// True once the agent has sent a usable message in this generation.
    #[serde(rename = "spoke")]
    pub(super) has_spoken: bool,
    pub(super) queue: VecDeque<QueuedPrompt>,
    /// The last prompt, until the agent has finished it.
    pub(super) unfinished: Option<PromptId>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct QueuedPrompt {
    pub(super) id: PromptId,
    pub(super) text: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) content: Option<Content>,
    /// True if the prompt is not from a person.
    #[serde(default, rename = "ours")]
    pub(super) by_daemon: bool,
}

impl SessionState {
    pub(super) fn begin_turn(&mut self, cause: &str, out: &mut EffectSink<'_, '_>) {
        if self.turns.turn.is_some() {
            return;
        }
        let turn = Turn { id: TurnId::from_seed(out.seed()), started_at: out.now() };
        out.record(Event::TurnStarted(TurnStarted { turn: turn.id, cause: cause.to_owned() }));
        self.turns.turn = Some(turn);
        self.turns.interrupts.turn_began(cause == "prompt");
    }

    pub(super) fn end_turn(&mut self, stop_reason: &str, out: &mut EffectSink<'_, '_>) {
        self.end_turn_with(stop_reason, true, out);
    }

    /// Ends the turn without the agent's confirmation.
    pub(super) fn end_turn_unconfirmed(&mut self, stop_reason: &str, out: &mut EffectSink<'_, '_>) {
        self.end_turn_with(stop_reason, false, out);
    }

    fn end_turn_with(&mut self, stop_reason: &str, confirmed: bool, out: &mut EffectSink<'_, '_>) {
        let Some(turn) = self.turns.turn.take() else { return };
        self.turn_over();
        out.record(Event::TurnEnded(TurnEnded {
            turn: Some(turn.id),
            stop_reason: stop_reason.to_owned(),
            params: None,
            failed: false,
            confirmed: (!confirmed).then_some(false),
        }));
    }

    /// Ends the turn on the agent's own message, which is recorded whole.
    pub(super) fn end_turn_as_told(
        &mut self,
        stop_reason: &str,
        params: Json,
        failed: bool,
        out: &mut EffectSink<'_, '_>,
    ) {
        let turn = self.turns.turn.take().map(|turn| turn.id);
        self.judge_turn(stop_reason, failed, out.now());
        self.turn_over();
        let (stop_reason, params) = (stop_reason.to_owned(), Some(params));
        out.record(Event::TurnEnded(TurnEnded { turn, stop_reason, params, failed, confirmed: None }));
        self.keep_unserved(out);
    }
}

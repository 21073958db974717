//! Turns begin and end, and prompts wait for them.
//!
//! What must stay true: at most one turn runs; a prompt is in the queue until it leaves for the agent, and in no other place.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::interrupt::PendingInterrupts;
use super::{EffectSink, SessionState};
use intercom_types::event::{TurnEnded, TurnStarted};
use intercom_types::{Content, Event, Json, PromptId, Time, Turn, TurnId};

/// The turn that runs, and what is to be done next.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TurnState {
    pub(super) turn: Option<Turn>,
    /// When a turn that was interrupted counts as over, if the agent does not end it.
    #[serde(rename = "cancelled_by")]
    pub(super) cancel_deadline: Option<Time>,
    pub(super) interrupts: PendingInterrupts,
    /// True once the agent has said something usable in this generation.
    #[serde(rename = "spoke")]
    pub(super) has_spoken: bool,
    pub(super) queue: VecDeque<QueuedPrompt>,
    /// The last prompt, while the agent has not finished it.
    pub(super) unfinished: Option<PromptId>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct QueuedPrompt {
    pub(super) id: PromptId,
    pub(super) text: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) content: Option<Content>,
    /// Not of a person.
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

    /// The agent has not said that it let go of it.
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

    /// The agent says so itself: kept whole.
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

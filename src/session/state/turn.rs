//! Turns begin and end.

use super::{Out, State};
use crate::domain::event::{TurnEnded, TurnStarted};
use crate::domain::{Event, Json, Turn, TurnId};

impl State {
    pub(super) fn begin_turn(&mut self, cause: &str, out: &mut Out<'_, '_>) {
        if self.turn.is_some() {
            return;
        }
        let turn = Turn { id: TurnId::from_seed(out.seed()), started_at: out.now() };
        out.record(Event::TurnStarted(TurnStarted { turn: turn.id, cause: cause.to_owned() }));
        self.turn = Some(turn);
        self.interrupts.turn_began(cause == "prompt");
        self.dirty = true;
    }

    pub(super) fn end_turn(&mut self, stop_reason: &str, out: &mut Out<'_, '_>) {
        self.end_turn_with(stop_reason, true, out);
    }

    /// The agent has not said that it let go of it.
    pub(super) fn end_turn_unconfirmed(&mut self, stop_reason: &str, out: &mut Out<'_, '_>) {
        self.end_turn_with(stop_reason, false, out);
    }

    fn end_turn_with(&mut self, stop_reason: &str, confirmed: bool, out: &mut Out<'_, '_>) {
        let Some(turn) = self.turn.take() else { return };
        self.turn_over();
        out.record(Event::TurnEnded(TurnEnded {
            turn: Some(turn.id),
            stop_reason: stop_reason.to_owned(),
            params: None,
            failed: false,
            confirmed: (!confirmed).then_some(false),
        }));
        self.dirty = true;
    }

    /// The agent says so itself: kept whole.
    pub(super) fn end_turn_as_told(
        &mut self,
        stop_reason: &str,
        params: Json,
        failed: bool,
        out: &mut Out<'_, '_>,
    ) {
        let turn = self.turn.take().map(|turn| turn.id);
        self.judge_turn(stop_reason, failed, out.now());
        self.turn_over();
        let (stop_reason, params) = (stop_reason.to_owned(), Some(params));
        out.record(Event::TurnEnded(TurnEnded { turn, stop_reason, params, failed, confirmed: None }));
        self.keep_unserved(out);
        self.dirty |= turn.is_some();
    }
}

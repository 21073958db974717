//! Turns begin and end.

use serde::Serialize;
use serde_json::json;

use super::{Out, State};
use crate::domain::{Json, Kind, Turn, TurnId};

impl State {
    pub(super) fn begin_turn(&mut self, cause: &str, out: &mut Out<'_, '_>) {
        if self.turn.is_some() {
            return;
        }
        let turn = Turn { id: TurnId::from_seed(out.seed()), started_at: out.now() };
        out.record(Kind::TurnStarted, Json::of(&json!({ "turn": turn.id, "cause": cause })));
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
        let mut data = json!({ "turn": turn.id, "stop_reason": stop_reason });
        if !confirmed {
            data["confirmed"] = false.into();
        }
        out.record(Kind::TurnEnded, Json::of(&data));
        self.dirty = true;
    }

    /// The agent says so itself: kept whole.
    pub(super) fn end_turn_as_told(
        &mut self,
        stop_reason: &str,
        params: &Json,
        failed: bool,
        out: &mut Out<'_, '_>,
    ) {
        #[derive(Serialize)]
        struct Ended<'a> {
            turn: Option<TurnId>,
            stop_reason: &'a str,
            params: &'a Json,
            #[serde(skip_serializing_if = "std::ops::Not::not")]
            failed: bool,
        }
        let turn = self.turn.take().map(|turn| turn.id);
        self.judge_turn(stop_reason, failed, out.now());
        self.turn_over();
        out.record(Kind::TurnEnded, Json::of(&Ended { turn, stop_reason, params, failed }));
        self.keep_unserved(out);
        self.dirty |= turn.is_some();
    }
}

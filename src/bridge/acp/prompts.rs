//! Which of a client's prompts is answered by which end of a turn. Pure: events in, answers out.
//!
//! ```text
//!   waiting ── prompt.sending ──► in a turn ── turn.ended ──► answered
//!      │ withdrawn, undelivered, the end of the session          ▲
//!      └─────────────────────────────────────────────────────────┘
//! ```

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::json;

use super::refusal::Refusal;
use crate::domain::{Json, LoggedEvent, RequestId, Time};

/// What a prompt's request is answered with.
pub(super) type Outcome = Result<Json, Refusal>;

#[derive(Debug, Default)]
pub(super) struct Prompts {
    /// In the queue, or on its way there. A prompt may be waited for by several requests: it was sent again.
    waiting: Vec<(String, Waits)>,
    /// By turn.
    turns: BTreeMap<String, Vec<(String, Waits)>>,
    /// Somebody has told the session to stop.
    stopping: bool,
    /// How its last process ended.
    exit: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Waits {
    request: RequestId,
    since: Time,
    until: Option<Time>,
}

impl Waits {
    fn answered(self, outcome: &Outcome, now: Time) -> Answered {
        let millis = u64::try_from(now.since(self.since).as_millis()).unwrap_or(u64::MAX);
        Answered { request: self.request, outcome: outcome.clone(), millis }
    }
}

/// One that is over.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answered {
    pub(super) request: RequestId,
    pub(super) outcome: Outcome,
    /// How long it took.
    pub(super) millis: u64,
}

impl Answered {
    pub(super) fn at_once(request: RequestId, refusal: Refusal) -> Self {
        Self { request, outcome: Err(refusal), millis: 0 }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Data {
    prompt: String,
    turn: Option<String>,
    cause: Option<String>,
    reason: Option<String>,
    stop_reason: String,
    params: Option<Json>,
    failed: bool,
    code: Option<i64>,
    signal: Option<i64>,
    by: Option<String>,
    why: Option<String>,
}

impl Prompts {
    pub(super) fn wait(&mut self, prompt: String, request: RequestId, since: Time, until: Option<Time>) {
        self.waiting.push((prompt, Waits { request, since, until }));
    }

    /// Whether it is one of this client's.
    pub(super) fn has(&self, prompt: &str) -> bool {
        self.waiting.iter().chain(self.turns.values().flatten()).any(|(known, _)| known == prompt)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.turns.is_empty()
    }

    /// Those that have not left the queue, as far as we have heard.
    pub(super) fn queued(&self) -> Vec<String> {
        self.waiting.iter().map(|(prompt, _)| prompt.clone()).collect()
    }

    /// Which prompt this request is about.
    pub(super) fn of(&self, request: &RequestId) -> Option<String> {
        let mut all = self.waiting.iter().chain(self.turns.values().flatten());
        all.find(|(_, waits)| waits.request == *request).map(|(prompt, _)| prompt.clone())
    }

    /// When the first of them has waited long enough.
    pub(super) fn deadline(&self) -> Option<Time> {
        let all = self.waiting.iter().chain(self.turns.values().flatten());
        all.filter_map(|(_, waits)| waits.until).min()
    }

    /// Those that have. Their agent goes on.
    pub(super) fn expire(&mut self, now: Time) -> Vec<Answered> {
        let due = |(_, waits): &mut (String, Waits)| waits.until.is_some_and(|until| until <= now);
        let late = Err(Refusal::internal("the turn did not end in time; the agent goes on with it"));
        self.extract(due, &late, now)
    }

    pub(super) fn absorb(&mut self, other: Self) {
        self.waiting.extend(other.waiting);
        for (turn, sent) in other.turns {
            self.turns.entry(turn).or_default().extend(sent);
        }
    }

    pub(super) fn hear(&mut self, event: &LoggedEvent) -> Vec<Answered> {
        if event.kind == "session.stopping" {
            // What we stop ourselves has failed; what somebody stops is cancelled.
            let data = serde_json::from_str::<Data>(event.data.as_str()).unwrap_or_default();
            self.stopping = data.by.as_deref() != Some("intercom");
        }
        if event.kind == "agent.spawned" {
            (self.stopping, self.exit) = (false, None);
        }
        if self.is_empty() && event.kind != "agent.exited" {
            return Vec::new();
        }
        let data = || serde_json::from_str::<Data>(event.data.as_str()).unwrap_or_default();
        match event.kind.as_str() {
            "prompt.sending" => {
                let Data { prompt, turn, .. } = data();
                let sent: Vec<_> = self.waiting.extract_if(.., |(known, _)| *known == prompt).collect();
                if !sent.is_empty() {
                    self.turns.entry(turn.unwrap_or_default()).or_default().extend(sent);
                }
                Vec::new()
            }
            "agent.exited" => {
                self.exit = match data() {
                    Data { why: Some(why), .. } => Some(why),
                    Data { code: Some(code), .. } => Some(format!("exit code {code}")),
                    Data { signal: Some(signal), .. } => Some(format!("signal {signal}")),
                    _ => None,
                };
                Vec::new()
            }
            "turn.ended" => {
                let data = data();
                let ended = data.turn.as_ref().and_then(|turn| self.turns.remove(turn)).unwrap_or_default();
                let outcome = outcome(&data, self.stopping, self.exit.as_deref());
                ended.into_iter().map(|(_, waits)| waits.answered(&outcome, event.at)).collect()
            }
            "prompt.withdrawn" => self.over(&data().prompt, &cancelled(), event.at),
            "prompt.undelivered" => {
                let Data { prompt, cause, .. } = data();
                let cause = cause.unwrap_or_else(|| "its agent has gone".to_owned());
                let lost = Refusal::internal(format!("the prompt did not reach the agent: {cause}"));
                let outcome = if self.stopping { cancelled() } else { Err(lost) };
                self.over(&prompt, &outcome, event.at)
            }
            "session.ended" | "session.parked" => {
                let reason = self.exit.clone().or(data().reason).unwrap_or_else(|| "it ended".to_owned());
                let gone = Refusal::internal(format!("the session has ended: {reason}"));
                self.all(&if self.stopping { cancelled() } else { Err(gone) }, event.at)
            }
            _ => Vec::new(),
        }
    }

    fn over(&mut self, prompt: &str, outcome: &Outcome, now: Time) -> Vec<Answered> {
        self.extract(|(known, _)| known == prompt, outcome, now)
    }

    fn extract(
        &mut self,
        is_over: impl Fn(&mut (String, Waits)) -> bool,
        outcome: &Outcome,
        now: Time,
    ) -> Vec<Answered> {
        let mut gone: Vec<_> = self.waiting.extract_if(.., &is_over).collect();
        for sent in self.turns.values_mut() {
            gone.extend(sent.extract_if(.., &is_over));
        }
        self.turns.retain(|_, sent| !sent.is_empty());
        gone.into_iter().map(|(_, waits)| waits.answered(outcome, now)).collect()
    }

    /// All that is left.
    pub(super) fn all(&mut self, outcome: &Outcome, now: Time) -> Vec<Answered> {
        self.extract(|_| true, outcome, now)
    }
}

#[expect(clippy::unnecessary_wraps, reason = "it stands beside outcomes that fail")]
pub(super) fn cancelled() -> Outcome {
    Ok(Json::of(&json!({ "stopReason": "cancelled" })))
}

/// What the end of a turn means to whoever asked for it.
fn outcome(data: &Data, stopping: bool, exit: Option<&str>) -> Outcome {
    let stopped = |reason: &str| Ok(Json::of(&json!({ "stopReason": reason })));
    match (&data.params, data.stop_reason.as_str()) {
        (Some(_), "cancelled") if data.failed => cancelled(),
        // Our own protocol has an error in its reason.
        (Some(params), reason) if data.failed && reason.starts_with("error") && !is_error(params) => {
            Err(Refusal::internal(format!("the turn ended with {reason}")))
        }
        (Some(error), _) if data.failed => Err(Refusal::of_agent(error)),
        // What an agent that speaks the protocol answered, all of it.
        (Some(params), _) if params.as_str().contains("\"stopReason\"") => Ok(params.clone()),
        (_, "exited") if stopping => cancelled(),
        (_, "exited") => {
            let exit = exit.map(|exit| format!(": {exit}")).unwrap_or_default();
            Err(Refusal::internal(format!("the agent ended before its turn did{exit}")))
        }
        (_, reason) if reason.starts_with("interrupted") || reason.starts_with("cancelled") => cancelled(),
        (_, known @ ("max_tokens" | "max_turn_requests" | "refusal")) => stopped(known),
        _ => stopped("end_turn"),
    }
}

/// Whether an agent answered with an error of JSON-RPC.
fn is_error(params: &Json) -> bool {
    #[derive(Deserialize)]
    struct Coded {
        #[serde(rename = "code")]
        _code: i64,
    }
    serde_json::from_str::<Coded>(params.as_str()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::SessionId;
    use proptest::prelude::*;

    fn event(kind: &str, data: &serde_json::Value) -> LoggedEvent {
        let at = Time::from_millis(0);
        LoggedEvent { seq: 1, session: SessionId::mint(), at, kind: kind.to_owned(), data: Json::of(data) }
    }

    fn answers(answered: &[Answered]) -> Vec<String> {
        let outcome = |outcome: &Outcome| match outcome {
            Ok(result) => result.as_str().to_owned(),
            Err(refusal) => format!("{} {refusal:?}", refusal.code),
        };
        answered.iter().map(|one| format!("{} {}", one.request, outcome(&one.outcome))).collect()
    }

    #[test]
    fn a_prompt_is_answered_when_its_own_turn_ends() {
        let mut prompts = Prompts::default();
        prompts.wait("p1".to_owned(), RequestId::number(1), Time::from_millis(0), None);
        prompts.wait("p2".to_owned(), RequestId::number(2), Time::from_millis(0), None);
        prompts.hear(&event("prompt.sending", &json!({ "prompt": "p1", "turn": "t1" })));
        assert!(prompts.hear(&event("turn.ended", &json!({ "turn": "t0", "stop_reason": "x" }))).is_empty());
        let params = json!({ "stopReason": "end_turn", "usage": { "total": 7 } });
        let ended = json!({ "turn": "t1", "stop_reason": "end_turn", "params": params });
        let first = answers(&prompts.hear(&event("turn.ended", &ended)));
        assert_eq!(first, [format!("1 {params}")]);
        prompts.hear(&event("prompt.sending", &json!({ "prompt": "p2", "turn": "t2" })));
        let ended = json!({ "turn": "t2", "stop_reason": "interrupted" });
        assert_eq!(answers(&prompts.hear(&event("turn.ended", &ended))), [r#"2 {"stopReason":"cancelled"}"#]);
        assert!(prompts.is_empty());
    }

    #[test]
    fn the_death_of_an_agent_is_an_error_and_its_stop_a_cancel() {
        for (stopping, expected) in [(false, "-32603"), (true, r#"{"stopReason":"cancelled"}"#)] {
            let mut prompts = Prompts::default();
            prompts.wait("p1".to_owned(), RequestId::number(1), Time::from_millis(0), None);
            prompts.wait("p2".to_owned(), RequestId::number(2), Time::from_millis(0), None);
            prompts.hear(&event("prompt.sending", &json!({ "prompt": "p1", "turn": "t1" })));
            if stopping {
                prompts.hear(&event("session.stopping", &json!({})));
            }
            prompts.hear(&event("agent.exited", &json!({ "code": 3 })));
            let exited = json!({ "turn": "t1", "stop_reason": "exited" });
            let mut all = answers(&prompts.hear(&event("turn.ended", &exited)));
            all.extend(answers(&prompts.hear(&event("session.ended", &json!({ "reason": "exited" })))));
            assert_eq!(all.len(), 2);
            assert!(all.iter().all(|one| one.contains(expected)), "{all:?}");
            assert_eq!(all[0].contains("exit code 3"), !stopping, "{all:?}");
        }
    }

    #[test]
    fn that_an_agent_cannot_be_worked_with_or_is_stuck_is_an_error() {
        for stopping in [
            json!({ "by": "intercom", "why": "it speaks version 9" }),
            json!({ "by": "intercom", "again": true }),
        ] {
            let mut prompts = Prompts::default();
            prompts.wait("p1".to_owned(), RequestId::number(1), Time::from_millis(0), None);
            prompts.hear(&event("session.stopping", &stopping));
            let lost = json!({ "prompt": "p1", "cause": "it speaks version 9" });
            let all = answers(&prompts.hear(&event("prompt.undelivered", &lost)));
            assert!(all[0].starts_with("1 -32603") && all[0].contains("version 9"), "{all:?}");
        }
    }

    #[test]
    fn a_prompt_that_was_sent_again_answers_each_request_for_it() {
        for sent in [false, true] {
            let mut prompts = Prompts::default();
            prompts.wait("p1".to_owned(), RequestId::number(1), Time::from_millis(0), None);
            let mut again = Prompts::default();
            again.wait("p1".to_owned(), RequestId::number(2), Time::from_millis(0), None);
            let sending = event("prompt.sending", &json!({ "prompt": "p1", "turn": "t1" }));
            if sent {
                prompts.hear(&sending);
                again.hear(&sending);
            }
            prompts.absorb(again);
            prompts.hear(&sending);
            let ended = event("turn.ended", &json!({ "turn": "t1", "stop_reason": "end_turn" }));
            assert_eq!(answers(&prompts.hear(&ended)).len(), 2);
            assert!(prompts.is_empty());
        }
    }

    #[test]
    fn an_agents_own_error_is_passed_on() {
        let mut prompts = Prompts::default();
        prompts.wait("p1".to_owned(), RequestId::number(1), Time::from_millis(0), None);
        prompts.hear(&event("prompt.sending", &json!({ "prompt": "p1", "turn": "t1" })));
        let error = json!({ "code": -32000, "message": "log in", "data": { "x": 1 } });
        let ended = json!({ "turn": "t1", "stop_reason": "error: log in", "params": error, "failed": true });
        let Err(refusal) = &prompts.hear(&event("turn.ended", &ended))[0].outcome else { panic!() };
        assert_eq!(refusal, &Refusal::new(-32000, "log in").with(&json!({ "x": 1 })));
    }

    #[test]
    fn what_takes_too_long_is_told_and_not_told_again() {
        let mut prompts = Prompts::default();
        prompts.wait(
            "p1".to_owned(),
            RequestId::number(1),
            Time::from_millis(0),
            Some(Time::from_millis(10)),
        );
        prompts.wait(
            "p2".to_owned(),
            RequestId::number(2),
            Time::from_millis(0),
            Some(Time::from_millis(20)),
        );
        prompts.hear(&event("prompt.sending", &json!({ "prompt": "p1", "turn": "t1" })));
        assert_eq!(prompts.deadline(), Some(Time::from_millis(10)));
        assert_eq!(prompts.expire(Time::from_millis(10)).len(), 1);
        let ended = json!({ "turn": "t1", "stop_reason": "end_turn" });
        assert!(prompts.hear(&event("turn.ended", &ended)).is_empty());
        assert_eq!(prompts.deadline(), Some(Time::from_millis(20)));
    }

    proptest! {
        /// Whatever happens in whatever order, a request is answered once, and by the end of the session at the latest.
        #[test]
        fn each_is_answered_exactly_once(steps in prop::collection::vec((0_u8..8, 0_u8..4), 0..60)) {
            let mut prompts = Prompts::default();
            let (mut asked, mut answered) = (0_u64, Vec::new());
            for (what, n) in steps {
                let (prompt, turn) = (format!("p{n}"), format!("t{}", n % 2));
                let heard = match what {
                    0 | 1 => {
                        asked += 1;
                        prompts.wait(prompt, RequestId::number(asked), Time::from_millis(0), None);
                        Vec::new()
                    }
                    2 | 3 => prompts.hear(&event("prompt.sending", &json!({ "prompt": prompt, "turn": turn }))),
                    4 => prompts.hear(&event("turn.ended", &json!({ "turn": turn, "stop_reason": "x" }))),
                    5 => prompts.hear(&event("prompt.withdrawn", &json!({ "prompt": prompt }))),
                    6 => prompts.hear(&event("prompt.undelivered", &json!({ "prompt": prompt }))),
                    _ => prompts.hear(&event("session.stopping", &json!({}))),
                };
                answered.extend(heard);
            }
            answered.extend(prompts.hear(&event("session.ended", &json!({}))));
            let mut ids: Vec<String> = answered.iter().map(|one| one.request.to_string()).collect();
            ids.sort();
            ids.dedup();
            prop_assert_eq!(ids.len(), answered.len());
            prop_assert_eq!(u64::try_from(answered.len()).unwrap(), asked);
            prop_assert!(prompts.is_empty());
        }
    }
}

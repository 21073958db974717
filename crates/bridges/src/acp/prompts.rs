//! The pairing of a client's prompts with the turns that answer them. Pure: events in, answers out.
//!
//! ```text
//!   waiting ── prompt.sending ──► in a turn ── turn.ended ──► answered
//!      │ withdrawn, undelivered, the end of the session          ▲
//!      └─────────────────────────────────────────────────────────┘
//! ```

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::json;

use super::refusal::RpcRefusal;
use intercom_types::event::{AgentExited, TurnEnded};
use intercom_types::{Event, EventKind, Json, LoggedEvent, PromptId, RequestId, Time, TurnId};

/// The answer to a prompt's request.
pub(super) type PromptOutcome = Result<Json, RpcRefusal>;

#[derive(Debug, Default)]
pub(super) struct PromptTracker {
    /// Prompts in the queue, or on their way there. Several requests may wait for one prompt, because a client sent it
    /// again.
    waiting: Vec<(PromptId, PromptWait)>,
    turns: BTreeMap<TurnId, Vec<(PromptId, PromptWait)>>,
    /// True after somebody asked for the session to stop.
    stopping: bool,
    /// The exit of its last process, for people.
    exit: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct PromptWait {
    request: RequestId,
    since: Time,
    until: Option<Time>,
}

impl PromptWait {
    fn answered(self, outcome: &PromptOutcome, now: Time) -> PromptReply {
        let millis = u64::try_from(now.since(self.since).as_millis()).unwrap_or(u64::MAX);
        PromptReply { request: self.request, outcome: outcome.clone(), millis }
    }
}

/// The answer to one request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PromptReply {
    pub(super) request: RequestId,
    pub(super) outcome: PromptOutcome,
    /// The time from the request to the answer.
    pub(super) millis: u64,
}

impl PromptReply {
    pub(super) fn at_once(request: RequestId, refusal: RpcRefusal) -> Self {
        Self { request, outcome: Err(refusal), millis: 0 }
    }
}

/// The event kinds that decide the outcome of a prompt.
pub(super) const PROMPT_KINDS: &[EventKind] = &[
    EventKind::PromptQueued,
    EventKind::PromptSending,
    EventKind::PromptWithdrawn,
    EventKind::PromptUndelivered,
    EventKind::TurnEnded,
    EventKind::SessionStopping,
    EventKind::SessionEnded,
    EventKind::SessionParked,
    EventKind::AgentSpawned,
    EventKind::AgentExited,
];

impl PromptTracker {
    pub(super) fn wait(&mut self, prompt: PromptId, request: RequestId, since: Time, until: Option<Time>) {
        self.waiting.push((prompt, PromptWait { request, since, until }));
    }

    /// Returns true if the prompt is one of this client's.
    pub(super) fn has(&self, prompt: PromptId) -> bool {
        self.waiting.iter().chain(self.turns.values().flatten()).any(|(known, _)| *known == prompt)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.turns.is_empty()
    }

    /// Returns the prompts that have not left the queue, by the events so far.
    pub(super) fn queued(&self) -> Vec<PromptId> {
        self.waiting.iter().map(|(prompt, _)| *prompt).collect()
    }

    /// Returns the prompt of a request.
    pub(super) fn prompt_of(&self, request: &RequestId) -> Option<PromptId> {
        let mut all = self.waiting.iter().chain(self.turns.values().flatten());
        all.find(|(_, waits)| waits.request == *request).map(|(prompt, _)| *prompt)
    }

    /// Returns the earliest deadline.
    pub(super) fn deadline(&self) -> Option<Time> {
        let all = self.waiting.iter().chain(self.turns.values().flatten());
        all.filter_map(|(_, waits)| waits.until).min()
    }

    /// Answers the prompts whose deadline has passed. Their turns continue.
    pub(super) fn expire(&mut self, now: Time) -> Vec<PromptReply> {
        let due = |(_, waits): &mut (PromptId, PromptWait)| waits.until.is_some_and(|until| until <= now);
        let late = Err(RpcRefusal::internal("the turn did not end in time; the agent continues it"));
        self.extract(due, &late, now)
    }

    pub(super) fn absorb(&mut self, other: Self) {
        self.waiting.extend(other.waiting);
        for (turn, sent) in other.turns {
            self.turns.entry(turn).or_default().extend(sent);
        }
    }

    pub(super) fn apply_event(&mut self, logged: &LoggedEvent) -> Vec<PromptReply> {
        // Most events are messages of the agent, which answer no prompt: skip them unparsed.
        if !logged.known_kind().is_some_and(|kind| PROMPT_KINDS.contains(&kind)) {
            return Vec::new();
        }
        let now = logged.at;
        match logged.event() {
            // A stop by intercom is a failure of the prompt; a stop by a person is a cancellation.
            Event::SessionStopping(stopping) => self.stopping = stopping.by != "intercom",
            Event::AgentSpawned(_) => (self.stopping, self.exit) = (false, None),
            Event::AgentExited(exited) => self.exit = exit_in_words(exited),
            Event::PromptSending(sending) => {
                let sent: Vec<_> =
                    self.waiting.extract_if(.., |(known, _)| *known == sending.prompt).collect();
                // A prompt without a turn is answered when its session ends.
                match sending.turn {
                    Some(turn) if !sent.is_empty() => self.turns.entry(turn).or_default().extend(sent),
                    _ => self.waiting.extend(sent),
                }
            }
            Event::TurnEnded(ended) => {
                let sent = ended.turn.and_then(|turn| self.turns.remove(&turn)).unwrap_or_default();
                let outcome = outcome(&ended, self.stopping, self.exit.as_deref());
                return sent.into_iter().map(|(_, waits)| waits.answered(&outcome, now)).collect();
            }
            Event::PromptWithdrawn(withdrawn) => {
                return self.answer_prompt(withdrawn.prompt, &cancelled(), now);
            }
            Event::PromptUndelivered(undelivered) => {
                let cause = undelivered.cause;
                let lost = RpcRefusal::internal(format!("the prompt did not reach the agent: {cause}"));
                let outcome = if self.stopping { cancelled() } else { Err(lost) };
                return self.answer_prompt(undelivered.prompt, &outcome, now);
            }
            Event::SessionEnded(ended) => return self.session_over(ended.reason, now),
            Event::SessionParked(parked) => return self.session_over(parked.reason, now),
            _ => {}
        }
        Vec::new()
    }

    fn session_over(&mut self, reason: String, now: Time) -> Vec<PromptReply> {
        let reason = self.exit.clone().unwrap_or(reason);
        let gone = RpcRefusal::internal(format!("the session has ended: {reason}"));
        self.all(&if self.stopping { cancelled() } else { Err(gone) }, now)
    }

    fn answer_prompt(&mut self, prompt: PromptId, outcome: &PromptOutcome, now: Time) -> Vec<PromptReply> {
        self.extract(|(known, _)| *known == prompt, outcome, now)
    }

    fn extract(
        &mut self,
        is_over: impl Fn(&mut (PromptId, PromptWait)) -> bool,
        outcome: &PromptOutcome,
        now: Time,
    ) -> Vec<PromptReply> {
        let mut gone: Vec<_> = self.waiting.extract_if(.., &is_over).collect();
        for sent in self.turns.values_mut() {
            gone.extend(sent.extract_if(.., &is_over));
        }
        self.turns.retain(|_, sent| !sent.is_empty());
        gone.into_iter().map(|(_, waits)| waits.answered(outcome, now)).collect()
    }

    /// Answers all remaining prompts.
    pub(super) fn all(&mut self, outcome: &PromptOutcome, now: Time) -> Vec<PromptReply> {
        self.extract(|_| true, outcome, now)
    }
}

#[expect(clippy::unnecessary_wraps, reason = "it stands beside outcomes that fail")]
pub(super) fn cancelled() -> PromptOutcome {
    Ok(Json::of(&json!({ "stopReason": "cancelled" })))
}

fn exit_in_words(exited: AgentExited) -> Option<String> {
    let code = || exited.code.map(|code| format!("exit code {code}"));
    let signal = || exited.signal.map(|signal| format!("signal {signal}"));
    exited.why.or_else(code).or_else(signal)
}

/// Returns the answer to the prompts of a turn.
fn outcome(ended: &TurnEnded, stopping: bool, exit: Option<&str>) -> PromptOutcome {
    let stopped = |reason: &str| Ok(Json::of(&json!({ "stopReason": reason })));
    match (&ended.params, ended.stop_reason.as_str()) {
        (Some(_), "cancelled") if ended.failed => cancelled(),
        // In our own protocol the reason contains the error.
        (Some(params), reason) if ended.failed && reason.starts_with("error") && !is_error(params) => {
            Err(RpcRefusal::internal(format!("the turn ended with {reason}")))
        }
        (Some(error), _) if ended.failed => Err(RpcRefusal::of_agent(error)),
        // The complete answer of an agent that speaks ACP.
        (Some(params), _) if params.as_str().contains("\"stopReason\"") => Ok(params.clone()),
        (_, "exited") if stopping => cancelled(),
        (_, "exited") => {
            let exit = exit.map(|exit| format!(": {exit}")).unwrap_or_default();
            Err(RpcRefusal::internal(format!("the agent exited during its turn{exit}")))
        }
        (_, reason) if reason.starts_with("interrupted") || reason.starts_with("cancelled") => cancelled(),
        (_, known @ ("max_tokens" | "max_turn_requests" | "refusal")) => stopped(known),
        _ => stopped("end_turn"),
    }
}

/// Returns true if an agent answered with a JSON-RPC error.
fn is_error(params: &Json) -> bool {
    #[derive(Deserialize)]
    struct CodedError {
        #[serde(rename = "code")]
        _code: i64,
    }
    serde_json::from_str::<CodedError>(params.as_str()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use intercom_types::samples::sample;
    use proptest::prelude::*;

    fn prompt(n: u8) -> PromptId {
        PromptId::from_seed([n; 10])
    }

    fn turn(n: u8) -> TurnId {
        TurnId::from_seed([n; 10])
    }

    fn sending(prompt_number: u8, turn_number: u8) -> LoggedEvent {
        let fields = json!({ "prompt": prompt(prompt_number), "turn": turn(turn_number) });
        sample(EventKind::PromptSending, &fields)
    }

    fn ended(turn_number: u8, stop_reason: &str) -> LoggedEvent {
        let fields = json!({ "turn": turn(turn_number), "stop_reason": stop_reason });
        sample(EventKind::TurnEnded, &fields)
    }

    fn stopping(by: &str) -> LoggedEvent {
        sample(EventKind::SessionStopping, &json!({ "by": by }))
    }

    fn begun(prompts: &mut PromptTracker, numbers: &[u8]) {
        for n in numbers {
            prompts.wait(prompt(*n), RequestId::number(u64::from(*n)), Time::from_millis(0), None);
        }
    }

    fn answers(answered: &[PromptReply]) -> Vec<String> {
        let outcome = |outcome: &PromptOutcome| match outcome {
            Ok(result) => result.as_str().to_owned(),
            Err(refusal) => format!("{} {refusal:?}", refusal.code),
        };
        answered.iter().map(|one| format!("{} {}", one.request, outcome(&one.outcome))).collect()
    }

    #[test]
    fn a_prompt_is_answered_when_its_own_turn_ends() {
        let mut prompts = PromptTracker::default();
        begun(&mut prompts, &[1, 2]);
        prompts.apply_event(&sending(1, 1));
        assert!(prompts.apply_event(&ended(0, "x")).is_empty());
        let params = json!({ "stopReason": "end_turn", "usage": { "total": 7 } });
        let fields = json!({ "turn": turn(1), "stop_reason": "end_turn", "params": params });
        let first = answers(&prompts.apply_event(&sample(EventKind::TurnEnded, &fields)));
        assert_eq!(first, [format!("1 {params}")]);
        prompts.apply_event(&sending(2, 2));
        let second = answers(&prompts.apply_event(&ended(2, "interrupted")));
        assert_eq!(second, [r#"2 {"stopReason":"cancelled"}"#]);
        assert!(prompts.is_empty());
    }

    #[test]
    fn the_death_of_an_agent_is_an_error_and_its_stop_a_cancel() {
        for (is_stopping, expected) in [(false, "-32603"), (true, r#"{"stopReason":"cancelled"}"#)] {
            let mut prompts = PromptTracker::default();
            begun(&mut prompts, &[1, 2]);
            prompts.apply_event(&sending(1, 1));
            if is_stopping {
                prompts.apply_event(&stopping("ana"));
            }
            prompts.apply_event(&sample(EventKind::AgentExited, &json!({ "code": 3 })));
            let mut all = answers(&prompts.apply_event(&ended(1, "exited")));
            let over = sample(EventKind::SessionEnded, &json!({ "reason": "exited" }));
            all.extend(answers(&prompts.apply_event(&over)));
            assert_eq!(all.len(), 2);
            assert!(all.iter().all(|one| one.contains(expected)), "{all:?}");
            assert_eq!(all[0].contains("exit code 3"), !is_stopping, "{all:?}");
        }
    }

    #[test]
    fn that_an_agent_cannot_be_worked_with_or_is_stuck_is_an_error() {
        for fields in [
            json!({ "by": "intercom", "why": "it speaks version 9" }),
            json!({ "by": "intercom", "again": true }),
        ] {
            let mut prompts = PromptTracker::default();
            begun(&mut prompts, &[1]);
            prompts.apply_event(&sample(EventKind::SessionStopping, &fields));
            let lost = json!({ "prompt": prompt(1), "cause": "it speaks version 9" });
            let all = answers(&prompts.apply_event(&sample(EventKind::PromptUndelivered, &lost)));
            assert!(all[0].starts_with("1 -32603") && all[0].contains("version 9"), "{all:?}");
        }
    }

    #[test]
    fn a_prompt_that_was_sent_again_answers_each_request_for_it() {
        for sent in [false, true] {
            let mut prompts = PromptTracker::default();
            begun(&mut prompts, &[1]);
            let mut again = PromptTracker::default();
            again.wait(prompt(1), RequestId::number(2), Time::from_millis(0), None);
            if sent {
                prompts.apply_event(&sending(1, 1));
                again.apply_event(&sending(1, 1));
            }
            prompts.absorb(again);
            prompts.apply_event(&sending(1, 1));
            assert_eq!(answers(&prompts.apply_event(&ended(1, "end_turn"))).len(), 2);
            assert!(prompts.is_empty());
        }
    }

    #[test]
    fn an_agents_own_error_is_passed_on() {
        let mut prompts = PromptTracker::default();
        begun(&mut prompts, &[1]);
        prompts.apply_event(&sending(1, 1));
        let error = json!({ "code": -32000, "message": "log in", "data": { "x": 1 } });
        let fields =
            json!({ "turn": turn(1), "stop_reason": "error: log in", "params": error, "failed": true });
        let failed = sample(EventKind::TurnEnded, &fields);
        let Err(refusal) = &prompts.apply_event(&failed)[0].outcome else { panic!() };
        assert_eq!(refusal, &RpcRefusal::new(-32000, "log in").with(&json!({ "x": 1 })));
    }

    #[test]
    fn what_takes_too_long_is_told_and_not_told_again() {
        let mut prompts = PromptTracker::default();
        prompts.wait(prompt(1), RequestId::number(1), Time::from_millis(0), Some(Time::from_millis(10)));
        prompts.wait(prompt(2), RequestId::number(2), Time::from_millis(0), Some(Time::from_millis(20)));
        prompts.apply_event(&sending(1, 1));
        assert_eq!(prompts.deadline(), Some(Time::from_millis(10)));
        assert_eq!(prompts.expire(Time::from_millis(10)).len(), 1);
        assert!(prompts.apply_event(&ended(1, "end_turn")).is_empty());
        assert_eq!(prompts.deadline(), Some(Time::from_millis(20)));
    }

    proptest! {
        /// Whatever happens in whatever order, a request is answered once, and by the end of the session at the latest.
        #[test]
        fn each_is_answered_exactly_once(steps in prop::collection::vec((0_u8..8, 0_u8..4), 0..60)) {
            let mut prompts = PromptTracker::default();
            let (mut asked, mut answered) = (0_u64, Vec::new());
            for (what, n) in steps {
                let answers = match what {
                    0 | 1 => {
                        asked += 1;
                        prompts.wait(prompt(n), RequestId::number(asked), Time::from_millis(0), None);
                        Vec::new()
                    }
                    2 | 3 => prompts.apply_event(&sending(n, n % 2)),
                    4 => prompts.apply_event(&ended(n % 2, "x")),
                    5 => prompts.apply_event(&sample(EventKind::PromptWithdrawn, &json!({ "prompt": prompt(n) }))),
                    6 => prompts.apply_event(&sample(EventKind::PromptUndelivered, &json!({ "prompt": prompt(n) }))),
                    _ => prompts.apply_event(&stopping("ana")),
                };
                answered.extend(answers);
            }
            answered.extend(prompts.apply_event(&sample(EventKind::SessionEnded, &json!({}))));
            let mut ids: Vec<String> = answered.iter().map(|one| one.request.to_string()).collect();
            ids.sort();
            ids.dedup();
            prop_assert_eq!(ids.len(), answered.len());
            prop_assert_eq!(u64::try_from(answered.len()).unwrap(), asked);
            prop_assert!(prompts.is_empty());
        }
    }
}

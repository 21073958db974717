//! The sentences of all kinds.

use serde_json::{Value, json};

use super::*;
use crate::EventKind;
use crate::Json;
use crate::samples::{golden, sample};

const PROMPT: &str = "prm_0123456789abcdef";
const CLEARANCE: &str = "clr_0123456789abcdef";
const QUESTION: &str = "qst_0123456789abcdef";

fn utc(time: Time) -> String {
    time.to_string().replace('T', " ").replace(".000Z", " UTC")
}

/// The sentence, and below it what belongs to it.
fn whole(summary: &Summary) -> String {
    let detail = summary.detail.lines().map(|line| format!("\n    {line}"));
    summary.sentence() + &detail.collect::<String>()
}

/// The text of a recorded event with these fields in place of its own.
fn told(kind: EventKind, fields: &Value) -> String {
    whole(&sample(kind, fields).event().summary(utc)) + "\n"
}

/// The text of an event as its JSON has it, also if it is not understood.
fn told_raw(kind: &str, data: &Value) -> String {
    whole(&Event::parse(kind, &Json::of(data)).summary(utc))
}

#[test]
fn the_life_of_a_session() {
    let lines = [
        told(
            EventKind::SessionCreated,
            &json!({"name": "fix", "agent": "demo", "protocol": "intercom", "workspace": "/w", "by": "ana"}),
        ),
        told(
            EventKind::SessionCreated,
            &json!({"name": null, "agent": null, "command": "./agent", "workspace": "/w", "by": ""}),
        ),
        told(EventKind::SessionAgentChanged, &json!({"agent": "codex", "by": "ana"})),
        told(EventKind::SessionPresetChanged, &json!({"preset": "safe", "by": "ana"})),
        told(EventKind::AgentSpawned, &json!({"pid": 7, "generation": 1})),
        told(EventKind::AgentReady, &json!({"generation": 1})),
        told(EventKind::TurnStarted, &json!({"cause": "prompt"})),
        told(EventKind::TurnEnded, &json!({"stop_reason": "done"})),
        told(EventKind::SessionStopping, &json!({"how": "stop", "by": "ana"})),
        told(
            EventKind::AgentExited,
            &json!({"code": null, "signal": 9, "steps": ["interrupt", "SIGKILL"], "killed": 1, "stderr_tail": "a\nb\n"}),
        ),
        told(
            EventKind::AgentExited,
            &json!({"code": 0, "signal": null, "steps": [], "killed": 0, "stderr_tail": ""}),
        ),
        told(EventKind::SessionEnded, &json!({"reason": "stream closed", "why": "exited with code 0"})),
        told(EventKind::SessionEnded, &json!({"reason": "stopped by ana", "why": null})),
        told(EventKind::SessionResumed, &json!({"generation": 2, "by": "ana"})),
    ];
    insta::assert_snapshot!(lines.concat(), @r"
    session fix created: demo in /w, by ana
    session created: ./agent in /w
    the agent is codex by ana
    preset safe by ana
    agent started, pid 7
    agent is ready
    turn started: prompt
    turn ended: done
    stopping (stop), by ana
    agent exited by signal 9 after interrupt, SIGKILL, 1 killed
        a
        b
    agent exited with code 0
    session ended: exited with code 0
    session ended: stopped by ana
    resumed, generation 2, by ana
    ");
}

#[test]
fn the_words_of_agents_and_people() {
    let lines = [
        told(EventKind::Status, &json!({"message": "Running tests\nline two"})),
        told(
            EventKind::Heartbeat,
            &json!({"progress": [{"label": "a", "status": "completed"}, {"label": "b", "status": "in_progress"}, {"label": "c", "status": "pending"}, {"label": "d", "status": "odd"}]}),
        ),
        told(EventKind::Heartbeat, &json!({})),
        told(EventKind::PromptQueued, &json!({"prompt": PROMPT, "text": "do it", "by": "ana"})),
        told(EventKind::PromptSending, &json!({"prompt": PROMPT})),
        told(EventKind::PromptDelivered, &json!({"prompt": PROMPT})),
        told(EventKind::PromptUndelivered, &json!({"prompt": PROMPT, "cause": "stream closed"})),
        told(EventKind::PromptRequeued, &json!({"prompt": PROMPT, "cause": "the agent needs a log-in"})),
        told(EventKind::PromptWithdrawn, &json!({"prompt": PROMPT, "by": "ana"})),
        told(EventKind::Nudged, &json!({"message": "go on", "by": "ana"})),
        told(EventKind::Interrupted, &json!({"reason": "", "by": "ana"})),
        told(EventKind::InterruptUndelivered, &json!({"cause": "stream closed"})),
        told(
            EventKind::LineRejected,
            &json!({"reason": "malformed JSON", "excerpt": "{oops", "bytes": 5, "method": null, "field": null}),
        ),
        told(
            EventKind::LineRejected,
            &json!({"reason": "missing field", "excerpt": "", "bytes": 9, "method": "status/update", "field": "message"}),
        ),
        told(EventKind::UnknownMessage, &json!({"message": {"method": "new/thing"}})),
        told(EventKind::UnknownMessage, &json!({"message": {"result": {"deep": [1]}}})),
    ];
    insta::assert_snapshot!(lines.concat(), @r"
    agent> Running tests
    agent> line two
    agent> heartbeat: [x] a, [>] b, [ ] c, [odd] d
    agent> heartbeat
    prompt prm_01234567 by ana: do it
    prompt prm_01234567 leaves the queue
    prompt prm_01234567 delivered
    prompt prm_01234567 was NOT delivered: stream closed
    prompt prm_01234567 is kept and is sent again when the agent is restarted: the agent needs a log-in
    prompt prm_01234567 taken back by ana
    nudged by ana: go on
    interrupted by ana
    the interrupt was NOT delivered: stream closed
    a line was rejected: malformed JSON (5 bytes)
        {oops
    a line of status/update, field message was rejected: missing field (9 bytes)
    unknown message new/thing
    the agent's answer to an earlier request
    ");
}

#[test]
fn updates_of_an_agent() {
    let update = |update: Value| told(EventKind::Update, &json!({ "sessionId": "s", "update": update }));
    let lines = [
        update(
            json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "Hi\nthere\u{1b}"}}),
        ),
        update(json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "image", "data": "x"}})),
        update(json!({"sessionUpdate": "tool_call", "title": "cargo test", "status": "pending"})),
        update(json!({"sessionUpdate": "tool_call_update", "toolCallId": "t1"})),
        update(json!({"sessionUpdate": "plan", "entries": [{"status": "completed"}, {"status": "pending"}]})),
        update(json!({"sessionUpdate": "usage_update", "used": 5})),
        update(json!({"new": "x"})),
        told(EventKind::Update, &json!({"title": "make", "tool": "execute", "status": "failed"})),
        told(EventKind::AgentSetting, &json!({"mode": "plan", "by": "ana"})),
        told(
            EventKind::AgentSetting,
            &json!({"mode": null, "option": "effort", "value": "high", "by": "ana"}),
        ),
        told(EventKind::SettingRefused, &json!({"reason": "no such mode"})),
        told(EventKind::SpendCapped, &json!({"why": "5.01 of 5.00 USD are spent today"})),
    ];
    insta::assert_snapshot!(lines.concat(), @r"
    agent> Hi
    agent> there<U+001B>
    agent> [image]
    tool>  cargo test (pending)
    tool>  t1
    plan>  [x] , [ ]
    agent> context: 5
    agent> update update
    tool>  execute: make (failed)
    set by ana: mode plan
    set by ana: effort = high
    that could not be set: “no such mode”
    no new turn begins: 5.01 of 5.00 USD are spent today
    ");
}

#[test]
fn clearances_and_questions() {
    let lines = [
        told(
            EventKind::ClearanceRequested,
            &json!({"clearance": CLEARANCE, "title": "Edit", "diff": "--- a\n+++ b\n-x\n+y\n+z\n", "file_path": "src/a.rs", "risk": "high"}),
        ),
        told(
            EventKind::ClearanceDecided,
            &json!({"clearance": CLEARANCE, "status": "denied", "by": "ana", "reason": "no", "option": null, "title": "", "action": null}),
        ),
        told(
            EventKind::ClearanceDecided,
            &json!({"clearance": CLEARANCE, "status": "approved", "by": "grt_9zxf1vmef3q6qx43", "reason": null, "option": null, "title": "Check it", "action": "cargo test"}),
        ),
        told(EventKind::ClearanceDelivered, &json!({"clearance": CLEARANCE})),
        told(EventKind::ClearanceUndelivered, &json!({"clearance": CLEARANCE, "cause": "stream closed"})),
        told(
            EventKind::ClearanceClosed,
            &json!({"clearance": CLEARANCE, "status": "withdrawn", "reason": "the agent exited", "title": ""}),
        ),
        told(EventKind::QuestionAsked, &json!({"question": QUESTION, "text": "Go on?\nReally?"})),
        told(
            EventKind::QuestionAnswered,
            &json!({"question": QUESTION, "decision": "refine", "instruction": "slower", "by": "ana"}),
        ),
        told(
            EventKind::QuestionAnswered,
            &json!({"question": QUESTION, "decision": "continue", "instruction": null, "by": "ana"}),
        ),
        told(EventKind::QuestionDelivered, &json!({"question": QUESTION})),
        told(EventKind::QuestionUndelivered, &json!({"question": QUESTION, "cause": "exited"})),
        told(EventKind::QuestionClosed, &json!({"question": QUESTION, "status": "withdrawn", "reason": ""})),
    ];
    insta::assert_snapshot!(lines.concat(), @r"
    asks for clearance clr_01234567 [high]: src/a.rs +2 -1 “Edit”
    clearance clr_01234567 denied by ana (no)
    clearance clr_01234567 approved by grant grt_9zxf1vme: cargo test “Check it”
    the decision on clearance clr_01234567 was delivered
    the decision on clearance clr_01234567 was NOT delivered: stream closed
    clearance clr_01234567 withdrawn (the agent exited)
    asks qst_01234567:
        Go on?
        Really?
    question qst_01234567 answered by ana: refine: slower
    question qst_01234567 answered by ana: continue
    the answer to question qst_01234567 was delivered
    the answer to question qst_01234567 was NOT delivered: exited
    question qst_01234567 withdrawn
    ");
}

#[test]
fn stalls_and_restarts() {
    let lines = [
        told(
            EventKind::StallStepTaken,
            &json!({"step": "nudge", "name": "nudge 1", "number": 2, "of": 6, "why": "stuck 5m: no CPU"}),
        ),
        told(EventKind::StallStepFailed, &json!({"step": "nudge", "name": "nudge 1", "seconds": 120})),
        told(EventKind::StallRecovered, &json!({"summary": "recovered after nudge 1, 40s after, by output"})),
        told(EventKind::StallReset, &json!({"by": "ana"})),
        told(EventKind::StallSnoozed, &json!({"until": "2026-01-01T00:00:00.000Z", "by": "ana"})),
        told(EventKind::StallSnoozed, &json!({"until": null, "by": "ana"})),
        told(EventKind::LadderChanged, &json!({"ladder": "off", "by": "ana"})),
        told(
            EventKind::StallReminder,
            &json!({"waiting_for": "1 clearance", "since": "2026-01-01T00:00:00.000Z"}),
        ),
        told(EventKind::LimitReached, &json!({"limit": "usage", "until": "2026-01-01T00:00:00.000Z"})),
        told(EventKind::LimitOver, &json!({"limit": "usage", "resumed": true})),
        told(
            EventKind::AgentRestarting,
            &json!({"wait_ms": 1500, "attempt": 2, "of": 3, "reason": "exited", "why": null}),
        ),
        told(
            EventKind::SessionParked,
            &json!({"reason": "it dies", "why": null, "stderr_tail": "boom\nbang"}),
        ),
    ];
    insta::assert_snapshot!(lines.concat(), @r"
    nudge 1 (step 2 of 6): stuck 5m: no CPU
    nudge 1 did not help within 120 s
    recovered after nudge 1, 40s after, by output
    ana acts: the ladder restarts
    snoozed until 2026-01-01 00:00:00 UTC by ana
    watched again by ana
    ladder: off by ana
    still waiting for you: 1 clearance since 2026-01-01 00:00:00 UTC
    waits for its service: usage limit, until 2026-01-01 00:00:00 UTC
    the usage limit should be over
    restarts in 1.5 s (attempt 2 of 3): exited
    parked: it dies
        boom
        bang
    ");
}

#[test]
fn work_of_the_host_for_an_agent() {
    let lines = [
        told(EventKind::FileWritten, &json!({ "path": "a.txt", "bytes": 3 })),
        told(EventKind::FileRead, &json!({ "path": "a.txt", "bytes": 3 })),
        told(EventKind::TerminalStarted, &json!({ "terminal": "term-1", "command": "make", "pid": 7 })),
        told(
            EventKind::TerminalEnded,
            &json!({ "terminal": "term-1", "code": 2, "signal": null, "reason": null }),
        ),
        told(
            EventKind::HostCallFailed,
            &json!({ "method": "fs/read_text_file", "reason": "it is not text" }),
        ),
    ];
    insta::assert_snapshot!(lines.concat(), @r"
    wrote a.txt for the agent (3 bytes)
    read a.txt for the agent (3 bytes)
    term-1 runs make, pid 7
    term-1 ended: exit code 2
    fs/read_text_file was not done: it is not text
    ");
}

#[test]
fn unknown_kinds_and_odd_data_are_shown_not_dropped() {
    assert_eq!(
        told_raw("stall.later", &json!({"level": 2, "the_plan": {"a": [1]}, "why": "say \"so\"", "x": null})),
        "stall.later: level 2, the plan …, why “say 'so'”"
    );
    assert_eq!(told_raw("later", &Value::Null), "later");
    assert_eq!(told_raw("status", &json!({"text": 5})), "status: text 5");
    assert_eq!(told_raw("status", &json!([1])), "status");
}

#[test]
fn every_kind_has_a_sentence_of_its_own() {
    // The sessions that an agent remembers are an answer to a client; no log shows them to people.
    for kind in EventKind::ALL.iter().filter(|kind| **kind != EventKind::AgentSessions) {
        // Agents also send empty messages, which say nothing.
        let is_told = |payload: &String| {
            let text = Event::parse(kind.as_str(), &Json::trusted(payload.as_str())).summary(utc).sentence();
            text != kind.as_str() && !text.starts_with(&format!("{}: ", kind.as_str()))
        };
        assert!(golden(*kind).iter().any(is_told), "{}", kind.as_str());
    }
}

#[test]
fn nothing_that_others_say_is_told_raw() {
    let evil = "\x1b]0;x\x07\u{202e}\u{200b}\r";
    for kind in EventKind::ALL {
        // Each text of a payload that may hold any text holds this one.
        let mut data = sample(*kind, &json!({})).data;
        let fields: Value = serde_json::from_str(data.as_str()).unwrap();
        for key in fields.as_object().into_iter().flatten().map(|(key, _)| key) {
            let mut changed: Value = serde_json::from_str(data.as_str()).unwrap();
            changed[key] = json!(evil);
            if Event::parse(kind.as_str(), &Json::of(&changed)).kind() == Some(*kind) {
                data = Json::of(&changed);
            }
        }
        let text = whole(&Event::parse(kind.as_str(), &data).summary(utc));
        let raw = text.contains(['\x1b', '\x07', '\u{202e}', '\u{200b}', '\r']);
        assert!(!raw, "{}: {text:?}", kind.as_str());
    }
    let text = told_raw(evil, &json!({ evil: evil }));
    assert!(!text.contains(['\x1b', '\x07', '\u{202e}', '\u{200b}', '\r']), "{text:?}");
}

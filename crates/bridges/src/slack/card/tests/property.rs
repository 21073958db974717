//! Whatever agents, files and people write, every card is one that Slack takes, and has no power that we did not give it.

use proptest::prelude::*;

use super::super::super::block_kit::tests::hostile;
use super::*;
use intercom_types::{ClearanceId, ClearanceStatus, QuestionId, SessionId};

/// Texts to fill fields with, one after the other.
struct Pool {
    texts: Vec<String>,
    next: std::cell::Cell<usize>,
}

impl Pool {
    fn text(&self) -> String {
        let at = self.next.replace(self.next.get() + 1);
        self.texts[at % self.texts.len()].clone()
    }

    fn texts(&self, count: usize) -> Vec<String> {
        (0..count).map(|_| self.text()).collect()
    }

    /// One of those that we know, or anything.
    fn of(&self, known: &[&str]) -> String {
        let text = self.text();
        let at = text.len() % (known.len() + 1);
        known.get(at).map_or(text, |known| (*known).to_owned())
    }

    fn time(&self) -> &'static str {
        let known = ["2026-03-04T11:58:00.000Z", "9999-01-01T00:00:00Z", "-009999-02-01T00:00:00Z"];
        known[self.text().len() % known.len()]
    }

    fn session(&self) -> Session {
        let steps: Vec<Value> = self
            .texts(12)
            .iter()
            .map(|text| json!({"text": text, "status": self.of(&["completed", "in_progress"])}))
            .collect();
        serde_json::from_value(json!({
            "id": SessionId::mint(), "name": self.text(), "agent": self.text(), "workspace": self.text(),
            "phase": self.of(&["idle", "working", "waiting", "ended", "parked"]), "why": self.of(&["stuck 7m: x running 6m"]),
            "pending": {"clearances": 3, "questions": 99}, "queue": 2, "stderr_tail": self.text(),
            "created_at": self.time(), "started_at": self.time(), "ended_at": self.time(),
            "exit": {"code": null, "signal": 9, "reason": self.text()}, "unenforced": self.text(),
            "standing": {"state": self.of(&["stuck", "gone", "quiet"]), "since": self.time(), "until": self.time(),
                "running": {"name": self.text(), "since": self.time()}, "snoozed_until": self.time()},
            "spent": {"turns": 1, "total_tokens": u64::MAX, "cost": 1e300, "currency": self.text()}, "progress": steps,
        }))
        .unwrap()
    }

    fn clearance(&self) -> Clearance {
        let kind = || self.of(&["allow_once", "allow_always", "reject_once"]);
        let count = self.text().len() % 40;
        let options: Vec<Value> =
            (0..count).map(|_| json!({"id": self.text(), "name": self.text(), "kind": kind()})).collect();
        serde_json::from_value(json!({
            "id": ClearanceId::mint(), "session": SessionId::mint(), "title": self.text(), "description": self.text(),
            "diff": self.text(), "file_path": self.text(), "tool": self.text(), "more_paths": self.texts(30),
            "risk": self.of(&["low", "high", "critical"]), "claimed_risk": self.text(), "options": options,
            "status": self.of(&["pending", "pending", "approved", "denied"]), "delivery": self.of(&["failed"]),
            "delivery_cause": self.text(), "requested_at": self.time(), "decided_by": self.text(), "decided_at": self.time(),
            "reason": self.text(), "option": self.text(), "outcome": self.text(), "command": self.text(),
            "computed_risk": self.text(), "risk_why": self.texts(9), "expires_at": self.time(),
            "ruling": {"outcome": "ask", "why": self.text()}, "needed": 3, "approvals": self.texts(20),
            "decided_via": self.of(&["policy"]), "hidden": self.texts(9),
        }))
        .unwrap()
    }

    fn question(&self) -> Question {
        serde_json::from_value(json!({
            "id": QuestionId::mint(), "session": SessionId::mint(), "text": self.text(), "type": self.text(),
            "status": self.of(&["pending", "answered"]), "decision": self.of(&["refine"]), "instruction": self.text(),
            "asked_at": self.time(), "answered_by": self.text(), "answered_at": self.time(),
            "delivery": self.of(&["failed"]), "delivery_cause": self.text(),
        }))
        .unwrap()
    }

    fn explanation(&self) -> Value {
        let rule = |_| {
            json!({"name": self.text(), "then": self.text(), "matches": false, "decides": false,
            "unmet": self.text(), "why": self.text()})
        };
        json!({"now": {"why": self.text()}, "rules": (0..50).map(rule).collect::<Vec<_>>()})
    }
}

/// Checked, and calling nobody but whom it may.
fn good(card: &impl Serialize, whom: &[&str]) {
    let card = json!(card);
    limits(&card);
    let again: Value = serde_json::from_str(&card.to_string()).unwrap();
    assert_eq!(again, card);
    // Text that Slack does not parse may show a call; only markup makes one, and that was checked to be ours.
    let parsed = card["blocks"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|block| block["type"] != "rich_text" && block["type"] != "input");
    for call in parsed.flat_map(calls_in_text) {
        assert!(whom.contains(&call.as_str()), "{call} is called");
    }
}

fn calls_in_text(value: &Value) -> Vec<String> {
    match value {
        Value::Object(fields) => fields
            .iter()
            .filter(|(key, _)| !matches!(key.as_str(), "value" | "block_id" | "action_id"))
            .flat_map(|(_, value)| calls_in_text(value))
            .collect(),
        Value::Array(items) => items.iter().flat_map(calls_in_text).collect(),
        text => calls(text),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn every_card_is_one_that_slack_takes(texts in proptest::collection::vec(hostile(), 5..40)) {
        let pool = Pool { texts, next: std::cell::Cell::new(0) };
        let people = OperatorDirectory::new([("ana".to_owned(), "U1".to_owned()), ("eve".to_owned(), pool.text())].into());
        let (s, c, q, key) = (pool.session(), pool.clearance(), pool.question(), pool.text());
        let ping: Vec<String> = pool.texts(12).into_iter().chain(["ana".to_owned(), "eve".to_owned()]).rev().collect();
        let decided = Clearance { status: ClearanceStatus::Approved.into(), ..c.clone() };
        let whom: &[&str] = if &*c.status == "pending" { &["U1"] } else { &[] };
        good(&clearance(&key, &c, &s, &people, &ping), whom);
        good(&clearance(&key, &decided, &s, &people, &ping), &[]);
        good(&clearance_details(&c, &s, &pool.explanation()), &[]);
        good(&clearance_details_told(&c, &s, &pool.explanation()), &[]);
        good(&always(&c, &pool.text(), &pool.text()), &[]);
        good(&deny_reason(&c), &[]);
        let whom: &[&str] = if &*q.status == "pending" { &["U1"] } else { &[] };
        good(&question(&key, &q, &s, &people, &ping), whom);
        good(&refine(&q), &[]);
        good(&stall(&key, &s, &pool.texts(20), None, &people, &ping), &["U1"]);
        good(&stall(&key, &s, &pool.texts(20), Some(&pool.text()), &people, &ping), &[]);
        good(&nudge_with(&s), &[]);
        good(&exit(&key, &s, None, &people, &ping), &["U1"]);
        good(&exit(&key, &s, Some(&pool.text()), &people, &ping), &[]);
        good(&status(&key, &s), &[]);
        good(&turn(&key, &s, &pool.text(), Some(&pool.text()), TurnCounts { turns: 2, tools: 9, is_partial: false, allowed: 3 }), &[]);
        good(&talk(&key, &s, &pool.text()), &[]);
        good(&note(&key, MrkdwnText::untrusted(&pool.text())), &[]);
        let sessions: Vec<Session> = (0..60).map(|_| pool.session()).collect();
        let clearances: Vec<Clearance> = (0..30).map(|_| pool.clearance()).collect();
        let questions: Vec<Question> = (0..20).map(|_| pool.question()).collect();
        let role = pool.of(&["viewer", "operator", "approver", "admin"]);
        good(&home(&sessions, &clearances, &questions, Some((&pool.text(), &role))), &[]);
        good(&home(&sessions, &clearances, &questions, None), &[]);
        good(&send_to_agent(&sessions, &pool.text()), &[]);
    }
}

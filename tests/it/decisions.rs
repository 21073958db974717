//! Decisions and answers: one winner, delivered once or shown as not delivered; and how the API refuses what it must.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use intercom_testkit::client::Connection;
use intercom_testkit::harness::{Daemon, fixture, of_kind, profile, refused};
use serde_json::{Value, json};

fn decide(daemon: &Daemon, clearance: &str, body: &Value) -> (u16, Value) {
    daemon.post(&format!("/api/v1/clearances/{clearance}/decision"), body)
}

fn answer(daemon: &Daemon, question: &str, body: &Value) -> (u16, Value) {
    daemon.post(&format!("/api/v1/questions/{question}/answer"), body)
}

fn kill(daemon: &Daemon, session: &str) {
    let (status, body) = daemon.post(&format!("/api/v1/sessions/{session}/kill"), &json!({}));
    assert_eq!(status, 200, "{body}");
}

#[track_caller]
fn clearance(daemon: &Daemon, id: &str) -> Value {
    let (status, body) = daemon.get(&format!("/api/v1/clearances/{id}"));
    assert_eq!(status, 200, "{body}");
    body
}

fn received(events: &[Value]) -> Vec<Value> {
    let said = of_kind(events, "status").into_iter().filter(|event| event["data"]["message"] == "received");
    said.map(|event| serde_json::from_str(event["data"]["line"].as_str().unwrap()).unwrap()).collect()
}

// Clearances.

#[test]
fn an_approval_and_a_denial_reach_the_agent_with_their_reasons() {
    let daemon = Daemon::quick("");
    let params =
        r#"{"title":"Edit","description":"why","diff":"+x","file_path":"src/x.rs","risk_level":"critical"}"#;
    let session = daemon.run(&[&format!("clearance:1:{params}"), "echo:1", "clearance:2:Again", "echo:1"]);
    let first = daemon.clearance(&session);
    let shown = clearance(&daemon, &first);
    for (key, value) in [
        ("session", json!(session)),
        ("title", json!("Edit")),
        ("description", json!("why")),
        ("diff", json!("+x")),
        ("file_path", json!("src/x.rs")),
        ("risk", json!("critical")),
        ("claimed_risk", json!("critical")),
        ("options", json!([])),
        ("status", json!("pending")),
        ("delivery", json!("none")),
        ("decided_by", json!(null)),
        ("decided_at", json!(null)),
        ("reason", json!(null)),
        ("delivered_at", json!(null)),
        ("outcome", json!(null)),
    ] {
        assert_eq!(shown.get(key), Some(&value), "{key}: {shown}");
    }
    let reason = "fine,\nbut \"carefully\" \\ é 🦀";
    let (status, body) = decide(&daemon, &first, &json!({"decision": "approve", "reason": reason}));
    assert_eq!(status, 200, "{body}");
    assert_eq!(
        (&body["status"], &body["delivery"], &body["reason"]),
        (&json!("approved"), &json!("delivered"), &json!(reason))
    );
    assert!(
        body["decided_by"].is_string() && body["decided_at"].is_string() && body["delivered_at"].is_string(),
        "{body}"
    );
    assert_eq!(clearance(&daemon, &first), body);

    let second = daemon.wait_for(&session, "a second", |event| event["data"]["title"] == "Again");
    let second = second["data"]["clearance"].as_str().unwrap();
    let (_, body) = decide(
        &daemon,
        second,
        &json!({"decision": "deny", "reason": "not today", "option": null, "remember": false}),
    );
    assert_eq!(
        (&body["status"], &body["risk"], &body["claimed_risk"]),
        (&json!("denied"), &json!("high"), &json!(null))
    );

    let events = daemon.all_events(&session);
    assert_eq!(
        received(&events),
        [
            json!({"id": "1", "method": "clearance/response", "params": {"status": "approved", "reason": reason}}),
            json!({"id": "2", "method": "clearance/response", "params": {"status": "rejected", "reason": "not today"}}),
        ]
    );
    let about: Vec<_> = events
        .iter()
        .filter(|event| event["data"]["clearance"] == first)
        .map(|event| event["kind"].clone())
        .collect();
    assert_eq!(about, ["clearance.requested", "clearance.decided", "clearance.delivered"]);
    let decided = &of_kind(&events, "clearance.decided")[0]["data"];
    assert_eq!(
        (&decided["status"], &decided["reason"], &decided["by"]),
        (&json!("approved"), &json!(reason), &clearance(&daemon, &first)["decided_by"])
    );
}

#[test]
fn several_are_decided_by_one_command_and_each_is_reported() {
    let daemon = Daemon::quick("");
    let asking: Vec<String> = (0..5).map(|_| daemon.run(&["clearance:1:Go?", "answer:1", "serve"])).collect();
    let ids: Vec<String> = asking.iter().map(|session| daemon.clearance(session)).collect();
    let [first, second, third, fourth, fifth] = ids.as_slice() else { unreachable!() };

    let ran = daemon.cli(&["approve", first, second]).ok();
    assert_eq!(ran.stdout.lines().filter(|line| line.starts_with("approved clr_")).count(), 2, "{ran:?}");
    for session in &asking[..2] {
        assert_eq!(daemon.wait_status(session, "answered")["status"], "approved");
    }

    // One that fails keeps the others from nothing, and is told by its id.
    let ran = daemon.cli(&["deny", first, third, "--reason", "no"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stdout.starts_with("denied clr_") && ran.stdout.lines().count() == 1, "{ran:?}");
    assert!(ran.stderr.contains(&format!("{first}: already approved by ")), "{ran:?}");
    assert!(ran.stderr.contains("1 of 2 failed"), "{ran:?}");
    assert_eq!(daemon.wait_status(&asking[2], "answered")["params"]["reason"], "no");

    // One is answered as the daemon answers it, several as a list with one answer for each.
    let one = daemon.cli(&["approve", fourth, "--json"]).ok().json();
    assert_eq!((&one["id"], &one["status"]), (&json!(fourth), &json!("approved")));
    let ran = daemon.cli(&["approve", "clr_nosuch", fifth, "--json"]);
    let several = ran.json();
    assert_eq!((ran.code, &several["next"]), (1, &Value::Null), "{ran:?}");
    assert_eq!(several["items"].as_array().map(Vec::len), Some(2), "{several}");
    assert_eq!(several["items"][0]["error"]["code"], "not_found", "{several}");
    assert_eq!(
        (&several["items"][1]["id"], &several["items"][1]["status"]),
        (&json!(fifth), &json!("approved"))
    );

    for wrong in
        [&["approve"][..], &["deny"], &["approve", first, second, "--always"], &["deny", first, "qst_1"]]
    {
        assert_eq!(daemon.cli(wrong).code, 2, "{wrong:?}");
    }
}

#[test]
fn a_second_decision_is_told_who_was_first() {
    let daemon = Daemon::quick("");
    let session = daemon.run(&["clearance:1:May I?", "echo:2"]);
    let id = daemon.clearance(&session);
    let first = daemon.decide(&id, "approve");
    for verdict in ["approve", "deny"] {
        let body = refused(decide(&daemon, &id, &json!({"decision": verdict})), 409, "already_decided");
        assert_eq!(body["clearance"], first);
        assert!(
            body["error"]["message"].as_str().unwrap().contains(first["decided_by"].as_str().unwrap()),
            "{body}"
        );
    }
    daemon.cli(&["nudge", &session]).ok();
    let lines = received(&daemon.all_events(&session));
    assert_eq!((lines.len(), &lines[1]["method"]), (2, &json!("nudge")), "it was answered once: {lines:?}");
}

#[test]
fn of_fifty_who_decide_at_once_one_wins_and_the_agent_hears_one_answer() {
    const PEOPLE: usize = 50;
    let daemon = Daemon::quick("");
    let session = daemon.run(&["clearance:1:May I?", "echo"]);
    let id = daemon.clearance(&session);
    let barrier = Barrier::new(PEOPLE);
    let outcomes: Vec<(u16, Value)> = std::thread::scope(|scope| {
        let people: Vec<_> = (0..PEOPLE)
            .map(|person| {
                let (daemon, barrier, id) = (&daemon, &barrier, &id);
                scope.spawn(move || {
                    let verdict = if person % 2 == 0 { "approve" } else { "deny" };
                    barrier.wait();
                    decide(daemon, id, &json!({"decision": verdict, "reason": format!("person {person}")}))
                })
            })
            .collect();
        people.into_iter().map(|person| person.join().unwrap()).collect()
    });
    let (winners, losers): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(|(status, _)| *status == 200);
    assert_eq!(winners.len(), 1, "{winners:?}");
    let winner = &winners[0].1;
    for loser in losers {
        let body = refused(loser, 409, "already_decided");
        assert_eq!(
            (&body["clearance"]["status"], &body["clearance"]["reason"]),
            (&winner["status"], &winner["reason"])
        );
    }
    daemon.cli(&["nudge", &session]).ok();
    daemon.wait_for(&session, "the nudge", |event| {
        event["data"]["line"].as_str().is_some_and(|line| line.contains("nudge"))
    });
    let events = daemon.so_far(&session);
    let lines = received(&events);
    assert_eq!((lines.len(), &lines[0]["params"]["reason"]), (2, &winner["reason"]), "{lines:?}");
    assert_eq!(of_kind(&events, "clearance.decided").len(), 1);
    assert_eq!(of_kind(&events, "clearance.delivered").len(), 1);
}

#[test]
fn a_decision_for_an_agent_that_died_is_refused_as_withdrawn() {
    let daemon = Daemon::quick("");
    let session = daemon.run(&["clearance:1:May I?", "question:2:How?", "exit:9"]);
    let events = daemon.all_events(&session);
    let id = of_kind(&events, "clearance.requested")[0]["data"]["clearance"].as_str().unwrap();
    let body = refused(decide(&daemon, id, &json!({"decision": "approve"})), 409, "already_decided");
    assert_eq!(
        (&body["clearance"]["status"], &body["clearance"]["delivery"]),
        (&json!("withdrawn"), &json!("none"))
    );
    let id = of_kind(&events, "question.asked")[0]["data"]["question"].as_str().unwrap();
    let body = refused(answer(&daemon, id, &json!({"decision": "stop"})), 409, "already_decided");
    assert_eq!(
        (&body["question"]["status"], &body["question"]["delivery"]),
        (&json!("withdrawn"), &json!("none"))
    );
    assert_eq!(daemon.so_far(&session).len(), events.len(), "nothing was recorded");
}

#[test]
fn a_decision_that_meets_a_closed_stdin_stays_recorded_as_not_delivered() {
    let daemon = Daemon::quick("");
    let session =
        daemon.run(&["clearance:1:May I?", "question:2:How?", "close:stdin", "status:closed", "hang"]);
    daemon.wait_status(&session, "closed");
    let id = daemon.clearance(&session);
    let (status, body) = decide(&daemon, &id, &json!({"decision": "approve", "reason": "go"}));
    let failed = |body: &Value| {
        (body["delivery"].clone(), body["delivery_cause"].clone(), body["delivered_at"].clone())
    };
    let cause = json!("write failed: stream closed");
    let expected = (json!("failed"), cause.clone(), json!(null));
    assert_eq!(
        (status, &body["status"], failed(&body)),
        (200, &json!("approved"), expected.clone()),
        "{body}"
    );
    let event = daemon.wait_kind(&session, "clearance.undelivered");
    assert_eq!(event["data"], json!({"clearance": id, "cause": cause}));

    let question = daemon.question(&session);
    let (status, body) = answer(&daemon, &question, &json!({"decision": "continue"}));
    assert_eq!(
        (status, &body["status"], failed(&body)),
        (200, &json!("answered"), expected.clone()),
        "{body}"
    );
    assert_eq!(daemon.wait_kind(&session, "question.undelivered")["data"]["cause"], cause);
    assert_eq!(daemon.prompt(&session, "hello?")["state"], "failed");
    assert_eq!(daemon.wait_kind(&session, "prompt.undelivered")["data"]["cause"], cause);

    for (verb, body) in [("nudge", json!({"message": "psst"})), ("interrupt", json!({"reason": "lunch"}))] {
        let (status, answer) = daemon.post(&format!("/api/v1/sessions/{session}/{verb}"), &body);
        assert_eq!((status, &answer["delivery"], &answer["delivery_cause"]), (202, &json!("failed"), &cause));
        let event = daemon.wait_kind(&session, &format!("{verb}.undelivered"));
        assert_eq!(event["data"], json!({"cause": cause}));
    }
    for line in [&["send", &session, "hello?"][..], &["nudge", &session], &["interrupt", &session]] {
        let ran = daemon.cli(line);
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(ran.stderr.starts_with("error: not delivered: write failed: stream closed\n"), "{ran:?}");
    }

    kill(&daemon, &session);
    assert_eq!(failed(&clearance(&daemon, &id)), expected);
    assert_eq!(clearance(&daemon, &id)["status"], "approved");
    refused(decide(&daemon, &id, &json!({"decision": "deny"})), 409, "already_decided");
}

#[test]
fn a_decision_for_an_agent_that_does_not_read_stays_on_its_way_and_fails_with_its_end() {
    let daemon = Daemon::quick("");
    // More than a pipe holds.
    let prompt = "x".repeat(300_000);
    let session = daemon.run_with(&["clearance:1:May I?", "hang"], json!({"prompt": prompt}));
    let id = daemon.clearance(&session);
    let asked = Instant::now();
    let body = daemon.decide(&id, "approve");
    let took = asked.elapsed();
    assert_eq!((&body["status"], &body["delivery"]), (&json!("approved"), &json!("pending")), "{body}");
    assert!(took > Duration::from_millis(1500) && took < Duration::from_secs(10), "answered after {took:?}");
    assert!(of_kind(&daemon.so_far(&session), "clearance.undelivered").is_empty());
    refused(decide(&daemon, &id, &json!({"decision": "deny"})), 409, "already_decided");

    kill(&daemon, &session);
    let events = daemon.all_events(&session);
    let cause = json!("write failed: stream closed");
    assert_eq!(
        of_kind(&events, "clearance.undelivered")[0]["data"],
        json!({"clearance": id, "cause": cause})
    );
    assert_eq!(of_kind(&events, "prompt.undelivered")[0]["data"]["cause"], cause);
    assert!(
        of_kind(&events, "clearance.delivered").is_empty() && of_kind(&events, "clearance.closed").is_empty()
    );
    let shown = clearance(&daemon, &id);
    assert_eq!(
        (&shown["status"], &shown["delivery"], &shown["delivery_cause"]),
        (&json!("approved"), &json!("failed"), &cause)
    );
}

#[test]
fn a_decision_leaves_as_soon_as_the_agent_reads_again() {
    let daemon = Daemon::quick("");
    let go = daemon.workspace().join("go");
    let steps =
        ["clearance:1:May I?", &format!("wait-file:{}", go.display()), "expect:prompt/send", "answer:1"];
    let session = daemon.run_with(&steps, json!({"prompt": "x".repeat(300_000)}));
    let id = daemon.clearance(&session);
    std::thread::scope(|scope| {
        let decided = scope.spawn(|| daemon.decide(&id, "approve"));
        daemon.wait_kind(&session, "clearance.decided");
        assert_eq!(clearance(&daemon, &id)["delivery"], "pending");
        std::fs::write(&go, "").unwrap();
        assert_eq!(decided.join().unwrap()["delivery"], "delivered");
    });
    assert_eq!(daemon.wait_status(&session, "answered")["status"], "approved");
}

#[test]
fn a_flood_delays_neither_the_answers_of_its_own_session_nor_those_of_others() {
    // What an agent says is read in its order: its own clearances wait for what is before them in the journal.
    let mut daemon = Daemon::quick("[limits]\njournal_mib = 1\n");
    // Two processes on one pipe: what is longer than PIPE_BUF would be torn.
    let loud = ["spawn:repeat:30000:flood:30", "clearance-loop:3", "hang"];
    let sessions = [daemon.run(&loud), daemon.run(&["clearance-loop:10", "hang"])];
    let mut decided = 0;
    // From the list: a reader of the log would have all of the flood before each clearance.
    daemon.until("all clearances", |daemon| {
        let (_, open) = daemon.get("/api/v1/clearances?status=pending");
        for clearance in open["items"].as_array().unwrap() {
            let body = daemon.decide(clearance["id"].as_str().unwrap(), "approve");
            assert_eq!(body["delivery"], "delivered", "{body}");
            decided += 1;
        }
        (decided == 13).then_some(())
    });
    for session in &sessions {
        kill(&daemon, session);
    }
}

#[test]
fn a_decision_that_cannot_be_understood_changes_nothing() {
    let daemon = Daemon::quick("");
    let session = daemon.run(&["clearance:1:May I?", "question:2:How?", "echo"]);
    let (id, question) = (daemon.clearance(&session), daemon.question(&session));
    for body in [
        json!({}),
        json!({"decision": "maybe"}),
        json!({"decision": "approved"}),
        json!({"decision": true}),
        json!({"decision": "approve", "reason": 5}),
        json!({"decision": "approve", "because": "typo"}),
    ] {
        refused(decide(&daemon, &id, &body), 400, "bad_request");
    }
    refused(
        decide(&daemon, &id, &json!({"decision": "approve", "option": "no-such"})),
        422,
        "unknown_option",
    );
    for body in [
        json!({}),
        json!({"decision": "yes"}),
        json!({"decision": "continue", "reason": "x"}),
        json!({"decision": "refine", "instruction": 1}),
    ] {
        refused(answer(&daemon, &question, &body), 400, "bad_request");
    }
    for body in [
        json!({"decision": "refine"}),
        json!({"decision": "refine", "instruction": " "}),
        json!({"decision": "refine", "instruction": null}),
    ] {
        refused(answer(&daemon, &question, &body), 422, "instruction_required");
    }
    for text in ["", "[]", "[\"approve\"]", "\"approve\"", "{\"decision\":", "null"] {
        let path = format!("/api/v1/clearances/{id}/decision");
        refused(daemon.request("POST", &path, Some(text), &[]), 400, "bad_request");
    }
    for id in ["clr_0000000000000000", "nonsense", &question, &session] {
        refused(decide(&daemon, id, &json!({"decision": "approve"})), 404, "not_found");
        refused(daemon.get(&format!("/api/v1/clearances/{id}")), 404, "not_found");
    }
    for id in ["qst_0000000000000000", &id] {
        refused(answer(&daemon, id, &json!({"decision": "stop"})), 404, "not_found");
        refused(daemon.get(&format!("/api/v1/questions/{id}")), 404, "not_found");
    }
    assert_eq!(daemon.show(&session)["pending"], json!({"clearances": 1, "questions": 1}));
    assert!(of_kind(&daemon.so_far(&session), "clearance.decided").is_empty());
}

// Questions.

#[test]
fn each_answer_to_a_question_reaches_the_agent() {
    let daemon = Daemon::quick("");
    let steps = [
        r#"question:#1:{"text":"One?","type":"continuation"}"#,
        "echo:1",
        "question:#2:Two?",
        "echo:1",
        "question:#3:Three?",
        "echo:1",
    ];
    let session = daemon.run(&steps);
    let mut ids = Vec::new();
    for (text, body) in [
        ("One?", json!({"decision": "continue"})),
        ("Two?", json!({"decision": "refine", "instruction": "only \"src\"\nplease"})),
        ("Three?", json!({"decision": "stop", "instruction": "too late"})),
    ] {
        let asked = daemon.wait_for(&session, text, |event| event["data"]["text"] == text);
        let id = asked["data"]["question"].as_str().unwrap().to_owned();
        let (status, answered) = answer(&daemon, &id, &body);
        assert_eq!(status, 200, "{answered}");
        assert_eq!((&answered["status"], &answered["delivery"]), (&json!("answered"), &json!("delivered")));
        assert_eq!((&answered["decision"], &answered["text"]), (&body["decision"], &json!(text)));
        assert_eq!(answered["instruction"], body.get("instruction").cloned().unwrap_or_default());
        assert!(answered["answered_by"].is_string() && answered["answered_at"].is_string(), "{answered}");
        let again = refused(answer(&daemon, &id, &json!({"decision": "stop"})), 409, "already_decided");
        assert_eq!(again["question"], answered);
        ids.push(id);
    }
    let (_, first) = daemon.get(&format!("/api/v1/questions/{}", ids[0]));
    assert_eq!(first["type"], "continuation");
    let events = daemon.all_events(&session);
    let params: Vec<_> = received(&events).into_iter().map(|line| line["params"].clone()).collect();
    assert_eq!(
        params,
        [
            json!({"decision": "continue", "instruction": null}),
            json!({"decision": "refine", "instruction": "only \"src\"\nplease"}),
            json!({"decision": "stop", "instruction": "too late"}),
        ]
    );
    let about: Vec<_> = events
        .iter()
        .filter(|event| event["data"]["question"] == ids[1])
        .map(|event| event["kind"].clone())
        .collect();
    assert_eq!(about, ["question.asked", "question.answered", "question.delivered"]);
}

// Idempotency-Key.

fn keyed(daemon: &Daemon, path: &str, body: &Value, key: &str) -> (u16, Value) {
    daemon.request("POST", path, Some(&body.to_string()), &[("Idempotency-Key", key)])
}

#[test]
fn a_request_repeated_with_its_key_is_answered_again_and_done_once() {
    let daemon = Daemon::quick("");
    let session = daemon.run(&["clearance:1:May I?", "echo"]);
    let path = format!("/api/v1/sessions/{session}/prompts");
    let first = keyed(&daemon, &path, &json!({"text": "once"}), "key-1");
    assert_eq!(first.0, 202);
    for _ in 0..3 {
        assert_eq!(keyed(&daemon, &path, &json!({"text": "once"}), "key-1"), first);
    }
    refused(keyed(&daemon, &path, &json!({"text": "twice"}), "key-1"), 422, "idempotency_key_reused");
    let nudge = format!("/api/v1/sessions/{session}/nudge");
    refused(keyed(&daemon, &nudge, &json!({"text": "once"}), "key-1"), 422, "idempotency_key_reused");

    let decision = format!("/api/v1/clearances/{}/decision", daemon.clearance(&session));
    let approved = keyed(&daemon, &decision, &json!({"decision": "approve"}), "key-2");
    assert_eq!(approved.0, 200);
    assert_eq!(
        keyed(&daemon, &decision, &json!({"decision": "approve"}), "key-2"),
        approved,
        "a retry is no second decision"
    );
    refused(keyed(&daemon, &decision, &json!({"decision": "approve"}), "key-3"), 409, "already_decided");

    let start = json!({"command": fixture(), "args": ["echo"], "workspace": daemon.workspace()});
    let started = keyed(&daemon, "/api/v1/sessions", &start, "key-4");
    assert_eq!(started.0, 201);
    assert_eq!(keyed(&daemon, "/api/v1/sessions", &start, "key-4"), started);

    let refusal = keyed(&daemon, &path, &json!({"text": ""}), "key-5");
    assert_eq!((refusal.0, keyed(&daemon, &path, &json!({"text": ""}), "key-5")), (400, refusal));
    for key in ["", &"k".repeat(256)] {
        refused(keyed(&daemon, &path, &json!({"text": "x"}), key), 400, "bad_request");
    }

    daemon.cli(&["nudge", &session]).ok();
    daemon.wait_for(&session, "the nudge", |event| {
        event["data"]["line"].as_str().is_some_and(|line| line.contains("nudge"))
    });
    let methods: Vec<_> =
        received(&daemon.so_far(&session)).iter().map(|line| line["method"].clone()).collect();
    assert_eq!(methods, ["prompt/send", "clearance/response", "nudge"]);
    let (_, sessions) = daemon.get("/api/v1/sessions");
    assert_eq!(sessions["items"].as_array().unwrap().len(), 2);
}

#[test]
fn requests_with_the_same_key_at_the_same_time_are_done_once() {
    let daemon = Daemon::quick("");
    let session = daemon.run(&["echo"]);
    let path = format!("/api/v1/sessions/{session}/prompts");
    let barrier = Barrier::new(20);
    let answers: Vec<(u16, Value)> = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..20)
            .map(|_| {
                scope.spawn(|| {
                    barrier.wait();
                    keyed(&daemon, &path, &json!({"text": "once"}), "the key")
                })
            })
            .collect();
        callers.into_iter().map(|caller| caller.join().unwrap()).collect()
    });
    assert!(answers.iter().all(|answer| answer.0 == 202 && *answer == answers[0]), "{answers:?}");
    assert_eq!(of_kind(&daemon.so_far(&session), "prompt.queued").len(), 1);
}

#[test]
fn a_key_is_honoured_by_the_next_daemon() {
    let daemon = Daemon::quick("");
    let session = daemon.run(&["echo"]);
    let path = format!("/api/v1/sessions/{session}/prompts");
    let first = keyed(&daemon, &path, &json!({"text": "once"}), "k");
    let (dir, _) = daemon.end(nix::sys::signal::Signal::SIGTERM);
    let daemon = Daemon::start_in(dir, &[], &[]);
    assert_eq!(keyed(&daemon, &path, &json!({"text": "once"}), "k"), first);
    refused(keyed(&daemon, &path, &json!({"text": "once"}), "another"), 409, "ended");
}

#[test]
fn a_key_is_honoured_also_after_its_first_caller_hung_up() {
    let daemon = Daemon::quick("");
    // The agent does not read and its pipe is full: the answer to a prompt takes two seconds.
    let session = daemon.run_with(&["status:up", "hang"], json!({"prompt": "x".repeat(300_000)}));
    daemon.wait_status(&session, "up");
    let (path, body) = (format!("/api/v1/sessions/{session}/prompts"), json!({"text": "once"}));
    {
        let mut impatient = Connection::open(&daemon.socket()).unwrap();
        impatient.send("POST", &path, &[("idempotency-key", "k")], &body.to_string()).unwrap();
        daemon.wait_for(&session, "the prompt", |event| event["data"]["text"] == "once");
    }
    let (status, again) = keyed(&daemon, &path, &body, "k");
    assert_eq!(status, 202, "{again}");
    let events = daemon.so_far(&session);
    let taken: Vec<_> = of_kind(&events, "prompt.queued")
        .into_iter()
        .filter(|event| event["data"]["text"] == "once")
        .collect();
    assert_eq!(taken.len(), 1, "the retry was taken for a new prompt");
    assert_eq!(taken[0]["data"]["prompt"], again["id"]);
}

// What the API refuses, and how it lists.

#[test]
fn a_body_over_the_limit_is_refused() {
    let daemon = Daemon::quick("[limits]\nmax_body_bytes = 2000\n");
    let session = daemon.run(&["echo"]);
    let path = format!("/api/v1/sessions/{session}/prompts");
    for size in [2001, 5_000_000] {
        let body = json!({"text": "x".repeat(size)});
        refused(daemon.post(&path, &body), 413, "too_large");
        refused(keyed(&daemon, &path, &body, "big"), 413, "too_large");
    }
    daemon.prompt(&session, &"x".repeat(1900));
}

#[test]
fn what_is_not_there_is_404_and_a_wrong_method_is_405() {
    let daemon = Daemon::quick("");
    let session = daemon.run(&["echo"]);
    let session = format!("/api/v1/sessions/{session}");
    for path in [
        "/nonesuch",
        "/api",
        "/api/v1",
        "/api/v1/",
        "/api/v2/sessions",
        "/api/v1/session",
        &format!("{session}/dance"),
        &format!("{session}/"),
        "/api/v1/sessions/",
    ] {
        refused(daemon.get(path), 404, "not_found");
        refused(daemon.post(path, &json!({})), 404, "not_found");
    }
    for (method, path) in [
        ("DELETE", "/api/v1/sessions"),
        ("PUT", &*session),
        ("POST", &session),
        ("GET", &format!("{session}/nudge")),
        ("GET", &format!("{session}/stop")),
        ("POST", "/api/v1/clearances"),
        ("GET", "/api/v1/clearances/clr_x/decision"),
        ("GET", "/api/v1/prompts/prm_x"),
        ("POST", "/api/v1/events"),
        ("POST", "/api/v1/health"),
        ("PATCH", "/api/v1/questions"),
        ("POST", "/metrics"),
    ] {
        refused(daemon.request(method, path, None, &[]), 405, "method_not_allowed");
    }
    for verb in ["nudge", "interrupt", "stop", "kill", "resume", "prompts"] {
        let body = if verb == "prompts" { json!({"text": "x"}) } else { json!({}) };
        refused(daemon.post(&format!("/api/v1/sessions/ses_0000/{verb}"), &body), 404, "not_found");
    }
}

#[test]
fn an_unknown_field_in_a_body_is_a_bad_request_and_nothing_is_done() {
    let daemon = Daemon::quick("");
    let session = daemon.run(&["echo"]);
    let before = daemon.so_far(&session);
    for verb in ["nudge", "interrupt", "stop", "kill", "resume", "prompts"] {
        let body = json!({"text": "x", "colour": "red"});
        let answer =
            refused(daemon.post(&format!("/api/v1/sessions/{session}/{verb}"), &body), 400, "bad_request");
        assert!(answer["error"]["message"].as_str().unwrap().contains("unknown field"), "{answer}");
    }
    assert_eq!(daemon.so_far(&session), before);
    assert_eq!(daemon.show(&session)["phase"], "idle");
}

/// All ids of a list, page by page.
#[track_caller]
fn pages(daemon: &Daemon, path: &str, limit: usize) -> Vec<String> {
    let (mut ids, mut cursor) = (Vec::new(), String::new());
    loop {
        let sign = if path.contains('?') { '&' } else { '?' };
        let (status, body) = daemon.get(&format!("/api/v1/{path}{sign}limit={limit}{cursor}"));
        assert_eq!(status, 200, "{body}");
        let items = body["items"].as_array().unwrap();
        assert!(items.len() == limit || (body["next"].is_null() && items.len() < limit), "{body}");
        ids.extend(items.iter().map(|item| item["id"].as_str().unwrap().to_owned()));
        match &body["next"] {
            Value::Null => return ids,
            next => cursor = format!("&cursor={}", next.as_str().unwrap_or_else(|| panic!("{body}"))),
        }
    }
}

#[test]
fn lists_are_newest_first_and_come_in_pages() {
    let daemon = Daemon::quick(&profile("slow", &["echo"], "prompt_delivery = \"heartbeat\""));
    let asking = daemon.run(&["interleave:5", "echo"]);
    daemon.wait_for(&asking, "the last", |event| event["data"]["title"] == "clr-5");
    let events = daemon.so_far(&asking);
    let newest_first = |ids: Vec<String>| ids.into_iter().rev().collect::<Vec<_>>();
    let asked = of_kind(&events, "clearance.requested");
    let expected = newest_first(
        asked.iter().map(|event| event["data"]["clearance"].as_str().unwrap().to_owned()).collect(),
    );
    for limit in [1, 2, 5, 1000] {
        assert_eq!(pages(&daemon, "clearances", limit), expected);
        assert_eq!(pages(&daemon, &format!("clearances?status=pending&session={asking}"), limit), expected);
    }
    daemon.decide(&expected[0], "approve");
    assert_eq!(pages(&daemon, "clearances?status=pending", 3), expected[1..]);
    assert_eq!(pages(&daemon, "clearances?status=approved", 3), expected[..1]);
    assert_eq!(pages(&daemon, "questions", 2), [""; 0]);

    let slow = daemon.run_agent("slow");
    assert_eq!(pages(&daemon, &format!("clearances?session={slow}"), 2), [""; 0]);
    let ids = (0..4).map(|n| daemon.prompt(&slow, &n.to_string())["id"].as_str().unwrap().to_owned());
    let expected = newest_first(ids.collect());
    assert_eq!(pages(&daemon, &format!("sessions/{slow}/prompts"), 3), expected);

    kill(&daemon, &asking);
    let last = daemon.run(&["echo"]);
    assert_eq!(pages(&daemon, "sessions", 1), [last.clone(), slow.clone()]);
    assert_eq!(pages(&daemon, "sessions?all=true", 2), [last, slow, asking]);
}

#[test]
fn a_query_that_cannot_be_understood_is_a_bad_request() {
    let daemon = Daemon::quick("");
    let session = daemon.run(&["echo"]);
    let lists = ["sessions", "clearances", "questions", "events", &format!("sessions/{session}/prompts")];
    for list in lists {
        for query in
            ["limit=0", "limit=1001", "limit=-1", "limit=many", "limit=", "colour=red", "limit=1&limit=2"]
        {
            refused(daemon.get(&format!("/api/v1/{list}?{query}")), 400, "bad_request");
        }
        if list != "events" {
            refused(daemon.get(&format!("/api/v1/{list}?cursor=x")), 400, "bad_request");
        }
    }
    for path in [
        "sessions?all=maybe",
        "clearances?status=open",
        "questions?status=denied",
        "events?after=-1",
        "events?after=x",
    ] {
        refused(daemon.get(&format!("/api/v1/{path}")), 400, "bad_request");
    }
    for path in ["clearances?session=nobody", "questions?session=nobody", "events?session=nobody"] {
        refused(daemon.get(&format!("/api/v1/{path}")), 404, "not_found");
    }
}

#[test]
fn an_unknown_query_field_is_a_bad_request_also_where_none_is_taken() {
    let daemon = Daemon::quick("");
    let session = daemon.run(&["clearance:1:May I?", "question:2:How?", "echo"]);
    let (clearance, question) = (daemon.clearance(&session), daemon.question(&session));
    let paths = [
        "health".to_owned(),
        "agents".to_owned(),
        format!("sessions/{session}"),
        format!("clearances/{clearance}"),
        format!("questions/{question}"),
    ];
    for path in paths {
        assert_eq!(daemon.get(&format!("/api/v1/{path}")).0, 200);
        refused(daemon.get(&format!("/api/v1/{path}?colour=red")), 400, "bad_request");
    }
}

#[test]
fn the_files_of_a_diff_are_named_beside_the_one_that_the_agent_names() {
    let daemon = Daemon::quick("");
    let ask = json!({
        "title": "Edit readme", "file_path": "README.md",
        "diff": "--- a/src/secret.rs\n+++ b/src/secret.rs\n@@ -1 +1 @@\n-x\n+y\n",
    });
    let session = daemon.run(&[&format!("clearance:1:{ask}"), "serve"]);
    let id = daemon.clearance(&session);
    let clearance = daemon.get(&format!("/api/v1/clearances/{id}")).1;
    assert_eq!(clearance["action"], "README.md, src/secret.rs +1 -1", "{clearance}");
    let same = json!({ "title": "Edit", "file_path": "/w/src/a.rs", "diff": "--- a/src/a.rs\n+++ b/src/a.rs\n@@ -1 +1 @@\n-x\n+y\n" });
    let session = daemon.run(&[&format!("clearance:1:{same}"), "serve"]);
    let id = daemon.clearance(&session);
    let clearance = daemon.get(&format!("/api/v1/clearances/{id}")).1;
    assert_eq!(clearance["more_paths"], json!([]), "{clearance}");
}

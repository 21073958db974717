//! The life of a session: phases, turns, prompts, generations, names, and what its process finds around it.

use std::os::unix::fs::PermissionsExt;

use intercom_testkit::harness::{Daemon, QUICK, fixture, of_kind, profile, refused};
use serde_json::{Value, json};

#[track_caller]
fn phase(daemon: &Daemon, session: &str, expected: &str) -> Value {
    let shown = daemon.show(session);
    assert_eq!(shown["phase"], expected, "{shown}");
    assert!(shown["why"].as_str().is_some_and(|why| !why.is_empty()), "{shown}");
    shown
}

/// `POST /sessions/{session}/{verb}` with an empty body.
fn tell(daemon: &Daemon, session: &str, verb: &str) -> (u16, Value) {
    daemon.post(&format!("/api/v1/sessions/{session}/{verb}"), &json!({}))
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().filter_map(|event| event["kind"].as_str()).collect()
}

/// The texts of the prompts in this state, newest first.
#[track_caller]
fn prompts(daemon: &Daemon, session: &str, state: &str) -> Vec<String> {
    let (status, body) = daemon.get(&format!("/api/v1/sessions/{session}/prompts"));
    assert_eq!(status, 200, "{body}");
    let all = body["items"].as_array().unwrap().iter().filter(|prompt| prompt["state"] == state);
    all.map(|prompt| prompt["text"].as_str().unwrap().to_owned()).collect()
}

/// The lines that the fixture reported as received, without their framing.
fn received(events: &[Value]) -> Vec<Value> {
    let said = of_kind(events, "status").into_iter().filter(|event| event["data"]["message"] == "received");
    said.map(|event| serde_json::from_str(event["data"]["line"].as_str().unwrap()).unwrap()).collect()
}

// Phases and turns.

#[test]
fn a_session_goes_from_idle_to_working_to_waiting_and_back_and_ends() {
    let daemon = Daemon::quick("");
    let session = daemon.run(&["serve"]);
    let shown = phase(&daemon, &session, "idle");
    for key in [
        "id",
        "name",
        "agent",
        "protocol",
        "workspace",
        "phase",
        "why",
        "pid",
        "generation",
        "turn",
        "pending",
        "queue",
        "stderr_tail",
        "started_at",
        "ended_at",
        "exit",
    ] {
        assert!(shown.get(key).is_some(), "no {key}: {shown}");
    }
    assert_eq!(
        (&shown["turn"], &shown["generation"], &shown["exit"]),
        (&json!(null), &json!(1), &json!(null))
    );
    assert!(shown["pid"].as_i64().is_some_and(|pid| pid > 1) && shown["started_at"].is_string(), "{shown}");

    daemon.prompt(&session, "status:at work");
    daemon.wait_status(&session, "at work");
    let turn = phase(&daemon, &session, "working")["turn"].clone();
    assert!(turn["id"].as_str().is_some_and(|id| id.starts_with("trn_")), "{turn}");
    assert!(turn["started_at"].is_string(), "{turn}");

    daemon.prompt(&session, "clearance:a:May I?; question:b:How?");
    let question = daemon.question(&session);
    let shown = phase(&daemon, &session, "waiting");
    assert_eq!((&shown["pending"], &shown["turn"]), (&json!({"clearances": 1, "questions": 1}), &turn));
    daemon.decide(&daemon.clearance(&session), "approve");
    phase(&daemon, &session, "waiting");
    let (status, _) =
        daemon.post(&format!("/api/v1/questions/{question}/answer"), &json!({"decision": "continue"}));
    assert_eq!(status, 200);
    let shown = phase(&daemon, &session, "working");
    assert_eq!((&shown["pending"], &shown["turn"]), (&json!({"clearances": 0, "questions": 0}), &turn));

    daemon.prompt(&session, "turn-end:all done");
    let ended = daemon.wait_kind(&session, "turn.ended");
    assert_eq!((&ended["data"]["turn"], &ended["data"]["stop_reason"]), (&turn["id"], &json!("all done")));
    assert_eq!(phase(&daemon, &session, "idle")["turn"], json!(null));

    daemon.prompt(&session, "exit:3");
    let events = daemon.all_events(&session);
    let shown = phase(&daemon, &session, "ended");
    assert_eq!((&shown["pid"], &shown["turn"]), (&json!(null), &json!(null)));
    assert_eq!(
        shown["exit"],
        json!({"code": 3, "signal": null, "reason": "exited with code 3 during a turn"})
    );
    assert!(shown["ended_at"].is_string(), "{shown}");
    assert_eq!(
        of_kind(&events, "turn.started").len(),
        2,
        "prompts joined the first turn, the last began another"
    );
    assert_eq!(kinds(&events)[..3], ["session.created", "agent.spawned", "agent.ready"]);
    let end = kinds(&events).len() - 3;
    assert_eq!(kinds(&events)[end..], ["agent.exited", "turn.ended", "session.ended"]);
}

#[test]
fn a_turn_begins_with_the_first_valid_message_and_noise_is_none() {
    let daemon = Daemon::quick("");
    let go = daemon.workspace().join("go");
    let steps = [
        "raw:Agent 1.0",
        "request:tea/ask:1",
        "clearance:2:",
        "expect:error:2",
        "raw:",
        &format!("wait-file:{}", go.display()),
        "heartbeat",
        "echo",
    ];
    let session = daemon.run(&steps);
    daemon.wait_for(&session, "the last noise", |event| event["data"]["field"] == "title");
    assert_eq!(phase(&daemon, &session, "idle")["turn"], json!(null));
    assert!(of_kind(&daemon.so_far(&session), "turn.started").is_empty());
    std::fs::write(go, "").unwrap();
    daemon.wait_kind(&session, "heartbeat");
    phase(&daemon, &session, "working");
}

#[test]
fn a_message_while_idle_does_not_begin_a_turn() {
    let daemon = Daemon::quick("");
    let session = daemon.run(&[
        "status:one",
        "turn-end",
        "status:two",
        "turn-end:again",
        "clearance:1:May I?",
        "echo:1",
    ]);
    let clearance = daemon.clearance(&session);
    assert_eq!(
        phase(&daemon, &session, "waiting")["turn"],
        json!(null),
        "a request waits, whatever the turn"
    );
    daemon.decide(&clearance, "approve");
    let events = daemon.all_events(&session);
    assert_eq!(of_kind(&events, "turn.started").len(), 1);
    assert_eq!(of_kind(&events, "turn.ended").len(), 1, "nothing ends that did not run");
    let kept = &of_kind(&events, "unknown")[0]["data"]["message"];
    assert_eq!(kept, &json!({"method": "turn/end", "params": {"stop_reason": "again"}}));
}

#[test]
fn only_a_heartbeat_whose_steps_are_all_completed_ends_the_turn() {
    let daemon = Daemon::quick("");
    let session = daemon.run(&[
        "heartbeat",
        "heartbeat:[]",
        "heartbeat:a=completed,b=in_progress",
        "status:still",
        "echo:1",
        "done:a,b",
        "echo:1",
    ]);
    daemon.wait_status(&session, "still");
    phase(&daemon, &session, "working");
    daemon.cli(&["nudge", &session]).ok();
    let ended = daemon.wait_kind(&session, "turn.ended");
    assert_eq!(ended["data"]["stop_reason"], "completed");
    phase(&daemon, &session, "idle");
}

#[test]
fn a_prompt_begins_a_turn_or_joins_the_one_that_runs() {
    let daemon = Daemon::quick("");
    let session = daemon.run_with(&["echo:3", "turn-end", "echo"], json!({"prompt": "first"}));
    daemon.wait_status(&session, "received");
    let turn = phase(&daemon, &session, "working")["turn"].clone();
    assert_eq!(daemon.prompt(&session, "second")["state"], "delivered");
    assert_eq!(daemon.show(&session)["turn"], turn);
    daemon.prompt(&session, "third");
    daemon.wait_kind(&session, "turn.ended");
    daemon.prompt(&session, "fourth");
    let next = phase(&daemon, &session, "working")["turn"].clone();
    assert_ne!(next["id"], turn["id"]);
    let events = daemon.so_far(&session);
    let causes: Vec<_> =
        of_kind(&events, "turn.started").iter().map(|event| event["data"]["cause"].clone()).collect();
    assert_eq!(causes, ["prompt", "prompt"]);
}

#[test]
fn an_interrupt_ends_the_turn_and_leaves_the_clearance_open() {
    let daemon = Daemon::quick("[acp]\ninterrupt_quiet_seconds = 0.2\n");
    let session = daemon.run(&["clearance:1:May I?", "report:session/interrupt", "answer:1", "echo:1"]);
    let clearance = daemon.clearance(&session);
    assert!(phase(&daemon, &session, "waiting")["turn"].is_object());
    let path = format!("/api/v1/sessions/{session}/interrupt");
    let (status, body) = daemon.post(&path, &json!({"reason": "enough"}));
    assert_eq!(status, 202, "{body}");
    let line = daemon.wait_status(&session, "received")["line"].clone();
    assert_eq!(
        serde_json::from_str::<Value>(line.as_str().unwrap()).unwrap(),
        json!({"method": "session/interrupt", "params": {"reason": "enough"}})
    );
    assert_eq!(daemon.wait_kind(&session, "turn.ended")["data"]["stop_reason"], "interrupted");
    let shown = phase(&daemon, &session, "waiting");
    assert_eq!((&shown["turn"], &shown["pending"]["clearances"]), (&json!(null), &json!(1)));
    assert_eq!(daemon.decide(&clearance, "approve")["delivery"], "delivered");
    assert_eq!(daemon.wait_status(&session, "answered")["status"], "approved");
    assert_eq!(phase(&daemon, &session, "idle")["turn"], json!(null));
}

#[test]
fn the_end_of_the_agent_ends_its_turn_and_withdraws_what_is_open() {
    let daemon = Daemon::quick("");
    let session = daemon.run(&["clearance:1:May I?", "question:2:How?", "signal:SEGV"]);
    let events = daemon.all_events(&session);
    assert_eq!(of_kind(&events, "turn.ended").len(), 1);
    for (kind, what) in [("clearance", "clearances"), ("question", "questions")] {
        let closed = of_kind(&events, &format!("{kind}.closed"));
        assert_eq!((closed.len(), &closed[0]["data"]["status"]), (1, &json!("withdrawn")));
        let (_, body) = daemon.get(&format!("/api/v1/{what}/{}", closed[0]["data"][kind].as_str().unwrap()));
        assert_eq!((&body["status"], &body["delivery"]), (&json!("withdrawn"), &json!("none")), "{body}");
        let (_, pending) = daemon.get(&format!("/api/v1/{what}?status=pending"));
        assert_eq!(pending["items"], json!([]));
    }
    let shown = daemon.show(&session);
    assert_eq!((&shown["exit"]["code"], &shown["exit"]["signal"]), (&json!(null), &json!(11)));
    assert_eq!(shown["pending"], json!({"clearances": 0, "questions": 0}));
}

#[test]
fn what_is_steered_after_the_end_is_refused() {
    let daemon = Daemon::quick("");
    let session = daemon.run(&["exit:0"]);
    daemon.all_events(&session);
    for verb in ["nudge", "interrupt"] {
        refused(tell(&daemon, &session, verb), 409, "ended");
    }
    refused(
        daemon.post(&format!("/api/v1/sessions/{session}/prompts"), &json!({"text": "hi"})),
        409,
        "ended",
    );
    for verb in ["stop", "kill"] {
        let (status, body) = tell(&daemon, &session, verb);
        assert_eq!((status, &body["phase"], &body["killed"]), (200, &json!("ended"), &json!(0)), "{body}");
    }
}

#[test]
fn nudges_and_interrupts_reach_the_agent_with_and_without_words() {
    let daemon = Daemon::quick("");
    let session = daemon.run(&["echo:4"]);
    for (verb, body) in [
        ("nudge", json!({})),
        ("nudge", json!({"message": "a \"quoted\"\nline"})),
        ("interrupt", json!({})),
        ("interrupt", json!({"reason": "x"})),
    ] {
        let (status, answer) = daemon.post(&format!("/api/v1/sessions/{session}/{verb}"), &body);
        assert_eq!(status, 202, "{answer}");
    }
    let lines = received(&daemon.all_events(&session));
    assert!(lines[0]["params"]["message"].as_str().is_some_and(|text| !text.is_empty()), "{lines:?}");
    assert_eq!(lines[1], json!({"method": "nudge", "params": {"message": "a \"quoted\"\nline"}}));
    assert!(lines[2]["params"]["reason"].as_str().is_some_and(|text| !text.is_empty()), "{lines:?}");
    assert_eq!(lines[3], json!({"method": "session/interrupt", "params": {"reason": "x"}}));
}

// Prompts.

#[test]
fn a_prompt_arrives_as_it_was_typed_and_is_listed_as_delivered() {
    let daemon = Daemon::quick("");
    let session = daemon.run(&["echo:1"]);
    let text = "line one\nline \"two\" \\ \u{2028} é 🦀 \u{0}";
    let prompt = daemon.prompt(&session, text);
    assert_eq!((&prompt["state"], &prompt["text"]), (&json!("delivered"), &json!(text)));
    assert!(prompt["id"].as_str().is_some_and(|id| id.starts_with("prm_")) && prompt["at"].is_string());
    assert!(prompt["by"].as_str().is_some_and(|by| !by.is_empty()));
    let events = daemon.all_events(&session);
    let turn = &of_kind(&events, "turn.started")[0]["data"]["turn"];
    let sent = json!({"method": "prompt/send", "params": {"text": text, "turn": turn}});
    assert_eq!(received(&events), [sent]);
    assert_eq!(of_kind(&events, "prompt.delivered")[0]["data"]["prompt"], prompt["id"]);
    let path = format!("/api/v1/prompts/{}", prompt["id"].as_str().unwrap());
    refused(daemon.request("DELETE", &path, None, &[]), 409, "already_sent");
    assert_eq!(prompts(&daemon, &session, "delivered"), [text]);
}

#[test]
fn the_first_prompt_is_the_first_thing_the_agent_hears() {
    let daemon = Daemon::quick("");
    let session = daemon.run_with(&["echo:2"], json!({"prompt": "begin"}));
    daemon.wait_kind(&session, "prompt.delivered");
    daemon.prompt(&session, "and then");
    let events = daemon.all_events(&session);
    let texts: Vec<_> = received(&events).iter().map(|line| line["params"]["text"].clone()).collect();
    assert_eq!(texts, ["begin", "and then"]);
    assert_eq!(
        kinds(&events)[..7],
        [
            "session.created",
            "prompt.queued",
            "agent.spawned",
            "agent.ready",
            "turn.started",
            "prompt.sending",
            "prompt.delivered"
        ]
    );
}

#[test]
fn with_heartbeat_delivery_prompts_queue_and_one_leaves_with_each_heartbeat() {
    let steps = [
        "status:up",
        "expect:nudge",
        "heartbeat",
        "report:prompt/send",
        "expect:nudge",
        "done:a",
        "echo:1",
        "expect:nudge",
        "heartbeat",
        "echo:1",
    ];
    let daemon = Daemon::quick(&profile("slow", &steps, "prompt_delivery = \"heartbeat\""));
    let session = daemon.run_agent("slow");
    let ids: Vec<String> = ["one", "taken back", "two"]
        .iter()
        .map(|text| {
            let prompt = daemon.prompt(&session, text);
            assert_eq!(prompt["state"], "queued", "{prompt}");
            prompt["id"].as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!(daemon.show(&session)["queue"], 3);
    assert_eq!(prompts(&daemon, &session, "queued"), ["two", "taken back", "one"]);

    let take_back = |id: &str| daemon.request("DELETE", &format!("/api/v1/prompts/{id}"), None, &[]);
    assert_eq!(take_back(&ids[1]), (204, Value::Null));
    assert_eq!(daemon.show(&session)["queue"], 2);
    assert_eq!(daemon.wait_kind(&session, "prompt.withdrawn")["data"]["prompt"], ids[1]);
    assert_eq!(prompts(&daemon, &session, "withdrawn"), ["taken back"]);

    let nudge = || assert_eq!(tell(&daemon, &session, "nudge").0, 202);
    nudge();
    daemon.wait_for(&session, "the first prompt", |event| {
        event["data"]["prompt"] == ids[0] && event["kind"] == "prompt.delivered"
    });
    refused(take_back(&ids[0]), 409, "already_sent");
    assert_eq!(prompts(&daemon, &session, "queued"), ["two"]);
    let first_turn = phase(&daemon, &session, "working")["turn"]["id"].clone();
    nudge();
    daemon.wait_for(&session, "the second prompt", |event| {
        event["data"]["prompt"] == ids[2] && event["kind"] == "prompt.delivered"
    });
    assert_ne!(
        phase(&daemon, &session, "working")["turn"]["id"],
        first_turn,
        "it ended before the prompt left"
    );
    nudge();
    daemon.wait_for(&session, "a heartbeat with an empty queue", |event| event["data"] == json!({}));
    nudge();
    let events = daemon.all_events(&session);
    let texts: Vec<_> = received(&events).iter().map(|line| line["params"]["text"].clone()).collect();
    assert_eq!(texts, [json!("one"), json!("two"), json!(null)], "the last is the nudge");
    refused(take_back("prm_nosuchprompt"), 404, "not_found");
}

#[test]
fn a_full_queue_refuses_one_more_and_takes_it_once_there_is_room() {
    let profile = profile("slow", &["echo"], "prompt_delivery = \"heartbeat\"");
    let daemon = Daemon::quick(&format!("[limits]\nmax_queued_prompts = 2\n{profile}"));
    let session = daemon.run_agent("slow");
    let first = daemon.prompt(&session, "one");
    daemon.prompt(&session, "two");
    let path = format!("/api/v1/sessions/{session}/prompts");
    refused(daemon.post(&path, &json!({"text": "three"})), 429, "queue_full");
    assert_eq!(daemon.show(&session)["queue"], 2);
    let id = first["id"].as_str().unwrap();
    assert_eq!(daemon.request("DELETE", &format!("/api/v1/prompts/{id}"), None, &[]).0, 204);
    daemon.prompt(&session, "three");
    assert_eq!(prompts(&daemon, &session, "queued"), ["three", "two"]);
}

#[test]
fn a_prompt_needs_a_text() {
    let daemon = Daemon::quick("");
    let session = daemon.run(&["echo"]);
    let path = format!("/api/v1/sessions/{session}/prompts");
    for body in [
        json!({}),
        json!({"text": ""}),
        json!({"text": " \n"}),
        json!({"text": 5}),
        json!({"text": "x", "mode": 1}),
    ] {
        refused(daemon.post(&path, &body), 400, "bad_request");
    }
    assert_eq!(daemon.so_far(&session).len(), 3, "nothing happened");
}

// Generations.

#[test]
fn resume_opens_the_next_generation_in_which_ids_begin_anew() {
    let daemon = Daemon::quick("");
    let session = daemon.run_with(
        &["whoami", "clearance:#1:May I?", "answer:#1", "echo:1"],
        json!({"name": "phoenix", "env": {"COLOUR": "red"}}),
    );
    let first = daemon.clearance(&session);
    let old_pid = daemon.show(&session)["pid"].clone();
    refused(tell(&daemon, &session, "resume"), 409, "running");
    assert_eq!(tell(&daemon, &session, "kill").0, 200);

    let (status, shown) = tell(&daemon, &session, "resume");
    assert_eq!((status, &shown["generation"], &shown["id"]), (200, &json!(2), &json!(session)), "{shown}");
    assert_eq!((&shown["exit"], &shown["ended_at"]), (&json!(null), &json!(null)), "{shown}");
    assert!(shown["pid"].is_number() && shown["pid"] != old_pid, "{shown}");
    let second = daemon.wait_for(&session, "a second clearance", |event| {
        event["kind"] == "clearance.requested" && event["data"]["clearance"] != first
    });
    let second = second["data"]["clearance"].as_str().unwrap();
    let late = daemon.post(&format!("/api/v1/clearances/{first}/decision"), &json!({"decision": "deny"}));
    assert_eq!(refused(late, 409, "already_decided")["clearance"]["status"], "withdrawn");
    daemon.decide(second, "approve");
    assert_eq!(daemon.wait_status(&session, "answered")["status"], "approved");

    let events = daemon.so_far(&session);
    let lives: Vec<_> =
        of_kind(&events, "status").into_iter().filter(|event| event["data"]["message"] == "whoami").collect();
    assert_eq!(lives.len(), 2);
    for life in lives {
        assert_eq!(
            (&life["data"]["env"]["INTERCOM_SESSION"], &life["data"]["env"]["COLOUR"]),
            (&json!(session), &json!("red"))
        );
    }
    assert_eq!(of_kind(&events, "session.resumed")[0]["data"]["generation"], 2);
    assert_eq!(of_kind(&events, "turn.started").len(), 2, "the first message of each process begins a turn");
    assert_eq!(daemon.show("phoenix")["generation"], 2);
}

#[test]
fn a_prompt_left_in_the_queue_goes_to_the_next_generation() {
    let dir = tempfile::tempdir().unwrap();
    let go = dir.path().join("go");
    let steps = [&format!("wait-file:{}", go.display()), "heartbeat", "echo:1"];
    let daemon = Daemon::quick(&profile("slow", &steps, "prompt_delivery = \"heartbeat\""));
    let session = daemon.run_agent("slow");
    daemon.prompt(&session, "later");
    assert_eq!(tell(&daemon, &session, "kill").0, 200);
    assert_eq!(prompts(&daemon, &session, "queued"), ["later"]);
    std::fs::write(&go, "").unwrap();
    assert_eq!(tell(&daemon, &session, "resume").0, 200);
    let line = daemon.wait_status(&session, "received")["line"].clone();
    assert!(line.as_str().unwrap().contains("later"), "{line}");
    assert_eq!(prompts(&daemon, &session, "delivered"), ["later"]);
}

#[test]
fn a_prompt_left_in_the_queue_of_an_ended_session_can_be_taken_back() {
    let daemon = Daemon::quick(&profile("slow", &["echo"], "prompt_delivery = \"heartbeat\""));
    let session = daemon.run_agent("slow");
    let prompt = daemon.prompt(&session, "never mind");
    assert_eq!(tell(&daemon, &session, "stop").0, 200);
    let path = format!("/api/v1/prompts/{}", prompt["id"].as_str().unwrap());
    assert_eq!(daemon.request("DELETE", &path, None, &[]), (204, Value::Null));
    assert_eq!(daemon.show(&session)["queue"], 0);
    assert_eq!(prompts(&daemon, &session, "withdrawn"), ["never mind"]);
}

// Starting, names and limits.

#[test]
fn a_session_is_found_by_name_and_by_any_unique_prefix() {
    let daemon = Daemon::quick("");
    let session = daemon.run_with(&["echo"], json!({"name": "builder.1"}));
    let tail = session.strip_prefix("ses_").unwrap();
    for typed in [&session, "builder.1", tail, &tail[..5], &session[..9], &tail.to_uppercase()] {
        assert_eq!(daemon.show(typed)["id"], session, "{typed}");
    }
    for typed in ["builder", "ses_", "ses_!", "%25", "clr_0", "no-such"] {
        refused(daemon.get(&format!("/api/v1/sessions/{typed}")), 404, "not_found");
    }
    refused(daemon.ask_to_start(json!({"command": fixture(), "name": "builder.1"})), 409, "name_taken");
    assert_eq!(tell(&daemon, "builder.1", "kill").0, 200);
    let next = daemon.run_with(&["echo"], json!({"name": "builder.1"}));
    assert_eq!(daemon.show("builder.1")["id"], next, "the live one");
    refused(tell(&daemon, &session, "resume"), 409, "name_taken");
    for name in ["", "ses_x", "a b", "a/b", &"x".repeat(65)] {
        refused(daemon.ask_to_start(json!({"command": fixture(), "name": name})), 400, "bad_request");
    }
}

#[test]
fn a_prefix_that_several_share_is_ambiguous_and_names_them() {
    let daemon = Daemon::quick("");
    let mut ids: Vec<String> = Vec::new();
    // Ids begin with one of 32 characters: at the latest the 33rd shares its first with another.
    let (one, other) = loop {
        let id = daemon.run(&["exit:0"]);
        if let Some(twin) = ids.iter().find(|known| known[..5] == id[..5]) {
            break (twin.clone(), id);
        }
        ids.push(id);
    };
    let body = refused(daemon.get(&format!("/api/v1/sessions/{}", &one[..5])), 409, "ambiguous_id");
    let hint = body["error"]["hint"].as_str().unwrap();
    assert!(hint.contains(&one) && hint.contains(&other), "{hint}");
    refused(tell(&daemon, &one[4..5], "stop"), 409, "ambiguous_id");
}

#[test]
fn one_session_more_than_the_limit_is_refused_until_another_has_ended() {
    let daemon = Daemon::quick("[limits]\nmax_sessions = 2\n");
    let first = daemon.run(&["echo"]);
    let second = daemon.run(&["echo"]);
    let one_more = || daemon.ask_to_start(json!({"command": fixture(), "args": ["echo"]}));
    refused(one_more(), 429, "too_many_sessions");
    assert_eq!(tell(&daemon, &first, "stop").0, 200);
    assert_eq!(one_more().0, 201);
    refused(tell(&daemon, &first, "resume"), 429, "too_many_sessions");
    assert_eq!(tell(&daemon, &second, "stop").0, 200);
    assert_eq!(tell(&daemon, &first, "resume").0, 200);
    let (_, all) = daemon.get("/api/v1/sessions?all=true");
    assert_eq!(all["items"].as_array().unwrap().len(), 3, "what was refused is not there");
}

/// What each of ten callers got who asked at the same time.
fn all_at_once(ask: impl Fn() -> (u16, Value) + Sync) -> Vec<(u16, Value)> {
    let barrier = std::sync::Barrier::new(10);
    let one = || {
        barrier.wait();
        ask()
    };
    std::thread::scope(|scope| {
        let callers: Vec<_> = (0..10).map(|_| scope.spawn(one)).collect();
        callers.into_iter().map(|caller| caller.join().unwrap()).collect()
    })
}

#[track_caller]
fn this_many(answers: Vec<(u16, Value)>, status: u16, wanted: usize, otherwise: (u16, &str)) {
    let (done, not): (Vec<_>, Vec<_>) = answers.into_iter().partition(|answer| answer.0 == status);
    assert_eq!(done.len(), wanted, "{done:?}");
    for answer in not {
        refused(answer, otherwise.0, otherwise.1);
    }
}

#[test]
fn limits_and_names_hold_also_for_those_who_ask_at_once() {
    let daemon = Daemon::quick("[limits]\nmax_sessions = 4\n");
    let named = || daemon.ask_to_start(json!({"command": fixture(), "args": ["echo"], "name": "the-one"}));
    this_many(all_at_once(named), 201, 1, (409, "name_taken"));
    let any = || daemon.ask_to_start(json!({"command": fixture(), "args": ["echo"]}));
    this_many(all_at_once(any), 201, 3, (429, "too_many_sessions"));
    assert_eq!(tell(&daemon, "the-one", "kill").0, 200);
    this_many(all_at_once(|| tell(&daemon, "the-one", "resume")), 200, 1, (409, "running"));
    let shown = phase(&daemon, "the-one", "idle");
    assert_eq!(shown["generation"], 2);
    let stops = all_at_once(|| tell(&daemon, "the-one", "stop"));
    assert!(stops.iter().all(|(status, body)| *status == 200 && body["phase"] == "ended"), "{stops:?}");
}

#[test]
fn a_command_that_cannot_be_started_is_told_and_recorded() {
    let daemon = Daemon::quick("");
    let plain = daemon.workspace().join("plain.txt");
    std::fs::write(&plain, "hello").unwrap();
    let bad = daemon.workspace().join("bad-interpreter");
    std::fs::write(&bad, "#!/no/such/shell\n").unwrap();
    std::fs::set_permissions(&bad, std::fs::Permissions::from_mode(0o755)).unwrap();
    let commands = [
        json!("/no/such/agent"),
        json!("no-such-agent"),
        json!(plain),
        json!(daemon.workspace()),
        json!(bad),
        json!(""),
    ];
    for command in &commands {
        let body =
            refused(daemon.ask_to_start(json!({"command": command, "prompt": "hello"})), 422, "spawn_failed");
        let session = body["session"].as_str().unwrap();
        let shown = phase(&daemon, session, "ended");
        assert!(shown["exit"]["reason"].as_str().unwrap().starts_with("spawn failed"), "{shown}");
        let events = daemon.all_events(session);
        assert!(of_kind(&events, "agent.spawned").is_empty());
        refused(tell(&daemon, session, "resume"), 422, "spawn_failed");
    }
    let (_, live) = daemon.get("/api/v1/sessions");
    assert_eq!(live["items"], json!([]));
}

#[test]
fn a_start_that_makes_no_sense_is_a_bad_request_and_starts_nothing() {
    let daemon = Daemon::quick("");
    let file = daemon.workspace().join("file");
    std::fs::write(&file, "").unwrap();
    let command = fixture();
    for body in [
        json!({"command": command, "workspace": daemon.workspace().join("missing")}),
        json!({"command": command, "workspace": file}),
        json!({"command": command, "workspace": "relative/path"}),
        json!({"command": command, "workspace": 5}),
        json!({"command": command, "workspace": null}),
        json!({}),
        json!({"command": command, "agent": "demo"}),
        json!({"agent": "nobody"}),
        json!({"agent": "demo", "args": ["x"]}),
        json!({"command": command, "args": "x"}),
        json!({"command": [command]}),
        json!({"command": command, "protocol": "telepathy"}),
        json!({"command": command, "colour": "red"}),
        json!({"command": command, "env": {"INTERCOM_SESSION": "forged"}}),
        json!({"command": command, "env": {"A=B": "x"}}),
    ] {
        refused(daemon.ask_to_start(body), 400, "bad_request");
    }
    let (_, all) = daemon.get("/api/v1/sessions?all=true");
    assert_eq!(all["items"], json!([]));
}

// What the process finds around it.

#[test]
fn an_agent_gets_an_allowlisted_environment_and_never_a_secret_of_the_daemons() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("work")).unwrap();
    let profile = profile(
        "asker",
        &["whoami"],
        "pass_env = [\"MODEL_KEY\", \"NOT_THERE\"]\nenv = { TZ = \"CET\", OWN = \"profile\" }",
    );
    std::fs::write(dir.path().join("config.toml"), format!("{QUICK}{profile}")).unwrap();
    let secrets = [
        ("SLACK_BOT_TOKEN", "xoxb-planted"),
        ("SLACK_APP_TOKEN", "xapp-planted"),
        ("INTERCOM_TOKEN", "planted"),
        ("AWS_SECRET_ACCESS_KEY", "planted"),
        ("GITHUB_TOKEN", "planted"),
        ("SSH_AUTH_SOCK", "/planted"),
        ("DATABASE_URL", "planted"),
        ("LD_PRELOAD_NOT", "planted"),
        ("RUST_LOG", "info"),
    ];
    let passed = [
        ("MODEL_KEY", "the model's"),
        ("LC_ALL", "C.UTF-8"),
        ("XDG_DATA_HOME", "/data"),
        ("TERM", "dumb"),
        ("TZ", "UTC"),
    ];
    let env: Vec<(&str, &str)> = secrets.into_iter().chain(passed).collect();
    let daemon = Daemon::start_in(dir, &[], &env);

    let (status, body) = daemon.ask_to_start(
        json!({"agent": "asker", "env": {"OWN": "caller", "MORE": "1"}, "prompt": "planted in a prompt"}),
    );
    assert_eq!(status, 201, "{body}");
    let session = body["id"].as_str().unwrap();
    let found = daemon.wait_status(session, "whoami");
    let home = daemon.dir.path().to_str().unwrap();
    let expected = json!({
        "PATH": std::env::var("PATH").unwrap(), "HOME": home, "LC_ALL": "C.UTF-8", "XDG_DATA_HOME": "/data",
        "TERM": "dumb", "TZ": "CET", "MODEL_KEY": "the model's", "OWN": "caller", "MORE": "1", "INTERCOM_SESSION": session,
    });
    assert_eq!(found["env"], expected);

    let session = daemon.run(&["whoami"]);
    let found = daemon.wait_status(&session, "whoami");
    assert_eq!((&found["env"]["MODEL_KEY"], &found["env"]["TZ"]), (&json!(null), &json!("UTC")));
    assert!(!found["env"].to_string().contains("planted"), "{found}");
}

#[test]
fn an_agent_runs_in_its_workspace_with_its_own_group_and_nothing_but_its_pipes() {
    let daemon = Daemon::quick("");
    let session = daemon.run_with(&["whoami", "echo:1"], json!({"prompt": "the secret plan"}));
    let found = daemon.wait_status(&session, "whoami");
    assert_eq!(found["cwd"], json!(daemon.workspace().canonicalize().unwrap()));
    assert_eq!(found["args"], json!(["whoami", "echo:1"]));
    assert!(
        !found.to_string().contains("secret plan"),
        "a prompt is neither in the arguments nor in the environment"
    );
    assert_eq!((&found["pgid"], &found["sid"]), (&found["pid"], &found["pid"]));
    assert_eq!(daemon.wait_kind(&session, "agent.spawned")["data"]["pid"], found["pid"]);
    let inherited = |target: &Value| {
        let ours = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        ours.filter_map(|fd| std::fs::read_link(fd.path()).ok()).any(|open| json!(open) == *target)
    };
    // What whoever runs the tests has left open for everybody is not ours.
    let fds = found["fds"].as_object().unwrap().iter().filter(|(_, target)| !inherited(target));
    assert_eq!(fds.map(|(fd, _)| fd.as_str()).collect::<Vec<_>>(), ["0", "1", "2"], "{found}");
    daemon.all_events(&session);
}

#[test]
fn an_agent_begins_with_no_signal_blocked_or_ignored_on_our_account() {
    let daemon = Daemon::quick("");
    // Not the fixture: a Rust program ignores SIGPIPE by itself.
    let masks = json!({"command": "grep", "args": ["-E", "Sig(Blk|Ign)", "/proc/self/status"]});
    let (status, body) = daemon.ask_to_start(masks);
    assert_eq!(status, 201, "{body}");
    let events = daemon.all_events(body["id"].as_str().unwrap());
    let rejected = of_kind(&events, "line.rejected");
    let masks: Vec<u64> = rejected
        .iter()
        .map(|event| event["data"]["excerpt"].as_str().unwrap().split_once('\t').unwrap().1)
        .map(|mask| u64::from_str_radix(mask, 16).unwrap())
        .collect();
    let sigpipe = 1 << (nix::sys::signal::Signal::SIGPIPE as u64 - 1);
    assert_eq!((masks[0], masks[1] & sigpipe), (0, 0), "{rejected:#?}");
}

#[test]
fn an_agent_that_stays_after_the_end_of_its_stdin_is_ended_by_sigterm() {
    let daemon = Daemon::quick("");
    let session = daemon.run(&["ignore:eof", "status:up", "echo"]);
    daemon.wait_status(&session, "up");
    let (status, body) = tell(&daemon, &session, "stop");
    assert_eq!((status, &body["steps"]), (200, &json!(["interrupt", "close_stdin", "sigterm"])), "{body}");
    assert_eq!(body["killed"], 0);
    assert_eq!(daemon.show(&session)["exit"]["signal"], 15);
}

/// Ends a process that got away, also after a failure.
struct Stray(i32);

impl Drop for Stray {
    fn drop(&mut self) {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.0), nix::sys::signal::Signal::SIGKILL).ok();
    }
}

#[test]
fn a_detached_child_that_writes_to_stdout_for_ever_does_not_keep_its_session_alive() {
    let daemon = Daemon::quick("");
    for way in ["stop", "exit"] {
        let last = if way == "stop" { "echo" } else { "exit:0" };
        let session = daemon.run(&["grandchild:setsid,stdout:repeat:1000000000:status:noise", last]);
        let pid = daemon.wait_status(&session, "grandchild")["pid"].as_i64().unwrap();
        let _stray = Stray(i32::try_from(pid).unwrap());
        if way == "stop" {
            assert_eq!(tell(&daemon, &session, "stop").0, 200);
        }
        daemon.wait_for_end(&session);
    }
}

// Many at once.

#[test]
fn several_questions_and_clearances_are_open_at_once_and_answered_in_any_order() {
    let daemon = Daemon::quick("");
    let steps =
        ["clearance:a:A", "question:b:B?", "clearance:c:C", "question:d:D?", "status:asked", "echo:4"];
    let session = daemon.run(&steps);
    daemon.wait_status(&session, "asked");
    assert_eq!(daemon.show(&session)["pending"], json!({"clearances": 2, "questions": 2}));
    let events = daemon.so_far(&session);
    let id = |kind: &str, which: usize, key: &str| {
        of_kind(&events, kind)[which]["data"][key].as_str().unwrap().to_owned()
    };
    let answer = |question: &str, body: &Value| {
        let (status, body) = daemon.post(&format!("/api/v1/questions/{question}/answer"), body);
        assert_eq!((status, &body["delivery"]), (200, &json!("delivered")), "{body}");
    };
    answer(&id("question.asked", 1, "question"), &json!({"decision": "stop"}));
    daemon.decide(&id("clearance.requested", 1, "clearance"), "deny");
    answer(&id("question.asked", 0, "question"), &json!({"decision": "refine", "instruction": "slowly"}));
    daemon.decide(&id("clearance.requested", 0, "clearance"), "approve");
    assert_eq!(
        received(&daemon.all_events(&session)),
        [
            json!({"id": "d", "method": "prompt/response", "params": {"decision": "stop", "instruction": null}}),
            json!({"id": "c", "method": "clearance/response", "params": {"status": "rejected", "reason": null}}),
            json!({"id": "b", "method": "prompt/response", "params": {"decision": "refine", "instruction": "slowly"}}),
            json!({"id": "a", "method": "clearance/response", "params": {"status": "approved", "reason": null}}),
        ]
    );
}

#[test]
fn ten_sessions_with_interleaved_clearances_each_get_their_own_answers() {
    let daemon = Daemon::quick("");
    // All agents use the same ids.
    let sessions: Vec<String> = (0..10).map(|_| daemon.run(&["interleave:5:req", "echo:1"])).collect();
    for session in &sessions {
        daemon.wait_for(session, "its last request", |event| event["data"]["title"] == "req-5");
    }
    let (_, list) = daemon.get("/api/v1/clearances?status=pending&limit=1000");
    let open = list["items"].as_array().unwrap();
    assert_eq!(open.len(), 50);
    // Four people, each with every fourth clearance: sessions and requests get mixed.
    std::thread::scope(|scope| {
        for person in 0..4 {
            let daemon = &daemon;
            scope.spawn(move || {
                for clearance in open.iter().skip(person).step_by(4) {
                    let id = clearance["id"].as_str().unwrap();
                    let reason = format!(
                        "{} {}",
                        clearance["session"].as_str().unwrap(),
                        clearance["title"].as_str().unwrap()
                    );
                    let path = format!("/api/v1/clearances/{id}/decision");
                    let (status, body) = daemon.post(&path, &json!({"decision": "deny", "reason": reason}));
                    assert_eq!((status, &body["delivery"]), (200, &json!("delivered")), "{body}");
                }
            });
        }
    });
    for session in &sessions {
        assert_eq!(tell(&daemon, session, "nudge").0, 202);
        let events = daemon.all_events(session);
        let answers: Vec<_> = of_kind(&events, "status")
            .into_iter()
            .filter(|event| event["data"]["message"] == "answered")
            .collect();
        assert_eq!(answers.len(), 5);
        for answer in answers {
            let id = answer["data"]["id"].as_str().unwrap();
            assert_eq!(
                answer["data"]["params"],
                json!({"status": "rejected", "reason": format!("{session} {id}")})
            );
        }
        assert_eq!(received(&events)[0]["method"], "nudge", "nothing came twice");
    }
}

//! Many clients on one session: over stdio, WebSocket and HTTP, and somebody at the console, who sees events.

use intercom_testkit::client::Place;
use intercom_testkit::harness::{Daemon, QUICK, home, of_kind, wait_turns};
use intercom_testkit::seats::{Seat, Way, fixture, words};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

const ASK: &str = "permission:yes=allow_once,no=reject_once:run:make";

fn daemon() -> Daemon {
    Daemon::quick(&config())
}

fn config() -> String {
    format!("{}[acp_server]\nagent = 'fixture'\n", fixture(&[]))
}

/// What the agent itself has told, without what a client is told about prompts and settings.
fn agents_own(updates: &[Value]) -> Vec<Value> {
    let own = ["agent_message_chunk", "agent_thought_chunk", "tool_call", "tool_call_update", "plan"];
    let is_own = |update: &&Value| update["sessionUpdate"].as_str().is_some_and(|kind| own.contains(&kind));
    updates.iter().filter(is_own).cloned().collect()
}

/// What the console sees of the same.
fn at_the_console(daemon: &Daemon, session: &str) -> Vec<Value> {
    let events = daemon.so_far(session);
    let updates = of_kind(&events, "update").into_iter().map(|event| event["data"]["update"].clone());
    agents_own(&updates.collect::<Vec<Value>>())
}

/// One who begins a session and three who come to it: over WebSocket and HTTP, and over stdio again.
fn gathered(daemon: &Daemon) -> (String, Vec<Seat>) {
    let mut first = Seat::ready(Way::Lines, daemon);
    let session = first.begun(daemon);
    let mut seats = vec![first];
    for way in [Way::WebSocket, Way::Http, Way::Lengths] {
        let mut seat = Seat::ready(way, daemon);
        seat.load(daemon, &session);
        seats.push(seat);
    }
    (session, seats)
}

#[test]
fn all_see_the_same_in_the_same_order() {
    let daemon = daemon();
    let (session, mut seats) = gathered(&daemon);
    let script = "think:hm;say:one;plan:a=completed,b=pending;tool:t1:run:make;tool-update:t1:completed;flood:200;say:end";
    assert_eq!(seats[0].prompt(&session, script), "end_turn");
    // And once more, by another of them.
    assert_eq!(
        seats[1].prompt(&session, "say:of the second;tool:t2:edit:a.txt:old=>new;say:last"),
        "end_turn"
    );
    let seen = at_the_console(&daemon, &session);
    assert_eq!(seen.len(), 4 + 1 + 200 + 1 + 3);
    for seat in &mut seats {
        seat.until_words(&session, "last");
        assert_eq!(agents_own(&seat.updates(&session)), seen);
    }
    // Those who did not write it see what was written.
    for seat in &seats[1..] {
        let updates = seat.updates(&session);
        let asked = |update: &Value| {
            update["sessionUpdate"] == "user_message_chunk"
                && update["content"]["text"].as_str().is_some_and(|text| text.starts_with("think:hm"))
        };
        assert_eq!(updates.iter().filter(|update| asked(update)).count(), 1, "{updates:#?}");
        let first = updates.iter().position(asked);
        let thought = updates.iter().position(|update| update["sessionUpdate"] == "agent_thought_chunk");
        assert!(first < thought, "before what came of it");
    }
}

#[test]
fn what_the_agent_says_is_passed_on_as_it_is_but_for_the_ids() {
    let daemon = daemon();
    let (session, mut seats) = gathered(&daemon);
    let odd = json!({
        "sessionUpdate": "agent_message_chunk",
        "content": { "type": "text", "text": "odd", "annotations": { "audience": ["user"] }, "_meta": { "x": [1, 2.5, null] } },
        "messageId": "m-1",
        "someday": { "new": true },
    });
    let invented = json!({ "sessionUpdate": "_invented", "number": 18_446_744_073_709_551_615_u64, "text": "ä\u{1F600}\\" });
    let steps = json!([format!("update:{odd}"), format!("update:{invented}"), "say:done"]).to_string();
    assert_eq!(seats[0].prompt(&session, &steps), "end_turn");
    for seat in &mut seats {
        seat.until_words(&session, "done");
        let updates = seat.updates(&session);
        assert!(updates.contains(&odd), "{updates:#?}");
        assert!(updates.contains(&invented), "{updates:#?}");
    }
}

#[test]
fn one_decides_and_the_others_are_told() {
    let daemon = daemon();
    let (session, mut seats) = gathered(&daemon);
    for winner in 0..seats.len() {
        let kind = if winner % 2 == 0 { "allow_once" } else { "reject_once" };
        let turn = seats[0].begin_prompt(&session, &format!("{ASK};say:after {winner}"));
        let requests: Vec<Value> = seats.iter_mut().map(Seat::until_asked).collect();
        for request in &requests {
            let (params, told) = (&request["params"], &requests[0]["params"]);
            assert_eq!(params, told, "the same for all");
            assert_eq!(params["sessionId"], json!(session));
        }
        seats[winner].choose(&requests[winner], kind);
        for (index, seat) in seats.iter_mut().enumerate().filter(|(index, _)| *index != winner) {
            let taken = seat.until("the news", |message| message["method"] == "$/cancel_request");
            assert_eq!(taken["params"]["requestId"], requests[index]["id"], "{taken}");
        }
        // Whoever is late is not heard.
        let late = (winner + 1) % seats.len();
        seats[late].choose(&requests[late], if kind == "allow_once" { "reject_once" } else { "allow_once" });
        assert_eq!(seats[0].answer_to(&turn)["result"]["stopReason"], "end_turn");
        let option = if kind == "allow_once" { "yes" } else { "no" };
        for seat in &mut seats {
            let heard = seat.until_words(&session, "answered session/request_permission");
            assert!(heard.contains(&format!("\"optionId\":\"{option}\"")), "{heard}");
            seat.until_words(&session, &format!("after {winner}"));
        }
        let events = daemon.so_far(&session);
        assert_eq!(of_kind(&events, "clearance.decided").len(), winner + 1, "once each");
    }
    for seat in &mut seats {
        seat.settle();
        let news = seat.log.iter().filter(|message| message["method"] == "$/cancel_request").count();
        assert_eq!(news, 3, "the one who decides is not told so");
    }
}

#[test]
fn the_console_decides_as_well_as_they_do() {
    let daemon = daemon();
    let (session, mut seats) = gathered(&daemon);
    let turn = seats[0].begin_prompt(&session, &format!("{ASK};say:after"));
    let requests: Vec<Value> = seats.iter_mut().map(Seat::until_asked).collect();
    let clearance = daemon.clearance(&session);
    assert_eq!(daemon.decide(&clearance, "approve")["option"], "yes");
    for (seat, request) in seats.iter_mut().zip(&requests) {
        let taken = seat.until("the news", |message| message["method"] == "$/cancel_request");
        assert_eq!(taken["params"]["requestId"], request["id"]);
    }
    assert_eq!(seats[0].answer_to(&turn)["result"]["stopReason"], "end_turn");
}

#[test]
fn whoever_leaves_or_fails_decides_nothing_and_whoever_comes_is_asked() {
    let daemon = daemon();
    let (session, mut seats) = gathered(&daemon);
    seats[0].begin_prompt(&session, &format!("{ASK};say:after"));
    let requests: Vec<Value> = seats.iter_mut().map(Seat::until_asked).collect();
    // One answers with an error, one with nonsense, two leave, of whom one has asked for the turn.
    let error = json!({ "code": -32603, "message": "no dialog" });
    seats[1].send(&json!({ "jsonrpc": "2.0", "id": requests[1]["id"], "error": error }));
    seats[3].answer(&requests[3]["id"], json!({ "outcome": { "outcome": "selected", "optionId": "maybe" } }));
    seats[3].settle();
    seats[1].settle();
    seats[0].leave();
    seats[2].leave();
    let clearance = daemon.clearance(&session);
    let status = || daemon.get(&format!("/api/v1/clearances/{clearance}")).1["status"].clone();
    assert_eq!(status(), "pending");
    // One that comes now is asked, too, by either way.
    for attach in ["session/load", "session/resume"] {
        let mut late = Seat::ready(Way::WebSocket, &daemon);
        late.ok(attach, json!({ "sessionId": session, "cwd": daemon.workspace(), "mcpServers": [] }));
        let request = late.until_asked();
        assert_eq!(request["params"]["options"], requests[0]["params"]["options"], "{attach}");
        assert_eq!(status(), "pending");
        if attach == "session/resume" {
            late.choose(&request, "allow_once");
            late.until_words(&session, "after");
        }
    }
    wait_turns(&daemon, &session, 1);
    assert_eq!(status(), "approved");
}

#[test]
fn an_undecided_request_outlives_the_daemon() {
    let daemon = Daemon::start_in(home(&format!("{QUICK}{}", config())), &["--on-stop", "leave"], &[]);
    let mut seat = Seat::ready(Way::WebSocket, &daemon);
    let session = seat.begun(&daemon);
    seat.begin_prompt(&session, &format!("{ASK};say:after"));
    seat.until_asked();
    let (dir, _) = daemon.end(Signal::SIGTERM);
    drop(seat);
    let daemon = Daemon::start_in(dir, &[], &[]);
    let mut seat = Seat::ready(Way::Http, &daemon);
    seat.load(&daemon, &session);
    let request = seat.until_asked();
    seat.choose(&request, "allow_once");
    seat.until_words(&session, "after");
    assert_eq!(wait_turns(&daemon, &session, 1)["data"]["stop_reason"], "end_turn");
}

#[test]
fn one_leaves_in_the_middle_of_a_turn_and_comes_back_and_misses_nothing() {
    let daemon = daemon();
    for way in [Way::Lines, Way::WebSocket, Way::Http] {
        let mut stays = Seat::ready(Way::WebSocket, &daemon);
        let mut leaves = Seat::ready(way, &daemon);
        let session = leaves.begun(&daemon);
        stays.resume(&daemon, &session);
        let file = |name: &str| daemon.workspace().join(format!("{way:?}-{name}"));
        let (first, second) = (file("first"), file("second"));
        leaves.begin_prompt(
            &session,
            &format!(
                "say:one;wait-file:{};say:two;wait-file:{};say:three",
                first.display(),
                second.display()
            ),
        );
        leaves.until_words(&session, "one");
        leaves.leave();
        std::fs::write(&first, "").unwrap();
        stays.until_words(&session, "two");
        // With everything that was said, before the answer; and without.
        let mut loads = Seat::ready(way, &daemon);
        loads.load(&daemon, &session);
        if way != Way::Http {
            assert_eq!(loads.words(&session), ["one", "two"], "{way:?}");
        }
        let mut resumes = Seat::ready(way, &daemon);
        resumes.resume(&daemon, &session);
        std::fs::write(&second, "").unwrap();
        for seat in [&mut stays, &mut loads, &mut resumes] {
            seat.until_words(&session, "three");
        }
        assert_eq!(wait_turns(&daemon, &session, 1)["data"]["stop_reason"], "end_turn", "{way:?}");
        assert_eq!(stays.words(&session), ["one", "two", "three"], "{way:?}");
        assert_eq!(loads.words(&session), ["one", "two", "three"], "{way:?}");
        assert_eq!(resumes.words(&session), ["three"], "{way:?}");
        // The whole of it once more.
        let mut again = Seat::ready(way, &daemon);
        again.load(&daemon, &session);
        again.until_words(&session, "three"); // over HTTP, the answer may come before the end of what it is about
        again.settle();
        assert_eq!(agents_own(&again.updates(&session)), at_the_console(&daemon, &session), "{way:?}");
        let updates = again.updates(&session);
        assert_eq!(updates[0]["sessionUpdate"], "user_message_chunk", "{way:?}: {updates:#?}");
    }
}

#[test]
fn who_comes_in_the_middle_of_a_flood_has_no_gap_and_nothing_twice() {
    let daemon = daemon();
    let mut first = Seat::ready(Way::WebSocket, &daemon);
    let session = first.begun(&daemon);
    let turn = first.begin_prompt(&session, "say:go;flood:20000;say:end");
    first.until_words(&session, "go");
    let mut late: Vec<Seat> = [Way::Lines, Way::WebSocket, Way::Http]
        .into_iter()
        .map(|way| {
            let mut seat = Seat::ready(way, &daemon);
            seat.load(&daemon, &session);
            seat
        })
        .collect();
    assert_eq!(first.answer_to(&turn)["result"]["stopReason"], "end_turn");
    let all = first.words(&session);
    assert_eq!(all.len(), 20_002);
    for seat in &mut late {
        seat.until_words(&session, "end");
        assert!(
            seat.words(&session) == all,
            "a gap, or something twice: {} of {}",
            seat.words(&session).len(),
            all.len()
        );
    }
}

#[test]
fn prompts_of_several_clients_take_turns_and_each_gets_its_own_answer() {
    let daemon = daemon();
    let (session, mut seats) = gathered(&daemon);
    let go = daemon.workspace().join("go");
    let script = format!("say:first;wait-file:{};stop:max_tokens", go.display());
    let mut turns = vec![seats[0].begin_prompt(&session, &script)];
    seats[0].until_words(&session, "first");
    for (index, reason) in [(1, "refusal"), (2, "max_turn_requests"), (3, "end_turn")] {
        turns.push(seats[index].begin_prompt(&session, &format!("say:of {index};stop:{reason}")));
        // Taken before the next one comes, so that their order is known.
        let wanted = format!("of {index}");
        daemon.wait_for(&session, "the prompt to be queued", |event| {
            event["kind"] == "prompt.queued" && event["data"]["text"].to_string().contains(&wanted)
        });
    }
    std::fs::write(go, "").unwrap();
    let reasons: Vec<Value> = seats
        .iter_mut()
        .zip(&turns)
        .map(|(seat, turn)| seat.answer_to(turn)["result"]["stopReason"].clone())
        .collect();
    assert_eq!(reasons, ["max_tokens", "refusal", "max_turn_requests", "end_turn"]);
    for seat in &mut seats {
        seat.until_words(&session, "of 3");
        assert_eq!(seat.words(&session), ["first", "of 1", "of 2", "of 3"]);
    }
}

#[test]
fn one_who_closes_stops_the_agent_only_if_nobody_else_is_there() {
    let daemon = daemon();
    let mut first = Seat::ready(Way::Lines, &daemon);
    let session = first.begun(&daemon);
    let mut second = Seat::ready(Way::WebSocket, &daemon);
    second.load(&daemon, &session);
    assert_eq!(first.prompt(&session, "say:x"), "end_turn");
    first.ok("session/close", json!({ "sessionId": session }));
    assert_eq!(second.prompt(&session, "say:still here"), "end_turn");
    first.settle();
    assert_eq!(first.words(&session), ["x"], "it has closed it for itself");
    second.ok("session/close", json!({ "sessionId": session }));
    daemon.wait_for_end(&session);
}

#[test]
fn a_cancel_of_one_ends_the_turn_of_another() {
    let daemon = daemon();
    let (session, mut seats) = gathered(&daemon);
    let turn = seats[0].begin_prompt(&session, &format!("say:on;{ASK}"));
    let requests: Vec<Value> = seats.iter_mut().map(Seat::until_asked).collect();
    seats[2].notify("session/cancel", json!({ "sessionId": session }));
    assert_eq!(seats[0].answer_to(&turn)["result"]["stopReason"], "cancelled");
    for (seat, request) in seats.iter_mut().zip(&requests) {
        let taken = seat.until("the news", |message| message["method"] == "$/cancel_request");
        assert_eq!(taken["params"]["requestId"], request["id"]);
    }
}

#[test]
fn a_session_of_the_console_is_one_for_clients_too() {
    let daemon = daemon();
    // Begun elsewhere, by our own protocol: status, clearance and question are told in the words of ACP.
    let steps = [
        "status:looking",
        "heartbeat:read=completed,write=in_progress",
        "clearance:c1:Edit main.rs",
        "answer:c1",
        "question:q1:Shall I?",
        "answer:q1",
        "turn-end",
        "expect:never",
    ];
    let session = daemon.run(&steps);
    let mut seat = Seat::websocket(&Place::socket(&daemon)).introduced();
    seat.load(&daemon, &session);
    let request = seat.until_asked();
    assert!(request["params"]["toolCall"].to_string().contains("Edit main.rs"), "{request}");
    seat.choose(&request, "allow_once");
    let question = seat.until_asked();
    assert!(question["params"].to_string().contains("Shall I?"), "{question}");
    seat.choose(&question, "allow_once");
    assert_eq!(daemon.wait_kind(&session, "question.answered")["data"]["decision"], "continue");
    wait_turns(&daemon, &session, 1);
    let updates = seat.updates(&session);
    assert!(words(&updates).iter().any(|text| text.contains("looking")), "{updates:#?}");
    let plan = updates.iter().find(|update| update["sessionUpdate"] == "plan").expect("a plan");
    assert_eq!(plan["entries"][0], json!({ "content": "read", "priority": "medium", "status": "completed" }));
    assert!(updates.iter().any(|update| update["sessionUpdate"] == "tool_call"), "{updates:#?}");
}

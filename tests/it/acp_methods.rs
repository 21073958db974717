//! The ACP server's methods, on every transport: each one's answer, its errors, and the fate of a prompt.
//!
//! An unknown session is -32002 with its id, as the standard has it, except for clients without a connection ([`http`]), which
//! get -32000.

mod http;

use intercom_testkit::client::Place;
use intercom_testkit::harness::{self, Daemon, of_kind, profile};
use intercom_testkit::seats::{Seat, WAYS, Way, fixture, prompt, refusal};
use serde_json::{Value, json};

/// With the fixture for every session; more lines of `[seats]`, and more tables after them.
fn daemon(more: &str) -> Daemon {
    Daemon::quick(&format!("{}[acp_server]\nagent = 'fixture'\n{more}", fixture(&[])))
}

fn sessions(daemon: &Daemon) -> Vec<Value> {
    daemon.get("/api/v1/sessions?all=true").1["items"].as_array().unwrap().clone()
}

/// Everything that the list has, page by page.
fn listed(seat: &mut Seat, params: &Value) -> Vec<Value> {
    let (mut all, mut params) = (Vec::new(), params.clone());
    loop {
        let page = seat.ok("session/list", params.clone());
        all.extend(page["sessions"].as_array().unwrap().iter().cloned());
        match page.get("nextCursor") {
            None | Some(Value::Null) => return all,
            Some(cursor) => params["cursor"] = cursor.clone(),
        }
    }
}

fn ids(listed: &[Value]) -> Vec<&str> {
    listed.iter().map(|info| info["sessionId"].as_str().unwrap()).collect()
}

// The wire protocol.

/// The version is the integer 1, the agent's name and version are strings, and `authMethods` is an empty array.
#[test]
fn initialize_tells_what_we_are() {
    let daemon = daemon("");
    for way in WAYS {
        let mut seat = Seat::by(way, &daemon);
        let info = json!({ "name": "test", "version": "1" });
        let told = seat.ok("initialize", json!({ "protocolVersion": 1, "clientInfo": info }));
        assert_eq!(told["protocolVersion"], json!(1), "{way:?}: {told}");
        let can = &told["agentCapabilities"];
        assert!(can["sessionCapabilities"]["list"].is_object(), "{way:?}: {told}");
        assert!(can["mcpCapabilities"].is_object() && can.get("mcp").is_none(), "{way:?}: {told}");
        for field in ["name", "version"] {
            assert!(
                told["agentInfo"][field].as_str().is_some_and(|text| !text.is_empty()),
                "{way:?}: {told}"
            );
        }
        assert_eq!(told["authMethods"], json!([]), "{way:?}: {told}");
        assert!(told.get("clientId").is_none(), "{way:?}: {told}");
        // Whoever said it may go on.
        seat.ok("session/list", json!({}));
    }
}

#[test]
fn nothing_comes_before_initialize() {
    let daemon = daemon("");
    let there = daemon.run_acp(&[]);
    for way in [Way::Lines, Way::Lengths, Way::WebSocket] {
        let mut seat = Seat::by(way, &daemon);
        seat.refused("session/new", json!({ "cwd": daemon.workspace(), "mcpServers": [] }), -32600);
        seat.refused("session/prompt", prompt(&there, "say:x"), -32600);
        seat.refused("session/list", json!({}), -32600);
        let load = json!({ "sessionId": there, "cwd": daemon.workspace(), "mcpServers": [] });
        seat.refused("session/load", load, -32600);
        seat.introduced();
    }
    assert_eq!(sessions(&daemon).len(), 1, "nobody has begun one");
    assert!(of_kind(&daemon.so_far(&there), "prompt.queued").is_empty());
}

#[test]
fn an_unknown_method_is_not_found() {
    let daemon = daemon("");
    for way in WAYS {
        let mut seat = Seat::ready(way, &daemon);
        seat.refused("session/fly", json!({}), -32601);
        seat.refused("_vendor/extension", json!({}), -32601);
    }
}

/// Malformed JSON is -32700, an invalid request -32600. Over HTTP both are a 400 of the request itself ([`http`]).
#[test]
fn what_is_no_json_is_a_parse_error_and_what_is_no_request_is_invalid() {
    let daemon = daemon("");
    for way in [Way::Lines, Way::Lengths, Way::WebSocket] {
        let mut seat = Seat::ready(way, &daemon);
        seat.send_text("{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":");
        let answer = seat.until("an error", |message| message.get("error").is_some());
        refusal(&answer, -32700);
        assert_eq!(answer.get("id"), Some(&Value::Null), "{way:?}: {answer}");
        for odd in [
            json!({ "id": "x", "method": "session/list" }),
            json!({ "jsonrpc": "1.0", "id": "y", "method": "session/list" }),
        ] {
            seat.send(&odd);
            refusal(&seat.answer_to(&odd["id"]), -32600);
        }
        // And it goes on.
        seat.ok("session/list", json!({}));
    }
}

#[test]
fn every_new_session_has_an_id_of_its_own() {
    let daemon = daemon("");
    let mut seen = std::collections::HashSet::new();
    for way in WAYS {
        let mut seat = Seat::ready(way, &daemon);
        assert!(seen.insert(seat.begun(&daemon)));
        assert!(seen.insert(seat.begun(&daemon)));
    }
    assert!(seen.iter().all(|id| id.starts_with("ses_")), "{seen:?}");
}

#[test]
fn the_list_has_every_session_by_its_directory() {
    let daemon = daemon("");
    let other = daemon.dir.path().join("other place");
    std::fs::create_dir(&other).unwrap();
    let mut seat = Seat::ready(Way::Lines, &daemon);
    assert_eq!(listed(&mut seat, &json!({})), [] as [Value; 0]);
    let here = [seat.begun(&daemon), seat.begun(&daemon)];
    let there = seat.begun_with(&daemon, json!({ "cwd": other }));
    for way in WAYS {
        let mut seat = Seat::ready(way, &daemon);
        let all = listed(&mut seat, &json!({}));
        for id in here.iter().chain([&there]) {
            assert!(ids(&all).contains(&id.as_str()), "{way:?}: {all:?}");
        }
        let ours = listed(&mut seat, &json!({ "cwd": daemon.workspace() }));
        assert_eq!(ours.len(), 2, "{way:?}: {ours:?}");
        assert!(ours.iter().all(|info| info["cwd"] == json!(daemon.workspace())), "{way:?}: {ours:?}");
        let theirs = listed(&mut seat, &json!({ "cwd": other }));
        assert_eq!((ids(&theirs), &theirs[0]["cwd"]), (vec![there.as_str()], &json!(other)), "{way:?}");
        assert_eq!(listed(&mut seat, &json!({ "cwd": daemon.dir.path() })), [] as [Value; 0], "{way:?}");
    }
}

/// Cursors are real, an invented one is not a page, and each session has `updatedAt` and `title`.
#[test]
fn the_list_comes_in_pages() {
    let daemon = daemon("[limits]\nmax_sessions = 200\n");
    // Without a process: their agent is known from the first.
    let mut seat = Seat::ready(Way::WebSocket, &daemon);
    let mut begun: Vec<String> = (0..120).map(|_| seat.begun(&daemon)).collect();
    let first = seat.ok("session/list", json!({}));
    let cursor = first["nextCursor"].as_str().expect("more than a page").to_owned();
    assert!(first["sessions"].as_array().unwrap().len() < 120);
    let all = listed(&mut seat, &json!({}));
    let mut told: Vec<String> = ids(&all).into_iter().map(str::to_owned).collect();
    begun.sort();
    told.sort();
    assert_eq!(begun, told, "each once");
    for info in &all {
        assert!(info["updatedAt"].as_str().is_some_and(|time| time.ends_with('Z')), "{info}");
        assert_eq!(info["_meta"]["pending"], false, "{info}");
    }
    seat.ok("session/list", json!({ "cursor": cursor }));
    seat.refused("session/list", json!({ "cursor": "no such page" }), -32602);
}

#[test]
fn an_unknown_session_is_not_found_and_named() {
    let daemon = daemon("");
    for way in WAYS {
        let mut seat = Seat::ready(way, &daemon);
        for unknown in ["ses_000000000000", "acp_4711", "node-1"] {
            let error = seat.refused("session/prompt", prompt(unknown, "say:x"), -32002);
            assert!(error["data"].to_string().contains(unknown), "{way:?}: {error}");
            let mode = json!({ "sessionId": unknown, "modeId": "safe" });
            seat.refused("session/set_mode", mode, -32002);
            let load = json!({ "sessionId": unknown, "cwd": daemon.workspace(), "mcpServers": [] });
            seat.refused("session/load", load, -32002);
        }
    }
}

/// As a notification it has no answer; as a request it is answered, also for an unknown session.
#[test]
fn a_cancel_is_answered_only_if_it_asks_for_it() {
    let daemon = daemon("");
    for way in WAYS {
        let mut seat = Seat::ready(way, &daemon);
        let session = seat.begun(&daemon);
        let before = seat.log.len();
        seat.notify("session/cancel", json!({ "sessionId": session }));
        seat.notify("session/cancel", json!({ "sessionId": "ses_unknown00000" }));
        seat.settle();
        let answers = seat.log[before..].iter().filter(|message| message.get("method").is_none()).count();
        assert_eq!(answers, 1, "{way:?}: {:#?}", &seat.log[before..]);
        assert_eq!(seat.ok("session/cancel", json!({ "sessionId": session })), json!({}), "{way:?}");
        assert_eq!(
            seat.ok("session/cancel", json!({ "sessionId": "ses_unknown00000" })),
            json!({}),
            "{way:?}"
        );
    }
}

#[test]
fn to_initialize_twice_is_no_mistake() {
    let daemon = daemon("");
    for way in WAYS {
        let mut seat = Seat::ready(way, &daemon);
        let session = seat.begun(&daemon);
        let again = seat.ok("initialize", json!({ "protocolVersion": 1 }));
        assert_eq!(again["protocolVersion"], 1, "{way:?}");
        assert_eq!(seat.prompt(&session, "say:still here"), "end_turn", "{way:?}");
    }
}

#[test]
fn text_and_links_reach_the_agent() {
    // One that takes texts only, and one that takes blocks.
    let native = profile("native", &["report:prompt/send", "turn-end", "expect:never"], "");
    let daemon = daemon(&native);
    let blocks = json!([
        { "type": "text", "text": "first" },
        { "type": "resource_link", "name": "notes", "uri": "file:///tmp/notes.md" },
        { "type": "text", "text": "last" },
    ]);
    let mut seat = Seat::stdio(&daemon, &["--agent", "native"]).introduced();
    let session = seat.begun(&daemon);
    let done = seat.ok("session/prompt", json!({ "sessionId": session, "prompt": blocks }));
    assert_eq!(done["stopReason"], "end_turn");
    let heard = daemon.wait_status(&session, "received");
    let line: Value = serde_json::from_str(heard["line"].as_str().unwrap()).unwrap();
    assert_eq!(line["params"]["text"], "first\n[Resource: notes (file:///tmp/notes.md)]\nlast");
    let mut seat = Seat::ready(Way::Lines, &daemon);
    let session = seat.begun(&daemon);
    let steps = json!([{ "type": "text", "text": "heard:session/prompt" }, blocks[1]]);
    // The fixture's steps are its first text.
    seat.ok("session/prompt", json!({ "sessionId": session, "prompt": steps }));
    let said = seat.until_words(&session, "last session/prompt");
    assert!(said.contains("resource_link") && said.contains("file:///tmp/notes.md"), "{said}");
}

// Prompts and sessions.

/// Skipping them would lose something unseen. A prompt with nothing in it is refused as well.
#[test]
fn blocks_that_the_agent_cannot_take_are_refused() {
    let daemon = Daemon::quick(&format!("{}[acp_server]\nagent = 'fixture'\n", fixture(&["caps:load"])));
    for way in WAYS {
        let mut seat = Seat::ready(way, &daemon);
        let session = seat.begun(&daemon);
        let image = json!({ "type": "image", "mimeType": "image/png", "data": "aGk=" });
        for odd in [
            json!([{ "type": "text", "text": "say:x" }, image]),
            json!([{ "type": "text", "text": "" }]),
            json!([{ "type": "text", "text": " \n\t" }]),
            json!([]),
            json!("text"),
            json!(null),
            json!([{ "type": "text" }]),
            json!([7]),
        ] {
            seat.refused("session/prompt", json!({ "sessionId": session, "prompt": odd }), -32602);
        }
        seat.refused("session/prompt", json!({ "sessionId": session }), -32602);
        assert!(of_kind(&daemon.so_far(&session), "prompt.queued").is_empty(), "{way:?}");
        assert_eq!(seat.prompt(&session, "say:fine"), "end_turn", "{way:?}");
    }
}

#[test]
fn a_client_hears_nothing_of_sessions_that_it_has_nothing_to_do_with() {
    let daemon = daemon("");
    let mut seats: Vec<Seat> = WAYS.iter().map(|way| Seat::ready(*way, &daemon)).collect();
    let sessions: Vec<String> = seats.iter_mut().map(|seat| seat.begun(&daemon)).collect();
    let stranger = daemon.run_acp(&[]);
    daemon.prompt(&stranger, "say:of a stranger");
    harness::wait_turns(&daemon, &stranger, 1);
    for (seat, session) in seats.iter_mut().zip(&sessions) {
        assert_eq!(seat.prompt(session, &format!("say:for {session}")), "end_turn");
    }
    for (seat, session) in seats.iter_mut().zip(&sessions) {
        seat.settle();
        assert_eq!(seat.words(session), [format!("for {session}")]);
        let about = |message: &&Value| message["params"]["sessionId"].is_string();
        assert!(seat.log.iter().filter(about).all(|message| message["params"]["sessionId"] == **session));
    }
}

/// The role decides, and -32001 says so.
#[test]
fn whoever_may_only_look_begins_nothing() {
    let config = format!("{}[acp_server]\nagent = 'fixture'\n{}", fixture(&[]), harness::PORT);
    let daemon = Daemon::quick(&config);
    let there = daemon.run_agent("fixture");
    let place = Place::port(&daemon, "viewer");
    for mut seat in [Seat::websocket(&place), Seat::http(&place)] {
        seat.ok("initialize", json!({ "protocolVersion": 1 }));
        seat.refused("session/new", json!({ "cwd": daemon.workspace(), "mcpServers": [] }), -32001);
        // Looking is fine, prompting is not.
        seat.load(&daemon, &there);
        seat.refused("session/prompt", prompt(&there, "say:x"), -32001);
    }
    assert_eq!(sessions(&daemon).len(), 1);
    assert!(of_kind(&daemon.so_far(&there), "prompt.queued").is_empty());
}

#[test]
fn a_prompt_that_is_too_long_leaves_nothing_behind() {
    let daemon = daemon("");
    for way in WAYS {
        let mut seat = Seat::ready(way, &daemon);
        let session = seat.begun(&daemon);
        seat.refused("session/prompt", prompt(&session, &"x".repeat(102_401)), -32602);
        // Counted in bytes, over all blocks.
        seat.refused("session/prompt", prompt(&session, &"ä".repeat(51_201)), -32602);
        let half = json!({ "type": "text", "text": "y".repeat(60_000) });
        seat.refused("session/prompt", json!({ "sessionId": session, "prompt": [half, half] }), -32602);
        assert!(of_kind(&daemon.so_far(&session), "prompt.queued").is_empty(), "{way:?}");
        assert_eq!(seat.prompt(&session, &format!("say:{}", "x".repeat(102_396))), "end_turn", "{way:?}");
        assert_eq!(seat.words(&session)[0].len(), 102_396, "{way:?}");
    }
}

#[test]
fn a_second_prompt_is_refused_where_that_is_configured_and_the_first_keeps_its_answer() {
    let daemon = daemon("busy = 'refuse'\n");
    for way in WAYS {
        let mut seat = Seat::ready(way, &daemon);
        let session = seat.begun(&daemon);
        let first = seat.begin_prompt(&session, "say:one;hang");
        seat.until_words(&session, "one");
        seat.refused("session/prompt", prompt(&session, "say:two"), -32602);
        seat.notify("session/cancel", json!({ "sessionId": session }));
        let answer = seat.answer_to(&first);
        assert_eq!(answer["result"]["stopReason"], "cancelled", "{way:?}: {answer}");
        assert_eq!(seat.words(&session), ["one"], "{way:?}");
    }
}

/// Several prompts of one session wait for their turns, and each has its own answer.
#[test]
fn a_second_prompt_waits_and_is_answered_when_its_own_turn_ends() {
    let daemon = daemon("");
    for way in WAYS {
        let mut seat = Seat::ready(way, &daemon);
        let session = seat.begun(&daemon);
        let go = daemon.workspace().join(format!("go-{way:?}"));
        let first = seat.begin_prompt(&session, &format!("say:one;wait-file:{}", go.display()));
        let second = seat.begin_prompt(&session, "say:two;stop:max_tokens");
        let third = seat.begin_prompt(&session, "say:three;stop:refusal");
        seat.until_words(&session, "one");
        std::fs::write(go, "").unwrap();
        assert_eq!(seat.answer_to(&first)["result"]["stopReason"], "end_turn", "{way:?}");
        assert_eq!(seat.answer_to(&second)["result"]["stopReason"], "max_tokens", "{way:?}");
        assert_eq!(seat.answer_to(&third)["result"]["stopReason"], "refusal", "{way:?}");
        assert_eq!(seat.words(&session), ["one", "two", "three"], "{way:?}");
        // In this order, and the answers where they belong.
        let place = |wanted: &dyn Fn(&Value) -> bool| seat.log.iter().position(wanted).unwrap();
        let answer = |id: &Value| place(&|message| message["id"] == *id && message.get("method").is_none());
        let word = |text: &str| place(&|message| message["params"]["update"]["content"]["text"] == text);
        let order =
            [word("one"), answer(&first), word("two"), answer(&second), word("three"), answer(&third)];
        assert!(order.is_sorted(), "{way:?}: {order:?}");
    }
}

/// A cancel takes back what waits, too: otherwise the next turn would begin in its place.
#[test]
fn a_cancel_ends_the_turn_and_what_the_client_has_in_the_queue() {
    let daemon = daemon("");
    for way in WAYS {
        let mut seat = Seat::ready(way, &daemon);
        let session = seat.begun(&daemon);
        let first = seat.begin_prompt(&session, "say:one;hang");
        let second = seat.begin_prompt(&session, "say:two");
        seat.until_words(&session, "one");
        seat.notify("session/cancel", json!({ "sessionId": session }));
        for turn in [first, second] {
            assert_eq!(seat.answer_to(&turn)["result"]["stopReason"], "cancelled", "{way:?}");
        }
        assert_eq!(seat.prompt(&session, "say:three"), "end_turn", "{way:?}");
        assert_eq!(seat.words(&session), ["one", "three"], "{way:?}");
    }
}

#[test]
fn to_cancel_what_is_not_there_touches_nobody_else() {
    let daemon = daemon("");
    for way in WAYS {
        let mut seat = Seat::ready(way, &daemon);
        let session = seat.begun(&daemon);
        let go = daemon.workspace().join(format!("go-{way:?}"));
        let turn = seat.begin_prompt(&session, &format!("say:one;wait-file:{};say:two", go.display()));
        seat.until_words(&session, "one");
        seat.notify("session/cancel", json!({ "sessionId": "ses_nobody000000" }));
        let other = seat.begun(&daemon);
        seat.notify("session/cancel", json!({ "sessionId": other }));
        seat.settle();
        std::fs::write(go, "").unwrap();
        assert_eq!(seat.answer_to(&turn)["result"]["stopReason"], "end_turn", "{way:?}");
        assert_eq!(seat.words(&session), ["one", "two"], "{way:?}");
    }
}

#[test]
fn what_an_agent_says_without_a_prompt_is_told_and_answers_nothing() {
    let daemon = daemon("");
    for way in WAYS {
        let mut seat = Seat::ready(way, &daemon);
        let session = seat.begun(&daemon);
        assert_eq!(seat.prompt(&session, "say:asked;afterwards:say:by the way"), "end_turn", "{way:?}");
        seat.until_words(&session, "by the way");
        seat.settle();
        assert_eq!(seat.prompt(&session, "say:and on"), "end_turn", "{way:?}");
        assert_eq!(seat.words(&session), ["asked", "by the way", "and on"], "{way:?}");
    }
}

/// Beyond it a session is refused with -32603, since -32000 has another meaning.
#[test]
fn there_is_a_limit_of_sessions() {
    let daemon = daemon("[limits]\nmax_sessions = 3\n");
    let mut seat = Seat::ready(Way::Lines, &daemon);
    let begun: Vec<String> = (0..3).map(|_| seat.begun(&daemon)).collect();
    for way in WAYS {
        let mut other = Seat::ready(way, &daemon);
        let error =
            other.refused("session/new", json!({ "cwd": daemon.workspace(), "mcpServers": [] }), -32603);
        assert_eq!(error["data"]["code"], "too_many_sessions", "{way:?}: {error}");
    }
    assert_eq!(sessions(&daemon).len(), 3);
    // One that ends makes room.
    seat.ok("session/close", json!({ "sessionId": begun[0] }));
    daemon.wait_for_end(&begun[0]);
    seat.begun(&daemon);
}

// The end of a prompt.

/// Each prompt is answered once, also if its agent dies, and a client that waits is not left alone at shutdown.
#[test]
fn a_prompt_is_answered_also_when_its_agent_dies() {
    let daemon = daemon("");
    for way in WAYS {
        let mut seat = Seat::ready(way, &daemon);
        for step in ["exit:3", "abort"] {
            let session = seat.begun(&daemon);
            let answer = seat.ask("session/prompt", prompt(&session, &format!("say:bye;{step}")));
            refusal(&answer, -32603);
            assert_eq!(seat.words(&session), ["bye"], "{way:?}");
        }
        // Its own error comes as it is.
        let session = seat.begun(&daemon);
        let answer = seat.ask("session/prompt", prompt(&session, "fail:-32055:no tokens left"));
        assert_eq!(
            (&answer["error"]["code"], &answer["error"]["message"]),
            (&json!(-32055), &json!("no tokens left")),
            "{way:?}"
        );
    }
}

/// Nobody waits for ever: a daemon that takes its agents along answers first.
#[test]
fn a_daemon_that_stops_leaves_nobody_waiting() {
    let daemon = daemon("");
    let mut waiting = Vec::new();
    for way in WAYS {
        let mut seat = Seat::ready(way, &daemon);
        let session = seat.begun(&daemon);
        let turn = seat.begin_prompt(&session, "say:one;hang");
        seat.until_words(&session, "one");
        waiting.push((way, seat, turn));
    }
    let (_dir, status) = daemon.end(nix::sys::signal::Signal::SIGTERM);
    assert!(status.success(), "{status}");
    for (way, mut seat, turn) in waiting {
        let answer = seat.answer_to(&turn);
        let cancelled = answer["result"]["stopReason"] == "cancelled";
        assert!(cancelled || answer["error"]["code"] == -32603, "{way:?}: {answer}");
    }
}

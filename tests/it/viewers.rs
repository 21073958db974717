//! Viewers do not read secrets, also not those that an agent streams in pieces, wherever they look.

use intercom_testkit::client::{Events, Place};
use intercom_testkit::harness::{self, Daemon, QUICK, http};
use intercom_testkit::seats::{Seat, fixture};
use serde_json::{Value, json};

use crate::access::{token, with_port};

const SECRET: &str = "ghp_16C7e42F292c6912E7710c838347Ae178B4a";
const CLOUD: &str = "AKIA2E0A8F3B244C9986";
const KEY: &str = "-----BEGIN RSA PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSj\nAgEAAoIBAQC7VJTUt9Us8cKj\n-----END RSA PRIVATE KEY-----";

/// A daemon, and its port for a viewer: on its own socket everybody is who they are.
fn with_viewer() -> (Daemon, Place) {
    let (daemon, address) = with_port(QUICK);
    let token = Some(token(&daemon, "ana", "viewer"));
    (daemon, Place::Port { address, token })
}

fn words(events: &[Value]) -> String {
    let text =
        |event: &Value| event["data"]["update"]["content"]["text"].as_str().unwrap_or_default().to_owned();
    events.iter().map(text).collect()
}

/// A fragment of a secret that would reveal it.
pub(crate) fn leaks(text: &str) -> bool {
    let parts = [SECRET, CLOUD, KEY.lines().nth(1).unwrap(), KEY.lines().nth(2).unwrap(), "hunter2hunter2"];
    parts.iter().any(|secret| {
        secret.as_bytes().windows(8).any(|part| text.contains(std::str::from_utf8(part).unwrap()))
    })
}

fn page(port: &Place, query: &str) -> Vec<Value> {
    let headers = [("accept", "application/json")];
    let (status, text) = http(port, "GET", &format!("/api/v1/events?{query}"), None, &headers);
    assert_eq!(status, 200, "{text}");
    assert!(!leaks(&text), "{query}: {text}");
    let mut page: Value = serde_json::from_str(&text).unwrap();
    serde_json::from_value(page["items"].take()).unwrap()
}

/// The text with all secrets as viewers read it.
const SHOWN: &str = "Here it is: [hidden: GitHub token], and\n[hidden: private key]\nas you see.\n\
                     curl -u ana:[hidden: password] x\nAll of it";

/// A script for the ACP agent that says a text with all secrets, seven bytes at a time.
pub(crate) fn streaming() -> String {
    let text =
        format!("Here it is: {SECRET}, and\n{KEY}\nas you see.\ncurl -u ana:hunter2hunter2 x\nAll of it");
    let pieces = text.as_bytes().chunks(7).map(|piece| std::str::from_utf8(piece).unwrap());
    let mut steps: Vec<String> = Vec::new();
    for piece in pieces {
        let update =
            json!({ "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": piece } });
        steps.push(format!("update:{update}"));
        // Neither a part of the message nor its end.
        steps.push("usage:1:2".to_owned());
    }
    format!("script:{}", serde_json::to_string(&steps).unwrap())
}

#[test]
fn a_secret_that_is_streamed_in_pieces_reaches_no_viewer() {
    let (daemon, port) = with_viewer();
    let session = daemon.run_acp(&[&streaming()]);
    daemon.prompt(&session, "go");
    daemon.wait_kind(&session, "turn.ended");

    // As it is streamed.
    for path in [format!("/api/v1/events?after=0&session={session}"), "/api/v1/events?after=0".to_owned()] {
        let (mut seen, mut resume) = (Vec::new(), 0);
        let mut events = Events::open(&port, &path, &[]);
        while let Some(block) = events.block().unwrap() {
            assert!(!leaks(block), "{block}");
            resume = block.lines().find_map(|line| line.strip_prefix("id: ")).unwrap().parse().unwrap();
            let data = block.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
            seen.push(serde_json::from_str::<Value>(data).unwrap());
            if seen.last().unwrap()["kind"] == "turn.ended" {
                break;
            }
        }
        seen.retain(|event| event["session"] == session.as_str());
        let all = daemon.so_far(&session);
        let turn = all.iter().position(|event| event["kind"] == "turn.ended").unwrap();
        assert_eq!(seen.len(), turn + 1, "nothing is left out");
        assert_eq!(resume, all[turn]["seq"].as_u64().unwrap());
        let shown = words(&seen);
        assert_eq!(shown, SHOWN);
    }

    // Page by page, wherever pages begin and end.
    let all = daemon.so_far(&session);
    let last = all.last().unwrap()["seq"].as_u64().unwrap();
    let whole = words(&page(&port, &format!("after=0&limit=1000&session={session}")));
    for limit in [1, 2, 3, 5, 8] {
        let (mut after, mut forth) = (0, Vec::new());
        loop {
            let items = page(&port, &format!("after={after}&limit={limit}&session={session}"));
            let Some(newest) = items.last() else { break };
            after = newest["seq"].as_u64().unwrap();
            forth.extend(items);
        }
        assert_eq!(words(&forth), whole, "{limit} at a time");
        let (mut before, mut back) = (last + 1, Vec::new());
        loop {
            let items = page(&port, &format!("before={before}&limit={limit}&session={session}"));
            let Some(oldest) = items.first() else { break };
            before = oldest["seq"].as_u64().unwrap();
            back.splice(0..0, items);
        }
        assert_eq!(words(&back), whole, "{limit} at a time, from the end");
    }

    // As a file.
    let path = format!("/api/v1/sessions/{session}/log");
    let (status, file) = http(&port, "GET", &path, None, &[]);
    assert_eq!(status, 200);
    assert!(!leaks(&file), "{file}");
    let lines: Vec<Value> = file.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(words(&lines), whole);
    assert_eq!(lines.len(), all.len());
    assert!(leaks(&words(&all)), "operators read it");
}

/// An agent may put anything between the halves of a secret that readers leave out when they join the message.
#[test]
fn an_aside_between_the_halves_of_a_secret_does_not_show_it_to_a_viewer() {
    let (daemon, port) = with_viewer();
    let (first, second) = SECRET.split_at(20);
    for aside in [
        r#"update:{"sessionUpdate":"_foo"}"#,
        r#"update:{"sessionUpdate":"foo_chunk","content":{"type":"text","text":"x"}}"#,
        r#"update:{"sessionUpdate":"plan","entries":[]}"#,
        "raw:junk",
        r#"raw:{"jsonrpc":"2.0","method":"_x/y","params":{}}"#,
        "usage:1:2",
    ] {
        let script = json!([format!("say:The token: {first}"), aside, format!("say:{second} end")]);
        let session = daemon.run_acp(&[&format!("script:{script}")]);
        daemon.prompt(&session, "go");
        daemon.wait_kind(&session, "turn.ended");
        let seen = page(&port, &format!("after=0&limit=1000&session={session}"));
        assert!(!leaks(&words(&seen)), "{aside}: {}", words(&seen));
        assert!(words(&seen).ends_with(" end"), "{aside}: {}", words(&seen));
    }
}

#[test]
fn half_of_a_secret_is_held_while_the_others_go_on() {
    let (daemon, port) = with_viewer();
    let (first, second) = SECRET.split_at(20);
    let script = json!([format!("say:The token: {first}"), "wait-file:go", format!("say:{second}")]);
    let (one, other) = (daemon.run_acp(&[&format!("script:{script}")]), daemon.run(&["serve"]));
    daemon.prompt(&one, "go");
    daemon.wait_for(&one, "the first half", |event| event.to_string().contains(first));
    daemon.prompt(&other, "status:meanwhile");
    daemon.wait_status(&other, "meanwhile");

    let mut events = Events::open(&port, "/api/v1/events?after=0", &[]);
    let (mut resume, mut text) = (String::new(), String::new());
    while !text.contains("meanwhile") {
        text = events.block().unwrap().expect("what the other said").to_owned();
        assert!(!leaks(&text), "{text}");
        resume = text.lines().find_map(|line| line.strip_prefix("id: ")).unwrap().to_owned();
    }
    assert!(page(&port, &format!("after=0&limit=1000&session={one}")).len() > 3);

    // Whoever comes back now has missed nothing.
    std::fs::write(daemon.workspace().join("go"), "").unwrap();
    daemon.wait_kind(&one, "turn.ended");
    let path = format!("/api/v1/events?after={resume}&session={one}");
    let mut seen = Vec::new();
    for event in Events::open(&port, &path, &[]) {
        assert!(!leaks(&event.to_string()), "{event}");
        let is_end = event["kind"] == "turn.ended";
        seen.push(event);
        if is_end {
            break;
        }
    }
    assert_eq!(words(&seen), "The token: [hidden: GitHub token]");
}

#[test]
fn a_secret_that_is_streamed_in_pieces_reaches_no_viewer_over_acp() {
    let daemon = Daemon::quick(&format!("{}{}", fixture(&[&streaming()]), harness::PORT));
    let session = daemon.run_agent("fixture");
    let place = Place::port(&daemon, "viewer");
    let mut seats = [Seat::websocket(&place), Seat::http(&place)];
    for seat in &mut seats {
        seat.ok("initialize", json!({ "protocolVersion": 1 }));
        seat.load(&daemon, &session);
    }
    daemon.prompt(&session, "go");
    daemon.wait_kind(&session, "turn.ended");
    // Those who came before, as it is streamed, then one who comes later.
    for seat in &mut seats {
        seat.until("the last words", |message| message.to_string().contains("it\""));
    }
    let mut late = Seat::websocket(&place);
    late.ok("initialize", json!({ "protocolVersion": 1 }));
    late.load(&daemon, &session);
    for seat in seats.iter_mut().chain([&mut late]) {
        seat.settle();
        assert_eq!(seat.words(&session).concat(), SHOWN);
        assert!(seat.log.iter().all(|message| !leaks(&message.to_string())), "{seat:?}");
    }
    let mut operator = Seat::websocket(&Place::socket(&daemon));
    operator.ok("initialize", json!({ "protocolVersion": 1 }));
    operator.load(&daemon, &session);
    operator.settle();
    assert!(leaks(&operator.words(&session).concat()), "operators read it");
}

/// Ways to say a secret that are no plain text of one message.
fn told_otherwise() -> Vec<Vec<String>> {
    let (first, second) = SECRET.split_at(20);
    let update = |value: Value| format!("update:{value}");
    let chunk = |kind: &str, id: &str, text: &str| {
        update(json!({ "sessionUpdate": kind, "messageId": id, "content": { "type": "text", "text": text } }))
    };
    let say = |id: &str, text: &str| chunk("agent_message_chunk", id, text);
    let think = |text: &str| chunk("agent_thought_chunk", "t", text);
    let call = |value: Value| {
        let mut call =
            json!({ "sessionUpdate": "tool_call", "toolCallId": "c", "title": "t", "kind": "execute" });
        call.as_object_mut().unwrap().extend(value.as_object().unwrap().clone());
        update(call)
    };
    let each = SECRET.chars().map(|c| think(&c.to_string()));
    vec![
        vec![think(&format!("It is {first}")), think(second)],
        each.collect(),
        // The next message begins where a secret ends.
        vec![say("a", &format!("so {CLOUD}")), say("b", "Done")],
        vec![say("a", &format!("so {SECRET}")), say("b", "Done"), say("a", CLOUD), think("Done")],
        vec![say("a", CLOUD), "tool:c1:run:ls".to_owned(), say("a", "Done")],
        vec![say("a", first), "title:so".to_owned(), say("a", second)],
        vec![say("a", first), "mode:code".to_owned(), say("a", second)],
        vec![say("a", first), say("a", ""), say("a", second)],
        // Values on other lines than their names.
        vec![say("a", "password: |\n  hunter2"), say("a", "hunter2\nuser: ana"), think("Done")],
        vec![say("a", "- name: DB_PASSWORD\n"), say("a", "  value: hunter2"), say("a", "hunter2\n")],
        vec![say("a", "PASSWORD='a8f3k2m9\n"), say("a", "hunter2"), say("a", "hunter2'\n")],
        vec![
            say("a", first),
            update(json!({ "sessionUpdate": "agent_message_chunk", "content": { "type": "text" } })),
            say("a", second),
        ],
        vec![chunk("user_message_chunk", "u", first), chunk("user_message_chunk", "u", second)],
        vec![
            update(json!({ "sessionUpdate": "agent_message_chunk", "content": { "type": "resource",
                           "resource": { "uri": "file:///x", "text": format!("k {SECRET}") } } })),
            update(json!({ "sessionUpdate": "agent_message_chunk", "content": { "type": "resource_link",
                           "uri": format!("https://ana:hunter2hunter2@x/{SECRET}"), "name": SECRET } })),
        ],
        vec![
            call(json!({ "title": format!("curl -u ana:hunter2hunter2 {SECRET}") })),
            call(json!({ "rawInput": { SECRET: 1, "argv": ["curl", "-u", "ana:hunter2hunter2"] } })),
            call(json!({ "rawInput": { "command": ["curl", "--user", "ana:hunter2hunter2", "x"] } })),
            call(
                json!({ "rawInput": { "headers": [{ "name": "Authorization", "value": "hunter2hunter2" }] } }),
            ),
            call(json!({ "rawInput": [["password", "hunter2hunter2"]] })),
            call(json!({ "rawInput": format!("{{\"password\":\"hunter2hunter2\",\"{SECRET}\":1}}") })),
            call(
                json!({ "rawOutput": { "env": "PASSWORD=hunter2hunter2\n", "deep": { "a": [SECRET, KEY] } } }),
            ),
            call(json!({ "content": [{ "type": "content", "content": { "type": "text", "text": KEY } },
                         { "type": "diff", "path": ".env", "oldText": null, "newText": format!("T={SECRET}\n") }] })),
            // Names behind their values, around them, in other letters, and documents in strings of documents.
            r#"update:{"sessionUpdate":"tool_call","toolCallId":"d","title":"t","rawInput":{"value":"hunter2hunter2","name":"DB_PASSWORD"}}"#
                .to_owned(),
            call(json!({ "rawInput": { "Name": "DB_PASSWORD", "Value": "hunter2hunter2" } })),
            call(json!({ "rawInput": { "secrets": [{ "name": "db", "value": "hunter2hunter2" }] } })),
            call(json!({ "rawInput": { "password": "a\"hunter2hunter2\nhunter2hunter2" } })),
            call(
                json!({ "rawInput": json!({ "env": [{ "name": "PASSWORD", "value": "hunter2hunter2" }] }).to_string() }),
            ),
            call(
                json!({ "rawInput": json!({ "deep": json!({ "passwords": ["hunter2hunter2"] }).to_string() }).to_string() }),
            ),
            call(json!({ "rawInput": { "args": ["curl", "--user=ana:hunter2hunter2", "x"] } })),
            call(json!({ "rawInput": { "PASSWORD=hunter2hunter2": { "x": 1 } } })),
            call(json!({ "locations": [{ "path": format!("/x/{SECRET}") }] })),
            call(json!({ "_meta": { "token": "hunter2hunter2", SECRET: {} } })),
        ],
        vec![
            format!("plan:{SECRET}=pending"),
            format!("title:{SECRET}"),
            format!("commands:{SECRET}"),
            format!("stderr:{SECRET}"),
            format!("stderr:PASSWORD=hunter2hunter2 glued{SECRET}"),
            update(json!({ "sessionUpdate": "_own", SECRET: { "password": "hunter2hunter2" } })),
            format!("notify:_x/y:{}", json!({ "k": SECRET, SECRET: "k" })),
            format!("raw:junk {SECRET} junk"),
            format!("raw:{}", json!({ "jsonrpc": "2.0", "method": format!("_x/{SECRET}") })),
            format!("fail:-32603:it was {SECRET}"),
        ],
        vec![format!("say:{SECRET}"), format!("exec:echo {SECRET}; printf 'PASSWORD=hunter2hunter2'")],
    ]
}

#[test]
fn no_kind_of_message_shows_a_secret_to_a_viewer() {
    let (daemon, port) = with_viewer();
    let headers = [("accept", "application/json")];
    for steps in told_otherwise() {
        let session = daemon.run_acp(&[&format!("script:{}", json!(steps))]);
        daemon.prompt(&session, "go");
        daemon.wait_for(&session, "the end", |event| {
            event["kind"] == "turn.ended" || event["kind"] == "turn.failed"
        });
        let seen = page(&port, &format!("after=0&limit=1000&session={session}"));
        // Whoever joins all that each kind of message says.
        for kind in ["agent_message_chunk", "agent_thought_chunk", "user_message_chunk"] {
            let of_kind = |event: &&Value| event["data"]["update"]["sessionUpdate"] == kind;
            let parts: Vec<Value> = seen.iter().filter(of_kind).cloned().collect();
            assert!(!leaks(&words(&parts)), "{kind}: {steps:#?}: {}", words(&parts));
        }
        for path in ["", "/log", "/diff"] {
            let text = http(&port, "GET", &format!("/api/v1/sessions/{session}{path}"), None, &headers).1;
            assert!(!leaks(&text), "{path}: {steps:#?}: {text}");
        }
        let mut events = Events::open(&port, &format!("/api/v1/events?after=0&session={session}"), &[]);
        while let Some(block) = events.block().unwrap() {
            assert!(!leaks(block), "{block}");
            if block.contains("turn.ended") || block.contains("turn.failed") {
                break;
            }
        }
    }
    for path in ["/api/v1/sessions", "/api/v1/clearances", "/api/v1/questions"] {
        let text = http(&port, "GET", path, None, &headers).1;
        assert!(!leaks(&text), "{path}: {text}");
    }
}

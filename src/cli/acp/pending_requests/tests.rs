mod world;

use serde_json::Value;

use super::restart::{MAX_TRIES, RESTARTED};
use super::*;

/// Everything that is on its way to the daemon.
fn to_daemon(ledger: &mut PendingRelayRequests) -> Vec<Value> {
    std::iter::from_fn(|| ledger.next_for_daemon()).map(|text| serde_json::from_str(&text).unwrap()).collect()
}

fn to_client(ledger: &mut PendingRelayRequests) -> Vec<Value> {
    std::iter::from_fn(|| ledger.next_for_client()).map(|text| serde_json::from_str(&text).unwrap()).collect()
}

fn say(ledger: &mut PendingRelayRequests, message: &Value) {
    ledger.frame(Frame::Text(message.to_string()));
}

fn hear(ledger: &mut PendingRelayRequests, message: &Value) {
    ledger.daemon(&message.to_string()).unwrap();
}

/// The same, made of this event.
fn hear_of(ledger: &mut PendingRelayRequests, seq: u64, session: &str, message: &Value) {
    ledger.daemon(&format!("@{seq} {session}\n{message}")).unwrap();
}

fn call(id: impl Into<Value>, method: &str, params: Value) -> Value {
    let mut message = json!({ "jsonrpc": "2.0", "id": id.into(), "method": method });
    message["params"] = params;
    message
}

fn result(id: impl Into<Value>, result: Value) -> Value {
    let mut message = json!({ "jsonrpc": "2.0", "id": id.into() });
    message["result"] = result;
    message
}

/// A client that is known to the daemon, with one session.
fn with_session() -> PendingRelayRequests {
    let mut ledger = PendingRelayRequests::new();
    ledger.connected();
    say(&mut ledger, &call(0, "initialize", json!({ "protocolVersion": 1, "clientInfo": { "name": "ed" } })));
    say(&mut ledger, &call(1, "session/new", json!({ "cwd": "/work", "mcpServers": [] })));
    assert_eq!(to_daemon(&mut ledger).len(), 2);
    hear(&mut ledger, &result(0, json!({ "protocolVersion": 1 })));
    hear(&mut ledger, &result(1, json!({ "sessionId": "ses_1" })));
    assert_eq!(to_client(&mut ledger).len(), 2);
    ledger
}

/// What the next daemon is told after who the client is and where it was.
fn reconnect(ledger: &mut PendingRelayRequests) -> Vec<Value> {
    ledger.connected();
    let mut told = to_daemon(ledger);
    for expected in ["initialize", "session/resume"] {
        let ours = told.remove(0);
        assert_eq!(ours["method"], expected);
        hear(ledger, &result(ours["id"].clone(), json!({})));
    }
    told
}

/// The id that we gave a prompt.
fn id_of(prompt: &Value) -> String {
    prompt["params"]["_meta"]["intercom"]["prompt"].as_str().unwrap().to_owned()
}

#[test]
fn the_next_daemon_is_told_who_the_client_is_and_where_it_was() {
    let mut ledger = with_session();
    let update = "{\"method\":\"session/update\",\n \"params\":{\"sessionId\": \"ses_1\", \"x\":1.0}}";
    for seq in [7, 41] {
        ledger.daemon(&format!("@{seq} ses_1\n{update}")).unwrap();
        assert_eq!(ledger.next_for_client().as_deref(), Some(update), "to the byte");
    }
    ledger.lost(false);
    let list = call(2, "session/list", json!({}));
    say(&mut ledger, &list);
    assert_eq!(to_daemon(&mut ledger), [] as [Value; 0]);
    ledger.connected();
    let [initialize, resume, other] = to_daemon(&mut ledger).try_into().unwrap();
    let params = json!({ "protocolVersion": 1, "clientInfo": { "name": "ed" } });
    assert_eq!((&initialize["method"], &initialize["params"]), (&json!("initialize"), &params));
    let params = json!({ "sessionId": "ses_1", "cwd": "/work", "mcpServers": [],
        "_meta": { "intercom": { "after": 41 } } });
    assert_eq!((&resume["method"], &resume["params"]), (&json!("session/resume"), &params));
    assert_eq!(other, list);
    for ours in [initialize, resume] {
        hear(&mut ledger, &result(ours["id"].clone(), json!({})));
    }
    assert_eq!(to_client(&mut ledger), [] as [Value; 0], "the client knows all that");
}

#[test]
fn whatever_is_told_says_where_the_log_is() {
    let mut ledger = with_session();
    say(&mut ledger, &call(2, "session/load", json!({ "sessionId": "ses_2", "cwd": "/b" })));
    to_daemon(&mut ledger);
    hear_of(&mut ledger, 3, "ses_2", &result(2, json!({})));
    hear_of(&mut ledger, 5, "ses_1", &call(7, "session/request_permission", json!({})));
    hear(&mut ledger, &json!({ "method": "session/update", "params": { "sessionId": "ses_1" } }));
    assert_eq!(to_client(&mut ledger).len(), 3);
    ledger.lost(false);
    ledger.connected();
    let after = |message: &Value| message["params"]["_meta"]["intercom"]["after"].clone();
    let told = to_daemon(&mut ledger);
    assert_eq!(told.iter().skip(1).map(after).collect::<Vec<_>>(), [5, 3].map(Value::from));
}

#[test]
fn a_prompt_is_sent_again_as_it_was_until_it_is_answered() {
    let mut ledger = with_session();
    let prompts =
        [2, 3].map(|id| call(id, "session/prompt", json!({ "sessionId": "ses_1", "prompt": [id] })));
    for prompt in &prompts {
        say(&mut ledger, prompt);
    }
    let sent = to_daemon(&mut ledger);
    let ids: Vec<String> = sent.iter().map(id_of).collect();
    assert!(ids.iter().all(|id| id.parse::<PromptId>().is_ok()) && ids[0] != ids[1], "{ids:?}");
    for (sent, mut prompt) in sent.iter().zip(prompts) {
        prompt["params"]["_meta"] = json!({ "intercom": { "prompt": id_of(sent) } });
        assert_eq!(*sent, prompt);
    }
    for _ in 1..MAX_TRIES {
        ledger.lost(false);
        assert_eq!(reconnect(&mut ledger), sent);
    }
    hear(&mut ledger, &result(2, json!({ "stopReason": "end_turn" })));
    assert_eq!(to_client(&mut ledger), [result(2, json!({ "stopReason": "end_turn" }))]);
    hear(&mut ledger, &result(2, json!({ "stopReason": "end_turn" })));
    assert_eq!(to_client(&mut ledger), [] as [Value; 0], "it was answered");
}

#[test]
fn a_prompt_that_makes_the_daemon_hang_up_is_not_sent_for_ever() {
    let mut ledger = with_session();
    say(&mut ledger, &call(2, "session/prompt", json!({ "sessionId": "ses_1" })));
    let sent = to_daemon(&mut ledger);
    for _ in 0..2 * MAX_TRIES {
        ledger.lost(true);
        assert_eq!(reconnect(&mut ledger), sent, "a turn may take longer than many a daemon lives");
    }
    for _ in 1..MAX_TRIES {
        ledger.lost(false);
        assert_eq!(reconnect(&mut ledger), sent);
    }
    ledger.lost(false);
    assert_eq!(reconnect(&mut ledger), [] as [Value; 0]);
    let [error] = to_client(&mut ledger).try_into().unwrap();
    assert_eq!((&error["id"], &error["error"]["code"]), (&json!(2), &json!(-32603)));
}

#[test]
fn what_was_cancelled_stays_cancelled() {
    let mut ledger = with_session();
    let prompt = |id: u64| call(id, "session/prompt", json!({ "sessionId": "ses_1", "prompt": [] }));
    let cancel = json!({ "method": "session/cancel", "params": { "sessionId": "ses_1" } });
    let forget = json!({ "method": "$/cancel_request", "params": { "requestId": 4 } });
    let said = [prompt(2), prompt(3), cancel, prompt(4), prompt(5), forget.clone()];
    for message in &said {
        say(&mut ledger, message);
    }
    let sent = to_daemon(&mut ledger);
    assert_eq!(sent.len(), said.len());
    let [two, three, cancel, four, five, forget] = sent.try_into().unwrap();
    ledger.lost(false);
    let again = [&two, &three, &cancel, &four, &forget, &five].map(Clone::clone);
    assert_eq!(reconnect(&mut ledger), again, "behind what it takes back, and before what it does not");
    hear(&mut ledger, &result(3, json!({ "stopReason": "cancelled" })));
    ledger.lost(false);
    assert_eq!(reconnect(&mut ledger), [two, cancel, four, forget, five]);
    assert_eq!(to_client(&mut ledger), [result(3, json!({ "stopReason": "cancelled" }))]);
}

#[test]
fn what_the_client_takes_back_meanwhile_is_taken_back_behind_the_prompt() {
    let mut ledger = with_session();
    say(&mut ledger, &call(2, "session/prompt", json!({ "sessionId": "ses_1" })));
    let sent = to_daemon(&mut ledger);
    ledger.lost(false);
    let cancel = json!({ "method": "session/cancel", "params": { "sessionId": "ses_1" } });
    say(&mut ledger, &cancel);
    for _ in 0..2 {
        assert_eq!(reconnect(&mut ledger), [sent[0].clone(), cancel.clone()]);
        ledger.lost(false);
    }
}

#[test]
fn reads_are_asked_again_and_nothing_else_is() {
    let mut ledger = with_session();
    let load = call(2, "session/load", json!({ "sessionId": "ses_1", "cwd": "/work", "mcpServers": [] }));
    let list = call("l", "session/list", json!({}));
    for message in [&load, &list, &call(3, "session/set_mode", json!({ "sessionId": "ses_1" }))] {
        say(&mut ledger, message);
    }
    assert_eq!(to_daemon(&mut ledger).len(), 3);
    ledger.lost(false);
    assert_eq!(reconnect(&mut ledger), [load, list]);
    let [error] = to_client(&mut ledger).try_into().unwrap();
    assert_eq!((&error["id"], &error["error"]["message"]), (&json!(3), &json!(RESTARTED)));
}

#[test]
fn a_session_that_the_client_resumes_again_goes_on_where_it_was() {
    let mut ledger = with_session();
    hear_of(&mut ledger, 9, "ses_1", &json!({ "method": "session/update", "params": {} }));
    let resume = call(2, "session/resume", json!({ "sessionId": "ses_1", "cwd": "/work" }));
    say(&mut ledger, &resume);
    to_daemon(&mut ledger);
    ledger.lost(false);
    ledger.connected();
    let [_, ours, theirs] = to_daemon(&mut ledger).try_into().unwrap();
    assert_eq!(ours["params"]["_meta"]["intercom"]["after"], 9);
    assert_eq!(theirs, resume);
}

#[test]
fn what_was_not_sent_yet_is_sent_whatever_it_is() {
    let mut ledger = with_session();
    ledger.lost(false);
    let set = call(2, "session/set_mode", json!({ "sessionId": "ses_1", "modeId": "x" }));
    say(&mut ledger, &set);
    assert_eq!(reconnect(&mut ledger), [set]);
    assert_eq!(to_client(&mut ledger), [] as [Value; 0]);
}

#[test]
fn a_question_of_the_daemon_goes_with_it() {
    let mut ledger = with_session();
    hear(&mut ledger, &call(7, "session/request_permission", json!({ "sessionId": "ses_1" })));
    hear(&mut ledger, &call(8, "session/request_permission", json!({ "sessionId": "ses_1" })));
    let [first, second] = to_client(&mut ledger).try_into().unwrap();
    say(&mut ledger, &result(first["id"].clone(), json!({ "outcome": 1 })));
    assert_eq!(to_daemon(&mut ledger), [result(7, json!({ "outcome": 1 }))]);
    hear(&mut ledger, &json!({ "method": "$/cancel_request", "params": { "requestId": 8 } }));
    let cancel =
        json!({ "jsonrpc": "2.0", "method": "$/cancel_request", "params": { "requestId": second["id"] } });
    assert_eq!(to_client(&mut ledger), std::slice::from_ref(&cancel));
    ledger.lost(false);
    assert_eq!(to_client(&mut ledger), [cancel]);
    reconnect(&mut ledger);
    hear(&mut ledger, &call(7, "session/request_permission", json!({ "sessionId": "ses_1" })));
    let [anew] = to_client(&mut ledger).try_into().unwrap();
    assert!(anew["id"] != first["id"] && anew["id"] != second["id"], "{anew}");
    say(&mut ledger, &result(second["id"].clone(), json!({ "outcome": 1 })));
    assert_eq!(to_daemon(&mut ledger), [] as [Value; 0], "nobody waits for that any more");
    say(&mut ledger, &json!({ "id": anew["id"], "error": { "code": -1, "message": "no" } }));
    let refused = json!({ "jsonrpc": "2.0", "id": 7, "error": { "code": -1, "message": "no" } });
    assert_eq!(to_daemon(&mut ledger), [refused]);
}

#[test]
fn without_a_daemon_everything_is_answered_with_the_reason() {
    let mut ledger = with_session();
    say(&mut ledger, &call(2, "session/prompt", json!({ "sessionId": "ses_1" })));
    to_daemon(&mut ledger);
    ledger.lost(false);
    say(&mut ledger, &call(3, "session/list", json!({})));
    ledger.give_up("gone");
    say(&mut ledger, &call(4, "session/list", json!({})));
    let errors = to_client(&mut ledger);
    assert_eq!(
        errors.iter().map(|error| error["id"].clone()).collect::<Vec<_>>(),
        [2, 3, 4].map(Value::from)
    );
    assert!(errors.iter().all(|error| error["error"]["message"] == "gone"), "{errors:?}");
    assert!(ledger.is_settled());
}

#[test]
fn closing_closes_every_session_also_one_that_is_being_made() {
    let mut ledger = with_session();
    say(&mut ledger, &call(2, "session/new", json!({ "cwd": "/b" })));
    ledger.close_sessions();
    let [_, close] = to_daemon(&mut ledger).try_into().unwrap();
    assert_eq!(
        (&close["method"], &close["params"]),
        (&json!("session/close"), &json!({ "sessionId": "ses_1" }))
    );
    hear(&mut ledger, &result(close["id"].clone(), json!({})));
    assert!(!ledger.is_settled());
    hear(&mut ledger, &result(2, json!({ "sessionId": "ses_2" })));
    ledger.lost(false);
    let [close] = reconnect(&mut ledger).try_into().unwrap();
    assert_eq!(close["params"], json!({ "sessionId": "ses_2" }));
    hear(&mut ledger, &result(close["id"].clone(), json!({})));
    assert!(ledger.is_settled());
}

#[test]
fn nonsense_is_answered_and_goes_no_further() {
    let mut ledger = with_session();
    say(&mut ledger, &call(5, "session/list", json!({})));
    to_daemon(&mut ledger);
    let text = |text: &str| Frame::Text(text.to_owned());
    let too_long =
        |id| Frame::TooLong { excerpt: String::new(), bytes: 9, request: RequestId::parse(id), method: None };
    for (frame, code, id) in [
        (text("{"), -32700, Value::Null),
        (text("hello"), -32700, Value::Null),
        (Frame::NotUtf8 { excerpt: String::new(), bytes: 1 }, -32700, Value::Null),
        (Frame::BadHeader { excerpt: String::new(), bytes: 1 }, -32700, Value::Null),
        (too_long("x"), -32700, Value::Null),
        (too_long("9"), -32700, json!(9)),
        (too_long("5"), -32700, Value::Null),
        (text(r#"[{"id":1,"method":"initialize"}]"#), -32600, Value::Null),
        (text("7"), -32600, Value::Null),
        (text(r#"{"id":"a","method":7}"#), -32600, json!("a")),
        (text(r#"{"id":6}"#), -32600, json!(6)),
        (text(r#"{"id":true,"method":"m"}"#), -32600, Value::Null),
        (text(r#"{"id":5,"method":"m"}"#), -32600, json!(5)),
    ] {
        let name = format!("{frame:?}");
        ledger.frame(frame);
        let [error] = to_client(&mut ledger).try_into().unwrap();
        assert_eq!((&error["error"]["code"], &error["id"]), (&json!(code), &id), "{name}: {error}");
    }
    ledger.frame(text(" \r"));
    assert_eq!(to_client(&mut ledger), [] as [Value; 0], "an empty line is nothing");
    assert_eq!(to_daemon(&mut ledger), [] as [Value; 0]);
    for bad in ["{", "@1 ses_1", "@x ses_1\n{}", "@1 ses_1\n{"] {
        assert!(ledger.daemon(bad).is_err(), "{bad}");
    }
}

#[test]
fn the_client_is_not_read_while_enough_waits_for_the_daemon() {
    let mut ledger = with_session();
    say(&mut ledger, &call(2, "session/prompt", json!({ "text": "x".repeat(MAX_WAITING_BYTES) })));
    assert!(!ledger.has_room_for_client());
    to_daemon(&mut ledger);
    assert!(ledger.has_room_for_client());
    for id in 0..MAX_WAITING {
        say(&mut ledger, &call(format!("{id}"), "m", json!({})));
    }
    assert!(!ledger.has_room_for_client() && ledger.has_room_for_daemon());
    to_daemon(&mut ledger);
    for _ in 0..MAX_UNREAD {
        hear(&mut ledger, &json!({ "method": "session/update", "params": {} }));
    }
    assert!(ledger.has_room_for_client() && !ledger.has_room_for_daemon());
}

#[test]
fn one_request_too_many_is_refused_and_the_answers_of_the_client_still_get_through() {
    let mut ledger = with_session();
    for id in 0..=MAX_OPEN {
        say(&mut ledger, &call(format!("{id}"), "m", json!({})));
        to_daemon(&mut ledger);
    }
    let [refused] = to_client(&mut ledger).try_into().unwrap();
    assert_eq!(refused["id"], json!(MAX_OPEN.to_string()));
    hear(&mut ledger, &call(7, "session/request_permission", json!({})));
    let [asked] = to_client(&mut ledger).try_into().unwrap();
    say(&mut ledger, &result(asked["id"].clone(), json!({})));
    assert_eq!(to_daemon(&mut ledger), [result(7, json!({}))]);
}

#[test]
fn a_prompt_that_is_sent_again_after_a_close_keeps_its_place_in_the_session() {
    let mut ledger = with_session();
    say(&mut ledger, &call(2, "session/prompt", json!({ "sessionId": "ses_1", "prompt": [] })));
    say(&mut ledger, &call(3, "session/close", json!({ "sessionId": "ses_1" })));
    assert_eq!(to_daemon(&mut ledger).len(), 2);
    hear(&mut ledger, &result(3, json!({})));
    ledger.lost(false);
    ledger.connected();
    let methods: Vec<Value> = to_daemon(&mut ledger).iter().map(|told| told["method"].clone()).collect();
    assert_eq!(methods, ["initialize", "session/prompt"]);
    hear_of(&mut ledger, 7, "ses_1", &json!({ "method": "session/update", "params": {} }));
    ledger.lost(false);
    let told = {
        ledger.connected();
        to_daemon(&mut ledger)
    };
    let resume = told.iter().find(|told| told["method"] == "session/resume").expect("where it was");
    assert_eq!(resume["params"]["_meta"]["intercom"]["after"], 7);
    let prompt = told.iter().find(|told| told["method"] == "session/prompt").expect("it has no answer yet");
    assert_eq!(
        resume["params"]["_meta"]["intercom"]["prompts"],
        json!([id_of(prompt)]),
        "it must not come back as somebody else's"
    );
}

//! ACP over HTTP: the port, and the profile without connections.

use intercom_testkit::client::{Answer, Events, Place, WebSocket, exchange};
use intercom_testkit::harness::{Daemon, PORT};
use intercom_testkit::seats::{self, Seat, fixture, prompt};
use serde_json::{Value, json};

use super::sessions;

const JSON: (&str, &str) = ("content-type", "application/json");

/// With the profile without connections.
fn connectionless(more: &str) -> (Daemon, Place) {
    let daemon =
        Daemon::quick(&format!("{}[seats]\nagent = 'fixture'\nconnectionless = true\n{more}", fixture(&[])));
    let place = Place::socket(&daemon);
    (daemon, place)
}

fn request(id: i64, method: &str, params: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string()
}

fn post(place: &Place, body: &str) -> Answer {
    exchange(place, "POST", "/acp", &[JSON], body)
}

#[track_caller]
fn result(place: &Place, method: &str, params: &Value) -> Value {
    let answer = post(place, &request(5, method, params));
    let body = answer.json();
    assert_eq!((answer.status, &body["id"]), (200, &json!(5)), "{method}: {answer:?}");
    assert!(body.get("result").is_some(), "{method}: {body}");
    body["result"].clone()
}

#[track_caller]
fn code(place: &Place, method: &str, params: &Value) -> i64 {
    let answer = post(place, &request(6, method, params));
    // What is a stream otherwise is one here, too: its only event.
    let mut events = answer.body.lines().filter_map(|line| line.strip_prefix("data: "));
    let body = events.next_back().map_or_else(|| answer.json(), |data| serde_json::from_str(data).unwrap());
    body["error"]["code"].as_i64().unwrap_or_else(|| panic!("{method}: {body}"))
}

#[track_caller]
fn begun(place: &Place, daemon: &Daemon) -> String {
    let told = result(place, "session/new", &json!({ "cwd": daemon.workspace(), "mcpServers": [] }));
    told["sessionId"].as_str().unwrap().to_owned()
}

#[test]
fn where_clients_are_not_wanted_there_is_no_door() {
    let daemon = Daemon::quick("[seats]\nenabled = false\n");
    let place = Place::socket(&daemon);
    let hello = request(1, "initialize", &json!({ "protocolVersion": 1 }));
    assert!([403, 404].contains(&post(&place, &hello).status));
    let (answer, opened) = WebSocket::ask(&place, "/acp", &[]).unwrap();
    assert!([403, 404].contains(&answer.status) && opened.is_none(), "{answer:?}");
    for (method, path) in [("POST", "/acp/rpc?client_id=a"), ("GET", "/acp/sse?client_id=a")] {
        let answer = exchange(&place, method, path, &[JSON, ("accept", "text/event-stream")], &hello);
        assert!([403, 404].contains(&answer.status), "{path}: {answer:?}");
    }
    let mut seat = Seat::stdio(&daemon, &["--agent", "demo"]);
    seat.until_hung_up(std::time::Duration::from_secs(10));
}

#[test]
fn the_door_is_on_the_daemons_one_port() {
    let daemon = Daemon::quick(&format!("{}[seats]\nagent = 'fixture'\n{PORT}", fixture(&[])));
    let place = Place::port(&daemon, "admin");
    for seat in [Seat::websocket(&place), Seat::http(&place)] {
        let mut seat = seat.introduced();
        let session = seat.begun(&daemon);
        assert_eq!(seat.prompt(&session, "say:by the port"), "end_turn");
    }
}

/// A value that is nearly the token is no token.
#[test]
fn only_the_token_opens() {
    let daemon = Daemon::quick(&format!("[seats]\nconnectionless = true\n{PORT}"));
    let Place::Port { address, token: Some(token) } = Place::port(&daemon, "admin") else { panic!() };
    let mut other = token.clone();
    let last = if other.pop() == Some('x') { 'y' } else { 'x' };
    other.push(last);
    let hello = request(1, "initialize", &json!({ "protocolVersion": 1 }));
    for wrong in
        [None, Some(String::new()), Some(other), Some(token[..8].to_owned()), Some(format!("{token}x"))]
    {
        let place = Place::Port { address: address.clone(), token: wrong.clone() };
        // Who tries too often is told so.
        let is_refused = |status: u16| status == 401 || status == 429;
        assert!(is_refused(post(&place, &hello).status), "{wrong:?}");
        assert!(is_refused(post(&place, &request(1, "session/list", &json!({}))).status), "{wrong:?}");
        let (answer, opened) = WebSocket::ask(&place, "/acp", &[]).unwrap();
        assert!(is_refused(answer.status) && opened.is_none(), "{wrong:?}: {answer:?}");
    }
}

/// Off means 400, as for anything that has no connection.
#[test]
fn without_a_connection_there_is_nothing_unless_it_is_configured() {
    let daemon = Daemon::quick(&fixture(&[]));
    let place = Place::socket(&daemon);
    for method in ["session/new", "session/list", "session/prompt"] {
        let answer = post(&place, &request(1, method, &json!({})));
        assert_eq!(answer.status, 400, "{method}: {answer:?}");
    }
    assert!(sessions(&daemon).is_empty());
}

/// On a connection over HTTP, an invalid message is a 400 of its own request, and the connection goes on.
#[test]
fn what_is_no_message_is_a_bad_request() {
    let daemon = Daemon::quick(&fixture(&[]));
    let place = Place::socket(&daemon);
    let hello = post(&place, &request(1, "initialize", &json!({ "protocolVersion": 1 })));
    let connection = hello.header("acp-connection-id").unwrap();
    let headers = [JSON, ("acp-connection-id", connection)];
    for body in ["{\"jsonrpc\":", "", "7", "not json"] {
        let answer = exchange(&place, "POST", "/acp", &headers, body);
        assert_eq!(answer.status, 400, "{body}: {answer:?}");
        assert!(answer.json()["error"]["message"].is_string(), "{body}: {answer:?}");
    }
    let answer = exchange(&place, "POST", "/acp", &headers, &request(2, "session/list", &json!({})));
    assert_eq!(answer.status, 202, "{answer:?}");
    // What has an id can be answered.
    let mut seat = Seat::http(&place).introduced();
    seat.send(&json!({ "jsonrpc": "1.0", "id": "odd", "method": "session/list" }));
    seats::refusal(&seat.answer_to(&json!("odd")), -32600);
}

#[test]
fn answers_come_at_once_and_have_a_length() {
    let (daemon, place) = connectionless("");
    assert_eq!(result(&place, "session/list", &json!({}))["sessions"], json!([]));
    let hello = post(&place, &request(1, "initialize", &json!({ "protocolVersion": 1 })));
    assert_eq!((hello.status, hello.header("content-type")), (200, Some("application/json")), "{hello:?}");
    let length: usize = hello.header("content-length").unwrap().parse().unwrap();
    assert_eq!(length, hello.body.len());
    let told = &hello.json()["result"];
    assert_eq!((&told["protocolVersion"], &told["authMethods"]), (&json!(1), &json!([])), "{told}");
    assert!(told.get("clientId").is_none(), "{told}");
    assert_eq!(result(&place, "session/list", &json!({}))["sessions"], json!([]));
    let session = begun(&place, &daemon);
    let listed = result(&place, "session/list", &json!({}));
    assert_eq!(listed["sessions"][0]["sessionId"], json!(session), "{listed}");
    assert_eq!(listed["sessions"][0]["cwd"], json!(daemon.workspace()), "{listed}");
}

#[test]
fn a_prompt_streams_on_its_own_request() {
    let (daemon, place) = connectionless("");
    let session = begun(&place, &daemon);
    let body = request(7, "session/prompt", &prompt(&session, "say:one;say:two"));
    let headers = [JSON, ("accept", "text/event-stream")];
    let (answer, events) = Events::ask(&place, "POST", "/acp", &headers, &body).unwrap();
    let mut events = events.unwrap_or_else(|| panic!("{answer:?}"));
    let mut blocks = Vec::new();
    while let Some(block) = events.block().unwrap() {
        blocks.push(block.to_owned());
    }
    let data = |block: &String| block.lines().find_map(|line| line.strip_prefix("data: ").map(str::to_owned));
    let messages: Vec<Value> =
        blocks.iter().filter_map(data).map(|text| serde_json::from_str(&text).unwrap()).collect();
    assert_eq!(messages.len(), blocks.len(), "one line of data each: {blocks:?}");
    let (last, updates) = messages.split_last().unwrap();
    assert_eq!((&last["id"], &last["result"]["stopReason"]), (&json!(7), &json!("end_turn")), "{last}");
    let updates: Vec<Value> = updates.iter().map(|message| message["params"]["update"].clone()).collect();
    assert_eq!(seats::words(&updates), ["one", "two"]);
}

#[test]
fn a_running_prompt_is_listed_as_pending_and_can_be_cancelled() {
    let (daemon, place) = connectionless("");
    let session = begun(&place, &daemon);
    let pending = || result(&place, "session/list", &json!({}))["sessions"][0]["_meta"]["pending"].clone();
    assert_eq!(pending(), false);
    let body = request(7, "session/prompt", &prompt(&session, "say:one;hang"));
    let (_, events) = Events::ask(&place, "POST", "/acp", &[JSON], &body).unwrap();
    let mut events = events.unwrap();
    let said = |message: &Value| message["params"]["update"]["content"]["text"] == "one";
    assert!(events.by_ref().any(|message| said(&message)));
    assert_eq!(pending(), true);
    // As a notification: no body. As a request: an answer.
    let note = json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": { "sessionId": session } });
    let answer = post(&place, &note.to_string());
    assert!((200..300).contains(&answer.status) && answer.body.is_empty(), "{answer:?}");
    let last = events.last().unwrap();
    assert_eq!(last["result"]["stopReason"], "cancelled", "{last}");
    assert_eq!(pending(), false);
    assert_eq!(result(&place, "session/cancel", &json!({ "sessionId": session })), json!({}));
    assert_eq!(result(&place, "session/cancel", &json!({ "sessionId": "ses_unknown00000" })), json!({}));
}

/// A missing or a relative one is refused.
#[test]
fn a_session_needs_an_absolute_directory() {
    let (daemon, place) = connectionless("");
    let mut seats: Vec<Seat> = seats::WAYS.iter().map(|way| Seat::ready(*way, &daemon)).collect();
    for odd in [
        json!({}),
        json!({ "cwd": "" }),
        json!({ "cwd": "work" }),
        json!({ "cwd": "./work" }),
        json!({ "cwd": 7 }),
    ] {
        let mut params = odd.clone();
        params["mcpServers"] = json!([]);
        assert_eq!(code(&place, "session/new", &params), -32602, "{odd}");
        for seat in &mut seats {
            seat.refused("session/new", params.clone(), -32602);
        }
    }
    assert!(sessions(&daemon).is_empty());
    let session = begun(&place, &daemon);
    assert_eq!(daemon.show(&session)["workspace"], json!(daemon.workspace()));
}

/// An unknown session is -32000 here, not -32002; the other codes are those of JSON-RPC.
#[test]
fn errors_without_a_connection_have_their_codes() {
    let (daemon, place) = connectionless("");
    assert_eq!(code(&place, "session/prompt", &prompt("acph_unknown", "say:x")), -32000);
    assert_eq!(code(&place, "session/fly", &json!({})), -32601);
    let session = begun(&place, &daemon);
    assert_eq!(code(&place, "session/prompt", &prompt(&session, "")), -32602);
    assert_eq!(code(&place, "session/prompt", &prompt(&session, &"x".repeat(102_401))), -32602);
    assert_eq!(post(&place, "{\"jsonrpc\":").status, 400, "no JSON, no answer in JSON-RPC");
    let odd =
        post(&place, &json!({ "jsonrpc": "1.0", "id": 1, "method": "session/list" }).to_string()).json();
    assert_eq!(odd["error"]["code"], -32600, "{odd}");
}

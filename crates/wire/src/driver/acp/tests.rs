//! Conversations with the driver alone: lines in, what was said out, and the other way round.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::forms::filled_in;
use super::memory::TurnMemory;
use super::*;
use intercom_types::{ControlChange, agent};

struct Talk {
    driver: AcpDriver,
}

impl Talk {
    fn new() -> Self {
        let workspace = "/w".to_owned();
        Self {
            driver: AcpDriver::new(DriverSetup { agent: "fox".into(), workspace, ..DriverSetup::default() }),
        }
    }

    fn ready() -> Self {
        let mut talk = Self::new();
        talk.tell(&AgentCommand::Hello);
        talk.hear(&json!({ "id": 1, "result": { "protocolVersion": 1, "agentCapabilities": { "loadSession": true } } }));
        talk.hear(&json!({ "id": 2, "result": { "sessionId": "s1" } }));
        talk
    }

    fn hear(&mut self, line: &Value) -> Vec<AgentMessage> {
        let mut said = Vec::new();
        self.driver.decode(&line.to_string(), &mut said);
        said
    }

    fn tell(&mut self, message: &AgentCommand) -> Value {
        serde_json::from_str(&self.driver.encode(message).unwrap()).unwrap()
    }

    /// Another daemon goes on with what the first one kept.
    fn again(&mut self) {
        let saved = self.driver.save().unwrap_or_else(|| Json::of(&self.driver.memory));
        let mut driver = AcpDriver::new(self.driver.setup.clone());
        driver.restore(&saved);
        self.driver = driver;
    }
}

fn prompted(wording: PromptBody) -> AgentCommand {
    AgentCommand::Prompt { wording, turn: None }
}

fn told(said: &[AgentMessage]) -> Value {
    match said {
        [AgentMessage::DriverText { text }] => serde_json::from_str(text).unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_handshake_goes_step_by_step_also_across_daemons() {
    let mut talk = Talk::new();
    let hello = talk.tell(&AgentCommand::Hello);
    assert_eq!((&hello["method"], &hello["params"]["protocolVersion"]), (&json!("initialize"), &json!(1)));
    talk.again();
    let said = talk.hear(&json!({ "id": 1, "result": { "protocolVersion": 1 } }));
    let new = told(&said);
    assert_eq!((&new["method"], &new["params"]["cwd"]), (&json!("session/new"), &json!("/w")));
    talk.again();
    let said = talk.hear(&json!({ "id": 2, "result": { "sessionId": "s1" } }));
    assert!(
        matches!(
            &said[..],
            [AgentMessage::Controls(_), AgentMessage::Ready { supports_steering: false, .. }]
        ),
        "{said:?}"
    );
    let prompt = talk.tell(&prompted("go".into()));
    assert_eq!(prompt["params"]["sessionId"], "s1");
}

#[test]
fn an_earlier_session_is_loaded_and_its_history_not_told_again() {
    let mut talk = Talk::ready();
    let saved = talk.driver.save().unwrap();
    let mut next = Talk::new();
    next.driver.inherit(&saved);
    next.tell(&AgentCommand::Hello);
    let said = next.hear(
        &json!({ "id": 1, "result": { "protocolVersion": 1, "agentCapabilities": { "loadSession": true } } }),
    );
    let load = told(&said);
    assert_eq!((&load["method"], &load["params"]["sessionId"]), (&json!("session/load"), &json!("s1")));
    let update = json!({ "method": "session/update", "params": { "sessionId": "s1", "update": { "sessionUpdate": "plan" } } });
    assert!(next.hear(&update).is_empty(), "it is in the log already");
    let said = next.hear(&json!({ "id": 2, "result": null }));
    assert!(matches!(&said[1], AgentMessage::Ready { resumed: true, .. }), "{said:?}");
    assert!(next.hear(&update).is_empty(), "some go on after they have answered");
    next.tell(&prompted("go".into()));
    assert!(matches!(&next.hear(&update)[..], [AgentMessage::Update { .. }, AgentMessage::Steps(_)]));
    // One that cannot be found begins anew.
    let mut lost = Talk::new();
    lost.driver.inherit(&saved);
    lost.tell(&AgentCommand::Hello);
    lost.hear(
        &json!({ "id": 1, "result": { "protocolVersion": 1, "agentCapabilities": { "loadSession": true } } }),
    );
    let said = lost.hear(&json!({ "id": 2, "error": { "code": -32002, "message": "not found" } }));
    assert!(
        said.iter()
            .any(|said| matches!(said, AgentMessage::DriverText { text } if text.contains("session/new"))),
        "{said:?}"
    );
}

#[test]
fn only_the_answer_to_the_last_prompt_ends_the_turn() {
    let mut talk = Talk::ready();
    let first = talk.tell(&prompted("one".into()))["id"].clone();
    let taken_back = talk.tell(&AgentCommand::AbandonTurn);
    assert_eq!(
        (&taken_back["method"], &taken_back["params"]["requestId"]),
        (&json!("$/cancel_request"), &first)
    );
    let second = talk.tell(&prompted("two".into()))["id"].clone();
    let said = talk.hear(&json!({ "id": first, "result": { "stopReason": "cancelled" } }));
    assert!(matches!(&said[..], [AgentMessage::Unknown { fault: None, .. }]), "{said:?}");
    let said = talk.hear(&json!({ "id": second, "result": { "stopReason": "end_turn" } }));
    assert!(matches!(&said[..], [AgentMessage::TurnEnd { .. }]), "{said:?}");
    let said = talk.hear(&json!({ "id": second, "result": { "stopReason": "end_turn" } }));
    assert!(matches!(&said[..], [AgentMessage::Unknown { .. }]), "once: {said:?}");
}

#[test]
fn ids_of_both_sides_do_not_meet() {
    let mut talk = Talk::ready();
    let prompt = talk.tell(&prompted("go".into()))["id"].clone();
    let ask = json!({ "id": prompt, "method": "session/request_permission", "params": { "sessionId": "s1",
        "toolCall": { "toolCallId": "t", "title": "T" }, "options": [{ "optionId": "y", "name": "Y", "kind": "allow_once" }] } });
    let said = talk.hear(&ask);
    let [AgentMessage::Clearance(ask)] = &said[..] else { panic!("{said:?}") };
    let option = Some("y".to_owned());
    let decision =
        AgentCommand::Decision { request: ask.request.clone(), approved: true, reason: None, option };
    let answer = talk.tell(&decision);
    assert_eq!(
        answer,
        json!({ "jsonrpc": "2.0", "id": prompt, "result": { "outcome": { "outcome": "selected", "optionId": "y" } } })
    );
    let said = talk.hear(&json!({ "id": prompt, "result": { "stopReason": "end_turn" } }));
    assert!(matches!(&said[..], [AgentMessage::TurnEnd { .. }]), "{said:?}");
}

#[test]
fn what_was_announced_of_a_tool_is_on_its_card() {
    let mut talk = Talk::ready();
    talk.hear(&json!({ "method": "session/update", "params": { "sessionId": "s1", "update": { "sessionUpdate": "tool_call",
        "toolCallId": "t", "title": "Write", "kind": "edit", "status": "pending",
        "content": [{ "type": "diff", "path": "/w/a", "oldText": "a\n", "newText": "b\n" }] } } }));
    talk.again();
    let said = talk.hear(&json!({ "id": 0, "method": "session/request_permission",
        "params": { "sessionId": "s1", "toolCall": { "toolCallId": "t" }, "options": [] } }));
    let [AgentMessage::Clearance(ask)] = &said[..] else { panic!("{said:?}") };
    assert_eq!((ask.title.as_str(), ask.file_path.as_deref()), ("Write", Some("/w/a")));
    assert!(ask.diff.as_deref().unwrap().contains("+b"), "{ask:?}");
}

#[test]
fn words_go_into_a_form_by_the_sort_of_its_fields() {
    let form = |text: &str| Json::of(&serde_json::from_str::<Value>(text).unwrap());
    for (properties, words, expected) in [
        (r#"{"a":{"type":"string"}}"#, "x", Some(r#"{"a":"x"}"#)),
        (r#"{"n":{"type":"integer"}}"#, " 7 ", Some(r#"{"n":7}"#)),
        (r#"{"n":{"type":"integer"},"who":{"type":"string"}}"#, "Ana", Some(r#"{"who":"Ana"}"#)),
        (r#"{"a":{},"b":{}}"#, r#"{"b":1.0}"#, Some(r#"{"b":1.0}"#)),
        (r"{}", "x", None),
    ] {
        let filled = filled_in(words, Some(&form(&format!(r#"{{"properties":{properties}}}"#))));
        assert_eq!(filled.as_ref().map(Json::as_str), expected, "{words}");
    }
}

#[test]
fn what_is_remembered_is_bounded() {
    let mut talk = Talk::ready();
    for n in 0..100 {
        let title = "t".repeat(if n % 2 == 0 { 300_000 } else { 10 });
        talk.hear(&json!({ "method": "session/update", "params": { "sessionId": "s1", "update": {
            "sessionUpdate": "tool_call", "toolCallId": format!("t{n}"), "title": title } } }));
        talk.tell(&AgentCommand::Nudge { message: "x".into() });
        talk.hear(&json!({ "method": "session/update", "params": { "sessionId": "s1", "update": {
            "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": "w".repeat(10_000) } } } }));
    }
    let mind = Json::of(&talk.driver.memory);
    assert!(mind.as_str().len() < 50_000, "{} bytes", mind.as_str().len());
}

#[test]
fn what_is_remembered_is_stored_side_by_side_as_in_earlier_releases() {
    let stored = json!({
        "next_id": 4, "pending": { "3": "Prompt" }, "session": "acp-1", "prompt": 3, "earlier": "acp-0",
        "can": { "load": true, "resume": true, "list": true, "close": true, "image": true, "audio": false,
            "embedded_context": true, "steer": false },
        "auth": [], "about": { "protocolVersion": 1 }, "replaying": true, "logged_in": true,
        "questions": { "7": { "a": 1.50 } }, "calls": [["t1", { "title": "x" }]], "last_words": "so far",
        "worked": true, "controls": { "mode": "ask", "modes": [], "model": null, "models": [], "options": [] },
        "steering": { "2": "hurry" }, "setting": {}, "listed": [{ "sessions": [] }], "explicit": true, "opening": null,
    });
    let mut talk = Talk::new();
    talk.driver.restore(&Json::of(&stored));
    assert_eq!(serde_json::to_value(&talk.driver.memory).unwrap(), stored);
    let AgentSession { id, earlier, explicit, replaying } = &talk.driver.memory.session;
    assert_eq!(
        (id.as_deref(), earlier.as_deref(), explicit, replaying),
        (Some("acp-1"), Some("acp-0"), &true, &true)
    );
    let TurnMemory { prompt, last_words, worked } = &talk.driver.memory.turn;
    assert_eq!((prompt, last_words.as_str(), worked), (&Some(3), "so far", &true));
}

proptest! {
    /// Whatever an agent sends, each line says at most a few things, and what it does not mean is kept.
    #[test]
    fn no_line_is_lost_and_none_panics(lines in prop::collection::vec(line(), 1..20)) {
        let mut talk = Talk::new();
        talk.tell(&AgentCommand::Hello);
        for line in lines {
            let mut said = Vec::new();
            talk.driver.decode(&line, &mut said);
            prop_assert!(said.len() <= 3, "{line}: {said:?}");
            let replays = talk.driver.memory.session.replaying;
            prop_assert!(!said.is_empty() || replays, "{line} is lost");
            talk.again();
        }
    }
}

fn line() -> impl Strategy<Value = String> {
    let id = prop_oneof![(0..4_u64).prop_map(|n| json!(n)), Just(json!("x")), Just(Value::Null)];
    let method = prop::sample::select(vec![
        "session/update",
        "session/request_permission",
        "elicitation/create",
        "fs/read_text_file",
        "$/cancel_request",
        "_x",
    ]);
    let params = prop::sample::select(vec![
        json!({}),
        json!([1]),
        json!({ "requestId": 1 }),
        json!({ "sessionId": "s", "update": { "sessionUpdate": "tool_call", "toolCallId": "t" } }),
        json!({ "sessionId": "s", "update": { "sessionUpdate": "usage_update", "cost": { "amount": -1 } } }),
        json!({ "sessionId": "s", "toolCall": { "toolCallId": "t" }, "options": [{ "optionId": 5 }] }),
        json!({ "message": "m", "requestedSchema": { "properties": { "a": {} } } }),
    ]);
    let result = prop::sample::select(vec![
        json!(null),
        json!({ "protocolVersion": 1, "agentCapabilities": { "loadSession": true } }),
        json!({ "protocolVersion": 2 }),
        json!({ "sessionId": "s1" }),
        json!({ "stopReason": "end_turn" }),
    ]);
    prop_oneof![
        (id.clone(), method.clone(), params.clone()).prop_map(|(id, method, params)| {
            json!({ "id": id, "method": method, "params": params }).to_string()
        }),
        (method, params)
            .prop_map(|(method, params)| json!({ "method": method, "params": params }).to_string()),
        (id.clone(), result).prop_map(|(id, result)| json!({ "id": id, "result": result }).to_string()),
        id.prop_map(|id| json!({ "id": id, "error": { "code": -32000, "message": "log in" } }).to_string()),
        "[ -~]{1,40}".prop_filter("an empty line means nothing", |text| !text.trim().is_empty()),
    ]
}

#[test]
fn the_answer_to_what_was_set_has_its_number_also_across_daemons() {
    let mut talk = Talk::ready();
    let set = |number, set| AgentCommand::ChangeSetting { set, number };
    let first = talk.tell(&set(1, ControlChange::Mode("plan".into())));
    let switch = ControlChange::Option { id: "fast".into(), value: agent::SettingValue::Switch(true) };
    let second = talk.tell(&set(2, switch));
    assert_eq!((&second["params"]["type"], &second["params"]["value"]), (&json!("boolean"), &json!(true)));
    talk.again();
    let said =
        talk.hear(&json!({ "id": second["id"], "error": { "code": -32602, "message": "no such option" } }));
    let [AgentMessage::SettingRefused { set: Some(2), reason, error }] = &said[..] else {
        panic!("{said:?}")
    };
    assert!(reason.contains("no such option") && error.as_str().contains("-32602"), "{said:?}");
    // What the agent agrees to is so, whether or not it tells that once more.
    let said = talk.hear(&json!({ "id": first["id"], "result": { "_meta": 1 } }));
    let [AgentMessage::Controls(controls), AgentMessage::SettingAccepted { set: Some(1), result }] =
        &said[..]
    else {
        panic!("{said:?}")
    };
    assert_eq!((controls.mode.as_deref(), result.as_str()), (Some("plan"), r#"{"_meta":1}"#));
}

#[test]
fn an_error_in_place_of_a_result_is_a_turn_that_failed() {
    let mut talk = Talk::ready();
    for (answer, expected) in [
        (json!({ "result": { "stopReason": "refusal" } }), false),
        (json!({ "error": { "code": -32603, "message": "no" } }), true),
        (json!({ "error": { "code": -32800, "message": "cancelled" } }), true),
    ] {
        let mut answer = answer;
        answer["id"] = talk.tell(&prompted("go".into()))["id"].clone();
        let said = talk.hear(&answer);
        assert!(
            matches!(&said[..], [AgentMessage::TurnEnd { failed, .. }] if *failed == expected),
            "{said:?}"
        );
    }
}

#[test]
fn mcp_servers_are_passed_on_however_the_session_begins() {
    for (caps, method) in [
        (json!({ "loadSession": true }), "session/load"),
        (json!({ "sessionCapabilities": { "resume": {} } }), "session/resume"),
        (json!({}), "session/new"),
    ] {
        let servers = json!([{ "name": "files", "command": "/bin/files", "args": [], "env": [] }]);
        let mcp_servers = Some(Json::of(&servers));
        let setup = DriverSetup { resume: Some("s0".into()), mcp_servers, ..DriverSetup::default() };
        let mut talk = Talk { driver: AcpDriver::new(setup) };
        talk.tell(&AgentCommand::Hello);
        let said =
            talk.hear(&json!({ "id": 1, "result": { "protocolVersion": 1, "agentCapabilities": caps } }));
        let begin = told(&said);
        assert_eq!((&begin["method"], &begin["params"]["mcpServers"]), (&json!(method), &servers));
    }
}

#[test]
fn a_title_is_one_line_of_bounded_length_or_none() {
    let mut talk = Talk::ready();
    let mut title = |update: Value| {
        let params = json!({ "sessionId": "s1", "update": update });
        match talk.hear(&json!({ "method": "session/update", "params": params })).pop() {
            Some(AgentMessage::Title(title)) => Some(title),
            _ => None,
        }
    };
    let info = "session_info_update";
    assert_eq!(title(json!({ "sessionUpdate": info, "title": " a\nb" })), Some(Some("a".into())));
    assert_eq!(
        title(json!({ "sessionUpdate": info, "title": "é".repeat(500) })),
        Some(Some(format!("{}…", "é".repeat(199))))
    );
    assert_eq!(title(json!({ "sessionUpdate": info, "title": null })), Some(None));
    assert_eq!(title(json!({ "sessionUpdate": info, "title": "" })), Some(None));
    assert_eq!(title(json!({ "sessionUpdate": info, "title": 5 })), None);
    assert_eq!(title(json!({ "sessionUpdate": info })), None);
}

#[test]
fn a_list_of_sessions_that_is_no_object_is_an_empty_list() {
    for result in [json!([]), json!("none"), json!(7), json!(null), json!({ "sessions": 7 })] {
        let mut talk = Talk::ready();
        talk.tell(&AgentCommand::ListSessions);
        let said = talk.hear(&json!({ "id": 3, "result": result }));
        assert_eq!(
            said,
            [AgentMessage::SessionList { result: Json::trusted(r#"{"sessions":[]}"#), ok: true }],
            "{result}"
        );
    }
}

#[test]
fn a_foreign_blank_around_the_answer_that_ends_a_turn_is_rejected_and_the_turn_goes_on() {
    for blank in ["\u{a0}", "\u{b}", "\u{2028}"] {
        let mut talk = Talk::ready();
        talk.tell(&prompted(PromptBody::from("go".to_owned())));
        let answer = r#"{"jsonrpc":"2.0","id":3,"result":{"stopReason":"end_turn"}}"#;
        for text in [format!("{blank}{answer}"), format!("{answer}{blank}")] {
            let mut said = Vec::new();
            talk.driver.decode(&text, &mut said);
            assert!(matches!(&said[..], [AgentMessage::Rejected { .. }]), "{said:?}");
        }
        let said = talk.hear(&json!({ "id": 3, "result": { "stopReason": "end_turn" } }));
        assert!(matches!(&said[..], [AgentMessage::TurnEnd { .. }]), "{said:?}");
    }
}

#[test]
fn an_answer_that_we_failed_at_counts_as_an_error_of_the_agent() {
    let mut talk = Talk::ready();
    talk.tell(&prompted(PromptBody::from("go".to_owned())));
    let mut said = Vec::new();
    talk.driver.decode_failed(r#"{"id":3,"result":{"stopReason":"end_turn"}}"#, "a bug", &mut said);
    let [AgentMessage::Rejected { fault: None, .. }, AgentMessage::TurnEnd { failed: true, .. }] = &said[..]
    else {
        panic!("{said:?}")
    };
    let mut said = Vec::new();
    talk.driver.decode_failed(r#"{"id":"x","method":"fs/read_text_file"}"#, "a bug", &mut said);
    let [AgentMessage::Rejected { fault: Some(fault), .. }] = &said[..] else { panic!("{said:?}") };
    assert_eq!(fault.request.as_json(), "\"x\"");
}

//! What clients are told, held against the schema's own types.

use agent_client_protocol_schema::v1::{
    CreateElicitationRequest, InitializeResponse, ListSessionsResponse, NewSessionResponse,
    RequestPermissionRequest, SessionNotification, SessionUpdate,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::client_requests::{self, ClientRequest, ClientRequestSubject};
use super::update_encoder::{self, UpdateEncoder};
use super::{capabilities, refusal::RpcRefusal};
use intercom_types::samples::sample;
use intercom_types::{EventKind, ListedAgent, RequestId, Role, Session, SessionId};
use intercom_wire::acp::client_messages;

const CLEARANCE: &str = "clr_0000000000000001";

/// The parameters of a message, as what they must be.
fn params<T: DeserializeOwned>(line: &str) -> T {
    let message: Value = serde_json::from_str(line).unwrap();
    assert_eq!(message["jsonrpc"], "2.0");
    serde_json::from_value(message["params"].clone()).unwrap_or_else(|error| panic!("{error}: {line}"))
}

fn updates(voice: &mut UpdateEncoder, kind: EventKind, data: &Value) -> Vec<SessionUpdate> {
    let told = voice.encode_logged(&sample(kind, data));
    told.iter()
        .map(|line| {
            let notification: SessionNotification = params(line);
            assert_eq!(notification.session_id.to_string(), "ses_1");
            notification.update
        })
        .collect()
}

fn seen(more: &Value) -> Session {
    let mut view = json!({
        "id": SessionId::mint(), "agent": "fix", "protocol": "acp", "workspace": "/w", "phase": "idle", "turn": null,
        "queue": 0, "pending": { "clearances": 0, "questions": 0 }, "controls": null, "exit": null, "why": "",
    });
    view.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    serde_json::from_value(view).unwrap()
}

fn profiles() -> Vec<ListedAgent> {
    let all = json!([
        { "name": "fix", "command": "fix", "protocol": "acp", "description": "d" },
        { "name": "other", "command": "other", "protocol": "intercom", "availability": "installed" },
        { "name": "away", "command": "away", "protocol": "acp", "availability": "missing" },
    ]);
    serde_json::from_value(all).unwrap()
}

#[test]
fn what_agents_of_our_protocol_say_is_what_the_schema_knows() {
    let mut voice = UpdateEncoder::new("ses_1".to_owned(), false);
    let told = updates(&mut voice, EventKind::Status, &json!({ "message": "hi", "x": 1 }));
    assert!(matches!(told.as_slice(), [SessionUpdate::AgentMessageChunk(_)]));
    let progress = json!({ "progress": [
        { "label": "a", "status": "completed" }, { "label": "b", "status": "odd" }, { "status": 7 },
    ]});
    assert!(updates(&mut voice, EventKind::Heartbeat, &progress).is_empty(), "a wrong list is no plan");
    let progress = json!({ "progress": [{ "label": "a", "status": "completed" }, { "label": "b" }] });
    let told = updates(&mut voice, EventKind::Heartbeat, &progress);
    let [SessionUpdate::Plan(plan)] = told.as_slice() else { panic!("no plan") };
    assert_eq!(plan.entries.len(), 2);
    let tool = json!({ "title": "make", "tool": "execute", "call": "c1", "status": "in_progress" });
    let first = updates(&mut voice, EventKind::Update, &tool);
    assert!(matches!(first.as_slice(), [SessionUpdate::ToolCall(_)]));
    let second = updates(&mut voice, EventKind::Update, &tool);
    assert!(matches!(second.as_slice(), [SessionUpdate::ToolCallUpdate(_)]));
    assert!(updates(&mut voice, EventKind::Heartbeat, &json!({})).is_empty());
    assert!(updates(&mut voice, EventKind::LineRejected, &json!({ "reason": "x" })).is_empty());
}

#[test]
fn a_clearance_of_our_protocol_is_a_call_with_a_permission() {
    let mut voice = UpdateEncoder::new("ses_1".to_owned(), false);
    let data = json!({
        "clearance": CLEARANCE, "title": "Edit a", "description": "d", "diff": "-a\n+b", "file_path": "a",
        "more_paths": ["b"], "tool": null, "command": null, "risk": "high", "risk_why": ["x"], "options": [],
        "request": { "id": 1, "params": { "title": "Edit a" } },
    });
    let requested = sample(EventKind::ClearanceRequested, &data).event();
    let told = updates(&mut voice, EventKind::ClearanceRequested, &data);
    let [SessionUpdate::ToolCall(call)] = told.as_slice() else { panic!("no call") };
    assert_eq!(call.locations.len(), 2);
    let ask = client_requests::request_for(&requested, false, false, Role::Approver).unwrap();
    let line = client_messages::session_request(&RequestId::text(&ask.id), ask.method, &ask.params, "ses_1");
    let permission: RequestPermissionRequest = params(&line);
    assert_eq!(permission.options.len(), 3);
    assert_eq!(permission.tool_call.tool_call_id.to_string(), CLEARANCE);
    assert_eq!(ask.about, ClientRequestSubject::Clearance(Vec::new()));
    assert!(
        client_requests::request_for(&requested, false, false, Role::Operator).is_none(),
        "who may not decide is not asked"
    );
    for (status, kind) in
        [("approved", EventKind::ClearanceDecided), ("withdrawn", EventKind::ClearanceClosed)]
    {
        let told = updates(&mut voice, kind, &json!({ "clearance": CLEARANCE, "status": status }));
        assert!(matches!(told.as_slice(), [SessionUpdate::ToolCallUpdate(_)]), "{kind:?}");
    }
}

/// The request that an admin's client gets for a clearance of an agent that speaks ACP itself.
fn request_of_acp_agent(data: &Value) -> ClientRequest {
    let event = sample(EventKind::ClearanceRequested, data).event();
    client_requests::request_for(&event, true, false, Role::Admin).unwrap()
}

#[test]
fn a_permission_of_an_acp_agent_passes_as_it_came() {
    let theirs = json!({
        "sessionId": "theirs", "options": [{ "optionId": "y", "name": "Yes", "kind": "allow_once" }],
        "toolCall": { "toolCallId": "c" }, "_meta": { "odd": 1 },
    });
    let data = json!({
        "clearance": CLEARANCE, "options": [{ "id": "y", "name": "Yes", "kind": "allow_once" }],
        "request": { "id": 1, "params": theirs },
    });
    let ask = request_of_acp_agent(&data);
    let line = client_messages::session_request(&RequestId::text(&ask.id), ask.method, &ask.params, "ses_1");
    let message: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(message["id"], CLEARANCE);
    assert_eq!(message["params"]["sessionId"], "ses_1");
    assert_eq!(message["params"]["_meta"], json!({ "odd": 1 }));
    let _: RequestPermissionRequest = params(&line);
}

#[test]
fn a_contradiction_stands_before_the_content_of_a_permission() {
    let why = "contradiction: it is called delete, but the command deletes nothing";
    let theirs =
        json!({ "toolCall": { "toolCallId": "c", "content": [{ "type": "terminal", "terminalId": "t" }] } });
    let own = json!([{ "id": "y", "name": "Yes", "kind": "allow_once" }]);
    for (options, rest) in [(own, Some("terminal")), (json!([]), None)] {
        let data = json!({ "clearance": CLEARANCE, "title": "t", "options": options, "risk_why": ["deletes", why],
            "request": { "id": 1, "params": theirs } });
        let ask = request_of_acp_agent(&data);
        let sent: Value = serde_json::from_str(ask.params.as_str()).unwrap();
        assert_eq!(sent["toolCall"]["content"][0]["content"]["text"], why);
        assert_eq!(sent["toolCall"]["content"][1]["type"].as_str(), rest);
    }
}

#[test]
fn questions_are_forms_where_the_client_has_them_and_options_elsewhere() {
    let data = json!({
        "question": "qst_0000000000000001", "text": "Go on?", "type": null, "request": { "id": 1, "params": { "text": "Go on?" } },
    });
    let asked = sample(EventKind::QuestionAsked, &data).event();
    let form = client_requests::request_for(&asked, false, true, Role::Operator).unwrap();
    let _: CreateElicitationRequest = params(&client_messages::session_request(
        &RequestId::text(&form.id),
        form.method,
        &form.params,
        "ses_1",
    ));
    let options = client_requests::request_for(&asked, false, false, Role::Operator).unwrap();
    let permission: RequestPermissionRequest = params(&client_messages::session_request(
        &RequestId::text(&options.id),
        options.method,
        &options.params,
        "ses_1",
    ));
    assert_eq!(permission.options.len(), 2);
    assert!(client_requests::request_for(&asked, false, true, Role::Viewer).is_none());
}

#[test]
fn what_is_offered_is_what_the_schema_knows() {
    let known = json!({ "agentCapabilities": { "promptCapabilities": { "image": true }, "mcpCapabilities": { "http": true } } });
    for (known, image) in [(None, false), (Some(&known), true)] {
        let hello: InitializeResponse = serde_json::from_value(capabilities::initialized(known)).unwrap();
        assert_eq!(hello.agent_capabilities.prompt_capabilities.image, image);
        assert!(hello.agent_capabilities.load_session && hello.auth_methods.is_empty());
    }
    let listed = json!({ "sessions": [capabilities::listed(&seen(&json!({})))], "nextCursor": null });
    let _: ListSessionsResponse = serde_json::from_value(listed).unwrap();
}

fn opened(seen: &Session, told: Option<&Value>) -> NewSessionResponse {
    let mut opened = capabilities::opened(seen, told, &profiles());
    opened.insert("sessionId".to_owned(), json!("ses_1"));
    serde_json::from_value(Value::Object(opened)).unwrap()
}

#[test]
fn an_agents_own_modes_and_options_come_with_ours() {
    let told = json!({
        "sessionId": "theirs",
        "modes": { "currentModeId": "a", "availableModes": [{ "id": "a", "name": "A" }, { "id": "b", "name": "B" }] },
        "configOptions": [{ "id": "x", "name": "X", "type": "select", "currentValue": "1",
            "options": [{ "value": "1", "name": "1" }] }],
        "_meta": { "kept": true },
    });
    let now = seen(&json!({ "controls": { "mode": "b", "options": null }, "preset": "safe" }));
    let answer = opened(&now, Some(&told));
    assert_eq!(answer.modes.unwrap().current_mode_id.to_string(), "b");
    let ids: Vec<String> =
        answer.config_options.unwrap().iter().map(|option| option.id.to_string()).collect();
    assert_eq!(ids, ["x", capabilities::AGENT, capabilities::POLICY]);
    assert_eq!(answer.meta.unwrap()["kept"], json!(true));
    assert!(!capabilities::has_our_modes(&now, Some(&told)));
    // As they are now, not as they were told at first.
    let options = json!([{ "id": "y", "name": "Y", "type": "boolean", "currentValue": true }]);
    let now = seen(&json!({ "controls": { "mode": null, "options": options } }));
    assert_eq!(capabilities::options(&now, Some(&told), &profiles())[0]["id"], "y");
}

#[test]
fn an_agent_without_modes_has_ours() {
    let bare = seen(&json!({ "preset": "read-only" }));
    let answer = opened(&bare, None);
    let modes = answer.modes.unwrap();
    assert_eq!(modes.current_mode_id.to_string(), "read-only");
    assert_eq!(modes.available_modes.len(), 4);
    assert!(capabilities::has_our_modes(&bare, None));
    // One that has its modes as an option has modes.
    let told = json!({ "configOptions": [{ "id": "m", "name": "M", "category": "mode", "type": "select",
        "currentValue": "1", "options": [{ "value": "1", "name": "1" }] }] });
    assert!(opened(&bare, Some(&told)).modes.is_none());
}

#[test]
fn the_agent_can_be_another_one_until_it_has_begun() {
    let names = |seen: &Session| {
        let options = capabilities::options(seen, None, &profiles());
        let agent =
            options.as_array().unwrap().iter().find(|option| option["id"] == capabilities::AGENT).unwrap();
        let offered = agent["options"].as_array().unwrap().iter();
        offered.map(|option| option["value"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(&seen(&json!({ "deferred": true }))), ["fix", "other"]);
    assert_eq!(names(&seen(&json!({}))), ["fix"]);
    assert_eq!(names(&seen(&json!({ "agent": "gone" }))), ["gone"]);
}

#[test]
fn extensions_of_an_agent_reach_its_client_and_noise_does_not() {
    let mut voice = UpdateEncoder::new("ses_1".to_owned(), true);
    let said = |message: Value| sample(EventKind::UnknownMessage, &json!({ "message": message }));
    let told =
        voice.encode_logged(&said(json!({ "method": "_x/y", "params": { "sessionId": "theirs", "a": 1 } })));
    let message: Value = serde_json::from_str(&told[0]).unwrap();
    assert_eq!(message["method"], "_x/y");
    assert_eq!(message["params"], json!({ "sessionId": "ses_1", "a": 1 }));
    for noise in [
        json!({ "method": "x/notify", "params": {} }),
        json!({ "method": "_x/ask", "id": 1, "params": {} }),
        json!({ "id": 3, "result": {} }),
    ] {
        assert!(voice.encode_logged(&said(noise)).is_empty());
    }
}

#[test]
fn what_is_set_is_not_mistaken_for_what_is_said() {
    let update = |update: Value| sample(EventKind::Update, &json!({ "sessionId": "x", "update": update }));
    let says = json!({ "type": "text", "text": "config_option_update current_mode_update" });
    let said = update(json!({ "sessionUpdate": "agent_message_chunk", "content": says }));
    assert_eq!(update_encoder::control(&said.data), None);
    let mode = update(json!({ "sessionUpdate": "current_mode_update", "currentModeId": "m" }));
    assert_eq!(update_encoder::control(&mode.data), Some(update_encoder::ControlKind::Mode));
    let options = update(json!({ "sessionUpdate": "config_option_update", "configOptions": [] }));
    assert_eq!(update_encoder::control(&options.data), Some(update_encoder::ControlKind::Options));
}

#[test]
fn older_clients_hear_older_codes() {
    let old = |refusal: RpcRefusal| refusal.with_legacy_codes().code;
    assert_eq!(old(RpcRefusal::no_session("x")), -32000);
    assert_eq!(old(RpcRefusal::params("x")), -32602);
    assert_eq!(old(RpcRefusal::internal("x").with(&json!({ "code": "too_many_sessions" }))), -32000);
}

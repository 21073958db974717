//! Every variant that the schema has, written by its own types, and some that it does not have.

use agent_client_protocol_schema::v1::{
    AgentCapabilities, AgentRequest, ContentBlock, InitializeResponse, ListSessionsResponse,
    NewSessionResponse, PermissionOptionKind, PromptResponse, RequestPermissionRequest, SessionNotification,
    SessionUpdate, StopReason, ToolCallContent,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;
use crate::acp::request::{CreateTerminal, ReadFile, TerminalRequest, TerminalVerb, WriteFile};
use crate::acp::update::UpdateDetail;
use crate::jsonrpc::{self, RpcMessage};

/// As the schema's type writes it, which must be all that was given.
fn typed<T: DeserializeOwned + Serialize>(value: &Value) -> String {
    let typed: T = serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{error}: {value}"));
    assert_eq!(serde_json::to_value(&typed).unwrap(), *value, "the schema knows all of it");
    serde_json::to_string(&typed).unwrap()
}

fn blocks() -> Vec<Value> {
    vec![
        json!({ "type": "text", "text": "hello" }),
        json!({ "type": "image", "data": "aGk=", "mimeType": "image/png" }),
        json!({ "type": "audio", "data": "aGk=", "mimeType": "audio/wav" }),
        json!({ "type": "resource_link", "name": "a", "uri": "file:///a" }),
        json!({ "type": "resource", "resource": { "text": "t", "uri": "file:///a" } }),
        json!({ "type": "resource", "resource": { "blob": "aGk=", "uri": "file:///a" } }),
    ]
}

fn contents() -> Vec<Value> {
    let mut all: Vec<Value> =
        blocks().into_iter().map(|block| json!({ "type": "content", "content": block })).collect();
    all.push(json!({ "type": "diff", "path": "/w/a", "oldText": "a\n", "newText": "b\n" }));
    all.push(json!({ "type": "diff", "path": "/w/new", "newText": "" }));
    all.push(json!({ "type": "terminal", "terminalId": "t1" }));
    all
}

fn entries(statuses: [&str; 2]) -> Value {
    statuses.map(|status| json!({ "content": "c", "priority": "high", "status": status })).into()
}

/// All variants of `SessionUpdate`, the unstable ones as well.
fn updates() -> Vec<Value> {
    let mut all = Vec::new();
    for kind in ["user_message_chunk", "agent_message_chunk", "agent_thought_chunk"] {
        let chunk = |block| json!({ "sessionUpdate": kind, "content": block, "messageId": "m" });
        all.extend(blocks().into_iter().map(chunk));
    }
    all.extend([
        json!({ "sessionUpdate": "tool_call", "toolCallId": "c", "title": "t", "kind": "edit", "status": "in_progress",
                "content": contents(), "locations": [{ "path": "/w/a", "line": 3 }], "rawInput": { "command": "ls" } }),
        json!({ "sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "completed", "rawOutput": [1.5] }),
        json!({ "sessionUpdate": "plan", "entries": entries(["completed", "in_progress"]) }),
        json!({ "sessionUpdate": "plan", "entries": entries(["completed", "completed"]) }),
        json!({ "sessionUpdate": "plan", "entries": [] }),
        json!({ "sessionUpdate": "plan_update",
                "plan": { "type": "items", "planId": "p", "entries": entries(["completed", "pending"]) } }),
        json!({ "sessionUpdate": "plan_removed", "planId": "p" }),
        json!({ "sessionUpdate": "available_commands_update",
                "availableCommands": [{ "name": "n", "description": "d", "input": { "hint": "h" } }] }),
        json!({ "sessionUpdate": "current_mode_update", "currentModeId": "https://x/modes#plan" }),
        json!({ "sessionUpdate": "config_option_update", "configOptions": [] }),
        json!({ "sessionUpdate": "session_info_update", "title": "t" }),
        json!({ "sessionUpdate": "session_info_update", "title": null }),
        json!({ "sessionUpdate": "session_info_update", "updatedAt": "2026-01-01T00:00:00Z" }),
        json!({ "sessionUpdate": "usage_update", "used": 110, "size": 200_000,
                "cost": { "amount": 0.0018, "currency": "USD" } }),
        json!({ "sessionUpdate": "notice", "severity": "warning", "title": "t" }),
        json!({ "sessionUpdate": "compaction_update", "compactionId": "k", "status": "in_progress" }),
        json!({ "sessionUpdate": "compaction_summary_chunk", "compactionId": "k", "content": blocks()[0] }),
        json!({ "sessionUpdate": "subagent_update", "sessionId": "s2", "title": "t" }),
        json!({ "sessionUpdate": "session_message", "messageId": "m", "content": [blocks()[0]] }),
        json!({ "sessionUpdate": "session_message_chunk", "messageId": "m", "content": blocks()[0] }),
    ]);
    all
}

fn summary(update: &SessionUpdateParts<'_>) -> String {
    match update.detail() {
        UpdateDetail::Tool(call) => format!(
            "tool {:?} {:?} {:?} {:?} edits={} texts={:?} command={:?}",
            call.id,
            call.kind,
            call.status,
            call.locations,
            call.edits.len(),
            call.texts,
            call.facts().commands.first()
        ),
        UpdateDetail::Plan(steps) => {
            let steps: Vec<String> =
                steps.iter().map(|step| format!("{} {}", step.text, step.status)).collect();
            format!("plan {steps:?}")
        }
        UpdateDetail::Usage(usage) => format!("{usage:?}"),
        UpdateDetail::Mode(mode) => format!("mode {mode}"),
        UpdateDetail::Title(title) => format!("title {title:?}"),
        UpdateDetail::Config(options) => format!("config {options}"),
        UpdateDetail::Nothing => "-".to_owned(),
    }
}

#[test]
fn every_update_is_kept_and_understood_where_we_act_on_it() {
    let mut acted = Vec::new();
    for update in updates() {
        typed::<SessionUpdate>(&update);
        let line = typed::<SessionNotification>(&json!({ "sessionId": "s", "update": update }));
        let params = raw(&line);
        let message = jsonrpc::notification(method::SESSION_UPDATE, params);
        let Ok(RpcMessage::Notification { method: name, params: Some(params) }) = jsonrpc::parse(&message)
        else {
            panic!("{message}")
        };
        assert_eq!((&*name, params.get()), ("session/update", &*line), "not a byte is lost");
        let look = SessionUpdateParts::read(params).unwrap();
        assert_eq!(look.kind.as_deref(), update["sessionUpdate"].as_str());
        assert_eq!(look.text().as_deref(), update["content"]["text"].as_str());
        if !matches!(look.detail(), UpdateDetail::Nothing) {
            acted.push(summary(&look));
        }
    }
    let expected = [
        r#"tool Some("c") Some("edit") Some("in_progress") ["/w/a"] edits=2 texts=["hello"] command=Some("ls")"#,
        r#"tool Some("c") None Some("completed") [] edits=0 texts=[] command=None"#,
        r#"plan ["c completed", "c in_progress"]"#,
        r#"plan ["c completed", "c completed"]"#,
        "plan []",
        r#"plan ["c completed", "c pending"]"#,
        "mode https://x/modes#plan",
        "config []",
        r#"title Some("t")"#,
        "title None",
        r#"ContextUsage { used: Some(110), size: Some(200000), cost: Some(SessionCost { amount: 0.0018, currency: Some("USD") }) }"#,
    ];
    assert_eq!(acted, expected);
}

#[test]
fn invented_updates_and_fields_are_just_words() {
    let cases = [
        (r#"{"sessionId":"s","update":{"sessionUpdate":"hologram","x": 1.0}}"#, Some("hologram"), "-"),
        (r#"{"update":{"x":1}}"#, None, "-"),
        (r#"{"sessionId":7,"update":{"sessionUpdate":7}}"#, None, "-"),
        (
            r#"{"update":{"toolCallId":7,"status":"exploded","sessionUpdate":"tool_call_update","kind":"levitate"}}"#,
            Some("tool_call_update"),
            r#"tool None Some("levitate") Some("exploded") [] edits=0 texts=[] command=None"#,
        ),
        (
            r#"{"update":{"sessionUpdate":"usage_update","used":-1,"size":"big","cost":7}}"#,
            Some("usage_update"),
            "ContextUsage { used: None, size: None, cost: None }",
        ),
        (
            r#"{"update":{"sessionUpdate":"plan","entries":[7,{"status":"completed"}]}}"#,
            Some("plan"),
            "plan []",
        ),
        (r#"{"update":{"sessionUpdate":"current_mode_update"}}"#, Some("current_mode_update"), "-"),
    ];
    for (params, kind, expected) in cases {
        let update = SessionUpdateParts::read(raw(params)).unwrap();
        assert_eq!(update.kind.as_deref(), kind);
        assert_eq!(summary(&update), expected, "{params}");
    }
    for params in ["null", "[]", "{}", r#"{"sessionId":"s"}"#, r#"{"update":7}"#] {
        assert!(SessionUpdateParts::read(raw(params)).is_none(), "{params}");
    }
    let plan = r#"{"update":{"sessionUpdate":"plan"}}"#;
    assert!(
        matches!(SessionUpdateParts::read(raw(plan)).unwrap().detail(), UpdateDetail::Plan(steps) if steps.is_empty())
    );
}

#[test]
fn content_of_every_sort_is_known_to_the_schema() {
    for block in blocks() {
        typed::<ContentBlock>(&block);
    }
    for content in contents() {
        typed::<ToolCallContent>(&content);
    }
}

#[test]
fn every_option_of_a_permission_is_offered_in_its_order() {
    use PermissionOptionKind::{AllowAlways, AllowOnce, RejectAlways, RejectOnce};
    let kinds =
        [RejectAlways, AllowOnce, AllowAlways, RejectOnce].map(|kind| serde_json::to_value(kind).unwrap());
    let options: Vec<Value> = kinds
        .iter()
        .enumerate()
        .map(|(at, kind)| json!({ "optionId": at.to_string(), "name": format!("n{at}"), "kind": kind }))
        .collect();
    let tool = json!({ "toolCallId": "c", "kind": "edit", "title": "t", "content": contents() });
    let mut request = json!({ "sessionId": "s", "toolCall": tool, "options": options });
    typed::<RequestPermissionRequest>(&request);
    let invented =
        [json!({ "optionId": "x", "kind": "allow_on_mondays" }), json!({ "name": "no id" }), json!(7)];
    request["options"].as_array_mut().unwrap().extend(invented);
    let text = request.to_string();
    let permission = permission(&text);
    let offered: Vec<_> =
        permission.options.iter().map(|o| format!("{} {} {}", o.id, o.name, o.kind)).collect();
    let expected = [
        "0 n0 reject_always",
        "1 n1 allow_once",
        "2 n2 allow_always",
        "3 n3 reject_once",
        "x x allow_on_mondays",
    ];
    assert_eq!(offered, expected);
}

/// One of our requests, as the schema's type writes it.
fn asked(name: &str, params: &Value) -> String {
    let text = params.to_string();
    let request = AcpAgentRequest::read(name, Some(raw(&text)));
    typed::<AgentRequest>(params);
    format!("{:?}", request.unwrap())
}

#[test]
fn requests_are_read_by_the_names_of_the_schema() {
    let read = ReadFile { path: "/w/a".into(), line: Some(3), limit: Some(9) };
    let params = json!({ "sessionId": "s", "path": "/w/a", "line": 3, "limit": 9 });
    assert_eq!(asked("fs/read_text_file", &params), format!("ReadFile({read:?})"));

    let write = WriteFile { path: "/w/a".into(), content: "a\nb".into() };
    let params = json!({ "sessionId": "s", "path": "/w/a", "content": "a\nb" });
    assert_eq!(asked("fs/write_text_file", &params), format!("WriteFile({write:?})"));

    let create = CreateTerminal {
        command: "cargo".into(),
        args: vec!["test".into()],
        env: vec![("A".into(), "b".into())],
        cwd: Some("/w".into()),
        output_byte_limit: Some(1000),
    };
    let params = json!({ "sessionId": "s", "command": "cargo", "args": ["test"], "env": [{ "name": "A", "value": "b" }],
                         "cwd": "/w", "outputByteLimit": 1000 });
    assert_eq!(asked("terminal/create", &params), format!("CreateTerminal({create:?})"));

    let params = json!({ "sessionId": "s", "terminalId": "t" });
    let verbs = [
        ("terminal/output", TerminalVerb::Output),
        ("terminal/wait_for_exit", TerminalVerb::Wait),
        ("terminal/kill", TerminalVerb::Kill),
        ("terminal/release", TerminalVerb::Release),
    ];
    for (name, verb) in verbs {
        let terminal = TerminalRequest { terminal: "t".into(), verb };
        assert_eq!(asked(name, &params), format!("Terminal({terminal:?})"));
    }

    let form = json!({ "sessionId": "s", "toolCallId": "c", "mode": "form", "message": "which?",
                       "requestedSchema": { "type": "object", "properties": {} } });
    let text = asked("elicitation/create", &form);
    for part in [r#"message: "which?""#, r#"mode: Some("form")"#, "schema: Some("] {
        assert!(text.contains(part), "{text}");
    }
    let url =
        json!({ "sessionId": "s", "mode": "url", "message": "go", "elicitationId": "e", "url": "https://x" });
    let text = asked("elicitation/create", &url);
    assert!(text.contains(r#"url: Some("https://x")"#), "{text}");

    assert!(matches!(AcpAgentRequest::read("_x/steer", None), Ok(AcpAgentRequest::Unknown)));
    assert_eq!(request::cancelled(raw(r#"{"requestId":"r"}"#)).unwrap().as_json(), "\"r\"");
}

#[test]
fn what_we_would_act_on_must_be_well_formed() {
    let cases = [
        ("fs/read_text_file", r#"{"path":7}"#, "field `path` must be a string"),
        ("fs/read_text_file", r#"{"path":"a","line":-1}"#, "field `line` must be a whole number"),
        ("fs/write_text_file", r#"{"path":"a"}"#, "field `content` must be a string"),
        (
            "fs/write_text_file",
            r#"{"path":"a","path":"b"}"#,
            "field `params` must be an object that names no field twice",
        ),
        ("fs/write_text_file", "[]", "field `params` must be an object that names no field twice"),
        ("terminal/create", r#"{"command":"a","args":["b",7]}"#, "field `args` must be a string"),
        ("terminal/create", r#"{"command":"a","args":"b"}"#, "field `args` must be a list"),
        ("terminal/create", r#"{"command":"a","env":[{"name":"A"}]}"#, "field `env` must be a string"),
        ("terminal/kill", "{}", "field `terminalId` must be a string"),
        (
            "session/request_permission",
            r#"{"toolCall":7}"#,
            "field `toolCall` must be an object that names no field twice",
        ),
        ("elicitation/create", "{}", "field `message` must be a string"),
    ];
    for (name, params, expected) in cases {
        assert_eq!(
            AcpAgentRequest::read(name, Some(raw(params))).unwrap_err().to_string(),
            expected,
            "{params}"
        );
    }
    assert!(AcpAgentRequest::read("fs/read_text_file", None).is_err());
}

#[test]
fn answers_are_read_by_the_names_of_the_schema() {
    let capabilities = json!({ "loadSession": true,
        "promptCapabilities": { "image": true, "audio": false, "embeddedContext": true },
        "mcpCapabilities": { "http": false, "sse": false, "acp": false },
        "sessionCapabilities": { "list": {}, "resume": {}, "close": {} }, "auth": {} });
    typed::<AgentCapabilities>(&capabilities);
    let answer = json!({ "protocolVersion": 1, "agentCapabilities": capabilities,
        "authMethods": [{ "id": "key", "name": "API key", "description": "d" }],
        "agentInfo": { "name": "n", "title": "N", "version": "2" } });
    let text = typed::<InitializeResponse>(&answer);
    let read = InitializeAnswer::read(raw(&text)).unwrap();
    assert_eq!(read.version, Some(1));
    let can = read.features;
    assert!(can.load && can.resume && can.list && can.close && can.image && can.embedded_context);
    assert!(!can.audio && !can.steer);
    assert_eq!(read.auth_methods[0].id, "key");
    assert!(InitializeAnswer::read(raw("null")).is_none());
    assert_eq!(
        InitializeAnswer::read(raw("{}")).unwrap().features,
        super::super::answer::AgentCapabilities::default()
    );

    let modes = json!({ "currentModeId": "a", "availableModes": [{ "id": "a", "name": "A" }] });
    let option = json!({ "id": "model", "name": "Model", "category": "model", "type": "select", "currentValue": "m",
                         "options": [{ "value": "m", "name": "M" }] });
    let switch = json!({ "id": "fast", "name": "Fast", "type": "boolean", "currentValue": true });
    let answer = json!({ "sessionId": "s", "modes": modes, "configOptions": [option, switch] });
    let text = typed::<NewSessionResponse>(&answer);
    let read = SessionStartAnswer::read(raw(&text));
    assert_eq!((read.session.as_deref(), read.modes().current.as_deref()), (Some("s"), Some("a")));
    assert_eq!(read.modes().available[0].name, "A");
    let options = config_options(read.config_options);
    assert_eq!((&*options[0].id, options[0].current), ("model", Some("\"m\"")));
    assert_eq!((options[1].sort.as_deref(), options[1].current), (Some("boolean"), Some("true")));
    assert!(SessionStartAnswer::read(raw("null")).session.is_none());

    let sessions =
        json!({ "sessions": [{ "sessionId": "s", "cwd": "/w", "title": "t" }], "nextCursor": "c" });
    let text = typed::<ListSessionsResponse>(&sessions);
    assert_eq!(next_session_page(raw(&text)).as_deref(), Some("c"));
}

#[test]
fn every_stop_reason_ends_a_turn_known_or_not() {
    use StopReason::{Cancelled, EndTurn, MaxTokens, MaxTurnRequests, Refusal};
    for reason in [EndTurn, MaxTokens, MaxTurnRequests, Refusal, Cancelled] {
        let text = serde_json::to_string(&PromptResponse::new(reason)).unwrap();
        let word = serde_json::to_value(reason).unwrap();
        let done = SessionPromptAnswer::read(raw(&text)).unwrap();
        assert_eq!(done.stop_reason.as_deref(), word.as_str());
        assert_eq!(done.tokens, None);
    }
    assert_eq!(
        SessionPromptAnswer::read(raw(r#"{"stopReason":"bored"}"#)).unwrap().stop_reason.as_deref(),
        Some("bored")
    );
    assert_eq!(SessionPromptAnswer::read(raw("{}")).unwrap().stop_reason, None);
    let usage = json!({ "stopReason": "end_turn",
                        "usage": { "totalTokens": 220, "inputTokens": 200, "outputTokens": 20 } });
    let text = typed::<PromptResponse>(&usage);
    let tokens = SessionPromptAnswer::read(raw(&text)).unwrap().tokens.unwrap();
    assert_eq!((tokens.input, tokens.output, tokens.total), (Some(200), Some(20), Some(220)));
}

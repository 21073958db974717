//! What we send, byte for byte, and read again by the schema's types.

use agent_client_protocol_schema::v1::{
    AuthenticateRequest, CancelNotification, CancelRequestNotification, CloseSessionRequest,
    CreateElicitationResponse, CreateTerminalResponse, InitializeRequest, ListSessionsRequest,
    LoadSessionRequest, NewSessionRequest, PromptRequest, ReadTextFileResponse, RequestPermissionResponse,
    ResumeSessionRequest, SetSessionConfigOptionRequest, SetSessionModeRequest, TerminalOutputResponse,
    WaitForTerminalExitResponse, WriteTextFileResponse,
};
use serde::de::DeserializeOwned;

use crate::acp::send::{self, ElicitationOutcome, OfferedCapabilities, TerminalExit};
use crate::jsonrpc::{RpcMessage, parse};
use intercom_types::{Json, RequestId};

fn id() -> RequestId {
    RequestId::number(7)
}

/// The line, whose params or result the schema takes.
#[track_caller]
fn check<T: DeserializeOwned>(line: &str, expected: &str) {
    let inner = match parse(line) {
        Ok(RpcMessage::Request { params, .. } | RpcMessage::Notification { params, .. }) => params.unwrap(),
        Ok(RpcMessage::Answer { result, .. }) => result.unwrap(),
        Err(bad) => panic!("{bad}"),
    };
    serde_json::from_str::<T>(inner.get()).unwrap();
    assert_eq!(line, expected);
}

#[test]
fn requests_are_what_the_schema_says() {
    let offer = OfferedCapabilities { read_files: true, ..OfferedCapabilities::default() };
    let version = env!("CARGO_PKG_VERSION");
    check::<InitializeRequest>(
        &send::initialize(&id(), offer),
        &format!(
            r#"{{"jsonrpc":"2.0","id":7,"method":"initialize","params":{{"protocolVersion":1,"clientCapabilities":{{"fs":{{"readTextFile":true,"writeTextFile":false}},"terminal":false,"auth":{{"terminal":false}}}},"clientInfo":{{"name":"intercom","version":"{version}"}}}}}}"#
        ),
    );
    let all = OfferedCapabilities { read_files: true, write_files: true, terminals: true, elicitation: true };
    let line = send::initialize(&id(), all);
    assert!(line.contains(r#""writeTextFile":true},"terminal":true"#), "{line}");
    assert!(line.contains(r#""elicitation":{"form":{},"url":{}}"#), "{line}");
    check::<AuthenticateRequest>(
        &send::authenticate(&id(), "api-key"),
        r#"{"jsonrpc":"2.0","id":7,"method":"authenticate","params":{"methodId":"api-key"}}"#,
    );
    check::<NewSessionRequest>(
        &send::session_new(&id(), "/w", None),
        r#"{"jsonrpc":"2.0","id":7,"method":"session/new","params":{"cwd":"/w","mcpServers":[]}}"#,
    );
    check::<LoadSessionRequest>(
        &send::session_load(&id(), "s", "/w", None),
        r#"{"jsonrpc":"2.0","id":7,"method":"session/load","params":{"sessionId":"s","cwd":"/w","mcpServers":[]}}"#,
    );
    check::<ResumeSessionRequest>(
        &send::session_resume(&id(), "s", "/w", None),
        r#"{"jsonrpc":"2.0","id":7,"method":"session/resume","params":{"sessionId":"s","cwd":"/w"}}"#,
    );
    let raw = r#"[{"name":"files","command":"/bin/files","args":["-v"],"env":[],"new": 1.0},{"type":"http","name":"web","url":"http://h","headers":[]}]"#;
    let servers = Json::trusted(raw);
    check::<NewSessionRequest>(
        &send::session_new(&id(), "/w", Some(&servers)),
        &format!(
            r#"{{"jsonrpc":"2.0","id":7,"method":"session/new","params":{{"cwd":"/w","mcpServers":{raw}}}}}"#
        ),
    );
    check::<ResumeSessionRequest>(
        &send::session_resume(&id(), "s", "/w", Some(&servers)),
        &format!(
            r#"{{"jsonrpc":"2.0","id":7,"method":"session/resume","params":{{"sessionId":"s","cwd":"/w","mcpServers":{raw}}}}}"#
        ),
    );
    check::<ListSessionsRequest>(
        &send::session_list(&id(), Some("/w"), None),
        r#"{"jsonrpc":"2.0","id":7,"method":"session/list","params":{"cwd":"/w"}}"#,
    );
    check::<CloseSessionRequest>(
        &send::session_close(&id(), "s"),
        r#"{"jsonrpc":"2.0","id":7,"method":"session/close","params":{"sessionId":"s"}}"#,
    );
    check::<PromptRequest>(
        &send::prompt(&id(), "s", "a\n\"b\""),
        r#"{"jsonrpc":"2.0","id":7,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":"a\n\"b\""}]}}"#,
    );
    let blocks = r#"[{"type":"text","text":"a", "_meta":{"n":1.0}},{"type":"image","data":"AA==","mimeType":"image/png"}]"#;
    check::<PromptRequest>(
        &send::prompt_with(&id(), "s", &Json::trusted(blocks)),
        &format!(
            r#"{{"jsonrpc":"2.0","id":7,"method":"session/prompt","params":{{"sessionId":"s","prompt":{blocks}}}}}"#
        ),
    );
    check::<CancelNotification>(
        &send::cancel("s"),
        r#"{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}"#,
    );
    check::<SetSessionModeRequest>(
        &send::set_mode(&id(), "s", "plan"),
        r#"{"jsonrpc":"2.0","id":7,"method":"session/set_mode","params":{"sessionId":"s","modeId":"plan"}}"#,
    );
    check::<SetSessionConfigOptionRequest>(
        &send::set_config_option(&id(), "s", "model", "m"),
        r#"{"jsonrpc":"2.0","id":7,"method":"session/set_config_option","params":{"sessionId":"s","configId":"model","value":"m"}}"#,
    );
    check::<SetSessionConfigOptionRequest>(
        &send::switch_config_option(&id(), "s", "fast", true),
        r#"{"jsonrpc":"2.0","id":7,"method":"session/set_config_option","params":{"sessionId":"s","configId":"fast","type":"boolean","value":true}}"#,
    );
    check::<serde_json::Value>(
        &send::set_model(&id(), "s", "m"),
        r#"{"jsonrpc":"2.0","id":7,"method":"session/set_model","params":{"sessionId":"s","modelId":"m"}}"#,
    );
    check::<CancelRequestNotification>(
        &send::cancel_request(&id()),
        r#"{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":7}}"#,
    );
}

#[test]
fn answers_are_what_the_schema_says() {
    let theirs = RequestId::text("r");
    check::<RequestPermissionResponse>(
        &send::permission_selected(&theirs, "once"),
        r#"{"jsonrpc":"2.0","id":"r","result":{"outcome":{"outcome":"selected","optionId":"once"}}}"#,
    );
    check::<RequestPermissionResponse>(
        &send::permission_cancelled(&theirs),
        r#"{"jsonrpc":"2.0","id":"r","result":{"outcome":{"outcome":"cancelled"}}}"#,
    );
    check::<ReadTextFileResponse>(
        &send::file_read(&theirs, "a\n"),
        r#"{"jsonrpc":"2.0","id":"r","result":{"content":"a\n"}}"#,
    );
    let empty = r#"{"jsonrpc":"2.0","id":"r","result":{}}"#;
    check::<WriteTextFileResponse>(&send::file_written(&theirs), empty);
    assert_eq!(send::terminal_killed(&theirs), empty);
    assert_eq!(send::terminal_released(&theirs), empty);
    check::<CreateTerminalResponse>(
        &send::terminal_created(&theirs, "t"),
        r#"{"jsonrpc":"2.0","id":"r","result":{"terminalId":"t"}}"#,
    );
    let exit = TerminalExit { code: Some(1), signal: None };
    check::<TerminalOutputResponse>(
        &send::terminal_output(&theirs, "x", true, Some(&exit)),
        r#"{"jsonrpc":"2.0","id":"r","result":{"output":"x","truncated":true,"exitStatus":{"exitCode":1}}}"#,
    );
    check::<WaitForTerminalExitResponse>(
        &send::terminal_exited(&theirs, &TerminalExit { code: None, signal: Some("SIGKILL".to_owned()) }),
        r#"{"jsonrpc":"2.0","id":"r","result":{"signal":"SIGKILL"}}"#,
    );
    let filled = Json::trusted(r#"{"z": 1.0,"a":true}"#);
    check::<CreateElicitationResponse>(
        &send::elicitation_answer(&theirs, ElicitationOutcome::Accepted(Some(&filled))),
        r#"{"jsonrpc":"2.0","id":"r","result":{"action":"accept","content":{"z": 1.0,"a":true}}}"#,
    );
    for (outcome, action) in
        [(ElicitationOutcome::Declined, "decline"), (ElicitationOutcome::Cancelled, "cancel")]
    {
        check::<CreateElicitationResponse>(
            &send::elicitation_answer(&theirs, outcome),
            &format!(r#"{{"jsonrpc":"2.0","id":"r","result":{{"action":"{action}"}}}}"#),
        );
    }
}

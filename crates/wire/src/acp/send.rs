//! Our messages to agents, each as one line of text. The parameters are the schema's own types, so that their names are
//! correct.

use agent_client_protocol_schema::ProtocolVersion;
use agent_client_protocol_schema::v1::{
    AuthenticateRequest, CancelNotification, ClientCapabilities, CloseSessionRequest, ContentBlock,
    CreateTerminalResponse, ElicitationCapabilities, ElicitationFormCapabilities, ElicitationUrlCapabilities,
    FileSystemCapabilities, Implementation, InitializeRequest, KillTerminalResponse, ListSessionsRequest,
    PromptRequest, ReadTextFileResponse, ReleaseTerminalResponse, RequestPermissionOutcome,
    RequestPermissionResponse, SelectedPermissionOutcome, SetSessionConfigOptionRequest,
    SetSessionModeRequest, TerminalExitStatus, TerminalOutputResponse, WaitForTerminalExitResponse,
    WriteTextFileResponse,
};
use serde::Serialize;

use super::method;
use crate::jsonrpc::{notification, request, result};
use intercom_types::{Json, RequestId};

/// The capabilities that we offer to an agent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each stands for a capability of its own")]
pub struct OfferedCapabilities {
    pub read_files: bool,
    pub write_files: bool,
    pub terminals: bool,
    pub elicitation: bool,
}

pub(crate) fn initialize(id: &RequestId, offer: OfferedCapabilities) -> String {
    let files =
        FileSystemCapabilities::new().read_text_file(offer.read_files).write_text_file(offer.write_files);
    let mut capabilities = ClientCapabilities::new().fs(files).terminal(offer.terminals);
    if offer.elicitation {
        let both = ElicitationCapabilities::new()
            .form(ElicitationFormCapabilities::new())
            .url(ElicitationUrlCapabilities::new());
        capabilities = capabilities.elicitation(both);
    }
    let us = Implementation::new("intercom", env!("CARGO_PKG_VERSION"));
    let params =
        InitializeRequest::new(ProtocolVersion::V1).client_capabilities(capabilities).client_info(us);
    request(id, method::INITIALIZE, &params)
}

pub(crate) fn authenticate(id: &RequestId, auth_method: &str) -> String {
    request(id, method::AUTHENTICATE, &AuthenticateRequest::new(auth_method.to_owned()))
}

/// The directory of a session, and its MCP servers as they were listed by the client.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SessionStartParams<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<&'a str>,
    cwd: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    mcp_servers: Option<&'a Json>,
}

pub(crate) fn session_new(id: &RequestId, cwd: &str, servers: Option<&Json>) -> String {
    let none = Json::trusted("[]");
    let mcp_servers = Some(servers.unwrap_or(&none));
    request(id, method::SESSION_NEW, &SessionStartParams { session_id: None, cwd, mcp_servers })
}

/// Loads a session: the agent replays its history as updates before it answers.
pub(crate) fn session_load(id: &RequestId, session: &str, cwd: &str, servers: Option<&Json>) -> String {
    let none = Json::trusted("[]");
    let mcp_servers = Some(servers.unwrap_or(&none));
    request(id, method::SESSION_LOAD, &SessionStartParams { session_id: Some(session), cwd, mcp_servers })
}

/// Like `session_load`, but without a replay.
pub(crate) fn session_resume(id: &RequestId, session: &str, cwd: &str, servers: Option<&Json>) -> String {
    request(
        id,
        method::SESSION_RESUME,
        &SessionStartParams { session_id: Some(session), cwd, mcp_servers: servers },
    )
}

pub(crate) fn session_list(id: &RequestId, cwd: Option<&str>, cursor: Option<&str>) -> String {
    let params = ListSessionsRequest::new().cwd(cwd.map(Into::into)).cursor(cursor.map(str::to_owned));
    request(id, method::SESSION_LIST, &params)
}

pub(crate) fn session_close(id: &RequestId, session: &str) -> String {
    request(id, method::SESSION_CLOSE, &CloseSessionRequest::new(session.to_owned()))
}

pub(crate) fn prompt(id: &RequestId, session: &str, text: &str) -> String {
    request(id, method::SESSION_PROMPT, &PromptRequest::new(session.to_owned(), vec![text.into()]))
}

/// Encodes a prompt with given blocks, unchanged.
pub(crate) fn prompt_with(id: &RequestId, session: &str, blocks: &Json) -> String {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct PromptBlocksParams<'a> {
        session_id: &'a str,
        prompt: &'a Json,
    }
    request(id, method::SESSION_PROMPT, &PromptBlocksParams { session_id: session, prompt: blocks })
}

/// Encodes text for a running turn, an extension. An agent without a running turn reports that instead of starting one.
pub(crate) fn steer(id: &RequestId, session: &str, text: &str) -> String {
    let prompt = [ContentBlock::from(text.to_owned())];
    let meta = serde_json::json!({ "steering": { "idleBehavior": "promptRequired" } });
    let params = serde_json::json!({ "sessionId": session, "prompt": prompt, "_meta": meta });
    request(id, method::SESSION_STEERING, &params)
}

pub(crate) fn cancel(session: &str) -> String {
    notification(method::SESSION_CANCEL, &CancelNotification::new(session.to_owned()))
}

pub(crate) fn set_mode(id: &RequestId, session: &str, mode: &str) -> String {
    let params = SetSessionModeRequest::new(session.to_owned(), mode.to_owned());
    request(id, method::SESSION_SET_MODE, &params)
}

/// Encodes a change of an option with values to select from.
pub(crate) fn set_config_option(id: &RequestId, session: &str, option: &str, value: &str) -> String {
    let params = SetSessionConfigOptionRequest::new(session.to_owned(), option.to_owned(), value);
    request(id, method::SESSION_SET_CONFIG_OPTION, &params)
}

/// Encodes a change of a switch.
pub(crate) fn switch_config_option(id: &RequestId, session: &str, option: &str, on: bool) -> String {
    let params = SetSessionConfigOptionRequest::new(session.to_owned(), option.to_owned(), on);
    request(id, method::SESSION_SET_CONFIG_OPTION, &params)
}

/// Encodes a change of the model for agents that list `models`, which the schema no longer has.
pub(crate) fn set_model(id: &RequestId, session: &str, model: &str) -> String {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct CancelledRequestParams<'a> {
        session_id: &'a str,
        model_id: &'a str,
    }
    request(id, method::SESSION_SET_MODEL, &CancelledRequestParams { session_id: session, model_id: model })
}

/// Cancels a request of ours.
pub fn cancel_request(ours: &RequestId) -> String {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct SessionModelParams<'a> {
        request_id: &'a RequestId,
    }
    notification(method::CANCEL_REQUEST, &SessionModelParams { request_id: ours })
}

/// Encodes the answer to a permission request: one of its options.
pub(crate) fn permission_selected(theirs: &RequestId, option: &str) -> String {
    let selected = SelectedPermissionOutcome::new(option.to_owned());
    result(theirs, &RequestPermissionResponse::new(RequestPermissionOutcome::Selected(selected)))
}

/// Encodes the answer to a permission request whose turn was cancelled, or that has no other answer.
pub(crate) fn permission_cancelled(theirs: &RequestId) -> String {
    result(theirs, &RequestPermissionResponse::new(RequestPermissionOutcome::Cancelled))
}

pub(crate) fn file_read(theirs: &RequestId, content: &str) -> String {
    result(theirs, &ReadTextFileResponse::new(content))
}

pub(crate) fn file_written(theirs: &RequestId) -> String {
    result(theirs, &WriteTextFileResponse::new())
}

/// The exit status of a terminal's command: a code, or a signal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TerminalExit {
    pub(crate) code: Option<u32>,
    pub(crate) signal: Option<String>,
}

impl From<&TerminalExit> for TerminalExitStatus {
    fn from(exit: &TerminalExit) -> Self {
        Self::new().exit_code(exit.code).signal(exit.signal.clone())
    }
}

pub(crate) fn terminal_created(theirs: &RequestId, terminal: &str) -> String {
    result(theirs, &CreateTerminalResponse::new(terminal.to_owned()))
}

pub(crate) fn terminal_output(
    theirs: &RequestId,
    output: &str,
    truncated: bool,
    exit: Option<&TerminalExit>,
) -> String {
    let exit = exit.map(TerminalExitStatus::from);
    result(theirs, &TerminalOutputResponse::new(output, truncated).exit_status(exit))
}

pub(crate) fn terminal_exited(theirs: &RequestId, exit: &TerminalExit) -> String {
    result(theirs, &WaitForTerminalExitResponse::new(exit.into()))
}

pub(crate) fn terminal_killed(theirs: &RequestId) -> String {
    result(theirs, &KillTerminalResponse::new())
}

pub(crate) fn terminal_released(theirs: &RequestId) -> String {
    result(theirs, &ReleaseTerminalResponse::new())
}

/// The outcome of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ElicitationOutcome<'a> {
    /// Accepted, with the content of the form, if there was one.
    Accepted(Option<&'a Json>),
    Declined,
    Cancelled,
}

pub(crate) fn elicitation_answer(theirs: &RequestId, outcome: ElicitationOutcome<'_>) -> String {
    #[derive(Serialize)]
    struct ElicitationAnswer<'a> {
        action: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        content: Option<&'a Json>,
    }
    let answer = match outcome {
        ElicitationOutcome::Accepted(content) => ElicitationAnswer { action: "accept", content },
        ElicitationOutcome::Declined => ElicitationAnswer { action: "decline", content: None },
        ElicitationOutcome::Cancelled => ElicitationAnswer { action: "cancel", content: None },
    };
    result(theirs, &answer)
}

//! The driver of the Agent Client Protocol: we are the client.
//!
//! ```text
//!  Hello ──► initialize ──► (authenticate) ──► session/resume, load or new ──► Ready
//!                                                                                │ Prompt
//!                                                      TurnEnd ◄── answer ◄── session/prompt
//! ```
//! Requests of the agent become clearances and questions; everything else is kept unchanged. Ids are scoped to the side
//! that made the request: both sides count from 0.

use intercom_types::event::RawMessage;
use serde_json::value::RawValue;

use super::{fault, line, rejected};
use crate::ParsedText;
use crate::acp::error_answer::{ErrorAnswer, ErrorCause};
use crate::acp::request::{self, AcpAgentRequest, Elicitation, PermissionRequest};
use crate::acp::send::{self, ElicitationOutcome};
use crate::acp::update::{SessionUpdateParts, UpdateDetail};
use crate::acp::{method, permission};
use crate::jsonrpc::{self, RpcMessage};
use intercom_types::{
    AgentCommand, AgentMessage, ClearanceRequest, Event, FaultCode, Json, PromptBody, RequestFault,
    RequestId, agent,
};

mod controls;
mod forms;
mod host_calls;
mod memory;
mod opening;
mod setup;
#[cfg(test)]
mod tests;
mod tool_calls;
mod turn_end;

use controls::cost_of;
use memory::{AgentSession, DriverMemory, PendingCall};
pub use setup::{AgentKey, DriverSetup};
use tool_calls::tool_call_in;

/// The maximum number of our unanswered requests; beyond it, the oldest is forgotten.
const MAX_PENDING: usize = 64;
/// The maximum length of the text at the end of a turn that is examined for a limit.
const MAX_LAST_WORDS: usize = 500;
/// The updates that are replayed when a session is loaded. All others are new.
const REPLAYED_KINDS: &[&str] = &[
    "user_message_chunk",
    "agent_message_chunk",
    "agent_thought_chunk",
    "tool_call",
    "tool_call_update",
    "plan",
];

#[derive(Debug, Clone)]
pub struct AcpDriver {
    setup: DriverSetup,
    memory: DriverMemory,
    dirty: bool,
}

impl AcpDriver {
    pub fn new(setup: DriverSetup) -> Self {
        let earlier = setup.resume.clone();
        let explicit = earlier.is_some();
        Self {
            setup,
            memory: DriverMemory {
                next_id: 1,
                session: AgentSession { earlier, explicit, ..AgentSession::default() },
                ..DriverMemory::default()
            },
            dirty: true,
        }
    }

    pub(super) fn save(&mut self) -> Option<Json> {
        std::mem::take(&mut self.dirty).then(|| Json::of(&self.memory))
    }

    pub(super) fn restore(&mut self, saved: &Json) {
        if let Ok(memory) = serde_json::from_str(saved.as_str()) {
            (self.memory, self.dirty) = (memory, false);
        }
    }

    pub(super) fn inherit(&mut self, saved: &Json) {
        if let Ok(memory) = serde_json::from_str::<DriverMemory>(saved.as_str()) {
            self.memory.session.explicit = false;
            self.memory.session.earlier =
                memory.session.id.or(memory.session.earlier).or(self.memory.session.earlier.take());
        }
    }

    /// Assigns the id of our next request and records the request.
    fn register_request(&mut self, call: PendingCall) -> RequestId {
        let id = self.memory.next_id;
        self.memory.next_id += 1;
        self.memory.pending.insert(id, call);
        if self.memory.pending.len() > MAX_PENDING
            && let Some(oldest) =
                self.memory.pending.keys().copied().find(|id| Some(*id) != self.memory.turn.prompt)
        {
            self.memory.pending.remove(&oldest);
            self.memory.steering.remove(&oldest);
            self.memory.setting.remove(&oldest);
        }
        self.dirty = true;
        RequestId::number(id)
    }

    pub(super) fn encode(&mut self, message: &AgentCommand) -> Option<String> {
        match message {
            AgentCommand::Hello => {
                let id = self.register_request(PendingCall::Initialize);
                Some(send::initialize(&id, self.setup.offer))
            }
            AgentCommand::Prompt { wording: PromptBody { text, content }, turn: _ } => {
                let session = self.memory.session.id.clone()?;
                self.memory.turn.last_words.clear();
                (self.memory.session.replaying, self.memory.turn.worked) = (false, false);
                self.memory.turn.prompt = Some(self.memory.next_id);
                let id = self.register_request(PendingCall::Prompt);
                Some(match content {
                    Some(content) => send::prompt_with(&id, &session, content.as_json()),
                    None => send::prompt(&id, &session, text),
                })
            }
            AgentCommand::Interrupt { reason: _ } => self.memory.session.id.as_deref().map(send::cancel),
            AgentCommand::Nudge { message } => {
                let session = self.memory.session.id.clone()?;
                self.memory.steering.insert(self.memory.next_id, message.clone());
                let id = self.register_request(PendingCall::Steer);
                Some(send::steer(&id, &session, message))
            }
            AgentCommand::Decision { request, option: Some(option), .. } => {
                Some(send::permission_selected(request, option))
            }
            AgentCommand::Decision { request, option: None, .. } => Some(send::permission_cancelled(request)),
            AgentCommand::Answer { request, decision, instruction } => {
                Some(self.encode_answer(request, *decision, instruction.as_deref()))
            }
            AgentCommand::Cancel { request } => Some(match self.forget_question(request) {
                Some(_) => send::elicitation_answer(request, ElicitationOutcome::Cancelled),
                None => send::permission_cancelled(request),
            }),
            AgentCommand::Fault(RequestFault { request, code, message }) => {
                let code = match code {
                    FaultCode::UnknownMethod => jsonrpc::METHOD_NOT_FOUND,
                    FaultCode::MissingField | FaultCode::InvalidField => jsonrpc::INVALID_PARAMS,
                    FaultCode::DuplicateId | FaultCode::TooLong => jsonrpc::INVALID_REQUEST,
                    FaultCode::Cancelled => jsonrpc::REQUEST_CANCELLED,
                    FaultCode::NotFound => jsonrpc::RESOURCE_NOT_FOUND,
                    FaultCode::Failed => jsonrpc::INTERNAL_ERROR,
                };
                Some(jsonrpc::error(request, code, message, None))
            }
            AgentCommand::ChangeSetting { set, number } => self.set(set, *number),
            AgentCommand::ListSessions => {
                let id = self.register_request(PendingCall::List);
                Some(send::session_list(&id, Some(&self.setup.workspace), None))
            }
            AgentCommand::AbandonTurn => {
                let prompt = self.memory.turn.prompt.take()?;
                self.dirty = true;
                Some(send::cancel_request(&RequestId::number(prompt)))
            }
            AgentCommand::Close => {
                let session = self.memory.session.id.clone().filter(|_| self.memory.can.close)?;
                let id = self.register_request(PendingCall::Other);
                Some(send::session_close(&id, &session))
            }
            AgentCommand::Reply { request, reply } => Some(host_calls::encode_reply(request, reply)),
            AgentCommand::Text(text) => Some(text.clone()),
        }
    }

    pub(super) fn decode(&mut self, text: &str, messages: &mut Vec<AgentMessage>) {
        match jsonrpc::parse_whole(text) {
            Ok((RpcMessage::Notification { method, params }, text)) => {
                self.handle_notification(&method, params, text, messages);
            }
            Ok((RpcMessage::Request { id, method, params }, text)) => {
                messages.push(self.handle_request(id, &method, params, text));
            }
            Ok((RpcMessage::Answer { id, result }, text)) => {
                self.handle_answer(id.as_ref(), result, text, messages);
            }
            // No error answer: the line may be a banner, and its author reads no answers.
            Err(bad) => messages.push(rejected(text, bad.to_string(), None, None, None)),
        }
    }

    /// Replaces a line at which decoding failed. An answer counts as an error answer.
    pub(super) fn decode_failed(&mut self, text: &str, reason: &str, messages: &mut Vec<AgentMessage>) {
        let parsed = jsonrpc::parse_whole(text).ok();
        let request = match &parsed {
            Some((RpcMessage::Request { id, .. }, _)) => Some(id.clone()),
            _ => None,
        };
        let fault = request.map(|request| fault(request, FaultCode::Failed, reason));
        messages.push(rejected(text, reason.to_owned(), None, None, fault));
        let error = jsonrpc::error_object(jsonrpc::INTERNAL_ERROR, reason);
        if let (Some((RpcMessage::Answer { id, .. }, text)), Ok(error)) =
            (parsed, serde_json::from_str::<&RawValue>(&error))
        {
            self.handle_answer(id.as_ref(), Err(error), text, messages);
        }
    }

    fn handle_notification(
        &mut self,
        name: &str,
        params: Option<&RawValue>,
        text: ParsedText<'_>,
        messages: &mut Vec<AgentMessage>,
    ) {
        match (name, params) {
            (method::SESSION_UPDATE, Some(params)) => self.handle_update(params, messages),
            (method::CANCEL_REQUEST, Some(params)) => match request::cancelled(params) {
                Some(request) => messages.push(AgentMessage::Withdrawn { request, message: text.to_json() }),
                None => messages.push(AgentMessage::Unknown { message: text.to_json(), fault: None }),
            },
            _ => messages.push(AgentMessage::Unknown { message: text.to_json(), fault: None }),
        }
    }

    fn handle_update(&mut self, params: &RawValue, messages: &mut Vec<AgentMessage>) {
        let plain = || AgentMessage::Update { params: Json::raw(params) };
        let Some(update) = SessionUpdateParts::read(params) else { return messages.push(plain()) };
        if self.memory.session.replaying
            && update.kind.as_deref().is_some_and(|kind| REPLAYED_KINDS.contains(&kind))
        {
            return;
        }
        match update.kind.as_deref() {
            // The most frequent kind by far.
            Some("agent_message_chunk") => {
                if let Some(words) =
                    update.text().filter(|_| self.memory.turn.last_words.len() < MAX_LAST_WORDS)
                {
                    self.memory.turn.last_words.extend(words.chars().take(MAX_LAST_WORDS));
                }
                return messages.push(plain());
            }
            Some("user_message_chunk") => {
                return messages
                    .push(AgentMessage::Echo(Box::new(Event::Update(RawMessage(Json::raw(params))))));
            }
            Some("agent_thought_chunk") => {
                self.memory.turn.worked = true;
                return messages.push(plain());
            }
            None => return messages.push(plain()),
            Some(_) => {}
        }
        let detail = update.detail();
        messages.push(match &detail {
            UpdateDetail::Tool(call) => self.tool(call, params),
            _ => plain(),
        });
        match detail {
            // A replayed sum was counted before; new cost is in the next sum.
            UpdateDetail::Usage(_) if self.memory.session.replaying => {}
            UpdateDetail::Usage(usage) => messages.extend(usage.cost.and_then(|cost| cost_of(&cost))),
            UpdateDetail::Mode(mode) => {
                self.memory.controls.mode = Some(mode.into_owned());
                messages.push(self.controls());
            }
            UpdateDetail::Config(options) => {
                self.memory.controls.options = Some(Json::raw(options));
                messages.push(self.controls());
            }
            UpdateDetail::Title(title) => {
                messages.push(AgentMessage::Title(title.and_then(|title| agent::title(&title))));
            }
            UpdateDetail::Plan(steps) => {
                self.memory.turn.worked = true;
                messages.push(AgentMessage::Steps(steps));
            }
            UpdateDetail::Tool(_) | UpdateDetail::Nothing => {}
        }
    }

    fn handle_request(
        &mut self,
        id: RequestId,
        name: &str,
        params: Option<&RawValue>,
        text: ParsedText<'_>,
    ) -> AgentMessage {
        let unknown = |id, why: &str| AgentMessage::Unknown {
            message: text.to_json(),
            fault: Some(fault(id, FaultCode::UnknownMethod, why)),
        };
        let raw = || params.map_or_else(|| Json::trusted("{}"), Json::raw);
        self.memory.turn.worked = true;
        match AcpAgentRequest::read(name, params) {
            Ok(AcpAgentRequest::Permission(permission)) => {
                AgentMessage::Clearance(Box::new(self.permission(id, &permission, raw(), text)))
            }
            Ok(AcpAgentRequest::Elicitation(question)) => self.question(id, &question, raw(), text),
            Ok(AcpAgentRequest::Unknown) => unknown(id, &format!("unknown method `{name}`")),
            Ok(wanted) => {
                match host_calls::read_host_call(&id, name, wanted, self.setup.offer, raw, text.as_str()) {
                    Some(call) => call,
                    None => unknown(id, &format!("`{name}` was not offered")),
                }
            }
            Err(bad) => {
                let fault = fault(id, FaultCode::InvalidField, &bad.to_string());
                rejected(text.as_str(), bad.to_string(), Some(name.to_owned()), Some(bad.field), Some(fault))
            }
        }
    }

    fn permission(
        &mut self,
        id: RequestId,
        permission: &PermissionRequest<'_>,
        params: Json,
        text: ParsedText<'_>,
    ) -> ClearanceRequest {
        let announced = permission.tool.id.as_deref().and_then(|id| self.call(id));
        let announced = announced.as_ref().and_then(tool_call_in);
        let card = permission::permission_details(permission, announced.as_ref(), &self.setup.workspace);
        ClearanceRequest {
            request: id,
            title: card.title,
            description: card.description,
            diff: card.diff,
            file_path: card.file_path,
            more_paths: card.more_paths,
            tool: card.tool,
            command: card.command,
            // The protocol has no risk claim: only the computed risk counts.
            claims_risk: false,
            claimed_risk: None,
            options: card.options,
            params,
            line: line(text.as_str()),
        }
    }

    fn question(
        &mut self,
        id: RequestId,
        question: &Elicitation<'_>,
        params: Json,
        text: ParsedText<'_>,
    ) -> AgentMessage {
        let form = question.schema.map_or_else(|| Json::trusted("null"), Json::raw);
        self.memory.questions.insert(id.as_json().to_owned(), form);
        self.dirty = true;
        let mut words = question.message.clone().into_owned();
        if let Some(url) = &question.url {
            words = format!("{words}\n{url}");
        }
        AgentMessage::Question {
            request: id,
            text: words,
            sort: question.mode.clone().map(Into::into),
            params,
            line: line(text.as_str()),
        }
    }

    fn handle_answer(
        &mut self,
        id: Option<&RequestId>,
        result: Result<&RawValue, &RawValue>,
        text: ParsedText<'_>,
        messages: &mut Vec<AgentMessage>,
    ) {
        let number = id.and_then(|id| id.as_json().parse::<u64>().ok());
        let call = number.and_then(|id| self.memory.pending.remove(&id));
        let late = call == Some(PendingCall::Prompt) && number != self.memory.turn.prompt;
        let Some(call) = call.filter(|_| !late) else {
            return messages.push(AgentMessage::Unknown { message: text.to_json(), fault: None });
        };
        self.dirty = true;
        match (call, result) {
            (PendingCall::Initialize, Ok(result)) => self.handle_initialize_answer(result, messages),
            (PendingCall::Authenticate, Ok(_)) => self.open_session(messages),
            (PendingCall::New | PendingCall::Load | PendingCall::Resume, Ok(result)) => {
                self.handle_session_opened(result, call != PendingCall::New, messages);
            }
            (PendingCall::Load | PendingCall::Resume, Err(error))
                if ErrorAnswer::read(error).trouble != ErrorCause::Auth =>
            {
                messages.push(AgentMessage::Unknown { message: text.to_json(), fault: None });
                self.memory.session.replaying = false;
                self.handle_resume_failure(call == PendingCall::Resume, error, messages);
            }
            (PendingCall::New | PendingCall::Load | PendingCall::Resume, Err(error)) => {
                self.handle_open_failure(error, messages);
            }
            (PendingCall::Initialize | PendingCall::Authenticate, Err(error)) => {
                self.report_unusable(error, messages);
            }
            (PendingCall::Prompt, Ok(result)) => self.end_turn(result, text, messages),
            (PendingCall::Prompt, Err(error)) => self.fail_turn(error, text, messages),
            (PendingCall::Set, result) => self.handle_setting_answer(number, result, messages),
            (PendingCall::List, Ok(result)) => self.add_session_page(result, messages),
            (PendingCall::List, Err(error)) => {
                messages.push(AgentMessage::SessionList { result: Json::raw(error), ok: false });
            }
            (PendingCall::Steer, result) => self.handle_steering_answer(number, result, text, messages),
            (PendingCall::Other, _) => {
                messages.push(AgentMessage::Unknown { message: text.to_json(), fault: None });
            }
        }
    }
}

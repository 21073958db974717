//! The driver of the Agent Client Protocol: we are the client.
//!
//! ```text
//!  Hello ──► initialize ──► (authenticate) ──► session/resume, load or new ──► Ready
//!                                                                                │ Prompt
//!                                                      TurnEnd ◄── answer ◄── session/prompt
//! ```
//! Requests of the agent's become clearances and questions; everything else is kept as it came. Ids are scoped to whoever
//! asked: ours count from 1, the agent's are echoed.

use intercom_types::event::RawMessage;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{ACTS, fault, line, rejected};
use crate::ParsedText;
use crate::acp::answer::{AgentCapabilities, AuthMethod, PromptDone};
use crate::acp::request::{self, Elicitation, Permission, Request};
use crate::acp::send::{self, Elicited};
use crate::acp::tool::ToolCall;
use crate::acp::trouble::{self, Failure, Limit, LimitKind, Trouble};
use crate::acp::update::{Detail, Update};
use crate::acp::{method, permission};
use crate::jsonrpc::{self, Message};
use intercom_types::{
    Ask, Call, Controls, Event, Fault, FaultCode, Json, Outbound, RequestId, Resets, Said, Tokens, Wording,
    agent,
};

mod controls;
mod errands;
mod forms;
mod opening;
mod setup;
#[cfg(test)]
mod tests;

use controls::cost_of;
pub use setup::{AgentKey, DriverSetup};

/// Tool calls that are remembered, for the permission request that may follow.
const MAX_CALLS: usize = 32;
/// A longer one is not.
const MAX_CALL_BYTES: usize = 256 * 1024;
/// Our own requests that wait for an answer; the oldest is forgotten beyond it.
const MAX_PENDING: usize = 64;
/// The words at the end of a turn that are looked at for a limit.
const MAX_LAST_WORDS: usize = 500;
/// The updates that are replayed when a session is loaded. All others are news.
const HISTORY: &[&str] = &[
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
    mind: DriverMemory,
    dirty: bool,
}

/// The state that the driver has to remember.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
#[expect(clippy::struct_excessive_bools, reason = "each is known or not by itself")]
struct DriverMemory {
    next_id: u64,
    pending: BTreeMap<u64, PendingCall>,
    /// The agent's own id of its session.
    session: Option<String>,
    /// Our request of the turn that runs; an answer to any other is too late.
    prompt: Option<u64>,
    /// One of an earlier process, to be gone on with.
    earlier: Option<String>,
    can: AgentCapabilities,
    auth: Vec<AuthMethod>,
    about: Option<Json>,
    /// True while the agent replays updates that are in the log already.
    replaying: bool,
    logged_in: bool,
    /// The forms of open questions, `null` without one; all other open requests are for permission.
    questions: BTreeMap<String, Json>,
    calls: VecDeque<(String, Json)>,
    last_words: String,
    /// The agent has thought, planned, asked or used a tool since its prompt.
    worked: bool,
    controls: Controls,
    /// The words of nudges that wait for an answer, by our request.
    steering: BTreeMap<u64, String>,
    /// The settings that wait for an answer, by our request.
    setting: BTreeMap<u64, controls::PendingSetting>,
    /// Pages of a list that is not complete yet.
    listed: Vec<Json>,
    /// Somebody has asked for that session, and for no other.
    explicit: bool,
    /// The session that is open, while the agent is asked for the mode of its profile.
    opening: Option<opening::OpenSession>,
}

/// A request of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum PendingCall {
    Initialize,
    Authenticate,
    New,
    Load,
    Resume,
    Prompt,
    Set,
    List,
    Steer,
    Other,
}

impl AcpDriver {
    pub fn new(setup: DriverSetup) -> Self {
        let earlier = setup.resume.clone();
        let explicit = earlier.is_some();
        Self {
            setup,
            mind: DriverMemory { next_id: 1, earlier, explicit, ..DriverMemory::default() },
            dirty: true,
        }
    }

    pub(super) fn save(&mut self) -> Option<Json> {
        std::mem::take(&mut self.dirty).then(|| Json::of(&self.mind))
    }

    pub(super) fn restore(&mut self, saved: &Json) {
        if let Ok(mind) = serde_json::from_str(saved.as_str()) {
            (self.mind, self.dirty) = (mind, false);
        }
    }

    pub(super) fn inherit(&mut self, saved: &Json) {
        if let Ok(mind) = serde_json::from_str::<DriverMemory>(saved.as_str()) {
            self.mind.explicit = false;
            self.mind.earlier = mind.session.or(mind.earlier).or(self.mind.earlier.take());
        }
    }

    /// The id of our next request, and what it is about.
    fn ask(&mut self, about: PendingCall) -> RequestId {
        let id = self.mind.next_id;
        self.mind.next_id += 1;
        self.mind.pending.insert(id, about);
        if self.mind.pending.len() > MAX_PENDING
            && let Some(oldest) = self.mind.pending.keys().copied().find(|id| Some(*id) != self.mind.prompt)
        {
            self.mind.pending.remove(&oldest);
            self.mind.steering.remove(&oldest);
            self.mind.setting.remove(&oldest);
        }
        self.dirty = true;
        RequestId::number(id)
    }

    pub(super) fn encode(&mut self, message: &Outbound) -> Option<String> {
        match message {
            Outbound::Hello => {
                let id = self.ask(PendingCall::Initialize);
                Some(send::initialize(&id, self.setup.offer))
            }
            Outbound::Prompt { wording: Wording { text, content }, turn: _ } => {
                let session = self.mind.session.clone()?;
                self.mind.last_words.clear();
                (self.mind.replaying, self.mind.worked) = (false, false);
                self.mind.prompt = Some(self.mind.next_id);
                let id = self.ask(PendingCall::Prompt);
                Some(match content {
                    Some(content) => send::prompt_with(&id, &session, content.as_json()),
                    None => send::prompt(&id, &session, text),
                })
            }
            Outbound::Interrupt { reason: _ } => self.mind.session.as_deref().map(send::cancel),
            Outbound::Nudge { message } => {
                let session = self.mind.session.clone()?;
                self.mind.steering.insert(self.mind.next_id, message.clone());
                let id = self.ask(PendingCall::Steer);
                Some(send::steer(&id, &session, message))
            }
            Outbound::Decision { request, option: Some(option), .. } => {
                Some(send::permission_selected(request, option))
            }
            Outbound::Decision { request, option: None, .. } => Some(send::permission_cancelled(request)),
            Outbound::Answer { request, decision, instruction } => {
                Some(self.answered(request, *decision, instruction.as_deref()))
            }
            Outbound::Cancel { request } => Some(match self.forget_question(request) {
                Some(_) => send::elicited(request, Elicited::Cancelled),
                None => send::permission_cancelled(request),
            }),
            Outbound::Fault(Fault { request, code, message }) => {
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
            Outbound::Set { set, number } => self.set(set, *number),
            Outbound::List => {
                let id = self.ask(PendingCall::List);
                Some(send::session_list(&id, Some(&self.setup.workspace), None))
            }
            Outbound::Abandon => {
                let prompt = self.mind.prompt.take()?;
                self.dirty = true;
                Some(send::cancel_request(&RequestId::number(prompt)))
            }
            Outbound::Close => {
                let session = self.mind.session.clone().filter(|_| self.mind.can.close)?;
                let id = self.ask(PendingCall::Other);
                Some(send::session_close(&id, &session))
            }
            Outbound::Reply { request, reply } => Some(errands::answer(request, reply)),
            Outbound::Text(text) => Some(text.clone()),
        }
    }

    pub(super) fn decode(&mut self, text: &str, said: &mut Vec<Said>) {
        match jsonrpc::parse_whole(text) {
            Ok((Message::Notification { method, params }, text)) => {
                self.notified(&method, params, text, said);
            }
            Ok((Message::Request { id, method, params }, text)) => {
                said.push(self.requested(id, &method, params, text));
            }
            Ok((Message::Answer { id, result }, text)) => self.heard(id.as_ref(), result, text, said),
            // Whoever printed it cannot be told: it may be a banner.
            Err(bad) => said.push(rejected(text, bad.to_string(), None, None, None)),
        }
    }

    /// An answer that we failed at counts as an error that the agent has answered with.
    pub(super) fn decode_failed(&mut self, text: &str, reason: &str, said: &mut Vec<Said>) {
        let parsed = jsonrpc::parse_whole(text).ok();
        let request = match &parsed {
            Some((Message::Request { id, .. }, _)) => Some(id.clone()),
            _ => None,
        };
        let fault = request.map(|request| fault(request, FaultCode::Failed, reason));
        said.push(rejected(text, reason.to_owned(), None, None, fault));
        let error = jsonrpc::error_object(jsonrpc::INTERNAL_ERROR, reason);
        if let (Some((Message::Answer { id, .. }, text)), Ok(error)) =
            (parsed, serde_json::from_str::<&RawValue>(&error))
        {
            self.heard(id.as_ref(), Err(error), text, said);
        }
    }

    fn notified(
        &mut self,
        name: &str,
        params: Option<&RawValue>,
        text: ParsedText<'_>,
        said: &mut Vec<Said>,
    ) {
        match (name, params) {
            (method::SESSION_UPDATE, Some(params)) => self.updated(params, said),
            (method::CANCEL_REQUEST, Some(params)) => match request::cancelled(params) {
                Some(request) => said.push(Said::Withdrawn { request, message: text.to_json() }),
                None => said.push(Said::Unknown { message: text.to_json(), fault: None }),
            },
            _ => said.push(Said::Unknown { message: text.to_json(), fault: None }),
        }
    }

    fn updated(&mut self, params: &RawValue, said: &mut Vec<Said>) {
        let plain = || Said::Update { params: Json::raw(params) };
        let Some(update) = Update::look(params) else { return said.push(plain()) };
        if self.mind.replaying && update.kind.as_deref().is_some_and(|kind| HISTORY.contains(&kind)) {
            return;
        }
        match update.kind.as_deref() {
            // By far the most.
            Some("agent_message_chunk") => {
                if let Some(words) = update.text().filter(|_| self.mind.last_words.len() < MAX_LAST_WORDS) {
                    self.mind.last_words.extend(words.chars().take(MAX_LAST_WORDS));
                }
                return said.push(plain());
            }
            Some("user_message_chunk") => {
                return said.push(Said::Echo(Event::Update(RawMessage(Json::raw(params)))));
            }
            Some("agent_thought_chunk") => {
                self.mind.worked = true;
                return said.push(plain());
            }
            None => return said.push(plain()),
            Some(_) => {}
        }
        let detail = update.detail();
        said.push(match &detail {
            Detail::Tool(call) => self.tool(call, params),
            _ => plain(),
        });
        match detail {
            // What is told again was counted before; what is news is in the next sum.
            Detail::Usage(_) if self.mind.replaying => {}
            Detail::Usage(usage) => said.extend(usage.cost.and_then(|cost| cost_of(&cost))),
            Detail::Mode(mode) => {
                self.mind.controls.mode = Some(mode.into_owned());
                said.push(self.controls());
            }
            Detail::Config(options) => {
                self.mind.controls.options = Some(Json::raw(options));
                said.push(self.controls());
            }
            Detail::Title(title) => said.push(Said::Title(title.and_then(|title| agent::title(&title)))),
            Detail::Plan(steps) => {
                self.mind.worked = true;
                said.push(Said::Steps(steps));
            }
            Detail::Tool(_) | Detail::Nothing => {}
        }
    }

    fn tool(&mut self, call: &ToolCall<'_>, params: &RawValue) -> Said {
        self.mind.last_words.clear();
        self.mind.worked = true;
        let Some(id) = call.id.clone().map(std::borrow::Cow::into_owned) else {
            return Said::Update { params: Json::raw(params) };
        };
        let before = self.call(&id);
        let before = before.as_ref().and_then(inside);
        let merged = match &before {
            Some(before) => call.clone().after(before),
            None => call.clone(),
        };
        let open = matches!(merged.status.as_deref(), None | Some("pending" | "in_progress"));
        let title = merged.title.as_deref().or(merged.name.as_deref()).unwrap_or(&id).to_owned();
        // Some say that it is under way and only then ask whether they may.
        let acts = merged.kind.as_deref().is_some_and(|kind| ACTS.contains(&kind))
            && merged.status.as_deref() == Some("completed");
        self.remember(&id, params, open);
        Said::Tool { acts, call: Some(Call { id, title, open }), params: Json::raw(params) }
    }

    /// Returns the earlier report of a call.
    fn call(&self, id: &str) -> Option<Json> {
        self.mind.calls.iter().find(|(known, _)| known == id).map(|(_, raw)| raw.clone())
    }

    /// The first that is said of a call says most; it is gone when the call is over.
    fn remember(&mut self, id: &str, params: &RawValue, open: bool) {
        let calls = &mut self.mind.calls;
        let known = calls.iter().position(|(known, _)| known == id);
        match known {
            Some(at) if !open => drop(calls.remove(at)),
            None if open && params.get().len() <= MAX_CALL_BYTES => {
                if calls.len() >= MAX_CALLS {
                    calls.pop_front();
                }
                calls.push_back((id.to_owned(), Json::raw(params)));
            }
            _ => return,
        }
        self.dirty = true;
    }

    fn requested(
        &mut self,
        id: RequestId,
        name: &str,
        params: Option<&RawValue>,
        text: ParsedText<'_>,
    ) -> Said {
        let unknown = |id, why: &str| Said::Unknown {
            message: text.to_json(),
            fault: Some(fault(id, FaultCode::UnknownMethod, why)),
        };
        let raw = || params.map_or_else(|| Json::trusted("{}"), Json::raw);
        self.mind.worked = true;
        match Request::read(name, params) {
            Ok(Request::Permission(permission)) => {
                Said::Clearance(self.permission(id, &permission, raw(), text))
            }
            Ok(Request::Elicitation(question)) => self.question(id, &question, raw(), text),
            Ok(Request::Unknown) => unknown(id, &format!("unknown method `{name}`")),
            Ok(wanted) => match errands::errand(&id, name, wanted, self.setup.offer, raw, text.as_str()) {
                Some(errand) => errand,
                None => unknown(id, &format!("`{name}` was not offered")),
            },
            Err(bad) => {
                let fault = fault(id, FaultCode::InvalidField, &bad.to_string());
                rejected(text.as_str(), bad.to_string(), Some(name.to_owned()), Some(bad.field), Some(fault))
            }
        }
    }

    fn permission(
        &mut self,
        id: RequestId,
        permission: &Permission<'_>,
        params: Json,
        text: ParsedText<'_>,
    ) -> Ask {
        let announced = permission.tool.id.as_deref().and_then(|id| self.call(id));
        let announced = announced.as_ref().and_then(inside);
        let card = permission::card(permission, announced.as_ref(), &self.setup.workspace);
        Ask {
            request: id,
            title: card.title,
            description: card.description,
            diff: card.diff,
            file_path: card.file_path,
            more_paths: card.more_paths,
            tool: card.tool,
            command: card.command,
            // The protocol has no word for it: what we see decides.
            claims: false,
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
    ) -> Said {
        let form = question.schema.map_or_else(|| Json::trusted("null"), Json::raw);
        self.mind.questions.insert(id.as_json().to_owned(), form);
        self.dirty = true;
        let mut words = question.message.clone().into_owned();
        if let Some(url) = &question.url {
            words = format!("{words}\n{url}");
        }
        Said::Question {
            request: id,
            text: words,
            sort: question.mode.clone().map(Into::into),
            params,
            line: line(text.as_str()),
        }
    }

    fn heard(
        &mut self,
        id: Option<&RequestId>,
        result: Result<&RawValue, &RawValue>,
        text: ParsedText<'_>,
        said: &mut Vec<Said>,
    ) {
        let number = id.and_then(|id| id.as_json().parse::<u64>().ok());
        let about = number.and_then(|id| self.mind.pending.remove(&id));
        let late = about == Some(PendingCall::Prompt) && number != self.mind.prompt;
        let Some(about) = about.filter(|_| !late) else {
            return said.push(Said::Unknown { message: text.to_json(), fault: None });
        };
        self.dirty = true;
        match (about, result) {
            (PendingCall::Initialize, Ok(result)) => self.initialized(result, said),
            (PendingCall::Authenticate, Ok(_)) => self.open_session(said),
            (PendingCall::New | PendingCall::Load | PendingCall::Resume, Ok(result)) => {
                self.opened(result, about != PendingCall::New, said);
            }
            (PendingCall::Load | PendingCall::Resume, Err(error))
                if Failure::read(error).trouble != Trouble::Auth =>
            {
                said.push(Said::Unknown { message: text.to_json(), fault: None });
                self.mind.replaying = false;
                self.not_resumed(about == PendingCall::Resume, error, said);
            }
            (PendingCall::New | PendingCall::Load | PendingCall::Resume, Err(error)) => {
                self.not_opened(error, said);
            }
            (PendingCall::Initialize | PendingCall::Authenticate, Err(error)) => self.unusable(error, said),
            (PendingCall::Prompt, Ok(result)) => self.done(result, text, said),
            (PendingCall::Prompt, Err(error)) => self.failed(error, text, said),
            (PendingCall::Set, result) => self.is_set(number, result, said),
            (PendingCall::List, Ok(result)) => self.listed(result, said),
            (PendingCall::List, Err(error)) => {
                said.push(Said::Listed { result: Json::raw(error), ok: false });
            }
            (PendingCall::Steer, result) => self.steered(number, result, text, said),
            (PendingCall::Other, _) => said.push(Said::Unknown { message: text.to_json(), fault: None }),
        }
    }

    fn done(&mut self, result: &RawValue, text: ParsedText<'_>, said: &mut Vec<Said>) {
        let done = PromptDone::read(result);
        let reason = done.as_ref().and_then(|done| done.stop_reason.as_deref()).unwrap_or("unknown");
        let silent = done.as_ref().is_none_or(|done| done.tokens.is_none());
        let limit = Limit::in_speech(&self.mind.last_words).filter(|_| silent && reason == "end_turn");
        if let Some(limit) = limit {
            said.push(limited(&limit, Json::raw(result)));
        }
        if reason == "end_turn" && trouble::wants_login(&self.mind.last_words) {
            let message = self.mind.last_words.trim().to_owned();
            self.wants_login(&Failure { code: None, message, trouble: Trouble::Auth }, said);
        }
        let (stop_reason, params) = (reason.to_owned(), Json::raw(result));
        let tokens = done.and_then(|done| done.tokens).unwrap_or_default();
        let tokens = Tokens {
            input: tokens.input.unwrap_or(0),
            output: tokens.output.unwrap_or(0),
            total: tokens.total.unwrap_or(0),
        };
        let (failed, turn) = (false, None);
        said.push(Said::TurnEnd { stop_reason, tokens, params, failed, turn, message: text.to_json() });
    }

    /// Words that have found no turn, or that the agent does not take, are still to be said.
    fn steered(
        &mut self,
        number: Option<u64>,
        result: Result<&RawValue, &RawValue>,
        text: ParsedText<'_>,
        said: &mut Vec<Said>,
    ) {
        #[derive(Deserialize)]
        struct SteeringAnswer {
            outcome: String,
        }
        let message = number.and_then(|id| self.mind.steering.remove(&id));
        said.push(Said::Unknown { message: text.to_json(), fault: None });
        let no_turn = match result {
            Ok(result) => match serde_json::from_str::<SteeringAnswer>(result.get()) {
                Ok(steered) if steered.outcome == "promptRequired" => true,
                _ => return,
            },
            Err(_) => false,
        };
        said.extend(message.map(|message| Said::NotSteered { message, no_turn }));
    }

    fn failed(&mut self, error: &RawValue, text: ParsedText<'_>, said: &mut Vec<Said>) {
        let failure = Failure::read(error);
        if let Trouble::Limit(limit) = &failure.trouble {
            said.push(limited(limit, Json::raw(error)));
        }
        self.wants_login(&failure, said);
        let stop_reason = match failure.trouble {
            Trouble::Cancelled => "cancelled".to_owned(),
            _ => format!("error: {}", failure.advice(&self.setup.agent, &self.log_in_advice(&failure))),
        };
        let (tokens, params) = (Tokens::default(), Json::raw(error));
        let (failed, turn) = (true, None);
        said.push(Said::TurnEnd { stop_reason, tokens, params, failed, turn, message: text.to_json() });
    }
}

/// The tool call inside an update.
fn inside(params: &Json) -> Option<ToolCall<'_>> {
    let raw: &RawValue = serde_json::from_str(params.as_str()).ok()?;
    match Update::look(raw)?.detail() {
        Detail::Tool(call) => Some(call),
        _ => None,
    }
}

fn limited(limit: &Limit, params: Json) -> Said {
    let kind = match limit.kind {
        LimitKind::Rate => "rate",
        LimitKind::Usage => "usage",
    };
    let resets = match &limit.resets {
        Some(trouble::Resets::At(at)) => Resets::At(*at),
        Some(trouble::Resets::After(after)) => Resets::After(*after),
        None if limit.kind == LimitKind::Rate => Resets::After(Duration::from_mins(1)),
        Some(trouble::Resets::Said(_)) | None => Resets::Unknown,
    };
    Said::Limited { kind: kind.to_owned(), resets, params }
}

//! The driver of our own protocol (`docs/PROTOCOL.md`).

use intercom_types::event::UnknownMessage;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use serde_json::value::RawValue;

use super::{CHANGING_TOOLS, fault, line};
use crate::ParsedText;
use crate::intercom::{
    self as wire, HeartbeatStep, IntercomMessage, InvalidIntercomMessage, ToolUpdateParams,
};
use crate::jsonrpc;
use intercom_types::{
    AgentCommand, AgentMessage, ClearanceRequest, Event, FaultCode, HeartbeatProgress, Json, LimitResetTime,
    PromptBody, RequestFault, Time, ToolCallState, TurnTokenCounts, agent,
};

pub(super) fn decode(text: &str) -> AgentMessage {
    match wire::parse(text) {
        Ok((message, text)) => to_agent_message(message, text),
        Err(bad) => rejected(bad, text),
    }
}

pub(super) fn decode_failed(text: &str, reason: &str, messages: &mut Vec<AgentMessage>) {
    let parsed = wire::parse(text).ok();
    let request = jsonrpc::find_id(text);
    let fault = request.map(|request| fault(request, FaultCode::Failed, reason));
    messages.push(super::rejected(text, reason.to_owned(), None, None, fault));
    // The turn is over for the agent, so it must end for us, too.
    if let Some((IntercomMessage::TurnEnd { turn, .. }, text)) = parsed {
        messages.push(AgentMessage::TurnEnd {
            failed: true,
            stop_reason: format!("error: {reason}"),
            tokens: TurnTokenCounts::default(),
            params: empty(),
            turn: turn.and_then(|turn| turn.parse().ok()),
            message: text.to_json(),
        });
    }
}

pub(super) fn encode(message: &AgentCommand) -> Option<String> {
    Some(match message {
        AgentCommand::Decision { request, approved, reason, option: _ } => {
            let status = if *approved { "approved" } else { "rejected" };
            let answer = wire::IntercomCommand::ClearanceResponse { status, reason: reason.as_deref() };
            wire::render(&answer, Some(request))
        }
        AgentCommand::Answer { request, decision, instruction } => {
            let decision = decision.as_str();
            let answer =
                wire::IntercomCommand::PromptResponse { decision, instruction: instruction.as_deref() };
            wire::render(&answer, Some(request))
        }
        AgentCommand::Prompt { wording: PromptBody { text, content: _ }, turn } => {
            let turn = turn.map(|turn| turn.to_string());
            wire::render(&wire::IntercomCommand::PromptSend { text, turn }, None)
        }
        AgentCommand::Interrupt { reason } => {
            wire::render(&wire::IntercomCommand::SessionInterrupt { reason }, None)
        }
        AgentCommand::Nudge { message } => wire::render(&wire::IntercomCommand::Nudge { message }, None),
        AgentCommand::Fault(RequestFault { request, code, message }) => {
            wire::render(&wire::IntercomCommand::Error { code: code.as_str(), message }, Some(request))
        }
        // There is no handshake, and nothing can be withdrawn.
        AgentCommand::Hello
        | AgentCommand::Cancel { .. }
        | AgentCommand::Reply { .. }
        | AgentCommand::ChangeSetting { .. }
        | AgentCommand::ListSessions
        | AgentCommand::AbandonTurn
        | AgentCommand::Close
        | AgentCommand::Text(_) => return None,
    })
}

fn to_agent_message(message: IntercomMessage<'_>, text: ParsedText<'_>) -> AgentMessage {
    match message {
        IntercomMessage::StatusUpdate { params } => AgentMessage::Status { params: Json::raw(params) },
        IntercomMessage::Heartbeat { progress, raw, params } => AgentMessage::Heartbeat {
            progress: summarize_progress(&progress),
            fingerprint: progress_fingerprint(raw),
            steps: steps(&progress),
            params: params.map_or_else(empty, Json::raw),
        },
        IntercomMessage::ClearanceRequest { id, known, params } => {
            AgentMessage::Clearance(Box::new(ClearanceRequest {
                request: id,
                title: known.title.into_owned(),
                description: known.description.map(Into::into),
                diff: known.diff.map(Into::into),
                file_path: known.file_path.map(Into::into),
                more_paths: Vec::new(),
                tool: known.tool.map(Into::into),
                command: known.command.map(Into::into),
                claims_risk: true,
                claimed_risk: known.risk_level.map(Into::into),
                options: Vec::new(),
                params: Json::raw(params),
                line: line(text.as_str()),
            }))
        }
        IntercomMessage::PromptForward { id, known, params } => AgentMessage::Question {
            request: id,
            text: known.text.into_owned(),
            sort: known.sort.map(Into::into),
            params: Json::raw(params),
            line: line(text.as_str()),
        },
        IntercomMessage::TurnEnd { stop_reason, turn, params } => AgentMessage::TurnEnd {
            failed: stop_reason.as_deref().is_some_and(is_error),
            stop_reason: stop_reason.map_or_else(|| "end_turn".to_owned(), Into::into),
            tokens: TurnTokenCounts::default(),
            params: params.map_or_else(empty, Json::raw),
            turn: turn.and_then(|turn| turn.parse().ok()),
            message: text.to_json(),
        },
        IntercomMessage::ToolUpdate { known, params } => AgentMessage::Tool {
            changes_something: known.tool.as_deref().is_some_and(|tool| CHANGING_TOOLS.contains(&tool)),
            call: call(known),
            params: Json::raw(params),
        },
        IntercomMessage::ServiceLimit { known, params } => AgentMessage::Limited {
            kind: known.kind.map_or_else(|| "service".to_owned(), Into::into),
            resets: match (known.resets_at.as_deref().and_then(Time::parse), known.retry_after_seconds) {
                (Some(at), _) => LimitResetTime::At(at),
                (None, Some(seconds)) => LimitResetTime::After(Duration::from_secs(seconds)),
                (None, None) => LimitResetTime::Unknown,
            },
            params: params.map_or_else(empty, Json::raw),
        },
        IntercomMessage::ClearanceOutcome { request, outcome, params } => {
            AgentMessage::Outcome { request, outcome: outcome.into_owned(), params: Json::raw(params) }
        }
        IntercomMessage::Unknown { method, id: None } if wire::is_daemon_method(&method) => {
            let unknown = UnknownMessage { message: text.to_json(), why: None };
            AgentMessage::Echo(Box::new(Event::UnknownMessage(unknown)))
        }
        IntercomMessage::Unknown { method, id } => AgentMessage::Unknown {
            message: text.to_json(),
            fault: id.map(|id| fault(id, FaultCode::UnknownMethod, &format!("unknown method `{method}`"))),
        },
    }
}

fn rejected(bad: InvalidIntercomMessage, text: &str) -> AgentMessage {
    let (reason, method, field, fault) = match bad {
        InvalidIntercomMessage::Malformed(error) => (format!("malformed JSON: {error}"), None, None, None),
        InvalidIntercomMessage::NotAnObject => ("not a JSON object".to_owned(), None, None, None),
        InvalidIntercomMessage::Missing { method, field, id } => {
            let reason = format!("missing required field `{field}`");
            let fault = id.map(|id| fault(id, FaultCode::MissingField, &reason));
            (reason, method, Some(field), fault)
        }
        InvalidIntercomMessage::Invalid { method, field, wanted, id } => {
            let reason = format!("field `{field}` must be {wanted}");
            let fault = id.map(|id| fault(id, FaultCode::InvalidField, &reason));
            (reason, method, Some(field), fault)
        }
    };
    super::rejected(text, reason, method, field, fault)
}

fn summarize_progress(progress: &[HeartbeatStep<'_>]) -> HeartbeatProgress {
    if progress.is_empty() {
        HeartbeatProgress::Empty
    } else if progress.iter().all(|step| step.status.as_deref() == Some("completed")) {
        HeartbeatProgress::Completed
    } else {
        HeartbeatProgress::Open
    }
}

fn steps(progress: &[HeartbeatStep<'_>]) -> Vec<agent::ProgressStep> {
    let step = |step: &HeartbeatStep<'_>| {
        Some(agent::ProgressStep::new(step.label.as_deref()?, step.status.as_deref().unwrap_or_default()))
    };
    progress.iter().take(agent::MAX_STEPS).filter_map(step).collect()
}

/// Returns a hash of the raw progress.
fn progress_fingerprint(progress: Option<&RawValue>) -> u64 {
    let mut hasher = DefaultHasher::new();
    progress.map(RawValue::get).hash(&mut hasher);
    hasher.finish()
}

/// Returns the call of an update with a status, which is worth remembering. A call without an id is identified by its
/// title.
fn call(known: ToolUpdateParams<'_>) -> Option<ToolCallState> {
    let open = matches!(&*known.status?, "pending" | "in_progress");
    let title = known.title.into_owned();
    Some(ToolCallState { id: known.call.map_or_else(|| title.clone(), Into::into), title, open })
}

fn empty() -> Json {
    Json::trusted("{}")
}

/// Reports whether a stop reason is `error`, or `error: ` and a reason.
fn is_error(stop_reason: &str) -> bool {
    stop_reason.strip_prefix("error").is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
}

#[cfg(test)]
mod tests;

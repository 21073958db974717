//! The driver of our own protocol (`docs/PROTOCOL.md`).

use intercom_types::event::UnknownMessage;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use serde_json::value::RawValue;

use super::{ACTS, fault, line};
use crate::ParsedText;
use crate::intercom::{self as wire, Bad, Inbound, Step, ToolUpdate};
use crate::jsonrpc;
use intercom_types::{
    Ask, Call, Event, Fault, FaultCode, Json, Outbound, Progress, Resets, Said, Time, Tokens, Wording, agent,
};

pub(super) fn decode(text: &str) -> Said {
    match wire::parse(text) {
        Ok((message, text)) => said(message, text),
        Err(bad) => rejected(bad, text),
    }
}

pub(super) fn decode_failed(text: &str, reason: &str, said: &mut Vec<Said>) {
    let parsed = wire::parse(text).ok();
    let request = jsonrpc::id_of(text);
    let fault = request.map(|request| fault(request, FaultCode::Failed, reason));
    said.push(super::rejected(text, reason.to_owned(), None, None, fault));
    // The turn is over for the agent: it must not run on for us.
    if let Some((Inbound::TurnEnd { turn, .. }, text)) = parsed {
        said.push(Said::TurnEnd {
            failed: true,
            stop_reason: format!("error: {reason}"),
            tokens: Tokens::default(),
            params: empty(),
            turn: turn.and_then(|turn| turn.parse().ok()),
            message: text.to_json(),
        });
    }
}

pub(super) fn encode(message: &Outbound) -> Option<String> {
    Some(match message {
        Outbound::Decision { request, approved, reason, option: _ } => {
            let status = if *approved { "approved" } else { "rejected" };
            let answer = wire::Outbound::ClearanceResponse { status, reason: reason.as_deref() };
            wire::render(&answer, Some(request))
        }
        Outbound::Answer { request, decision, instruction } => {
            let decision = decision.as_str();
            let answer = wire::Outbound::PromptResponse { decision, instruction: instruction.as_deref() };
            wire::render(&answer, Some(request))
        }
        Outbound::Prompt { wording: Wording { text, content: _ }, turn } => {
            let turn = turn.map(|turn| turn.to_string());
            wire::render(&wire::Outbound::PromptSend { text, turn }, None)
        }
        Outbound::Interrupt { reason } => wire::render(&wire::Outbound::SessionInterrupt { reason }, None),
        Outbound::Nudge { message } => wire::render(&wire::Outbound::Nudge { message }, None),
        Outbound::Fault(Fault { request, code, message }) => {
            wire::render(&wire::Outbound::Error { code: code.as_str(), message }, Some(request))
        }
        // There is no handshake, and nothing is taken back.
        Outbound::Hello
        | Outbound::Cancel { .. }
        | Outbound::Reply { .. }
        | Outbound::Set { .. }
        | Outbound::List
        | Outbound::Abandon
        | Outbound::Close
        | Outbound::Text(_) => return None,
    })
}

fn said(message: Inbound<'_>, text: ParsedText<'_>) -> Said {
    match message {
        Inbound::StatusUpdate { params } => Said::Status { params: Json::raw(params) },
        Inbound::Heartbeat { progress, raw, params } => Said::Heartbeat {
            progress: sum(&progress),
            mark: mark(raw),
            steps: steps(&progress),
            params: params.map_or_else(empty, Json::raw),
        },
        Inbound::ClearanceRequest { id, known, params } => Said::Clearance(Ask {
            request: id,
            title: known.title.into_owned(),
            description: known.description.map(Into::into),
            diff: known.diff.map(Into::into),
            file_path: known.file_path.map(Into::into),
            more_paths: Vec::new(),
            tool: known.tool.map(Into::into),
            command: known.command.map(Into::into),
            claims: true,
            claimed_risk: known.risk_level.map(Into::into),
            options: Vec::new(),
            params: Json::raw(params),
            line: line(text.as_str()),
        }),
        Inbound::PromptForward { id, known, params } => Said::Question {
            request: id,
            text: known.text.into_owned(),
            sort: known.sort.map(Into::into),
            params: Json::raw(params),
            line: line(text.as_str()),
        },
        Inbound::TurnEnd { stop_reason, turn, params } => Said::TurnEnd {
            failed: stop_reason.as_deref().is_some_and(is_error),
            stop_reason: stop_reason.map_or_else(|| "end_turn".to_owned(), Into::into),
            tokens: Tokens::default(),
            params: params.map_or_else(empty, Json::raw),
            turn: turn.and_then(|turn| turn.parse().ok()),
            message: text.to_json(),
        },
        Inbound::ToolUpdate { known, params } => Said::Tool {
            acts: known.tool.as_deref().is_some_and(|tool| ACTS.contains(&tool)),
            call: call(known),
            params: Json::raw(params),
        },
        Inbound::ServiceLimit { known, params } => Said::Limited {
            kind: known.kind.map_or_else(|| "service".to_owned(), Into::into),
            resets: match (known.resets_at.as_deref().and_then(Time::parse), known.retry_after_seconds) {
                (Some(at), _) => Resets::At(at),
                (None, Some(seconds)) => Resets::After(Duration::from_secs(seconds)),
                (None, None) => Resets::Unknown,
            },
            params: params.map_or_else(empty, Json::raw),
        },
        Inbound::ClearanceOutcome { request, outcome, params } => {
            Said::Outcome { request, outcome: outcome.into_owned(), params: Json::raw(params) }
        }
        Inbound::Unknown { method, id: None } if wire::is_ours(&method) => {
            Said::Echo(Event::UnknownMessage(UnknownMessage { message: text.to_json(), why: None }))
        }
        Inbound::Unknown { method, id } => Said::Unknown {
            message: text.to_json(),
            fault: id.map(|id| fault(id, FaultCode::UnknownMethod, &format!("unknown method `{method}`"))),
        },
    }
}

fn rejected(bad: Bad, text: &str) -> Said {
    let (reason, method, field, fault) = match bad {
        Bad::Malformed(error) => (format!("malformed JSON: {error}"), None, None, None),
        Bad::NotAnObject => ("not a JSON object".to_owned(), None, None, None),
        Bad::Missing { method, field, id } => {
            let reason = format!("missing required field `{field}`");
            let fault = id.map(|id| fault(id, FaultCode::MissingField, &reason));
            (reason, method, Some(field), fault)
        }
        Bad::Invalid { method, field, wanted, id } => {
            let reason = format!("field `{field}` must be {wanted}");
            let fault = id.map(|id| fault(id, FaultCode::InvalidField, &reason));
            (reason, method, Some(field), fault)
        }
    };
    super::rejected(text, reason, method, field, fault)
}

fn sum(progress: &[Step<'_>]) -> Progress {
    if progress.is_empty() {
        Progress::Empty
    } else if progress.iter().all(|step| step.status.as_deref() == Some("completed")) {
        Progress::Completed
    } else {
        Progress::Open
    }
}

fn steps(progress: &[Step<'_>]) -> Vec<agent::Step> {
    let step = |step: &Step<'_>| {
        Some(agent::Step::new(step.label.as_deref()?, step.status.as_deref().unwrap_or_default()))
    };
    progress.iter().take(agent::MAX_STEPS).filter_map(step).collect()
}

/// Stands for the whole of it, as it came.
fn mark(progress: Option<&RawValue>) -> u64 {
    let mut hasher = DefaultHasher::new();
    progress.map(RawValue::get).hash(&mut hasher);
    hasher.finish()
}

/// Returns the call of an update that tells its status, which is worth remembering. A call without an id goes
/// by its title.
fn call(known: ToolUpdate<'_>) -> Option<Call> {
    let open = matches!(&*known.status?, "pending" | "in_progress");
    let title = known.title.into_owned();
    Some(Call { id: known.call.map_or_else(|| title.clone(), Into::into), title, open })
}

fn empty() -> Json {
    Json::trusted("{}")
}

/// `error`, or `error: ` and what went wrong.
fn is_error(stop_reason: &str) -> bool {
    stop_reason.strip_prefix("error").is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
}

#[cfg(test)]
mod tests;

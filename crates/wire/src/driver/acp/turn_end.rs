//! The end of a turn, and the answers that may end it: to a prompt, to a steering message, and errors.

use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::AcpDriver;
use crate::ParsedText;
use crate::acp::answer::SessionPromptAnswer;
use crate::acp::error_answer::{self, ErrorAnswer, ErrorCause, LimitKind, ProviderLimit};
use intercom_types::{AgentMessage, Json, LimitResetTime, TurnTokenCounts};

impl AcpDriver {
    pub(super) fn end_turn(
        &mut self,
        result: &RawValue,
        text: ParsedText<'_>,
        messages: &mut Vec<AgentMessage>,
    ) {
        let done = SessionPromptAnswer::read(result);
        let reason = done.as_ref().and_then(|done| done.stop_reason.as_deref()).unwrap_or("unknown");
        let silent = done.as_ref().is_none_or(|done| done.tokens.is_none());
        let limit = ProviderLimit::from_agent_text(&self.memory.turn.last_words)
            .filter(|_| silent && reason == "end_turn");
        if let Some(limit) = limit {
            messages.push(limit_message(&limit, Json::raw(result)));
        }
        if reason == "end_turn" && error_answer::wants_login(&self.memory.turn.last_words) {
            let message = self.memory.turn.last_words.trim().to_owned();
            self.report_login_needed(
                &ErrorAnswer { code: None, message, trouble: ErrorCause::Auth },
                messages,
            );
        }
        let stop_reason = reason.to_owned();
        let tokens = done.and_then(|done| done.tokens).unwrap_or_default();
        let tokens = TurnTokenCounts {
            input: tokens.input.unwrap_or(0),
            output: tokens.output.unwrap_or(0),
            total: tokens.total.unwrap_or(0),
        };
        messages.push(turn_end(stop_reason, tokens, result, false, text));
    }

    /// Handles the answer to a nudge. Text that found no turn, or was refused, has to be sent in another way.
    pub(super) fn handle_steering_answer(
        &mut self,
        number: Option<u64>,
        result: Result<&RawValue, &RawValue>,
        text: ParsedText<'_>,
        messages: &mut Vec<AgentMessage>,
    ) {
        #[derive(Deserialize)]
        struct SteeringAnswer {
            outcome: String,
        }
        let message = number.and_then(|id| self.memory.steering.remove(&id));
        messages.push(AgentMessage::Unknown { message: text.to_json(), fault: None });
        let no_turn = match result {
            Ok(result) => match serde_json::from_str::<SteeringAnswer>(result.get()) {
                Ok(steered) if steered.outcome == "promptRequired" => true,
                _ => return,
            },
            Err(_) => false,
        };
        messages.extend(message.map(|message| AgentMessage::SteeringRefused { message, no_turn }));
    }

    pub(super) fn fail_turn(
        &mut self,
        error: &RawValue,
        text: ParsedText<'_>,
        messages: &mut Vec<AgentMessage>,
    ) {
        let failure = ErrorAnswer::read(error);
        if let ErrorCause::Limit(limit) = &failure.trouble {
            messages.push(limit_message(limit, Json::raw(error)));
        }
        self.report_login_needed(&failure, messages);
        let stop_reason = match failure.trouble {
            ErrorCause::Cancelled => "cancelled".to_owned(),
            _ => format!("error: {}", failure.advice(&self.setup.agent, &self.log_in_advice(&failure))),
        };
        messages.push(turn_end(stop_reason, TurnTokenCounts::default(), error, true, text));
    }
}

fn turn_end(
    stop_reason: String,
    tokens: TurnTokenCounts,
    params: &RawValue,
    failed: bool,
    text: ParsedText<'_>,
) -> AgentMessage {
    AgentMessage::TurnEnd {
        stop_reason,
        tokens,
        params: Json::raw(params),
        failed,
        turn: None,
        message: text.to_json(),
    }
}

fn limit_message(limit: &ProviderLimit, params: Json) -> AgentMessage {
    let kind = match limit.kind {
        LimitKind::Rate => "rate",
        LimitKind::Usage => "usage",
    };
    let resets = match &limit.resets {
        Some(error_answer::ProviderLimitReset::At(at)) => LimitResetTime::At(*at),
        Some(error_answer::ProviderLimitReset::After(after)) => LimitResetTime::After(*after),
        None if limit.kind == LimitKind::Rate => LimitResetTime::After(Duration::from_mins(1)),
        Some(error_answer::ProviderLimitReset::InWords(_)) | None => LimitResetTime::Unknown,
    };
    AgentMessage::Limited { kind: kind.to_owned(), resets, params }
}

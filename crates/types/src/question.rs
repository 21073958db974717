//! Questions: an agent asks how to continue and waits for `continue`, `refine` or `stop`.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};
use strum::{EnumString, IntoStaticStr};

use super::time::rfc3339;
use super::{Delivery, OpenEnum, QuestionId, SessionId, Time};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
#[derive(EnumString, IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum Answer {
    Continue,
    Refine,
    Stop,
}

/// `pending`, then exactly one of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
#[derive(EnumString, IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum QuestionStatus {
    Pending,
    Answered,
    Withdrawn,
    Expired,
}

/// A question of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Question {
    pub id: QuestionId,
    pub session: SessionId,
    pub session_name: Option<String>,
    pub text: String,
    /// The agent's name for this sort of question (`continuation`, …).
    #[serde(rename = "type")]
    pub sort: Option<String>,
    pub status: OpenEnum<QuestionStatus>,
    pub decision: Option<OpenEnum<Answer>>,
    pub instruction: Option<String>,
    #[serde(with = "rfc3339")]
    #[schemars(with = "String")]
    pub asked_at: Time,
    pub answered_by: Option<String>,
    #[serde(default, with = "rfc3339::optional")]
    #[schemars(with = "Option<String>")]
    pub answered_at: Option<Time>,
    pub reason: Option<String>,
    #[serde(flatten)]
    pub delivery: Delivery,
    #[serde(default, with = "rfc3339::optional")]
    #[schemars(with = "Option<String>")]
    pub delivered_at: Option<Time>,
}

impl Question {
    /// The name of its session, if it has one.
    pub fn session_label(&self) -> String {
        self.session_name.clone().unwrap_or_else(|| self.session.short())
    }

    /// Sorts a list of the API, which is newest first.
    pub fn sort(questions: &mut [Self]) {
        questions.reverse();
        questions.sort_by(Self::order);
    }

    /// The order of every list: pending ones first, oldest first; settled ones newest first.
    pub fn order(one: &Self, other: &Self) -> Ordering {
        let pending = |question: &Self| question.status == QuestionStatus::Pending;
        waiting_first((pending(one), one.asked_at), (pending(other), other.asked_at), Ordering::Equal)
    }
}

/// Compares two requests by state and age, pending ones first; `urgent` orders the pending ones before their times do.
pub(super) fn waiting_first(
    (waits, at): (bool, Time),
    (other_waits, other_at): (bool, Time),
    urgent: Ordering,
) -> Ordering {
    match (waits, other_waits) {
        (true, true) => urgent.then_with(|| at.cmp(&other_at)),
        (false, false) => other_at.cmp(&at),
        (one, other) => other.cmp(&one),
    }
}

/// The answer of an operator to a question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QuestionAnswer {
    pub decision: Answer,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instruction: Option<String>,
}

impl From<Answer> for QuestionAnswer {
    fn from(decision: Answer) -> Self {
        Self { decision, instruction: None }
    }
}

impl QuestionAnswer {
    /// An answer that tells the agent to continue differently.
    pub fn refine(instruction: &str) -> Self {
        Self { decision: Answer::Refine, instruction: Some(instruction.to_owned()) }
    }
}

//! What the API answers, as far as its clients show it: the command line and the chat. Lenient: a field that is not there
//! is a field that is not shown.

use std::cmp::Ordering;

use serde::Deserialize;
use serde_json::Value;

use crate::domain::{Event, Json};
use crate::text::{clean, short};

#[derive(Debug, Clone, Deserialize)]
pub struct Session {
    pub id: String,
    pub name: Option<String>,
    pub title: Option<String>,
    pub first_prompt: Option<String>,
    pub agent: Option<String>,
    pub protocol: Option<String>,
    pub workspace: Option<String>,
    pub phase: String,
    pub why: Option<String>,
    pub pid: Option<i64>,
    pub generation: Option<u64>,
    pub turn: Option<Turn>,
    pub pending: Option<Pending>,
    pub queue: Option<Value>,
    pub stderr_tail: Option<String>,
    pub processes: Option<Vec<Process>>,
    pub created_at: Option<String>,
    pub started_at: Option<String>,
    pub ended_at: Option<String>,
    pub exit: Option<Exit>,
    pub failed: Option<Failed>,
    pub unenforced: Option<String>,
    pub preset: Option<String>,
    pub standing: Option<Standing>,
    pub controls: Option<Controls>,
    pub spent: Option<Spent>,
    #[serde(default)]
    pub progress: Vec<Step>,
}

/// One step of what an agent means to do.
#[derive(Debug, Clone, Deserialize)]
pub struct Step {
    pub text: String,
    pub status: String,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Controls {
    pub mode: Option<String>,
    #[serde(default)]
    pub modes: Vec<Named>,
    pub model: Option<String>,
    #[serde(default)]
    pub models: Vec<Named>,
    #[serde(default)]
    pub options: Value,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Named {
    pub id: String,
    pub name: String,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Spent {
    pub turns: u64,
    pub total_tokens: u64,
    pub cost: f64,
    pub currency: Option<String>,
    pub capped: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Standing {
    pub state: Option<String>,
    pub since: Option<String>,
    pub running: Option<Running>,
    pub done: Option<String>,
    pub until: Option<String>,
    pub ladder: Option<String>,
    pub snoozed_until: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Running {
    pub name: String,
    pub since: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Process {
    pub pid: i64,
    pub name: Option<String>,
    pub state: Option<String>,
    pub cpu_seconds: Option<f64>,
    pub memory_bytes: Option<u64>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Turn {
    pub id: String,
    pub started_at: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Pending {
    pub clearances: Option<Value>,
    pub questions: Option<Value>,
}

/// A failure that no operator has seen yet.
#[derive(Debug, Clone, Deserialize)]
pub struct Failed {
    pub reason: String,
    pub at: String,
    /// What to do about it now.
    pub hint: Option<String>,
    pub kind: Option<String>,
    /// What to do once somebody has logged in.
    pub after_log_in: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Exit {
    pub code: Option<i64>,
    pub signal: Option<Value>,
    pub reason: Option<String>,
}

impl Session {
    /// The start of its process, else its own beginning: a process that could not be started has no time.
    pub fn began_at(&self) -> Option<&str> {
        self.started_at.as_deref().or(self.created_at.as_deref())
    }

    /// What people call it: its name if it has one.
    pub fn label(&self) -> String {
        self.name.clone().unwrap_or_else(|| short(&self.id))
    }

    /// Its name and its id, or its id alone.
    pub fn name_and_id(&self) -> String {
        let id = short(&self.id);
        self.name.as_ref().map_or_else(|| id.clone(), |name| format!("{name} ({id})"))
    }

    /// The word of the phase column for an agent that is stuck, or whose process is stopped.
    pub const STUCK: &str = "stuck";
    /// Its agent runs, and the database does not know what it was told.
    pub const ORPHAN: &'static str = "orphan";
    /// The word of the phase column for a failure that no operator has seen.
    pub const FAILED: &str = "failed";

    /// Returns the failure that nobody has seen, unless its agent works again.
    pub fn failure(&self) -> Option<&Failed> {
        self.failed.as_ref().filter(|_| !matches!(self.phase.as_str(), "waiting" | "working"))
    }

    /// Returns the word of the phase column: the phase, unless its agent has failed or is stuck in it. *Parked* says as much.
    pub fn phase_word(&self) -> &str {
        let state = self.standing.as_ref().and_then(|standing| standing.state.as_deref());
        match self.phase.as_str() {
            phase if self.failure().is_some() && phase != "parked" => Self::FAILED,
            "working" | "idle" if matches!(state, Some("stuck" | "gone")) => Self::STUCK,
            "working" | "idle" if state == Some(Self::ORPHAN) => Self::ORPHAN,
            phase => phase,
        }
    }

    /// How soon somebody should look at it, least first: a failure, somebody waited for, an agent that is stuck or parked.
    pub fn urgency(&self) -> u8 {
        match self.phase_word() {
            _ if self.failure().is_some() => 0,
            "waiting" => 1,
            Self::STUCK | Self::ORPHAN | "parked" => 2,
            _ => 3,
        }
    }

    /// Whether the watch has more to say of its agent than its phase.
    pub fn is_watched_closely(&self) -> bool {
        self.standing.as_ref().is_some_and(|standing| standing.since.is_some())
    }

    /// Its title, or what it was asked first where its title is only its name.
    pub fn own_title(&self) -> Option<&str> {
        let title = self.title.as_deref().filter(|title| Some(*title) != self.name.as_deref());
        title.or(self.first_prompt.as_deref())
    }

    pub fn pending_clearances(&self) -> usize {
        self.pending.as_ref().map_or(0, |pending| count(pending.clearances.as_ref()))
    }

    pub fn pending_questions(&self) -> usize {
        self.pending.as_ref().map_or(0, |pending| count(pending.questions.as_ref()))
    }

    pub fn queued(&self) -> usize {
        count(self.queue.as_ref())
    }

    pub fn snoozed_until(&self) -> Option<&str> {
        self.standing.as_ref()?.snoozed_until.as_deref()
    }

    /// If it is not simply the configured one.
    pub fn ladder(&self) -> Option<String> {
        let ladder = self.standing.as_ref()?.ladder.clone()?;
        (ladder != "on").then_some(ladder)
    }
}

/// A number, or a list of the things themselves.
fn count(value: Option<&Value>) -> usize {
    match value {
        Some(Value::Array(items)) => items.len(),
        Some(number) => number.as_u64().and_then(|number| usize::try_from(number).ok()).unwrap_or(0),
        None => 0,
    }
}

#[derive(Debug, Clone, Deserialize)]
pub struct Clearance {
    pub id: String,
    pub session: String,
    pub session_name: Option<String>,
    pub action: Option<String>,
    pub title: String,
    pub description: Option<String>,
    pub diff: Option<String>,
    pub file_path: Option<String>,
    pub tool: Option<String>,
    #[serde(default)]
    pub more_paths: Vec<String>,
    pub risk: Option<String>,
    pub claimed_risk: Option<String>,
    pub options: Option<Vec<Choice>>,
    pub status: String,
    pub delivery: Option<Value>,
    pub delivery_cause: Option<String>,
    pub requested_at: Option<String>,
    pub decided_by: Option<String>,
    pub decided_at: Option<String>,
    pub reason: Option<String>,
    pub option: Option<String>,
    pub delivered_at: Option<String>,
    pub outcome: Option<String>,
    pub command: Option<String>,
    pub computed_risk: Option<String>,
    #[serde(default)]
    pub risk_why: Vec<String>,
    pub expires_at: Option<String>,
    pub ruling: Option<Ruling>,
    pub needed: Option<usize>,
    #[serde(default)]
    pub approvals: Vec<String>,
    pub decided_via: Option<String>,
    #[serde(default)]
    pub hidden: Vec<String>,
}

/// What policy said.
#[derive(Debug, Clone, Deserialize)]
pub struct Ruling {
    pub outcome: String,
    pub why: String,
    #[serde(default)]
    pub whom: Vec<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Choice {
    pub id: String,
    pub name: Option<String>,
    pub kind: Option<String>,
}

impl Clearance {
    /// What it is about, on one line: what would run or change, then the agent's title.
    pub fn line(&self) -> String {
        crate::action::line(self.action.as_deref(), &self.title)
    }

    /// What people call its session.
    pub fn session_label(&self) -> String {
        self.session_name.clone().unwrap_or_else(|| short(&self.session))
    }

    /// Sorts what the API lists newest first; of two that came in the same moment, the later one is the newer.
    pub fn sort(clearances: &mut [Self]) {
        clearances.reverse();
        clearances.sort_by(Self::order);
    }

    /// The order of every list: pending ones first, of these the riskiest, of these the oldest; settled ones newest first.
    pub fn order(one: &Self, other: &Self) -> Ordering {
        let urgent = other.rank().cmp(&one.rank());
        waiting_first((&one.status, &one.requested_at), (&other.status, &other.requested_at), urgent)
    }

    /// A risk that we do not know counts as high, as a missing claim of an agent does.
    fn rank(&self) -> u8 {
        match self.risk() {
            "low" => 0,
            "medium" => 1,
            "critical" => 3,
            _ => 2,
        }
    }

    pub fn risk(&self) -> &str {
        self.risk.as_deref().unwrap_or("?")
    }

    pub fn delivery(&self) -> Delivery {
        Delivery::read(self.delivery.as_ref(), self.delivery_cause.as_deref())
    }
}

/// Two requests by status and time; `urgent` orders the pending ones before their times do.
fn waiting_first<'a>(
    (status, at): (&'a str, &'a Option<String>),
    (other_status, other_at): (&'a str, &'a Option<String>),
    urgent: Ordering,
) -> Ordering {
    match (status == "pending", other_status == "pending") {
        (true, true) => urgent.then_with(|| at.cmp(other_at)),
        (false, false) => other_at.cmp(at),
        (one, other) => other.cmp(&one),
    }
}

#[derive(Debug, Clone, Deserialize)]
pub struct Question {
    pub id: String,
    pub session: String,
    pub session_name: Option<String>,
    pub text: String,
    #[serde(rename = "type")]
    pub sort: Option<String>,
    pub status: String,
    pub decision: Option<String>,
    pub instruction: Option<String>,
    pub asked_at: Option<String>,
    pub answered_by: Option<String>,
    pub answered_at: Option<String>,
    pub delivery: Option<Value>,
    pub delivery_cause: Option<String>,
}

impl Question {
    /// What people call its session.
    pub fn session_label(&self) -> String {
        self.session_name.clone().unwrap_or_else(|| short(&self.session))
    }

    /// Sorts what the API lists newest first.
    pub fn sort(questions: &mut [Self]) {
        questions.reverse();
        questions.sort_by(Self::order);
    }

    /// The order of every list: pending ones first, oldest first; settled ones newest first.
    pub fn order(one: &Self, other: &Self) -> Ordering {
        waiting_first((&one.status, &one.asked_at), (&other.status, &other.asked_at), Ordering::Equal)
    }

    pub fn delivery(&self) -> Delivery {
        Delivery::read(self.delivery.as_ref(), self.delivery_cause.as_deref())
    }
}

#[derive(Debug, Clone, Deserialize)]
pub struct Prompt {
    pub id: String,
    pub text: Option<String>,
    pub state: String,
    pub by: Option<String>,
    pub at: Option<String>,
    /// Why it did not arrive.
    pub error: Option<String>,
}

impl Prompt {
    pub fn delivery(&self) -> Delivery {
        Delivery::read(Some(&Value::from(self.state.clone())), self.error.as_deref())
    }
}

/// What was said to an agent at once.
#[derive(Debug, Clone, Deserialize)]
pub struct Sent {
    pub session: Option<String>,
    delivery: Option<Value>,
    delivery_cause: Option<String>,
}

impl Sent {
    pub fn delivery(&self) -> Delivery {
        Delivery::read(self.delivery.as_ref(), self.delivery_cause.as_deref())
    }
}

/// Whether an answer has reached the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delivery {
    Delivered,
    Failed(String),
    /// `none`, `pending`, or a state that we do not know.
    Other(String),
}

impl Delivery {
    /// The cause of a failure stands beside the state, or inside it.
    fn read(delivery: Option<&Value>, cause: Option<&str>) -> Self {
        let unknown = "the daemon does not say why";
        match delivery {
            Some(Value::String(state)) if state == "delivered" => Self::Delivered,
            Some(Value::String(state)) if state == "failed" => {
                Self::Failed(cause.unwrap_or(unknown).to_owned())
            }
            Some(Value::String(state)) => Self::Other(state.clone()),
            Some(Value::Object(failed)) if failed.contains_key("failed") => {
                Self::Failed(failed["failed"].as_str().or(cause).unwrap_or(unknown).to_owned())
            }
            Some(Value::Null) | None => Self::Other("none".to_owned()),
            Some(other) => Self::Other(other.to_string()),
        }
    }

    /// Nothing where all is well, else what is not.
    pub fn unless_delivered(&self) -> String {
        match self {
            Self::Delivered => String::new(),
            other => format!(" ({})", clean(&other.describe())),
        }
    }

    pub fn describe(&self) -> String {
        match self {
            Self::Delivered => "delivered".to_owned(),
            Self::Failed(cause) => format!("not delivered: {cause}"),
            Self::Other(state) if state == "pending" => "not delivered yet".to_owned(),
            Self::Other(state) => state.clone(),
        }
    }
}

/// An event as a client receives it, with the JSON it came as.
#[derive(Debug, Clone)]
pub struct ReceivedEvent {
    pub seq: u64,
    pub session: String,
    pub at: String,
    pub event: Event,
    /// Its payload, also as far as this version does not know it.
    pub data: Json,
    pub raw: String,
}

impl ReceivedEvent {
    pub fn parse(raw: &str) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Received {
            seq: u64,
            session: String,
            at: String,
            kind: String,
            #[serde(default)]
            data: Option<Json>,
        }
        let Received { seq, session, at, kind, data } = serde_json::from_str(raw)?;
        let data = data.unwrap_or_else(|| Json::trusted("null"));
        let event = Event::parse(&kind, &data);
        // Between the tokens of JSON a line feed is only space, and inside a string there is none.
        Ok(Self { seq, session, at, event, data, raw: raw.trim().replace(['\n', '\r'], " ") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_session_is_read_with_absent_and_unknown_fields() {
        let body = json!({"id": "ses_0123456789", "phase": "waiting", "new": {"x": 1}, "name": null,
            "pending": {"clearances": 2, "questions": ["qst_1"]}, "queue": null});
        let session: Session = serde_json::from_value(body).unwrap();
        assert_eq!(session.label(), "ses_01234567");
        assert_eq!((session.pending_clearances(), session.pending_questions(), session.queued()), (2, 1, 0));
    }

    #[test]
    fn a_failed_delivery_says_why() {
        let failed = |delivery, cause| Delivery::read(Some(&delivery), cause).describe();
        assert_eq!(failed(json!("failed"), Some("stream closed")), "not delivered: stream closed");
        assert_eq!(failed(json!({"failed": "stream closed"}), None), "not delivered: stream closed");
        assert_eq!(failed(json!("pending"), None), "not delivered yet");
        assert_eq!(Delivery::read(Some(&json!("delivered")), None), Delivery::Delivered);
        assert_eq!(Delivery::read(None, None).describe(), "none");
    }

    #[test]
    fn an_event_keeps_its_json_on_one_line() {
        let raw =
            "{\n \"seq\": 7, \"session\": \"ses_1\",\n \"at\": \"\", \"kind\": \"new\", \"more\": 1.10}";
        let event = ReceivedEvent::parse(raw).unwrap();
        assert_eq!(event.seq, 7);
        assert!(!event.raw.contains('\n') && event.raw.contains("1.10"));
    }
}

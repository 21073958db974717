//! What the daemon answers, as far as we show it. Lenient: a field we do not find is a field we do not show.

use serde::Deserialize;
use serde_json::Value;

use super::terminal::Style;

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Session {
    pub(super) id: String,
    pub(super) name: Option<String>,
    pub(super) agent: Option<String>,
    pub(super) protocol: Option<String>,
    pub(super) workspace: Option<String>,
    pub(super) phase: String,
    pub(super) why: Option<String>,
    pub(super) pid: Option<i64>,
    pub(super) generation: Option<u64>,
    pub(super) turn: Option<Turn>,
    pub(super) pending: Option<Pending>,
    pub(super) queue: Option<Value>,
    pub(super) stderr_tail: Option<String>,
    pub(super) processes: Option<Vec<Process>>,
    pub(super) started_at: Option<String>,
    pub(super) ended_at: Option<String>,
    pub(super) exit: Option<Exit>,
    pub(super) unenforced: Option<String>,
    pub(super) standing: Option<Standing>,
    pub(super) controls: Option<Controls>,
    pub(super) spent: Option<Spent>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Controls {
    pub(super) mode: Option<String>,
    #[serde(default)]
    pub(super) modes: Vec<Named>,
    pub(super) model: Option<String>,
    #[serde(default)]
    pub(super) models: Vec<Named>,
    #[serde(default)]
    pub(super) options: Value,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Named {
    pub(super) id: String,
    pub(super) name: String,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Spent {
    pub(super) turns: u64,
    pub(super) total_tokens: u64,
    pub(super) cost: f64,
    pub(super) currency: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Standing {
    pub(super) state: Option<String>,
    pub(super) ladder: Option<String>,
    pub(super) snoozed_until: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Process {
    pub(super) pid: i64,
    pub(super) name: Option<String>,
    pub(super) state: Option<String>,
    pub(super) cpu_seconds: Option<f64>,
    pub(super) memory_bytes: Option<u64>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Turn {
    pub(super) id: String,
    pub(super) started_at: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Pending {
    pub(super) clearances: Option<Value>,
    pub(super) questions: Option<Value>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Exit {
    pub(super) code: Option<i64>,
    pub(super) signal: Option<Value>,
    pub(super) reason: Option<String>,
}

impl Session {
    /// What people call it: its name if it has one.
    pub(super) fn label(&self) -> String {
        self.name.clone().unwrap_or_else(|| super::text::short(&self.id))
    }

    pub(super) fn pending_clearances(&self) -> usize {
        self.pending.as_ref().map_or(0, |pending| count(pending.clearances.as_ref()))
    }

    pub(super) fn pending_questions(&self) -> usize {
        self.pending.as_ref().map_or(0, |pending| count(pending.questions.as_ref()))
    }

    pub(super) fn queued(&self) -> usize {
        count(self.queue.as_ref())
    }

    pub(super) fn snoozed_until(&self) -> Option<&str> {
        self.standing.as_ref()?.snoozed_until.as_deref()
    }

    /// If it is not simply the configured one.
    pub(super) fn ladder(&self) -> Option<String> {
        let ladder = self.standing.as_ref()?.ladder.clone()?;
        (ladder != "on").then_some(ladder)
    }

    pub(super) fn phase_style(&self) -> Style {
        let stalled = self.standing.as_ref().and_then(|standing| standing.state.as_deref());
        match self.phase.as_str() {
            "working" | "idle" if matches!(stalled, Some("stuck" | "gone")) => Style::Red,
            "waiting" => Style::Yellow,
            "working" => Style::Green,
            "stopping" | "parked" => Style::Red,
            "ended" => Style::Dim,
            _ => Style::Plain,
        }
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
pub(super) struct Clearance {
    pub(super) id: String,
    pub(super) session: String,
    pub(super) title: String,
    pub(super) description: Option<String>,
    pub(super) diff: Option<String>,
    pub(super) file_path: Option<String>,
    pub(super) risk: Option<String>,
    pub(super) claimed_risk: Option<String>,
    pub(super) options: Option<Vec<Choice>>,
    pub(super) status: String,
    pub(super) delivery: Option<Value>,
    pub(super) delivery_cause: Option<String>,
    pub(super) requested_at: Option<String>,
    pub(super) decided_by: Option<String>,
    pub(super) decided_at: Option<String>,
    pub(super) reason: Option<String>,
    pub(super) outcome: Option<String>,
    pub(super) command: Option<String>,
    pub(super) computed_risk: Option<String>,
    #[serde(default)]
    pub(super) risk_why: Vec<String>,
    pub(super) expires_at: Option<String>,
    pub(super) ruling: Option<Ruling>,
    pub(super) needed: Option<usize>,
    #[serde(default)]
    pub(super) approvals: Vec<String>,
    pub(super) decided_via: Option<String>,
    #[serde(default)]
    pub(super) hidden: Vec<String>,
}

/// What policy said.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Ruling {
    pub(super) outcome: String,
    pub(super) why: String,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Choice {
    pub(super) id: String,
    pub(super) name: Option<String>,
    pub(super) kind: Option<String>,
}

impl Clearance {
    pub(super) fn risk(&self) -> &str {
        self.risk.as_deref().unwrap_or("?")
    }

    pub(super) fn delivery(&self) -> Delivery {
        Delivery::read(self.delivery.as_ref(), self.delivery_cause.as_deref())
    }
}

pub(super) fn risk_style(risk: &str) -> Style {
    match risk {
        "low" => Style::Green,
        "medium" => Style::Yellow,
        _ => Style::Red,
    }
}

pub(super) fn status_style(status: &str) -> Style {
    match status {
        "pending" | "queued" => Style::Yellow,
        "approved" | "answered" | "delivered" => Style::Green,
        "denied" | "failed" => Style::Red,
        _ => Style::Dim,
    }
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Question {
    pub(super) id: String,
    pub(super) session: String,
    pub(super) text: String,
    #[serde(rename = "type")]
    pub(super) sort: Option<String>,
    pub(super) status: String,
    pub(super) decision: Option<String>,
    pub(super) instruction: Option<String>,
    pub(super) asked_at: Option<String>,
    pub(super) answered_by: Option<String>,
    pub(super) delivery: Option<Value>,
    pub(super) delivery_cause: Option<String>,
}

impl Question {
    pub(super) fn delivery(&self) -> Delivery {
        Delivery::read(self.delivery.as_ref(), self.delivery_cause.as_deref())
    }
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Prompt {
    pub(super) id: String,
    pub(super) text: Option<String>,
    pub(super) state: String,
    pub(super) by: Option<String>,
    pub(super) at: Option<String>,
    /// Why it did not arrive.
    pub(super) error: Option<String>,
}

impl Prompt {
    pub(super) fn delivery(&self) -> Delivery {
        Delivery::read(Some(&Value::from(self.state.clone())), self.error.as_deref())
    }
}

/// What was said to an agent at once.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Sent {
    delivery: Option<Value>,
    delivery_cause: Option<String>,
}

impl Sent {
    pub(super) fn delivery(&self) -> Delivery {
        Delivery::read(self.delivery.as_ref(), self.delivery_cause.as_deref())
    }
}

/// Whether an answer has reached the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Delivery {
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
    pub(super) fn unless_delivered(&self) -> String {
        match self {
            Self::Delivered => String::new(),
            other => format!(" ({})", super::text::clean(&other.describe())),
        }
    }

    pub(super) fn describe(&self) -> String {
        match self {
            Self::Delivered => "delivered".to_owned(),
            Self::Failed(cause) => format!("not delivered: {cause}"),
            Self::Other(state) if state == "pending" => "not delivered yet".to_owned(),
            Self::Other(state) => state.clone(),
        }
    }
}

/// A fact in the log, with the JSON it came as.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Event {
    pub(super) seq: u64,
    pub(super) session: String,
    pub(super) at: String,
    pub(super) kind: String,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) data: Value,
    #[serde(skip)]
    pub(super) raw: String,
}

/// What agents say is valid JSON, but not all of that fits into a `Value` (`1e999`): then it is shown as text.
fn lenient<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
    let raw = Box::<serde_json::value::RawValue>::deserialize(deserializer)?;
    Ok(serde_json::from_str(raw.get()).unwrap_or_else(|_| raw.get().into()))
}

impl Event {
    pub(super) fn parse(raw: &str) -> Result<Self, serde_json::Error> {
        let mut event: Self = serde_json::from_str(raw)?;
        // Between the tokens of JSON a line feed is only space, and inside a string there is none.
        event.raw = raw.trim().replace(['\n', '\r'], " ");
        Ok(event)
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
        let event = Event::parse(raw).unwrap();
        assert_eq!(event.seq, 7);
        assert!(!event.raw.contains('\n') && event.raw.contains("1.10"));
    }
}

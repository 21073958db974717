//! What the API answers, as far as its clients show it: the command line and the chat. Lenient: a field that is not there
//! is a field that is not shown.

use serde::Deserialize;
use serde_json::Value;

use crate::domain::{Event, Json};
use crate::text::short;

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
    fn an_event_keeps_its_json_on_one_line() {
        let raw =
            "{\n \"seq\": 7, \"session\": \"ses_1\",\n \"at\": \"\", \"kind\": \"new\", \"more\": 1.10}";
        let event = ReceivedEvent::parse(raw).unwrap();
        assert_eq!(event.seq, 7);
        assert!(!event.raw.contains('\n') && event.raw.contains("1.10"));
    }
}

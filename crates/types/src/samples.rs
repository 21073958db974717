//! Recorded events and cases of folding, for the tests of every crate that reads events.

#![allow(clippy::unwrap_used, reason = "only tests use it")]

use std::path::Path;

use serde::Deserialize;

use crate::{Event, EventKind, Json, LoggedEvent, SessionId, Time};

/// The recorded payloads of a kind.
pub(crate) fn golden(kind: EventKind) -> Vec<String> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/event/golden");
    let path = directory.join(format!("{}.jsonl", kind.as_str()));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines().map(str::to_owned).collect()
}

/// A recorded event of this kind, with these fields in place of its own.
pub fn sample(kind: EventKind, fields: &serde_json::Value) -> LoggedEvent {
    let mut data: serde_json::Value = serde_json::from_str(&golden(kind)[0]).unwrap();
    if kind.is_said_by_agent() {
        data = fields.clone(); // a message of the agent's is as it is
    } else {
        data.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    }
    let event = Event::parse(kind.as_str(), &Json::of(&data));
    assert_eq!(event.kind(), Some(kind), "not understood: {} {data}", kind.as_str());
    logged(&event)
}

pub(crate) fn logged(event: &Event) -> LoggedEvent {
    LoggedEvent {
        seq: 1,
        session: SessionId::from_seed([1; 10]),
        at: Time::from_millis(0),
        kind: event.name().to_owned(),
        data: Json::trusted(event.data()),
    }
}

/// A case that every view of the log folds in the same way.
#[derive(Debug, Deserialize)]
pub struct FoldCase {
    pub name: String,
    pub events: Vec<(String, serde_json::Value)>,
    /// The speaker and the text of each message.
    pub messages: Vec<(String, String)>,
}

impl FoldCase {
    pub fn events(&self) -> Vec<Event> {
        self.events.iter().map(|(kind, data)| Event::parse(kind, &Json::of(data))).collect()
    }
}

pub fn fold_cases() -> Vec<FoldCase> {
    serde_json::from_str(include_str!("../../../tests/console/fold-cases.json")).unwrap()
}

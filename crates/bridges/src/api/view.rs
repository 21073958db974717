//! Events as they look over the API.

use schemars::JsonSchema;
use serde::Deserialize;

use intercom_types::text::cut;
use intercom_types::{EventBody, EventKind, LoggedEvent};

/// Columns of a summary: an agent's line may have megabytes, which the data has already.
const MAX_SUMMARY: usize = 1000;

/// The events that are given with their summaries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "Summaries")]
pub(super) enum SummaryMode {
    #[default]
    True,
    False,
    /// Those about which intercom speaks; an agent's own words are in the data.
    Own,
}

pub(super) fn event(event: LoggedEvent, summaries: SummaryMode) -> EventBody {
    let summary = match summaries {
        SummaryMode::True => Some(event.event().summary(|time| time.to_string())),
        SummaryMode::Own if event.known_kind().is_some_and(EventKind::is_said_by_agent) => None,
        SummaryMode::Own => Some(event.event().summary(|time| time.to_string())),
        SummaryMode::False => None,
    };
    EventBody {
        tone: summary.as_ref().map(|summary| summary.tone),
        summary: summary.map(|summary| cut(&summary.sentence(), MAX_SUMMARY)),
        seq: event.seq,
        session: event.session.to_string(),
        at: event.at.to_string(),
        kind: event.kind,
        data: event.data,
    }
}

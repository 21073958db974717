//! The API's views of events, tokens and the audit. Absent values are `null`; times are RFC 3339.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use intercom_types::summary::Tone;
use intercom_types::text::cut;
use intercom_types::{AuditRow, EventKind, LoggedEvent, Time, Token};

fn stamp(time: Option<Time>) -> Option<String> {
    time.map(|time| time.to_string())
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct EventView {
    seq: u64,
    session: String,
    at: String,
    kind: String,
    #[schemars(with = "serde_json::Value")]
    data: intercom_types::Json,
    /// The event in English. Text of an agent begins with a mark such as `agent> `; times are RFC 3339 in UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tone: Option<Tone>,
}

/// The column limit of a summary: an agent's line may have megabytes, which are in the data already.
const MAX_SUMMARY: usize = 1000;

/// The selection of events with summaries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "Summaries")]
pub(super) enum SummaryMode {
    #[default]
    True,
    False,
    /// Only intercom's own events; agent text is in the data.
    Own,
}

/// A page of the log, oldest first.
// Serialised directly: a detour over `Value` would change the agent's JSON.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct EventPage {
    pub(super) items: Vec<EventView>,
    pub(super) next: Option<u64>,
}

pub(super) fn event(event: LoggedEvent, summaries: SummaryMode) -> EventView {
    let summary = match summaries {
        SummaryMode::True => Some(event.event().summary(|time| time.to_string())),
        SummaryMode::Own if event.known_kind().is_some_and(EventKind::is_said_by_agent) => None,
        SummaryMode::Own => Some(event.event().summary(|time| time.to_string())),
        SummaryMode::False => None,
    };
    EventView {
        tone: summary.as_ref().map(|summary| summary.tone),
        summary: summary.map(|summary| cut(&summary.sentence(), MAX_SUMMARY)),
        seq: event.seq,
        session: event.session.to_string(),
        at: event.at.to_string(),
        kind: event.kind,
        data: event.data,
    }
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct TokenView {
    id: String,
    name: String,
    role: String,
    created_by: String,
    created_at: String,
    expires_at: Option<String>,
    revoked_at: Option<String>,
    last_used_at: Option<String>,
    last_used_from: Option<String>,
    /// True if it is valid now.
    valid: bool,
}

pub(super) fn token(t: Token) -> TokenView {
    TokenView {
        valid: t.is_valid(Time::now()),
        id: t.id.to_string(),
        name: t.name,
        role: t.role.as_str().to_owned(),
        created_by: t.created_by,
        created_at: t.created_at.to_string(),
        expires_at: stamp(t.expires_at),
        revoked_at: stamp(t.revoked_at),
        last_used_at: stamp(t.last_used_at),
        last_used_from: t.last_used_from,
    }
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct AuditView {
    n: u64,
    at: String,
    action: String,
    by: String,
    /// `person`, `rule`, `agent`, `intercom` or `nobody`.
    actor: &'static str,
    session: Option<String>,
    #[schemars(with = "serde_json::Value")]
    data: intercom_types::Json,
    hash: String,
}

pub(super) fn audit(row: AuditRow) -> AuditView {
    AuditView {
        actor: row.actor().as_str(),
        n: row.n,
        at: row.at.to_string(),
        action: row.action,
        by: row.by,
        session: row.session,
        data: row.data,
        hash: row.hash,
    }
}

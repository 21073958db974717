//! The health of the daemon.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::{Extension, Json};
use schemars::JsonSchema;
use serde::Serialize;

use super::ApiBridge;
use super::error::ApiError;
use super::extract::{NoFields, StrictQuery};
use intercom_daemon::ops::Caller;
use intercom_daemon::session::{failed_commands, quarantined_lines};
use intercom_store::{ClearanceFilter, QuestionFilter};

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Health")]
pub(super) struct HealthView {
    status: String,
    version: String,
    #[serde(flatten)]
    more: Option<HealthDetails>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "More")]
struct HealthDetails {
    sessions: SessionCounts,
    bridges: BTreeMap<String, String>,
    last_seq: u64,
    /// Problems that need a person, such as a broken audit chain or a database that cannot be written.
    warnings: Vec<String>,
    /// Lines of agents that the daemon rejected since its start because it failed at them. Any is a bug in intercom.
    quarantined_lines: u64,
    /// The caller's name and role.
    you: CallerView,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Sessions")]
struct SessionCounts {
    live: i64,
    total: i64,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "You")]
struct CallerView {
    name: String,
    role: String,
    /// True if the caller may start and resume agents.
    may_start: bool,
}

pub(super) async fn health(
    State(api): State<ApiBridge>,
    caller: Option<Extension<Caller>>,
    StrictQuery(NoFields {}): StrictQuery<NoFields>,
) -> Result<Json<HealthView>, ApiError> {
    let more = match caller {
        None => None,
        Some(Extension(caller)) => {
            let (live, total) = api.store().count_sessions().await?;
            Some(HealthDetails {
                sessions: SessionCounts { live, total },
                bridges: bridges(&api),
                last_seq: api.bell().listen().newest(),
                warnings: warnings(&api).await?,
                quarantined_lines: quarantined_lines(),
                you: CallerView {
                    name: caller.name,
                    role: caller.role.to_string(),
                    may_start: caller.role >= api.supervisor().config().access.start(),
                },
            })
        }
    };
    Ok(Json(HealthView { status: "ok".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned(), more }))
}

async fn warnings(api: &ApiBridge) -> Result<Vec<String>, ApiError> {
    let read_only = api.store().probe_failure().await.map(|why| {
        format!(
            "read-only: the database cannot be written ({why}); commands are refused, agents can be stopped"
        )
    });
    let audit = api.store().audit_warnings().await?;
    let failed = Some(failed_commands()).filter(|count| *count > 0).map(|count| {
        format!("intercom failed at {count} commands and took them back; please report this bug with the daemon's log")
    });
    let audit = audit.into_iter().map(|warning| format!("audit: {warning}"));
    Ok(read_only.into_iter().chain(failed).chain(audit).collect())
}

fn bridges(api: &ApiBridge) -> BTreeMap<String, String> {
    let others =
        api.0.conditions.all().into_iter().map(|(name, condition)| (name.to_owned(), condition.status));
    [("api".to_owned(), "ok".to_owned())].into_iter().chain(others).collect()
}

/// Prometheus text.
pub(super) async fn metrics(State(api): State<ApiBridge>) -> Result<impl IntoResponse, ApiError> {
    let store = api.store();
    let (live, total) = store.count_sessions().await?;
    let pending = ClearanceFilter { status: Some(intercom_types::ClearanceStatus::Pending), session: None };
    let clearances = store.clearances(pending, None, 1000).await?.items.len();
    let pending = QuestionFilter { status: Some(intercom_types::QuestionStatus::Pending), session: None };
    let questions = store.questions(pending, None, 1000).await?.items.len();
    let events = api.bell().listen().newest();
    let mut text = String::new();
    let mut metric = |name: &str, kind: &str, help: &str, value: String| {
        writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}")
            .expect("a String takes any text");
    };
    metric("intercom_sessions_live", "gauge", "Sessions that have not ended.", live.to_string());
    metric("intercom_sessions", "gauge", "Sessions in the database.", total.to_string());
    metric("intercom_clearances_pending", "gauge", "Pending clearances.", clearances.to_string());
    metric("intercom_questions_pending", "gauge", "Pending questions.", questions.to_string());
    for (bridge, condition) in api.0.conditions.all() {
        for (name, help, value) in condition.metrics {
            metric(&format!("intercom_{bridge}_{name}"), "gauge", help, value.to_string());
        }
    }
    metric(
        "intercom_lines_quarantined_total",
        "counter",
        "Lines of agents that intercom rejected because it failed at them (a bug).",
        quarantined_lines().to_string(),
    );
    metric(
        "intercom_commands_failed_total",
        "counter",
        "Commands of operators that failed inside of intercom and were undone (a bug).",
        failed_commands().to_string(),
    );
    metric("intercom_events_total", "counter", "Events ever written to the log.", events.to_string());
    Ok((StatusCode::OK, [(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text))
}

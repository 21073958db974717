//! The health of the daemon, and its metrics.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::{Extension, Json};

use super::ApiBridge;
use super::access::KnownCaller;
use super::error::ApiError;
use super::extract::{NoFields, StrictQuery};
use intercom_daemon::ops::Caller;
use intercom_types::Health;

pub(super) async fn health(
    State(api): State<ApiBridge>,
    caller: Option<Extension<Caller>>,
    StrictQuery(NoFields {}): StrictQuery<NoFields>,
) -> Result<Json<Health>, ApiError> {
    let caller = caller.as_ref().map(|Extension(caller)| caller);
    Ok(Json(api.ops().health(caller, bridges(&api)).await?))
}

fn bridges(api: &ApiBridge) -> BTreeMap<String, String> {
    let others =
        api.0.conditions.all().into_iter().map(|(name, condition)| (name.to_owned(), condition.status));
    [("api".to_owned(), "ok".to_owned())].into_iter().chain(others).collect()
}

/// Prometheus text.
pub(super) async fn metrics(
    State(api): State<ApiBridge>,
    KnownCaller(caller): KnownCaller,
) -> Result<impl IntoResponse, ApiError> {
    let counts = api.ops().counts(&caller).await?;
    let sessions = counts.sessions;
    let mut text = String::new();
    let mut metric = |name: &str, kind: &str, help: &str, value: String| {
        writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}")
            .expect("a String takes any text");
    };
    metric("intercom_sessions_live", "gauge", "Sessions that have not ended.", sessions.live.to_string());
    metric("intercom_sessions", "gauge", "Sessions in the database.", sessions.total.to_string());
    metric(
        "intercom_clearances_pending",
        "gauge",
        "Pending clearances.",
        counts.pending_clearances.to_string(),
    );
    metric("intercom_questions_pending", "gauge", "Pending questions.", counts.pending_questions.to_string());
    for (bridge, condition) in api.0.conditions.all() {
        for (name, help, value) in condition.metrics {
            metric(&format!("intercom_{bridge}_{name}"), "gauge", help, value.to_string());
        }
    }
    metric(
        "intercom_lines_quarantined_total",
        "counter",
        "Lines of agents that intercom rejected because it failed at them (a bug).",
        counts.quarantined_lines.to_string(),
    );
    metric(
        "intercom_commands_failed_total",
        "counter",
        "Commands of operators that failed inside of intercom and were undone (a bug).",
        counts.failed_commands.to_string(),
    );
    metric("intercom_events_total", "counter", "Events ever written to the log.", counts.events.to_string());
    Ok((StatusCode::OK, [(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text))
}

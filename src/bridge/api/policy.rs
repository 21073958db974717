//! Policy: what is in force, why it decided as it did, what another one would have done, and what is allowed always.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use super::Api;
use super::access::{Caller, audited};
use super::error::ApiError;
use super::extract::{Body, Nothing, Query, ShortList, limit, the};
use super::view;
use crate::action::action;
use crate::config::{self, Config, ConfigError};
use crate::domain::{
    Clearance, ClearanceExplanation, ConfigReload, Grant, GrantId, Json as Raw, List, Outcome,
    RememberedRule, RuleExplanation, RulesDifference, RulesTest, RulesTestResult, Time, parse_duration,
};
use crate::policy::{Explained, Rule, Rules};
use crate::store::StoreError;
use crate::supervisor::policy::{Difference, Explanation};

/// Reads the configuration again.
pub type ReadConfig = Arc<dyn Fn() -> Result<Config, ConfigError> + Send + Sync>;

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct PolicyView {
    loaded_at: String,
    /// As they stand in the configuration, in order.
    rules: Vec<Value>,
    /// When each of them ends by `until` or `for`, in the same order; null for one without an end.
    ends_at: Vec<Option<String>>,
    grants: usize,
}

pub(super) async fn show(
    State(api): State<Api>,
    Query(Nothing {}): Query<Nothing>,
) -> Result<Json<PolicyView>, ApiError> {
    let force = api.supervisor().in_force();
    let grants = api.store().grants().await?.into_iter().filter(|grant| grant.is_valid(Time::now())).count();
    let rules = force.config.rules.iter().map(|rule| json!(rule)).collect();
    let ends_at = force.rules().ends().map(|ends| ends.map(|at| at.to_string())).collect();
    Ok(Json(PolicyView { loaded_at: force.loaded_at.to_string(), rules, ends_at, grants }))
}

pub(super) async fn reload(
    State(api): State<Api>,
    caller: Caller,
    Body(Nothing {}): Body<Nothing>,
) -> Result<Json<ConfigReload>, ApiError> {
    let reloaded = api.reload(&caller.name, &caller.via).await.map_err(|error| match error {
        ReloadError::Config(error) => {
            ApiError::unprocessable("bad_config", error.to_string()).hint("what was in force stays in force")
        }
        ReloadError::Store(error) => error.into(),
    })?;
    Ok(Json(reloaded))
}

/// Why what was in force stays in force.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReloadError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Api {
    /// Reads the configuration again and puts it in force; a bad one changes nothing.
    pub(super) async fn reload(&self, by: &str, via: &str) -> Result<ConfigReload, ReloadError> {
        let read = Arc::clone(&self.0.read_config);
        let read = tokio::task::spawn_blocking(move || read()).await;
        let new = read.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
        let old = self.supervisor().config();
        let restart = [
            ("api", old.api != new.api),
            ("audit", old.audit != new.audit),
            ("daemon", old.daemon != new.daemon),
            ("slack", !old.slack.same_link(&new.slack)),
            ("webhook", old.webhook != new.webhook),
        ];
        let needs_restart: Vec<String> =
            restart.into_iter().filter(|(_, changed)| *changed).map(|(what, _)| what.to_owned()).collect();
        self.supervisor().reload(new).await?;
        let reloaded = ConfigReload { needs_restart, ..self.unchanged() };
        tracing::info!(rules = reloaded.rules, by, "the configuration was read again");
        let digest = self.supervisor().in_force().digest();
        let data = json!({
            "rules": reloaded.rules, "rules_sha256": digest, "needs_restart": reloaded.needs_restart, "via": via,
        });
        self.record("config.reloaded", by, None, Raw::of(&data)).await;
        Ok(reloaded)
    }

    /// Says in the audit what a daemon begins with. `false` if that could not be written.
    pub async fn record_start(&self) -> bool {
        let force = self.supervisor().in_force();
        let data = json!({
            "version": env!("CARGO_PKG_VERSION"), "pid": std::process::id(), "rules": force.rules().len(),
            "rules_sha256": force.digest(),
        });
        self.record("daemon.started", "intercom", None, Raw::of(&data)).await
    }

    fn unchanged(&self) -> ConfigReload {
        let force = self.supervisor().in_force();
        let (loaded_at, rules) = (force.loaded_at, force.rules().len());
        ConfigReload { loaded_at, rules, needs_restart: Vec::new() }
    }

    /// The same for a signal.
    pub async fn reload_on_signal(&self) {
        if let Err(error) = self.reload("SIGHUP", "signal").await {
            tracing::error!(%error, "the configuration is not used; what was in force stays in force");
        }
    }
}

pub(super) async fn explain(
    State(api): State<Api>,
    caller: Caller,
    Path(id): Path<String>,
    Query(Nothing {}): Query<Nothing>,
) -> Result<Json<ClearanceExplanation>, ApiError> {
    let clearance = api.clearance(&id).await?;
    let Explanation { ruling, rules, proposal } = api.explanation(&clearance).await?;
    let (proposal, no_proposal) = match proposal {
        Ok(rule) => (Some(json!(rule)), None),
        Err(why) => (None, Some(why)),
    };
    let may_not_approve = api.may_approve(&caller, &clearance).err().map(ApiError::into_message);
    Ok(Json(ClearanceExplanation {
        clearance: view::clearance_for(caller.role, clearance),
        now: ruling,
        rules: rules.into_iter().map(explained).collect(),
        proposal,
        no_proposal,
        may_not_approve,
    }))
}

fn explained(found: Explained) -> RuleExplanation {
    let Explained { index, name, then, unmet, decides } = found;
    let (matches, (unmet, why)) = (unmet.is_none(), unmet.unzip());
    let unmet = unmet.map(str::to_owned);
    RuleExplanation { n: index + 1, name, then: then.as_str().to_owned(), matches, decides, unmet, why }
}

impl Api {
    async fn explanation(&self, clearance: &Clearance) -> Result<Explanation, ApiError> {
        let session = self.session(&clearance.session.to_string()).await?;
        Ok(self
            .supervisor()
            .explain(session.agent, session.workspace, session.preset, clearance.clone())
            .await?)
    }

    /// The rule that was shown is the rule that is stored: both must be what we would propose now.
    pub(super) async fn proposed(
        &self,
        clearance: &Clearance,
        remember: &RememberedRule,
    ) -> Result<Rule, ApiError> {
        let rule = self.explanation(clearance).await?.proposal.map_err(|why| {
            ApiError::unprocessable("not_rememberable", format!("no safe rule can be made of it: {why}"))
        })?;
        if json!(rule) != remember.rule {
            let message = "the rule that would be stored is not the one that was sent";
            return Err(ApiError::conflict("rule_changed", message).with("proposal", json!(rule)));
        }
        expiry(remember, Time::now())?;
        Ok(rule)
    }

    pub(super) async fn remember(
        &self,
        caller: &Caller,
        clearance: &Clearance,
        rule: &Rule,
        remember: &RememberedRule,
    ) -> Result<GrantId, ApiError> {
        let now = Time::now();
        let expires_at = expiry(remember, now)?;
        let grant = Grant {
            id: GrantId::mint(),
            rule: Raw::of(rule),
            clearance: clearance.id,
            created_by: caller.name.clone(),
            created_at: now,
            expires_at,
            revoked_at: None,
        };
        let data = json!({
            "grant": grant.id, "clearance": clearance.id, "rule": rule, "via": caller.via,
            "expires_at": expires_at.map(|at| at.to_string()),
        });
        let id = grant.id;
        let entry = audited("grant.created", &caller.name, Some(clearance.session), Raw::of(&data));
        self.supervisor().add_grant(grant, entry).await?;
        Ok(id)
    }
}

/// The end of a grant; `None` if it holds until it is revoked.
fn expiry(remember: &RememberedRule, now: Time) -> Result<Option<Time>, ApiError> {
    let Some(text) = &remember.r#for else { return Ok(None) };
    let lasts = parse_duration(text).filter(|lasts| !lasts.is_zero());
    let bad = || ApiError::bad_request(format!("remember.for: `{text}` is no time such as 2h or 30d"));
    lasts.map(|lasts| Some(now.plus(lasts))).ok_or_else(bad)
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct GrantView {
    id: String,
    rule: Value,
    clearance: String,
    created_by: String,
    created_at: String,
    expires_at: Option<String>,
    revoked_at: Option<String>,
    /// Whether it allows anything now.
    valid: bool,
}

fn grant_view(grant: &Grant) -> GrantView {
    GrantView {
        id: grant.id.to_string(),
        rule: serde_json::from_str(grant.rule.as_str()).unwrap_or(Value::Null),
        clearance: grant.clearance.to_string(),
        created_by: grant.created_by.clone(),
        created_at: grant.created_at.to_string(),
        expires_at: grant.expires_at.map(|at| at.to_string()),
        revoked_at: grant.revoked_at.map(|at| at.to_string()),
        valid: grant.is_valid(Time::now()),
    }
}

pub(super) async fn grants(
    State(api): State<Api>,
    Query(query): Query<ShortList>,
) -> Result<Json<List<GrantView>>, ApiError> {
    limit(query.limit)?;
    let grants = api.store().grants().await?;
    Ok(Json(List::whole(grants.iter().map(grant_view).collect())))
}

pub(super) async fn revoke(
    State(api): State<Api>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    let grant = the("grant", &id, api.store().grant(id.clone()).await?)?;
    let data = Raw::of(&json!({ "grant": grant.id, "via": caller.via }));
    let entry = audited("grant.revoked", &caller.name, None, data);
    if api.supervisor().revoke_grant(&grant, entry).await? {
        return Ok(StatusCode::NO_CONTENT);
    }
    Err(ApiError::conflict("revoked", "the grant was revoked before"))
}

pub(super) async fn test(
    State(api): State<Api>,
    Body(asked): Body<RulesTest>,
) -> Result<Json<RulesTestResult>, ApiError> {
    let file = asked.file.unwrap_or_else(|| "rules".to_owned());
    let config = config::parse(&asked.rules, std::path::Path::new(&file))
        .map_err(|error| ApiError::unprocessable("bad_config", error.to_string()))?;
    let rules = Rules::compile(config.rules, |_| Time::now())
        .map_err(|error| ApiError::unprocessable("bad_config", error.to_string()))?;
    let since = match &asked.since {
        None => Time::from_millis(0),
        Some(text) => {
            Time::parse(text).ok_or_else(|| ApiError::bad_request("since must be an RFC 3339 time"))?
        }
    };
    let tried = api.supervisor().try_rules(rules, since).await?;
    Ok(Json(RulesTestResult {
        requests: tried.requests,
        allowed: tried.allowed,
        denied: tried.denied,
        asked: tried.asked,
        different: tried.different,
        differences: tried.differences.into_iter().map(difference).collect(),
    }))
}

fn difference(found: Difference) -> RulesDifference {
    let Difference { clearance: c, risk, was, would } = found;
    let was = match was {
        Outcome::Allow => "allowed",
        Outcome::Deny => "denied",
        Outcome::Ask => "asked",
    };
    RulesDifference {
        clearance: c.id,
        session: c.session,
        action: action((&c).into()),
        title: c.title,
        file_path: c.file_path,
        command: c.command,
        requested_at: c.requested_at,
        risk: risk.into(),
        was: was.to_owned(),
        status: c.status,
        would,
    }
}

//! Policy: the active rules, trials of other rules, grants, and the reload of the configuration.

use std::sync::Arc;

use serde_json::json;

use super::{Caller, OpError, OperationKind, Operations, audited, limit, require_one};
use crate::config::{self, Config, ConfigError};
use crate::supervisor::policy::RulingDifference;
use intercom_policy::Rules;
use intercom_store::StoreError;
use intercom_types::action::action;
use intercom_types::{
    ConfigReload, Json as Raw, List, ListedGrant, Outcome, PolicySummary, RulesDifference, RulesTest,
    RulesTestResult, Time,
};

/// The function that reads the configuration again.
pub type ConfigReader = Arc<dyn Fn() -> Result<Config, ConfigError> + Send + Sync>;

/// The reasons why the previous configuration stays active.
#[derive(Debug, thiserror::Error)]
enum ReloadError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Operations {
    /// Returns the active rules.
    pub async fn policy(&self, caller: &Caller) -> Result<PolicySummary, OpError> {
        self.admit(caller, OperationKind::Read)?;
        let active = self.supervisor().in_force();
        let grants =
            self.store().grants().await?.into_iter().filter(|grant| grant.is_valid(Time::now())).count();
        let rules = active.config.rules.iter().map(|rule| json!(rule)).collect();
        let ends_at = active.rules().ends().map(|ends| ends.map(|at| at.to_string())).collect();
        let policy = PolicySummary { loaded_at: active.loaded_at, rules, ends_at, grants };
        self.shown(caller, policy).await
    }

    /// Returns the decisions that other rules would have made; changes nothing.
    pub async fn test_rules(&self, caller: &Caller, asked: RulesTest) -> Result<RulesTestResult, OpError> {
        self.admit(caller, OperationKind::TestRules)?;
        let file = asked.file.unwrap_or_else(|| "rules".to_owned());
        let config = config::parse(&asked.rules, std::path::Path::new(&file))
            .map_err(|error| OpError::unprocessable("bad_config", error.to_string()))?;
        let rules = Rules::compile(config.rules, |_| Time::now())
            .map_err(|error| OpError::unprocessable("bad_config", error.to_string()))?;
        let since = match &asked.since {
            None => Time::from_millis(0),
            Some(text) => {
                Time::parse(text).ok_or_else(|| OpError::bad_request("since must be an RFC 3339 time"))?
            }
        };
        let tried = self.supervisor().try_rules(rules, since).await?;
        Ok(RulesTestResult {
            requests: tried.requests,
            allowed: tried.allowed,
            denied: tried.denied,
            asked: tried.asked,
            different: tried.different,
            differences: tried.differences.into_iter().map(difference).collect(),
        })
    }

    /// Returns all grants, newest first, whatever the limit: there are never many.
    pub async fn grants(&self, caller: &Caller, most: Option<usize>) -> Result<List<ListedGrant>, OpError> {
        self.admit(caller, OperationKind::Read)?;
        limit(most)?;
        let grants = self.store().grants().await?;
        self.shown(caller, List::whole(grants.into_iter().map(ListedGrant::from).collect())).await
    }

    pub async fn revoke_grant(&self, caller: &Caller, typed: &str) -> Result<(), OpError> {
        self.admit(caller, OperationKind::RevokeGrant)?;
        let grant = require_one("grant", typed, self.store().grant(typed.to_owned()).await?)?;
        let data = Raw::of(&json!({ "grant": grant.id, "via": caller.via }));
        let entry = audited("grant.revoked", &caller.name, None, data);
        if self.supervisor().revoke_grant(&grant, entry).await? {
            return Ok(());
        }
        Err(OpError::conflict("revoked", "the grant has already been revoked"))
    }

    pub async fn reload(&self, caller: &Caller) -> Result<ConfigReload, OpError> {
        self.admit(caller, OperationKind::Reload)?;
        self.read_again(&caller.name, &caller.via).await.map_err(|error| match error {
            ReloadError::Config(error) => OpError::unprocessable("bad_config", error.to_string())
                .hint("the previous configuration stays active"),
            ReloadError::Store(error) => error.into(),
        })
    }

    /// Reloads the configuration; an invalid one changes nothing.
    async fn read_again(&self, by: &str, via: &str) -> Result<ConfigReload, ReloadError> {
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
        tracing::info!(rules = reloaded.rules, by, "the configuration was reloaded");
        let digest = self.supervisor().in_force().digest();
        let data = json!({
            "rules": reloaded.rules, "rules_sha256": digest, "needs_restart": reloaded.needs_restart, "via": via,
        });
        self.record("config.reloaded", by, None, Raw::of(&data)).await;
        Ok(reloaded)
    }

    /// Records in the audit the configuration with which the daemon starts. Returns false if that fails.
    pub async fn record_start(&self) -> bool {
        let active = self.supervisor().in_force();
        let data = json!({
            "version": env!("CARGO_PKG_VERSION"), "pid": std::process::id(), "rules": active.rules().count(),
            "rules_sha256": active.digest(),
        });
        self.record("daemon.started", "intercom", None, Raw::of(&data)).await
    }

    fn unchanged(&self) -> ConfigReload {
        let active = self.supervisor().in_force();
        let (loaded_at, rules) = (active.loaded_at, active.rules().count());
        ConfigReload { loaded_at, rules, needs_restart: Vec::new() }
    }

    /// Reloads the configuration on a signal.
    pub async fn reload_on_signal(&self) {
        if let Err(error) = self.read_again("SIGHUP", "signal").await {
            tracing::error!(%error, "the configuration is invalid; the previous one stays active");
        }
    }
}

fn difference(found: RulingDifference) -> RulesDifference {
    let RulingDifference { clearance: c, risk, was, would } = found;
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

//! Policy for people: reload it, explain it, try other rules on past requests, allow requests always.

use std::path::PathBuf;
use std::sync::Arc;

use super::Supervisor;
use super::policy_engine::{self, ActivePolicy};
use crate::config::Config;
use intercom_policy::{self as policy, Rule, RuleEvaluation, Rules};
use intercom_store::StoreError;
use intercom_types::{Clearance, ClearanceStatus, Grant, NewAuditRow, Outcome, Preset, Risk, Ruling, Time};

/// The number of requests read in one go when rules are tried.
const PAGE: usize = 500;
/// The maximum number of differences that are reported individually.
const MAX_DIFFERENCES: usize = 1000;

/// The explanation of a request's ruling under the rules in force.
#[derive(Debug)]
pub(crate) struct RulingExplanation {
    pub(crate) ruling: Ruling,
    pub(crate) rules: Vec<RuleEvaluation>,
    /// The rule that "always allow" would add, or the reason why there is none.
    pub(crate) proposal: Result<Rule, String>,
}

/// The results of trying other rules on past requests.
#[derive(Debug, Default)]
pub(crate) struct RuleTrial {
    pub(crate) requests: usize,
    pub(crate) allowed: usize,
    pub(crate) denied: usize,
    pub(crate) asked: usize,
    /// The number of requests with another ruling, and these requests, riskiest first.
    pub(crate) different: usize,
    pub(crate) differences: Vec<RulingDifference>,
}

/// A request with another ruling.
#[derive(Debug)]
pub(crate) struct RulingDifference {
    pub(crate) clearance: Clearance,
    pub(crate) risk: Risk,
    /// The actual outcome: decided by a rule, or left to people.
    pub(crate) was: Outcome,
    pub(crate) would: Ruling,
}

impl Supervisor {
    pub(crate) fn in_force(&self) -> Arc<ActivePolicy> {
        self.0.policy_engine.in_force()
    }

    /// Activates the configured rules and the stored grants. Called once at the start, before any session exists.
    pub async fn load_policy(&self) -> Result<(), StoreError> {
        if let Err(error) = self.put_in_force(self.config()).await {
            let StoreError::Unavailable(_) = error else { return Err(error) };
            // A daemon on a full disk must start. New rules with a time limit are inactive until a reload: their start
            // cannot be stored, and the limit would begin again with the next daemon.
            tracing::warn!(%error, "new rules with a time limit are inactive; retry with `intercom reload`");
            let config = self.config();
            let noted = self.store().rule_first_seen().await?;
            let lasting = config.rules.iter().filter(|rule| rule.lasts.is_some()).map(Rule::content);
            let begin = |content: &String| noted.get(content).copied().unwrap_or(Time::from_millis(0));
            let seen = lasting.map(|content| (content.clone(), begin(&content))).collect();
            self.0.policy_engine.reload(config, &seen);
        }
        self.load_grants().await
    }

    /// Activates a new configuration, also for running agents and the port. On an error nothing has changed.
    pub(crate) async fn reload(&self, config: Config) -> Result<(), StoreError> {
        let _turn = self.0.granting.lock().await;
        self.put_in_force(Arc::new(config)).await
    }

    /// Stores the rules first, so that the limit of a rule with a time limit does not begin anew with the next daemon.
    async fn put_in_force(&self, config: Arc<Config>) -> Result<(), StoreError> {
        let lasting = config.rules.iter().filter(|rule| rule.lasts.is_some()).map(Rule::content).collect();
        let seen = self.store().record_rules(lasting, Time::now()).await?;
        self.0.policy_engine.reload(config, &seen);
        Ok(())
    }

    async fn load_grants(&self) -> Result<(), StoreError> {
        let grants = self.store().grants().await?;
        let valid = grants.into_iter().filter(|grant| grant.revoked_at.is_none()).collect();
        self.0.policy_engine.grant(valid);
        Ok(())
    }

    pub(crate) async fn add_grant(&self, grant: Grant, entry: NewAuditRow) -> Result<(), StoreError> {
        let _turn = self.0.granting.lock().await;
        self.store().add_grant(grant, entry).await?;
        self.load_grants().await
    }

    /// Revokes a grant; returns true if it was valid until now.
    pub(crate) async fn revoke_grant(&self, grant: &Grant, entry: NewAuditRow) -> Result<bool, StoreError> {
        let _turn = self.0.granting.lock().await;
        // In memory first: from here on it allows nothing, even if the store is slow.
        self.0.policy_engine.revoke(grant.id);
        self.store().revoke_grant(grant.id.to_string(), Time::now(), entry).await
    }

    /// Returns the ruling of each active rule on a request of the ledger.
    pub(crate) async fn explain(
        &self,
        agent: Option<String>,
        workspace: PathBuf,
        preset: Preset,
        clearance: Clearance,
    ) -> Result<RulingExplanation, StoreError> {
        let active = self.in_force();
        let explaining = tokio::task::spawn_blocking(move || {
            let request = policy::resolve(policy_engine::of_clearance(agent, workspace, &clearance));
            let (assessment, now) = (policy::assess(&request), Time::now());
            RulingExplanation {
                ruling: active.rule_under(preset, &request, &assessment, now),
                rules: policy::explain(active.rules(), &request, &assessment, now),
                proposal: policy::proposal(&request, &assessment),
            }
        });
        explaining.await.map_err(|_| StoreError::Closed)
    }

    /// Tries these rules on all requests since then. Changes nothing.
    pub(crate) async fn try_rules(&self, rules: Rules, since: Time) -> Result<RuleTrial, StoreError> {
        let (mut tried, mut after) = (RuleTrial::default(), 0);
        let proposed = Arc::new(self.in_force().with_rules(rules));
        loop {
            let page = self.store().requests(since, after, PAGE).await?;
            let Some(last) = page.last().map(|request| request.key) else { break };
            after = last;
            let proposed = Arc::clone(&proposed);
            let judging = tokio::task::spawn_blocking(move || {
                let now = Time::now();
                let judge = |request: intercom_store::StoredRequest| {
                    let intercom_store::StoredRequest { clearance, agent, workspace, .. } = request;
                    let resolved = policy::resolve(policy_engine::of_clearance(agent, workspace, &clearance));
                    let assessment = policy::assess(&resolved);
                    let would = policy_engine::ruled_by_preset(&clearance)
                        .unwrap_or_else(|| proposed.rule(&resolved, &assessment, now));
                    let was = was(&clearance);
                    RulingDifference { clearance, risk: assessment.risk, was, would }
                };
                page.into_iter().map(judge).collect::<Vec<_>>()
            });
            for judged in judging.await.map_err(|_| StoreError::Closed)? {
                tried.count(judged);
            }
        }
        tried.differences.sort_by_key(|difference| std::cmp::Reverse(difference.risk));
        tried.differences.truncate(MAX_DIFFERENCES);
        Ok(tried)
    }
}

impl RuleTrial {
    fn count(&mut self, judged: RulingDifference) {
        self.requests += 1;
        match judged.would.outcome {
            Outcome::Allow => self.allowed += 1,
            Outcome::Deny => self.denied += 1,
            Outcome::Ask => self.asked += 1,
        }
        if judged.would.outcome != judged.was {
            self.different += 1;
            self.differences.push(judged);
            // Bounded: of too many differences, the least risky are only counted.
            if self.differences.len() >= 2 * MAX_DIFFERENCES {
                self.differences.sort_by_key(|difference| std::cmp::Reverse(difference.risk));
                self.differences.truncate(MAX_DIFFERENCES);
            }
        }
    }
}

/// Returns the ruling at the time; before there was any policy, people decided everything.
fn was(clearance: &Clearance) -> Outcome {
    match clearance.ruling.as_ref().map(|ruling| ruling.outcome) {
        Some(Outcome::Allow) if clearance.status == ClearanceStatus::Approved => Outcome::Allow,
        Some(Outcome::Deny) if clearance.status == ClearanceStatus::Denied => Outcome::Deny,
        _ => Outcome::Ask,
    }
}

//! The watch policies of sessions, from the configuration.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::config::{AGENT_CATALOG, AgentProfile, CatalogAgent, Config, RestartPolicy, catalog_agent};
use crate::session::restart::{RestartCondition, RestartTerms};
use crate::session::{SpendCaps, StallThresholds, WatchPolicy};

/// The policy of each profile, and the general one.
#[derive(Debug, Clone)]
pub(super) struct WatchPolicies {
    profiles: BTreeMap<String, Arc<WatchPolicy>>,
    general: Arc<WatchPolicy>,
}

impl WatchPolicies {
    pub(super) fn new(config: &Config) -> Self {
        let general = AgentProfile::default();
        let of = |name: &str, profile: &AgentProfile| {
            let asking_advice = catalog_agent(name).and_then(CatalogAgent::asking_advice);
            (name.to_owned(), Arc::new(WatchPolicy { asking_advice, ..watch_policy(config, profile) }))
        };
        let built_in = AGENT_CATALOG.iter().map(|known| of(known.name, &general));
        let configured = config.agents.iter().map(|(name, profile)| of(name, profile));
        Self {
            profiles: built_in.chain(configured).collect(),
            general: Arc::new(watch_policy(config, &general)),
        }
    }

    pub(super) fn of(&self, agent: Option<&str>) -> Arc<WatchPolicy> {
        Arc::clone(agent.and_then(|name| self.profiles.get(name)).unwrap_or(&self.general))
    }
}

/// Converts an amount to millionths; 0 means no limit.
fn micros(amount: f64) -> Option<u64> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "validation accepts no others"
    )]
    (amount > 0.0).then_some((amount * 1e6) as u64)
}

fn watch_policy(config: &Config, profile: &AgentProfile) -> WatchPolicy {
    let spend = profile.spend.over(&config.spend);
    let (stall, restart) = (profile.stall.over(&config.stall), profile.restart.over(&config.restart));
    WatchPolicy {
        ladder: stall.ladder.0,
        thresholds: StallThresholds {
            silent_after: stall.silent_after.0,
            no_cpu_after: stall.no_cpu_after.0,
            busy_after: stall.busy_after.0,
            heartbeats_count_for: stall.heartbeats_count_for.0,
            stopped_after: stall.stopped_after.0,
        },
        verify: stall.verify.0,
        interrupt_quiet: profile.interrupt_quiet(&config.acp),
        remind_after: stall.remind_after.0,
        nudge_text: stall.nudge_text,
        reprompt_text: stall.reprompt_text,
        resume_after_limit: stall.resume_after_limit.0,
        resume_text: stall.resume_text,
        spend: SpendCaps { per_session: micros(spend.per_session), per_day: micros(spend.per_day) },
        reason_as_prompt: config.clearances.reason_as_prompt,
        asking_advice: None,
        restart: RestartTerms {
            policy: match restart.policy {
                RestartPolicy::Never => RestartCondition::Never,
                RestartPolicy::OnFailure => RestartCondition::OnFailure,
                RestartPolicy::Always => RestartCondition::Always,
            },
            budget: restart.budget,
            window: restart.window.0,
            first_wait: restart.first_wait.0,
            longest_wait: restart.longest_wait.0,
            repeat_prompt: restart.repeat_prompt,
        },
    }
}

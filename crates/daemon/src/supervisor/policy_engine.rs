//! The assessment of a request before it is recorded: the computed risk, the ruling of the rules, and the terms of the
//! decision.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use tokio::sync::watch;

use super::watch_policies::WatchPolicies;
use crate::config::Config;
use crate::session::{RequestAssessment, RequestAssessor, SessionSpec, WatchPolicy};
use intercom_policy::{self as policy, PolicyRequest, ResolvedRequest, Rule, Rules};
use intercom_types::{
    Clearance, ClearanceRequest, Grant, GrantId, Outcome, Preset, Risk, Ruling, SessionId, Time, Verdict, hex,
};

/// The active configuration and rules. Cloneable; clones share them, so that a reload reaches every session.
#[derive(Debug, Clone)]
pub(super) struct PolicyEngine {
    active: Arc<RwLock<Arc<ActivePolicy>>>,
    /// The version of the policy. Sessions reassess their pending clearances when it rises.
    version: Arc<watch::Sender<u64>>,
    /// The spending of each session on its last day with any, in millionths. Locked only to sum it up.
    spent: Arc<Mutex<HashMap<SessionId, (i64, u64)>>>,
}

/// One version of the policy. Exchanged as a whole, so that a request is assessed by one version only.
#[derive(Debug, Clone)]
pub(crate) struct ActivePolicy {
    pub(crate) config: Arc<Config>,
    rules: Rules,
    pub(crate) loaded_at: Time,
    grants: Vec<(Grant, Rules)>,
    watch_policies: WatchPolicies,
}

impl ActivePolicy {
    /// The rules were checked with the configuration. `seen` has the first appearance of each rule with `for`.
    fn new(config: Arc<Config>, seen: &HashMap<String, Time>, grants: Vec<(Grant, Rules)>) -> Self {
        let loaded_at = Time::now();
        let first_seen = |rule: &Rule| match rule.lasts {
            Some(_) => seen.get(&rule.content()).copied().unwrap_or(loaded_at),
            None => loaded_at,
        };
        let rules = Rules::compile(config.rules.clone(), first_seen).unwrap_or_else(|error| {
            tracing::error!(%error, "the rules are invalid; people decide everything");
            Rules::default()
        });
        let watch_policies = WatchPolicies::new(&config);
        Self { config, rules, loaded_at, grants, watch_policies }
    }

    /// Returns the terms on which a request of this risk is decided. The clock never approves a request that needs
    /// several people, the machine itself, or certain people.
    fn terms(&self, risk: Risk, ruling: Ruling) -> RequestAssessment {
        let settings = &self.config.clearances;
        let needed = settings.needed(risk);
        let guarded = needed > 1 || settings.is_local_only(risk) || !ruling.whom.is_empty();
        let verdict = if guarded { Verdict::Deny } else { settings.on_expiry.verdict() };
        let limit = settings.limit(risk).map(|limit| (limit, verdict));
        RequestAssessment { ruling: Some(ruling), needed, limit, ..RequestAssessment::default() }
    }

    /// Returns the same policy with other rules, to see their effect.
    #[must_use]
    pub(crate) fn with_rules(&self, rules: Rules) -> Self {
        Self { rules, ..self.clone() }
    }

    /// Returns the digest of the rules as written, so that the audit shows changes.
    pub(crate) fn digest(&self) -> String {
        let text = serde_json::to_string(&self.config.rules).expect("rules have string keys only");
        hex(ring::digest::digest(&ring::digest::SHA256, text.as_bytes()).as_ref())
    }

    /// Returns the text of a nudge for an agent of this profile.
    pub(crate) fn nudge_text(&self, agent: Option<&str>) -> String {
        self.watch_policies.of(agent).nudge_text.clone()
    }

    pub(crate) fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Rules on a request: the preset's prohibitions stand, and the rules decide the rest.
    pub(crate) fn rule_under(
        &self,
        preset: Preset,
        request: &ResolvedRequest,
        assessment: &policy::RiskAssessment,
        now: Time,
    ) -> Ruling {
        let forbidden = policy::forbids(preset, request, assessment);
        forbidden.map_or_else(|| self.rule(request, assessment, now), |why| forbidden_by(preset, why))
    }

    fn by_rules(&self, request: &ResolvedRequest, assessment: &policy::RiskAssessment, now: Time) -> Ruling {
        ruling(policy::decide(&self.rules, request, assessment, now))
    }

    /// Rules on a request by the operators' rules first; a grant may allow what they leave to people.
    pub(crate) fn rule(
        &self,
        request: &ResolvedRequest,
        assessment: &policy::RiskAssessment,
        now: Time,
    ) -> Ruling {
        let ruling = self.by_rules(request, assessment, now);
        if ruling.outcome != Outcome::Ask {
            return ruling;
        }
        // A request that needs several people, or the machine itself, needs them every time.
        let settings = &self.config.clearances;
        if settings.needed(assessment.risk) > 1 || settings.is_local_only(assessment.risk) {
            return ruling;
        }
        // If a rule names people, only a grant of one of them counts, because nobody else may decide for them.
        let may = |grant: &Grant| ruling.whom.is_empty() || ruling.whom.contains(&grant.created_by);
        let valid = self.grants.iter().filter(|(grant, _)| grant.is_valid(now) && may(grant));
        let granted = valid.into_iter().find(|(_, rules)| {
            policy::decide(rules, request, assessment, now).outcome == policy::PolicyOutcome::Allow
        });
        match granted {
            None => ruling,
            Some((grant, _)) => Ruling {
                outcome: Outcome::Allow,
                rule: Some(grant.id.to_string()),
                why: format!("allowed always by {} ({})", grant.created_by, grant.id),
                whom: Vec::new(),
            },
        }
    }
}

fn forbidden_by(preset: Preset, why: String) -> Ruling {
    Ruling { outcome: Outcome::Deny, rule: Some(preset.rule()), why, whom: Vec::new() }
}

/// Returns the preset's ruling on a request, which no rule would have changed.
pub(crate) fn ruled_by_preset(clearance: &Clearance) -> Option<Ruling> {
    let by = |ruling: &&Ruling| {
        let rule = ruling.rule.as_deref();
        ruling.outcome == Outcome::Deny && Preset::ALL.iter().any(|preset| rule == Some(&preset.rule()))
    };
    clearance.ruling.as_ref().filter(by).cloned()
}

/// Converts a ruling to the ledger's type.
fn ruling(found: policy::PolicyRuling) -> Ruling {
    let policy::PolicyRuling { outcome, rule, why } = found;
    let (outcome, whom) = match outcome {
        policy::PolicyOutcome::Allow => (Outcome::Allow, Vec::new()),
        policy::PolicyOutcome::Deny { .. } => (Outcome::Deny, Vec::new()),
        policy::PolicyOutcome::Ask { whom } => (Outcome::Ask, whom),
    };
    Ruling { outcome, rule: rule.map(|(_, name)| name), why, whom }
}

/// Returns a new request as policy sees it.
fn subject_of_request(spec: &SessionSpec, ask: &ClearanceRequest) -> PolicyRequest {
    PolicyRequest {
        agent: spec.agent.clone(),
        workspace: spec.workspace.clone(),
        tool: tool(ask.tool.as_deref(), ask.command.is_some(), ask.diff.is_some() || ask.file_path.is_some()),
        title: ask.title.clone(),
        paths: ask.file_path.iter().chain(&ask.more_paths).cloned().collect(),
        command: ask.command.clone(),
        diff: ask.diff.clone(),
        claimed: ask.claims_risk.then(|| Risk::of_claim(ask.claimed_risk.as_deref())),
    }
}

/// Returns a request of the ledger as policy sees it.
pub(crate) fn of_clearance(
    agent: Option<String>,
    workspace: std::path::PathBuf,
    c: &Clearance,
) -> PolicyRequest {
    PolicyRequest {
        agent,
        workspace,
        tool: tool(c.tool.as_deref(), c.command.is_some(), c.diff.is_some() || c.file_path.is_some()),
        title: c.title.clone(),
        paths: c.file_path.iter().chain(&c.more_paths).cloned().collect(),
        command: c.command.clone(),
        diff: c.diff.clone(),
        // If the claimed risk was not recorded, the larger of the two risks shows a claim.
        claimed: (c.claimed_risk.is_some() || c.risk.level() > c.computed_risk.level())
            .then(|| Risk::of_claim(c.claimed_risk.as_deref())),
    }
}

/// Returns the tool that the agent named, or else the one that fits: `execute` for a command, `edit` for a
/// path or a diff.
fn tool(named: Option<&str>, runs: bool, edits: bool) -> Option<String> {
    let seen = if runs { Some("execute") } else { edits.then_some("edit") };
    named.or(seen).map(str::to_owned)
}

impl PolicyEngine {
    pub(super) fn new(config: Arc<Config>) -> Self {
        Self {
            active: Arc::new(RwLock::new(Arc::new(ActivePolicy::new(config, &HashMap::new(), Vec::new())))),
            version: Arc::new(watch::Sender::new(0)),
            spent: Arc::default(),
        }
    }

    pub(super) fn config(&self) -> Arc<Config> {
        Arc::clone(&self.in_force().config)
    }

    pub(super) fn in_force(&self) -> Arc<ActivePolicy> {
        Arc::clone(&self.active.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Activates another policy and notifies every session.
    fn change(&self, next: impl FnOnce(&ActivePolicy) -> ActivePolicy) {
        {
            let mut current = self.active.write().unwrap_or_else(PoisonError::into_inner);
            *current = Arc::new(next(&current));
        }
        // After the exchange: a session that is notified must find the new policy.
        self.version.send_modify(|version| *version += 1);
    }

    pub(super) fn reload(&self, config: Arc<Config>, seen: &HashMap<String, Time>) {
        self.change(|current| ActivePolicy::new(config, seen, current.grants.clone()));
    }

    pub(super) fn revoke(&self, id: GrantId) {
        self.change(|current| {
            let mut without = current.clone();
            without.grants.retain(|(grant, _)| grant.id != id);
            without
        });
    }

    /// Replaces the grants. An unreadable grant allows nothing.
    pub(super) fn grant(&self, grants: Vec<Grant>) {
        let compiled = grants.into_iter().filter_map(|grant| {
            let rule: Option<Rule> = serde_json::from_str(grant.rule.as_str()).ok();
            let rules = rule.and_then(|rule| Rules::compile(vec![rule], |_| grant.created_at).ok());
            if rules.is_none() {
                tracing::error!(grant = %grant.id, "a grant cannot be read and allows nothing");
            }
            Some((grant, rules?))
        });
        let compiled: Vec<_> = compiled.collect();
        self.change(|current| ActivePolicy { grants: compiled, ..current.clone() });
    }
}

impl RequestAssessor for PolicyEngine {
    fn record_spend(&self, session: SessionId, day: i64, micros: u64) -> u64 {
        let mut spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        spent.retain(|_, (on, _)| *on == day);
        if micros > 0 {
            spent.insert(session, (day, micros));
        }
        let others = spent.iter().filter(|(id, _)| **id != session).map(|(_, (_, micros))| *micros);
        others.fold(0, u64::saturating_add)
    }

    fn watch_policy(&self, spec: &SessionSpec) -> Arc<WatchPolicy> {
        self.in_force().watch_policies.of(spec.agent.as_deref())
    }

    fn assess(&self, spec: &SessionSpec, ask: &ClearanceRequest) -> RequestAssessment {
        let now = self.in_force();
        let request = policy::resolve(subject_of_request(spec, ask));
        let assessment = policy::assess(&request);
        let ruling = now.rule_under(spec.preset, &request, &assessment, Time::now());
        let forbidden_by = policy::forbidden_by(&request, &assessment);
        let policy::RiskAssessment { risk, computed, reasons: why } = assessment;
        RequestAssessment { risk, computed, why, forbidden_by, ..now.terms(risk, ruling) }
    }

    fn policy(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    fn rule_pending(&self, spec: &SessionSpec, clearance: &Clearance) -> Ruling {
        let active = self.in_force();
        let request = policy::resolve(of_clearance(spec.agent.clone(), spec.workspace.clone(), clearance));
        let mut assessment = policy::assess(&request);
        // People were shown the recorded risk. A lower risk now must not allow a request that was riskier then.
        assessment.risk = assessment.risk.max(clearance.risk.level());
        let now = Time::now();
        if clearance.needed > 1 && policy::forbids(spec.preset, &request, &assessment).is_none() {
            return active.by_rules(&request, &assessment, now); // one person's grant cannot replace several approvals
        }
        active.rule_under(spec.preset, &request, &assessment, now)
    }

    fn unassessed(&self, spec: &SessionSpec) -> RequestAssessment {
        let why = "it could not be assessed in time".to_owned();
        let ruling = match spec.preset {
            Preset::Full => Ruling { outcome: Outcome::Ask, rule: None, why: why.clone(), whom: Vec::new() },
            preset => forbidden_by(preset, format!("{} denies it: {why}", preset.rule())),
        };
        RequestAssessment {
            risk: Risk::Critical,
            computed: Risk::Critical,
            why: vec![why],
            forbidden_by: Preset::ALL.into_iter().filter(|preset| *preset != Preset::Full).collect(),
            ..self.in_force().terms(Risk::Critical, ruling)
        }
    }
}

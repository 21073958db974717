//! Clearances: list, show, explain, decide.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::session_view::{clearance_for, list, with_action};
use super::{Caller, ErrorKind, OpError, OperationKind, Operations, audited, limit, require_one};
use crate::session::{CommandError, CommandRefusal, SessionInput};
use crate::supervisor::policy::RulingExplanation;
use intercom_policy::{Rule, RuleEvaluation};
use intercom_store::ClearanceFilter;
use intercom_types::{
    Clearance, ClearanceExplanation, ClearanceStatus, Decision, Delivery, ErrorAttachment, Grant, GrantId,
    Json as Raw, List, Quorum, RememberChoice, RememberedRule, Role, RuleExplanation, Time, Verdict,
    parse_duration,
};

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClearanceQuery {
    #[schemars(with = "Option<String>")]
    pub(crate) status: Option<ClearanceStatus>,
    pub(crate) session: Option<String>,
    /// Omits each `description` and `diff`, which may be long; `GET /clearances/{id}` has them.
    #[serde(default)]
    pub(crate) brief: bool,
    pub(crate) limit: Option<usize>,
    pub(crate) cursor: Option<i64>,
}

/// The result of a decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum DecisionResult {
    /// Recorded, but more approvals are needed.
    Counted(Box<Quorum>),
    Settled(Box<Clearance>),
}

impl DecisionResult {
    pub fn delivery(&self) -> Option<&Delivery> {
        match self {
            Self::Counted(_) => None,
            Self::Settled(clearance) => Some(&clearance.delivery),
        }
    }
}

impl Operations {
    pub async fn clearances(
        &self,
        caller: &Caller,
        query: ClearanceQuery,
    ) -> Result<List<Clearance>, OpError> {
        self.admit(caller, OperationKind::Read)?;
        let filter = ClearanceFilter { status: query.status, session: self.session_id(query.session).await? };
        let page = self.store().clearances(filter, query.cursor, limit(query.limit)?).await?;
        let page = list(page, |clearance| {
            let clearance = clearance_for(caller.role, clearance);
            if query.brief { clearance.in_brief() } else { clearance }
        });
        self.shown(caller, page).await
    }

    pub async fn clearance(&self, caller: &Caller, typed: &str) -> Result<Clearance, OpError> {
        self.admit(caller, OperationKind::Read)?;
        let clearance = clearance_for(caller.role, self.stored_clearance(typed).await?);
        self.shown(caller, clearance).await
    }

    /// Returns the rules that apply to a clearance, and the rule that allowing it always would add.
    pub async fn explain(&self, caller: &Caller, typed: &str) -> Result<ClearanceExplanation, OpError> {
        self.admit(caller, OperationKind::Read)?;
        let clearance = self.stored_clearance(typed).await?;
        let RulingExplanation { ruling, rules, proposal } = self.explanation(&clearance).await?;
        let (proposal, no_proposal) = match proposal {
            Ok(rule) => (Some(json!(rule)), None),
            Err(why) => (None, Some(why)),
        };
        let may_not_approve = self.may_approve(caller, &clearance).err().map(|error| error.message);
        let explanation = ClearanceExplanation {
            clearance: clearance_for(caller.role, clearance),
            now: ruling,
            rules: rules.into_iter().map(explained).collect(),
            proposal,
            no_proposal,
            may_not_approve,
        };
        self.shown(caller, explanation).await
    }

    pub async fn decide(
        &self,
        caller: &Caller,
        typed: &str,
        decision: Decision,
    ) -> Result<DecisionResult, OpError> {
        self.admit(caller, OperationKind::Decide)?;
        let clearance = self.stored_clearance(typed).await?;
        let Decision { verdict, reason, option, remember } = decision;
        if let Some(option) =
            option.as_ref().filter(|id| !clearance.options.iter().any(|known| known.id == **id))
        {
            let message = format!("the agent does not offer an option `{option}`");
            return Err(OpError::unprocessable("unknown_option", message));
        }
        if clearance.status != ClearanceStatus::Pending {
            return Err(already(clearance));
        }
        if verdict == Verdict::Approve {
            self.may_approve(caller, &clearance)?;
        }
        let remember = match remember {
            Some(RememberChoice::Rule(remember)) => Some(remember),
            Some(RememberChoice::Plain(true)) => {
                let message = "`remember` needs the proposed rule of the clearance's explanation";
                return Err(OpError::unprocessable("rule_required", message));
            }
            Some(RememberChoice::Plain(false)) | None => None,
        };
        let rule = match &remember {
            Some(_) if verdict == Verdict::Deny => {
                return Err(OpError::unprocessable("not_rememberable", "only an approval can be remembered"));
            }
            Some(remember) => Some(self.proposed(&clearance, remember).await?),
            None => None,
        };
        let (by, via) = (caller.name.clone(), caller.via.clone());
        let input = SessionInput::Decide { clearance: clearance.id, verdict, reason, option, by, via };
        match self.supervisor().command(clearance.session, input).await {
            Ok(done) => done.arrival.wait().await,
            Err(CommandError::Refused(refused @ (CommandRefusal::NotOpen | CommandRefusal::Ended))) => {
                let now = self.stored_clearance(&clearance.id).await?;
                let pending = now.status == ClearanceStatus::Pending;
                return Err(if pending { CommandError::Refused(refused).into() } else { already(now) });
            }
            Err(error) => return Err(error.into()),
        }
        let now = self.stored_clearance(&clearance.id).await?;
        // After the decision, so that a clearance that is not approved, perhaps because it needs more approvals, adds
        // no rule.
        if let (Some(rule), Some(remember), true) =
            (&rule, &remember, now.status == ClearanceStatus::Approved)
        {
            self.remember(caller, &clearance, rule, remember).await?;
        }
        self.record_use(caller, clearance.session).await;
        let now = with_action(now);
        Ok(if now.status == ClearanceStatus::Pending {
            let (approvals, needed) = (now.approvals.clone(), now.needed);
            DecisionResult::Counted(Box::new(Quorum { approvals, needed, clearance: now }))
        } else {
            DecisionResult::Settled(Box::new(now))
        })
    }

    async fn stored_clearance(&self, typed: &str) -> Result<Clearance, OpError> {
        require_one("clearance", typed, self.store().clearance(typed.to_owned()).await?)
    }

    /// Checks beyond the role: the people whom the rule names, and the way of the request.
    fn may_approve(&self, caller: &Caller, clearance: &Clearance) -> Result<(), OpError> {
        let forbidden = |code, message: String| Err(OpError::new(ErrorKind::Forbidden, code, message));
        if self.supervisor().config().clearances.is_local_only(clearance.risk.level()) && !caller.local {
            let message = format!(
                "a {} clearance can only be approved on the daemon's own machine",
                clearance.risk.as_str()
            );
            return forbidden("local_only", message);
        }
        let whom = clearance.ruling.as_ref().map(|ruling| ruling.whom.as_slice()).unwrap_or_default();
        let asked = |who: &String| *who == caller.name || who.strip_prefix('@') == Some(caller.role.as_str());
        if !whom.is_empty() && caller.role < Role::Admin && !whom.iter().any(asked) {
            return forbidden("not_asked", format!("only {} may approve this", whom.join(", ")));
        }
        Ok(())
    }

    async fn explanation(&self, clearance: &Clearance) -> Result<RulingExplanation, OpError> {
        let session = self.session_record(&clearance.session.to_string()).await?;
        Ok(self
            .supervisor()
            .explain(session.agent, session.workspace, session.preset, clearance.clone())
            .await?)
    }

    /// Returns the proposed rule. The rule that people saw must be the rule that is stored, so both must equal the
    /// current proposal.
    async fn proposed(&self, clearance: &Clearance, remember: &RememberedRule) -> Result<Rule, OpError> {
        let rule = self.explanation(clearance).await?.proposal.map_err(|why| {
            OpError::unprocessable("not_rememberable", format!("no safe rule is possible: {why}"))
        })?;
        if json!(rule) != remember.rule {
            let message = "the proposed rule has changed since it was shown";
            return Err(
                OpError::conflict("rule_changed", message).with(ErrorAttachment::Proposal(json!(rule)))
            );
        }
        expiry(remember, Time::now())?;
        Ok(rule)
    }

    async fn remember(
        &self,
        caller: &Caller,
        clearance: &Clearance,
        rule: &Rule,
        remember: &RememberedRule,
    ) -> Result<GrantId, OpError> {
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

/// Returns the error for a clearance that is decided already: by whom, how and when.
fn already(clearance: Clearance) -> OpError {
    let by = clearance.decided_by.as_deref().map(|by| format!(" by {by}")).unwrap_or_default();
    let at = clearance.decided_at.map(|at| format!(" at {at}")).unwrap_or_default();
    let why = clearance.reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
    let message = format!("already {}{by}{at}{why}", clearance.status.as_str());
    OpError::conflict("already_decided", message)
        .with(ErrorAttachment::Clearance(Box::new(with_action(clearance))))
}

fn explained(found: RuleEvaluation) -> RuleExplanation {
    let RuleEvaluation { index, name, then, unmet, decides } = found;
    let (matches, (unmet, why)) = (unmet.is_none(), unmet.unzip());
    let unmet = unmet.map(str::to_owned);
    RuleExplanation { n: index + 1, name, then: then.to_string(), matches, decides, unmet, why }
}

/// Returns the end of a grant; `None` if it holds until it is revoked.
fn expiry(remember: &RememberedRule, now: Time) -> Result<Option<Time>, OpError> {
    let Some(text) = &remember.r#for else { return Ok(None) };
    let lasts = parse_duration(text).filter(|lasts| !lasts.is_zero());
    let bad = || OpError::bad_request(format!("remember.for: `{text}` is not a duration such as 2h or 30d"));
    lasts.map(|lasts| Some(now.plus(lasts))).ok_or_else(bad)
}

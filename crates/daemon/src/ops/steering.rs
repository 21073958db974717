//! Orders to a running agent, and its supervision: nudge, interrupt, snooze, ladder, acknowledged failure.

use std::time::Duration;

use super::{Caller, OpError, OperationKind, Operations};
use crate::session::SessionInput;
use intercom_types::{
    Delivery, FailureSeen, InterruptAnswer, InterruptRequest, LadderChange, LadderChoice, NudgeAnswer,
    NudgeRequest, Session, SnoozeRequest, Time, parse_duration,
};

/// The longest snooze; the ladder can be turned off instead.
const LONGEST_SNOOZE: Duration = Duration::from_hours(30 * 24);

impl Operations {
    pub async fn nudge(
        &self,
        caller: &Caller,
        typed: &str,
        nudge: NudgeRequest,
    ) -> Result<NudgeAnswer, OpError> {
        self.admit(caller, OperationKind::Nudge)?;
        let record = self.session_record(typed).await?;
        let usual = || self.supervisor().in_force().nudge_text(record.agent.as_deref());
        let message = nudge.message.unwrap_or_else(usual);
        let input = SessionInput::Nudge { message: message.clone(), by: caller.name.clone() };
        let done = self.command(&record, input).await?;
        let delivery = arrived(done.arrival.outcome().await);
        self.record_use(caller, record.id).await;
        Ok(NudgeAnswer { session: record.id, message, delivery })
    }

    /// Ends the agent's turn.
    pub async fn interrupt(
        &self,
        caller: &Caller,
        typed: &str,
        interrupt: InterruptRequest,
    ) -> Result<InterruptAnswer, OpError> {
        self.admit(caller, OperationKind::Interrupt)?;
        let record = self.session_record(typed).await?;
        let by = caller.name.clone();
        let reason = interrupt.reason.unwrap_or_else(|| format!("interrupted by {by}"));
        let done = self.command(&record, SessionInput::Interrupt { reason: reason.clone(), by }).await?;
        let delivery = match interrupt.wait {
            Some(false) => Some(Delivery::Pending),
            _ => done.arrival.outcome().await,
        };
        self.record_use(caller, record.id).await;
        Ok(InterruptAnswer { session: record.id, reason, delivery: arrived(delivery) })
    }

    /// Records that an operator has seen a failure. Reading a session does not count, because scripts read, too.
    pub async fn acknowledge_failure(
        &self,
        caller: &Caller,
        typed: &str,
        seen: FailureSeen,
    ) -> Result<Session, OpError> {
        self.admit(caller, OperationKind::AcknowledgeFailure)?;
        let record = self.session_record(typed).await?;
        let at = seen.at.map(|at| Time::parse(&at).ok_or_else(|| OpError::bad_request("at: must be a time")));
        let at = at.transpose()?;
        if record.failed.is_some() {
            self.supervisor().mark_seen(record.id, at, caller.name.clone()).await?;
        }
        self.view_after_use(caller, record.id).await
    }

    /// Suspends the steps against a stall for a while.
    pub async fn snooze(
        &self,
        caller: &Caller,
        typed: &str,
        snooze: SnoozeRequest,
    ) -> Result<Session, OpError> {
        self.admit(caller, OperationKind::Snooze)?;
        let record = self.session_record(typed).await?;
        let until = match snooze.r#for.as_str() {
            "off" => None,
            text => {
                let length =
                    parse_duration(text).filter(|length| !length.is_zero() && *length <= LONGEST_SNOOZE);
                let bad = "for: must be a time such as `90s`, `30m` or `2h`, at most 30 days, or `off`";
                Some(Time::now().plus(length.ok_or_else(|| OpError::bad_request(bad))?))
            }
        };
        self.command(&record, SessionInput::Snooze { until, by: caller.name.clone() }).await?;
        self.view_after_use(caller, record.id).await
    }

    /// Sets the ladder of steps against a stall.
    pub async fn change_ladder(
        &self,
        caller: &Caller,
        typed: &str,
        change: LadderChange,
    ) -> Result<Session, OpError> {
        self.admit(caller, OperationKind::ChangeLadder)?;
        let record = self.session_record(typed).await?;
        let choice = parse_ladder(&change.ladder)?;
        self.command(&record, SessionInput::Ladder { choice, by: caller.name.clone() }).await?;
        self.view_after_use(caller, record.id).await
    }
}

pub(super) fn parse_ladder(text: &str) -> Result<LadderChoice, OpError> {
    LadderChoice::parse(text).map_err(|why| OpError::bad_request(format!("ladder: {why}")))
}

/// Returns the delivery. An agent that ended before it took the message has closed its stdin, whichever event arrived
/// first.
pub(super) fn arrived(delivery: Option<Delivery>) -> Delivery {
    delivery.unwrap_or_else(|| Delivery::Failed(Delivery::STREAM_CLOSED.to_owned()))
}

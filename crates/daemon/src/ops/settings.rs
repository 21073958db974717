//! Settings of an agent, and the list of its own sessions.

use std::time::Duration;

use serde_json::Value;

use super::{Caller, ErrorKind, OpError, OperationKind, Operations};
use crate::session::SessionInput;
use intercom_store::bus::BellListener;
use intercom_types::{
    ControlChange, ErrorAttachment, Event, EventKind, Json as Raw, SessionId, SettingAgreed, SettingChange,
    SettingSent, SettingWait,
};

/// The number of events in one read of the log.
const PAGE: usize = 1000;
/// The longest wait for the agent's answer to a change.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// The longest wait for the agent's list of sessions.
const LIST_LIMIT: Duration = Duration::from_secs(10);

/// The result of a change, with the agent's answer if the caller waits for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingResult {
    Sent(SettingSent),
    Agreed(SettingAgreed),
}

impl Operations {
    /// Sets the agent's mode, model or an option.
    pub async fn change_setting(
        &self,
        caller: &Caller,
        typed: &str,
        change: SettingChange,
    ) -> Result<SettingResult, OpError> {
        self.admit(caller, OperationKind::ChangeSetting)?;
        let SettingChange { mode, model, option, value, wait } = change;
        let set = match (mode, model, option, value) {
            (Some(mode), None, None, None) => ControlChange::Mode(mode),
            (None, Some(model), None, None) => ControlChange::Model(model),
            (None, None, Some(id), Some(value)) => ControlChange::Option { id, value },
            _ => {
                let message = "exactly one of `mode`, `model`, and `option` with its `value` is needed";
                return Err(OpError::bad_request(message));
            }
        };
        let record = self.session_record(typed).await?;
        let (session, mut listener) = (record.id, self.bell().listen());
        let after = listener.newest();
        let done = self.command(&record, SessionInput::Set { set, by: caller.name.clone() }).await?;
        let done = match (wait, done.set) {
            (Some(SettingWait::Agent), Some(set)) => {
                let answered = tokio::time::timeout(ANSWER_LIMIT, self.agreed(session, set, after, listener));
                let answer = answered.await.map_err(|_| silent())??;
                SettingResult::Agreed(SettingAgreed { session, set, answer })
            }
            (_, set) => {
                let delivery = super::steering::arrived(done.arrival.outcome().await);
                SettingResult::Sent(SettingSent { session, set, delivery })
            }
        };
        self.record_use(caller, session).await;
        Ok(done)
    }

    /// Returns the agent's own sessions, in its own format.
    pub async fn agent_sessions(&self, caller: &Caller, typed: &str) -> Result<Value, OpError> {
        self.admit(caller, OperationKind::ListAgentSessions)?;
        let record = self.session_record(typed).await?;
        let (session, mut listener) = (record.id, self.bell().listen());
        let after = listener.newest();
        self.command(&record, SessionInput::List).await?;
        let answered = async {
            loop {
                let page = self.store().events(Some(after), Some(session), PAGE).await?.unwrap_or_default();
                let answers = [Some(EventKind::AgentSessions), Some(EventKind::SettingRefused)];
                let found = page.iter().find(|event| answers.contains(&event.known_kind()));
                if let Some(event) = found {
                    return Ok::<_, OpError>(
                        serde_json::from_str(event.data.as_str()).unwrap_or(Value::Null),
                    );
                }
                listener.wait_for_ring().await;
            }
        };
        let sessions = tokio::time::timeout(LIST_LIMIT, answered).await.map_err(|_| silent())??;
        self.record_use(caller, session).await;
        Ok(sessions)
    }

    /// Returns the agent's answer to a change.
    async fn agreed(
        &self,
        session: SessionId,
        set: u64,
        mut after: u64,
        mut listener: BellListener,
    ) -> Result<Raw, OpError> {
        let ended = || OpError::conflict("ended", "the agent ended before it answered");
        loop {
            let page = self.store().events(Some(after), Some(session), PAGE).await?.unwrap_or_default();
            after = page.last().map_or(after, |event| event.seq);
            for event in &page {
                match event.event() {
                    Event::AgentExited(_) => return Err(ended()),
                    Event::SettingAccepted(accepted) if accepted.set == Some(set) => {
                        return Ok(accepted.result);
                    }
                    Event::SettingRefused(refused) if refused.set == Some(set) => {
                        let error: Value = serde_json::from_str(refused.error.as_str()).unwrap_or_default();
                        return Err(OpError::unprocessable("not_set", refused.reason)
                            .with(ErrorAttachment::AgentError(error)));
                    }
                    _ => {}
                }
            }
            if page.is_empty() && !listener.wait_for_ring().await {
                return Err(ended());
            }
        }
    }
}

fn silent() -> OpError {
    OpError::new(ErrorKind::NoAnswer, "no_answer", "the agent does not answer")
}

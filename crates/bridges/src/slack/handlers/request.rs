//! Operations that people in Slack ask for, as data.

use serde::{Deserialize, Serialize};

use intercom_daemon::ops::{Caller, OpError, Operations};
use intercom_types::{
    Decision, Delivery, InterruptRequest, NewPrompt, NewSession, NudgeRequest, Prompt, QuestionAnswer,
    Session, SnoozeRequest, StopMode,
};

/// An operation with its object, which a person may have typed. Its JSON is compared when its idempotency key is
/// reused.
#[derive(Debug, Clone, Serialize)]
pub(super) enum SlackRequest {
    Decide(String, Decision),
    Answer(String, QuestionAnswer),
    Send(String, NewPrompt),
    Nudge(String, NudgeRequest),
    Interrupt(String),
    Snooze(String, SnoozeRequest),
    Stop(String, StopMode),
    Resume(String),
    Start(Box<NewSession>),
}

/// The part of an operation's result that is shown.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum RequestResult {
    Done,
    Sent(Delivery),
    Prompt(Box<Prompt>),
    Session(Box<Session>),
}

impl SlackRequest {
    /// Executes the operation once under this key.
    pub(super) async fn carry_out(
        self,
        ops: &Operations,
        who: &Caller,
        key: &str,
    ) -> Result<RequestResult, OpError> {
        let (theirs, caller, request) = (ops.clone(), who.clone(), self.clone());
        // Boxed: the futures of all operations together are large.
        let work = Box::pin(async move { request.run(&theirs, &caller).await });
        ops.perform(who, key, &self, work).await
    }

    async fn run(self, ops: &Operations, who: &Caller) -> Result<RequestResult, OpError> {
        Ok(match self {
            Self::Decide(id, decision) => {
                let decided = ops.decide(who, &id, decision).await?;
                decided.delivery().cloned().map_or(RequestResult::Done, RequestResult::Sent)
            }
            Self::Answer(id, answer) => RequestResult::Sent(ops.answer(who, &id, answer).await?.delivery),
            Self::Send(id, prompt) => RequestResult::Prompt(Box::new(ops.send(who, &id, prompt).await?)),
            Self::Nudge(id, nudge) => RequestResult::Sent(ops.nudge(who, &id, nudge).await?.delivery),
            Self::Interrupt(id) => {
                RequestResult::Sent(ops.interrupt(who, &id, InterruptRequest::default()).await?.delivery)
            }
            Self::Snooze(id, snooze) => ops.snooze(who, &id, snooze).await.map(|_| RequestResult::Done)?,
            Self::Stop(id, mode) => ops.stop(who, &id, mode).await.map(|_| RequestResult::Done)?,
            Self::Resume(id) => ops.resume(who, &id).await.map(|_| RequestResult::Done)?,
            Self::Start(session) => RequestResult::Session(Box::new(ops.start(who, *session).await?)),
        })
    }
}

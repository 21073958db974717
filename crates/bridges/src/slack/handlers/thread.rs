//! Replies in a session's thread: commands, and prompts for the agent.

use serde_json::json;

use super::form::always_instructions;
use super::{InteractionHandler, ReplyTarget, RequestResult, Retry, SlackRequest};
use crate::slack::block_kit::MrkdwnText;
use crate::slack::card;
use crate::slack::commands::{PendingKinds, ThreadCommand, decode_text, parse_thread_command};
use crate::slack::interaction::ThreadMessage;
use intercom_daemon::ops::Caller;
use intercom_types::{
    Answer, Clearance, Decision, NewPrompt, NudgeRequest, Prompt, PromptState, Question, QuestionAnswer,
    Verdict,
};
use intercom_types::{Role, SessionId, StopMode, Time};

/// A thread of ours, with its session.
#[derive(Debug, Clone)]
pub(super) struct SessionThread {
    session: SessionId,
}

const TAKEN: &str = "white_check_mark";
const QUEUED: &str = "hourglass_flowing_sand";
const FAILED: &str = "x";

fn reaction(state: &PromptState) -> &'static str {
    match state {
        PromptState::Queued | PromptState::Sending => QUEUED,
        PromptState::Failed(_) | PromptState::Withdrawn => FAILED,
        _ => TAKEN,
    }
}

/// Returns true for a prompt that has not reached the agent: people call it queued.
fn is_queued(prompt: &Prompt) -> bool {
    matches!(prompt.state, PromptState::Queued | PromptState::Sending)
}

impl InteractionHandler {
    pub(super) async fn thread_of(&self, message: &ThreadMessage) -> Result<Option<SessionThread>, Retry> {
        let Some(ts) = message.thread.as_deref().filter(|thread| *thread != message.ts) else {
            return Ok(None);
        };
        let store = &self.0.store;
        // A thread may exist before its ts is stored. Checked first: a root that is not in doubt now is found below.
        let begun = i64::try_from(parse_ts(ts).0).unwrap_or(i64::MAX).saturating_mul(1000);
        let in_doubt = store.slack_thread_may_be_ours(message.channel.clone(), Time::from_millis(begun));
        let in_doubt = in_doubt.await.map_err(|_| Retry)?;
        match store.slack_at(&message.channel, ts).await.map_err(|_| Retry)? {
            None if in_doubt => Err(Retry),
            found => {
                let root = found.filter(|found| found.thread.is_none());
                Ok(root.and_then(|root| root.session).map(|session| SessionThread { session }))
            }
        }
    }

    pub(super) async fn handle_message(
        &self,
        who: &Caller,
        key: &str,
        message: &ThreadMessage,
        thread: &SessionThread,
        target: &ReplyTarget,
    ) -> Result<(), Retry> {
        let id = thread.session.to_string();
        let clearances = self.access().pending_clearances(Some(&id)).await.map_err(|_| Retry)?;
        let questions = self.access().pending_questions(Some(&id)).await.map_err(|_| Retry)?;
        let waiting = PendingKinds { clearances: !clearances.is_empty(), questions: !questions.is_empty() };
        let request = match parse_thread_command(&decode_text(&message.text), waiting) {
            ThreadCommand::Prompt(text) => {
                return self.prompt(who, key, message, thread, &text, target).await;
            }
            ThreadCommand::Status => {
                if let Some(found) = self.access().session(&id).await.map_err(|_| Retry)? {
                    self.reply(target, &card::status("status", &found)).await;
                }
                return Ok(());
            }
            ThreadCommand::Queue => return self.queue(thread.session, target).await,
            ThreadCommand::Help => {
                self.reply(target, &card::help("help")).await;
                return Ok(());
            }
            ThreadCommand::Verbosity(_) if who.role < Role::Operator => {
                let why = format!("this needs the role operator; {} is {}", who.name, who.role);
                self.record_refusal(&who.name, &json!({ "why": why, "via": "slack" })).await;
                self.reply_text(target, MrkdwnText::untrusted(&why)).await;
                return Ok(());
            }
            ThreadCommand::Verbosity(verbosity) => {
                let set = self.0.store.slack_set_verbosity(thread.session, &verbosity.to_string()).await;
                set.map_err(|_| Retry)?;
                return self.acknowledge(message, thread).await;
            }
            ThreadCommand::Always { rule: None, .. } => match select_clearance(&clearances, None) {
                Ok(clearance) => {
                    let shown = self.proposal(who, &clearance.id).await;
                    self.reply_text(
                        target,
                        shown.map_or_else(|why| why, |(_, proposal)| always_instructions(&proposal)),
                    )
                    .await;
                    return Ok(());
                }
                Err(words) => Err(words),
            },
            ThreadCommand::Always { lasts, rule: Some(rule) } => match select_clearance(&clearances, None) {
                Ok(clearance) => {
                    return self.approve_always(who, key, &clearance.id, &rule, Some(&lasts), target).await;
                }
                Err(words) => Err(words),
            },
            ThreadCommand::Approve { which } => match select_clearance(&clearances, which.as_deref()) {
                Ok(clearance) if which.is_none() && !self.was_seen(&clearance.id, message).await? => {
                    Err(not_seen_text(&clearance.id, "approve"))
                }
                found => found
                    .map(|clearance| SlackRequest::Decide(clearance.id.to_string(), Verdict::Approve.into())),
            },
            ThreadCommand::Deny { which, reason } => match select_clearance(&clearances, which.as_deref()) {
                Ok(clearance) if which.is_none() && !self.was_seen(&clearance.id, message).await? => {
                    Err(not_seen_text(&clearance.id, "deny"))
                }
                found => found.map(|clearance| {
                    SlackRequest::Decide(
                        clearance.id.to_string(),
                        Decision { reason, ..Verdict::Deny.into() },
                    )
                }),
            },
            ThreadCommand::Continue => self
                .only_seen_question(&questions, message)
                .await?
                .map(|question| SlackRequest::Answer(question.id.to_string(), Answer::Continue.into())),
            ThreadCommand::Refine(how) => self
                .only_seen_question(&questions, message)
                .await?
                .map(|question| SlackRequest::Answer(question.id.to_string(), QuestionAnswer::refine(&how))),
            ThreadCommand::Stop => Ok(SlackRequest::Stop(id, StopMode::Stop)),
            ThreadCommand::Interrupt => Ok(SlackRequest::Interrupt(id)),
            ThreadCommand::Nudge(message) => Ok(SlackRequest::Nudge(id, NudgeRequest { message })),
        };
        match request {
            Ok(request) => {
                if self.carry_out(who, target, request, key).await? {
                    self.acknowledge(message, thread).await?;
                }
            }
            Err(words) => self.reply_text(target, words).await,
        }
        Ok(())
    }

    /// Returns true if the card was there when the person wrote this. A message can be delayed; it cannot
    /// mean a later card.
    async fn was_seen(&self, id: &str, message: &ThreadMessage) -> Result<bool, Retry> {
        let card = self.0.store.slack_message(id.to_owned()).await.map_err(|_| Retry)?;
        Ok(card.and_then(|card| card.ts).is_some_and(|ts| parse_ts(&ts) <= parse_ts(&message.ts)))
    }

    async fn only_seen_question<'a>(
        &self,
        questions: &'a [Question],
        message: &ThreadMessage,
    ) -> Result<Result<&'a Question, MrkdwnText>, Retry> {
        Ok(match only_question(questions) {
            Ok(question) if !self.was_seen(&question.id, message).await? => Err(MrkdwnText::new(
                "This question is newer than your message, so nothing was done: use its buttons.",
            )),
            found => found,
        })
    }

    async fn prompt(
        &self,
        who: &Caller,
        key: &str,
        message: &ThreadMessage,
        thread: &SessionThread,
        text: &str,
        target: &ReplyTarget,
    ) -> Result<(), Retry> {
        if message.files {
            self.reply_text(target, MrkdwnText::new("Files are not passed on to the agent, only the text."))
                .await;
        }
        if text.is_empty() {
            return Ok(());
        }
        let request = SlackRequest::Send(thread.session.to_string(), NewPrompt::of(text));
        let prompt = match request.carry_out(self.access().ops(), who, key).await {
            Ok(RequestResult::Prompt(prompt)) => prompt,
            Ok(_) => return Ok(()),
            Err(error) => {
                if self.handle_error(who, target, &error).await? {
                    self.acknowledge(message, thread).await?;
                }
                return Ok(());
            }
        };
        // Under the prompt's id, so that the publisher can replace the reaction when the prompt arrives.
        let (row, session) = (format!("react {}", prompt.id), thread.session);
        self.react(row.clone(), session, message, reaction(&prompt.state)).await?;
        if is_queued(&prompt) {
            // It may have arrived before the reaction was stored, and then nothing else updates the reaction.
            let now = self.prompts(session).await?.into_iter().find(|now| now.id == prompt.id);
            if let Some(now) = now.filter(|now| !is_queued(now)) {
                self.react(row, session, message, reaction(&now.state)).await?;
            }
        }
        Ok(())
    }

    async fn acknowledge(&self, message: &ThreadMessage, thread: &SessionThread) -> Result<(), Retry> {
        self.react(format!("react {} {}", message.channel, message.ts), thread.session, message, TAKEN).await
    }

    async fn prompts(&self, session: SessionId) -> Result<Vec<Prompt>, Retry> {
        self.access().prompts(&session).await.map_err(|_| Retry)
    }

    async fn queue(&self, session: SessionId, target: &ReplyTarget) -> Result<(), Retry> {
        let prompts = self.prompts(session).await?;
        let queued = prompts.iter().rev().filter(|prompt| is_queued(prompt)).map(|prompt| {
            let by = &prompt.by;
            let text = MrkdwnText::untrusted(&prompt.text).cut(200);
            MrkdwnText::new("• ").and(text).and(" – ").and(MrkdwnText::untrusted(by))
        });
        let queued = MrkdwnText::join(queued, "\n");
        let words = if queued.is_blank() { MrkdwnText::new("Nothing is queued.") } else { queued };
        self.reply_text(target, words).await;
        Ok(())
    }
}

/// Returns the named clearance, or the only one.
fn select_clearance<'a>(pending: &'a [Clearance], which: Option<&str>) -> Result<&'a Clearance, MrkdwnText> {
    let mut meant = pending.iter().filter(|clearance| which.is_none_or(|id| clearance.id.starts_with(id)));
    match (meant.next(), meant.next()) {
        (Some(clearance), None) => Ok(clearance),
        (None, _) if which.is_none() => Err(MrkdwnText::new("No clearance is pending here.")),
        (None, _) => Err(MrkdwnText::new("No pending clearance here has this id.")),
        (Some(_), Some(_)) => {
            let each = pending.iter().map(|clearance| {
                let id = intercom_types::text::short(&clearance.id);
                MrkdwnText::untrusted(&id)
                    .code()
                    .and(" ")
                    .and(MrkdwnText::untrusted(&intercom_types::action::line_of(clearance)).cut(150))
            });
            Err(MrkdwnText::new(
                "Several clearances are pending; name one, as in `approve clr_…`, or use their buttons:\n",
            )
            .and(MrkdwnText::join(each, "\n")))
        }
    }
}

/// `1700000000.000100` as numbers.
fn parse_ts(ts: &str) -> (u64, u64) {
    let (seconds, rest) = ts.split_once('.').unwrap_or((ts, ""));
    (seconds.parse().unwrap_or(0), rest.parse().unwrap_or(0))
}

fn not_seen_text(id: &str, verb: &str) -> MrkdwnText {
    MrkdwnText::new(
        "The pending request is newer than your message, so nothing was done. Once you have read it: ",
    )
    .and(MrkdwnText::untrusted(&format!("{verb} {id}")).code())
}

fn only_question(pending: &[Question]) -> Result<&Question, MrkdwnText> {
    match pending {
        [question] => Ok(question),
        [] => Err(MrkdwnText::new("No question is pending here.")),
        _ => Err(MrkdwnText::new("Several questions are pending here: use their buttons.")),
    }
}

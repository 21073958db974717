//! Replies in a session's thread: a word that is a command, or a prompt for the agent.

use serde_json::json;

use super::form::how_to_always;
use super::{Actor, Again, Desk, RequestResult, SlackRequest};
use crate::slack::card;
use crate::slack::deed::Said;
use crate::slack::kit::Words;
use crate::slack::words::{Waiting, Word, typed, word};
use intercom_daemon::ops::Caller;
use intercom_types::{
    Answer, Clearance, Decision, NewPrompt, NudgeRequest, Prompt, PromptState, Question, QuestionAnswer,
    Verdict,
};
use intercom_types::{Role, SessionId, StopMode, Time};

/// A thread of ours, and the session that it is about.
#[derive(Debug, Clone)]
pub(super) struct Thread {
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

/// To people, a prompt that is not in the agent's pipe yet is queued.
fn is_queued(prompt: &Prompt) -> bool {
    matches!(prompt.state, PromptState::Queued | PromptState::Sending)
}

impl Actor {
    pub(super) async fn thread_of(&self, said: &Said) -> Result<Option<Thread>, Again> {
        let Some(ts) = said.thread.as_deref().filter(|thread| *thread != said.ts) else { return Ok(None) };
        let store = &self.0.store;
        // A thread may be there before we know its name. Asked first: what is not in doubt now is known below.
        let begun = i64::try_from(moment(ts).0).unwrap_or(i64::MAX).saturating_mul(1000);
        let in_doubt = store.slack_in_doubt(said.channel.clone(), Time::from_millis(begun));
        let in_doubt = in_doubt.await.map_err(|_| Again)?;
        match store.slack_at(&said.channel, ts).await.map_err(|_| Again)? {
            None if in_doubt => Err(Again),
            found => {
                let root = found.filter(|found| found.thread.is_none());
                Ok(root.and_then(|root| root.session).map(|session| Thread { session }))
            }
        }
    }

    pub(super) async fn said(
        &self,
        who: &Caller,
        key: &str,
        said: &Said,
        thread: &Thread,
        desk: &Desk,
    ) -> Result<(), Again> {
        let id = thread.session.to_string();
        let clearances = self.access().pending_clearances(Some(&id)).await.map_err(|_| Again)?;
        let questions = self.access().pending_questions(Some(&id)).await.map_err(|_| Again)?;
        let waiting = Waiting { clearances: !clearances.is_empty(), questions: !questions.is_empty() };
        let request = match word(&typed(&said.text), waiting) {
            Word::Prompt(text) => return self.prompt(who, key, said, thread, &text, desk).await,
            Word::Status => {
                if let Some(found) = self.access().session(&id).await.map_err(|_| Again)? {
                    self.tell(desk, &card::status("status", &found)).await;
                }
                return Ok(());
            }
            Word::Queue => return self.queue(thread.session, desk).await,
            Word::Help => {
                self.tell(desk, &card::help("help")).await;
                return Ok(());
            }
            Word::Verbosity(_) if who.role < Role::Operator => {
                let why = format!("this needs the role operator; {} is {}", who.name, who.role);
                self.record(&who.name, &json!({ "why": why, "via": "slack" })).await;
                self.say(desk, Words::said(&why)).await;
                return Ok(());
            }
            Word::Verbosity(verbosity) => {
                let set = self.0.store.slack_set_verbosity(thread.session, &verbosity.to_string()).await;
                set.map_err(|_| Again)?;
                return self.taken(said, thread).await;
            }
            Word::Always { rule: None, .. } => match the(&clearances, None) {
                Ok(clearance) => {
                    let shown = self.proposal(who, &clearance.id).await;
                    self.say(desk, shown.map_or_else(|why| why, |(_, proposal)| how_to_always(&proposal)))
                        .await;
                    return Ok(());
                }
                Err(words) => Err(words),
            },
            Word::Always { lasts, rule: Some(rule) } => match the(&clearances, None) {
                Ok(clearance) => {
                    return self.always(who, key, &clearance.id, &rule, Some(&lasts), desk).await;
                }
                Err(words) => Err(words),
            },
            Word::Approve { which } => match the(&clearances, which.as_deref()) {
                Ok(clearance) if which.is_none() && !self.was_seen(&clearance.id, said).await? => {
                    Err(unseen(&clearance.id, "approve"))
                }
                found => found
                    .map(|clearance| SlackRequest::Decide(clearance.id.to_string(), Verdict::Approve.into())),
            },
            Word::Deny { which, reason } => match the(&clearances, which.as_deref()) {
                Ok(clearance) if which.is_none() && !self.was_seen(&clearance.id, said).await? => {
                    Err(unseen(&clearance.id, "deny"))
                }
                found => found.map(|clearance| {
                    SlackRequest::Decide(
                        clearance.id.to_string(),
                        Decision { reason, ..Verdict::Deny.into() },
                    )
                }),
            },
            Word::Continue => self
                .the_seen(&questions, said)
                .await?
                .map(|question| SlackRequest::Answer(question.id.to_string(), Answer::Continue.into())),
            Word::Refine(how) => self
                .the_seen(&questions, said)
                .await?
                .map(|question| SlackRequest::Answer(question.id.to_string(), QuestionAnswer::refine(&how))),
            Word::Stop => Ok(SlackRequest::Stop(id, StopMode::Stop)),
            Word::Interrupt => Ok(SlackRequest::Interrupt(id)),
            Word::Nudge(message) => Ok(SlackRequest::Nudge(id, NudgeRequest { message })),
        };
        match request {
            Ok(request) => {
                if self.carry_out(who, desk, request, key).await? {
                    self.taken(said, thread).await?;
                }
            }
            Err(words) => self.say(desk, words).await,
        }
        Ok(())
    }

    /// Returns true if the card was there when the person wrote this. A message can be delayed; it cannot
    /// mean a later card.
    async fn was_seen(&self, id: &str, said: &Said) -> Result<bool, Again> {
        let card = self.0.store.slack_message(id.to_owned()).await.map_err(|_| Again)?;
        Ok(card.and_then(|card| card.ts).is_some_and(|ts| moment(&ts) <= moment(&said.ts)))
    }

    async fn the_seen<'a>(
        &self,
        questions: &'a [Question],
        said: &Said,
    ) -> Result<Result<&'a Question, Words>, Again> {
        Ok(match one(questions) {
            Ok(question) if !self.was_seen(&question.id, said).await? => Err(Words::new(
                "This question came after what you wrote, so nothing was done: use its buttons.",
            )),
            found => found,
        })
    }

    async fn prompt(
        &self,
        who: &Caller,
        key: &str,
        said: &Said,
        thread: &Thread,
        text: &str,
        desk: &Desk,
    ) -> Result<(), Again> {
        if said.files {
            self.say(desk, Words::new("Files are not passed on to the agent, only the text.")).await;
        }
        if text.is_empty() {
            return Ok(());
        }
        let request = SlackRequest::Send(thread.session.to_string(), NewPrompt::of(text));
        let prompt = match request.carry_out(self.access().ops(), who, key).await {
            Ok(RequestResult::Prompt(prompt)) => prompt,
            Ok(_) => return Ok(()),
            Err(error) => {
                if self.settle(who, desk, &error).await? {
                    self.taken(said, thread).await?;
                }
                return Ok(());
            }
        };
        // Under the prompt's own name, so that its arrival is seen as well.
        let (row, session) = (format!("react {}", prompt.id), thread.session);
        self.react(row.clone(), session, said, reaction(&prompt.state)).await?;
        if is_queued(&prompt) {
            // It may have arrived before there was anything to show that with.
            let now = self.prompts(session).await?.into_iter().find(|now| now.id == prompt.id);
            if let Some(now) = now.filter(|now| !is_queued(now)) {
                self.react(row, session, said, reaction(&now.state)).await?;
            }
        }
        Ok(())
    }

    async fn taken(&self, said: &Said, thread: &Thread) -> Result<(), Again> {
        self.react(format!("react {} {}", said.channel, said.ts), thread.session, said, TAKEN).await
    }

    async fn prompts(&self, session: SessionId) -> Result<Vec<Prompt>, Again> {
        self.access().prompts(&session).await.map_err(|_| Again)
    }

    async fn queue(&self, session: SessionId, desk: &Desk) -> Result<(), Again> {
        let prompts = self.prompts(session).await?;
        let queued = prompts.iter().rev().filter(|prompt| is_queued(prompt)).map(|prompt| {
            let by = &prompt.by;
            let text = Words::said(&prompt.text).cut(200);
            Words::new("• ").and(text).and(" – ").and(Words::said(by))
        });
        let queued = Words::join(queued, "\n");
        let words = if queued.is_blank() { Words::new("Nothing is queued.") } else { queued };
        self.say(desk, words).await;
        Ok(())
    }
}

/// The one that is meant: the one that was named, or the only one.
fn the<'a>(pending: &'a [Clearance], which: Option<&str>) -> Result<&'a Clearance, Words> {
    let mut meant = pending.iter().filter(|clearance| which.is_none_or(|id| clearance.id.starts_with(id)));
    match (meant.next(), meant.next()) {
        (Some(clearance), None) => Ok(clearance),
        (None, _) if which.is_none() => Err(Words::new("Nothing waits for a decision here.")),
        (None, _) => Err(Words::new("No clearance of that name waits here.")),
        (Some(_), Some(_)) => {
            let each = pending.iter().map(|clearance| {
                let id = intercom_types::text::short(&clearance.id);
                Words::said(&id)
                    .code()
                    .and(" ")
                    .and(Words::said(&intercom_types::action::line_of(clearance)).cut(150))
            });
            Err(Words::new("Several wait; say which, as in `approve clr_…`, or use their buttons:\n")
                .and(Words::join(each, "\n")))
        }
    }
}

/// `1700000000.000100` as numbers.
fn moment(ts: &str) -> (u64, u64) {
    let (seconds, rest) = ts.split_once('.').unwrap_or((ts, ""));
    (seconds.parse().unwrap_or(0), rest.parse().unwrap_or(0))
}

fn unseen(id: &str, verb: &str) -> Words {
    Words::new("What waits here came after what you wrote, so nothing was done. Once you have read it: ")
        .and(Words::said(&format!("{verb} {id}")).code())
}

fn one(pending: &[Question]) -> Result<&Question, Words> {
    match pending {
        [question] => Ok(question),
        [] => Err(Words::new("No question waits here.")),
        _ => Err(Words::new("Several questions wait here: use their buttons.")),
    }
}

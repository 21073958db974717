//! Long-pending requests: mentions of further people, and the morning digest after quiet hours.

use super::CardPublisher;
use super::rendering::unanswered_clearance;
use crate::slack::block_kit::MrkdwnText;
use crate::slack::card;
use crate::slack::handlers;
use crate::slack::mentions::{self, UnansweredRequest};
use crate::slack::sender::DesiredContent;
use intercom_store::{DesiredMessage, StoreError};
use intercom_types::{Question, SessionId};
use intercom_types::{Role, Time};

/// The cursor with the date of the last digest.
const DIGEST: &str = "slack digest";
/// The most requests that a digest names; the rest is counted.
const MAX_DIGEST: usize = 10;

impl CardPublisher {
    pub(super) async fn escalations(&self) -> Vec<DesiredMessage> {
        let config = self.access.config();
        let (now, mut messages) = (Time::now(), Vec::new());
        // A failed read counts as no requests: the next check, two seconds later, escalates them.
        if config.slack.escalate_after().is_some() {
            for clearance in self.access.pending_clearances(None).await.unwrap_or_default() {
                let called = mentions::escalation_mentions(&config, &unanswered_clearance(&clearance), now);
                let line = intercom_types::action::line_of(&clearance);
                let about = (&*clearance.id, clearance.session, line.as_str());
                messages.extend(self.escalate(about, &called).await);
            }
            for question in self.access.pending_questions(None).await.unwrap_or_default() {
                let called = mentions::escalation_mentions(&config, &unanswered_question(&question), now);
                let about = (&*question.id, question.session, question.text.as_str());
                messages.extend(self.escalate(about, &called).await);
            }
        }
        if let Some(date) = mentions::due_digest_date(&config, now) {
            messages.extend(self.digest(&date).await.ok().flatten());
        }
        messages
    }

    /// Each mention is a message of its own, because Slack notifies nobody about an edit.
    async fn escalate(&self, about: (&str, SessionId, &str), called: &[String]) -> Vec<DesiredMessage> {
        let ((id, session, title), mut messages) = (about, Vec::new());
        let people = handlers::people(&self.access);
        for (name, n) in called.iter().zip(1..) {
            let key = format!("call {id} {n}");
            // The key is fixed: each person is mentioned once per request, also after a restart.
            if !matches!(self.store.slack_message(key.clone()).await, Ok(None)) {
                continue;
            }
            let Some(ping) = people.ping(name) else { continue };
            let Ok(Some(context)) = self.scene(session, Vec::new()).await else { continue };
            let words = ping
                .and(" this request is still pending: ")
                .and(MrkdwnText::untrusted(title).cut(200))
                .and(" ")
                .and(MrkdwnText::untrusted(&intercom_types::text::short(id)).code());
            messages.extend(context.missing_root());
            messages.push(context.desired(&key, &card::note(&key, words), false, String::new()));
        }
        messages
    }

    /// Returns the digest of requests that waited during quiet hours; `None` if there are none. A morning
    /// counts as done in either case.
    async fn digest(&self, date: &str) -> Result<Option<DesiredMessage>, StoreError> {
        let key = format!("digest {date}");
        let today: u64 = date.replace('-', "").parse().unwrap_or(0);
        if self.store.cursor(DIGEST).await?.is_some_and(|told| told >= today) {
            return Ok(None);
        }
        // Stored before the digest is posted: a missing digest is better than one that repeats after each crash.
        self.store.set_cursor(DIGEST, today).await?;
        let (clearances, questions) =
            (self.access.pending_clearances(None).await?, self.access.pending_questions(None).await?);
        let waiting = clearances
            .iter()
            .map(|clearance| (clearance.session_label(), intercom_types::action::line_of(clearance)));
        let asked = questions.iter().map(|question| (question.session_label(), question.text.clone()));
        let waiting: Vec<(String, String)> = waiting.chain(asked).collect();
        if waiting.is_empty() {
            return Ok(None);
        }
        let config = self.access.config();
        let called = self.operator_mentions(&config.slack.ping);
        let each = waiting.iter().take(MAX_DIGEST).map(|(session, what)| {
            MrkdwnText::new("• ")
                .and(MrkdwnText::untrusted(what).cut(200))
                .and(" ")
                .and(MrkdwnText::untrusted(session).code())
        });
        let more = waiting.len().saturating_sub(MAX_DIGEST);
        let list = MrkdwnText::join(
            each.chain((more > 0).then(|| MrkdwnText::number(more as u64).and(" more"))),
            "\n",
        );
        let words = MrkdwnText::join(
            [
                called,
                MrkdwnText::new("Good morning. ")
                    .and(MrkdwnText::count(waiting.len(), "pending request"))
                    .and(":"),
            ],
            " ",
        );
        let message = card::note(&key, words.and("\n").and(list));
        let Some(channel) = config.slack.channel.clone() else { return Ok(None) };
        let content = DesiredContent::Message(serde_json::json!(message));
        Ok(Some(content.outside_of_threads(key, None, channel)))
    }
}

fn unanswered_question(question: &Question) -> UnansweredRequest<'static> {
    let since = question.asked_at;
    UnansweredRequest { since, is_urgent: false, least: Role::Operator, whom: &[] }
}

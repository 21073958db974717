//! What has waited for long: calls somebody else, and tells in the morning what waited over night.

use super::show::waits_for;
use super::{Mind, Teller};
use crate::answers::Question;
use crate::bridge::slack::act;
use crate::bridge::slack::calls::{self, Waits};
use crate::bridge::slack::card;
use crate::bridge::slack::kit::Words;
use crate::bridge::slack::sender::Wanted;
use crate::domain::{Role, Time};
use crate::store::SlackWant;

/// What a digest names; the rest is counted.
const MANY: usize = 10;

impl Teller {
    pub(super) async fn calls(&self, mind: &mut Mind) -> Vec<SlackWant> {
        let config = self.seat.config();
        let (now, mut wants) = (Time::now(), Vec::new());
        if config.slack.escalate_after().is_some() {
            for clearance in self.seat.pending_clearances(None).await {
                let called = calls::escalated(&config, &waits_for(&clearance), now);
                let about = (clearance.id.as_str(), clearance.session.as_str(), clearance.title.as_str());
                wants.extend(self.escalate(about, &called, mind).await);
            }
            for question in self.seat.pending_questions(None).await {
                let called = calls::escalated(&config, &waits(&question), now);
                let about = (question.id.as_str(), question.session.as_str(), question.text.as_str());
                wants.extend(self.escalate(about, &called, mind).await);
            }
        }
        if let Some(date) = calls::morning(&config, now) {
            wants.extend(self.digest(&date).await);
        }
        wants
    }

    /// Each call is a message of its own, because nobody is told of an edit.
    async fn escalate(
        &self,
        about: (&str, &str, &str),
        called: &[String],
        mind: &mut Mind,
    ) -> Vec<SlackWant> {
        let ((id, session, title), mut wants) = (about, Vec::new());
        let people = act::people(&self.seat);
        for (name, n) in called.iter().zip(1..) {
            let key = format!("call {id} {n}");
            // Once said, it is not said again.
            if !matches!(self.store.slack_message(key.clone()).await, Ok(None)) {
                continue;
            }
            let Some((ping, session)) = people.ping(name).zip(session.parse().ok()) else { continue };
            let Some(scene) = self.scene(session).await else { continue };
            let words = ping
                .and(" this still waits for somebody: ")
                .and(Words::said(title).cut(200))
                .and(" ")
                .and(Words::said(&crate::text::short(id)).code());
            wants.extend(self.rooted(&scene, mind).await.ok().flatten());
            wants.push(scene.want(&key, &card::note(&key, words), false, String::new()));
        }
        wants
    }

    /// What waited while nobody was to be disturbed.
    async fn digest(&self, date: &str) -> Option<SlackWant> {
        let key = format!("digest {date}");
        if !matches!(self.store.slack_message(key.clone()).await, Ok(None)) {
            return None;
        }
        let (clearances, questions) =
            (self.seat.pending_clearances(None).await, self.seat.pending_questions(None).await);
        let titles = clearances.iter().map(|clearance| (&clearance.session, &clearance.title));
        let titles: Vec<_> =
            titles.chain(questions.iter().map(|question| (&question.session, &question.text))).collect();
        if titles.is_empty() {
            return None;
        }
        let config = self.seat.config();
        let people = act::people(&self.seat);
        let called = Words::join(config.slack.ping.iter().filter_map(|name| people.ping(name)), " ");
        let each = titles.iter().take(MANY).map(|(session, title)| {
            Words::new("• ")
                .and(Words::said(title).cut(150))
                .and(" ")
                .and(Words::said(&crate::text::short(session)).code())
        });
        let more = titles.len().saturating_sub(MANY);
        let list = Words::join(each.chain((more > 0).then(|| Words::count(more, "more"))), "\n");
        let words = Words::join(
            [
                called,
                Words::new("Good morning. ").and(Words::count(titles.len(), "thing")).and(" waited for you:"),
            ],
            " ",
        );
        let message = card::note(&key, words.and("\n").and(list));
        let (channel, memo) = (config.slack.channel.clone()?, String::new());
        let wanted = Wanted::Message(serde_json::json!(message)).text();
        Some(SlackWant { key, session: None, channel, thread: None, wanted, open: false, memo, again: false })
    }
}

fn waits(question: &Question) -> Waits<'static> {
    let since = question.asked_at.as_deref().and_then(Time::parse).unwrap_or_else(Time::now);
    Waits { since, grave: false, least: Role::Operator, whom: &[] }
}

//! Buttons.

use serde_json::{Value, json};

use super::form::how_to_always;
use super::{Actor, Again, Desk, not_opened};
use crate::bridge::api::Person;
use crate::bridge::api::inside::quoted;
use crate::bridge::slack::card;
use crate::bridge::slack::deed::Click;
use crate::bridge::slack::kit::Words;
use crate::domain::{
    Answer, Decision, InterruptRequest, NudgeRequest, QuestionAnswer, SnoozeRequest, Verdict,
};

/// How long "Snooze" lasts.
const SNOOZE: &str = "30m";

impl Actor {
    pub(super) async fn click(
        &self,
        who: &Person,
        key: &str,
        click: &Click,
        desk: &Desk,
    ) -> Result<(), Again> {
        let id = quoted(&click.value);
        let session = |verb: &str| format!("/sessions/{id}/{verb}");
        let (path, body) = match click.action.as_str() {
            "allow" => (format!("/clearances/{id}/decision"), json!(Decision::from(Verdict::Approve))),
            "deny" => (format!("/clearances/{id}/decision"), json!(Decision::from(Verdict::Deny))),
            "continue" => (format!("/questions/{id}/answer"), json!(QuestionAnswer::from(Answer::Continue))),
            "stop_question" => (format!("/questions/{id}/answer"), json!(QuestionAnswer::from(Answer::Stop))),
            "nudge" => (session("nudge"), json!(NudgeRequest::default())),
            "interrupt" => (session("interrupt"), json!(InterruptRequest::default())),
            "kill" => (session("kill"), json!({})),
            "stop" => (session("stop"), json!({})),
            "snooze" => (session("snooze"), json!(SnoozeRequest { r#for: SNOOZE.to_owned() })),
            "restart" => (session("resume"), json!({})),
            "always" | "deny_reason" | "details" | "refine" | "nudge_with" => {
                self.open_form(who, click, desk).await;
                return Ok(());
            }
            action => {
                let Some(n) = action.strip_prefix("option.").and_then(|n| n.parse().ok()) else {
                    tracing::debug!(action, "a button that nobody knows here");
                    return Ok(());
                };
                return self.choose(who, key, &click.value, n, desk).await;
            }
        };
        self.post(who, desk, &path, &body, key).await?;
        if click.channel.is_none() {
            self.show_home(&click.user);
        }
        Ok(())
    }

    /// One of the agent's own options, by its place.
    async fn choose(&self, who: &Person, key: &str, id: &str, n: usize, desk: &Desk) -> Result<(), Again> {
        let Some(clearance) = self.seat().clearance(id).await.map_err(|_| Again)? else {
            self.say(desk, Words::new("This clearance is not known any more.")).await;
            return Ok(());
        };
        let Some(option) = clearance.options.get(n) else {
            self.say(desk, Words::new("The agent does not offer this any more.")).await;
            return Ok(());
        };
        let rejects = option.kind.starts_with("reject");
        let verdict = if rejects { Verdict::Deny } else { Verdict::Approve };
        let body = json!(Decision::with_option(verdict, &option.id));
        self.post(who, desk, &format!("/clearances/{}/decision", quoted(id)), &body, key).await.map(drop)
    }

    async fn open_form(&self, who: &Person, click: &Click, desk: &Desk) {
        let gone = || Words::new("This is not known any more.");
        let view = match click.action.as_str() {
            "always" => return self.open_always(who, click, desk).await,
            "details" => {
                let Ok(Some(clearance)) = self.seat().clearance(&click.value).await else {
                    return self.say(desk, gone()).await;
                };
                let Ok(Some(session)) = self.seat().session(&clearance.session).await else {
                    return self.say(desk, gone()).await;
                };
                let explanation = self.explanation(&click.value).await;
                let view = card::clearance_details(&clearance, &session, &explanation);
                let instead = card::clearance_details_told(&clearance, &session, &explanation);
                return self.open(desk, &click.trigger, &view, instead).await;
            }
            "deny_reason" => self.seat().clearance(&click.value).await.ok().flatten().map(|clearance| {
                (
                    card::deny_reason(&clearance),
                    "Reply in the thread of the session instead: `deny &lt;reason&gt;`.",
                )
            }),
            "refine" => self.seat().question(&click.value).await.ok().flatten().map(|question| {
                (
                    card::refine(&question),
                    "Reply in the thread of the session instead: `refine &lt;text&gt;`.",
                )
            }),
            _ => self.seat().session(&click.value).await.ok().flatten().map(|session| {
                (
                    card::nudge_with(&session),
                    "Reply in the thread of the session instead: `nudge: &lt;text&gt;`.",
                )
            }),
        };
        match view {
            Some((view, instead)) => {
                self.open(desk, &click.trigger, &view, not_opened(Words::new(instead))).await;
            }
            None => self.say(desk, gone()).await,
        }
    }

    /// What the rules make of a clearance, without what looks like a secret.
    async fn explanation(&self, id: &str) -> Value {
        let viewer = self.seat().viewer();
        self.seat().get(viewer, &format!("/clearances/{}/explanation", quoted(id))).await.body
    }

    async fn open_always(&self, who: &Person, click: &Click, desk: &Desk) {
        match self.proposal(who, &click.value).await {
            Ok((clearance, proposal)) => {
                let view = card::always(&clearance, &proposal.sentence, &proposal.digest);
                let instead = not_opened(how_to_always(&proposal));
                self.open(desk, &click.trigger, &view, instead).await;
            }
            Err(why) => self.say(desk, why).await,
        }
    }
}

//! Clicks on buttons.

use serde_json::json;

use super::form::always_instructions;
use super::{InteractionHandler, ReplyTarget, Retry, SlackRequest, not_opened};
use crate::slack::block_kit::MrkdwnText;
use crate::slack::card;
use crate::slack::interaction::ButtonClick;
use intercom_daemon::ops::Caller;
use intercom_types::{Answer, Decision, NudgeRequest, SnoozeRequest, StopMode, Verdict};

/// The duration of "Snooze".
const SNOOZE: &str = "30m";

impl InteractionHandler {
    pub(super) async fn click(
        &self,
        who: &Caller,
        key: &str,
        click: &ButtonClick,
        target: &ReplyTarget,
    ) -> Result<(), Retry> {
        let id = click.value.clone();
        let request = match click.action.as_str() {
            "allow" => SlackRequest::Decide(id, Verdict::Approve.into()),
            "deny" => SlackRequest::Decide(id, Verdict::Deny.into()),
            "continue" => SlackRequest::Answer(id, Answer::Continue.into()),
            "stop_question" => SlackRequest::Answer(id, Answer::Stop.into()),
            "nudge" => SlackRequest::Nudge(id, NudgeRequest::default()),
            "interrupt" => SlackRequest::Interrupt(id),
            "kill" => SlackRequest::Stop(id, StopMode::Kill),
            "stop" => SlackRequest::Stop(id, StopMode::Stop),
            "snooze" => SlackRequest::Snooze(id, SnoozeRequest { r#for: SNOOZE.to_owned() }),
            "restart" => SlackRequest::Resume(id),
            "always" | "deny_reason" | "details" | "refine" | "nudge_with" => {
                self.open_form(who, click, target).await;
                return Ok(());
            }
            action => {
                let Some(n) = action.strip_prefix("option.").and_then(|n| n.parse().ok()) else {
                    tracing::debug!(action, "unknown button");
                    return Ok(());
                };
                return self.choose(who, key, &click.value, n, target).await;
            }
        };
        self.carry_out(who, target, request, key).await?;
        if click.channel.is_none() {
            self.show_home(&click.user);
        }
        Ok(())
    }

    /// Decides with the agent's own option at this index.
    async fn choose(
        &self,
        who: &Caller,
        key: &str,
        id: &str,
        n: usize,
        target: &ReplyTarget,
    ) -> Result<(), Retry> {
        let Some(clearance) = self.access().clearance(id).await.map_err(|_| Retry)? else {
            self.reply_text(target, MrkdwnText::new("This clearance no longer exists.")).await;
            return Ok(());
        };
        let Some(option) = clearance.options.get(n) else {
            self.reply_text(target, MrkdwnText::new("The agent no longer offers this option.")).await;
            return Ok(());
        };
        let rejects = option.kind.starts_with("reject");
        let verdict = if rejects { Verdict::Deny } else { Verdict::Approve };
        let decision = Decision::with_option(verdict, &option.id);
        self.carry_out(who, target, SlackRequest::Decide(id.to_owned(), decision), key).await.map(drop)
    }

    async fn open_form(&self, who: &Caller, click: &ButtonClick, target: &ReplyTarget) {
        let gone = || MrkdwnText::new("This request or session no longer exists.");
        let view = match click.action.as_str() {
            "always" => return self.open_always(who, click, target).await,
            "details" => {
                let Ok(Some(clearance)) = self.access().clearance(&click.value).await else {
                    return self.reply_text(target, gone()).await;
                };
                let Ok(Some(session)) = self.access().session(&clearance.session).await else {
                    return self.reply_text(target, gone()).await;
                };
                let explanation = json!(self.access().explanation(&click.value).await.ok());
                let view = card::clearance_details(&clearance, &session, &explanation);
                let instead = card::clearance_details_told(&clearance, &session, &explanation);
                return self.open(target, &click.trigger, &view, instead).await;
            }
            "deny_reason" => self.access().clearance(&click.value).await.ok().flatten().map(|clearance| {
                (
                    card::deny_reason(&clearance),
                    "Reply in the thread of the session instead: `deny &lt;reason&gt;`.",
                )
            }),
            "refine" => self.access().question(&click.value).await.ok().flatten().map(|question| {
                (
                    card::refine(&question),
                    "Reply in the thread of the session instead: `refine &lt;text&gt;`.",
                )
            }),
            _ => self.access().session(&click.value).await.ok().flatten().map(|session| {
                (
                    card::nudge_with(&session),
                    "Reply in the thread of the session instead: `nudge: &lt;text&gt;`.",
                )
            }),
        };
        match view {
            Some((view, instead)) => {
                self.open(target, &click.trigger, &view, not_opened(MrkdwnText::new(instead))).await;
            }
            None => self.reply_text(target, gone()).await,
        }
    }

    async fn open_always(&self, who: &Caller, click: &ButtonClick, target: &ReplyTarget) {
        match self.proposal(who, &click.value).await {
            Ok((clearance, proposal)) => {
                let view = card::always(&clearance, &proposal.sentence, &proposal.digest);
                let instead = not_opened(always_instructions(&proposal));
                self.open(target, &click.trigger, &view, instead).await;
            }
            Err(why) => self.reply_text(target, why).await,
        }
    }
}

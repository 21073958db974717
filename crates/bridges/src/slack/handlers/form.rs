//! Submitted forms, and the rule that "Always…" would add.

use ring::digest::{SHA256, digest};
use serde::Deserialize;
use serde_json::Value;

use super::{InteractionHandler, ReplyTarget, Retry, SlackRequest};
use crate::slack::block_kit::MrkdwnText;
use crate::slack::interaction::FormSubmission;
use intercom_daemon::ops::Caller;
use intercom_policy::{Rule, sentence};
use intercom_redact::redact;
use intercom_types::hex;
use intercom_types::{
    Answer, Clearance, Decision, NewPrompt, NudgeRequest, QuestionAnswer, RememberChoice, RememberedRule,
    Verdict,
};

/// The form's value for a rule without an end.
const UNTIL_REVOKED: &str = "until_revoked";

/// The rule that would be stored, and its text without secrets.
pub(super) struct AlwaysProposal {
    rule: Value,
    pub(super) sentence: String,
    /// The digest of the rule, which identifies the rule that was shown.
    pub(super) digest: String,
}

/// Returns the instructions for adding exactly this rule by text.
pub(super) fn always_instructions(proposal: &AlwaysProposal) -> MrkdwnText {
    MrkdwnText::new("This rule would be added: ")
        .and(MrkdwnText::untrusted(&proposal.sentence).cut(500).code())
        .and(". To add it for 8 hours, reply in the thread of the session: ")
        .and(MrkdwnText::untrusted(&format!("always 8h {}", proposal.short())).code())
}

impl AlwaysProposal {
    /// Returns the beginning of the digest, for people to type.
    fn short(&self) -> &str {
        self.digest.get(..8).unwrap_or_default()
    }
}

impl InteractionHandler {
    pub(super) async fn submit(
        &self,
        who: &Caller,
        key: &str,
        submit: &FormSubmission,
        target: &ReplyTarget,
    ) -> Result<(), Retry> {
        let (id, digest) = submit.about.split_once(' ').unwrap_or((&submit.about, ""));
        let (at, value) = (id.to_owned(), |name: &str| submit.value(name).map(str::to_owned));
        let request = match submit.form.as_str() {
            "always" => {
                let lasts = submit.value("duration").filter(|lasts| *lasts != UNTIL_REVOKED);
                return self.approve_always(who, key, id, digest, lasts, target).await;
            }
            "deny_reason" => {
                SlackRequest::Decide(at, Decision { reason: value("reason"), ..Verdict::Deny.into() })
            }
            "refine" => SlackRequest::Answer(
                at,
                QuestionAnswer { decision: Answer::Refine, instruction: value("instruction") },
            ),
            "nudge_with" => SlackRequest::Nudge(at, NudgeRequest { message: value("message") }),
            "send" => {
                let (Some(session), Some(text)) = (value("session"), submit.value("text")) else {
                    return Ok(());
                };
                SlackRequest::Send(session, NewPrompt::of(text))
            }
            form => {
                tracing::debug!(form, "unknown form");
                return Ok(());
            }
        };
        let done = self.carry_out(who, target, request, key).await?;
        if done && submit.form == "send" {
            self.reply_text(target, MrkdwnText::new("Sent.")).await;
        }
        Ok(())
    }

    /// Approves and adds the rule that was shown. If the proposal has changed since, nothing happens.
    pub(super) async fn approve_always(
        &self,
        who: &Caller,
        key: &str,
        id: &str,
        digest: &str,
        lasts: Option<&str>,
        target: &ReplyTarget,
    ) -> Result<(), Retry> {
        let proposal = match self.proposal(who, id).await {
            Ok((_, proposal)) => proposal,
            Err(why) => {
                self.reply_text(target, why).await;
                return Ok(());
            }
        };
        if digest != proposal.digest && digest != proposal.short() {
            let words =
                "The rule has changed since it was shown, so nothing was done. Please check the new rule.";
            self.reply_text(target, MrkdwnText::new(words)).await;
            return Ok(());
        }
        let remember = RememberedRule { rule: proposal.rule, r#for: lasts.map(str::to_owned) };
        let remember = Some(RememberChoice::Rule(remember));
        let decision = Decision { remember, ..Verdict::Approve.into() };
        if self.carry_out(who, target, SlackRequest::Decide(id.to_owned(), decision), key).await? {
            let words = MrkdwnText::new("From now on: ")
                .and(MrkdwnText::untrusted(&proposal.sentence).cut(500).code())
                .and(
                    lasts
                        .map(|lasts| MrkdwnText::new(" for ").and(MrkdwnText::untrusted(lasts)))
                        .unwrap_or_default(),
                )
                .and(". `intercom policy grants` lists it and shows how to revoke it.");
            self.reply_text(target, words).await;
        }
        Ok(())
    }

    /// Returns the rule proposal that this person may see; an error is for people.
    pub(super) async fn proposal(
        &self,
        who: &Caller,
        id: &str,
    ) -> Result<(Clearance, AlwaysProposal), MrkdwnText> {
        let explained = self.access().ops().explain(who, id).await;
        let explained = explained.map_err(|error| MrkdwnText::untrusted(&error.sentence()))?;
        let Some(rule) = explained.proposal else {
            let why = explained.no_proposal.unwrap_or_else(|| "no rule fits".to_owned());
            return Err(MrkdwnText::new("No safe rule can be derived from this request: ")
                .and(MrkdwnText::untrusted(&why)));
        };
        let read: Rule = Rule::deserialize(&rule).map_err(|_| MrkdwnText::new("The rule cannot be read."))?;
        let digest = hex(digest(&SHA256, rule.to_string().as_bytes()).as_ref());
        Ok((
            explained.clearance,
            AlwaysProposal { sentence: redact(&sentence(&read)).text.into_owned(), rule, digest },
        ))
    }
}

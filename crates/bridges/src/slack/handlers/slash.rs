//! `/intercom …`, answered privately.

use serde::Deserialize;

use super::{InteractionHandler, ReplyTarget, RequestResult, Retry, SlackRequest};
use crate::slack::block_kit::MrkdwnText;
use crate::slack::card;
use crate::slack::commands::{SlashCommand, decode_text, parse_slash_command};
use intercom_daemon::ops::Caller;
use intercom_policy::{Rule, sentence};
use intercom_types::{NewPrompt, NewSession, NudgeRequest, Session, StopMode};

/// The most list entries that one message shows.
const MANY: usize = 20;

impl InteractionHandler {
    pub(super) async fn slash(
        &self,
        who: &Caller,
        key: &str,
        text: &str,
        target: &ReplyTarget,
    ) -> Result<(), Retry> {
        let words = match parse_slash_command(&decode_text(text)) {
            SlashCommand::Help => {
                self.reply(target, &card::help("help")).await;
                return Ok(());
            }
            SlashCommand::Wrong(why) => MrkdwnText::untrusted(&why),
            SlashCommand::Whoami => self.whoami_words(&target.user),
            SlashCommand::Ls | SlashCommand::Status(None) => {
                list(&self.access().live_sessions().await.map_err(|_| Retry)?)
            }
            SlashCommand::Status(Some(typed)) => {
                match self.access().session(&typed).await.map_err(|_| Retry)? {
                    Some(session) => {
                        self.reply(target, &card::status("status", &session)).await;
                        return Ok(());
                    }
                    None => no_session(&typed),
                }
            }
            SlashCommand::Clearances => self.clearances_words().await,
            SlashCommand::Policy => self.policy_words().await,
            SlashCommand::Start { agent, workspace, prompt } => {
                return self.start(who, key, &agent, workspace, &prompt, target).await;
            }
            SlashCommand::Stop(session) => {
                let request = SlackRequest::Stop(session.clone(), StopMode::Stop);
                return self.order(who, key, request, ("Stopped", &session), target).await;
            }
            SlashCommand::Nudge { session, message } => {
                let request = SlackRequest::Nudge(session.clone(), NudgeRequest { message });
                return self.order(who, key, request, ("Nudged", &session), target).await;
            }
            SlashCommand::Send { session, text } => {
                let request = SlackRequest::Send(session.clone(), NewPrompt::of(&text));
                return self.order(who, key, request, ("Sent", &session), target).await;
            }
        };
        self.reply_text(target, words).await;
        Ok(())
    }

    async fn order(
        &self,
        who: &Caller,
        key: &str,
        request: SlackRequest,
        (done, session): (&'static str, &str),
        target: &ReplyTarget,
    ) -> Result<(), Retry> {
        if self.carry_out(who, target, request, key).await? {
            self.reply_text(
                target,
                MrkdwnText::new(done).and(": ").and(MrkdwnText::untrusted(session)).and("."),
            )
            .await;
        }
        Ok(())
    }

    async fn start(
        &self,
        who: &Caller,
        key: &str,
        agent: &str,
        workspace: Option<String>,
        prompt: &str,
        target: &ReplyTarget,
    ) -> Result<(), Retry> {
        let config = self.access().config();
        let only = || match config.workspaces.keys().collect::<Vec<_>>()[..] {
            [only] => Ok(only.clone()),
            [] => Err(MrkdwnText::new("No workspace is configured: name a directory, as in `in /path`.")),
            _ => {
                let names = config.workspaces.keys().map(|name| MrkdwnText::untrusted(name).code());
                Err(MrkdwnText::new("Name a workspace: ").and(MrkdwnText::join(names, ", ")))
            }
        };
        let workspace = match workspace.map_or_else(only, Ok) {
            Ok(workspace) => workspace,
            Err(words) => {
                self.reply_text(target, words).await;
                return Ok(());
            }
        };
        let prompt = Some(prompt).filter(|prompt| !prompt.is_empty());
        let request = SlackRequest::Start(Box::new(NewSession {
            agent: Some(agent.to_owned()),
            workspace,
            prompt: prompt.map(str::to_owned),
            ..NewSession::default()
        }));
        match request.carry_out(self.access().ops(), who, key).await {
            Ok(RequestResult::Session(session)) => {
                let words = MrkdwnText::new("Started ")
                    .and(MrkdwnText::untrusted(&session.label()).code())
                    .and("; its thread appears in a moment.");
                self.reply_text(target, words).await;
                Ok(())
            }
            Ok(_) => Ok(()),
            Err(error) => self.handle_error(who, target, &error).await.map(drop),
        }
    }

    pub(super) fn whoami_words(&self, user: &str) -> MrkdwnText {
        let id = MrkdwnText::new("Your Slack id is ").and(MrkdwnText::untrusted(user).code());
        match self.access().operator(user) {
            Some(who) => id
                .and("; here you are ")
                .and(MrkdwnText::untrusted(&who.name))
                .and(", ")
                .and(MrkdwnText::untrusted(who.role.as_str()))
                .and("."),
            None => id.and(". You are not an operator here."),
        }
    }

    async fn clearances_words(&self) -> MrkdwnText {
        let Ok(pending) = self.access().pending_clearances(None).await else {
            return MrkdwnText::new("The pending clearances cannot be read now.");
        };
        let each = pending.iter().take(MANY).map(|clearance| {
            let id = intercom_types::text::short(&clearance.id);
            let session = clearance.session_label();
            MrkdwnText::new("• ")
                .and(MrkdwnText::untrusted(&clearance.risk))
                .and(": ")
                .and(MrkdwnText::untrusted(&intercom_types::action::line_of(clearance)).cut(200))
                .and(" – ")
                .and(MrkdwnText::untrusted(&format!("{id} of {session}")).code())
        });
        let more = pending.len().saturating_sub(MANY);
        let words = MrkdwnText::join(
            each.chain((more > 0).then(|| MrkdwnText::number(more as u64).and(" more"))),
            "\n",
        );
        if words.is_blank() { MrkdwnText::new("No clearance is pending.") } else { words }
    }

    async fn policy_words(&self) -> MrkdwnText {
        let Ok(policy) = self.access().policy().await else {
            return MrkdwnText::new("The policy cannot be read.");
        };
        let rules: Result<Vec<Rule>, _> = policy.rules.iter().map(Rule::deserialize).collect();
        let Ok(rules) = rules else { return MrkdwnText::new("The policy cannot be read.") };
        let rules = rules.iter().take(MANY).zip(1_u64..).map(|(rule, n)| {
            MrkdwnText::number(n).and(". ").and(MrkdwnText::untrusted(&sentence(rule)).cut(300))
        });
        let rules = MrkdwnText::join(rules, "\n");
        let rules = if rules.is_blank() {
            MrkdwnText::new("There are no rules: people decide everything.")
        } else {
            rules
        };
        MrkdwnText::join([rules, MrkdwnText::count(policy.grants, "grant").and(" in addition.")], "\n")
    }
}

fn no_session(typed: &str) -> MrkdwnText {
    MrkdwnText::new("There is no session ")
        .and(MrkdwnText::untrusted(typed).code())
        .and("; `/intercom ls` lists them.")
}

fn list(sessions: &[Session]) -> MrkdwnText {
    let each = sessions.iter().take(MANY).map(|session| {
        let name = MrkdwnText::untrusted(&session.label()).cut(60).code();
        let agent = MrkdwnText::untrusted(session.agent.as_deref().unwrap_or("an agent")).cut(40);
        let why = MrkdwnText::untrusted(session.why.as_str()).cut(150);
        let waiting = session.pending.clearances + session.pending.questions;
        let waits = if waiting > 0 {
            MrkdwnText::new(" – ").and(MrkdwnText::count(waiting, "request").bold()).and(" for you")
        } else {
            MrkdwnText::default()
        };
        MrkdwnText::new("• ")
            .and(name)
            .and(" ")
            .and(agent)
            .and(": ")
            .and(MrkdwnText::untrusted(session.phase_word()).bold())
            .and(", ")
            .and(why)
            .and(waits)
    });
    let more = sessions.len().saturating_sub(MANY);
    let words =
        MrkdwnText::join(each.chain((more > 0).then(|| MrkdwnText::number(more as u64).and(" more"))), "\n");
    if words.is_blank() {
        MrkdwnText::new("No session is running. `/intercom start` starts one.")
    } else {
        words
    }
}

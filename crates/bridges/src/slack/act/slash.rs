//! `/intercom …`, answered to whoever typed it.

use serde::Deserialize;

use super::{Actor, Again, Desk, RequestResult, SlackRequest};
use crate::slack::card;
use crate::slack::kit::Words;
use crate::slack::words::{Slash, slash, typed};
use intercom_daemon::ops::Caller;
use intercom_policy::{Rule, sentence};
use intercom_types::{NewPrompt, NewSession, NudgeRequest, Session, StopMode};

/// The most list entries that one message shows.
const MANY: usize = 20;

impl Actor {
    pub(super) async fn slash(&self, who: &Caller, key: &str, text: &str, desk: &Desk) -> Result<(), Again> {
        let words = match slash(&typed(text)) {
            Slash::Help => {
                self.tell(desk, &card::help("help")).await;
                return Ok(());
            }
            Slash::Wrong(why) => Words::said(&why),
            Slash::Whoami => self.whoami_words(&desk.user),
            Slash::Ls | Slash::Status(None) => list(&self.access().live_sessions().await.map_err(|_| Again)?),
            Slash::Status(Some(typed)) => match self.access().session(&typed).await.map_err(|_| Again)? {
                Some(session) => {
                    self.tell(desk, &card::status("status", &session)).await;
                    return Ok(());
                }
                None => no_session(&typed),
            },
            Slash::Clearances => self.clearances_words().await,
            Slash::Policy => self.policy_words().await,
            Slash::Start { agent, workspace, prompt } => {
                return self.start(who, key, &agent, workspace, &prompt, desk).await;
            }
            Slash::Stop(session) => {
                let request = SlackRequest::Stop(session.clone(), StopMode::Stop);
                return self.order(who, key, request, ("Stopped", &session), desk).await;
            }
            Slash::Nudge { session, message } => {
                let request = SlackRequest::Nudge(session.clone(), NudgeRequest { message });
                return self.order(who, key, request, ("Nudged", &session), desk).await;
            }
            Slash::Send { session, text } => {
                let request = SlackRequest::Send(session.clone(), NewPrompt::of(&text));
                return self.order(who, key, request, ("Sent", &session), desk).await;
            }
        };
        self.say(desk, words).await;
        Ok(())
    }

    async fn order(
        &self,
        who: &Caller,
        key: &str,
        request: SlackRequest,
        (done, session): (&'static str, &str),
        desk: &Desk,
    ) -> Result<(), Again> {
        if self.carry_out(who, desk, request, key).await? {
            self.say(desk, Words::new(done).and(": ").and(Words::said(session)).and(".")).await;
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
        desk: &Desk,
    ) -> Result<(), Again> {
        let config = self.access().config();
        let only = || match config.workspaces.keys().collect::<Vec<_>>()[..] {
            [only] => Ok(only.clone()),
            [] => Err(Words::new("No workspace is configured: say which directory, as in `in /path`.")),
            _ => {
                let names = config.workspaces.keys().map(|name| Words::said(name).code());
                Err(Words::new("Say in which workspace: ").and(Words::join(names, ", ")))
            }
        };
        let workspace = match workspace.map_or_else(only, Ok) {
            Ok(workspace) => workspace,
            Err(words) => {
                self.say(desk, words).await;
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
                let words = Words::new("Started ")
                    .and(Words::said(&session.label()).code())
                    .and("; its thread is on its way.");
                self.say(desk, words).await;
                Ok(())
            }
            Ok(_) => Ok(()),
            Err(error) => self.settle(who, desk, &error).await.map(drop),
        }
    }

    pub(super) fn whoami_words(&self, user: &str) -> Words {
        let id = Words::new("Your Slack id is ").and(Words::said(user).code());
        match self.access().operator(user) {
            Some(who) => id
                .and("; here you are ")
                .and(Words::said(&who.name))
                .and(", ")
                .and(Words::said(who.role.as_str()))
                .and("."),
            None => id.and(". You are not an operator here."),
        }
    }

    async fn clearances_words(&self) -> Words {
        let Ok(pending) = self.access().pending_clearances(None).await else {
            return Words::new("What waits cannot be read now.");
        };
        let each = pending.iter().take(MANY).map(|clearance| {
            let id = intercom_types::text::short(&clearance.id);
            let session = clearance.session_label();
            Words::new("• ")
                .and(Words::said(&clearance.risk))
                .and(": ")
                .and(Words::said(&intercom_types::action::line_of(clearance)).cut(200))
                .and(" – ")
                .and(Words::said(&format!("{id} of {session}")).code())
        });
        let more = pending.len().saturating_sub(MANY);
        let words =
            Words::join(each.chain((more > 0).then(|| Words::number(more as u64).and(" more"))), "\n");
        if words.is_blank() { Words::new("Nothing waits for a decision.") } else { words }
    }

    async fn policy_words(&self) -> Words {
        let Ok(policy) = self.access().policy().await else {
            return Words::new("The policy cannot be read.");
        };
        let rules: Result<Vec<Rule>, _> = policy.rules.iter().map(Rule::deserialize).collect();
        let Ok(rules) = rules else { return Words::new("The policy cannot be read.") };
        let rules = rules
            .iter()
            .take(MANY)
            .zip(1_u64..)
            .map(|(rule, n)| Words::number(n).and(". ").and(Words::said(&sentence(rule)).cut(300)));
        let rules = Words::join(rules, "\n");
        let rules = if rules.is_blank() {
            Words::new("There are no rules: people are asked about everything.")
        } else {
            rules
        };
        Words::join([rules, Words::count(policy.grants, "grant").and(" besides.")], "\n")
    }
}

fn no_session(typed: &str) -> Words {
    Words::new("There is no session ").and(Words::said(typed).code()).and("; `/intercom ls` lists them.")
}

fn list(sessions: &[Session]) -> Words {
    let each = sessions.iter().take(MANY).map(|session| {
        let name = Words::said(&session.label()).cut(60).code();
        let agent = Words::said(session.agent.as_deref().unwrap_or("an agent")).cut(40);
        let why = Words::said(session.why.as_str()).cut(150);
        let waiting = session.pending.clearances + session.pending.questions;
        let waits = if waiting > 0 {
            Words::new(" – ").and(Words::count(waiting, "thing").bold()).and(" for you")
        } else {
            Words::default()
        };
        Words::new("• ")
            .and(name)
            .and(" ")
            .and(agent)
            .and(": ")
            .and(Words::said(session.phase_word()).bold())
            .and(", ")
            .and(why)
            .and(waits)
    });
    let more = sessions.len().saturating_sub(MANY);
    let words = Words::join(each.chain((more > 0).then(|| Words::number(more as u64).and(" more"))), "\n");
    if words.is_blank() { Words::new("No session is running. `/intercom start` starts one.") } else { words }
}

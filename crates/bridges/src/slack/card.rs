//! Our messages in Slack: one pure function per card, from the API's view to the message.
//!
//! A card is edited only after an event, so its text must stay true without edits: times are dates, which each reader's
//! client formats. A card that asks for nothing mentions nobody.

use std::collections::BTreeMap;

use super::block_kit::{MrkdwnText, PlainText};
use intercom_types::{Delivery, Session, Time};

mod agent_text;
mod clearance;
mod details;
mod display_state;
mod exit;
mod forms;
mod home;
mod options;
mod outcome;
mod question;
mod stall;
mod status;

#[cfg(test)]
mod tests;

pub(super) use agent_text::{TurnCounts, help, note, talk, turn};
pub(super) use clearance::{clearance, command_is_cut, diff_is_cut};
pub(super) use details::{clearance_details, clearance_details_told};
pub(super) use exit::exit;
pub(super) use forms::{always, deny_reason, nudge_with, refine, send_to_agent};
pub(super) use home::home;
pub(super) use question::question;
pub(super) use stall::stall;
pub(super) use status::status;

/// More would be noise, and who is called by everything looks at nothing.
const MOST_CALLED: usize = 10;

/// The operators, and who they are in Slack.
#[derive(Debug, Clone, Default)]
pub(super) struct OperatorDirectory(BTreeMap<String, String>);

impl OperatorDirectory {
    /// By name, with their Slack user ids.
    pub(super) fn new(users: BTreeMap<String, String>) -> Self {
        Self(users)
    }

    /// Names them without calling them.
    #[expect(
        clippy::unused_self,
        reason = "so that who shows a person need not know whether they are in Slack"
    )]
    pub(super) fn show(&self, name: &str) -> MrkdwnText {
        MrkdwnText::untrusted(name).cut(80)
    }

    /// Calls them, if they are in Slack.
    pub(super) fn ping(&self, name: &str) -> Option<MrkdwnText> {
        MrkdwnText::mention(self.0.get(name)?)
    }

    /// `@ana, bo are asked`.
    fn asked_line(&self, names: &[String]) -> MrkdwnText {
        let who = self.mention_all(names);
        match names.len() {
            _ if who.is_blank() => who,
            1 => who.and(" is asked"),
            _ => who.and(" are asked"),
        }
    }

    /// For what nobody has to answer.
    fn notice_line(&self, names: &[String]) -> MrkdwnText {
        let who = self.mention_all(names);
        if who.is_blank() { who } else { who.and(", please look") }
    }

    /// Mentions these people; those who are not in Slack appear by name. Empty if there is nobody to mention.
    fn mention_all(&self, names: &[String]) -> MrkdwnText {
        let mut who: Vec<MrkdwnText> = names
            .iter()
            .take(MOST_CALLED)
            .map(|name| self.ping(name).unwrap_or_else(|| self.show(name)))
            .filter(|who| !who.is_blank())
            .collect();
        if names.len() > MOST_CALLED {
            who.push(MrkdwnText::number((names.len() - MOST_CALLED) as u64).and(" more"));
        }
        MrkdwnText::join(who, ", ")
    }
}

/// The last part of its workspace: what people call the thing they work on.
fn project(session: &Session) -> String {
    let last = session.workspace.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    if last.trim().is_empty() { session.label() } else { last.to_owned() }
}

/// `symbol what · project`, with room for each.
fn title(what: impl Into<PlainText>, session: &Session) -> PlainText {
    what.into().cut(80).and(" · ").and(PlainText::untrusted(&project(session)).cut(60))
}

fn agent(session: &Session) -> &str {
    session.agent.as_deref().unwrap_or("an agent")
}

/// Its name or short id, and its agent.
fn who(session: &Session) -> MrkdwnText {
    MrkdwnText::untrusted(&session.label())
        .cut(100)
        .and(" · ")
        .and(MrkdwnText::untrusted(agent(session)).cut(100))
}

/// `*Name*` with the value below; nothing if there is no value.
fn field(name: &'static str, value: MrkdwnText) -> MrkdwnText {
    if value.is_blank() { value } else { MrkdwnText::new(name).bold().and("\n").and(value.cut(300)) }
}

/// ` at <time>`, or nothing.
fn at(time: Option<Time>) -> MrkdwnText {
    time.map(|time| MrkdwnText::new(" at ").and(MrkdwnText::date(time))).unwrap_or_default()
}

/// Describes the delivery of an answer; empty where there is nothing to say.
fn delivery(delivery: &Delivery) -> MrkdwnText {
    match delivery {
        Delivery::Delivered => MrkdwnText::new("delivered"),
        Delivery::Failed(cause) => {
            MrkdwnText::new("not delivered").bold().and(": ").and(MrkdwnText::untrusted(cause).cut(300))
        }
        Delivery::None => MrkdwnText::default(),
        Delivery::Pending => MrkdwnText::new("not delivered yet"),
        Delivery::Other(state) => MrkdwnText::untrusted(state).cut(100),
    }
}

/// An id as it is typed on the command line, all of it.
fn id(id: &str) -> MrkdwnText {
    MrkdwnText::untrusted(id).cut(80).code()
}

fn is_live(session: &Session) -> bool {
    session.is_live()
}

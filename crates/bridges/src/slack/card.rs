//! Our messages in Slack: one function per card, from the API's answer to the posted message.
//!
//! A card is edited when something happened and at no other time, so nothing in it changes by itself: times are given as
//! dates, which the reader's own clock puts into words. Nobody is called by a card that asks for nothing.

use std::collections::BTreeMap;

use super::kit::{Plain, Words};
use intercom_types::{Delivery, Session, Time};

mod clearance;
mod decided;
mod details;
mod exit;
mod forms;
mod home;
mod options;
mod question;
mod stall;
mod standing;
mod status;
mod talk;

#[cfg(test)]
mod tests;

pub(super) use clearance::{clearance, command_is_cut, diff_is_cut};
pub(super) use details::{clearance_details, clearance_details_told};
pub(super) use exit::exit;
pub(super) use forms::{always, deny_reason, nudge_with, refine, send_to_agent};
pub(super) use home::home;
pub(super) use question::question;
pub(super) use stall::stall;
pub(super) use status::status;
pub(super) use talk::{Did, help, note, talk, turn};

/// More would be noise, and who is called by everything looks at nothing.
const MOST_CALLED: usize = 10;

/// The operators, and who they are in Slack.
#[derive(Debug, Clone, Default)]
pub(super) struct People(BTreeMap<String, String>);

impl People {
    /// By name, with their Slack user ids.
    pub(super) fn new(users: BTreeMap<String, String>) -> Self {
        Self(users)
    }

    /// Names them without calling them.
    #[expect(
        clippy::unused_self,
        reason = "so that who shows a person need not know whether they are in Slack"
    )]
    pub(super) fn show(&self, name: &str) -> Words {
        Words::said(name).cut(80)
    }

    /// Calls them, if they are in Slack.
    pub(super) fn ping(&self, name: &str) -> Option<Words> {
        Words::mention(self.0.get(name)?)
    }

    /// `@ana, bo are asked`.
    fn asked(&self, names: &[String]) -> Words {
        let who = self.call(names);
        match names.len() {
            _ if who.is_blank() => who,
            1 => who.and(" is asked"),
            _ => who.and(" are asked"),
        }
    }

    /// For what nobody has to answer.
    fn told(&self, names: &[String]) -> Words {
        let who = self.call(names);
        if who.is_blank() { who } else { who.and(", please look") }
    }

    /// Mentions these people; those who are not in Slack appear by name. Empty if there is nobody to mention.
    fn call(&self, names: &[String]) -> Words {
        let mut who: Vec<Words> = names
            .iter()
            .take(MOST_CALLED)
            .map(|name| self.ping(name).unwrap_or_else(|| self.show(name)))
            .filter(|who| !who.is_blank())
            .collect();
        if names.len() > MOST_CALLED {
            who.push(Words::number((names.len() - MOST_CALLED) as u64).and(" more"));
        }
        Words::join(who, ", ")
    }
}

/// The last part of its workspace: what people call the thing they work on.
fn project(session: &Session) -> String {
    let last = session.workspace.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    if last.trim().is_empty() { session.label() } else { last.to_owned() }
}

/// `symbol what · project`, with room for each.
fn title(what: impl Into<Plain>, session: &Session) -> Plain {
    what.into().cut(80).and(" · ").and(Plain::said(&project(session)).cut(60))
}

fn agent(session: &Session) -> &str {
    session.agent.as_deref().unwrap_or("an agent")
}

/// Its name or short id, and its agent.
fn who(session: &Session) -> Words {
    Words::said(&session.label()).cut(100).and(" · ").and(Words::said(agent(session)).cut(100))
}

/// `*Name*` with the value below; nothing if there is no value.
fn field(name: &'static str, value: Words) -> Words {
    if value.is_blank() { value } else { Words::new(name).bold().and("\n").and(value.cut(300)) }
}

/// ` at <time>`, or nothing.
fn at(time: Option<Time>) -> Words {
    time.map(|time| Words::new(" at ").and(Words::date(time))).unwrap_or_default()
}

/// Describes the delivery of an answer; empty where there is nothing to say.
fn delivery(delivery: &Delivery) -> Words {
    match delivery {
        Delivery::Delivered => Words::new("delivered"),
        Delivery::Failed(cause) => {
            Words::new("not delivered").bold().and(": ").and(Words::said(cause).cut(300))
        }
        Delivery::None => Words::default(),
        Delivery::Pending => Words::new("not delivered yet"),
        Delivery::Other(state) => Words::said(state).cut(100),
    }
}

/// An id as it is typed on the command line, all of it.
fn id(id: &str) -> Words {
    Words::said(id).cut(80).code()
}

fn is_live(session: &Session) -> bool {
    session.is_live()
}

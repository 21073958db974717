//! Events as log entries: tool calls get their titles, and repetitions of an agent are shown once.

use std::collections::VecDeque;

use super::time::show_time;
use intercom_types::event::AgentUpdate;
use intercom_types::summary::Summary;
use intercom_types::text::cut;
use intercom_types::{Event, ReceivedEvent};

/// The maximum number of tool calls whose titles are remembered.
const MAX_CALLS: usize = 1000;
/// The maximum number of topics whose last entry is remembered; an older one is shown again.
const MAX_TOPICS: usize = 1000;
/// The maximum width of a topic: agents invent names of any length.
const MAX_TOPIC: usize = 100;

#[derive(Debug, Default)]
pub(super) struct EventSummarizer {
    calls: VecDeque<RememberedCall>,
    topics: VecDeque<RememberedTopic>,
}

#[derive(Debug)]
struct RememberedCall {
    session: String,
    id: String,
    title: String,
    status: String,
}

/// The last entry on a topic that agents repeat: a plan, a mode, an unknown message.
#[derive(Debug)]
struct RememberedTopic {
    session: String,
    name: String,
    summary: Summary,
}

impl EventSummarizer {
    /// Returns the entry of an event; `None` if it contains nothing new.
    pub(super) fn entry(&mut self, received: &ReceivedEvent) -> Option<Summary> {
        let ReceivedEvent { session, event, .. } = received;
        let update = match event {
            Event::Update(message) => message.update(),
            _ => None,
        };
        let topic = match (event, update) {
            (_, Some(AgentUpdate::ToolCall { id, title, status, .. })) if !id.is_empty() => {
                return self.call(session, id, title, status);
            }
            // Counters change with every word; `show` has them.
            (_, Some(AgentUpdate::Usage { .. })) => return None,
            // A session update without a title; `--raw` has it, and the answers below.
            (_, Some(AgentUpdate::Title(title)))
                if title.as_deref().is_none_or(|title| title.trim().is_empty()) =>
            {
                return None;
            }
            (Event::UnknownMessage(unknown), None) if unknown.is_settled_answer() => return None,
            (_, Some(update)) => topic_of(update),
            (Event::UnknownMessage(unknown), None) => Some(unknown.in_words()),
            _ => None,
        };
        let summary = event.summary(show_time);
        match topic {
            Some(name) => self.is_news(session, cut(&name, MAX_TOPIC), &summary).then_some(summary),
            None => Some(summary),
        }
    }

    fn is_news(&mut self, session: &str, name: String, summary: &Summary) -> bool {
        let known = self.topics.iter_mut().find(|topic| topic.session == session && topic.name == name);
        if let Some(known) = known {
            let news = known.summary != *summary;
            known.summary = summary.clone();
            return news;
        }
        if self.topics.len() >= MAX_TOPICS {
            self.topics.pop_front();
        }
        self.topics.push_back(RememberedTopic {
            session: session.to_owned(),
            name,
            summary: summary.clone(),
        });
        true
    }

    fn call(
        &mut self,
        session: &str,
        id: String,
        title: Option<String>,
        status: Option<String>,
    ) -> Option<Summary> {
        let known = self.calls.iter_mut().find(|call| call.session == session && call.id == id);
        let call = if let Some(known) = known {
            let before = (known.title.clone(), known.status.clone());
            known.title = title.unwrap_or_else(|| known.title.clone());
            known.status = status.unwrap_or_else(|| known.status.clone());
            if before == (known.title.clone(), known.status.clone()) {
                return None;
            }
            known
        } else {
            if self.calls.len() >= MAX_CALLS {
                self.calls.pop_front();
            }
            let title = title.unwrap_or_else(|| id.clone());
            let status = status.unwrap_or_else(|| "pending".to_owned());
            self.calls.push_back(RememberedCall { session: session.to_owned(), id, title, status });
            self.calls.back_mut()?
        };
        Some(Summary::of_tool_call(&call.title, &call.status))
    }
}

/// Returns the topic of an update that agents repeat, if it has one: the plan, the mode.
fn topic_of(update: AgentUpdate) -> Option<String> {
    Some(match update {
        AgentUpdate::Plan(_) => "plan".to_owned(),
        AgentUpdate::Mode(_) => "mode".to_owned(),
        AgentUpdate::Title(_) => "title".to_owned(),
        AgentUpdate::Commands(_) => "commands".to_owned(),
        AgentUpdate::Options => "options".to_owned(),
        AgentUpdate::Other(name) => name,
        AgentUpdate::Chunk(_)
        | AgentUpdate::ToolCall { .. }
        | AgentUpdate::Tool { .. }
        | AgentUpdate::Usage { .. } => return None,
    })
}

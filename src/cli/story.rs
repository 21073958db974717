//! Events as entries of a story: tool calls have their titles, and what an agent repeats is told once.

use std::collections::VecDeque;

use super::render::{self, Shown};
use crate::answers::Event;

/// Tool calls that are remembered for their titles.
const MAX_CALLS: usize = 1000;
/// Topics whose last entry is remembered; an older one is told again.
const MAX_TOPICS: usize = 1000;

#[derive(Debug, Default)]
pub(super) struct Story {
    calls: VecDeque<Call>,
    topics: VecDeque<Topic>,
}

#[derive(Debug)]
struct Call {
    session: String,
    id: String,
    title: String,
    status: String,
}

/// The last entry about something that agents repeat: a plan, a mode, a message that we do not know.
#[derive(Debug)]
struct Topic {
    session: String,
    name: String,
    shown: Shown,
}

impl Story {
    /// `None` where an event says nothing that was not said before.
    pub(super) fn entry(&mut self, event: &Event) -> Option<Shown> {
        if let Some((id, title, status)) = render::call(event) {
            return self.call(&event.session, id, title, status);
        }
        if render::is_quiet(event) {
            return None;
        }
        let shown = render::event(event);
        match render::topic(event) {
            Some(name) => self.is_news(&event.session, name, &shown).then_some(shown),
            None => Some(shown),
        }
    }

    fn is_news(&mut self, session: &str, name: String, shown: &Shown) -> bool {
        let known = self.topics.iter_mut().find(|topic| topic.session == session && topic.name == name);
        if let Some(known) = known {
            let news = known.shown != *shown;
            known.shown = shown.clone();
            return news;
        }
        if self.topics.len() >= MAX_TOPICS {
            self.topics.pop_front();
        }
        self.topics.push_back(Topic { session: session.to_owned(), name, shown: shown.clone() });
        true
    }

    fn call(
        &mut self,
        session: &str,
        id: String,
        title: Option<String>,
        status: Option<String>,
    ) -> Option<Shown> {
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
            self.calls.push_back(Call { session: session.to_owned(), id, title, status });
            self.calls.back_mut()?
        };
        Some(render::call_line(&call.title, &call.status))
    }
}

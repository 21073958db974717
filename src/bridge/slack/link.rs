//! How it stands with Slack, for those who look: `doctor`, `ls`, the metrics.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::web::Trouble;
use crate::bridge::condition::{Condition, Conditions};

/// A connection is refreshed every now and then; that is no trouble.
const GRACE: Duration = Duration::from_secs(10);

/// The question who we are, among what can be in trouble.
pub(super) const WHO: &str = "auth.test";
/// What the figure says that alerts look at.
pub(super) const CONNECTED: &str = "Whether Slack is connected.";

#[derive(Debug, Clone)]
pub(super) struct Link(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    conditions: Conditions,
    /// Connections that have said hello.
    connections: watch::Sender<usize>,
    state: Mutex<State>, // for the moment of a change
}

#[derive(Debug)]
struct State {
    /// Since when there is none.
    lost_at: Option<Instant>,
    /// Why there is none, as far as we know.
    why: Option<String>,
    /// Which message is not taken, and why.
    trouble: Option<(String, String)>,
    /// Scopes that the app should have.
    lacks: Option<String>,
    backlog: u64,
    received: u64,
    sent: u64,
}

impl Link {
    pub(super) fn new(conditions: Conditions) -> Self {
        let state = State {
            lost_at: Some(Instant::now()),
            why: None,
            trouble: None,
            lacks: None,
            backlog: 0,
            received: 0,
            sent: 0,
        };
        let link = Self(Arc::new(Inner {
            conditions,
            connections: watch::Sender::new(0),
            state: Mutex::new(state),
        }));
        link.tell();
        link
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn connections(&self) -> watch::Receiver<usize> {
        self.0.connections.subscribe()
    }

    /// So many are there now.
    pub(super) fn connected(&self, count: usize) {
        {
            let mut state = self.state();
            match (count, state.lost_at) {
                (0, None) => state.lost_at = Some(Instant::now()),
                (0, Some(_)) => {}
                _ => (state.lost_at, state.why) = (None, None),
            }
        }
        self.0.connections.send_replace(count);
        self.tell();
    }

    /// For how long there has been no connection.
    pub(super) fn lost_for(&self) -> Option<Duration> {
        self.state().lost_at.map(|at| at.elapsed())
    }

    pub(super) fn why(&self, why: &str) {
        self.state().why = Some(why.to_owned());
        self.tell();
    }

    /// A message, or something else that has a name, is not taken.
    pub(super) fn trouble(&self, key: &str, trouble: &Trouble) {
        let advice = trouble.advice().map(|advice| format!(": {advice}")).unwrap_or_default();
        self.state().trouble = Some((key.to_owned(), format!("{trouble}{advice}")));
        self.tell();
    }

    /// That others are taken does not mean that all is well.
    pub(super) fn sent(&self, key: &str) {
        {
            let mut state = self.state();
            state.sent += 1;
            state.trouble.take_if(|(of, _)| of == key);
        }
        self.tell();
    }

    /// We know who we are.
    pub(super) fn known(&self) {
        self.state().trouble.take_if(|(of, _)| of == WHO);
        self.tell();
    }

    pub(super) fn lacks(&self, scopes: Option<String>) {
        self.state().lacks = scopes;
        self.tell();
    }

    pub(super) fn received(&self) {
        self.state().received += 1;
        self.tell();
    }

    pub(super) fn backlog(&self, backlog: u64) {
        let mut state = self.state();
        if state.backlog == backlog {
            return;
        }
        state.backlog = backlog;
        drop(state);
        self.tell();
    }

    /// Also called now and then, because "for 40 s" grows.
    pub(super) fn tell(&self) {
        let connections = *self.0.connections.borrow();
        let state = self.state();
        let waiting = if state.backlog == 1 {
            "1 message waits".to_owned()
        } else {
            format!("{} messages wait", state.backlog)
        };
        let words = match (&state.lost_at, &state.trouble) {
            (Some(at), trouble) if at.elapsed() >= GRACE || state.why.is_some() => {
                let why = state
                    .why
                    .as_ref()
                    .or(trouble.as_ref().map(|(_, why)| why))
                    .map(|why| format!(": {why}"))
                    .unwrap_or_default();
                format!("no connection for {} s{why}; {waiting}", at.elapsed().as_secs())
            }
            (Some(_), _) => "connecting".to_owned(),
            (None, Some((_, trouble))) if state.backlog > 0 => {
                format!("messages are not taken: {trouble}; {waiting}")
            }
            (None, _) => match &state.lacks {
                Some(scopes) => format!("connected, but the app lacks {scopes}"),
                None => "ok".to_owned(),
            },
        };
        let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let figures = vec![
            ("connected", CONNECTED, u64::from(connections > 0)),
            ("connections", "Connections to Slack.", number(connections)),
            ("unsent", "Messages that Slack does not have yet as they should be.", state.backlog),
            ("received", "Envelopes received from Slack since the start.", state.received),
            ("sent", "Messages and edits that Slack has taken since the start.", state.sent),
        ];
        drop(state);
        self.0.conditions.set("slack", Condition { words, figures });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_said_in_words() {
        let conditions = Conditions::default();
        let link = Link::new(conditions.clone());
        let words = || conditions.all()["slack"].words.clone();
        assert_eq!(words(), "connecting");
        link.why("invalid_auth");
        assert_eq!(words(), "no connection for 0 s: invalid_auth; 0 messages wait");
        link.connected(1);
        link.backlog(2);
        assert_eq!(words(), "ok");
        link.trouble("a", &Trouble::Setup("not_in_channel".to_owned()));
        assert_eq!(
            words(),
            "messages are not taken: not_in_channel: invite the app to the channel: /invite @intercom; 2 messages wait"
        );
        link.sent("b");
        assert_ne!(words(), "ok");
        link.sent("a");
        assert_eq!(words(), "ok");
        link.lacks(Some("files:write".to_owned()));
        assert_eq!(words(), "connected, but the app lacks files:write");
        link.lacks(None);
        link.connected(0);
        assert_eq!(words(), "connecting");
    }
}

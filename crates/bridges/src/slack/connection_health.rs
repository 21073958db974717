//! The state of the Slack connection, for `doctor`, `ls` and the metrics.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::web_api::SlackCallError;
use crate::health::{BridgeHealth, HealthRegistry};

/// The time without a connection before it counts as a problem: Slack renews connections every now and then.
const GRACE: Duration = Duration::from_secs(10);
/// The time limit for the card of a pending request to reach Slack before it counts as a problem.
const CARD_GRACE: Duration = Duration::from_secs(10);
/// The most different reasons that are shown.
const MOST_REASONS: usize = 3;

/// The key of the identification of our bot among the failures.
pub(super) const WHO: &str = "auth.test";
/// The description of the metric that alerts use.
pub(super) const CONNECTED: &str = "1 if Slack is connected, else 0.";

#[derive(Debug, Clone)]
pub(super) struct ConnectionHealth(Arc<SharedHealth>);

#[derive(Debug)]
struct SharedHealth {
    /// The number of connections that Slack has confirmed.
    connections: watch::Sender<usize>,
    /// Locked only for one read or change.
    state: Mutex<HealthRecord>,
}

#[derive(Debug)]
struct HealthRecord {
    /// The time since which there is no connection.
    lost_at: Option<Instant>,
    /// The reason for having none, if it is known.
    why: Option<String>,
    /// The messages that Slack did not accept, with the reasons.
    troubles: BTreeMap<String, String>,
    /// The cards of pending requests that Slack does not have, with the time since then.
    cards: HashMap<String, Instant>,
    /// The missing scopes of the app.
    lacks: Option<String>,
    backlog: u64,
    received: u64,
    sent: u64,
    given_up: u64,
    /// The number of events of the log that were read for Slack.
    events_read: u64,
}

/// The messages whose desired state Slack does not have.
#[derive(Debug, Default)]
pub(super) struct UnsentMessages<'a> {
    pub(super) count: u64,
    /// The examined messages, each with whether it is the card of a pending request.
    pub(super) rows: Vec<(&'a str, bool)>,
}

impl ConnectionHealth {
    pub(super) fn new(registry: &HealthRegistry) -> Self {
        let state = HealthRecord {
            lost_at: Some(Instant::now()),
            why: None,
            troubles: BTreeMap::new(),
            cards: HashMap::new(),
            lacks: None,
            backlog: 0,
            received: 0,
            sent: 0,
            given_up: 0,
            events_read: 0,
        };
        let health =
            Self(Arc::new(SharedHealth { connections: watch::Sender::new(0), state: Mutex::new(state) }));
        let asked = health.clone();
        registry.ask("slack", move || asked.condition());
        health
    }

    fn state(&self) -> MutexGuard<'_, HealthRecord> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn connections(&self) -> watch::Receiver<usize> {
        self.0.connections.subscribe()
    }

    /// Sets the number of connections.
    pub(super) fn set_connections(&self, count: usize) {
        {
            let mut state = self.state();
            match (count, state.lost_at) {
                (0, None) => state.lost_at = Some(Instant::now()),
                (0, Some(_)) => {}
                _ => (state.lost_at, state.why) = (None, None),
            }
        }
        self.0.connections.send_replace(count);
    }

    /// Returns the time without a connection.
    pub(super) fn lost_for(&self) -> Option<Duration> {
        self.state().lost_at.map(|at| at.elapsed())
    }

    pub(super) fn set_lost_reason(&self, why: &str) {
        self.state().why = Some(why.to_owned());
    }

    /// Records that Slack did not accept a message or call.
    pub(super) fn record_failure(&self, key: &str, trouble: &SlackCallError) {
        let advice = trouble.advice().map(|advice| format!(": {advice}")).unwrap_or_default();
        self.state().troubles.insert(key.to_owned(), format!("{trouble}{advice}"));
    }

    /// Records that Slack accepted a message. Failures of other messages stay.
    pub(super) fn sent(&self, key: &str) {
        let mut state = self.state();
        state.sent += 1;
        state.troubles.remove(key);
        state.cards.remove(key);
    }

    /// Counts a message that Slack refuses in every form and that nobody waits for.
    pub(super) fn gave_up(&self) {
        self.state().given_up += 1;
    }

    /// Records that our bot was identified.
    pub(super) fn record_identified(&self) {
        self.state().troubles.remove(WHO);
    }

    pub(super) fn set_missing_scopes(&self, scopes: Option<String>) {
        self.state().lacks = scopes;
    }

    pub(super) fn received(&self) {
        self.state().received += 1;
    }

    /// Counts events that were read from the log.
    pub(super) fn read_events(&self, count: usize) {
        self.state().events_read += u64::try_from(count).unwrap_or(0);
    }

    /// Updates the backlog: a message that is not in `unsent` has arrived, or is no longer wanted.
    pub(super) fn update_backlog(&self, unsent: &UnsentMessages<'_>) {
        let mut state = self.state();
        state.backlog = unsent.count;
        let all: HashMap<&str, bool> = unsent.rows.iter().copied().collect();
        state.troubles.retain(|key, _| key == WHO || all.contains_key(key.as_str()));
        state.cards.retain(|key, _| all.get(key.as_str()) == Some(&true));
        for (key, _) in unsent.rows.iter().filter(|(_, is_card)| *is_card) {
            if !state.cards.contains_key(*key) {
                state.cards.insert((*key).to_owned(), Instant::now());
            }
        }
    }

    fn condition(&self) -> BridgeHealth {
        let connections = *self.0.connections.borrow();
        let state = self.state();
        let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let failing = state.troubles.keys().filter(|key| *key != WHO).count();
        let metrics = vec![
            ("connected", CONNECTED, u64::from(connections > 0)),
            ("connections", "Connections to Slack.", number(connections)),
            ("unsent", "Messages whose current state Slack does not have yet.", state.backlog),
            (
                "unsent_cards",
                "Cards of pending requests whose current state Slack does not have yet.",
                number(state.cards.len()),
            ),
            (
                "failing",
                "Messages that Slack did not accept at the last attempt; each is sent again.",
                number(failing),
            ),
            ("given_up", "Messages that Slack refused in every form since the start.", state.given_up),
            ("received", "Envelopes received from Slack since the start.", state.received),
            ("sent", "Messages and edits that Slack accepted since the start.", state.sent),
            ("events_read", "Events of the log that were read for Slack since the start.", state.events_read),
        ];
        BridgeHealth { status: state.words(), metrics }
    }
}

impl HealthRecord {
    fn words(&self) -> String {
        let waiting = if self.backlog == 1 {
            "1 message waits".to_owned()
        } else {
            format!("{} messages wait", self.backlog)
        };
        let late = self.cards.values().filter(|since| since.elapsed() >= CARD_GRACE);
        let oldest = late.clone().map(Instant::elapsed).max();
        match (&self.lost_at, oldest) {
            (Some(at), _) if at.elapsed() >= GRACE || self.why.is_some() => {
                let why = self.why.clone().or_else(|| self.reasons());
                let why = why.map(|why| format!(": {why}")).unwrap_or_default();
                format!("no connection for {} s{why}; {waiting}", at.elapsed().as_secs())
            }
            (Some(_), _) => "connecting".to_owned(),
            (None, Some(oldest)) => {
                let cards = match late.count() {
                    1 => "1 card of a pending request has".to_owned(),
                    count => format!("{count} cards of pending requests have"),
                };
                let why = self.reasons().map(|why| format!(": {why}")).unwrap_or_default();
                format!("{cards} not reached Slack for {} s{why}; {waiting}", oldest.as_secs())
            }
            (None, None) => match (self.reasons(), &self.lacks) {
                (Some(why), _) if self.backlog > 0 => format!("messages are not taken: {why}; {waiting}"),
                (_, Some(scopes)) => format!("connected, but the app lacks {scopes}"),
                _ => "ok".to_owned(),
            },
        }
    }

    /// Returns the reasons why messages are not accepted, those of late cards first.
    fn reasons(&self) -> Option<String> {
        let mut reasons: Vec<&str> = Vec::new();
        let of_cards = self.troubles.iter().filter(|(key, _)| self.cards.contains_key(*key));
        for (_, why) in of_cards.chain(&self.troubles) {
            if !reasons.contains(&why.as_str()) {
                reasons.push(why);
            }
        }
        let more = reasons.len().saturating_sub(MOST_REASONS);
        reasons.truncate(MOST_REASONS);
        let more = if more > 0 { format!(", and {more} other reasons") } else { String::new() };
        (!reasons.is_empty()).then(|| reasons.join(", ") + &more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_said_in_words() {
        let conditions = HealthRegistry::default();
        let link = ConnectionHealth::new(&conditions);
        let words = || conditions.all()["slack"].status.clone();
        assert_eq!(words(), "connecting");
        link.set_lost_reason("invalid_auth");
        assert_eq!(words(), "no connection for 0 s: invalid_auth; 0 messages wait");
        link.set_connections(1);
        link.update_backlog(&UnsentMessages { count: 2, rows: vec![("a", false), ("b", false)] });
        assert_eq!(words(), "ok");
        link.record_failure("a", &SlackCallError::Setup("not_in_channel".to_owned()));
        assert_eq!(
            words(),
            "messages are not taken: not_in_channel: invite the app to the channel: /invite @intercom; 2 messages wait"
        );
        link.sent("b");
        assert_ne!(words(), "ok");
        link.sent("a");
        assert_eq!(words(), "ok");
        link.set_missing_scopes(Some("files:write".to_owned()));
        assert_eq!(words(), "connected, but the app lacks files:write");
        link.set_missing_scopes(None);
        link.set_connections(0);
        assert_eq!(words(), "connecting");
    }

    #[test]
    fn every_message_that_is_not_taken_is_told_until_it_is() {
        let conditions = HealthRegistry::default();
        let link = ConnectionHealth::new(&conditions);
        let words = || conditions.all()["slack"].status.clone();
        link.set_connections(1);
        link.update_backlog(&UnsentMessages { count: 2, rows: vec![("a", false), ("b", false)] });
        link.record_failure("a", &SlackCallError::Unsure("internal_error".to_owned()));
        link.record_failure("b", &SlackCallError::Unknown("brand_new".to_owned()));
        assert_eq!(
            words(),
            "messages are not taken: internal_error, brand_new: unknown error code; the message will be sent again; 2 messages wait"
        );
        link.sent("b");
        assert_eq!(words(), "messages are not taken: internal_error; 2 messages wait");
        link.update_backlog(&UnsentMessages::default());
        assert_eq!(words(), "ok", "it is not wanted any more");
    }

    #[test]
    fn a_card_of_a_pending_request_that_is_late_is_told() {
        let link = ConnectionHealth::new(&HealthRegistry::default());
        link.set_connections(1);
        link.update_backlog(&UnsentMessages { count: 1, rows: vec![("clr_1", true)] });
        assert_eq!(link.condition().status, "ok", "it may be on its way");
        let long_ago = Instant::now().checked_sub(Duration::from_secs(12)).unwrap();
        link.state().cards.insert("clr_1".to_owned(), long_ago);
        assert_eq!(
            link.condition().status,
            "1 card of a pending request has not reached Slack for 12 s; 1 message waits"
        );
        link.update_backlog(&UnsentMessages { count: 1, rows: vec![("clr_1", true)] });
        assert_ne!(link.condition().status, "ok", "it is as late as before");
        link.sent("clr_1");
        assert_eq!(link.condition().status, "ok");
    }
}

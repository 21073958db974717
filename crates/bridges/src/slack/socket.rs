//! The connections to Slack. What arrives is written down, then acknowledged, and worked off by somebody else.
//!
//! The crate keeps the websockets; what it does with what they say is ours. It is watched as well: it tries for ever and
//! says nothing about it, and a connection that never says hello would never be given up.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::json;
use slack_morphism::clients_manager::{SlackSocketModeClientsManager, SlackSocketModeClientsManagerFactory};
use slack_morphism::listener::SlackClientEventsListenerEnvironment;
use slack_morphism::{
    SlackClientSocketModeConfig, SlackSocketModeClientListener, SlackSocketModeWssClientId,
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::connection_health::ConnectionHealth;
use super::interaction::{SocketEnvelope, parse_envelope};
use super::web_api::WebApi;
use intercom_store::Store;
use intercom_types::Time;

/// Two, so that nothing is missed while one of them is renewed.
const CONNECTIONS: u32 = 2;
const PING: Duration = Duration::from_secs(10);
/// Pings without an answer before a connection counts as dead.
const PINGS: u64 = 3;
const LOOK: Duration = Duration::from_secs(1);
/// The time without a connection before we ask Slack for the reason, and the interval between such questions.
const ASK_AFTER: Duration = Duration::from_secs(3);
const ASK_EVERY: Duration = Duration::from_secs(30);
/// The time limit for Slack's answer: the watcher must not wait as patiently as the sender.
const ASK_FOR: Duration = Duration::from_secs(5);
/// The time without a connection before everything starts anew.
const ANEW_AFTER: Duration = Duration::from_mins(1);

type SocketManager = dyn SlackSocketModeClientsManager + Send + Sync;

pub(super) struct SocketModeClient {
    pub(super) web: Arc<WebApi>,
    pub(super) store: Store,
    pub(super) link: ConnectionHealth,
    /// Rung when something has arrived.
    pub(super) inbox: Arc<Notify>,
    pub(super) reconnect_seconds: u64,
    pub(super) greeted: GreetedConnections,
}

/// Connections that have said hello, by the manager they belong to; held for the moment of a change.
pub(super) type GreetedConnections = Arc<Mutex<HashSet<(u64, String)>>>;

impl SocketModeClient {
    pub(super) async fn run(self, closing: CancellationToken) {
        let mut generation = 0;
        let mut manager = self.connect(generation).await;
        let mut begun = tokio::time::Instant::now();
        let mut asked = begun.checked_sub(ASK_EVERY).unwrap_or(begun);
        while closing.run_until_cancelled(tokio::time::sleep(LOOK)).await.is_some() {
            let Some(lost) = self.link.lost_for() else {
                begun = tokio::time::Instant::now();
                continue;
            };
            if lost >= ASK_AFTER && asked.elapsed() >= ASK_EVERY {
                asked = tokio::time::Instant::now();
                closing.run_until_cancelled(self.ask()).await;
            }
            if lost >= ANEW_AFTER && begun.elapsed() >= ANEW_AFTER {
                tracing::warn!("Slack has not been heard of for {} s: connecting anew", lost.as_secs());
                manager.shutdown().await;
                generation += 1;
                manager = self.connect(generation).await;
                begun = tokio::time::Instant::now();
            }
        }
        manager.shutdown().await;
    }

    /// Why there is no connection.
    async fn ask(&self) {
        match tokio::time::timeout(ASK_FOR, self.web.can_connect()).await {
            Ok(Ok(())) => self.link.set_lost_reason("Slack can be reached, and does not say hello"),
            Ok(Err(trouble)) => {
                let advice = trouble.advice().map(|advice| format!(": {advice}")).unwrap_or_default();
                self.link.set_lost_reason(&format!("{trouble}{advice}"));
            }
            Err(_) => self.link.set_lost_reason(&format!("no answer within {} s", ASK_FOR.as_secs())),
        }
    }

    async fn connect(&self, generation: u64) -> Arc<SocketManager> {
        let environment = SlackClientEventsListenerEnvironment::new(Arc::new(self.web.client.clone()));
        let manager = self.web.client.http_api.connector.new_clients_manager(Arc::new(environment));
        let listener = Arc::new(EnvelopeListener {
            manager: Arc::downgrade(&manager),
            generation,
            greeted: Arc::clone(&self.greeted),
            store: self.store.clone(),
            link: self.link.clone(),
            inbox: Arc::clone(&self.inbox),
        });
        let config = SlackClientSocketModeConfig::new()
            .with_max_connections_count(CONNECTIONS)
            .with_initial_backoff_in_seconds(1)
            .with_reconnect_timeout_in_seconds(self.reconnect_seconds)
            .with_ping_interval_in_seconds(PING.as_secs())
            .with_ping_failure_threshold_times(PINGS);
        if let Err(error) = manager.register_new_token(&config, self.web.app.clone(), listener).await {
            tracing::error!(%error, "Slack cannot be listened to");
        }
        manager.start().await;
        manager
    }
}

struct EnvelopeListener {
    manager: Weak<SocketManager>,
    generation: u64,
    greeted: GreetedConnections,
    store: Store,
    link: ConnectionHealth,
    inbox: Arc<Notify>,
}

impl EnvelopeListener {
    fn greeted(&self, id: &SlackSocketModeWssClientId, there: bool) {
        let mut greeted = self.greeted.lock().unwrap_or_else(PoisonError::into_inner);
        // Those of a manager that was given up do not count any more.
        greeted.retain(|(generation, _)| *generation >= self.generation);
        let connection = (self.generation, id.to_string());
        if there {
            greeted.insert(connection);
        } else {
            greeted.remove(&connection);
        }
        let count = greeted.len();
        drop(greeted);
        self.link.set_connections(count);
    }

    async fn renew(&self, id: &SlackSocketModeWssClientId) {
        self.greeted(id, false);
        if let Some(manager) = self.manager.upgrade() {
            manager.restart_client(id).await;
        }
    }
}

#[async_trait]
impl SlackSocketModeClientListener for EnvelopeListener {
    async fn on_message(&self, id: &SlackSocketModeWssClientId, frame: String) -> Option<String> {
        match parse_envelope(&frame) {
            SocketEnvelope::Hello => {
                tracing::info!(connection = id.to_string(), "connected to Slack");
                self.greeted(id, true);
                None
            }
            SocketEnvelope::Disconnect { reason } => {
                tracing::debug!(reason, "Slack wants this connection to be renewed");
                self.renew(id).await;
                None
            }
            SocketEnvelope::Interaction { envelope, key } => {
                match self.store.slack_receive(key, frame, Time::now()).await {
                    Ok(new) => {
                        intercom_failpoint::visit("slack.received");
                        self.link.received();
                        if new {
                            self.inbox.notify_one();
                        }
                        Some(json!({ "envelope_id": envelope }).to_string())
                    }
                    Err(error) => {
                        // Not acknowledged: Slack sends it again, or tells the person that it did not work.
                        tracing::error!(%error, "what Slack sent cannot be kept");
                        None
                    }
                }
            }
            SocketEnvelope::BotMessage { envelope } => Some(json!({ "envelope_id": envelope }).to_string()),
            SocketEnvelope::Other => {
                tracing::debug!("Slack sent something that is no envelope");
                None
            }
        }
    }

    async fn on_error(&self, error: Box<dyn std::error::Error + Send + Sync>) {
        tracing::warn!(%error, "a connection to Slack has failed");
    }

    async fn on_disconnect(&self, id: &SlackSocketModeWssClientId) {
        self.renew(id).await;
    }
}

//! The Socket Mode connections to Slack. An envelope is stored, then acknowledged; the inbox executes it.
//!
//! The `slack_morphism` crate keeps the sockets open. We supervise it: it retries for ever without reporting, and it
//! never gives up a connection that gets no hello.

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
use tokio_util::sync::CancellationToken;

use super::connection_health::ConnectionHealth;
use super::inbox::InboxSender;
use super::interaction::{SocketEnvelope, parse_envelope};
use super::web_api::WebApi;
use intercom_store::Store;
use intercom_types::Time;

/// Two connections, so that nothing is missed while one is renewed.
const CONNECTIONS: u32 = 2;
const PING_INTERVAL: Duration = Duration::from_secs(10);
/// Pings without an answer before a connection counts as dead.
const MAX_MISSED_PINGS: u64 = 3;
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The time without a connection before we ask Slack for the reason, and the interval between such questions.
const ASK_AFTER: Duration = Duration::from_secs(3);
const ASK_EVERY: Duration = Duration::from_secs(30);
/// The time limit for Slack's answer, shorter than the sender's: the supervision must not hang.
const ASK_TIMEOUT: Duration = Duration::from_secs(5);
/// The time without a connection before all connections are replaced.
const RESTART_AFTER: Duration = Duration::from_mins(1);

type SocketManager = dyn SlackSocketModeClientsManager + Send + Sync;

pub(super) struct SocketModeClient {
    pub(super) web: Arc<WebApi>,
    pub(super) store: Store,
    pub(super) health: ConnectionHealth,
    pub(super) inbox: InboxSender,
    pub(super) reconnect_seconds: u64,
    pub(super) greeted: GreetedConnections,
}

/// The connections with a hello, by the generation of their manager; locked only for one change.
pub(super) type GreetedConnections = Arc<Mutex<HashSet<(u64, String)>>>;

impl SocketModeClient {
    pub(super) async fn run(self, closing: CancellationToken) {
        let mut generation = 0;
        let mut manager = self.connect(generation).await;
        let mut started = tokio::time::Instant::now();
        let mut asked_at = started.checked_sub(ASK_EVERY).unwrap_or(started);
        while closing.run_until_cancelled(tokio::time::sleep(CHECK_INTERVAL)).await.is_some() {
            let Some(lost) = self.health.lost_for() else {
                started = tokio::time::Instant::now();
                continue;
            };
            if lost >= ASK_AFTER && asked_at.elapsed() >= ASK_EVERY {
                asked_at = tokio::time::Instant::now();
                closing.run_until_cancelled(self.ask_reason()).await;
            }
            if lost >= RESTART_AFTER && started.elapsed() >= RESTART_AFTER {
                tracing::warn!("no connection to Slack for {} s: reconnecting", lost.as_secs());
                manager.shutdown().await;
                generation += 1;
                manager = self.connect(generation).await;
                started = tokio::time::Instant::now();
            }
        }
        manager.shutdown().await;
    }

    /// Asks Slack for the reason why there is no connection.
    async fn ask_reason(&self) {
        match tokio::time::timeout(ASK_TIMEOUT, self.web.can_connect()).await {
            Ok(Ok(())) => self.health.set_lost_reason("Slack is reachable but does not open the connection"),
            Ok(Err(trouble)) => {
                let advice = trouble.advice().map(|advice| format!(": {advice}")).unwrap_or_default();
                self.health.set_lost_reason(&format!("{trouble}{advice}"));
            }
            Err(_) => self.health.set_lost_reason(&format!("no answer within {} s", ASK_TIMEOUT.as_secs())),
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
            health: self.health.clone(),
            inbox: self.inbox.clone(),
        });
        let config = SlackClientSocketModeConfig::new()
            .with_max_connections_count(CONNECTIONS)
            .with_initial_backoff_in_seconds(1)
            .with_reconnect_timeout_in_seconds(self.reconnect_seconds)
            .with_ping_interval_in_seconds(PING_INTERVAL.as_secs())
            .with_ping_failure_threshold_times(MAX_MISSED_PINGS);
        if let Err(error) = manager.register_new_token(&config, self.web.app.clone(), listener).await {
            tracing::error!(%error, "the connections to Slack cannot be started");
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
    health: ConnectionHealth,
    inbox: InboxSender,
}

impl EnvelopeListener {
    fn greeted(&self, id: &SlackSocketModeWssClientId, connected: bool) {
        let mut greeted = self.greeted.lock().unwrap_or_else(PoisonError::into_inner);
        // Connections of a replaced manager no longer count.
        greeted.retain(|(generation, _)| *generation >= self.generation);
        let connection = (self.generation, id.to_string());
        if connected {
            greeted.insert(connection);
        } else {
            greeted.remove(&connection);
        }
        let count = greeted.len();
        drop(greeted);
        self.health.set_connections(count);
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
                tracing::debug!(reason, "Slack asked us to renew this connection");
                self.renew(id).await;
                None
            }
            SocketEnvelope::Interaction { envelope, key } => {
                match self.store.slack_receive(key.clone(), frame.clone(), Time::now()).await {
                    Ok(new) => {
                        intercom_failpoint::visit("slack.received");
                        self.health.received();
                        if new {
                            self.inbox.pass(key, frame);
                        }
                        Some(json!({ "envelope_id": envelope }).to_string())
                    }
                    Err(error) => {
                        // Not acknowledged: Slack sends it again, or tells the person that the action failed.
                        tracing::error!(%error, "an interaction from Slack cannot be stored");
                        None
                    }
                }
            }
            SocketEnvelope::BotMessage { envelope } => Some(json!({ "envelope_id": envelope }).to_string()),
            SocketEnvelope::Other => {
                tracing::debug!("Slack sent an invalid envelope");
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

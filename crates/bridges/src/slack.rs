//! The Slack bridge: a thread per session, cards with buttons, and the actions of people there.
//!
//! ```text
//!   log ─► publisher ─► slack_messages ─► sender ─► Slack            desired state of each message; retried until sent
//!   Slack ─► socket ─► slack_inbox ─► inbox ─► handlers ─► ops       stored, acknowledged, then carried out once
//! ```
//! The daemon needs none of it: without tokens, without Slack, everything else works, and what should be seen is sent
//! when it can be. What people do goes through operations as the operator they are. `block_kit` knows Block Kit and its
//! limits, `card` what we say with it; both are pure, and so are `outbox` (who is next), `mentions` (who is
//! mentioned) and `commands`.

use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

mod access;
mod block_kit;
mod card;
mod claims;
mod commands;
mod connection_health;
pub mod doctor;
mod handlers;
mod inbox;
mod interaction;
#[cfg(test)]
mod limits;
pub mod manifest;
mod mentions;
mod outbox;
mod publisher;
mod sender;
mod socket;
mod web_api;

pub use web_api::SCOPES;

use self::access::SlackAccess;
use self::connection_health::ConnectionHealth;
use self::handlers::InteractionHandler;
use self::inbox::EnvelopeInbox;
use self::publisher::CardPublisher;
use self::sender::MessageSender;
use self::socket::SocketModeClient;
use self::web_api::{SlackTokens, WebApi};
use crate::health::{BridgeHealth, HealthRegistry};
use intercom_daemon::ops::Operations;

/// The delay before another attempt to identify our bot.
const IDENTIFY_RETRY: Duration = Duration::from_secs(30);

/// The interval at which the connection for cards is used: shorter than the idle time after which either end closes it.
const KEEP_OPEN: Duration = Duration::from_secs(45);

/// The Slack bridge.
pub struct SlackBridge {
    ops: Operations,
    registry: HealthRegistry,
}

impl std::fmt::Debug for SlackBridge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slack").finish_non_exhaustive()
    }
}

impl SlackBridge {
    pub fn new(ops: Operations, registry: HealthRegistry) -> Self {
        Self { ops, registry }
    }

    /// Runs until `closing`. Returns immediately if Slack is off.
    pub async fn run(self, closing: CancellationToken) {
        let config = self.ops.supervisor().config();
        if config.slack.channel.is_none() {
            return;
        }
        let tokens = SlackTokens::read(&config.slack);
        let web =
            tokens.and_then(|tokens| WebApi::new(&config.slack, &tokens).map_err(|error| error.to_string()));
        let web = match web {
            Ok(web) => Arc::new(web),
            Err(why) => {
                tracing::error!(why, "the Slack bridge is not running; fix its configuration and restart");
                let metrics = vec![("connected", connection_health::CONNECTED, 0)];
                self.registry.set("slack", BridgeHealth { status: why, metrics });
                return;
            }
        };
        let (store, log) = (self.ops.store().clone(), self.ops.log());
        let (health, access) = (ConnectionHealth::new(&self.registry), SlackAccess::new(self.ops));
        let (outgoing, (to_inbox, receiver)) = (Arc::new(Notify::new()), inbox::channel());
        let tasks = TaskTracker::new();
        let handler = InteractionHandler::new(
            access.clone(),
            store.clone(),
            Arc::clone(&web),
            Arc::clone(&outgoing),
            tasks.clone(),
            closing.clone(),
        );
        let (claim_sender, claims) = claims::claims();
        let socket = SocketModeClient {
            web: Arc::clone(&web),
            store: store.clone(),
            health: health.clone(),
            inbox: to_inbox,
            reconnect_seconds: config.slack.reconnect_seconds,
            greeted: Arc::new(Mutex::default()),
        };
        let publisher = CardPublisher {
            access: access.clone(),
            store: store.clone(),
            log,
            health: health.clone(),
            claims: claim_sender,
            outbox: Arc::clone(&outgoing),
            homes: Arc::default(),
        };
        let homes = Arc::clone(&publisher.homes);
        tasks.spawn(refresh_homes(handler.clone(), homes, closing.clone()));
        tasks.spawn(identify_bot(Arc::clone(&web), health.clone(), closing.clone()));
        tasks.spawn(keep_connection(Arc::clone(&web), closing.clone()));
        tasks.spawn(socket.run(closing.clone()));
        tasks.spawn(EnvelopeInbox { store: store.clone(), handler, receiver }.run(closing.clone()));
        tasks
            .spawn(MessageSender { store, web, health, access, bell: outgoing }.run(claims, closing.clone()));
        tasks.spawn(publisher.run(closing));
        tasks.close();
        tasks.wait().await;
    }
}

/// Logs our bot's identity and its missing scopes, once Slack has answered.
async fn identify_bot(web: Arc<WebApi>, health: ConnectionHealth, closing: CancellationToken) {
    let identifying = async {
        loop {
            match web.identify().await {
                Ok(who) => {
                    tracing::info!(team = who.team, bot = who.user, id = who.user_id, "identified at Slack");
                    let missing = who.missing();
                    for (scope, what) in &missing {
                        tracing::warn!(scope, "the Slack app lacks a scope, {what}");
                    }
                    let scopes: Vec<&str> = missing.iter().map(|(scope, _)| *scope).collect();
                    health.set_missing_scopes((!scopes.is_empty()).then(|| scopes.join(", ")));
                    health.record_identified();
                    return;
                }
                Err(trouble) => {
                    tracing::warn!(%trouble, advice = trouble.advice(), "cannot identify our bot at Slack; retrying");
                    health.record_failure(connection_health::WHO, &trouble);
                }
            }
            tokio::time::sleep(IDENTIFY_RETRY).await;
        }
    };
    closing.run_until_cancelled(identifying).await;
}

/// Keeps a connection for cards open: opening one takes longer than everything else between a request and its card.
async fn keep_connection(web: Arc<WebApi>, closing: CancellationToken) {
    let keeping = async {
        loop {
            if let Err(error) = web.keep_warm().await {
                tracing::debug!(%error, "no connection for cards is open");
            }
            tokio::time::sleep(KEEP_OPEN).await;
        }
    };
    closing.run_until_cancelled(keeping).await;
}

/// Updates the home tabs of people who have opened theirs lately.
async fn refresh_homes(handler: InteractionHandler, bell: Arc<Notify>, closing: CancellationToken) {
    let refreshing = async {
        loop {
            bell.notified().await;
            handler.refresh_homes();
        }
    };
    closing.run_until_cancelled(refreshing).await;
}

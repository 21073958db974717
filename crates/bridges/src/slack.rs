//! Slack: a thread per session, cards with buttons, and everything that people say or press there.
//!
//! ```text
//!   log ─► teller ─► slack_messages ─► sender ─► Slack         how each message should be; sent until it is
//!   Slack ─► socket ─► slack_inbox ─► inbox ─► act ─► ops      written down, acknowledged, then done, once
//! ```
//! The daemon needs none of it: without tokens, without Slack, everything else works, and what should be seen is sent
//! when it can be. What people do goes through operations as the operator they are. `block_kit` knows Block Kit and its limits,
//! `card` what we say with it; both are pure, and so are `outbox` (who is next), `calls` (who is called) and `words`.

use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

mod access;
mod block_kit;
mod card;
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

/// Between two looks at who we are, while that fails.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// All of the bridge.
pub struct SlackBridge {
    ops: Operations,
    conditions: HealthRegistry,
}

impl std::fmt::Debug for SlackBridge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slack").finish_non_exhaustive()
    }
}

impl SlackBridge {
    pub fn new(ops: Operations, conditions: HealthRegistry) -> Self {
        Self { ops, conditions }
    }

    /// Until `closing`. Comes back at once if Slack is off.
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
                tracing::error!(why, "Slack is configured and cannot be used; everything else works");
                let figures = vec![("connected", connection_health::CONNECTED, 0)];
                self.conditions.set("slack", BridgeHealth { status: why, metrics: figures });
                return;
            }
        };
        let (store, log) = (self.ops.store().clone(), self.ops.log());
        let (link, access) = (ConnectionHealth::new(&self.conditions), SlackAccess::new(self.ops));
        let (outgoing, incoming) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let tasks = TaskTracker::new();
        let actor = InteractionHandler::new(
            access.clone(),
            store.clone(),
            Arc::clone(&web),
            Arc::clone(&outgoing),
            tasks.clone(),
            closing.clone(),
        );
        let socket = SocketModeClient {
            web: Arc::clone(&web),
            store: store.clone(),
            link: link.clone(),
            inbox: Arc::clone(&incoming),
            reconnect_seconds: config.slack.reconnect_seconds,
            greeted: Arc::new(Mutex::default()),
        };
        let teller = CardPublisher {
            access: access.clone(),
            store: store.clone(),
            log,
            outbox: Arc::clone(&outgoing),
            homes: Arc::default(),
        };
        let homes = Arc::clone(&teller.homes);
        tasks.spawn(refresh(actor.clone(), homes, closing.clone()));
        tasks.spawn(identify_bot(Arc::clone(&web), link.clone(), closing.clone()));
        tasks.spawn(socket.run(closing.clone()));
        tasks.spawn(EnvelopeInbox { store: store.clone(), actor, bell: incoming }.run(closing.clone()));
        tasks.spawn(MessageSender { store, web, link, access, bell: outgoing }.run(closing.clone()));
        tasks.spawn(teller.run(closing));
        tasks.close();
        tasks.wait().await;
    }
}

/// Says who we are there and what we may not do, once that is known.
async fn identify_bot(web: Arc<WebApi>, link: ConnectionHealth, closing: CancellationToken) {
    let looking = async {
        loop {
            match web.identify().await {
                Ok(who) => {
                    tracing::info!(team = who.team, bot = who.user, id = who.user_id, "Slack knows us");
                    let missing = who.missing();
                    for (scope, what) in &missing {
                        tracing::warn!(scope, "the Slack app lacks a scope, {what}");
                    }
                    let scopes: Vec<&str> = missing.iter().map(|(scope, _)| *scope).collect();
                    link.set_missing_scopes((!scopes.is_empty()).then(|| scopes.join(", ")));
                    link.record_identified();
                    return;
                }
                Err(trouble) => {
                    tracing::warn!(%trouble, advice = trouble.advice(), "Slack does not say who we are");
                    link.record_failure(connection_health::WHO, &trouble);
                }
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    };
    closing.run_until_cancelled(looking).await;
}

/// Homes that people look at are kept up to date.
async fn refresh(actor: InteractionHandler, bell: Arc<Notify>, closing: CancellationToken) {
    let refreshing = async {
        loop {
            bell.notified().await;
            actor.refresh_homes();
        }
    };
    closing.run_until_cancelled(refreshing).await;
}

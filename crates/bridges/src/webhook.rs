//! Pending requests and decisions, sent to a URL: signed, in order, retried until accepted.
//!
//! The log is the outbox: a cursor in the store has the position of the last delivered event. A restart continues from
//! there, so that every event is delivered at least once; a repeated delivery has the same `Intercom-Delivery`.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST, USER_AGENT};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use ring::hmac;
use serde::Serialize;
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use intercom_daemon::config;
use intercom_daemon::ops::{LogPosition, LogReader, Operations, redacted};
use intercom_daemon::remote::RemoteUrl;
use intercom_store::{AuditHead, LogCutoff, StoreError};
use intercom_types::{EventKind, Json, LoggedEvent, SessionId, Time, hex};

const CURSOR: &str = "webhook";
/// The kind of a message that carries the head of the audit chain.
const AUDIT_HEAD: &str = "audit.head";
/// The events that are delivered: those that people want to know of while they are away.
const KINDS: &[EventKind] = &[
    EventKind::ClearanceRequested,
    EventKind::ClearanceApproved,
    EventKind::ClearanceDecided,
    EventKind::ClearanceUndelivered,
    EventKind::ClearanceClosed,
    EventKind::QuestionAsked,
    EventKind::QuestionAnswered,
    EventKind::QuestionClosed,
    EventKind::SessionUnenforced,
    EventKind::SessionEnded,
    EventKind::SessionParked,
    EventKind::AgentRestarting,
    EventKind::StallStepTaken,
    EventKind::StallRecovered,
    EventKind::StallReminder,
    EventKind::LimitReached,
    EventKind::LimitOver,
];
const BATCH: usize = 200;
const TIMEOUT: Duration = Duration::from_secs(10);
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_mins(5);
/// The size limit of an answer, of which only the status matters.
const MAX_ANSWER: usize = 64 * 1024;

/// The webhook of one URL.
pub struct WebhookSender {
    url: RemoteUrl,
    key: hmac::Key,
    log: LogReader,
    position: LogPosition,
    /// The heads of the audit chain, if they are sent too.
    heads: Option<watch::Receiver<Option<AuditHead>>>,
}

impl std::fmt::Debug for WebhookSender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Webhook").field("url", &self.url).finish_non_exhaustive()
    }
}

/// An event, as the API has it.
#[derive(Serialize)]
struct WebhookEvent<'a> {
    seq: u64,
    session: SessionId,
    at: String,
    kind: &'a str,
    data: &'a Json,
}

/// The outcome of one delivery.
enum WebhookOutcome {
    Accepted,
    /// The receiver refused it for good.
    Refused(u16),
    Retry(String),
}

impl WebhookSender {
    /// Creates the webhook; `None` if none is configured.
    pub fn open(config: &config::Config, ops: &Operations) -> anyhow::Result<Option<Self>> {
        let settings = &config.webhook;
        let (Some(url), Some(file)) = (&settings.url, &settings.secret_file) else { return Ok(None) };
        let url = RemoteUrl::parse(url).map_err(anyhow::Error::msg).context("[webhook] url")?;
        let secret = read_secret(file)?;
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        let heads = config.audit.webhook.then(|| ops.audit_heads());
        Ok(Some(Self { url, key, log: ops.log(), position: ops.log_position(CURSOR), heads }))
    }

    /// Delivers until `closing`.
    pub async fn run(self, closing: CancellationToken) {
        let heads = async {
            if let Some(heads) = &self.heads {
                self.send_heads(heads.clone()).await;
            }
        };
        closing.run_until_cancelled(async { tokio::join!(self.deliver_all(), heads) }).await;
    }

    /// Sends the newest head of the audit chain whenever it has moved. It covers the heads before it, so nothing
    /// queues.
    async fn send_heads(&self, mut heads: watch::Receiver<Option<AuditHead>>) {
        heads.mark_changed(); // send the head of the daemon's start as well
        let mut wait = FIRST_RETRY;
        while heads.changed().await.is_ok() {
            let Some(AuditHead { n, hash }) = heads.borrow_and_update().clone() else { continue };
            let (at, data) = (Time::now().to_string(), json!({ "row": n, "head": hex(&hash) }));
            let body = json!({ "kind": AUDIT_HEAD, "at": at, "data": data }).to_string();
            let delivery = format!("audit-{n}");
            match self.post(&delivery, AUDIT_HEAD, body.into()).await {
                WebhookOutcome::Accepted => wait = FIRST_RETRY,
                WebhookOutcome::Refused(status) => {
                    tracing::error!(row = n, status, "the webhook refused a head of the audit chain");
                }
                WebhookOutcome::Retry(why) => {
                    tracing::warn!(
                        row = n,
                        why,
                        "the webhook did not accept a delivery; retrying in {wait:?}"
                    );
                    tokio::time::sleep(wait).await;
                    wait = (wait * 2).min(LAST_RETRY);
                    heads.mark_changed();
                }
            }
        }
    }

    async fn deliver_all(&self) {
        let mut bell = self.log.listen();
        let newest = bell.newest();
        let mut seq = loop {
            match self.begin(newest).await {
                Ok(seq) => break seq,
                Err(error) => tracing::warn!(%error, "the position of the webhook cannot be read; retrying"),
            }
            tokio::time::sleep(FIRST_RETRY).await;
        };
        loop {
            bell.newest();
            match self.log.events(Some(seq), None, BATCH).await {
                Ok(Ok(events)) if events.is_empty() => {
                    if !bell.wait_for_ring().await {
                        return;
                    }
                }
                Ok(Ok(events)) => {
                    for event in events {
                        seq = event.seq;
                        if event.known_kind().is_some_and(|kind| KINDS.contains(&kind)) {
                            self.deliver(event).await;
                        }
                    }
                    self.remember(seq).await;
                }
                Ok(Err(LogCutoff { oldest })) => {
                    tracing::warn!(
                        after = seq,
                        oldest,
                        "retention removed events before they were delivered"
                    );
                    seq = oldest.saturating_sub(1);
                }
                Err(error) => {
                    tracing::warn!(%error, "the webhook cannot read the log; retrying");
                    tokio::time::sleep(FIRST_RETRY).await;
                }
            }
        }
    }

    /// Returns the start position. A new webhook starts at the newest event.
    async fn begin(&self, newest: u64) -> Result<u64, StoreError> {
        if let Some(seq) = self.position.read().await? {
            return Ok(seq);
        }
        self.position.set(newest).await?;
        Ok(newest)
    }

    async fn remember(&self, seq: u64) {
        if let Err(error) = self.position.set(seq).await {
            tracing::warn!(%error, "the position of the webhook cannot be stored; a restart would repeat deliveries");
        }
    }

    /// Delivers an event, with retries until it is accepted or refused for good.
    async fn deliver(&self, event: LoggedEvent) {
        let seq = event.seq;
        // Redacted, because it leaves the machine. None of these kinds is a piece of a streamed message.
        let event = redacted(event);
        let LoggedEvent { session, at, kind, data, .. } = &event;
        let message = WebhookEvent { seq, session: *session, at: at.to_string(), kind, data };
        let body = Bytes::from(Json::of(&message).as_str().to_owned());
        let mut wait = FIRST_RETRY;
        loop {
            match self.post(&seq.to_string(), &event.kind, body.clone()).await {
                WebhookOutcome::Accepted => {
                    self.remember(seq).await;
                    return;
                }
                WebhookOutcome::Refused(status) => {
                    tracing::error!(seq, status, "the webhook refused an event; it is not sent again");
                    return;
                }
                WebhookOutcome::Retry(why) => {
                    tracing::warn!(seq, why, "the webhook did not accept a delivery; retrying in {wait:?}");
                }
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(LAST_RETRY);
        }
    }

    async fn post(&self, delivery: &str, kind: &str, body: Bytes) -> WebhookOutcome {
        let sent = tokio::time::timeout(TIMEOUT, self.send(delivery, kind, body)).await;
        match sent.unwrap_or_else(|_| Err(anyhow::anyhow!("no answer in time"))) {
            Ok(200..=299) => WebhookOutcome::Accepted,
            Ok(status @ (408 | 425 | 429 | 500..)) => WebhookOutcome::Retry(format!("status {status}")),
            Ok(status) => WebhookOutcome::Refused(status),
            Err(error) => WebhookOutcome::Retry(format!("{error:#}")),
        }
    }

    async fn send(&self, delivery: &str, kind: &str, body: Bytes) -> anyhow::Result<u16> {
        let stream = self.url.connect(None).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let mut tasks = JoinSet::new(); // aborts the connection's task when this future is dropped
        tasks.spawn(connection);
        let request = Request::builder()
            .method(Method::POST)
            .uri(&self.url.path)
            .header(HOST, self.url.authority())
            .header(CONTENT_TYPE, "application/json")
            .header(USER_AGENT, concat!("intercom/", env!("CARGO_PKG_VERSION")))
            .header("intercom-event", kind)
            .header("intercom-delivery", delivery)
            .header("intercom-signature", self.sign(Time::now(), &body))
            .body(Full::new(body))?;
        let response = sender.send_request(request).await?;
        let status = response.status().as_u16();
        Limited::new(response.into_body(), MAX_ANSWER).collect().await.ok(); // only the status matters
        Ok(status)
    }

    /// Signs the time as well, so that nobody can replay an old delivery.
    fn sign(&self, now: Time, body: &[u8]) -> String {
        let seconds = now.millis() / 1000;
        let mut context = hmac::Context::with_key(&self.key);
        context.update(format!("{seconds}.").as_bytes());
        context.update(body);
        format!("t={seconds},v1={}", hex(context.sign().as_ref()))
    }
}

fn read_secret(file: &Path) -> anyhow::Result<String> {
    let text =
        std::fs::read_to_string(file).with_context(|| format!("[webhook] secret_file {}", file.display()))?;
    let secret = text.trim().to_owned();
    anyhow::ensure!(
        secret.len() >= 16,
        "[webhook] secret_file {}: the secret needs at least 16 characters",
        file.display()
    );
    Ok(secret)
}

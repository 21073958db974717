//! The daemon's end: a WebSocket, and its replacement after a break.

use std::time::Duration;

use anyhow::Context as _;
use futures_util::stream::SplitStream;
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::ClientRequestBuilder;
use tokio_tungstenite::tungstenite::handshake::client::Response;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{self, Message};

use crate::cli::failure::{CliFailure, DaemonRefusal};
use crate::cli::start::DaemonStarter;
use crate::cli::transport::Transport;
use intercom_daemon::remote::RemoteStream;

const UPGRADE: Duration = Duration::from_secs(10);
/// The longest absence of the daemon.
const MAX_ABSENCE: Duration = Duration::from_secs(30);
/// Overrides [`MAX_ABSENCE`] in tests. Only debug builds read it.
const AWAY_VARIABLE: &str = "INTERCOM_ACP_AWAY_MS";
/// The delay before another daemon is started: whoever stopped it may be about to start one.
const RESTART_DELAY: Duration = Duration::from_secs(2);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(1);
/// The maximum size of a message of the daemon, in one frame or in many.
const MAX_MESSAGE: usize = 64 << 20;
/// The number of messages that the writer holds; [`PendingRequests`](super::pending_requests) has the others.
const IN_HAND: usize = 1;

pub(super) type DaemonSocketReader = SplitStream<WebSocketStream<Box<dyn RemoteStream>>>;

/// One connection. A task of its own writes to it, so that neither direction waits for the other.
pub(super) struct DaemonSocket {
    /// `None` once it cannot be written to. There may be messages left to read.
    pub(super) sender: Option<mpsc::Sender<Message>>,
    pub(super) reader: DaemonSocketReader,
    _writer: JoinSet<()>,
}

/// The settings of connections.
#[derive(Debug)]
pub(super) struct DaemonConnector {
    pub(super) transport: Transport,
    /// The path and the query.
    pub(super) target: String,
    /// `None` if no daemon is to be started.
    pub(super) starter: Option<DaemonStarter>,
}

impl DaemonConnector {
    pub(super) fn is_elsewhere(&self) -> bool {
        matches!(self.transport, Transport::Remote(_))
    }

    /// Opens the first connection. It is not retried, so that a mistake is reported at once.
    pub(super) async fn open(&self) -> anyhow::Result<DaemonSocket> {
        if let Some(starter) = &self.starter {
            starter.ensure().await?;
        }
        self.connect().await
    }

    /// Opens another connection. The error is that of the last attempt.
    pub(super) async fn reopen(&self, since: Instant) -> anyhow::Result<DaemonSocket> {
        let (mut pause, until) = (FIRST_PAUSE, since + max_absence());
        loop {
            let attempt = async {
                if let Some(starter) = self.starter.as_ref().filter(|_| since.elapsed() >= RESTART_DELAY) {
                    starter.ensure().await?;
                }
                self.connect().await
            };
            let error = match timeout_at(until, attempt).await {
                Ok(Ok(link)) => return Ok(link),
                Ok(Err(error)) => error,
                Err(_) => CliFailure::failed("the daemon does not answer").into(),
            };
            if Instant::now() + pause >= until {
                sleep_until(until).await;
                return Err(error);
            }
            sleep(pause).await;
            pause = (pause * 2).min(LAST_PAUSE);
        }
    }

    async fn connect(&self) -> anyhow::Result<DaemonSocket> {
        let stream = self.transport.connect().await?;
        let address = format!("ws://{}{}", self.transport.host(), self.target);
        let mut request = ClientRequestBuilder::new(address.parse().context("the daemon's address")?);
        if let Some(token) = self.transport.token() {
            request = request.with_header("Authorization", format!("Bearer {token}"));
        }
        let config = WebSocketConfig::default()
            .max_message_size(Some(MAX_MESSAGE))
            .max_frame_size(Some(MAX_MESSAGE))
            .write_buffer_size(0);
        let upgrade = tokio_tungstenite::client_async_with_config(request, stream, Some(config));
        let (socket, _) = timeout(UPGRADE, upgrade)
            .await
            .map_err(|_| CliFailure::failed("the daemon did not accept the connection within 10 s"))?
            .map_err(upgrade_error)?;
        let (mut sink, reader) = socket.split();
        let (sender, mut messages) = mpsc::channel(IN_HAND);
        let mut writer = JoinSet::new();
        writer.spawn(async move {
            while let Some(message) = messages.recv().await {
                if sink.send(message).await.is_err() {
                    return; // the reader notices it too, after the messages that arrived before
                }
            }
        });
        Ok(DaemonSocket { sender: Some(sender), reader, _writer: writer })
    }
}

pub(super) fn max_absence() -> Duration {
    let asked = std::env::var(AWAY_VARIABLE).ok().filter(|_| cfg!(debug_assertions));
    asked.and_then(|ms| ms.parse().ok()).map_or(MAX_ABSENCE, Duration::from_millis)
}

fn upgrade_error(error: tungstenite::Error) -> anyhow::Error {
    let tungstenite::Error::Http(response) = error else {
        return CliFailure::failed(format!("the daemon did not accept the connection: {error}")).into();
    };
    let response: Response = *response;
    let status = response.status().as_u16();
    let body = String::from_utf8_lossy(&response.into_body().unwrap_or_default()).into_owned();
    let refusal = DaemonRefusal::new(status, body);
    if status == 404 {
        return refusal.hint("the daemon may be older than this command: restart it").into();
    }
    refusal.into()
}

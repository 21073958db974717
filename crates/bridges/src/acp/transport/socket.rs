//! The WebSocket transport: each text frame is one message. Outgoing messages wait for a client that does not read; a
//! client that neither sends nor reads anything for a minute is disconnected.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, Version, header};
use axum::response::{IntoResponse, Response};
use futures_util::{SinkExt, StreamExt, stream::SplitSink, stream::SplitStream};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::time::Instant;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::{CapacityError, Error, ProtocolError};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Message, Role, WebSocketConfig};

use super::super::{ClientInlet, ClientMessage, ClientOutlet};
use super::{CONNECTION, TransportState, connect_options, has_header_token, new_name};
use crate::acp::metrics::ClientMetrics;
use crate::api::{ApiError, own_address};
use intercom_daemon::ops::Caller;

/// The time limit for the upgrade from HTTP.
const CHANGE: Duration = Duration::from_secs(10);
/// The interval between pings to a client.
const PING_INTERVAL: Duration = Duration::from_secs(20);
/// The idle timeout of a client that neither sends nor reads anything. Three pings fit into it, so that one lost answer
/// does not end a connection.
const IDLE_TIMEOUT: Duration = Duration::from_mins(1);
/// The time limit for the closing message.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Small, because there may be thousands of idle connections.
const BUFFER_SIZE: usize = 8 * 1024;

pub(super) fn open(
    state: TransportState,
    caller: Caller,
    mut request: Request,
) -> Result<Response, ApiError> {
    let accept = check_handshake(request.version(), request.headers())?;
    if caller.is_by_cookie() {
        own_address(request.headers())?;
    }
    let options = connect_options(request.uri())?;
    let Some(change) = request.extensions_mut().remove::<OnUpgrade>() else {
        return Err(ApiError::bad_request("this connection cannot become a WebSocket"));
    };
    let slot = state.slot()?;
    let most = state.settings().max_message_bytes;
    let relay = options.relay;
    // It ends with the client, and with the daemon, which ends its outlet.
    state.acp.0.tasks.clone().spawn(async move {
        let Ok(Ok(stream)) = tokio::time::timeout(CHANGE, change).await else { return };
        let (inlet, outlet) = state.acp.connect(caller.clone(), options);
        let ended =
            exchange_messages(TokioIo::new(stream), most, relay, &state.acp.0.metrics, inlet, outlet).await;
        tracing::debug!(?ended, who = caller.name, "an ACP client disconnected");
        drop(slot);
    });
    let headers = [
        (header::CONNECTION, "upgrade".to_owned()),
        (header::UPGRADE, "websocket".to_owned()),
        (header::SEC_WEBSOCKET_ACCEPT, accept),
        (header::HeaderName::from_static(CONNECTION), new_name()),
    ];
    Ok((StatusCode::SWITCHING_PROTOCOLS, headers, Body::empty()).into_response())
}

/// Checks the headers of the handshake and returns the answer to the client's key.
fn check_handshake(version: Version, headers: &HeaderMap) -> Result<String, ApiError> {
    if version != Version::HTTP_11 {
        return Err(ApiError::bad_request("a WebSocket needs HTTP/1.1"));
    }
    if !has_header_token(headers, header::CONNECTION, "upgrade") {
        return Err(ApiError::bad_request("`Connection: upgrade` is missing"));
    }
    if headers.get(header::SEC_WEBSOCKET_VERSION).is_none_or(|version| version != "13") {
        let message = "Sec-WebSocket-Version must be 13";
        return Err(ApiError::new(StatusCode::UPGRADE_REQUIRED, "bad_version", message));
    }
    let mut keys = headers.get_all(header::SEC_WEBSOCKET_KEY).iter();
    let (Some(key), None) = (keys.next(), keys.next()) else {
        return Err(ApiError::bad_request("exactly one Sec-WebSocket-Key is needed"));
    };
    let key = key.as_bytes();
    let sixteen_bytes = key.len() == 24
        && key.ends_with(b"==")
        && key[..22].iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/'));
    if !sixteen_bytes {
        return Err(ApiError::bad_request("Sec-WebSocket-Key must be 16 bytes in base64"));
    }
    Ok(derive_accept_key(key))
}

/// The cause of the end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SocketEnd {
    /// The client closed the connection.
    ClientClosed,
    /// The outlet ended: the daemon stops, or the client's access ended.
    ServerClosed,
    TooLong,
    NotText,
    Broken,
    TimedOut,
}

impl SocketEnd {
    /// Returns the close code and its reason, unless nobody can receive them.
    fn close_frame(self) -> Option<(CloseCode, &'static str)> {
        match self {
            Self::ClientClosed | Self::TimedOut => None,
            Self::ServerClosed => Some((CloseCode::Away, "the connection is closed")),
            Self::TooLong => Some((CloseCode::Size, "a message is over max_message_bytes")),
            Self::NotText => Some((CloseCode::Invalid, "a text frame is not UTF-8")),
            Self::Broken => Some((CloseCode::Protocol, "the WebSocket protocol was violated")),
        }
    }
}

impl From<Error> for SocketEnd {
    fn from(error: Error) -> Self {
        match error {
            Error::Capacity(CapacityError::MessageTooLong { .. }) => Self::TooLong,
            Error::Utf8(_) => Self::NotText,
            Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => Self::ClientClosed,
            Error::Protocol(_) | Error::Capacity(_) => Self::Broken,
            _ => Self::ClientClosed,
        }
    }
}

async fn exchange_messages<S>(
    stream: S,
    limit: usize,
    relay: bool,
    metrics: &ClientMetrics,
    inlet: ClientInlet,
    outlet: ClientOutlet,
) -> SocketEnd
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let config = WebSocketConfig::default()
        .read_buffer_size(BUFFER_SIZE)
        .write_buffer_size(BUFFER_SIZE)
        // Also per frame: otherwise one frame could be longer than any message may be.
        .max_message_size(Some(limit))
        .max_frame_size(Some(limit));
    let socket = WebSocketStream::from_raw_socket(stream, Role::Server, Some(config)).await;
    let (mut sink, mut stream) = socket.split();
    let liveness = SocketLiveness::new(metrics);
    // Reading, writing and the idle timeout run side by side, so that a client that sends without reading cannot block
    // itself. The first of them to end ends the connection.
    let ended = tokio::select! {
        ended = receive(&mut stream, inlet, &liveness) => ended,
        ended = send_all(&mut sink, outlet, relay, &liveness) => ended,
        () = liveness.wait_for_timeout() => SocketEnd::TimedOut,
    };
    if let Some((code, reason)) = ended.close_frame() {
        let close = async {
            let frame = CloseFrame { code, reason: reason.into() };
            sink.send(Message::Close(Some(frame))).await.ok(); // the client may have disconnected
            // Unread bytes would make the kernel reset the connection, and the client would not see the close frame.
            let Ok(mut socket) = sink.reunite(stream) else { return };
            let mut unread = [0; 4096];
            while socket.get_mut().read(&mut unread).await.is_ok_and(|read| read > 0) {}
        };
        tokio::time::timeout(CLOSE_TIMEOUT, close).await.ok(); // the client does not read: close without it
    }
    ended
}

/// Reads the client's messages.
async fn receive<S>(
    stream: &mut SplitStream<WebSocketStream<S>>,
    inlet: ClientInlet,
    liveness: &SocketLiveness<'_>,
) -> SocketEnd
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(message) = stream.next().await {
        liveness.record_activity();
        match message {
            Ok(Message::Text(text)) => {
                // A full inlet is our own back-pressure: the client must not time out because of it.
                liveness.busy.store(true, Ordering::Relaxed);
                let put = inlet.put(text.as_str().to_owned()).await;
                liveness.busy.store(false, Ordering::Relaxed);
                liveness.record_activity();
                liveness.metrics.count_received();
                if put.is_err() {
                    return SocketEnd::ServerClosed;
                }
            }
            // Polling the stream again answers pings and close frames.
            Ok(_) => {}
            Err(error) => return error.into(),
        }
    }
    SocketEnd::ClientClosed
}

/// Sends messages to the client.
async fn send_all<S>(
    sink: &mut SplitSink<WebSocketStream<S>, Message>,
    mut outlet: ClientOutlet,
    relay: bool,
    liveness: &SocketLiveness<'_>,
) -> SocketEnd
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut ping = tokio::time::interval_at(Instant::now() + PING_INTERVAL, PING_INTERVAL);
    // After a send that blocked for long, one ping is enough.
    ping.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let message = tokio::select! {
            outgoing = outlet.next() => match outgoing {
                Some(outgoing) => Message::text(frame(outgoing, relay)),
                None => return SocketEnd::ServerClosed,
            },
            _ = ping.tick() => Message::Ping(Vec::new().into()),
        };
        let is_ping = message.is_ping();
        if let Err(error) = sink.send(message).await {
            return error.into();
        }
        // A ping fits into any buffer and proves nothing. A message that could be sent shows that the client reads.
        if !is_ping {
            liveness.metrics.count_sent();
            liveness.record_activity();
        }
    }
}

/// Returns the text of a message. Our own relay also gets the position in the log, on a line before it: it resumes from
/// there after a restart of the daemon.
fn frame(outgoing: ClientMessage, relay: bool) -> String {
    match (outgoing.seq, outgoing.session) {
        (Some(seq), Some(session)) if relay => format!("@{seq} {session}\n{}", outgoing.text),
        _ => outgoing.text,
    }
}

/// The time of the client's last activity.
struct SocketLiveness<'a> {
    metrics: &'a ClientMetrics,
    /// Locked only to copy it.
    last: Mutex<Instant>,
    /// True while a message of the client waits for room in the inlet.
    busy: AtomicBool,
}

impl<'a> SocketLiveness<'a> {
    fn new(metrics: &'a ClientMetrics) -> Self {
        Self { metrics, last: Mutex::new(Instant::now()), busy: AtomicBool::new(false) }
    }

    fn record_activity(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Returns once the client has been inactive for [`IDLE_TIMEOUT`].
    async fn wait_for_timeout(&self) {
        loop {
            let end = *self.last.lock().unwrap_or_else(PoisonError::into_inner) + IDLE_TIMEOUT;
            if Instant::now() < end {
                tokio::time::sleep_until(end).await;
            } else if self.busy.load(Ordering::Relaxed) {
                tokio::time::sleep(PING_INTERVAL).await;
            } else {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::queue::{self, ClientOutbox, MessageMeta};
    use super::*;
    use intercom_types::SessionId;
    use tokio::io::DuplexStream;
    use tokio::sync::mpsc;
    use tokio::task::JoinHandle;

    type Client = WebSocketStream<DuplexStream>;

    struct SocketFixture {
        inbox: mpsc::Receiver<String>,
        outbox: ClientOutbox,
        ended: JoinHandle<SocketEnd>,
    }

    /// A client, and what is here for it. The pipe between them holds 64 bytes.
    async fn connected(limit: usize, relay: bool) -> (Client, SocketFixture) {
        let (theirs, ours) = tokio::io::duplex(64);
        let (inlet, inbox) = queue::inlet();
        let (outbox, outlet) = queue::outlet();
        let ended = tokio::spawn(async move {
            exchange_messages(ours, limit, relay, &ClientMetrics::default(), inlet, outlet).await
        });
        let client = WebSocketStream::from_raw_socket(theirs, Role::Client, None).await;
        (client, SocketFixture { inbox, outbox, ended })
    }

    async fn closed(mut client: Client) -> Option<CloseCode> {
        while let Some(message) = client.next().await {
            if let Ok(Message::Close(frame)) = message {
                return frame.map(|frame| frame.code);
            }
        }
        None
    }

    #[tokio::test]
    async fn texts_go_both_ways_and_bytes_nowhere() {
        let (mut client, mut here) = connected(1000, false).await;
        client.send(Message::Binary(vec![1, 2, 3].into())).await.unwrap();
        client.send(Message::text("{\"a\":1}")).await.unwrap();
        assert_eq!(here.inbox.recv().await.as_deref(), Some("{\"a\":1}"));
        here.outbox.put("{}".to_owned(), MessageMeta::default()).await.unwrap();
        assert_eq!(client.next().await.unwrap().unwrap(), Message::text("{}"));
        client.close(None).await.unwrap();
        assert_eq!(here.ended.await.unwrap(), SocketEnd::ClientClosed);
        assert_eq!(here.inbox.recv().await, None, "the connection is told");
    }

    #[tokio::test]
    async fn the_relay_is_told_where_the_log_was() {
        let session = SessionId::mint();
        let about = MessageMeta { session: Some(session), seq: Some(7), ..MessageMeta::default() };
        for (relay, expected) in [(true, format!("@7 {session}\n{{}}")), (false, "{}".to_owned())] {
            let (mut client, here) = connected(1000, relay).await;
            here.outbox.put("{}".to_owned(), about.clone()).await.unwrap();
            assert_eq!(client.next().await.unwrap().unwrap(), Message::text(expected));
            here.outbox.put("{}".to_owned(), MessageMeta::default()).await.unwrap();
            assert_eq!(client.next().await.unwrap().unwrap(), Message::text("{}"));
        }
    }

    #[tokio::test]
    async fn a_message_that_is_too_long_or_not_text_ends_it_with_a_word() {
        let (mut client, here) = connected(1000, false).await;
        client.send(Message::text("x".repeat(1001))).await.ok(); // it may be cut short
        assert_eq!(closed(client).await, Some(CloseCode::Size));
        assert_eq!(here.ended.await.unwrap(), SocketEnd::TooLong);

        let (mut client, here) = connected(1000, false).await;
        // A masked text frame of one byte that begins a character and does not end it.
        tokio::io::AsyncWriteExt::write_all(client.get_mut(), &[0x81, 0x81, 0, 0, 0, 0, 0xc3]).await.unwrap();
        assert_eq!(closed(client).await, Some(CloseCode::Invalid));
        assert_eq!(here.ended.await.unwrap(), SocketEnd::NotText);
    }

    #[tokio::test]
    async fn whoever_is_shown_out_hears_what_was_said_before_and_a_last_word() {
        let (mut client, here) = connected(1000, false).await;
        here.outbox.put("{}".to_owned(), MessageMeta::default()).await.unwrap();
        drop(here.outbox);
        assert_eq!(client.next().await.unwrap().unwrap(), Message::text("{}"));
        assert_eq!(closed(client).await, Some(CloseCode::Away));
        assert_eq!(here.ended.await.unwrap(), SocketEnd::ServerClosed);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_answers_stays_and_one_that_does_not_is_let_go() {
        let (mut client, here) = connected(1000, false).await;
        let reading = tokio::spawn(async move { while client.next().await.is_some() {} });
        tokio::time::sleep(IDLE_TIMEOUT * 10).await;
        assert!(!here.ended.is_finished());
        reading.abort();
        let start = Instant::now();
        assert_eq!(here.ended.await.unwrap(), SocketEnd::ClientClosed);
        assert!(start.elapsed() < PING_INTERVAL);

        let (silent, here) = connected(1000, false).await;
        assert_eq!(here.ended.await.unwrap(), SocketEnd::TimedOut);
        drop(silent);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_client_is_kept_as_long_as_it_reads() {
        let (mut client, here) = connected(1000, false).await;
        let long = "x".repeat(500); // more than the pipe holds
        for _ in 0..20 {
            here.outbox.put(long.clone(), MessageMeta::default()).await.unwrap();
        }
        for _ in 0..20 {
            tokio::time::sleep(PING_INTERVAL * 2).await;
            let message = loop {
                match client.next().await.unwrap().unwrap() {
                    Message::Ping(_) => {}
                    message => break message,
                }
            };
            assert_eq!(message, Message::text(long.clone()));
        }
        assert!(!here.ended.is_finished());
    }

    #[test]
    fn only_a_whole_handshake_is_one() {
        let good = [
            ("connection", "keep-alive, Upgrade"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ];
        let shake = |headers: &[(&'static str, &str)]| {
            let headers = headers
                .iter()
                .map(|(name, value)| (header::HeaderName::from_static(name), value.parse().unwrap()));
            check_handshake(Version::HTTP_11, &headers.collect())
        };
        assert_eq!(shake(&good).unwrap(), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        for n in 0..good.len() {
            let mut less = good.to_vec();
            let (name, _) = less.remove(n);
            assert!(shake(&less).is_err(), "without {name}");
            less.push((name, "8"));
            assert!(shake(&less).is_err(), "with a wrong {name}");
        }
    }
}

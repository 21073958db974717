//! WebSocket: each text frame is a message. What a client is told waits until it reads; one that neither reads nor answers
//! is let go.

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
const PING: Duration = Duration::from_secs(20);
/// The idle timeout: the client neither sends nor reads anything.
const SILENCE: Duration = Duration::from_mins(1);
/// The time limit for the closing message.
const GOODBYE: Duration = Duration::from_secs(1);
/// There may be thousands, most of them still.
const BUFFER: usize = 8 * 1024;

pub(super) fn open(door: TransportState, caller: Caller, mut request: Request) -> Result<Response, ApiError> {
    let accept = shake_hands(request.version(), request.headers())?;
    if caller.is_by_cookie() {
        own_address(request.headers())?;
    }
    let manner = connect_options(request.uri())?;
    let Some(change) = request.extensions_mut().remove::<OnUpgrade>() else {
        return Err(ApiError::bad_request("this connection cannot become a WebSocket"));
    };
    let slot = door.slot()?;
    let most = door.settings().max_message_bytes;
    let relay = manner.relay;
    // It ends with the client, and with the daemon, which ends its outlet.
    door.acp.0.tasks.clone().spawn(async move {
        let Ok(Ok(stream)) = tokio::time::timeout(CHANGE, change).await else { return };
        let (inlet, outlet) = door.acp.connect(caller.clone(), manner);
        let ended = converse(TokioIo::new(stream), most, relay, &door.acp.0.metrics, inlet, outlet).await;
        tracing::debug!(?ended, who = caller.name, "an ACP client has gone");
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
fn shake_hands(version: Version, headers: &HeaderMap) -> Result<String, ApiError> {
    if version != Version::HTTP_11 {
        return Err(ApiError::bad_request("a WebSocket begins with HTTP/1.1"));
    }
    if !has_header_token(headers, header::CONNECTION, "upgrade") {
        return Err(ApiError::bad_request("`Connection: upgrade` is missing"));
    }
    if headers.get(header::SEC_WEBSOCKET_VERSION).is_none_or(|version| version != "13") {
        let message = "the version of the WebSocket must be 13";
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

/// Why it is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SocketEnd {
    /// By the client.
    ClientClosed,
    /// By us, for a reason that is not here.
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
            Self::NotText => Some((CloseCode::Invalid, "a text is not UTF-8")),
            Self::Broken => Some((CloseCode::Protocol, "this is not a WebSocket")),
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

async fn converse<S>(
    stream: S,
    most: usize,
    relay: bool,
    metrics: &ClientMetrics,
    inlet: ClientInlet,
    outlet: ClientOutlet,
) -> SocketEnd
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let config = WebSocketConfig::default()
        .read_buffer_size(BUFFER)
        .write_buffer_size(BUFFER)
        .max_message_size(Some(most))
        .max_frame_size(Some(most));
    let socket = WebSocketStream::from_raw_socket(stream, Role::Server, Some(config)).await;
    let (mut sink, mut stream) = socket.split();
    let life = SocketLiveness::new(metrics);
    let ended = tokio::select! {
        ended = hear(&mut stream, inlet, &life) => ended,
        ended = tell(&mut sink, outlet, relay, &life) => ended,
        () = life.wait_for_timeout() => SocketEnd::TimedOut,
    };
    if let Some((code, reason)) = ended.close_frame() {
        let goodbye = async {
            let frame = CloseFrame { code, reason: reason.into() };
            sink.send(Message::Close(Some(frame))).await.ok(); // it may have gone
            // What it still sends is read, or it would be told of a broken connection instead.
            let Ok(mut socket) = sink.reunite(stream) else { return };
            let mut unread = [0; 4096];
            while socket.get_mut().read(&mut unread).await.is_ok_and(|read| read > 0) {}
        };
        tokio::time::timeout(GOODBYE, goodbye).await.ok(); // it was not listening
    }
    ended
}

/// Reads the client's messages.
async fn hear<S>(
    stream: &mut SplitStream<WebSocketStream<S>>,
    inlet: ClientInlet,
    life: &SocketLiveness<'_>,
) -> SocketEnd
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(message) = stream.next().await {
        life.record_activity();
        match message {
            Ok(Message::Text(text)) => {
                // It is we who do not listen then.
                life.busy.store(true, Ordering::Relaxed);
                let put = inlet.put(text.as_str().to_owned()).await;
                life.busy.store(false, Ordering::Relaxed);
                life.record_activity();
                life.metrics.count_received();
                if put.is_err() {
                    return SocketEnd::ServerClosed;
                }
            }
            // Pings are answered, and a goodbye as well, by the next look.
            Ok(_) => {}
            Err(error) => return error.into(),
        }
    }
    SocketEnd::ClientClosed
}

/// Sends messages to the client.
async fn tell<S>(
    sink: &mut SplitSink<WebSocketStream<S>, Message>,
    mut outlet: ClientOutlet,
    relay: bool,
    life: &SocketLiveness<'_>,
) -> SocketEnd
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut ping = tokio::time::interval_at(Instant::now() + PING, PING);
    ping.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let message = tokio::select! {
            told = outlet.next() => match told {
                Some(told) => Message::text(frame(told, relay)),
                None => return SocketEnd::ServerClosed,
            },
            _ = ping.tick() => Message::Ping(Vec::new().into()),
        };
        let said = !message.is_ping();
        if let Err(error) = sink.send(message).await {
            return error.into();
        }
        // A ping fits in anywhere; something longer was read, or there was room for it.
        if said {
            life.metrics.count_sent();
            life.record_activity();
        }
    }
}

/// Our own relay is told where the log was, on a line before.
fn frame(told: ClientMessage, relay: bool) -> String {
    match (told.seq, told.session) {
        (Some(seq), Some(session)) if relay => format!("@{seq} {session}\n{}", told.text),
        _ => told.text,
    }
}

/// When the client was last noticed.
struct SocketLiveness<'a> {
    metrics: &'a ClientMetrics,
    last: Mutex<Instant>, // for a copy
    busy: AtomicBool,
}

impl<'a> SocketLiveness<'a> {
    fn new(metrics: &'a ClientMetrics) -> Self {
        Self { metrics, last: Mutex::new(Instant::now()), busy: AtomicBool::new(false) }
    }

    fn record_activity(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Comes back when it was not for too long.
    async fn wait_for_timeout(&self) {
        loop {
            let end = *self.last.lock().unwrap_or_else(PoisonError::into_inner) + SILENCE;
            if Instant::now() < end {
                tokio::time::sleep_until(end).await;
            } else if self.busy.load(Ordering::Relaxed) {
                tokio::time::sleep(PING).await;
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
    async fn connected(most: usize, relay: bool) -> (Client, SocketFixture) {
        let (theirs, ours) = tokio::io::duplex(64);
        let (inlet, inbox) = queue::inlet();
        let (outbox, outlet) = queue::outlet();
        let ended = tokio::spawn(async move {
            converse(ours, most, relay, &ClientMetrics::default(), inlet, outlet).await
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
        tokio::time::sleep(SILENCE * 10).await;
        assert!(!here.ended.is_finished());
        reading.abort();
        let start = Instant::now();
        assert_eq!(here.ended.await.unwrap(), SocketEnd::ClientClosed);
        assert!(start.elapsed() < PING);

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
            tokio::time::sleep(PING * 2).await;
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
            shake_hands(Version::HTTP_11, &headers.collect())
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

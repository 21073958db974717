//! Serves the requests of one connection: HTTP/1.1, which may be upgraded, or HTTP/2 if the client starts with it.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::extract::connect_info::ConnectInfo;
use axum::http::{HeaderValue, Version, header};
use axum::response::Response;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::Peer;
use crate::idle::{UseCounter, UseGuard};

/// The time limit for a request's headers, and the idle timeout of a connection.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// The time limit for the graceful end of an idle connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// The limit on concurrent HTTP/2 requests of a connection; further requests wait. A stream of events counts until it
/// ends.
const MAX_STREAMS: u32 = 1024;
/// The size limit of a request's headers; a larger request is refused.
const MAX_HEADER_BYTES: u32 = 32 * 1024;
/// The size of the write buffer of each answer; when it is full, the source of the answer waits.
const WRITE_BUFFER: usize = 64 * 1024;
/// The interval of pings to an HTTP/2 client, and the time limit for its answer, after which it is disconnected.
const PING_INTERVAL: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// Serves a connection until the client disconnects or is idle for too long, or until `closing`.
pub(super) async fn serve_connection<S>(stream: S, peer: Peer, router: Router, closing: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let requests = UseCounter::new();
    let counter = requests.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let request_guard = counter.begin();
        let mut request = request.map(Body::new);
        set_host_header(&mut request);
        request.extensions_mut().insert(ConnectInfo(peer.clone()));
        let answer = router.clone().oneshot(request);
        async move {
            answer.await.map(|response: Response| response.map(|body| CountedBody { body, request_guard }))
        }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(IDLE_TIMEOUT);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEADER_BYTES)
        .max_send_buf_size(WRITE_BUFFER)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = requests.idle(IDLE_TIMEOUT, IDLE_TIMEOUT) => {
            connection.as_mut().graceful_shutdown();
            let Ok(ended) = tokio::time::timeout(CLOSE_TIMEOUT, connection).await else { return };
            ended
        }
        () = closing.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended");
    }
}

/// Adds a `Host` header to an HTTP/2 request, which has an authority instead. If both exist and differ, the request gets
/// a second `Host`, for which the guard refuses it.
fn set_host_header(request: &mut Request) {
    if request.version() != Version::HTTP_2 {
        return;
    }
    let Some(authority) =
        request.uri().authority().and_then(|name| HeaderValue::from_str(name.as_str()).ok())
    else {
        return;
    };
    if request.headers().get(header::HOST) != Some(&authority) {
        request.headers_mut().append(header::HOST, authority);
    }
}

/// The body of an answer. Its request counts as open until the body is dropped.
struct CountedBody {
    body: Body,
    #[expect(dead_code, reason = "its drop ends the request")]
    request_guard: UseGuard,
}

impl hyper::body::Body for CountedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::Instant;

    /// Returns the lifetime of a connection whose client sends only these bytes.
    async fn lifetime(sent: &[u8]) -> Duration {
        let (mut theirs, ours) = tokio::io::duplex(64 * 1024);
        let peer = Peer::Unix { uid: None, client: None, recognition: std::sync::Arc::default() };
        let router = Router::new()
            .route("/slow", get(async || tokio::time::sleep(IDLE_TIMEOUT * 10).await))
            .route("/quick", get(async || "done"));
        let start = Instant::now();
        let serving = tokio::spawn(serve_connection(ours, peer, router, CancellationToken::new()));
        theirs.write_all(sent).await.unwrap();
        let reading = tokio::spawn(async move {
            let mut answer = Vec::new();
            theirs.read_to_end(&mut answer).await.ok(); // it may be cut off
            theirs
        });
        serving.await.unwrap();
        let lasted = start.elapsed();
        reading.abort();
        lasted
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_sends_nothing_or_no_full_request_is_disconnected() {
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        let settings = [&preface[..], &[0, 0, 0, 4, 0, 0, 0, 0, 0]].concat();
        for sent in
            [&b""[..], b"P", &preface[..12], &preface[..], &settings, b"GET /quick HTTP/1.1\r\nhost: "]
        {
            let lasted = lifetime(sent).await;
            assert!(
                (IDLE_TIMEOUT..=IDLE_TIMEOUT + CLOSE_TIMEOUT * 2).contains(&lasted),
                "{lasted:?} {sent:?}"
            );
        }
        // A connection is idle only after its last answer: a slow request is not cut off.
        let lasted = lifetime(b"GET /quick HTTP/1.1\r\nhost: x\r\n\r\n").await;
        assert!((IDLE_TIMEOUT..=IDLE_TIMEOUT + CLOSE_TIMEOUT).contains(&lasted), "{lasted:?}");
        let lasted = lifetime(b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n").await;
        assert!((IDLE_TIMEOUT * 11..=IDLE_TIMEOUT * 11 + CLOSE_TIMEOUT).contains(&lasted), "{lasted:?}");
    }
}

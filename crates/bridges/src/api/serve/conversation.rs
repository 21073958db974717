//! One connection with any number of requests: HTTP/1.1, or HTTP/2 if the client begins with it. HTTP/1.1 may be
//! upgraded.

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
const HEADERS: Duration = Duration::from_secs(30);
/// The time limit for an idle connection to close.
const GOODBYE: Duration = Duration::from_secs(5);
/// The limit on concurrent HTTP/2 requests of a connection; more wait. A stream counts for as long as it lasts.
const STREAMS: u32 = 1024;
/// The size limit of a request's headers; a request with more is refused.
const HEADER_BYTES: u32 = 32 * 1024;
/// The size of the write buffer of each request; when it is full, the source waits.
const UNWRITTEN: usize = 64 * 1024;
/// The interval of pings to an HTTP/2 client, and the time limit for its answer; without one it is disconnected.
const PING_EVERY: Duration = Duration::from_secs(20);
const PING_ANSWERED: Duration = Duration::from_secs(20);

/// Serves a connection until the client disconnects, is idle for too long, or `closing`.
pub(super) async fn converse<S>(stream: S, peer: Peer, router: Router, closing: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let requests = UseCounter::new();
    let begun = requests.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let held = begun.begin();
        let mut request = request.map(Body::new);
        set_host_header(&mut request);
        request.extensions_mut().insert(ConnectInfo(peer.clone()));
        let answer = router.clone().oneshot(request);
        async move { answer.await.map(|response: Response| response.map(|body| CountedBody { body, held })) }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADERS);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(HEADER_BYTES)
        .max_send_buf_size(UNWRITTEN)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_ANSWERED);
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = requests.idle(HEADERS, HEADERS) => {
            connection.as_mut().graceful_shutdown();
            let Ok(ended) = tokio::time::timeout(GOODBYE, connection).await else { return };
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

/// Adds a `Host` header to an HTTP/2 request, which has an authority instead. If both exist and differ, the request has
/// two, and is refused for that.
fn set_host_header(request: &mut Request) {
    if request.version() != Version::HTTP_2 {
        return;
    }
    let Some(named) = request.uri().authority().and_then(|name| HeaderValue::from_str(name.as_str()).ok())
    else {
        return;
    };
    if request.headers().get(header::HOST) != Some(&named) {
        request.headers_mut().append(header::HOST, named);
    }
}

/// A body that holds its request.
struct CountedBody {
    body: Body,
    #[expect(dead_code, reason = "dropping it is its use")]
    held: UseGuard,
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

    /// How long a connection lasts whose client says this and no more.
    async fn lasts(said: &[u8]) -> Duration {
        let (mut theirs, ours) = tokio::io::duplex(64 * 1024);
        let peer = Peer::Unix { uid: None, client: None, recognition: std::sync::Arc::default() };
        let router = Router::new()
            .route("/slow", get(async || tokio::time::sleep(HEADERS * 10).await))
            .route("/quick", get(async || "done"));
        let start = Instant::now();
        let serving = tokio::spawn(converse(ours, peer, router, CancellationToken::new()));
        theirs.write_all(said).await.unwrap();
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
    async fn whoever_says_nothing_or_not_all_is_let_go() {
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        let settings = [&preface[..], &[0, 0, 0, 4, 0, 0, 0, 0, 0]].concat();
        for said in
            [&b""[..], b"P", &preface[..12], &preface[..], &settings, b"GET /quick HTTP/1.1\r\nhost: "]
        {
            let lasted = lasts(said).await;
            assert!((HEADERS..=HEADERS + GOODBYE * 2).contains(&lasted), "{lasted:?} {said:?}");
        }
        // One that has been answered is kept as long, and one that is being answered is not cut off.
        let lasted = lasts(b"GET /quick HTTP/1.1\r\nhost: x\r\n\r\n").await;
        assert!((HEADERS..=HEADERS + GOODBYE).contains(&lasted), "{lasted:?}");
        let lasted = lasts(b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n").await;
        assert!((HEADERS * 11..=HEADERS * 11 + GOODBYE).contains(&lasted), "{lasted:?}");
    }
}

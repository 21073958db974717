//! The three pipes of a process, each with a task of its own: none of them ever waits for another.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::News;
use super::tail::Tail;

/// Chunks of output waiting for the session. When full, the pipe fills up and the agent waits.
pub(super) const CHUNKS: usize = 4;
const CHUNK_BYTES: usize = 64 * 1024;
/// What a dead process left in its pipe is there at once; only a stranger who holds the pipe could add to it.
const LINGER: Duration = Duration::from_millis(100);
const STREAM_CLOSED: &str = "write failed: stream closed";

/// Reads until the end, or, once the process is gone, until nothing more is there.
pub(super) async fn read_stdout(
    mut stdout: pipe::Receiver,
    output: mpsc::Sender<Bytes>,
    eof: oneshot::Sender<()>,
    mut gone: watch::Receiver<bool>,
) {
    let mut buf = BytesMut::new();
    while let Some(chunk) = read(&mut stdout, &mut buf, &mut gone).await {
        if output.send(chunk).await.is_err() {
            break; // nobody wants it any more
        }
    }
    eof.send(()).ok(); // the keeper may be done
}

/// Reads always and keeps the end: an agent never waits for its stderr.
pub(super) async fn drain_stderr(
    mut stderr: pipe::Receiver,
    tail: Arc<Tail>,
    mut gone: watch::Receiver<bool>,
) {
    let mut buf = BytesMut::new();
    while let Some(chunk) = read(&mut stderr, &mut buf, &mut gone).await {
        tail.push(&chunk);
    }
}

async fn read(
    pipe: &mut pipe::Receiver,
    buf: &mut BytesMut,
    gone: &mut watch::Receiver<bool>,
) -> Option<Bytes> {
    buf.reserve(CHUNK_BYTES);
    let read = tokio::select! {
        biased;
        read = pipe.read_buf(buf) => read,
        () = lingered(gone) => return None,
    };
    match read {
        Ok(0) | Err(_) => None,
        Ok(_) => Some(buf.split().freeze()),
    }
}

/// A while after the process has gone.
async fn lingered(gone: &mut watch::Receiver<bool>) {
    gone.wait_for(|gone| *gone).await.ok(); // a keeper that is no more has nothing to wait for either
    tokio::time::sleep(LINGER).await;
}

/// Writes one message after the other, whole, and tells of each. Closing drops what is not written yet.
pub(super) async fn write_stdin(
    mut stdin: pipe::Sender,
    mut input: mpsc::UnboundedReceiver<(u64, Vec<u8>)>,
    news: mpsc::Sender<News>,
    close: CancellationToken,
) {
    let mut open = true;
    loop {
        let next = tokio::select! {
            biased;
            () = close.cancelled() => break,
            next = input.recv() => next,
        };
        let Some((n, message)) = next else { return };
        let written = if open {
            tokio::select! {
                biased;
                () = close.cancelled() => false,
                result = stdin.write_all(&message) => result.is_ok(),
            }
        } else {
            false
        };
        open &= written;
        if !tell(&news, n, written).await {
            return;
        }
    }
    drop(stdin);
    while let Some((n, _)) = input.recv().await {
        if !tell(&news, n, false).await {
            return;
        }
    }
}

/// Numbers start at 1; 0 is nobody's (the ladder's own interrupt).
async fn tell(news: &mpsc::Sender<News>, n: u64, written: bool) -> bool {
    if n == 0 {
        return true;
    }
    let told =
        if written { News::Written { n } } else { News::Failed { n, cause: STREAM_CLOSED.to_owned() } };
    news.send(told).await.is_ok()
}

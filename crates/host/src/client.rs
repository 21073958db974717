//! The daemon's end of a shim: three small tasks, none of which ever waits for another.
//!
//! One reads what the shim says, one writes what it is told, one reads the journal. When the shim is gone, the first
//! finds out what became of the agent, and the last reads the journal to its end. They belong to the [`AgentProcess`] and end
//! with it at the latest.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::frame::{ExitRecord, ShimFrame};
use super::journal::JournalReader;
use super::record::{EXIT, ShimMeta, read_record};
use super::shim::stderr_tail;
use super::{AgentProcess, ProcessEvent, ProcessExit, RuntimeDir, TrimPace, journal, leftovers};

/// Chunks of output waiting for the session. When full, the journal grows; when that is full, the agent waits.
const CHUNKS: usize = 4;
const CHUNK_BYTES: usize = 64 * 1024;
/// The number of bytes read after which the shim is told: well before it would make the agent wait.
const SEEN_EVERY: u64 = 256 * 1024;
/// More news than may be under way; a full queue makes the reader wait.
const NEWS: usize = 512;
/// The time that a shim may take to end after it has hung up.
const HANGING_UP: Duration = Duration::from_secs(2);
/// The time to wait for output that a dead process left in its pipe; it is there at once.
const LINGER: Duration = Duration::from_millis(100);

/// The known extent of the journal, and whether that is its end.
#[derive(Debug, Clone, Copy, Default)]
struct JournalExtent {
    end: u64,
    last: bool,
}

/// The state needed to look after one agent.
pub(super) struct ShimClient {
    pub(super) runtime_dir: RuntimeDir,
    pub(super) meta: ShimMeta,
    pub(super) consumed: u64,
    /// A second end of the agent's stdout, in case the shim dies with something in the pipe.
    pub(super) stdout: Option<OwnedFd>,
    /// The shim, if it is a child of ours: it must be reaped.
    pub(super) child: Option<tokio::process::Child>,
    /// The last message that the shim has accepted, by its own word.
    pub(super) accepted: Option<u64>,
}

/// The custody of the agent's stdout: if we held an end of the pipe all the time, no output is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PipeCustody {
    AllTheTime,
    /// A new daemon found its shim dead.
    NotAlways,
}

impl ShimClient {
    /// A shim that answers.
    pub(super) fn attach(
        self,
        stream: tokio::net::UnixStream,
        early: BytesMut,
        journal_end: u64,
    ) -> AgentProcess {
        let (read, write) = stream.into_split();
        let (control, control_from) = mpsc::unbounded_channel(); // bounded by the session: see `Process::send`
        let extent = JournalExtent { end: journal_end, last: false };
        let (mut process, news, extent, rest) = self.process(control, extent);
        process.writer.spawn(write_control(write, control_from, rest.consumed));
        process.tasks.spawn(rest.listen(read, early, news, extent));
        process
    }

    /// A shim that is no more: what it left behind is read to the end, and then told.
    pub(super) fn attach_ended(self, left: Option<ExitRecord>) -> AgentProcess {
        let (control, _) = mpsc::unbounded_channel(); // nobody is there to be told anything
        let (mut process, news, extent, mut rest) = self.process(control, JournalExtent::default());
        process.exit_record.clone_from(&left);
        process.tasks.spawn(async move {
            rest.reap().await;
            let departure = rest.process_exit(left, PipeCustody::NotAlways, &extent).await;
            news.send(ProcessEvent::Exited(departure)).await.ok(); // the session may have gone
        });
        process
    }

    fn process(
        mut self,
        control: mpsc::UnboundedSender<ShimFrame>,
        extent: JournalExtent,
    ) -> (AgentProcess, mpsc::Sender<ProcessEvent>, watch::Sender<JournalExtent>, Self) {
        let (output_to, output) = mpsc::channel(CHUNKS);
        let (news_to, news) = mpsc::channel(NEWS);
        let (extent_to, extent) = watch::channel(extent);
        let reader = JournalReader::new(&self.runtime_dir.dir, self.consumed);
        let mut tasks = JoinSet::new();
        tasks.spawn(read_journal(reader, extent, output_to, control.clone(), self.stdout.take()));
        let control_closed = control.is_closed();
        let process = AgentProcess {
            identity: self.meta.agent.clone(),
            shim: self.meta.shim.clone(),
            version: self.meta.version,
            output,
            events: news,
            control,
            runtime_dir: self.runtime_dir.clone(),
            trim: TrimPace {
                reported: self.consumed,
                every: (self.runtime_dir.journal_cap_bytes / 4).clamp(1, 1 << 20),
            },
            exit_record: None,
            accepted: self.accepted,
            alive: !control_closed,
            writer: JoinSet::new(),
            tasks,
        };
        (process, news_to, extent_to, self)
    }

    /// Until the shim has gone, and then what became of the agent.
    async fn listen(
        mut self,
        mut stream: OwnedReadHalf,
        mut buf: BytesMut,
        news: mpsc::Sender<ProcessEvent>,
        extent: watch::Sender<JournalExtent>,
    ) {
        let mut left = None;
        loop {
            while let Ok(Some(frame)) = ShimFrame::take(&mut buf) {
                match frame {
                    ShimFrame::Bell(end) => {
                        extent.send_replace(JournalExtent { end, last: false });
                    }
                    ShimFrame::Ack(n) => news.send(ProcessEvent::Written { n }).await.unwrap_or(()),
                    ShimFrame::Nack(n) => {
                        let cause = intercom_types::Delivery::STREAM_CLOSED.to_owned();
                        news.send(ProcessEvent::Failed { n, cause }).await.unwrap_or(());
                    }
                    ShimFrame::Exit(_, end) => left = Some(end),
                    ShimFrame::Note(text) => tracing::warn!(session.id = self.meta.session, "{text}"),
                    _ => {}
                }
            }
            if !matches!(stream.read_buf(&mut buf).await, Ok(1..)) {
                break;
            }
        }
        // A shim that hung up and lives on cannot be talked to: it goes, and what is left of its agent with it.
        let hung_up = tokio::time::Instant::now();
        while left.is_none() && self.meta.shim.is_running() && read_exit(&self.runtime_dir.dir).is_none() {
            if hung_up.elapsed() > HANGING_UP {
                tracing::error!(session.id = self.meta.session, "a shim hung up and lives on; it is ended");
                self.meta.shim.kill();
            }
            tokio::time::sleep(LINGER).await;
        }
        self.reap().await;
        let departure = self.process_exit(left, PipeCustody::AllTheTime, &extent).await;
        news.send(ProcessEvent::Exited(departure)).await.ok(); // the session may have gone
    }

    async fn reap(&mut self) {
        if let Some(child) = &mut self.child {
            child.wait().await.ok(); // it has gone; its status is in what it wrote down
        }
    }

    /// By the shim's own word, or what is left if it died without one.
    async fn process_exit(
        &self,
        told: Option<ExitRecord>,
        listened: PipeCustody,
        extent: &watch::Sender<JournalExtent>,
    ) -> ProcessExit {
        let left = if let Some(left) = told.or_else(|| read_exit(&self.runtime_dir.dir)) {
            left
        } else {
            let (meta, dir) = (self.meta.clone(), self.runtime_dir.dir.clone());
            tokio::task::spawn_blocking(move || leftovers::end(&meta, &dir)).await.unwrap_or_default()
        };
        let end = journal::end(&self.runtime_dir.dir).unwrap_or(left.journal_end);
        extent.send_replace(JournalExtent { end, last: true });
        ProcessExit {
            exit: left.exit,
            reason: left.reason,
            steps: left.steps,
            killed: left.killed,
            written: left.written,
            rescued: left.rescued.filter(|_| listened == PipeCustody::NotAlways),
            stderr_tail: stderr_tail(&self.runtime_dir.dir, self.runtime_dir.stderr_tail_bytes),
        }
    }
}

/// Returns the shim's record of the end, if it wrote one.
pub(super) fn read_exit(dir: &Path) -> Option<ExitRecord> {
    read_record(&dir.join(EXIT))
}

async fn write_control(
    mut stream: OwnedWriteHalf,
    mut control: mpsc::UnboundedReceiver<ShimFrame>,
    offset: u64,
) {
    let mut next = Some(ShimFrame::Attach(offset));
    while let Some(frame) = next {
        let is_message = matches!(frame, ShimFrame::Stdin(..));
        if is_message {
            intercom_failpoint::visit("frame.writing");
        }
        if stream.write_all(&frame.encode()).await.is_err() {
            return; // the shim has gone: the other task tells
        }
        if is_message {
            intercom_failpoint::visit("frame.written");
        }
        next = control.recv().await;
    }
}

/// Hands the journal on as it grows, at the session's pace, and after its end what the agent's pipe still holds.
async fn read_journal(
    mut reader: JournalReader,
    mut extent: watch::Receiver<JournalExtent>,
    output: mpsc::Sender<Bytes>,
    control: mpsc::UnboundedSender<ShimFrame>,
    stdout: Option<OwnedFd>,
) {
    let mut told = reader.offset();
    loop {
        let known = *extent.borrow_and_update();
        while reader.offset() < known.end {
            let read = tokio::task::spawn_blocking(move || {
                let mut chunk = vec![0; CHUNK_BYTES];
                let read = reader
                    .read(&mut chunk)
                    .inspect_err(|error| tracing::error!(%error, "the journal of an agent cannot be read"));
                chunk.truncate(*read.as_ref().unwrap_or(&0));
                (reader, chunk)
            });
            let Ok((back, chunk)) = read.await else { return };
            reader = back;
            if chunk.is_empty() {
                break; // shorter than we were told: after a power cut, that is all there is
            }
            if output.send(Bytes::from(chunk)).await.is_err() {
                return; // nobody wants it any more
            }
            if reader.offset() >= told + SEEN_EVERY {
                told = reader.offset();
                control.send(ShimFrame::Seen(told)).ok(); // the shim has gone: the other task tells
            }
        }
        if known.last {
            break;
        }
        if extent.changed().await.is_err() {
            return;
        }
    }
    if let Some(stdout) = stdout {
        drain(stdout, &output).await.ok(); // what cannot be read is lost
    }
}

/// The pipe of an agent that is no more. Usually empty: its shim took everything.
async fn drain(stdout: OwnedFd, output: &mpsc::Sender<Bytes>) -> io::Result<()> {
    let mut pipe = tokio::net::unix::pipe::Receiver::from_file(File::from(stdout))?;
    let mut buf = BytesMut::new();
    loop {
        buf.reserve(CHUNK_BYTES);
        match tokio::time::timeout(LINGER, pipe.read_buf(&mut buf)).await {
            Ok(Ok(1..)) => {}
            Ok(_) | Err(_) => return Ok(()),
        }
        if output.send(buf.split().freeze()).await.is_err() {
            return Ok(());
        }
    }
}

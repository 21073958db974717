//! The daemon's end of the connection to a shim.
//!
//! # Theory of operation
//!
//! Three tasks per agent, none of which waits for another. They own nothing that would be lost with them: output is in
//! the journal, the exit is in the exit record, and the shim outlives this process.
//!
//! ```text
//!   session (AgentProcess)             tasks of this module                     shim
//!   control, unbounded (1) ──────────► write_control ──────── unix socket ────► frames
//!   events, EVENTS ◄────────────────── listen ◄────────────── unix socket ───── hello, bell, ack, exit
//!                                        │ watch: JournalExtent (only the newest counts)
//!                                        ▼
//!   output, CHUNKS × CHUNK_BYTES ◄───── read_journal ◄──────── journal on disk
//! ```
//!
//! (1) The control queue needs no bound of its own: the session bounds its messages in flight, and all other frames are
//! rare.
//!
//! The order of events: `Attach` is always the first frame to the shim. The shim's bells move the known extent of the
//! journal; `read_journal` reads up to it, at the session's pace. A session that stops reading makes `output` fill up;
//! then no `Seen` frame is sent, the shim stops reading its pipe when the journal is a mebibyte ahead, and the agent
//! blocks in `write`, as it would on any pipe. A full `events` queue only pauses `listen`; output continues up to the
//! last bell.
//!
//! The end of the agent: `listen` sees the end of the stream, takes the exit from the `Exit` frame, else from the
//! shim's exit record on disk, else (the shim died) it ends what is left of the tree and composes a record. Only then
//! does it publish the final extent of the journal and [`ProcessEvent::Exited`]. `read_journal` continues to that
//! extent, drains the agent's pipe through the second descriptor that came with the hello, and closes the output
//! stream. So the session may see `Exited` before the last output, but never the end of the output before the last
//! byte.
//!
//! The end of the session: the tasks belong to the [`AgentProcess`] and end with it, without touching the shim.
//! [`AgentProcess::leave`] lets `write_control` finish its queue first; frames that are lost without it are sent again by
//! the next daemon.

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

/// The bound of the output queue. When it is full, the journal grows; when that is full, the agent waits.
const CHUNKS: usize = 4;
const CHUNK_BYTES: usize = 64 * 1024;
/// The number of bytes after which the shim gets a `Seen` frame: a quarter of the lead at which it would make the agent
/// wait, so that a session that keeps up never slows its agent down.
const SEEN_EVERY: u64 = 256 * 1024;
/// The bound of the event queue: more than the messages that may be in flight. A full queue pauses the reader of the
/// socket.
const EVENTS: usize = 512;
/// The time that a shim may take to exit after it has hung up.
const HANGING_UP: Duration = Duration::from_secs(2);
/// The time to wait for output that a dead process record in its pipe; such output is available immediately.
const LINGER: Duration = Duration::from_millis(100);

/// The known extent of the journal, and whether it is final.
#[derive(Debug, Clone, Copy, Default)]
struct JournalExtent {
    end: u64,
    last: bool,
}

/// The state that the tasks of one agent share.
pub(super) struct ShimClient {
    pub(super) runtime_dir: RuntimeDir,
    pub(super) meta: ShimMeta,
    pub(super) consumed: u64,
    /// A second reading end of the agent's stdout, in case the shim dies with data in the pipe.
    pub(super) stdout: Option<OwnedFd>,
    /// The shim, if it is a child of ours: it must be reaped.
    pub(super) child: Option<tokio::process::Child>,
    /// The last message that the shim reports as accepted.
    pub(super) accepted: Option<u64>,
}

/// The custody of the agent's stdout pipe: output can only be missing if no reading end was open for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PipeCustody {
    AllTheTime,
    /// A new daemon found the shim dead.
    NotAlways,
}

impl ShimClient {
    /// Starts the tasks for a shim that answers.
    pub(super) fn attach(
        self,
        stream: tokio::net::UnixStream,
        early: BytesMut,
        journal_end: u64,
    ) -> AgentProcess {
        let (read, write) = stream.into_split();
        let (control, control_from) = mpsc::unbounded_channel(); // bounded by the session: see `AgentProcess::send`
        let extent = JournalExtent { end: journal_end, last: false };
        let (mut process, events, extent, rest) = self.process(control, extent);
        process.writer.spawn(write_control(write, control_from, rest.consumed));
        process.tasks.spawn(rest.listen(read, early, events, extent));
        process
    }

    /// Starts the tasks for a shim that has exited: its journal is read to the end, and its exit is reported.
    pub(super) fn attach_ended(self, record: Option<ExitRecord>) -> AgentProcess {
        let (control, _) = mpsc::unbounded_channel(); // the receiver is dropped: there is no shim to send to
        let (mut process, events, extent, mut rest) = self.process(control, JournalExtent::default());
        process.exit_record.clone_from(&record);
        process.tasks.spawn(async move {
            rest.reap().await;
            let exit = rest.process_exit(record, PipeCustody::NotAlways, &extent).await;
            events.send(ProcessEvent::Exited(exit)).await.ok(); // the session may have dropped its process
        });
        process
    }

    fn process(
        mut self,
        control: mpsc::UnboundedSender<ShimFrame>,
        extent: JournalExtent,
    ) -> (AgentProcess, mpsc::Sender<ProcessEvent>, watch::Sender<JournalExtent>, Self) {
        let (output_to, output) = mpsc::channel(CHUNKS);
        let (events_to, events) = mpsc::channel(EVENTS);
        let (extent_to, extent) = watch::channel(extent);
        let reader = JournalReader::new(&self.runtime_dir.dir, self.consumed);
        let mut tasks = JoinSet::new();
        tasks.spawn(read_journal(reader, extent, output_to, control.clone(), self.stdout.take()));
        // Only `attach_ended` has dropped the receiver by now.
        let control_closed = control.is_closed();
        let process = AgentProcess {
            identity: self.meta.agent.clone(),
            shim: self.meta.shim.clone(),
            version: self.meta.version,
            output,
            events,
            control,
            runtime_dir: self.runtime_dir.clone(),
            trim: TrimPace {
                sent: self.consumed,
                every: (self.runtime_dir.journal_cap_bytes / 4).clamp(1, 1 << 20),
            },
            exit_record: None,
            accepted: self.accepted,
            alive: !control_closed,
            writer: JoinSet::new(),
            tasks,
        };
        (process, events_to, extent_to, self)
    }

    /// Forwards the shim's frames until it has exited, then reports the end of the agent.
    async fn listen(
        mut self,
        mut stream: OwnedReadHalf,
        mut buf: BytesMut,
        events: mpsc::Sender<ProcessEvent>,
        extent: watch::Sender<JournalExtent>,
    ) {
        let mut record = None;
        loop {
            while let Ok(Some(frame)) = ShimFrame::take(&mut buf) {
                match frame {
                    ShimFrame::Bell(end) => {
                        extent.send_replace(JournalExtent { end, last: false });
                    }
                    ShimFrame::Ack(n) => events.send(ProcessEvent::Written { n }).await.unwrap_or(()),
                    ShimFrame::Nack(n) => {
                        let cause = intercom_types::Delivery::STREAM_CLOSED.to_owned();
                        events.send(ProcessEvent::Failed { n, cause }).await.unwrap_or(());
                    }
                    // Not the end of the loop: the shim closes the stream when it has sent everything.
                    ShimFrame::Exit(_, end) => record = Some(end),
                    ShimFrame::Note(text) => tracing::warn!(session.id = self.meta.session, "{text}"),
                    _ => {}
                }
            }
            if !matches!(stream.read_buf(&mut buf).await, Ok(1..)) {
                break;
            }
        }
        // A shim that hung up and still runs is unreachable: it is killed, and so is what is left of its agent. The
        // grace period exists because a shim that ends normally also hangs up just before it exits.
        let hung_up = tokio::time::Instant::now();
        while record.is_none() && self.meta.shim.is_running() && read_exit(&self.runtime_dir.dir).is_none() {
            if hung_up.elapsed() > HANGING_UP {
                tracing::error!(
                    session.id = self.meta.session,
                    "a shim hung up but still runs; it is killed"
                );
                self.meta.shim.kill();
            }
            tokio::time::sleep(LINGER).await;
        }
        self.reap().await;
        let exit = self.process_exit(record, PipeCustody::AllTheTime, &extent).await;
        events.send(ProcessEvent::Exited(exit)).await.ok(); // the session may have dropped its process
    }

    async fn reap(&mut self) {
        if let Some(child) = &mut self.child {
            child.wait().await.ok(); // reaped only; its result is in the exit record
        }
    }

    /// Returns the exit from the shim's record, or ends what is left of the tree if the shim died without one.
    async fn process_exit(
        &self,
        reported: Option<ExitRecord>,
        custody: PipeCustody,
        extent: &watch::Sender<JournalExtent>,
    ) -> ProcessExit {
        let record = if let Some(record) = reported.or_else(|| read_exit(&self.runtime_dir.dir)) {
            record
        } else {
            let (meta, dir) = (self.meta.clone(), self.runtime_dir.dir.clone());
            tokio::task::spawn_blocking(move || leftovers::end(&meta, &dir)).await.unwrap_or_default()
        };
        // After the tree has ended: until then, the shim or the rescue of output may still append.
        let end = journal::end(&self.runtime_dir.dir).unwrap_or(record.journal_end);
        extent.send_replace(JournalExtent { end, last: true });
        ProcessExit {
            exit: record.exit,
            reason: record.reason,
            steps: record.steps,
            killed: record.killed,
            written: record.written,
            rescued: record.rescued.filter(|_| custody == PipeCustody::NotAlways),
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
            return; // the shim has exited: `listen` reports it
        }
        if is_message {
            intercom_failpoint::visit("frame.written");
        }
        next = control.recv().await;
    }
}

/// Sends the journal to the session as it grows, at the session's pace, and after its end the rest of the agent's pipe.
async fn read_journal(
    mut reader: JournalReader,
    mut extent: watch::Receiver<JournalExtent>,
    output: mpsc::Sender<Bytes>,
    control: mpsc::UnboundedSender<ShimFrame>,
    stdout: Option<OwnedFd>,
) {
    let mut reported = reader.offset();
    loop {
        let known = *extent.borrow_and_update();
        while reader.offset() < known.end {
            // A line has a short way: it is in memory, and no other thread has to wake up for it.
            let size = usize::try_from(known.end - reader.offset()).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
            let mut chunk = vec![0; size];
            let read = reader.read_cached(&mut chunk);
            chunk.truncate(read);
            if chunk.is_empty() {
                let read = tokio::task::spawn_blocking(move || {
                    let mut chunk = vec![0; size];
                    let read = reader.read(&mut chunk).inspect_err(
                        |error| tracing::error!(%error, "the journal of an agent cannot be read"),
                    );
                    chunk.truncate(*read.as_ref().unwrap_or(&0));
                    (reader, chunk)
                });
                let Ok((back, read)) = read.await else { return };
                (reader, chunk) = (back, read);
            }
            if chunk.is_empty() {
                break; // shorter than announced: after a power failure, that is all there is
            }
            if output.send(Bytes::from(chunk)).await.is_err() {
                return; // the session has dropped its process
            }
            if reader.offset() >= reported + SEEN_EVERY {
                reported = reader.offset();
                control.send(ShimFrame::Seen(reported)).ok(); // the shim has exited: `listen` reports it
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
        drain(stdout, &output).await.ok(); // unreadable output is lost
    }
}

/// Reads the rest of an exited agent's pipe. Usually that is empty: its shim has read everything.
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

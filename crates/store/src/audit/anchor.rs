//! The anchor file: heads of the audit chain, kept outside of the database.
//!
//! One JSON object per line, only ever appended: `{"at":"…","row":12,"head":"…"}`. An attacker who can write the
//! database can truncate the audit and its counter; if the file is in a place that they cannot write, the next start
//! reveals the cut.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::head::AuditHead;
use crate::StoreError;
use intercom_types::{Time, hex};

/// The size of the tail that is searched for the newest head; a line has 130 bytes.
const TAIL: u64 = 64 * 1024;
/// The maximum length of a line; longer lines are not ours and are skipped in pieces of this size.
const MAX_LINE: u64 = 4096;
/// The pause after a failed write.
const RETRY: Duration = Duration::from_secs(2);

#[derive(Debug, Serialize, Deserialize)]
struct AnchorLine {
    at: String,
    row: i64,
    head: String,
}

/// The newest head in the anchor file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AnchoredHead {
    NotConfigured,
    /// The file has none, or does not exist.
    None,
    Newest(AuditHead),
}

impl AnchoredHead {
    pub(crate) fn read(file: Option<&Path>) -> Result<Self, StoreError> {
        let Some(file) = file else { return Ok(Self::NotConfigured) };
        match newest(file) {
            Ok(head) => Ok(head.map_or(Self::None, Self::Newest)),
            Err(error) => Err(StoreError::Anchor(format!("{}: {error}", file.display()))),
        }
    }
}

/// A file with the heads of the chain, and the thread that appends to it.
///
/// The thread and not the writer waits for the disk. It appends the newest head that it has not written yet, which
/// covers the heads in between. If the daemon is killed in between, the file is a few rows behind, which is no
/// contradiction.
#[derive(Debug)]
pub(crate) struct AuditAnchor {
    file: PathBuf,
    shared: Arc<AnchorShared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct AnchorShared {
    /// Guards the two heads; locked only to set or read one.
    state: Mutex<AnchorState>,
    bell: Condvar,
}

#[derive(Debug, Default)]
struct AnchorState {
    waiting: Option<AuditHead>,
    written: Option<AuditHead>,
    failure: Option<String>,
    closed: bool,
}

impl AnchorShared {
    fn state(&self) -> MutexGuard<'_, AnchorState> {
        // No code panics while it holds the lock; even then, the heads would be consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AuditAnchor {
    pub(crate) fn start(file: &Path) -> Self {
        let shared = Arc::new(AnchorShared::default());
        let (thread_shared, path) = (Arc::clone(&shared), file.to_owned());
        let thread = std::thread::Builder::new()
            .name("audit-anchor".to_owned())
            .spawn(move || run(&path, &thread_shared))
            .expect("the system can start one thread");
        Self { file: file.to_owned(), shared, thread: Some(thread) }
    }

    /// Records the head after each commit that has moved it.
    pub(crate) fn committed(&self, head: AuditHead) {
        self.shared.state().waiting = Some(head);
        self.shared.bell.notify_one();
    }

    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    /// Returns the head that this process has written last.
    pub(super) fn written(&self) -> Option<AuditHead> {
        self.shared.state().written.clone()
    }

    /// Returns the reason why the newest head is not in the file.
    pub(crate) fn failure(&self) -> Option<String> {
        self.shared.state().failure.clone()
    }
}

impl Drop for AuditAnchor {
    /// Writes the last head, if that succeeds immediately.
    fn drop(&mut self) {
        self.shared.state().closed = true;
        self.shared.bell.notify_one();
        if let Some(thread) = self.thread.take() {
            thread.join().ok(); // it does not panic, and if it did there is nothing left to do
        }
    }
}

fn run(file: &Path, shared: &AnchorShared) {
    loop {
        let mut state = shared.state();
        let head = loop {
            if let Some(head) = state.waiting.take() {
                break head;
            }
            if state.closed {
                return;
            }
            state = shared.bell.wait(state).unwrap_or_else(PoisonError::into_inner);
        };
        drop(state);
        let written = append(file, &head, Time::now());
        let mut state = shared.state();
        match written {
            Ok(()) => {
                state.written = Some(head);
                state.failure = None;
            }
            Err(error) => {
                if state.failure.is_none() {
                    tracing::error!(%error, file = %file.display(), "the audit's anchor file cannot be written");
                }
                state.failure = Some(error.to_string());
                state.waiting.get_or_insert(head);
                if state.closed {
                    return; // the next daemon writes a newer head
                }
                let wait = shared.bell.wait_timeout_while(state, RETRY, |state| !state.closed);
                drop(wait.unwrap_or_else(PoisonError::into_inner));
            }
        }
    }
}

/// Appends a head. The file is opened for each line, so that a file that was moved away is created again.
fn append(file: &Path, head: &AuditHead, now: Time) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut open = options.read(true).append(true).create(true).mode(0o600).open(file)?;
    let line = AnchorLine { at: now.to_string(), row: head.n, head: hex(&head.hash) };
    let mut text = serde_json::to_string(&line).expect("it has string keys only");
    text.push('\n');
    if !ends_a_line(&mut open)? {
        text.insert(0, '\n'); // a line that a full disk has torn stays separate
    }
    open.write_all(text.as_bytes())?;
    open.sync_data()
}

fn ends_a_line(file: &mut File) -> io::Result<bool> {
    if file.metadata()?.len() == 0 {
        return Ok(true);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

/// Returns the newest head in the file; `None` if it has none or does not exist.
fn newest(file: &Path) -> io::Result<Option<AuditHead>> {
    let mut file = match File::open(file) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
    let mut newest: Option<AuditHead> = None;
    each(file.take(TAIL), |head| newest = Some(head))?;
    Ok(newest)
}

/// Visits every head in the file, oldest first. They are not collected because the file may be long.
pub(super) fn each_head(file: &Path, look: impl FnMut(AuditHead)) -> io::Result<()> {
    each(File::open(file)?, look)
}

fn each(from: impl Read, mut look: impl FnMut(AuditHead)) -> io::Result<()> {
    let mut reader = BufReader::new(from);
    let mut line = Vec::new();
    loop {
        line.clear();
        if reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        if let Some(head) = parse(&line) {
            look(head);
        }
    }
}

/// Parses a line; `None` for a torn or foreign one.
fn parse(line: &[u8]) -> Option<AuditHead> {
    let AnchorLine { row, head, .. } = serde_json::from_slice(line).ok()?;
    let hash = head.as_bytes().chunks(2).map(|pair| {
        let pair = std::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2)?;
        u8::from_str_radix(pair, 16).ok()
    });
    Some(AuditHead { n: row, hash: hash.collect::<Option<_>>()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_line_is_passed_over_and_the_next_begins_a_line_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("anchor");
        assert_eq!(newest(&file).unwrap(), None);
        let head = |n: u8| AuditHead { n: n.into(), hash: vec![n; 32] };
        append(&file, &head(1), Time::from_millis(0)).unwrap();
        let mut torn = OpenOptions::new().append(true).open(&file).unwrap();
        torn.write_all(br#"{"at":"1970"#).unwrap();
        append(&file, &head(2), Time::from_millis(0)).unwrap();
        assert_eq!(newest(&file).unwrap(), Some(head(2)));
        let mut all = Vec::new();
        each_head(&file, |head| all.push(head)).unwrap();
        assert_eq!(all, [head(1), head(2)]);
    }
}

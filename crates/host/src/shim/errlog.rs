//! The agent's stderr on disk: always read, and bounded by switching to a new file and deleting the one before the
//! last.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const CURRENT: &str = "err.log";
const BEFORE: &str = "err.old";

pub(super) struct ErrLog {
    file: Option<File>,
    size: u64,
    limit: u64,
}

impl ErrLog {
    /// Creates the log. Two files of `limit` bytes hold at least the last `limit` bytes.
    pub(super) fn create(limit: u64) -> Self {
        Self { file: None, size: limit, limit }
    }

    /// Appends to the log. Bytes that cannot be written are lost: an agent never waits for its stderr.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        if self.size >= self.limit {
            fs::rename(CURRENT, BEFORE).ok(); // it may not exist yet
            let open = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(CURRENT);
            self.file = open.ok();
            self.size = 0;
        }
        if let Some(file) = &mut self.file {
            file.write_all(bytes).ok(); // see above: lost
        }
        self.size += bytes.len() as u64;
    }
}

/// Returns the last `limit` bytes as text, from a shim's directory.
pub(crate) fn tail(dir: &Path, limit: usize) -> String {
    let read = |name: &str| -> Vec<u8> { read_end(&dir.join(name), limit).unwrap_or_default() };
    let mut bytes = read(BEFORE);
    bytes.extend(read(CURRENT));
    let cut = bytes.len().saturating_sub(limit);
    let mut end = &bytes[cut..];
    // A character that was cut in half at the front is omitted.
    while cut > 0 && end.first().is_some_and(|byte| byte & 0xC0 == 0x80) {
        end = &end[1..];
    }
    String::from_utf8_lossy(end).into_owned()
}

fn read_end(path: &PathBuf, limit: usize) -> io::Result<Vec<u8>> {
    use std::os::unix::fs::FileExt;
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    let start = size.saturating_sub(limit as u64);
    let mut bytes = vec![0; usize::try_from(size - start).unwrap_or(0)];
    let read = file.read_at(&mut bytes, start)?;
    bytes.truncate(read);
    Ok(bytes)
}

//! The journal of an agent's output: segments named by the offset of their first byte.
//!
//! ```text
//!   out.00000000000000000000   out.00000000000008388608   …
//!   └── 8 MiB ────────────────┘└── grows ──►
//! ```
//! The shim writes, the daemon reads; neither waits for the other. Consumed segments are deleted.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A segment is closed when it has grown past this.
const SEGMENT_BYTES: u64 = 8 << 20;

pub(super) fn segment(dir: &Path, start: u64) -> PathBuf {
    dir.join(segment_name(start))
}

fn segment_name(start: u64) -> String {
    format!("out.{start:020}")
}

/// Where the segment of this name starts. A number that is written in another way names no segment: nobody could open it.
pub(super) fn segment_start(name: &str) -> Option<u64> {
    let start = name.strip_prefix("out.")?.parse().ok()?;
    (segment_name(start) == name).then_some(start)
}

/// Where each segment starts, in order.
fn segments(dir: &Path) -> io::Result<Vec<u64>> {
    let mut starts = Vec::new();
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        starts.extend(name.to_str().and_then(segment_start));
    }
    starts.sort_unstable();
    Ok(starts)
}

/// The beginning of the first segment that is still there.
pub(super) fn start(dir: &Path) -> io::Result<u64> {
    Ok(segments(dir)?.first().copied().unwrap_or(0))
}

/// The end of the last segment, as it is on disk.
pub(super) fn end(dir: &Path) -> io::Result<u64> {
    match segments(dir)?.last() {
        // Saturating here and below: the agent runs as the same user, and may put files with any name here.
        Some(start) => Ok(start.saturating_add(segment(dir, *start).metadata()?.len())),
        None => Ok(0),
    }
}

/// Adds to the end of a journal whose shim has gone. Nobody else writes to it any more.
pub(super) fn append(dir: &Path, bytes: &[u8]) -> io::Result<()> {
    let Some(start) = segments(dir)?.pop() else { return Err(io::ErrorKind::NotFound.into()) };
    let file = OpenOptions::new().write(true).open(segment(dir, start))?;
    file.write_all_at(bytes, file.metadata()?.len())
}

/// The shim's side.
pub(super) struct JournalWriter {
    dir: PathBuf,
    file: File,
    start: u64,
    end: u64,
    trimmed: u64,
}

impl JournalWriter {
    pub(super) fn create(dir: &Path) -> io::Result<Self> {
        Ok(Self { dir: dir.to_owned(), file: create(dir, 0)?, start: 0, end: 0, trimmed: 0 })
    }

    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Bytes that the daemon has not consumed yet.
    pub(super) fn unconsumed(&self) -> u64 {
        self.end - self.trimmed
    }

    /// Lets `put` write at the end of the current segment; it tells how much it wrote.
    pub(super) fn grow(&mut self, put: impl FnOnce(&File, u64) -> io::Result<usize>) -> io::Result<usize> {
        if self.end - self.start >= SEGMENT_BYTES {
            self.file = create(&self.dir, self.end)?;
            self.start = self.end;
        }
        let grown = put(&self.file, self.end - self.start)?;
        self.end += grown as u64;
        Ok(grown)
    }

    /// Everything below `offset` is in the log: whole segments below it may go.
    pub(super) fn trim(&mut self, offset: u64) {
        self.trimmed = self.trimmed.max(offset.min(self.end));
        let Ok(starts) = segments(&self.dir) else { return };
        for (start, next) in starts.iter().zip(starts.iter().skip(1)) {
            if *next <= self.trimmed {
                fs::remove_file(segment(&self.dir, *start)).ok(); // it is tried again with the next trim
            }
        }
    }
}

fn create(dir: &Path, start: u64) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(segment(dir, start))
}

/// The daemon's side: reads on from any offset that is still there.
#[derive(Debug)]
pub(super) struct JournalReader {
    dir: PathBuf,
    offset: u64,
    open: Option<(u64, File)>,
}

impl JournalReader {
    pub(super) fn new(dir: &Path, offset: u64) -> Self {
        Self { dir: dir.to_owned(), offset, open: None }
    }

    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Up to `buf.len()` bytes from where the last read ended; 0 if there is nothing more at the moment.
    pub(super) fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.open.is_none() {
                let starts = segments(&self.dir)?;
                let Some(start) = starts.into_iter().rfind(|start| *start <= self.offset) else {
                    return Ok(0);
                };
                self.open = Some((start, File::open(segment(&self.dir, start))?));
            }
            let Some((start, file)) = &self.open else { return Ok(0) };
            let read = file.read_at(buf, self.offset - start)?;
            if read > 0 {
                self.offset = self.offset.saturating_add(read as u64);
                return Ok(read);
            }
            // At the end of this segment: is there a next one?
            if self.offset == *start || !segment(&self.dir, self.offset).exists() {
                return Ok(0);
            }
            self.open = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(writer: &mut JournalWriter, bytes: &[u8]) {
        let put = |file: &File, at| file.write_at(bytes, at);
        assert_eq!(writer.grow(put).unwrap(), bytes.len());
    }

    #[test]
    fn what_is_written_is_read_across_segments_and_from_any_offset() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = JournalWriter::create(dir.path()).unwrap();
        let chunk: Vec<u8> = (0..=255).cycle().take(3 << 20).collect();
        let mut reader = JournalReader::new(dir.path(), 0);
        let mut buf = vec![0; 1 << 20];
        assert_eq!(reader.read(&mut buf).unwrap(), 0);
        for _ in 0..7 {
            write(&mut writer, &chunk);
        }
        assert_eq!(writer.end(), 21 << 20);
        assert_eq!(end(dir.path()).unwrap(), 21 << 20);
        let mut all = Vec::new();
        loop {
            let read = reader.read(&mut buf).unwrap();
            if read == 0 {
                break;
            }
            all.extend_from_slice(&buf[..read]);
        }
        assert_eq!(all.len(), 21 << 20);
        assert!(all.chunks(3 << 20).all(|piece| piece == chunk));
        let mut middle = JournalReader::new(dir.path(), (9 << 20) + 5);
        assert!(middle.read(&mut buf).unwrap() > 0);
        assert_eq!(buf[0], 5);
    }

    #[test]
    fn a_file_with_a_number_in_another_spelling_is_no_segment() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = JournalWriter::create(dir.path()).unwrap();
        write(&mut writer, b"said");
        for name in ["out.7", "out.+0000000000000000009", "out.000000000000000000009", "out."] {
            fs::write(dir.path().join(name), b"").unwrap();
        }
        assert_eq!(segments(dir.path()).unwrap(), [0]);
        assert_eq!(end(dir.path()).unwrap(), 4);
    }

    #[test]
    fn consumed_segments_go_and_the_last_one_stays() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = JournalWriter::create(dir.path()).unwrap();
        for _ in 0..3 {
            write(&mut writer, &vec![1; usize::try_from(SEGMENT_BYTES).unwrap()]);
        }
        assert_eq!(segments(dir.path()).unwrap().len(), 3);
        writer.trim(SEGMENT_BYTES + 1);
        assert_eq!(segments(dir.path()).unwrap(), [SEGMENT_BYTES, 2 * SEGMENT_BYTES]);
        assert_eq!(writer.unconsumed(), 2 * SEGMENT_BYTES - 1);
        writer.trim(u64::MAX);
        assert_eq!(segments(dir.path()).unwrap(), [2 * SEGMENT_BYTES]);
        assert_eq!(writer.unconsumed(), 0);
        write(&mut writer, b"on");
        let mut reader = JournalReader::new(dir.path(), 3 * SEGMENT_BYTES);
        let mut buf = [0; 8];
        assert_eq!(reader.read(&mut buf).unwrap(), 2);
    }
}

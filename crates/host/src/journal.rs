//! The journal of an agent's output: segments named by the offset of their first byte.
//!
//! ```text
//!   out.00000000000000000000   out.00000000000008388608   …
//!   └── 8 MiB ────────────────┘└── grows ──►
//! ```
//! The shim writes, the daemon reads; neither waits for the other. Consumed segments are deleted. Two files never share
//! an offset, so a reader resumes from any offset without an index.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSliceMut};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::io::{ReadWriteFlags, preadv2};

/// The size from which a segment is closed and the next one begins.
const SEGMENT_BYTES: u64 = 8 << 20;

pub(super) fn segment(dir: &Path, start: u64) -> PathBuf {
    dir.join(segment_name(start))
}

fn segment_name(start: u64) -> String {
    format!("out.{start:020}")
}

/// Returns the start offset of the segment with this name. A number in any other spelling names no segment: `segment`
/// could not open it.
pub(super) fn segment_start(name: &str) -> Option<u64> {
    let start = name.strip_prefix("out.")?.parse().ok()?;
    (segment_name(start) == name).then_some(start)
}

/// Returns the start offset of each segment, in order.
fn segments(dir: &Path) -> io::Result<Vec<u64>> {
    let mut starts = Vec::new();
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        starts.extend(name.to_str().and_then(segment_start));
    }
    starts.sort_unstable();
    Ok(starts)
}

/// Returns the start offset of the first remaining segment.
pub(super) fn start(dir: &Path) -> io::Result<u64> {
    Ok(segments(dir)?.first().copied().unwrap_or(0))
}

/// Returns the end offset of the last segment on disk.
pub(super) fn end(dir: &Path) -> io::Result<u64> {
    match segments(dir)?.last() {
        // Saturating here and below: the agent runs as the same user, and may create files with any name here.
        Some(start) => Ok(start.saturating_add(segment(dir, *start).metadata()?.len())),
        None => Ok(0),
    }
}

/// Appends to a journal whose shim has exited and which therefore has no other writer.
pub(super) fn append(dir: &Path, bytes: &[u8]) -> io::Result<()> {
    let Some(start) = segments(dir)?.pop() else { return Err(io::ErrorKind::NotFound.into()) };
    let file = OpenOptions::new().write(true).open(segment(dir, start))?;
    file.write_all_at(bytes, file.metadata()?.len())
}

/// The shim's end of the journal.
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

    /// Lets `put` write at the end of the current segment; `put` returns the number of bytes written. A segment is
    /// never split inside of one call, so it may exceed [`SEGMENT_BYTES`] by one piece.
    pub(super) fn grow(&mut self, put: impl FnOnce(&File, u64) -> io::Result<usize>) -> io::Result<usize> {
        if self.end - self.start >= SEGMENT_BYTES {
            self.file = create(&self.dir, self.end)?;
            self.start = self.end;
        }
        let grown = put(&self.file, self.end - self.start)?;
        self.end += grown as u64;
        Ok(grown)
    }

    /// Deletes the segments that are completely below `offset`, because their content is in the log. The last segment
    /// stays.
    pub(super) fn trim(&mut self, offset: u64) {
        self.trimmed = self.trimmed.max(offset.min(self.end));
        let Ok(starts) = segments(&self.dir) else { return };
        for (start, next) in starts.iter().zip(starts.iter().skip(1)) {
            if *next <= self.trimmed {
                fs::remove_file(segment(&self.dir, *start)).ok(); // the next trim tries again
            }
        }
    }
}

fn create(dir: &Path, start: u64) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(segment(dir, start))
}

/// The daemon's end of the journal: reads from any offset that is not deleted yet.
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

    /// Reads without waiting for the disk; returns 0 if that needs [`Self::read`]. What the shim has just written is in
    /// memory.
    pub(super) fn read_cached(&mut self, buf: &mut [u8]) -> usize {
        let Some((start, file)) = &self.open else { return 0 };
        let (mut buf, offset) = ([IoSliceMut::new(buf)], self.offset - start);
        let read = preadv2(file, &mut buf, offset, ReadWriteFlags::NOWAIT).unwrap_or(0);
        self.offset = self.offset.saturating_add(read as u64);
        read
    }

    /// Reads up to `buf.len()` bytes from the current offset; returns 0 if there is nothing more at the moment.
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
            // The end of this segment: the next one, if any, starts exactly at this offset. The shim creates it only
            // when it has something to write, so its absence means "nothing more yet".
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

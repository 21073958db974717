//! A copy of the database, made while the daemon is running.
//!
//! One read transaction on the source lasts as long as the copy. New commits go to the write-ahead log meanwhile: the
//! copy neither sees them nor starts over. (`sqlite3_backup_step` ends only a transaction that it has begun itself, and
//! `SQLite` restarts a copy only when its source connection begins a transaction and finds the file changed.) The
//! price: the log cannot be emptied before the copy is done, so its growth is bounded.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};
use tokio_util::sync::CancellationToken;

use super::disk::free_bytes_beside;
use super::{Store, StoreError, audit, schema};
use intercom_types::Time;

/// The pages copied at once, 4 MiB; after each piece, an abandoned copy ends.
const PAGES_AT_ONCE: i32 = 1024;
const MIB: u64 = 1024 * 1024;
/// The maximum growth of the write-ahead log during one copy. Beyond it the copy fails: agents have priority.
const MAX_LOG_GROWTH: u64 = 1024 * MIB;

/// A requested copy, and its progress.
#[derive(Debug)]
pub struct BackupJob {
    pub to: PathBuf,
    /// Replaces an existing file, once the new one is complete.
    pub(crate) replace: bool,
    /// The number of bytes that must stay free beside the copy.
    pub(crate) keep_free: u64,
    copied: AtomicU64,
    total: AtomicU64,
}

impl BackupJob {
    pub fn new(to: PathBuf, replace: bool, keep_free: u64) -> Self {
        Self { to, replace, keep_free, copied: AtomicU64::new(0), total: AtomicU64::new(0) }
    }

    /// Returns the bytes copied so far, and all bytes.
    pub fn progress(&self) -> (u64, u64) {
        (self.copied.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed))
    }
}

/// The number of copies that are being made. Background work that writes much waits for them.
#[derive(Debug, Clone, Default)]
pub(super) struct RunningCopies(Arc<AtomicU64>);

/// A copy that is being made.
struct RunningCopy(RunningCopies);

impl RunningCopies {
    fn begin(&self) -> RunningCopy {
        self.0.fetch_add(1, Ordering::Relaxed);
        RunningCopy(self.clone())
    }

    pub(super) fn are_any(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

impl Drop for RunningCopy {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A finished copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatabaseCopy {
    pub bytes: u64,
    /// The growth of the write-ahead log during the copy.
    pub log_growth: u64,
}

impl Store {
    /// Creates a consistent copy. Dropping the future cancels the copy and removes its files. `job` is shared with the
    /// copying thread and is released when the last file of an unfinished copy is removed.
    pub async fn backup(&self, job: Arc<BackupJob>) -> Result<DatabaseCopy, StoreError> {
        let (from, name) = (self.path().to_owned(), self.name.clone());
        let abandoned = CancellationToken::new();
        let _abandon = abandoned.clone().drop_guard();
        let running = self.running_copies.begin();
        let copying = move || {
            let result = copy(&name, &from, &job, &abandoned, MAX_LOG_GROWTH);
            drop(running); // by this thread, and not when a caller drops its future
            result
        };
        tokio::task::spawn_blocking(copying).await.unwrap_or(Err(StoreError::Closed))
    }
}

fn failed(error: impl std::fmt::Display) -> StoreError {
    StoreError::Copy(error.to_string())
}

fn copy(
    name: &Path,
    from: &Path,
    job: &BackupJob,
    abandoned: &CancellationToken,
    max_log_growth: u64,
) -> Result<DatabaseCopy, StoreError> {
    let source = schema::open_reader(name)?;
    source.execute_batch("BEGIN")?;
    // The first read takes the snapshot.
    let pages: i64 = source.pragma_query_value(None, "page_count", |row| row.get(0))?;
    let page_size: i64 = source.pragma_query_value(None, "page_size", |row| row.get(0))?;
    let bytes_of = |pages: i64| u64::try_from(pages * page_size).unwrap_or(0);
    job.total.store(bytes_of(pages), Ordering::Relaxed);
    check_room(job, bytes_of(pages))?;
    let partial = PartialFile::create(&job.to)?;
    let mut target = Connection::open(&partial.0).map_err(failed)?;
    // An unfinished copy is removed, so it needs neither a journal nor a flush; the complete file is flushed at the
    // end.
    target.pragma_update(None, "journal_mode", "off").map_err(failed)?;
    target.pragma_update(None, "synchronous", "off").map_err(failed)?;
    let log = LogGrowth::of(from);
    let mut log_growth = 0;
    let backup = Backup::new(&source, &mut target).map_err(failed)?;
    loop {
        intercom_failpoint::visit("backup.step");
        if abandoned.is_cancelled() {
            return Err(failed("the copy was cancelled"));
        }
        let step = backup.step(PAGES_AT_ONCE).map_err(failed)?;
        let progress = backup.progress();
        let copied = progress.pagecount.saturating_sub(progress.remaining);
        job.copied.store(bytes_of(copied.into()), Ordering::Relaxed);
        log_growth = log.now().max(log_growth);
        match step {
            StepResult::Done => break,
            _ if log_growth > max_log_growth => {
                let most = max_log_growth / MIB;
                return Err(failed(format!(
                    "agents wrote more than {most} MiB during the copy; try again when they write less"
                )));
            }
            StepResult::More => {}
            // Busy or locked: the target is private, and readers of a write-ahead log do not wait, so this cannot last
            // long.
            _ => std::thread::sleep(std::time::Duration::from_millis(1)),
        }
    }
    drop(backup);
    drop(target);
    drop(source);
    complete(&partial, job)?;
    let bytes = std::fs::metadata(&job.to).map_err(failed)?.len();
    Ok(DatabaseCopy { bytes, log_growth })
}

fn check_room(job: &BackupJob, bytes: u64) -> Result<(), StoreError> {
    // If the directory does not exist, creating the file reports it.
    let Some(free) = free_bytes_beside(&job.to) else { return Ok(()) };
    let needed = bytes.saturating_add(job.keep_free);
    if free >= needed {
        return Ok(());
    }
    Err(failed(format!(
        "there is too little room: the copy needs {} MiB, {} MiB must stay free (min_free_disk_mib), and {} MiB are free",
        bytes.div_ceil(MIB),
        job.keep_free.div_ceil(MIB),
        free / MIB
    )))
}

/// Renames the finished copy to its target, once it is a single file and on the disk.
fn complete(partial: &PartialFile, job: &BackupJob) -> Result<(), StoreError> {
    let target = Connection::open(&partial.0).map_err(failed)?;
    target.pragma_update(None, "journal_mode", "delete").map_err(failed)?;
    audit::mark_copy(&target, Time::now()).map_err(failed)?;
    drop(target);
    File::open(&partial.0).and_then(|file| file.sync_all()).map_err(failed)?;
    if job.replace {
        std::fs::rename(&partial.0, &job.to).map_err(failed)?;
    } else {
        match std::fs::hard_link(&partial.0, &job.to) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => return Err(failed(error)),
            // The file system has no hard links.
            Err(_) => std::fs::rename(&partial.0, &job.to).map_err(failed)?,
        }
    }
    let dir = job.to.parent().unwrap_or(Path::new("/"));
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(failed)
}

/// An unfinished copy beside its target, removed when it is dropped.
struct PartialFile(PathBuf);

impl PartialFile {
    fn create(to: &Path) -> Result<Self, StoreError> {
        let mut name = to.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.partial", uuid::Uuid::new_v4().simple()));
        let path = to.with_file_name(name);
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(failed)?;
        Ok(Self(path))
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).ok(); // it was renamed, or nothing more can be done
    }
}

/// The growth of the write-ahead log since a point in time.
struct LogGrowth {
    path: PathBuf,
    before: u64,
}

impl LogGrowth {
    fn of(database: &Path) -> Self {
        let mut path = database.as_os_str().to_owned();
        path.push("-wal");
        let path = PathBuf::from(path);
        Self { before: size(&path), path }
    }

    fn now(&self) -> u64 {
        size(&self.path).saturating_sub(self.before)
    }
}

fn size(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |found| found.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A database of some megabytes, and a connection that keeps its log.
    fn database(dir: &Path) -> (PathBuf, Connection) {
        let path = dir.join("intercom.db");
        let (writer, _) = schema::open(&path).unwrap();
        writer.execute_batch("CREATE TABLE filler (bytes BLOB)").unwrap();
        fill(&writer, 20);
        (path, writer)
    }

    fn fill(writer: &Connection, mib: i64) {
        for _ in 0..mib {
            writer.execute("INSERT INTO filler VALUES (randomblob(1048576))", []).unwrap();
        }
    }

    fn files(dir: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            dir.read_dir().unwrap().flatten().map(|file| file.file_name().into_string().unwrap()).collect();
        names.retain(|name| !name.starts_with("intercom.db"));
        names
    }

    fn job(dir: &Path) -> BackupJob {
        BackupJob::new(dir.join("copy.db"), false, 0)
    }

    #[test]
    fn a_copy_that_nobody_wants_any_more_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (path, _writer) = database(dir.path());
        let abandoned = CancellationToken::new();
        abandoned.cancel();
        assert!(copy(&path, &path, &job(dir.path()), &abandoned, MAX_LOG_GROWTH).is_err());
        assert_eq!(files(dir.path()), [] as [String; 0]);
    }

    #[test]
    fn a_log_that_grows_too_much_ends_the_copy() {
        let dir = tempfile::tempdir().unwrap();
        let (path, writer) = database(dir.path());
        let (job, abandoned) = (job(dir.path()), CancellationToken::new());
        let error = std::thread::scope(|scope| {
            let copying = scope.spawn(|| {
                loop {
                    // Until the writer falls into the time of a copy.
                    match copy(&path, &path, &job, &abandoned, MIB / 2) {
                        Ok(_) => std::fs::remove_file(&job.to).unwrap(),
                        Err(error) => break error,
                    }
                }
            });
            while !copying.is_finished() {
                fill(&writer, 1);
            }
            copying.join().unwrap()
        });
        assert!(error.to_string().contains("agents wrote more than 0 MiB"), "{error}");
        assert_eq!(files(dir.path()), [] as [String; 0]);
    }

    #[test]
    fn a_copy_for_which_there_is_no_room_is_not_begun() {
        let dir = tempfile::tempdir().unwrap();
        let (path, _writer) = database(dir.path());
        let job = BackupJob::new(dir.path().join("copy.db"), false, u64::MAX);
        let error =
            copy(&path, &path, &job, &CancellationToken::new(), MAX_LOG_GROWTH).unwrap_err().to_string();
        assert!(error.contains("too little room: the copy needs 2"), "{error}");
        assert_eq!(files(dir.path()), [] as [String; 0]);
    }

    #[test]
    fn a_file_that_is_there_is_replaced_only_if_that_was_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let (path, _writer) = database(dir.path());
        let (job, wanted) = (job(dir.path()), CancellationToken::new());
        std::fs::write(&job.to, "mine").unwrap();
        assert!(copy(&path, &path, &job, &wanted, MAX_LOG_GROWTH).is_err());
        assert_eq!(std::fs::read_to_string(&job.to).unwrap(), "mine");
        let job = BackupJob { replace: true, ..job };
        let done = copy(&path, &path, &job, &wanted, MAX_LOG_GROWTH).unwrap();
        assert_eq!((done.bytes, job.progress()), (size(&job.to), (done.bytes, done.bytes)));
        assert_eq!(files(dir.path()), ["copy.db"]);
    }
}

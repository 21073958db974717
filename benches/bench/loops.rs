//! What the daemon is measured against: the least that could be done with the same bytes, in one thread.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use bytes::BytesMut;
use intercom_store::Store;
use intercom_store::bus::Bell;
use intercom_types::{EventKind, Time};
use rusqlite::{Connection, params};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio_util::codec::{Decoder, LinesCodec};

/// As much as a read from a pipe brings.
const CHUNK: usize = 64 * 1024;
const MAX_LINE: usize = 1 << 20;
/// Rows in one transaction of the inserting loop.
const ROWS: u64 = 1000;

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    method: &'a str,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

/// Lines per second through `LinesCodec` and into a borrowed envelope.
pub(crate) fn typed(bytes: &[u8], lines: u64) -> anyhow::Result<f64> {
    let mut seen = 0;
    rate(lines, || {
        each_line(bytes, |line| {
            let Envelope { method, id, params } = serde_json::from_str(line)?;
            std::hint::black_box((method, id, params));
            seen += 1;
            Ok(())
        })
    })
    .inspect(|_| assert_eq!(seen, lines))
}

/// Lines per second through `LinesCodec` and into a tree of values.
pub(crate) fn value(bytes: &[u8], lines: u64) -> anyhow::Result<f64> {
    rate(lines, || {
        each_line(bytes, |line| {
            std::hint::black_box(serde_json::from_str::<Value>(line)?);
            Ok(())
        })
    })
}

/// As [`typed`], and each line becomes a row of the daemon's own schema, in transactions of a thousand.
pub(crate) fn inserting(bytes: &[u8], lines: u64, wanted: &str) -> anyhow::Result<f64> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("intercom.db");
    drop(Store::open(&path, Bell::new())?); // makes the tables
    let connection = open(&path)?;
    let result = rate(lines, || {
        let mut insert = connection.prepare("INSERT INTO events VALUES (?1, ?2, ?3, ?4, ?5)")?;
        let mut count = connection.prepare("UPDATE meta SET value = ?1 WHERE key = 'next_seq'")?;
        let mut seq = 0u64;
        connection.execute_batch("BEGIN IMMEDIATE")?;
        each_line(bytes, |line| {
            let Envelope { method, id, params } = serde_json::from_str(line)?;
            std::hint::black_box(id);
            ensure!(method == wanted, "an unknown method");
            seq += 1;
            let data = params.context("no params")?.get();
            let (at, kind) = (Time::now().millis(), EventKind::Status.as_str());
            insert.execute(params![i64::try_from(seq)?, 1, at, kind, data])?;
            if seq.is_multiple_of(ROWS) {
                count.execute([i64::try_from(seq + 1)?])?;
                connection.execute_batch("COMMIT; BEGIN IMMEDIATE")?;
            }
            Ok(())
        })?;
        connection.execute_batch("COMMIT")?;
        Ok(())
    });
    let rows: i64 = connection.query_row("SELECT count(*) FROM events", [], |row| row.get(0))?;
    ensure!(rows == i64::try_from(lines)?, "{rows} rows instead of {lines}");
    result
}

/// How long a transaction of a single row takes: what the disk alone adds to everything that is committed.
pub(crate) fn one_row(count: u64) -> anyhow::Result<Vec<Duration>> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("intercom.db");
    drop(Store::open(&path, Bell::new())?); // makes the tables
    let connection = open(&path)?;
    let mut insert = connection.prepare("INSERT INTO events VALUES (?1, 1, ?2, 'status', '{}')")?;
    let mut times = Vec::new();
    for seq in 1..=count {
        let start = Instant::now();
        insert.execute(params![i64::try_from(seq)?, Time::now().millis()])?;
        times.push(start.elapsed());
    }
    Ok(times)
}

/// With the daemon's own settings.
fn open(path: &Path) -> anyhow::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.pragma_update(None, "journal_mode", "wal")?;
    connection.pragma_update(None, "synchronous", "full")?;
    connection.pragma_update(None, "wal_autocheckpoint", 4000)?;
    Ok(connection)
}

fn each_line(bytes: &[u8], mut take: impl FnMut(&str) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let mut codec = LinesCodec::new_with_max_length(MAX_LINE);
    let mut buf = BytesMut::new();
    for chunk in bytes.chunks(CHUNK) {
        buf.extend_from_slice(chunk);
        while let Some(line) = codec.decode(&mut buf)? {
            take(&line)?;
        }
    }
    Ok(())
}

fn rate(lines: u64, work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let start = Instant::now();
    work()?;
    Ok(per_second(lines, start.elapsed().as_secs_f64()))
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub(crate) fn per_second(count: u64, seconds: f64) -> f64 {
    count as f64 / seconds
}

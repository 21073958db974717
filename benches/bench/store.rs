//! The store alone, in this process: events written as rows and in blocks, read in pages, packed and removed.
//!
//! `agent.sessions` carries the same payload as `status` and always stays a row, so it shows the cost of rows in the
//! same run.

#![expect(clippy::cast_precision_loss, reason = "counts and sizes are far below 2^52")]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use intercom_store::bus::Bell;
use intercom_store::{SessionSnapshot, SessionWrite, Store};
use intercom_types::event::RawMessage;
use intercom_types::{Event, Json, NewEvent, Phase, Preset, SessionId, SessionRecord, Time};
use nix::sys::resource::{UsageWho, getrusage};
use rusqlite::Connection;

use crate::report::Report;

/// Events per page of a reader that catches up.
const PAGE: usize = 500;
/// The sessions of the long log.
const SESSIONS: usize = 10;
/// The most that the packer leaves for later.
const TAIL: i64 = 2048;

#[derive(Clone, Copy)]
enum Kind {
    Row,
    Bulk,
}

fn event(kind: Kind, n: usize) -> NewEvent {
    let text = format!(
        "{{\"message\":\"step {n}: compiled {} of 412 files in {} ms, {} warnings; next are the tests of module {}\"}}",
        n % 412,
        n * 7919 % 9973,
        n % 17,
        n * 31 % 257
    );
    let data = RawMessage(Json::trusted(text));
    let event = match kind {
        Kind::Row => Event::AgentSessions(data),
        Kind::Bulk => Event::Status(data),
    };
    NewEvent { at: Time::now(), event }
}

fn record(id: SessionId, phase: Phase) -> SessionRecord {
    SessionRecord {
        id,
        name: None,
        agent: None,
        protocol: "intercom".to_owned(),
        workspace: "/".into(),
        phase,
        why: "ready".to_owned(),
        pid: None,
        generation: 1,
        turn: None,
        pending_clearances: 0,
        pending_questions: 0,
        queue: 0,
        stderr_tail: String::new(),
        created_at: Time::now(),
        started_at: None,
        ended_at: (phase == Phase::Ended).then(Time::now),
        exit: None,
        end_reason: None,
        failed: None,
        unenforced: None,
        preset: Preset::Full,
        watch_state: intercom_types::WatchState::default(),
        agent_info: intercom_types::AgentInfo::default(),
        updated_at: None,
    }
}

async fn write(
    store: &Store,
    session: SessionId,
    events: Vec<NewEvent>,
    phase: Option<Phase>,
) -> anyhow::Result<()> {
    let snapshot = phase.map(|phase| {
        let (state, launch) = ("{}".to_owned(), Some("{}".to_owned()));
        Box::new(SessionSnapshot { record: record(session, phase), state, launch })
    });
    let (generation, outgoing, consumed) = (1, Vec::new(), Some(0));
    let write = SessionWrite {
        session,
        generation,
        events,
        outgoing,
        snapshot,
        consumed,
        urgent: false,
        adopts: false,
    };
    Ok(store.write(Arc::new(write)).await?)
}

async fn create(store: &Store) -> anyhow::Result<SessionId> {
    let id = SessionId::mint();
    write(store, id, Vec::new(), Some(Phase::Idle)).await?;
    Ok(id)
}

/// Returns the processor time of this process in seconds.
fn cpu() -> anyhow::Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    Ok(seconds(usage.user_time()) + seconds(usage.system_time()))
}

/// The shares of all rounds, in turns, and one long log.
pub(crate) fn rounds(rounds: usize, events: usize, report: &mut Report) -> anyhow::Result<()> {
    tokio::runtime::Runtime::new()?.block_on(async {
        for round in 0..rounds {
            for share in [1, 10, 32, 100, 1000] {
                let kinds = [("rows", Kind::Row), ("bulk", Kind::Bulk)];
                for (name, kind) in crate::turns(&kinds, round) {
                    shares(name, *kind, share, events / 10, report).await?;
                }
            }
        }
        long_log(events, report).await
    })
}

/// Writes events of one kind in shares of one size.
async fn shares(
    name: &str,
    kind: Kind,
    share: usize,
    most: usize,
    report: &mut Report,
) -> anyhow::Result<()> {
    let events = (share * 2000).min(most);
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("intercom.db");
    let store = Store::open(&path, Bell::new())?;
    let id = create(&store).await?;
    let writes: Vec<Vec<NewEvent>> =
        (0..events / share).map(|n| (0..share).map(|k| event(kind, n * share + k)).collect()).collect();
    let events: usize = writes.iter().map(Vec::len).sum();
    let (start, before) = (Instant::now(), cpu()?);
    for events in writes {
        write(&store, id, events, None).await?;
    }
    let (seconds, cpu) = (start.elapsed().as_secs_f64(), cpu()? - before);
    report.add(format!("{name}, shares of {share}"), "events/s", events as f64 / seconds);
    report.add(format!("{name}, shares of {share}, processor time"), "µs/event", cpu * 1e6 / events as f64);
    if share == 1000 {
        report.add(format!("{name}, size in the file"), "bytes/event", file_size(&path)? / events as f64);
        catch_up(&store, events, &format!("{name}, catch-up"), report).await?;
    }
    Ok(())
}

/// Returns the used size of the database file.
fn file_size(path: &Path) -> anyhow::Result<f64> {
    let size = "SELECT (page_count - freelist_count) * page_size FROM pragma_page_count, pragma_freelist_count, pragma_page_size";
    Ok(Connection::open(path)?.query_row(size, [], |row| row.get(0)).map(|size: i64| size as f64)?)
}

/// Reads the whole log in pages.
async fn catch_up(store: &Store, events: usize, name: &str, report: &mut Report) -> anyhow::Result<()> {
    let (start, before) = (Instant::now(), cpu()?);
    let (mut read, mut after) = (0, 0);
    loop {
        let page = store.events(Some(after), None, PAGE).await?.ok().context("the log is cut")?;
        let Some(last) = page.last() else { break };
        after = last.seq;
        read += page.len();
    }
    ensure!(read == events, "{read} events of {events}");
    report.add(name.to_owned(), "events/s", read as f64 / start.elapsed().as_secs_f64());
    report.add(format!("{name}, processor time"), "µs/event", (cpu()? - before) * 1e6 / read as f64);
    Ok(())
}

/// A long log of some chatty sessions: packed, read, and one session removed.
async fn long_log(events: usize, report: &mut Report) -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("intercom.db");
    let store = Store::open(&path, Bell::new())?;
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        sessions.push(create(&store).await?);
    }
    for n in 0..events / 1000 {
        let share = (0..1000).map(|k| event(Kind::Bulk, n * 1000 + k)).collect();
        write(&store, sessions[n % SESSIONS], share, None).await?;
    }
    let packing = tokio::spawn({
        let store = store.clone();
        async move { store.pack_events().await }
    });
    let (start, before) = (Instant::now(), cpu()?);
    let packed = || -> anyhow::Result<bool> {
        let left = "SELECT (SELECT value FROM meta WHERE key = 'next_seq') - value FROM meta WHERE key = 'packed_to'";
        Ok(Connection::open(&path)?.query_row(left, [], |row| row.get::<_, i64>(0))? < TAIL)
    };
    while !packed()? {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let many = events as f64;
    report.add("packing".to_owned(), "events/s", many / start.elapsed().as_secs_f64());
    report.add("packing, processor time".to_owned(), "µs/event", (cpu()? - before) * 1e6 / many);
    report.add("packed, size in the file".to_owned(), "bytes/event", file_size(&path)? / many);
    catch_up(&store, events, "packed, catch-up", report).await?;
    pages(&path, &sessions, events, report).await?;

    let removed = sessions[0];
    write(&store, removed, Vec::new(), Some(Phase::Ended)).await?;
    let (start, mut waits) = (Instant::now(), Vec::new());
    let removing = tokio::spawn({
        let store = store.clone();
        async move { store.remove(removed, "bench".to_owned(), Time::now()).await }
    });
    while !removing.is_finished() {
        let begun = Instant::now();
        store.set_cursor("bench", 1).await?;
        waits.push(begun.elapsed());
    }
    ensure!(removing.await??, "the session was not removed");
    report.add(format!("removing {} events", events / SESSIONS), "s", start.elapsed().as_secs_f64());
    waits.sort();
    let longest = waits.last().copied().unwrap_or_default();
    report.add("longest write meanwhile".to_owned(), "ms", longest.as_secs_f64() * 1e3);
    packing.abort();
    Ok(())
}

/// The time of one page of one session, with nothing in the cache.
async fn pages(
    path: &Path,
    sessions: &[SessionId],
    events: usize,
    report: &mut Report,
) -> anyhow::Result<()> {
    let (mut newest, mut middle) = (Vec::new(), Vec::new());
    for session in sessions {
        let store = Store::open(path, Bell::new())?;
        let start = Instant::now();
        ensure!(store.events_before(u64::MAX, *session, PAGE).await?.len() == PAGE, "a short page");
        newest.push(start.elapsed());
        let start = Instant::now();
        let from = Some((events / 2) as u64);
        let page = store.events(from, Some(*session), PAGE).await?.ok().context("the log is cut")?;
        ensure!(page.len() == PAGE, "a short page");
        middle.push(start.elapsed());
    }
    report.add_percentile(format!("page of a session, newest {PAGE} of {events}, p50"), &newest, 50);
    report.add_percentile(format!("page of a session, {PAGE} from the middle, p50"), &middle, 50);
    Ok(())
}

//! `intercom logs`: prints the log, or follows it.

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::Context as _;
use jiff::Timestamp;
use serde_json::value::RawValue;
use tokio::time::timeout;

use super::log_formatter::LogFormatter;
use super::stream::{DaemonEventStream, DaemonStreamItem};
use super::terminal::{Paint, stdout_size};
use super::time::date_time;
use super::url::url;
use super::{CliContext, ctrl_c, output};
use intercom_types::text::clean;
use intercom_types::{Event, EventPage, Phase, ReceivedEvent, Session};

/// Print the log of a session
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Agent text begins with agent>, think>, tool>, plan> or user> on every line; lines without such a mark are \
intercom's own. Pieces of a message are joined, and tool calls are shown when their status changes. Text below an entry, such as \
stderr, is cut to five lines; --raw has all of it.

With --json, each line is one event: {seq, session, at, kind, data}.

Examples:
  intercom logs shop --tail 20 -f
  intercom logs shop --since 10m --kind clearance")]
pub(super) struct LogsArgs {
    /// A session
    #[arg(value_name = "SES", value_parser = super::non_empty_id())]
    session: String,
    /// Follow new events until the session ends
    #[arg(long, short)]
    follow: bool,
    /// Only events after this number
    #[arg(long, value_name = "SEQ", default_value_t = 0, hide_default_value = true)]
    after: u64,
    /// Only the last N entries: messages, tool calls and lines; with --json or --raw, events
    #[arg(long, short = 'n', value_name = "N", conflicts_with = "after")]
    tail: Option<usize>,
    /// Only events since then: an age such as 10m or 2h, or a time such as 2026-03-04, 2026-03-04 15:02 or
    /// 2026-03-04T12:00:00Z
    #[arg(long, value_name = "TIME", conflicts_with = "after")]
    since: Option<String>,
    /// Print every event unchanged: its kind and its data
    #[arg(long, conflicts_with = "json")]
    raw: bool,
    /// Only events of this kind, or family of kinds (`clearance`); may be given several times
    #[arg(long, value_name = "KIND")]
    kind: Vec<String>,
}

/// The number of events in the first page of a search backwards, and the limit: each page is twice as long as the one
/// before.
const FIRST_PAGE: usize = 50;
const LAST_PAGE: usize = 1000;
/// The maximum number of events in the search for the last entries: a message can have any number of pieces.
const MOST_TAIL: usize = 20_000;
/// The delay after a logged end before the check whether the session was resumed.
const END_RECHECK: Duration = Duration::from_secs(1);
/// The time after which a word without a continuation is printed without waiting for its end.
const WORD_TIMEOUT: Duration = Duration::from_millis(300);

/// The length of a time up to its second.
const SECOND: usize = "2026-03-04T14:02:11".len();

type Page = EventPage<Box<RawValue>>;

fn events(page: &Page) -> Result<Vec<ReceivedEvent>, serde_json::Error> {
    page.items.iter().map(|item| ReceivedEvent::parse(item.get())).collect()
}

pub(super) async fn run(args: LogsArgs, cx: &CliContext) -> anyhow::Result<()> {
    let session = session(&args.session, cx).await?;
    let since = args.since.as_deref().map(super::audit::moment).transpose()?;
    let since = since.and_then(|since| since.parse::<Timestamp>().ok());
    let look = if cx.json {
        LogOutputFormat::Json
    } else if args.raw {
        LogOutputFormat::Raw
    } else {
        LogOutputFormat::Readable
    };
    let mut printer = LogPrinter::new(args.kind, look, cx.paint, stdout_size().map(|size| size.columns));
    let mut after = args.after;
    if let Some(tail) = args.tail {
        let (events, newest) = last_entries(&session.id, tail, since, &mut printer, cx).await?;
        for event in &events {
            printer.print(event)?;
        }
        after = newest;
        if !args.follow || session.phase == Phase::Ended {
            return printer.end();
        }
    } else if let Some(since) = since {
        after = last_seq_before(&session.id, since, cx).await?;
    }
    if args.follow && session.phase != Phase::Ended {
        ctrl_c::set_session_note(&session.label(), cx);
        follow(&session.id, after, &mut printer, cx).await?;
    } else {
        print_to_end(&session.id, after, &mut printer, cx).await?;
    }
    printer.end()
}

/// Reads pages of the log backwards from its end, until `enough` returns true.
async fn page_backwards(
    session: &str,
    cx: &CliContext,
    first_page: usize,
    mut enough: impl FnMut(Vec<ReceivedEvent>) -> bool,
) -> anyhow::Result<()> {
    let (mut before, mut limit) = (i64::MAX.unsigned_abs(), first_page.clamp(1, LAST_PAGE));
    // Only JSON is printed with the daemon's summary.
    let summary = if cx.json { "true" } else { "false" };
    loop {
        let (from, most) = (before.to_string(), limit.to_string());
        let query = [("before", &*from), ("session", session), ("limit", &most), ("summary", summary)];
        let page: Page = cx.client.get(&url(&["events"], &query)).await?.parse()?;
        limit = (limit * 2).min(LAST_PAGE);
        let events = events(&page)?;
        let first = events.first().map(|event| event.seq);
        if enough(events) {
            return Ok(());
        }
        match first {
            Some(first) if first < before => before = first,
            _ => return Ok(()),
        }
    }
}

/// Returns the last `count` entries, not older than `since`, and the number of the newest event.
async fn last_entries(
    session: &str,
    count: usize,
    since: Option<Timestamp>,
    printer: &mut LogPrinter,
    cx: &CliContext,
) -> anyhow::Result<(VecDeque<ReceivedEvent>, u64)> {
    let mut found: VecDeque<ReceivedEvent> = VecDeque::new();
    let (mut begins, mut newest) = (Vec::new(), 0);
    let is_readable = printer.format == LogOutputFormat::Readable;
    // An entry has several events, and an event of these kinds may be rare.
    let exact = !is_readable && printer.kinds.is_empty();
    let first_page = if exact { count } else { FIRST_PAGE.max(count.saturating_mul(2)) };
    page_backwards(session, cx, first_page, |events| {
        let mut over = false;
        newest = events.last().map_or(0, |event| event.seq).max(newest);
        for event in events.into_iter().rev() {
            if since.is_some_and(|since| is_before(&event, since)) {
                over = true;
                break;
            }
            if printer.wants(&event) {
                found.push_front(event);
            }
        }
        if !is_readable {
            return over || found.len() >= count;
        }
        begins = printer.entry_starts(&found);
        over || begins.len() > count || found.len() >= MOST_TAIL.max(count)
    })
    .await?;
    begins = printer.entry_starts(&found);
    // One more entry than wanted was read, because the first one found may be the rest of a longer message.
    let from = begins.len().checked_sub(count).map_or(0, |at| begins.get(at).copied().unwrap_or(found.len()));
    for event in found.drain(..from) {
        printer.learn(&event);
    }
    Ok((found, newest))
}

/// Returns the number of the last event before a time.
async fn last_seq_before(session: &str, since: Timestamp, cx: &CliContext) -> anyhow::Result<u64> {
    let mut after = 0;
    page_backwards(session, cx, LAST_PAGE, |events| {
        let older = events.iter().rev().find(|event| is_before(event, since)).map(|event| event.seq);
        after = older.unwrap_or(0);
        older.is_some()
    })
    .await?;
    Ok(after)
}

fn is_before(event: &ReceivedEvent, since: Timestamp) -> bool {
    event.at.parse::<Timestamp>().is_ok_and(|at| at < since)
}

/// Prints the log up to now, from one answer that the daemon writes as fast as it is read.
async fn print_to_end(
    session: &str,
    after: u64,
    printer: &mut LogPrinter,
    cx: &CliContext,
) -> anyhow::Result<()> {
    let summary = if cx.json { "true" } else { "false" };
    let query = [("after", &*after.to_string()), ("summary", summary)];
    let mut log = cx.client.download(&url(&["sessions", session, "log"], &query)).await?;
    let mut lines = Vec::new();
    while let Some(bytes) = log.next().await? {
        lines.extend_from_slice(&bytes);
        let Some(end) = lines.iter().rposition(|byte| *byte == b'\n') else { continue };
        let rest = lines.split_off(end + 1);
        printer.print_lines(&lines)?;
        lines = rest;
    }
    Ok(())
}

async fn follow(session: &str, after: u64, printer: &mut LogPrinter, cx: &CliContext) -> anyhow::Result<()> {
    let mut stream = DaemonEventStream::open(&cx.client, Some(session), after).await?;
    let mut ending = false;
    loop {
        let wait = if ending { END_RECHECK } else { WORD_TIMEOUT };
        let item = match timeout(wait, stream.next()).await {
            Ok(item) => item?,
            Err(_) if ending && has_ended(session, cx).await => return Ok(()),
            Err(_) if ending => continue,
            Err(_) => {
                printer.pause()?;
                stream.next().await?
            }
        };
        match item {
            DaemonStreamItem::Event(event) => {
                printer.print(&event)?;
                match event.event {
                    Event::SessionEnded(_) if has_ended(session, cx).await => return Ok(()),
                    Event::SessionEnded(_) => ending = true,
                    Event::SessionResumed(_) | Event::AgentSpawned(_) => ending = false,
                    _ => {}
                }
            }
            DaemonStreamItem::Lost | DaemonStreamItem::Back => {
                printer.make_room()?;
                stream.report(&item);
            }
        }
    }
}

/// Returns true if the session has ended; false while the daemon does not answer, because the stream then waits for it.
async fn has_ended(id: &str, cx: &CliContext) -> bool {
    session(id, cx).await.is_ok_and(|session| session.phase == Phase::Ended)
}

pub(super) async fn session(id: &str, cx: &CliContext) -> anyhow::Result<Session> {
    cx.client.get(&url(&["sessions", id], &[])).await?.parse()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LogOutputFormat {
    Readable,
    Raw,
    Json,
}

/// Turns events into lines, and omits the kinds that were not asked for.
#[derive(Debug)]
struct LogPrinter {
    kinds: Vec<String>,
    format: LogOutputFormat,
    paint: Paint,
    flow: LogFormatter,
    /// The last second, as in the log and as shown: many events have the same.
    second: (String, String),
}

impl LogPrinter {
    fn new(kinds: Vec<String>, format: LogOutputFormat, paint: Paint, width: Option<usize>) -> Self {
        Self { kinds, format, paint, flow: LogFormatter::new(paint, width), second: Default::default() }
    }

    fn print(&mut self, event: &ReceivedEvent) -> anyhow::Result<()> {
        let text = self.show(event);
        if self.format == LogOutputFormat::Json { output::print_json(&text) } else { output::draw(&text) }
    }

    /// Prints events, one per line, all at once.
    fn print_lines(&mut self, lines: &[u8]) -> anyhow::Result<()> {
        let lines = std::str::from_utf8(lines).context("the daemon's answer is not text")?;
        if self.format == LogOutputFormat::Json && self.kinds.is_empty() {
            return output::print_json(lines);
        }
        let mut text = String::new();
        for line in lines.lines() {
            text.push_str(&self.show(&ReceivedEvent::parse(line)?));
        }
        if self.format == LogOutputFormat::Json { output::print_json(&text) } else { output::draw(&text) }
    }

    /// Returns a time of the log as people read it.
    fn lead(&mut self, at: &str) -> String {
        let second = at.get(..SECOND).unwrap_or(at);
        if self.second.0 != second {
            self.second = (second.to_owned(), format!("{}  ", date_time(at)));
        }
        self.second.1.clone()
    }

    fn pause(&mut self) -> anyhow::Result<()> {
        output::draw(&self.flow.pause())
    }

    /// Ends the line on a terminal, so that a note on stderr does not split it. A file gets the message whole.
    fn make_room(&mut self) -> anyhow::Result<()> {
        if stdout_size().is_some() { self.end() } else { Ok(()) }
    }

    fn end(&mut self) -> anyhow::Result<()> {
        output::draw(&self.flow.end())
    }

    /// Remembers an event without showing it, because later events name its tool call by its id alone.
    fn learn(&mut self, event: &ReceivedEvent) {
        self.flow.push(event, "");
        self.flow.end();
    }

    fn wants(&self, event: &ReceivedEvent) -> bool {
        self.kinds.is_empty() || self.kinds.iter().any(|kind| is_kind(event.event.name(), kind))
    }

    /// Returns the positions in `events` at which an entry begins.
    fn entry_starts(&self, events: &VecDeque<ReceivedEvent>) -> Vec<usize> {
        let mut flow = LogFormatter::new(self.paint, None);
        let begins = |event: &ReceivedEvent| self.format != LogOutputFormat::Readable || flow.begins(event);
        events.iter().map(begins).enumerate().filter(|(_, begins)| *begins).map(|(at, _)| at).collect()
    }

    fn show(&mut self, event: &ReceivedEvent) -> String {
        if !self.wants(event) {
            return String::new();
        }
        let lead = self.lead(&event.at);
        match self.format {
            LogOutputFormat::Json => format!("{}\n", event.raw),
            LogOutputFormat::Raw => {
                format!("{lead}{} {}\n", clean(event.event.name()), clean(event.data.as_str()))
            }
            LogOutputFormat::Readable => self.flow.push(event, &lead),
        }
    }
}

/// Returns true if `asked` covers the kind: `clearance`, `clearance.*` and `clearance.decided` all cover
/// `clearance.decided`.
fn is_kind(kind: &str, asked: &str) -> bool {
    let family = asked.strip_suffix(".*").unwrap_or(asked);
    kind.strip_prefix(family).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_asked_for_one_by_one_or_by_family() {
        assert!(is_kind("clearance.decided", "clearance.decided"));
        assert!(is_kind("clearance.decided", "clearance"));
        assert!(is_kind("clearance.decided", "clearance.*"));
        assert!(!is_kind("clearance.decided", "clear"));
        assert!(!is_kind("clearance", "clearance.decided"));
    }

    #[test]
    fn a_line_has_its_time_and_json_is_passed_on_unchanged() {
        let raw = r#"{"seq":1,"session":"ses_1","at":"2026-03-04T14:02:11.123Z","kind":"status","data":{"message":"hi"},"x":1.0}"#;
        let event = ReceivedEvent::parse(raw).unwrap();
        let mut printer = LogPrinter::new(vec![], LogOutputFormat::Readable, Paint::OFF, None);
        assert_eq!(printer.show(&event), "2026-03-04 14:02:11  agent> hi\n");
        printer.format = LogOutputFormat::Raw;
        assert_eq!(printer.show(&event), "2026-03-04 14:02:11  status {\"message\":\"hi\"}\n");
        printer.format = LogOutputFormat::Json;
        assert_eq!(printer.show(&event), format!("{raw}\n"));
        printer.kinds = vec!["heartbeat".to_owned()];
        assert_eq!(printer.show(&event), "");
    }
}

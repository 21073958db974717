//! `intercom logs`: pages through the log, or follows it.

use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::timeout;

use super::stream::{Item, Stream};
use super::terminal::{Paint, Style};
use super::time::date_time;
use super::url::url;
use super::{Context, out, render};
use crate::answers::{Event, Session};

/// Print the log of a session
#[derive(Debug, clap::Args)]
#[command(after_help = "With --json, each line is one event: {seq, session, at, kind, data}.")]
pub(super) struct Args {
    /// A session
    #[arg(value_name = "SES", value_parser = super::id())]
    session: String,
    /// Go on with what happens next, until the session ends
    #[arg(long, short)]
    follow: bool,
    /// Only events after this number
    #[arg(long, value_name = "SEQ", default_value_t = 0, hide_default_value = true)]
    after: u64,
    /// Only events of this kind, or family of kinds (`clearance`); may be given several times
    #[arg(long, value_name = "KIND")]
    kind: Vec<String>,
}

/// Agents write long lines; a page of them should still fit in memory.
const PAGE: &str = "200";
/// After the end was logged, how long until we look again whether it is the end.
const SETTLE: Duration = Duration::from_secs(1);

pub(super) async fn run(args: Args, cx: &Context) -> anyhow::Result<()> {
    let session = session(&args.session, cx).await?;
    let printer = Printer { kinds: args.kind, json: cx.json, paint: cx.paint };
    if args.follow && session.phase != "ended" {
        follow(&session.id, args.after, &printer, cx).await
    } else {
        page_through(&session.id, args.after, &printer, cx).await
    }
}

async fn page_through(session: &str, mut after: u64, printer: &Printer, cx: &Context) -> anyhow::Result<()> {
    #[derive(Deserialize)]
    struct Page {
        items: Vec<Box<RawValue>>,
        next: Option<u64>,
    }
    loop {
        let query = [("after", &*after.to_string()), ("session", session), ("limit", PAGE)];
        let page: Page = cx.client.get(&url(&["events"], &query)).await?.parse()?;
        let events = page.items.iter().map(|item| Event::parse(item.get())).collect::<Result<Vec<_>, _>>()?;
        printer.print(&events.iter().map(|event| printer.show(event)).collect::<String>())?;
        match page.next {
            Some(next) if next > after => after = next,
            _ => return Ok(()),
        }
    }
}

async fn follow(session: &str, after: u64, printer: &Printer, cx: &Context) -> anyhow::Result<()> {
    let mut stream = Stream::open(&cx.client, Some(session), after).await?;
    let mut ending = false;
    loop {
        let item = if ending {
            match timeout(SETTLE, stream.next()).await {
                Ok(item) => item?,
                Err(_) if has_ended(session, cx).await => return Ok(()),
                Err(_) => continue,
            }
        } else {
            stream.next().await?
        };
        match item {
            Item::Event(event) => {
                printer.print(&printer.show(&event))?;
                match event.kind.as_str() {
                    "session.ended" if has_ended(session, cx).await => return Ok(()),
                    "session.ended" => ending = true,
                    "session.resumed" | "agent.spawned" => ending = false,
                    _ => {}
                }
            }
            Item::Lost | Item::Back => tell(&item),
        }
    }
}

/// False also while the daemon cannot be asked: then the stream waits for it.
async fn has_ended(id: &str, cx: &Context) -> bool {
    session(id, cx).await.is_ok_and(|session| session.phase == "ended")
}

pub(super) async fn session(id: &str, cx: &Context) -> anyhow::Result<Session> {
    cx.client.get(&url(&["sessions", id], &[])).await?.parse()
}

pub(super) fn tell(item: &Item) {
    match item {
        Item::Lost => out::talk("the daemon is away; waiting for it to come back"),
        Item::Back => out::talk("the daemon is back"),
        Item::Event(_) => {}
    }
}

/// Turns events into lines, leaving out the kinds that were not asked for.
#[derive(Debug)]
struct Printer {
    kinds: Vec<String>,
    json: bool,
    paint: Paint,
}

impl Printer {
    fn print(&self, lines: &str) -> anyhow::Result<()> {
        if self.json { out::print_json(lines) } else { out::print(lines) }
    }

    fn show(&self, event: &Event) -> String {
        if !self.kinds.is_empty() && !self.kinds.iter().any(|kind| is_kind(&event.kind, kind)) {
            return String::new();
        }
        if self.json {
            return format!("{}\n", event.raw);
        }
        let lead = self.paint.style(Style::Dim, &date_time(&event.at));
        render::event(event).lines(&format!("{lead}  "), self.paint)
    }
}

/// `clearance`, `clearance.*` and `clearance.decided` all stand for `clearance.decided`.
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
        let event = Event::parse(raw).unwrap();
        let mut printer = Printer { kinds: vec![], json: false, paint: Paint::OFF };
        assert_eq!(printer.show(&event), "2026-03-04 14:02:11  hi\n");
        printer.json = true;
        assert_eq!(printer.show(&event), format!("{raw}\n"));
        printer.kinds = vec!["heartbeat".to_owned()];
        assert_eq!(printer.show(&event), "");
    }
}

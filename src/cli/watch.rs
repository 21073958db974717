//! `intercom watch`: a live overview on a terminal, a line per event elsewhere.

use std::time::Duration;

use jiff::Timestamp;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};

use super::ctrl_c::{self, InterruptedByUser};
use super::failure::DaemonRefusal;
use super::log_formatter::LogFormatter;
use super::logs::session;
use super::overview::{LATEST, Overview};
use super::session_names::SessionNames;
use super::stream::{DaemonEventStream, DaemonStreamItem};
use super::terminal::stdout_size;
use super::time::date_time;
use super::wait::last_seq;
use super::{CliContext, output};
use intercom_types::{Clearance, Question, ReceivedEvent, Session};

/// Watch what all agents do, live
#[derive(Debug, clap::Args)]
#[command(after_help = "\
On a terminal this is an overview that refreshes until Ctrl-C; otherwise, and with --json, one line per event.")]
pub(super) struct WatchArgs {
    /// Only this session
    #[arg(value_name = "SES", value_parser = super::non_empty_id())]
    session: Option<String>,
}

/// The minimum interval between two reads of the state while many events arrive.
const REFRESH: Duration = Duration::from_millis(250);
/// The interval at which ages are refreshed without events.
const TICK: Duration = Duration::from_secs(1);

pub(super) async fn run(args: WatchArgs, cx: &CliContext) -> anyhow::Result<()> {
    let only = match &args.session {
        Some(typed) => Some(session(typed, cx).await?.id),
        None => None,
    };
    let end = last_seq(&cx.client).await?;
    if cx.json || stdout_size().is_none() {
        ctrl_c::end_on_ctrl_c();
        // The stream is opened last: from then on, the command waits for a daemon that goes away.
        let names = if cx.json { SessionNames::default() } else { SessionNames::all(cx).await? };
        return lines(DaemonEventStream::open(&cx.client, only.as_deref(), end).await?, names, cx).await;
    }
    // The overview begins with the latest events that are still in the log.
    let before = end.saturating_sub(LATEST as u64);
    let stream = match DaemonEventStream::open(&cx.client, only.as_deref(), before).await {
        Err(error) if error.downcast_ref::<DaemonRefusal>().is_some_and(|refusal| refusal.status == 410) => {
            DaemonEventStream::open(&cx.client, only.as_deref(), end).await?
        }
        opened => opened?,
    };
    live(stream, only.as_deref(), cx).await
}

async fn lines(
    mut stream: DaemonEventStream,
    mut names: SessionNames,
    cx: &CliContext,
) -> anyhow::Result<()> {
    let mut flow = LogFormatter::new(cx.paint, None);
    loop {
        let item = if let Ok(item) = timeout(REFRESH, stream.next()).await {
            item?
        } else {
            output::draw(&flow.pause())?;
            stream.next().await?
        };
        match item {
            DaemonStreamItem::Event(event) if cx.json => output::print_json(&event.raw)?,
            DaemonStreamItem::Event(event) => {
                names.hear(&event);
                output::draw(&flow.push(&event, &lead(&event, &names)))?;
            }
            item => stream.report(&item),
        }
    }
}

fn lead(event: &ReceivedEvent, names: &SessionNames) -> String {
    format!("{}  {}  ", date_time(&event.at), names.label_with_title(&event.session))
}

async fn live(mut stream: DaemonEventStream, only: Option<&str>, cx: &CliContext) -> anyhow::Result<()> {
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut terminated = signal(SignalKind::terminate())?;
    let mut resized = signal(SignalKind::window_change())?;
    let mut tick = interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut view = Overview::new(SessionNames::all(cx).await?);
    refresh(&mut view, only, cx).await?;
    let _screen = AlternateScreen::enter()?;
    let (mut size, mut refreshed, mut stale) = (stdout_size(), Instant::now(), false);
    loop {
        tokio::select! {
            item = stream.next() => {
                match item? {
                    DaemonStreamItem::Event(event) => view.push(*event),
                    DaemonStreamItem::Lost => view.away = true,
                    DaemonStreamItem::Back => view.away = false,
                }
                stale = true;
                continue; // drawn with the next refresh: many events must not cause many frames
            }
            () = sleep_until(refreshed + REFRESH), if stale => {
                if !view.away {
                    refresh(&mut view, only, cx).await.ok(); // the stream notices an absent daemon
                }
                (refreshed, stale) = (Instant::now(), false);
            }
            _ = tick.tick() => {}
            _ = resized.recv() => size = stdout_size(),
            _ = interrupted.recv() => return Err(InterruptedByUser.into()),
            _ = terminated.recv() => return Ok(()),
        }
        if let Some(size) = size {
            output::draw(&view.frame(size, cx.paint, Timestamp::now()))?;
        }
    }
}

async fn refresh(view: &mut Overview, only: Option<&str>, cx: &CliContext) -> anyhow::Result<()> {
    let mine = |session: &str| only.is_none_or(|only| only == session);
    let pending = [("status", "pending")];
    let mut sessions: Vec<Session> = match only {
        Some(id) => vec![session(id, cx).await?],
        None => cx.client.list(&["sessions"], &[("failed", "true")]).await?.items()?,
    };
    let mut clearances: Vec<Clearance> = cx.client.list(&["clearances"], &pending).await?.items()?;
    let mut questions: Vec<Question> = cx.client.list(&["questions"], &pending).await?.items()?;
    clearances.retain(|clearance| mine(&clearance.session));
    questions.retain(|question| mine(&question.session));
    Clearance::sort(&mut clearances);
    Question::sort(&mut questions);
    sessions.sort_by_key(Session::urgency);
    for session in &sessions {
        view.names.learn(session);
    }
    (view.sessions, view.clearances, view.questions) = (sessions, clearances, questions);
    Ok(())
}

/// The terminal's second screen, without cursor and without wrapped lines; the first one is restored at the end.
#[derive(Debug)]
struct AlternateScreen;

impl AlternateScreen {
    fn enter() -> anyhow::Result<Self> {
        output::draw("\x1b[?1049h\x1b[?25l\x1b[?7l")?;
        Ok(Self)
    }
}

impl Drop for AlternateScreen {
    fn drop(&mut self) {
        output::draw("\x1b[?7h\x1b[?25h\x1b[?1049l").ok(); // the terminal may be closed
    }
}

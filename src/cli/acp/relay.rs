//! Moves messages between the client's stdio, the ledger and the daemon, at the pace of the slowest of them.

use std::future::pending;
use std::pin::Pin;
use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until, timeout};
use tokio_tungstenite::tungstenite::{
    self, Message, protocol::CloseFrame, protocol::frame::coding::CloseCode,
};

use super::ledger::Ledger;
use super::link::{self, Door, Link, Reader};
use super::stdio::{self, Inbox};
use crate::cli::failure::Failure;
use crate::cli::out;

/// The time for answers that arrive after the client has closed its end.
const LAST_ANSWERS: Duration = Duration::from_secs(2);
/// The same if sessions are to be closed, which may take an agent a while.
const LAST_CLOSES: Duration = Duration::from_secs(10);
/// The time for the daemon to say goodbye, and for the client to read the rest.
const GOODBYE: Duration = Duration::from_secs(2);
/// A connection that lasted less is taken for one more failed attempt.
const STEADY: Duration = Duration::from_secs(1);
/// The interval of pings to a remote daemon. Silence until the next ping means that it is gone.
const PULSE: Duration = Duration::from_secs(30);

type Connecting<'a> = Pin<Box<dyn Future<Output = anyhow::Result<Link>> + 'a>>;

pub(super) struct Relay<'a> {
    door: &'a Door,
    ledger: Ledger,
    inbox: Inbox,
    input: mpsc::Receiver<Vec<u8>>,
    output: mpsc::Sender<Vec<u8>>,
    written: oneshot::Receiver<()>,
    link: Option<Link>,
    connecting: Option<Connecting<'a>>,
    up_since: Instant,
    away_since: Option<Instant>,
    /// It was given up, and why.
    dead: Option<String>,
    /// The client is gone.
    closing: Option<Closing>,
    /// And reads nothing, either.
    deaf: bool,
    close_sessions: bool,
    /// Something was heard since the last time that it was asked for.
    heard: bool,
}

/// The progress of closing.
struct Closing {
    until: Instant,
    /// The daemon was told goodbye, and is listened to until it says the same.
    parting: bool,
}

enum Happened {
    Read(Option<Vec<u8>>),
    /// There is room on stdout, or nobody there.
    Writable(bool),
    /// The same of the daemon.
    Sendable(bool),
    Said(Option<tungstenite::Result<Message>>),
    Connected(anyhow::Result<Link>),
    Pulse,
    Signal,
    TooLate,
}

impl<'a> Relay<'a> {
    /// From the first connection on.
    pub(super) fn new(door: &'a Door, link: Link, close_sessions: bool) -> Self {
        let (output, written) = stdio::write();
        let mut ledger = Ledger::new();
        ledger.connected();
        Self {
            door,
            ledger,
            inbox: Inbox::default(),
            input: stdio::read(),
            output,
            written,
            link: Some(link),
            connecting: None,
            up_since: Instant::now(),
            away_since: None,
            dead: None,
            closing: None,
            deaf: false,
            close_sessions,
            heard: true,
        }
    }

    /// Until the client is gone and everything is said.
    pub(super) async fn run(mut self) -> anyhow::Result<()> {
        let (mut interrupt, mut terminate) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let mut pulse = interval_at(Instant::now() + PULSE, PULSE);
        pulse.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            while self.ledger.has_room_for_client() {
                let Some(frame) = self.inbox.next() else { break };
                self.ledger.frame(frame);
            }
            while self.deaf && self.ledger.next_for_client().is_some() {}
            let all_read = self.inbox.ended && self.ledger.has_room_for_client();
            if all_read && self.closing.is_none() {
                self.close();
            }
            let parts = self.parts();
            if parts && self.link.is_none() {
                break;
            }
            let happened = {
                let Self { ledger, inbox, input, output, written, link, connecting, closing, deaf, .. } =
                    &mut self;
                let (sender, reader) = match link {
                    Some(link) => (link.sender.as_ref(), Some(&mut link.reader)),
                    None => (None, None),
                };
                let reading = ledger.has_room_for_client() && !inbox.ended && closing.is_none();
                tokio::select! {
                    chunk = input.recv(), if reading => Happened::Read(chunk),
                    room = output.reserve(), if ledger.has_for_client() => Happened::Writable(room.is_ok()),
                    _ = written, if !*deaf => Happened::Writable(false),
                    room = room(sender), if parts || ledger.has_for_daemon() => Happened::Sendable(room),
                    said = next(reader), if ledger.has_room_for_daemon() => Happened::Said(said),
                    link = connected(connecting) => Happened::Connected(link),
                    _ = pulse.tick() => Happened::Pulse,
                    _ = interrupt.recv() => Happened::Signal,
                    _ = terminate.recv() => Happened::Signal,
                    () = reached(closing.as_ref()) => Happened::TooLate,
                }
            };
            if matches!(happened, Happened::TooLate) {
                break;
            }
            self.handle(happened);
        }
        self.leave().await
    }

    fn handle(&mut self, happened: Happened) {
        match happened {
            Happened::Read(chunk) => self.inbox.feed(chunk),
            Happened::Writable(true) => {
                if let Some(text) = self.ledger.next_for_client() {
                    self.output.try_send(self.inbox.wrap(&text)).ok(); // there was room a moment ago, and we alone send
                }
            }
            Happened::Sendable(true) => {
                let message = self.ledger.next_for_daemon().map_or_else(|| self.part(), Message::text);
                if let Some(sender) = self.link.as_ref().and_then(|link| link.sender.as_ref()) {
                    sender.try_send(message).ok(); // as above
                }
            }
            Happened::Sendable(false) => {
                if let Some(link) = &mut self.link {
                    link.sender = None; // the reader tells when it is over
                }
            }
            // Nobody reads our stdout: the client is gone.
            Happened::Writable(false) => {
                self.deaf = true;
                self.close();
            }
            Happened::Said(Some(Ok(message))) => self.said(message),
            Happened::Said(Some(Err(_)) | None) => self.lost(),
            Happened::Connected(Ok(link)) => {
                out::talk("connected to the daemon again");
                (self.link, self.connecting) = (Some(link), None);
                (self.up_since, self.heard) = (Instant::now(), true);
                self.ledger.connected();
            }
            Happened::Connected(Err(error)) => {
                let away = link::away().as_secs();
                let why =
                    format!("the daemon went away, and there was none again within {away} s: {error:#}");
                out::talk(&why);
                self.connecting = None;
                self.ledger.give_up(&why);
                self.dead = Some(why);
            }
            Happened::Pulse => self.pulse(),
            Happened::Signal => self.close(),
            Happened::TooLate => {}
        }
    }

    fn said(&mut self, message: Message) {
        self.heard = true;
        if let Message::Text(text) = message
            && let Err(bad) = self.ledger.daemon(text.as_str())
        {
            out::talk(&format!("the daemon sent what is no message: {bad}"));
        }
    }

    fn lost(&mut self) {
        self.link = None;
        if self.closing.as_ref().is_some_and(|closing| closing.parting) {
            return;
        }
        let lasted = self.up_since.elapsed() >= STEADY;
        self.ledger.lost(lasted);
        out::talk("the daemon has closed the connection; trying to reach it again");
        // One that hangs up as soon as it hears us does not get more time with every attempt.
        let since = self.away_since.filter(|_| !lasted).unwrap_or_else(Instant::now);
        self.away_since = Some(since);
        self.connecting = Some(Box::pin(self.door.reopen(since)));
    }

    /// Only elsewhere: a socket of this machine does not go quiet.
    fn pulse(&mut self) {
        let Some(link) = self.link.as_ref().filter(|_| self.door.is_elsewhere()) else { return };
        if !self.ledger.has_room_for_daemon() {
            return; // we did not listen
        }
        if !std::mem::take(&mut self.heard) {
            return self.lost();
        }
        if let Some(sender) = &link.sender {
            sender.try_send(Message::Ping(Vec::new().into())).ok(); // if it is busy, there is an answer to come
        }
    }

    /// The client is gone: what it asked for before is still done.
    fn close(&mut self) {
        if self.closing.is_some() {
            return;
        }
        let patience = if self.close_sessions { LAST_CLOSES } else { LAST_ANSWERS };
        self.closing = Some(Closing { until: Instant::now() + patience, parting: false });
        self.input.close();
        while let Ok(chunk) = self.input.try_recv() {
            self.inbox.feed(Some(chunk)); // it was read
        }
        if self.close_sessions {
            self.ledger.close_sessions();
        }
    }

    /// The client is gone, and there is nothing left but to say goodbye.
    fn parts(&self) -> bool {
        self.closing.as_ref().is_some_and(|closing| !closing.parting || self.link.is_none())
            && self.ledger.is_settled()
    }

    fn part(&mut self) -> Message {
        self.closing = Some(Closing { until: Instant::now() + GOODBYE, parting: true });
        Message::Close(Some(CloseFrame { code: CloseCode::Normal, reason: "".into() }))
    }

    /// Writes the rest to the client, if it reads.
    async fn leave(self) -> anyhow::Result<()> {
        let Self { mut ledger, inbox, output, written, deaf, dead, link, .. } = self;
        let untold = link.is_none() && !ledger.is_settled();
        let rest = async {
            while let Some(text) = ledger.next_for_client() {
                if output.send(inbox.wrap(&text)).await.is_err() {
                    return;
                }
            }
            drop(output);
            written.await.ok(); // nobody reads it
        };
        if !deaf {
            timeout(GOODBYE, rest).await.ok(); // who does not read is not waited for
        }
        match dead {
            Some(why) => Err(Failure::failed(why).into()),
            None if untold => Err(Failure::failed("the daemon is away, and was not told everything").into()),
            None => Ok(()),
        }
    }
}

async fn room(sender: Option<&mpsc::Sender<Message>>) -> bool {
    match sender {
        Some(sender) => sender.reserve().await.is_ok(),
        None => pending().await,
    }
}

async fn next(reader: Option<&mut Reader>) -> Option<tungstenite::Result<Message>> {
    match reader {
        Some(reader) => reader.next().await,
        None => pending().await,
    }
}

async fn connected(connecting: &mut Option<Connecting<'_>>) -> anyhow::Result<Link> {
    match connecting {
        Some(connecting) => connecting.await,
        None => pending().await,
    }
}

async fn reached(closing: Option<&Closing>) {
    match closing {
        Some(closing) => sleep_until(closing.until).await,
        None => pending().await,
    }
}

//! Moves messages between the client's stdio, the pending requests and the daemon, at the pace of the slowest of them.

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

use super::daemon_socket::{self, DaemonConnector, DaemonSocket, DaemonSocketReader};
use super::pending_requests::PendingRelayRequests;
use super::stdio::{self, StdinFrames};
use crate::cli::failure::CliFailure;
use crate::cli::output;

/// The time for answers that arrive after the client has closed its end.
const ANSWER_GRACE: Duration = Duration::from_secs(2);
/// The same time if sessions are to be closed, which may take an agent a while.
const CLOSE_GRACE: Duration = Duration::from_secs(10);
/// The time for the daemon to close the connection, and for the client to read the rest.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// The minimum duration of a successful connection; a shorter one counts as one more failed attempt.
const MIN_STABLE: Duration = Duration::from_secs(1);
/// The interval of pings to a remote daemon. Silence until the next ping means that the connection is lost.
const PULSE: Duration = Duration::from_secs(30);

type Connecting<'a> = Pin<Box<dyn Future<Output = anyhow::Result<DaemonSocket>> + 'a>>;

pub(super) struct Relay<'a> {
    connector: &'a DaemonConnector,
    requests: PendingRelayRequests,
    inbox: StdinFrames,
    input: mpsc::Receiver<Vec<u8>>,
    output: mpsc::Sender<Vec<u8>>,
    written: oneshot::Receiver<()>,
    link: Option<DaemonSocket>,
    connecting: Option<Connecting<'a>>,
    up_since: Instant,
    away_since: Option<Instant>,
    /// Set with the reason once the relay has given up.
    dead: Option<String>,
    /// Set once the client has left.
    closing: Option<RelayShutdown>,
    /// True if the client does not read any more.
    stdout_closed: bool,
    close_sessions: bool,
    /// True if something was received since the last ping.
    received_since_ping: bool,
}

/// The progress of closing.
struct RelayShutdown {
    until: Instant,
    /// True if the close was sent to the daemon, whose close is awaited.
    close_sent: bool,
}

enum RelayEvent {
    Read(Option<Vec<u8>>),
    /// True if there is room on stdout, false if it is closed.
    Writable(bool),
    /// The same for the connection to the daemon.
    Sendable(bool),
    Received(Option<tungstenite::Result<Message>>),
    Connected(anyhow::Result<DaemonSocket>),
    Pulse,
    Signal,
    DeadlineReached,
}

impl<'a> Relay<'a> {
    /// Returns the relay with its first connection.
    pub(super) fn new(connector: &'a DaemonConnector, link: DaemonSocket, close_sessions: bool) -> Self {
        let (output, written) = stdio::write();
        let mut requests = PendingRelayRequests::new();
        requests.connected();
        Self {
            connector,
            requests,
            inbox: StdinFrames::default(),
            input: stdio::read(),
            output,
            written,
            link: Some(link),
            connecting: None,
            up_since: Instant::now(),
            away_since: None,
            dead: None,
            closing: None,
            stdout_closed: false,
            close_sessions,
            received_since_ping: true,
        }
    }

    /// Runs until the client has left and everything is delivered.
    pub(super) async fn run(mut self) -> anyhow::Result<()> {
        let (mut interrupt, mut terminate) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let mut pulse = interval_at(Instant::now() + PULSE, PULSE);
        pulse.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            while self.requests.has_room_for_client() {
                let Some(frame) = self.inbox.next() else { break };
                self.requests.frame(frame);
            }
            while self.stdout_closed && self.requests.next_for_client().is_some() {}
            let all_read = self.inbox.ended && self.requests.has_room_for_client();
            if all_read && self.closing.is_none() {
                self.close();
            }
            let parts = self.is_ready_to_close();
            if parts && self.link.is_none() {
                break;
            }
            let happened = {
                let Self {
                    requests,
                    inbox,
                    input,
                    output,
                    written,
                    link,
                    connecting,
                    closing,
                    stdout_closed,
                    ..
                } = &mut self;
                let (sender, reader) = match link {
                    Some(link) => (link.sender.as_ref(), Some(&mut link.reader)),
                    None => (None, None),
                };
                let reading = requests.has_room_for_client() && !inbox.ended && closing.is_none();
                tokio::select! {
                    chunk = input.recv(), if reading => RelayEvent::Read(chunk),
                    room = output.reserve(), if requests.has_for_client() => RelayEvent::Writable(room.is_ok()),
                    _ = written, if !*stdout_closed => RelayEvent::Writable(false),
                    room = room(sender), if parts || requests.has_for_daemon() => RelayEvent::Sendable(room),
                    received = next(reader), if requests.has_room_for_daemon() => RelayEvent::Received(received),
                    link = connected(connecting) => RelayEvent::Connected(link),
                    _ = pulse.tick() => RelayEvent::Pulse,
                    _ = interrupt.recv() => RelayEvent::Signal,
                    _ = terminate.recv() => RelayEvent::Signal,
                    () = reached(closing.as_ref()) => RelayEvent::DeadlineReached,
                }
            };
            if matches!(happened, RelayEvent::DeadlineReached) {
                break;
            }
            self.handle(happened);
        }
        self.leave().await
    }

    fn handle(&mut self, happened: RelayEvent) {
        match happened {
            RelayEvent::Read(chunk) => self.inbox.feed(chunk),
            RelayEvent::Writable(true) => {
                if let Some(text) = self.requests.next_for_client() {
                    self.output.try_send(self.inbox.wrap(&text)).ok(); // there was room, and only we send
                }
            }
            RelayEvent::Sendable(true) => {
                let message =
                    self.requests.next_for_daemon().map_or_else(|| self.close_message(), Message::text);
                if let Some(sender) = self.link.as_ref().and_then(|link| link.sender.as_ref()) {
                    sender.try_send(message).ok(); // as above
                }
            }
            RelayEvent::Sendable(false) => {
                if let Some(link) = &mut self.link {
                    link.sender = None; // the reader notices the end
                }
            }
            // stdout is closed: the client has left.
            RelayEvent::Writable(false) => {
                self.stdout_closed = true;
                self.close();
            }
            RelayEvent::Received(Some(Ok(message))) => self.handle_daemon_message(message),
            RelayEvent::Received(Some(Err(_)) | None) => self.connection_lost(),
            RelayEvent::Connected(Ok(link)) => {
                output::print_note("reconnected to the daemon");
                (self.link, self.connecting) = (Some(link), None);
                (self.up_since, self.received_since_ping) = (Instant::now(), true);
                self.requests.connected();
            }
            RelayEvent::Connected(Err(error)) => {
                let away = daemon_socket::max_absence().as_secs();
                let why = format!("the daemon went away, and did not come back within {away} s: {error:#}");
                output::print_note(&why);
                self.connecting = None;
                self.requests.give_up(&why);
                self.dead = Some(why);
            }
            RelayEvent::Pulse => self.pulse(),
            RelayEvent::Signal => self.close(),
            RelayEvent::DeadlineReached => {}
        }
    }

    fn handle_daemon_message(&mut self, message: Message) {
        self.received_since_ping = true;
        if let Message::Text(text) = message
            && let Err(bad) = self.requests.daemon(text.as_str())
        {
            output::print_note(&format!("the daemon sent an invalid message: {bad}"));
        }
    }

    fn connection_lost(&mut self) {
        self.link = None;
        if self.closing.as_ref().is_some_and(|closing| closing.close_sent) {
            return;
        }
        let lasted = self.up_since.elapsed() >= MIN_STABLE;
        self.requests.lost(lasted);
        output::print_note("the daemon has closed the connection; reconnecting");
        // A daemon that closes the connection on our first message must not extend the time limit with every attempt.
        let since = self.away_since.filter(|_| !lasted).unwrap_or_else(Instant::now);
        self.away_since = Some(since);
        self.connecting = Some(Box::pin(self.connector.reopen(since)));
    }

    /// Sends pings to a remote daemon only: a local socket does not go silent.
    fn pulse(&mut self) {
        let Some(link) = self.link.as_ref().filter(|_| self.connector.is_elsewhere()) else { return };
        if !self.requests.has_room_for_daemon() {
            return; // we did not read meanwhile, so silence proves nothing
        }
        if !std::mem::take(&mut self.received_since_ping) {
            return self.connection_lost();
        }
        if let Some(sender) = &link.sender {
            sender.try_send(Message::Ping(Vec::new().into())).ok(); // a full queue brings answers anyway
        }
    }

    /// Handles the client's departure: its earlier requests are still carried out.
    fn close(&mut self) {
        if self.closing.is_some() {
            return;
        }
        let patience = if self.close_sessions { CLOSE_GRACE } else { ANSWER_GRACE };
        self.closing = Some(RelayShutdown { until: Instant::now() + patience, close_sent: false });
        self.input.close();
        while let Ok(chunk) = self.input.try_recv() {
            self.inbox.feed(Some(chunk)); // the bytes were read and must be handled
        }
        if self.close_sessions {
            self.requests.close_sessions();
        }
    }

    /// Returns true if the client has left and only the close is missing.
    fn is_ready_to_close(&self) -> bool {
        self.closing.as_ref().is_some_and(|closing| !closing.close_sent || self.link.is_none())
            && self.requests.is_settled()
    }

    fn close_message(&mut self) -> Message {
        self.closing = Some(RelayShutdown { until: Instant::now() + CLOSE_TIMEOUT, close_sent: true });
        Message::Close(Some(CloseFrame { code: CloseCode::Normal, reason: "".into() }))
    }

    /// Writes the rest to the client, if it reads.
    async fn leave(self) -> anyhow::Result<()> {
        let Self { mut requests, inbox, output, written, stdout_closed, dead, link, .. } = self;
        let undelivered = link.is_none() && !requests.is_settled();
        let rest = async {
            while let Some(text) = requests.next_for_client() {
                if output.send(inbox.wrap(&text)).await.is_err() {
                    return;
                }
            }
            drop(output);
            written.await.ok(); // stdout is closed
        };
        if !stdout_closed {
            timeout(CLOSE_TIMEOUT, rest).await.ok(); // a client that does not read is not waited for
        }
        match dead {
            Some(why) => Err(CliFailure::failed(why).into()),
            None if undelivered => {
                Err(CliFailure::failed("the daemon is away, and not every message was delivered").into())
            }
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

async fn next(reader: Option<&mut DaemonSocketReader>) -> Option<tungstenite::Result<Message>> {
    match reader {
        Some(reader) => reader.next().await,
        None => pending().await,
    }
}

async fn connected(connecting: &mut Option<Connecting<'_>>) -> anyhow::Result<DaemonSocket> {
    match connecting {
        Some(connecting) => connecting.await,
        None => pending().await,
    }
}

async fn reached(closing: Option<&RelayShutdown>) {
    match closing {
        Some(closing) => sleep_until(closing.until).await,
        None => pending().await,
    }
}

//! The live event stream. It survives restarts of the daemon: it reconnects and resumes after the last event.
//!
//! ```text
//!   Up ──closed, silent──► Down ──wait, connect──► Up
//!                           ├──refused by the daemon──► error
//!                           └──away for too long──────► error
//! ```

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::Request;
use hyper::header::ACCEPT;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::client::{DaemonClient, StreamedAnswer};
use super::failure::{CliFailure, DaemonRefusal};
use super::url::url;
use super::{lost_daemon, output};
use intercom_types::ReceivedEvent;
use intercom_wire::sse;

/// The maximum silence. The daemon sends a comment every 15 s; after three missed ones the connection is checked.
const SILENCE: Duration = Duration::from_secs(50);
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(3);
/// The longest absence of a daemon. One that is away for longer is not being restarted, so a person has to look.
const LONGEST_ABSENCE: Duration = Duration::from_mins(5);

#[derive(Debug)]
pub(super) enum DaemonStreamItem {
    Event(Box<ReceivedEvent>),
    /// The daemon is away; the stream keeps trying.
    Lost,
    /// The daemon is back, and no event was missed.
    Back,
}

#[derive(Debug)]
pub(super) struct DaemonEventStream {
    client: DaemonClient,
    session: Option<String>,
    /// The position after which the stream resumes.
    last: u64,
    /// The position at the beginning; events up to it are old.
    start: u64,
    /// The last event of each session. A viewer receives the events of one session in order, but those of several
    /// sessions as soon as each is checked for secrets.
    seen: HashMap<String, u64>,
    state: DaemonStreamState,
    /// The number of connections in a row without an event.
    failures: u32,
    /// The moment when the daemon went away.
    away_since: Option<Instant>,
    reported_lost: bool,
    parser: sse::SseParser,
    ready: VecDeque<sse::SseMessage>,
}

#[derive(Debug)]
enum DaemonStreamState {
    Up { reply: StreamedAnswer, last_received: Instant },
    Down { until: Instant },
}

impl DaemonEventStream {
    /// Opens the stream after `after`, of one session or of all. Fails at once if there is no daemon.
    pub(super) async fn open(
        client: &DaemonClient,
        session: Option<&str>,
        after: u64,
    ) -> anyhow::Result<Self> {
        let mut stream = Self {
            client: client.clone(),
            session: session.map(str::to_owned),
            last: after,
            start: after,
            seen: HashMap::new(),
            state: DaemonStreamState::Down { until: Instant::now() },
            failures: 0,
            away_since: None,
            reported_lost: false,
            parser: sse::SseParser::default(),
            ready: VecDeque::new(),
        };
        stream.state =
            DaemonStreamState::Up { reply: stream.connect().await?, last_received: Instant::now() };
        Ok(stream)
    }

    /// Returns the next item. Cancel-safe: dropping it while it waits loses nothing.
    pub(super) async fn next(&mut self) -> anyhow::Result<DaemonStreamItem> {
        loop {
            while let Some(message) = self.ready.pop_front() {
                let event = ReceivedEvent::parse(&message.data).map_err(|error| {
                    CliFailure::failed(format!("the daemon sent an invalid event: {error}"))
                })?;
                let seen = self.seen.entry(event.session.clone()).or_insert(self.start);
                if event.seq > *seen {
                    *seen = event.seq;
                    self.last = message.id.and_then(|id| id.parse().ok()).unwrap_or(event.seq);
                    return Ok(DaemonStreamItem::Event(Box::new(event)));
                }
            }
            match &mut self.state {
                DaemonStreamState::Up { reply, last_received: heard } => {
                    match timeout_at(*heard + SILENCE, reply.body.frame()).await {
                        Ok(Some(Ok(frame))) => {
                            *heard = Instant::now();
                            self.failures = 0;
                            if let Ok(bytes) = frame.into_data() {
                                let messages = self.parser.feed(&bytes);
                                self.ready.extend(messages.map_err(|sse::SseLineTooLong| {
                                    CliFailure::failed("the daemon sent an event that is too long")
                                })?);
                            }
                        }
                        _ => self.disconnect(),
                    }
                }
                DaemonStreamState::Down { until } => {
                    sleep_until(*until).await;
                    if let Some(item) = self.reconnect().await? {
                        return Ok(item);
                    }
                }
            }
        }
    }

    fn disconnect(&mut self) {
        let wait = match self.failures {
            0 => Duration::ZERO,
            n => LONGEST_WAIT.min(FIRST_WAIT * 2_u32.pow(n.min(10) - 1)),
        };
        self.failures += 1;
        self.away_since.get_or_insert_with(Instant::now);
        self.parser = sse::SseParser::default();
        self.state = DaemonStreamState::Down { until: Instant::now() + wait };
    }

    /// Reconnects. The first failure may be the moment between two daemons, so it is reported only if the retry fails
    /// too.
    async fn reconnect(&mut self) -> anyhow::Result<Option<DaemonStreamItem>> {
        match self.connect().await {
            Ok(reply) => {
                self.state = DaemonStreamState::Up { reply, last_received: Instant::now() };
                self.away_since = None;
                Ok(std::mem::take(&mut self.reported_lost).then_some(DaemonStreamItem::Back))
            }
            Err(error)
                if error.downcast_ref::<DaemonRefusal>().is_some_and(|refusal| refusal.status < 500) =>
            {
                Err(error)
            }
            Err(_) => {
                self.disconnect();
                if self.away_since.is_some_and(|since| since.elapsed() >= LONGEST_ABSENCE) {
                    return Err(self.absence_error());
                }
                Ok((!std::mem::replace(&mut self.reported_lost, true)).then_some(DaemonStreamItem::Lost))
            }
        }
    }

    fn absence_error(&self) -> anyhow::Error {
        let minutes = LONGEST_ABSENCE.as_secs() / 60;
        CliFailure::failed(format!("the daemon has not come back within {minutes} minutes"))
            .hint(format!("{}, then run this command again", lost_daemon::restart_hint(&self.client)))
            .into()
    }

    /// Prints that the daemon is away or back, on stderr: stdout continues as if nothing had happened.
    pub(super) fn report(&self, item: &DaemonStreamItem) {
        match item {
            DaemonStreamItem::Lost => {
                let minutes = LONGEST_ABSENCE.as_secs() / 60;
                let back = lost_daemon::restart_hint(&self.client);
                output::advise(&format!(
                    "the daemon is away; waiting {minutes} minutes for it at most; {back}"
                ));
            }
            DaemonStreamItem::Back => output::print_note("the daemon is back"),
            DaemonStreamItem::Event(_) => {}
        }
    }

    async fn connect(&self) -> anyhow::Result<StreamedAnswer> {
        let after = self.last.to_string();
        let mut query = vec![("after", after.as_str())];
        query.extend(self.session.as_deref().map(|session| ("session", session)));
        let request = Request::builder()
            .uri(url(&["events"], &query))
            .header(ACCEPT, "text/event-stream")
            .header("last-event-id", &after);
        let reply = self.client.send(request, Bytes::new()).await?;
        if reply.is_success() {
            return Ok(reply);
        }
        let answer = reply.read().await?;
        Err(DaemonRefusal::new(answer.status, answer.body).into())
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::UnixListener;
    use tokio::task::JoinSet;

    use super::super::transport::Transport;
    use super::*;

    fn event(seq: u64) -> String {
        let data = format!(r#"{{"seq":{seq},"session":"ses_1","at":"","kind":"status","data":{{}}}}"#);
        format!("id: {seq}\ndata: {data}\n\n")
    }

    fn client(socket: std::path::PathBuf) -> DaemonClient {
        DaemonClient::new(Transport::Unix(socket), "intercom")
    }

    async fn next_seq(stream: &mut DaemonEventStream) -> u64 {
        match stream.next().await.unwrap() {
            DaemonStreamItem::Event(event) => event.seq,
            other => panic!("expected an event, got {other:?}"),
        }
    }

    #[tokio::test]
    async fn a_broken_stream_goes_on_after_the_last_event() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut asked = Vec::new();
            for body in
                [event(5) + &event(6) + "id: 7\ndata: {\"se", event(6) + ": still here\n\n" + &event(7)]
            {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = vec![0; 65536];
                let length = stream.read(&mut request).await.unwrap();
                asked.push(String::from_utf8(request[..length].to_vec()).unwrap());
                let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: text/event-stream\r\n\r\n";
                stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
            }
            assert!(asked[0].starts_with("GET /api/v1/events?after=4&session=ses_1 HTTP"), "{}", asked[0]);
            assert!(asked[1].contains("last-event-id: 6\r\n"), "{}", asked[1]);
        });
        let mut stream = DaemonEventStream::open(&client(socket.clone()), Some("ses_1"), 4).await.unwrap();
        assert_eq!(next_seq(&mut stream).await, 5);
        assert_eq!(next_seq(&mut stream).await, 6);
        assert_eq!(next_seq(&mut stream).await, 7);
        tasks.join_next().await.unwrap().unwrap();
        assert!(
            matches!(stream.next().await.unwrap(), DaemonStreamItem::Lost),
            "the fake daemon is gone now"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_daemon_that_stays_away_ends_the_wait_with_the_way_back() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            assert_ne!(stream.read(&mut [0; 4096]).await.unwrap(), 0);
            let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: text/event-stream\r\n\r\n";
            stream.write_all(head.as_bytes()).await.unwrap();
        });
        let mut stream = DaemonEventStream::open(&client(socket), None, 0).await.unwrap();
        let start = Instant::now();
        assert!(matches!(stream.next().await.unwrap(), DaemonStreamItem::Lost));
        let error = stream.next().await.unwrap_err();
        assert_eq!(error.to_string(), "the daemon has not come back within 5 minutes");
        let hint = super::super::failure::as_json(&error);
        assert!(hint.contains("get the daemon back with `intercom daemon restart`"), "{hint}");
        let waited = start.elapsed();
        assert!(waited >= LONGEST_ABSENCE && waited < LONGEST_ABSENCE + 2 * LONGEST_WAIT, "{waited:?}");
    }

    #[tokio::test]
    async fn without_a_daemon_it_fails_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let error = DaemonEventStream::open(&client(dir.path().join("none")), None, 0).await.unwrap_err();
        assert!(error.to_string().starts_with("no daemon is running"));
    }
}

//! The connection of one client over HTTP: posted messages go to the inlet, outgoing messages wait for the client's
//! streams.
//!
//! A task moves messages from the outlet to the queues of the streams. `progress` connects it with the readers: it is
//! notified whenever a reader took a message, opened a stream or closed one, so a full queue is waited for without
//! polling.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::super::{ClientInlet, ClientMessage, ClientOutlet, ConnectionClosed};
use super::stream_queues::{
    StreamKey, StreamMessage, StreamQueues, StreamRefusal, history_before, stream_of,
};
use crate::acp::metrics::ClientMetrics;
use crate::idle::{UseCounter, UseGuard};
use intercom_daemon::ops::Caller;
use intercom_types::Role;

/// The time limit for the first use of a new connection. The client may have disconnected before it got the id.
const FIRST_USE_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest wait for a session's stream before its messages go to the connection's stream.
const STREAM_TIMEOUT: Duration = Duration::from_secs(2);
/// The most bodies that a connection receives at the same time; more wait.
const MAX_BODIES: usize = 8;
const KEEP_ALIVE: Duration = Duration::from_secs(15);

#[derive(Debug)]
pub(super) struct HttpConnection {
    owner: (String, Role),
    /// True for a client that has one stream for everything.
    is_single: bool,
    metrics: Arc<ClientMetrics>,
    /// `None` after the end of the connection; locked only to clone it.
    inlet: Mutex<Option<Arc<ClientInlet>>>,
    /// Locked only for one lookup or change, never across an await.
    state: Mutex<HttpStreamState>,
    /// Notified when a stream took a message, opened or closed.
    progress: Notify,
    uses: UseCounter,
    pub(super) bodies: Semaphore,
    closed: CancellationToken,
}

#[derive(Debug, Default)]
struct HttpStreamState {
    queues: StreamQueues,
    /// The notifier of the newest stream of each queue.
    bells: HashMap<StreamKey, Arc<Notify>>,
    /// True once the outlet has ended: streams end when their queue is empty.
    ended: bool,
}

impl HttpStreamState {
    fn ring(&self, key: &StreamKey) {
        if let Some(bell) = self.bells.get(key) {
            bell.notify_one();
        }
    }
}

impl HttpConnection {
    pub(super) fn new(
        owner: &Caller,
        inlet: ClientInlet,
        metrics: Arc<ClientMetrics>,
        is_single: bool,
    ) -> Arc<Self> {
        Arc::new(Self {
            owner: (owner.name.clone(), owner.role),
            is_single,
            metrics,
            inlet: Mutex::new(Some(Arc::new(inlet))),
            state: Mutex::default(),
            progress: Notify::new(),
            uses: UseCounter::new(),
            bodies: Semaphore::new(MAX_BODIES),
            closed: CancellationToken::new(),
        })
    }

    /// Returns true for the owner of the connection. A connection acts with the role that opened it, so a
    /// caller with another role may not use it.
    pub(super) fn is_of(&self, caller: &Caller) -> bool {
        self.owner.0 == caller.name && self.owner.1 == caller.role
    }

    fn state(&self) -> MutexGuard<'_, HttpStreamState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts as a use for as long as it is held.
    pub(super) fn used(&self) -> UseGuard {
        self.uses.begin()
    }

    pub(super) async fn put(&self, text: String) -> Result<(), ConnectionClosed> {
        let inlet = self.inlet.lock().unwrap_or_else(PoisonError::into_inner).clone();
        inlet.ok_or(ConnectionClosed)?.put(text).await?;
        self.metrics.count_received();
        Ok(())
    }

    pub(super) fn close(&self) {
        self.closed.cancel();
    }

    /// Runs until the outlet ends, the client closes the connection, or the connection is idle for too long.
    pub(super) async fn run(&self, mut outlet: ClientOutlet, idle: Duration) {
        let pumping = async {
            while let Some(message) = outlet.next().await {
                self.enqueue(message).await;
            }
        };
        let is_over = tokio::select! {
            () = pumping => false, // queued messages are still sent
            () = self.uses.idle(FIRST_USE_TIMEOUT.min(idle), idle) => true,
            () = self.closed.cancelled() => true,
        };
        // Disconnects the client: its feeds end, and a later POST gets an error instead of a lost message.
        drop(self.inlet.lock().unwrap_or_else(PoisonError::into_inner).take());
        let mut state = self.state();
        state.ended = true;
        if is_over {
            state.queues.clear();
        }
        // Every reader wakes, sends what is left in its queue, and ends its response.
        for bell in state.bells.values() {
            bell.notify_one();
        }
    }

    /// Puts a message into the queue of its stream. Waits while the queues are full, which in turn stops the client's
    /// feeds.
    pub(super) async fn enqueue(&self, message: ClientMessage) {
        let (key, after) =
            if self.is_single { (None, None) } else { (stream_of(&message), history_before(&message)) };
        if after.is_some() {
            self.wait_until_taken(&after).await;
        }
        let text: Arc<str> = ascii(message.text).into();
        loop {
            let unopened = {
                let mut state = self.state();
                if !state.queues.is_full() {
                    let key = state.queues.put(key, text);
                    return state.ring(&key);
                }
                state.queues.fullest_unopened()
            };
            // A session without a stream may never get one: its messages go to the connection's stream after a while.
            // If every queue has a stream, only a slow reader is in the way, and it is waited for.
            if unopened.is_some() {
                self.wait_until_taken(&unopened).await;
            } else {
                self.progress.notified().await;
            }
        }
    }

    /// Waits until the messages of a session are taken by its stream. Without a stream they go to the connection's
    /// stream after [`STREAM_TIMEOUT`]; a stream that takes nothing for that long is no longer waited for.
    async fn wait_until_taken(&self, key: &StreamKey) {
        let (mut deadline, mut fewest) = (Instant::now() + STREAM_TIMEOUT, usize::MAX);
        let mut moved_first = false;
        loop {
            {
                let mut state = self.state();
                let is_open = state.queues.is_open(key);
                // Some clients open the stream of a session only when they receive its first message: send them that
                // one.
                if !is_open && !std::mem::replace(&mut moved_first, true) {
                    state.queues.move_first_to_connection(key);
                    state.ring(&None);
                }
                let waiting = state.queues.waiting_for(key);
                if waiting == 0 {
                    return;
                }
                // Slow progress is progress: the deadline starts again.
                if waiting < fewest {
                    (deadline, fewest) = (Instant::now() + STREAM_TIMEOUT, waiting);
                }
                if Instant::now() >= deadline {
                    if !is_open {
                        state.queues.move_all_to_connection(key);
                        state.ring(&None);
                    }
                    return;
                }
            }
            tokio::time::timeout_at(deadline, self.progress.notified()).await.ok(); // the loop checks the deadline
        }
    }

    /// Opens a stream of one queue, in place of an older one. A client that reconnects may know that a TCP connection
    /// is broken before we do; its old stream must not keep it out.
    pub(super) fn listen(
        self: &Arc<Self>,
        caller: Caller,
        key: StreamKey,
        last: Option<u64>,
    ) -> Result<Response, StreamRefusal> {
        let bell = Arc::new(Notify::new());
        let (stream, replay) = {
            let mut state = self.state();
            let opened = state.queues.open(&key, last)?;
            if let Some(old) = state.bells.insert(key.clone(), Arc::clone(&bell)) {
                old.notify_one(); // it finds itself replaced, and ends
            }
            opened
        };
        // A full connection may be waiting for exactly this stream.
        self.progress.notify_one();
        let used = self.used();
        let reader = StreamReader { connection: Arc::clone(self), caller, key, stream, bell, replay, used };
        Ok(sse(stream::unfold(reader, |mut reader| async move {
            let StreamMessage { id, text } = reader.next().await?;
            Some((Ok(Event::default().id(id.to_string()).data(text)), reader))
        })))
    }
}

/// The reader of one stream.
///
/// The state of a response body: dropped when the client disconnects, which closes the stream.
struct StreamReader {
    connection: Arc<HttpConnection>,
    caller: Caller,
    key: StreamKey,
    stream: u64,
    bell: Arc<Notify>,
    replay: VecDeque<StreamMessage>,
    #[expect(dead_code, reason = "dropping it is its use")]
    used: UseGuard,
}

impl StreamReader {
    async fn next(&mut self) -> Option<StreamMessage> {
        loop {
            if self.caller.is_out() {
                return None;
            }
            if let Some(sent) = self.replay.pop_front() {
                return Some(sent);
            }
            {
                // Taken and recorded for replay under one lock: a stream that replaces this one gets it by its id.
                let mut state = self.connection.state();
                let taken = state.queues.take(&self.key, self.stream).ok()?;
                if taken.is_some() || state.ended {
                    drop(state);
                    if taken.is_some() {
                        self.connection.metrics.count_sent();
                    }
                    self.connection.progress.notify_one();
                    return taken;
                }
            }
            tokio::select! {
                () = self.bell.notified() => {}
                () = self.caller.access_ended() => return None,
            }
        }
    }
}

impl Drop for StreamReader {
    fn drop(&mut self) {
        let mut state = self.connection.state();
        state.queues.close(&self.key, self.stream);
        if state.bells.get(&self.key).is_some_and(|bell| Arc::ptr_eq(bell, &self.bell)) {
            state.bells.remove(&self.key);
        }
        drop(state);
        self.connection.progress.notify_one();
    }
}

pub(super) fn sse(
    events: impl stream::Stream<Item = Result<Event, Infallible>> + Send + 'static,
) -> Response {
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

/// Returns the same JSON on one line and in ASCII. Some clients decode each chunk that arrives on its own, and fail if
/// a chunk ends inside of a character.
pub(super) fn ascii(json: String) -> String {
    if json.bytes().all(|byte| byte.is_ascii() && byte >= b' ') {
        return json;
    }
    let mut text = String::with_capacity(json.len() + json.len() / 2);
    for char in json.chars() {
        match char {
            // JSON escapes control characters in strings, so this one is whitespace between two values.
            char if char < ' ' => text.push(' '),
            char if char.is_ascii() => text.push(char),
            char => {
                for unit in char.encode_utf16(&mut [0; 2]) {
                    write!(text, "\\u{unit:04x}").expect("a String takes any text");
                }
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::super::queue::{self, ClientOutbox, MessageMeta};
    use super::*;
    use axum::body::BodyDataStream;
    use futures_util::StreamExt;
    use intercom_types::{RequestId, SessionId};
    use proptest::prelude::*;
    use tokio::sync::mpsc;
    use tokio::task::JoinHandle;

    const IDLE: Duration = Duration::from_mins(5);

    struct ConnectionFixture {
        connection: Arc<HttpConnection>,
        outbox: ClientOutbox,
        inbox: mpsc::Receiver<String>,
        running: JoinHandle<()>,
    }

    fn ana() -> Caller {
        Caller::new("ana", Role::Operator, "test", false)
    }

    fn here() -> ConnectionFixture {
        let (inlet, inbox) = queue::inlet();
        let (outbox, outlet) = queue::outlet();
        let connection = HttpConnection::new(&ana(), inlet, Arc::default(), false);
        let ours = Arc::clone(&connection);
        let running = tokio::spawn(async move { ours.run(outlet, IDLE).await });
        ConnectionFixture { connection, outbox, inbox, running }
    }

    impl ConnectionFixture {
        fn listen(&self, session: Option<SessionId>) -> Stream {
            let key = session.map(|session| session.to_string().into());
            let response = self.connection.listen(ana(), key, None).unwrap();
            Stream(response.into_body().into_data_stream())
        }

        async fn tell(&self, text: &str, session: Option<SessionId>, answers: Option<&str>) {
            let answers = answers.map(|method| (RequestId::number(1), method.to_owned()));
            self.outbox.put(text.to_owned(), MessageMeta { session, answers, seq: None }).await.unwrap();
        }
    }

    struct Stream(BodyDataStream);

    impl Stream {
        /// The next message, or nothing once it has ended.
        async fn next(&mut self) -> Option<String> {
            loop {
                let bytes = self.0.next().await?.unwrap();
                let text = std::str::from_utf8(&bytes).unwrap();
                if let Some(data) = text.lines().find_map(|line| line.strip_prefix("data: ")) {
                    return Some(data.to_owned());
                }
            }
        }

        async fn has(&mut self, expected: &[&str]) {
            for text in expected {
                assert_eq!(self.next().await.as_deref(), Some(*text));
            }
        }

        async fn is_silent(&mut self) -> bool {
            let a_while = Duration::from_millis(10);
            tokio::time::timeout(a_while, self.next()).await.is_err()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_session_has_its_own_stream_and_what_comes_before_it_waits() {
        let (here, one, other) = (here(), SessionId::mint(), SessionId::mint());
        let mut connection = here.listen(None);
        here.tell("new", Some(one), Some("session/new")).await;
        here.tell("list", None, Some("session/list")).await;
        here.tell("update of one", Some(one), None).await;
        here.tell("update of other", Some(other), None).await;
        here.tell("answer of one", Some(one), Some("session/prompt")).await;
        connection.has(&["new", "list"]).await;
        assert!(connection.is_silent().await);
        let (mut one, mut other) = (here.listen(Some(one)), here.listen(Some(other)));
        one.has(&["update of one", "answer of one"]).await;
        other.has(&["update of other"]).await;
        assert!(one.is_silent().await && other.is_silent().await && connection.is_silent().await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_is_loaded_when_its_history_is_told() {
        let (here, session) = (here(), SessionId::mint());
        let mut connection = here.listen(None);
        let mut stream = here.listen(Some(session));
        for text in ["1", "2"] {
            here.tell(text, Some(session), None).await;
        }
        here.tell("loaded", Some(session), Some("session/load")).await;
        assert!(connection.is_silent().await);
        stream.has(&["1", "2"]).await;
        connection.has(&["loaded"]).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_stream_is_given_all_of_the_history_before_the_session_is_loaded() {
        let (here, session) = (here(), SessionId::mint());
        let mut connection = here.listen(None);
        let mut stream = here.listen(Some(session));
        for n in 0..10 {
            here.tell(&n.to_string(), Some(session), None).await;
        }
        here.tell("loaded", Some(session), Some("session/load")).await;
        for n in 0..10 {
            tokio::time::sleep(STREAM_TIMEOUT * 3 / 4).await;
            assert!(connection.is_silent().await);
            stream.has(&[&n.to_string()]).await;
        }
        connection.has(&["loaded"]).await;
        // One that takes nothing is not waited for.
        here.tell("more", Some(session), None).await;
        here.tell("again", Some(session), Some("session/load")).await;
        connection.has(&["again"]).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_waits_to_hear_of_a_session_hears_of_it() {
        let (here, session) = (here(), SessionId::mint());
        let mut connection = here.listen(None);
        for text in ["1", "2", "3"] {
            here.tell(text, Some(session), None).await;
        }
        here.tell("loaded", Some(session), Some("session/load")).await;
        connection.has(&["1"]).await;
        assert!(connection.is_silent().await);
        here.listen(Some(session)).has(&["2", "3"]).await;
        connection.has(&["loaded"]).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_with_one_stream_gets_everything_there_and_in_order() {
        let (here, session) = (here(), SessionId::mint());
        let mut connection = here.listen(None);
        let telling = async {
            for n in 0..5000 {
                here.tell(&n.to_string(), Some(session), None).await;
            }
        };
        let hearing = async {
            for n in 0..5000 {
                connection.has(&[&n.to_string()]).await;
            }
        };
        tokio::join!(telling, hearing);
    }

    #[tokio::test(start_paused = true)]
    async fn who_does_not_read_is_waited_for_and_misses_nothing() {
        let (here, session) = (here(), SessionId::mint());
        let mut stream = here.listen(Some(session));
        let mut sent = 0;
        while tokio::time::timeout(STREAM_TIMEOUT * 2, here.tell(&sent.to_string(), Some(session), None))
            .await
            .is_ok()
        {
            sent += 1;
        }
        assert!((1000..2000).contains(&sent), "{sent}");
        for n in 0..sent {
            stream.has(&[&n.to_string()]).await;
        }
        here.tell("more", Some(session), None).await;
        stream.has(&["more"]).await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_newest_stream_wins() {
        let here = here();
        let mut old = here.listen(None);
        here.tell("1", None, None).await;
        old.has(&["1"]).await;
        let mut new = here.listen(None);
        assert_eq!(old.next().await, None);
        drop(old);
        here.tell("2", None, None).await;
        new.has(&["2"]).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_nobody_uses_is_let_go() {
        let mut unused = here();
        let start = Instant::now();
        unused.running.await.unwrap();
        assert_eq!(start.elapsed(), FIRST_USE_TIMEOUT);
        assert_eq!(unused.inbox.recv().await, None, "the connection is told");
        assert_eq!(unused.connection.put("{}".to_owned()).await, Err(ConnectionClosed));

        let used = here();
        let stream = used.listen(None);
        tokio::time::sleep(IDLE * 10).await;
        assert!(!used.running.is_finished());
        drop(stream);
        tokio::time::sleep(IDLE / 2).await;
        drop(used.connection.used());
        let start = Instant::now();
        used.running.await.unwrap();
        assert_eq!(start.elapsed(), IDLE);
    }

    #[tokio::test(start_paused = true)]
    async fn when_it_is_over_the_streams_end() {
        let closed = here();
        let mut stream = closed.listen(None);
        closed.connection.close();
        assert_eq!(stream.next().await, None);

        let shown_out = here();
        let mut stream = shown_out.listen(None);
        shown_out.tell("last", None, None).await;
        drop(shown_out.outbox);
        shown_out.running.await.unwrap();
        stream.has(&["last"]).await;
        assert_eq!(stream.next().await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_is_kept_alive() {
        let here = here();
        let mut stream = here.listen(None);
        let start = Instant::now();
        let comment = stream.0.next().await.unwrap().unwrap();
        assert_eq!(start.elapsed(), KEEP_ALIVE);
        assert!(comment.starts_with(b":"), "{comment:?}");
    }

    proptest! {
        #[test]
        fn in_ascii_it_is_the_same_json_on_one_line(text in "[\\u{0}-\\u{82}é€😀]*", number in any::<u32>()) {
            let value = serde_json::json!({ text.clone(): [text, number] });
            let json = format!("\n{}\r", serde_json::to_string_pretty(&value).unwrap());
            let written = ascii(json);
            prop_assert!(written.is_ascii() && !written.contains(['\n', '\r']));
            prop_assert_eq!(serde_json::from_str::<serde_json::Value>(&written).unwrap(), value);
        }
    }
}

//! One client over HTTP: what it posts goes in, and what it is told waits for its streams.

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
use super::stream_queues::{StreamKey, StreamMessage, StreamQueues, StreamRefusal, history_before, lane_of};
use crate::acp::metrics::ClientMetrics;
use crate::idle::{UseCounter, UseGuard};
use intercom_daemon::ops::Caller;
use intercom_types::Role;

/// The time limit for the first use of a new connection: its client may be gone.
const FIRST: Duration = Duration::from_secs(30);
/// The longest wait for a session's stream before its messages go to the connection's stream.
const PATIENCE: Duration = Duration::from_secs(2);
/// Messages that are being sent to us at the same time. More wait.
const BODIES: usize = 8;
const KEEP_ALIVE: Duration = Duration::from_secs(15);

#[derive(Debug)]
pub(super) struct HttpConnection {
    owner: (String, Role),
    /// True for a client that has one stream for everything.
    is_single: bool,
    metrics: Arc<ClientMetrics>,
    inlet: Mutex<Option<Arc<ClientInlet>>>, // for a copy
    state: Mutex<HttpStreamState>,          // for a look or a change
    /// Something was taken, or a stream was opened.
    moved: Notify,
    uses: UseCounter,
    pub(super) bodies: Semaphore,
    closed: CancellationToken,
}

#[derive(Debug, Default)]
struct HttpStreamState {
    lanes: StreamQueues,
    /// The notifier of the newest stream of each lane.
    bells: HashMap<StreamKey, Arc<Notify>>,
    /// Nothing more comes.
    ended: bool,
}

impl HttpStreamState {
    fn ring(&self, lane: &StreamKey) {
        if let Some(bell) = self.bells.get(lane) {
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
            moved: Notify::new(),
            uses: UseCounter::new(),
            bodies: Semaphore::new(BODIES),
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

    /// Until the client is shown out, goes, or is not heard of for too long.
    pub(super) async fn run(&self, mut outlet: ClientOutlet, idle: Duration) {
        let pumping = async {
            while let Some(told) = outlet.next().await {
                self.enqueue(told).await;
            }
        };
        let is_over = tokio::select! {
            () = pumping => false, // what it was told before is still told
            () = self.uses.idle(FIRST.min(idle), idle) => true,
            () = self.closed.cancelled() => true,
        };
        drop(self.inlet.lock().unwrap_or_else(PoisonError::into_inner).take());
        let mut state = self.state();
        state.ended = true;
        if is_over {
            state.lanes.clear();
        }
        for bell in state.bells.values() {
            bell.notify_one();
        }
    }

    /// Puts a message where its stream takes it. Waits while too much waits there.
    pub(super) async fn enqueue(&self, told: ClientMessage) {
        let (lane, after) =
            if self.is_single { (None, None) } else { (lane_of(&told), history_before(&told)) };
        if after.is_some() {
            self.wait_until_taken(&after).await;
        }
        let text: Arc<str> = ascii(told.text).into();
        loop {
            let unopened = {
                let mut state = self.state();
                if !state.lanes.is_full() {
                    let lane = state.lanes.put(lane, text);
                    return state.ring(&lane);
                }
                state.lanes.fullest_unopened()
            };
            if unopened.is_some() {
                self.wait_until_taken(&unopened).await;
            } else {
                self.moved.notified().await;
            }
        }
    }

    /// Sees to it that what waits for a session is taken: by its own stream, or after a while by the connection's.
    async fn wait_until_taken(&self, lane: &StreamKey) {
        let (mut deadline, mut least) = (Instant::now() + PATIENCE, usize::MAX);
        let mut knocked = false;
        loop {
            {
                let mut state = self.state();
                let is_open = state.lanes.is_open(lane);
                if !is_open && !std::mem::replace(&mut knocked, true) {
                    state.lanes.move_first_to_connection(lane);
                    state.ring(&None);
                }
                let waiting = state.lanes.waiting_for(lane);
                if waiting == 0 {
                    return;
                }
                // Whoever takes it slowly takes it.
                if waiting < least {
                    (deadline, least) = (Instant::now() + PATIENCE, waiting);
                }
                if Instant::now() >= deadline {
                    if !is_open {
                        state.lanes.move_all_to_connection(lane);
                        state.ring(&None);
                    }
                    return;
                }
            }
            tokio::time::timeout_at(deadline, self.moved.notified()).await.ok(); // the next look decides
        }
    }

    /// A stream of one lane, in the place of an older one. A client that comes back may know that a connection is broken
    /// before we do, and must not be kept out by what is left of itself.
    pub(super) fn listen(
        self: &Arc<Self>,
        caller: Caller,
        lane: StreamKey,
        last: Option<u64>,
    ) -> Result<Response, StreamRefusal> {
        let bell = Arc::new(Notify::new());
        let (stream, again) = {
            let mut state = self.state();
            let opened = state.lanes.open(&lane, last)?;
            if let Some(old) = state.bells.insert(lane.clone(), Arc::clone(&bell)) {
                old.notify_one();
            }
            opened
        };
        self.moved.notify_one();
        let used = self.used();
        let reader = StreamReader { hub: Arc::clone(self), caller, lane, stream, bell, again, used };
        Ok(sse(stream::unfold(reader, |mut reader| async move {
            let StreamMessage { id, text } = reader.next().await?;
            Some((Ok(Event::default().id(id.to_string()).data(text)), reader))
        })))
    }
}

/// The reader of one stream.
struct StreamReader {
    hub: Arc<HttpConnection>,
    caller: Caller,
    lane: StreamKey,
    stream: u64,
    bell: Arc<Notify>,
    again: VecDeque<StreamMessage>,
    #[expect(dead_code, reason = "dropping it is its use")]
    used: UseGuard,
}

impl StreamReader {
    async fn next(&mut self) -> Option<StreamMessage> {
        loop {
            if self.caller.is_out() {
                return None;
            }
            if let Some(sent) = self.again.pop_front() {
                return Some(sent);
            }
            {
                let mut state = self.hub.state();
                let taken = state.lanes.take(&self.lane, self.stream).ok()?;
                if taken.is_some() || state.ended {
                    drop(state);
                    if taken.is_some() {
                        self.hub.metrics.count_sent();
                    }
                    self.hub.moved.notify_one();
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
        let mut state = self.hub.state();
        state.lanes.close(&self.lane, self.stream);
        if state.bells.get(&self.lane).is_some_and(|bell| Arc::ptr_eq(bell, &self.bell)) {
            state.bells.remove(&self.lane);
        }
        drop(state);
        self.hub.moved.notify_one();
    }
}

pub(super) fn sse(
    events: impl stream::Stream<Item = Result<Event, Infallible>> + Send + 'static,
) -> Response {
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

/// The same JSON on one line and in ASCII: some clients decode what arrives piece by piece, and fail where a piece ends
/// within a character.
pub(super) fn ascii(json: String) -> String {
    if json.bytes().all(|byte| byte.is_ascii() && byte >= b' ') {
        return json;
    }
    let mut text = String::with_capacity(json.len() + json.len() / 2);
    for char in json.chars() {
        match char {
            // In a string it would be written otherwise: this is between two values.
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
        hub: Arc<HttpConnection>,
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
        let hub = HttpConnection::new(&ana(), inlet, Arc::default(), false);
        let ours = Arc::clone(&hub);
        let running = tokio::spawn(async move { ours.run(outlet, IDLE).await });
        ConnectionFixture { hub, outbox, inbox, running }
    }

    impl ConnectionFixture {
        fn listen(&self, session: Option<SessionId>) -> Stream {
            let lane = session.map(|session| session.to_string().into());
            let response = self.hub.listen(ana(), lane, None).unwrap();
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
            tokio::time::sleep(PATIENCE * 3 / 4).await;
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
        let mut told = 0;
        while tokio::time::timeout(PATIENCE * 2, here.tell(&told.to_string(), Some(session), None))
            .await
            .is_ok()
        {
            told += 1;
        }
        assert!((1000..2000).contains(&told), "{told}");
        for n in 0..told {
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
        assert_eq!(start.elapsed(), FIRST);
        assert_eq!(unused.inbox.recv().await, None, "the connection is told");
        assert_eq!(unused.hub.put("{}".to_owned()).await, Err(ConnectionClosed));

        let used = here();
        let stream = used.listen(None);
        tokio::time::sleep(IDLE * 10).await;
        assert!(!used.running.is_finished());
        drop(stream);
        tokio::time::sleep(IDLE / 2).await;
        drop(used.hub.used());
        let start = Instant::now();
        used.running.await.unwrap();
        assert_eq!(start.elapsed(), IDLE);
    }

    #[tokio::test(start_paused = true)]
    async fn when_it_is_over_the_streams_end() {
        let closed = here();
        let mut stream = closed.listen(None);
        closed.hub.close();
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

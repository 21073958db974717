//! The queues of one connection's streams, and the last messages sent, for replay.
//!
//! ```text
//!   put ─► queue of the connection ─► take ─► its stream ┐
//!      └─► queue of a session ──────► take ─► its stream ├─► the last messages of all streams, for replay
//!              └─ without a stream: moved to the queue of the connection
//! ```
//! Pure: no clock and no waiting. The caller checks [`StreamQueues::is_full`] before it puts.
//!
//! Ids count the messages of a connection in the order in which they are taken, over all streams. A client therefore
//! reconnects any stream with the last id of that stream, and the replay is the part of `sent` for the same queue.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::super::ClientMessage;

/// The limit on queued messages of all streams of a connection together. At the limit the client's feeds wait.
const MAX_WAITING: usize = 1024;
const MAX_WAITING_BYTES: usize = 4 << 20;
/// The most sent messages kept for replay. A client that missed more has to load or resume the session.
const MAX_SENT: usize = 512;
const MAX_SENT_BYTES: usize = 256 << 10;
/// The limit on streams for sessions without messages. A client opens such a stream before it loads a session; without
/// a limit, invented names would fill the map.
const MAX_UNKNOWN: usize = 16;

/// The key of a stream: a session, or `None` for the connection itself.
pub(super) type StreamKey = Option<Arc<str>>;

/// A message with its id, which counts all messages of the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StreamMessage {
    pub(super) id: u64,
    pub(super) text: Arc<str>,
}

/// The reason for not opening a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamRefusal {
    /// The messages after that id are no longer kept.
    TooOld,
    /// No message had that id.
    NoSuchId,
    /// Too many streams are open for sessions without messages.
    Unknown,
}

/// Returns the stream of a message. An answer that makes a session known goes to the connection's stream: the client
/// opens the session's stream because of it. Answers to load and resume go there as well, where clients expect them.
pub(super) fn stream_of(message: &ClientMessage) -> StreamKey {
    let opening = message.answers.as_ref().is_some_and(|(_, method)| {
        matches!(
            &**method,
            "session/new" | "session/load" | "session/resume" | "session/fork" | "session/list"
        )
    });
    message.session.filter(|_| !opening).map(|session| session.to_string().into())
}

/// Returns the session whose history must be sent before this message.
pub(super) fn history_before(message: &ClientMessage) -> StreamKey {
    let (_, method) = message.answers.as_ref()?;
    let comes_last = matches!(&**method, "session/load" | "session/resume");
    message.session.filter(|_| comes_last).map(|session| session.to_string().into())
}

#[derive(Debug, Default)]
struct StreamQueue {
    waiting: VecDeque<Arc<str>>,
    /// The number of the newest open stream.
    stream: Option<u64>,
    /// True once it had a message: the session belongs to this connection.
    is_known: bool,
    /// True if no stream was opened in time: further messages go to the queue of the connection.
    is_shared: bool,
    /// The id of the newest message that is no longer in the replay buffer.
    evicted: u64,
}

#[derive(Debug, Default)]
pub(super) struct StreamQueues {
    queues: HashMap<StreamKey, StreamQueue>,
    waiting: usize,
    waiting_bytes: usize,
    sent: VecDeque<(StreamKey, StreamMessage)>,
    sent_bytes: usize,
    last: u64,
    streams: u64,
}

impl StreamQueues {
    /// Returns true if nothing more should be put. Checked before a message of any size: one over the limit passes
    /// alone.
    pub(super) fn is_full(&self) -> bool {
        self.waiting >= MAX_WAITING || self.waiting_bytes >= MAX_WAITING_BYTES
    }

    /// Puts a message and returns the key of the queue that received it.
    pub(super) fn put(&mut self, key: StreamKey, text: Arc<str>) -> StreamKey {
        self.waiting += 1;
        self.waiting_bytes += text.len();
        let queue = self.queues.entry(key.clone()).or_default();
        // Known even if its messages go to the connection: the client may still open a stream for it.
        queue.is_known = true;
        let key = if queue.is_shared { None } else { key };
        self.queues.entry(key.clone()).or_default().waiting.push_back(text);
        key
    }

    /// Takes the next message for this stream; an error if a newer stream has replaced it.
    pub(super) fn take(&mut self, key: &StreamKey, stream: u64) -> Result<Option<StreamMessage>, ()> {
        let queue = self.queues.get_mut(key).filter(|queue| queue.stream == Some(stream)).ok_or(())?;
        let Some(text) = queue.waiting.pop_front() else { return Ok(None) };
        // The id is given when a stream takes the message: so ids ascend on every stream, also for moved messages.
        self.waiting -= 1;
        self.waiting_bytes -= text.len();
        self.last += 1;
        let sent = StreamMessage { id: self.last, text };
        self.sent_bytes += sent.text.len();
        self.sent.push_back((key.clone(), sent.clone()));
        // The newest message stays, however long: its stream may break before the client has it.
        while self.sent.len() > MAX_SENT || (self.sent_bytes > MAX_SENT_BYTES && self.sent.len() > 1) {
            let Some((key, old)) = self.sent.pop_front() else { break };
            self.sent_bytes -= old.text.len();
            if let Some(queue) = self.queues.get_mut(&key) {
                queue.evicted = old.id;
            }
        }
        Ok(Some(sent))
    }

    /// Opens a stream in place of an older one. Returns its number and the messages to replay: those of its queue after
    /// `last`.
    pub(super) fn open(
        &mut self,
        key: &StreamKey,
        last: Option<u64>,
    ) -> Result<(u64, VecDeque<StreamMessage>), StreamRefusal> {
        // Only evictions from this queue leave a gap: a busy session must not make the streams of others fail.
        let replay = match last {
            None => VecDeque::new(),
            Some(last) if last > self.last => return Err(StreamRefusal::NoSuchId),
            Some(last) if self.queues.get(key).is_some_and(|queue| last < queue.evicted) => {
                return Err(StreamRefusal::TooOld);
            }
            Some(last) => {
                let after = self.sent.iter().filter(|(of, sent)| of == key && sent.id > last);
                after.map(|(_, sent)| sent.clone()).collect()
            }
        };
        if key.is_some() && !self.queues.contains_key(key) {
            let unknown = self.queues.iter().filter(|(key, queue)| key.is_some() && !queue.is_known);
            if unknown.count() >= MAX_UNKNOWN {
                return Err(StreamRefusal::Unknown);
            }
        }
        self.streams += 1;
        let queue = self.queues.entry(key.clone()).or_default();
        queue.stream = Some(self.streams);
        // Later messages go to this stream. Those that were moved already stay in the connection's queue, in order.
        queue.is_shared = false;
        Ok((self.streams, replay))
    }

    pub(super) fn close(&mut self, key: &StreamKey, stream: u64) {
        let Some(queue) = self.queues.get_mut(key).filter(|queue| queue.stream == Some(stream)) else {
            return;
        };
        queue.stream = None;
        // A name without messages leaves nothing behind.
        if !queue.is_known {
            self.queues.remove(key);
        }
    }

    /// Drops all messages and ends every stream. Counters stay, so that old streams do not match new ones.
    pub(super) fn clear(&mut self) {
        *self = Self { last: self.last, streams: self.streams, ..Self::default() };
    }

    pub(super) fn waiting_for(&self, key: &StreamKey) -> usize {
        self.queues.get(key).map_or(0, |queue| queue.waiting.len())
    }

    pub(super) fn is_open(&self, key: &StreamKey) -> bool {
        self.queues.get(key).is_some_and(|queue| queue.stream.is_some())
    }

    /// Returns the session with the most queued messages among those without a stream.
    pub(super) fn fullest_unopened(&self) -> StreamKey {
        let unopened = self
            .queues
            .iter()
            .filter(|(key, queue)| key.is_some() && queue.stream.is_none() && !queue.waiting.is_empty());
        unopened.max_by_key(|(_, queue)| queue.waiting.len()).and_then(|(key, _)| key.clone())
    }

    /// Moves the first message to the connection's queue: some clients open a session's stream only after a message
    /// about it.
    pub(super) fn move_first_to_connection(&mut self, key: &StreamKey) {
        if let Some(first) = self.queues.get_mut(key).and_then(|queue| queue.waiting.pop_front()) {
            self.queues.entry(None).or_default().waiting.push_back(first);
        }
    }

    /// Moves all messages to the connection's queue, and later ones as well until a stream is opened.
    pub(super) fn move_all_to_connection(&mut self, key: &StreamKey) {
        let Some(queue) = self.queues.get_mut(key) else { return };
        queue.is_shared = true;
        let rest = std::mem::take(&mut queue.waiting);
        self.queues.entry(None).or_default().waiting.extend(rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[expect(clippy::unnecessary_wraps, reason = "a lane is one")]
    fn session(name: &str) -> StreamKey {
        Some(name.into())
    }

    fn texts(sent: &VecDeque<StreamMessage>) -> Vec<&str> {
        sent.iter().map(|sent| &*sent.text).collect()
    }

    #[test]
    fn a_second_stream_takes_the_place_of_the_first_and_gets_what_that_was_not_given() {
        let mut queues = StreamQueues::default();
        let (first, _) = queues.open(&None, None).unwrap();
        queues.put(None, "a".into());
        queues.put(None, "b".into());
        assert_eq!(queues.take(&None, first).unwrap().unwrap(), StreamMessage { id: 1, text: "a".into() });
        let (second, again) = queues.open(&None, None).unwrap();
        assert!(again.is_empty());
        assert_eq!(queues.take(&None, first), Err(()));
        queues.close(&None, first);
        assert_eq!(&*queues.take(&None, second).unwrap().unwrap().text, "b");
        assert_eq!(queues.take(&None, second), Ok(None));
    }

    #[test]
    fn an_id_that_was_never_given_or_is_too_old_opens_nothing() {
        let mut queues = StreamQueues::default();
        let (stream, _) = queues.open(&session("s"), None).unwrap();
        for n in 0..=MAX_SENT {
            queues.put(session("s"), n.to_string().into());
            queues.take(&session("s"), stream).unwrap().unwrap();
        }
        assert_eq!(queues.open(&session("s"), Some(MAX_SENT as u64 + 2)), Err(StreamRefusal::NoSuchId));
        assert_eq!(queues.open(&session("s"), Some(0)), Err(StreamRefusal::TooOld));
        assert_eq!(queues.open(&session("s"), Some(1)).unwrap().1.len(), MAX_SENT);
        // What was forgotten of one was not of the other.
        assert_eq!(queues.open(&None, Some(0)).unwrap().1.len(), 0);
    }

    #[test]
    fn streams_for_sessions_that_nobody_knows_are_few() {
        let mut queues = StreamQueues::default();
        let open: Vec<u64> =
            (0..MAX_UNKNOWN).map(|n| queues.open(&session(&n.to_string()), None).unwrap().0).collect();
        assert_eq!(queues.open(&session("x"), None), Err(StreamRefusal::Unknown));
        queues.put(session("0"), "known now".into());
        let (x, _) = queues.open(&session("x"), None).unwrap();
        assert_eq!(queues.open(&session("y"), None), Err(StreamRefusal::Unknown));
        queues.close(&session("x"), x);
        queues.close(&session("0"), open[0]);
        assert!(queues.open(&session("y"), None).is_ok());
        assert_eq!(queues.waiting_for(&session("0")), 1, "what is told of a session waits for it");
    }

    #[test]
    fn what_nobody_comes_for_goes_with_the_connection_s_own_in_its_order() {
        let mut queues = StreamQueues::default();
        let (stream, _) = queues.open(&None, None).unwrap();
        for text in ["1", "2", "3"] {
            assert_eq!(queues.put(session("s"), text.into()), session("s"));
        }
        assert_eq!(queues.fullest_unopened(), session("s"));
        queues.move_first_to_connection(&session("s"));
        queues.move_all_to_connection(&session("s"));
        assert_eq!(queues.put(session("s"), "4".into()), None);
        let mut seen = VecDeque::new();
        while let Some(sent) = queues.take(&None, stream).unwrap() {
            seen.push_back(sent);
        }
        assert_eq!(texts(&seen), ["1", "2", "3", "4"]);
        queues.open(&session("s"), None).unwrap();
        assert_eq!(queues.put(session("s"), "5".into()), session("s"));
    }

    #[test]
    fn it_is_full_by_number_and_by_size() {
        let mut queues = StreamQueues::default();
        queues.put(None, "x".repeat(MAX_WAITING_BYTES).into());
        assert!(queues.is_full());
        let (stream, _) = queues.open(&None, None).unwrap();
        queues.take(&None, stream).unwrap().unwrap();
        assert!(!queues.is_full());
        for _ in 0..MAX_WAITING {
            assert!(!queues.is_full());
            queues.put(session("s"), "x".into());
        }
        assert!(queues.is_full());
    }

    #[derive(Debug, Clone)]
    enum Step {
        Put(usize),
        Take(usize),
        /// The stream breaks after this many of the last messages got lost, and is opened with the last that was
        /// received.
        Break(usize, usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => (0..3_usize).prop_map(Step::Put),
            3 => (0..3_usize).prop_map(Step::Take),
            1 => ((0..3_usize), (0..5_usize)).prop_map(|(key, lost)| Step::Break(key, lost)),
        ];
        proptest::collection::vec(step, 0..200)
    }

    proptest! {
        #[test]
        fn whoever_comes_back_with_the_last_id_misses_nothing_and_sees_nothing_twice(steps in steps()) {
            let key = |n: usize| (n > 0).then(|| Arc::<str>::from(n.to_string()));
            let mut queues = StreamQueues::default();
            let mut streams: Vec<u64> = (0..3).map(|n| queues.open(&key(n), None).unwrap().0).collect();
            let mut put = [0_u64; 3];
            let mut received: [Vec<StreamMessage>; 3] = Default::default();
            for step in steps {
                match step {
                    Step::Put(n) => {
                        queues.put(key(n), put[n].to_string().into());
                        put[n] += 1;
                    }
                    Step::Take(n) => received[n].extend(queues.take(&key(n), streams[n]).unwrap()),
                    Step::Break(n, lost) => {
                        let kept = received[n].len().saturating_sub(lost);
                        received[n].truncate(kept);
                        let last = received[n].last().map_or(0, |sent| sent.id);
                        let (stream, again) = queues.open(&key(n), Some(last)).unwrap();
                        streams[n] = stream;
                        received[n].extend(again);
                    }
                }
            }
            for n in 0..3 {
                while let Some(sent) = queues.take(&key(n), streams[n]).unwrap() {
                    received[n].push(sent);
                }
                let seen: Vec<u64> = received[n].iter().map(|sent| sent.text.parse().unwrap()).collect();
                prop_assert_eq!(seen, (0..put[n]).collect::<Vec<_>>());
                prop_assert!(received[n].is_sorted_by_key(|sent| sent.id));
            }
            prop_assert_eq!((queues.waiting, queues.waiting_bytes), (0, 0));
        }
    }
}

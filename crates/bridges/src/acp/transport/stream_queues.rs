//! Messages that wait for the streams of one connection, and the last ones sent.
//!
//! ```text
//!   put ─► lane of the connection ─► take ─► its stream      ┐
//!      └─► lane of a session ──────► take ─► its stream      ├─► the last of all of them, to be sent again
//!              └─ without a stream: moved to the connection's ┘
//! ```
//! No clock, nothing that waits: whoever puts looks at [`StreamQueues::is_full`] first.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::super::ClientMessage;

/// The most messages that wait for all streams of a connection together. At the limit its feeds wait.
const WAITING: usize = 1024;
const WAITING_BYTES: usize = 4 << 20;
/// The most sent messages kept for replay. A client that missed more has to load or resume the session.
const SENT: usize = 512;
const SENT_BYTES: usize = 256 << 10;
/// Streams for sessions that nobody has heard of: a client opens one before it loads a session.
const UNKNOWN: usize = 16;

/// A session, or the connection itself.
pub(super) type StreamKey = Option<Arc<str>>;

/// One message on its way, and its place among all of its connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StreamMessage {
    pub(super) id: u64,
    pub(super) text: Arc<str>,
}

/// Why a stream cannot be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamRefusal {
    /// The messages after that id are no longer kept.
    TooOld,
    /// No such id was ever given.
    NoSuchId,
    /// There are too many streams for sessions that are not of this connection.
    Unknown,
}

/// The lane of a message. What makes a session known to a client cannot come on a stream that it opens because of it, and
/// the answers to loading and resuming are waited for there as well.
pub(super) fn lane_of(told: &ClientMessage) -> StreamKey {
    let opening = told.answers.as_ref().is_some_and(|(_, method)| {
        matches!(
            &**method,
            "session/new" | "session/load" | "session/resume" | "session/fork" | "session/list"
        )
    });
    told.session.filter(|_| !opening).map(|session| session.to_string().into())
}

/// The session whose history has to be told before this.
pub(super) fn history_before(told: &ClientMessage) -> StreamKey {
    let (_, method) = told.answers.as_ref()?;
    let comes_last = matches!(&**method, "session/load" | "session/resume");
    told.session.filter(|_| comes_last).map(|session| session.to_string().into())
}

#[derive(Debug, Default)]
struct StreamQueue {
    waiting: VecDeque<Arc<str>>,
    /// Which of its streams is the newest, while there is one.
    stream: Option<u64>,
    /// It was told something: it is a session of this connection.
    is_known: bool,
    /// Nobody came for it: it goes with the connection's own.
    is_shared: bool,
    /// The last that is not kept any more.
    forgotten: u64,
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
    /// Nothing more should be put. One that is too long goes alone.
    pub(super) fn is_full(&self) -> bool {
        self.waiting >= WAITING || self.waiting_bytes >= WAITING_BYTES
    }

    /// Where it was put.
    pub(super) fn put(&mut self, lane: StreamKey, text: Arc<str>) -> StreamKey {
        self.waiting += 1;
        self.waiting_bytes += text.len();
        let queue = self.queues.entry(lane.clone()).or_default();
        queue.is_known = true;
        let lane = if queue.is_shared { None } else { lane };
        self.queues.entry(lane.clone()).or_default().waiting.push_back(text);
        lane
    }

    /// The next one for this stream; an error if another has taken its place.
    pub(super) fn take(&mut self, lane: &StreamKey, stream: u64) -> Result<Option<StreamMessage>, ()> {
        let queue = self.queues.get_mut(lane).filter(|queue| queue.stream == Some(stream)).ok_or(())?;
        let Some(text) = queue.waiting.pop_front() else { return Ok(None) };
        self.waiting -= 1;
        self.waiting_bytes -= text.len();
        self.last += 1;
        let sent = StreamMessage { id: self.last, text };
        self.sent_bytes += sent.text.len();
        self.sent.push_back((lane.clone(), sent.clone()));
        while self.sent.len() > SENT || (self.sent_bytes > SENT_BYTES && self.sent.len() > 1) {
            let Some((lane, old)) = self.sent.pop_front() else { break };
            self.sent_bytes -= old.text.len();
            if let Some(queue) = self.queues.get_mut(&lane) {
                queue.forgotten = old.id;
            }
        }
        Ok(Some(sent))
    }

    /// A new stream, in the place of an older one, and what it is sent again: all of its lane after `last`.
    pub(super) fn open(
        &mut self,
        lane: &StreamKey,
        last: Option<u64>,
    ) -> Result<(u64, VecDeque<StreamMessage>), StreamRefusal> {
        let again = match last {
            None => VecDeque::new(),
            Some(last) if last > self.last => return Err(StreamRefusal::NoSuchId),
            Some(last) if self.queues.get(lane).is_some_and(|queue| last < queue.forgotten) => {
                return Err(StreamRefusal::TooOld);
            }
            Some(last) => {
                let after = self.sent.iter().filter(|(of, sent)| of == lane && sent.id > last);
                after.map(|(_, sent)| sent.clone()).collect()
            }
        };
        if lane.is_some() && !self.queues.contains_key(lane) {
            let unknown = self.queues.iter().filter(|(lane, queue)| lane.is_some() && !queue.is_known);
            if unknown.count() >= UNKNOWN {
                return Err(StreamRefusal::Unknown);
            }
        }
        self.streams += 1;
        let queue = self.queues.entry(lane.clone()).or_default();
        queue.stream = Some(self.streams);
        queue.is_shared = false;
        Ok((self.streams, again))
    }

    pub(super) fn close(&mut self, lane: &StreamKey, stream: u64) {
        let Some(queue) = self.queues.get_mut(lane).filter(|queue| queue.stream == Some(stream)) else {
            return;
        };
        queue.stream = None;
        if !queue.is_known {
            self.queues.remove(lane);
        }
    }

    /// Everything that waits is forgotten, and every stream has ended.
    pub(super) fn clear(&mut self) {
        *self = Self { last: self.last, streams: self.streams, ..Self::default() };
    }

    pub(super) fn waiting_for(&self, lane: &StreamKey) -> usize {
        self.queues.get(lane).map_or(0, |queue| queue.waiting.len())
    }

    pub(super) fn is_open(&self, lane: &StreamKey) -> bool {
        self.queues.get(lane).is_some_and(|queue| queue.stream.is_some())
    }

    /// The session with the most that waits and no stream to wait for.
    pub(super) fn fullest_unopened(&self) -> StreamKey {
        let unopened = self
            .queues
            .iter()
            .filter(|(lane, queue)| lane.is_some() && queue.stream.is_none() && !queue.waiting.is_empty());
        unopened.max_by_key(|(_, queue)| queue.waiting.len()).and_then(|(lane, _)| lane.clone())
    }

    /// The first of what waits goes with the connection's own: some clients open a session's stream only when they hear of it.
    pub(super) fn move_first_to_connection(&mut self, lane: &StreamKey) {
        if let Some(first) = self.queues.get_mut(lane).and_then(|queue| queue.waiting.pop_front()) {
            self.queues.entry(None).or_default().waiting.push_back(first);
        }
    }

    /// And so does all the rest, until there is a stream for it.
    pub(super) fn move_all_to_connection(&mut self, lane: &StreamKey) {
        let Some(queue) = self.queues.get_mut(lane) else { return };
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
        let mut lanes = StreamQueues::default();
        let (first, _) = lanes.open(&None, None).unwrap();
        lanes.put(None, "a".into());
        lanes.put(None, "b".into());
        assert_eq!(lanes.take(&None, first).unwrap().unwrap(), StreamMessage { id: 1, text: "a".into() });
        let (second, again) = lanes.open(&None, None).unwrap();
        assert!(again.is_empty());
        assert_eq!(lanes.take(&None, first), Err(()));
        lanes.close(&None, first);
        assert_eq!(&*lanes.take(&None, second).unwrap().unwrap().text, "b");
        assert_eq!(lanes.take(&None, second), Ok(None));
    }

    #[test]
    fn an_id_that_was_never_given_or_is_too_old_opens_nothing() {
        let mut lanes = StreamQueues::default();
        let (stream, _) = lanes.open(&session("s"), None).unwrap();
        for n in 0..=SENT {
            lanes.put(session("s"), n.to_string().into());
            lanes.take(&session("s"), stream).unwrap().unwrap();
        }
        assert_eq!(lanes.open(&session("s"), Some(SENT as u64 + 2)), Err(StreamRefusal::NoSuchId));
        assert_eq!(lanes.open(&session("s"), Some(0)), Err(StreamRefusal::TooOld));
        assert_eq!(lanes.open(&session("s"), Some(1)).unwrap().1.len(), SENT);
        // What was forgotten of one was not of the other.
        assert_eq!(lanes.open(&None, Some(0)).unwrap().1.len(), 0);
    }

    #[test]
    fn streams_for_sessions_that_nobody_knows_are_few() {
        let mut lanes = StreamQueues::default();
        let open: Vec<u64> =
            (0..UNKNOWN).map(|n| lanes.open(&session(&n.to_string()), None).unwrap().0).collect();
        assert_eq!(lanes.open(&session("x"), None), Err(StreamRefusal::Unknown));
        lanes.put(session("0"), "known now".into());
        let (x, _) = lanes.open(&session("x"), None).unwrap();
        assert_eq!(lanes.open(&session("y"), None), Err(StreamRefusal::Unknown));
        lanes.close(&session("x"), x);
        lanes.close(&session("0"), open[0]);
        assert!(lanes.open(&session("y"), None).is_ok());
        assert_eq!(lanes.waiting_for(&session("0")), 1, "what is told of a session waits for it");
    }

    #[test]
    fn what_nobody_comes_for_goes_with_the_connection_s_own_in_its_order() {
        let mut lanes = StreamQueues::default();
        let (stream, _) = lanes.open(&None, None).unwrap();
        for text in ["1", "2", "3"] {
            assert_eq!(lanes.put(session("s"), text.into()), session("s"));
        }
        assert_eq!(lanes.fullest_unopened(), session("s"));
        lanes.move_first_to_connection(&session("s"));
        lanes.move_all_to_connection(&session("s"));
        assert_eq!(lanes.put(session("s"), "4".into()), None);
        let mut seen = VecDeque::new();
        while let Some(sent) = lanes.take(&None, stream).unwrap() {
            seen.push_back(sent);
        }
        assert_eq!(texts(&seen), ["1", "2", "3", "4"]);
        lanes.open(&session("s"), None).unwrap();
        assert_eq!(lanes.put(session("s"), "5".into()), session("s"));
    }

    #[test]
    fn it_is_full_by_number_and_by_size() {
        let mut lanes = StreamQueues::default();
        lanes.put(None, "x".repeat(WAITING_BYTES).into());
        assert!(lanes.is_full());
        let (stream, _) = lanes.open(&None, None).unwrap();
        lanes.take(&None, stream).unwrap().unwrap();
        assert!(!lanes.is_full());
        for _ in 0..WAITING {
            assert!(!lanes.is_full());
            lanes.put(session("s"), "x".into());
        }
        assert!(lanes.is_full());
    }

    #[derive(Debug, Clone)]
    enum Step {
        Put(usize),
        Take(usize),
        /// The stream breaks after this many of the last messages got lost, and is opened with the last that was received.
        Break(usize, usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => (0..3_usize).prop_map(Step::Put),
            3 => (0..3_usize).prop_map(Step::Take),
            1 => ((0..3_usize), (0..5_usize)).prop_map(|(lane, lost)| Step::Break(lane, lost)),
        ];
        proptest::collection::vec(step, 0..200)
    }

    proptest! {
        #[test]
        fn whoever_comes_back_with_the_last_id_misses_nothing_and_sees_nothing_twice(steps in steps()) {
            let lane = |n: usize| (n > 0).then(|| Arc::<str>::from(n.to_string()));
            let mut lanes = StreamQueues::default();
            let mut streams: Vec<u64> = (0..3).map(|n| lanes.open(&lane(n), None).unwrap().0).collect();
            let mut put = [0_u64; 3];
            let mut received: [Vec<StreamMessage>; 3] = Default::default();
            for step in steps {
                match step {
                    Step::Put(n) => {
                        lanes.put(lane(n), put[n].to_string().into());
                        put[n] += 1;
                    }
                    Step::Take(n) => received[n].extend(lanes.take(&lane(n), streams[n]).unwrap()),
                    Step::Break(n, lost) => {
                        let kept = received[n].len().saturating_sub(lost);
                        received[n].truncate(kept);
                        let last = received[n].last().map_or(0, |sent| sent.id);
                        let (stream, again) = lanes.open(&lane(n), Some(last)).unwrap();
                        streams[n] = stream;
                        received[n].extend(again);
                    }
                }
            }
            for n in 0..3 {
                while let Some(sent) = lanes.take(&lane(n), streams[n]).unwrap() {
                    received[n].push(sent);
                }
                let seen: Vec<u64> = received[n].iter().map(|sent| sent.text.parse().unwrap()).collect();
                prop_assert_eq!(seen, (0..put[n]).collect::<Vec<_>>());
                prop_assert!(received[n].is_sorted_by_key(|sent| sent.id));
            }
            prop_assert_eq!((lanes.waiting, lanes.waiting_bytes), (0, 0));
        }
    }
}

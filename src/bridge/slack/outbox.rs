//! Which message may be sent next: pure, with time as a number.
//!
//! ```text
//!   posts   in order within a thread, threads beside each other; a bucket of tokens per channel
//!   edits   each message for itself, only its latest state; one bucket, of which cards that wait get the last tokens
//!   trouble a row waits (longer each time); three in a row without a success, and everything waits
//! ```
//! The rows are the store's; what is kept here is only who is on the way and who has to wait, and may be lost.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// Slack wants one message per second in a channel, and lets bursts pass.
const POSTS: Rate = Rate { burst: 20.0, per_second: 1.0 };
/// "50 and more per minute".
const EDITS: Rate = Rate { burst: 30.0, per_second: 0.8 };
/// Tokens that status cards leave to cards that wait for somebody.
const RESERVE: f64 = 8.0;
/// A status card is not edited more often.
const STATUS_EVERY: Duration = Duration::from_secs(2);
/// For how long it is known when a status card was edited, so that others have their turn.
const TURNS: Duration = Duration::from_mins(10);
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_mins(1);
/// Until a person has set something right.
const SETUP_WAIT: Duration = Duration::from_secs(15);
/// Failures without a success between them after which nothing but one attempt at a time is made.
const DOWN: u32 = 3;
const LONGEST_PAUSE: Duration = Duration::from_secs(20);
/// At most so many calls at the same time.
const AT_ONCE: usize = 64;

struct Rate {
    burst: f64,
    per_second: f64,
}

/// A message that Slack does not have as it should be.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Row {
    pub(super) place: i64,
    pub(super) key: String,
    pub(super) channel: String,
    /// What is told in order: a thread, or something by itself.
    pub(super) lane: String,
    /// The thread that it belongs to is there, or it needs none.
    pub(super) rooted: bool,
    pub(super) sort: Sort,
    /// It waits for somebody.
    pub(super) open: bool,
}

/// What has to be done with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Sort {
    #[default]
    Post,
    Edit,
    /// The root of a thread is edited, or what an agent is saying: of all edits the least important ones, and there is no
    /// end of them.
    Status,
}

impl Row {
    fn is_post(&self) -> bool {
        self.sort == Sort::Post
    }

    fn is_status(&self) -> bool {
        self.sort == Sort::Status
    }
}

/// What became of one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Done,
    /// Slack is too busy for us.
    Slow(Duration),
    /// A fault that passes.
    Failed,
    /// A fault that a person must mend.
    Setup,
}

#[derive(Debug)]
struct Bucket {
    tokens: f64,
    at: Instant,
    closed_until: Option<Instant>,
}

impl Bucket {
    fn full(rate: &Rate, now: Instant) -> Self {
        Self { tokens: rate.burst, at: now, closed_until: None }
    }

    /// Takes a token, or says when there is one beyond those that are kept back.
    fn take(&mut self, rate: &Rate, keep: f64, now: Instant) -> Result<(), Instant> {
        if let Some(until) = self.closed_until.filter(|until| *until > now) {
            return Err(until);
        }
        self.closed_until = None;
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.tokens = (self.tokens + passed * rate.per_second).min(rate.burst);
        self.at = now;
        let needed = 1.0 + keep;
        if self.tokens >= needed {
            self.tokens -= 1.0;
            return Ok(());
        }
        Err(now + Duration::from_secs_f64((needed - self.tokens) / rate.per_second))
    }
}

#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// On their way.
    flying: HashSet<i64>,
    /// Threads with a post on its way.
    posting: HashSet<String>,
    /// Who has to wait, until when, and for how long the next time.
    waits: HashMap<i64, (Instant, Duration)>,
    status_at: HashMap<i64, Instant>,
    posts: HashMap<String, Bucket>,
    edits: Option<Bucket>,
    /// Failures since the last success.
    failures: u32,
    paused_until: Option<Instant>,
}

/// What to send now, and when to look again if nothing happens before.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) send: Vec<Row>,
    pub(super) look_again: Option<Instant>,
}

impl Plan {
    fn later(&mut self, at: Instant) {
        self.look_again = Some(self.look_again.map_or(at, |earlier| earlier.min(at)));
    }
}

impl Outbox {
    /// Takes what it plans as being on its way.
    pub(super) fn plan(&mut self, rows: &[Row], now: Instant) -> Plan {
        let mut plan = Plan::default();
        if let Some(until) = self.paused_until.filter(|until| *until > now) {
            plan.later(until);
            return plan;
        }
        let alone = self.failures >= DOWN;
        let mut heads: HashMap<&str, i64> = HashMap::new();
        for row in rows.iter().filter(|row| row.is_post()) {
            let head = heads.entry(&row.lane).or_insert(row.place);
            *head = row.place.min(*head);
        }
        let mut order: Vec<&Row> = rows.iter().collect();
        // Status cards take turns: there may be more to show than Slack takes, and none may be left out for ever.
        let shown_at = |row: &Row| self.status_at.get(&row.place).copied().filter(|_| row.is_status());
        order.sort_by_key(|row| (!row.open || row.is_status(), row.is_status(), shown_at(row), row.place));
        for row in order {
            if self.flying.len() >= AT_ONCE || (alone && !self.flying.is_empty()) {
                break;
            }
            let its_turn = !row.is_post() || (row.rooted && heads.get(row.lane.as_str()) == Some(&row.place));
            let busy = self.flying.contains(&row.place)
                || (row.is_post() && self.posting.contains(row.lane.as_str()));
            if !its_turn || busy {
                continue;
            }
            match self.admit(row, now) {
                Ok(()) => {
                    self.flying.insert(row.place);
                    if row.is_post() {
                        self.posting.insert(row.lane.clone());
                    }
                    plan.send.push(row.clone());
                }
                Err(at) => plan.later(at),
            }
        }
        plan
    }

    fn admit(&mut self, row: &Row, now: Instant) -> Result<(), Instant> {
        if let Some((until, _)) = self.waits.get(&row.place).filter(|(until, _)| *until > now) {
            return Err(*until);
        }
        if row.is_post() {
            let bucket = self.posts.entry(row.channel.clone()).or_insert_with(|| Bucket::full(&POSTS, now));
            return bucket.take(&POSTS, 0.0, now);
        }
        let status = row.is_status();
        if let Some(at) =
            self.status_at.get(&row.place).map(|at| *at + STATUS_EVERY).filter(|at| status && *at > now)
        {
            return Err(at);
        }
        let keep = if status { RESERVE } else { 0.0 };
        self.edits.get_or_insert_with(|| Bucket::full(&EDITS, now)).take(&EDITS, keep, now)?;
        if status {
            self.status_at.insert(row.place, now);
        }
        Ok(())
    }

    /// An attempt is over. `jitter` is between 0 and 1.
    pub(super) fn landed(&mut self, row: &Row, fate: Fate, now: Instant, jitter: f64) {
        self.flying.remove(&row.place);
        if row.is_post() {
            self.posting.remove(row.lane.as_str());
        }
        match fate {
            Fate::Done => {
                self.failures = 0;
                self.waits.remove(&row.place);
            }
            Fate::Slow(wait) => {
                let until = Some(now + wait);
                if !row.is_post() {
                    self.edits.get_or_insert_with(|| Bucket::full(&EDITS, now)).closed_until = until;
                } else if let Some(bucket) = self.posts.get_mut(&row.channel) {
                    bucket.closed_until = until;
                }
            }
            Fate::Failed => {
                let wait =
                    self.waits.get(&row.place).map_or(FIRST_WAIT, |(_, wait)| (*wait * 2).min(LONGEST_WAIT));
                self.waits.insert(row.place, (now + wait.mul_f64(0.5 + 0.5 * jitter), wait));
                self.failures += 1;
                if self.failures >= DOWN {
                    let doublings = (self.failures - DOWN).min(6);
                    let pause = (FIRST_WAIT * (1 << doublings)).min(LONGEST_PAUSE);
                    self.paused_until = Some(now + pause.mul_f64(0.5 + 0.5 * jitter));
                }
            }
            Fate::Setup => {
                self.waits.insert(row.place, (now + SETUP_WAIT, FIRST_WAIT));
            }
        }
    }

    /// Slack was heard of: no need to wait any longer.
    pub(super) fn awake(&mut self) {
        self.failures = 0;
        self.paused_until = None;
        self.waits.clear();
    }

    /// What is not among the unsent is not remembered.
    pub(super) fn forget(&mut self, rows: &[Row]) {
        let known: HashSet<i64> = rows.iter().map(|row| row.place).collect();
        self.waits.retain(|place, _| known.contains(place));
        self.status_at.retain(|_, at| at.elapsed() < TURNS);
    }
}

#[cfg(test)]
mod tests;

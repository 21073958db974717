//! The schedule of messages to Slack. Pure: time is an argument.
//!
//! ```text
//!   posts    in order within a thread, threads concurrently; one token bucket per channel
//!   edits    each message on its own, only its latest state; one token bucket, whose last tokens are for pending cards
//!   failing  a row that fails backs off, with jitter. It holds its place in its thread for a second; then others pass
//!   outage   three rows of a channel fail and none succeeds: failed rows are probed one at a time, with longer and
//!            longer pauses; a row that was never tried is sent anyway, one per second. The first success ends it. So a
//!            few rows that Slack cannot accept never delay the others, and a Slack that is down is not flooded. A row
//!            that fails while others succeed does not count: the fault is its own
//! ```
//! Channels know nothing of each other. The rows are the store's; what is kept here is only who is on the way and who
//! has to wait, and may be lost.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// Slack allows one message per second in a channel, and short bursts.
const POSTS: RefillRate = RefillRate { burst: 20.0, per_second: 1.0 };
/// Slack documents "50+ per minute".
const EDITS: RefillRate = RefillRate { burst: 30.0, per_second: 0.8 };
/// The tokens that status cards leave for pending cards.
const RESERVE: f64 = 8.0;
/// The tokens of a channel that repeatedly failing posts leave for the others.
const RETRY_RESERVE: f64 = 5.0;
/// The shortest interval between edits of a status card.
const STATUS_EVERY: Duration = Duration::from_secs(2);
/// The time for which the last edit of a status card is remembered, so that status cards take turns.
const STATUS_MEMORY: Duration = Duration::from_mins(10);
const FIRST_WAIT: Duration = Duration::from_millis(500);
const MAX_WAIT: Duration = Duration::from_mins(1);
/// The delay after a failure that a person must fix.
const SETUP_WAIT: Duration = Duration::from_secs(15);
/// The time for which the posts of a thread wait for one that fails or hangs.
const PLACE_HELD: Duration = Duration::from_secs(1);
/// The number of failures after which a plain line stands in for a post: the thread needs a root, and people a notice.
const STAND_IN_AFTER: u32 = 3;
/// The number of failures of a thread's root, stand-ins included, after which pending cards are posted outside of the
/// thread.
const ROOTLESS_AFTER: u32 = 5;
/// The number of rows of a channel that must fail, without a success between them, for an outage.
const OUTAGE_FAILURES: usize = 3;
const MAX_PAUSE: Duration = Duration::from_secs(20);
/// The interval at which new rows are sent during an outage.
const FRESH_EVERY: Duration = Duration::from_secs(1);
/// A row that fails within this time of a success of others fails by its own fault. After an outage longer than this,
/// the rows that failed in it are retried at once.
const SAME_MOMENT: Duration = Duration::from_secs(5);
/// The limit on concurrent calls.
const MAX_IN_FLIGHT: usize = 64;

struct RefillRate {
    burst: f64,
    per_second: f64,
}

/// A message whose desired state Slack does not have.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct OutboxRow {
    pub(super) place: i64,
    pub(super) key: String,
    pub(super) channel: String,
    /// The sequence that is sent in order: a thread, or a single message.
    pub(super) lane: String,
    /// True if its thread has a root, or it needs none.
    pub(super) rooted: bool,
    pub(super) sort: SendKind,
    /// True for a pending card.
    pub(super) open: bool,
}

/// The kind of call that a row needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum SendKind {
    #[default]
    Post,
    Edit,
    /// An edit of a thread's root or of streamed text: the least important edits, and the most frequent ones.
    Status,
}

impl OutboxRow {
    fn is_post(&self) -> bool {
        self.sort == SendKind::Post
    }

    fn is_status(&self) -> bool {
        self.sort == SendKind::Status
    }

    /// Returns true for a pending clearance or question.
    pub(super) fn is_pending_card(&self) -> bool {
        self.open && ["clr_", "qst_"].iter().any(|prefix| self.key.starts_with(prefix))
    }
}

/// The outcome of one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AttemptOutcome {
    Done,
    /// A plain line was posted in its place; the message itself follows as an edit.
    StoodIn,
    /// Slack's rate limit.
    Slow(Duration),
    /// A failure that may pass.
    Failed,
    /// A failure that a person must fix.
    Setup,
}

#[derive(Debug)]
struct TokenBucket {
    tokens: f64,
    at: Instant,
    closed_until: Option<Instant>,
}

impl TokenBucket {
    fn full(rate: &RefillRate, now: Instant) -> Self {
        Self { tokens: rate.burst, at: now, closed_until: None }
    }

    /// Takes a token beyond the reserve, or returns the time when there is one.
    fn take(&mut self, rate: &RefillRate, reserve: f64, now: Instant) -> Result<(), Instant> {
        if let Some(until) = self.closed_until.filter(|until| *until > now) {
            return Err(until);
        }
        self.closed_until = None;
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.tokens = (self.tokens + passed * rate.per_second).min(rate.burst);
        self.at = now;
        let needed = 1.0 + reserve;
        if self.tokens >= needed {
            self.tokens -= 1.0;
            return Ok(());
        }
        // Never zero: a rounded-down wait would make the caller spin.
        let wait = Duration::from_secs_f64((needed - self.tokens) / rate.per_second);
        Err(now + wait.max(Duration::from_millis(1)))
    }
}

/// A row that is being sent.
#[derive(Debug)]
struct InFlightRow {
    row: OutboxRow,
    since: Instant,
    /// True if it failed before, and is sent to find out whether an outage is over.
    is_probe: bool,
}

/// A row that failed.
#[derive(Debug)]
struct RowBackoff {
    channel: String,
    /// The time when its thread began to wait for it; `None` if it holds its place until a person has fixed the setup.
    since: Option<Instant>,
    /// The time of the next attempt, and the wait before it.
    until: Instant,
    wait: Duration,
    failures: u32,
    failed_at: Instant,
    /// True if it failed while others succeeded.
    own_fault: bool,
}

/// A channel in which nothing succeeds.
#[derive(Debug)]
struct ChannelOutage {
    since: Instant,
    pause: Duration,
    /// The earliest times for a failed row and for a new one.
    probe_at: Instant,
    fresh_at: Instant,
}

#[derive(Debug, Default)]
struct ChannelState {
    posts: Option<TokenBucket>,
    /// The rows that failed since the last success, at most [`OUTAGE_FAILURES`].
    failed: HashSet<i64>,
    outage: Option<ChannelOutage>,
}

#[derive(Debug, Default)]
pub(super) struct SlackOutbox {
    in_flight: HashMap<i64, InFlightRow>,
    backoffs: HashMap<i64, RowBackoff>,
    status_at: HashMap<i64, Instant>,
    channels: HashMap<String, ChannelState>,
    edits: Option<TokenBucket>,
}

/// A row to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SendAttempt {
    pub(super) row: OutboxRow,
    /// True to send a plain line, because the message itself failed repeatedly.
    pub(super) stand_in: bool,
}

/// The attempts to send now, and the time of the next look if nothing happens before.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SendPlan {
    pub(super) send: Vec<SendAttempt>,
    pub(super) look_again: Option<Instant>,
}

impl SendPlan {
    fn later(&mut self, at: Instant) {
        self.look_again = Some(self.look_again.map_or(at, |earlier| earlier.min(at)));
    }
}

impl SlackOutbox {
    /// Chooses the rows to send now and counts them as in flight.
    pub(super) fn plan(&mut self, rows: &[OutboxRow], now: Instant) -> SendPlan {
        let mut plan = SendPlan::default();
        let heads = self.heads(rows, now, &mut plan);
        let mut order: Vec<&OutboxRow> = rows.iter().collect();
        // Every row is ranked anew, because what was admitted last changes whose turn it is.
        order.sort_by_key(|row| self.rank(row));
        for row in order {
            if self.in_flight.len() >= MAX_IN_FLIGHT {
                break;
            }
            let its_turn = !row.is_post() || heads.contains(&row.place);
            if !its_turn || self.in_flight.contains_key(&row.place) {
                continue;
            }
            match self.admit(row, now) {
                Ok(is_probe) => {
                    self.in_flight.insert(row.place, InFlightRow { row: row.clone(), since: now, is_probe });
                    let failures = self.backoffs.get(&row.place).map_or(0, |backoff| backoff.failures);
                    let stand_in = row.is_post() && failures >= STAND_IN_AFTER;
                    plan.send.push(SendAttempt { row: row.clone(), stand_in });
                }
                Err(Some(at)) => plan.later(at),
                Err(None) => {}
            }
        }
        plan
    }

    /// Returns the posts whose turn it is: the first of each thread, and those that others may pass.
    fn heads(&self, rows: &[OutboxRow], now: Instant, plan: &mut SendPlan) -> HashSet<i64> {
        let failures = |row: &OutboxRow| self.backoffs.get(&row.place).map_or(0, |backoff| backoff.failures);
        let dead_roots: HashSet<&str> = rows
            .iter()
            .filter(|row| row.is_post() && row.key == row.lane && failures(row) >= ROOTLESS_AFTER)
            .map(|row| row.lane.as_str())
            .collect();
        let can_go = |row: &&OutboxRow| {
            row.is_post() && (row.rooted || (row.is_pending_card() && dead_roots.contains(row.lane.as_str())))
        };
        let is_passed = |row: &&OutboxRow| self.place_held_until(row.place).is_some_and(|until| until <= now);
        let posts: Vec<&OutboxRow> = rows.iter().filter(can_go).collect();
        let mut heads: HashSet<i64> = posts.iter().copied().filter(is_passed).map(|row| row.place).collect();
        // A thread waits once: if one post was passed already, the next one that fails is passed at once.
        let waited: HashSet<&str> =
            posts.iter().filter(|row| heads.contains(&row.place)).map(|row| row.lane.as_str()).collect();
        heads.extend(
            posts
                .iter()
                .filter(|row| waited.contains(row.lane.as_str()) && failures(row) > 0)
                .map(|row| row.place),
        );
        let mut first = HashMap::<&str, &OutboxRow>::new();
        for row in posts.iter().copied().filter(|row| !heads.contains(&row.place)) {
            let head = first.entry(&row.lane).or_insert(row);
            // A post in flight is not overtaken, even if an older one has appeared since.
            let rank = |row: &OutboxRow| (!self.in_flight.contains_key(&row.place), row.place);
            if rank(row) < rank(head) {
                *head = row;
            }
        }
        for row in posts.iter().filter(|row| !heads.contains(&row.place)) {
            let head = first[row.lane.as_str()];
            if head.place != row.place
                && let Some(until) = self.place_held_until(head.place)
            {
                plan.later(until);
            }
        }
        heads.extend(first.values().map(|row| row.place));
        heads
    }

    /// Returns the time when the posts behind a row may pass it, if it failed or is in flight.
    fn place_held_until(&self, place: i64) -> Option<Instant> {
        let since = match self.backoffs.get(&place) {
            Some(backoff) => backoff.since,
            None => self.in_flight.get(&place).map(|flight| flight.since),
        };
        since.map(|since| since + PLACE_HELD)
    }

    /// Returns the sort key of a row. Pending cards go first; among equals, rows that have not failed. Status cards
    /// take turns: there may be more edits than Slack accepts, and no card may starve. During an outage failed rows
    /// take turns as well: the first of them may be the one that Slack cannot accept.
    fn rank(&self, row: &OutboxRow) -> (u8, Option<Instant>, Option<Instant>, i64) {
        let retry_at = self.backoffs.get(&row.place).map(|backoff| backoff.until);
        let outage = self.channels.get(&row.channel).is_some_and(|channel| channel.outage.is_some());
        let sort = match row {
            _ if outage && retry_at.is_some() => 3,
            row if row.is_status() => 2,
            row => u8::from(!row.open),
        };
        let shown_at = self.status_at.get(&row.place).copied().filter(|_| row.is_status());
        (sort, retry_at, shown_at, row.place)
    }

    /// Returns whether the row goes as a probe, or the time when it may go; `None` means after another one has
    /// finished.
    fn admit(&mut self, row: &OutboxRow, now: Instant) -> Result<bool, Option<Instant>> {
        let until = self.backoffs.get(&row.place).map(|backoff| backoff.until);
        let failures = self.backoffs.get(&row.place).map_or(0, |backoff| backoff.failures);
        let failed = until.is_some();
        let probing =
            self.in_flight.values().any(|flight| flight.is_probe && flight.row.channel == row.channel);
        let channel = self.channels.entry(row.channel.clone()).or_default();
        let outage = channel.outage.as_ref();
        let gate = outage.map(|outage| if failed { outage.probe_at } else { outage.fresh_at });
        if let Some(at) = until.max(gate).filter(|at| *at > now) {
            return Err(Some(at));
        }
        // One probe at a time: during an outage more of them would tell nothing new, and use up the limit on requests.
        if outage.is_some() && failed && probing {
            return Err(None);
        }
        if row.is_post() {
            let often = failures >= if row.open { ROOTLESS_AFTER } else { 2 };
            let reserve = if often { RETRY_RESERVE } else { 0.0 };
            channel.posts.get_or_insert_with(|| TokenBucket::full(&POSTS, now)).take(&POSTS, reserve, now)?;
        } else {
            let status = row.is_status();
            let shown_at = self.status_at.get(&row.place).map(|at| *at + STATUS_EVERY);
            if let Some(at) = shown_at.filter(|at| status && *at > now) {
                return Err(Some(at));
            }
            let reserve = if status { RESERVE } else { 0.0 };
            self.edits.get_or_insert_with(|| TokenBucket::full(&EDITS, now)).take(&EDITS, reserve, now)?;
            if status {
                self.status_at.insert(row.place, now);
            }
        }
        match &mut channel.outage {
            Some(outage) if !failed => outage.fresh_at = now + FRESH_EVERY,
            _ => {}
        }
        Ok(failed && channel.outage.is_some())
    }

    /// Records the outcome of an attempt. `jitter` is between 0 and 1.
    pub(super) fn finish_attempt(
        &mut self,
        row: &OutboxRow,
        outcome: AttemptOutcome,
        now: Instant,
        jitter: f64,
    ) {
        let flight = self.in_flight.remove(&row.place);
        let since = flight.as_ref().map_or(now, |flight| flight.since);
        let is_probe = flight.is_some_and(|flight| flight.is_probe);
        match outcome {
            AttemptOutcome::Done => {
                self.backoffs.remove(&row.place);
                self.succeeded(&row.channel, now);
            }
            AttemptOutcome::StoodIn => {
                // The message itself is an edit from now on, which may succeed where the post did not.
                self.backoffs.remove(&row.place);
                self.succeeded(&row.channel, now);
                self.back_off(row, since, now, jitter, false);
            }
            AttemptOutcome::Slow(wait) => {
                let until = Some(now + wait);
                if row.is_post() {
                    let channel = self.channels.entry(row.channel.clone()).or_default();
                    channel.posts.get_or_insert_with(|| TokenBucket::full(&POSTS, now)).closed_until = until;
                } else {
                    self.edits.get_or_insert_with(|| TokenBucket::full(&EDITS, now)).closed_until = until;
                }
            }
            AttemptOutcome::Failed => {
                let explained = self.failed(row, is_probe, now, jitter);
                self.back_off(row, since, now, jitter, explained);
            }
            AttemptOutcome::Setup => {
                let backoff = RowBackoff {
                    channel: row.channel.clone(),
                    since: None,
                    until: now + SETUP_WAIT,
                    wait: FIRST_WAIT,
                    failures: 0,
                    failed_at: now,
                    own_fault: false,
                };
                self.backoffs.insert(row.place, backoff);
            }
        }
    }

    fn succeeded(&mut self, name: &str, now: Instant) {
        let Some(channel) = self.channels.get_mut(name) else { return };
        channel.failed.clear();
        let age = |since: Instant| now.saturating_duration_since(since);
        let outage = channel.outage.take().filter(|outage| age(outage.since) >= SAME_MOMENT);
        for backoff in self.backoffs.values_mut().filter(|backoff| backoff.channel == name) {
            if outage.is_none() {
                backoff.own_fault |= backoff.failures > 0 && age(backoff.failed_at) < SAME_MOMENT;
                continue;
            }
            // The outage explains their failures: they get their places back, and their threads another chance to
            // begin.
            backoff.until = now;
            if !backoff.own_fault {
                backoff.since = backoff.since.map(|_| now);
                backoff.failures = backoff.failures.min(STAND_IN_AFTER);
            }
        }
    }

    /// Counts a failure of the channel; returns true for a probe, whose failure the outage explains.
    fn failed(&mut self, row: &OutboxRow, is_probe: bool, now: Instant, jitter: f64) -> bool {
        let own_fault = self.backoffs.get(&row.place).is_some_and(|backoff| backoff.own_fault);
        let channel = self.channels.entry(row.channel.clone()).or_default();
        let paused = |pause: Duration| now + pause.mul_f64(0.5 + 0.5 * jitter);
        if let Some(outage) = &mut channel.outage {
            if is_probe {
                outage.pause = (outage.pause * 2).min(MAX_PAUSE);
                outage.probe_at = paused(outage.pause);
            }
            return is_probe && !own_fault;
        }
        if own_fault {
            return false;
        }
        channel.failed.insert(row.place);
        if channel.failed.len() >= OUTAGE_FAILURES {
            let probe_at = paused(FIRST_WAIT);
            channel.outage = Some(ChannelOutage { since: now, pause: FIRST_WAIT, probe_at, fresh_at: now });
        }
        false
    }

    /// Backs off: twice as long as before, unless the outage explains the failure.
    fn back_off(&mut self, row: &OutboxRow, since: Instant, now: Instant, jitter: f64, explained: bool) {
        let before = self.backoffs.get(&row.place);
        let wait = match before {
            None => FIRST_WAIT,
            Some(before) if explained => before.wait,
            Some(before) => (before.wait * 2).min(MAX_WAIT),
        };
        let backoff = RowBackoff {
            channel: row.channel.clone(),
            since: before.and_then(|before| before.since).or(Some(since)),
            until: now + wait.mul_f64(0.5 + 0.5 * jitter),
            wait,
            failures: before.map_or(0, |before| before.failures).saturating_add(1),
            failed_at: now,
            own_fault: before.is_some_and(|before| before.own_fault),
        };
        self.backoffs.insert(row.place, backoff);
    }

    /// Forgets all failures, because Slack is connected again.
    pub(super) fn reset_backoff(&mut self) {
        self.backoffs.clear();
        for channel in self.channels.values_mut() {
            channel.failed.clear();
            channel.outage = None;
        }
    }

    /// Forgets rows that are no longer unsent.
    pub(super) fn forget(&mut self, rows: &[OutboxRow]) {
        let known: HashSet<i64> = rows.iter().map(|row| row.place).collect();
        self.backoffs.retain(|place, _| known.contains(place));
        self.status_at.retain(|_, at| at.elapsed() < STATUS_MEMORY);
    }
}

#[cfg(test)]
mod tests;

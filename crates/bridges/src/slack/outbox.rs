//! Which message may be sent next: pure, with time as a number.
//!
//! ```text
//!   posts    in order within a thread, threads beside each other; a bucket of tokens per channel
//!   edits    each message for itself, only its latest state; one bucket, of which cards that wait get the last tokens
//!   failing  a row that fails waits (longer each time). It keeps its place in its thread for a second; then the others pass
//!   outage   three rows of a channel fail and none succeeds: one failed row at a time is tried, less and less often; a row
//!            that was never tried goes out all the same, one per second. The first success ends it. So a few rows that
//!            Slack cannot take never hold up the others, and a Slack that is down is not asked all the time. A row that
//!            fails while others succeed does not count: that is its own fault
//! ```
//! Channels know nothing of each other. The rows are the store's; what is kept here is only who is on the way and who has to
//! wait, and may be lost.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// Slack wants one message per second in a channel, and lets bursts pass.
const POSTS: RefillRate = RefillRate { burst: 20.0, per_second: 1.0 };
/// "50 and more per minute".
const EDITS: RefillRate = RefillRate { burst: 30.0, per_second: 0.8 };
/// Tokens that status cards leave to cards that wait for somebody.
const RESERVE: f64 = 8.0;
/// Tokens of a channel that posts which failed again and again leave to the others.
const RETRY_RESERVE: f64 = 5.0;
/// A status card is not edited more often.
const STATUS_EVERY: Duration = Duration::from_secs(2);
/// For how long it is known when a status card was edited, so that others have their turn.
const TURNS: Duration = Duration::from_mins(10);
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_mins(1);
/// Until a person has set something right.
const SETUP_WAIT: Duration = Duration::from_secs(15);
/// For how long the posts of a thread wait for one that fails or hangs.
const KEEPS_PLACE: Duration = Duration::from_secs(1);
/// Failures of a post after which a plain line stands in for it: the thread and the people need something to hold on to.
const STAND_IN_AFTER: u32 = 3;
/// Failures of a thread's root, stand-ins included, after which cards that wait for somebody are posted beside the thread.
const ROOTLESS_AFTER: u32 = 5;
/// So many different rows of a channel fail, and none succeeds between them: an outage.
const OUTAGE: usize = 3;
const LONGEST_PAUSE: Duration = Duration::from_secs(20);
/// During an outage, how often a row goes out that was not tried before.
const FRESH_EVERY: Duration = Duration::from_secs(1);
/// A row that fails within this time of a success of others fails by itself. After a longer outage, those that failed in it
/// are tried at once.
const SAME_TIME: Duration = Duration::from_secs(5);
/// At most so many calls at the same time.
const AT_ONCE: usize = 64;

struct RefillRate {
    burst: f64,
    per_second: f64,
}

/// A message that Slack does not have as it should be.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct OutboxRow {
    pub(super) place: i64,
    pub(super) key: String,
    pub(super) channel: String,
    /// The sequence that is sent in order: a thread, or a single message.
    pub(super) lane: String,
    /// The thread that it belongs to is there, or it needs none.
    pub(super) rooted: bool,
    pub(super) sort: SendKind,
    /// It waits for somebody.
    pub(super) open: bool,
}

/// The kind of call that a row needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum SendKind {
    #[default]
    Post,
    Edit,
    /// The root of a thread is edited, or what an agent is saying: of all edits the least important ones, and there is no
    /// end of them.
    Status,
}

impl OutboxRow {
    fn is_post(&self) -> bool {
        self.sort == SendKind::Post
    }

    fn is_status(&self) -> bool {
        self.sort == SendKind::Status
    }

    /// A clearance or a question that somebody has to see.
    pub(super) fn is_pending_card(&self) -> bool {
        self.open && ["clr_", "qst_"].iter().any(|prefix| self.key.starts_with(prefix))
    }
}

/// The outcome of one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AttemptOutcome {
    Done,
    /// A plain line is there in its place; the message itself is still to come.
    StoodIn,
    /// Slack is too busy for us.
    Slow(Duration),
    /// A fault that may pass.
    Failed,
    /// A fault that a person must mend.
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

    /// Takes a token, or says when there is one beyond those that are kept back.
    fn take(&mut self, rate: &RefillRate, keep: f64, now: Instant) -> Result<(), Instant> {
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
        // Not so short that it is no time at all.
        let wait = Duration::from_secs_f64((needed - self.tokens) / rate.per_second);
        Err(now + wait.max(Duration::from_millis(1)))
    }
}

/// A row on its way.
#[derive(Debug)]
struct InFlightRow {
    row: OutboxRow,
    since: Instant,
    /// It failed before, and is tried to see whether an outage is over.
    is_probe: bool,
}

/// A row that failed.
#[derive(Debug)]
struct RowBackoff {
    channel: String,
    /// When its thread began to wait for it; `None` if it keeps its place until somebody has mended something.
    since: Option<Instant>,
    /// When it is tried again, and how long that was.
    until: Instant,
    wait: Duration,
    failures: u32,
    failed_at: Instant,
    /// It failed while others succeeded.
    own_fault: bool,
}

/// A channel in which nothing succeeds.
#[derive(Debug)]
struct ChannelOutage {
    since: Instant,
    pause: Duration,
    /// When a row that failed may be tried, and when one that did not.
    probe_at: Instant,
    fresh_at: Instant,
}

#[derive(Debug, Default)]
struct ChannelState {
    posts: Option<TokenBucket>,
    /// Rows that failed since something succeeded. At most [`OUTAGE`] are counted.
    failed: HashSet<i64>,
    outage: Option<ChannelOutage>,
}

#[derive(Debug, Default)]
pub(super) struct SlackOutbox {
    flying: HashMap<i64, InFlightRow>,
    setbacks: HashMap<i64, RowBackoff>,
    status_at: HashMap<i64, Instant>,
    channels: HashMap<String, ChannelState>,
    edits: Option<TokenBucket>,
}

/// A row to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SendAttempt {
    pub(super) row: OutboxRow,
    /// True to send a plain line, because the message itself has failed again and again.
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
    /// Takes what it plans as being on its way.
    pub(super) fn plan(&mut self, rows: &[OutboxRow], now: Instant) -> SendPlan {
        let mut plan = SendPlan::default();
        let heads = self.heads(rows, now, &mut plan);
        let mut order: Vec<&OutboxRow> = rows.iter().collect();
        order.sort_by_key(|row| self.rank(row));
        for row in order {
            if self.flying.len() >= AT_ONCE {
                break;
            }
            let its_turn = !row.is_post() || heads.contains(&row.place);
            if !its_turn || self.flying.contains_key(&row.place) {
                continue;
            }
            match self.admit(row, now) {
                Ok(is_probe) => {
                    self.flying.insert(row.place, InFlightRow { row: row.clone(), since: now, is_probe });
                    let failures = self.setbacks.get(&row.place).map_or(0, |setback| setback.failures);
                    let stand_in = row.is_post() && failures >= STAND_IN_AFTER;
                    plan.send.push(SendAttempt { row: row.clone(), stand_in });
                }
                Err(Some(at)) => plan.later(at),
                Err(None) => {}
            }
        }
        plan
    }

    /// The posts whose turn it is: the first of each thread, and those that were passed.
    fn heads(&self, rows: &[OutboxRow], now: Instant, plan: &mut SendPlan) -> HashSet<i64> {
        let failures = |row: &OutboxRow| self.setbacks.get(&row.place).map_or(0, |setback| setback.failures);
        let dead_roots: HashSet<&str> = rows
            .iter()
            .filter(|row| row.is_post() && row.key == row.lane && failures(row) >= ROOTLESS_AFTER)
            .map(|row| row.lane.as_str())
            .collect();
        let can_go = |row: &&OutboxRow| {
            row.is_post() && (row.rooted || (row.is_pending_card() && dead_roots.contains(row.lane.as_str())))
        };
        let is_passed =
            |row: &&OutboxRow| self.keeps_place_until(row.place).is_some_and(|until| until <= now);
        let posts: Vec<&OutboxRow> = rows.iter().filter(can_go).collect();
        let mut heads: HashSet<i64> = posts.iter().copied().filter(is_passed).map(|row| row.place).collect();
        // A thread waits once: where one was passed already, the next one that fails is passed at once.
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
            // A post on its way is not overtaken, also if an older one has appeared since.
            let rank = |row: &OutboxRow| (!self.flying.contains_key(&row.place), row.place);
            if rank(row) < rank(head) {
                *head = row;
            }
        }
        for row in posts.iter().filter(|row| !heads.contains(&row.place)) {
            let head = first[row.lane.as_str()];
            if head.place != row.place
                && let Some(until) = self.keeps_place_until(head.place)
            {
                plan.later(until);
            }
        }
        heads.extend(first.values().map(|row| row.place));
        heads
    }

    /// When the posts behind a row may pass it, if it has failed or is on its way.
    fn keeps_place_until(&self, place: i64) -> Option<Instant> {
        let since = match self.setbacks.get(&place) {
            Some(setback) => setback.since,
            None => self.flying.get(&place).map(|flight| flight.since),
        };
        since.map(|since| since + KEEPS_PLACE)
    }

    /// The order in which rows are looked at. What waits for somebody goes first; among equals, what has not failed. Status
    /// cards take turns: there may be more to show than Slack takes, and none may be left out for ever. During an outage
    /// failed rows take turns as well: the first of them may be the one that Slack cannot take.
    fn rank(&self, row: &OutboxRow) -> (u8, Option<Instant>, Option<Instant>, i64) {
        let tried_again = self.setbacks.get(&row.place).map(|setback| setback.until);
        let outage = self.channels.get(&row.channel).is_some_and(|channel| channel.outage.is_some());
        let sort = match row {
            _ if outage && tried_again.is_some() => 3,
            row if row.is_status() => 2,
            row => u8::from(!row.open),
        };
        let shown_at = self.status_at.get(&row.place).copied().filter(|_| row.is_status());
        (sort, tried_again, shown_at, row.place)
    }

    /// Says whether it is a probe, or when it may go; `None` is when another one has landed.
    fn admit(&mut self, row: &OutboxRow, now: Instant) -> Result<bool, Option<Instant>> {
        let until = self.setbacks.get(&row.place).map(|setback| setback.until);
        let failures = self.setbacks.get(&row.place).map_or(0, |setback| setback.failures);
        let failed = until.is_some();
        let probing = self.flying.values().any(|flight| flight.is_probe && flight.row.channel == row.channel);
        let channel = self.channels.entry(row.channel.clone()).or_default();
        let outage = channel.outage.as_ref();
        let gate = outage.map(|outage| if failed { outage.probe_at } else { outage.fresh_at });
        if let Some(at) = until.max(gate).filter(|at| *at > now) {
            return Err(Some(at));
        }
        if outage.is_some() && failed && probing {
            return Err(None);
        }
        if row.is_post() {
            let often = failures >= if row.open { ROOTLESS_AFTER } else { 2 };
            let keep = if often { RETRY_RESERVE } else { 0.0 };
            channel.posts.get_or_insert_with(|| TokenBucket::full(&POSTS, now)).take(&POSTS, keep, now)?;
        } else {
            let status = row.is_status();
            let shown_at = self.status_at.get(&row.place).map(|at| *at + STATUS_EVERY);
            if let Some(at) = shown_at.filter(|at| status && *at > now) {
                return Err(Some(at));
            }
            let keep = if status { RESERVE } else { 0.0 };
            self.edits.get_or_insert_with(|| TokenBucket::full(&EDITS, now)).take(&EDITS, keep, now)?;
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

    /// An attempt is over. `jitter` is between 0 and 1.
    pub(super) fn finish_attempt(
        &mut self,
        row: &OutboxRow,
        fate: AttemptOutcome,
        now: Instant,
        jitter: f64,
    ) {
        let flight = self.flying.remove(&row.place);
        let since = flight.as_ref().map_or(now, |flight| flight.since);
        let is_probe = flight.is_some_and(|flight| flight.is_probe);
        match fate {
            AttemptOutcome::Done => {
                self.setbacks.remove(&row.place);
                self.succeeded(&row.channel, now);
            }
            AttemptOutcome::StoodIn => {
                // What it stands for is an edit from now on, and may well succeed as such.
                self.setbacks.remove(&row.place);
                self.succeeded(&row.channel, now);
                self.set_back(row, since, now, jitter, false);
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
                let out = self.failed(row, is_probe, now, jitter);
                self.set_back(row, since, now, jitter, out);
            }
            AttemptOutcome::Setup => {
                let setback = RowBackoff {
                    channel: row.channel.clone(),
                    since: None,
                    until: now + SETUP_WAIT,
                    wait: FIRST_WAIT,
                    failures: 0,
                    failed_at: now,
                    own_fault: false,
                };
                self.setbacks.insert(row.place, setback);
            }
        }
    }

    fn succeeded(&mut self, name: &str, now: Instant) {
        let Some(channel) = self.channels.get_mut(name) else { return };
        channel.failed.clear();
        let age = |since: Instant| now.saturating_duration_since(since);
        let outage = channel.outage.take().filter(|outage| age(outage.since) >= SAME_TIME);
        for setback in self.setbacks.values_mut().filter(|setback| setback.channel == name) {
            if outage.is_none() {
                setback.own_fault |= setback.failures > 0 && age(setback.failed_at) < SAME_TIME;
                continue;
            }
            // Nothing can be said about them: they have their places again, and their threads another chance to begin.
            setback.until = now;
            if !setback.own_fault {
                setback.since = setback.since.map(|_| now);
                setback.failures = setback.failures.min(STAND_IN_AFTER);
            }
        }
    }

    /// Counts a failure of the channel; says whether it was a probe, which an outage explains.
    fn failed(&mut self, row: &OutboxRow, is_probe: bool, now: Instant, jitter: f64) -> bool {
        let own_fault = self.setbacks.get(&row.place).is_some_and(|setback| setback.own_fault);
        let channel = self.channels.entry(row.channel.clone()).or_default();
        let paused = |pause: Duration| now + pause.mul_f64(0.5 + 0.5 * jitter);
        if let Some(outage) = &mut channel.outage {
            if is_probe {
                outage.pause = (outage.pause * 2).min(LONGEST_PAUSE);
                outage.probe_at = paused(outage.pause);
            }
            return is_probe && !own_fault;
        }
        if own_fault {
            return false;
        }
        channel.failed.insert(row.place);
        if channel.failed.len() >= OUTAGE {
            let probe_at = paused(FIRST_WAIT);
            channel.outage = Some(ChannelOutage { since: now, pause: FIRST_WAIT, probe_at, fresh_at: now });
        }
        false
    }

    /// The row waits: twice as long as before, unless it was tried only to see whether an outage is over.
    fn set_back(&mut self, row: &OutboxRow, since: Instant, now: Instant, jitter: f64, out: bool) {
        let before = self.setbacks.get(&row.place);
        let wait = match before {
            None => FIRST_WAIT,
            Some(before) if out => before.wait,
            Some(before) => (before.wait * 2).min(LONGEST_WAIT),
        };
        let setback = RowBackoff {
            channel: row.channel.clone(),
            since: before.and_then(|before| before.since).or(Some(since)),
            until: now + wait.mul_f64(0.5 + 0.5 * jitter),
            wait,
            failures: before.map_or(0, |before| before.failures).saturating_add(1),
            failed_at: now,
            own_fault: before.is_some_and(|before| before.own_fault),
        };
        self.setbacks.insert(row.place, setback);
    }

    /// Slack was heard of: no need to wait any longer.
    pub(super) fn reset_backoff(&mut self) {
        self.setbacks.clear();
        for channel in self.channels.values_mut() {
            channel.failed.clear();
            channel.outage = None;
        }
    }

    /// Forgets rows that are no longer unsent.
    pub(super) fn forget(&mut self, rows: &[OutboxRow]) {
        let known: HashSet<i64> = rows.iter().map(|row| row.place).collect();
        self.setbacks.retain(|place, _| known.contains(place));
        self.status_at.retain(|_, at| at.elapsed() < TURNS);
    }
}

#[cfg(test)]
mod tests;

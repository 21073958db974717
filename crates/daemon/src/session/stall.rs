//! Knowing why an agent is quiet: what it said, what its processes do, and what follows from both. Pure.
//!
//! ```text
//!   talk    the last output, progress, or word of a person; heartbeats count, but not for ever
//!   stir    the last look that found its processes at work: CPU, I/O, network
//!
//!   waiting for you       something is open                       (never a stall)
//!   waiting for service   it told of a limit that is not over yet (never a stall)
//!   idle                  no turn
//!   working               talk or stir a moment ago
//!   quiet                 neither, for a while
//!   stuck                 neither, past the threshold; or stir without talk past a longer one
//!   gone                  a process of it is stopped
//! ```
//!
//! [`ladder`] decides what is done about the last two. Everything here is part of the session's snapshot, so that the
//! time spent quiet counts across restarts of the daemon.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use intercom_host::ProcessActivity;
use intercom_types::{AgentCondition, LadderChoice, Rung, RunningWork, Situation, Time};

mod ladder;
#[cfg(test)]
pub(super) mod tests;

pub(super) use ladder::{LadderMove, PerformedStep, StallEpisode};

/// Tools that are remembered as open; what begins beyond it is not named to people.
const MAX_TOOLS: usize = 64;
/// Characters of what people are shown of a name that an agent has given.
const MAX_NAME: usize = 60;
/// Nothing is waited for longer than this, whatever an agent says.
const LONGEST_LIMIT: Duration = Duration::from_hours(7 * 24);
/// Looked at this often when nothing is due.
const IDLE_PACE: Duration = Duration::from_mins(1);
/// A moment: less than this is not worth a word.
const MOMENT: Duration = Duration::from_secs(30);
/// Looks closer together than this say nothing about activity.
const SHORTEST_PACE: Duration = Duration::from_millis(250);
const LONGEST_PACE: Duration = Duration::from_secs(30);
/// From here on processes are at work, per second: an idle event loop with its timers stays below.
const BUSY_CPU_MILLIS: u64 = 20;
const BUSY_IO_BYTES: u64 = 16 * 1024;
const BUSY_NET_BYTES: u64 = 16;
/// The longest time that an agent may take to read a line of ours; a part of `verify` where that is shorter.
const READING: Duration = Duration::from_secs(1);
/// The system's clock for processes ticks, and ours does not.
const TICK_MILLIS: i64 = 1000;
/// Why an agent that says nothing counts as working.
pub(super) const BUSY: &str = "busy";
/// A limit whose end is not told is asked about again after this.
const UNTOLD_LIMIT: Duration = Duration::from_mins(15);
/// The number of times in a row that an agent is told that its limit is over.
const MAX_RESUMES: u32 = 10;

/// The times after which an agent counts as stuck. `None` is never.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StallThresholds {
    /// Nothing said, nothing runs.
    pub silent_after: Option<Duration>,
    /// A tool or a process runs, with no CPU, I/O or network activity.
    pub no_cpu_after: Option<Duration>,
    /// Its processes are busy, but it says nothing.
    pub busy_after: Option<Duration>,
    /// Heartbeats without progress count as life this long.
    pub heartbeats_count_for: Option<Duration>,
    /// A process of it is stopped.
    pub stopped_after: Option<Duration>,
}

/// The policy for watching sessions: thresholds, the ladder, restarts, spending caps. `None` is never.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchPolicy {
    pub ladder: Vec<Rung>,
    pub thresholds: StallThresholds,
    /// The time that a step may take to work before the next.
    pub verify: Duration,
    /// Silence after an interrupt that ends the turn, if the agent does not say that it has ended.
    pub interrupt_quiet: Duration,
    /// Something waits for people.
    pub remind_after: Option<Duration>,
    pub nudge_text: String,
    pub reprompt_text: String,
    /// Tells the agent to go on when its limit is over, if that is not further away than this.
    pub resume_after_limit: Option<Duration>,
    pub resume_text: String,
    pub restart: super::restart::RestartTerms,
    pub spend: SpendCaps,
    /// The reason of a denial is told as a prompt where the protocol has no place for it.
    pub reason_as_prompt: bool,
    /// The advice for an agent that acts without asking, where none of its modes is known to ask.
    pub asking_advice: Option<String>,
}

/// Spending caps, in millionths, beyond which no new turn begins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpendCaps {
    pub per_session: Option<u64>,
    pub per_day: Option<u64>,
}

impl WatchPolicy {
    /// Nothing is watched and nothing restarted.
    pub fn off() -> Self {
        Self {
            ladder: Vec::new(),
            thresholds: StallThresholds::default(),
            verify: MOMENT,
            interrupt_quiet: Duration::from_secs(5),
            remind_after: None,
            nudge_text: String::new(),
            reprompt_text: String::new(),
            resume_after_limit: None,
            resume_text: String::new(),
            restart: super::restart::RestartTerms::never(),
            spend: SpendCaps::default(),
            reason_as_prompt: false,
            asking_advice: None,
        }
    }

    /// Returns the interval between looks at a quiet agent: several fit in before something is due.
    fn pace(&self, is_stall: bool) -> Duration {
        let stopped = self.thresholds.stopped_after.map(|after| after.saturating_mul(4)); // there is nothing to be measured
        let thresholds = [
            self.thresholds.silent_after,
            self.thresholds.no_cpu_after,
            stopped,
            is_stall.then_some(self.verify),
        ];
        let shortest = thresholds.into_iter().flatten().min().unwrap_or(LONGEST_PACE);
        (shortest / 8).clamp(SHORTEST_PACE, LONGEST_PACE)
    }
}

/// The session's current activity, by its own state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchSetting {
    pub now: Time,
    /// The start of its process.
    pub started: Time,
    /// Since when a turn runs.
    pub turn: Option<Time>,
    /// Something is open for a person.
    pub open: bool,
}

/// A limit of its service that an agent told of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReachedLimit {
    pub kind: String,
    pub since: Time,
    pub until: Time,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct ActivitySample {
    at: Time,
    activity: ProcessActivity,
    /// It was compared with an earlier one.
    measured: bool,
}

/// The last looks of this daemon.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct RecentLooks {
    sample: Option<ActivitySample>,
    /// When it was classified last.
    classified_at: Option<Time>,
    /// The time at which the snapshot last had this record.
    saved_at: Option<Time>,
}

/// The record of an agent's activity. Part of the session's snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActivityTracker {
    #[serde(rename = "said")]
    last_sign_of_life: Option<Time>,
    #[serde(rename = "beat")]
    last_heartbeat: Option<Time>,
    /// Stands for the progress of the last heartbeat.
    progress: Option<u64>,
    #[serde(rename = "stirred")]
    last_busy: Option<Time>,
    /// When a line of ours reached it last, of those that were sent because of a stall.
    #[serde(rename = "told")]
    last_delivery: Option<Time>,
    /// Since when a process of it is seen stopped.
    #[serde(rename = "stopped")]
    stopped_since: Option<Time>,
    tools: BTreeMap<String, RunningWork>,
    /// Not kept: what it has said since an earlier daemon looked may still be on its way to us.
    #[serde(skip)]
    recent: RecentLooks,
    pub(super) limit: Option<ReachedLimit>,
    /// The number of times in a row that it was told that a limit was over.
    #[serde(rename = "resumes")]
    resume_count: u32,
    #[serde(rename = "waiting")]
    waiting_since: Option<Time>,
    reminders: u32,
    pub(super) snoozed_until: Option<Time>,
    #[serde(rename = "choice")]
    pub(super) ladder_choice: LadderChoice,
    episode: Option<StallEpisode>,
    relapse: Option<ladder::StallRelapse>,
}

impl ActivityTracker {
    /// The agent said something, or a person did: the clock begins anew.
    pub(super) fn record_sign_of_life(&mut self, now: Time) {
        self.last_sign_of_life = Some(now);
    }

    /// A line of ours has reached it. While it is stuck, reading that is not its own work.
    pub(super) fn record_delivery(&mut self, now: Time) {
        if self.episode.is_some() {
            self.last_delivery = Some(now);
        }
    }

    pub(super) fn beat(&mut self, progress: u64, now: Time) {
        self.last_heartbeat = Some(now);
        if self.progress.replace(progress) != Some(progress) {
            self.record_sign_of_life(now);
        }
    }

    /// A tool call that it told of begins, goes on, or is over.
    pub(super) fn tool(&mut self, id: &str, name: &str, open: bool, now: Time) {
        let id = if id.len() <= MAX_NAME { Cow::Borrowed(id) } else { Cow::Owned(digest(id)) };
        if !open {
            self.tools.remove(&*id);
        } else if self.tools.len() < MAX_TOOLS || self.tools.contains_key(&*id) {
            let running = || RunningWork { name: short(name), since: now };
            self.tools.entry(id.into_owned()).or_insert_with(running);
        }
    }

    /// Forgets the tools that ran in the turn, because they run no longer.
    pub(super) fn turn_over(&mut self, cancelled: bool) {
        self.tools.clear();
        if !cancelled {
            self.relapse = None;
        }
    }

    /// A new process: nothing is known of it.
    pub(super) fn reset_for_process(&mut self, now: Time) {
        let Self { snoozed_until, ladder_choice, episode, relapse, resume_count, .. } = std::mem::take(self);
        *self = Self { resume_count, snoozed_until, ladder_choice, episode, relapse, ..Self::default() };
        self.record_sign_of_life(now);
    }

    pub(super) fn limited(&mut self, kind: &str, until: Option<Time>, now: Time) {
        let until = until.unwrap_or_else(|| now.plus(UNTOLD_LIMIT)).min(now.plus(LONGEST_LIMIT));
        self.limit = Some(ReachedLimit { kind: short(kind), since: now, until });
    }

    /// It does something that takes its service.
    pub(super) fn unlimited(&mut self) {
        self.limit = None;
        self.resume_count = 0;
    }

    /// Takes in the activity of its processes, as of now. `None` where that cannot be seen.
    pub(super) fn look(&mut self, activity: Option<ProcessActivity>, now: Time, policy: &WatchPolicy) {
        self.rewind(now);
        // Far more time has passed than was waited for: the machine slept, and the agent with it.
        if self.recent.sample.as_ref().is_some_and(|look| now.since(look.at) > IDLE_PACE * 5) {
            self.recent.sample = None;
            self.record_sign_of_life(now);
        }
        let Some(activity) = activity else {
            (self.recent.sample, self.stopped_since) = (None, None);
            return;
        };
        match &activity.stopped {
            None => self.stopped_since = None,
            Some(_) => {
                self.stopped_since.get_or_insert(now);
            }
        }
        // What it did while it still talked says nothing about what it does now.
        let talk = self.talk(policy);
        let before =
            self.recent.sample.take().filter(|look| talk.is_none_or(|talk| look.at > talk) && look.at < now);
        if let Some(before) = &before
            && now.since(before.at) < SHORTEST_PACE
        {
            self.recent.sample = Some(before.clone());
            return;
        }
        let reading = READING.min(policy.verify / 4);
        let reads =
            |before: &ActivitySample| self.last_delivery.is_some_and(|told| before.at < told.plus(reading));
        let works = |before: &ActivitySample| stirs(&before.activity, &activity, now.since(before.at));
        if before.as_ref().is_some_and(|before| works(before) && !reads(before)) {
            self.last_busy = Some(now);
        }
        self.recent.sample = Some(ActivitySample { at: now, activity, measured: before.is_some() });
    }

    /// A clock that was set back: what lies in its future is now.
    fn rewind(&mut self, now: Time) {
        let times = [
            &mut self.last_sign_of_life,
            &mut self.last_heartbeat,
            &mut self.last_busy,
            &mut self.last_delivery,
            &mut self.stopped_since,
            &mut self.waiting_since,
        ];
        for time in times.into_iter().flatten() {
            *time = (*time).min(now);
        }
        if self.recent.sample.as_ref().is_some_and(|look| look.at > now) {
            self.recent.sample = None;
        }
    }

    /// The last sign of life that it gave by itself, or a word of a person.
    pub(super) fn talk(&self, policy: &WatchPolicy) -> Option<Time> {
        let said = self.last_sign_of_life?;
        let beats = self.last_heartbeat.map(|beat| match policy.thresholds.heartbeats_count_for {
            None => beat,
            Some(long) => beat.min(said.plus(long)),
        });
        Some(said.max(beats.unwrap_or(said)))
    }

    /// Returns what is running: a tool that it told of, or the first process that began in this turn.
    fn running(&self, setting: &WatchSetting) -> Option<RunningWork> {
        let told = self.tools.values().min_by_key(|tool| tool.since).cloned();
        told.or_else(|| {
            let (look, turn) = (self.recent.sample.as_ref()?, setting.turn?.minus_millis(TICK_MILLIS));
            let began = |age: u64| look.at.minus_millis(i64::try_from(age).unwrap_or(i64::MAX));
            let children = look.activity.children.iter().filter(|child| !child.is_part);
            let children = children
                .map(|child| RunningWork { name: child.name.clone(), since: began(child.age_millis) });
            children.into_iter().find(|child| child.since >= turn)
        })
    }

    /// Where it stands, and why.
    pub(super) fn condition(&self, setting: &WatchSetting, policy: &WatchPolicy) -> AgentCondition {
        let WatchSetting { now, started, turn, open } = *setting;
        let condition = |state, since| AgentCondition {
            snoozed_until: self.snoozed_until.filter(|until| *until > now),
            ladder_off: self.rungs(policy).is_empty(),
            ..AgentCondition::new(state, since)
        };
        if open {
            return condition(Situation::WaitingForYou, self.waiting_since.unwrap_or(now));
        }
        if let Some(limit) = &self.limit {
            let (why, until) = (format!("{} limit", limit.kind), Some(limit.until));
            return AgentCondition { why, until, ..condition(Situation::WaitingForService, limit.since) };
        }
        let talk = self.talk(policy).or(turn).unwrap_or(started);
        let stirred = self.last_busy.filter(|stirred| *stirred > talk);
        let busy = stirred.is_some() && stirred == self.recent.sample.as_ref().map(|look| look.at);
        if let (Some(since), Some(after)) = (self.stopped_since, policy.thresholds.stopped_after)
            && !busy
            && now.since(since.max(talk)) >= after
        {
            let name = self
                .recent
                .sample
                .as_ref()
                .and_then(|look| look.activity.stopped.clone())
                .unwrap_or_default();
            let (why, done) = (format!("{name} is stopped by a signal"), self.done(policy));
            return AgentCondition { why, done, ..condition(Situation::Gone, since) };
        }
        let Some(turn) = turn else { return condition(Situation::Idle, started) };
        let running = self.running(setting);
        let too_long = policy.thresholds.busy_after.is_some_and(|after| now.since(talk) >= after);
        let life = if too_long { talk } else { stirred.unwrap_or(talk) };
        let silence = now.since(life);
        // Without a look at its processes, something that it said to be running may be at work.
        let blind = self.recent.sample.is_none();
        let threshold = match &running {
            Some(_) if blind => policy.thresholds.busy_after,
            Some(_) => policy.thresholds.no_cpu_after,
            None => policy.thresholds.silent_after,
        };
        // Two looks are needed to know that nothing happens in between.
        let sure = self.recent.sample.as_ref().is_none_or(|look| look.measured);
        let state = if sure && (too_long || (!busy && threshold.is_some_and(|after| silence >= after))) {
            Situation::Stuck
        } else if busy || silence < MOMENT.min(threshold.unwrap_or(MOMENT) / 2) {
            Situation::Working
        } else {
            Situation::Quiet
        };
        let why = self.reason(busy, running.is_some(), state);
        let done = if state == Situation::Working { None } else { self.done(policy) };
        let since = if state == Situation::Working { turn } else { life };
        AgentCondition { why, running, done, ..condition(state, since) }
    }

    fn reason(&self, busy: bool, running: bool, state: Situation) -> String {
        let Some(look) = &self.recent.sample else {
            return "nothing said, its activity cannot be seen".to_owned();
        };
        let connections = match look.activity.connections {
            Some(0) | None => None,
            Some(1) => Some("1 connection without traffic".to_owned()),
            Some(n) => Some(format!("{n} connections without traffic")),
        };
        match (busy, running) {
            (true, _) if state == Situation::Stuck => "busy, but nothing said".to_owned(),
            (true, _) => BUSY.to_owned(),
            (false, true) => connections.map_or_else(|| "no CPU".to_owned(), |c| format!("no CPU, {c}")),
            (false, false) => {
                format!("nothing said, {}", connections.unwrap_or_else(|| "nothing runs".to_owned()))
            }
        }
    }

    /// When it is to be looked at again.
    pub(super) fn next(&self, setting: &WatchSetting, policy: &WatchPolicy) -> Option<Time> {
        let WatchSetting { now, started, turn, open } = *setting;
        if open {
            let peace = self.snoozed_until.filter(|until| *until > now);
            return self.reminder_due(policy).map(|due| peace.map_or(due, |until| due.max(until)));
        }
        let last = self
            .recent
            .sample
            .as_ref()
            .map_or(started, |look| look.at)
            .max(self.talk(policy).unwrap_or(started));
        // A look that saw nothing was one all the same: there will be another.
        let last = self.recent.classified_at.filter(|at| *at <= now).map_or(last, |at| last.max(at));
        let last = last.min(now); // the clock may have been set back
        let watched = !self.rungs(policy).is_empty() || turn.is_some();
        let pace = match turn {
            Some(_) if self.limit.is_none() && !self.is_exhausted(policy) => {
                policy.pace(self.episode.is_some())
            }
            _ if self.stopped_since.is_some() => policy.pace(true),
            _ => IDLE_PACE,
        };
        let sample = watched.then(|| last.plus(pace));
        let limit = self.limit.as_ref().map(|limit| limit.until.max(now.plus(Duration::from_millis(1))));
        let climb = self.episode.as_ref().and_then(|episode| episode.due(self.rungs(policy)));
        // What was due at the last look was dealt with then. A clock that was set back begins anew.
        let classified_at = self.recent.classified_at.filter(|at| *at <= now);
        let fresh = |time: &Time| classified_at.is_none_or(|classified_at| *time > classified_at);
        [sample, limit, climb, self.snoozed_until].into_iter().flatten().filter(fresh).min()
    }

    /// It was seen at work just now.
    pub(super) fn stirs(&self, now: Time) -> bool {
        self.last_busy == Some(now)
    }

    /// It was classified.
    pub(super) fn mark_classified(&mut self, now: Time) {
        self.recent.classified_at = Some(now);
    }

    /// Returns true if the snapshot should be renewed although little has changed, and notes the renewal.
    pub(super) fn is_stale(&mut self, now: Time, bearable: Duration) -> bool {
        let stale = self.recent.saved_at.is_none_or(|kept| now.since(kept) >= bearable || kept > now);
        if stale {
            self.recent.saved_at = Some(now);
        }
        stale
    }

    pub(super) fn is_snoozed(&self, now: Time) -> bool {
        self.snoozed_until.is_some_and(|until| until > now)
    }

    /// Something is open for a person, or nothing is any more.
    pub(super) fn waits(&mut self, open: bool, now: Time) {
        if !open {
            (self.waiting_since, self.reminders) = (None, 0);
        } else if self.waiting_since.is_none() {
            self.waiting_since = Some(now);
        }
    }

    /// Each reminder comes twice as late as the one before.
    fn reminder_due(&self, policy: &WatchPolicy) -> Option<Time> {
        let after =
            policy.remind_after?.saturating_mul(1_u32.checked_shl(self.reminders).unwrap_or(u32::MAX));
        Some(self.waiting_since?.plus(after))
    }

    /// Since when people are waited for, if they are to be reminded of it now.
    pub(super) fn reminder(&mut self, now: Time, policy: &WatchPolicy) -> Option<Time> {
        if self.is_snoozed(now) || self.reminder_due(policy)? > now {
            return None;
        }
        self.reminders += 1;
        self.waiting_since
    }

    /// The limit that is over now, and whether the agent is told so.
    pub(super) fn limit_over(&mut self, now: Time, policy: &WatchPolicy) -> Option<(ReachedLimit, bool)> {
        if self.limit.as_ref()?.until > now {
            return None;
        }
        let limit = self.limit.take()?;
        let resume = self.resumes(&limit, policy) && !self.is_snoozed(now) && !self.rungs(policy).is_empty();
        self.resume_count += u32::from(resume);
        self.record_sign_of_life(now);
        Some((limit, resume))
    }

    /// Is true if the agent will be told to resume when this limit is over.
    pub(super) fn resumes(&self, limit: &ReachedLimit, policy: &WatchPolicy) -> bool {
        let near = policy.resume_after_limit.is_some_and(|most| limit.until.since(limit.since) <= most);
        near && self.resume_count < MAX_RESUMES
    }
}

/// A name that fits into a line.
fn short(name: &str) -> String {
    let cut: String = name.chars().take(MAX_NAME).collect();
    if cut.len() < name.len() { cut + "…" } else { cut }
}

fn digest(id: &str) -> String {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    format!("#{:x}", hasher.finish())
}

/// Is true if processes were at work between two looks.
fn stirs(before: &ProcessActivity, after: &ProcessActivity, elapsed: Duration) -> bool {
    let millis = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
    let rises = |before: Option<u64>, after: Option<u64>, per_second: u64| match (before, after) {
        // What falls belongs to processes or connections that have ended: something has happened.
        (Some(before), Some(after)) if after < before => true,
        (Some(before), Some(after)) => {
            (after - before).saturating_mul(1000) >= per_second.saturating_mul(millis).max(1)
        }
        _ => false,
    };
    rises(Some(before.cpu_millis), Some(after.cpu_millis), BUSY_CPU_MILLIS)
        || rises(before.io_bytes, after.io_bytes, BUSY_IO_BYTES)
        || rises(before.net_bytes, after.net_bytes, BUSY_NET_BYTES)
}

//! The reason why an agent is quiet, from its output and the activity of its processes. Pure.
//!
//! ```text
//!   talk    the last output, progress, or act of a person; heartbeats count, but only for a while
//!   stir    the last look that found its processes active: CPU, I/O, network
//!
//!   waiting for you       something is open                       (never a stall)
//!   waiting for service   it reported a limit that is not over yet (never a stall)
//!   idle                  no turn
//!   working               talk or stir a moment ago
//!   quiet                 neither, for a while
//!   stuck                 neither, past the threshold; or stir without talk past a longer one
//!   gone                  one of its processes is stopped by a signal
//! ```
//!
//! [`ladder`] decides the steps against the last two. Everything here is part of the session's snapshot, so that the
//! quiet time counts across restarts of the daemon.

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

/// The maximum number of open tools that are tracked; people are not shown the names of further ones.
const MAX_TOOLS: usize = 64;
/// The maximum length of a name from an agent, in characters.
const MAX_NAME: usize = 60;
/// The longest wait for the end of a limit, whatever an agent reports.
const LONGEST_LIMIT: Duration = Duration::from_hours(7 * 24);
/// The interval between looks when nothing is due.
const IDLE_PACE: Duration = Duration::from_mins(1);
/// A shorter quiet time is not reported.
const MOMENT: Duration = Duration::from_secs(30);
/// The shortest interval between two looks that can measure activity.
const SHORTEST_PACE: Duration = Duration::from_millis(250);
const LONGEST_PACE: Duration = Duration::from_secs(30);
/// The CPU time per second above which processes count as active: an idle event loop with its timers stays below.
const BUSY_CPU_MILLIS: u64 = 20;
const BUSY_IO_BYTES: u64 = 16 * 1024;
const BUSY_NET_BYTES: u64 = 16;
/// The time in which an agent reads a line of ours; a quarter of `verify` if that is shorter.
const READING: Duration = Duration::from_secs(1);
/// The resolution of the system's process clock, which is coarser than ours.
const TICK_MILLIS: i64 = 1000;
/// The reason why an agent without output counts as working.
pub(super) const BUSY: &str = "busy";
/// The assumed duration of a limit whose end is not known.
const UNTOLD_LIMIT: Duration = Duration::from_mins(15);
/// The maximum number of times in a row that an agent is told that its limit is over.
const MAX_RESUMES: u32 = 10;

/// The times after which an agent counts as stuck. `None` is never.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct StallThresholds {
    /// The threshold without output and without a running tool or process.
    pub(crate) silent_after: Option<Duration>,
    /// The threshold with a running tool or process, but without CPU, I/O or network activity.
    pub(crate) no_cpu_after: Option<Duration>,
    /// The threshold with active processes, but without output.
    pub(crate) busy_after: Option<Duration>,
    /// The time for which heartbeats without progress count as signs of life.
    pub(crate) heartbeats_count_for: Option<Duration>,
    /// The threshold while a process is stopped by a signal.
    pub(crate) stopped_after: Option<Duration>,
}

/// The policy for watching sessions: thresholds, the ladder, restarts, spending caps. `None` is never.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WatchPolicy {
    pub(crate) ladder: Vec<Rung>,
    pub(crate) thresholds: StallThresholds,
    /// The time that a step has to take effect before the next one.
    pub(crate) verify: Duration,
    /// The silence after an interrupt that ends the turn if the agent does not end it.
    pub(crate) interrupt_quiet: Duration,
    /// The time that a request waits before people are reminded of it.
    pub(crate) remind_after: Option<Duration>,
    pub(crate) nudge_text: String,
    pub(crate) reprompt_text: String,
    /// The longest limit after which the agent is told to continue.
    pub(crate) resume_after_limit: Option<Duration>,
    pub(crate) resume_text: String,
    pub(crate) restart: super::restart::RestartTerms,
    pub(crate) spend: SpendCaps,
    /// True if the reason of a denial is sent as a prompt where the protocol has no place for it.
    pub(crate) reason_as_prompt: bool,
    /// The advice for an agent that acts without asking, if none of its modes is known to ask.
    pub(crate) asking_advice: Option<String>,
}

/// Spending caps, in millionths, beyond which no new turn begins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SpendCaps {
    pub(crate) per_session: Option<u64>,
    pub(crate) per_day: Option<u64>,
}

impl WatchPolicy {
    /// A policy without watching and without restarts.
    pub(crate) fn off() -> Self {
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

    /// Returns the interval between looks at a quiet agent: several fit in before a threshold.
    fn pace(&self, is_stall: bool) -> Duration {
        let stopped = self.thresholds.stopped_after.map(|after| after.saturating_mul(4)); // nothing to measure
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

/// The session's current activity, from its own state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WatchSetting {
    pub(crate) now: Time,
    /// The start of its process.
    pub(crate) started: Time,
    /// The start of the running turn.
    pub(crate) turn: Option<Time>,
    /// True while a request waits for a person.
    pub(crate) open: bool,
}

/// A limit of the agent's service that it reported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReachedLimit {
    pub(crate) kind: String,
    pub(crate) since: Time,
    pub(crate) until: Time,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct ActivitySample {
    at: Time,
    activity: ProcessActivity,
    /// True if it was compared with an earlier sample.
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
pub(crate) struct ActivityTracker {
    #[serde(rename = "said")]
    last_sign_of_life: Option<Time>,
    #[serde(rename = "beat")]
    last_heartbeat: Option<Time>,
    /// A digest of the progress in the last heartbeat.
    progress: Option<u64>,
    #[serde(rename = "stirred")]
    last_busy: Option<Time>,
    /// The time at which the last line that was sent because of a stall reached the agent.
    #[serde(rename = "told")]
    last_delivery: Option<Time>,
    /// The time since which one of its processes is stopped by a signal.
    #[serde(rename = "stopped")]
    stopped_since: Option<Time>,
    tools: BTreeMap<String, RunningWork>,
    /// Not stored: output since an earlier daemon's last look may not have been read yet, so an old sample proves
    /// nothing.
    #[serde(skip)]
    recent: RecentLooks,
    pub(super) limit: Option<ReachedLimit>,
    /// The number of times in a row that the agent was told that a limit was over.
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
    /// Records output of the agent or an act of a person: the quiet time begins anew.
    pub(super) fn record_sign_of_life(&mut self, now: Time) {
        self.last_sign_of_life = Some(now);
    }

    /// Records that a line of ours has reached the agent. During a stall, reading it does not count as the agent's own
    /// work.
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

    /// Records that a tool call begins, continues or ends.
    pub(super) fn tool(&mut self, id: &str, name: &str, open: bool, now: Time) {
        let id = if id.len() <= MAX_NAME { Cow::Borrowed(id) } else { Cow::Owned(digest(id)) };
        if !open {
            self.tools.remove(&*id);
        } else if self.tools.len() < MAX_TOOLS || self.tools.contains_key(&*id) {
            let running = || RunningWork { name: short(name), since: now };
            self.tools.entry(id.into_owned()).or_insert_with(running);
        }
    }

    /// Forgets the tools of the turn, because they no longer run.
    pub(super) fn turn_over(&mut self, cancelled: bool) {
        self.tools.clear();
        if !cancelled {
            self.relapse = None;
        }
    }

    /// Forgets the activity of the last process; the state of the ladder stays.
    pub(super) fn reset_for_process(&mut self, now: Time) {
        let Self { snoozed_until, ladder_choice, episode, relapse, resume_count, .. } = std::mem::take(self);
        *self = Self { resume_count, snoozed_until, ladder_choice, episode, relapse, ..Self::default() };
        self.record_sign_of_life(now);
    }

    pub(super) fn limited(&mut self, kind: &str, until: Option<Time>, now: Time) {
        let until = until.unwrap_or_else(|| now.plus(UNTOLD_LIMIT)).min(now.plus(LONGEST_LIMIT));
        self.limit = Some(ReachedLimit { kind: short(kind), since: now, until });
    }

    /// Records work that needs the service: a limit is over.
    pub(super) fn unlimited(&mut self) {
        self.limit = None;
        self.resume_count = 0;
    }

    /// Takes a sample of its processes' activity; `None` where that cannot be seen.
    pub(super) fn look(&mut self, activity: Option<ProcessActivity>, now: Time, policy: &WatchPolicy) {
        self.rewind(now);
        // The gap is far longer than the timer: the machine was suspended, and the agent with it.
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
        // Activity before its last output says nothing about the time since.
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

    /// Moves times in the future to now, after the clock was set back.
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

    /// Returns the last sign of life of the agent itself, or the last act of a person.
    pub(super) fn talk(&self, policy: &WatchPolicy) -> Option<Time> {
        let said = self.last_sign_of_life?;
        let beats = self.last_heartbeat.map(|beat| match policy.thresholds.heartbeats_count_for {
            None => beat,
            Some(long) => beat.min(said.plus(long)),
        });
        Some(said.max(beats.unwrap_or(said)))
    }

    /// Returns the running work: a tool that the agent reported, or the first process that began in this turn.
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

    /// Returns the agent's condition, and the reason.
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
        // Without a sample of its processes, a tool that it reported may be active.
        let blind = self.recent.sample.is_none();
        let threshold = match &running {
            Some(_) if blind => policy.thresholds.busy_after,
            Some(_) => policy.thresholds.no_cpu_after,
            None => policy.thresholds.silent_after,
        };
        // One sample is not enough: activity is the difference of two.
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
            return "no output, its activity cannot be seen".to_owned();
        };
        let connections = match look.activity.connections {
            Some(0) | None => None,
            Some(1) => Some("1 connection without traffic".to_owned()),
            Some(n) => Some(format!("{n} connections without traffic")),
        };
        match (busy, running) {
            (true, _) if state == Situation::Stuck => "busy, but no output".to_owned(),
            (true, _) => BUSY.to_owned(),
            (false, true) => connections.map_or_else(|| "no CPU".to_owned(), |c| format!("no CPU, {c}")),
            (false, false) => {
                format!("no output, {}", connections.unwrap_or_else(|| "nothing runs".to_owned()))
            }
        }
    }

    /// Returns the time of the next look.
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
        // A failed look counts as well, or the next one would follow at once.
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
        // Deadlines up to the last look were handled by it. After a clock was set back, that look lies in the future
        // and does not count.
        let classified_at = self.recent.classified_at.filter(|at| *at <= now);
        let fresh = |time: &Time| classified_at.is_none_or(|classified_at| *time > classified_at);
        [sample, limit, climb, self.snoozed_until].into_iter().flatten().filter(fresh).min()
    }

    /// Returns true if it was active a moment ago.
    pub(super) fn stirs(&self, now: Time) -> bool {
        self.last_busy == Some(now)
    }

    /// Records the time of a classification.
    pub(super) fn mark_classified(&mut self, now: Time) {
        self.recent.classified_at = Some(now);
    }

    /// Returns true if the snapshot is due although little has changed, and records the renewal.
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

    /// Records whether a request waits for a person.
    pub(super) fn waits(&mut self, open: bool, now: Time) {
        if !open {
            (self.waiting_since, self.reminders) = (None, 0);
        } else if self.waiting_since.is_none() {
            self.waiting_since = Some(now);
        }
    }

    /// Returns the time of the next reminder; the intervals double.
    fn reminder_due(&self, policy: &WatchPolicy) -> Option<Time> {
        let after =
            policy.remind_after?.saturating_mul(1_u32.checked_shl(self.reminders).unwrap_or(u32::MAX));
        Some(self.waiting_since?.plus(after))
    }

    /// Returns the time since which people are waited for, if a reminder is due.
    pub(super) fn reminder(&mut self, now: Time, policy: &WatchPolicy) -> Option<Time> {
        if self.is_snoozed(now) || self.reminder_due(policy)? > now {
            return None;
        }
        self.reminders += 1;
        self.waiting_since
    }

    /// Returns the limit that has ended, and whether the agent is told to continue.
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

    /// Returns true if the agent will be told to continue when this limit is over.
    pub(super) fn resumes(&self, limit: &ReachedLimit, policy: &WatchPolicy) -> bool {
        let near = policy.resume_after_limit.is_some_and(|most| limit.until.since(limit.since) <= most);
        near && self.resume_count < MAX_RESUMES
    }
}

/// Shortens a name so that it fits into a line.
fn short(name: &str) -> String {
    let cut: String = name.chars().take(MAX_NAME).collect();
    if cut.len() < name.len() { cut + "…" } else { cut }
}

fn digest(id: &str) -> String {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    format!("#{:x}", hasher.finish())
}

/// Returns true if processes were active between two samples.
fn stirs(before: &ProcessActivity, after: &ProcessActivity, elapsed: Duration) -> bool {
    let millis = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
    let rises = |before: Option<u64>, after: Option<u64>, per_second: u64| match (before, after) {
        // A counter that falls belongs to processes or connections that have ended, which is activity, too.
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

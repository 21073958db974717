//! The classifier as a table: what is known on the left, what people are told on the right.

use super::*;
use intercom_host::ChildProcess;
use intercom_types::span;

fn at(seconds: i64) -> Time {
    Time::from_millis(1_000_000_000 + seconds * 1000)
}

#[expect(clippy::unnecessary_wraps, reason = "that is what it is for")]
pub(in crate::session) fn minutes(n: u64) -> Option<Duration> {
    Some(Duration::from_mins(n))
}

pub(in crate::session) fn watch_policy() -> WatchPolicy {
    WatchPolicy {
        ladder: Rung::LADDER.to_vec(),
        thresholds: StallThresholds {
            silent_after: minutes(5),
            no_cpu_after: minutes(10),
            busy_after: minutes(120),
            heartbeats_count_for: minutes(30),
            stopped_after: minutes(1),
        },
        verify: Duration::from_mins(2),
        ..WatchPolicy::off()
    }
}

fn asleep() -> ProcessActivity {
    ProcessActivity { cpu_millis: 500, io_bytes: Some(1000), net_bytes: None, ..ProcessActivity::default() }
}

fn setting(now: Time) -> WatchSetting {
    WatchSetting { now, started: at(0), turn: Some(at(0)), open: false }
}

/// Something was said at 0; then it is looked at every 30 seconds, and each time `look` says what is seen.
fn watched(seconds: i64, look: impl Fn(i64) -> Option<ProcessActivity>) -> (ActivityTracker, WatchSetting) {
    let mut watch = ActivityTracker::default();
    watch.record_sign_of_life(at(0));
    for second in (1..=seconds).filter(|second| second % 30 == 0) {
        watch.look(look(second), at(second), &watch_policy());
    }
    (watch, setting(at(seconds)))
}

#[track_caller]
fn check(watch: &ActivityTracker, setting: &WatchSetting, expected: &str) {
    assert_eq!(watch.condition(setting, &watch_policy()).sentence(setting.now), expected);
}

#[test]
fn silence_with_nothing_running() {
    let quiet = |seconds| watched(seconds, |_| Some(asleep()));
    for (seconds, expected) in [
        (20, "working: no output, its activity cannot be seen"),
        (31, "quiet 31s: no output, nothing runs"),
        (299, "quiet 4m: no output, nothing runs"),
        (300, "stuck 5m: no output, nothing runs"),
        (4000, "stuck 1h6m: no output, nothing runs"),
    ] {
        let (watch, setting) = quiet(seconds);
        check(&watch, &setting, expected);
    }
}

#[test]
fn one_look_is_not_enough_to_say_that_nothing_happens() {
    let mut watch = ActivityTracker::default();
    watch.record_sign_of_life(at(0));
    watch.look(Some(asleep()), at(1000), &watch_policy());
    check(&watch, &setting(at(1000)), "quiet 16m: no output, nothing runs");
    watch.look(Some(asleep()), at(1010), &watch_policy());
    check(&watch, &setting(at(1010)), "stuck 16m: no output, nothing runs");
}

#[test]
fn a_tool_that_runs_has_longer() {
    let with_tool = |seconds, look: fn(i64) -> Option<ProcessActivity>| {
        let (mut watch, setting) = watched(seconds, look);
        watch.tool("1", "cargo test", true, at(60));
        (watch, setting)
    };
    let (watch, setting) = with_tool(599, |_| Some(asleep()));
    check(&watch, &setting, "quiet 9m: cargo test running 8m, no CPU");
    let (watch, setting) = with_tool(600, |_| Some(asleep()));
    check(&watch, &setting, "stuck 10m: cargo test running 9m, no CPU");
    // Where its processes cannot be seen, it may be at work.
    let (watch, setting) = with_tool(7199, |_| None);
    check(&watch, &setting, "quiet 1h59m: cargo test running 1h58m, no output, its activity cannot be seen");
    let (mut watch, setting) = with_tool(600, |_| Some(asleep()));
    watch.tool("1", "cargo test", false, at(500));
    check(&watch, &setting, "stuck 10m: no output, nothing runs");
}

#[test]
fn a_busy_tree_is_at_work_but_not_for_ever() {
    let compiling = |second: i64| {
        let age_millis = u64::try_from((second - 60) * 1000).ok()?;
        let children = vec![ChildProcess { is_part: false, name: "rustc".to_owned(), age_millis }];
        Some(ProcessActivity { cpu_millis: u64::try_from(second * 900).ok()?, children, ..asleep() })
    };
    let (watch, setting) = watched(7000 / 30 * 30, compiling);
    check(&watch, &setting, "working: rustc running 1h55m, busy");
    let (watch, setting) = watched(7200, compiling);
    check(&watch, &setting, "stuck 2h: rustc running 1h59m, busy, but no output");
    // What began before the turn is no tool: a server of its own, for instance.
    let server = |_| {
        let children = vec![ChildProcess { is_part: false, name: "mcp".to_owned(), age_millis: 90_000_000 }];
        Some(ProcessActivity { children, ..asleep() })
    };
    let (watch, setting) = watched(330, server);
    check(&watch, &setting, "stuck 5m: no output, nothing runs");
}

#[test]
fn every_counter_is_activity_and_none_is_needed() {
    type Change = fn(&mut ProcessActivity, u64);
    let changes: &[(Change, bool)] = &[
        (|seen, n| seen.cpu_millis += n * 2000, true),
        (|seen, n| seen.cpu_millis += n, false),
        (|seen, n| seen.io_bytes = Some(n * 1_000_000), true),
        (|seen, n| seen.io_bytes = Some(n * 100), false),
        (|seen, n| seen.net_bytes = Some(n * 1_000), true),
        (|seen, n| seen.net_bytes = Some(n * 17), false), // pings
        (|seen, n| (seen.io_bytes, seen.net_bytes, seen.cpu_millis) = (None, None, 1000 - n), true),
        (|seen, _| (seen.io_bytes, seen.net_bytes) = (None, None), false),
    ];
    for (at, (change, works)) in changes.iter().enumerate() {
        let look = |second: i64| {
            let mut seen = asleep();
            change(&mut seen, u64::try_from(second / 30).unwrap());
            Some(seen)
        };
        let (watch, setting) = watched(900, look);
        let expected = if *works { Situation::Working } else { Situation::Stuck };
        assert_eq!(watch.condition(&setting, &watch_policy()).state, expected, "change {at}");
    }
}

#[test]
fn heartbeats_count_but_not_for_ever() {
    let beating = |progress: fn(i64) -> u64, seconds: i64| {
        let mut watch = ActivityTracker::default();
        watch.record_sign_of_life(at(0));
        for second in (1..=seconds).filter(|second| second % 20 == 0) {
            watch.beat(progress(second), at(second));
            watch.look(Some(asleep()), at(second), &watch_policy());
        }
        watch.look(Some(asleep()), at(seconds), &watch_policy());
        watch.condition(&setting(at(seconds)), &watch_policy())
    };
    assert_eq!(beating(|_| 1, 1790).state, Situation::Working);
    // The first one was progress; half an hour later they do not count any more, and five minutes later it is stuck.
    assert_eq!(beating(|_| 1, 1990).state, Situation::Quiet);
    assert_eq!(beating(|_| 1, 2130).state, Situation::Stuck);
    assert_eq!(beating(|second| u64::try_from(second / 600).unwrap(), 36_000).state, Situation::Working);
}

#[test]
fn who_waits_is_never_stuck() {
    let (mut watch, setting) = watched(90_000, |_| Some(asleep()));
    let open = WatchSetting { open: true, ..setting };
    check(&watch, &open, "waiting for you");
    watch.limited("usage", Some(at(97_200)), at(90_000));
    check(&watch, &setting, "waiting for its service: usage limit, over in 2h");
    watch.unlimited();
    check(&watch, &WatchSetting { turn: None, ..setting }, "idle");
}

#[test]
fn a_stopped_process_is_found_also_between_turns() {
    let stopped = |second| {
        let stopped = (second >= 60).then(|| "agent".to_owned());
        Some(ProcessActivity { stopped, ..asleep() })
    };
    let (watch, setting) = watched(110, stopped);
    check(&watch, &setting, "quiet 1m: no output, nothing runs");
    let (watch, setting) = watched(180, stopped);
    check(&watch, &setting, "gone 2m: agent is stopped by a signal");
    check(&watch, &WatchSetting { turn: None, ..setting }, "gone 2m: agent is stopped by a signal");
}

#[test]
fn a_dead_connection_is_named() {
    let waiting = |_| Some(ProcessActivity { net_bytes: Some(5000), connections: Some(1), ..asleep() });
    let (watch, setting) = watched(330, waiting);
    check(&watch, &setting, "stuck 5m: no output, 1 connection without traffic");
}

#[test]
fn reminders_come_later_each_time() {
    let policy = WatchPolicy { remind_after: minutes(30), ..watch_policy() };
    let mut watch = ActivityTracker::default();
    watch.waits(true, at(0));
    let mut told = Vec::new();
    for minute in 0..600 {
        if watch.reminder(at(minute * 60), &policy).is_some() {
            told.push(minute);
        }
    }
    assert_eq!(told, [30, 60, 120, 240, 480]);
    watch.waits(false, at(0));
    assert_eq!(watch.reminder(at(999_999), &policy), None);
}

#[test]
fn a_limit_is_waited_out_and_resumed_if_that_is_wanted_and_near() {
    let wanted = WatchPolicy { resume_after_limit: minutes(60), ..watch_policy() };
    for (policy, length, resumed) in
        [(watch_policy(), 600, false), (wanted.clone(), 600, true), (wanted.clone(), 7200, false)]
    {
        let mut watch = ActivityTracker::default();
        watch.limited("rate", Some(at(length)), at(0));
        assert_eq!(watch.limit_over(at(length - 1), &policy), None);
        let over = watch.limit_over(at(length), &policy).map(|(_, resume)| resume);
        assert_eq!(over, Some(resumed), "{}", span(Duration::from_secs(length.cast_unsigned())));
        assert_eq!(watch.limit_over(at(length), &policy), None);
    }
    // A service that never lets it go on does not go on for ever.
    let mut watch = ActivityTracker::default();
    let resumed = (0..100).filter(|n| {
        watch.limited("rate", Some(at(n + 1)), at(*n));
        watch.limit_over(at(n + 1), &wanted).is_some_and(|(_, resume)| resume)
    });
    assert_eq!(resumed.count(), MAX_RESUMES as usize);
}

#[test]
fn reading_a_line_of_ours_is_no_work_of_its_own() {
    let (mut watch, setting) = watched(330, |_| Some(asleep()));
    let condition = watch.condition(&setting, &watch_policy());
    assert_eq!(watch.climb(&condition, at(330), &watch_policy()).len(), 1);
    watch.record_delivery(at(330));
    let worked = |cpu_millis| Some(ProcessActivity { cpu_millis, ..asleep() });
    for (second, cpu, stirred) in [(345, 9000, false), (360, 9000, false), (375, 18_000, true)] {
        watch.look(worked(cpu), at(second), &watch_policy());
        assert_eq!(watch.has_stirred(), stirred, "{second}");
    }
}

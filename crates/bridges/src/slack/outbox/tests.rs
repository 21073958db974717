use super::*;
use proptest::prelude::*;

fn post(place: i64, thread: &str) -> OutboxRow {
    let (key, channel) = (format!("k{place}"), "C1".to_owned());
    OutboxRow { place, key, channel, lane: thread.to_owned(), rooted: true, ..OutboxRow::default() }
}

fn edit(place: i64) -> OutboxRow {
    OutboxRow { sort: SendKind::Edit, ..post(place, "t") }
}

fn status(place: i64) -> OutboxRow {
    OutboxRow { sort: SendKind::Status, ..edit(place) }
}

fn places(plan: &SendPlan) -> Vec<i64> {
    plan.send.iter().map(|attempt| attempt.row.place).collect()
}

#[test]
fn a_thread_is_told_in_order_and_threads_beside_each_other() {
    let (mut outbox, now) = (SlackOutbox::default(), Instant::now());
    let rows = [post(1, "a"), post(2, "a"), post(3, "b")];
    assert_eq!(places(&outbox.plan(&rows, now)), [1, 3]);
    assert_eq!(places(&outbox.plan(&rows, now)), [] as [i64; 0]);
    outbox.finish_attempt(&rows[0], AttemptOutcome::Failed, now, 1.0);
    // What could not be sent is not overtaken at once.
    let plan = outbox.plan(&rows, now);
    assert!(plan.send.is_empty() && plan.look_again == Some(now + FIRST_WAIT));
    assert_eq!(places(&outbox.plan(&rows, now + FIRST_WAIT)), [1]);
    outbox.finish_attempt(&rows[0], AttemptOutcome::Done, now, 1.0);
    assert_eq!(places(&outbox.plan(&rows[1..], now)), [2]);
}

#[test]
fn a_thread_waits_for_its_root_and_edits_for_nobody() {
    let (mut outbox, now) = (SlackOutbox::default(), Instant::now());
    let root = post(1, "root");
    let reply = OutboxRow { rooted: false, ..post(2, "root") };
    assert_eq!(places(&outbox.plan(&[root.clone(), reply.clone(), edit(3)], now)), [1, 3]);
    outbox.finish_attempt(&root, AttemptOutcome::Done, now, 0.0);
    assert_eq!(places(&outbox.plan(&[OutboxRow { rooted: true, ..reply }], now)), [2]);
}

#[test]
fn a_channel_gets_a_burst_and_then_one_per_second() {
    let (mut outbox, now) = (SlackOutbox::default(), Instant::now());
    let mut rows: Vec<OutboxRow> = (0..30).map(|n| post(n, &format!("t{n}"))).collect();
    rows.push(OutboxRow { channel: "C2".to_owned(), ..post(99, "other") });
    let first = outbox.plan(&rows, now);
    assert_eq!(first.send.len(), 21, "each channel has its own");
    let second = now + Duration::from_secs(1);
    assert!(first.look_again.is_some_and(|at| at <= second + Duration::from_millis(1)));
    assert_eq!(outbox.plan(&rows, now).send.len(), 0);
    assert_eq!(outbox.plan(&rows, second).send.len(), 1);
}

#[test]
fn status_cards_take_turns() {
    let (mut outbox, start) = (SlackOutbox::default(), Instant::now());
    let rows: Vec<OutboxRow> = (0..40).map(status).collect();
    let mut edited = std::collections::HashSet::new();
    // All of them change all the time.
    for second in 0..60 {
        let now = start + Duration::from_secs(second);
        for SendAttempt { row, .. } in outbox.plan(&rows, now).send {
            edited.insert(row.place);
            outbox.finish_attempt(&row, AttemptOutcome::Done, now, 0.0);
        }
        outbox.forget(&rows);
    }
    assert_eq!(edited.len(), 40, "{edited:?}");
}

#[test]
fn what_waits_for_somebody_goes_first_and_status_cards_leave_room() {
    let (mut outbox, now) = (SlackOutbox::default(), Instant::now());
    let mut rows: Vec<OutboxRow> = (0..40).map(status).collect();
    rows.push(OutboxRow { open: true, ..edit(50) });
    let sent = places(&outbox.plan(&rows, now));
    assert_eq!((sent[0], sent.len()), (50, 22));
    for n in 60..67 {
        rows.push(OutboxRow { open: true, ..edit(n) });
    }
    assert_eq!(outbox.plan(&rows, now).send.len(), 7, "the reserve is for them");
}

#[test]
fn a_status_card_is_not_edited_more_often_than_every_two_seconds() {
    let (mut outbox, now) = (SlackOutbox::default(), Instant::now());
    assert_eq!(places(&outbox.plan(&[status(1)], now)), [1]);
    outbox.finish_attempt(&status(1), AttemptOutcome::Done, now, 0.0);
    assert_eq!(outbox.plan(&[status(1)], now).look_again, Some(now + STATUS_EVERY));
    assert_eq!(places(&outbox.plan(&[status(1)], now + STATUS_EVERY)), [1]);
}

#[test]
fn too_fast_closes_the_channel_for_as_long_as_slack_says() {
    let (mut outbox, now) = (SlackOutbox::default(), Instant::now());
    let rows = [post(1, "a"), post(2, "b")];
    outbox.plan(&rows[..1], now);
    outbox.finish_attempt(&rows[0], AttemptOutcome::Slow(Duration::from_secs(7)), now, 0.0);
    let plan = outbox.plan(&rows, now);
    assert!(plan.send.is_empty() && plan.look_again == Some(now + Duration::from_secs(7)));
    assert_eq!(outbox.plan(&rows, now + Duration::from_secs(7)).send.len(), 2);
}

#[test]
fn when_slack_is_down_one_attempt_at_a_time_is_made_and_the_first_success_opens_all() {
    let (mut outbox, mut now) = (SlackOutbox::default(), Instant::now());
    let rows: Vec<OutboxRow> = (0..10).map(|n| post(n, &format!("t{n}"))).collect();
    let sent = outbox.plan(&rows, now).send;
    for attempt in &sent {
        outbox.finish_attempt(&attempt.row, AttemptOutcome::Failed, now, 1.0);
    }
    for _ in 0..3 {
        let plan = outbox.plan(&rows, now);
        assert!(plan.send.is_empty());
        now = plan.look_again.unwrap();
        let plan = outbox.plan(&rows, now);
        let Some(SendAttempt { row, .. }) = plan.send.first() else {
            now = plan.look_again.unwrap();
            continue;
        };
        assert_eq!(plan.send.len(), 1);
        outbox.finish_attempt(row, AttemptOutcome::Failed, now, 1.0);
    }
    outbox.reset_backoff();
    assert!(outbox.plan(&rows, now).send.len() >= 9);
}

#[test]
fn a_post_that_fails_or_hangs_is_passed_after_a_second() {
    let (mut outbox, now) = (SlackOutbox::default(), Instant::now());
    let rows = [post(1, "a"), post(2, "a")];
    assert_eq!(places(&outbox.plan(&rows, now)), [1]);
    assert_eq!(outbox.plan(&rows, now).look_again, Some(now + PLACE_HELD));
    assert_eq!(places(&outbox.plan(&rows, now + PLACE_HELD)), [2], "the first one is still on its way");
    outbox.finish_attempt(&rows[1], AttemptOutcome::Done, now, 0.0);
    outbox.finish_attempt(&rows[0], AttemptOutcome::Failed, now + PLACE_HELD, 1.0);
    let later = now + PLACE_HELD + FIRST_WAIT;
    assert_eq!(places(&outbox.plan(&[rows[0].clone(), post(3, "a")], later)), [3, 1]);
}

#[test]
fn a_message_that_fails_again_and_again_gets_a_stand_in_and_its_cards_go_beside_a_thread_without_root() {
    let (mut outbox, mut now) = (SlackOutbox::default(), Instant::now());
    let root = OutboxRow { key: "ses_1".to_owned(), ..post(1, "ses_1") };
    let talk = OutboxRow { rooted: false, ..post(2, "ses_1") };
    let card = OutboxRow { key: "clr_1".to_owned(), open: true, rooted: false, ..post(3, "ses_1") };
    let rows = [root, talk, card];
    let mut sent = Vec::new();
    while !sent.iter().any(|(place, _)| *place == 3) {
        let plan = outbox.plan(&rows, now);
        for SendAttempt { row, stand_in } in plan.send {
            sent.push((row.place, stand_in));
            outbox.finish_attempt(&row, AttemptOutcome::Failed, now, 1.0);
        }
        now = plan.look_again.filter(|at| *at > now).unwrap_or(now + Duration::from_millis(10));
    }
    let root = [(1, false), (1, false), (1, false), (1, true), (1, true)];
    assert_eq!(sent, [&root[..], &[(3, false)]].concat());
}

#[test]
fn an_outage_of_one_channel_is_no_outage_of_another() {
    let (mut outbox, now) = (SlackOutbox::default(), Instant::now());
    let here: Vec<OutboxRow> = (0..5).map(|n| post(n, &format!("t{n}"))).collect();
    for attempt in outbox.plan(&here, now).send {
        outbox.finish_attempt(&attempt.row, AttemptOutcome::Failed, now, 1.0);
    }
    let there: Vec<OutboxRow> =
        (10..15).map(|n| OutboxRow { channel: "C2".to_owned(), ..post(n, &format!("t{n}")) }).collect();
    assert_eq!(outbox.plan(&[&here[..], &there[..]].concat(), now).send.len(), 5);
}

/// A Slack that cannot take some rows, and an hour of time.
struct World {
    outbox: SlackOutbox,
    now: Instant,
    begun: Instant,
    rows: Vec<OutboxRow>,
    /// When each row came, and when it was done.
    came: HashMap<i64, Instant>,
    done: HashMap<i64, Instant>,
    /// When each was tried.
    tried: HashMap<i64, Vec<Instant>>,
}

impl World {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            outbox: SlackOutbox::default(),
            now,
            begun: now,
            rows: Vec::new(),
            came: HashMap::new(),
            done: HashMap::new(),
            tried: HashMap::new(),
        }
    }

    fn add(&mut self, row: OutboxRow) {
        self.came.insert(row.place, self.now);
        self.rows.push(row);
    }

    /// Lets time pass until `end`; `takes` says what Slack takes. Each call takes `call`.
    fn run(&mut self, end: Instant, call: Duration, mut takes: impl FnMut(&OutboxRow, Instant) -> bool) {
        let mut landing: Vec<(Instant, OutboxRow)> = Vec::new();
        while self.now < end {
            let plan = self.outbox.plan(&self.rows, self.now);
            for SendAttempt { row, .. } in plan.send {
                self.tried.entry(row.place).or_default().push(self.now);
                landing.push((self.now + call, row));
            }
            let next =
                landing.iter().map(|(at, _)| *at).chain(plan.look_again.filter(|at| *at > self.now)).min();
            self.now = next.unwrap_or(end).min(end);
            let (landed, in_flight) = landing.into_iter().partition(|(at, _)| *at <= self.now);
            landing = in_flight;
            for (_, row) in landed {
                let outcome =
                    if takes(&row, self.now) { AttemptOutcome::Done } else { AttemptOutcome::Failed };
                self.outbox.finish_attempt(&row, outcome, self.now, 0.5);
                if outcome == AttemptOutcome::Done {
                    self.rows.retain(|other| other.place != row.place);
                    self.done.insert(row.place, self.now);
                }
            }
        }
        for (_, row) in landing {
            self.outbox.finish_attempt(&row, AttemptOutcome::Slow(Duration::ZERO), self.now, 0.5);
        }
    }

    fn took(&self, place: i64) -> Option<Duration> {
        Some(*self.done.get(&place)? - self.came[&place])
    }
}

const CALL: Duration = Duration::from_millis(100);

proptest! {
    /// Random fates: nothing is sent twice at a time, threads keep their order unless a row fails, and everything is
    /// sent in the end.
    #[test]
    fn everything_is_sent_in_the_end(
        threads in proptest::collection::vec(0_u8..5, 1..40),
        fates in proptest::collection::vec(0_u8..6, 0..60),
    ) {
        let (mut outbox, mut now) = (SlackOutbox::default(), Instant::now());
        let mut rows: Vec<OutboxRow> =
            threads.iter().zip(1..).map(|(thread, place)| post(place, &format!("t{thread}"))).collect();
        let mut fates = fates.into_iter();
        let mut told: HashMap<String, i64> = HashMap::new();
        let mut failed = HashSet::new();
        for _ in 0..2000 {
            let plan = outbox.plan(&rows, now);
            let mut seen = HashSet::new();
            for SendAttempt { row, .. } in &plan.send {
                prop_assert!(seen.insert(row.place), "one attempt at a time");
                let outcome = match fates.next() {
                    Some(0) => AttemptOutcome::Failed,
                    Some(1) => AttemptOutcome::Slow(Duration::from_secs(3)),
                    Some(2) => AttemptOutcome::Setup,
                    _ => AttemptOutcome::Done,
                };
                outbox.finish_attempt(row, outcome, now, 0.5);
                match outcome {
                    AttemptOutcome::Done => {
                        rows.retain(|other| other.place != row.place);
                        if !failed.contains(&row.place) {
                            let last = told.insert(row.lane.clone(), row.place);
                            prop_assert!(last.is_none_or(|last| last < row.place), "in order");
                        }
                    }
                    AttemptOutcome::Failed => {
                        failed.insert(row.place);
                    }
                    _ => {}
                }
            }
            if rows.is_empty() {
                return Ok(());
            }
            if let Some(at) = plan.look_again {
                now = now.max(at);
            }
        }
        prop_assert!(false, "{} are left", rows.len());
    }

    /// Whatever Slack cannot take: the others are there within seconds, also in the same threads, and what fails is
    /// tried less and less often.
    #[test]
    fn nobody_waits_behind_rows_that_fail_and_these_are_not_tried_all_the_time(
        poisoned in 1_i64..8,
        threads in 1_i64..4,
        gaps in proptest::collection::vec(100_u64..60_000, 1..20),
        edits in proptest::bool::ANY,
    ) {
        let mut world = World::new();
        let row = |place: i64| {
            let sort = if edits && place % 2 == 0 { SendKind::Edit } else { SendKind::Post };
            OutboxRow { sort, open: place % 3 == 0, ..post(place, &format!("t{}", place % threads)) }
        };
        for place in 0..poisoned {
            world.add(row(place));
        }
        let takes = |row: &OutboxRow, _: Instant| row.place >= poisoned;
        for (gap, place) in gaps.iter().zip(poisoned..) {
            world.add(row(place));
            let end = world.now + Duration::from_millis(*gap);
            world.run(end, CALL, takes);
        }
        let end = world.now + Duration::from_secs(5);
        world.run(end, CALL, takes);
        for place in (poisoned..).take(gaps.len()) {
            let took = world.took(place);
            // Those that came before it may be new as well, and are tried one per second in what looks like an outage.
            let most = Duration::from_secs(2) + FRESH_EVERY * u32::try_from(poisoned).unwrap();
            prop_assert!(took.is_some_and(|took| took <= most), "{place}: {took:?}");
        }
        let minutes = usize::try_from((world.now - world.begun).as_secs() / 60).unwrap();
        for place in 0..poisoned {
            let tried = world.tried[&place].len();
            // Seven times until the longest wait is reached, then twice a minute, and whenever what looked like an
            // outage ends.
            let most = 12 + 3 * (minutes + 1) + 2 * gaps.len();
            prop_assert!(tried <= most, "{place} was tried {tried} times in {minutes} min");
        }
    }

    /// Slack is down: it is not asked all the time. When it is back, everything is there soon, and threads are in order
    /// but for those that found out: a row that had failed, and a new one.
    #[test]
    fn an_outage_is_waited_for_and_then_everything_is_sent(count in 3_i64..18, seconds in 10_u64..1200) {
        let mut world = World::new();
        for place in 0..count {
            world.add(post(place, &format!("t{}", place % 3)));
        }
        let back = world.begun + Duration::from_secs(seconds);
        world.run(back + Duration::from_mins(1), CALL, |_, now| now >= back);
        prop_assert!(world.rows.is_empty(), "{} are left", world.rows.len());
        let tried = world.tried.values().flatten().filter(|at| **at < back).count();
        let most = 3 * usize::try_from(count).unwrap() + usize::try_from(seconds / 10).unwrap() + 20;
        prop_assert!(tried <= most, "tried {tried} times in {seconds} s");
        let mut order: Vec<i64> = (0..count).collect();
        order.sort_by_key(|place| (world.done[place], *place));
        let late = (0..3).map(|thread| {
            let told: Vec<i64> = order.iter().copied().filter(|place| place % 3 == thread).collect();
            told.windows(2).filter(|two| two[0] > two[1]).count()
        });
        prop_assert!(late.sum::<usize>() <= 2, "{order:?}");
    }
}

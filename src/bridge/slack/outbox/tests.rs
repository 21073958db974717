use super::*;
use proptest::prelude::*;

fn post(place: i64, thread: &str) -> Row {
    let (key, channel) = (format!("k{place}"), "C1".to_owned());
    Row { place, key, channel, lane: thread.to_owned(), rooted: true, ..Row::default() }
}

fn edit(place: i64) -> Row {
    Row { sort: Sort::Edit, ..post(place, "t") }
}

fn status(place: i64) -> Row {
    Row { sort: Sort::Status, ..edit(place) }
}

fn places(plan: &Plan) -> Vec<i64> {
    plan.send.iter().map(|row| row.place).collect()
}

#[test]
fn a_thread_is_told_in_order_and_threads_beside_each_other() {
    let (mut outbox, now) = (Outbox::default(), Instant::now());
    let rows = [post(1, "a"), post(2, "a"), post(3, "b")];
    assert_eq!(places(&outbox.plan(&rows, now)), [1, 3]);
    assert_eq!(places(&outbox.plan(&rows, now)), [] as [i64; 0]);
    outbox.landed(&rows[0], Fate::Failed, now, 1.0);
    // What could not be sent is not overtaken.
    let plan = outbox.plan(&rows, now);
    assert!(plan.send.is_empty() && plan.look_again == Some(now + FIRST_WAIT));
    assert_eq!(places(&outbox.plan(&rows, now + FIRST_WAIT)), [1]);
    outbox.landed(&rows[0], Fate::Done, now, 1.0);
    assert_eq!(places(&outbox.plan(&rows[1..], now)), [2]);
}

#[test]
fn a_thread_waits_for_its_root_and_edits_for_nobody() {
    let (mut outbox, now) = (Outbox::default(), Instant::now());
    let root = post(1, "root");
    let reply = Row { rooted: false, ..post(2, "root") };
    assert_eq!(places(&outbox.plan(&[root.clone(), reply.clone(), edit(3)], now)), [1, 3]);
    outbox.landed(&root, Fate::Done, now, 0.0);
    assert_eq!(places(&outbox.plan(&[Row { rooted: true, ..reply }], now)), [2]);
}

#[test]
fn a_channel_gets_a_burst_and_then_one_per_second() {
    let (mut outbox, now) = (Outbox::default(), Instant::now());
    let mut rows: Vec<Row> = (0..30).map(|n| post(n, &format!("t{n}"))).collect();
    rows.push(Row { channel: "C2".to_owned(), ..post(99, "other") });
    let first = outbox.plan(&rows, now);
    assert_eq!(first.send.len(), 21, "each channel has its own");
    let second = now + Duration::from_secs(1);
    assert!(first.look_again.is_some_and(|at| at <= second + Duration::from_millis(1)));
    assert_eq!(outbox.plan(&rows, now).send.len(), 0);
    assert_eq!(outbox.plan(&rows, second).send.len(), 1);
}

#[test]
fn status_cards_take_turns() {
    let (mut outbox, start) = (Outbox::default(), Instant::now());
    let rows: Vec<Row> = (0..40).map(status).collect();
    let mut edited = std::collections::HashSet::new();
    // All of them change all the time.
    for second in 0..60 {
        let now = start + Duration::from_secs(second);
        for row in outbox.plan(&rows, now).send {
            edited.insert(row.place);
            outbox.landed(&row, Fate::Done, now, 0.0);
        }
        outbox.forget(&rows);
    }
    assert_eq!(edited.len(), 40, "{edited:?}");
}

#[test]
fn what_waits_for_somebody_goes_first_and_status_cards_leave_room() {
    let (mut outbox, now) = (Outbox::default(), Instant::now());
    let mut rows: Vec<Row> = (0..40).map(status).collect();
    rows.push(Row { open: true, ..edit(50) });
    let sent = places(&outbox.plan(&rows, now));
    assert_eq!((sent[0], sent.len()), (50, 22));
    for n in 60..67 {
        rows.push(Row { open: true, ..edit(n) });
    }
    assert_eq!(outbox.plan(&rows, now).send.len(), 7, "the reserve is for them");
}

#[test]
fn a_status_card_is_not_edited_more_often_than_every_two_seconds() {
    let (mut outbox, now) = (Outbox::default(), Instant::now());
    assert_eq!(places(&outbox.plan(&[status(1)], now)), [1]);
    outbox.landed(&status(1), Fate::Done, now, 0.0);
    assert_eq!(outbox.plan(&[status(1)], now).look_again, Some(now + STATUS_EVERY));
    assert_eq!(places(&outbox.plan(&[status(1)], now + STATUS_EVERY)), [1]);
}

#[test]
fn too_fast_closes_the_channel_for_as_long_as_slack_says() {
    let (mut outbox, now) = (Outbox::default(), Instant::now());
    let rows = [post(1, "a"), post(2, "b")];
    outbox.plan(&rows[..1], now);
    outbox.landed(&rows[0], Fate::Slow(Duration::from_secs(7)), now, 0.0);
    let plan = outbox.plan(&rows, now);
    assert!(plan.send.is_empty() && plan.look_again == Some(now + Duration::from_secs(7)));
    assert_eq!(outbox.plan(&rows, now + Duration::from_secs(7)).send.len(), 2);
}

#[test]
fn when_slack_is_down_one_attempt_at_a_time_is_made_and_the_first_success_opens_all() {
    let (mut outbox, mut now) = (Outbox::default(), Instant::now());
    let rows: Vec<Row> = (0..10).map(|n| post(n, &format!("t{n}"))).collect();
    let sent = outbox.plan(&rows, now).send;
    for row in &sent {
        outbox.landed(row, Fate::Failed, now, 1.0);
    }
    for _ in 0..3 {
        let plan = outbox.plan(&rows, now);
        assert!(plan.send.is_empty());
        now = plan.look_again.unwrap();
        let plan = outbox.plan(&rows, now);
        let Some(row) = plan.send.first() else {
            now = plan.look_again.unwrap();
            continue;
        };
        assert_eq!(plan.send.len(), 1);
        outbox.landed(row, Fate::Failed, now, 1.0);
    }
    outbox.awake();
    assert!(outbox.plan(&rows, now).send.len() >= 9);
}

proptest! {
    /// Random fates: nothing is sent twice at a time, threads keep their order, and everything is sent in the end.
    #[test]
    fn everything_is_sent_in_the_end(
        threads in proptest::collection::vec(0_u8..5, 1..40),
        fates in proptest::collection::vec(0_u8..6, 0..60),
    ) {
        let (mut outbox, mut now) = (Outbox::default(), Instant::now());
        let mut rows: Vec<Row> =
            threads.iter().zip(1..).map(|(thread, place)| post(place, &format!("t{thread}"))).collect();
        let mut fates = fates.into_iter();
        let mut told: HashMap<String, i64> = HashMap::new();
        for _ in 0..1000 {
            let plan = outbox.plan(&rows, now);
            let mut seen = HashSet::new();
            for row in &plan.send {
                prop_assert!(seen.insert(row.lane.clone()), "one at a time in a thread");
                let fate = match fates.next() {
                    Some(0) => Fate::Failed,
                    Some(1) => Fate::Slow(Duration::from_secs(3)),
                    Some(2) => Fate::Setup,
                    _ => Fate::Done,
                };
                outbox.landed(row, fate, now, 0.5);
                if fate == Fate::Done {
                    let last = told.insert(row.lane.clone(), row.place);
                    prop_assert!(last.is_none_or(|last| last < row.place), "in order");
                    rows.retain(|other| other.place != row.place);
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
}

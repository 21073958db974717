//! The log as readers get it: in order, without gaps, nothing lost and nothing twice, live or a page at a time.

use intercom_testkit::client::Events;
use intercom_testkit::harness::{Daemon, of_kind, refused};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

fn stream(daemon: &Daemon, query: &str, last: Option<u64>) -> Events {
    let last = last.map(|seq| seq.to_string());
    let headers: Vec<(&str, &str)> = last.iter().map(|seq| ("last-event-id", &**seq)).collect();
    Events::open(&daemon.socket(), &format!("/api/v1/events?{query}"), &headers)
}

fn seq(event: &Value) -> u64 {
    event["seq"].as_u64().unwrap_or_else(|| panic!("{event}"))
}

fn last_seq(daemon: &Daemon) -> u64 {
    daemon.get("/api/v1/health").1["last_seq"].as_u64().unwrap()
}

/// All events after `after`, as pages of this size.
#[track_caller]
fn pages(daemon: &Daemon, session: &str, limit: usize) -> Vec<Value> {
    let (mut all, mut after) = (Vec::new(), 0);
    loop {
        let path = format!("/api/v1/events?after={after}&limit={limit}&session={session}");
        let (status, mut page) = daemon.get(&path);
        assert_eq!(status, 200, "{page}");
        let Value::Array(items) = page["items"].take() else { panic!("{page}") };
        assert!(items.len() <= limit);
        let Some(next) = page["next"].as_u64() else {
            assert!(items.is_empty() && page["next"].is_null(), "{page}");
            return all;
        };
        assert_eq!(items.last().map(seq), Some(next));
        after = next;
        all.extend(items);
    }
}

/// The numbers of the flooded lines, in the order of the log.
fn flooded(events: &[Value]) -> Vec<u64> {
    let messages =
        of_kind(events, "status").into_iter().filter_map(|event| event["data"]["message"].as_str());
    messages.filter_map(|message| message.strip_prefix("flood ")?.get(..10)?.parse().ok()).collect()
}

#[track_caller]
fn rising_by_one(events: &[Value]) {
    for pair in events.windows(2) {
        assert_eq!(seq(&pair[1]), seq(&pair[0]) + 1, "{pair:?}");
    }
}

#[test]
fn ids_are_seqs_without_gaps_across_sessions_and_no_event_has_an_event_field() {
    let daemon = Daemon::quick("");
    let mut live = stream(&daemon, "after=0", None);
    let sessions: Vec<String> =
        (0..5).map(|_| daemon.run(&["flood:300", "clearance:1:May I?", "exit:0"])).collect();
    let mut ended = 0;
    let mut events: Vec<Value> = Vec::new();
    while ended < sessions.len() {
        let block = live.block().unwrap().unwrap().to_owned();
        let lines: Vec<&str> = block.lines().collect();
        assert_eq!(lines.len(), 2, "{block}");
        let data =
            lines.iter().find_map(|line| line.strip_prefix("data: ")).unwrap_or_else(|| panic!("{block}"));
        let event: Value = serde_json::from_str(data).unwrap();
        assert!(lines.contains(&&*format!("id: {}", seq(&event))), "{block}");
        let mut keys: Vec<&String> = event.as_object().unwrap().keys().collect();
        keys.sort();
        assert_eq!(keys, ["at", "data", "kind", "seq", "session", "summary", "tone"]);
        let at = event["at"].as_str().unwrap();
        assert!(
            at.len() == "2024-01-01T00:00:00.000Z".len() && at.ends_with('Z') && at.as_bytes()[19] == b'.',
            "{at}"
        );
        ended += usize::from(event["kind"] == "session.ended");
        events.push(event);
    }
    assert_eq!(seq(&events[0]), 1);
    rising_by_one(&events);
    for session in &sessions {
        let own: Vec<Value> = events.iter().filter(|event| event["session"] == **session).cloned().collect();
        assert_eq!(flooded(&own), (1..=300).collect::<Vec<_>>());
        assert_eq!(own, daemon.all_events(session), "its own stream has the same events");
    }
}

#[test]
fn each_event_is_told_in_english_unless_the_reader_does_not_want_that() {
    let daemon = Daemon::quick("");
    let session = daemon.run(&["status:hi\\u001b there", "exit:3"]);
    daemon.wait_kind(&session, "session.ended");
    let told = |query: &str| -> Vec<(String, Value, Value)> {
        let path = format!("/api/v1/events?after=0&session={session}{query}");
        let (status, page) = daemon.get(&path);
        assert_eq!(status, 200, "{page}");
        let item = |event: &Value| {
            let kind = event["kind"].as_str().unwrap().to_owned();
            (kind, event["summary"].clone(), event["tone"].clone())
        };
        page["items"].as_array().unwrap().iter().map(item).collect()
    };
    let all = told("");
    let of = |kind: &str| all.iter().find(|(known, ..)| known == kind).unwrap_or_else(|| panic!("{all:?}"));
    assert_eq!(of("agent.exited").1, "agent exited with code 3");
    assert_eq!(of("agent.exited").2, "bad");
    let (_, said, tone) = of("status");
    assert!(said.as_str().unwrap().starts_with("agent> hi"), "the agent's words are marked: {said}");
    assert_eq!(tone, "plain");
    assert_eq!(told("&summary=true"), all);
    assert!(told("&summary=false").iter().all(|(_, summary, tone)| summary.is_null() && tone.is_null()));
    let own = told("&summary=own");
    assert!(own.iter().all(|(kind, summary, _)| (kind == "status") == summary.is_null()), "{own:?}");
    refused(daemon.get("/api/v1/events?after=0&summary=maybe"), 400, "bad_request");
}

#[test]
fn the_last_event_id_wins_over_after() {
    let daemon = Daemon::quick("");
    let session = daemon.run(&["flood:10", "exit:0"]);
    let all = daemon.all_events(&session);
    let middle = seq(&all[5]);
    for query in ["after=0", "after=999", &format!("after=2&session={session}"), ""] {
        assert_eq!(stream(&daemon, query, Some(middle)).next().unwrap(), all[6], "{query}");
    }
    assert_eq!(stream(&daemon, &format!("after={middle}"), None).next().unwrap(), all[6]);
    let last = middle.to_string();
    let headers = [("accept", "application/json"), ("last-event-id", &*last)];
    let (status, page) = daemon.request("GET", "/api/v1/events?after=0&limit=1", None, &headers);
    assert_eq!((status, &page["items"][0]), (200, &all[6]));
    let odd = daemon.request("GET", "/api/v1/events?after=0", None, &[("last-event-id", "seven")]);
    refused(odd, 400, "bad_request");
}

#[test]
fn a_reader_that_comes_back_while_an_agent_floods_misses_nothing_and_gets_nothing_twice() {
    let daemon = Daemon::quick("");
    let session = daemon.run(&["flood:20000", "exit:0"]);
    let mut events: Vec<Value> = Vec::new();
    while events.last().is_none_or(|event| event["kind"] != "session.ended") {
        // Each time a little further, and hung up in the middle of what comes.
        let last = events.last().map(seq);
        let reader = stream(&daemon, &format!("after=0&session={session}"), last);
        let taken = 1 + events.len() / 2;
        for event in reader.take(taken) {
            let ended = event["kind"] == "session.ended";
            events.push(event);
            if ended {
                break;
            }
        }
    }
    rising_by_one(&events);
    assert_eq!(flooded(&events), (1..=20_000).collect::<Vec<_>>());
}

#[test]
fn fifty_thousand_lines_are_each_in_the_log_once_and_in_order() {
    let daemon = Daemon::quick("");
    let session =
        daemon.run(&["flood:30000", "heartbeat", "clearance:1:May I?", "flood:20000:100:30001", "exit:0"]);
    daemon.wait_for_end(&session);
    let events = pages(&daemon, &session, 1000);
    rising_by_one(&events);
    assert_eq!(flooded(&events), (1..=50_000).collect::<Vec<_>>());
    let place = |kind: &str| events.iter().position(|event| event["kind"] == kind).unwrap();
    let line = |number: u64| {
        let text = format!("flood {number:010}");
        events
            .iter()
            .position(|event| {
                event["data"]["message"].as_str().is_some_and(|message| message.starts_with(&text))
            })
            .unwrap()
    };
    let order = [
        line(1),
        line(30_000),
        place("heartbeat"),
        place("clearance.requested"),
        line(30_001),
        place("agent.exited"),
    ];
    assert!(order.is_sorted(), "{order:?}");
}

#[test]
fn pages_hold_what_the_stream_holds_whatever_their_size() {
    let daemon = Daemon::quick("");
    let session = daemon.run_with(&["flood:50", "exit:0"], json!({"name": "pages"}));
    let all = daemon.all_events(&session);
    for limit in [1, 7, 1000] {
        assert_eq!(pages(&daemon, "pages", limit), all);
    }
    let (status, default) = daemon.get("/api/v1/events?after=0");
    assert_eq!(
        (status, default["items"].as_array().unwrap()),
        (200, &all),
        "fewer than the hundred of a page"
    );
    let (status, beyond) = daemon.get("/api/v1/events?after=999");
    assert_eq!((status, beyond), (200, json!({"items": [], "next": null})));
}

#[test]
fn a_seq_that_cannot_be_reached_yields_an_empty_page() {
    let daemon = Daemon::quick("");
    for after in [u64::MAX, i64::MAX as u64, i64::MAX as u64 + 1] {
        let (status, page) = daemon.get(&format!("/api/v1/events?after={after}"));
        assert_eq!((status, page), (200, json!({"items": [], "next": null})), "{after}");
    }
}

#[test]
fn long_lines_come_whole_in_pages_of_bounded_size() {
    let daemon = Daemon::quick("");
    let session = daemon.run(&["repeat:6:long:1000000", "exit:0"]);
    daemon.wait_for_end(&session);
    let (_, page) = daemon.get(&format!("/api/v1/events?after=0&session={session}"));
    let first = page["items"].as_array().unwrap();
    assert!((5..13).contains(&first.len()), "a page is cut by its bytes, too: {}", first.len());
    let events = pages(&daemon, &session, 1000);
    let streamed = daemon.all_events(&session);
    assert_eq!(events, streamed);
    let lengths: Vec<_> = of_kind(&events, "status")
        .iter()
        .map(|event| event["data"]["message"].as_str().unwrap().len())
        .collect();
    assert!(lengths.len() == 6 && lengths.iter().all(|length| *length > 999_000), "{lengths:?}");
}

#[test]
fn a_reader_that_does_not_read_keeps_nobody_waiting() {
    let daemon = Daemon::quick("");
    let asleep: Vec<Events> = (0..4).map(|_| stream(&daemon, "after=0", None)).collect();
    let session = daemon.run(&["flood:20000", "clearance:1:May I?", "answer:1"]);
    let clearance = daemon.clearance(&session);
    assert_eq!(daemon.decide(&clearance, "approve")["delivery"], "delivered");
    daemon.wait_for_end(&session);
    // And what they were sent is still there for them.
    for sleeper in asleep {
        let events: Vec<Value> = sleeper.take(2000).collect();
        assert_eq!(events.len(), 2000);
        rising_by_one(&events);
    }
}

#[test]
fn a_stream_tells_what_happens_from_now_on_and_ends_with_the_daemon() {
    let daemon = Daemon::quick("");
    daemon.all_events(&daemon.run(&["exit:0"]));
    let mut events = stream(&daemon, &format!("after={}", last_seq(&daemon)), None);
    let session = daemon.run(&["echo"]);
    let first = events.next().unwrap();
    assert_eq!((&first["session"], &first["kind"]), (&json!(session), &json!("session.created")));
    let reader = std::thread::spawn(move || events.map(|event| event["kind"].clone()).collect::<Vec<_>>());
    let (_dir, status) = daemon.end(Signal::SIGTERM);
    assert!(status.success(), "{status}");
    let kinds = reader.join().unwrap();
    assert_eq!(kinds.last(), Some(&json!("session.ended")), "{kinds:?}");
}

//! Many watchers of the same events: each receives everything once and in order, whether it keeps up or not.

use intercom_testkit::client::{Events, Place};
use intercom_testkit::harness::{Daemon, QUICK};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::access::{token, with_port};
use crate::viewers::{leaks, streaming};

/// More than share one wake-up, and few enough for a quick test.
const CROWD: usize = 150;
/// More than the buffers of a connection and the shared tail hold together: who reads nothing falls behind.
const LINES: u64 = 6000;

fn place(address: &str, token: &str) -> Place {
    Place::Port { address: address.to_owned(), token: Some(token.to_owned()) }
}

/// The events as they came, up to the one that ends with this kind.
fn until(events: &mut Events, kind: &str) -> Vec<String> {
    let (mut blocks, end) = (Vec::new(), format!("\"kind\":\"{kind}\""));
    loop {
        let block =
            events.block().unwrap().unwrap_or_else(|| panic!("no {kind} after {} events", blocks.len()));
        // A comment says only that the connection is alive.
        if block.contains("data:") {
            blocks.push(block.to_owned());
        }
        if block.contains(&end) {
            return blocks;
        }
    }
}

fn seqs(blocks: &[String]) -> Vec<u64> {
    let data = blocks.iter().filter_map(|block| block.lines().find_map(|line| line.strip_prefix("data: ")));
    data.map(|data| serde_json::from_str::<Value>(data).unwrap()["seq"].as_u64().unwrap()).collect()
}

fn last_seq(daemon: &Daemon) -> u64 {
    daemon.get("/api/v1/health").1["last_seq"].as_u64().unwrap()
}

#[test]
fn a_crowd_receives_each_event_once_and_in_order() {
    let daemon = Daemon::quick("");
    let path = format!("/api/v1/events?after={}&summary=false", last_seq(&daemon));
    let mut crowd: Vec<Events> = (0..CROWD).map(|_| Events::open(&daemon.socket(), &path, &[])).collect();
    // Two agents, so that the events of the first reach those who read while the second goes on.
    let first = daemon.run(&["flood:300", "exit:0"]);
    daemon.wait_for_end(&first);
    let flood = format!("flood:{LINES}");
    let second = daemon.run(&[&flood, "exit:0"]);
    let mut expected = until(&mut crowd[0], "session.ended");
    expected.extend(until(&mut crowd[0], "session.ended"));
    let received = seqs(&expected);
    assert!(received.windows(2).all(|pair| pair[1] == pair[0] + 1), "{received:?}");
    assert!(received.len() as u64 > LINES);
    daemon.wait_for_end(&second);
    for (number, watcher) in crowd.iter_mut().enumerate().skip(1) {
        let mut blocks = until(watcher, "session.ended");
        blocks.extend(until(watcher, "session.ended"));
        assert!(blocks == expected, "watcher {number} received {} of {}", blocks.len(), expected.len());
    }
    // One that resumes in the middle receives the rest.
    let middle = received[received.len() / 2];
    let mut late = Events::open(&daemon.socket(), &path, &[("last-event-id", &middle.to_string())]);
    assert_eq!(until(&mut late, "session.ended"), expected[received.len() / 2 + 1..]);
}

#[test]
fn watchers_of_different_views_do_not_receive_each_others_frames() {
    let daemon = Daemon::quick("");
    let (one, other) = (daemon.run(&["echo"]), daemon.run(&["echo"]));
    let after = last_seq(&daemon);
    let open = |query: &str| {
        let path = format!("/api/v1/events?after={after}{query}");
        [(); 2].map(|()| Events::open(&daemon.socket(), &path, &[]))
    };
    let (of_one, of_other) = (open(&format!("&session={one}")), open(&format!("&session={other}")));
    let without = open(&format!("&session={one}&summary=false"));
    for session in [&one, &other] {
        daemon.prompt(session, "hello");
        daemon.end_session(session, "kill");
    }
    for (watchers, session, has_summary) in
        [(of_one, &one, true), (of_other, &other, true), (without, &one, false)]
    {
        let [first, second] = watchers.map(|mut watcher| until(&mut watcher, "session.ended"));
        assert_eq!(first, second);
        for block in &first {
            assert!(block.contains(&format!("\"session\":\"{session}\"")), "{block}");
            assert_eq!(block.contains("\"summary\":"), has_summary, "{block}");
        }
    }
}

#[test]
fn a_crowd_of_viewers_receives_no_secret_and_each_event_once() {
    let (daemon, address) = with_port(QUICK);
    let viewer = place(&address, &token(&daemon, "ana", "viewer"));
    let after = last_seq(&daemon);
    let path = format!("/api/v1/events?after={after}");
    let mut crowd: Vec<Events> = (0..12).map(|_| Events::open(&viewer, &path, &[])).collect();
    let session = daemon.run_acp(&[&streaming()]);
    daemon.prompt(&session, "go");
    // What is held back for some is held back for all, and nothing of it is shown twice.
    let expected = until(&mut crowd[0], "turn.ended");
    assert!(!expected.iter().any(|block| leaks(block)));
    let received = seqs(&expected);
    let last = received.last().copied().unwrap();
    assert_eq!(received, (after + 1..=last).collect::<Vec<_>>());
    for watcher in &mut crowd[1..] {
        assert_eq!(until(watcher, "turn.ended"), expected);
    }
    // Those who resume within the message receive the rest of it, and no half of a secret.
    let middle = received[received.len() / 2];
    let resumed = format!("/api/v1/events?after={middle}");
    let mut late: Vec<Events> = (0..3).map(|_| Events::open(&viewer, &resumed, &[])).collect();
    for watcher in &mut late {
        let blocks = until(watcher, "turn.ended");
        assert!(!blocks.iter().any(|block| leaks(block)));
        assert_eq!(seqs(&blocks), (middle + 1..=last).collect::<Vec<_>>());
    }
}

#[test]
fn a_revoked_token_ends_the_streams_of_its_owner_only() {
    let (daemon, address) = with_port(QUICK);
    let (ana, ben) = (token(&daemon, "ana", "operator"), token(&daemon, "ben", "operator"));
    let path = format!("/api/v1/events?after={}", last_seq(&daemon));
    let open = |token: &str| -> Vec<Events> {
        (0..10).map(|_| Events::open(place(&address, token), &path, &[])).collect()
    };
    let (anas, mut bens) = (open(&ana), open(&ben));
    let session = daemon.run(&["status:here", "serve"]);
    daemon.wait_status(&session, "here");
    daemon.cli(&["token", "revoke", "ana"]).ok();
    for mut watcher in anas {
        let mut blocks = 0;
        while watcher.block().unwrap().is_some() {
            blocks += 1;
        }
        assert!(blocks > 0, "it was there until then");
    }
    daemon.end_session(&session, "kill");
    for watcher in &mut bens {
        until(watcher, "session.ended");
    }
}

#[test]
fn a_crowd_receives_the_last_events_before_the_daemon_ends() {
    let daemon = Daemon::quick("");
    let path = format!("/api/v1/events?after={}", last_seq(&daemon));
    let crowd: Vec<Events> = (0..20).map(|_| Events::open(&daemon.socket(), &path, &[])).collect();
    let session = daemon.run(&["status:here", "echo"]);
    daemon.wait_status(&session, "here");
    let readers: Vec<_> = crowd
        .into_iter()
        .map(|mut watcher| {
            std::thread::spawn(move || {
                let blocks = until(&mut watcher, "session.ended");
                assert_eq!(watcher.block().unwrap(), None, "the stream ends with the daemon");
                blocks
            })
        })
        .collect();
    daemon.end(Signal::SIGTERM);
    let received: Vec<_> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
    assert!(received.windows(2).all(|pair| pair[0] == pair[1]));
}

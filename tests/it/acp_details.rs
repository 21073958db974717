//! Details of the ACP server that clients have stumbled over.

use intercom_testkit::harness::Daemon;
use intercom_testkit::seats::{Seat, WAYS, Way, fixture};
use serde_json::{Value, json};

fn daemon(switches: &[&str]) -> Daemon {
    Daemon::quick(&format!("{}[acp_server]\nagent = 'fixture'\n", fixture(switches)))
}

#[test]
fn a_session_that_is_gone_can_be_deleted() {
    let daemon = daemon(&[]);
    for way in WAYS {
        let mut seat = Seat::ready(way, &daemon);
        let session = seat.begun(&daemon);
        for _ in 0..2 {
            assert_eq!(seat.ok("session/delete", json!({ "sessionId": session })), json!({}), "{way:?}");
        }
        for unknown in ["ses_nobody000000", "not an id"] {
            assert_eq!(seat.ok("session/delete", json!({ "sessionId": unknown })), json!({}), "{way:?}");
        }
    }
    let (_, listed) = daemon.get("/api/v1/sessions?all=true");
    assert_eq!(listed["items"], json!([]));
}

/// The prompts that a client is told.
fn asked(updates: &[Value]) -> Vec<&str> {
    let chunks = updates.iter().filter(|update| update["sessionUpdate"] == "user_message_chunk");
    chunks.filter_map(|update| update["content"]["text"].as_str()).collect()
}

#[test]
fn a_prompt_that_its_agent_echoes_is_told_once_to_others_and_not_to_whoever_sent_it() {
    let daemon = daemon(&["script:user:Fix the;user: tests;say:done"]);
    let mut first = Seat::ready(Way::Lines, &daemon);
    let session = first.begun(&daemon);
    let mut second = Seat::ready(Way::WebSocket, &daemon);
    second.load(&daemon, &session);
    assert_eq!(first.prompt(&session, "Fix the tests"), "end_turn");
    assert_eq!(asked(&first.updates(&session)), Vec::<&str>::new());
    second.until_words(&session, "done");
    assert_eq!(asked(&second.updates(&session)), ["Fix the tests"]);
    let mut third = Seat::ready(Way::Http, &daemon);
    third.load(&daemon, &session);
    // Over HTTP the answer travels on another stream than the replay, and may arrive before its end.
    third.until_words(&session, "done");
    assert_eq!(asked(&third.updates(&session)), ["Fix the tests"]);
    // What is no echo is told as it came.
    assert_eq!(first.prompt(&session, "Something else"), "end_turn");
    assert_eq!(asked(&first.updates(&session)), ["Fix the", " tests"]);
}

#[test]
fn only_streamable_http_names_the_session_in_the_answers_to_load_and_resume() {
    let daemon = daemon(&[]);
    for way in WAYS {
        let mut seat = Seat::ready(way, &daemon);
        let session = seat.begun(&daemon);
        let expected = (way == Way::Http).then(|| json!(session));
        let mut other = Seat::ready(way, &daemon);
        assert_eq!(other.load(&daemon, &session).get("sessionId"), expected.as_ref(), "{way:?}");
        let mut other = Seat::ready(way, &daemon);
        assert_eq!(other.resume(&daemon, &session).get("sessionId"), expected.as_ref(), "{way:?}");
    }
}

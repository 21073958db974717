//! The protocol's test contract at the codec level, and the wire messages in both directions.

use bytes::BytesMut;

use super::*;
use crate::driver::Driver;
use crate::framing::Framer;
use intercom_types::{Answer, RequestId, TurnId};

/// An agent's stdout, as far as the codec and the driver go.
struct Stream {
    framer: Framer,
    driver: Driver,
    buf: BytesMut,
}

impl Stream {
    fn new() -> Self {
        Self { framer: Framer::ndjson(1024), driver: Driver::Intercom, buf: BytesMut::new() }
    }

    fn read(&mut self, bytes: &str) -> Vec<AgentMessage> {
        self.buf.extend_from_slice(bytes.as_bytes());
        let mut said = Vec::new();
        while let Some(frame) = self.framer.next(&mut self.buf) {
            self.driver.decode(&frame, &mut said);
        }
        said
    }
}

fn status(message: &str) -> AgentMessage {
    AgentMessage::Status { params: Json::of(&serde_json::json!({ "message": message })) }
}

#[test]
fn single_message_parsing() {
    let line = concat!(
        r#"{"method":"clearance/request","id":"req-001","params":{"title":"Create new module","#,
        r#""description":"Adding src/driver/mod.rs","diff":"--- /dev/null\n+++ b/x","file_path":"src/driver/mod.rs","#,
        r#""risk_level":"low","ticket":7}}"#,
        "\n"
    );
    let said = Stream::new().read(line);
    let [AgentMessage::Clearance(ask)] = &said[..] else { panic!("{said:?}") };
    assert_eq!(ask.request.as_json(), "\"req-001\"");
    assert_eq!(ask.title, "Create new module");
    assert_eq!(ask.description.as_deref(), Some("Adding src/driver/mod.rs"));
    assert_eq!(ask.diff.as_deref(), Some("--- /dev/null\n+++ b/x"));
    assert_eq!(ask.file_path.as_deref(), Some("src/driver/mod.rs"));
    assert_eq!(ask.claimed_risk.as_deref(), Some("low"));
    assert!(ask.params.as_str().contains("\"ticket\":7"), "unknown fields are kept");
}

#[test]
fn batched_messages() {
    let two = concat!(
        r#"{"method":"status/update","params":{"message":"a"}}"#,
        "\n",
        r#"{"method":"status/update","params":{"message":"b"}}"#,
        "\n"
    );
    assert_eq!(Stream::new().read(two), [status("a"), status("b")]);
}

#[test]
fn partial_delivery() {
    let mut stream = Stream::new();
    assert_eq!(stream.read(r#"{"method":"status/update","par"#), []);
    assert_eq!(stream.read(r#"ams":{"message":"whole"}}"#), []);
    assert_eq!(stream.read("\n"), [status("whole")]);
}

#[test]
fn malformed_line() {
    let said = Stream::new()
        .read("npm warn: hello\n{\"method\":\"status/update\",\"params\":{\"message\":\"on\"}}\n");
    let [AgentMessage::Rejected { rejection, fault: None }, after] = &said[..] else { panic!("{said:?}") };
    assert!(rejection.reason.starts_with("malformed JSON"), "{rejection:?}");
    assert_eq!(rejection.excerpt, "npm warn: hello");
    assert_eq!(*after, status("on"));
}

#[test]
fn unknown_method() {
    let said = Stream::new()
        .read("{\"method\":\"tea/brew\",\"params\":{\"cups\":2}}\n{\"method\":\"tea/ask\",\"id\":3}\n");
    let [AgentMessage::Unknown { message, fault: None }, AgentMessage::Unknown { fault: Some(fault), .. }] =
        &said[..]
    else {
        panic!("{said:?}")
    };
    assert_eq!(message.as_str(), r#"{"method":"tea/brew","params":{"cups":2}}"#);
    assert_eq!((fault.request.as_json(), fault.code), ("3", FaultCode::UnknownMethod));
}

#[test]
fn stream_eof() {
    // The end itself is the host's to see; the codec must give out what was left without a line end, once.
    let mut stream = Stream::new();
    assert_eq!(stream.read(r#"{"method":"status/update","params":{"message":"last"}}"#), []);
    let mut last = Vec::new();
    stream.driver.decode(&stream.framer.finish(&mut stream.buf).unwrap(), &mut last);
    assert_eq!(last, [status("last")]);
    assert_eq!(stream.framer.finish(&mut stream.buf), None);
}

#[test]
fn write_serialization() {
    let answer = AgentCommand::Decision {
        request: RequestId::text("req-001"),
        approved: true,
        reason: None,
        option: None,
    };
    let text = encode(&answer).unwrap();
    let line = Framer::ndjson(1024).wrap(&text);
    assert_eq!(line.iter().position(|byte| *byte == b'\n'), Some(line.len() - 1));
    let value: serde_json::Value = serde_json::from_slice(&line).unwrap();
    assert_eq!(
        value,
        serde_json::json!({"method": "clearance/response", "id": "req-001",
                           "params": {"status": "approved", "reason": null}})
    );
}

#[test]
fn every_outgoing_message_is_as_the_contract_has_it() {
    let request = || RequestId::parse("7").unwrap();
    let cases = [
        (
            AgentCommand::Decision {
                request: request(),
                approved: false,
                reason: Some("no".into()),
                option: None,
            },
            r#"{"id":7,"method":"clearance/response","params":{"status":"rejected","reason":"no"}}"#,
        ),
        (
            AgentCommand::Answer {
                request: request(),
                decision: Answer::Refine,
                instruction: Some("smaller".into()),
            },
            r#"{"id":7,"method":"prompt/response","params":{"decision":"refine","instruction":"smaller"}}"#,
        ),
        (
            AgentCommand::Prompt { wording: "go\non".into(), turn: None },
            r#"{"method":"prompt/send","params":{"text":"go\non"}}"#,
        ),
        (
            AgentCommand::Prompt { wording: "go".into(), turn: Some(TurnId::from_seed([7; 10])) },
            r#"{"method":"prompt/send","params":{"text":"go","turn":"trn_0w3ge1r70w3ge1r7"}}"#,
        ),
        (
            AgentCommand::Interrupt { reason: "enough".into() },
            r#"{"method":"session/interrupt","params":{"reason":"enough"}}"#,
        ),
        (
            AgentCommand::Nudge { message: "go on".into() },
            r#"{"method":"nudge","params":{"message":"go on"}}"#,
        ),
        (
            AgentCommand::Fault(RequestFault {
                request: request(),
                code: FaultCode::DuplicateId,
                message: "twice".into(),
            }),
            r#"{"id":7,"method":"error","params":{"code":"duplicate_id","message":"twice"}}"#,
        ),
    ];
    for (message, expected) in cases {
        assert_eq!(encode(&message).as_deref(), Some(expected));
    }
}

#[test]
fn a_turn_end_names_its_turn_or_none() {
    let named = |params: &str| {
        let line = format!("{{\"method\":\"turn/end\",\"params\":{params}}}\n");
        match &Stream::new().read(&line)[..] {
            [AgentMessage::TurnEnd { turn, .. }] => *turn,
            other => panic!("{other:?}"),
        }
    };
    let turn = TurnId::from_seed([7; 10]);
    assert_eq!(named(&format!("{{\"turn\":\"{turn}\"}}")), Some(turn));
    // Agents may have a field of this name from before it meant something to us.
    for other in ["{}", r#"{"turn":null}"#, r#"{"turn":7}"#, r#"{"turn":"seven"}"#, r#"{"turn":{"id":1}}"#] {
        assert_eq!(named(other), None, "{other}");
    }
}

#[test]
fn progress_adds_up() {
    let read = |progress: &str| {
        let line = format!("{{\"method\":\"heartbeat\",\"params\":{{\"progress\":{progress}}}}}\n");
        match &Stream::new().read(&line)[..] {
            [AgentMessage::Heartbeat { progress, .. }] => *progress,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(read("[]"), HeartbeatProgress::Empty);
    assert_eq!(read("null"), HeartbeatProgress::Empty);
    assert_eq!(read(r#"[{"label":"a","status":"completed"}]"#), HeartbeatProgress::Completed);
    assert_eq!(
        read(r#"[{"label":"a","status":"completed"},{"label":"b","status":"pending"}]"#),
        HeartbeatProgress::Open
    );
    assert_eq!(read(r#"["completed"]"#), HeartbeatProgress::Open);
}

#[test]
fn empty_lines_mean_nothing() {
    assert_eq!(Stream::new().read("\n  \n\r\n"), []);
}

#[test]
fn what_an_agent_repeats_of_us_is_known_as_that() {
    for method in ["prompt/send", "nudge", "session/interrupt"] {
        let said = Stream::new().read(&format!("{{\"method\":\"{method}\",\"params\":{{}}}}\n"));
        let [AgentMessage::Echo(event)] = &said[..] else { panic!("{said:?}") };
        assert!(matches!(**event, Event::UnknownMessage(_)), "{said:?}");
        assert_eq!(event.data(), format!(r#"{{"message":{{"method":"{method}","params":{{}}}}}}"#));
    }
}

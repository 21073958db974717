//! Every kind against payloads that earlier releases wrote (`golden/`), byte for byte.

use std::collections::BTreeSet;

use super::*;
use crate::samples::golden;

#[test]
fn every_kind_reads_and_writes_its_recorded_payloads_byte_for_byte() {
    for kind in EventKind::ALL {
        let payloads = golden(*kind);
        assert!(!payloads.is_empty(), "{}", kind.as_str());
        for payload in payloads {
            let event = Event::parse(kind.as_str(), &Json::trusted(payload.as_str()));
            assert_eq!(event.kind(), Some(*kind), "not understood: {} {payload}", kind.as_str());
            assert_eq!(event.data(), payload, "{}", kind.as_str());
        }
    }
}

#[test]
fn every_kind_has_a_name_of_its_own_that_reads_back() {
    let names: BTreeSet<&str> = EventKind::ALL.iter().map(|kind| kind.as_str()).collect();
    assert_eq!(names.len(), EventKind::ALL.len());
    for kind in EventKind::ALL {
        assert_eq!(EventKind::parse(kind.as_str()), Some(*kind));
    }
}

#[test]
fn recorded_payloads_match_the_published_schema() {
    for kind in EventKind::ALL {
        let mut generator = schemars::SchemaGenerator::default();
        let mut schema = kind.payload_schema(&mut generator).to_value();
        schema["$defs"] = serde_json::Value::Object(generator.take_definitions(true));
        let validator = jsonschema::validator_for(&schema).unwrap();
        for payload in golden(*kind) {
            let value: serde_json::Value = serde_json::from_str(&payload).unwrap();
            let errors: Vec<String> = validator.iter_errors(&value).map(|error| error.to_string()).collect();
            assert!(errors.is_empty(), "{}: {payload}: {errors:?}", kind.as_str());
        }
    }
}

/// The schema of an event: `data` is described for each known kind, and anything for a kind of a newer release.
fn schema() -> serde_json::Value {
    use serde_json::json;
    let mut generator = schemars::SchemaGenerator::default();
    let payloads: Vec<serde_json::Value> = EventKind::ALL
        .iter()
        .map(|kind| {
            json!({
                "if": { "properties": { "kind": { "const": kind.as_str() } } },
                "then": { "properties": { "data": kind.payload_schema(&mut generator) } },
            })
        })
        .collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Event",
        "description": "A fact in the log of a session, as the log stores it. Readers keep kinds that they do not know.",
        "type": "object",
        "required": ["seq", "session", "at", "kind", "data"],
        "properties": {
            "seq": { "type": "integer", "minimum": 1 },
            "session": { "type": "string" },
            "at": { "type": "string", "format": "date-time" },
            "kind": { "type": "string" },
            "data": true,
        },
        "allOf": payloads,
        "$defs": generator.take_definitions(true),
    })
}

#[test]
fn the_published_schema_is_that_of_the_payloads() {
    intercom_testkit::assert_published("events.schema.json", &schema());
}

#[test]
fn the_published_schema_takes_recorded_and_unknown_events_and_refuses_others() {
    let validator = jsonschema::validator_for(&schema()).unwrap();
    let at = "2026-01-01T00:00:00.000Z";
    let event = |kind: &str, data: serde_json::Value| serde_json::json!({ "seq": 1, "session": "ses_1", "at": at, "kind": kind, "data": data });
    for kind in EventKind::ALL {
        for payload in golden(*kind) {
            let event = event(kind.as_str(), serde_json::from_str(&payload).unwrap());
            let errors: Vec<String> = validator.iter_errors(&event).map(|error| error.to_string()).collect();
            assert!(errors.is_empty(), "{}: {payload}: {errors:?}", kind.as_str());
        }
    }
    assert!(validator.is_valid(&event("moon.landed", serde_json::json!(7))));
    assert!(!validator.is_valid(&event("turn.started", serde_json::json!({ "turn": 7 }))));
}

#[test]
fn an_unknown_kind_and_an_unreadable_payload_are_kept() {
    for (kind, data) in [("moon.landed", r#"{"n": 1.0}"#), ("turn.started", r#"{"turn":7}"#), ("nudge", "[]")]
    {
        let event = Event::parse(kind, &Json::trusted(data));
        assert_eq!((event.kind(), event.name(), event.data().as_ref()), (None, kind, data));
    }
}

#[test]
fn the_person_who_acted_is_known_wherever_an_audited_payload_names_one() {
    for kind in EventKind::ALL.iter().filter(|kind| kind.is_audited()) {
        for payload in golden(*kind) {
            let value: serde_json::Value = serde_json::from_str(&payload).unwrap();
            let event = Event::parse(kind.as_str(), &Json::trusted(payload));
            assert_eq!(event.by(), value["by"].as_str(), "{}", kind.as_str());
        }
    }
}

#[test]
fn payloads_of_earlier_releases_without_the_newer_fields_are_understood() {
    for (kind, payload) in [
        (EventKind::SessionEnded, r#"{"reason":"stopped by ana"}"#),
        (EventKind::SessionParked, r#"{"reason":"exited","stderr_tail":""}"#),
        (
            EventKind::AgentRestarting,
            r#"{"at":"2026-01-01T00:00:00.000Z","wait_ms":1,"attempt":1,"of":3,"reason":"exited","generation":2}"#,
        ),
    ] {
        assert_eq!(Event::parse(kind.as_str(), &Json::trusted(payload)).kind(), Some(kind));
    }
}

#[test]
fn an_odd_field_of_an_update_hides_no_other() {
    let update = |json: &str| RawMessage(Json::trusted(json)).update();
    let odd = r#"{"update":{"sessionUpdate":"tool_call","toolCallId":"t1","title":7,"status":"completed","x":1e999}}"#;
    let call = AgentUpdate::ToolCall {
        id: "t1".to_owned(),
        title: None,
        status: Some("completed".to_owned()),
        begins: true,
    };
    assert_eq!(update(odd), Some(call));
    assert_eq!(update(r#"{"update":7,"title":""}"#), None);
    assert_eq!(update(r#"{"update":{}}"#), Some(AgentUpdate::Other("update".to_owned())));
}

#[test]
fn the_messages_of_agents_are_kept_as_they_came() {
    for kind in EventKind::ALL {
        let event = Event::said_by_agent(*kind, &Json::trusted("[1.0]"));
        assert_eq!(event.is_some(), kind.is_said_by_agent(), "{}", kind.as_str());
    }
}

#[test]
fn the_kinds_about_a_stall_are_those_that_are_named_so() {
    for kind in EventKind::ALL {
        assert_eq!(kind.is_of_stall(), kind.as_str().starts_with("stall."), "{}", kind.as_str());
    }
}

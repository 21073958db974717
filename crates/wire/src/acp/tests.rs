//! The schema's own types through our reading, what real agents were seen to send, and texts that nobody sends.

mod cards;
mod schema;
mod seen;
mod sent;
mod troubles;

use proptest::prelude::*;
use serde_json::value::RawValue;

use super::answer::{
    InitializeAnswer, SessionPromptAnswer, SessionStartAnswer, config_options, next_session_page,
};
use super::error_answer::{ErrorAnswer, LogInAdvice, ProviderLimit};
use super::permission::permission_details;
use super::request::{self, AcpAgentRequest, PermissionRequest};
use super::update::SessionUpdateParts;
use super::{method, pick};

fn raw(text: &str) -> &RawValue {
    serde_json::from_str(text).expect(text)
}

fn permission(params: &str) -> PermissionRequest<'_> {
    match AcpAgentRequest::read(method::REQUEST_PERMISSION, Some(raw(params))) {
        Ok(AcpAgentRequest::Permission(permission)) => permission,
        other => panic!("{other:?}"),
    }
}

#[test]
fn fields_are_picked_from_objects_only_and_once() {
    let get = |text| pick(raw(text), ["a", "b"]).map(|found| found.map(|raw| raw.map(RawValue::get)));
    assert_eq!(get(r#"{"b": 1.0,"c":[{"a":2}]}"#), Some([None, Some("1.0")]));
    assert_eq!(get(r#"{"\u0061":null,"b":{"x": []}}"#), Some([None, Some(r#"{"x": []}"#)]));
    assert_eq!(get(r#"{"c":1,"c":2}"#), Some([None, None]));
    assert_eq!(get(r#"{"a":1,"a":1}"#), None);
    assert_eq!(get("[1,2]"), None);
    assert_eq!(get("null"), None);
}

/// Everything that we read from agents.
fn read_all(text: &str) {
    let Ok(value) = serde_json::from_str::<&RawValue>(text) else { return };
    drop(InitializeAnswer::read(value));
    let started = SessionStartAnswer::read(value);
    drop((started.modes(), started.models(), config_options(started.config_options)));
    drop((SessionPromptAnswer::read(value), next_session_page(value)));
    drop(request::cancelled(value));
    let failure = ErrorAnswer::read(value);
    let advice = LogInAdvice { reason: String::new(), how: String::new() };
    drop((failure.advice("x", &advice), failure.is_refused()));
    if let Some(update) = SessionUpdateParts::read(value) {
        drop((update.detail(), update.text()));
    }
    for name in METHODS {
        if let Ok(AcpAgentRequest::Permission(permission)) = AcpAgentRequest::read(name, Some(value)) {
            drop(permission_details(&permission, Some(&permission.tool), "/w"));
        }
    }
}

const METHODS: &[&str] = &[
    method::REQUEST_PERMISSION,
    method::READ_TEXT_FILE,
    method::WRITE_TEXT_FILE,
    method::TERMINAL_CREATE,
    method::TERMINAL_OUTPUT,
    method::TERMINAL_WAIT,
    method::TERMINAL_KILL,
    method::TERMINAL_RELEASE,
    method::ELICITATION_CREATE,
    "_x/y",
];

const NAMES: &[&str] = &[
    "sessionId",
    "update",
    "sessionUpdate",
    "toolCall",
    "toolCallId",
    "title",
    "kind",
    "status",
    "content",
    "type",
    "path",
    "oldText",
    "newText",
    "text",
    "locations",
    "rawInput",
    "command",
    "args",
    "cwd",
    "options",
    "optionId",
    "name",
    "entries",
    "used",
    "cost",
    "amount",
    "currentModeId",
    "authMethods",
    "_meta",
    "message",
    "code",
    "data",
    "retry_after",
    "resets_at",
    "usage",
    "stopReason",
    "modes",
    "availableModes",
    "sessions",
];

/// JSON made of the names that we look for.
fn json() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        "null",
        "true",
        "7",
        "-1.5e3",
        "1e400",
        r#""""#,
        r#""tool_call""#,
        r#""plan""#,
        r#""usage_update""#,
        r#""diff""#,
        r#""content""#,
        r#""execute""#,
        r#""a\n\ud83d\ude00b""#,
        r#""\ud800""#,
        r#""rate limit, try again in 5é""#,
    ]);
    word.prop_map(str::to_owned).prop_recursive(5, 60, 6, |inner| {
        let field = (prop::sample::select(NAMES), inner.clone());
        let object = prop::collection::vec(field, 0..6).prop_map(|fields| {
            let fields: Vec<String> =
                fields.iter().map(|(name, value)| format!("{name:?}: {value}")).collect();
            format!("{{{}}}", fields.join(","))
        });
        let array = prop::collection::vec(inner, 0..4).prop_map(|items| format!("[{}]", items.join(" ,")));
        prop_oneof![4 => object, 1 => array]
    })
}

proptest! {
    #[test]
    fn no_json_makes_the_reading_panic(text in json()) {
        read_all(&text);
    }

    #[test]
    fn no_text_makes_the_reading_of_errors_panic(text in any::<String>()) {
        let error = serde_json::json!({ "code": 429, "message": format!("rate limit, resets {text} try again in {text}") });
        ErrorAnswer::read(raw(&error.to_string()));
        ProviderLimit::from_agent_text(&text);
        ProviderLimit::from_agent_text(&format!("You\u{2019}ve hit your usage limit, try again at {text}"));
    }
}

//! The intercom protocol: one JSON object per message, `{"method", "id", "params"}`.
//!
//! Only the fields that we use are parsed; the rest of a message is kept unchanged.

use std::borrow::Cow;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{ParsedText, to_text, trim_json, unquote};
use intercom_types::RequestId;

/// A message from an agent.
#[derive(Debug)]
pub enum IntercomMessage<'a> {
    ClearanceRequest { id: RequestId, known: ClearanceRequestParams<'a>, params: &'a RawValue },
    StatusUpdate { params: &'a RawValue },
    PromptForward { id: RequestId, known: PromptForwardParams<'a>, params: &'a RawValue },
    Heartbeat { progress: Vec<HeartbeatStep<'a>>, raw: Option<&'a RawValue>, params: Option<&'a RawValue> },
    TurnEnd { stop_reason: Option<Cow<'a, str>>, turn: Option<Cow<'a, str>>, params: Option<&'a RawValue> },
    ToolUpdate { known: ToolUpdateParams<'a>, params: &'a RawValue },
    ServiceLimit { known: ServiceLimitParams<'a>, params: Option<&'a RawValue> },
    ClearanceOutcome { request: RequestId, outcome: Cow<'a, str>, params: &'a RawValue },
    Unknown { method: String, id: Option<RequestId> },
}

#[derive(Debug)]
pub struct ClearanceRequestParams<'a> {
    pub(crate) title: Cow<'a, str>,
    pub(crate) description: Option<Cow<'a, str>>,
    pub(crate) diff: Option<Cow<'a, str>>,
    pub(crate) file_path: Option<Cow<'a, str>>,
    pub(crate) risk_level: Option<Cow<'a, str>>,
    pub(crate) tool: Option<Cow<'a, str>>,
    pub(crate) command: Option<Cow<'a, str>>,
}

#[derive(Debug)]
pub struct PromptForwardParams<'a> {
    pub(crate) text: Cow<'a, str>,
    pub(crate) sort: Option<Cow<'a, str>>,
}

#[derive(Debug)]
pub struct ToolUpdateParams<'a> {
    pub(crate) title: Cow<'a, str>,
    pub(crate) tool: Option<Cow<'a, str>>,
    /// The id of the call, the same in all messages about it.
    pub(crate) call: Option<Cow<'a, str>>,
    pub(crate) status: Option<Cow<'a, str>>,
}

#[derive(Debug)]
pub struct ServiceLimitParams<'a> {
    pub(crate) kind: Option<Cow<'a, str>>,
    pub(crate) resets_at: Option<Cow<'a, str>>,
    pub(crate) retry_after_seconds: Option<u64>,
}

/// One step of a heartbeat's progress; fields are `None` if the agent sent another type.
#[derive(Debug, PartialEq, Eq)]
pub struct HeartbeatStep<'a> {
    pub(crate) label: Option<Cow<'a, str>>,
    pub(crate) status: Option<Cow<'a, str>>,
}

/// The reason why a message is invalid.
#[derive(Debug, PartialEq, Eq)]
pub enum InvalidIntercomMessage {
    /// Not JSON at all.
    Malformed(String),
    NotAnObject,
    Missing {
        method: Option<String>,
        field: &'static str,
        id: Option<RequestId>,
    },
    Invalid {
        method: Option<String>,
        field: &'static str,
        wanted: &'static str,
        id: Option<RequestId>,
    },
}

#[derive(Deserialize)]
struct IntercomEnvelope<'a> {
    #[serde(borrow)]
    method: Option<&'a RawValue>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

/// Parses a message and returns it with its text.
pub fn parse(text: &str) -> Result<(IntercomMessage<'_>, ParsedText<'_>), InvalidIntercomMessage> {
    let text = trim_json(text);
    message(text).map(|message| (message, ParsedText(text)))
}

fn message(text: &str) -> Result<IntercomMessage<'_>, InvalidIntercomMessage> {
    if !text.starts_with('{') {
        return Err(match serde_json::from_str::<IgnoredAny>(text) {
            Ok(_) => InvalidIntercomMessage::NotAnObject,
            Err(error) => InvalidIntercomMessage::Malformed(error.to_string()),
        });
    }
    let IntercomEnvelope { method, id, params } =
        serde_json::from_str(text).map_err(|error| InvalidIntercomMessage::Malformed(error.to_string()))?;
    let id = match id {
        None => None,
        Some(raw) => Some(RequestId::parse(raw.get()).ok_or(InvalidIntercomMessage::Invalid {
            method: None,
            field: "id",
            wanted: "a string or a number",
            id: None,
        })?),
    };
    let Some(method) = method else {
        return Err(InvalidIntercomMessage::Missing { method: None, field: "method", id });
    };
    let Some(method) = unquote(method.get()) else {
        return Err(InvalidIntercomMessage::Invalid {
            method: None,
            field: "method",
            wanted: "a string",
            id,
        });
    };
    match &*method {
        "status/update" => status(id, params),
        "heartbeat" => heartbeat(id, params),
        "clearance/request" => clearance(id, params),
        "prompt/forward" => question(id, params),
        "turn/end" => {
            let fields = IntercomParams::new("turn/end", id.as_ref(), params)?;
            let stop_reason = optional("turn/end", "stop_reason", fields.stop_reason, id.as_ref())?;
            // Agents that predate this field may use `turn` for something else: only a string can be ours.
            let turn = fields.turn.and_then(|raw| unquote(raw.get()));
            Ok(IntercomMessage::TurnEnd { stop_reason, turn, params })
        }
        "tool/update" => tool(id.as_ref(), params),
        "clearance/outcome" => outcome(id, params),
        "service/limit" => limit(id.as_ref(), params),
        _ => Ok(IntercomMessage::Unknown { method: method.into_owned(), id }),
    }
}

/// All fields of all methods' params that we use, still raw.
#[derive(Default, Deserialize)]
struct IntercomParams<'a> {
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    #[serde(borrow)]
    title: Option<&'a RawValue>,
    #[serde(borrow)]
    description: Option<&'a RawValue>,
    #[serde(borrow)]
    diff: Option<&'a RawValue>,
    #[serde(borrow)]
    file_path: Option<&'a RawValue>,
    #[serde(borrow)]
    risk_level: Option<&'a RawValue>,
    #[serde(borrow)]
    text: Option<&'a RawValue>,
    #[serde(borrow, rename = "type")]
    sort: Option<&'a RawValue>,
    #[serde(borrow)]
    progress: Option<&'a RawValue>,
    #[serde(borrow)]
    stop_reason: Option<&'a RawValue>,
    #[serde(borrow)]
    turn: Option<&'a RawValue>,
    #[serde(borrow)]
    tool: Option<&'a RawValue>,
    #[serde(borrow)]
    command: Option<&'a RawValue>,
    #[serde(borrow)]
    request: Option<&'a RawValue>,
    #[serde(borrow)]
    outcome: Option<&'a RawValue>,
    #[serde(borrow)]
    call: Option<&'a RawValue>,
    #[serde(borrow)]
    status: Option<&'a RawValue>,
    #[serde(borrow)]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    resets_at: Option<&'a RawValue>,
    #[serde(borrow)]
    retry_after_seconds: Option<&'a RawValue>,
}

impl<'a> IntercomParams<'a> {
    fn new(
        method: &'static str,
        id: Option<&RequestId>,
        params: Option<&'a RawValue>,
    ) -> Result<Self, InvalidIntercomMessage> {
        let Some(params) = params else { return Ok(Self::default()) };
        let object = params.get().starts_with('{').then(|| serde_json::from_str(params.get()).ok()).flatten();
        object.ok_or_else(|| InvalidIntercomMessage::Invalid {
            method: Some(method.to_owned()),
            field: "params",
            wanted: "an object that names no field twice",
            id: id.cloned(),
        })
    }
}

/// Returns the fields of a method that needs some, and its params. `first` is the field that is reported as missing if
/// there are no params at all.
fn required_params<'a>(
    method: &'static str,
    first: &'static str,
    id: Option<&RequestId>,
    params: Option<&'a RawValue>,
) -> Result<(IntercomParams<'a>, &'a RawValue), InvalidIntercomMessage> {
    let raw = params.ok_or_else(|| missing(method, first, id))?;
    Ok((IntercomParams::new(method, id, params)?, raw))
}

fn status(
    id: Option<RequestId>,
    params: Option<&RawValue>,
) -> Result<IntercomMessage<'_>, InvalidIntercomMessage> {
    const METHOD: &str = "status/update";
    let (fields, params) = required_params(METHOD, "message", id.as_ref(), params)?;
    // The text itself is not needed here: it goes into the log unchanged.
    if required(METHOD, "message", fields.message, id.as_ref())?.starts_with('"') {
        Ok(IntercomMessage::StatusUpdate { params })
    } else {
        Err(not_a_string(METHOD, "message", id))
    }
}

fn clearance(
    id: Option<RequestId>,
    params: Option<&RawValue>,
) -> Result<IntercomMessage<'_>, InvalidIntercomMessage> {
    const METHOD: &str = "clearance/request";
    let (fields, params) = required_params(METHOD, "title", id.as_ref(), params)?;
    let id_ref = id.as_ref();
    let known = ClearanceRequestParams {
        title: string(METHOD, "title", required(METHOD, "title", fields.title, id_ref)?, id_ref)?,
        description: optional(METHOD, "description", fields.description, id_ref)?,
        diff: optional(METHOD, "diff", fields.diff, id_ref)?,
        file_path: optional(METHOD, "file_path", fields.file_path, id_ref)?,
        // An unknown risk level is not an error: it counts as high.
        risk_level: fields.risk_level.map(|raw| loose_string(raw.get())),
        tool: optional(METHOD, "tool", fields.tool, id_ref)?,
        command: optional(METHOD, "command", fields.command, id_ref)?,
    };
    let id = id.ok_or_else(|| missing(METHOD, "id", None))?;
    Ok(IntercomMessage::ClearanceRequest { id, known, params })
}

fn question(
    id: Option<RequestId>,
    params: Option<&RawValue>,
) -> Result<IntercomMessage<'_>, InvalidIntercomMessage> {
    const METHOD: &str = "prompt/forward";
    let (fields, params) = required_params(METHOD, "text", id.as_ref(), params)?;
    let id_ref = id.as_ref();
    let known = PromptForwardParams {
        text: string(METHOD, "text", required(METHOD, "text", fields.text, id_ref)?, id_ref)?,
        sort: optional(METHOD, "type", fields.sort, id_ref)?,
    };
    let id = id.ok_or_else(|| missing(METHOD, "id", None))?;
    Ok(IntercomMessage::PromptForward { id, known, params })
}

fn tool<'a>(
    id: Option<&RequestId>,
    params: Option<&'a RawValue>,
) -> Result<IntercomMessage<'a>, InvalidIntercomMessage> {
    const METHOD: &str = "tool/update";
    let (fields, params) = required_params(METHOD, "title", id, params)?;
    let known = ToolUpdateParams {
        title: string(METHOD, "title", required(METHOD, "title", fields.title, id)?, id)?,
        tool: optional(METHOD, "tool", fields.tool, id)?,
        call: optional(METHOD, "call", fields.call, id)?,
        status: optional(METHOD, "status", fields.status, id)?,
    };
    Ok(IntercomMessage::ToolUpdate { known, params })
}

fn limit<'a>(
    id: Option<&RequestId>,
    params: Option<&'a RawValue>,
) -> Result<IntercomMessage<'a>, InvalidIntercomMessage> {
    const METHOD: &str = "service/limit";
    let fields = IntercomParams::new(METHOD, id, params)?;
    let seconds = fields.retry_after_seconds.map(|raw| {
        serde_json::from_str(raw.get()).map_err(|_| InvalidIntercomMessage::Invalid {
            method: Some(METHOD.to_owned()),
            field: "retry_after_seconds",
            wanted: "a whole number",
            id: id.cloned(),
        })
    });
    let known = ServiceLimitParams {
        kind: optional(METHOD, "kind", fields.kind, id)?,
        resets_at: optional(METHOD, "resets_at", fields.resets_at, id)?,
        retry_after_seconds: seconds.transpose()?,
    };
    Ok(IntercomMessage::ServiceLimit { known, params })
}

fn outcome(
    id: Option<RequestId>,
    params: Option<&RawValue>,
) -> Result<IntercomMessage<'_>, InvalidIntercomMessage> {
    const METHOD: &str = "clearance/outcome";
    let (fields, params) = required_params(METHOD, "request", id.as_ref(), params)?;
    let request = required(METHOD, "request", fields.request, id.as_ref())?;
    let Some(request) = RequestId::parse(request) else {
        let (method, wanted) = (Some(METHOD.to_owned()), "a string or a number");
        return Err(InvalidIntercomMessage::Invalid { method, field: "request", wanted, id });
    };
    let outcome = required(METHOD, "outcome", fields.outcome, id.as_ref())?;
    let outcome = string(METHOD, "outcome", outcome, id.as_ref())?;
    Ok(IntercomMessage::ClearanceOutcome { request, outcome, params })
}

fn heartbeat(
    id: Option<RequestId>,
    params: Option<&RawValue>,
) -> Result<IntercomMessage<'_>, InvalidIntercomMessage> {
    const METHOD: &str = "heartbeat";
    #[derive(Deserialize)]
    struct RawStepFields<'a> {
        #[serde(borrow)]
        label: Option<&'a RawValue>,
        #[serde(borrow)]
        status: Option<&'a RawValue>,
    }
    let fields = IntercomParams::new(METHOD, id.as_ref(), params)?;
    let Some(progress) = fields.progress else {
        return Ok(IntercomMessage::Heartbeat { progress: Vec::new(), raw: None, params });
    };
    let Ok(steps) = serde_json::from_str::<Vec<&RawValue>>(progress.get()) else {
        return Err(InvalidIntercomMessage::Invalid {
            method: Some(METHOD.to_owned()),
            field: "progress",
            wanted: "an array",
            id,
        });
    };
    let steps = steps.into_iter().map(|step| {
        let known =
            step.get().starts_with('{').then(|| serde_json::from_str::<RawStepFields<'_>>(step.get()).ok());
        let RawStepFields { label, status } =
            known.flatten().unwrap_or(RawStepFields { label: None, status: None });
        HeartbeatStep {
            label: label.map(|raw| loose_string(raw.get())),
            status: status.map(|raw| loose_string(raw.get())),
        }
    });
    Ok(IntercomMessage::Heartbeat { progress: steps.collect(), raw: Some(progress), params })
}

fn missing(method: &str, field: &'static str, id: Option<&RequestId>) -> InvalidIntercomMessage {
    InvalidIntercomMessage::Missing { method: Some(method.to_owned()), field, id: id.cloned() }
}

fn not_a_string(method: &str, field: &'static str, id: Option<RequestId>) -> InvalidIntercomMessage {
    InvalidIntercomMessage::Invalid { method: Some(method.to_owned()), field, wanted: "a string", id }
}

fn required<'a>(
    method: &str,
    field: &'static str,
    raw: Option<&'a RawValue>,
    id: Option<&RequestId>,
) -> Result<&'a str, InvalidIntercomMessage> {
    raw.map(RawValue::get).ok_or_else(|| missing(method, field, id))
}

fn string<'a>(
    method: &str,
    field: &'static str,
    raw: &'a str,
    id: Option<&RequestId>,
) -> Result<Cow<'a, str>, InvalidIntercomMessage> {
    unquote(raw).ok_or_else(|| not_a_string(method, field, id.cloned()))
}

fn optional<'a>(
    method: &str,
    field: &'static str,
    raw: Option<&'a RawValue>,
    id: Option<&RequestId>,
) -> Result<Option<Cow<'a, str>>, InvalidIntercomMessage> {
    raw.map(|raw| string(method, field, raw.get(), id)).transpose()
}

/// Returns a string's text, and any other JSON verbatim.
fn loose_string(raw: &str) -> Cow<'_, str> {
    unquote(raw).unwrap_or(Cow::Borrowed(raw))
}

/// A message to an agent.
#[derive(Debug, Serialize)]
#[serde(tag = "method", content = "params")]
pub(crate) enum IntercomCommand<'a> {
    #[serde(rename = "clearance/response")]
    ClearanceResponse { status: &'static str, reason: Option<&'a str> },
    #[serde(rename = "prompt/send")]
    PromptSend {
        text: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        turn: Option<String>,
    },
    #[serde(rename = "prompt/response")]
    PromptResponse { decision: &'static str, instruction: Option<&'a str> },
    #[serde(rename = "session/interrupt")]
    SessionInterrupt { reason: &'a str },
    #[serde(rename = "nudge")]
    Nudge { message: &'a str },
    #[serde(rename = "error")]
    Error { code: &'static str, message: &'a str },
}

/// Reports whether only the daemon sends this method, without an answer: an agent that sends it echoes us.
pub(crate) fn is_daemon_method(method: &str) -> bool {
    ["prompt/send", "session/interrupt", "nudge"].contains(&method)
}

/// Encodes one message as text, without framing.
pub(crate) fn render(message: &IntercomCommand<'_>, id: Option<&RequestId>) -> String {
    #[derive(Serialize)]
    struct OutgoingEnvelope<'a> {
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<&'a RequestId>,
        #[serde(flatten)]
        message: &'a IntercomCommand<'a>,
    }
    // `flatten` would change the spelling of raw numbers inside, but the id is outside of the flattened part.
    to_text(&OutgoingEnvelope { id, message })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<IntercomMessage<'_>, InvalidIntercomMessage> {
        super::parse(text).map(|(message, _)| message)
    }

    fn bad(text: &str) -> InvalidIntercomMessage {
        parse(text).expect_err(text)
    }

    #[test]
    fn what_is_no_object_is_told_from_what_is_no_json() {
        assert!(matches!(bad("hello"), InvalidIntercomMessage::Malformed(_)));
        assert!(matches!(bad("{\"method\":"), InvalidIntercomMessage::Malformed(_)));
        assert!(matches!(bad(""), InvalidIntercomMessage::Malformed(_)));
        assert_eq!(bad("[\"status/update\", 1, {}]"), InvalidIntercomMessage::NotAnObject);
        assert_eq!(bad("\"x\""), InvalidIntercomMessage::NotAnObject);
        assert!(matches!(bad(r#"{"method":"x"} {"method":"y"}"#), InvalidIntercomMessage::Malformed(_)));
    }

    #[test]
    fn missing_and_wrong_fields_are_named_with_method_and_id() {
        let id = RequestId::parse("4");
        let clearance = Some("clearance/request".to_owned());
        assert_eq!(
            bad(r#"{"method":"clearance/request","id":4,"params":{}}"#),
            InvalidIntercomMessage::Missing { method: clearance.clone(), field: "title", id: id.clone() }
        );
        assert_eq!(
            bad(r#"{"method":"clearance/request","id":4}"#),
            InvalidIntercomMessage::Missing { method: clearance.clone(), field: "title", id: id.clone() }
        );
        assert_eq!(
            bad(r#"{"method":"clearance/request","params":{"title":"t"}}"#),
            InvalidIntercomMessage::Missing { method: clearance.clone(), field: "id", id: None }
        );
        assert_eq!(
            bad(r#"{"method":"clearance/request","id":4,"params":{"title":5}}"#),
            InvalidIntercomMessage::Invalid {
                method: clearance.clone(),
                field: "title",
                wanted: "a string",
                id: id.clone()
            }
        );
        assert!(matches!(
            bad(r#"{"method":"clearance/request","id":4,"params":[]}"#),
            InvalidIntercomMessage::Invalid { field: "params", .. }
        ));
        assert!(matches!(
            bad(r#"{"id":4,"params":{}}"#),
            InvalidIntercomMessage::Missing { field: "method", id: Some(_), .. }
        ));
        assert!(matches!(
            bad(r#"{"method":"status/update","params":{}}"#),
            InvalidIntercomMessage::Missing { field: "message", .. }
        ));
        assert!(matches!(
            bad(r#"{"method":"status/update","params":{"message":{}}}"#),
            InvalidIntercomMessage::Invalid { field: "message", .. }
        ));
        assert!(matches!(
            bad(r#"{"method":"x","id":[]}"#),
            InvalidIntercomMessage::Invalid { field: "id", .. }
        ));
        assert!(matches!(
            bad(r#"{"method":5,"id":1}"#),
            InvalidIntercomMessage::Invalid { field: "method", .. }
        ));
        assert!(matches!(
            bad(r#"{"method":"heartbeat","params":{"progress":5}}"#),
            InvalidIntercomMessage::Invalid { .. }
        ));
    }

    #[test]
    fn a_null_id_is_no_id_and_odd_risk_is_a_claim() {
        let parsed = parse(r#"{"method":"x/y","id":null}"#);
        assert!(matches!(parsed, Ok(IntercomMessage::Unknown { id: None, .. })));
        let parsed =
            parse(r#"{"method":"clearance/request","id":1,"params":{"title":"a\"b","risk_level":9}}"#);
        let Ok(IntercomMessage::ClearanceRequest { known, .. }) = parsed else { panic!("{parsed:?}") };
        assert_eq!(known.title, "a\"b");
        assert_eq!(known.risk_level.as_deref(), Some("9"));
    }

    #[test]
    fn a_method_may_be_spelled_with_escapes() {
        let parsed = parse(r#"{"method":"status\/update","params":{"message":"x"}}"#);
        assert!(matches!(parsed, Ok(IntercomMessage::StatusUpdate { .. })), "{parsed:?}");
    }

    #[test]
    fn answers_carry_the_id_with_its_type() {
        let yes = IntercomCommand::ClearanceResponse { status: "approved", reason: None };
        let id = RequestId::parse("10000000000000000000000001");
        assert_eq!(
            render(&yes, id.as_ref()),
            r#"{"id":10000000000000000000000001,"method":"clearance/response","params":{"status":"approved","reason":null}}"#
        );
        assert_eq!(
            render(&IntercomCommand::Nudge { message: "a\nb" }, None),
            r#"{"method":"nudge","params":{"message":"a\nb"}}"#
        );
    }
}

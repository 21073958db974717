//! Clients' requests to us, when we are the agent. Unknown fields are left alone.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::method;
use intercom_types::{Json, RequestId};

/// One request or notification.
#[derive(Debug)]
pub enum AcpClientRequest {
    Initialize(InitializeParams),
    Authenticate,
    New(NewSessionParams),
    Load(OpenSessionParams),
    Resume(OpenSessionParams),
    List(ListSessionsParams),
    Close(SessionIdParams),
    Delete(SessionIdParams),
    Prompt(SessionPromptParams),
    Cancel(SessionIdParams),
    SetMode(SetModeParams),
    SetModel(SetModelParams),
    SetOption(SetOptionParams),
    /// The answer to that request is not wanted any more.
    CancelRequest(CancelRequestParams),
    Unknown,
}

/// Lenient: whoever says hello is let in.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct InitializeParams {
    pub name: Option<String>,
    /// True if the client can show forms.
    pub forms: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NewSessionParams {
    pub cwd: String,
    #[serde(default)]
    pub mcp_servers: Vec<Json>,
    #[serde(default, rename = "_meta")]
    pub meta: Option<Meta>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OpenSessionParams {
    pub session_id: String,
    /// Required by the protocol; the session has its own.
    #[serde(default)]
    pub cwd: Option<String>,
    #[serde(default, rename = "_meta")]
    pub meta: Option<Meta>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ListSessionsParams {
    pub cwd: Option<String>,
    pub cursor: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionIdParams {
    pub session_id: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionPromptParams {
    pub session_id: String,
    pub prompt: Vec<Json>,
    #[serde(default, rename = "_meta")]
    pub meta: Option<Meta>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SetModeParams {
    pub session_id: String,
    pub mode_id: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SetModelParams {
    pub session_id: String,
    pub model_id: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SetOptionParams {
    pub session_id: String,
    pub config_id: String,
    pub value: Value,
}

/// The value of an option: one to select, or a switch.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Value {
    Text(String),
    Switch(bool),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CancelRequestParams {
    request_id: Json,
}

impl CancelRequestParams {
    pub fn request(&self) -> Option<RequestId> {
        RequestId::parse(self.request_id.as_str())
    }
}

/// Our part of a `_meta`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Meta {
    pub intercom: Option<Ours>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Ours {
    /// The profile for a new session.
    pub agent: Option<String>,
    pub name: Option<String>,
    /// The last event of the log that its client has seen.
    pub after: Option<u64>,
    /// The id of a prompt, of the client's own making: sent again, it is the same prompt.
    pub prompt: Option<String>,
}

impl AcpClientRequest {
    /// The error says what is wrong with the parameters.
    pub fn read(name: &str, params: Option<&RawValue>) -> Result<Self, String> {
        Ok(match name {
            method::INITIALIZE => Self::Initialize(read_initialize(params)),
            method::AUTHENTICATE => Self::Authenticate,
            method::SESSION_NEW => Self::New(read_params(params)?),
            method::SESSION_LOAD => Self::Load(read_params(params)?),
            method::SESSION_RESUME => Self::Resume(read_params(params)?),
            method::SESSION_LIST => Self::List(match params {
                Some(_) => read_params(params)?,
                None => ListSessionsParams::default(),
            }),
            method::SESSION_CLOSE => Self::Close(read_params(params)?),
            method::SESSION_DELETE => Self::Delete(read_params(params)?),
            method::SESSION_PROMPT => Self::Prompt(read_params(params)?),
            method::SESSION_CANCEL => Self::Cancel(read_params(params)?),
            method::SESSION_SET_MODE => Self::SetMode(read_params(params)?),
            method::SESSION_SET_MODEL => Self::SetModel(read_params(params)?),
            method::SESSION_SET_CONFIG_OPTION => Self::SetOption(read_params(params)?),
            method::CANCEL_REQUEST => Self::CancelRequest(read_params(params)?),
            _ => Self::Unknown,
        })
    }
}

fn read_params<T: for<'de> Deserialize<'de>>(params: Option<&RawValue>) -> Result<T, String> {
    let Some(params) = params else { return Err("params are missing".to_owned()) };
    if !params.get().starts_with('{') {
        return Err("params must be an object".to_owned());
    }
    serde_json::from_str(params.get()).map_err(|error| {
        // Where it is in a line that nobody sees helps nobody.
        let text = error.to_string();
        text.split_once(" at line ").map_or(text.clone(), |(what, _)| what.to_owned())
    })
}

fn read_initialize(params: Option<&RawValue>) -> InitializeParams {
    let [capabilities, info] = super::optional_fields(params, ["clientCapabilities", "clientInfo"]);
    let [elicitation] = super::optional_fields(capabilities, ["elicitation"]);
    let [form] = super::optional_fields(elicitation, ["form"]);
    let [name, title] = super::optional_fields(info, ["name", "title"]);
    InitializeParams { name: super::owned(title).or_else(|| super::owned(name)), forms: super::capable(form) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, params: &str) -> Result<AcpClientRequest, String> {
        let raw = serde_json::from_str::<&RawValue>(params).unwrap();
        AcpClientRequest::read(name, Some(raw))
    }

    #[test]
    fn what_is_wrong_is_said_without_a_place_in_the_line() {
        let cases = [
            ("session/new", "{}", "missing field `cwd`"),
            ("session/new", r#"{"cwd":7}"#, "invalid type: integer `7`, expected a string"),
            ("session/new", r#"{"cwd":"/","mcpServers":{}}"#, "invalid type: map, expected a sequence"),
            ("session/prompt", "[]", "params must be an object"),
            ("session/prompt", r#"{"sessionId":"x"}"#, "missing field `prompt`"),
            (
                "session/set_config_option",
                r#"{"sessionId":"x","configId":"y","value":1}"#,
                "data did not match any variant of untagged enum Value",
            ),
        ];
        for (name, params, expected) in cases {
            assert_eq!(read(name, params).unwrap_err(), expected, "{name} {params}");
        }
        assert_eq!(AcpClientRequest::read("session/new", None).unwrap_err(), "params are missing");
    }

    #[test]
    fn whoever_says_hello_is_let_in() {
        for params in ["{}", "[]", "null", r#"{"protocolVersion":"x","clientCapabilities":7}"#] {
            let Ok(AcpClientRequest::Initialize(hello)) = read("initialize", params) else {
                panic!("{params}")
            };
            assert_eq!(hello, InitializeParams::default());
        }
        let full =
            r#"{"clientCapabilities":{"elicitation":{"form":{}}},"clientInfo":{"name":"zed","title":null}}"#;
        let Ok(AcpClientRequest::Initialize(hello)) = read("initialize", full) else { panic!() };
        assert_eq!(hello, InitializeParams { name: Some("zed".to_owned()), forms: true });
    }

    #[test]
    fn blocks_and_servers_are_kept_as_they_came() {
        let Ok(AcpClientRequest::Prompt(prompt)) =
            read("session/prompt", r#"{"sessionId":"s","prompt":[{"type":"odd", "n":1.0}],"x":1}"#)
        else {
            panic!()
        };
        assert_eq!(prompt.prompt[0].as_str(), r#"{"type":"odd", "n":1.0}"#);
        let Ok(AcpClientRequest::New(new)) = read(
            "session/new",
            r#"{"cwd":"/w","mcpServers":[{"name": "m"}],"_meta":{"intercom":{"agent":"a","x":1},"y":2}}"#,
        ) else {
            panic!()
        };
        assert_eq!(new.mcp_servers[0].as_str(), r#"{"name": "m"}"#);
        assert_eq!(new.meta.unwrap().intercom.unwrap().agent.as_deref(), Some("a"));
    }
}

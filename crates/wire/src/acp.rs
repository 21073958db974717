//! The Agent Client Protocol, version 1, from the side that hosts agents; `client_request` and `client_messages` are
//! the other side.
//!
//! ```text
//!  agent ──line──► jsonrpc::parse ──┬─ answer  ──► answer::{InitializeAnswer, SessionPromptAnswer, …}, error_answer
//!                                   ├─ request ──► request::AcpAgentRequest ──► permission_details
//!                                   └─ update  ──► update::SessionUpdateParts ──► tool::ToolCall, …
//!  agent ◄──line── send
//! ```
//!
//! Only the fields that we use are parsed, and leniently: a field of another type counts as absent, an unknown variant
//! is kept as a word, and the raw JSON is kept beside it. Messages that we send are made of the schema's own types.

pub mod answer;
pub mod client_messages;
pub mod client_request;
pub mod error_answer;
mod input;
pub mod permission;
pub mod request;
pub mod send;
#[cfg(test)]
mod tests;
pub mod tool;
pub mod update;

use std::borrow::Cow;
use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::unquote;

/// The supported version. An agent may answer with another one.
pub(crate) const VERSION: u64 = 1;

/// The names of the methods.
pub mod method {
    use agent_client_protocol_schema::v1::{
        AGENT_METHOD_NAMES as AGENT, CLIENT_METHOD_NAMES as CLIENT, PROTOCOL_LEVEL_METHOD_NAMES as BOTH,
    };

    pub const INITIALIZE: &str = AGENT.initialize;
    pub(crate) const AUTHENTICATE: &str = AGENT.authenticate;
    pub(crate) const SESSION_NEW: &str = AGENT.session_new;
    pub(crate) const SESSION_LOAD: &str = AGENT.session_load;
    pub(crate) const SESSION_RESUME: &str = AGENT.session_resume;
    pub(crate) const SESSION_LIST: &str = AGENT.session_list;
    pub(crate) const SESSION_CLOSE: &str = AGENT.session_close;
    pub(crate) const SESSION_DELETE: &str = AGENT.session_delete;
    pub const SESSION_PROMPT: &str = AGENT.session_prompt;
    pub const SESSION_CANCEL: &str = AGENT.session_cancel;
    pub(crate) const SESSION_SET_MODE: &str = AGENT.session_set_mode;
    pub(crate) const SESSION_SET_CONFIG_OPTION: &str = AGENT.session_set_config_option;
    /// No longer in the schema: models have become config options. Older agents support only this.
    pub(crate) const SESSION_SET_MODEL: &str = "session/set_model";

    /// An extension of Claude's and Codex's adapters.
    pub(crate) const SESSION_STEERING: &str = "_session/steering";

    pub const SESSION_UPDATE: &str = CLIENT.session_update;
    pub const REQUEST_PERMISSION: &str = CLIENT.session_request_permission;
    pub(crate) const READ_TEXT_FILE: &str = CLIENT.fs_read_text_file;
    pub(crate) const WRITE_TEXT_FILE: &str = CLIENT.fs_write_text_file;
    pub(crate) const TERMINAL_CREATE: &str = CLIENT.terminal_create;
    pub(crate) const TERMINAL_OUTPUT: &str = CLIENT.terminal_output;
    pub(crate) const TERMINAL_WAIT: &str = CLIENT.terminal_wait_for_exit;
    pub(crate) const TERMINAL_KILL: &str = CLIENT.terminal_kill;
    pub(crate) const TERMINAL_RELEASE: &str = CLIENT.terminal_release;
    pub const ELICITATION_CREATE: &str = CLIENT.elicitation_create;

    pub(crate) const CANCEL_REQUEST: &str = BOTH.cancel_request;
}

/// Parses a non-negative number; `None` for any other value.
fn count(raw: Option<&RawValue>) -> Option<u64> {
    raw.and_then(|raw| raw.get().parse().ok())
}

fn string(raw: Option<&RawValue>) -> Option<Cow<'_, str>> {
    raw.and_then(|raw| unquote(raw.get()))
}

fn owned(raw: Option<&RawValue>) -> Option<String> {
    string(raw).map(Cow::into_owned)
}

fn list(raw: Option<&RawValue>) -> Vec<&RawValue> {
    raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
}

fn flag(raw: Option<&RawValue>) -> bool {
    raw.is_some_and(|raw| raw.get() == "true")
}

/// Parses a capability: an object, empty or not; `true` is accepted as well.
fn capable(raw: Option<&RawValue>) -> bool {
    flag(raw) || raw.is_some_and(|raw| raw.get().starts_with('{'))
}

/// Returns the fields with these names as raw JSON; `null` counts as missing. `None` if this is not an object, or has
/// one of them twice.
fn pick<'a, const N: usize>(raw: &'a RawValue, names: [&str; N]) -> Option<[Option<&'a RawValue>; N]> {
    let mut from = serde_json::Deserializer::from_str(raw.get());
    raw.get().starts_with('{').then(|| from.deserialize_map(FieldPicker(names)).ok()).flatten()
}

/// Like [`pick`], for an optional object.
fn optional_fields<'a, const N: usize>(
    raw: Option<&'a RawValue>,
    names: [&str; N],
) -> [Option<&'a RawValue>; N] {
    raw.and_then(|raw| pick(raw, names)).unwrap_or([None; N])
}

struct FieldPicker<'n, const N: usize>([&'n str; N]);

impl<'de, const N: usize> Visitor<'de> for FieldPicker<'_, N> {
    type Value = [Option<&'de RawValue>; N];

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = [None; N];
        while let Some(place) = map.next_key_seed(FieldIndex(&self.0))? {
            match place.and_then(|place| found.get_mut(place)) {
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
                Some(Some(_)) => return Err(A::Error::custom("named twice")),
                Some(place) => *place = Some(map.next_value::<&RawValue>()?),
            }
        }
        Ok(found.map(|value| value.filter(|value| value.get() != "null")))
    }
}

/// The index of a key among these names.
struct FieldIndex<'n>(&'n [&'n str]);

impl<'de> DeserializeSeed<'de> for FieldIndex<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for FieldIndex<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        Ok(self.0.iter().position(|name| *name == key))
    }
}

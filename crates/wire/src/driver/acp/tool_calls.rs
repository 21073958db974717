//! The tool calls of an agent: a later report is completed by the first one, which is remembered while the call is open.

use serde_json::value::RawValue;

use super::AcpDriver;
use crate::acp::tool::ToolCall;
use crate::acp::update::{SessionUpdateParts, UpdateDetail};
use crate::driver::CHANGING_TOOLS;
use intercom_types::{AgentMessage, Json, ToolCallState};

/// The number of tool calls that are remembered for a permission request that may follow.
const MAX_CALLS: usize = 32;
/// The maximum size of a remembered tool call.
const MAX_CALL_BYTES: usize = 256 * 1024;

impl AcpDriver {
    pub(super) fn tool(&mut self, call: &ToolCall<'_>, params: &RawValue) -> AgentMessage {
        self.memory.turn.last_words.clear();
        self.memory.turn.worked = true;
        let Some(id) = call.id.clone().map(std::borrow::Cow::into_owned) else {
            return AgentMessage::Update { params: Json::raw(params) };
        };
        let before = self.call(&id);
        let before = before.as_ref().and_then(tool_call_in);
        let merged = match &before {
            Some(before) => call.clone().with_earlier(before),
            None => call.clone(),
        };
        let open = matches!(merged.status.as_deref(), None | Some("pending" | "in_progress"));
        let title = merged.title.as_deref().or(merged.name.as_deref()).unwrap_or(&id).to_owned();
        // Some agents report a call as in progress and only then ask for permission.
        let acts = merged.kind.as_deref().is_some_and(|kind| CHANGING_TOOLS.contains(&kind))
            && merged.status.as_deref() == Some("completed");
        self.remember(&id, params, open);
        AgentMessage::Tool {
            changes_something: acts,
            call: Some(ToolCallState { id, title, open }),
            params: Json::raw(params),
        }
    }

    /// Returns the earlier report of a call.
    pub(super) fn call(&self, id: &str) -> Option<Json> {
        self.memory.calls.iter().find(|(known, _)| known == id).map(|(_, raw)| raw.clone())
    }

    /// Remembers the first report of a call, which has the most details, until the call is over.
    pub(super) fn remember(&mut self, id: &str, params: &RawValue, open: bool) {
        let calls = &mut self.memory.calls;
        let known = calls.iter().position(|(known, _)| known == id);
        match known {
            Some(at) if !open => drop(calls.remove(at)),
            None if open && params.get().len() <= MAX_CALL_BYTES => {
                if calls.len() >= MAX_CALLS {
                    calls.pop_front();
                }
                calls.push_back((id.to_owned(), Json::raw(params)));
            }
            _ => return,
        }
        self.dirty = true;
    }
}

/// Returns the tool call inside an update.
pub(super) fn tool_call_in(params: &Json) -> Option<ToolCall<'_>> {
    let raw: &RawValue = serde_json::from_str(params.as_str()).ok()?;
    match SessionUpdateParts::read(raw)?.detail() {
        UpdateDetail::Tool(call) => Some(call),
        _ => None,
    }
}

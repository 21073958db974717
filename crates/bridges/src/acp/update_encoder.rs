//! The encoder of a session's log for ACP clients. Pure: an event in, messages out.
//!
//! Updates of agents that speak ACP pass unchanged. Messages of agents with our own protocol become ACP messages, plans
//! and tool calls.

use std::collections::VecDeque;

use serde::Deserialize;
use serde_json::{Value, json};

use intercom_types::event::{
    ClearanceClosed, ClearanceDecided, ClearanceOutcome, PlanStep, RawMessage, UnknownMessage,
};
use intercom_types::{ClearanceId, ClearanceStatus, Event, Json, LoggedEvent};
use intercom_wire::acp::{client_messages, method};

mod turn;

use turn::TurnFilter;

/// The limit on remembered tool calls. An update of an older call is sent as a new call again.
const MAX_CALLS: usize = 1000;

#[derive(Debug)]
pub(super) struct UpdateEncoder {
    session: String,
    hosted: bool,
    calls: VecDeque<String>,
    turn: TurnFilter,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ToolProgress {
    title: String,
    tool: Option<String>,
    call: Option<String>,
    status: Option<String>,
}

#[derive(Debug, Deserialize)]
struct ExtensionMessage {
    method: String,
    #[serde(default)]
    id: Option<Json>,
    #[serde(default)]
    params: Option<Json>,
}

impl UpdateEncoder {
    pub(super) fn new(session: String, hosted: bool) -> Self {
        Self { session, hosted, calls: VecDeque::new(), turn: TurnFilter::default() }
    }

    pub(super) fn session(&self) -> &str {
        &self.session
    }

    /// Returns the updates about an event for a client, besides requests and answers.
    pub(super) fn encode_logged(&mut self, logged: &LoggedEvent) -> Vec<String> {
        self.encode(logged.seq, &logged.event())
    }

    /// The same as [`Self::encode_logged`], for a parsed event.
    pub(super) fn encode(&mut self, seq: u64, event: &Event) -> Vec<String> {
        self.turn.apply_event(event);
        match event {
            Event::Update(message) if self.hosted && self.turn.is_suppressed(message) => Vec::new(),
            Event::Status(_) | Event::Heartbeat(_) | Event::Update(_)
                if !self.hosted && self.turn.is_abandoned() =>
            {
                Vec::new()
            }
            Event::Update(RawMessage(params)) if self.hosted => {
                vec![client_messages::forwarded_notification(method::SESSION_UPDATE, params, &self.session)]
            }
            Event::Update(message) => self.tool(seq, message),
            Event::Status(message) => {
                vec![self.text_chunk(&format!("{}\n", message.status_text().unwrap_or_default()))]
            }
            Event::Heartbeat(message) => self.heartbeat(message),
            Event::UnknownMessage(unknown) if self.hosted => self.extension(unknown).into_iter().collect(),
            Event::ClearanceRequested(requested) if !self.hosted => {
                let mut call = super::client_requests::call(requested);
                call["sessionUpdate"] = json!("tool_call");
                vec![self.update(&call)]
            }
            Event::ClearanceDecided(decided) if !self.hosted => {
                let ClearanceDecided { clearance, status, by, reason, .. } = &**decided;
                let why = reason.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
                let call_status = if *status == ClearanceStatus::Approved { "in_progress" } else { "failed" };
                let words = format!("{} by {by}{why}", status.as_str());
                vec![self.call_after(*clearance, call_status, Some(&words))]
            }
            Event::ClearanceClosed(ClearanceClosed { clearance, status, reason, .. }) if !self.hosted => {
                let words = format!("{}: {reason}", status.as_str());
                vec![self.call_after(*clearance, "failed", Some(&words))]
            }
            Event::ClearanceOutcome(ClearanceOutcome { clearance: Some(clearance), outcome, .. })
                if !self.hosted =>
            {
                let has_failed = ["failed", "error"].contains(&outcome.as_str());
                vec![self.call_after(*clearance, if has_failed { "failed" } else { "completed" }, None)]
            }
            Event::QuestionAsked(asked) if !self.hosted => {
                vec![self.text_chunk(&format!("{}\n", asked.text))]
            }
            Event::SpendCapped(capped) => {
                vec![self.text_chunk(&format!("[intercom] No new turn begins: {}\n", capped.why))]
            }
            Event::LimitReached(_) if !self.hosted => {
                vec![self.text_chunk("[intercom] The agent is waiting for its service.\n")]
            }
            _ => Vec::new(),
        }
    }

    pub(super) fn update(&self, update: &Value) -> String {
        client_messages::update(&self.session, update)
    }

    pub(super) fn text_chunk(&self, text: &str) -> String {
        let content = json!({ "type": "text", "text": text });
        self.update(&json!({ "sessionUpdate": "agent_message_chunk", "content": content }))
    }

    /// Returns the updates about a prompt that somebody else sent to the agent.
    pub(super) fn prompt_chunks(&self, content: &Json) -> Vec<String> {
        #[derive(serde::Serialize)]
        #[serde(rename_all = "camelCase")]
        struct UserMessageChunk<'a> {
            session_update: &'static str,
            content: &'a Json,
        }
        let blocks: Vec<Json> = serde_json::from_str(content.as_str()).unwrap_or_default();
        let chunk = |content: &Json| {
            client_messages::update(
                &self.session,
                &UserMessageChunk { session_update: "user_message_chunk", content },
            )
        };
        blocks.iter().map(chunk).collect()
    }

    /// Notes a prompt to the agent. If the agent echoes it, the client does not receive the echo.
    pub(super) fn note_prompt(&mut self, content: &Json) {
        self.turn.add_prompt(content);
    }

    pub(super) fn mode_is(&self, mode: &str) -> String {
        self.update(&json!({ "sessionUpdate": "current_mode_update", "currentModeId": mode }))
    }

    pub(super) fn options_are(&self, options: &Value) -> String {
        self.update(&json!({ "sessionUpdate": "config_option_update", "configOptions": options }))
    }

    /// Forwards an extension notification (`_…`), which agent and client may know and we do not.
    fn extension(&self, unknown: &UnknownMessage) -> Option<String> {
        let message: ExtensionMessage = serde_json::from_str(unknown.message.as_str()).ok()?;
        if message.id.is_some() || !message.method.starts_with('_') {
            return None;
        }
        Some(client_messages::forwarded_notification(
            &message.method,
            &message.params.unwrap_or_else(|| Json::trusted("{}")),
            &self.session,
        ))
    }

    fn heartbeat(&self, message: &RawMessage) -> Vec<String> {
        let progress = message.progress();
        if progress.is_empty() {
            return Vec::new();
        }
        let entry = |item: &PlanStep| {
            let known = item.status.as_deref().filter(|status| ["in_progress", "completed"].contains(status));
            let status = known.unwrap_or("pending");
            let content = item.label.as_deref().unwrap_or_default();
            json!({ "content": content, "priority": "medium", "status": status })
        };
        let entries: Vec<Value> = progress.iter().map(entry).collect();
        vec![self.update(&json!({ "sessionUpdate": "plan", "entries": entries }))]
    }

    fn tool(&mut self, seq: u64, message: &RawMessage) -> Vec<String> {
        let ToolProgress { title, tool, call, status } = read(message);
        let id = call.unwrap_or_else(|| format!("call-{seq}"));
        let status = match status.as_deref() {
            Some(known @ ("pending" | "in_progress" | "completed" | "failed")) => known,
            Some(_) => "in_progress",
            None => "completed",
        };
        let raw: Value = read(message);
        let begun = self.is_known_call(&id);
        let what = if begun { "tool_call_update" } else { "tool_call" };
        vec![self.update(&json!({
            "sessionUpdate": what, "toolCallId": id, "title": title, "kind": kind(tool.as_deref()),
            "status": status, "rawInput": raw,
        }))]
    }

    /// Returns true if the client already knows this call, and remembers the call.
    fn is_known_call(&mut self, id: &str) -> bool {
        if self.calls.iter().any(|known| known == id) {
            return true;
        }
        if self.calls.len() >= MAX_CALLS {
            self.calls.pop_front();
        }
        self.calls.push_back(id.to_owned());
        false
    }

    /// Returns an update of a clearance, which a client of an agent with our own protocol sees as a tool call.
    fn call_after(&self, clearance: ClearanceId, status: &str, words: Option<&str>) -> String {
        let mut update =
            json!({ "sessionUpdate": "tool_call_update", "toolCallId": clearance, "status": status });
        if let Some(words) = words {
            let content = json!({ "type": "content", "content": { "type": "text", "text": words } });
            update["content"] = json!([content]);
        }
        self.update(&update)
    }
}

/// The kind of setting that an update changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ControlKind {
    Mode,
    Options,
}

/// Returns the kind of setting that an update changes. Most change none, and are not parsed.
pub(super) fn control(params: &Json) -> Option<ControlKind> {
    #[derive(Deserialize)]
    struct ControlParams {
        update: ControlUpdate,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct ControlUpdate {
        session_update: String,
    }
    let text = params.as_str();
    if !text.contains("current_mode_update") && !text.contains("config_option_update") {
        return None;
    }
    match serde_json::from_str::<ControlParams>(text).ok()?.update.session_update.as_str() {
        "current_mode_update" => Some(ControlKind::Mode),
        "config_option_update" => Some(ControlKind::Options),
        _ => None,
    }
}

/// Returns the ACP kind of a tool of our own protocol.
pub(super) fn kind(tool: Option<&str>) -> &'static str {
    match tool {
        Some("read" | "read_file") => "read",
        Some("edit" | "write" | "write_file" | "create") => "edit",
        Some("delete") => "delete",
        Some("move" | "rename") => "move",
        Some("search" | "grep" | "glob") => "search",
        Some("execute" | "shell" | "bash" | "command" | "run") => "execute",
        Some("fetch" | "web") => "fetch",
        Some("think") => "think",
        _ => "other",
    }
}

/// Reads a message of an agent; an invalid one gives the default.
fn read<T: Default + for<'de> Deserialize<'de>>(RawMessage(json): &RawMessage) -> T {
    serde_json::from_str(json.as_str()).unwrap_or_default()
}

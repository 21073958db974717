//! The log of a session, in the words of the protocol. Pure: an event in, messages out.
//!
//! What an agent said that speaks the protocol itself passes as it came. What agents of our own protocol say is put into
//! its words: messages, plans and tool calls.

use std::collections::VecDeque;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::domain::{Json, LoggedEvent};
use crate::wire::acp::{method, tell};

mod turn;

use turn::TurnFilter;

/// Tool calls whose beginning was told; a later one is told as a beginning again.
const MAX_CALLS: usize = 1000;

#[derive(Debug)]
pub(super) struct Voice {
    session: String,
    hosted: bool,
    calls: VecDeque<String>,
    turn: TurnFilter,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    message: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Heartbeat {
    progress: Vec<ProgressItem>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ProgressItem {
    label: Option<String>,
    status: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ToolUpdate {
    title: String,
    tool: Option<String>,
    call: Option<String>,
    status: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Unknown {
    message: Json,
}

#[derive(Debug, Deserialize)]
struct Said {
    method: String,
    #[serde(default)]
    id: Option<Json>,
    #[serde(default)]
    params: Option<Json>,
}

impl Voice {
    pub(super) fn new(session: String, hosted: bool) -> Self {
        Self { session, hosted, calls: VecDeque::new(), turn: TurnFilter::default() }
    }

    pub(super) fn session(&self) -> &str {
        &self.session
    }

    /// What a client is told of an event, besides requests and answers.
    pub(super) fn tell(&mut self, event: &LoggedEvent) -> Vec<String> {
        self.turn.hear(event);
        match event.kind.as_str() {
            "update" if self.hosted && self.turn.drops(event) => Vec::new(),
            "status" | "heartbeat" | "update" if !self.hosted && self.turn.is_abandoned() => Vec::new(),
            "update" if self.hosted => {
                vec![tell::passed_on(method::SESSION_UPDATE, &event.data, &self.session)]
            }
            "update" => self.tool(event),
            "status" => {
                let Status { message } = read(event);
                vec![self.says(&format!("{message}\n"))]
            }
            "heartbeat" => self.heartbeat(event),
            "unknown" if self.hosted => self.extension(event).into_iter().collect(),
            "clearance.requested" if !self.hosted => vec![self.call_of(event)],
            "clearance.decided" | "clearance.closed" | "clearance.outcome" if !self.hosted => {
                self.call_after(event).into_iter().collect()
            }
            "question.asked" if !self.hosted => {
                let text = value(event)["text"].as_str().unwrap_or_default().to_owned();
                vec![self.says(&format!("{text}\n"))]
            }
            "spend.capped" => {
                let why = value(event)["why"].as_str().unwrap_or_default().to_owned();
                vec![self.says(&format!("[intercom] No new turn begins: {why}\n"))]
            }
            "stall.limited" if !self.hosted => {
                vec![self.says("[intercom] The agent waits for its service.\n")]
            }
            _ => Vec::new(),
        }
    }

    pub(super) fn update(&self, update: &Value) -> String {
        tell::update(&self.session, update)
    }

    pub(super) fn says(&self, text: &str) -> String {
        let content = json!({ "type": "text", "text": text });
        self.update(&json!({ "sessionUpdate": "agent_message_chunk", "content": content }))
    }

    /// What somebody else asked of the agent.
    pub(super) fn was_asked(&self, content: &Json) -> Vec<String> {
        #[derive(serde::Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Chunk<'a> {
            session_update: &'static str,
            content: &'a Json,
        }
        let blocks: Vec<Json> = serde_json::from_str(content.as_str()).unwrap_or_default();
        let chunk = |content: &Json| {
            tell::update(&self.session, &Chunk { session_update: "user_message_chunk", content })
        };
        blocks.iter().map(chunk).collect()
    }

    /// The agent is sent this prompt. If it says it back, that is not told.
    pub(super) fn prompted(&mut self, content: &Json) {
        self.turn.asked(content);
    }

    pub(super) fn mode_is(&self, mode: &str) -> String {
        self.update(&json!({ "sessionUpdate": "current_mode_update", "currentModeId": mode }))
    }

    pub(super) fn options_are(&self, options: &Value) -> String {
        self.update(&json!({ "sessionUpdate": "config_option_update", "configOptions": options }))
    }

    /// Notifications that the agent and its client may know, and we do not.
    fn extension(&self, event: &LoggedEvent) -> Option<String> {
        let Unknown { message } = serde_json::from_str(event.data.as_str()).ok()?;
        let said: Said = serde_json::from_str(message.as_str()).ok()?;
        if said.id.is_some() || !said.method.starts_with('_') {
            return None;
        }
        Some(tell::passed_on(
            &said.method,
            &said.params.unwrap_or_else(|| Json::trusted("{}")),
            &self.session,
        ))
    }

    fn heartbeat(&self, event: &LoggedEvent) -> Vec<String> {
        let Heartbeat { progress } = read(event);
        if progress.is_empty() {
            return Vec::new();
        }
        let entry = |item: &ProgressItem| {
            let known = item.status.as_deref().filter(|status| ["in_progress", "completed"].contains(status));
            let status = known.unwrap_or("pending");
            let content = item.label.as_deref().unwrap_or_default();
            json!({ "content": content, "priority": "medium", "status": status })
        };
        let entries: Vec<Value> = progress.iter().map(entry).collect();
        vec![self.update(&json!({ "sessionUpdate": "plan", "entries": entries }))]
    }

    fn tool(&mut self, event: &LoggedEvent) -> Vec<String> {
        let ToolUpdate { title, tool, call, status } = read(event);
        let id = call.unwrap_or_else(|| format!("call-{}", event.seq));
        let status = match status.as_deref() {
            Some(known @ ("pending" | "in_progress" | "completed" | "failed")) => known,
            Some(_) => "in_progress",
            None => "completed",
        };
        let raw: Value = value(event);
        let begun = self.begun(&id);
        let what = if begun { "tool_call_update" } else { "tool_call" };
        vec![self.update(&json!({
            "sessionUpdate": what, "toolCallId": id, "title": title, "kind": kind(tool.as_deref()),
            "status": status, "rawInput": raw,
        }))]
    }

    /// Whether the client was told of this call before; it has been now.
    fn begun(&mut self, id: &str) -> bool {
        if self.calls.iter().any(|known| known == id) {
            return true;
        }
        if self.calls.len() >= MAX_CALLS {
            self.calls.pop_front();
        }
        self.calls.push_back(id.to_owned());
        false
    }

    /// What an agent of our own protocol wants to do is a call of a tool.
    fn call_of(&self, event: &LoggedEvent) -> String {
        let mut call = super::ask::call(&value(event));
        call["sessionUpdate"] = json!("tool_call");
        self.update(&call)
    }

    fn call_after(&self, event: &LoggedEvent) -> Option<String> {
        let data = value(event);
        let id = data["clearance"].as_str()?;
        let status = match (event.kind.as_str(), data["status"].as_str(), data["outcome"].as_str()) {
            ("clearance.decided", Some("approved"), _) => "in_progress",
            ("clearance.outcome", _, Some("failed" | "error")) => "failed",
            ("clearance.outcome", ..) => "completed",
            _ => "failed",
        };
        let mut update = json!({ "sessionUpdate": "tool_call_update", "toolCallId": id, "status": status });
        if let Some(words) = outcome_in_words(&data) {
            let content = json!({ "type": "content", "content": { "type": "text", "text": words } });
            update["content"] = json!([content]);
        }
        Some(self.update(&update))
    }
}

fn outcome_in_words(data: &Value) -> Option<String> {
    let status = data["status"].as_str()?;
    let by = data["by"].as_str().map(|by| format!(" by {by}")).unwrap_or_default();
    let why = data["reason"].as_str().map(|why| format!(": {why}")).unwrap_or_default();
    Some(format!("{status}{by}{why}"))
}

/// What an update says of what can be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Control {
    Mode,
    Options,
}

/// Most updates say nothing of that, and are not looked at twice.
pub(super) fn control(event: &LoggedEvent) -> Option<Control> {
    #[derive(Deserialize)]
    struct Params {
        update: Update,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Update {
        session_update: String,
    }
    let text = event.data.as_str();
    if !text.contains("current_mode_update") && !text.contains("config_option_update") {
        return None;
    }
    match serde_json::from_str::<Params>(text).ok()?.update.session_update.as_str() {
        "current_mode_update" => Some(Control::Mode),
        "config_option_update" => Some(Control::Options),
        _ => None,
    }
}

/// The kind of a tool, by what our own protocol calls it.
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

fn read<T: Default + for<'de> Deserialize<'de>>(event: &LoggedEvent) -> T {
    serde_json::from_str(event.data.as_str()).unwrap_or_default()
}

pub(super) fn value(event: &LoggedEvent) -> Value {
    serde_json::from_str(event.data.as_str()).unwrap_or_default()
}

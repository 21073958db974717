//! The capabilities that a client is offered: ours at the handshake, and the settings of a session. Pure.

use serde_json::{Map, Value, json};

use intercom_types::{Controls, ListedAgent, Session};

/// Our own options, listed with those of the agent.
pub(super) const AGENT: &str = "intercom.agent";
pub(super) const POLICY: &str = "intercom.policy";
/// The category of options that no other client should interpret.
const CATEGORY: &str = "_intercom";

/// The presets: id, name, description.
pub(super) const PRESETS: [(&str, &str, &str); 4] = [
    ("full", "Full Access", "Allows everything that a rule or a person approves"),
    ("read-only", "Read-Only", "Denies every request that writes or runs something"),
    ("safe", "Safe Mode", "Denies requests of high or critical risk"),
    ("sandbox", "Sandbox Mode", "Denies every request for a file or a command of this machine"),
];

/// Returns the answer to `initialize`. The content that the agent accepts is known if an agent of its profile has run
/// before.
pub(super) fn initialized(known: Option<&Value>) -> Value {
    let capability =
        |name: &str| known.and_then(|known| known.pointer(&format!("/agentCapabilities/{name}")));
    let flag = |name: &str| capability(name).and_then(Value::as_bool).unwrap_or(false);
    json!({
        "protocolVersion": 1,
        "agentCapabilities": {
            "loadSession": true,
            "promptCapabilities": {
                "image": flag("promptCapabilities/image"),
                "audio": flag("promptCapabilities/audio"),
                // For an agent that does not support it, we convert it to text.
                "embeddedContext": true,
            },
            "mcpCapabilities": { "http": flag("mcpCapabilities/http"), "sse": flag("mcpCapabilities/sse") },
            "sessionCapabilities": { "list": {}, "resume": {}, "close": {}, "delete": {} },
        },
        "agentInfo": {
            "name": "intercom", "title": "intercom", "version": env!("CARGO_PKG_VERSION"),
        },
        "authMethods": [],
    })
}

/// Returns the settings of a session: those of its agent, with their current values, and ours.
pub(super) fn opened(
    seen: &Session,
    agent_info: Option<&Value>,
    profiles: &[ListedAgent],
) -> Map<String, Value> {
    let mut opened = agent_info.and_then(Value::as_object).cloned().unwrap_or_default();
    opened.remove("sessionId");
    if let Some(modes) = modes(seen, agent_info) {
        opened.insert("modes".to_owned(), modes);
    }
    if let Some(model) = seen.controls.as_ref().and_then(|controls| controls.model.clone())
        && let Some(models) = opened.get_mut("models").and_then(Value::as_object_mut)
    {
        models.insert("currentModelId".to_owned(), model.into());
    }
    opened.insert("configOptions".to_owned(), options(seen, agent_info, profiles));
    opened
}

/// Returns the agent's own modes, or our presets if it has none.
fn modes(seen: &Session, agent_info: Option<&Value>) -> Option<Value> {
    let theirs = agent_info
        .and_then(|agent_info| agent_info.get("modes"))
        .filter(|modes| modes["availableModes"].as_array().is_some_and(|modes| !modes.is_empty()));
    if let Some(theirs) = theirs {
        let mut modes = theirs.clone();
        if let (Some(mode), Some(modes)) =
            (seen.controls.as_ref().and_then(|controls| controls.mode.clone()), modes.as_object_mut())
        {
            modes.insert("currentModeId".to_owned(), mode.into());
        }
        return Some(modes);
    }
    if has_mode_option(&agents_options(seen, agent_info)) {
        return None;
    }
    let ours = PRESETS.map(|(id, name, about)| json!({ "id": id, "name": name, "description": about }));
    Some(json!({ "currentModeId": preset(seen), "availableModes": ours }))
}

/// Returns true if the modes that the client received are ours.
pub(super) fn has_our_modes(seen: &Session, agent_info: Option<&Value>) -> bool {
    modes(seen, agent_info).is_some_and(|modes| modes["availableModes"][0]["id"] == PRESETS[0].0)
}

fn has_mode_option(options: &[Value]) -> bool {
    options.iter().any(|option| option["category"] == "mode")
}

fn agents_options(seen: &Session, agent_info: Option<&Value>) -> Vec<Value> {
    let now = seen.controls.as_ref().and_then(Controls::option_list);
    let initial = || agent_info.and_then(|agent_info| agent_info.get("configOptions")?.as_array().cloned());
    now.or_else(initial).unwrap_or_default()
}

/// Returns the options of the agent and ours.
pub(super) fn options(seen: &Session, agent_info: Option<&Value>, profiles: &[ListedAgent]) -> Value {
    let mut options = agents_options(seen, agent_info);
    options.extend(intercom_options(seen, profiles));
    Value::Array(options)
}

fn preset(seen: &Session) -> &str {
    &seen.preset
}

/// Returns our own options. The agent can be changed only before its process has started.
fn intercom_options(seen: &Session, profiles: &[ListedAgent]) -> Vec<Value> {
    let presets = PRESETS.map(|(id, name, about)| json!({ "value": id, "name": name, "description": about }));
    let policy = json!({
        "id": POLICY, "name": "Policy", "description": "Requests that intercom denies without asking",
        "category": CATEGORY, "type": "select", "currentValue": preset(seen), "options": presets,
    });
    let Some(agent) = &seen.agent else { return vec![policy] };
    let offered = profiles
        .iter()
        .filter(|profile| profile.name == *agent || (seen.deferred && profile.availability != "missing"));
    let mut offered: Vec<Value> = offered
        .map(|profile| {
            json!({
                "value": profile.name, "name": profile.name, "description": profile.description,
            })
        })
        .collect();
    if offered.is_empty() {
        offered.push(json!({ "value": agent, "name": agent })); // its profile was removed from the configuration
    }
    let agent = json!({
        "id": AGENT, "name": "Agent", "description": "The agent of this session; fixed once it has started",
        "category": CATEGORY, "type": "select", "currentValue": agent, "options": offered,
    });
    vec![agent, policy]
}

/// Returns an entry of `session/list`.
pub(super) fn listed(seen: &Session) -> Value {
    json!({
        "sessionId": seen.id.to_string(),
        "cwd": seen.workspace,
        "title": seen.title,
        // A time serialises as a number of milliseconds; the protocol wants a string.
        "updatedAt": seen.updated_at.map(|time| time.to_string()),
        "_meta": {
            "pending": seen.is_busy(),
            "intercom": {
                "agent": seen.agent, "phase": seen.phase, "clearances": seen.pending.clearances,
                "questions": seen.pending.questions,
            },
        },
    })
}

//! A person's action in Slack, read from an envelope. Only the fields that we use are read, and none is
//! required: an envelope that cannot be understood is [`Interaction::Unknown`], never an error.

use std::borrow::Cow;

use ring::digest::{SHA256, digest};
use serde_json::Value;

use intercom_types::hex;

/// The limit on ids in keys: longer than any id of Slack, and short enough for a key.
const MAX_ID: usize = 200;

/// One action of a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Interaction {
    /// A button.
    Click(ButtonClick),
    /// A submitted form.
    Submit(FormSubmission),
    /// "Send to agent", on a message.
    Shortcut {
        user: String,
        text: String,
        trigger: String,
        answer: Option<String>,
    },
    /// `/intercom …`
    Slash {
        user: String,
        channel: String,
        text: String,
        answer: Option<String>,
    },
    /// A message in a channel.
    Message(ThreadMessage),
    HomeOpened {
        user: String,
    },
    Unknown {
        what: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ButtonClick {
    pub(super) user: String,
    pub(super) action: String,
    pub(super) value: String,
    /// The trigger that permits opening a form, for three seconds.
    pub(super) trigger: String,
    /// The response URL for a private answer.
    pub(super) answer: Option<String>,
    /// The channel of the message that has the button; `None` in the home tab.
    pub(super) channel: Option<String>,
    pub(super) thread: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct FormSubmission {
    pub(super) user: String,
    pub(super) form: String,
    /// The metadata that we put into the form when it was opened.
    pub(super) about: String,
    /// The filled-in fields: block, value.
    pub(super) values: Vec<(String, String)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ThreadMessage {
    pub(super) user: String,
    pub(super) channel: String,
    pub(super) ts: String,
    pub(super) thread: Option<String>,
    /// The text, with Slack's escapes.
    pub(super) text: String,
    pub(super) files: bool,
}

impl FormSubmission {
    pub(super) fn value(&self, block: &str) -> Option<&str> {
        let found = self.values.iter().find(|(name, _)| name == block);
        found.map(|(_, value)| value.trim()).filter(|value| !value.is_empty())
    }
}

/// The type of an envelope, read before anything else.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SocketEnvelope {
    Hello,
    /// Slack is about to close this connection.
    Disconnect {
        reason: String,
    },
    /// To be acknowledged and ignored: a message of a bot, most often of ours.
    BotMessage {
        envelope: String,
    },
    /// To be stored, then acknowledged. A second delivery has the same key.
    Interaction {
        envelope: String,
        key: String,
    },
    Other,
}

fn text(value: &Value, pointer: &str) -> Option<String> {
    value.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
}

/// Returns an id, or its hash if it is too long for a key or has unusual characters.
fn name(id: &str) -> Cow<'_, str> {
    if id.len() <= MAX_ID && id.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Cow::Borrowed(id);
    }
    Cow::Owned(hex(digest(&SHA256, id.as_bytes()).as_ref()))
}

/// Reads as much of an envelope as its acknowledgement needs.
pub(super) fn parse_envelope(frame: &str) -> SocketEnvelope {
    let Ok(value) = serde_json::from_str::<Value>(frame) else { return SocketEnvelope::Other };
    match value["type"].as_str() {
        Some("hello") => return SocketEnvelope::Hello,
        Some("disconnect") => {
            return SocketEnvelope::Disconnect { reason: text(&value, "/reason").unwrap_or_default() };
        }
        _ => {}
    }
    let Some(envelope) = text(&value, "/envelope_id") else { return SocketEnvelope::Other };
    let event = &value["payload"]["event"];
    if value["type"] == "events_api"
        && (event["bot_id"].is_string() || event["message"]["bot_id"].is_string())
    {
        return SocketEnvelope::BotMessage { envelope };
    }
    // A second delivery has a new envelope id, but the same id of its content.
    let known = ["/payload/event_id", "/payload/trigger_id", "/payload/view/hash"];
    let named = known.into_iter().find_map(|pointer| text(&value, pointer).map(|id| (pointer, id)));
    let key = match named {
        Some((pointer, id)) => format!("{} {}", pointer.rsplit('/').next().unwrap_or_default(), name(&id)),
        None => format!("envelope {}", name(&envelope)),
    };
    SocketEnvelope::Interaction { envelope, key }
}

/// Reads a person's action from an envelope.
pub(super) fn parse_interaction(frame: &str) -> Interaction {
    let unknown = |what: &str| Interaction::Unknown { what: what.to_owned() };
    let Ok(value) = serde_json::from_str::<Value>(frame) else { return unknown("no JSON") };
    let payload = &value["payload"];
    let user = || text(payload, "/user/id").or_else(|| text(payload, "/user_id")).unwrap_or_default();
    let trigger = || text(payload, "/trigger_id").unwrap_or_default();
    let answer = || text(payload, "/response_url");
    match value["type"].as_str() {
        Some("slash_commands") => Interaction::Slash {
            user: user(),
            channel: text(payload, "/channel_id").unwrap_or_default(),
            text: text(payload, "/text").unwrap_or_default(),
            answer: answer(),
        },
        Some("events_api") => event(payload),
        Some("interactive") => match payload["type"].as_str() {
            Some("block_actions") => {
                let Some(action) = payload.pointer("/actions/0") else {
                    return unknown("a click on nothing");
                };
                Interaction::Click(ButtonClick {
                    user: user(),
                    action: text(action, "/action_id").unwrap_or_default(),
                    value: text(action, "/value").unwrap_or_default(),
                    trigger: trigger(),
                    answer: answer(),
                    channel: text(payload, "/container/channel_id").or_else(|| text(payload, "/channel/id")),
                    thread: [
                        "/message/thread_ts",
                        "/container/thread_ts",
                        "/message/ts",
                        "/container/message_ts",
                    ]
                    .into_iter()
                    .find_map(|pointer| text(payload, pointer)),
                })
            }
            Some("view_submission") => Interaction::Submit(FormSubmission {
                user: user(),
                form: text(payload, "/view/callback_id").unwrap_or_default(),
                about: text(payload, "/view/private_metadata").unwrap_or_default(),
                values: values(&payload["view"]["state"]["values"]),
            }),
            Some("message_action") => Interaction::Shortcut {
                user: user(),
                text: text(payload, "/message/text").unwrap_or_default(),
                trigger: trigger(),
                answer: answer(),
            },
            other => unknown(other.unwrap_or("an interaction without a type")),
        },
        other => unknown(other.unwrap_or("an envelope without a type")),
    }
}

fn event(payload: &Value) -> Interaction {
    let event = &payload["event"];
    let user = || text(event, "/user").unwrap_or_default();
    let subtype = event["subtype"].as_str();
    match event["type"].as_str() {
        Some("app_home_opened") if event["tab"].as_str().is_none_or(|tab| tab == "home") => {
            Interaction::HomeOpened { user: user() }
        }
        // Messages of bots, ours included, are no requests of people. Edits and deletions do not undo a message.
        Some("message")
            if matches!(subtype, None | Some("file_share" | "thread_broadcast"))
                && event.get("bot_id").is_none_or(Value::is_null) =>
        {
            Interaction::Message(ThreadMessage {
                user: user(),
                channel: text(event, "/channel").unwrap_or_default(),
                ts: text(event, "/ts").unwrap_or_default(),
                thread: text(event, "/thread_ts"),
                text: strip_own_mention(payload, text(event, "/text").unwrap_or_default()),
                files: event["files"].as_array().is_some_and(|files| !files.is_empty()),
            })
        }
        other => {
            Interaction::Unknown { what: format!("{} {}", other.unwrap_or("?"), subtype.unwrap_or_default()) }
        }
    }
}

/// Removes our mention from the beginning: `@intercom approve` means `approve`.
fn strip_own_mention(payload: &Value, said: String) -> String {
    let us =
        payload["authorizations"].as_array().into_iter().flatten().filter_map(|us| us["user_id"].as_str());
    let mut rest = us.filter_map(|us| {
        let rest = said.trim_start().strip_prefix("<@")?.strip_prefix(us)?;
        // With or without a label.
        rest.strip_prefix('>').or_else(|| rest.strip_prefix('|')?.split_once('>').map(|(_, rest)| rest))
    });
    rest.next().map(|rest| rest.trim_start().to_owned()).unwrap_or(said)
}

/// Each block has one element, whatever its name.
fn values(state: &Value) -> Vec<(String, String)> {
    let blocks = state.as_object().into_iter().flatten();
    let value = |element: &Value| {
        text(element, "/value").or_else(|| text(element, "/selected_option/value")).unwrap_or_default()
    };
    blocks
        .filter_map(|(block, elements)| {
            let element = elements.as_object()?.values().next()?;
            Some((block.clone(), value(element)))
        })
        .collect()
}

impl Interaction {
    /// Returns the key that orders actions: those in one thread, or by one person elsewhere, run in sequence.
    pub(super) fn lane(&self) -> String {
        let thread = |channel: &str, thread: &str| format!("{channel} {thread}");
        match self {
            Self::Click(ButtonClick { user, channel, thread: ts, action, .. }) => match (channel, ts) {
                // Not in the thread's lane: a kill must overtake a stop that takes too long.
                (Some(channel), Some(ts)) if action == "kill" => thread(channel, ts) + " kill",
                (Some(channel), Some(ts)) => thread(channel, ts),
                _ => user.clone(),
            },
            Self::Message(said) => thread(&said.channel, said.thread.as_deref().unwrap_or(&said.ts)),
            Self::Submit(FormSubmission { user, .. })
            | Self::Shortcut { user, .. }
            | Self::Slash { user, .. }
            | Self::HomeOpened { user } => user.clone(),
            Self::Unknown { .. } => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn interactive(payload: &Value) -> String {
        json!({ "type": "interactive", "envelope_id": "e1", "payload": payload }).to_string()
    }

    #[test]
    fn the_same_thing_has_the_same_key_in_every_envelope() {
        let key = |envelope: &str, payload: Value| {
            let frame =
                json!({ "type": "events_api", "envelope_id": envelope, "payload": payload }).to_string();
            match super::parse_envelope(&frame) {
                SocketEnvelope::Interaction { key, .. } => key,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(key("a", json!({ "event_id": "Ev1" })), key("b", json!({ "event_id": "Ev1" })));
        assert_eq!(key("a", json!({ "trigger_id": "1.2" })), "trigger_id 1.2");
        assert_eq!(key("a", json!({ "new": true })), "envelope a");
        assert_eq!(super::parse_envelope(r#"{"type":"hello"}"#), SocketEnvelope::Hello);
        assert_eq!(super::parse_envelope("no json"), SocketEnvelope::Other);
        assert_eq!(super::parse_envelope(r#"{"type":"new","x":1}"#), SocketEnvelope::Other);
        let echo = r#"{"type":"events_api","envelope_id":"e","payload":{"event":{"bot_id":"B1"}}}"#;
        assert_eq!(super::parse_envelope(echo), SocketEnvelope::BotMessage { envelope: "e".to_owned() });
        let disconnect = r#"{"type":"disconnect","reason":"warning"}"#;
        assert_eq!(
            super::parse_envelope(disconnect),
            SocketEnvelope::Disconnect { reason: "warning".to_owned() }
        );
    }

    #[test]
    fn a_click_says_who_what_and_where() {
        let payload = json!({
            "type": "block_actions", "user": { "id": "U1" }, "trigger_id": "t", "response_url": "https://x/y",
            "container": { "type": "message", "message_ts": "17.2", "channel_id": "C1", "thread_ts": "17.1" },
            "message": { "ts": "17.2", "thread_ts": "17.1" },
            "actions": [{ "action_id": "allow", "value": "clr_1" }],
        });
        let deed = parse_interaction(&interactive(&payload));
        assert_eq!(deed.lane(), "C1 17.1");
        let Interaction::Click(click) = deed else { panic!("{deed:?}") };
        assert_eq!(
            (click.action.as_str(), click.value.as_str(), click.user.as_str()),
            ("allow", "clr_1", "U1")
        );
        assert_eq!((click.thread.as_deref(), click.answer.as_deref()), (Some("17.1"), Some("https://x/y")));
    }

    #[test]
    fn what_was_filled_in_is_found_by_its_block() {
        let payload = json!({
            "type": "view_submission", "user": { "id": "U1" },
            "view": { "callback_id": "always", "private_metadata": "clr_1 x", "state": { "values": {
                "reason": { "input": { "type": "plain_text_input", "value": " no " } },
                "for": { "pick": { "selected_option": { "value": "8h" } } },
                "empty": { "input": { "value": null } },
            }}},
        });
        let Interaction::Submit(submit) = parse_interaction(&interactive(&payload)) else { panic!() };
        assert_eq!((submit.value("reason"), submit.value("for")), (Some("no"), Some("8h")));
        assert_eq!((submit.value("empty"), submit.value("other")), (None, None));
    }

    #[test]
    fn only_people_say_something() {
        let said = |event: Value| {
            let frame = json!({ "type": "events_api", "envelope_id": "e", "payload": { "event": event } });
            matches!(parse_interaction(&frame.to_string()), Interaction::Message(_))
        };
        assert!(said(json!({ "type": "message", "user": "U1", "channel": "C1", "ts": "1.1", "text": "hi" })));
        assert!(said(json!({ "type": "message", "subtype": "file_share", "user": "U1", "text": "hi" })));
        assert!(!said(json!({ "type": "message", "bot_id": "B1", "user": "U1", "text": "hi" })));
        assert!(!said(json!({ "type": "message", "subtype": "message_changed", "user": "U1" })));
        assert!(!said(json!({ "type": "reaction_added", "user": "U1" })));
    }

    #[test]
    fn our_name_before_a_word_changes_nothing() {
        let said = |text: &str| {
            let event =
                json!({ "type": "message", "user": "U1", "channel": "C1", "ts": "1.1", "text": text });
            let payload =
                json!({ "authorizations": [{ "user_id": "U0BOT", "is_bot": true }], "event": event });
            let frame = json!({ "type": "events_api", "envelope_id": "e", "payload": payload });
            match parse_interaction(&frame.to_string()) {
                Interaction::Message(said) => said.text,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(said("<@U0BOT> approve"), "approve");
        assert_eq!(said(" <@U0BOT|intercom> deny no"), "deny no");
        assert_eq!(said("<@U0BOTTOM> approve"), "<@U0BOTTOM> approve");
        assert_eq!(said("ask <@U0BOT> first"), "ask <@U0BOT> first");
        assert_eq!(said("<@U0BOT"), "<@U0BOT");
    }

    proptest::proptest! {
        #[test]
        fn nothing_that_slack_sends_is_too_much(frame in "\\PC{0,200}", kind in "interactive|events_api|slash_commands|x") {
            parse_interaction(&frame);
            parse_envelope(&frame);
            let inside = json!({ "type": kind, "payload": frame, "envelope_id": 7 }).to_string();
            parse_interaction(&inside).lane();
            parse_envelope(&inside);
        }
    }
}

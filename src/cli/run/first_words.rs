//! The wait for a new agent: until it is ready and, with a prompt, until its first words or the end of its turn.
//!
//! An agent without a log-in starts, is ready, and fails its first turn half a minute later: only who waits that long sees it.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::super::client::Client;
use super::super::failure::Failure;
use super::super::stream::{Item, Stream};
use super::super::url::url;
use super::super::wait;
use crate::answers::{Event, Session};
use crate::wire::acp::trouble::may_want_login;

/// How long an agent without a handshake may take to say something by itself.
const TO_BEGIN: Duration = Duration::from_secs(2);

/// The meaning of an event for the wait.
#[derive(Debug, PartialEq, Eq)]
enum Sign {
    Nothing,
    /// The agent works.
    Works,
    /// Something has ended: the session tells whether it failed.
    Ended,
}

#[derive(Debug, Default)]
struct Listener {
    prompted: bool,
    /// Ready means that it has answered.
    handshake: bool,
    /// The beginning of its first message.
    said: String,
}

impl Listener {
    fn hear(&mut self, event: &Event) -> Sign {
        match event.kind.as_str() {
            "agent.ready" if self.handshake && !self.prompted => Sign::Works,
            "status" | "heartbeat" | "clearance.requested" | "question.asked" => Sign::Works,
            "update" => self.hear_update(event),
            "turn.ended" | "session.ended" | "session.parked" => Sign::Ended,
            _ => Sign::Nothing,
        }
    }

    /// What an agent says about itself, such as its commands, is no work yet.
    fn hear_update(&mut self, event: &Event) -> Sign {
        let update = &event.data["update"];
        match update["sessionUpdate"].as_str() {
            None | Some("agent_thought_chunk" | "tool_call" | "plan") => Sign::Works,
            Some("agent_message_chunk") => {
                self.said.push_str(update["content"]["text"].as_str().unwrap_or_default());
                // "Not logged in" is a message as well: the end of the turn tells.
                if may_want_login(&self.said) { Sign::Nothing } else { Sign::Works }
            }
            Some(_) => Sign::Nothing,
        }
    }
}

/// Fails if the agent does within the limit. An agent that takes longer is not waited for, and has not failed.
pub(super) async fn wait(
    session: &Session,
    prompted: bool,
    limit: Duration,
    client: &Client,
) -> Result<(), Failure> {
    let handshake = session.protocol.as_deref() == Some("acp");
    let limit = if handshake || prompted { limit } else { limit.min(TO_BEGIN) };
    if limit.is_zero() {
        return Ok(());
    }
    let listener = Listener { prompted, handshake, ..Listener::default() };
    match timeout_at(Instant::now() + limit, follow(session, listener, client)).await {
        Ok(Ok(Some(failure))) => Err(failure),
        Ok(Ok(None)) => Ok(()),
        // Out of time, or without a daemon: whatever is known by now.
        Ok(Err(_)) | Err(_) => match look(session, client).await {
            Some(now) => failure(&now, None).map_or(Ok(()), Err),
            None => Ok(()),
        },
    }
}

async fn follow(
    session: &Session,
    mut listener: Listener,
    client: &Client,
) -> anyhow::Result<Option<Failure>> {
    let mut stream = Stream::open(client, Some(&session.id), 0).await?;
    loop {
        let Item::Event(event) = stream.next().await? else { continue };
        match listener.hear(&event) {
            Sign::Nothing => {}
            Sign::Works => return Ok(None),
            Sign::Ended => {
                let now = look(session, client).await;
                return Ok(now.and_then(|now| failure(&now, Some(&event))));
            }
        }
    }
}

async fn look(session: &Session, client: &Client) -> Option<Session> {
    client.get(&url(&["sessions", &session.id], &[])).await.ok()?.parse().ok()
}

/// The failure of a session that does not work any more.
fn failure(now: &Session, event: Option<&Event>) -> Option<Failure> {
    let reason = now.failure().map(|failed| failed.reason.clone()).or_else(|| wait::failure(now, event))?;
    Some(Failure::of_agent(now, &reason))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn event(kind: &str, data: &Value) -> Event {
        let raw = json!({ "seq": 1, "session": "ses_1", "at": "", "kind": kind, "data": data });
        Event::parse(&raw.to_string()).unwrap()
    }

    fn chunk(text: &str) -> Event {
        let content = json!({ "type": "text", "text": text });
        event("update", &json!({ "update": { "sessionUpdate": "agent_message_chunk", "content": content } }))
    }

    #[test]
    fn being_ready_is_enough_without_a_prompt_and_words_are_with_one() {
        let ready = event("agent.ready", &json!({}));
        let listener = |prompted, handshake| Listener { prompted, handshake, ..Listener::default() };
        assert_eq!(listener(false, true).hear(&ready), Sign::Works);
        assert_eq!(listener(true, true).hear(&ready), Sign::Nothing);
        assert_eq!(listener(false, false).hear(&ready), Sign::Nothing, "there is no handshake");
        let commands = json!({ "update": { "sessionUpdate": "available_commands_update" } });
        assert_eq!(listener(true, true).hear(&event("update", &commands)), Sign::Nothing);
        assert_eq!(listener(true, true).hear(&chunk("Looking")), Sign::Works);
        assert_eq!(listener(true, false).hear(&event("status", &json!({}))), Sign::Works);
        assert_eq!(listener(true, true).hear(&event("turn.ended", &json!({}))), Sign::Ended);
    }

    #[test]
    fn words_about_a_missing_log_in_are_waited_out() {
        let mut listener = Listener { prompted: true, handshake: true, ..Listener::default() };
        for text in ["Not", " logged in", " · Please run /login"] {
            assert_eq!(listener.hear(&chunk(text)), Sign::Nothing);
        }
        let mut listener = Listener::default();
        assert_eq!(listener.hear(&chunk("Not")), Sign::Nothing);
        assert_eq!(listener.hear(&chunk("hing to do")), Sign::Works);
    }
}

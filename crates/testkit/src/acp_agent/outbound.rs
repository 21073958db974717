//! What goes out.

use std::io::Write;

use serde_json::{Value, json};

use super::json::{chunk, notification};
use super::session::Session;
use super::{Agent, Answer, Asked};
use crate::script::{BLOCK, COUNTER, Stop, increment, number, parse_id};

impl Agent {
    /// Past std's line buffer: a step's bytes leave whole.
    pub(super) fn write(&self, bytes: &[u8]) -> Result<(), Stop> {
        (&self.out).write_all(bytes).map_err(Into::into)
    }

    pub(super) fn notify(&self, method: &str, params: &Value) -> Result<(), Stop> {
        self.write(format!("{}\n", notification(method, params)).as_bytes())
    }

    pub(super) fn send_answer(&self, id: &Value, answer: &Answer) -> Result<(), Stop> {
        let (key, value) = match answer {
            Ok(result) => ("result", result),
            Err(error) => ("error", error),
        };
        self.write(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"{key}\":{value}}}\n").as_bytes())
    }

    /// Asks, and does not wait.
    pub(super) fn request(&mut self, method: &str, params: &Value) -> Result<(), Stop> {
        let number = self.switch("ids:from").map_or(Ok(0), number::<u64>)? + self.asked;
        let id = match self.switch("ids:same") {
            Some(same) => parse_id(same),
            None if self.has("ids", "string") => format!("req-{number}").into(),
            None => number.into(),
        };
        let asked = Asked { number: self.asked, id: id.clone(), method: method.into() };
        self.asked += 1;
        self.open.push(asked);
        let line = notification(method, params);
        let line = if self.has("ids", "last") {
            format!("{},\"id\":{id}}}\n", &line[..line.len() - 1])
        } else {
            format!("{{\"id\":{id},{}\n", &line[1..])
        };
        self.write(line.as_bytes())
    }

    pub(super) fn say(&mut self, text: &str) -> Result<(), Stop> {
        self.update(&chunk("agent_message_chunk", text))
    }

    /// Sends an update, and remembers it for those who load the session.
    pub(super) fn update(&mut self, update: &Value) -> Result<(), Stop> {
        self.send_update(update)?;
        self.remember(update)
    }

    pub(super) fn update_config(&mut self) -> Result<(), Stop> {
        let config = self.sessions.get(&self.current).map(Session::config);
        self.update(&json!({ "sessionUpdate": "config_option_update", "configOptions": config }))
    }

    pub(super) fn remember(&mut self, update: &Value) -> Result<(), Stop> {
        if let Some(session) = self.sessions.get_mut(&self.current) {
            session.remember(update);
            self.keep(&json!({ "session": self.current, "update": update }))?;
        }
        Ok(())
    }

    pub(super) fn send_update(&self, update: &Value) -> Result<(), Stop> {
        self.write(self.update_line(update).as_bytes())
    }

    pub(super) fn update_line(&self, update: &Value) -> String {
        let params = json!({ "sessionId": self.current, "update": update });
        format!("{}\n", notification("session/update", &params))
    }

    pub(super) fn flood(&mut self, lines: u64, size: usize) -> Result<(), Stop> {
        let text = format!("flood {COUNTER}");
        let pad = size.saturating_sub(self.update_line(&chunk("agent_message_chunk", &text)).len());
        let text = if pad > 0 { format!("{text} {}", "x".repeat(pad - 1)) } else { text };
        let mut line = self.update_line(&chunk("agent_message_chunk", &text)).into_bytes();
        let start = line.windows(COUNTER.len()).position(|window| window == COUNTER.as_bytes()).unwrap_or(0);

        let mut block = Vec::with_capacity(BLOCK + line.len());
        for _ in 0..lines {
            increment(&mut line[start..start + COUNTER.len()]);
            block.extend_from_slice(&line);
            if block.len() >= BLOCK {
                self.write(&block)?;
                block.clear();
                self.glance()?;
                if self.ending() {
                    break;
                }
            }
        }
        self.write(&block)
    }
}

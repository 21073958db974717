//! What comes in.

use std::sync::mpsc::{RecvTimeoutError, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::json::{error, failure};
use super::{Agent, Answer, Asked, GLANCE};
use crate::script::{Stop, number};

impl Agent {
    pub(super) fn serve(&mut self) -> Result<(), Stop> {
        self.hook("start")?;
        loop {
            self.listen(None, |agent| !agent.queue.is_empty())?;
            if let Some(prompt) = self.queue.pop_front() {
                self.prompt(&prompt)?;
            }
        }
    }

    /// Hears and answers until it is done, or until then.
    pub(super) fn listen(
        &mut self,
        until: Option<Instant>,
        done: impl Fn(&Self) -> bool,
    ) -> Result<(), Stop> {
        while !done(self) {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                break;
            }
            if self.eof {
                thread::sleep(left.unwrap_or(GLANCE).min(GLANCE));
                continue;
            }
            let line = match left {
                Some(left) => self.lines.recv_timeout(left),
                None => self.lines.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match line {
                Ok(line) => self.hear(&line?)?,
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => self.ended()?,
            }
        }
        Ok(())
    }

    /// Hears what is there already.
    pub(super) fn glance(&mut self) -> Result<(), Stop> {
        while !self.eof {
            match self.lines.try_recv() {
                Ok(line) => self.hear(&line?)?,
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => self.ended()?,
            }
        }
        Ok(())
    }

    fn ended(&mut self) -> Result<(), Stop> {
        self.eof = true;
        self.hook("eof")?;
        if self.has("ignore", "eof") { Ok(()) } else { Err(Stop::Exit(0)) }
    }

    fn hear(&mut self, line: &[u8]) -> Result<(), Stop> {
        let message: Value = serde_json::from_slice(line).unwrap_or_default();
        if message["jsonrpc"] != "2.0" {
            eprintln!("acp-agent: not JSON-RPC: {}", String::from_utf8_lossy(line).trim_end());
            return Err(Stop::Exit(65));
        }
        let id = message.get("id").cloned();
        let Some(method) = message["method"].as_str().map(str::to_owned) else {
            return self.answered(&id.unwrap_or_default(), &message);
        };
        self.heard.push(method.clone());
        self.last.insert(method.clone(), message.clone());
        match id {
            None => self.notified(&method, &message["params"]),
            Some(_) if method == "session/prompt" => self.prompted(message),
            Some(id) => {
                let answer = self.error_switch(&method)?;
                let answer = answer.map_or_else(|| self.requested(&method, &message["params"]), Ok)?;
                self.reply(&method, &id, &answer)
            }
        }
    }

    fn notified(&mut self, method: &str, params: &Value) -> Result<(), Stop> {
        match method {
            "session/cancel" if !self.has("ignore", "cancel") => {
                let answer = match self.switch("cancel") {
                    Some("error") => Err(error(-32603, "cancelled in the middle")),
                    reason => Ok(json!({ "stopReason": reason.unwrap_or("cancelled") })),
                };
                if params["sessionId"] == *self.current {
                    self.end_turn(answer);
                }
            }
            "$/cancel_request" if !self.has("ignore", "cancel-request") => {
                let id = &params["requestId"];
                if self.turn.as_ref().is_some_and(|turn| turn.id == *id) {
                    self.end_turn(Err(error(-32800, "request cancelled")));
                } else if let Some(at) = self.queue.iter().position(|prompt| prompt["id"] == *id) {
                    self.queue.remove(at);
                    self.send_answer(id, &Err(error(-32800, "request cancelled")))?;
                } else {
                    self.withdrawn.push(id.clone());
                }
            }
            _ => {}
        }
        self.hook(&format!("before:{method}"))?;
        self.hook(&format!("after:{method}"))
    }

    pub(super) fn end_turn(&mut self, answer: Answer) {
        if let Some(turn) = &mut self.turn {
            turn.ending.get_or_insert(answer);
        }
    }

    pub(super) fn ending(&self) -> bool {
        self.turn.as_ref().is_some_and(|turn| turn.ending.is_some())
    }

    fn answered(&mut self, id: &Value, message: &Value) -> Result<(), Stop> {
        let Some(at) = self.open.iter().position(|asked| asked.id == *id) else {
            return self.say(&format!("stray {id} {message}"));
        };
        let Asked { method, .. } = self.open.remove(at);
        if method == "terminal/create" {
            self.terminal = message["result"]["terminalId"].clone();
        }
        match message.get("error") {
            Some(error) => self.say(&format!("refused {method} {id} {error}")),
            None => self.say(&format!("answered {method} {id} {}", message["result"])),
        }
    }

    pub(super) fn error_switch(&self, method: &str) -> Result<Option<Answer>, Stop> {
        let wanted = self.switch(&format!("error:{method}"));
        Ok(wanted.map(failure).transpose()?.map(Err))
    }

    /// The answer, with all that the switches want around it.
    pub(super) fn reply(&mut self, method: &str, id: &Value, answer: &Answer) -> Result<(), Stop> {
        if let Some(ms) = self.switch(&format!("delay:{method}")) {
            let until = Instant::now() + Duration::from_millis(number(ms)?);
            let open = id.clone();
            self.listen(Some(until), move |agent| agent.withdrawn.contains(&open))?;
        }
        self.hook(&format!("before:{method}"))?;
        if self.withdrawn.contains(id) {
            self.withdrawn.retain(|withdrawn| withdrawn != id);
            self.send_answer(id, &Err(error(-32800, "request cancelled")))?;
        } else if !self.has("never", method) {
            self.send_answer(id, answer)?;
        }
        if method == "session/load" && answer.is_ok() && self.has("replay", "after") {
            self.replay()?;
        }
        self.hook(&format!("after:{method}"))
    }
}

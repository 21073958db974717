//! From a prompt to its answer.

use serde_json::{Value, json};

use super::json::{error, names, script};
use super::steps::STEPS;
use super::{Agent, Turn};
use crate::script::{Stop, split};

impl Agent {
    pub(super) fn prompted(&mut self, message: Value) -> Result<(), Stop> {
        if self.turn.is_none() {
            self.queue.push_back(message);
            return Ok(());
        }
        match self.switch("second").unwrap_or("queue") {
            "queue" => self.queue.push_back(message),
            "replace" => {
                self.end_turn(Ok(json!({ "stopReason": "cancelled" })));
                self.queue.push_back(message);
            }
            "fail" => {
                self.end_turn(Err(error(-32603, "another prompt came")));
                self.queue.push_back(message);
            }
            "refuse" => self.send_answer(&message["id"], &Err(error(-32600, "a turn is running")))?,
            "lose" => {}
            other => return Err(Stop::Script(format!("no switch \"second:{other}\""))),
        }
        Ok(())
    }

    pub(super) fn prompt(&mut self, message: &Value) -> Result<(), Stop> {
        let (id, params) = (&message["id"], &message["params"]);
        let session = params["sessionId"].as_str().unwrap_or_default();
        let refused = match self.error_switch("session/prompt")? {
            Some(refused) => Some(refused),
            None if self.needs_login() => Some(Err(error(-32000, "authentication required"))),
            None if !self.sessions.get(session).is_some_and(|session| session.live) => {
                Some(Err(error(-32002, &format!("no session {session:?}"))))
            }
            None => None,
        };
        if let Some(refused) = refused {
            return self.reply("session/prompt", id, &refused);
        }
        self.current = session.into();
        let blocks = params["prompt"].as_array().into_iter().flatten();
        for block in blocks.clone() {
            self.remember(&json!({ "sessionUpdate": "user_message_chunk", "content": block }))?;
        }
        let text: String = blocks.filter_map(|block| block["text"].as_str()).collect();
        let steps = script(self.switch("script").unwrap_or(&text));

        self.turn = Some(Turn { id: id.clone(), ending: None, afterwards: Vec::new() });
        let outcome = if steps.first().is_some_and(|step| names(STEPS, split(step).0)) {
            steps.iter().try_for_each(|step| {
                self.glance()?;
                if self.ending() { Ok(()) } else { self.step(step) }
            })
        } else {
            self.say(&format!("heard {text}"))
        };
        if let Err(Stop::Script(problem)) = outcome {
            self.end_turn(Err(error(-32602, &problem)));
        } else {
            outcome?;
        }
        let Some(turn) = self.turn.take() else { return Ok(()) };
        let answer = turn.ending.unwrap_or_else(|| Ok(json!({ "stopReason": "end_turn" })));
        self.current = session.into();
        self.reply("session/prompt", id, &answer)?;
        turn.afterwards.iter().try_for_each(|step| self.step(step))
    }
}

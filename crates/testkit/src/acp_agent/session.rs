//! The sessions that it has, also those of processes before.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use serde_json::{Value, json};

use super::json::error;
use super::{Agent, Answer};
use crate::script::{Stop, number, number_or};

pub(super) const MODES: [&str; 3] = ["ask", "code", "plan"];

pub(super) const MODELS: [&str; 2] = ["small", "large"];

#[derive(Debug)]
pub(super) struct Session {
    pub(super) cwd: String,
    title: Option<String>,
    pub(super) mode: String,
    /// The modes that it offers; never empty.
    modes: Vec<String>,
    model: String,
    pub(super) live: bool,
    history: Vec<Value>,
}

impl Session {
    pub(super) fn new(cwd: &str, modes: Vec<String>) -> Self {
        let (cwd, mode) = (cwd.into(), modes[0].clone());
        Self { cwd, title: None, mode, modes, model: MODELS[0].into(), live: false, history: Vec::new() }
    }

    pub(super) fn modes(&self) -> Value {
        let all: Vec<Value> = self.modes.iter().map(|id| json!({ "id": id, "name": id })).collect();
        json!({ "currentModeId": self.mode, "availableModes": all })
    }

    pub(super) fn models(&self) -> Value {
        let all = MODELS.map(|id| json!({ "modelId": id, "name": id }));
        json!({ "currentModelId": self.model, "availableModels": all })
    }

    pub(super) fn config(&self) -> Value {
        let select = |id: &str, current: &str, values: &[&str]| {
            let options: Vec<Value> = values.iter().map(|v| json!({ "value": v, "name": v })).collect();
            json!({ "id": id, "name": id, "category": id, "type": "select", "currentValue": current, "options": options })
        };
        let modes: Vec<&str> = self.modes.iter().map(String::as_str).collect();
        json!([select("mode", &self.mode, &modes), select("model", &self.model, &MODELS)])
    }

    /// What an update leaves behind, now or when it is read from the file of a process before.
    pub(super) fn remember(&mut self, update: &Value) {
        let text = |key: &str| update[key].as_str().map(str::to_owned);
        match update["sessionUpdate"].as_str() {
            Some("session_info_update") => self.title = text("title"),
            Some("current_mode_update") => self.mode = text("currentModeId").unwrap_or_default(),
            Some("config_option_update") => {
                for option in update["configOptions"].as_array().into_iter().flatten() {
                    let value = option["currentValue"].as_str().unwrap_or_default();
                    self.set(option["id"].as_str().unwrap_or_default(), value);
                }
            }
            _ => {}
        }
        self.history.push(update.clone());
    }

    pub(super) fn set(&mut self, id: &str, value: &str) -> bool {
        match id {
            "mode" => self.mode = value.into(),
            "model" => self.model = value.into(),
            _ => return false,
        }
        true
    }
}

impl Agent {
    pub(super) fn new_session(&mut self, params: &Value) -> Result<Answer, Stop> {
        let cwd = params["cwd"].as_str().unwrap_or_default();
        if !Path::new(cwd).is_absolute() {
            return Ok(Err(error(-32602, "cwd must be an absolute path")));
        }
        let id = format!("acp-{}", self.sessions.len() + 1);
        self.sessions.insert(id.clone(), Session::new(cwd, self.modes()));
        self.keep(&json!({ "session": id, "cwd": cwd }))?;
        let mut result = self.enter(&id);
        result["sessionId"] = id.into();
        Ok(Ok(result))
    }

    pub(super) fn load(&mut self, params: &Value, replay: bool) -> Result<Answer, Stop> {
        let id = params["sessionId"].as_str().unwrap_or_default().to_owned();
        if !self.sessions.contains_key(&id) {
            return Ok(Err(error(-32002, &format!("no session {id:?}"))));
        }
        let result = self.enter(&id);
        if replay && !self.has("replay", "after") {
            self.replay()?;
        }
        Ok(Ok(result))
    }

    /// Makes the session the current one; what an answer says of it.
    fn enter(&mut self, id: &str) -> Value {
        self.current = id.into();
        let mut result = json!({});
        if let Some(session) = self.sessions.get_mut(id) {
            session.live = true;
        }
        let Some(session) = self.sessions.get(id) else { return result };
        if self.can("modes") {
            result["modes"] = session.modes();
        }
        if self.can("config") {
            result["configOptions"] = session.config();
        }
        if self.can("models") {
            result["models"] = session.models();
        }
        result
    }

    pub(super) fn replay(&self) -> Result<(), Stop> {
        let history = self.sessions.get(&self.current).map(|session| &session.history);
        history.into_iter().flatten().try_for_each(|update| self.send_update(update))
    }

    pub(super) fn list(&self, params: &Value) -> Result<Answer, Stop> {
        let fits = |session: &Session| params["cwd"].as_str().is_none_or(|cwd| cwd == session.cwd);
        let all: Vec<Value> = self
            .sessions
            .iter()
            .filter(|(_, session)| fits(session))
            .map(|(id, session)| {
                json!({ "sessionId": id, "cwd": session.cwd, "title": session.title,
                        "updatedAt": "2026-01-01T00:00:00Z" })
            })
            .collect();
        let page = self.switch("page").map_or(Ok(usize::MAX), number)?;
        let from: usize = number_or(params["cursor"].as_str().unwrap_or_default(), 0)?;
        let to = from.saturating_add(page).min(all.len());
        let next = (to < all.len()).then(|| to.to_string());
        Ok(Ok(json!({ "sessions": all.get(from..to), "nextCursor": next })))
    }

    pub(super) fn close(&mut self, id: &str) -> Answer {
        let session = self.sessions.get_mut(id).filter(|session| session.live);
        session.ok_or_else(|| error(-32002, &format!("no session {id:?}")))?.live = false;
        if id == self.current {
            self.end_turn(Ok(json!({ "stopReason": "cancelled" })));
        }
        Ok(json!({}))
    }

    /// Sets a mode or a model, tells it in an update, and returns what `state` is then.
    pub(super) fn set(
        &mut self,
        params: &Value,
        id: &str,
        value: &str,
        known: &[String],
        state: fn(&Session) -> Value,
    ) -> Result<Answer, Stop> {
        let session = params["sessionId"].as_str().and_then(|id| self.sessions.get_mut(id));
        let Some(session) = session.filter(|session| session.live) else {
            return Ok(Err(error(-32002, "no such session")));
        };
        if !known.iter().any(|known| known == value) || !session.set(id, value) {
            return Ok(Err(error(-32602, &format!("no {id} {value:?}"))));
        }
        let state = state(session);
        if id == "mode" {
            self.update(&json!({ "sessionUpdate": "current_mode_update", "currentModeId": value }))?;
        } else {
            self.update_config()?;
        }
        Ok(Ok(state))
    }

    /// Reads the sessions of processes before.
    pub(super) fn recall(&mut self) -> Result<(), Stop> {
        let Some(path) = self.switch("sessions") else { return Ok(()) };
        if !fs::exists(path)? {
            return Ok(());
        }
        for line in fs::read_to_string(path)?.lines() {
            let entry: Value = serde_json::from_str(line).unwrap_or_default(); // the last one may be torn
            let id = entry["session"].as_str().unwrap_or_default().to_owned();
            if let Some(cwd) = entry["cwd"].as_str() {
                self.sessions.insert(id, Session::new(cwd, self.modes()));
            } else if let Some(session) = self.sessions.get_mut(&id) {
                session.remember(&entry["update"]);
            }
        }
        Ok(())
    }

    pub(super) fn keep(&self, entry: &Value) -> Result<(), Stop> {
        if let Some(path) = self.switch("sessions") {
            let mut file = File::options().create(true).append(true).open(path)?;
            file.write_all(format!("{entry}\n").as_bytes())?;
        }
        Ok(())
    }
}

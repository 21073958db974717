//! What it is asked for.

use serde_json::{Map, Value, json};

use super::json::{error, merge, parse};
use super::session::{MODELS, Session};
use super::{Agent, Answer};
use crate::script::{Stop, number, split};

impl Agent {
    pub(super) fn requested(&mut self, method: &str, params: &Value) -> Result<Answer, Stop> {
        let text = |key: &str| params[key].as_str().unwrap_or_default();
        Ok(match method {
            "initialize" => Ok(self.initialize(params)?),
            "authenticate" => self.authenticate(text("methodId")),
            "logout" => {
                self.authenticated = false;
                Ok(json!({}))
            }
            "_session/steering" if self.can("steer") => Ok(self.steer(params)?),
            _ if method.starts_with('_') && method != "_session/steering" => {
                self.say(&format!("asked {method} {params}"))?;
                Ok(json!({ "heard": params }))
            }
            _ if self.needs_login() => Err(error(-32000, "authentication required")),
            "session/new" => self.new_session(params)?,
            "session/load" if self.can("load") => self.load(params, true)?,
            "session/resume" if self.can("resume") => self.load(params, false)?,
            "session/list" if self.can("list") => self.list(params)?,
            "session/close" if self.can("close") => self.close(text("sessionId")),
            "session/set_mode" if self.can("modes") => {
                let modes = self.modes();
                self.set(params, "mode", text("modeId"), &modes, Session::modes)?.map(|_| json!({}))
            }
            "session/set_model" if self.can("models") => {
                let models = MODELS.map(str::to_owned);
                self.set(params, "model", text("modelId"), &models, Session::models)?.map(|_| json!({}))
            }
            "session/set_config_option" if self.can("config") => {
                let models = || MODELS.map(str::to_owned).to_vec();
                let values = if text("configId") == "mode" { self.modes() } else { models() };
                self.set(params, text("configId"), text("value"), &values, Session::config)?
                    .map(|config| json!({ "configOptions": config }))
            }
            _ => Err(error(-32601, &format!("no method {method}"))),
        })
    }

    fn initialize(&self, params: &Value) -> Result<Value, Stop> {
        let asked = &params["protocolVersion"];
        let version = self.switch("version").map(number::<u64>).transpose()?;
        let mut session = Map::new();
        for cap in ["list", "resume", "close"] {
            if self.can(cap) {
                session.insert(cap.into(), json!({}));
            }
        }
        let methods = self.switch("auth").map(|auth| split(auth).0);
        let methods: Vec<Value> = methods
            .map(|id| json!({ "id": id, "name": format!("Log in with {id}"), "description": "for tests" }))
            .into_iter()
            .collect();
        let mut result = json!({
            "protocolVersion": version.map_or_else(|| if *asked == 1 { asked.clone() } else { json!(1) }, Into::into),
            "agentCapabilities": {
                "loadSession": self.can("load"),
                "promptCapabilities": { "image": self.can("image"), "audio": false, "embeddedContext": true },
                "mcpCapabilities": { "http": false, "sse": false },
                "sessionCapabilities": session,
            },
            "agentInfo": { "name": "acp-agent", "title": "ACP fixture agent", "version": "1.0.0" },
            "authMethods": methods,
        });
        if self.can("steer") {
            result["_meta"] = json!({ "steering": { "supported": true } });
        }
        for patch in self.all("initialize") {
            merge(&mut result, &parse(patch)?);
        }
        Ok(result)
    }

    pub(super) fn needs_login(&self) -> bool {
        self.switch("auth").is_some() && !self.authenticated
    }

    fn authenticate(&mut self, method: &str) -> Answer {
        match self.switch("auth").map(split) {
            Some((id, _)) if id != method => Err(error(-32602, &format!("no auth method {method:?}"))),
            Some((_, "fails")) => Err(error(-32000, "the login failed")),
            _ => {
                self.authenticated = true;
                Ok(json!({}))
            }
        }
    }

    /// The extension that real agents have for a message to a turn that runs.
    fn steer(&mut self, params: &Value) -> Result<Value, Stop> {
        let session = params["sessionId"] == *self.current;
        if self.turn.is_some() && session {
            let blocks = params["prompt"].as_array().into_iter().flatten();
            let text: String = blocks.filter_map(|block| block["text"].as_str()).collect();
            self.say(&format!("steered {text}"))?;
            return Ok(json!({ "outcome": "injected" }));
        }
        Ok(json!({ "outcome": "promptRequired", "reason": "noRunningTurn" }))
    }
}

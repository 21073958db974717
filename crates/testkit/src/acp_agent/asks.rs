//! The steps that ask the client for something.

use std::path::Path;

use serde_json::{Value, json};

use super::json::{merge, params, parse};
use super::{Agent, Asked};
use crate::script::{Stop, number, parse_id, split};

impl Agent {
    pub(super) fn request_step(&mut self, name: &str, rest: &str) -> Result<bool, Stop> {
        match name {
            "ask" => {
                let (name, rest) = split(rest);
                if !self.ask(name, rest)? {
                    return Err(Stop::Script("is not a request".into()));
                }
            }
            "await" => self.wait_for_answers(0)?,
            "withdraw" => {
                let last = self.open.last().map(|asked| asked.id.clone());
                let id = if rest.is_empty() { last } else { Some(parse_id(rest)) };
                let id = id.ok_or("nothing is open".to_owned())?;
                self.notify("$/cancel_request", &json!({ "requestId": id }))?;
            }
            "terminal" => {
                for step in ["terminal-create", "terminal-wait", "terminal-output", "terminal-release"] {
                    if !self.ending() {
                        self.request_step(step, if step == "terminal-create" { rest } else { "" })?;
                    }
                }
            }
            _ => {
                let from = self.asked;
                if !self.ask(name, rest)? {
                    return Ok(false);
                }
                self.wait_for_answers(from)?;
            }
        }
        Ok(true)
    }

    /// Waits for what was asked from that number on: for a permission whatever happens, for the rest until the turn is
    /// to end.
    fn wait_for_answers(&mut self, from: u64) -> Result<(), Stop> {
        self.listen(None, |agent| {
            let ending = agent.ending();
            let counts = |asked: &Asked| !ending || asked.method == "session/request_permission";
            !agent.open.iter().any(|asked| asked.number >= from && counts(asked))
        })
    }

    /// Sends the request of that step, if it is one.
    fn ask(&mut self, name: &str, rest: &str) -> Result<bool, Stop> {
        let (first, more) = split(rest);
        let session = json!({ "sessionId": self.current });
        let with = |mut params: Value| {
            merge(&mut params, &session);
            params
        };
        let terminal = if rest.is_empty() { self.terminal.clone() } else { rest.into() };
        let terminal = with(json!({ "terminalId": terminal }));
        match name {
            "permission" => self.ask_permission(first, more)?,
            "permissions" => {
                let (options, tool) = split(more);
                for _ in 0..number::<u64>(first)? {
                    self.ask_permission(options, tool)?;
                }
            }
            "read" => {
                let mut params = with(json!({ "path": self.path(first) }));
                if !more.is_empty() {
                    let (line, limit) = split(more);
                    params["line"] = number::<u64>(line)?.into();
                    params["limit"] = number::<u64>(limit)?.into();
                }
                self.request("fs/read_text_file", &params)?;
            }
            "write" => {
                let params = with(json!({ "path": self.path(first), "content": more }));
                self.request("fs/write_text_file", &params)?;
            }
            "terminal-create" if rest.starts_with('{') => {
                self.request("terminal/create", &with(parse(rest)?))?;
            }
            "terminal-create" => {
                let params = with(json!({ "command": "/bin/sh", "args": ["-c", rest] }));
                self.request("terminal/create", &params)?;
            }
            "terminal-output" => self.request("terminal/output", &terminal)?,
            "terminal-wait" => self.request("terminal/wait_for_exit", &terminal)?,
            "terminal-kill" => self.request("terminal/kill", &terminal)?,
            "terminal-release" => self.request("terminal/release", &terminal)?,
            "elicit" if rest.starts_with('{') => self.request("elicitation/create", &with(parse(rest)?))?,
            "elicit" => {
                let form = json!({ "type": "object", "properties": { "answer": { "type": "string" } },
                                   "required": ["answer"] });
                let params = with(json!({ "mode": "form", "message": rest, "requestedSchema": form }));
                self.request("elicitation/create", &params)?;
            }
            "request" => self.request(first, &params(more)?)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn ask_permission(&mut self, options: &str, tool: &str) -> Result<(), Stop> {
        let options = if options.is_empty() { "allow_once,reject_once" } else { options };
        let option = |text: &str| {
            let (id, kind) = text.split_once('=').unwrap_or((text, text));
            let (kind, name) = kind.split_once('=').unwrap_or((kind, kind));
            json!({ "optionId": id, "name": name, "kind": kind })
        };
        let options: Vec<Value> = options.split(',').map(option).collect();
        self.calls += 1;
        let call = self.tool(&format!("call-{}", self.calls), tool)?;
        let params = json!({ "sessionId": self.current, "toolCall": call, "options": options });
        self.request("session/request_permission", &params)
    }

    /// A tool call as its step tells it.
    pub(super) fn tool(&self, id: &str, text: &str) -> Result<Value, Stop> {
        let mut call = json!({ "toolCallId": id, "status": "pending" });
        let (what, rest) = split(text);
        let fields = match what {
            "edit" => {
                let (path, change) = split(rest);
                let (old, new) =
                    change.split_once("=>").map_or((None, change), |(old, new)| (Some(old), new));
                let path = self.path(path);
                json!({
                    "title": format!("Edit {path}"), "kind": "edit", "locations": [{ "path": path, "line": 1 }],
                    "content": [{ "type": "diff", "path": path, "oldText": old, "newText": new }],
                    "rawInput": { "file_path": path, "old_string": old, "new_string": new },
                })
            }
            "run" => json!({
                "title": format!("`{rest}`"), "kind": "execute",
                "rawInput": { "command": rest, "cwd": self.sessions.get(&self.current).map(|s| &s.cwd) },
            }),
            _ if text.starts_with('{') => parse(text)?,
            _ => json!({ "title": if text.is_empty() { "A tool" } else { text }, "kind": "other" }),
        };
        merge(&mut call, &fields);
        Ok(call)
    }

    fn path(&self, path: &str) -> String {
        let cwd = self.sessions.get(&self.current).map_or("", |session| &session.cwd);
        Path::new(cwd).join(path).to_string_lossy().into_owned()
    }
}

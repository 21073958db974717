//! The steps of a script. Each family says whether it knows the step; those that ask the client are in `asks.rs`.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, parent_id};
use std::process::{self, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::json::{chunk, entries, failure, merge, object, params, parse};
use super::{Agent, GLANCE};
use crate::script::{Stop, flood_stderr, number, number_or, parse_id, pid_file, split, unhex};

/// All of them, to tell a script from prose.
pub(super) const STEPS: &str = "say think user plan tool tool-update usage commands mode config title update session flood image \
                     long permission permissions read write terminal terminal-create terminal-output terminal-wait \
                     terminal-kill terminal-release elicit request ask await withdraw stop fail log-in afterwards exit abort \
                     raw part hex notify answer stderr flood-stderr sleep hang wait-file deaf exec exec-stray pid-file \
                     repeat in-mode client heard whoami";

impl Agent {
    pub(super) fn step(&mut self, step: &str) -> Result<(), Stop> {
        let cwd = self.sessions.get(&self.current).map_or("", |session| &session.cwd);
        let step = step.replace("$session", &self.current).replace("$cwd", cwd);
        let (name, rest) = split(&step);
        let mut outcome = self.update_step(name, rest);
        if let Ok(false) = outcome {
            outcome = self.request_step(name, rest);
        }
        if let Ok(false) = outcome {
            outcome = self.byte_step(name, rest);
        }
        if let Ok(false) = outcome {
            outcome = self.turn_step(name, rest);
        }
        match outcome {
            Ok(true) => Ok(()),
            Ok(false) => Err(Stop::Script(format!("step {step:?}: no such step"))),
            Err(Stop::Script(problem)) => Err(Stop::Script(format!("step {step:?}: {problem}"))),
            Err(other) => Err(other),
        }
    }

    fn update_step(&mut self, name: &str, rest: &str) -> Result<bool, Stop> {
        let (first, more) = split(rest);
        let update = match name {
            "say" => chunk("agent_message_chunk", rest),
            "think" => chunk("agent_thought_chunk", rest),
            "user" => chunk("user_message_chunk", rest),
            "plan" => json!({ "sessionUpdate": "plan", "entries": entries(rest)? }),
            "tool" => {
                let mut call = self.tool(first, more)?;
                call["sessionUpdate"] = "tool_call".into();
                call
            }
            "tool-update" => {
                let mut update = json!({ "sessionUpdate": "tool_call_update", "toolCallId": first });
                merge(&mut update, &object(more, "status")?);
                update
            }
            "usage" => {
                let (size, cost) = split(more);
                let mut usage = json!({ "sessionUpdate": "usage_update", "used": number::<u64>(first)?,
                                        "size": number::<u64>(size)? });
                if !cost.is_empty() {
                    usage["cost"] = json!({ "amount": number::<f64>(cost)?, "currency": "USD" });
                }
                usage
            }
            "commands" => {
                let command = |name: &str| json!({ "name": name, "description": format!("Does {name}") });
                let all: Vec<Value> = rest.split(',').map(command).collect();
                json!({ "sessionUpdate": "available_commands_update", "availableCommands": all })
            }
            "mode" => json!({ "sessionUpdate": "current_mode_update", "currentModeId": rest }),
            "config" => {
                let (id, value) = rest.split_once('=').ok_or("wants ID=VALUE".to_owned())?;
                let known =
                    self.sessions.get_mut(&self.current).is_some_and(|session| session.set(id, value));
                if !known {
                    return Err(Stop::Script(format!("no option {id:?}")));
                }
                self.update_config()?;
                return Ok(true);
            }
            "title" => json!({ "sessionUpdate": "session_info_update", "title": rest }),
            "update" => parse(rest)?,
            "session" => {
                self.current = rest.into();
                return Ok(true);
            }
            "image" => {
                let data = "iVBORw0K".repeat(number::<usize>(rest)? * 1024 * 1024 / 8);
                let image = json!({ "type": "image", "mimeType": "image/png", "data": data });
                let update = json!({ "sessionUpdate": "agent_message_chunk", "content": image });
                return self.send_update(&update).map(|()| true);
            }
            "long" => {
                let short = self.update_line(&chunk("agent_message_chunk", "")).len();
                let filler = "x".repeat(number::<usize>(rest)?.saturating_sub(short));
                return self.send_update(&chunk("agent_message_chunk", &filler)).map(|()| true);
            }
            "flood" => return self.flood(number(first)?, number_or(more, 0)?).map(|()| true),
            _ => return Ok(false),
        };
        self.update(&update)?;
        Ok(true)
    }

    fn byte_step(&mut self, name: &str, rest: &str) -> Result<bool, Stop> {
        let (first, more) = split(rest);
        match name {
            "raw" => self.write(format!("{rest}\n").as_bytes())?,
            "part" => self.write(rest.as_bytes())?,
            "hex" => self.write(&unhex(rest)?)?,
            "notify" => self.notify(first, &params(more)?)?,
            "answer" => self.send_answer(&parse_id(first), &Ok(params(more)?))?,
            "stderr" => io::stderr().write_all(format!("{rest}\n").as_bytes())?,
            "flood-stderr" => flood_stderr(number(rest)?)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn turn_step(&mut self, name: &str, rest: &str) -> Result<bool, Stop> {
        match name {
            "" => {}
            "stop" | "fail" | "log-in" | "afterwards" if self.turn.is_none() => {
                return Err(Stop::Script("there is no turn".into()));
            }
            "stop" => self.end_turn(Ok(object(rest, "stopReason")?)),
            "fail" => self.end_turn(Err(failure(rest)?)),
            "log-in" => {
                if env::var_os(rest).is_none() {
                    self.end_turn(Err(failure("auth")?));
                }
            }
            "afterwards" => self.turn.iter_mut().for_each(|turn| turn.afterwards.push(rest.into())),
            "exit" => return Err(Stop::Exit(number(rest)?)),
            "abort" => process::abort(),
            "sleep" => {
                let until = Instant::now() + Duration::from_millis(number(rest)?);
                self.listen(Some(until), Self::ending)?;
            }
            "hang" => self.listen(None, Self::ending)?,
            "wait-file" => {
                while !fs::exists(rest)? && !self.ending() {
                    self.listen(Some(Instant::now() + GLANCE), Self::ending)?;
                }
            }
            "deaf" => thread::sleep(Duration::from_millis(number_or(rest, u64::MAX)?)),
            "exec" | "exec-stray" => self.exec(rest, name == "exec-stray")?,
            "pid-file" => pid_file(rest)?,
            "repeat" => {
                let (n, step) = split(rest);
                for _ in 0..number::<u64>(n)? {
                    if self.ending() {
                        break;
                    }
                    self.step(step)?;
                }
            }
            "in-mode" => {
                let (mode, step) = split(rest);
                if self.sessions.get(&self.current).is_some_and(|session| session.mode == mode) {
                    self.step(step)?;
                }
            }
            "client" => {
                let params =
                    self.last.get("initialize").map_or(Value::Null, |message| message["params"].clone());
                self.say(&format!("client {params}"))?;
            }
            "heard" if rest.is_empty() => self.say(&format!("methods {}", json!(self.heard)))?,
            "heard" => {
                let line = self.last.get(rest).cloned().unwrap_or_default();
                self.say(&format!("last {rest} {line}"))?;
            }
            "whoami" => {
                let text = |os: std::ffi::OsString| os.to_string_lossy().into_owned();
                let env: BTreeMap<_, _> = env::vars_os().map(|(k, v)| (text(k), text(v))).collect();
                let args: Vec<_> = env::args_os().skip(1).map(text).collect();
                let me = json!({ "pid": process::id(), "ppid": parent_id(), "cwd": env::current_dir()?,
                                 "args": args, "env": env });
                self.say(&format!("whoami {me}"))?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// A command as a child of the agent, and the tool call around it.
    fn exec(&mut self, command: &str, stray: bool) -> Result<(), Stop> {
        self.calls += 1;
        let id = format!("call-{}", self.calls);
        let mut call = self.tool(&id, &format!("run:{command}"))?;
        merge(&mut call, &json!({ "sessionUpdate": "tool_call", "status": "in_progress" }));
        self.update(&call)?;

        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", command]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        if stray {
            shell.process_group(0);
        }
        let mut child = shell.spawn()?;
        self.say(&format!("child {}", child.id()))?;
        let mut pipe = child.stdout.take().ok_or("no pipe".to_owned())?;
        let reader = thread::spawn(move || {
            let mut output = Vec::new();
            pipe.read_to_end(&mut output).map(|_| String::from_utf8_lossy(&output).into_owned())
        });
        while child.try_wait()?.is_none() || !reader.is_finished() {
            if self.ending() {
                if !stray {
                    child.kill()?;
                    child.wait()?;
                }
                let update =
                    json!({ "sessionUpdate": "tool_call_update", "toolCallId": id, "status": "failed" });
                return self.update(&update);
            }
            self.listen(Some(Instant::now() + GLANCE), Self::ending)?;
        }
        let code = child.wait()?.code();
        let output = reader.join().map_err(|_| "the reader failed".to_owned())??;
        let status = if code == Some(0) { "completed" } else { "failed" };
        self.update(&json!({
            "sessionUpdate": "tool_call_update", "toolCallId": id, "status": status,
            "content": [{ "type": "content", "content": { "type": "text", "text": output } }],
            "rawOutput": { "exit_code": code, "stdout": output },
        }))
    }
}

//! The steps that write.

use std::io;

use serde_json::json;

use super::Agent;
use super::messages::{compose, message, params};
use super::stdio::write_all;
use crate::script::{
    BLOCK, COUNTER, Stop, flood_stderr, increment, number, number_or, parse_id, split, unhex,
};

impl Agent {
    pub(super) fn write_step(&mut self, name: &str, rest: &str) -> Result<bool, Stop> {
        match name {
            "batch" => {
                let compose = |step| {
                    let (name, rest) = split(step);
                    compose(name, rest)?.ok_or_else(|| format!("{step:?} is not a message"))
                };
                let messages = rest.split('|').map(compose).collect::<Result<Vec<_>, String>>()?;
                let framed = messages.iter().map(|message| self.frame(&message.to_string()));
                write_all(io::stdout(), &framed.collect::<Vec<_>>().concat())?;
            }
            "end-turn" => {
                let last = self.turns.len();
                let turn = number_or(rest, last)?.checked_sub(1).and_then(|at| self.turns.get(at));
                let turn = turn.ok_or_else(|| "there was no such prompt".to_owned())?;
                let params = json!({ "stop_reason": "end_turn", "turn": turn });
                self.send(&message("turn/end", None, &params))?;
            }
            "raw" => write_all(io::stdout(), format!("{rest}\n").as_bytes())?,
            "part" => write_all(io::stdout(), rest.as_bytes())?,
            "hex" => write_all(io::stdout(), &unhex(rest)?)?,
            "halves" => {
                let message = message("status/update", None, &params(rest, "message")?);
                let framed = self.frame(&message.to_string());
                let (first, second) = framed.split_at(framed.len() / 2);
                write_all(io::stdout(), first)?;
                self.next()?;
                write_all(io::stdout(), second)?;
            }
            "long" => {
                let (bytes, place) = split(rest);
                write_all(io::stdout(), &self.frame(&long(number(bytes)?, place)?))?;
            }
            "flood" => {
                let (lines, rest) = split(rest);
                let (size, first) = split(rest);
                let text = json!({ "message": format!("flood {COUNTER}") });
                let template = message("status/update", None, &text).to_string();
                self.flood(template, number(lines)?, number_or(size, 100)?, number_or(first, 1)?)?;
            }
            "flood-heartbeats" => {
                let entry = json!({ "label": format!("flood {COUNTER}"), "status": "in_progress" });
                let template = message("heartbeat", None, &json!({ "progress": [entry] })).to_string();
                self.flood(template, number(rest)?, 0, 1)?;
            }
            "stderr" => write_all(io::stderr(), format!("{rest}\n").as_bytes())?,
            "flood-stderr" => flood_stderr(number(rest)?)?,
            "framing" if ["lsp", "ndjson"].contains(&rest) => self.lsp = rest == "lsp",
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn flood(&self, mut template: String, lines: u64, size: usize, first: u64) -> Result<(), Stop> {
        let end = template.find(COUNTER).map_or(0, |start| start + COUNTER.len());
        let pad = size.saturating_sub(self.frame(&template).len());
        if pad > 0 {
            template.insert_str(end, &format!(" {}", "x".repeat(pad - 1)));
        }
        let after = template.len() - end + usize::from(!self.lsp);
        let mut line = self.frame(&template);
        let end = line.len() - after;
        let counter = end - COUNTER.len()..end;
        line[counter.clone()].copy_from_slice(format!("{:010}", first % 10_000_000_000).as_bytes());

        let mut block = Vec::with_capacity(BLOCK + line.len());
        for _ in 0..lines {
            block.extend_from_slice(&line);
            increment(&mut line[counter.clone()]);
            if block.len() >= BLOCK {
                write_all(io::stdout(), &block)?;
                block.clear();
            }
        }
        write_all(io::stdout(), &block)
    }
}

/// A message of that many bytes. By hand, because here the order of the keys matters.
pub(super) fn long(bytes: usize, place: &str) -> Result<String, String> {
    let (place, id) = split(place);
    let id = parse_id(id);
    let request = r#""method":"clearance/request","params":{"title":"long","description":""#;
    let (head, tail) = match place {
        "" => (r#"{"method":"status/update","params":{"message":""#.to_owned(), r#""}}"#.to_owned()),
        "first" => (format!(r#"{{"id":{id},{request}"#), r#""}}"#.to_owned()),
        "last" => (format!("{{{request}"), format!(r#""}},"id":{id}}}"#)),
        _ => return Err("the id is first or last".into()),
    };
    let filler = "x".repeat(bytes.saturating_sub(head.len() + tail.len()));
    Ok(format!("{head}{filler}{tail}"))
}

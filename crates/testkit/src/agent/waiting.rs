//! The steps that wait for what comes.

use std::fs;
use std::io;
use std::time::Instant;

use serde_json::{Value, json};

use super::messages::message;
use super::processes::sleep;
use super::{Agent, Incoming};
use crate::script::{Stop, number, number_or, parse_id, split};

impl Agent {
    pub(super) fn wait_step(&mut self, name: &str, rest: &str) -> Result<bool, Stop> {
        match name {
            "expect" | "report" => {
                let (method, id) = split(rest);
                let id = (!id.is_empty()).then(|| parse_id(id));
                let fits = |m: &Incoming| m.is(method) && id.as_ref().is_none_or(|id| m.has_id(id));
                let found = self.wait(fits)?;
                if name == "report" {
                    self.report_received(&found)?;
                }
            }
            "answer" => {
                let id = parse_id(rest);
                let answer = self.wait(|message| message.has_id(&id))?;
                self.report_answered(&answer)?;
            }
            "echo" => {
                for _ in 0..number_or(rest, u64::MAX)? {
                    let message = self.next()?;
                    self.report_received(&message)?;
                }
            }
            "serve" => self.serve()?,
            "drain" => {
                self.inbox.clear();
                io::copy(&mut io::stdin().lock(), &mut io::sink())?;
            }
            "clearance-loop" => self.clearance_loop(number(rest)?)?,
            "interleave" => {
                let (n, prefix) = split(rest);
                self.interleave(number(n)?, if prefix.is_empty() { "clr" } else { prefix })?;
            }
            "wait-file" => {
                while !fs::exists(rest)? {
                    sleep(1);
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn serve(&mut self) -> Result<(), Stop> {
        loop {
            let message = self.next()?;
            if message.is("prompt/send") {
                let text = message.json["params"]["text"].as_str().unwrap_or_default();
                let steps = serde_json::from_str::<Vec<String>>(text);
                self.run(
                    &steps.unwrap_or_else(|_| text.split(';').map(|step| step.trim().into()).collect()),
                )?;
            } else if message.is_answer() {
                self.report_answered(&message)?;
            } else {
                self.report_received(&message)?;
            }
        }
    }

    fn clearance_loop(&mut self, n: u64) -> Result<(), Stop> {
        let mut times: Vec<u64> = Vec::new();
        for i in 1..=n {
            let id = Value::from(format!("loop-{i}"));
            let asked = Instant::now();
            self.send(&message("clearance/request", Some(&id), &json!({ "title": format!("loop {i}") })))?;
            self.wait(|answer| answer.has_id(&id))?;
            times.push(u64::try_from(asked.elapsed().as_micros()).unwrap_or(u64::MAX));
        }
        times.sort_unstable();
        let at = |percent| times.get(times.len() * percent / 100).or(times.last()).copied();
        let (p50, p99, max, total) = (at(50), at(99), at(100), times.iter().sum::<u64>());
        let figures = json!({ "n": n, "p50_us": p50, "p99_us": p99, "max_us": max, "total_us": total });
        self.status("clearance-loop", figures)
    }

    fn interleave(&mut self, n: u64, prefix: &str) -> Result<(), Stop> {
        let mut open: Vec<Value> = (1..=n).map(|i| format!("{prefix}-{i}").into()).collect();
        for id in &open {
            self.send(&message("clearance/request", Some(id), &json!({ "title": id })))?;
        }
        while !open.is_empty() {
            let answer = self.wait(|answer| open.contains(&answer.json["id"]))?;
            open.retain(|id| !answer.has_id(id));
            self.report_answered(&answer)?;
        }
        Ok(())
    }
}

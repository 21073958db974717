//! What kind of agent it is.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::env;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::os::fd::AsFd;
use std::sync::mpsc::sync_channel;
use std::thread;

use serde_json::Value;

use super::json::names;
use super::session::MODES;
use super::{Agent, INBOX};
use crate::script::{BLOCK, Stop, split};

const SWITCHES: &str = "caps modes initialize version auth sessions page replay ids script start before after eof delay never \
                        error ignore cancel second";

impl Agent {
    pub(super) fn new(args: &[String]) -> Result<Self, Stop> {
        if let Some(unknown) = args.iter().find(|arg| !names(SWITCHES, split(arg).0)) {
            return Err(Stop::Script(format!("no switch {unknown:?}")));
        }
        let mut switches = args.to_vec();
        if let Ok(path) = env::var("ACP_AGENT_SESSIONS") {
            switches.push(format!("sessions:{path}"));
        }
        let (sender, lines) = sync_channel(INBOX);
        thread::spawn(move || {
            let mut stdin = BufReader::with_capacity(BLOCK, io::stdin());
            loop {
                let mut line = Vec::new();
                let read = stdin.read_until(b'\n', &mut line).map(|_| line);
                // A torn last line is the end as well.
                let torn = read.as_ref().is_ok_and(|line| !line.ends_with(b"\n"));
                let failed = read.is_err();
                if torn || sender.send(read).is_err() || failed {
                    return;
                }
            }
        });
        let mut agent = Self {
            switches,
            out: File::from(io::stdout().as_fd().try_clone_to_owned()?),
            lines,
            queue: VecDeque::new(),
            turn: None,
            current: String::new(),
            sessions: BTreeMap::new(),
            authenticated: false,
            open: Vec::new(),
            asked: 0,
            calls: 0,
            terminal: Value::Null,
            heard: Vec::new(),
            last: HashMap::new(),
            withdrawn: Vec::new(),
            eof: false,
        };
        agent.recall()?;
        Ok(agent)
    }

    /// What the first such switch says.
    pub(super) fn switch(&self, name: &str) -> Option<&str> {
        self.all(name).first().copied()
    }

    pub(super) fn modes(&self) -> Vec<String> {
        match self.switch("modes") {
            Some(list) => list.split(',').map(str::to_owned).collect(),
            None => MODES.map(str::to_owned).into(),
        }
    }

    /// What all switches of that name say.
    pub(super) fn all(&self, name: &str) -> Vec<&str> {
        self.switches.iter().filter_map(|switch| switch.strip_prefix(name)?.strip_prefix(':')).collect()
    }

    pub(super) fn has(&self, name: &str, value: &str) -> bool {
        self.all(name).contains(&value)
    }

    pub(super) fn can(&self, what: &str) -> bool {
        let all = "load,resume,list,close,modes,config,image";
        self.switch("caps").unwrap_or(all).split(',').any(|cap| cap == what)
    }

    /// Does the steps of the switches for that moment.
    pub(super) fn hook(&mut self, moment: &str) -> Result<(), Stop> {
        let steps: Vec<String> = self.all(moment).into_iter().map(str::to_owned).collect();
        steps.iter().try_for_each(|step| self.step(step))
    }
}

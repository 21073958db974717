//! Both ends of the relay, and whatever may happen between them.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::Value;

use super::*;

#[derive(Debug, Clone)]
enum RelayScenarioStep {
    Ask(usize),
    Cancel,
    Pump(usize),
    DaemonAnswers(usize),
    DaemonCommits(usize),
    DaemonAsks,
    DaemonTells(usize),
    Happens(usize),
    ClientAnswers(usize),
    Lose(bool),
    Connect,
}

fn deed() -> impl Strategy<Value = RelayScenarioStep> {
    prop_oneof![
        4 => (0..METHODS.len()).prop_map(RelayScenarioStep::Ask),
        1 => Just(RelayScenarioStep::Cancel),
        5 => (1..4usize).prop_map(RelayScenarioStep::Pump),
        4 => any::<usize>().prop_map(RelayScenarioStep::DaemonAnswers),
        2 => any::<usize>().prop_map(RelayScenarioStep::DaemonCommits),
        1 => Just(RelayScenarioStep::DaemonAsks),
        3 => any::<usize>().prop_map(RelayScenarioStep::DaemonTells),
        3 => any::<usize>().prop_map(RelayScenarioStep::Happens),
        1 => any::<usize>().prop_map(RelayScenarioStep::ClientAnswers),
        1 => any::<bool>().prop_map(RelayScenarioStep::Lose),
        2 => Just(RelayScenarioStep::Connect),
    ]
}

const METHODS: &[&str] = &[
    "session/prompt",
    "session/prompt",
    "session/new",
    "session/load",
    "session/resume",
    "session/list",
    "session/set_mode",
    "session/close",
    "initialize",
    "_other/thing",
];

#[derive(Default)]
struct RelayWorld {
    /// What the client asked for, by its id, and about which session.
    asked: BTreeMap<u64, (&'static str, String)>,
    /// How often each was answered.
    answered: BTreeMap<u64, u32>,
    /// What this connection has heard and not answered.
    heard: Vec<Value>,
    known: bool,
    connected: bool,
    /// Which prompt was given under which id.
    prompts: BTreeMap<u64, String>,
    /// Survives the daemon: the prompts, by their ids, and the events of each session.
    log: BTreeSet<String>,
    events: BTreeMap<String, Vec<u64>>,
    seq: u64,
    /// Of this connection: how far each of its sessions was told.
    attached: BTreeMap<String, u64>,
    /// How far the client was told, as it sees it.
    told: BTreeMap<String, u64>,
    permissions: u64,
    /// Ours, as the client knows it.
    dialogs: Vec<Value>,
    all_dialogs: Vec<Value>,
    /// The daemon's own questions of this connection.
    pending: Vec<u64>,
}

impl RelayWorld {
    fn ask(&mut self, ledger: &mut PendingRelayRequests, method: &'static str) {
        let (id, session) = (self.asked.len() as u64 + 1, format!("s{}", self.asked.len() % 3));
        say(ledger, &call(id, method, json!({ "sessionId": session })));
        self.asked.insert(id, (method, session));
    }

    fn pump(&mut self, ledger: &mut PendingRelayRequests, count: usize) {
        for _ in 0..count {
            let Some(text) = ledger.next_for_daemon() else { break };
            assert!(self.connected);
            self.daemon(ledger, serde_json::from_str(&text).unwrap());
        }
        for message in to_client(ledger) {
            self.client(&message);
        }
    }

    fn daemon(&mut self, ledger: &mut PendingRelayRequests, message: Value) {
        let session = || message["params"]["sessionId"].as_str().unwrap().to_owned();
        match message["method"].as_str() {
            None => {
                let id = message["id"].as_u64().unwrap();
                let at = self.pending.iter().position(|pending| *pending == id);
                self.pending.remove(at.expect("an answer is for a question of this connection"));
            }
            Some("session/prompt") => {
                let (request, id) = (message["id"].as_u64().unwrap(), id_of(&message));
                let kept = self.prompts.entry(request).or_insert_with(|| id.clone());
                assert_eq!(*kept, id, "a prompt keeps its id");
                self.attached.entry(session()).or_insert(self.seq);
            }
            Some("session/resume") => {
                let after = message["params"]["_meta"]["intercom"]["after"].as_u64().unwrap_or(self.seq);
                let told = *self.attached.entry(session()).or_insert(after);
                // Nothing of the session comes before this answer.
                hear_of(ledger, told, &session(), &result(message["id"].clone(), json!({})));
                return;
            }
            Some(_) => {}
        }
        if message.get("method").is_some() && message.get("id").is_some() {
            self.heard.push(message);
        }
    }

    fn client(&mut self, message: &Value) {
        match message["method"].as_str() {
            Some("session/update") => {
                let (session, seq) =
                    (message["params"]["sessionId"].as_str().unwrap(), &message["params"]["n"]);
                let (seq, events) = (seq.as_u64().unwrap(), &self.events[session]);
                let last = self.told.insert(session.to_owned(), seq);
                let next = last.and_then(|last| events.iter().copied().find(|event| *event > last));
                assert!(
                    last.is_none() || next == Some(seq) || events.first() == Some(&seq),
                    "{session}: {seq} comes after {last:?}, and {events:?} happened"
                );
            }
            Some("$/cancel_request") => {
                self.dialogs.retain(|dialog| *dialog != message["params"]["requestId"]);
            }
            Some(_) => {
                assert!(!self.all_dialogs.contains(&message["id"]), "an id is used once");
                self.dialogs.push(message["id"].clone());
                self.all_dialogs.push(message["id"].clone());
            }
            None => {
                let id = message["id"].as_u64().expect("only requests of the client are answered");
                *self.answered.entry(id).or_default() += 1;
                if let (("session/close", session), true) =
                    (&self.asked[&id], message.get("result").is_some())
                {
                    self.told.remove(session);
                }
            }
        }
    }

    fn commit(&mut self, at: usize) {
        if let Some(message) = self.heard.get(at).filter(|message| message["method"] == "session/prompt") {
            self.log.insert(id_of(message));
        }
    }

    fn answer(&mut self, ledger: &mut PendingRelayRequests, at: usize) {
        self.commit(at);
        let message = self.heard.remove(at);
        self.known |= message["method"] == "initialize" && message["id"].is_u64();
        let session = message["params"]["sessionId"].as_str().unwrap_or_default().to_owned();
        let answer = |session: &str| result(message["id"].clone(), json!({ "sessionId": session }));
        match message["method"].as_str().unwrap() {
            "session/new" => {
                let made = format!("n{}", self.seq);
                self.attached.insert(made.clone(), self.seq);
                hear_of(ledger, self.seq, &made, &answer(&made));
            }
            "session/load" => {
                let up_to = *self.attached.entry(session.clone()).or_insert(self.seq);
                let events = self.events.entry(session.clone()).or_default().clone();
                for seq in events.into_iter().filter(|seq| *seq <= up_to) {
                    Self::update(ledger, &session, seq);
                }
                hear_of(ledger, up_to, &session, &answer(&session));
            }
            "session/close" => {
                self.attached.remove(&session);
                hear(ledger, &answer(&session));
            }
            _ => hear(ledger, &answer(&session)),
        }
    }

    fn update(ledger: &mut PendingRelayRequests, session: &str, seq: u64) {
        let params = json!({ "sessionId": session, "n": seq });
        hear_of(ledger, seq, session, &json!({ "method": "session/update", "params": params }));
    }

    /// The next event of a session of this connection, if there is one.
    fn tell(&mut self, ledger: &mut PendingRelayRequests, which: usize) -> bool {
        let untold = |(session, told): (&String, &u64)| {
            let seq = self.events.get(session)?.iter().find(|seq| *seq > told)?;
            Some((session.clone(), *seq))
        };
        let untold: Vec<(String, u64)> = self.attached.iter().filter_map(untold).collect();
        let Some((session, seq)) = (!untold.is_empty()).then(|| untold[which % untold.len()].clone()) else {
            return false;
        };
        Self::update(ledger, &session, seq);
        self.attached.insert(session, seq);
        true
    }

    fn happens(&mut self, which: usize) {
        self.seq += 1;
        let sessions: Vec<String> =
            (0..3).map(|n| format!("s{n}")).chain(self.attached.keys().cloned()).collect();
        self.events.entry(sessions[which % sessions.len()].clone()).or_default().push(self.seq);
    }

    fn lose(&mut self, ledger: &mut PendingRelayRequests, lasted: bool) {
        (self.connected, self.heard, self.pending) = (false, Vec::new(), Vec::new());
        self.attached.clear();
        ledger.lost(lasted);
    }

    fn connect(&mut self, ledger: &mut PendingRelayRequests) {
        if !self.connected {
            self.connected = true;
            ledger.connected();
            self.pump(ledger, 1);
            let first = self.heard.first();
            if self.known {
                assert_eq!(first.expect("the client is introduced")["method"], "initialize");
            }
        }
    }

    fn does(&mut self, ledger: &mut PendingRelayRequests, deed: &RelayScenarioStep) {
        match *deed {
            RelayScenarioStep::Ask(method) => self.ask(ledger, METHODS[method]),
            RelayScenarioStep::Cancel => {
                say(ledger, &json!({ "method": "session/cancel", "params": { "sessionId": "s1" } }));
            }
            RelayScenarioStep::Pump(count) => self.pump(ledger, count),
            RelayScenarioStep::DaemonAnswers(at) if !self.heard.is_empty() => {
                self.answer(ledger, at % self.heard.len());
            }
            RelayScenarioStep::DaemonCommits(at) if !self.heard.is_empty() => {
                self.commit(at % self.heard.len());
            }
            RelayScenarioStep::DaemonAsks if self.connected => {
                self.permissions += 1;
                let id = self.permissions % 5 + 100 * self.pending.len() as u64;
                self.pending.push(id);
                hear(ledger, &call(id, "session/request_permission", json!({})));
            }
            RelayScenarioStep::DaemonTells(which) => drop(self.tell(ledger, which)),
            RelayScenarioStep::Happens(which) => self.happens(which),
            RelayScenarioStep::ClientAnswers(at) if !self.all_dialogs.is_empty() => {
                let id = self.all_dialogs[at % self.all_dialogs.len()].clone();
                say(ledger, &result(id, json!({})));
            }
            RelayScenarioStep::Lose(lasted) => self.lose(ledger, lasted),
            RelayScenarioStep::Connect => self.connect(ledger),
            RelayScenarioStep::DaemonAnswers(_)
            | RelayScenarioStep::DaemonCommits(_)
            | RelayScenarioStep::DaemonAsks
            | RelayScenarioStep::ClientAnswers(_) => {}
        }
    }
}

proptest! {
    #[test]
    fn whatever_happens_every_request_is_answered_once_every_prompt_given_once_and_every_event_told_once(
        deeds in proptest::collection::vec(deed(), 0..160), gives_up in any::<bool>(),
    ) {
        let (mut ledger, mut world) = (PendingRelayRequests::new(), RelayWorld::default());
        for deed in deeds {
            world.does(&mut ledger, &deed);
        }
        if gives_up {
            ledger.give_up("gone");
        } else {
            world.connect(&mut ledger);
            while ledger.has_for_daemon() || !world.heard.is_empty() {
                world.pump(&mut ledger, 3);
                if !world.heard.is_empty() {
                    world.answer(&mut ledger, 0);
                }
            }
            while world.tell(&mut ledger, 0) {}
        }
        world.pump(&mut ledger, 0);
        let expected: BTreeMap<u64, u32> = world.asked.keys().map(|id| (*id, 1)).collect();
        prop_assert_eq!(&world.answered, &expected);
        let given: BTreeSet<&String> = world.prompts.values().collect();
        prop_assert_eq!(given.len(), world.prompts.len(), "two prompts are two");
        prop_assert!(world.log.iter().all(|id| given.contains(id)));
        for (session, told) in world.told.iter().filter(|_| !gives_up) {
            prop_assert_eq!(Some(told), world.events[session].last(), "{}", session);
        }
        prop_assert!(ledger.is_settled());
    }
}

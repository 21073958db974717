//! The real daemon is killed under a client that is at work, and the client does not notice.

use intercom_testkit::harness::acp_fixture;

use super::*;

/// A client, its session with the ACP fixture, and the daemons that come and go behind it.
struct Desk {
    seat: Seat,
    session: String,
    daemon: Child,
    ground: Ground,
    asked: u64,
}

impl Drop for Desk {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Desk {
    fn new() -> Self {
        let agent = json!(acp_fixture());
        let ground = Ground::new(&format!("[agents.acp]\ncommand = {agent}\nprotocol = 'acp'\n"));
        let daemon = ground.serve(&[]);
        let seat = Seat::start(ground.acp().args(["--agent", "acp"]).stderr(Stdio::null()));
        let mut desk = Self { seat, session: String::new(), daemon, ground, asked: 0 };
        desk.ask("initialize", json!({ "protocolVersion": 1 }));
        desk.seat.hear();
        desk.ask("session/new", json!({ "cwd": desk.ground.path().join("work"), "mcpServers": [] }));
        let opened = desk.seat.hear();
        desk.session.push_str(opened["result"]["sessionId"].as_str().unwrap());
        desk
    }

    fn ask(&mut self, method: &str, params: Value) -> u64 {
        self.asked += 1;
        self.seat.say(&call(self.asked, method, params));
        self.asked
    }

    fn prompt(&mut self, steps: &str) -> u64 {
        let params = json!({ "sessionId": self.session, "prompt": [{ "type": "text", "text": steps }] });
        self.ask("session/prompt", params)
    }

    fn cancel(&mut self) {
        self.seat.say(&json!({ "jsonrpc": "2.0", "method": "session/cancel",
            "params": { "sessionId": self.session } }));
    }

    /// What waits for a file goes on.
    fn go(&self, name: &str) {
        std::fs::write(self.ground.path().join("work").join(name), "").unwrap();
    }

    fn kill(&mut self) {
        self.daemon.kill().ok(); // it may have died by itself
        self.daemon.wait().unwrap();
    }

    fn restart(&mut self, env: &[(&str, &str)]) {
        self.kill();
        self.daemon = self.ground.serve(env);
    }

    /// The next that the agent says.
    #[track_caller]
    fn said(&self) -> String {
        words(&self.seat.hear())
    }

    /// What the client hears up to the answer to this request, which is the last of it.
    #[track_caller]
    fn until_answered(&self, id: u64) -> (Vec<Value>, Value) {
        let mut heard = Vec::new();
        loop {
            let message = self.seat.hear();
            if message["id"] == id && message.get("method").is_none() {
                return (heard, message["result"]["stopReason"].clone());
            }
            heard.push(message);
        }
    }

    /// As above, if the agent only spoke.
    #[track_caller]
    fn said_until_answered(&self, id: u64) -> (Vec<String>, Value) {
        let (heard, end) = self.until_answered(id);
        (heard.iter().map(words).collect(), end)
    }

    /// Nothing else was said, and nothing is under way.
    #[track_caller]
    fn ends_quiet(mut self) {
        let last = self.prompt("say:still here");
        assert_eq!(self.said_until_answered(last), (vec!["still here".to_owned()], json!("end_turn")));
        self.seat.stdin = None;
        let (status, said) = self.seat.end();
        assert_eq!((status.code(), said), (Some(0), Vec::new()));
    }
}

#[track_caller]
fn words(message: &Value) -> String {
    let update = &message["params"]["update"];
    assert_eq!(update["sessionUpdate"], "agent_message_chunk", "{message}");
    update["content"]["text"].as_str().unwrap().to_owned()
}

#[test]
fn every_update_of_a_turn_is_told_once_and_in_order() {
    let mut desk = Desk::new();
    let turn = desk.prompt("flood:300;wait-file:$cwd/go;flood:300;wait-file:$cwd/on;say:over");
    let mut said: Vec<String> = (0..40).map(|_| desk.said()).collect();
    desk.restart(&[]);
    said.extend((0..260).map(|_| desk.said()));
    desk.go("go");
    said.extend((0..40).map(|_| desk.said()));
    desk.kill();
    desk.go("on");
    desk.daemon = desk.ground.serve(&[]);
    let (rest, end) = desk.said_until_answered(turn);
    said.extend(rest);
    let flood = |n: usize| format!("flood {n:010}");
    let expected: Vec<String> =
        (1..=300).map(flood).chain((1..=300).map(flood)).chain(["over".to_owned()]).collect();
    let said: Vec<&str> = said.iter().map(|text| text.trim_end()).collect();
    assert_eq!((said, end), (expected.iter().map(String::as_str).collect(), json!("end_turn")));
    desk.ends_quiet();
}

#[test]
fn what_is_said_in_a_new_session_before_anything_was_told_is_told_later() {
    let mut desk = Desk::new();
    let turn = desk.prompt("pid-file:$cwd/begun;wait-file:$cwd/go;say:late;say:later");
    let start = Instant::now();
    while !desk.ground.path().join("work/begun").exists() {
        assert!(start.elapsed() < PATIENCE, "the turn does not begin");
        std::thread::sleep(Duration::from_millis(5));
    }
    desk.kill();
    desk.go("go");
    desk.daemon = desk.ground.serve(&[]);
    let expected = ["late", "later"].map(str::to_owned).to_vec();
    assert_eq!(desk.said_until_answered(turn), (expected, json!("end_turn")));
    desk.ends_quiet();
}

#[test]
fn a_relay_starts_the_next_daemon_itself() {
    let mut desk = Desk::new();
    let turn = desk.prompt("say:one;wait-file:$cwd/go;say:two");
    assert_eq!(desk.said(), "one");
    desk.kill();
    desk.go("go");
    assert_eq!(desk.said_until_answered(turn), (vec!["two".to_owned()], json!("end_turn")));
    assert_eq!(desk.ground.daemons().len(), 1);
    desk.ends_quiet();
}

#[test]
fn a_prompt_is_given_once_wherever_the_daemon_dies_on_it() {
    for point in
        ["command.stepped", "command.committed", "command.performed", "frame.writing", "frame.written"]
    {
        let mut desk = Desk::new();
        let turn = desk.prompt("say:before");
        assert_eq!(desk.said_until_answered(turn), (vec!["before".to_owned()], json!("end_turn")));
        desk.restart(&[("INTERCOM_FAILPOINT", point)]);
        let turn = desk.prompt("say:once;sleep:20;say:and only once");
        desk.daemon.wait().unwrap();
        desk.daemon = desk.ground.serve(&[]);
        let expected = ["once", "and only once"].map(str::to_owned).to_vec();
        assert_eq!(desk.said_until_answered(turn), (expected, json!("end_turn")), "{point}");
        desk.ends_quiet();
    }
}

#[test]
fn a_permission_that_was_open_is_asked_anew_and_the_agent_goes_on() {
    let mut desk = Desk::new();
    let turn = desk.prompt("permission:allow_once,reject_once:run:make;say:done");
    let first = desk.seat.hear();
    assert_eq!(first["method"], "session/request_permission");
    desk.restart(&[]);
    let gone = desk.seat.hear();
    assert_eq!(
        (&gone["method"], &gone["params"]["requestId"]),
        (&json!("$/cancel_request"), &first["id"]),
        "{gone}"
    );
    desk.seat.say(&result(first["id"].clone(), json!({ "outcome": { "outcome": "cancelled" } })));
    let anew = desk.seat.hear();
    assert_eq!((&anew["method"], &anew["params"]), (&first["method"], &first["params"]));
    assert_ne!(anew["id"], first["id"]);
    let allowed = json!({ "outcome": { "outcome": "selected", "optionId": "allow_once" } });
    desk.seat.say(&result(anew["id"].clone(), allowed.clone()));
    let (said, end) = desk.said_until_answered(turn);
    let answered = format!("answered session/request_permission 0 {allowed}");
    assert_eq!((said, end), (vec![answered, "done".to_owned()], json!("end_turn")));
    desk.ends_quiet();
}

#[test]
fn what_was_taken_back_while_the_daemon_was_away_does_not_happen() {
    let mut desk = Desk::new();
    let turn = desk.prompt("say:one;hang");
    assert_eq!(desk.said(), "one");
    let queued = desk.prompt("say:never");
    desk.kill();
    desk.cancel();
    desk.daemon = desk.ground.serve(&[]);
    let mut answers = [desk.seat.hear(), desk.seat.hear()];
    answers.sort_by_key(|answer| answer["id"].as_u64());
    assert_eq!(answers, [turn, queued].map(|id| result(id, json!({ "stopReason": "cancelled" }))));
    desk.ends_quiet();
}

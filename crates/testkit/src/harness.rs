//! A daemon of one's own for each test: private directories, private environment, gone at the end, also after a failure.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::client::{Answer, Connection, Events, PATIENCE, Place, connect, exchange};

/// Short waits between the steps of a stop.
pub const QUICK: &str =
    "[stop]\nafter_interrupt_seconds = 0.02\nafter_stdin_closed_seconds = 0.2\nafter_sigterm_seconds = 0.5\n";

/// A port that nobody else has.
pub const PORT: &str = "[api]\nlisten = \"127.0.0.1:0\"\n";

/// A program that was built with this test or benchmark, which cargo puts in a directory beside it.
fn built(program: &str) -> PathBuf {
    let ourselves = std::env::current_exe().unwrap();
    let built = ourselves.ancestors().nth(2).unwrap().join(program);
    assert!(built.exists(), "{} is missing: build it with `cargo build --examples`", built.display());
    built
}

/// `intercom` itself.
pub fn intercom() -> PathBuf {
    built("intercom")
}

/// The scripted agent: see the table at the top of `agent.rs`.
pub fn fixture() -> PathBuf {
    built("examples/fixture-agent")
}

/// The one that speaks ACP: see the tables at the top of `acp_agent.rs`.
pub fn acp_fixture() -> PathBuf {
    built("examples/acp-agent")
}

/// A profile of the fixture for `config.toml`, with more lines of its table.
pub fn profile(name: &str, steps: &[&str], more: &str) -> String {
    // The strings of JSON are strings of TOML, too.
    format!("[agents.{name}]\ncommand = {}\nargs = {}\n{more}\n", json!(fixture()), json!(steps))
}

/// A refusal has this status and code, a message, and a hint that may be null; its body.
#[track_caller]
pub fn refused((status, body): (u16, Value), expected: u16, code: &str) -> Value {
    assert_eq!((status, body["error"]["code"].as_str()), (expected, Some(code)), "{body}");
    assert!(body["error"]["message"].as_str().is_some_and(|message| !message.is_empty()), "{body}");
    assert!(body["error"].get("hint").is_some_and(|hint| hint.is_null() || hint.is_string()), "{body}");
    body
}

/// The events of one kind.
pub fn of_kind<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["kind"] == kind).collect()
}

/// The end of the nth turn.
#[track_caller]
pub fn wait_turns(daemon: &Daemon, session: &str, count: usize) -> Value {
    let seen = std::cell::Cell::new(0);
    daemon.wait_for(session, "the end of a turn", |event| {
        seen.set(seen.get() + usize::from(event["kind"] == "turn.ended"));
        seen.get() == count
    })
}

/// How every daemon is started: so that nothing outlives its test.
pub const SERVE: &[&str] = &["serve", "--on-stop", "drain"];

/// What a command printed and how it ended.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    #[track_caller]
    pub fn ok(self) -> Self {
        assert_eq!(self.code, 0, "{self:?}");
        self
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// A running daemon in directories of its own.
pub struct Daemon {
    pub dir: tempfile::TempDir,
    child: Child,
    stderr: PathBuf,
    socket: PathBuf,
}

impl Daemon {
    pub fn start() -> Self {
        Self::with_config("")
    }

    pub fn with_config(config: &str) -> Self {
        Self::start_in(home(config), &[], &[])
    }

    /// Agents that are left over at the end of a test, most of them waiting on stdin, are gone at once.
    pub fn quick(config: &str) -> Self {
        Self::with_config(&format!("{QUICK}{config}"))
    }

    /// In a directory that was used before, with more arguments and variables.
    pub fn start_in(dir: tempfile::TempDir, args: &[&str], env: &[(&str, &str)]) -> Self {
        let mut command = command(dir.path());
        command.args(SERVE).args(args).envs(env.iter().copied());
        let socket = dir.path().join("state/intercom.sock");
        Self::launch(dir, &mut command, |_| socket)
    }

    /// By any command that becomes the daemon; `socket` tells, given its pid, where it listens as seen from here.
    pub fn launch(
        dir: tempfile::TempDir,
        command: &mut Command,
        socket: impl FnOnce(i32) -> PathBuf,
    ) -> Self {
        let stderr = dir.path().join("daemon.log");
        let log = std::fs::OpenOptions::new().create(true).append(true).open(&stderr).unwrap();
        let child =
            command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        let socket = socket(i32::try_from(child.id()).unwrap());
        let mut daemon = Self { dir, child, stderr, socket };
        daemon.until("the daemon to listen", |daemon| {
            if let Some(status) = daemon.child.try_wait().unwrap() {
                panic!("the daemon ended with {status}: {}", daemon.log());
            }
            connect(&daemon.socket).ok()
        });
        daemon
    }

    pub fn socket(&self) -> PathBuf {
        self.socket.clone()
    }

    /// Of its port. It answers a moment before it says where.
    pub fn address(&self) -> String {
        let file = self.dir.path().join("state/daemon.json");
        let start = Instant::now();
        while !file.exists() && start.elapsed() < PATIENCE {
            std::thread::yield_now();
        }
        let about: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
        about["url"].as_str().unwrap().trim_start_matches("http://").to_owned()
    }

    pub fn workspace(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    /// Whether it is over, for whatever reason.
    pub fn ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// What the daemon wrote to its log so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.stderr).unwrap_or_default()
    }

    /// For what has no event to wait for. Fails with `what` after a long while.
    #[track_caller]
    pub fn until<T>(&mut self, what: &str, mut look: impl FnMut(&mut Self) -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            if let Some(found) = look(self) {
                return found;
            }
            assert!(start.elapsed() < PATIENCE, "waited too long for {what}: {}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// As people read it, with what differs from run to run masked: ids, times, ages, pids, our directory and user.
    pub fn tidy(&self, text: &str) -> String {
        let text = text.replace(self.dir.path().to_str().unwrap(), "DIR");
        text.lines().map(|line| tidy_line(line) + "\n").collect()
    }

    /// Runs `intercom ARGS` against this daemon, in its workspace.
    pub fn cli(&self, args: &[&str]) -> Ran {
        run(command(self.dir.path()).args(args).current_dir(self.workspace()))
    }

    pub fn cli_with_input(&self, args: &[&str], input: &str) -> Ran {
        let mut child = command(self.dir.path())
            .args(args)
            .current_dir(self.workspace())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        output(child)
    }

    pub fn get(&self, path: &str) -> (u16, Value) {
        self.request("GET", path, None, &[("accept", "application/json")])
    }

    pub fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.request("POST", path, Some(&body.to_string()), &[])
    }

    pub fn request(
        &self,
        method: &str,
        path: &str,
        body: Option<&str>,
        headers: &[(&str, &str)],
    ) -> (u16, Value) {
        let (status, body) = http(&self.socket(), method, path, body, headers);
        let value =
            if body.is_empty() { Value::Null } else { serde_json::from_str(&body).unwrap_or(json!(body)) };
        (status, value)
    }

    /// Starts the fixture with these steps; the session's id once it runs.
    #[track_caller]
    pub fn run(&self, steps: &[&str]) -> String {
        self.run_with(steps, json!({}))
    }

    /// As [`run`](Self::run), with more fields in the request.
    #[track_caller]
    pub fn run_with(&self, steps: &[&str], more: Value) -> String {
        let mut body = json!({ "command": fixture(), "args": steps });
        let Value::Object(more) = more else { panic!("fields are an object: {more}") };
        body.as_object_mut().unwrap().extend(more);
        self.started(body)
    }

    /// Starts the ACP fixture with these switches; the session's id once it is ready.
    #[track_caller]
    pub fn run_acp(&self, switches: &[&str]) -> String {
        let session = self.started(json!({ "command": acp_fixture(), "args": switches, "protocol": "acp" }));
        self.wait_kind(&session, "agent.ready");
        session
    }

    /// Starts an agent of the configuration; the session's id once it runs.
    #[track_caller]
    pub fn run_agent(&self, agent: &str) -> String {
        self.started(json!({ "agent": agent }))
    }

    #[track_caller]
    pub fn started(&self, body: Value) -> String {
        let (status, session) = self.ask_to_start(body);
        assert_eq!(status, 201, "{session}");
        session["id"].as_str().unwrap().to_owned()
    }

    /// Asks for a session, in this daemon's workspace unless another is named.
    pub fn ask_to_start(&self, mut body: Value) -> (u16, Value) {
        if body.get("workspace").is_none() {
            body["workspace"] = json!(self.workspace());
        }
        self.post("/api/v1/sessions", &body)
    }

    #[track_caller]
    pub fn show(&self, session: &str) -> Value {
        let (status, body) = self.get(&format!("/api/v1/sessions/{session}"));
        assert_eq!(status, 200, "{body}");
        body
    }

    /// A prompt as it was taken.
    #[track_caller]
    pub fn prompt(&self, session: &str, text: &str) -> Value {
        let path = format!("/api/v1/sessions/{session}/prompts");
        let (status, body) = self.post(&path, &json!({ "text": text }));
        assert_eq!(status, 202, "{body}");
        body
    }

    /// The events of a session that are in the log now, a thousand at most.
    #[track_caller]
    pub fn so_far(&self, session: &str) -> Vec<Value> {
        let (status, mut page) = self.get(&format!("/api/v1/events?after=0&limit=1000&session={session}"));
        assert_eq!(status, 200, "{page}");
        serde_json::from_value(page["items"].take()).unwrap()
    }

    /// The events of a session from its first on, live. Reading fails after [`PATIENCE`] without any.
    pub fn follow(&self, session: &str) -> Events {
        Events::open(&self.socket(), &format!("/api/v1/events?after=0&session={session}"), &[])
    }

    /// Waits until such an event is in the session's log.
    #[track_caller]
    pub fn wait_for(&self, session: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut events = self.follow(session);
        let mut seen = Vec::new();
        loop {
            match events.next() {
                Some(event) if wanted(&event) => return event,
                Some(event) => seen.push(event),
                None => panic!("no {what} in {session}; seen: {seen:#?}; the daemon said: {}", self.log()),
            }
        }
    }

    #[track_caller]
    pub fn wait_kind(&self, session: &str, kind: &str) -> Value {
        self.wait_for(session, kind, |event| event["kind"] == kind)
    }

    /// Waits until the fixture reports this message, and returns the report's fields.
    #[track_caller]
    pub fn wait_status(&self, session: &str, message: &str) -> Value {
        let said = |event: &Value| event["kind"] == "status" && event["data"]["message"] == message;
        self.wait_for(session, message, said)["data"].clone()
    }

    /// Waits until the session has ended, without reading all that it said.
    #[track_caller]
    pub fn wait_for_end(&self, session: &str) {
        let start = Instant::now();
        while self.show(session)["phase"] != "ended" {
            assert!(start.elapsed() < PATIENCE, "{session} does not end: {}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// All events of a session that has ended.
    #[track_caller]
    pub fn all_events(&self, session: &str) -> Vec<Value> {
        let mut events = self.follow(session);
        let mut all = Vec::new();
        loop {
            let event =
                events.next().unwrap_or_else(|| panic!("{session} does not end: {all:#?}; {}", self.log()));
            let ended = event["kind"] == "session.ended";
            all.push(event);
            if ended {
                return all;
            }
        }
    }

    /// Asks to `stop` or `kill`; the answer and how long it took.
    #[track_caller]
    pub fn end_session(&self, session: &str, how: &str) -> (Value, Duration) {
        let start = Instant::now();
        let (status, body) = self.post(&format!("/api/v1/sessions/{session}/{how}"), &json!({}));
        assert_eq!(status, 200, "{body}");
        (body, start.elapsed())
    }

    /// The id of the session's only pending clearance, once it is there.
    #[track_caller]
    pub fn clearance(&self, session: &str) -> String {
        self.wait_kind(session, "clearance.requested")["data"]["clearance"].as_str().unwrap().to_owned()
    }

    #[track_caller]
    pub fn question(&self, session: &str) -> String {
        self.wait_kind(session, "question.asked")["data"]["question"].as_str().unwrap().to_owned()
    }

    #[track_caller]
    pub fn decide(&self, clearance: &str, decision: &str) -> Value {
        let path = format!("/api/v1/clearances/{clearance}/decision");
        let (status, body) = self.post(&path, &json!({ "decision": decision }));
        assert_eq!(status, 200, "{body}");
        body
    }

    /// Ends the daemon with a signal and gives its directory back.
    pub fn end(mut self, signal: Signal) -> (tempfile::TempDir, std::process::ExitStatus) {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.pid()), signal).ok(); // it may have ended by itself
        let status = self.until("the daemon's end", |daemon| daemon.child.try_wait().unwrap());
        // The directory moves out; what is left of `self` finds its child gone.
        let dir = std::mem::replace(&mut self.dir, tempfile::tempdir().unwrap());
        (dir, status)
    }
}

impl Drop for Daemon {
    /// Stops it, and sees to it that nothing of it is left: an orphan fails any test.
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.pid()), Signal::SIGTERM).ok();
        }
        let start = Instant::now();
        let stopped = loop {
            match self.child.try_wait() {
                Ok(None) if start.elapsed() > Duration::from_secs(8) => break false,
                Ok(None) => std::thread::sleep(Duration::from_millis(10)),
                _ => break true,
            }
        };
        if !stopped {
            self.child.kill().ok();
            self.child.wait().ok();
        }
        let left = kill_all_in(self.dir.path());
        if !std::thread::panicking() {
            assert!(stopped, "the daemon did not stop within 8 s");
            assert!(left.is_empty(), "these processes were left behind: {left:#?}");
        }
    }
}

/// What a daemon needs: a private directory with a workspace and a configuration.
pub fn home(config: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("work")).unwrap();
    // Ports are for the tests that want one.
    let port = if config.contains("[api]") { "" } else { "\n[api]\nlisten = \"off\"\n" };
    std::fs::write(dir.path().join("config.toml"), format!("{config}{port}")).unwrap();
    dir
}

/// Whether the process runs: one that has ended counts as gone, also if nobody has reaped it.
pub fn alive(pid: i64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

/// The processes that have this directory for their home, or work in it: a daemon's, its shims, its agents', their
/// children's.
pub fn processes_in(dir: &Path) -> Vec<(i32, String)> {
    let home = [b"HOME=", dir.as_os_str().as_encoded_bytes()].concat();
    let pids = std::fs::read_dir("/proc").unwrap().flatten();
    pids.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let environ = std::fs::read(entry.path().join("environ")).ok()?;
        let works_here = std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(dir));
        let ours = works_here || environ.split(|byte| *byte == 0).any(|variable| variable == home);
        let line = std::fs::read_to_string(entry.path().join("cmdline")).ok()?;
        (ours && alive(i64::from(pid))).then(|| (pid, line.replace('\0', " ")))
    })
    .collect()
}

/// Ends them by force, and tells which there were. A child that is just being started shows up a moment later.
pub fn kill_all_in(dir: &Path) -> Vec<(i32, String)> {
    let mut found = Vec::new();
    loop {
        let now = processes_in(dir);
        if now.is_empty() {
            return found;
        }
        for (pid, line) in now {
            nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), Signal::SIGKILL).ok();
            if !found.iter().any(|(known, _)| *known == pid) {
                found.push((pid, line));
            }
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Runs, and is not merely waiting to be reaped by whoever inherited it.
pub fn is_alive(pid: &Value) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

/// Words keep their places, but not their columns: how wide a column is depends on what was masked.
fn tidy_line(line: &str) -> String {
    let indent = line.len() - line.trim_start().len();
    let mut tidy = line[..indent].to_owned();
    let (mut before, mut spaces) = ("", 0);
    for word in line[indent..].split(' ') {
        if word.is_empty() {
            spaces += 1;
            continue;
        }
        if !before.is_empty() {
            tidy += if spaces > 0 { "  " } else { " " };
        }
        tidy += &mask(before, word);
        (before, spaces) = (word, 0);
    }
    tidy
}

fn mask(before: &str, word: &str) -> String {
    let core = word.trim_matches(|c: char| !c.is_alphanumeric());
    let shape: String = core.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    let user = nix::unistd::User::from_uid(nix::unistd::Uid::effective()).ok().flatten();
    let masked = match core.split_once('_') {
        Some((kind @ ("ses" | "clr" | "qst" | "prm" | "trn"), _)) => format!("{kind}_ID"),
        _ if shape == "0000-00-00" => "DATE".to_owned(),
        _ if shape == "00:00:00" => "TIME".to_owned(),
        _ if shape.trim_start_matches('0') == "s" && core.len() > 1 => "AGE".to_owned(),
        _ if before == "pid" && core.parse::<u32>().is_ok() => "PID".to_owned(),
        _ if before == "by" && user.is_some_and(|user| user.name == core) => "ME".to_owned(),
        _ => return word.to_owned(),
    };
    word.replacen(core, &masked, 1)
}

/// `intercom` with nothing but its own directories in its environment.
pub fn command(dir: &Path) -> Command {
    // Below what the system allows, so that whoever raises it is seen.
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, most.min(4000), most).unwrap();
    let mut command = Command::new(intercom());
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", dir)
        .env("INTERCOM_STATE_DIR", dir.join("state"));
    if dir.join("config.toml").exists() {
        command.env("INTERCOM_CONFIG", dir.join("config.toml"));
    }
    command
}

pub fn run(command: &mut Command) -> Ran {
    output(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
}

/// What it prints until it ends; one that does not end is ended, and shown as code -1.
pub fn output(child: Child) -> Ran {
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
    let (done, over) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            if over.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                nix::sys::signal::kill(pid, Signal::SIGKILL).ok();
            }
        });
        let output = child.wait_with_output().unwrap();
        drop(done);
        ran(output)
    })
}

fn ran(output: std::process::Output) -> Ran {
    Ran {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A request of a program, and the answer that there must be.
#[track_caller]
pub fn http(
    place: impl Into<Place>,
    method: &str,
    path: &str,
    body: Option<&str>,
    headers: &[(&str, &str)],
) -> (u16, String) {
    let more: &[_] = if body.is_some() { &[("content-type", "application/json")] } else { &[] };
    let headers = [headers, more, &[("connection", "close")]].concat();
    let mut connection = Connection::open(place).unwrap();
    let answer = connection.request(method, path, &headers, body.unwrap_or_default()).unwrap();
    (answer.status, answer.body)
}

/// Signs in as the console's page does.
pub fn sign_in(address: &str, body: &Value) -> Answer {
    let origin = format!("http://{address}");
    let headers = [("origin", origin.as_str()), ("x-intercom", "1"), ("content-type", "application/json")];
    exchange(Place::open_port(address), "POST", "/api/v1/web/sessions", &headers, &body.to_string())
}

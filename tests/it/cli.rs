//! Every verb as a person would type it: what it prints where, how it ends, and what never reaches a terminal.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use intercom_testkit::client::PATIENCE;
use intercom_testkit::harness::{Daemon, Ran, acp_fixture, command, fixture, home, of_kind, output, run};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

const VERBS: &[&str] = &[
    "serve",
    "run",
    "ls",
    "show",
    "logs",
    "watch",
    "wait",
    "send",
    "prompts",
    "clearances",
    "approve",
    "deny",
    "questions",
    "answer",
    "nudge",
    "interrupt",
    "stop",
    "kill",
    "resume",
    "agents",
    "doctor",
    "backup",
    "console",
    "acp",
    "completions",
];

/// `intercom run -- FIXTURE STEPS`: the id, as a script would take it.
#[track_caller]
fn start(daemon: &Daemon, options: &[&str], steps: &[&str]) -> String {
    let fixture = fixture();
    let ran = daemon.cli(&[&["run"], options, &["--", fixture.to_str().unwrap()], steps].concat()).ok();
    assert_eq!(ran.stderr, "", "stdout is data, stderr is talk, and there is nothing to talk about");
    let id = ran.stdout.strip_suffix('\n').unwrap().to_owned();
    assert!(id.starts_with("ses_") && !id.contains(char::is_whitespace), "{id:?}");
    id
}

/// Starts a verb that goes on, without waiting for it.
fn background(daemon: &Daemon, args: &[&str]) -> Child {
    let mut command = command(daemon.dir.path());
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Such a verb, and its lines as they come. It ends with this.
struct Running {
    child: Child,
    lines: mpsc::Receiver<String>,
    seen: Vec<String>,
}

impl Running {
    fn of(daemon: &Daemon, args: &[&str]) -> Self {
        let mut child = background(daemon, args);
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (tell, lines) = mpsc::channel();
        // Ends with the verb.
        thread::spawn(move || stdout.lines().map_while(Result::ok).all(|line| tell.send(line).is_ok()));
        Self { child, lines, seen: Vec::new() }
    }

    fn next(&mut self, wait: Duration) -> Option<String> {
        let line = self.lines.recv_timeout(wait).ok()?;
        self.seen.push(line.clone());
        Some(line)
    }

    #[track_caller]
    fn until(&mut self, text: &str) -> String {
        while let Some(line) = self.next(PATIENCE) {
            if line.contains(text) {
                return line;
            }
        }
        panic!("{text:?} does not come after {:#?}", self.seen);
    }

    /// What it prints until it ends by itself, and how.
    #[track_caller]
    fn end(mut self) -> (Vec<String>, Ran) {
        while self.next(PATIENCE).is_some() {}
        let ended = self.child.try_wait().is_ok();
        assert!(ended, "it goes on after {:#?}", self.seen);
        let mut stderr = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        let code = self.child.wait().unwrap().code().unwrap_or(-1);
        (std::mem::take(&mut self.seen), Ran { code, stdout: String::new(), stderr })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.child.kill().ok(); // it may have ended
        self.child.wait().ok();
    }
}

/// What people see, from a command that went well and had nothing else to say.
#[track_caller]
fn read(daemon: &Daemon, args: &[&str]) -> String {
    let ran = daemon.cli(args).ok();
    assert_eq!(ran.stderr, "");
    daemon.tidy(&ran.stdout)
}

#[test]
fn every_verb_has_a_help_that_works_without_a_daemon() {
    let dir = home("");
    let help = run(command(dir.path()).arg("--help")).ok();
    for verb in VERBS {
        assert!(help.stdout.lines().any(|line| line.trim_start().starts_with(&format!("{verb} "))), "{verb}");
        for args in [[*verb, "--help"], ["help", *verb]] {
            let ran = run(command(dir.path()).args(args)).ok();
            assert!(ran.stdout.contains(&format!("Usage: intercom {verb}")), "{ran:?}");
            assert_eq!(ran.stderr, "");
        }
    }
    let version = run(command(dir.path()).arg("--version")).ok();
    assert_eq!(version.stdout, format!("intercom {}\n", env!("CARGO_PKG_VERSION")));
    assert!(!dir.path().join("state").exists(), "looking changes nothing");
}

#[test]
fn without_a_daemon_every_verb_says_how_to_start_one() {
    let dir = home("");
    for args in [
        &["run", "--no-start", "--agent", "demo"][..],
        &["ls"],
        &["show", "x"],
        &["logs", "x"],
        &["logs", "-f", "x"],
        &["watch"],
        &["wait", "x", "--for", "idle"],
        &["send", "x", "hello"],
        &["prompts", "x"],
        &["clearances"],
        &["clearances", "x"],
        &["approve", "x"],
        &["deny", "x"],
        &["questions"],
        &["answer", "x", "continue"],
        &["nudge", "x"],
        &["interrupt", "x"],
        &["stop", "x"],
        &["kill", "x"],
        &["resume", "x"],
        &["console"],
        &["open"],
        &["backup", "x.db"],
    ] {
        let ran = run(command(dir.path()).args(args));
        assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{args:?}: {ran:?}");
        let socket = dir.path().join("state/intercom.sock");
        let message = "error: no daemon is running; start one with `intercom daemon restart`";
        assert_eq!(
            ran.stderr,
            format!(
                "{message}\nhint: looked for its socket at {}; `intercom run` starts one, too\n",
                socket.display()
            ),
            "{args:?}"
        );
    }
    assert!(!dir.path().join("state").exists());
}

#[test]
fn wrong_arguments_exit_with_two_and_say_what_is_wrong() {
    let daemon = Daemon::start();
    for args in [
        &[][..],
        &["fly"],
        &["show"],
        &["show", ""],
        &["ls", "--al"],
        &["send", "x"],
        &["send", "x", " "],
        &["stop"],
        &["approve"],
        &["answer", "x"],
        &["answer", "x", "perhaps"],
        &["answer", "x", "refine"],
        &["wait", "x"],
        &["wait", "x", "--for", "lunch"],
        &["wait", "x", "--for", "idle", "--timeout", "soon"],
        &["run"],
        &["run", "--agent", "demo", "--", "sh"],
        &["run", "--env", "NOVALUE", "--", "sh"],
        &["clearances", "x", "--all"],
        &["completions", "tcsh-but-not"],
        &["logs", "x", "--after", "-1"],
    ] {
        let ran = daemon.cli(args);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{args:?}: {ran:?}");
        assert!(!ran.stderr.is_empty() && !ran.stderr.contains("panicked"), "{args:?}: {ran:?}");
    }
}

#[test]
fn what_is_not_there_is_said_by_its_name() {
    let daemon = Daemon::start();
    for (args, what) in [
        (&["show", "nobody"][..], "session"),
        (&["logs", "nobody"], "session"),
        (&["watch", "nobody"], "session"),
        (&["send", "nobody", "hello"], "session"),
        (&["nudge", "nobody"], "session"),
        (&["stop", "nobody"], "session"),
        (&["wait", "nobody", "--for", "idle"], "session"),
        (&["clearances", "nobody"], "clearance"),
        (&["approve", "nobody"], "clearance"),
        (&["answer", "nobody", "stop"], "question"),
    ] {
        let ran = daemon.cli(args);
        assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{args:?}: {ran:?}");
        let list = if what == "session" { "ls".to_owned() } else { format!("{what}s") };
        let told =
            format!("error: no {what} matches `nobody`\nhint: `intercom {list} --all` lists the {what}s\n");
        assert_eq!(ran.stderr, told, "{args:?}");
        daemon.cli(&[&list, "--all"]).ok();
    }
    let ran = daemon.cli(&["run", "--agent", "nobody"]);
    assert_eq!(
        (ran.code, ran.stderr.as_str()),
        (
            1,
            "error: no agent is named `nobody`; use one of claude, codex, copilot, cursor, gemini, goose, kimi, opencode, qwen, vibe, demo\n"
        )
    );
    let ran = daemon.cli(&["run", "--", "./no-such-agent"]);
    let told =
        "error: command not found: ./no-such-agent\nhint: install the program there, or correct the path; ";
    assert!(ran.code == 1 && ran.stderr.starts_with(told), "{ran:?}");
    let ran = daemon.cli(&["run", "--", "no-such-agent"]);
    let told =
        "error: command not found: no-such-agent\nhint: install it, or give the full path of the program; ";
    assert!(ran.code == 1 && ran.stderr.starts_with(told), "{ran:?}");
    // What could not be started is listed until somebody has looked at it.
    let failed = daemon.cli(&["ls", "--json"]).ok().json()["items"].take();
    for one in failed.as_array().unwrap() {
        let shown = daemon.cli(&["show", one["id"].as_str().unwrap()]).ok().stdout;
        assert!(shown.contains("what to do fix that, then start it again: `intercom resume "), "{shown}");
    }
    for (list, nothing) in [
        ("ls", "no live sessions; `intercom run` starts one, `intercom ls --all` lists the ended ones\n"),
        ("clearances", "nothing waits for a decision\n"),
        ("questions", "nothing waits for an answer\n"),
    ] {
        let ran = daemon.cli(&[list]).ok();
        assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("", nothing));
    }
}

#[test]
fn a_session_is_listed_and_shown_for_people() {
    let daemon = Daemon::start();
    let steps = ["status:hello", "stderr:a warning", "clearance:c:Edit main.rs", "question:q:Go on?", "hang"];
    let id = start(&daemon, &["--name", "shop", "Tidy up"], &steps);
    daemon.question(&id);
    daemon.all_events(&start(&daemon, &[], &["exit:0"]));
    insta::assert_snapshot!(read(&daemon, &["ls"]), @r"
    ID  NAME  AGENT  PHASE  AGE  WORKSPACE  TITLE  WHY
    ses_ID  shop  -  waiting  AGE  DIR/work  Tidy up  1 clearance, 1 question
    ");
    assert_eq!(daemon.cli(&["ls", "--all"]).ok().stdout.lines().count(), 3);
    let shown = read(&daemon, &["show", "shop"]);
    let (figures, shown): (Vec<&str>, Vec<&str>) = shown.lines().partition(|line| line.contains(" CPU "));
    assert!(figures.len() == 1 && figures[0].ends_with("fixture-agent"), "{figures:?}");
    insta::assert_snapshot!(shown.join("\n"), @r"
    id  ses_ID
    name  shop
    title  Tidy up
    protocol  intercom
    workspace  DIR/work
    phase  waiting
    why  waiting for you: 1 clearance and 1 question
    waiting  1 clearance, 1 question: see `intercom clearances` and `intercom questions`
    turn  trn_ID, for AGE
    pid  PID
    generation 1
    started  DATE TIME UTC (AGE ago)
    processes
    stderr
      │ a warning
    ");
    daemon.cli(&["kill", "shop"]).ok();
    insta::assert_snapshot!(read(&daemon, &["show", "shop"]), @r"
    id  ses_ID
    name  shop
    title  Tidy up
    protocol  intercom
    workspace  DIR/work
    phase  ended
    why  killed by ME (signal 9)
    generation 1
    started  DATE TIME UTC (AGE ago)
    ended  DATE TIME UTC (AGE ago)
    exit  signal 9
    stderr
      │ a warning
    ");
}

#[test]
fn a_log_reads_like_a_story() {
    let daemon = Daemon::start();
    let diff = r"--- a/main.rs\n+++ b/main.rs\n@@ -1 +1 @@\n-old\n+new\n";
    let ask = format!(
        r#"clearance:c:{{"title":"Edit main.rs","file_path":"main.rs","risk_level":"low","diff":"{diff}"}}"#
    );
    let id = start(
        &daemon,
        &["--name", "shop", "Tidy up\nthe shop"],
        &[
            "status:on my way",
            "heartbeat:look=completed,tidy=in_progress",
            &ask,
            "answer:c",
            "question:q:And the window?",
            "answer:q",
            "raw:oops",
            "notify:tea/brew",
            "turn-end",
            "stderr:bye",
            "exit:3",
        ],
    );
    daemon.cli(&["deny", &daemon.clearance(&id), "--reason", "not today"]).ok();
    daemon.cli(&["answer", &daemon.question(&id), "refine", "only from inside"]).ok();
    daemon.all_events(&id);
    let log = read(&daemon, &["logs", "shop"]).replace(fixture().to_str().unwrap(), "AGENT");
    // That something has arrived is told when we know it, which may be after the agent has reacted to it.
    let (arrived, told): (Vec<&str>, Vec<&str>) = log.lines().partition(|line| line.ends_with("delivered"));
    assert_eq!(arrived.len(), 3, "{arrived:?}");
    insta::assert_snapshot!(told.join("\n"), @r#"
    DATE TIME  session shop created: AGENT in DIR/work, by ME
    DATE TIME  prompt prm_ID by ME: Tidy up
        │ the shop
    DATE TIME  agent started, pid PID
    DATE TIME  agent is ready
    DATE TIME  turn started: prompt
    DATE TIME  prompt prm_ID leaves the queue
    DATE TIME  agent> on my way
    DATE TIME  agent> heartbeat: [x] look, [>] tidy
    DATE TIME  asks for clearance clr_ID [low]: main.rs +1 -1 “Edit main.rs”
    DATE TIME  clearance clr_ID denied by ME (not today): main.rs +1 -1 “Edit main.rs”
    DATE TIME  agent> answered
    DATE TIME  asks qst_ID: “And the window?”
    DATE TIME  question qst_ID answered by ME: refine: only from inside
    DATE TIME  agent> answered
    DATE TIME  a line was rejected: malformed JSON: expected value at line 1 column 1 (4 bytes)
        │ oops
    DATE TIME  unknown message tea/brew
    DATE TIME  turn ended: end_turn
    DATE TIME  agent exited with code 3
        │ bye
    DATE TIME  session ended: exited with code 3: “bye”
    "#);
}

#[test]
fn a_clearance_is_shown_in_full_before_it_is_decided_and_after() {
    let daemon = Daemon::start();
    let diff = r"--- a/main.rs\n+++ b/main.rs\n@@ -1 +1 @@\n-old\n+new\n";
    let ask = format!(
        r#"clearance:c:{{"title":"Edit main.rs","description":"It is old.\nVery old.","file_path":"main.rs","risk_level":"harmless","diff":"{diff}"}}"#
    );
    let id = start(&daemon, &["--name", "shop"], &[&ask, "answer:c", "hang"]);
    let clearance = daemon.clearance(&id);
    insta::assert_snapshot!(read(&daemon, &["clearances"]), @r"
    ID  SESSION  RISK  AGE  WHAT
    clr_ID  shop  high  AGE  main.rs +1 -1 “Edit main.rs”
    ");
    insta::assert_snapshot!(read(&daemon, &["clearances", &clearance]), @r"
    id  clr_ID
    session  shop (ses_ID)
    risk  high (the agent says harmless)
    file  main.rs
    title  “Edit main.rs”
    policy  no rule matches
    asked  DATE TIME UTC (AGE ago)
    status  pending

      │ It is old.
      │ Very old.

    diff +1 -1
    │ --- a/main.rs
    │ +++ b/main.rs
    │ @@ -1 +1 @@
    │ -old
    │ +new
    ");
    let ran = read(&daemon, &["approve", &clearance[..9], "--reason", "fine"]);
    assert_eq!(ran, "approved clr_ID: main.rs +1 -1 “Edit main.rs” (delivered)\n");
    assert_eq!(daemon.wait_status(&id, "answered")["params"]["reason"], "fine");
    let shown = read(&daemon, &["clearances", &clearance]);
    insta::assert_snapshot!(shown.split("\n\n").next().unwrap(), @r"
    id  clr_ID
    session  shop (ses_ID)
    risk  high (the agent says harmless)
    file  main.rs
    title  “Edit main.rs”
    policy  no rule matches
    asked  DATE TIME UTC (AGE ago)
    status  approved
    decided  by ME via unix socket, DATE TIME UTC (AGE ago)
    reason  fine
    delivery  delivered
    ");
    let late = daemon.cli(&["deny", &clearance]);
    assert_eq!((late.code, late.stdout.as_str()), (1, ""));
    assert!(
        late.stderr.starts_with("error: already approved by ") && late.stderr.contains(": fine"),
        "{late:?}"
    );
    assert_eq!(daemon.cli(&["clearances", "--all", "--session", "shop"]).ok().stdout.lines().count(), 2);
    assert!(daemon.cli(&["clearances", "--all", "--diff"]).ok().stdout.contains("\n│ +new\n"));
}

#[test]
fn sessions_go_by_name_by_id_and_by_any_unique_beginning() {
    let daemon = Daemon::start();
    let id = start(&daemon, &["--name", "shop"], &["hang"]);
    let other = start(&daemon, &[], &["hang"]);
    let bare = id.strip_prefix("ses_").unwrap();
    for typed in ["shop", &id, bare, &id[..10], &bare[..6], &bare.to_ascii_uppercase()[..6]] {
        assert_eq!(daemon.cli(&["show", typed, "--json"]).ok().json()["id"], id.as_str(), "{typed}");
    }
    let ran = daemon.cli(&["show", "ses_"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    // Two that begin alike: as many sessions as there are characters cannot all begin differently.
    let common = (0..40).map(|_| start(&daemon, &[], &["exit:0"])).chain([id, other]);
    let firsts: Vec<String> = common.map(|id| id[4..5].to_owned()).collect();
    let twice = firsts.iter().find(|first| firsts.iter().filter(|other| other == first).count() > 1).unwrap();
    let ran = daemon.cli(&["show", twice]);
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""));
    assert!(
        ran.stderr.starts_with(&format!(
            "error: `{twice}` matches several sessions\nhint: use a longer prefix: ses_"
        )),
        "{ran:?}"
    );
    let ran = daemon.cli(&["run", "--name", "shop", "--agent", "demo"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (1, "error: a session named `shop` is running already\n"));
}

#[test]
fn a_name_that_was_used_before_means_the_live_session_or_else_the_newest() {
    let daemon = Daemon::start();
    let mut newest = String::new();
    for _ in 0..3 {
        newest = start(&daemon, &["--name", "shop"], &["exit:0"]);
        daemon.wait_for_end(&newest);
    }
    let shown = |daemon: &Daemon| daemon.cli(&["show", "shop", "--json"]).ok().json()["id"].clone();
    assert_eq!(shown(&daemon), newest.as_str());
    let live = start(&daemon, &["--name", "shop"], &["hang"]);
    start(&daemon, &["--name", "other"], &["hang"]);
    assert_eq!(shown(&daemon), live.as_str());
}

#[test]
fn an_agent_that_has_just_been_started_is_not_idle_before_it_could_begin() {
    let daemon = Daemon::start();
    let busy = start(&daemon, &[], &["sleep:600", "status:busy", "sleep:600", "turn-end", "expect:nudge"]);
    daemon.cli(&["wait", &busy, "--for", "idle", "--timeout", "20"]).ok();
    let ended = of_kind(&daemon.so_far(&busy), "turn.ended").len();
    assert_eq!(ended, 1, "it was idle before it had begun");
    // One that waits for its first prompt is idle after a moment.
    let silent = start(&daemon, &[], &["expect:nudge"]);
    assert_eq!(daemon.cli(&["wait", &silent, "--for", "idle", "--timeout", "20"]).ok().stdout, "idle\n");
    let ran = daemon.cli(&["wait", &silent, "--for", "waiting", "--timeout", "0"]);
    assert!(ran.stderr.ends_with(" is still idle\n"), "{ran:?}");
}

#[test]
fn a_protocol_that_is_not_spoken_is_not_offered_and_refused_in_a_sentence() {
    let daemon = Daemon::start();
    assert!(!daemon.cli(&["run", "--help"]).ok().stdout.contains("mcp"));
    assert_eq!(daemon.cli(&["run", "--protocol", "mcp", "--", "true"]).code, 2);
    let (status, body) = daemon.ask_to_start(json!({ "command": "true", "protocol": "mcp" }));
    assert_eq!((status, &body["error"]["code"]), (400, &json!("bad_request")));
    assert_eq!(body["error"]["message"], "protocol: \"mcp\" is not known, use \"intercom\" or \"acp\"");
}

#[test]
fn logs_as_json_are_one_event_per_line_and_can_be_narrowed() {
    let daemon = Daemon::start();
    let id = start(
        &daemon,
        &[],
        &[
            r#"raw:{"method":"status/update","params":{"message":"a\nb","more":1.10}}"#,
            "clearance:c:May I?",
            "exit:0",
        ],
    );
    let events = daemon.all_events(&id);
    let ran = daemon.cli(&["logs", &id, "--json"]).ok();
    let lines: Vec<Value> = ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines, events);
    assert!(ran.stdout.contains("1.10"), "numbers stay as they are spelled");
    let kinds = |args: &[&str]| -> Vec<String> {
        let ran = daemon.cli(&[&["logs", &id, "--json"], args].concat()).ok();
        let kind =
            |line: &str| serde_json::from_str::<Value>(line).unwrap()["kind"].as_str().unwrap().to_owned();
        ran.stdout.lines().map(kind).collect()
    };
    assert_eq!(kinds(&["--kind", "clearance"]), ["clearance.requested", "clearance.closed"]);
    assert_eq!(kinds(&["--kind", "status", "--kind", "session.ended"]), ["status", "session.ended"]);
    let last = events.last().unwrap()["seq"].to_string();
    assert_eq!(kinds(&["--after", &last]), [""; 0]);
}

#[test]
fn following_a_log_ends_with_the_session() {
    let daemon = Daemon::start();
    let id = start(&daemon, &[], &["status:one", "expect:nudge", "status:two", "exit:0"]);
    let mut follow = Running::of(&daemon, &["logs", "-f", &id]);
    follow.until("  agent> one");
    daemon.cli(&["nudge", &id]).ok();
    follow.until("  agent> two");
    let (lines, ran) = follow.end();
    assert!(lines.last().unwrap().contains("session ended"), "{lines:?}");
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    let again = daemon.cli(&["logs", "--follow", &id]).ok();
    assert!(again.stdout.contains("session ended"), "one that has ended is printed, and that is it");
}

#[test]
fn watch_prints_a_line_per_event_where_there_is_no_terminal() {
    let daemon = Daemon::start();
    let quiet = start(&daemon, &[], &["echo"]);
    let id = start(&daemon, &[], &["echo"]);
    for args in [&["watch"][..], &["watch", &id], &["watch", "--json"]] {
        let mut watch = Running::of(&daemon, args);
        // It shows what happens from now on, and only it knows when now is.
        let start = Instant::now();
        while watch.next(Duration::from_millis(100)).is_none() {
            assert!(start.elapsed() < PATIENCE, "{args:?} shows nothing");
            daemon.cli(&["nudge", &quiet, "psst"]).ok();
            daemon.cli(&["nudge", &id, "psst"]).ok();
        }
        daemon.cli(&["nudge", &id, &format!("anybody there?{HOSTILE}")]).ok();
        let line = watch.until("anybody there");
        assert!(line.contains(&id[..12]), "{line}");
        if args.contains(&"--json") {
            assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["session"], id.as_str());
        } else {
            assert!(!line.contains(is_hostile) && line.contains("<U+202E>evil"), "{line:?}");
        }
        let others = watch.seen.iter().any(|line| line.contains(&quiet[..12]));
        assert!(!others || !args.contains(&id.as_str()), "that is another session: {:#?}", watch.seen);
    }
}

#[test]
fn prompts_are_sent_listed_and_taken_back() {
    let fixture = fixture();
    let daemon = Daemon::with_config(&format!(
        "[agents.patient]\ndescription = 'takes its time'\ncommand = {fixture:?}\nargs = ['expect:nudge', 'heartbeat', 'report:prompt/send', 'hang']\n\
         prompt_delivery = 'heartbeat'\n"
    ));
    let eager = start(&daemon, &[], &["report:prompt/send", "hang"]);
    let sent = daemon.cli_with_input(&["send", &eager, "-"], "first line\n\nlast line\n").ok();
    assert_eq!(daemon.tidy(&sent.stdout), "prm_ID delivered\n");
    let line = daemon.wait_status(&eager, "received")["line"].as_str().unwrap().to_owned();
    assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["params"]["text"], "first line\n\nlast line");
    assert_eq!(daemon.cli_with_input(&["send", &eager, "-"], "\n").code, 2, "nothing is not a prompt");

    let id = daemon.cli(&["run", "--agent", "patient"]).ok().stdout.trim().to_owned();
    let sent: Vec<Value> =
        ["one", "two"].iter().map(|text| daemon.cli(&["send", &id, text, "--json"]).ok().json()).collect();
    insta::assert_snapshot!(read(&daemon, &["prompts", &id]), @r"
    ID  STATE  AGE  BY  TEXT
    prm_ID  queued  AGE  root  two
    prm_ID  queued  AGE  root  one
    ");
    let one = sent[0]["id"].as_str().unwrap();
    let mistaken = daemon.cli(&["prompts", &eager, "--remove", one]);
    let told = format!("error: no prompt of this session matches `{one}`\nhint: it belongs to {id}\n");
    assert_eq!((mistaken.code, mistaken.stderr), (1, told));
    assert_eq!(read(&daemon, &["prompts", &id, "--remove", one]), "prm_ID withdrawn\n");
    daemon.cli(&["nudge", &id]).ok();
    let line = daemon.wait_status(&id, "received")["line"].as_str().unwrap().to_owned();
    assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["params"]["text"], "two");
    let late = daemon.cli(&["prompts", &id, "--remove", sent[1]["id"].as_str().unwrap()]);
    assert_eq!((late.code, late.stderr.as_str()), (1, "error: the prompt has already been sent\n"));

    let ran = daemon.cli(&["agents"]).ok();
    let row = |name: &str| ran.stdout.lines().find(|line| line.starts_with(name)).map(str::to_owned).unwrap();
    assert!(
        row("patient").contains("fixture-agent") && row("patient").ends_with("takes its time"),
        "{ran:?}"
    );
    assert!(row("demo").contains("friendly") && row("demo").contains("(built in)"), "{ran:?}");
}

#[test]
fn a_first_prompt_may_come_from_stdin_and_never_shows_on_the_command_line() {
    let daemon = Daemon::start();
    let fixture = fixture();
    let ran = daemon.cli_with_input(
        &[
            "run",
            "--env",
            "COLOUR=blue",
            "-",
            "--",
            fixture.to_str().unwrap(),
            "whoami",
            "report:prompt/send",
        ],
        "read\nme\n",
    );
    let id = ran.ok().stdout.trim().to_owned();
    let who = daemon.wait_status(&id, "whoami");
    assert_eq!(who["args"], json!(["whoami", "report:prompt/send"]));
    assert_eq!(who["env"]["COLOUR"], "blue");
    let received = daemon.wait_status(&id, "received");
    assert!(received["line"].as_str().unwrap().contains(r"read\nme"), "{received}");
}

#[test]
fn questions_are_listed_in_full_and_answered() {
    let daemon = Daemon::start();
    let id = start(&daemon, &[], &["question:q:Shall I?\n\nReally?", "answer:q", "hang"]);
    let question = daemon.question(&id);
    insta::assert_snapshot!(read(&daemon, &["questions"]), @r"
    ID  SESSION  STATUS  AGE  TYPE  ANSWER
    qst_ID  ses_ID  pending  AGE  -
      │ Shall I?
      │
      │ Really?
    ");
    assert_eq!(read(&daemon, &["questions", &question]), read(&daemon, &["questions", "--session", &id]));
    let other = start(&daemon, &["--name", "other"], &["hang"]);
    assert_eq!(daemon.cli(&["questions", "--session", &other]).ok().stdout, "");
    let hint = "nothing waits for a decision\n1 question waits: intercom questions\n";
    assert_eq!(daemon.cli(&["clearances"]).ok().stderr, hint);
    assert_eq!(
        daemon.cli(&["clearances", "--session", "other"]).ok().stderr,
        "nothing waits for a decision\n"
    );
    let mistaken = daemon.cli(&["approve", &question]);
    let told = format!(
        "error: {question} is a question, not a clearance\nhint: intercom answer {question} continue|refine|stop\n"
    );
    assert_eq!((mistaken.code, mistaken.stderr), (2, told));
    assert!(daemon.cli(&["answer", "clr_x", "stop"]).stderr.contains("intercom approve clr_x"));
    let ran = read(&daemon, &["answer", &question[..9], "refine", "only a little"]);
    assert_eq!(ran, "answered qst_ID: refine (delivered)\n");
    let answered = daemon.wait_status(&id, "answered");
    assert_eq!(answered["params"], json!({ "decision": "refine", "instruction": "only a little" }));
    let late = daemon.cli(&["answer", &question, "stop"]);
    assert_eq!(late.code, 1);
    assert!(late.stderr.starts_with("error: already answered by "), "{late:?}");
    assert!(daemon.cli(&["questions", "--all"]).ok().stdout.contains("refine by "));
    assert_eq!(daemon.cli(&["questions"]).ok().stdout, "");
}

#[test]
fn nudge_and_interrupt_reach_the_agent() {
    let daemon = Daemon::start();
    let id = start(&daemon, &["--name", "shop"], &["status:working", "echo"]);
    daemon.wait_status(&id, "working");
    // The answer names the session, whatever was typed for it.
    let typed = &id[4..7];
    assert_eq!(read(&daemon, &["nudge", "shop", "wake up"]), "shop (ses_ID) nudged\n");
    assert_eq!(read(&daemon, &["interrupt", typed, "lunch"]), "shop (ses_ID) interrupted\n");
    let heard = daemon.follow(&id).filter(|event| event["data"]["message"] == "received").take(2);
    let heard: Vec<Value> =
        heard.map(|event| serde_json::from_str(event["data"]["line"].as_str().unwrap()).unwrap()).collect();
    assert_eq!(heard[0], json!({ "method": "nudge", "params": { "message": "wake up" } }));
    assert_eq!(heard[1], json!({ "method": "session/interrupt", "params": { "reason": "lunch" } }));
    assert_eq!(read(&daemon, &["wait", "shop", "--for", "idle", "--timeout", "20"]), "idle\n");
}

#[test]
fn several_sessions_are_stopped_at_once_and_one_that_fails_does_not_spare_the_others() {
    let daemon = Daemon::start();
    let a = start(&daemon, &["--name", "a"], &["expect:session/interrupt"]);
    let b = start(&daemon, &["--name", "b"], &["expect:session/interrupt"]);
    let ended = |name: &str, id: &str, steps: &str| format!("{name} ({}) ended{steps}", &id[..12]);
    let ran = daemon.cli(&["stop", "a", "nobody", "b"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    let mut lines: Vec<&str> = ran.stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, [ended("a", &a, " after interrupt"), ended("b", &b, " after interrupt")]);
    assert_eq!(ran.stderr, "nobody: no session matches `nobody`\nerror: could not stop 1 of 3 sessions\n");
    assert_eq!(read(&daemon, &["stop", &a[4..7]]), "a (ses_ID) ended\n");
    start(&daemon, &["--name", "c"], &["hang"]);
    assert_eq!(read(&daemon, &["kill", "c"]), "c (ses_ID) ended after sigkill, 1 killed\n");
    let ran = daemon.cli(&["kill", "a", "c", "--json"]).ok();
    assert_eq!(
        ran.stdout.lines().filter(|line| serde_json::from_str::<Value>(line).is_ok()).count(),
        2,
        "{ran:?}"
    );
}

#[test]
fn a_session_that_has_ended_is_resumed_as_it_was_started() {
    let daemon = Daemon::start();
    let id = start(&daemon, &["--name", "shop", "--env", "COLOUR=blue"], &["whoami", "hang"]);
    daemon.wait_status(&id, "whoami");
    let early = daemon.cli(&["resume", "shop"]);
    assert_eq!(early.code, 1);
    let told = "error: the session is running: only an ended or parked one can be resumed\n\
        hint: stop it first: `intercom stop shop && intercom resume shop`\n";
    assert_eq!(early.stderr, told);
    daemon.cli(&["kill", "shop"]).ok();
    let gone = daemon.cli(&["send", "shop", "hello"]);
    assert_eq!(gone.code, 1);
    assert_eq!(gone.stderr, "error: the session has ended\nhint: `intercom resume shop` starts it again\n");
    let ran = daemon.cli(&["resume", "shop"]).ok();
    assert!(ran.stdout.starts_with("shop ") && ran.stdout.ends_with(", generation 2\n"), "{ran:?}");
    let twice = |event: &&Value| event["data"]["message"] == "whoami";
    let mut events = daemon.follow(&id);
    let who: Vec<Value> = events.by_ref().filter(|event| twice(&event)).take(2).collect();
    assert_eq!(who[1]["data"]["env"]["COLOUR"], "blue");
    assert_ne!(who[0]["data"]["pid"], who[1]["data"]["pid"]);
}

#[test]
fn waiting_ends_with_the_goal_the_time_or_the_session() {
    let daemon = Daemon::start();
    let id = start(
        &daemon,
        &["--name", "shop"],
        &["status:busy", "expect:nudge", "clearance:c:May I?", "answer:c", "turn-end", "expect:nudge"],
    );
    daemon.wait_status(&id, "busy");
    let ran = daemon.cli(&["wait", "shop", "--for", "waiting", "--timeout", "100ms"]);
    assert_eq!(
        (ran.code, ran.stdout.as_str(), ran.stderr.as_str()),
        (1, "", "error: shop is still working after 100ms\n")
    );
    let waiting = background(&daemon, &["wait", "shop", "--for", "waiting"]);
    daemon.cli(&["nudge", "shop"]).ok();
    assert_eq!(output(waiting).ok().stdout, "waiting\n");
    let idle = background(&daemon, &["wait", "shop", "--for", "idle", "--timeout", "20"]);
    daemon.cli(&["approve", &daemon.clearance(&id)]).ok();
    assert_eq!(output(idle).ok().stdout, "idle\n");
    let ended = background(&daemon, &["wait", "shop", "--for", "ended", "--json"]);
    let never = daemon.cli(&["wait", "shop", "--for", "waiting"]);
    assert_eq!((never.code, never.stdout.as_str()), (1, ""));
    let told = "error: shop has ended its turn without a request\nhint: give it work with `intercom send shop PROMPT`";
    assert!(never.stderr.starts_with(told), "{never:?}");
    daemon.cli(&["nudge", "shop"]).ok();
    assert_eq!(output(ended).ok().json()["phase"], "ended");
    let never = daemon.cli(&["wait", "shop", "--for", "waiting"]);
    assert_eq!((never.code, never.stdout.as_str()), (1, ""));
    let told = "error: shop has ended: exited with code 0\nhint: `intercom resume shop` starts it again\n";
    assert_eq!(never.stderr, told);
}

#[test]
fn a_wait_ends_when_nothing_can_bring_the_session_there_any_more() {
    let daemon = Daemon::quick("");
    let prompt = "wait-file:$cwd/go;say:fine";
    let session = daemon
        .started(json!({ "command": acp_fixture(), "protocol": "acp", "name": "shop", "prompt": prompt }));
    daemon.wait_kind(&session, "prompt.delivered");
    let waiting = background(&daemon, &["wait", "shop", "--for", "waiting"]);
    std::fs::write(daemon.workspace().join("go"), "").unwrap();
    let ran = output(waiting);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stderr.starts_with("error: shop has ended its turn without a request\n"), "{ran:?}");
    // One that is parked stays there until a person acts.
    let again = "[restart]\npolicy = 'always'\nbudget = 1\nfirst_wait = '1s'\n";
    let daemon = Daemon::quick(again);
    let parked = daemon.run_with(&["exit:3"], json!({ "name": "weak" }));
    daemon.wait_kind(&parked, "session.parked");
    for goal in ["idle", "waiting", "ended"] {
        let ran = daemon.cli(&["wait", "weak", "--for", goal]);
        assert!(
            ran.code == 1 && ran.stderr.starts_with("error: weak is parked: exited with code 3"),
            "{ran:?}"
        );
    }
}

#[test]
fn json_is_the_body_of_the_rest_call() {
    let daemon = Daemon::start();
    let id = start(&daemon, &["Do it"], &["clearance:c:May I?", "question:q:How?", "hang"]);
    let (question, clearance) = (daemon.question(&id), daemon.clearance(&id));
    for (args, path) in [
        (&["ls"][..], "sessions".to_owned()),
        (&["ls", "--all"], "sessions?all=true".to_owned()),
        (&["show", &id], format!("sessions/{id}")),
        (&["clearances"], "clearances?status=pending".to_owned()),
        (&["clearances", &clearance], format!("clearances/{clearance}")),
        (&["questions"], "questions?status=pending".to_owned()),
        (&["prompts", &id], format!("sessions/{id}/prompts")),
        (&["agents"], "agents".to_owned()),
    ] {
        let ran = daemon.cli(&[args, &["--json"]].concat()).ok();
        assert_eq!(ran.json(), daemon.get(&format!("/api/v1/{path}")).1, "{args:?}");
        assert_eq!(ran.stderr, "", "{args:?}");
    }
    for (args, key, value) in [
        (&["answer", &question, "continue"][..], "decision", "continue"),
        (&["approve", &clearance], "status", "approved"),
        (&["nudge", &id, "hey"], "message", "hey"),
        (&["interrupt", &id, "why"], "reason", "why"),
        (&["send", &id, "more"], "text", "more"),
        (&["stop", &id], "phase", "ended"),
        (&["resume", &id], "id", &id),
        (&["kill", &id], "phase", "ended"),
        (&["wait", &id, "--for", "ended"], "phase", "ended"),
        (&["run", "--name", "n", "--", "true"], "name", "n"),
    ] {
        let ran = daemon.cli(&[&["--json"], args].concat()).ok();
        assert_eq!(ran.json()[key], value, "{args:?}");
    }
    let refused = daemon.cli(&["approve", &clearance, "--json"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    let body = refused.json();
    assert_eq!(
        (&body["error"]["code"], &body["clearance"]["id"]),
        (&json!("already_decided"), &json!(clearance))
    );
    assert!(refused.stderr.starts_with("error: already approved"), "{refused:?}");
    for (line, code, exit) in [
        (&["show", "nobody"][..], "not_found", 1),
        (&["stop", "nobody"], "not_found", 1),
        (&["wait", &id, "--for", "idle"], "failed", 1),
        (&["send", &id, " "], "usage", 2),
    ] {
        let ran = daemon.cli(&[line, &["--json"]].concat());
        assert_eq!((ran.code, &ran.json()["error"]["code"]), (exit, &json!(code)), "{ran:?}");
        assert!(ran.stderr.starts_with("error: "), "{ran:?}");
    }
    let (dir, _) = daemon.end(Signal::SIGTERM);
    let ran = run(command(dir.path()).args(["ls", "--json"]));
    let message = "no daemon is running; start one with `intercom daemon restart`";
    assert_eq!((ran.code, &ran.json()["error"]["message"]), (1, &json!(message)));
}

#[test]
fn the_doctor_reads_the_configuration_before_it_speaks_of_what_that_changes() {
    let check = |config: &str, name: &str| {
        let dir = home(config);
        let report = run(command(dir.path()).args(["doctor", "--json"])).json();
        let checks = report["checks"].as_array().unwrap().clone();
        checks
            .into_iter()
            .find(|check| check["name"] == name)
            .unwrap_or_else(|| panic!("no {name}: {report}"))
    };
    let off = check("[daemon]\ncgroups = false\n", "killing");
    assert_eq!(off["detail"], "by sweeping the tree; [daemon] cgroups is false");
    let on = check("", "killing");
    assert!(!on["detail"].as_str().unwrap().contains("is false"), "{on}");
    let unread = check("[daemon]\ncgroups = 3\n", "killing");
    assert!(unread["detail"].as_str().unwrap().contains("depends on the configuration"), "{unread}");
    let disk = check("[limits]\nmin_free_disk_mib = 1073741824\n", "disk");
    assert_eq!(disk["status"], "wrong", "{disk}");
    assert!(disk["hint"].as_str().unwrap().contains("below 1073741824 MiB"), "{disk}");
}

#[test]
fn the_doctor_finds_what_is_wrong_with_and_without_a_daemon() {
    let healthy = |ran: &Ran| {
        ran.stdout
            .lines()
            .all(|line| line.starts_with("ok ") || line.starts_with("warning") || line.starts_with("   "))
    };
    let daemon = Daemon::with_config("[agents.x]\ncommand = 'sh'\n");
    let ran = daemon.cli(&["doctor"]).ok();
    assert!(healthy(&ran), "{ran:?}");
    assert!(ran.stdout.contains(&format!("pid {}", daemon.pid())), "{ran:?}");
    let json = daemon.cli(&["doctor", "--json"]).ok().json();
    assert_eq!(json["ok"], true);
    let checks = json["checks"].as_array().unwrap();
    for name in ["configuration", "state", "daemon", "database", "descriptors", "disk", "agent x"] {
        assert!(checks.iter().any(|check| check["name"] == name), "{name}: {json}");
    }

    let (dir, _) = daemon.end(Signal::SIGTERM);
    let ran = run(command(dir.path()).arg("doctor")).ok();
    assert!(healthy(&ran) && ran.stdout.contains("`intercom daemon restart` starts one"), "{ran:?}");
    for side in ["intercom.db-wal", "intercom.db-shm"] {
        assert!(!dir.path().join("state").join(side).exists(), "the doctor leaves {side} behind");
    }
    std::fs::write(dir.path().join("config.toml"), "[agents.y]\ncommand = 'no-such-program'\n").unwrap();
    let ran = run(command(dir.path()).arg("doctor"));
    assert_eq!((ran.code, ran.stderr.as_str()), (1, "error: 1 check failed\n"));
    assert!(
        ran.stdout.contains("wrong    agent y       the command no-such-program was not found"),
        "{ran:?}"
    );
    std::fs::write(dir.path().join("config.toml"), "oops").unwrap();
    let ran = run(command(dir.path()).args(["doctor", "--json"]));
    assert_eq!((ran.code, &ran.json()["ok"]), (1, &json!(false)));
}

#[test]
fn a_backup_is_not_overwritten_unless_asked_to() {
    let daemon = Daemon::start();
    let file = daemon.workspace().join("copy.db");
    let ran = daemon.cli(&["backup", "copy.db"]).ok();
    assert!(ran.stdout.starts_with(file.to_str().unwrap()), "{ran:?}");
    let first = std::fs::read(&file).unwrap();
    let ran = daemon.cli(&["backup", "copy.db"]);
    assert_eq!(
        (ran.code, ran.stderr),
        (1, format!("error: {} exists\nhint: --force replaces it\n", file.display()))
    );
    assert_eq!(std::fs::read(&file).unwrap(), first);
    let session = daemon.run(&["exit:0"]);
    daemon.all_events(&session);
    let json = daemon.cli(&["backup", "--force", "copy.db", "--json"]).ok().json();
    assert_eq!(json["path"].as_str(), file.to_str());
    assert_ne!(std::fs::read(&file).unwrap(), first);
    assert_eq!(daemon.workspace().read_dir().unwrap().count(), 1, "nothing else is left there");
    let ran = daemon.cli(&["backup", "no/such/dir/copy.db"]);
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("could not be written: No such file"), "{ran:?}");
    assert!(!ran.stderr.contains("database"), "it is not to blame: {ran:?}");
}

#[test]
fn completions_need_nothing_and_name_every_verb() {
    for shell in ["bash", "zsh", "fish"] {
        let ran = run(Command::new(crate::INTERCOM).env_clear().args(["completions", shell])).ok();
        for verb in VERBS {
            assert!(ran.stdout.contains(verb), "{shell}: {verb}");
        }
        assert_eq!(ran.stderr, "");
    }
}

/// Valid JSON that fits into no number and no string of most languages. JavaScript writes the second by itself, when
/// text is cut in the middle of an emoji.
const ODD: [&str; 3] = ["1e999", r#""\ud83d""#, "123456789012345678901234567890.10"];

#[test]
fn odd_but_valid_json_is_kept_as_it_is_and_breaks_nothing() {
    let daemon = Daemon::start();
    for odd in ODD {
        let id = start(
            &daemon,
            &[],
            &[
                &format!(r#"raw:{{"method":"status/update","params":{{"message":"one","odd":{odd}}}}}"#),
                &format!(r#"raw:{{"method":"heartbeat","params":{{"odd":{odd}}}}}"#),
                &format!(r#"raw:{{"method":"tea/brew","params":{{"odd":{odd}}}}}"#),
                &format!(r#"raw:{{"method":"tea/ask","id":1e999,"params":{{"odd":{odd}}}}}"#),
                &format!(
                    r#"raw:{{"method":"clearance/request","id":5e777,"params":{{"title":"May I?","odd":{odd}}}}}"#
                ),
                &format!(
                    r#"raw:{{"method":"prompt/forward","id":"q","params":{{"text":"How?","odd":{odd}}}}}"#
                ),
                &format!(r#"raw:{{"method":"turn/end","params":{{"odd":{odd}}}}}"#),
                "status:all said",
                "expect:session/interrupt",
            ],
        );
        let mut follow = Running::of(&daemon, &["logs", "-f", &id]);
        follow.until("  agent> all said");
        let ran = daemon.cli(&["logs", &id, "--json"]).ok();
        let kept = ran.stdout.lines().filter(|line| line.contains(&format!(r#""odd":{odd}"#))).count();
        assert_eq!(kept, 7, "{odd}: {}", ran.stdout);
        assert!(ran.stdout.contains(r#""id":5e777"#), "{}", ran.stdout);
        daemon.cli(&["logs", &id]).ok();
        let shown = daemon.show(&id);
        assert_eq!(shown["pending"], json!({ "clearances": 1, "questions": 1 }));
        let pending = daemon.get(&format!("/api/v1/clearances?session={id}")).1;
        daemon.decide(pending["items"][0]["id"].as_str().unwrap(), "approve");
        assert_eq!(daemon.cli(&["stop", &id]).ok().stdout, format!("{} ended after interrupt\n", &id[..12]));
        follow.until("session ended");
        assert_eq!(follow.end().1.code, 0);
    }
}

/// Escapes, a bell, carriage return, C1, text that runs backwards, characters of no width.
const HOSTILE: &str = "\u{1b}[2J\u{1b}]0;owned\u{7}\r\u{9b}31m\u{202e}evil\u{2066}\u{200b}\u{feff}\u{7f}";

fn is_hostile(c: char) -> bool {
    c != '\n' && c.is_control() || !c.is_ascii() && HOSTILE.contains(c)
}

#[test]
fn nothing_hostile_reaches_the_terminal_in_any_verb() {
    let daemon = Daemon::start();
    let text = |prefix: &str| json!(format!("{prefix}{HOSTILE}"));
    let ask = json!({ "title": text("title"), "description": text("why\n"), "diff": text("--- a\n+++ b\n+"), "file_path": text("f"), "risk_level": text("low") });
    let id = start(
        &daemon,
        &["--name", "shop", &format!("prompt{HOSTILE}")],
        &[
            &format!("status:{}", json!({ "message": text("status") })),
            &format!("heartbeat:{}", json!([{ "label": text("label"), "status": text("s") }])),
            &format!("notify:odd/{HOSTILE}:{{}}"),
            &format!("raw:{HOSTILE}"),
            &format!("stderr:{HOSTILE}"),
            &format!("clearance:c{HOSTILE}:{ask}"),
            &format!("clearance:d:{ask}"),
            &format!("question:q:{}", json!({ "text": text("question"), "type": text("type") })),
            "expect:nudge",
            &format!("turn-end:{HOSTILE}"),
            "hang",
        ],
    );
    let question = daemon.question(&id);
    let asked = daemon.follow(&id).filter(|event| event["kind"] == "clearance.requested").take(2);
    let asked: Vec<String> =
        asked.map(|event| event["data"]["clearance"].as_str().unwrap().to_owned()).collect();
    let (approve, deny) = (&asked[0], &asked[1]);
    let mut seen = String::new();
    let mut look = |args: &[&str]| {
        let ran = daemon.cli(args);
        seen += &ran.stdout;
        for text in [&ran.stdout, &ran.stderr] {
            assert!(!text.contains(is_hostile), "{args:?} prints it: {text:?}");
        }
    };
    look(&["ls"]);
    look(&["show", &id]);
    look(&["clearances"]);
    look(&["clearances", approve]);
    look(&["clearances", "--diff"]);
    look(&["questions"]);
    look(&["prompts", &id]);
    look(&["approve", approve, "--reason", HOSTILE]);
    look(&["deny", approve]);
    look(&["deny", deny, "--reason", HOSTILE]);
    look(&["answer", &question, "refine", HOSTILE]);
    look(&["answer", &question, "continue"]);
    look(&["nudge", &id, HOSTILE]);
    look(&["interrupt", &id, HOSTILE]);
    look(&["send", &id, HOSTILE]);
    look(&["clearances", approve]);
    look(&["questions", "--all"]);
    look(&["show", HOSTILE]);
    look(&["stop", HOSTILE]);
    look(&["approve", HOSTILE]);
    look(&["run", "--", HOSTILE]);
    look(&["run", "--agent", HOSTILE]);
    look(&["run", "--name", HOSTILE, "--agent", "demo"]);
    look(&["run", "--workspace", HOSTILE, "--agent", "demo"]);
    look(&["backup", &format!("{HOSTILE}/x.db")]);
    look(&["wait", HOSTILE, "--for", "idle"]);
    look(&["kill", &id]);
    look(&["logs", &id]);
    look(&["show", &id]);
    look(&["ls", "--all"]);
    assert!(seen.contains("status<U+001B>[2J"), "it is shown, made visible: {seen}");
    assert!(!daemon.log().contains(is_hostile), "nor does the daemon print it: {:?}", daemon.log());
}

#[test]
fn a_reader_that_leaves_early_is_no_error() {
    let daemon = Daemon::start();
    let id = start(&daemon, &[], &["flood:3000"]);
    daemon.all_events(&id);
    for args in [&["logs", &id][..], &["logs", &id, "--json"], &["logs", "-f", &id]] {
        let mut logs = background(&daemon, args);
        let mut reader = BufReader::new(logs.stdout.take().unwrap());
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        assert!(line.contains("created"), "{line}");
        drop(reader);
        let ran = output(logs);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{args:?}");
    }
}

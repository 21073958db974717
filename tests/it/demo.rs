//! What a newcomer sees first: the demo, followed by typing what it prints.

use std::process::Command;

use intercom_testkit::harness::{Daemon, Ran, home, run};
use nix::sys::signal::Signal;
use serde_json::Value;

/// Somebody at a second terminal, who types what the first one shows.
struct Newcomer {
    daemon: Daemon,
    session: String,
}

impl Newcomer {
    fn watching(mut daemon: Daemon) -> Self {
        let session = daemon.until("the demo to begin", |daemon| {
            let log = daemon.log();
            let (_, rest) = log.split_once("a demo agent works in session ")?;
            Some(rest.split_once(".\n")?.0.to_owned())
        });
        Self { daemon, session }
    }

    /// The newest printed command that has this verb.
    fn line(&mut self, verb: &str) -> String {
        self.daemon.until(verb, |daemon| {
            let log = daemon.log();
            let mut shown = log.lines().filter(|line| line.starts_with("  "));
            shown.rfind(|line| line.contains(&format!(" {verb}"))).map(str::to_owned)
        })
    }

    /// With an environment that knows nothing of the daemon's.
    #[track_caller]
    fn types(&mut self, verb: &str) -> Ran {
        let line = self.line(verb);
        let mut sh = Command::new("sh");
        sh.args(["-c", &line]).env_clear().env("HOME", self.daemon.workspace());
        let ran = run(sh.env("PATH", std::env::var_os("PATH").unwrap_or_default()));
        assert_eq!(ran.code, 0, "{line}: {ran:?}");
        ran
    }

    #[track_caller]
    fn nth(&self, kind: &str, n: usize) -> Value {
        let event = self.daemon.follow(&self.session).filter(|event| event["kind"] == kind).nth(n);
        event.unwrap_or_else(|| panic!("{n} times {kind}: {}", self.daemon.log()))["data"].clone()
    }
}

#[test]
fn the_demo_is_followed_from_start_to_end_by_typing_what_it_prints() {
    let mut newcomer = Newcomer::watching(Daemon::start_in(home(""), &["--demo"], &[]));
    let id = newcomer.session.clone();
    assert!(newcomer.types("ls").stdout.contains(&id[..12]));

    let question = newcomer.nth("question.asked", 0);
    let typed = newcomer.types("questions").stdout;
    assert!(typed.contains(question["text"].as_str().unwrap().lines().next().unwrap()), "{typed}");
    newcomer.types(&format!("answer {}", question["question"].as_str().unwrap()));

    let fix = newcomer.nth("clearance.requested", 0);
    let clearance = fix["clearance"].as_str().unwrap().to_owned();
    assert!(newcomer.types("clearances").stdout.contains("Edit src/due.rs"));
    assert!(
        newcomer
            .types(&format!("clearances {clearance}"))
            .stdout
            .contains("+        self.due.cmp(&other.due)")
    );
    newcomer.types(&format!("approve {clearance}"));

    let clean_up = newcomer.nth("clearance.requested", 1);
    assert_eq!(clean_up["risk"], "high", "it shows that risks differ: {clean_up}");
    assert_eq!(clean_up["command"], "rm -rf target/old-cache", "the card shows what would run");
    let explained = newcomer.daemon.cli(&["policy", "explain", clean_up["clearance"].as_str().unwrap()]).ok();
    let always = "exactly `rm -rf target/old-cache`";
    assert!(explained.stdout.contains(always), "it can be allowed always: {}", explained.stdout);
    let typed = newcomer.types(&format!("deny {}", clean_up["clearance"].as_str().unwrap()));
    assert!(typed.stdout.starts_with("denied"), "{typed:?}");

    assert_eq!(newcomer.nth("turn.ended", 0)["stop_reason"], "end_turn");
    let done = newcomer
        .daemon
        .follow(&id)
        .find(|event| event["data"]["message"].as_str().is_some_and(|message| message.starts_with("Done: ")));
    let done = done.unwrap()["data"]["message"].as_str().unwrap().to_owned();
    assert!(done.contains("the fix is in, the old cache is kept"), "{done}");

    newcomer.types("send");
    let errand = newcomer.nth("clearance.requested", 2)["clearance"].as_str().unwrap().to_owned();
    newcomer.types(&format!("approve {errand}"));
    assert_eq!(newcomer.nth("turn.ended", 1)["stop_reason"], "end_turn");

    // The one command that does not return by itself does when the session ends.
    newcomer.daemon.end_session(&id, "stop");
    assert!(newcomer.types("logs -f").stdout.contains("session ended"));
    let (_dir, status) = newcomer.daemon.end(Signal::SIGINT);
    assert_eq!(status.code(), Some(0));
}

#[test]
fn a_demo_that_an_earlier_daemon_left_running_is_gone_on_with() {
    let mut newcomer = Newcomer::watching(Daemon::start_in(home(""), &["--demo", "--on-stop", "leave"], &[]));
    let id = newcomer.session.clone();
    let asked = newcomer.nth("question.asked", 0)["question"].as_str().unwrap().to_owned();
    newcomer.types(&format!("answer {asked}"));
    newcomer.nth("clearance.requested", 0);
    let (dir, _) = newcomer.daemon.end(Signal::SIGTERM);
    std::fs::remove_file(dir.path().join("daemon.log")).unwrap();
    let mut newcomer = Newcomer::watching(Daemon::start_in(dir, &["--demo"], &[]));
    assert_eq!(newcomer.session, id, "there is one demo");
    newcomer.types("approve");
    assert!(!newcomer.daemon.log().contains(&asked), "what is answered is not asked again");
    assert_eq!(newcomer.daemon.get("/api/v1/sessions").1["items"].as_array().unwrap().len(), 1);
}

#[test]
fn a_demo_that_is_stopped_is_not_told_to_go_on() {
    let mut newcomer = Newcomer::watching(Daemon::start_in(home(""), &["--demo"], &[]));
    newcomer.line("answer");
    let log = newcomer.daemon.dir.path().join("daemon.log");
    let (_dir, status) = newcomer.daemon.end(Signal::SIGINT);
    assert_eq!(status.code(), Some(0));
    let log = std::fs::read_to_string(log).unwrap();
    assert!(log.contains("stopping") && !log.contains("Give it something else"), "{log}");
}

#[test]
fn what_the_demo_prints_works_also_if_its_directory_has_a_strange_name() {
    let dir = tempfile::Builder::new().prefix("it's a $HOME & more").tempdir().unwrap();
    std::fs::create_dir(dir.path().join("work")).unwrap();
    let mut newcomer = Newcomer::watching(Daemon::start_in(dir, &["--demo"], &[]));
    assert!(newcomer.types("ls").stdout.contains("demo"));
    newcomer.types("answer qst_");
    newcomer.nth("question.delivered", 0);
}

#[test]
fn the_demo_agent_can_be_run_like_any_other() {
    let daemon = Daemon::start();
    let id = daemon.cli(&["run", "--agent", "demo", "--name", "tour", "Show me around"]).ok().stdout;
    let id = id.trim();
    daemon.cli(&["wait", "tour", "--for", "waiting", "--timeout", "30"]).ok();
    daemon.cli(&["answer", &daemon.question(id), "stop"]).ok();
    daemon.cli(&["wait", "tour", "--for", "idle", "--timeout", "30"]).ok();
    let shown = daemon.show(id);
    assert_eq!((&shown["agent"], &shown["phase"]), (&"demo".into(), &"idle".into()));
    let stopped = daemon.tidy(&daemon.cli(&["stop", "tour"]).ok().stdout);
    assert_eq!(stopped, "tour (ses_ID) ended after interrupt, close_stdin\n");
    let exit = &daemon.show(id)["exit"];
    assert_eq!((&exit["code"], &exit["signal"]), (&0.into(), &Value::Null));
    assert_eq!(daemon.workspace().read_dir().unwrap().count(), 0, "it only pretends");
}

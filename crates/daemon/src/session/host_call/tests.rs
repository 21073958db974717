use std::os::unix::fs::symlink;
use std::sync::Arc;

use tokio::sync::watch;

use super::*;
use crate::session::{TurnModel, WatchPolicy};
use intercom_types::{Clearance, Json, LineExcerpt, RequestId, Ruling, SessionId, Time};

/// What it says of everything.
struct Says(RequestAssessment);

impl RequestAssessor for Says {
    fn assess(&self, _: &SessionSpec, _: &ClearanceRequest) -> RequestAssessment {
        self.0.clone()
    }

    fn watch_policy(&self, _: &SessionSpec) -> Arc<WatchPolicy> {
        Arc::new(WatchPolicy::off())
    }

    fn unassessed(&self, _: &SessionSpec) -> RequestAssessment {
        self.0.clone()
    }

    fn record_spend(&self, _: SessionId, _: i64, micros: u64) -> u64 {
        micros
    }

    fn policy(&self) -> watch::Receiver<u64> {
        watch::Sender::new(0).subscribe()
    }

    fn rule_pending(&self, _: &SessionSpec, _: &Clearance) -> Ruling {
        self.0.ruling.clone().unwrap()
    }
}

fn spec() -> (tempfile::TempDir, SessionSpec) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("ws/src")).unwrap();
    std::fs::create_dir(dir.path().join("out")).unwrap();
    std::fs::write(dir.path().join("out/secret"), "secret").unwrap();
    std::fs::write(dir.path().join("ws/a.txt"), "one\ntwo\nthree\n").unwrap();
    let spec = SessionSpec {
        id: SessionId::mint(),
        name: None,
        agent: None,
        protocol: "acp".to_owned(),
        workspace: dir.path().join("ws"),
        created_at: Time::now(),
        turn_model: TurnModel::AgentOwned,
        max_queued_prompts: 1,
        preset: intercom_types::Preset::Full,
        on_client_left: None,
    };
    (dir, spec)
}

fn call(wants: HostCallRequest) -> HostCall {
    let line = LineExcerpt { excerpt: String::new(), bytes: 0 };
    let (request, method) = (RequestId::number(1), "test".to_owned());
    HostCall { request, method, operation: wants, params: Json::trusted("{}"), line }
}

fn looks(spec: &SessionSpec, wants: HostCallRequest) -> HostCallAssessment {
    assess(&Says(RequestAssessment::default()), spec, &call(wants))
}

fn reading(path: &str) -> HostCallRequest {
    HostCallRequest::Read { path: path.to_owned(), line: None, limit: None }
}

fn writing(path: &str, content: &str) -> HostCallRequest {
    HostCallRequest::Write { path: path.to_owned(), content: content.to_owned() }
}

fn running(program: &str, args: &[&str]) -> TerminalCommand {
    TerminalCommand {
        program: program.to_owned(),
        args: args.iter().map(|arg| (*arg).to_owned()).collect(),
        env: Vec::new(),
        cwd: None,
        output_limit: None,
    }
}

#[test]
fn whatever_leads_outside_is_refused() {
    let (dir, spec) = spec();
    symlink(dir.path().join("out"), spec.workspace.join("link")).unwrap();
    symlink("../out/later", spec.workspace.join("dangling")).unwrap();
    symlink("/proc", spec.workspace.join("proc")).unwrap();
    let outside = dir.path().join("out/secret");
    for path in [
        "../out/secret",
        "link/secret",
        "dangling",
        "proc/self/environ",
        "/etc/passwd",
        "/proc/self/environ",
        "src/../../out/secret",
        "~/x",
        "",
        "a\0b",
        "file:///etc/passwd",
        outside.to_str().unwrap(),
    ] {
        for wants in [reading(path), writing(path, "x")] {
            assert!(matches!(looks(&spec, wants), HostCallAssessment::Refused(_)), "{path:?}");
        }
        let command = TerminalCommand { cwd: Some(path.to_owned()), ..running("ls", &[]) };
        assert!(
            matches!(looks(&spec, HostCallRequest::Run(command)), HostCallAssessment::Refused(_)),
            "{path:?}"
        );
    }
    assert!(matches!(looks(&spec, writing("src", "x")), HostCallAssessment::Refused(_)));
    assert!(matches!(looks(&spec, writing("a.txt", &"x".repeat(11 << 20))), HostCallAssessment::Refused(_)));
}

#[test]
fn a_link_that_stays_inside_is_followed_once() {
    let (dir, spec) = spec();
    symlink("a.txt", spec.workspace.join("link")).unwrap();
    symlink(spec.workspace.join("src"), spec.workspace.join("absolute")).unwrap();
    let HostCallAssessment::Allowed(job) = looks(&spec, reading("link")) else { panic!("not free") };
    assert!(matches!(&job, HostCallJob::Read { at, .. } if at == "a.txt"), "{job:?}");
    let HostCallAssessment::Ask(job, ..) = looks(&spec, writing("absolute/new", "x")) else {
        panic!("not asked")
    };
    assert!(matches!(&job, HostCallJob::Write { at, .. } if at == "src/new"), "{job:?}");
    // What takes the place of a directory between the look and the deed leads nowhere.
    std::fs::remove_dir(spec.workspace.join("src")).unwrap();
    symlink(dir.path().join("out"), spec.workspace.join("src")).unwrap();
    perform(&spec.workspace, &job).unwrap_err();
    assert!(!dir.path().join("out/new").exists());
}

#[test]
fn reading_is_free_unless_a_rule_or_the_risk_says_otherwise() {
    let (_dir, spec) = spec();
    let ruling = |outcome, rule: Option<&str>| {
        Some(Ruling { outcome, rule: rule.map(str::to_owned), why: String::new(), whom: Vec::new() })
    };
    let free = |risk, ruling| {
        let says = Says(RequestAssessment { risk, ruling, ..RequestAssessment::default() });
        matches!(assess(&says, &spec, &call(reading("a.txt"))), HostCallAssessment::Allowed(_))
    };
    assert!(free(Risk::Low, None));
    assert!(free(Risk::Low, ruling(Outcome::Ask, None)));
    assert!(free(Risk::High, ruling(Outcome::Allow, Some("r"))));
    assert!(!free(Risk::Medium, ruling(Outcome::Ask, None)));
    assert!(!free(Risk::Low, ruling(Outcome::Ask, Some("r"))));
    assert!(!free(Risk::Low, ruling(Outcome::Deny, Some("r"))));
}

#[test]
fn lines_are_counted_from_one_and_a_missing_file_is_empty_to_who_wants_all_of_it() {
    let (_dir, spec) = spec();
    let read = |path: &str, line, limit| {
        let job = HostCallJob::Read { path: path.to_owned(), at: path.to_owned(), line, limit };
        perform(&spec.workspace, &job)
    };
    let text = |line, limit| match read("a.txt", line, limit).unwrap() {
        HostCallResult::Read { text, .. } => text,
        deed => panic!("{deed:?}"),
    };
    assert_eq!(text(None, None), "one\ntwo\nthree\n");
    assert_eq!(text(Some(2), Some(1)), "two\n");
    assert_eq!(text(Some(2), None), "two\nthree\n");
    assert_eq!(text(None, Some(1)), "one\n");
    assert_eq!(text(Some(0), Some(1)), "one\n");
    assert_eq!(text(Some(9), Some(u64::MAX)), "");
    let missing = read("none", None, None).unwrap();
    assert_eq!(missing, HostCallResult::Read { text: String::new(), bytes: 0, missing: true });
    assert_eq!(read("none", Some(1), None).unwrap_err().code, FaultCode::NotFound);
    std::fs::write(spec.workspace.join("raw"), [0xff, 0xfe]).unwrap();
    assert_eq!(read("raw", None, None).unwrap_err().why, "the file is not text");
}

#[test]
fn a_write_is_shown_as_a_change_and_done_only_to_what_was_shown() {
    let (_dir, spec) = spec();
    let HostCallAssessment::Ask(job, ask, _) = looks(&spec, writing("a.txt", "one\n2\nthree\n")) else {
        panic!("not asked")
    };
    assert!(ask.diff.as_deref().unwrap().contains("-two\n+2\n"), "{ask:?}");
    assert_eq!((ask.tool.as_deref(), ask.file_path.as_deref()), (Some("edit"), Some("a.txt")));
    let file = spec.workspace.join("a.txt");
    std::fs::write(&file, "somebody was faster").unwrap();
    let trouble = perform(&spec.workspace, &job).unwrap_err();
    assert_eq!(trouble.why, "the file has changed since it was shown");
    std::fs::write(&file, "one\ntwo\nthree\n").unwrap();
    // Twice is once.
    for _ in 0..2 {
        assert_eq!(perform(&spec.workspace, &job).unwrap(), HostCallResult::Written { bytes: 12 });
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "one\n2\nthree\n");
}

#[test]
fn a_command_is_shown_with_all_that_changes_what_it_does() {
    let (_dir, spec) = spec();
    let shown = |command: TerminalCommand| match looks(&spec, HostCallRequest::Run(command)) {
        HostCallAssessment::Ask(_, ask, _) => ask.command.unwrap(),
        other => panic!("{other:?}"),
    };
    assert_eq!(shown(running("cargo", &["test", "a b"])), "cargo test 'a b'");
    assert_eq!(shown(running("make all && make install", &[])), "make all && make install");
    let env = vec![("A".to_owned(), "x y".to_owned())];
    let command = TerminalCommand { cwd: Some("src".to_owned()), env, ..running("ls", &[]) };
    assert_eq!(shown(command), "cd src && A='x y' ls");
    let env = vec![("A".to_owned(), "1".to_owned())];
    assert_eq!(shown(TerminalCommand { env, ..running("a | b", &[]) }), "export A=1 && a | b");
    for name in ["INTERCOM_SESSION", "INTERCOM_TOKEN", "SLACK_BOT_TOKEN", "", "A B", "1A", "A=B"] {
        let command = TerminalCommand { env: vec![(name.to_owned(), "x".to_owned())], ..running("ls", &[]) };
        assert!(
            matches!(looks(&spec, HostCallRequest::Run(command)), HostCallAssessment::Refused(_)),
            "{name:?}"
        );
    }
    assert!(matches!(looks(&spec, HostCallRequest::Run(running(" ", &[]))), HostCallAssessment::Refused(_)));
}

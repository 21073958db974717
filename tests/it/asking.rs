//! Agents that ask before they act, or do not: the mode of a profile, and the advice where an agent never asks.

use std::os::unix::fs::PermissionsExt;

use intercom_testkit::harness::{Daemon, acp_fixture, home};
use serde_json::json;

/// A fixture that stands for the agent of that name, with these switches.
fn stand_in(program: &str, switches: &str) -> (tempfile::TempDir, String) {
    let dir = home("");
    let bin = dir.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    let script = format!("#!/bin/sh\nexec {} {switches}\n", acp_fixture().display());
    std::fs::write(bin.join(program), script).unwrap();
    std::fs::set_permissions(bin.join(program), PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    (dir, path)
}

/// The modes of codex, which starts in `agent` and acts there without asking.
const CODEX: &str = "modes:agent,read-only,agent-full-access";
/// Writes a file: after it has asked in the mode in which it asks, and at once otherwise.
const WRITE: &str = "in-mode:read-only:permission:allow_once,reject_once:run:make;tool:t1:run:make;tool-update:t1:completed;say:done";

#[test]
fn codex_starts_in_the_mode_in_which_it_asks() {
    let (dir, path) = stand_in("codex-acp", CODEX);
    let daemon = Daemon::start_in(dir, &[], &[("PATH", &path)]);
    let ran = daemon.cli(&["run", "--agent", "codex", "--name", "shop", WRITE]).ok();
    let session = ran.stdout.trim().to_owned();
    let clearance = daemon.clearance(&session);
    let shown = daemon.show(&session);
    assert_eq!((&shown["controls"]["mode"], &shown["unenforced"]), (&json!("read-only"), &json!(null)));
    daemon.decide(&clearance, "approve");
    daemon.wait_kind(&session, "turn.ended");
    assert!(daemon.show(&session)["unenforced"].is_null());
    let logs = daemon.cli(&["logs", "shop"]).ok().stdout;
    assert!(logs.contains("agent is ready, in mode read-only as its profile says"), "{logs}");
    // The next process begins in the same mode, whatever was chosen meanwhile.
    daemon.cli(&["mode", "shop", "agent"]).ok();
    daemon.cli(&["stop", "shop"]).ok();
    daemon.cli(&["resume", "shop"]).ok();
    daemon.cli(&["wait", "shop", "--for", "idle"]).ok();
    assert_eq!(daemon.show(&session)["controls"]["mode"], "read-only");
}

#[test]
fn a_person_who_chooses_the_first_mode_of_codex_gets_it() {
    let (dir, path) = stand_in("codex-acp", CODEX);
    let daemon = Daemon::start_in(dir, &[], &[("PATH", &path), ("INITIAL_AGENT_MODE", "agent")]);
    let ran = daemon.cli(&["run", "--agent", "codex", "--name", "shop", "whoami"]).ok();
    let session = ran.stdout.trim();
    assert_eq!(daemon.show(session)["controls"]["mode"], "agent");
    daemon.wait_kind(session, "turn.ended");
    let logs = daemon.cli(&["logs", "shop"]).ok().stdout;
    assert!(logs.contains("INITIAL_AGENT_MODE"), "the variable reaches the agent: {logs}");
}

#[test]
fn wherever_a_session_is_unenforced_it_is_said_which_mode_asks() {
    let (dir, path) = stand_in("codex-acp", CODEX);
    let daemon = Daemon::start_in(dir, &[], &[("PATH", &path), ("INITIAL_AGENT_MODE", "agent")]);
    daemon.cli(&["run", "--agent", "codex", "--name", "shop"]).ok();
    daemon.cli(&["send", "shop", WRITE]).ok();
    let advice = "to be asked, run `intercom mode shop read-only`";
    let waited = daemon.cli(&["wait", "shop", "--for", "idle"]).ok();
    assert!(waited.stderr.contains(advice), "{waited:?}");
    for verb in [&["ls"][..], &["show", "shop"], &["logs", "shop"]] {
        let ran = daemon.cli(verb).ok();
        let flat = ran.stdout.replace("│", "").split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(flat.contains("unenforced: it acts") && flat.contains(advice), "{verb:?}: {ran:?}");
    }
    // The advice works.
    daemon.cli(&["mode", "shop", "read-only"]).ok();
    assert!(daemon.cli(&["show", "shop", "--json"]).ok().json()["unenforced"].is_null());
    daemon.cli(&["send", "shop", WRITE]).ok();
    daemon.cli(&["wait", "shop", "--for", "waiting"]).ok();
}

#[test]
fn an_agent_without_a_mode_that_asks_gets_the_advice_of_its_profile() {
    let (dir, path) = stand_in("opencode", "modes:build,plan");
    let daemon = Daemon::start_in(dir, &[], &[("PATH", &path)]);
    let prompt = "tool:t1:run:make;tool-update:t1:completed";
    let ran = daemon.cli(&["run", "--agent", "opencode", "--name", "shop", prompt]).ok();
    daemon.wait_kind(ran.stdout.trim(), "session.unenforced");
    let why = daemon.show(ran.stdout.trim())["unenforced"].as_str().unwrap().to_owned();
    assert!(why.contains(r#"OPENCODE_PERMISSION='{"edit":"ask","bash":"ask"}'"#), "{why}");
}

#[test]
fn opencode_is_told_to_ask_unless_a_person_has_chosen() {
    for chosen in [None, Some(r#"{"bash":"allow"}"#)] {
        let (dir, path) = stand_in("opencode", "");
        let mut env = vec![("PATH", path.as_str())];
        env.extend(chosen.map(|chosen| ("OPENCODE_PERMISSION", chosen)));
        let daemon = Daemon::start_in(dir, &[], &env);
        let ran = daemon.cli(&["run", "--agent", "opencode", "whoami"]).ok();
        daemon.wait_kind(ran.stdout.trim(), "turn.ended");
        let logs = daemon.cli(&["logs", ran.stdout.trim(), "--raw"]).ok().stdout;
        let expected = chosen.unwrap_or(r#"{"edit":"ask","bash":"ask"}"#).replace('"', r#"\\\""#);
        assert!(logs.contains(&expected), "{expected}: {logs}");
    }
}

#[test]
fn a_mode_that_the_agent_does_not_offer_or_refuses_is_said_and_the_session_goes_on() {
    let agent = acp_fixture();
    let profile = |name: &str, args: &str| {
        format!(
            "[agents.{name}]\ncommand = '{}'\nprotocol = 'acp'\nmode = 'careful'\nargs = [{args}]\n",
            agent.display()
        )
    };
    let config = profile("other", "'modes:fast,slow'")
        + &profile("none", "'caps:load'")
        + &profile("refusing", "'modes:fast,careful', 'error:session/set_mode:-32603:not today'");
    let daemon = Daemon::with_config(&config);
    for (name, reason) in [
        ("other", "the profile of other wants mode `careful`, and the agent offers only fast, slow"),
        ("none", "the profile of none wants mode `careful`, and the agent offers no modes"),
        ("refusing", "the profile of refusing wants mode `careful`, and the agent refuses it: "),
    ] {
        let ran = daemon.cli(&["run", "--agent", name, "--name", name, "say:hello"]).ok();
        assert!(ran.stderr.contains(&format!("warning: {reason}")), "{ran:?}");
        daemon.cli(&["wait", name, "--for", "idle"]).ok();
        let logs = daemon.cli(&["logs", name]).ok().stdout;
        assert!(logs.contains("agent> hello") && logs.contains("that could not be set"), "{logs}");
    }
}

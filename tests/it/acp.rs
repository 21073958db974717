//! Agents that speak the Agent Client Protocol, hosted like our own.

use intercom_testkit::harness::{self, Daemon, QUICK, acp_fixture, home, of_kind, refused, wait_turns};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

/// The words of every chunk of the agent's messages.
fn words(events: &[Value]) -> Vec<String> {
    let chunks = of_kind(events, "update").into_iter().map(|event| &event["data"]["update"]);
    let chunks = chunks.filter(|update| update["sessionUpdate"] == "agent_message_chunk");
    chunks.filter_map(|update| update["content"]["text"].as_str().map(str::to_owned)).collect()
}

/// Waits until the agent says something that begins so.
#[track_caller]
fn wait_words(daemon: &Daemon, session: &str, beginning: &str) -> String {
    let says = |event: &Value| {
        let text = event["data"]["update"]["content"]["text"].as_str();
        event["kind"] == "update" && text.is_some_and(|text| text.starts_with(beginning))
    };
    let event = daemon.wait_for(session, beginning, says);
    event["data"]["update"]["content"]["text"].as_str().unwrap().to_owned()
}

/// The nth request for a clearance.
#[track_caller]
fn asked(daemon: &Daemon, session: &str, nth: usize) -> String {
    let seen = std::cell::Cell::new(0);
    let event = daemon.wait_for(session, "a clearance", |event| {
        seen.set(seen.get() + usize::from(event["kind"] == "clearance.requested"));
        seen.get() == nth
    });
    event["data"]["clearance"].as_str().unwrap().to_owned()
}

const ALLOW: &str = "yes=allow_once,always=allow_always,no=reject_once";

#[test]
fn a_turn_from_prompt_to_stop_reason() {
    let daemon = Daemon::quick("");
    let session = daemon.run_acp(&[]);
    let ready = daemon.wait_kind(&session, "agent.ready")["data"].clone();
    assert_eq!((&ready["generation"], &ready["agent"]["resumed"]), (&json!(1), &json!(false)), "{ready}");
    assert_eq!(ready["agent"]["initialize"]["protocolVersion"], 1);
    let shown = daemon.show(&session);
    assert_eq!((&shown["phase"], &shown["protocol"]), (&json!("idle"), &json!("acp")));
    daemon.prompt(&session, "think:hm;say:hello;plan:one=completed,two=pending;stop:max_tokens");
    let end = daemon.wait_kind(&session, "turn.ended");
    assert_eq!(end["data"]["stop_reason"], "max_tokens");
    assert_eq!(end["data"]["params"]["stopReason"], "max_tokens");
    let events = daemon.so_far(&session);
    assert_eq!(words(&events), ["hello"]);
    let kinds: Vec<&str> = of_kind(&events, "update")
        .into_iter()
        .map(|event| event["data"]["update"]["sessionUpdate"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["agent_thought_chunk", "agent_message_chunk", "plan"]);
    assert_eq!(daemon.show(&session)["phase"], "idle");
}

#[test]
fn permissions_are_clearances() {
    let daemon = Daemon::quick("");
    let session = daemon.run_acp(&[]);
    daemon.prompt(&session, &format!("permission:{ALLOW}:edit:a.txt:old=>new;say:after"));
    let clearance = asked(&daemon, &session, 1);
    let (_, card) = daemon.get(&format!("/api/v1/clearances/{clearance}"));
    assert!(card["file_path"].as_str().unwrap().ends_with("a.txt"), "{card}");
    assert!(card["diff"].as_str().unwrap().contains("-old\n"), "{card}");
    assert_eq!(card["tool"], "edit");
    assert_eq!(
        card["options"][0],
        json!({"id": "yes", "name": card["options"][0]["name"], "kind": "allow_once"})
    );
    assert_eq!((&card["claimed_risk"], &card["status"]), (&Value::Null, &json!("pending")));
    let decided = daemon.decide(&clearance, "approve");
    assert_eq!((&decided["option"], &decided["delivery"]), (&json!("yes"), &json!("delivered")));
    let heard = wait_words(&daemon, &session, "answered session/request_permission");
    assert!(heard.contains(r#""optionId":"yes""#), "{heard}");
    wait_turns(&daemon, &session, 1);
    // A denial takes the agent's own word for it.
    daemon.prompt(&session, &format!("permission:{ALLOW}:run:rm -rf x"));
    let clearance = asked(&daemon, &session, 2);
    let (_, card) = daemon.get(&format!("/api/v1/clearances/{clearance}"));
    assert_eq!((&card["command"], &card["tool"]), (&json!("rm -rf x"), &json!("execute")));
    assert_eq!(daemon.decide(&clearance, "deny")["option"], "no");
    wait_turns(&daemon, &session, 2);
    let events = daemon.so_far(&session);
    assert!(words(&events).iter().any(|text| text.contains(r#""optionId":"no""#)), "{:?}", words(&events));
}

#[test]
fn where_the_agent_offers_several_ways_people_choose() {
    let daemon = Daemon::quick("[[rule]]\nname = 'all'\ntool = 'edit'\nthen = 'allow'\n");
    let session = daemon.run_acp(&[]);
    // Two that allow once, one of a kind that nobody knows; the rule cannot choose.
    daemon.prompt(&session, "permission:a=allow_once,b=allow_once,c=maybe,d=reject_once:edit:a.txt:1=>2");
    let clearance = asked(&daemon, &session, 1);
    let decide = |body: Value| daemon.post(&format!("/api/v1/clearances/{clearance}/decision"), &body);
    let said = refused(decide(json!({ "decision": "approve" })), 422, "option_required");
    assert!(said["error"]["message"].as_str().unwrap().contains("a, b, c"), "{said}");
    refused(decide(json!({ "decision": "approve", "option": "d" })), 422, "option_required");
    refused(decide(json!({ "decision": "approve", "option": "none" })), 422, "unknown_option");
    let (status, decided) = decide(json!({ "decision": "approve", "option": "c" }));
    assert_eq!((status, &decided["option"]), (200, &json!("c")), "{decided}");
    wait_turns(&daemon, &session, 1);
    // What it asks in the usual way, the rule answers.
    daemon.prompt(&session, &format!("permission:{ALLOW}:edit:a.txt:1=>2"));
    wait_turns(&daemon, &session, 2);
    let decided = of_kind(&daemon.so_far(&session), "clearance.decided").last().unwrap()["data"].clone();
    assert_eq!((&decided["via"], &decided["option"]), (&json!("policy"), &json!("yes")));
    // Without a word for no, it is cancelled.
    daemon.prompt(&session, "permission:yes=allow_once:edit:/etc/passwd:1=>2");
    let clearance = asked(&daemon, &session, 3);
    assert_eq!(daemon.decide(&clearance, "deny")["option"], Value::Null);
    wait_turns(&daemon, &session, 3);
    let events = daemon.so_far(&session);
    assert!(
        words(&events).iter().any(|text| text.contains(r#"{"outcome":"cancelled"}"#)),
        "{:?}",
        words(&events)
    );
}

#[test]
fn an_interrupt_cancels_the_turn_and_what_is_open_and_what_is_queued_follows() {
    let daemon = Daemon::quick("");
    let session = daemon.run_acp(&[]);
    daemon.prompt(&session, &format!("permissions:2:{ALLOW}:run:make"));
    asked(&daemon, &session, 1);
    assert_eq!(daemon.prompt(&session, "say:next")["state"], "queued");
    daemon.cli(&["interrupt", &session]).ok();
    let end = daemon.wait_kind(&session, "turn.ended");
    assert_eq!(end["data"]["stop_reason"], "cancelled");
    wait_turns(&daemon, &session, 2);
    let events = daemon.so_far(&session);
    assert!(words(&events).contains(&"next".to_owned()), "{:?}", words(&events));
    let closed = of_kind(&events, "clearance.closed");
    assert_eq!(closed.len(), 2);
    assert_eq!(closed[0]["data"]["reason"], "the turn was cancelled");
    assert_eq!(daemon.show(&session)["pending"]["clearances"], 0);
}

#[test]
fn a_cancel_that_is_ignored_counts_after_a_while_and_its_late_answer_for_nothing() {
    let daemon = Daemon::quick("");
    let session = daemon.run_acp(&["ignore:cancel", "ignore:cancel-request"]);
    let go = daemon.workspace().join("go");
    daemon.prompt(&session, &format!("wait-file:{};say:late", go.display()));
    daemon.cli(&["interrupt", &session]).ok();
    let end = daemon.wait_kind(&session, "turn.ended");
    assert_eq!(end["data"]["stop_reason"], "cancelled, and never confirmed");
    std::fs::write(go, "").unwrap();
    wait_words(&daemon, &session, "late");
    daemon.prompt(&session, "say:again");
    wait_words(&daemon, &session, "again");
    wait_turns(&daemon, &session, 2);
}

#[test]
fn a_nudge_steers_or_cancels_or_prompts() {
    let daemon = Daemon::quick("");
    // Idle: a prompt.
    let session = daemon.run_acp(&[]);
    daemon.cli(&["nudge", &session, "say:woken"]).ok();
    wait_words(&daemon, &session, "woken");
    wait_turns(&daemon, &session, 1);
    // In a turn, without the extension: cancelled and prompted.
    daemon.prompt(&session, "hang");
    daemon.cli(&["nudge", &session, "say:anew"]).ok();
    wait_words(&daemon, &session, "anew");
    // With it: it goes on.
    let steered = daemon.run_acp(&["caps:load,steer"]);
    daemon.prompt(&steered, "sleep:100;hang");
    daemon.cli(&["nudge", &steered, "look left"]).ok();
    wait_words(&daemon, &steered, "steered");
    assert!(of_kind(&daemon.so_far(&steered), "turn.ended").is_empty());
}

#[test]
fn an_open_permission_survives_a_killed_daemon() {
    let daemon = Daemon::start_in(home(QUICK), &["--on-stop", "leave"], &[]);
    let session = daemon.run_acp(&[]);
    daemon.prompt(&session, &format!("tool:t1:run:make;permission:{ALLOW}:run:make;say:after"));
    let clearance = asked(&daemon, &session, 1);
    let (dir, _) = daemon.end(Signal::SIGKILL);
    let daemon = Daemon::start_in(dir, &[], &[]);
    daemon.decide(&clearance, "approve");
    wait_words(&daemon, &session, "after");
    wait_turns(&daemon, &session, 1);
    let events = daemon.so_far(&session);
    assert_eq!(words(&events).iter().filter(|text| text.starts_with("answered")).count(), 1);
    daemon.prompt(&session, "say:and on");
    wait_words(&daemon, &session, "and on");
}

#[test]
fn a_session_is_gone_on_with_after_a_restart_as_the_agent_can() {
    for (caps, replay, resumed) in [
        ("load,resume", "replay:after", true),
        ("load", "ids:from:1", true),
        ("load", "replay:after", true),
        ("list", "ids:from:1", false),
    ] {
        let daemon = Daemon::quick("");
        let kept = daemon.workspace().join("sessions");
        let (caps, kept) = (format!("caps:{caps}"), format!("sessions:{}", kept.display()));
        let session = daemon.run_acp(&[&caps, &kept, replay]);
        daemon.prompt(&session, "say:remember this");
        wait_turns(&daemon, &session, 1);
        daemon.end_session(&session, "kill");
        daemon.cli(&["resume", &session]).ok();
        let ready = daemon.wait_for(&session, "the second life", |event| {
            event["kind"] == "agent.ready" && event["data"]["generation"] == 2
        });
        assert_eq!(ready["data"]["agent"]["resumed"], resumed, "{caps}: {ready}");
        daemon.prompt(&session, "heard:session/load;say:go on");
        wait_words(&daemon, &session, "go on");
        let events = daemon.so_far(&session);
        let told = words(&events).iter().filter(|text| *text == "remember this").count();
        assert_eq!(told, 1, "what is replayed is in the log already: {caps} {replay}");
    }
}

#[test]
fn who_has_to_log_in_first_says_how() {
    let daemon = Daemon::quick(&format!(
        "[agents.keyed]\ncommand = {}\nargs = ['auth:key']\nprotocol = 'acp'\nauth_method = 'key'\n",
        json!(acp_fixture())
    ));
    let body = json!({ "command": acp_fixture(), "args": ["auth:key"], "protocol": "acp" });
    let (_, session) = daemon.ask_to_start(body);
    let session = session["id"].as_str().unwrap().to_owned();
    daemon.wait_for_end(&session);
    let shown = daemon.show(&session);
    let reason = shown["exit"]["reason"].as_str().unwrap();
    assert!(reason.to_lowercase().contains("log"), "{reason}");
    // With a way that takes no person, it does.
    let keyed = daemon.run_agent("keyed");
    daemon.wait_kind(&keyed, "agent.ready");
}

#[test]
fn who_never_gets_ready_is_ended() {
    let daemon = Daemon::quick("[acp]\nstartup_timeout_seconds = 1\n");
    for silent in [&["never:initialize"][..], &["never:session/new"]] {
        let body = json!({ "command": acp_fixture(), "args": silent, "protocol": "acp", "prompt": "say:x" });
        let (status, session) = daemon.ask_to_start(body);
        assert_eq!((status, &session["phase"]), (201, &json!("starting")), "{session}");
        let session = session["id"].as_str().unwrap().to_owned();
        daemon.wait_for_end(&session);
        assert_eq!(daemon.show(&session)["exit"]["reason"], "it was not ready within 1s");
    }
    // A slow one is waited for, and is no stall.
    let daemon = Daemon::quick("[stall]\nsilent_after = '1s'\n");
    let slow = daemon.run_acp(&["delay:initialize:1500"]);
    assert!(of_kind(&daemon.so_far(&slow), "stall.step").is_empty());
    let other =
        daemon.ask_to_start(json!({ "command": acp_fixture(), "args": ["version:2"], "protocol": "acp" }));
    let other = other.1["id"].as_str().unwrap().to_owned();
    daemon.wait_for_end(&other);
    let reason = daemon.show(&other)["exit"]["reason"].clone();
    assert_eq!(reason, "it uses version 2 of the protocol, not 1");
}

#[test]
fn misbehaviour_is_kept_and_harms_nobody() {
    let daemon = Daemon::quick("");
    let session = daemon.run_acp(&[
        "start:raw:Welcome to the agent!",
        "start:stderr:noise",
        "before:session/new:say:early",
        "after:session/prompt:say:too late",
        "ids:string",
    ]);
    daemon.prompt(&session, &format!("raw:[debug] hi;answer:77;answer:\"x\";notify:_x/y:{{\"a\":1}};request:_z/ask;permission:{ALLOW}:run:make"));
    let clearance = asked(&daemon, &session, 1);
    daemon.decide(&clearance, "approve");
    wait_words(&daemon, &session, "too late");
    let events = daemon.so_far(&session);
    let rejected = of_kind(&events, "line.rejected");
    assert_eq!(rejected.len(), 2, "{rejected:?}");
    assert_eq!(of_kind(&events, "unknown").len(), 4, "{:#?}", of_kind(&events, "unknown"));
    assert!(words(&events).contains(&"early".to_owned()));
    assert!(words(&events).iter().any(|text| text.starts_with("refused _z/ask") && text.contains("-32601")));
    daemon.prompt(&session, "stop:something_new");
    let end = wait_turns(&daemon, &session, 2);
    assert_eq!(end["data"]["stop_reason"], "something_new");
    // One that takes its own question back, and one that goes in the middle of a turn.
    daemon.prompt(&session, &format!("ask:permission:{ALLOW}:run:make;withdraw;say:on"));
    wait_turns(&daemon, &session, 3);
    let closed = daemon.wait_kind(&session, "clearance.closed");
    assert_eq!(closed["data"]["reason"], "the agent withdrew it");
    daemon.prompt(&session, "say:bye;exit:3");
    daemon.wait_for_end(&session);
    assert_eq!(daemon.show(&session)["exit"]["code"], 3);
}

#[test]
fn what_fails_in_a_turn_is_told_and_a_limit_is_waited_for() {
    let daemon = Daemon::quick("");
    let session = daemon.run_acp(&[]);
    daemon.prompt(&session, "fail:internal");
    let end = wait_turns(&daemon, &session, 1);
    assert!(end["data"]["stop_reason"].as_str().unwrap().starts_with("error: "), "{end}");
    daemon.prompt(&session, "fail:rate-limit");
    let limited = daemon.wait_kind(&session, "stall.limited");
    assert_eq!(limited["data"]["limit"], "rate");
    wait_turns(&daemon, &session, 2);
    assert_eq!(daemon.show(&session)["standing"]["state"], "waiting_for_service");
}

#[test]
fn questions_are_answered_by_people() {
    let daemon = Daemon::quick("");
    let session = daemon.run_acp(&[]);
    daemon.prompt(&session, "elicit:Which colour?;say:thanks");
    let question = daemon.question(&session);
    let path = format!("/api/v1/questions/{question}/answer");
    let (status, body) =
        daemon.post(&path, &json!({ "decision": "refine", "instruction": "{\"colour\":\"blue\"}" }));
    assert_eq!(status, 200, "{body}");
    let heard = wait_words(&daemon, &session, "answered elicitation/create");
    assert!(heard.contains(r#""action":"accept""#) && heard.contains("blue"), "{heard}");
    wait_turns(&daemon, &session, 1);
}

#[test]
fn a_wrapped_agent_and_what_it_runs_die_with_a_kill() {
    let daemon = Daemon::quick("");
    let session = daemon.run_acp(&["wrapped:2"]);
    daemon.prompt(&session, "exec:sleep 1000");
    let child: i64 = wait_words(&daemon, &session, "child ")["child ".len()..].trim().parse().unwrap();
    daemon.end_session(&session, "kill");
    assert!(!harness::alive(child));
}

/// Every variant of the schema, and some that nobody has invented yet, with fields that nobody knows.
const UPDATES: &[&str] = &[
    r#"{"sessionUpdate":"user_message_chunk","content":{"type":"text","text":"hi"}}"#,
    r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"image","data":"aGk=","mimeType":"image/png"},"messageId":"m"}"#,
    r#"{"sessionUpdate":"agent_thought_chunk","content":{"type":"resource","resource":{"blob":"aGk=","uri":"file:///a"}}}"#,
    r#"{"sessionUpdate":"tool_call","toolCallId":"c","title":"t","kind":"edit","status":"pending","content":[{"type":"diff","path":"/w/a","oldText":null,"newText":"b\n"}],"locations":[{"path":"/w/a","line":3}],"rawInput":{"n":1.10}}"#,
    r#"{"sessionUpdate":"tool_call_update","toolCallId":"c","status":"completed","rawOutput":[1.50, 1e400],"more":{"z":1,"a":2}}"#,
    r#"{"sessionUpdate":"plan","entries":[{"content":"c","priority":"high","status":"completed"}]}"#,
    r#"{"sessionUpdate":"plan_update","plan":{"type":"items","planId":"p","entries":[]}}"#,
    r#"{"sessionUpdate":"plan_removed","planId":"p"}"#,
    r#"{"sessionUpdate":"available_commands_update","availableCommands":[{"name":"n","description":"d","input":{"hint":"h"}}]}"#,
    r#"{"sessionUpdate":"current_mode_update","currentModeId":"https://x/modes#plan"}"#,
    r#"{"sessionUpdate":"config_option_update","configOptions":[]}"#,
    r#"{"sessionUpdate":"session_info_update","title":"\u00e9\ud83d\ude00"}"#,
    r#"{"sessionUpdate":"usage_update","used":110,"size":200000,"cost":{"amount":0.0018,"currency":"USD"}}"#,
    r#"{"sessionUpdate":"notice","severity":"warning","title":"t"}"#,
    r#"{"sessionUpdate":"compaction_update","compactionId":"k","status":"in_progress"}"#,
    r#"{"sessionUpdate":"compaction_summary_chunk","compactionId":"k","content":{"type":"text","text":"x"}}"#,
    r#"{"sessionUpdate":"subagent_update","sessionId":"s2","title":"t"}"#,
    r#"{"sessionUpdate":"session_message","messageId":"m","content":[{"type":"text","text":"x"}]}"#,
    r#"{"sessionUpdate":"session_message_chunk","messageId":"m","content":{"type":"audio","data":"aGk=","mimeType":"audio/wav"}}"#,
    r#"{ "later" : [ 1 , {"b":2,"a":1} ] , "sessionUpdate" : "from_the_future" , "big": 123456789012345678901234567890 }"#,
    r#"{"sessionUpdate":7}"#,
    r"{}",
];

#[test]
fn nothing_that_an_agent_tells_is_lost_or_changed() {
    let daemon = Daemon::quick("");
    let session = daemon.run_acp(&[]);
    let params =
        |update: &str| format!(r#"{{"_meta":{{"k":1.0}},"sessionId":"$session","update":{update}}}"#);
    let line = |update: &&str| {
        format!(r#"raw:{{"jsonrpc":"2.0","method":"session/update","params":{}}}"#, params(update))
    };
    let unknown = r#"{"jsonrpc":"2.0","method":"_x/told","params":{"n":1.10},"extra":[1e400]}"#;
    let mut steps: Vec<String> = UPDATES.iter().map(line).collect();
    steps.push(format!("raw:{unknown}"));
    daemon.prompt(&session, &json!(steps).to_string());
    daemon.cli(&["wait", &session, "--for", "idle"]).ok();
    let ready = daemon.wait_kind(&session, "agent.ready");
    let own = ready["data"]["agent"]["agent_session"].as_str().unwrap().to_owned();
    let log = daemon.cli(&["logs", &session, "--json"]).ok().stdout;
    let told: Vec<&str> = log.lines().filter(|line| line.contains(r#""kind":"update""#)).collect();
    assert_eq!(told.len(), UPDATES.len(), "{log}");
    for (told, update) in told.iter().zip(UPDATES) {
        let expected = format!(r#""data":{}"#, params(update).replace("$session", &own));
        assert!(told.contains(&expected), "{expected}\n{told}");
    }
    assert!(log.contains(&format!(r#""message":{unknown}"#)), "{log}");
}

#[test]
fn modes_models_and_options_are_set() {
    let daemon = Daemon::quick("");
    let session = daemon.run_acp(&["caps:modes,config,models"]);
    let mut daemon = daemon;
    let controls = daemon.until("its controls", |daemon| {
        Some(daemon.show(&session)["controls"].clone()).filter(|controls| !controls.is_null())
    });
    let modes: Vec<&str> =
        controls["modes"].as_array().unwrap().iter().map(|mode| mode["id"].as_str().unwrap()).collect();
    let other = modes.iter().find(|mode| Some(**mode) != controls["mode"].as_str()).unwrap();
    assert!(daemon.cli(&["mode", &session]).ok().stdout.contains(other));
    daemon.cli(&["mode", &session, other]).ok();
    let option = controls["options"][0]["id"].as_str().unwrap();
    let value = controls["options"][0]["options"][0]["value"].as_str().unwrap();
    daemon.cli(&["mode", &session, "--option", &format!("{option}={value}")]).ok();
    daemon.cli(&["mode", &session, "--model", "large"]).ok();
    daemon.prompt(&session, "heard:session/set_mode;heard:session/set_config_option;heard:session/set_model");
    wait_turns(&daemon, &session, 1);
    let said = words(&daemon.so_far(&session)).join("\n");
    for heard in [*other, option, "large"] {
        assert!(said.contains(heard), "{heard}: {said}");
    }
    // What the agent says of itself is what people see.
    daemon.prompt(&session, "mode:elsewhere");
    wait_turns(&daemon, &session, 2);
    assert_eq!(daemon.show(&session)["controls"]["mode"], "elsewhere");
    // Wrong ways are refused, by us or by the agent.
    let path = format!("/api/v1/sessions/{session}/set");
    refused(daemon.post(&path, &json!({})), 400, "bad_request");
    refused(daemon.post(&path, &json!({ "mode": "a", "model": "b" })), 400, "bad_request");
    let failing = daemon.run_acp(&["error:session/set_mode:-32602:no such mode"]);
    daemon.wait_kind(&failing, "agent.ready");
    let ran = daemon.cli(&["mode", &failing, "plan"]);
    assert!(ran.code == 1 && ran.stderr.contains("no such mode"), "{ran:?}");
    assert!(
        ran.stderr.contains("\nhint: mode of ") && ran.stderr.ends_with(": ask, code, plan\n"),
        "{ran:?}"
    );
    for (args, words) in [
        (&["nonsense"][..], "does not offer mode `nonsense`"),
        (&["--model", "m2"], "does not offer model `m2`"),
        (&["--option", "mode=nonsense"], "does not offer mode `nonsense`"),
    ] {
        let ran = daemon.cli(&[&["mode", &session], args].concat());
        assert!(ran.code == 1 && ran.stderr.contains(words) && ran.stderr.contains("\nhint: mod"), "{ran:?}");
    }
    let native = daemon.run(&["serve"]);
    let path = format!("/api/v1/sessions/{native}/set");
    refused(daemon.post(&path, &json!({ "mode": "a" })), 422, "nothing_to_set");
}

#[test]
fn what_is_spent_is_summed_and_a_cap_stops_new_turns() {
    let dir = home(&format!("{QUICK}[spend]\nper_session = 0.5\nper_day = 1.0\n"));
    let mut daemon = Daemon::start_in(dir, &["--on-stop", "leave"], &[]);
    let session = daemon.run_acp(&[]);
    let usage =
        r#"stop:{"stopReason":"end_turn","usage":{"inputTokens":10,"outputTokens":5,"totalTokens":15}}"#;
    daemon.prompt(&session, &json!(["usage:10:100:0.3", usage]).to_string());
    wait_turns(&daemon, &session, 1);
    daemon.prompt(&session, &json!(["usage:20:100:0.6", usage]).to_string());
    wait_turns(&daemon, &session, 2);
    let spent = daemon.show(&session)["spent"].clone();
    assert_eq!(
        (&spent["turns"], &spent["total_tokens"], &spent["cost"]),
        (&json!(2), &json!(30), &json!(0.6)),
        "{spent}"
    );
    assert!(daemon.cli(&["show", &session]).ok().stdout.contains("2 turns, 30 tokens, 0.6000 USD"));
    assert_eq!(daemon.prompt(&session, "say:more")["state"], "queued");
    let capped = daemon.wait_kind(&session, "spend.capped");
    assert_eq!(capped["data"]["why"], "0.60 of 0.50 USD are spent in this session");
    let shown = daemon.show(&session);
    assert_eq!((&shown["phase"], &shown["queue"]), (&json!("idle"), &json!(1)));
    assert_eq!(shown["why"], "no new turn begins: 0.60 of 0.50 USD are spent in this session");
    // What was spent today is known to the next daemon, and counts for all.
    let other = daemon.run_acp(&[]);
    daemon.prompt(&other, "usage:1:100:0.45");
    wait_turns(&daemon, &other, 1);
    let (dir, _) = daemon.end(Signal::SIGKILL);
    daemon = Daemon::start_in(dir, &[], &[]);
    let third = daemon.run_acp(&[]);
    daemon.prompt(&third, "say:x");
    let capped = daemon.wait_kind(&third, "spend.capped");
    assert_eq!(capped["data"]["why"], "1.05 of 1.00 USD are spent today");
}

#[test]
fn the_reason_of_a_denial_reaches_the_agent_as_a_prompt() {
    for (config, told) in [("", true), ("[clearances]\nreason_as_prompt = false\n", false)] {
        let daemon = Daemon::quick(config);
        let session = daemon.run_acp(&[]);
        daemon.prompt(&session, &format!("permission:{ALLOW}:run:make"));
        let clearance = asked(&daemon, &session, 1);
        let body = json!({ "decision": "deny", "reason": "say: use ninja" });
        let (status, answer) = daemon.post(&format!("/api/v1/clearances/{clearance}/decision"), &body);
        assert_eq!(status, 200, "{answer}");
        wait_turns(&daemon, &session, if told { 2 } else { 1 });
        let said = words(&daemon.so_far(&session)).join("\n");
        assert_eq!(said.contains("denied: say: use ninja"), told, "{said}");
    }
}

#[test]
fn a_crash_is_followed_by_a_resume_and_by_the_last_prompt_if_the_profile_says_so() {
    for (repeat, caps, resumed) in [(true, "load", true), (false, "resume", true), (true, "list", false)] {
        let dir = tempfile::tempdir().unwrap();
        let kept = dir.path().join("sessions");
        let args = [format!("caps:{caps}"), format!("sessions:{}", kept.display())];
        let daemon = Daemon::quick(&format!(
            "[agents.weak]\ncommand = {}\nargs = {}\nprotocol = 'acp'\nrestart = {{ policy = 'on-failure', first_wait = '1s', repeat_prompt = {repeat} }}\n",
            json!(acp_fixture()),
            json!(args)
        ));
        let session = daemon.run_agent("weak");
        daemon.wait_kind(&session, "agent.ready");
        let (once, gone) = (daemon.workspace().join("once"), daemon.workspace().join("gone"));
        // The first time it dies in the middle of it, with a permission open; the second time it gets to its end.
        let exit = format!("exec:test -e {0} || touch {0}", once.display());
        let steps = json!([
            exit,
            format!("ask:permission:{ALLOW}:run:make"),
            format!("wait-file:{}", gone.display()),
            "exit:3"
        ]);
        daemon.prompt(&session, &steps.to_string());
        asked(&daemon, &session, 1);
        std::fs::write(&gone, "").unwrap();
        let closed = daemon.wait_kind(&session, "clearance.closed");
        assert_eq!(closed["data"]["reason"], "the agent ended before it was decided");
        let ready = daemon.wait_for(&session, "the second life", |event| {
            event["kind"] == "agent.ready" && event["data"]["generation"] == 2
        });
        assert_eq!(ready["data"]["agent"]["resumed"], resumed, "{caps}");
        let queued = |event: &Value| event["kind"] == "prompt.queued" && event["data"]["by"] == "intercom";
        if repeat {
            daemon.wait_for(&session, "the last prompt", queued);
        } else {
            assert!(!daemon.so_far(&session).iter().any(queued));
        }
        daemon.end_session(&session, "kill");
    }
}

#[test]
fn what_an_agent_remembers_is_listed_and_gone_on_with() {
    let daemon = Daemon::quick("");
    let kept = format!("sessions:{}", daemon.workspace().join("sessions").display());
    for _ in 0..3 {
        daemon.end_session(&daemon.run_acp(&[&kept]), "stop");
    }
    let first = daemon.run_acp(&[&kept, "page:1"]);
    daemon.prompt(&first, "title:the first");
    wait_turns(&daemon, &first, 1);
    let own = daemon.wait_kind(&first, "agent.ready")["data"]["agent"]["agent_session"].clone();
    let own = own.as_str().unwrap();
    let listed = daemon.cli(&["sessions", &first]).ok().stdout;
    assert!(listed.contains(own) && listed.contains("the first"), "{listed}");
    daemon.end_session(&first, "stop");
    let body = json!({ "command": acp_fixture(), "args": [kept], "protocol": "acp", "resume": own });
    let (_, second) = daemon.ask_to_start(body);
    let second = second["id"].as_str().unwrap().to_owned();
    let ready = daemon.wait_kind(&second, "agent.ready");
    assert_eq!(
        (&ready["data"]["agent"]["agent_session"], &ready["data"]["agent"]["resumed"]),
        (&json!(own), &json!(true))
    );
    assert!(listed.lines().count() > 4, "all pages: {listed}");
    // One that it does not know is not quietly another.
    let body = json!({ "command": acp_fixture(), "protocol": "acp", "resume": "nope" });
    let (_, lost) = daemon.ask_to_start(body);
    let lost = lost["id"].as_str().unwrap().to_owned();
    daemon.wait_for_end(&lost);
    let wrong = json!({ "command": harness::fixture(), "resume": "nope" });
    refused(daemon.ask_to_start(wrong), 400, "bad_request");
    let cannot = daemon.run_acp(&["caps:load"]);
    refused(daemon.post(&format!("/api/v1/sessions/{cannot}/list"), &json!({})), 422, "nothing_to_list");
}

#[test]
fn who_asks_after_saying_that_it_is_under_way_is_not_unenforced() {
    let daemon = Daemon::quick("");
    let session = daemon.run_acp(&[]);
    daemon.prompt(
        &session,
        &format!(
            "tool:t1:run:make;tool-update:t1:in_progress;permission:{ALLOW}:run:make;tool-update:t1:completed"
        ),
    );
    let clearance = asked(&daemon, &session, 1);
    daemon.decide(&clearance, "approve");
    wait_turns(&daemon, &session, 1);
    assert!(of_kind(&daemon.so_far(&session), "session.unenforced").is_empty());
    let other = daemon.run_acp(&[]);
    daemon.prompt(&other, "tool:t1:run:make;tool-update:t1:completed");
    daemon.wait_kind(&other, "session.unenforced");
}

#[test]
fn what_is_new_while_a_session_is_loaded_is_kept() {
    let daemon = Daemon::quick("");
    let kept = format!("sessions:{}", daemon.workspace().join("sessions").display());
    let session = daemon.run_acp(&[
        "caps:load",
        &kept,
        "before:session/load:commands:review",
        "before:session/load:update:{\"sessionUpdate\":\"invented\"}",
        "before:session/load:think:again",
    ]);
    daemon.prompt(&session, "say:remember this");
    wait_turns(&daemon, &session, 1);
    daemon.end_session(&session, "kill");
    daemon.cli(&["resume", &session]).ok();
    daemon.wait_for(&session, "the second life", |event| {
        event["kind"] == "agent.ready" && event["data"]["generation"] == 2
    });
    let events = daemon.so_far(&session);
    let kinds: Vec<&str> = of_kind(&events, "update")
        .into_iter()
        .map(|event| event["data"]["update"]["sessionUpdate"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["agent_message_chunk", "available_commands_update", "invented"]);
}

#[test]
fn a_nudge_that_the_agent_does_not_take_in_its_turn_is_said_all_the_same() {
    let daemon = Daemon::quick("");
    // Its turn is over, but we have not heard of that yet.
    let session = daemon.run_acp(&["caps:steer", "delay:session/prompt:1000"]);
    daemon.prompt(&session, "say:done");
    wait_words(&daemon, &session, "done");
    daemon.cli(&["nudge", &session, "say:anew"]).ok();
    wait_words(&daemon, &session, "anew");
    let end = wait_turns(&daemon, &session, 1);
    assert_eq!(end["data"]["stop_reason"], "end_turn");
    // It cannot do what it said that it could.
    let session = daemon.run_acp(&["caps:steer", "error:_session/steering:internal"]);
    daemon.prompt(&session, "hang");
    daemon.cli(&["nudge", &session, "say:anew"]).ok();
    wait_words(&daemon, &session, "anew");
    let end = wait_turns(&daemon, &session, 1);
    assert_eq!(end["data"]["stop_reason"], "cancelled");
}

#[test]
fn ids_that_are_reused_and_questions_without_a_turn_are_dealt_with() {
    let daemon = Daemon::quick("");
    let session = daemon.run_acp(&["ids:same:7", "after:session/cancel:say:still here"]);
    // The same id again after it was answered is a new request; while it is open, an error.
    daemon.prompt(&session, &format!("permission:{ALLOW}:run:one;permission:{ALLOW}:run:two"));
    for nth in [1, 2] {
        let clearance = asked(&daemon, &session, nth);
        daemon.decide(&clearance, "approve");
    }
    wait_turns(&daemon, &session, 1);
    daemon
        .prompt(&session, &format!("ask:permission:{ALLOW}:run:three;ask:permission:{ALLOW}:run:four;await"));
    let third = asked(&daemon, &session, 3);
    let twice = daemon.wait_kind(&session, "line.rejected");
    assert_eq!(twice["data"]["reason"], "a request with id \"7\" is open already");
    daemon.decide(&third, "approve");
    daemon.cli(&["interrupt", &session]).ok();
    wait_turns(&daemon, &session, 2);
    // One that comes when its turn is over waits for people all the same.
    let idle = daemon.run_acp(&[]);
    daemon.prompt(&idle, &format!("afterwards:permission:{ALLOW}:run:later;stop:end_turn"));
    let later = asked(&daemon, &idle, 1);
    daemon.decide(&later, "approve");
    wait_words(&daemon, &idle, "answered session/request_permission");
    // What is said after a turn was cancelled is kept.
    let late = daemon.run_acp(&["after:session/prompt:say:and another thing"]);
    daemon.prompt(&late, "hang");
    daemon.cli(&["interrupt", &late]).ok();
    wait_words(&daemon, &late, "and another thing");
    assert_eq!(daemon.show(&late)["phase"], "idle");
}

#[test]
fn who_lets_go_of_a_turn_and_does_nothing_has_not_recovered() {
    let daemon = Daemon::quick(
        "[stall]\nsilent_after = '1s'\nverify = '1s'\nreprompt_text = 'hang'\nnudge_text = 'hang'\n",
    );
    let session = daemon.run_acp(&[]);
    daemon.prompt(&session, "hang");
    let step = |name: &'static str| {
        daemon
            .wait_for(&session, name, |event| event["kind"] == "stall.step" && event["data"]["name"] == name);
    };
    step("nudge 2");
    assert!(of_kind(&daemon.so_far(&session), "stall.recovered").is_empty());
    daemon.cli(&["ladder", &session, "off"]).ok();
}

/// A profile of the fixture, with more lines of its table.
fn acp_profile(args: &[&str], more: &str) -> String {
    format!(
        "[agents.own]\ncommand = {}\nargs = {}\nprotocol = 'acp'\n{more}\n",
        json!(acp_fixture()),
        json!(args)
    )
}

#[test]
fn who_hangs_in_every_turn_is_not_nudged_for_ever() {
    let daemon = Daemon::quick(
        "[stall]\nsilent_after = '1s'\nno_cpu_after = '1s'\nstopped_after = '1s'\nverify = '1s'\n\
         ladder = ['nudge', 'interrupt', 'restart', 'escalate']\n\
         [restart]\nfirst_wait = '1s'\nrepeat_prompt = true\n",
    );
    let session = daemon.run_acp(&["script:hang"]);
    daemon.prompt(&session, "the task");
    daemon.wait_for(&session, "the last step", |event| {
        event["kind"] == "stall.step" && event["data"]["name"] == "escalate"
    });
    let events = daemon.so_far(&session);
    let steps = of_kind(&events, "stall.step").into_iter().map(|event| event["data"]["name"].clone());
    assert_eq!(steps.collect::<Vec<_>>(), ["nudge 1", "interrupt", "restart", "escalate"]);
    assert!(of_kind(&events, "stall.recovered").is_empty(), "{events:#?}");
    // What is repeated is what it was asked, not what we said in between.
    let last = of_kind(&events, "prompt.queued").last().unwrap()["data"].clone();
    assert_eq!((&last["by"], &last["text"]), (&json!("intercom"), &json!("the task")));
}

#[test]
fn a_session_keeps_its_protocol_when_its_profile_is_gone() {
    let config = format!("{QUICK}{}", acp_profile(&[], ""));
    let daemon = Daemon::start_in(home(&config), &["--on-stop", "leave"], &[]);
    let session = daemon.run_agent("own");
    daemon.prompt(&session, &format!("permission:{ALLOW}:run:make;say:after"));
    let clearance = asked(&daemon, &session, 1);
    let (dir, _) = daemon.end(Signal::SIGKILL);
    std::fs::write(dir.path().join("config.toml"), format!("{QUICK}\n[api]\nlisten = \"off\"\n")).unwrap();
    let daemon = Daemon::start_in(dir, &[], &[]);
    daemon.decide(&clearance, "approve");
    wait_words(&daemon, &session, "after");
    wait_turns(&daemon, &session, 1);
}

#[test]
fn what_is_asked_after_a_cancel_belongs_to_the_cancelled_turn() {
    let daemon = Daemon::quick("[[rule]]\nname = 'all'\ntool = 'edit'\nthen = 'allow'\n");
    let session = daemon.run_acp(&["ignore:cancel"]);
    let go = daemon.workspace().join("go");
    daemon.prompt(
        &session,
        &format!("wait-file:{};permission:{ALLOW}:edit:a.txt:1=>2;elicit:who", go.display()),
    );
    daemon.cli(&["interrupt", &session]).ok();
    std::fs::write(go, "").unwrap();
    wait_turns(&daemon, &session, 1);
    let events = daemon.so_far(&session);
    assert!(of_kind(&events, "clearance.decided").is_empty(), "{events:#?}");
    assert_eq!(of_kind(&events, "clearance.closed")[0]["data"]["reason"], "the turn was cancelled");
    assert_eq!(of_kind(&events, "question.closed")[0]["data"]["reason"], "the turn was cancelled");
}

#[test]
fn who_has_to_log_in_again_goes_on_with_its_session() {
    for caps in ["load", "resume"] {
        let dir = tempfile::tempdir().unwrap();
        let kept = format!("sessions:{}", dir.path().join("sessions").display());
        let args = ["auth:key", &kept, &format!("caps:{caps}")];
        let daemon = Daemon::quick(&acp_profile(&args, "auth_method = 'key'"));
        let session = daemon.run_agent("own");
        let first = daemon.wait_kind(&session, "agent.ready")["data"]["agent"]["agent_session"].clone();
        daemon.prompt(&session, "say:hello");
        wait_turns(&daemon, &session, 1);
        daemon.end_session(&session, "stop");
        daemon.cli(&["resume", &session]).ok();
        let ready = daemon.wait_for(&session, "the second life", |event| {
            event["kind"] == "agent.ready" && event["data"]["generation"] == 2
        });
        let agent = &ready["data"]["agent"];
        assert_eq!((&agent["agent_session"], &agent["resumed"]), (&first, &json!(true)), "{caps}");
    }
}

#[test]
fn nobody_is_late_while_there_is_no_daemon() {
    let slow = acp_profile(&["delay:initialize:1000"], "startup_timeout_seconds = 2");
    let daemon = Daemon::start_in(home(&format!("{QUICK}{slow}")), &["--on-stop", "leave"], &[]);
    let session = daemon.run_agent("own");
    let (dir, _) = daemon.end(Signal::SIGKILL);
    std::thread::sleep(std::time::Duration::from_millis(2500));
    let daemon = Daemon::start_in(dir, &[], &[]);
    daemon.wait_kind(&session, "agent.ready");
}

#[test]
fn what_offers_no_option_cannot_be_approved() {
    let daemon = Daemon::quick("[[rule]]\nname = 'all'\ntool = 'edit'\nthen = 'allow'\n");
    let session = daemon.run_acp(&[]);
    let params = json!({ "toolCall": { "toolCallId": "c", "kind": "edit" }, "options": [] });
    daemon.prompt(&session, &json!([format!("request:session/request_permission:{params}")]).to_string());
    let clearance = asked(&daemon, &session, 1);
    let body = json!({ "decision": "approve" });
    let decision = daemon.post(&format!("/api/v1/clearances/{clearance}/decision"), &body);
    refused(decision, 422, "option_required");
    assert_eq!(daemon.decide(&clearance, "deny")["status"], "denied");
    wait_turns(&daemon, &session, 1);
}

#[test]
fn a_turn_ends_however_much_else_is_not_answered() {
    let daemon = Daemon::quick("");
    let session = daemon.run_acp(&["never:session/set_mode", "caps:modes"]);
    let go = daemon.workspace().join("go");
    daemon.prompt(&session, &format!("wait-file:{}", go.display()));
    for _ in 0..65 {
        daemon.post(&format!("/api/v1/sessions/{session}/set"), &json!({ "mode": "code" }));
    }
    std::fs::write(go, "").unwrap();
    wait_turns(&daemon, &session, 1);
}

#[test]
fn what_is_told_again_is_not_paid_again() {
    let daemon = Daemon::quick("");
    let kept = format!("sessions:{}", daemon.workspace().join("sessions").display());
    let session = daemon.run_acp(&["caps:load", &kept]);
    daemon.prompt(&session, "usage:1:2:0.1;usage:1:2:0.3");
    wait_turns(&daemon, &session, 1);
    daemon.end_session(&session, "stop");
    daemon.cli(&["resume", &session]).ok();
    daemon.wait_for(&session, "the second life", |event| {
        event["kind"] == "agent.ready" && event["data"]["generation"] == 2
    });
    assert_eq!(daemon.show(&session)["spent"]["cost"], 0.3);
    daemon.prompt(&session, "usage:1:2:0.4");
    wait_turns(&daemon, &session, 2);
    assert_eq!(daemon.show(&session)["spent"]["cost"], 0.4);
}

#[test]
fn nudges_are_said_in_their_order() {
    let daemon = Daemon::quick("");
    let session = daemon.run_acp(&["ignore:cancel"]);
    let go = daemon.workspace().join("go");
    daemon.prompt(&session, &format!("wait-file:{}", go.display()));
    for words in ["say:one", "say:two"] {
        daemon.cli(&["nudge", &session, words]).ok();
    }
    std::fs::write(go, "").unwrap();
    wait_turns(&daemon, &session, 3);
    assert_eq!(words(&daemon.so_far(&session)), ["one", "two"]);
}

#[test]
fn who_stops_it_during_the_handshake_has_stopped_it() {
    let args = ["version:9", "delay:initialize:400", "ignore:eof"];
    let slow = "[agents.own.stop]\nafter_stdin_closed_seconds = 1\n";
    let daemon = Daemon::quick(&acp_profile(&args, slow));
    let session = daemon.run_agent("own");
    daemon.end_session(&session, "stop");
    let ended = daemon.wait_kind(&session, "session.ended");
    assert!(ended["data"]["reason"].as_str().unwrap().starts_with("stopped by "), "{ended}");
    assert_eq!(of_kind(&daemon.so_far(&session), "session.stopping").len(), 1);
}

//! What prompts are made of, how one can tell which turn is theirs, and what else is said to ACP agents and answered by them.

use intercom_testkit::harness::{self, Daemon, of_kind, refused, wait_turns};
use serde_json::{Value, json};

/// The words of every chunk of the agent's messages.
fn words(daemon: &Daemon, session: &str) -> Vec<String> {
    let events = daemon.so_far(session);
    let chunks =
        of_kind(&events, "update").into_iter().map(|event| &event["data"]["update"]["content"]["text"]);
    chunks.filter_map(|text| text.as_str().map(str::to_owned)).collect()
}

/// The last line of this method that the agent has heard.
fn heard(daemon: &Daemon, session: &str, method: &str) -> Value {
    let beginning = format!("last {method} ");
    let all = words(daemon, session);
    let line = all.iter().rev().find_map(|text| text.strip_prefix(&beginning)).unwrap();
    serde_json::from_str(line).unwrap()
}

fn prompts(session: &str) -> String {
    format!("/api/v1/sessions/{session}/prompts")
}

#[test]
fn content_reaches_an_acp_agent_as_it_came() {
    let daemon = Daemon::quick("");
    let session = daemon.run_acp(&[]);
    let content = json!([
        { "type": "text", "text": "heard:session/prompt", "_meta": { "n": 1 } },
        { "type": "resource_link", "name": "a.rs", "uri": "file:///w/a.rs", "size": 3 },
        { "type": "image", "mimeType": "image/png", "data": "AA==" },
        { "type": "hologram", "depth": { "z": [1.5, null] } },
    ]);
    // Whatever the body looks like, the agent is told in one line.
    let body = serde_json::to_string_pretty(&json!({ "content": content })).unwrap();
    let (status, text) = harness::http(&daemon.socket(), "POST", &prompts(&session), Some(&body), &[]);
    let prompt: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((status, &prompt["state"]), (202, &json!("delivered")), "{prompt}");
    assert_eq!(
        prompt["text"],
        "heard:session/prompt\n[Resource: a.rs (file:///w/a.rs)]\n[image: image/png]\n[hologram]"
    );
    wait_turns(&daemon, &session, 1);
    assert_eq!(heard(&daemon, &session, "session/prompt")["params"]["prompt"], content);
    let queued = daemon.wait_kind(&session, "prompt.queued");
    assert_eq!(queued["data"]["content"], content);
    assert_eq!(queued["data"]["text"], prompt["text"]);
    // In one's own words.
    let body = json!({ "text": "short", "content": [{ "type": "text", "text": "say:long" }] });
    let (status, prompt) = daemon.post(&prompts(&session), &body);
    assert_eq!((status, &prompt["text"]), (202, &json!("short")), "{prompt}");
    wait_turns(&daemon, &session, 2);
    assert!(words(&daemon, &session).contains(&"long".to_owned()));
}

#[test]
fn a_prompt_says_something_in_blocks_that_are_blocks() {
    let daemon = Daemon::quick("");
    let session = daemon.run_acp(&[]);
    for body in [
        json!({}),
        json!({ "text": " " }),
        json!({ "content": [] }),
        json!({ "content": [{ "type": "text", "text": " \n" }] }),
        json!({ "content": ["text"] }),
        json!({ "text": "x", "content": {} }),
        json!({ "text": "x", "content": "x" }),
        json!({ "text": "x", "wait": "agent" }),
    ] {
        refused(daemon.post(&prompts(&session), &body), 400, "bad_request");
    }
    assert_eq!(daemon.post(&prompts(&session), &json!({ "text": "say:x", "content": [] })).0, 202);
    let long = "x".repeat(5 << 20);
    let body = json!({ "content": [{ "type": "image", "mimeType": "image/png", "data": long }] });
    refused(daemon.post(&prompts(&session), &body), 413, "too_large");
}

#[test]
fn an_agent_of_our_own_protocol_is_told_the_words() {
    let daemon = Daemon::quick("");
    let session = daemon.run(&["echo:1"]);
    let content = json!([{ "type": "text", "text": "see" }, { "type": "audio", "mimeType": "audio/wav", "data": "AA==" }]);
    daemon.post(&prompts(&session), &json!({ "content": content }));
    let events = daemon.all_events(&session);
    let echoed = events.iter().any(|event| event["data"].to_string().contains("see\\\\n[audio: audio/wav]"));
    assert!(echoed, "{events:#?}");
}

#[test]
fn whoever_does_not_wait_is_answered_at_once() {
    let daemon = Daemon::quick("");
    let session = daemon.run_acp(&[]);
    daemon.wait_kind(&session, "agent.ready");
    daemon.prompt(&session, "deaf:300000");
    // Its pipe takes little, and nobody reads from it.
    let text = "x".repeat(1 << 20);
    let before = std::time::Instant::now();
    for wait in [false, false] {
        let (status, prompt) = daemon.post(&prompts(&session), &json!({ "text": text, "wait": wait }));
        assert_eq!((status, &prompt["state"]), (202, &json!("queued")), "{}", prompt["error"]);
    }
    assert!(before.elapsed() < std::time::Duration::from_secs(2), "{:?}", before.elapsed());
}

#[test]
fn which_turn_is_whose_is_in_the_log() {
    let daemon = Daemon::quick("");
    let session = daemon.run_acp(&[]);
    let ids: Vec<Value> = ["sleep:50;say:a", "say:b", "say:c"]
        .into_iter()
        .map(|text| daemon.post(&prompts(&session), &json!({ "text": text, "wait": false })).1["id"].clone())
        .collect();
    wait_turns(&daemon, &session, 3);
    let events = daemon.so_far(&session);
    let sent = of_kind(&events, "prompt.sending");
    assert_eq!(sent.iter().map(|event| event["data"]["prompt"].clone()).collect::<Vec<_>>(), ids);
    for (sending, say) in sent.iter().zip(["a", "b", "c"]) {
        let at = |wanted: &dyn Fn(&Value) -> bool| events.iter().position(wanted).unwrap();
        let turn = &sending["data"]["turn"];
        let began = at(&|event| event["kind"] == "turn.started" && event["data"]["turn"] == *turn);
        let left = at(&|event| event["seq"] == sending["seq"]);
        let said = at(&|event| event["data"]["update"]["content"]["text"] == say);
        let ended = at(&|event| event["kind"] == "turn.ended" && event["data"]["turn"] == *turn);
        assert!(began < left && left < said && said < ended, "{began} {left} {said} {ended}");
    }
}

#[test]
fn a_prompt_that_waits_keeps_its_blocks_with_other_words_and_in_the_next_life() {
    let agent = json!(harness::acp_fixture());
    let daemon = Daemon::quick(&format!(
        "[agents.acp]\ncommand = {agent}\nprotocol = 'acp'\nrestart = {{ policy = 'on-failure', first_wait = '1s', budget = 1, repeat_prompt = true }}\n"
    ));
    let session = daemon.run_agent("acp");
    daemon.wait_kind(&session, "agent.ready");
    daemon.prompt(&session, "wait-file:$cwd/go");
    let image = json!({ "type": "image", "mimeType": "image/png", "data": "AA==" });
    let content = json!([{ "type": "text", "text": "a" }, image, { "type": "text", "text": "b" }]);
    let (_, prompt) = daemon.post(&prompts(&session), &json!({ "content": content }));
    let path = format!("/api/v1/prompts/{}", prompt["id"].as_str().unwrap());
    let text = "heard:session/prompt;exit:1";
    assert_eq!(daemon.post(&path, &json!({ "text": text })).0, 200);
    std::fs::write(daemon.workspace().join("go"), "").unwrap();
    let reworded = json!([{ "type": "text", "text": text }, image]);
    daemon.wait_for(&session, "the end of both lives", |event| {
        event["kind"] == "session.parked" || event["kind"] == "session.ended"
    });
    let told: Vec<Value> = words(&daemon, &session)
        .iter()
        .filter_map(|text| text.strip_prefix("last session/prompt "))
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["params"]["prompt"].clone())
        .collect();
    assert_eq!(told, [reworded.clone(), reworded], "once, and once again after the restart");
}

#[test]
fn a_turn_that_failed_is_told_from_one_that_ended() {
    let daemon = Daemon::quick("");
    let session = daemon.run_acp(&[]);
    daemon.prompt(&session, "fail:-32603:out of ideas");
    let ended = wait_turns(&daemon, &session, 1)["data"].clone();
    assert_eq!((&ended["failed"], &ended["params"]["code"]), (&json!(true), &json!(-32603)), "{ended}");
    daemon.prompt(&session, "stop:refusal");
    let ended = wait_turns(&daemon, &session, 2)["data"].clone();
    assert_eq!((ended.get("failed"), &ended["params"]["stopReason"]), (None, &json!("refusal")), "{ended}");
}

#[test]
fn an_interrupt_need_not_be_waited_for() {
    let daemon = Daemon::quick("");
    let session = daemon.run_acp(&[]);
    daemon.prompt(&session, "hang");
    let path = format!("/api/v1/sessions/{session}/interrupt");
    let (status, told) = daemon.post(&path, &json!({ "wait": false }));
    assert_eq!((status, &told["delivery"]), (202, &json!("pending")), "{told}");
    assert_eq!(wait_turns(&daemon, &session, 1)["data"]["stop_reason"], "cancelled");
}

#[test]
fn whoever_sets_something_can_wait_for_what_the_agent_makes_of_it() {
    let daemon = Daemon::quick("");
    let session = daemon.run_acp(&[]);
    daemon.wait_kind(&session, "agent.ready");
    let path = format!("/api/v1/sessions/{session}/set");
    let (status, told) = daemon.post(&path, &json!({ "mode": "plan", "wait": "agent" }));
    assert_eq!((status, &told["answer"], &told["set"]), (200, &json!({}), &json!(1)), "{told}");
    assert_eq!(daemon.show(&session)["controls"]["mode"], "plan");
    let body = json!({ "option": "model", "value": "large", "wait": "agent" });
    let (status, told) = daemon.post(&path, &body);
    assert_eq!((status, told["answer"]["configOptions"].is_array()), (200, true), "{told}");
    let said = refused(daemon.post(&path, &json!({ "mode": "nap", "wait": "agent" })), 422, "not_set");
    assert_eq!(said["agent_error"]["code"], -32602, "{said}");
    let body = json!({ "option": "model", "value": true, "wait": "agent" });
    refused(daemon.post(&path, &body), 422, "not_set");
    refused(daemon.post(&path, &json!({ "mode": "plan", "wait": "people" })), 400, "bad_request");
    daemon.prompt(&session, "heard:session/set_config_option");
    wait_turns(&daemon, &session, 1);
    let last = heard(&daemon, &session, "session/set_config_option");
    assert_eq!((&last["params"]["value"], &last["params"]["type"]), (&json!(true), &json!("boolean")));
    let events = daemon.so_far(&session);
    let numbers =
        |kind| of_kind(&events, kind).iter().map(|event| event["data"]["set"].clone()).collect::<Vec<_>>();
    assert_eq!(numbers("agent.set"), [1, 2, 3, 4]);
    assert_eq!(numbers("agent.set_done"), [1, 2]);
    assert_eq!(numbers("agent.not_set"), [3, 4]);
}

#[test]
fn an_agent_that_ends_instead_of_answering_keeps_nobody_waiting() {
    let daemon = Daemon::quick("");
    let session = daemon.run_acp(&["before:session/set_mode:exit:3"]);
    daemon.wait_kind(&session, "agent.ready");
    let path = format!("/api/v1/sessions/{session}/set");
    refused(daemon.post(&path, &json!({ "mode": "plan", "wait": "agent" })), 409, "ended");
}

#[test]
fn mcp_servers_reach_the_agent_in_every_life() {
    let daemon = Daemon::quick("");
    let servers = json!([
        { "name": "files", "command": "/bin/files", "args": ["-v"], "env": [{ "name": "K", "value": "v" }] },
        { "type": "http", "name": "web", "url": "http://localhost:1", "headers": [], "new": { "a": 1.5 } },
    ]);
    let start = |servers: &Value| {
        daemon.post(
            "/api/v1/sessions",
            &json!({ "command": harness::acp_fixture(), "protocol": "acp", "workspace": daemon.workspace(),
                "args": ["caps:resume"], "mcp_servers": servers }),
        )
    };
    refused(start(&json!("files")), 400, "bad_request");
    refused(start(&json!(["files"])), 400, "bad_request");
    let (status, session) = start(&servers);
    assert_eq!(status, 201, "{session}");
    let session = session["id"].as_str().unwrap();
    daemon.prompt(session, "heard:session/new");
    wait_turns(&daemon, session, 1);
    assert_eq!(heard(&daemon, session, "session/new")["params"]["mcpServers"], servers);
    daemon.end_session(session, "stop");
    assert_eq!(daemon.post(&format!("/api/v1/sessions/{session}/resume"), &json!({})).0, 200);
    daemon.prompt(session, "heard:session/resume");
    wait_turns(&daemon, session, 2);
    assert_eq!(heard(&daemon, session, "session/resume")["params"]["mcpServers"], servers);
    // They may hold secrets, and are nobody's business but the agent's.
    let events = daemon.so_far(session);
    assert!(!of_kind(&events, "session.created")[0].to_string().contains("files"));
}

#[test]
fn sessions_have_titles_and_say_what_their_agents_take_and_when_something_happened_last() {
    let daemon = Daemon::quick("");
    let session = daemon.run_acp(&[
        r#"initialize:{"agentCapabilities":{"promptCapabilities":{"image":false,"audio":true}}}"#,
    ]);
    daemon.wait_kind(&session, "agent.ready");
    let shown = daemon.show(&session);
    assert_eq!(shown["title"], Value::Null);
    assert_eq!(
        shown["prompt_capabilities"],
        json!({ "image": false, "audio": true, "embedded_context": true })
    );
    daemon.prompt(&session, "say:first\nof all");
    wait_turns(&daemon, &session, 1);
    assert_eq!(daemon.show(&session)["title"], "say:first");
    daemon.prompt(&session, "title:Spring cleaning");
    let last = wait_turns(&daemon, &session, 2);
    let shown = daemon.show(&session);
    assert_eq!(shown["title"], "Spring cleaning");
    // That the prompt has arrived may be known a moment later.
    assert!(shown["updated_at"].as_str() >= last["at"].as_str(), "{shown} {last}");
    let native = daemon.run_with(&["serve"], json!({ "name": "shop", "prompt": "go" }));
    let shown = daemon.show(&native);
    assert_eq!((&shown["title"], &shown["prompt_capabilities"]), (&json!("shop"), &Value::Null));
}

#[test]
fn sessions_are_listed_by_their_workspace() {
    let daemon = Daemon::quick("");
    let there = daemon.dir.path().join("there");
    std::fs::create_dir(&there).unwrap();
    daemon.run(&["serve"]);
    let session = daemon.run_with(&["serve"], json!({ "workspace": there }));
    let of = |query: &str| {
        let (_, list) = daemon.get(&format!("/api/v1/sessions?{query}"));
        let items = list["items"].as_array().unwrap().iter();
        items.map(|item| item["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let there = there.display();
    assert_eq!(of(&format!("workspace={there}")), [session.as_str()]);
    assert_eq!(of(&format!("workspace={there}/")), [] as [&str; 0]);
    daemon.end_session(&session, "kill");
    assert_eq!(of(&format!("workspace={there}")), [] as [&str; 0]);
    assert_eq!(of(&format!("workspace={there}&all=true")), [session]);
}

#[test]
fn a_session_that_has_ended_can_be_removed_with_its_log() {
    let daemon = Daemon::quick("");
    let kept = daemon.run(&["status:hello", "serve"]);
    let session = daemon.run_with(&["status:hello", "serve"], json!({ "name": "old" }));
    daemon.wait_kind(&session, "status");
    let path = format!("/api/v1/sessions/{session}");
    let remove = || daemon.request("DELETE", &path, None, &[]);
    refused(remove(), 409, "running");
    daemon.end_session(&session, "stop");
    assert_eq!(remove(), (204, Value::Null));
    refused(remove(), 404, "not_found");
    refused(daemon.get(&path), 404, "not_found");
    refused(daemon.post(&format!("{path}/resume"), &json!({})), 404, "not_found");
    let (_, log) = daemon.request("GET", "/api/v1/events", None, &[("accept", "application/json")]);
    let items = log["items"].as_array().unwrap();
    assert!(!items.is_empty() && items.iter().all(|event| event["session"] == *kept), "{log}");
    let (_, audit) = daemon.get(&format!("/api/v1/audit?session={session}"));
    let last = audit["items"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (&last["action"], &last["data"]["name"]),
        (&json!("session.deleted"), &json!("old")),
        "{audit}"
    );
    assert_eq!(daemon.get("/api/v1/audit/verify").1["whole"], true);
}

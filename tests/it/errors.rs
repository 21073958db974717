//! What an agent may get wrong, row by row: the stream goes on, the log shows it, and a request gets its error answer.

use intercom_testkit::harness::{Daemon, of_kind, profile};
use serde_json::{Value, json};

/// For a session whose last two steps are `status:on` and `echo:1`: what it finds in its stdin is our nudge, so that
/// nothing but what it took before had been sent to it. All its events.
#[track_caller]
fn nothing_more_was_sent(daemon: &Daemon, session: &str) -> Vec<Value> {
    daemon.wait_status(session, "on");
    daemon.cli(&["nudge", session, "the end"]).ok();
    let events = daemon.all_events(session);
    let last = &of_kind(&events, "status").last().unwrap()["data"];
    assert_eq!(
        serde_json::from_str::<Value>(last["line"].as_str().unwrap()).unwrap(),
        json!({"method": "nudge", "params": {"message": "the end"}})
    );
    events
}

fn messages(events: &[Value]) -> Vec<&str> {
    of_kind(events, "status").into_iter().filter_map(|event| event["data"]["message"].as_str()).collect()
}

#[test]
fn what_is_no_json_object_is_rejected_without_an_answer_and_the_stream_goes_on() {
    let daemon = Daemon::quick("");
    let malformed = [
        r#"{"method":"status/update","id":7,"params":{"message":"cut off""#,
        r#"{"method":"status/update","params":{"message":"x"}} trailing"#,
        r#"{"method":"heartbeat"}{"method":"heartbeat"}"#,
        "{'method':'heartbeat'}",
        "{",
        "Loading model... 100%",
    ];
    let not_objects = ["[1,2]", r#""clearance/request""#, "42", "null", "true"];
    let lines: Vec<String> = malformed.iter().chain(&not_objects).map(|line| format!("raw:{line}")).collect();
    let mut steps: Vec<&str> = lines.iter().map(String::as_str).collect();
    steps.extend(["status:on", "echo:1"]);
    let session = daemon.run(&steps);
    let events = nothing_more_was_sent(&daemon, &session);
    let rejected = of_kind(&events, "line.rejected");
    assert_eq!(rejected.len(), malformed.len() + not_objects.len(), "{rejected:#?}");
    for (event, line) in rejected.iter().zip(malformed.iter().chain(&not_objects)) {
        let reason = event["data"]["reason"].as_str().unwrap();
        let expected = if malformed.contains(line) { "malformed JSON" } else { "not a JSON object" };
        assert!(reason.starts_with(expected), "{line}: {reason}");
        assert_eq!(event["data"]["excerpt"], json!(line));
        assert_eq!(event["data"]["bytes"], json!(line.len()));
    }
    assert_eq!(messages(&events), ["on", "received"]);
}

#[test]
fn bytes_that_are_not_utf8_are_rejected_and_the_next_line_is_read() {
    let daemon = Daemon::quick("");
    // {"method":"status/update","params":{"message":"?"}} with 0xff for the question mark
    let inside = "7b226d6574686f64223a227374617475732f757064617465222c22706172616d73223a7b226d657373616765223a22ff227d7d0a";
    let session = daemon.run(&["hex:fffe41 0a", &format!("hex:{inside}"), "status:on", "echo:1"]);
    let events = nothing_more_was_sent(&daemon, &session);
    let rejected = of_kind(&events, "line.rejected");
    assert_eq!(rejected.len(), 2, "{rejected:#?}");
    assert_eq!(rejected[0]["data"]["reason"], "not valid UTF-8");
    assert_eq!(rejected[0]["data"]["excerpt"], "\u{fffd}\u{fffd}A");
    let excerpt = rejected[1]["data"]["excerpt"].as_str().unwrap();
    assert!(excerpt.starts_with(r#"{"method":"status/update""#) && excerpt.contains('\u{fffd}'), "{excerpt}");
}

#[test]
fn a_banner_and_blank_lines_do_no_harm() {
    let daemon = Daemon::quick("");
    let banner = "raw:  ___ \n / _ \\  Agent v1.0 (c) 2024\n|  __/\n \\___|\n";
    let steps = [banner, "raw:", "raw:   ", "raw:\t", "hex:0d0a", "clearance:1:May I?", "answer:1"];
    let session = daemon.run(&steps);
    daemon.decide(&daemon.clearance(&session), "approve");
    let events = daemon.all_events(&session);
    assert_eq!(of_kind(&events, "line.rejected").len(), 4, "the four lines of the banner, no blank ones");
    assert_eq!(of_kind(&events, "status")[0]["data"]["status"], "approved");
}

#[test]
fn an_excerpt_is_cut_between_characters() {
    let daemon = Daemon::quick("");
    let session = daemon.run(&[&format!("raw:x{}", "é".repeat(5000))]);
    let events = daemon.all_events(&session);
    let data = &of_kind(&events, "line.rejected")[0]["data"];
    let excerpt = data["excerpt"].as_str().unwrap();
    assert!(
        format!("x{}", "é".repeat(5000)).starts_with(excerpt) && excerpt.chars().count() == 200,
        "{data}"
    );
    assert_eq!(data["bytes"], 10_001);
}

#[test]
fn lines_may_end_with_crlf_and_the_last_one_needs_no_end() {
    let daemon = Daemon::quick("");
    let status = |text| format!(r#"{{"method":"status/update","params":{{"message":"{text}"}}}}"#);
    let steps = [format!("raw:{}\r", status("crlf")), format!("part:{}", status("the last"))];
    let session = daemon.run(&steps.each_ref().map(String::as_str));
    let events = daemon.all_events(&session);
    assert_eq!(messages(&events), ["crlf", "the last"]);
    assert!(of_kind(&events, "line.rejected").is_empty(), "{events:#?}");
}

#[test]
fn half_a_message_at_the_end_is_rejected_with_a_warning() {
    let daemon = Daemon::quick("");
    let session = daemon.run(&[r#"part:{"method":"status/update","par"#]);
    let events = daemon.all_events(&session);
    let rejected = of_kind(&events, "line.rejected");
    assert_eq!(rejected.len(), 1, "{events:#?}");
    assert_eq!(rejected[0]["data"]["excerpt"], r#"{"method":"status/update","par"#);
    let log = daemon.log();
    assert!(log.lines().any(|line| line.contains("WARN") && line.contains("malformed JSON")), "{log}");
}

#[test]
fn a_flood_of_garbage_is_kept_whole_but_does_not_fill_the_daemons_log() {
    let daemon = Daemon::quick("");
    let session = daemon.run(&["repeat:500:raw:no JSON", "status:on"]);
    let events = daemon.all_events(&session);
    assert_eq!(of_kind(&events, "line.rejected").len(), 500);
    assert_eq!(messages(&events), ["on"]);
    let warnings = daemon.log().lines().filter(|line| line.contains("no JSON")).count();
    assert!((1..=50).contains(&warnings), "{warnings} warnings");
}

/// Over the limit with the id first, last, as a number, and without any; then a line that fits.
fn over_long(framing: &str) {
    let settings = format!("framing = \"{framing}\"\nmax_line_length = 4096");
    let mode = format!("framing:{framing}");
    let steps = [
        &mode,
        "long:4097:first:front",
        "long:300000:last:back",
        "long:4097:last:#17",
        "long:9000",
        "long:4096",
        "answer:front",
        "answer:back",
        "answer:#17",
        "status:on",
        "echo:1",
    ];
    let daemon = Daemon::quick(&profile("long", &steps, &settings));
    let session = daemon.run_agent("long");
    let events = nothing_more_was_sent(&daemon, &session);
    let rejected = of_kind(&events, "line.rejected");
    let sizes: Vec<_> = rejected.iter().map(|event| event["data"]["bytes"].as_u64().unwrap()).collect();
    assert_eq!(sizes, [4097, 300_000, 4097, 9000]);
    for event in &rejected {
        let data = &event["data"];
        assert!(data["reason"].as_str().unwrap().contains("max_line_length"), "{data}");
        assert_eq!(data["excerpt"].as_str().unwrap().chars().count(), 200, "{data}");
    }
    assert_eq!(rejected[1]["data"]["method"], "clearance/request");
    let statuses = of_kind(&events, "status");
    assert_eq!(statuses[0]["data"]["message"].as_str().unwrap().trim_matches('x'), "", "the one that fits");
    for (event, id) in statuses[1..].iter().zip([json!("front"), json!("back"), json!(17)]) {
        let data = &event["data"];
        assert_eq!(
            (&data["id"], &data["method"], &data["status"]),
            (&id, &json!("error"), &json!("too_long"))
        );
    }
    assert!(of_kind(&events, "clearance.requested").is_empty());
}

#[test]
fn a_line_over_the_limit_is_skipped_and_its_request_answered() {
    over_long("ndjson");
}

#[test]
fn a_body_over_the_limit_is_skipped_and_its_request_answered() {
    over_long("lsp");
}

#[test]
fn a_line_over_the_limit_that_was_half_read_by_a_killed_daemon_is_rejected_once_and_answered() {
    let go = tempfile::tempdir().unwrap();
    let file = go.path().join("go");
    let first = format!(
        "part:{}\n{}{}",
        r#"{"method":"status/update","params":{"message":"before"}}"#,
        r#"{"id":"big","method":"clearance/request","params":{"title":""#,
        "x".repeat(5000)
    );
    let rest = r#"raw:","description":"and more"}}"#;
    let wait = format!("wait-file:{}", file.display());
    let steps = [&first, &wait, rest, "answer:big", "status:on", "echo:1"];
    let daemon = Daemon::quick(&profile("long", &steps, "max_line_length = 1024"));
    let session = daemon.run_agent("long");
    daemon.wait_status(&session, "before");
    let (dir, _) = daemon.end(nix::sys::signal::Signal::SIGKILL);
    let daemon = Daemon::start_in(dir, &[], &[]);
    std::fs::write(file, "").unwrap();
    let events = nothing_more_was_sent(&daemon, &session);
    let rejected = of_kind(&events, "line.rejected");
    assert_eq!(rejected.len(), 1, "{rejected:#?}");
    assert!(rejected[0]["data"]["reason"].as_str().unwrap().contains("max_line_length"), "{rejected:#?}");
    assert_eq!(messages(&events), ["before", "answered", "on", "received"]);
}

#[test]
fn a_body_that_was_half_read_by_a_killed_daemon_is_neither_lost_nor_torn() {
    let go = tempfile::tempdir().unwrap();
    let file = go.path().join("go");
    let wait = format!("wait-file:{}", file.display());
    let first = r#"{"method":"status/update","params":{"message":"before"}}"#;
    let second = r#"{"method":"status/update","params":{"message":"half and half"}}"#;
    let framed = |text: &str| format!("Content-Length: {}\r\n\r\n{text}", text.len());
    let (half, rest) = second.split_at(30);
    let whole = framed(second);
    let beginning = format!("part:{}{}{half}", framed(first), whole.strip_suffix(second).unwrap());
    let rest = format!("part:{rest}");
    let steps = ["framing:lsp", &beginning, &wait, &rest, "status:on", "echo:1"];
    let daemon = Daemon::quick(&profile("lsp", &steps, "framing = \"lsp\""));
    let session = daemon.run_agent("lsp");
    daemon.wait_status(&session, "before");
    let (dir, _) = daemon.end(nix::sys::signal::Signal::SIGKILL);
    let daemon = Daemon::start_in(dir, &[], &[]);
    std::fs::write(file, "").unwrap();
    let events = nothing_more_was_sent(&daemon, &session);
    assert_eq!(messages(&events), ["before", "half and half", "on", "received"]);
    assert!(of_kind(&events, "line.rejected").is_empty(), "{events:#?}");
}

#[test]
fn a_line_longer_than_the_journal_is_skipped_and_the_stream_goes_on() {
    let daemon = Daemon::quick("[limits]\njournal_mib = 1\n");
    let session = daemon.run(&["long:4000000", "status:on", "echo:1"]);
    let events = nothing_more_was_sent(&daemon, &session);
    assert_eq!(of_kind(&events, "line.rejected").len(), 1);
}

#[test]
fn blank_lines_do_not_fill_the_journal() {
    let daemon = Daemon::quick("[limits]\njournal_mib = 1\n");
    let blank = format!("repeat:40:part:{}", "\n".repeat(100_000));
    let session = daemon.run(&[&blank, "status:on", "echo:1"]);
    let events = nothing_more_was_sent(&daemon, &session);
    assert!(of_kind(&events, "line.rejected").is_empty());
}

#[test]
fn the_last_line_without_its_end_is_in_the_log_once_also_if_the_daemon_dies_over_it() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("work")).unwrap();
    let go = dir.path().join("go");
    let daemon = Daemon::start_in(dir, &[], &[("INTERCOM_FAILPOINT", "exit.heard")]);
    let line = r#"part:{"method":"status/update","params":{"message":"the last"}}"#;
    let session = daemon.run(&[&format!("wait-file:{}", go.display()), line]);
    std::fs::write(go, "").unwrap();
    let (dir, status) = daemon.end(nix::sys::signal::Signal::SIGCONT); // which changes nothing: it dies by itself
    assert!(!status.success(), "it was to die");
    let daemon = Daemon::start_in(dir, &[], &[]);
    assert_eq!(messages(&daemon.all_events(&session)), ["the last"]);
}

#[test]
fn the_limit_is_a_mebibyte_by_default() {
    let daemon = Daemon::quick("");
    let session =
        daemon.run(&["long:1048576:first:fits", "long:1048577:first:not", "answer:not", "answer:fits"]);
    assert_eq!(daemon.wait_status(&session, "answered")["status"], "too_long");
    daemon.decide(&daemon.clearance(&session), "approve");
    let events = daemon.all_events(&session);
    let answers: Vec<_> =
        of_kind(&events, "status").iter().map(|event| event["data"]["status"].clone()).collect();
    assert_eq!(answers, ["too_long", "approved"]);
}

#[test]
fn after_a_bad_header_reading_resumes_at_the_next_good_one() {
    let steps = [
        "framing:lsp",
        "status:one",
        "part:npm warn: hello\r\nno header\r\n\r\n{\"method\":\"heartbeat\"}",
        "status:two",
        "part:Content-Length: many\r\n\r\n",
        "status:three",
        "part:Content-Type: x\r\nCONTENT-LENGTH:51\r\n\r\n{\"method\":\"status/update\",\"params\":{\"message\":\"4\"}}",
        "part:Content-Length: 3\r\n\r\n[1]",
        "hex:436f6e74656e742d4c656e6774683a20310d0a0d0a ff",
        "clearance:1:May I?",
        "answer:1",
        "part:Content-Length: 99\r\n\r\n{\"method\":",
    ];
    let daemon = Daemon::quick(&profile("lsp", &steps, "framing = \"lsp\""));
    let session = daemon.run_agent("lsp");
    daemon.decide(&daemon.clearance(&session), "approve");
    let events = daemon.all_events(&session);
    assert_eq!(messages(&events), ["one", "two", "three", "4", "answered"]);
    let rejected = of_kind(&events, "line.rejected");
    let excerpts: Vec<_> = rejected.iter().map(|event| event["data"]["excerpt"].as_str().unwrap()).collect();
    assert_eq!(
        excerpts,
        [
            "npm warn: hello\r\nno header\r\n\r\n{\"method\":\"heartbeat\"}",
            "Content-Length: many\r\n\r\n",
            "[1]",
            "\u{fffd}",
            "{\"method\":"
        ]
    );
}

#[test]
fn an_unknown_message_is_kept_to_the_letter_and_a_request_is_answered() {
    let daemon = Daemon::quick("");
    let odd = r#"{"method":"tea/brew", "sugar": 1.50, "big":12345678901234567890123,"params":{"b":1,"a":"\u0041"}}"#;
    let steps = [
        &format!("raw:{odd}"),
        r#"raw:{"method":"tea/brew","id":null}"#,
        "request:tea/ask:one",
        r#"raw:{"id":2,"method":""}"#,
        "request:clearance/response:#3:{\"status\":\"approved\"}",
        "answer:one",
        "answer:#2",
        "answer:#3",
        "status:on",
        "echo:1",
    ];
    let session = daemon.run(&steps);
    let events = nothing_more_was_sent(&daemon, &session);
    assert_eq!(of_kind(&events, "unknown").len(), 5, "{events:#?}");
    for event in &of_kind(&events, "status")[..3] {
        assert_eq!(event["data"]["status"], "unknown_method");
        assert_eq!(event["data"]["method"], "error");
        assert!(event["data"]["params"]["message"].is_string(), "{event}");
    }
    assert!(of_kind(&events, "line.rejected").is_empty());
    kept_to_the_letter(&daemon, &session, "unknown", odd);
}

/// The first event of this kind holds that text as the agent wrote it.
#[track_caller]
fn kept_to_the_letter(daemon: &Daemon, session: &str, kind: &str, text: &str) {
    let mut stream = daemon.follow(session);
    let kind = format!("\"kind\":\"{kind}\"");
    let kept = std::iter::from_fn(|| stream.block().unwrap().map(str::to_owned))
        .find(|block| block.contains(&kind))
        .unwrap();
    assert!(kept.contains(text), "{kept}");
}

#[test]
fn the_params_of_a_known_message_are_kept_to_the_letter() {
    let daemon = Daemon::quick("");
    let odd = |field: &str| format!(r#"{{ {field}"z":1.50,"a":12345678901234567890123, "b":"\u0041" }}"#);
    let messages = [
        ("status/update", odd(r#""message":"m","#), "status"),
        ("heartbeat", odd(""), "heartbeat"),
        ("clearance/request", odd(r#""title":"t","#), "clearance.requested"),
        ("prompt/forward", odd(r#""text":"t","#), "question.asked"),
        ("turn/end", odd(r#""stop_reason":"s","#), "turn.ended"),
    ];
    let lines: Vec<String> = messages
        .iter()
        .zip(1..)
        .map(|((method, params, _), id)| {
            format!(r#"raw:{{"method":"{method}","id":{id},"params":{params}}}"#)
        })
        .collect();
    let session = daemon.run(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    daemon.all_events(&session);
    for (_, params, kind) in &messages {
        kept_to_the_letter(&daemon, &session, kind, params);
    }
}

#[test]
fn an_agent_that_asks_more_than_its_pipe_holds_before_it_listens_gets_every_answer() {
    let daemon = Daemon::quick("");
    // The pipe takes some 680 of the answers, and fewer than 256 wait with us.
    let steps = ["repeat:800:request:tea/ask:#1", "status:asked", "echo:800", "status:on", "echo:1"];
    let session = daemon.run(&steps);
    let events = nothing_more_was_sent(&daemon, &session);
    assert_eq!(of_kind(&events, "unknown").len(), 800);
    let answers = of_kind(&events, "status").into_iter().filter_map(|event| event["data"]["line"].as_str());
    assert_eq!(answers.filter(|line| line.contains("unknown_method")).count(), 800);
}

/// Each line is rejected for this method and field; those with an id are answered with `code`, the others not at all.
#[track_caller]
fn faulty(code: &str, lines: &[(&str, Option<&str>, &str)]) {
    let daemon = Daemon::quick("");
    let ids: Vec<Option<u64>> =
        lines.iter().map(|(line, ..)| serde_json::from_str::<Value>(line).unwrap()["id"].as_u64()).collect();
    let mut steps: Vec<String> = lines.iter().map(|(line, ..)| format!("raw:{line}")).collect();
    steps.extend(ids.iter().flatten().map(|id| format!("answer:#{id}")));
    steps.extend(["status:on".to_owned(), "echo:1".to_owned()]);
    let session = daemon.run(&steps.iter().map(String::as_str).collect::<Vec<_>>());
    let events = nothing_more_was_sent(&daemon, &session);

    let rejected = of_kind(&events, "line.rejected");
    assert_eq!(rejected.len(), lines.len(), "{rejected:#?}");
    let log = daemon.log();
    for (event, (line, method, field)) in rejected.iter().zip(lines) {
        let data = &event["data"];
        assert_eq!((&data["method"], &data["field"]), (&json!(method), &json!(field)), "{line}");
        assert!(data["reason"].as_str().unwrap().contains(field), "{data}");
        let names_both = |text: &str| {
            let method = method.unwrap_or_default();
            text.contains("WARN") && text.contains(method) && text.contains(&format!("`{field}`"))
        };
        assert!(log.lines().any(names_both), "no warning for {line}: {log}");
    }
    let answers: Vec<_> = of_kind(&events, "status")
        .into_iter()
        .filter(|event| event["data"]["message"] == "answered")
        .collect();
    assert_eq!(answers.len(), ids.iter().flatten().count());
    for (event, id) in answers.iter().zip(ids.iter().flatten()) {
        let data = &event["data"];
        assert_eq!(
            (&data["id"], &data["method"], &data["status"]),
            (&json!(id), &json!("error"), &json!(code))
        );
    }
    for kind in ["clearance.requested", "question.asked", "heartbeat", "turn.ended", "unknown"] {
        let before_the_end = events.iter().take_while(|event| event["kind"] != "agent.exited");
        assert_eq!(before_the_end.filter(|event| event["kind"] == kind).count(), 0, "{kind}");
    }
}

#[test]
fn a_missing_field_is_named_and_a_request_is_answered() {
    let (clearance, question, status) =
        (Some("clearance/request"), Some("prompt/forward"), Some("status/update"));
    faulty(
        "missing_field",
        &[
            (r#"{"method":"clearance/request","id":1,"params":{"risk_level":"low"}}"#, clearance, "title"),
            (r#"{"method":"clearance/request","id":2}"#, clearance, "title"),
            (r#"{"method":"clearance/request","id":3,"params":{"title":null}}"#, clearance, "title"),
            (r#"{"method":"clearance/request","params":{"title":"t"}}"#, clearance, "id"),
            (r#"{"method":"clearance/request","id":null,"params":{"title":"t"}}"#, clearance, "id"),
            (r#"{"method":"prompt/forward","id":4,"params":{"type":"x"}}"#, question, "text"),
            (r#"{"method":"prompt/forward","params":{"text":"t"}}"#, question, "id"),
            (r#"{"method":"status/update","params":{}}"#, status, "message"),
            (r#"{"method":"status/update"}"#, status, "message"),
            (r#"{"method":"status/update","id":5,"params":{}}"#, status, "message"),
            (r#"{"params":{"message":"x"}}"#, None, "method"),
            (r#"{"id":6,"params":{"message":"x"}}"#, None, "method"),
        ],
    );
}

#[test]
fn a_field_of_the_wrong_type_is_named_and_a_request_is_answered() {
    let (clearance, question) = (Some("clearance/request"), Some("prompt/forward"));
    faulty(
        "invalid_field",
        &[
            (r#"{"method":"clearance/request","id":1,"params":{"title":5}}"#, clearance, "title"),
            (
                r#"{"method":"clearance/request","id":2,"params":{"title":"t","description":[]}}"#,
                clearance,
                "description",
            ),
            (r#"{"method":"clearance/request","id":3,"params":{"title":"t","diff":{}}}"#, clearance, "diff"),
            (
                r#"{"method":"clearance/request","id":4,"params":{"title":"t","file_path":1}}"#,
                clearance,
                "file_path",
            ),
            (r#"{"method":"clearance/request","id":5,"params":[]}"#, clearance, "params"),
            (r#"{"method":"clearance/request","id":6,"params":"title"}"#, clearance, "params"),
            (r#"{"method":"prompt/forward","id":7,"params":{"text":true}}"#, question, "text"),
            (r#"{"method":"prompt/forward","id":8,"params":{"text":"t","type":3}}"#, question, "type"),
            (r#"{"method":"status/update","params":{"message":{}}}"#, Some("status/update"), "message"),
            (r#"{"method":"status/update","id":9,"params":{"message":1}}"#, Some("status/update"), "message"),
            (r#"{"method":"heartbeat","params":{"progress":"most"}}"#, Some("heartbeat"), "progress"),
            (r#"{"method":"heartbeat","id":10,"params":7}"#, Some("heartbeat"), "params"),
            (r#"{"method":"turn/end","id":11,"params":{"stop_reason":0}}"#, Some("turn/end"), "stop_reason"),
            (r#"{"method":5,"id":12}"#, None, "method"),
            (r#"{"method":"status/update","id":true,"params":{"message":"x"}}"#, None, "id"),
            (r#"{"method":"tea/brew","id":{}}"#, None, "id"),
        ],
    );
}

#[test]
fn what_is_optional_may_be_left_out() {
    let daemon = Daemon::quick("");
    let odd_risk = r#"raw:{"method":"clearance/request","id":1,"params":{"title":"t","risk_level":9}}"#;
    let odd_steps = r#"heartbeat:[7,{"label":"x"},{"status":"completed"}]"#;
    let bare = [r#"raw:{"method":"heartbeat"}"#, r#"raw:{"method":"turn/end"}"#];
    let session = daemon.run(&[odd_risk, bare[0], odd_steps, bare[1], "status:on"]);
    let events = daemon.all_events(&session);
    assert!(of_kind(&events, "line.rejected").is_empty(), "{events:#?}");
    assert_eq!(of_kind(&events, "heartbeat").len(), 2);
    assert_eq!(of_kind(&events, "clearance.requested")[0]["data"]["risk"], "high");
    assert_eq!(of_kind(&events, "turn.ended")[0]["data"]["stop_reason"], "end_turn");
}

#[test]
fn an_id_that_is_open_is_refused_and_the_first_request_is_untouched() {
    let daemon = Daemon::quick("");
    let steps = [
        "clearance:a:First",
        "clearance:a:Second",
        "question:a:Third?",
        "answer:a",
        "answer:a",
        "status:refused",
        "answer:a",
        "clearance:a:Fourth",
        "answer:a",
    ];
    let session = daemon.run(&steps);
    daemon.wait_status(&session, "refused");
    let first = daemon.clearance(&session);
    let (_, shown) = daemon.get(&format!("/api/v1/clearances/{first}"));
    assert_eq!((&shown["title"], &shown["status"]), (&json!("First"), &json!("pending")));
    assert_eq!(daemon.show(&session)["pending"], json!({"clearances": 1, "questions": 0}));
    daemon.decide(&first, "deny");
    let fourth = daemon.wait_for(&session, "a fourth", |event| event["data"]["title"] == "Fourth");
    daemon.decide(fourth["data"]["clearance"].as_str().unwrap(), "approve");

    let events = daemon.all_events(&session);
    let answers: Vec<_> =
        of_kind(&events, "status").iter().filter_map(|event| event["data"]["status"].as_str()).collect();
    assert_eq!(answers, ["duplicate_id", "duplicate_id", "rejected", "approved"]);
    let rejected = of_kind(&events, "line.rejected");
    let methods: Vec<_> = rejected.iter().map(|event| event["data"]["method"].as_str().unwrap()).collect();
    assert_eq!(methods, ["clearance/request", "prompt/forward"]);
    let line = r#"{"id":"a","method":"clearance/request","params":{"title":"Second"}}"#;
    assert_eq!(rejected[0]["data"]["bytes"], line.len(), "of the line, as for any other: {}", rejected[0]);
    assert!(
        rejected[0]["data"]["excerpt"].as_str().unwrap().contains("clearance/request"),
        "{}",
        rejected[0]
    );
    assert!(daemon.log().contains("a line was rejected: a request with id"), "{}", daemon.log());
    assert_eq!(of_kind(&events, "clearance.requested").len(), 2);
}

#[test]
fn the_same_id_in_two_sessions_is_two_clearances() {
    let daemon = Daemon::quick("");
    let [one, two] = ["one", "two"].map(|name| daemon.run(&[&format!("clearance:#1:{name}"), "answer:#1"]));
    let (first, second) = (daemon.clearance(&one), daemon.clearance(&two));
    daemon.decide(&second, "deny");
    assert_eq!(daemon.show(&one)["phase"], "waiting");
    daemon.decide(&first, "approve");
    assert_eq!(daemon.wait_status(&one, "answered")["status"], "approved");
    assert_eq!(daemon.wait_status(&two, "answered")["status"], "rejected");
    for session in [one, two] {
        assert!(of_kind(&daemon.all_events(&session), "line.rejected").is_empty());
    }
}

#[test]
fn an_id_is_echoed_with_its_type_and_spelling() {
    let daemon = Daemon::quick("");
    let ids =
        ["7", "\"7\"", "7.0", "-3", "1e2", "12345678901234567890123", r#""a \"quoted\" id / é""#, "\"\""];
    let lines =
        ids.map(|id| format!(r#"raw:{{"method":"clearance/request","id":{id},"params":{{"title":"x"}}}}"#));
    let mut steps: Vec<&str> = lines.iter().map(String::as_str).collect();
    let echo = format!("echo:{}", ids.len());
    steps.extend(["status:on", &echo]);
    let session = daemon.run(&steps);
    daemon.wait_status(&session, "on");
    let events = daemon.so_far(&session);
    for event in of_kind(&events, "clearance.requested") {
        daemon.decide(event["data"]["clearance"].as_str().unwrap(), "approve");
    }
    let events = daemon.all_events(&session);
    let lines: Vec<_> =
        of_kind(&events, "status")[1..].iter().map(|e| e["data"]["line"].as_str().unwrap()).collect();
    assert_eq!(lines.len(), ids.len(), "none of them is the same id: {events:#?}");
    for (line, id) in lines.iter().zip(ids) {
        assert!(line.starts_with(&format!("{{\"id\":{id},")), "{id}: {line}");
    }
}

#[test]
fn stderr_is_drained_whatever_comes_and_its_end_is_kept() {
    let daemon = Daemon::quick("[limits]\nstderr_tail_bytes = 2048\n");
    let session = daemon.run(&["flood-stderr:8000000", "stderr:nearly done", "status:on", "echo:1"]);
    daemon.wait_status(&session, "on");
    let mut daemon = daemon;
    let tail = daemon.until("the end of stderr", |daemon| {
        let tail = daemon.show(&session)["stderr_tail"].as_str().unwrap().to_owned();
        tail.ends_with("nearly done\n").then_some(tail)
    });
    assert!(tail.len() <= 2048 && tail.starts_with('e'), "{tail}");
    nothing_more_was_sent(&daemon, &session);
    let exited = daemon.wait_kind(&session, "agent.exited");
    assert_eq!(exited["data"]["stderr_tail"], json!(tail));
    assert_eq!(daemon.show(&session)["stderr_tail"], json!(tail));
}

#[test]
fn last_words_on_stderr_are_in_the_exit_event() {
    let daemon = Daemon::quick("");
    for _ in 0..20 {
        let session = daemon.run(&["flood-stderr:50000", "stderr:panicked: no more ideas", "exit:101"]);
        let exited = daemon.wait_kind(&session, "agent.exited");
        let tail = exited["data"]["stderr_tail"].as_str().unwrap();
        assert!(tail.ends_with("panicked: no more ideas\n"), "{tail}");
        assert_eq!(exited["data"]["code"], 101);
    }
}

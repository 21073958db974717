//! Permission requests in the shapes that agents send, and what people and policy see of them. Those of Claude, Codex,
//! Gemini and `OpenCode` were recorded and shortened, except where it says otherwise.

use std::path::Path;

use serde_json::json;

use super::*;
use crate::acp::permission::PermissionDetails;
use crate::acp::tool::ToolCall;
use intercom_policy::{self as policy, PolicyOutcome, PolicyRequest, Rule, Rules};
use intercom_types::Time;

/// The card of a request with this tool call.
fn of(tool: &serde_json::Value) -> PermissionDetails {
    let params = json!({ "sessionId": "s", "toolCall": tool, "options": [] }).to_string();
    permission_details(&permission(&params), None, "/w")
}

/// Everything on it but the description and the options.
fn seen(card: &PermissionDetails) -> String {
    let or = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let paths: Vec<&str> = card.file_path.iter().chain(&card.more_paths).map(String::as_str).collect();
    let diff = card.diff.as_deref().unwrap_or("-").replace('\n', "⏎");
    format!("{} | {} | {} | {} | {diff}", card.title, or(&card.tool), or(&card.command), paths.join(","))
}

#[test]
fn claude_says_everything_in_the_request() {
    let write = json!({ "toolCallId": "t", "name": "Write", "status": "pending", "title": "Write new.txt", "kind": "edit",
        "rawInput": { "file_path": "/w/new.txt", "content": "hello world" },
        "content": [{ "type": "diff", "path": "/w/new.txt", "oldText": null, "newText": "hello world" }],
        "locations": [{ "path": "/w/new.txt" }] });
    assert_eq!(
        seen(&of(&write)),
        "Write new.txt | edit | - | /w/new.txt | --- /dev/null⏎+++ /w/new.txt⏎@@ -0,0 +1 @@⏎+hello world⏎\\ No newline at end of file⏎"
    );
    // Its edits are only the part that changes.
    let edit = json!({ "toolCallId": "t", "title": "Edit a.txt", "kind": "edit",
        "rawInput": { "file_path": "/w/a.txt", "old_string": "two\n", "new_string": "zwei\n" },
        "content": [{ "type": "diff", "path": "/w/a.txt", "oldText": "two\n", "newText": "zwei\n" }],
        "locations": [{ "path": "/w/a.txt" }] });
    assert_eq!(
        seen(&of(&edit)),
        "Edit a.txt | edit | - | /w/a.txt | --- /w/a.txt⏎+++ /w/a.txt⏎@@ -1 +1 @@⏎-two⏎+zwei⏎"
    );
    let bash = json!({ "toolCallId": "t", "name": "Bash", "title": "touch /w/y", "kind": "execute", "content": [],
        "rawInput": { "command": "touch /w/y", "description": "Make y" }, "locations": [{ "path": "/w/y" }] });
    assert_eq!(seen(&of(&bash)), "touch /w/y | execute | touch /w/y | /w/y | -");
    assert_eq!(of(&bash).description.as_deref(), Some("Make y"));
    // Not recorded.
    let plan = json!({ "toolCallId": "t", "title": "Ready to code?", "kind": "switch_mode",
        "content": [{ "type": "content", "content": { "type": "text", "text": "1. Write it" } }] });
    assert_eq!(seen(&of(&plan)), "Ready to code? | switch_mode | - |  | -");
    assert_eq!(of(&plan).description.as_deref(), Some("1. Write it"));
}

#[test]
fn codex_shows_its_diff_before_it_asks() {
    let announced = r#"{"sessionUpdate":"tool_call","toolCallId":"c","kind":"edit","title":"Editing files","status":"in_progress",
        "content":[{"type":"diff","oldText":null,"newText":"a\n","path":"/w/new.txt","_meta":{"kind":"add"}}]}"#;
    let params = r#"{"sessionId":"s","toolCall":{"toolCallId":"c","title":"Edit files","locations":[{"path":"/w/new.txt"}],
        "kind":"edit","status":"pending"},"options":[
        {"optionId":"allow_once","name":"Yes, proceed","kind":"allow_once"},
        {"optionId":"cancel","name":"No","kind":"reject_once"}]}"#;
    let permission = permission(params);
    let alone = permission_details(&permission, None, "/w");
    assert_eq!(seen(&alone), "Edit files | edit | - | /w/new.txt | -");
    let announced = ToolCall::read(raw(announced)).unwrap();
    let both = permission_details(&permission, Some(&announced), "/w");
    assert_eq!(
        seen(&both),
        "Edit files | edit | - | /w/new.txt | --- /dev/null⏎+++ /w/new.txt⏎@@ -0,0 +1 @@⏎+a⏎"
    );
    let options: Vec<&str> = both.options.iter().map(|option| &*option.kind).collect();
    assert_eq!(options, ["allow_once", "reject_once"]);

    let run = json!({ "toolCallId": "c", "title": "ls", "kind": "execute", "rawInput": { "command": "ls", "cwd": "/w/" } });
    assert_eq!(seen(&of(&run)), "ls | execute | ls |  | -");
    // Not recorded: a list of words, and a command that counts as reading.
    let older = json!({ "toolCallId": "c", "title": "Read x", "kind": "read",
        "rawInput": { "command": ["/bin/bash", "-lc", "cat x"], "cwd": "/w" } });
    assert_eq!(seen(&of(&older)), "Read x | read | cat x |  | -");
}

#[test]
fn gemini_has_the_command_in_the_title_only() {
    let run = json!({ "toolCallId": "t", "status": "pending", "title": "touch y", "locations": [], "kind": "execute",
        "content": [{ "type": "content", "content": { "type": "text", "text": "[current working directory /w]" } }] });
    let card = of(&run);
    assert_eq!(seen(&card), "touch y | execute | touch y; # as the title says |  | -");
    assert_eq!(card.description.as_deref(), Some("[current working directory /w]"));
}

#[test]
fn opencode_and_copilot_bring_a_diff_in_the_input() {
    let input = json!({ "filepath": "/w/a", "diff": "--- /w/a\n+++ /w/a\n@@ -1 +1 @@\n-x\n+y\n" });
    let opencode = json!({ "toolCallId": "t", "title": "/w/a", "kind": "edit", "locations": [{ "path": "/w/a" }], "rawInput": input,
        "content": [{ "type": "diff", "path": "/w/a", "oldText": "x\n", "newText": "y\n" }] });
    let expected = "--- /w/a⏎+++ /w/a⏎@@ -1 +1 @@⏎-x⏎+y⏎";
    assert_eq!(seen(&of(&opencode)), format!("/w/a | edit | - | /w/a | {expected}"));
    // Not recorded: only that the diff is in the input.
    let copilot = json!({ "toolCallId": "t", "title": "Edit a", "rawInput": { "fileName": "/w/a", "diff": input["diff"] } });
    assert_eq!(seen(&of(&copilot)), format!("Edit a | edit | - | /w/a | {expected}"));
}

#[test]
fn a_tool_call_is_named_by_whatever_it_has() {
    let cases = [
        (json!({}), "the agent asks for permission | - | - |  | -"),
        (json!({ "title": " ", "name": "Fetch", "kind": "fetch" }), "Fetch | fetch | - |  | -"),
        (json!({ "title": "t", "kind": "levitate" }), "t | other | - |  | -"),
        (json!({ "title": "t", "kind": "search", "rawInput": { "path": "/w" } }), "t | search | - | /w | -"),
        (
            json!({ "title": "t", "kind": "delete", "locations": [{ "path": "a" }, { "path": "/etc/b" }, { "path": "a" }] }),
            "t | delete | - | a,/etc/b | -",
        ),
        (json!({ "title": "`ls`", "kind": "execute" }), "`ls` | execute | ls; # as the title says |  | -"),
        (
            json!({ "title": "t", "kind": "read", "content": [{ "type": "diff", "path": "a", "oldText": "x\n", "newText": "" }] }),
            "t | read | - | a | --- a/a⏎+++ b/a⏎@@ -1 +0,0 @@⏎-x⏎",
        ),
    ];
    for (tool, expected) in cases {
        assert_eq!(seen(&of(&tool)), expected, "{tool}");
    }
    assert_eq!(permission_details(&permission("{}"), None, "/w").title, "the agent asks for permission");
}

#[test]
fn commands_are_read_from_every_shape() {
    let cases = [
        (json!({ "command": "a && b" }), Some("a && b")),
        (json!({ "cmd": "a" }), Some("a")),
        (json!({ "command": "", "cmd": ["a", "b c", "it's", ""] }), Some(r"a 'b c' 'it'\''s' ''")),
        (json!({ "command": ["bash", "-lc", "a | b"] }), Some("a | b")),
        (json!({ "command": ["./bash", "-c", "a"] }), Some("./bash -c a")),
        (json!({ "command": ["bash", "-c", "a", "x"] }), Some("bash -c a x")),
        (json!({ "command": ["X=1", "a", "--b=c"] }), Some("'X=1' a --b=c")),
        (json!({ "command": "git", "args": ["push", "--force"] }), Some("git push --force")),
        (json!({ "command": "a", "args": "b" }), Some("\"a\"")),
        (json!({ "command": ["a", 7] }), Some(r#"["a",7]"#)),
        (json!({ "command": { "x": 1 } }), Some(r#"{"x":1}"#)),
        (json!({ "command": "a", "cwd": "/w" }), Some("a")),
        (json!({ "command": "a", "cwd": "." }), Some("a")),
        (json!({ "command": "a", "workdir": "/else where" }), Some("cd '/else where' && a")),
        (json!({ "command": [] }), None),
        (json!("a"), None),
    ];
    for (input, expected) in cases {
        let card = of(&json!({ "title": "t", "rawInput": input }));
        assert_eq!(card.command.as_deref(), expected, "{input}");
        assert_eq!(card.tool.as_deref(), expected.map(|_| "execute"), "{input}");
    }
}

/// What a single rule makes of a card.
fn ruled(rule: &str, card: &PermissionDetails, workspace: &Path) -> &'static str {
    let rule: Rule = toml::from_str(rule).unwrap();
    let rules = Rules::compile(vec![rule], |_| Time::from_millis(0)).unwrap();
    let subject = PolicyRequest {
        workspace: workspace.to_owned(),
        tool: card.tool.clone(),
        title: card.title.clone(),
        paths: card.file_path.iter().chain(&card.more_paths).cloned().collect(),
        command: card.command.clone(),
        diff: card.diff.clone(),
        ..PolicyRequest::default()
    };
    let request = policy::resolve(subject);
    match policy::decide(&rules, &request, &policy::assess(&request), Time::from_millis(0)).outcome {
        PolicyOutcome::Allow => "allow",
        PolicyOutcome::Deny { .. } => "deny",
        PolicyOutcome::Ask { .. } => "ask",
    }
}

#[test]
fn policy_reads_the_diffs_and_the_paths() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    std::fs::create_dir(root.join("src")).unwrap();
    let inside = format!("{}/src/a.rs", root.display());
    let edit = |path: &str| json!({ "type": "diff", "path": path, "oldText": "a\nb\n", "newText": "a\nc\n" });
    let new = json!({ "type": "diff", "path": inside, "newText": "a\nb\n" });
    let rule =
        |lines: usize| format!("then = 'allow'\ntool = 'edit'\npath = 'src/**'\nmax_diff_lines = {lines}");
    let cases = [
        (vec![edit(&inside)], vec![&*inside], 2, "allow"),
        (vec![edit("src/a.rs")], vec![], 2, "allow"),
        (vec![new], vec![], 2, "allow"),
        (vec![edit(&inside)], vec![], 1, "ask"),
        (vec![edit(&inside), edit("src/b.rs")], vec![], 2, "ask"),
        (vec![edit(&inside), edit("src/b.rs")], vec![], 4, "allow"),
        (vec![edit(&inside), edit("/etc/b")], vec![], 4, "ask"),
        (vec![edit(&inside)], vec![&*inside, "/etc/b"], 2, "ask"),
        (vec![edit("src/a\n+++ b/src/b")], vec![], 9, "ask"),
        (vec![edit("src/a\tb")], vec![], 9, "ask"),
    ];
    for (content, locations, lines, expected) in cases {
        let locations: Vec<_> = locations.iter().map(|path| json!({ "path": path })).collect();
        let tool = json!({ "title": "t", "kind": "edit", "content": content, "locations": locations });
        assert_eq!(ruled(&rule(lines), &of(&tool), &root), expected, "{tool}");
    }
}

#[test]
fn doubt_about_a_command_denies_but_never_allows() {
    let rule = |then: &str, tool: &serde_json::Value| {
        ruled(&format!("then = '{then}'\ncommand = 'cargo test'"), &of(tool), Path::new("/w"))
    };
    let given =
        json!({ "title": "t", "kind": "execute", "rawInput": { "command": ["bash", "-lc", "cargo test"] } });
    assert_eq!(rule("allow", &given), "allow");
    let doubtful = [
        json!({ "title": "cargo test", "kind": "execute" }),
        json!({ "title": "cargo test \\", "kind": "execute" }),
        json!({ "title": "t", "rawInput": { "command": "cargo test", "cwd": "/etc" } }),
    ];
    for tool in doubtful {
        assert_eq!(rule("allow", &tool), "ask", "{tool}");
        assert_eq!(rule("deny", &tool), "deny", "{tool}");
    }
}

/// A request for `delete /etc/passwd` that brings a harmless command, in the shapes that hide what is asked for.
#[test]
fn a_command_in_the_input_does_not_replace_what_is_asked_for() {
    let ls = "then = 'allow'\ncommand = 'ls'";
    let etc = "then = 'deny'\npath = '/etc/**'";
    let w = Path::new("/w");
    let hidden = [
        json!({ "kind": "delete", "locations": [{ "path": "/etc/passwd" }], "rawInput": { "command": "ls" } }),
        json!({ "kind": "execute", "locations": [{ "path": "/etc/passwd" }], "rawInput": { "command": "ls" } }),
        json!({ "kind": "edit", "content": [{ "type": "diff", "path": "/etc/passwd" }], "rawInput": { "command": "ls" } }),
        json!({ "kind": "execute", "content": { "type": "diff", "path": "/etc/passwd", "newText": "x" }, "rawInput": { "command": "ls" } }),
        json!({ "kind": "execute", "rawInput": { "command": "ls", "target_file": "/etc/passwd" } }),
        json!({ "kind": "execute", "rawInput": { "command": "ls", "files": [{ "name": "x", "filePath": "/etc/passwd" }] } }),
        json!({ "kind": "execute", "rawInput": { "command": "ls", "edits": { "destination": ["/etc/passwd"] } } }),
        json!({ "kind": "execute", "rawInput": { "command": "ls", "whatever": "/etc/passwd" } }),
        json!({ "kind": "execute", "rawInput": { "command": "ls", "input": "{\"path\":\"/etc/passwd\"}" } }),
        json!({ "kind": "execute", "rawInput": { "command": "ls", "uri": "file:///etc/passwd" } }),
        json!({ "kind": "execute", "rawInput": { "command": "ls", "patch": "--- /etc/passwd\n+++ /etc/passwd\n@@ -1 +1 @@\n-a\n+b\n" } }),
        json!({ "kind": "execute", "rawInput": { "command": "ls", "script": "rm /etc/passwd" } }),
        json!({ "kind": "execute", "rawInput": { "command": "ls", "cwd": "/w", "workdir": "/etc/x" } }),
        json!({ "kind": "execute", "rawInput": { "command": "ls", "changes": { "/etc/passwd": { "type": "delete" } } } }),
        json!({ "kind": "execute", "rawInput": { "command": "ls", "changes": { "file:///etc/passwd": [] } } }),
        json!({ "kind": "execute", "rawInput": { "command": "ls", "move_path": "../etc/passwd" } }),
        json!({ "kind": "execute", "rawInput": { "command": "ls", "input": "*** Begin Patch\n*** Update File: /etc/passwd\n-a\n+b\n*** End Patch\n" } }),
    ];
    for mut tool in hidden {
        tool["title"] = json!("t");
        let card = of(&tool);
        assert_eq!(ruled(ls, &card, w), "ask", "{tool}: {card:?}");
        assert_eq!(ruled(etc, &card, w), "deny", "{tool}: {card:?}");
    }
    // Agents name the files of a command beside it.
    let named = json!({ "kind": "execute", "title": "t", "locations": [{ "path": "/w/src" }], "rawInput": { "command": "ls src", "cwd": "/w" } });
    assert_eq!(ruled(ls, &of(&named), w), "allow");
}

#[test]
fn every_command_and_variable_of_the_input_counts() {
    let command = |input: serde_json::Value| of(&json!({ "title": "t", "rawInput": input })).command;
    let cases = [
        (json!({ "command": "ls", "cmd": "ls" }), "ls"),
        (json!({ "command": "ls 'x", "script": "rm 'y" }), "sh -c 'ls '\\''x'\nsh -c 'rm '\\''y'"),
        (json!({ "command": "ls", "env": { "PATH": ".", "A": "b c" } }), "export PATH=. A='b c' && ls"),
        (json!({ "command": "ls", "env": [{ "name": "PATH", "value": "." }] }), "export PATH=. && ls"),
        (json!({ "command": "ls", "environment": ["PATH=.", "a;b=c"] }), "export PATH=. 'a;b'=c && ls"),
        (json!({ "env": { "PATH": "." } }), "export PATH=."),
        (json!({ "commands": ["ls", "rm x"] }), "sh -c ls\nsh -c 'rm x'"),
        (json!({ "tool": { "arguments": { "command": "rm x" } } }), "rm x"),
        (json!({ "command": "ls", "dir": "a", "cwd": "/b" }), "cd a && cd /b && ls"),
    ];
    for (input, expected) in cases {
        assert_eq!(command(input.clone()).as_deref(), Some(expected), "{input}");
    }
    // Parsers differ in which of two equal keys they take.
    let twice = r#"{"sessionId":"s","toolCall":{"title":"t","rawInput":{"command":"ls","command":"rm x"}},"options":[]}"#;
    assert_eq!(
        permission_details(&permission(twice), None, "/w").command.as_deref(),
        Some("sh -c ls\nsh -c 'rm x'")
    );
    for rule in ["then = 'deny'\ncommand = 'rm'", "then = 'ask'\ncommand = 'ls'\nask = ['ana']"] {
        let expected = if rule.contains("deny") { "deny" } else { "ask" };
        assert_eq!(
            ruled(rule, &permission_details(&permission(twice), None, "/w"), Path::new("/w")),
            expected
        );
    }
}

#[test]
fn an_input_of_any_size_is_read_within_bounds() {
    let many: Vec<String> = (0..2000).map(|n| format!("src/{n}")).collect();
    let card = of(&json!({ "title": "t", "kind": "edit", "rawInput": { "paths": many } }));
    assert_eq!(card.more_paths.len(), 500);
    assert_eq!(ruled("then = 'allow'\ntool = 'edit'", &card, Path::new("/w")), "ask");
    let mut deep = json!({ "path": "/etc/passwd" });
    for _ in 0..60 {
        deep = json!({ "x": deep });
    }
    let card =
        of(&json!({ "title": "t", "kind": "edit", "rawInput": deep, "locations": [{ "path": "src/a" }] }));
    assert_eq!(ruled("then = 'allow'\ntool = 'edit'", &card, Path::new("/w")), "ask");
}

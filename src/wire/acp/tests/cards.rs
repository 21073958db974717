//! Permission requests in the shapes that agents send, and what people and policy see of them. Those of Claude, Codex,
//! Gemini and `OpenCode` were recorded and shortened, except where it says otherwise.

use std::path::Path;

use serde_json::json;

use super::*;
use crate::domain::Time;
use crate::policy::{self, Outcome, Rule, Rules, Subject};
use crate::wire::acp::permission::Card;
use crate::wire::acp::tool::ToolCall;

/// The card of a request with this tool call.
fn of(tool: &serde_json::Value) -> Card {
    let params = json!({ "sessionId": "s", "toolCall": tool, "options": [] }).to_string();
    card(&permission(&params), None, "/w")
}

/// Everything on it but the description and the options.
fn seen(card: &Card) -> String {
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
    assert_eq!(seen(&of(&bash)), "touch /w/y | execute | touch /w/y |  | -");
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
    let alone = card(&permission, None, "/w");
    assert_eq!(seen(&alone), "Edit files | edit | - | /w/new.txt | -");
    let announced = ToolCall::read(raw(announced)).unwrap();
    let both = card(&permission, Some(&announced), "/w");
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
    assert_eq!(seen(&of(&older)), "Read x | execute | cat x |  | -");
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
            "t | edit | - | a | --- a/a⏎+++ b/a⏎@@ -1 +0,0 @@⏎-x⏎",
        ),
    ];
    for (tool, expected) in cases {
        assert_eq!(seen(&of(&tool)), expected, "{tool}");
    }
    assert_eq!(card(&permission("{}"), None, "/w").title, "the agent asks for permission");
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
fn ruled(rule: &str, card: &Card, workspace: &Path) -> &'static str {
    let rule: Rule = toml::from_str(rule).unwrap();
    let rules = Rules::compile(vec![rule], |_| Time::from_millis(0)).unwrap();
    let subject = Subject {
        workspace: workspace.to_owned(),
        tool: card.tool.clone(),
        title: card.title.clone(),
        paths: card.file_path.iter().chain(&card.more_paths).cloned().collect(),
        command: card.command.clone(),
        diff: card.diff.clone(),
        ..Subject::default()
    };
    let request = policy::resolve(subject);
    match policy::decide(&rules, &request, &policy::assess(&request), Time::from_millis(0)).outcome {
        Outcome::Allow => "allow",
        Outcome::Deny { .. } => "deny",
        Outcome::Ask { .. } => "ask",
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

//! Shapes of requests and messages that hide what they are about, through the real binary.

use intercom_testkit::harness::{Daemon, QUICK, of_kind};
use serde_json::{Value, json};

const RULES: &str = r#"
[[rule]]
name = "no etc"
path = "/etc/**"
then = "deny"

[[rule]]
name = "no rm"
command = "rm"
then = "deny"

[[rule]]
name = "looking"
command = [["ls"], ["cat"]]
then = "allow"
"#;

/// Requests for permission that say `ls` somewhere and something else elsewhere.
fn hidden() -> Vec<Value> {
    let ls = |more: Value| {
        let mut input = json!({ "command": "ls" });
        input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "kind": "execute", "title": "ls", "rawInput": input })
    };
    vec![
        ls(json!({ "args": ["rm", "-rf", "x"] })),
        ls(json!({ "Command": "rm -rf x" })),
        ls(json!({ "commands": ["ls", "rm -rf x"] })),
        ls(json!({ "commandLine": "rm -rf x" })),
        ls(json!({ "shell_command": "rm -rf x" })),
        ls(json!({ "script": "rm -rf x" })),
        ls(json!({ "stdin": "rm -rf x" })),
        ls(json!({ "argv": ["rm", "-rf", "x"] })),
        ls(json!({ "shell": "/tmp/evil" })),
        ls(json!({ "executable": "rm" })),
        ls(json!({ "program": "rm" })),
        ls(json!({ "cwd": "/etc" })),
        ls(json!({ "workdir": "/etc" })),
        ls(json!({ "env": { "LD_PRELOAD": "./evil.so" } })),
        ls(json!({ "env": [{ "name": "LD_PRELOAD", "value": "./evil.so" }] })),
        ls(json!({ "env": ["LD_PRELOAD=./evil.so"] })),
        ls(json!({ "options": { "env": { "PATH": "/tmp" } } })),
        ls(json!({ "options": { "command": "rm -rf x" } })),
        ls(json!({ "steps": [{ "run": "rm -rf x" }] })),
        ls(json!({ "then": { "cmd": ["rm", "-rf", "x"] } })),
        ls(json!({ "payload": "{\"command\":\"rm -rf x\"}" })),
        ls(json!({ "file_path": "/etc/passwd" })),
        ls(json!({ "filePath": "/etc/passwd" })),
        ls(json!({ "uri": "file:///etc/passwd" })),
        ls(json!({ "edits": [{ "path": "/etc/passwd", "newText": "x" }] })),
        ls(json!({ "files": { "/etc/passwd": "x" } })),
        ls(json!({ "target": "/etc/passwd" })),
        ls(json!({ "patch": "--- a/x\n+++ b//etc/passwd\n@@ -1 +1 @@\n-a\n+b\n" })),
        json!({ "kind": "execute", "title": "ls", "rawInput": ["ls", "&&", "rm", "-rf", "x"] }),
        json!({ "kind": "execute", "title": "ls", "rawInput": "{\"command\":\"rm -rf x\"}" }),
        json!({ "kind": "execute", "title": "ls", "rawInput": { "command": ["sh", "-c", "rm -rf x"] } }),
        json!({ "kind": "execute", "title": "ls", "rawInput": { "command": "ls\nrm -rf x" } }),
        json!({ "kind": "execute", "title": "ls", "rawInput": { "command": { "ls": "rm -rf x" } } }),
        json!({ "kind": "delete", "title": "ls", "rawInput": { "command": "ls" } }),
        json!({ "kind": "edit", "title": "ls", "rawInput": { "command": "ls" } }),
        json!({ "kind": "execute", "title": "ls", "rawInput": { "command": "ls" },
                "locations": [{ "path": "/etc/passwd" }] }),
        json!({ "kind": "execute", "title": "ls", "rawInput": { "command": "ls" },
                "content": [{ "type": "diff", "path": "/etc/passwd", "oldText": "a", "newText": "b" }] }),
        json!({ "kind": "execute", "title": "ls", "rawInput": { "command": "ls" },
                "content": [{ "type": "diff", "path": "/etc/passwd", "oldText": "a" }] }),
        json!({ "kind": "execute", "title": "ls", "rawInput": { "command": "ls" },
                "content": [{ "type": "content", "content": { "type": "text", "text": "ok" } },
                            { "type": "diff", "path": "x", "newText": "b" }] }),
        json!({ "kind": "execute", "title": "rm -rf x", "rawInput": { "command": "git config alias.x '!rm -rf y'" } }),
        json!({ "kind": "execute", "title": "ls", "rawInput": { "command": "cp /bin/rm ls; ./ls x" } }),
        json!({ "kind": "execute", "title": "ls", "rawInput": { "command": "GOFLAGS=-toolexec=rm go build" } }),
    ]
}

#[test]
fn no_shape_of_a_request_gets_more_than_the_rule_about_ls_allows() {
    let daemon = Daemon::with_config(&format!("{QUICK}{RULES}"));
    let requests = hidden();
    let steps: Vec<String> = requests
        .iter()
        .enumerate()
        .map(|(n, call)| {
            let mut call = call.clone();
            call["toolCallId"] = format!("call-{n}").into();
            let options = json!([{ "optionId": "yes", "name": "Yes", "kind": "allow_once" },
                                 { "optionId": "no", "name": "No", "kind": "reject_once" }]);
            let params = json!({ "sessionId": "$session", "toolCall": call, "options": options });
            format!("ask:request:session/request_permission:{params}")
        })
        .collect();
    let session = daemon.run_acp(&[]);
    daemon.prompt(&session, &json!(steps).to_string());
    let last = format!("call-{}", requests.len() - 1);
    daemon.wait_for(&session, "the last request", |event| {
        event["kind"] == "clearance.requested"
            && event["data"]["request"]["params"]["toolCall"]["toolCallId"] == last.as_str()
    });
    let all = daemon.so_far(&session);
    let asked: Vec<&Value> = of_kind(&all, "clearance.requested");
    assert_eq!(asked.len(), requests.len());
    let allowed: Vec<&Value> = asked
        .iter()
        .map(|event| &event["data"])
        .filter(|data| data["ruling"]["outcome"] == "allow")
        .collect();
    assert!(allowed.is_empty(), "{allowed:#?}");
}

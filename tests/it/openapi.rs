//! `openapi.json` is true: what the daemon really answers is what it says it answers.

use intercom_testkit::harness::{self, Daemon};
use serde_json::{Value, json};

struct Described<'a> {
    daemon: &'a Daemon,
    document: Value,
    tried: Vec<String>,
}

impl Described<'_> {
    /// Calls it, and holds the answer against its description.
    #[track_caller]
    fn call(&mut self, method: &str, template: &str, id: &str, query: &str, body: Option<&Value>) -> Value {
        let path = format!("/api/v1{}{query}", template.replace("{id}", id));
        let body = body.map(ToString::to_string);
        let headers = [("accept", "application/json")];
        let (status, text) = harness::http(&self.daemon.socket(), method, &path, body.as_deref(), &headers);
        let operation = &self.document["paths"][format!("/api/v1{template}")][method.to_ascii_lowercase()];
        let answer = &operation["responses"][status.to_string()];
        let answer = if answer.is_null() { &operation["responses"]["default"] } else { answer };
        assert!(!answer.is_null(), "{method} {template} is not described");
        self.tried.push(format!("{method} {template}"));
        let schema = &answer["content"]["application/json"]["schema"];
        if schema.is_null() {
            assert!(text.is_empty(), "{method} {template} answers something");
            return Value::Null;
        }
        let none = serde_json::Map::new();
        let schema = schema.as_object().unwrap_or(&none); // `true` is anything
        let value: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{method} {path}: {text}"));
        let mut whole = schema.clone();
        whole.insert("components".to_owned(), self.document["components"].clone());
        let validator = jsonschema::draft202012::new(&Value::Object(whole)).unwrap();
        let errors: Vec<String> =
            validator.iter_errors(&value).map(|e| format!("{}: {e}", e.instance_path())).collect();
        assert!(errors.is_empty(), "{method} {path} {status}: {errors:#?}\n{value:#}");
        // Nothing is answered that is not described, either.
        if let (Some(answered), Some(name)) = (value.as_object(), schema.get("$ref").and_then(Value::as_str))
        {
            let described = &self.document.pointer(name.trim_start_matches('#')).unwrap()["properties"];
            for key in answered.keys().filter(|_| described.is_object() && !name.ends_with("/Error")) {
                assert!(
                    described[key].is_object() || described[key] == json!(true),
                    "{method} {path}: {key} is not described"
                );
            }
        }
        value
    }
}

#[test]
fn every_answer_is_as_described() {
    let daemon = Daemon::start();
    let (_, document) = daemon.get("/api/v1/openapi.json");
    assert_eq!(document["openapi"], "3.1.0");
    let mut described = Described { daemon: &daemon, document, tried: Vec::new() };
    let start = json!({
        "command": harness::fixture(), "workspace": daemon.workspace(), "name": "shop", "prompt": "[]",
        "args": [r#"clearance:1:{"title":"May I?","file_path":"a.rs","diff":"+a","risk_level":"low","command":"cargo test"}"#, "question:2:How?", "answer:1", "serve"],
    });
    let session = described.call("POST", "/sessions", "", "", Some(&start));
    let id = session["id"].as_str().unwrap().to_owned();
    let (clearance, question) = (daemon.clearance(&id), daemon.question(&id));
    for (path, id) in [
        ("/health", ""),
        ("/openapi.json", ""),
        ("/agents", ""),
        ("/sessions", ""),
        ("/sessions/{id}", &*id),
        ("/sessions/{id}/prompts", &id),
        ("/sessions/{id}", "nonesuch"),
        ("/clearances", ""),
        ("/clearances/{id}", &clearance),
        ("/clearances/{id}/explanation", &clearance),
        ("/questions", ""),
        ("/questions/{id}", &question),
        ("/events", ""),
        ("/policy", ""),
        ("/grants", ""),
        ("/tokens", ""),
        ("/figures", ""),
        ("/web/sessions", ""),
        ("/audit", ""),
        ("/audit/verify", ""),
    ] {
        described.call("GET", path, id, "", None);
    }
    described.call("GET", "/sessions", "", "?all=true&limit=1", None);
    described.call("GET", "/sessions", "", "?nonsense=1", None);
    described.call(
        "POST",
        "/clearances/{id}/decision",
        &clearance,
        "",
        Some(&json!({ "decision": "approve" })),
    );
    described.call("POST", "/clearances/{id}/decision", &clearance, "", Some(&json!({ "decision": "deny" })));
    described.call("POST", "/questions/{id}/answer", &question, "", Some(&json!({ "decision": "continue" })));
    let prompt = described.call("POST", "/sessions/{id}/prompts", &id, "", Some(&json!({ "text": "[]" })));
    assert!(prompt["id"].is_string(), "{prompt}");
    described.call(
        "POST",
        "/prompts/{id}",
        prompt["id"].as_str().unwrap(),
        "",
        Some(&json!({ "text": "other words" })),
    );
    described.call("DELETE", "/prompts/{id}", prompt["id"].as_str().unwrap(), "", None);
    described.call("POST", "/sessions/{id}/nudge", &id, "", Some(&json!({})));
    described.call("POST", "/sessions/{id}/interrupt", &id, "", Some(&json!({})));
    described.call("POST", "/sessions/{id}/seen", &id, "", Some(&json!({})));
    described.call("POST", "/sessions/{id}/snooze", &id, "", Some(&json!({ "for": "1m" })));
    described.call("POST", "/sessions/{id}/ladder", &id, "", Some(&json!({ "ladder": "off" })));
    let later = json!({ "command": harness::fixture(), "workspace": daemon.workspace(), "defer": true });
    let later = described.call("POST", "/sessions", "", "", Some(&later))["id"].as_str().unwrap().to_owned();
    described.call("POST", "/sessions/{id}/agent", &later, "", Some(&json!({ "agent": "demo" })));
    described.call("POST", "/sessions/{id}/preset", &later, "", Some(&json!({ "preset": "safe" })));
    let acp = daemon.run_acp(&[]);
    described.call("POST", "/sessions/{id}/set", &acp, "", Some(&json!({ "mode": "x" })));
    described.call("POST", "/sessions/{id}/set", &acp, "", Some(&json!({ "mode": "plan", "wait": "agent" })));
    described.call("POST", "/sessions/{id}/set", &acp, "", Some(&json!({ "mode": "x", "wait": "agent" })));
    described.call("GET", "/sessions/{id}", &acp, "", None);
    described.call("POST", "/sessions/{id}/list", &acp, "", Some(&json!({})));
    described.call("POST", "/policy/test", "", "", Some(&json!({ "rules": "[[rule]]\nthen = \"allow\"" })));
    described.call("POST", "/policy/test", "", "", Some(&json!({ "rules": "[[rule]]\nthen = \"perhaps\"" })));
    described.call("DELETE", "/grants/{id}", "grt_0000000000000000", "", None);
    described.call("POST", "/reload", "", "", None);
    let token = described.call("POST", "/tokens", "", "", Some(&json!({ "name": "ana", "role": "viewer" })));
    described.call("DELETE", "/tokens/{id}", token["id"].as_str().unwrap(), "", None);
    described.call("POST", "/web/codes", "", "", None);
    described.call("POST", "/web/sessions", "", "", Some(&json!({ "code": "nonesuch" })));
    described.call("DELETE", "/web/sessions/{id}", "nonesuch", "", None);
    described.tried.push("GET /sessions/{id}/log".to_owned()); // a file: tests/it/web.rs reads it
    let copy = daemon.dir.path().join("copy.db");
    described.call("POST", "/backup", "", "", Some(&json!({ "path": copy })));
    described.call("GET", "/backup", "", "", None);
    described.call("POST", "/sessions/{id}/stop", &id, "", None);
    described.call("POST", "/sessions/{id}/resume", &id, "", None);
    described.call("DELETE", "/sessions/{id}", &id, "", None);
    described.call("POST", "/sessions/{id}/kill", &id, "", None);
    described.call("DELETE", "/sessions/{id}", &id, "", None);
    for (path, methods) in described.document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            let name = format!("{} {}", method.to_uppercase(), path.trim_start_matches("/api/v1"));
            assert!(name == "GET /metrics" || described.tried.contains(&name), "{name} was not tried");
        }
    }
}

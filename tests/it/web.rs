//! The web console's doors: what is served to whom, how one signs in, and how one is shown out.

use std::io::Read;
use std::time::Duration;

use intercom_testkit::client::{Answer, Events, Place, exchange};
use intercom_testkit::harness::{Daemon, PORT, refused, sign_in};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

struct Browser {
    address: String,
    cookie: Option<String>,
}

impl Browser {
    fn of(daemon: &Daemon) -> Self {
        Self { address: daemon.address(), cookie: None }
    }

    fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let cookie = self.cookie.as_deref().map(|cookie| ("cookie", cookie));
        let headers = [headers, cookie.as_slice()].concat();
        exchange(Place::open_port(&self.address), method, path, &headers, body)
    }

    /// As [`Self::get`], by a client that accepts gzip.
    fn get_packed(&self, path: &str) -> Answer {
        let headers = [("accept", "application/json"), ("accept-encoding", "br, gzip")];
        let answer = self.send("GET", path, &headers, "");
        assert_eq!(answer.header("content-encoding"), Some("gzip"), "{path}");
        answer
    }

    fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[("accept", "application/json")], "")
    }

    fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    /// As the page does it.
    fn own(&self, method: &str, path: &str, body: &str) -> Answer {
        self.send(method, path, &[("origin", &self.origin()), ("x-intercom", "1")], body)
    }

    fn post(&self, path: &str, body: &Value) -> Answer {
        self.own("POST", path, &body.to_string())
    }

    /// A stream of events, with more headers.
    fn watch(&self, path: &str, headers: &[(&str, &str)]) -> (Answer, Events) {
        let headers =
            [headers, &[("cookie", self.cookie.as_deref().unwrap()), ("connection", "close")]].concat();
        let (answer, events) =
            Events::ask(Place::open_port(&self.address), "GET", path, &headers, "").unwrap();
        let events = events.unwrap_or_else(|| panic!("{answer:?}"));
        (answer, events)
    }

    fn sign_in(&mut self, body: &Value) -> Value {
        let answer = sign_in(&self.address, body);
        assert_eq!(answer.status, 201, "{}", answer.body);
        let set = answer.header("set-cookie").unwrap();
        assert!(
            set.contains("HttpOnly") && set.contains("SameSite=Strict") && set.contains("Path=/"),
            "{set}"
        );
        self.cookie = Some(answer.cookie().to_owned());
        answer.json()
    }
}

/// The code of the link that `intercom console` prints.
fn code(daemon: &Daemon) -> String {
    let printed = daemon.cli(&["console"]).ok().stdout;
    printed.trim().split_once("/#code=").unwrap().1.to_owned()
}

fn told(answer: &Answer) -> (u16, Value) {
    (answer.status, answer.json())
}

#[test]
fn the_page_is_served_to_anybody_with_headers_that_keep_it_to_itself() {
    let daemon = Daemon::with_config(PORT);
    let browser = Browser::of(&daemon);
    let page = browser.get("/");
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    let policy = page.header("content-security-policy").unwrap();
    for part in ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"] {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cache-control", "no-cache"),
    ] {
        assert_eq!(page.header(name), Some(value), "{name}");
    }
    // Whatever it names is there, and is known again.
    for part in page.body.split('"').filter(|part| part.starts_with('/')) {
        let file = browser.get(part);
        assert_eq!(file.status, 200, "{part}");
        let tag = file.header("etag").unwrap().to_owned();
        let again = browser.send("GET", part, &[("if-none-match", &tag)], "");
        assert_eq!((again.status, again.body.as_str()), (304, ""), "{part}");
    }
    assert_eq!(browser.get("/js/nonesuch.js").status, 404);
    assert_eq!(browser.get("/../Cargo.toml").status, 404);
    refused(told(&browser.send("POST", "/", &[], "")), 405, "method_not_allowed");
    // What the API says is not kept by a browser.
    let health = browser.get("/api/v1/health");
    assert_eq!(
        (health.header("cache-control"), health.json()["you"].clone()),
        (Some("no-store"), Value::Null)
    );
}

#[test]
fn a_link_signs_in_once_and_signing_out_ends_it() {
    let daemon = Daemon::with_config(PORT);
    let printed = code(&daemon);
    let mut browser = Browser::of(&daemon);
    let session = browser.sign_in(&json!({ "code": printed }));
    assert_eq!((&session["role"], &session["current"]), (&json!("admin"), &json!(true)));
    let again = Browser::of(&daemon).post("/api/v1/web/sessions", &json!({ "code": printed }));
    refused(told(&again), 401, "bad_code");
    let mut other = Browser::of(&daemon);
    other.sign_in(&json!({ "code": code(&daemon) }));
    let list = browser.get("/api/v1/web/sessions").json();
    assert_eq!(list["items"].as_array().unwrap().len(), 2, "{list}");
    assert_eq!(browser.get("/api/v1/health").json()["you"]["role"], "admin");

    // They are kept as hashes, and they are still there after a restart.
    let database = std::fs::read(daemon.dir.path().join("state/intercom.db-wal")).unwrap();
    let secret = browser.cookie.as_ref().unwrap().rsplit('.').next().unwrap().as_bytes();
    assert!(!database.windows(secret.len()).any(|window| window == secret), "the secret is nowhere");
    let config = format!("[api]\nlisten = \"{}\"\n", browser.address);
    std::fs::write(daemon.dir.path().join("config.toml"), config).unwrap();
    let (dir, _) = daemon.end(Signal::SIGKILL);
    let daemon = Daemon::start_in(dir, &[], &[]);
    assert_eq!(browser.get("/api/v1/sessions").status, 200);

    // A stream that is open ends with the session.
    let (_, mut stream) = other.watch("/api/v1/events", &[]);
    let id =
        list["items"].as_array().unwrap().iter().find(|item| item["current"] == false).unwrap()["id"].clone();
    let path = format!("/api/v1/web/sessions/{}", id.as_str().unwrap());
    assert_eq!(browser.own("DELETE", &path, "").status, 204);
    stream.waits(Some(Duration::from_secs(10))).unwrap();
    stream.connection.read_to_end(&mut Vec::new()).expect("the daemon hangs up");
    refused(told(&other.get("/api/v1/sessions")), 401, "unauthorized");
    // A page whose session has ended can still be loaded, to sign in again.
    assert_eq!(other.get("/").status, 200);
    let out = browser.own("DELETE", "/api/v1/web/sessions/current", "");
    assert_eq!((out.status, out.header("set-cookie").unwrap().contains("Max-Age=0")), (204, true));
    refused(told(&browser.get("/api/v1/sessions")), 401, "unauthorized");
    let audit = daemon.cli(&["audit"]).ok().stdout;
    assert_eq!(
        (audit.matches("web.signed_in").count(), audit.matches("web.signed_out").count()),
        (2, 2),
        "{audit}"
    );
}

#[test]
fn a_cookie_alone_writes_nothing() {
    let daemon = Daemon::with_config(PORT);
    let session = daemon.run(&["clearance:1:May I?", "answer:1", "serve"]);
    let path = format!("/api/v1/clearances/{}/decision", daemon.clearance(&session));
    let mut browser = Browser::of(&daemon);
    let (body, origin) = (r#"{"decision":"approve"}"#, browser.origin());
    let (origin, own) = (("origin", origin.as_str()), ("x-intercom", "1"));
    // Nor does a page from elsewhere sign anybody in.
    let sign_in = json!({ "code": code(&daemon) });
    refused(
        told(&browser.send("POST", "/api/v1/web/sessions", &[origin], &sign_in.to_string())),
        403,
        "bad_origin",
    );
    browser.sign_in(&sign_in);
    for headers in [
        &[][..],
        &[origin],
        &[own],
        &[("origin", "http://localhost:3000"), own],
        &[origin, own, ("sec-fetch-site", "same-site")],
    ] {
        refused(told(&browser.send("POST", &path, headers, body)), 403, "bad_origin");
    }
    let foreign = browser.send("GET", "/api/v1/sessions", &[("sec-fetch-site", "cross-site")], "");
    refused(told(&foreign), 403, "bad_origin");
    let decided = browser.post(&path, &json!({ "decision": "approve" }));
    assert_eq!((decided.status, decided.json()["decided_via"].clone()), (200, json!("web, tcp 127.0.0.1")));
}

#[test]
fn a_token_signs_in_with_its_name_and_role_and_takes_the_session_along() {
    let daemon = Daemon::with_config(PORT);
    let secret = daemon.cli(&["token", "create", "--name", "eve", "--role", "viewer"]).ok().stdout;
    let mut browser = Browser::of(&daemon);
    let bad = browser.post("/api/v1/web/sessions", &json!({ "token": "intercom_0000000000000000_00" }));
    refused(told(&bad), 401, "unauthorized");
    let session = browser.sign_in(&json!({ "token": secret.trim() }));
    assert_eq!((&session["name"], &session["role"]), (&json!("eve"), &json!("viewer")));
    let start = json!({ "agent": "demo", "workspace": daemon.workspace() });
    refused(told(&browser.post("/api/v1/sessions", &start)), 403, "forbidden");
    // It cannot make more of itself than it is, and sees nobody else's.
    refused(told(&browser.post("/api/v1/web/codes", &json!({}))), 422, "not_local");
    let mut admin = Browser::of(&daemon);
    let other = admin.sign_in(&json!({ "code": code(&daemon) }));
    assert_eq!(browser.get("/api/v1/web/sessions").json()["items"].as_array().unwrap().len(), 1);
    let path = format!("/api/v1/web/sessions/{}", other["id"].as_str().unwrap());
    refused(told(&browser.own("DELETE", &path, "")), 404, "not_found");
    let token = session["token"].as_str().unwrap();
    daemon.cli(&["token", "revoke", token]).ok();
    refused(told(&browser.get("/api/v1/sessions")), 401, "unauthorized");
    assert_eq!(admin.get("/api/v1/sessions").status, 200);
}

#[test]
fn an_agent_does_not_sign_in_whatever_code_it_has() {
    let daemon = Daemon::with_config(PORT);
    let address = Browser::of(&daemon).address;
    let body = json!({ "code": code(&daemon) }).to_string();
    let script = format!(
        "exec 3<>/dev/tcp/{}; printf 'POST /api/v1/web/sessions HTTP/1.1\\r\\nhost: {address}\\r\\norigin: http://{address}\\r\\n\
         x-intercom: 1\\r\\nconnection: close\\r\\ncontent-length: {}\\r\\n\\r\\n%s' '{body}' >&3; cat <&3 > answer; sleep 60",
        address.replace(':', "/"),
        body.len(),
    );
    let start = json!({ "command": "bash", "args": ["-c", script] });
    let (status, started) = daemon.ask_to_start(start);
    assert_eq!(status, 201, "{started}");
    let mut daemon = daemon;
    let answer = daemon.until("the agent's answer", |daemon| {
        let text = std::fs::read_to_string(daemon.workspace().join("answer")).ok()?;
        text.contains("\r\n\r\n{").then_some(text)
    });
    assert!(answer.contains("403") && answer.contains("from_agent"), "{answer}");
}

#[test]
fn the_log_is_a_file_and_a_page_from_its_end() {
    let daemon = Daemon::with_config(PORT);
    let session = daemon.run(&["status:one", "status:password=hunter2hunter2", "serve"]);
    daemon.wait_kind(&session, "status");
    daemon.end_session(&session, "stop");
    let all = daemon.all_events(&session);
    let mut browser = Browser::of(&daemon);
    browser.sign_in(&json!({ "code": code(&daemon) }));
    let file = browser.get(&format!("/api/v1/sessions/{session}/log"));
    assert_eq!(file.header("content-type"), Some("application/x-ndjson"));
    assert!(file.header("content-disposition").unwrap().contains(&format!("{session}.jsonl")));
    let lines: Vec<Value> = file.body.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    // The file is the log as it is stored; its sentences are made for those who read it.
    let mut stored = all.clone();
    for event in stored.iter_mut().map(|event| event.as_object_mut().unwrap()) {
        assert!(event.remove("summary").is_some() && event.remove("tone").is_some());
    }
    assert_eq!(lines, stored);
    let last = &all[all.len() - 1]["seq"];
    let page = browser.get(&format!("/api/v1/events?session={session}&before={last}&limit=2")).json();
    assert_eq!(page["items"], json!(all[all.len() - 3..all.len() - 1]));
    let none = browser.get(&format!("/api/v1/events?session={session}&before=1")).json();
    assert_eq!(none, json!({ "items": [], "next": null }));
    refused(told(&browser.get("/api/v1/events?before=1")), 400, "bad_request");
    let figures = browser.get(&format!("/api/v1/figures?session={session}&hours=1")).json();
    assert_eq!(figures["events"], json!(all.len()), "{figures}");
}

#[test]
fn answers_are_compressed_for_clients_that_accept_it_and_streams_never() {
    let daemon = Daemon::with_config(PORT);
    let session = daemon.run(&["flood:40", "status:password=hunter2hunter2", "serve"]);
    daemon.wait_status(&session, "password=hunter2hunter2");
    let mut browser = Browser::of(&daemon);
    browser.sign_in(&json!({ "code": code(&daemon) }));
    let length = |answer: &Answer| answer.header("content-length").unwrap().parse::<usize>().unwrap();
    for path in ["/api/v1/openapi.json", "/app.js", "/style.css"] {
        let (plain, packed) = (browser.get(path), browser.get_packed(path));
        assert_eq!(plain.header("content-encoding"), None, "{path}");
        assert_eq!(plain.body, packed.body, "{path}");
        assert!(length(&packed) * 2 < length(&plain), "{path}: {} of {}", length(&packed), length(&plain));
        assert_eq!(
            (plain.header("vary"), packed.header("vary")),
            (Some("accept-encoding"), Some("accept-encoding"))
        );
    }
    // Either form of a file is known again by its own tag.
    let (plain, packed) = (browser.get("/app.js"), browser.get_packed("/app.js"));
    let tag = packed.header("etag").unwrap();
    assert_ne!(plain.header("etag"), Some(tag));
    let again = [("accept-encoding", "gzip"), ("if-none-match", tag)];
    assert_eq!(browser.send("GET", "/app.js", &again, "").status, 304);

    let page = format!("/api/v1/events?session={session}&limit=1000");
    assert_eq!(browser.get(&page).json(), browser.get_packed(&page).json());
    // What looks like a secret is hidden before anything is compressed.
    let token = daemon.cli(&["token", "create", "--name", "vera", "--role", "viewer"]).ok().stdout;
    let mut viewer = Browser::of(&daemon);
    viewer.sign_in(&json!({ "token": token.trim() }));
    let seen = viewer.get_packed(&page).body;
    assert!(seen.contains("turn.started") && !seen.contains("hunter2"), "{seen}");

    let headers = [("accept", "text/event-stream"), ("accept-encoding", "gzip")];
    let (head, mut events) = browser.watch("/api/v1/events?after=0", &headers);
    assert_eq!(head.header("content-encoding"), None);
    assert!(events.any(|event| event["kind"] == "session.created"));
}

#[test]
fn a_brief_list_leaves_out_what_is_long() {
    let daemon = Daemon::with_config(&format!(
        "{PORT}\n[[rule]]\nthen = \"ask\"\ncommand = \"deploy\"\nask = [\"bea\"]\n"
    ));
    let asked = json!({ "title": "Edit", "description": "why", "diff": "+x", "command": "deploy" });
    let session = daemon.run(&["stderr:a word", &format!("clearance:1:{asked}"), "serve"]);
    let id = daemon.clearance(&session);
    let item = |path: &str| daemon.get(&format!("/api/v1{path}")).1["items"][0].clone();
    let whole = item("/clearances");
    assert_eq!((&whole["diff"], &whole["description"]), (&json!("+x"), &json!("why")));
    let mut brief = item("/clearances?brief=true");
    assert_eq!((&brief["diff"], &brief["description"]), (&Value::Null, &Value::Null));
    (brief["diff"], brief["description"]) = (whole["diff"].clone(), whole["description"].clone());
    assert_eq!(brief, whole);
    assert_eq!(item("/sessions?brief=true")["stderr_tail"], "");
    assert_eq!(item("/sessions")["stderr_tail"], daemon.show(&session)["stderr_tail"]);
    // The explanation says that no rule can be made, and to whom the request is not addressed.
    let explained = daemon.get(&format!("/api/v1/clearances/{id}/explanation")).1;
    assert_eq!(explained["proposal"], Value::Null);
    assert!(explained["no_proposal"].as_str().unwrap().contains("no profile"), "{explained}");
    assert_eq!(explained["may_not_approve"], Value::Null);
    let token = daemon.cli(&["token", "create", "--name", "ana", "--role", "approver"]).ok().stdout;
    let mut ana = Browser::of(&daemon);
    ana.sign_in(&json!({ "token": token.trim() }));
    let explained = ana.get(&format!("/api/v1/clearances/{id}/explanation")).json();
    assert_eq!(explained["may_not_approve"], "only bea may approve this");
}

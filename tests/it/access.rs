//! Who may do what: roles, tokens, the port, and agents that try to decide for themselves.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use intercom_testkit::client::{Events, Place, exchange};
use intercom_testkit::harness::{self, Daemon, PORT, SERVE, command, home, profile, refused, run};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

/// A daemon with a port, and where it is.
pub(crate) fn with_port(config: &str) -> (Daemon, String) {
    let daemon = Daemon::with_config(&format!("{config}\n{PORT}"));
    let address = daemon.address();
    (daemon, address)
}

pub(crate) fn token(daemon: &Daemon, name: &str, role: &str) -> String {
    let ran = daemon.cli(&["token", "create", "--name", name, "--role", role]).ok();
    ran.stdout.trim().to_owned()
}

pub(crate) fn call(
    address: &str,
    token: Option<&str>,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> (u16, Value) {
    let place = Place::Port { address: address.to_owned(), token: token.map(str::to_owned) };
    let body = body.map(ToString::to_string).unwrap_or_default();
    let answer = exchange(&place, method, path, &[("accept", "application/json")], &body);
    (answer.status, serde_json::from_str(&answer.body).unwrap_or(Value::String(answer.body)))
}

fn watch(address: &str, token: &str) -> Events {
    let place = Place::Port { address: address.to_owned(), token: Some(token.to_owned()) };
    Events::open(&place, "/api/v1/events", &[("connection", "close")])
}

#[track_caller]
fn until_hung_up(mut events: Events) {
    events.waits(Some(Duration::from_secs(10))).unwrap();
    events.connection.read_to_end(&mut Vec::new()).expect("the daemon hangs up");
}

/// Every endpoint, and the least role that may use it. What it answers to those who may is not looked at here.
const ENDPOINTS: &[(&str, &str, Option<&str>)] = &[
    ("GET", "/api/v1/health", None),
    ("GET", "/api/v1/openapi.json", None),
    ("GET", "/metrics", Some("viewer")),
    ("GET", "/api/v1/agents", Some("viewer")),
    ("POST", "/api/v1/backup", Some("admin")),
    ("GET", "/api/v1/backup", Some("admin")),
    ("GET", "/api/v1/sessions", Some("viewer")),
    ("POST", "/api/v1/sessions", Some("admin")),
    ("GET", "/api/v1/sessions/none-such", Some("viewer")),
    ("DELETE", "/api/v1/sessions/none-such", Some("admin")),
    ("GET", "/api/v1/sessions/none-such/prompts", Some("viewer")),
    ("POST", "/api/v1/sessions/none-such/prompts", Some("operator")),
    ("POST", "/api/v1/prompts/none-such", Some("operator")),
    ("DELETE", "/api/v1/prompts/none-such", Some("operator")),
    ("POST", "/api/v1/sessions/none-such/nudge", Some("operator")),
    ("POST", "/api/v1/sessions/none-such/interrupt", Some("operator")),
    ("POST", "/api/v1/sessions/none-such/seen", Some("operator")),
    ("POST", "/api/v1/sessions/none-such/snooze", Some("operator")),
    ("POST", "/api/v1/sessions/none-such/set", Some("operator")),
    ("POST", "/api/v1/sessions/none-such/list", Some("operator")),
    ("POST", "/api/v1/sessions/none-such/ladder", Some("operator")),
    ("POST", "/api/v1/sessions/none-such/stop", Some("operator")),
    ("POST", "/api/v1/sessions/none-such/kill", Some("admin")),
    ("POST", "/api/v1/sessions/none-such/resume", Some("admin")),
    ("POST", "/api/v1/sessions/none-such/agent", Some("admin")),
    ("POST", "/api/v1/sessions/none-such/preset", Some("operator")),
    ("GET", "/api/v1/clearances", Some("viewer")),
    ("GET", "/api/v1/clearances/none-such", Some("viewer")),
    ("POST", "/api/v1/clearances/none-such/decision", Some("approver")),
    ("GET", "/api/v1/questions", Some("viewer")),
    ("GET", "/api/v1/questions/none-such", Some("viewer")),
    ("POST", "/api/v1/questions/none-such/answer", Some("operator")),
    ("GET", "/api/v1/events", Some("viewer")),
    ("GET", "/api/v1/sessions/none-such/log", Some("viewer")),
    ("GET", "/api/v1/figures", Some("viewer")),
    ("POST", "/api/v1/web/codes", Some("viewer")),
    ("POST", "/api/v1/web/sessions", None),
    ("GET", "/api/v1/web/sessions", Some("viewer")),
    ("DELETE", "/api/v1/web/sessions/none-such", Some("viewer")),
    ("GET", "/api/v1/clearances/none-such/explanation", Some("viewer")),
    ("GET", "/api/v1/policy", Some("viewer")),
    ("POST", "/api/v1/policy/test", Some("approver")),
    ("GET", "/api/v1/grants", Some("viewer")),
    ("DELETE", "/api/v1/grants/none-such", Some("approver")),
    ("POST", "/api/v1/reload", Some("admin")),
    ("GET", "/api/v1/tokens", Some("admin")),
    ("POST", "/api/v1/tokens", Some("admin")),
    ("DELETE", "/api/v1/tokens/none-such", Some("admin")),
    ("GET", "/api/v1/audit", Some("admin")),
    ("GET", "/api/v1/audit/verify", Some("admin")),
];

const ROLES: [&str; 4] = ["viewer", "operator", "approver", "admin"];

#[test]
fn every_role_may_do_what_it_may_and_nothing_else() {
    let (daemon, address) = with_port("");
    let tokens: Vec<String> = ROLES.iter().map(|role| token(&daemon, role, role)).collect();
    let rank = |role: &str| ROLES.iter().position(|known| *known == role).unwrap();
    for (method, path, least) in ENDPOINTS {
        let (status, body) = call(&address, None, method, path, None);
        match least {
            // An empty body signs nobody in, and is a mistake.
            None => assert!(matches!(status, 200 | 400), "{method} {path} for nobody: {body}"),
            Some(_) => drop(refused((status, body), 401, "unauthorized")),
        }
        for (role, token) in ROLES.iter().zip(&tokens) {
            let (status, body) = call(&address, Some(token), method, path, None);
            let may = least.is_none_or(|least| rank(role) >= rank(least));
            if may {
                assert!(![401, 403].contains(&status), "{method} {path} as {role}: {status} {body}");
            } else {
                refused((status, body), 403, "forbidden");
            }
        }
    }
    // The list is whole: what the daemon describes is what was tried.
    let (_, document) = call(&address, None, "GET", "/api/v1/openapi.json", None);
    let mut described: Vec<(String, String, Option<String>)> = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let role = operation["x-least-role"].as_str().map(str::to_owned);
            described.push((method.to_uppercase(), path.replace("{id}", "none-such"), role));
        }
    }
    let mut tried: Vec<_> = ENDPOINTS
        .iter()
        .map(|(method, path, role)| ((*method).to_owned(), (*path).to_owned(), role.map(str::to_owned)))
        .collect();
    described.sort();
    tried.sort();
    assert_eq!(described, tried);
}

#[test]
fn an_approver_starts_agents_if_the_configuration_says_so() {
    let agent = profile("coder", &["status:up", "serve"], "");
    let (daemon, address) = with_port(&agent);
    let tokens = ROLES.map(|role| token(&daemon, role, role));
    let [_, operator, approver, admin] = &tokens;
    let workspace = daemon.workspace();
    let start = |token: &str, more: Value| {
        let mut body = json!({ "agent": "coder", "workspace": workspace });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        call(&address, Some(token), "POST", "/api/v1/sessions", Some(&body))
    };
    let may_start = |token: &str| {
        call(&address, Some(token), "GET", "/api/v1/health", None).1["you"]["may_start"].clone()
    };
    let told = refused(start(approver, json!({})), 403, "forbidden");
    assert!(told["error"]["hint"].as_str().unwrap().contains("[access]"), "{told}");
    assert_eq!((may_start(approver), may_start(admin)), (json!(false), json!(true)));

    let config = daemon.dir.path().join("config.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("{text}\n[access]\nstart = \"approver\"\n")).unwrap();
    daemon.cli(&["reload"]).ok();
    assert_eq!((may_start(operator), may_start(approver)), (json!(false), json!(true)));
    refused(start(operator, json!({})), 403, "forbidden");
    let (status, session) = start(approver, json!({ "prompt": "status:at it" }));
    assert_eq!(status, 201, "{session}");
    let id = session["id"].as_str().unwrap();
    daemon.wait_status(id, "at it");
    // What would let them run anything is still for admins.
    let command = json!({ "agent": null, "command": "true" });
    for beyond in [command, json!({ "env": { "A": "b" } }), json!({ "mcp_servers": [{ "name": "x" }] })] {
        refused(start(approver, beyond.clone()), 403, "forbidden");
    }
    let post = |token: &str, verb: &str| {
        call(&address, Some(token), "POST", &format!("/api/v1/sessions/{id}/{verb}"), Some(&json!({})))
    };
    refused(post(approver, "kill"), 403, "forbidden");
    assert_eq!(post(approver, "stop").0, 200);
    refused(post(operator, "resume"), 403, "forbidden");
    assert_eq!(post(approver, "resume").0, 200);
}

#[test]
fn a_token_lets_in_until_it_expires_or_is_revoked_and_is_kept_as_a_hash() {
    let (daemon, address) = with_port("");
    let health = |token: &str| call(&address, Some(token), "GET", "/api/v1/sessions", None);
    let ana = token(&daemon, "ana", "approver");
    assert_eq!(health(&ana).0, 200);
    for bad in ["", "x", &ana[..ana.len() - 1], &format!("{ana}0"), &ana.replace('_', "-"), "intercom__"] {
        refused(health(bad), 401, "unauthorized");
    }
    let database = std::fs::read(daemon.dir.path().join("state/intercom.db")).unwrap();
    let wal = std::fs::read(daemon.dir.path().join("state/intercom.db-wal")).unwrap();
    let secret = ana.rsplit('_').next().unwrap().as_bytes();
    for bytes in [database, wal] {
        assert!(!bytes.windows(secret.len()).any(|window| window == secret), "the secret is nowhere");
    }

    let short = daemon.cli(&["token", "create", "--name", "ben", "--role", "viewer", "--ttl", "1s"]).ok();
    let list = daemon.cli(&["token", "list", "--json"]).ok().json();
    assert_eq!(list["items"].as_array().unwrap().len(), 2);
    assert_eq!(list["items"][1]["last_used_from"], "127.0.0.1");
    let ends = watch(&address, short.stdout.trim());
    let start = Instant::now();
    while health(short.stdout.trim()).0 == 200 {
        assert!(start.elapsed() < Duration::from_secs(10), "it must expire");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(start.elapsed() >= Duration::from_millis(500));
    until_hung_up(ends); // its stream ends with it

    // A stream that is open when its token is revoked ends.
    let stream = watch(&address, &ana);
    let id = list["items"][1]["id"].as_str().unwrap();
    daemon.cli(&["token", "revoke", id]).ok();
    refused(health(&ana), 401, "unauthorized");
    until_hung_up(stream);
    assert_eq!(daemon.cli(&["token", "revoke", id]).code, 1);
    // It stays revoked.
    let (dir, _) = daemon.end(Signal::SIGKILL);
    let daemon = Daemon::start_in(dir, &[], &[]);
    refused(call(&daemon.address(), Some(&ana), "GET", "/api/v1/sessions", None), 401, "unauthorized");
}

#[test]
fn a_token_is_revoked_by_the_name_it_was_made_for_if_that_has_only_one() {
    let (daemon, address) = with_port("");
    let enters = |token: &str| call(&address, Some(token), "GET", "/api/v1/sessions", None).0 == 200;
    let (ana, bot) = (token(&daemon, "ana", "viewer"), token(&daemon, "ci bot", "viewer"));
    daemon.cli(&["token", "revoke", "ci bot"]).ok();
    assert!(enters(&ana) && !enters(&bot));
    let again = daemon.cli(&["token", "revoke", "ci bot"]);
    assert!(again.code == 1 && again.stderr.contains("already revoked"), "{again:?}");

    // Of several, nobody guesses which: their ids are told.
    let other = token(&daemon, "ana", "operator");
    let ran = daemon.cli(&["token", "revoke", "ana"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    let listed = daemon.cli(&["token", "list", "--json"]).ok().json();
    let ids: Vec<&str> = listed["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|token| token["name"] == "ana")
        .map(|token| token["id"].as_str().unwrap())
        .collect();
    assert!(ids.len() == 2 && ids.iter().all(|id| ran.stderr.contains(id)), "{ran:?}");
    assert!(enters(&ana) && enters(&other));
    // The one that is left is meant by the name.
    daemon.cli(&["token", "revoke", ids[0]]).ok();
    assert!(enters(&ana) && !enters(&other));
    daemon.cli(&["token", "revoke", "ana"]).ok();
    assert!(!enters(&ana));
    assert_eq!(daemon.cli(&["token", "revoke", "nobody"]).code, 1);
}

#[test]
fn guessing_tokens_is_slowed_down_and_locks_nobody_out() {
    let (daemon, address) = with_port("");
    let ana = token(&daemon, "ana", "viewer");
    let guess = || call(&address, Some("intercom_0000000000000000_00"), "GET", "/api/v1/sessions", None);
    for _ in 0..10 {
        refused(guess(), 401, "unauthorized");
    }
    refused(guess(), 429, "too_many_failures");
    assert_eq!(call(&address, Some(&ana), "GET", "/api/v1/sessions", None).0, 200);
    let audit = daemon.cli(&["audit"]).ok().stdout;
    assert_eq!(audit.matches("access.refused").count(), 1, "{audit}");
}

#[test]
fn web_pages_from_elsewhere_huge_bodies_and_slow_clients_are_turned_away() {
    let (daemon, address) = with_port("[limits]\nmax_body_bytes = 1024\n");
    let ana = token(&daemon, "ana", "admin");
    let place = Place::Port { address: address.clone(), token: Some(ana.clone()) };
    let send = |method: &str, headers: &[(&str, &str)], body: &str| {
        let answer = exchange(&place, method, "/api/v1/sessions", headers, body);
        (answer.status, answer.json())
    };
    refused(send("GET", &[("host", "evil.example")], ""), 403, "bad_host");
    refused(send("GET", &[("origin", "http://evil.example")], ""), 403, "bad_origin");
    assert_eq!(send("GET", &[("origin", &format!("http://{address}"))], "").0, 200);
    refused(send("POST", &[], &" ".repeat(5000)), 413, "too_large");

    // Connections that say nothing, or not all, do not keep others waiting.
    let mut idle: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(&address).unwrap()).collect();
    for stream in idle.iter_mut().step_by(2) {
        stream.write_all(b"GET /api/v1/sessions HTTP/1.1\r\nhost: ").unwrap();
    }
    let start = Instant::now();
    assert_eq!(call(&address, Some(&ana), "GET", "/api/v1/sessions", None).0, 200);
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
}

#[test]
fn every_verb_works_against_a_daemon_elsewhere() {
    let (daemon, address) = with_port("");
    let session = daemon.run(&["clearance:1:May I?", "answer:1", "serve"]);
    let clearance = daemon.clearance(&session);
    let elsewhere = home("");
    let file = elsewhere.path().join("token");
    let cli = |token: &str, args: &[&str]| {
        std::fs::write(&file, token).unwrap();
        let mut command = harness::command(elsewhere.path());
        run(command
            .args(args)
            .env("INTERCOM_URL", format!("http://{address}"))
            .env("INTERCOM_TOKEN_FILE", &file))
    };
    let (viewer, approver) = (token(&daemon, "eve", "viewer"), token(&daemon, "ana", "approver"));
    assert!(cli(&viewer, &["clearances"]).ok().stdout.contains("May I?"));
    let denied = cli(&viewer, &["approve", &clearance]);
    assert_eq!(denied.code, 1);
    assert!(denied.stderr.contains("this needs the role approver; eve is viewer"), "{}", denied.stderr);
    assert!(cli("nonsense", &["ls"]).stderr.contains("the token is not valid"));
    assert!(cli(&approver, &["approve", &clearance]).ok().stdout.contains("approved"));
    let decided = daemon.get(&format!("/api/v1/clearances/{clearance}")).1;
    assert_eq!((&decided["decided_by"], &decided["decided_via"]), (&json!("ana"), &json!("tcp 127.0.0.1")));
    assert!(cli(&approver, &["logs", &session]).ok().stdout.contains("approved"));
    assert_eq!(
        cli(&approver, &["wait", &session, "--for", "working", "--timeout", "10s"]).code,
        2,
        "no such phase"
    );
    assert!(cli(&approver, &["kill", &session]).stderr.contains("this needs the role admin"));
    let admin = token(&daemon, "root", "admin");
    let (copy, work) = (daemon.dir.path().join("copy.db"), daemon.workspace());
    let fixture = harness::fixture();
    let question = cli(
        &admin,
        &[
            "run",
            "--workspace",
            work.to_str().unwrap(),
            "--",
            fixture.to_str().unwrap(),
            "question:1:How?",
            "serve",
        ],
    );
    let asking = question.ok().stdout.trim().to_owned();
    let question = daemon.question(&asking);
    for verb in [
        &["ls"][..],
        &["show", &session],
        &["logs", &session],
        &["agents"],
        &["clearances", "--all"],
        &["questions"],
        &["answer", &question, "continue"],
        &["send", &session, "[]"],
        &["prompts", &session],
        &["nudge", &session],
        &["interrupt", &session],
        &["wait", &session, "--for", "idle", "--timeout", "20s"],
        &["policy", "show"],
        &["policy", "explain", &clearance],
        &["policy", "grants"],
        &["token", "list"],
        &["audit"],
        &["audit", "--verify"],
        &["reload"],
        &["backup", copy.to_str().unwrap()],
        &["stop", &session],
        &["resume", &session],
        &["kill", &session, &asking],
    ] {
        let ran = cli(&admin, verb);
        assert_eq!(ran.code, 0, "{verb:?}: {}", ran.stderr);
    }
}

#[test]
fn a_configured_operator_bounds_the_role_of_every_token_in_that_name() {
    let (daemon, address) = with_port("[[operator]]\nname = \"ana\"\nrole = \"viewer\"\n");
    let body = json!({ "name": "ana", "role": "admin" });
    refused(daemon.post("/api/v1/tokens", &body), 422, "above_role");
    let ana = token(&daemon, "ana", "viewer");
    let (_, health) = call(&address, Some(&ana), "GET", "/api/v1/health", None);
    assert_eq!(health["you"], json!({ "name": "ana", "role": "viewer", "may_start": false }));
    // One made before they were bounded is bounded all the same, and a secret is not kept for a retry.
    let key = [("idempotency-key", "k"), ("accept", "application/json")];
    let ben = json!({ "name": "ben", "role": "admin" }).to_string();
    let make = || {
        let (_, text) = harness::http(&daemon.socket(), "POST", "/api/v1/tokens", Some(&ben), &key);
        serde_json::from_str::<Value>(&text).unwrap()["secret"].as_str().unwrap().to_owned()
    };
    let (first, second) = (make(), make());
    assert_ne!(first, second);
    let config = format!("[[operator]]\nname = \"ben\"\nrole = \"viewer\"\n{PORT}");
    std::fs::write(daemon.dir.path().join("config.toml"), config).unwrap();
    daemon.cli(&["reload"]).ok();
    refused(call(&address, Some(&first), "GET", "/api/v1/tokens", None), 403, "forbidden");
}

/// Prints the cookie that a browser would get.
const SIGN_IN_OVER_TLS: &str = r#"
import ssl, sys, urllib.request
url, cert, body = sys.argv[1:]
headers = {"content-type": "application/json", "origin": url, "x-intercom": "1"}
request = urllib.request.Request(url + "/api/v1/web/sessions", body.encode(), headers)
print(urllib.request.urlopen(request, context=ssl.create_default_context(cafile=cert)).headers["set-cookie"])
"#;

#[test]
fn with_tls_a_port_can_be_reached_from_outside_and_without_it_cannot() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let dir = home("");
    let (cert, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let tls = format!("tls_cert = {cert:?}\ntls_key = {key:?}\n");
    let start = |config: &str| {
        std::fs::write(dir.path().join("config.toml"), format!("[api]\n{config}")).unwrap();
        run(harness::command(dir.path()).arg("serve"))
    };
    let refused = start("listen = \"0.0.0.0:0\"\n");
    assert_eq!(refused.code, 1);
    assert!(refused.stderr.contains("it needs tls_cert and tls_key"), "{}", refused.stderr);
    let refused = start(&format!("listen = \"0.0.0.0:0\"\n{tls}"));
    assert!(refused.stderr.contains("there is no token yet"), "{}", refused.stderr);

    std::fs::write(dir.path().join("config.toml"), format!("[api]\nlisten = \"127.0.0.1:0\"\n{tls}"))
        .unwrap();
    let daemon = Daemon::start_in(dir, &[], &[]);
    let secret = token(&daemon, "ana", "viewer");
    let url = daemon.address();
    let elsewhere = home("");
    let cli = |url: &str, ca: bool| {
        let mut command = harness::command(elsewhere.path());
        command.args(["ls", "--url", url]).env("INTERCOM_TOKEN", &secret);
        if ca {
            command.env("INTERCOM_CA_FILE", &cert);
        }
        run(&mut command)
    };
    cli(&url, true).ok();
    // Who signs in to the console over TLS gets a cookie that never leaves it.
    let body = json!({ "token": secret }).to_string();
    let mut command = std::process::Command::new("python3");
    let ran = run(command.args(["-c", SIGN_IN_OVER_TLS, &url, cert.to_str().unwrap(), &body]));
    let cookie = ran.ok().stdout;
    assert!(
        cookie.starts_with("__Host-") && cookie.contains("; Secure") && cookie.contains("HttpOnly"),
        "{cookie}"
    );
    assert_eq!(cli(&url, false).code, 1, "a certificate that nobody vouches for");
    assert_eq!(cli(&url.replace("https", "http"), true).code, 1, "no TLS, no answer");
}

#[test]
fn a_configured_port_that_is_taken_is_an_error() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap();
    let dir = home(&format!("[api]\nlisten = \"{port}\"\n"));
    let ran = run(harness::command(dir.path()).arg("serve"));
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains(&format!("cannot listen on {port}")), "{}", ran.stderr);
}

/// An agent that asks, and then tries to approve itself: over the socket, and over the port with a stolen token.
const SELF_APPROVER: &str = r#"
import json, os, socket, sys, time
def say(method, params, **more):
    print(json.dumps({"method": method, "params": params, **more}), flush=True)
say("clearance/request", {"title": "May I?", "risk_level": "low"}, id="1")
sys.stdin.readline()
path, address, token = open("notes").read().split()
def attempt(stream, host, extra, ask=True):
    if ask:
        stream.sendall(f"GET /api/v1/clearances HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{extra}\r\n".encode())
    answer = b""
    while chunk := stream.recv(65536):
        answer += chunk
    code = next((code for code in ("from_agent", "unknown_process") if code.encode() in answer), "let in")
    return answer.decode().split(" ", 2)[1] + " " + code
def unix():
    stream = socket.socket(socket.AF_UNIX)
    stream.connect(path)
    return attempt(stream, "intercom", "")
def tcp():
    host, port = address.rsplit(":", 1)
    return attempt(socket.create_connection((host, int(port))), address, f"authorization: Bearer {token}\r\n")
def in_flight():
    # While it is looked at, the socket is on its way from ourselves to ourselves.
    host, port = address.rsplit(":", 1)
    stream = socket.create_connection((host, int(port)))
    here, there = socket.socketpair()
    request = f"GET /api/v1/clearances HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\nauthorization: Bearer {token}\r\n"
    stream.sendall(request.encode())
    copy = os.dup(stream.fileno())
    socket.send_fds(here, [b"x"], [stream.fileno()])
    stream.close()
    os.write(copy, b"\r\n")
    os.close(copy)
    time.sleep(1)
    _, fds, _, _ = socket.recv_fds(there, 1, 1)
    return attempt(socket.socket(fileno=fds[0]), address, "", ask=False)
say("status/update", {"message": "unix " + unix()})
say("status/update", {"message": "tcp " + tcp()})
say("status/update", {"message": "in flight " + in_flight()})
# Somebody connects and goes; another one, who has its socket, speaks.
reader, writer = os.pipe()
if os.fork() == 0:
    stream = socket.socket(socket.AF_UNIX)
    stream.connect(path)
    if os.fork() == 0:
        os.read(reader, 1)
        say("status/update", {"message": "ghost " + attempt(stream, "intercom", "")})
    os._exit(0)
os.wait()
os.write(writer, b"x")
# A child in a session of its own, orphaned.
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        say("status/update", {"message": "orphan " + unix()})
    os._exit(0)
sys.stdin.read()
"#;

#[test]
fn an_agent_cannot_approve_itself_by_any_door() {
    let (daemon, address) = with_port("");
    let stolen = token(&daemon, "ana", "admin");
    std::fs::write(daemon.workspace().join("agent.py"), SELF_APPROVER).unwrap();
    let notes = format!("{}\n{address}\n{stolen}\n", daemon.socket().display());
    std::fs::write(daemon.workspace().join("notes"), notes).unwrap();
    let body = json!({ "command": "python3", "args": ["agent.py"], "workspace": daemon.workspace() });
    let session = daemon.post("/api/v1/sessions", &body).1["id"].as_str().unwrap().to_owned();
    let clearance = daemon.clearance(&session);
    daemon.decide(&clearance, "deny");
    for (door, code) in [
        ("unix", "from_agent"),
        ("tcp", "from_agent"),
        ("ghost", "unknown_process"),
        ("orphan", "from_agent"),
    ] {
        daemon.wait_status(&session, &format!("{door} 403 {code}"));
    }
    let audit = daemon.cli(&["audit", "--session", &session]).ok().stdout;
    assert_eq!(audit.matches("access.from_agent").count(), 1, "once in a while: {audit}");
}

#[test]
fn two_hundred_decisions_at_once_have_one_winner_and_the_agent_is_answered_once() {
    let (daemon, address) = with_port("");
    let token = token(&daemon, "ana", "approver");
    let session = daemon.run(&["clearance:1:May I?", "echo"]);
    let clearance = daemon.clearance(&session);
    let path = format!("/api/v1/clearances/{clearance}/decision");
    let results: Vec<(u16, Value)> = std::thread::scope(|scope| {
        let deciders: Vec<_> = (0..200)
            .map(|n| {
                let (path, token, address, daemon) = (&path, &token, &address, &daemon);
                let decision = json!({ "decision": if n % 3 == 0 { "deny" } else { "approve" } });
                scope.spawn(move || match n % 2 {
                    0 => daemon.post(path, &decision),
                    _ => call(address, Some(token), "POST", path, Some(&decision)),
                })
            })
            .collect();
        deciders.into_iter().map(|decider| decider.join().unwrap()).collect()
    });
    let (won, lost): (Vec<_>, Vec<_>) = results.into_iter().partition(|(status, _)| *status == 200);
    assert_eq!(won.len(), 1, "one winner");
    for answer in lost {
        let body = refused(answer, 409, "already_decided");
        assert_eq!(body["clearance"]["status"], won[0].1["status"]);
        assert!(body["clearance"]["decided_by"].is_string() && body["clearance"]["decided_at"].is_string());
    }
    daemon.wait_status(&session, "received");
    daemon.end_session(&session, "stop");
    let events = daemon.all_events(&session);
    let answers = events.iter().filter(|event| {
        event["data"]["line"].as_str().is_some_and(|line| line.contains("clearance/response"))
    });
    assert_eq!(answers.count(), 1);
    let audit = daemon.cli(&["audit", "--session", &session]).ok().stdout;
    assert_eq!(audit.matches("clearance.decided").count(), 1, "{audit}");
}

#[test]
fn a_critical_clearance_can_need_two_people_or_the_machine_itself() {
    let (daemon, address) = with_port("[clearances]\nquorum = { critical = 2 }\n");
    let (ana, ben) = (token(&daemon, "ana", "approver"), token(&daemon, "ben", "approver"));
    let critical = r#"clearance:1:{"title":"Drop it?","risk_level":"critical"}"#;
    let session = daemon.run(&[critical, "answer:1", "serve"]);
    let clearance = daemon.clearance(&session);
    let path = format!("/api/v1/clearances/{clearance}/decision");
    let approve =
        |token: &str| call(&address, Some(token), "POST", &path, Some(&json!({ "decision": "approve" })));
    let (status, first) = approve(&ana);
    assert_eq!((status, &first["approvals"], &first["needed"]), (202, &json!(["ana"]), &json!(2)));
    refused(approve(&ana), 409, "already_approved");
    assert_eq!(daemon.get("/api/v1/grants").1["items"], json!([]));
    // The first approval is remembered by the next daemon.
    let (dir, _) = daemon.end(Signal::SIGKILL);
    let daemon = Daemon::start_in(dir, &[], &[]);
    let shown = daemon.get(&format!("/api/v1/clearances/{clearance}")).1;
    assert_eq!((&shown["status"], &shown["approvals"]), (&json!("pending"), &json!(["ana"])));
    let address = daemon.address();
    let (status, done) = call(&address, Some(&ben), "POST", &path, Some(&json!({ "decision": "approve" })));
    assert_eq!((status, &done["status"], &done["delivery"]), (200, &json!("approved"), &json!("delivered")));
    assert_eq!(daemon.wait_status(&session, "answered")["status"], "approved");

    let (daemon, address) = with_port("[clearances]\nlocal_only_from = \"critical\"\n");
    let ana = token(&daemon, "ana", "approver");
    let session = daemon.run(&[critical, "answer:1", "serve"]);
    let clearance = daemon.clearance(&session);
    let path = format!("/api/v1/clearances/{clearance}/decision");
    let answer = call(&address, Some(&ana), "POST", &path, Some(&json!({ "decision": "approve" })));
    refused(answer, 403, "local_only");
    daemon.cli(&["approve", &clearance]).ok();
}

#[test]
fn a_time_limit_is_kept_also_while_the_daemon_is_away() {
    let config = "[clearances]\nexpire_after = { low = \"2s\" }\n";
    let daemon = Daemon::with_config(config);
    let low = r#"clearance:1:{"title":"May I?","risk_level":"low"}"#;
    let high = r#"clearance:2:{"title":"May I really?","risk_level":"high"}"#;
    let session = daemon.run(&[high, low, "answer:1", "serve"]);
    daemon.wait_for(&session, "the second request", |event| event["data"]["title"] == "May I?");
    let (dir, _) = daemon.end(Signal::SIGKILL);
    let daemon = Daemon::start_in(dir, &[], &[]);
    let answered = daemon.wait_status(&session, "answered");
    assert_eq!((&answered["status"], &answered["params"]["reason"]), (&json!("rejected"), &json!("expired")));
    let list = daemon.get(&format!("/api/v1/clearances?session={session}")).1;
    let states: Vec<_> =
        list["items"].as_array().unwrap().iter().map(|item| item["status"].clone()).collect();
    assert_eq!(states, [json!("expired"), json!("pending")]);
    let expired = &list["items"][0];
    assert_eq!((&expired["decided_via"], &expired["delivery"]), (&json!("time limit"), &json!("delivered")));
}

#[test]
fn the_audit_tells_who_did_what_outlives_its_sessions_and_shows_where_it_was_changed() {
    let daemon = Daemon::start();
    let session = daemon.run(&["clearance:1:May I?", "answer:1", "serve"]);
    let clearance = daemon.clearance(&session);
    daemon.cli(&["deny", &clearance, "--reason", "not today"]).ok();
    daemon.end_session(&session, "stop");
    let rows = daemon.cli(&["audit", "--session", &session, "--json"]).ok().stdout;
    let rows: Vec<Value> = rows.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let actions: Vec<_> = rows.iter().map(|row| row["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["session.created", "clearance.decided", "session.stopping", "session.ended"]);
    assert_eq!(
        (&rows[1]["data"]["reason"], &rows[1]["data"]["via"]),
        (&json!("not today"), &json!("unix socket"))
    );
    let whole = daemon.cli(&["audit", "--verify"]).ok().stdout;
    assert!(whole.starts_with("whole: "), "{whole}");
    let (dir, _) = daemon.end(Signal::SIGTERM);
    let database = rusqlite::Connection::open(dir.path().join("state/intercom.db")).unwrap();
    database
        .execute_batch(
            "DROP TRIGGER audit_is_not_changed; UPDATE audit SET data = replace(data, 'denied', 'approved')
             WHERE action = 'clearance.decided'",
        )
        .unwrap();
    let n: i64 = database
        .query_row("SELECT n FROM audit WHERE action = 'clearance.decided'", [], |row| row.get(0))
        .unwrap();
    drop(database);
    let daemon = Daemon::start_in(dir, &[], &[]);
    let ran = daemon.cli(&["audit", "--verify"]);
    assert_eq!(ran.code, 1);
    assert!(ran.stdout.contains(&format!("row {n}: altered: clearance.decided by ")), "{}", ran.stdout);
}

/// Says who it is, what it can see of the daemon's state, and whether it can call the socket.
const GUEST: &str = r#"
seen=$(cat "$1/state/intercom.db" 2>&1 >/dev/null | tail -c 18)
printf '{"method":"status/update","params":{"message":"I am","uid":"%s","home":"%s","seen":"%s"}}\n' "$(id -u)" "$HOME" "$seen"
cat >/dev/null
"#;

#[test]
fn an_agent_can_run_as_somebody_who_can_read_nothing_of_the_daemons() {
    use std::os::unix::fs::PermissionsExt;
    let mode = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let dir = home("");
    let script = format!("args = [\"-c\", {GUEST:?}, \"sh\", {:?}]", dir.path());
    let config =
        format!("[api]\nlisten = \"off\"\n[agents.guest]\ncommand = \"sh\"\n{script}\nrun_as = \"nobody\"\n");
    std::fs::write(dir.path().join("config.toml"), config).unwrap();
    mode(dir.path(), 0o755);
    let daemon = Daemon::start_in(dir, &[], &[]);
    let body = json!({ "agent": "guest", "workspace": daemon.workspace() });
    if !nix::unistd::Uid::effective().is_root() {
        let answer = refused(daemon.post("/api/v1/sessions", &body), 422, "spawn_failed");
        assert!(answer.to_string().contains("only a daemon that runs as root"), "{answer}");
        return;
    }
    let (status, session) = daemon.post("/api/v1/sessions", &body);
    assert_eq!(status, 201, "{session}");
    let session = session["id"].as_str().unwrap();
    let said = daemon.wait_status(session, "I am");
    let nobody = nix::unistd::User::from_name("nobody").unwrap().unwrap();
    assert_eq!(said["uid"], nobody.uid.to_string());
    assert_eq!(said["home"].as_str(), nobody.dir.to_str());
    assert_eq!(said["seen"], "Permission denied");
    assert_eq!(daemon.end_session(session, "stop").0["phase"], "ended");
    // Where it could read the state, it is not started at all.
    let state = daemon.dir.path().join("state");
    mode(&state, 0o755);
    mode(&state.join("intercom.db"), 0o644);
    let answer = refused(daemon.post("/api/v1/sessions", &body), 422, "spawn_failed");
    assert!(answer.to_string().contains("can read the daemon's state"), "{answer}");
    mode(&state, 0o700);
}

#[test]
fn secrets_are_hidden_from_viewers_and_the_card_says_so() {
    let (daemon, address) = with_port("");
    let secret = "ghp_0123456789abcdefghijABCDEFGHIJ012345";
    let params = json!({
        "title": "Set the token", "description": format!("GITHUB_TOKEN={secret}"), "risk_level": "low",
        "diff": format!("+++ b/.env\n+GITHUB_TOKEN={secret}\n+NAME=shop\n"), "file_path": ".env",
    });
    let status = format!("status:the token is {secret}");
    let session = daemon.run(&[&format!("clearance:1:{params}"), &status, "serve"]);
    let clearance = daemon.clearance(&session);
    daemon.wait_for(&session, "the status", |event| event["kind"] == "status");
    let (viewer, operator) = (token(&daemon, "eve", "viewer"), token(&daemon, "ana", "operator"));
    for path in [
        format!("/api/v1/clearances/{clearance}"),
        "/api/v1/clearances".to_owned(),
        format!("/api/v1/clearances/{clearance}/explanation"),
        "/api/v1/events".to_owned(),
        format!("/api/v1/sessions/{session}"),
    ] {
        let (status, seen) = call(&address, Some(&viewer), "GET", &path, None);
        assert_eq!(status, 200);
        assert!(!seen.to_string().contains(&secret[8..]), "{path}: {seen}");
    }
    let path = format!("/api/v1/clearances/{clearance}");
    let (_, card) = call(&address, Some(&viewer), "GET", &path, None);
    assert_eq!(card["hidden"], json!(["GitHub token"]));
    assert!(card["diff"].as_str().unwrap().contains("+NAME=shop"), "{card}");
    let (_, card) = call(&address, Some(&operator), "GET", &path, None);
    assert!(card["diff"].as_str().unwrap().contains(secret) && card["hidden"] == json!([]), "{card}");
    // Also in a stream.
    let (mut events, mut text) = (watch(&address, &viewer), String::new());
    while !text.contains("the token is") {
        text += events.block().unwrap().unwrap();
    }
    assert!(!text.contains(&secret[8..]), "{text}");
    daemon.end_session(&session, "kill");
}

#[test]
fn those_without_a_token_do_not_keep_out_those_who_have_one() {
    let (daemon, address) = with_port("");
    let ana = token(&daemon, "ana", "viewer");
    let mut crowd: Vec<TcpStream> = Vec::new();
    for n in 0..900 {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.write_all(b"G").ok(); // it may have been shown out already
        crowd.push(stream);
        if n % 100 == 99 {
            let start = Instant::now();
            assert_eq!(call(&address, Some(&ana), "GET", "/api/v1/sessions", None).0, 200);
            assert!(start.elapsed() < Duration::from_secs(3), "{:?} with {n}", start.elapsed());
        }
    }
}

#[test]
fn the_environment_says_where_the_api_listens_and_who_is_let_in() {
    let token = "a secret of the environment";
    let env = [("INTERCOM_API_PORT", "0"), ("INTERCOM_API_BIND", "127.0.0.1"), ("INTERCOM_API_TOKEN", token)];
    let daemon = Daemon::start_in(home("[api]\nlisten = \"off\"\n"), &[], &env);
    let address = daemon.address();
    let (status, body) = call(&address, Some(token), "GET", "/api/v1/health", None);
    let you = json!({ "name": "environment", "role": "admin", "may_start": true });
    assert_eq!((status, &body["you"]), (200, &you), "{body}");
    assert_eq!(call(&address, Some("a secret of the environmenT"), "GET", "/api/v1/sessions", None).0, 401);
    // A session of its own does not get it.
    let session = daemon.run(&["whoami"]);
    let told = daemon.wait_kind(&session, "status");
    assert!(!told["data"].to_string().contains(token), "{told}");
}

#[test]
fn a_wrong_environment_is_told_before_anything_starts() {
    for (name, value, said) in [
        ("INTERCOM_API_PORT", "http", "INTERCOM_API_PORT: \"http\" is not a port"),
        ("INTERCOM_API_BIND", "here", "INTERCOM_API_BIND: \"here\" is not an address"),
        ("INTERCOM_API_TOKEN", "short", "INTERCOM_API_TOKEN: at least 16 characters are needed"),
    ] {
        let dir = home("");
        let ran = run(command(dir.path()).args(SERVE).env(name, value));
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.stderr.contains(said), "{ran:?}");
    }
}

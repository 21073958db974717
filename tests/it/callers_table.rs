//! Every endpoint × every kind of caller, through the real binary. The endpoints come from the daemon's own list; the expected
//! answer follows from the least role of the endpoint and from the caller.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use intercom_testkit::harness::{Daemon, QUICK, SERVE, alive, command, home, kill_all_in, run, sign_in};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::access::call;

const ROLES: [&str; 4] = ["viewer", "operator", "approver", "admin"];

/// Makes all requests of a list as one caller, and writes status and error code of each. How it connects: `unix`, `tcp` from
/// an address, or `ghost`, over a connection that another process has opened that has exited since.
const CALLER: &str = r#"
import http.client, json, os, socket, sys, time
spec = json.load(open(sys.argv[1]))
while not os.path.exists(spec["go"]):
    time.sleep(0.01)
if "uid" in spec:
    os.setgid(spec["uid"])
    os.setuid(spec["uid"])
def unix():
    stream = socket.socket(socket.AF_UNIX)
    stream.connect(spec["socket"])
    return stream
def tcp():
    host, port = spec["address"].rsplit(":", 1)
    return socket.create_connection((host, int(port)), source_address=(spec["source"], 0))
def ghost():
    here, there = socket.socketpair()
    if os.fork() == 0:
        stream = unix()
        socket.send_fds(there, [b"x"], [stream.fileno()])
        os._exit(0)
    there.close()
    _, fds, _, _ = socket.recv_fds(here, 1, 1)
    os.wait()
    return socket.socket(fileno=fds[0])
class Connection(http.client.HTTPConnection):
    def connect(self):
        self.sock = {"unix": unix, "tcp": tcp, "ghost": ghost}[spec["how"]]()
        self.sock.settimeout(30)
connection = Connection(spec["address"])
answers = []
for method, path in spec["requests"]:
    headers = {"accept": "application/json", **spec["headers"]}
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    if "event-stream" in (answer.getheader("content-type") or ""):
        text = b""
        connection.close()
    else:
        text = answer.read()
    try:
        code = json.loads(text)["error"]["code"]
    except (ValueError, KeyError, TypeError):
        code = None
    answers.append([answer.status, code])
open(sys.argv[2] + ".new", "w").write(json.dumps(answers))
os.rename(sys.argv[2] + ".new", sys.argv[2])
if "INTERCOM_SESSION" in os.environ:
    sys.stdin.read()
    while spec.get("stays"):
        time.sleep(1)
"#;

/// What a caller is to the daemon.
#[derive(Clone, Copy)]
enum Standing {
    /// By index into [`ROLES`].
    Role(usize),
    /// On the port, without a token.
    Nobody,
    /// With a token that is not valid any more.
    BadToken,
    /// Refused before the endpoint is even looked at, with this code.
    Refused(&'static str),
}

impl Standing {
    /// `least` is the index of the least role; `None` if the endpoint takes everybody.
    fn expects(self, least: Option<usize>, status: u64, code: Option<&str>) -> bool {
        let is_let_in = ![401, 403].contains(&status);
        match (self, least) {
            (Self::Refused(expected), _) => (status, code) == (403, Some(expected)),
            (Self::BadToken, _) => {
                matches!((status, code), (401, Some("unauthorized")) | (429, Some("too_many_failures")))
            }
            (Self::Nobody, Some(_)) => (status, code) == (401, Some("unauthorized")),
            (Self::Role(role), Some(least)) if role < least => (status, code) == (403, Some("forbidden")),
            (Self::Role(_) | Self::Nobody, _) => is_let_in,
        }
    }
}

struct Endpoint {
    method: String,
    path: String,
    least: Option<usize>,
}

/// All of the daemon's list, and the way in for ACP clients, which is not in it.
fn endpoints(address: &str) -> Vec<Endpoint> {
    let (_, document) = call(address, None, "GET", "/api/v1/openapi.json", None);
    let mut found = vec![Endpoint { method: "POST".to_owned(), path: "/acp".to_owned(), least: Some(0) }];
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let least = operation["x-least-role"].as_str();
            let least = least.map(|role| ROLES.iter().position(|known| *known == role).unwrap());
            let path = path.replace("{id}", "none-such");
            found.push(Endpoint { method: method.to_uppercase(), path, least });
        }
    }
    assert!(found.len() > 45, "{}", found.len());
    found
}

/// The daemon that is called, with a socket that other users can reach, and operators by uid.
fn called_daemon() -> Daemon {
    let operators: String = ROLES
        .iter()
        .enumerate()
        .map(|(at, role)| {
            format!("[[operator]]\nname = \"uid-{role}\"\nuid = {}\nrole = \"{role}\"\n", 65_500 + at)
        })
        .collect::<Vec<_>>()
        .concat();
    let dir = home(&format!("{QUICK}{operators}[api]\nlisten = \"127.0.0.1:0\"\n"));
    let open = dir.path().join("open");
    std::fs::create_dir(&open).unwrap();
    // Callers of other users come through here, and leave their answers in the workspace.
    for (path, mode) in [(dir.path(), 0o755), (&open, 0o755), (&dir.path().join("work"), 0o777)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let socket = open.join("intercom.sock");
    let mut serve = command(dir.path());
    serve.args(SERVE).arg("--socket").arg(&socket);
    Daemon::launch(dir, &mut serve, |_| socket)
}

/// One table: callers are prepared, let go, and judged.
struct Table {
    daemon: Daemon,
    address: String,
    endpoints: Vec<Endpoint>,
    callers: Vec<(String, Standing, PathBuf)>,
}

impl Table {
    fn new() -> Self {
        let daemon = called_daemon();
        let address = daemon.address();
        let endpoints = endpoints(&address);
        std::fs::write(daemon.workspace().join("caller.py"), CALLER).unwrap();
        Self { daemon, address, endpoints, callers: Vec::new() }
    }

    /// The arguments with which `python3` becomes this caller.
    fn caller(&mut self, name: &str, standing: Standing, more: &Value) -> [String; 3] {
        let place = |kind: &str| self.daemon.workspace().join(format!("{}.{kind}", name.replace(' ', "-")));
        let requests: Vec<_> =
            self.endpoints.iter().map(|endpoint| [&endpoint.method, &endpoint.path]).collect();
        let mut spec = json!({
            "how": "unix", "socket": self.daemon.socket(), "address": self.address, "source": "127.0.0.1",
            "headers": {}, "requests": requests, "go": self.daemon.workspace(),
        });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        std::fs::write(place("json"), spec.to_string()).unwrap();
        self.callers.push((name.to_owned(), standing, place("out")));
        let text = |path: PathBuf| path.to_str().unwrap().to_owned();
        [text(self.daemon.workspace().join("caller.py")), text(place("json")), text(place("out"))]
    }

    /// A process outside of every session.
    fn person(&mut self, name: &str, standing: Standing, more: &Value) {
        let args = self.caller(name, standing, more);
        let ran = run(Command::new("python3").args(args));
        assert_eq!(ran.code, 0, "{name}: {ran:?}");
    }

    /// An agent of this daemon, or another one's; its session.
    fn agent(&mut self, name: &str, standing: Standing, of: Option<&Daemon>, more: &Value) -> String {
        let args = self.caller(name, standing, more);
        let of = of.unwrap_or(&self.daemon);
        let (status, session) = of.ask_to_start(json!({ "command": "python3", "args": args }));
        assert_eq!(status, 201, "{session}");
        session["id"].as_str().unwrap().to_owned()
    }

    fn with_token(token: &str) -> Value {
        json!({ "how": "tcp", "headers": { "authorization": format!("Bearer {token}") } })
    }

    /// Asserts every pair.
    fn judge(mut self) {
        let mut wrong = Vec::new();
        let mut pairs = 0;
        for (name, standing, out) in std::mem::take(&mut self.callers) {
            let answers = self.daemon.until(&format!("the answers to {name}"), |_| std::fs::read(&out).ok());
            let answers: Vec<(u64, Option<String>)> = serde_json::from_slice(&answers).unwrap();
            assert_eq!(answers.len(), self.endpoints.len(), "{name}");
            for (Endpoint { method, path, least }, (status, code)) in self.endpoints.iter().zip(answers) {
                pairs += 1;
                if !standing.expects(*least, status, code.as_deref()) {
                    wrong.push(format!("{method} {path} as {name}: {status} {code:?}"));
                }
            }
        }
        assert!(wrong.is_empty(), "{} of {pairs}:\n{}", wrong.len(), wrong.join("\n"));
        assert!(pairs > 1000, "{pairs}");
    }
}

/// The secret of a new token, and its id.
fn token(daemon: &Daemon, role: &str, ttl: Option<&str>) -> (String, String) {
    let (status, made) = daemon.post("/api/v1/tokens", &json!({ "name": "ana", "role": role, "ttl": ttl }));
    assert_eq!(status, 201, "{made}");
    let text = |name: &str| made[name].as_str().unwrap().to_owned();
    (text("secret"), text("id"))
}

/// The headers of a browser that signed in with this token.
fn signed_in(address: &str, token: &str) -> Value {
    let answer = sign_in(address, &json!({ "token": token }));
    let cookie = answer.cookie();
    json!({ "how": "tcp", "headers": { "cookie": cookie, "origin": format!("http://{address}"), "x-intercom": "1" } })
}

/// Ends daemon and shim of a session, so that only the mark of its agent is left; the agent's pid.
fn orphan(other: Daemon, session: &str) -> (tempfile::TempDir, i64) {
    let pid = other.show(session)["pid"].as_i64().unwrap();
    let meta = other.dir.path().join(format!("state/agents/{session}/1/meta.json"));
    let meta: Value = serde_json::from_slice(&std::fs::read(meta).unwrap()).unwrap();
    let shim = meta["shim"]["pid"].as_i64().unwrap();
    let (dir, _) = other.end(Signal::SIGKILL);
    let end = |pid: i64| {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid.try_into().unwrap()), Signal::SIGKILL)
    };
    end(shim).unwrap();
    while alive(shim) {
        std::thread::yield_now();
    }
    assert!(alive(pid));
    (dir, pid)
}

fn people(table: &mut Table) {
    table.person("own user", Standing::Role(3), &json!({}));
    table.person("no token", Standing::Nobody, &json!({ "how": "tcp" }));
    table.person(
        "no token from a second address",
        Standing::Nobody,
        &json!({ "how": "tcp", "source": "127.0.0.2" }),
    );
    table.person("dead peer", Standing::Refused("unknown_process"), &json!({ "how": "ghost" }));
    for (at, role) in ROLES.iter().enumerate() {
        let (secret, _) = token(&table.daemon, role, None);
        table.person(&format!("token {role}"), Standing::Role(at), &Table::with_token(&secret));
        let mut second = Table::with_token(&secret);
        second["source"] = json!("127.0.0.2");
        table.person(&format!("token {role} from a second address"), Standing::Role(at), &second);
        let cookie = signed_in(&table.address, &secret);
        table.person(&format!("cookie {role}"), Standing::Role(at), &cookie);
        if nix::unistd::Uid::effective().is_root() {
            table.person(&format!("uid {role}"), Standing::Role(at), &json!({ "uid": 65_500 + at }));
        }
    }
    if nix::unistd::Uid::effective().is_root() {
        table.person("another user", Standing::Refused("forbidden"), &json!({ "uid": 65_510 }));
    }
    let (revoked, id) = token(&table.daemon, "admin", None);
    assert_eq!(table.daemon.request("DELETE", &format!("/api/v1/tokens/{id}"), None, &[]).0, 204);
    table.person("revoked token", Standing::BadToken, &Table::with_token(&revoked));
    let (expired, _) = token(&table.daemon, "admin", Some("1s"));
    let address = table.address.clone();
    table.daemon.until("its end", |_| {
        (call(&address, Some(&expired), "GET", "/api/v1/health", None).0 != 200).then_some(())
    });
    table.person("expired token", Standing::BadToken, &Table::with_token(&expired));
}

/// Agents of this daemon and of another one; the other daemon's directory and what is left of its agent at the end.
fn agents(table: &mut Table) -> (tempfile::TempDir, i64) {
    let stolen = Table::with_token(&token(&table.daemon, "admin", None).0);
    let mut second = stolen.clone();
    second["source"] = json!("127.0.0.2");
    let from_agent = Standing::Refused("from_agent");
    let ways = [("socket", json!({})), ("token", stolen), ("second address", second)];
    for (way, more) in &ways {
        table.agent(&format!("agent by {way}"), from_agent, None, more);
    }
    table.agent("agent without token", Standing::Nobody, None, &json!({ "how": "tcp" }));
    let other = Daemon::quick("[daemon]\ncgroups = false\n");
    for (way, more) in &ways {
        table.agent(&format!("agent of another daemon by {way}"), from_agent, Some(&other), more);
    }
    let go = table.daemon.dir.path().join("go");
    let orphaned = table.agent("orphan", from_agent, Some(&other), &json!({ "go": go, "stays": true }));
    // The others are done before their daemon is killed.
    for (name, _, out) in table.callers.clone() {
        if name != "orphan" {
            table.daemon.until(&name, |_| out.exists().then_some(()));
        }
    }
    let left = orphan(other, &orphaned);
    std::fs::write(go, "").unwrap();
    left
}

#[test]
fn every_endpoint_answers_every_caller_by_its_least_role() {
    let mut table = Table::new();
    people(&mut table);
    let (dir, pid) = agents(&mut table);
    let out =
        table.callers.iter().find(|(name, ..)| name == "orphan").map(|(_, _, out)| out.clone()).unwrap();
    table.daemon.until("the orphan's answers", |_| out.exists().then_some(()));
    assert!(alive(pid));
    kill_all_in(dir.path());
    table.judge();
}

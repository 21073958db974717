//! A caller on the unix socket is the process that connected, and no other that has its number or its socket later.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use intercom_testkit::client::{Answer, Connection};
use intercom_testkit::harness::{Daemon, SERVE, command, home, output, run};
use serde_json::json;

use crate::INTERCOM;
use crate::access::token;

/// In a pid namespace of its own: starts a daemon and an agent. A child of the agent connects, leaves the connection to a
/// child of its own, and exits. Then a person's process gets the pid that connected, and the agent sends its request.
const REUSE: &str = r#"
import json, os, socket, subprocess, sys, time
home, intercom = sys.argv[1:]
path = home + "/state/intercom.sock"
def until(what, look):
    deadline = time.time() + 20
    while time.time() < deadline:
        if found := look():
            return found
        time.sleep(0.01)
    sys.exit("waited too long for " + what)
def connected():
    stream = socket.socket(socket.AF_UNIX)
    try:
        stream.connect(path)
        return stream
    except OSError:
        return None
def read(name):
    try:
        text = open(f"{home}/work/{name}").read()
        return text if text.endswith("\n") else None
    except OSError:
        return None
daemon = subprocess.Popen([intercom, "serve", "--on-stop", "drain"], stdin=subprocess.DEVNULL, stderr=open(home + "/log", "w"))
stream = until("the daemon", connected)
body = json.dumps({"command": "python3", "args": ["agent.py", path], "workspace": home + "/work"})
stream.sendall(f"POST /api/v1/sessions HTTP/1.1\r\nhost: intercom\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode())
assert stream.recv(65536).startswith(b"HTTP/1.1 201"), "the session does not start"
opener = int(until("the opener", lambda: read("opener")))
until("its end", lambda: not os.path.exists(f"/proc/{opener}"))
person = None
for _ in range(10000):
    open("/proc/sys/kernel/ns_last_pid", "w").write(str(opener - 1))
    child = subprocess.Popen(["sleep", "1000"])
    if child.pid == opener:
        person = child
        break
    child.kill()
    child.wait()
assert person, "the pid was not given again"
open(home + "/work/go", "w").close()
print(until("the answer", lambda: read("answer")), flush=True)
assert person.poll() is None and os.path.exists(f"/proc/{opener}"), "the person has gone"
person.kill()
person.wait()
daemon.terminate()
daemon.wait()
"#;

const REUSING_AGENT: &str = r#"
import os, socket, sys, time
if os.fork() == 0:
    stream = socket.socket(socket.AF_UNIX)
    stream.connect(sys.argv[1])
    opener = os.getpid()
    if os.fork() == 0:
        while not os.path.exists("go"):
            time.sleep(0.01)
        stream.sendall(b"GET /api/v1/audit HTTP/1.1\r\nhost: intercom\r\nconnection: close\r\n\r\n")
        answer = b""
        while chunk := stream.recv(65536):
            answer += chunk
        open("answer.new", "wb").write(answer + b"\n")
        os.rename("answer.new", "answer")
        os._exit(0)
    open("opener.new", "w").write(f"{opener}\n")
    os.rename("opener.new", "opener")
    os._exit(0)
os.wait()
sys.stdin.read()
"#;

#[test]
fn a_pid_that_a_person_has_now_does_not_let_the_agent_in_that_had_it() {
    let root = nix::unistd::Uid::effective().is_root();
    let flags: &[&str] = &["--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let flags = &flags[usize::from(root)..];
    if !Command::new("unshare").args(flags).arg("true").status().is_ok_and(|status| status.success()) {
        eprintln!("not tested: no pid namespaces here");
        return;
    }
    let dir = home("");
    std::fs::write(dir.path().join("work/agent.py"), REUSING_AGENT).unwrap();
    let mut unshare = Command::new("unshare");
    unshare.args(flags).args(["python3", "-c", REUSE]).arg(dir.path()).arg(INTERCOM).env_clear();
    unshare.envs(command(dir.path()).get_envs().filter_map(|(name, value)| Some((name, value?))));
    let child = unshare.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let ran = output(child).ok();
    assert!(ran.stdout.contains("HTTP/1.1 403"), "{ran:?}");
    assert!(ran.stdout.contains("unknown_process"), "{ran:?}");
}

/// Two requests over one connection that `opener` opened: one while it runs, one after it has exited, spoken by us.
fn before_and_after_its_exit(daemon: &Daemon) -> (Answer, Answer) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let script = "import socket,sys; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); \
                  p=socket.socket(fileno=0); socket.send_fds(p,[b'x'],[s.fileno()]); p.recv(1)";
    let mut opener = Command::new("python3")
        .args(["-c", script])
        .arg(daemon.socket())
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .spawn()
        .unwrap();
    let mut connection = Connection::over(received(&ours));
    let before = ask(&mut connection);
    drop(ours);
    assert!(opener.wait().unwrap().success());
    (before, ask(&mut connection))
}

/// The socket that the other process has sent.
fn received(from: &UnixStream) -> UnixStream {
    use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
    use std::os::fd::{AsRawFd, FromRawFd};
    let mut byte = [0; 1];
    let mut slices = [std::io::IoSliceMut::new(&mut byte)];
    let mut space = nix::cmsg_space!([i32; 1]);
    let message =
        recvmsg::<()>(from.as_raw_fd(), &mut slices, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC).unwrap();
    let control = message.cmsgs().unwrap().next().unwrap();
    let ControlMessageOwned::ScmRights(fds) = control else { panic!("{control:?}") };
    // SAFETY: the kernel has just made it for us.
    #[expect(unsafe_code, reason = "a received descriptor is a plain number until it is owned")]
    unsafe {
        UnixStream::from_raw_fd(fds[0])
    }
}

/// The answer to a request that only admins may make.
fn ask(connection: &mut Connection) -> Answer {
    connection.request("GET", "/api/v1/tokens", &[], "").unwrap()
}

#[test]
fn a_connection_ends_to_be_its_openers_when_the_opener_has_exited() {
    let daemon = Daemon::start();
    let (before, after) = before_and_after_its_exit(&daemon);
    assert_eq!(before.status, 200, "while its opener runs, a passed socket is the opener's: {before:?}");
    assert!(after.status == 403 && after.body.contains("unknown_process"), "{after:?}");
    let mut own = Connection::open(&daemon.socket()).unwrap();
    assert!(ask(&mut own).status == 200 && ask(&mut own).status == 200);
}

/// Calls from one address of this machine after the other, and adds an address of its own meanwhile. Prints an answer per
/// line, as the status of an agent if it is one.
const CALLER: &str = r#"
import json, os, socket, subprocess, sys
address, token, *sources = open("notes").read().split()
host, port = address.rsplit(":", 1)
host = host.strip("[]")
family = socket.AF_INET6 if ":" in host else socket.AF_INET
def say(text):
    print(json.dumps({"method": "status/update", "params": {"message": text}}) if "INTERCOM_SESSION" in os.environ else text, flush=True)
for source in sources:
    if source.startswith("+"):
        source = source[1:]
        # Without nodad the kernel checks an IPv6 address for duplicates first, and nothing can be bound to it meanwhile.
        settings = ["/128", "nodad"] if ":" in source else ["/32"]
        subprocess.run(["ip", "addr", "add", source + settings[0], "dev", "lo", *settings[1:]], check=True)
    stream = socket.socket(family)
    stream.bind((source, 0))
    stream.connect((host, int(port)))
    request = f"GET /api/v1/tokens HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\nauthorization: Bearer {token}\r\n\r\n"
    stream.sendall(request.encode())
    answer = b""
    while chunk := stream.recv(65536):
        answer += chunk
    status = answer.decode().split(" ", 2)[1]
    say(f"{source} {status}" + (" from_agent" if b"from_agent" in answer else ""))
if "INTERCOM_SESSION" in os.environ:
    sys.stdin.read()
"#;

/// In a network namespace with more than one address: what an agent and a person with the same token are answered.
fn check_addresses(flags: &[&str], listen: &str, sources: &[&str]) {
    let dir = home(&format!("[api]\nlisten = \"{listen}\"\n"));
    let first = sources[1];
    let settings = if first.contains(':') { "/128 dev lo nodad" } else { "/32 dev lo" };
    let script =
        format!("ip link set lo up && ip addr add {first}{settings} && exec {INTERCOM} {}", SERVE.join(" "));
    let mut unshare = Command::new("unshare");
    unshare.args(flags).args(["sh", "-c", &script]).env_clear();
    unshare.envs(command(dir.path()).get_envs().filter_map(|(name, value)| Some((name, value?))));
    let socket = dir.path().join("state/intercom.sock");
    let daemon = Daemon::launch(dir, &mut unshare, |_| socket);
    let notes = |sources: &str| format!("{} {} {sources}", daemon.address(), token(&daemon, "ana", "admin"));
    std::fs::write(daemon.workspace().join("notes"), notes(&sources.join(" "))).unwrap();
    std::fs::write(daemon.workspace().join("caller.py"), CALLER).unwrap();
    let (status, session) = daemon.ask_to_start(json!({ "command": "python3", "args": ["caller.py"] }));
    assert_eq!(status, 201, "{session}");
    let session = session["id"].as_str().unwrap();
    for source in sources {
        daemon.wait_status(session, &format!("{} 403 from_agent", source.trim_start_matches('+')));
    }
    // A person with the same token is let in from the same addresses.
    let sources: Vec<&str> = sources.iter().map(|source| source.trim_start_matches('+')).collect();
    std::fs::write(daemon.workspace().join("notes"), notes(&sources.join(" "))).unwrap();
    let mut person = Command::new("nsenter");
    person.arg(format!("--target={}", daemon.pid())).arg("--net");
    person.args(["--user", "--preserve-credentials"].iter().filter(|_| flags.contains(&"--user")));
    let answers = run(person.args(["python3", "-c", CALLER]).current_dir(daemon.workspace())).ok().stdout;
    let expected: Vec<String> = sources.iter().map(|source| format!("{source} 200")).collect();
    assert_eq!(answers.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn an_agent_is_known_by_whichever_address_of_this_machine_it_calls_from() {
    let root = nix::unistd::Uid::effective().is_root();
    let flags: &[&str] = if root { &["--net"] } else { &["--user", "--map-root-user", "--net"] };
    let possible = Command::new("unshare").args(flags).args(["ip", "link", "set", "lo", "up"]).status();
    if !possible.is_ok_and(|status| status.success()) {
        eprintln!("not tested: no network namespaces here");
        return;
    }
    check_addresses(flags, "127.0.0.1:0", &["127.0.0.2", "10.9.8.7", "+10.9.8.8"]);
    check_addresses(flags, "[::1]:0", &["::1", "fd00:9::7", "+fd00:9::8"]);
}

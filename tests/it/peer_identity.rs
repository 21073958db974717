//! A caller on the unix socket is the process that connected, and no other that has its number or its socket later.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use crate::harness::{Daemon, INTERCOM, command, connect, home, output};

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
fn before_and_after_its_exit(daemon: &Daemon) -> (String, String) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let script = "import socket,sys; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); \
                  p=socket.socket(fileno=0); socket.send_fds(p,[b'x'],[s.fileno()]); p.recv(1)";
    let mut opener = Command::new("python3")
        .args(["-c", script])
        .arg(daemon.socket())
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .spawn()
        .unwrap();
    let mut stream = received(&ours);
    let before = ask(&mut stream);
    drop(ours);
    assert!(opener.wait().unwrap().success());
    (before, ask(&mut stream))
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

/// The head of the answer to a request that only admins may make.
fn ask(stream: &mut UnixStream) -> String {
    stream.set_read_timeout(Some(crate::harness::PATIENCE)).unwrap();
    stream.write_all(b"GET /api/v1/tokens HTTP/1.1\r\nhost: intercom\r\n\r\n").unwrap();
    let mut answer = vec![0; 4096];
    let read = stream.read(&mut answer).unwrap();
    String::from_utf8_lossy(&answer[..read]).into_owned()
}

#[test]
fn a_connection_ends_to_be_its_openers_when_the_opener_has_exited() {
    let daemon = Daemon::start();
    let (before, after) = before_and_after_its_exit(&daemon);
    assert!(
        before.starts_with("HTTP/1.1 200"),
        "while its opener runs, a passed socket is the opener's: {before}"
    );
    assert!(after.starts_with("HTTP/1.1 403") && after.contains("unknown_process"), "{after}");
    let mut own = connect(&daemon.socket()).unwrap();
    assert!(ask(&mut own).starts_with("HTTP/1.1 200") && ask(&mut own).starts_with("HTTP/1.1 200"));
}

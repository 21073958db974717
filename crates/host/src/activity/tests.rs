use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Child as Started, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::super::identity::ProcessStat;
use super::super::tree::sweep;
use super::*;

/// A shell in the shim's place, and another below it as the agent.
struct Tree(Started);

impl Tree {
    fn of(script: &str, stdout: impl Into<Stdio>) -> Self {
        let mut root = Command::new("sh");
        root.args(["-c", "exec sh -c \"$0\" & wait", script]).stdin(Stdio::null()).stdout(stdout);
        Self(root.spawn().unwrap())
    }

    fn root(&self) -> i32 {
        i32::try_from(self.0.id()).unwrap()
    }

    fn now(&self) -> ProcessActivity {
        of_tree(self.root()).unwrap()
    }

    fn until(&self, what: &str, is_so: impl Fn(&ProcessActivity) -> bool) -> ProcessActivity {
        let begin = Instant::now();
        loop {
            let now = self.now();
            if is_so(&now) {
                return now;
            }
            assert!(begin.elapsed() < Duration::from_secs(30), "{what}: {now:?}");
            std::thread::sleep(Duration::from_millis(5)); // between two looks
        }
    }

    fn until_child(&self, name: &str) -> ProcessActivity {
        self.until(name, |now| now.children.first().is_some_and(|child| child.name == name))
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        sweep(self.root());
        self.0.kill().ok(); // it may have gone with those below
        self.0.wait().ok();
    }
}

#[test]
fn a_busy_process_uses_cpu() {
    let tree = Tree::of("while :; do :; done", Stdio::null());
    let before = tree.until("it runs", |now| now.processes == 1).cpu_millis;
    tree.until("it is busy", |now| now.cpu_millis > before + 50);
}

#[test]
fn what_a_process_did_outlives_it() {
    let count = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
    let tree = Tree::of(&format!("({count}); sleep 1000; :"), Stdio::null());
    let after = tree.until_child("sleep 1000");
    let own = walk(tree.root()).iter().map(|it| it.stat.ticks).sum();
    assert!(after.cpu_millis > millis(own), "{after:?}");
}

#[test]
fn a_process_that_writes_does_io() {
    let tree = Tree::of("while :; do echo x; done", Stdio::null());
    let before = tree.until("it writes", |now| now.io_bytes.is_some()).io_bytes;
    let later = tree.until("it writes more", |now| now.io_bytes > before.map(|bytes| bytes + 10_000));
    assert_eq!((later.net_bytes, later.connections), (Some(0), Some(0)), "it is no network");
}

#[test]
fn bytes_that_arrive_are_seen_and_a_silent_connection_is_counted() {
    // A machine need not have the second.
    for listener in ["127.0.0.1:0", "[::1]:0"].into_iter().filter_map(|any| TcpListener::bind(any).ok()) {
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let tree = Tree::of("sleep 1000; :", OwnedFd::from(client));
        let silent = tree.until("it is connected", |now| now.connections == Some(1)).net_bytes.unwrap();
        server.write_all(&[b'x'; 5000]).unwrap();
        let heard = tree.until("bytes arrive", |now| now.net_bytes >= Some(silent + 5000));
        assert_eq!(heard.net_bytes, Some(silent + 5000), "they count once, whoever shares the connection");
        drop(server);
        tree.until("the other end closes", |now| now.connections == Some(0));
    }
}

#[test]
fn a_stopped_process_is_named() {
    let tree = Tree::of("sleep 1000; :", Stdio::null());
    assert_eq!(tree.until_child("sleep 1000").stopped, None);
    let sleep = walk(tree.root()).into_iter().find(|it| it.stat.name == "sleep").unwrap().pid;
    kill(Pid::from_raw(sleep), Signal::SIGSTOP).unwrap();
    let stopped = tree.until("it is stopped", |now| now.stopped.is_some());
    assert_eq!(stopped.stopped.as_deref(), Some("sleep"));
    let agent = walk(tree.root())[0].pid;
    kill(Pid::from_raw(agent), Signal::SIGSTOP).unwrap();
    tree.until("the nearest is named", |now| now.stopped.as_deref() == Some("sh"));
}

#[test]
fn a_shell_that_runs_one_command_is_that_command() {
    let tree = Tree::of("sh -c 'sleep 1000; :'; :", Stdio::null());
    let now = tree.until_child("sleep 1000");
    assert_eq!(now.processes, 3, "the agent, the shell and the command");
    let age = |now: &ProcessActivity| now.children[0].age_millis;
    let later = tree.until("it grows older", |later| age(later) > age(&now));
    assert!(age(&later) < 60_000, "{later:?}");
}

#[test]
fn a_shell_that_runs_two_commands_is_itself() {
    let tree = Tree::of("sh -c 'sleep 1000 & sleep 1001 & wait; :'; :", Stdio::null());
    tree.until("all run", |now| now.processes == 4);
    tree.until_child("sh");
}

#[test]
fn a_tree_that_has_gone_is_nothing() {
    assert_eq!(of_tree(i32::MAX), None);
    assert_eq!((io_bytes(i32::MAX), sockets(i32::MAX)), (None, None));
}

/// `started` in seconds.
fn process(pid: i32, parent: i32, started: u64) -> ProcessBelow {
    let started = started * ticks_per_second();
    let name = "sh".to_owned();
    ProcessBelow {
        pid,
        stat: ProcessStat {
            name,
            state: 'S',
            threads: 1,
            ticks: 0,
            reaped_ticks: 0,
            pages: 0,
            parent,
            leader: 0,
            started,
        },
    }
}

#[test]
fn what_did_not_start_with_the_agent_comes_first() {
    let mut tree = vec![process(10, 1, 100)];
    let chosen = |tree: &[ProcessBelow]| {
        choose(tree, &parts(tree, 1), |_| false).iter().map(|it| it.pid).collect::<Vec<_>>()
    };
    assert_eq!(chosen(&tree), [0; 0], "the agent is not its own child");
    tree.extend([process(9, 1, 300), process(11, 10, 101), process(12, 10, 102)]);
    assert_eq!(chosen(&tree), [11, 12], "there is nothing but tool servers");
    tree.push(process(13, 12, 400));
    assert_eq!(chosen(&tree), [13, 11, 12], "behind an adapter");
    tree.extend([process(14, 10, 500), process(15, 10, 450), process(16, 14, 501)]);
    assert_eq!(chosen(&tree), [13, 15, 14, 11, 12], "the oldest first; what a tool starts is the tool");
}

#[test]
fn wrappers_that_go_round_in_circles_end() {
    let tree = [process(10, 1, 100), process(11, 10, 101), process(12, 11, 102), process(11, 12, 103)];
    assert!(!choose(&tree, &parts(&tree, 1), |_| true).is_empty());
}

#[test]
fn a_name_is_short_and_says_no_secrets() {
    let of = |line: &str| name(&line.split(' ').map(str::to_owned).collect::<Vec<_>>(), "comm");
    assert_eq!(of("/usr/bin/cargo test --lib host"), "cargo test");
    assert_eq!(of("timeout 60 npm run build now"), "timeout 60 npm run");
    assert_eq!(of("psql postgres://me:secret@host/db"), "psql");
    assert_eq!(of("env KEY=secret x"), "env");
    assert_eq!(of(""), "comm");
    assert_eq!(of("a\x1b[31m\nb/c\x07d"), "c\u{fffd}d");
    assert_eq!(of(&"x".repeat(100)).len(), MAX_NAME_CHARS);
    assert!(runs_a_command(&["bash", "--norc", "-lc", "x"].map(str::to_owned)));
    assert!(!runs_a_command(&["bash", "--norc", "script", "-c"].map(str::to_owned)));
}

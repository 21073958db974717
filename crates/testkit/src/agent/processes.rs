//! The steps that are about processes: its own, and those that it starts.

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigSet, Signal, raise};
use nix::unistd::{self, ForkResult, Pid};
use serde_json::{Map, Value, json};

use super::Agent;
use super::stdio::write_all;
use crate::script::{Stop, number, number_or, pid_file, split};

/// How long a process sleeps that has nothing better to do: bounded, so that none outlives a failed test for long.
const TEN_MINUTES: u64 = 600_000;

impl Agent {
    pub(super) fn process_step(&mut self, name: &str, rest: &str) -> Result<bool, Stop> {
        match name {
            "ignore" if rest == "eof" => self.ignore_eof = true,
            // Blocked rather than ignored: the same to whoever sends it, as this is the only thread, and safe code.
            "ignore" => SigSet::from(signal(rest)?).thread_block()?,
            "close" => close(rest)?,
            "grandchild" => {
                let (flags, steps) = split(rest);
                let pid = grandchild(flags, steps)?;
                self.status("grandchild", json!({ "pid": pid }))?;
            }
            "spawn" => drop(ourselves()?.args(rest.split('|')).spawn()?),
            "hop" => {
                let Some(left) = number::<u64>(rest)?.checked_sub(1) else {
                    sleep(TEN_MINUTES);
                    return Ok(true);
                };
                sleep(3);
                ourselves()?.arg(format!("hop:{left}")).spawn()?;
                return Err(Stop::Exit(0));
            }
            "relay" => {
                let (count, rest) = split(rest);
                let (pause, seconds) = split(rest);
                let deadline = Instant::now() + Duration::from_secs(number(seconds)?);
                relay(number(count)?, Duration::from_millis(number(pause)?), deadline)?;
            }
            "leaderless" => leave_first_thread(),
            "ready" => {
                // Internal: a grandchild tells the agent that it is set up.
                write_all(io::stdin(), format!("{}\n", Pid::this()).as_bytes())?;
                close("stdin")?;
            }
            "setpgid" => unistd::setpgid(Pid::from_raw(0), Pid::from_raw(0))?,
            "setsid" => drop(unistd::setsid()?),
            "whoami" => self.status("whoami", whoami()?)?,
            "pid-file" => pid_file(rest)?,
            "hang" => hang(),
            "sleep" => sleep(number(rest)?),
            "connect" => connect(rest)?,
            "spin" => {
                let (start, span) = (Instant::now(), Duration::from_millis(number_or(rest, u64::MAX)?));
                while start.elapsed() < span {
                    std::hint::spin_loop();
                }
            }
            "repeat" => {
                let (n, step) = split(rest);
                (0..number::<u64>(n)?).try_for_each(|_| self.step(step))?;
            }
            "signal" => return Err(die(signal(rest)?)),
            "exit" => return Err(Stop::Exit(number(rest)?)),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

pub(super) fn signal(name: &str) -> Result<Signal, String> {
    format!("SIG{name}").parse().map_err(|_| format!("no signal {name:?}"))
}

pub(super) fn sleep(ms: u64) {
    thread::sleep(Duration::from_millis(ms));
}

/// A peer that says nothing keeps it waiting.
pub(super) fn connect(to: &str) -> io::Result<()> {
    let mut peer = std::net::TcpStream::connect(to)?;
    peer.read(&mut [0]).map(drop)
}

pub(super) fn hang() -> ! {
    loop {
        thread::park();
    }
}

/// As many processes as before at any time, so that a failed test fills no machine, and none after the deadline.
#[expect(unsafe_code, reason = "a relay is a fork without an exec: anything else takes too long")]
pub(super) fn relay(count: u64, pause: Duration, deadline: Instant) -> io::Result<()> {
    for _ in 0..count {
        // SAFETY: this program has one thread.
        if unsafe { unistd::fork() }?.is_parent() {
            continue;
        }
        while Instant::now() < deadline {
            thread::sleep(pause);
            // SAFETY: as above. Without room for another process, this one goes on.
            if unsafe { unistd::fork() }.is_ok_and(ForkResult::is_parent) {
                break;
            }
        }
        // SAFETY: nothing of it has to be tidied up.
        unsafe { nix::libc::_exit(0) }
    }
    Ok(())
}

#[expect(unsafe_code, reason = "the first thread ends without its process")]
fn leave_first_thread() -> ! {
    thread::spawn(|| {
        sleep(60_000);
        std::process::exit(0);
    });
    // SAFETY: nothing on its stack is used by the other thread.
    unsafe { nix::libc::syscall(nix::libc::SYS_exit, 0) };
    hang()
}

/// Nothing else may take the number of a standard stream, so the null device does: the pipe behind it is let go.
pub(super) fn close(stream: &str) -> Result<(), Stop> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    match stream {
        "stdin" => unistd::dup2_stdin(null)?,
        "stdout" => unistd::dup2_stdout(null)?,
        "stderr" => unistd::dup2_stderr(null)?,
        _ => return Err(Stop::Script("there is stdin, stdout and stderr".into())),
    }
    Ok(())
}

fn die(signal: Signal) -> Stop {
    let survived = setrlimit(Resource::RLIMIT_CORE, 0, 0).and_then(|()| {
        raise(signal)?; // a first SIGSEGV only makes std's handler step aside
        raise(signal)
    });
    Stop::Script(format!("the agent survived ({survived:?})"))
}

fn ourselves() -> io::Result<Command> {
    env::current_exe().map(Command::new)
}

/// Starts this program as a grandchild. It tells its pid on its stdin, a socket, once it is set up.
pub(super) fn grandchild(flags: &str, steps: &str) -> Result<i32, Stop> {
    let flags: Vec<&str> = flags.split(',').filter(|flag| !flag.is_empty()).collect();
    let known = ["group", "setsid", "double", "nohup", "clean", "stdout", "stderr"];
    if let Some(unknown) = flags.iter().find(|flag| !known.contains(flag)) {
        return Err(Stop::Script(format!("no flag {unknown:?}")));
    }
    let has = |flag| flags.contains(&flag);
    let pick = |stream| if has(stream) { Stdio::inherit() } else { Stdio::null() };

    let mut script: Vec<String> = Vec::new();
    script.extend(has("group").then(|| "setpgid".into()));
    script.extend(has("setsid").then(|| "setsid".into()));
    if has("nohup") {
        script.extend(["ignore:HUP", "ignore:INT", "ignore:TERM"].map(Into::into));
    }
    script.push("ready".into());
    script.push(if steps.is_empty() { format!("sleep:{TEN_MINUTES}") } else { steps.into() });
    let script = script.join("|");

    let (ours, theirs) = UnixStream::pair()?;
    let mut command = ourselves()?;
    command.stdin(OwnedFd::from(theirs)).stdout(pick("stdout")).stderr(pick("stderr"));
    if has("clean") {
        command.env_clear();
    }
    if has("double") {
        command.arg(format!("spawn:{script}")).status()?;
    } else {
        command.args(script.split('|')).spawn()?;
    }
    drop(command); // and with it our copy of their end
    let mut line = String::new();
    BufReader::new(ours).read_line(&mut line)?;
    line.trim().parse().map_err(|_| Stop::Script("the grandchild did not start".into()))
}

pub(super) fn whoami() -> Result<Value, Stop> {
    let text = |os: std::ffi::OsString| os.to_string_lossy().into_owned();
    let env: BTreeMap<_, _> = env::vars_os().map(|(name, value)| (text(name), text(value))).collect();
    Ok(json!({
        "pid": Pid::this().as_raw(),
        "ppid": Pid::parent().as_raw(),
        "pgid": unistd::getpgrp().as_raw(),
        "sid": unistd::getsid(None)?.as_raw(),
        "cwd": env::current_dir()?,
        "args": env::args_os().skip(1).map(text).collect::<Vec<_>>(),
        "env": env,
        "fds": open_files(),
        "signals": signal_masks(),
    }))
}

/// Descriptor → what it is, without the one that looks; empty where there is no `/proc`.
fn open_files() -> Map<String, Value> {
    let entries = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let files = entries.filter_map(|entry| {
        let target = fs::read_link(entry.path()).ok()?.to_string_lossy().into_owned();
        let looking = target.starts_with("/proc/");
        (!looking).then(|| (entry.file_name().to_string_lossy().into_owned(), target.into()))
    });
    files.collect()
}

/// `SigBlk`, `SigIgn` and `SigCgt` as the kernel prints them.
fn signal_masks() -> Map<String, Value> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let lines = status.lines().filter_map(|line| line.split_once(':'));
    let masks = lines.filter(|(name, _)| ["SigBlk", "SigIgn", "SigCgt"].contains(name));
    masks.map(|(name, mask)| (name.to_owned(), mask.trim().into())).collect()
}

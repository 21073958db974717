//! `intercom acp` as an editor starts it.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::Wire;
use crate::harness::command;

/// How messages are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    Lines,
    Lengths,
}

pub(super) struct Relay {
    child: Child,
    stdin: Option<ChildStdin>,
    framing: Framing,
    stderr: PathBuf,
}

pub(super) fn start(home: &Path, args: &[&str], framing: Framing) -> (Relay, Receiver<Value>) {
    let stderr = home.join("acp.log");
    let log = std::fs::OpenOptions::new().create(true).append(true).open(&stderr).unwrap();
    let mut child = command(home)
        .arg("acp")
        .args(args)
        .current_dir(home.join("work"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .unwrap();
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take().unwrap());
    let (tell, heard) = channel();
    std::thread::spawn(move || {
        let mut stdout = BufReader::new(stdout);
        while let Some(message) = read(&mut stdout, framing) {
            if tell.send(message).is_err() {
                break;
            }
        }
    });
    (Relay { child, stdin, framing, stderr }, heard)
}

/// The next message. Whatever else is on stdout is a failure: the thread ends, and so does the test that waits for it.
fn read(stdout: &mut impl BufRead, framing: Framing) -> Option<Value> {
    let mut line = String::new();
    if framing == Framing::Lines {
        stdout.read_line(&mut line).ok().filter(|read| *read > 0)?;
        assert!(line.ends_with('\n'), "half a line: {line:?}");
        return Some(serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}")));
    }
    let mut length = None;
    loop {
        line.clear();
        stdout.read_line(&mut line).ok().filter(|read| *read > 0)?;
        match line.trim_end_matches("\r\n").split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => length = value.parse().ok(),
            Some(_) => {}
            None => break assert_eq!(line, "\r\n", "no header"),
        }
    }
    let mut body = vec![0; length.expect("a length")];
    stdout.read_exact(&mut body).ok()?;
    Some(serde_json::from_slice(&body).expect("JSON"))
}

impl Wire for Relay {
    fn send(&mut self, text: &str) -> bool {
        let Some(stdin) = &mut self.stdin else { panic!("has left") };
        let framed = match self.framing {
            Framing::Lines => format!("{text}\n"),
            Framing::Lengths => format!("Content-Length: {}\r\n\r\n{text}", text.len()),
        };
        // It may have gone; then what comes says so.
        stdin.write_all(framed.as_bytes()).ok();
        stdin.flush().ok();
        true
    }

    fn hang_up(&mut self) {
        if self.stdin.take().is_none() {
            return;
        }
        let start = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if start.elapsed() > Duration::from_secs(8) {
                self.child.kill().ok();
                self.child.wait().ok();
                if !std::thread::panicking() {
                    let log = std::fs::read_to_string(&self.stderr).unwrap_or_default();
                    panic!("`intercom acp` does not end when stdin does: {log}");
                }
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

//! The reference in a process of its own, as its user sees it.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, ensure};
use intercom_testkit::harness::fixture;
use intercom_testkit::slack::FakeSlack;

use crate::daemon::PATIENCE;
use crate::flood::{Flooded, flooding};
use crate::{process, reference};

pub(super) struct Reference {
    /// Where it works; it goes with it.
    _dir: tempfile::TempDir,
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Reference {
    /// With its agents started, and connected to the chat if there is one.
    pub(super) fn start(chat: Option<&FakeSlack>, agents: usize, command: &[String]) -> anyhow::Result<Self> {
        let dir = tempfile::tempdir()?;
        let mut child = Command::new(std::env::current_exe()?)
            .args(reference::arguments(agents, command, chat.map(FakeSlack::api_url).as_deref()))
            .current_dir(dir.path()) // by which `scripts/bench` finds what is left over
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = BufReader::new(child.stdout.take().context("a pipe")?);
        let mut reference = Self { _dir: dir, child, stdout };
        ensure!(reference.line()? == "ready", "the reference does not start");
        if let Some(chat) = chat {
            chat.wait_connected(1);
        }
        Ok(reference)
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }

    pub(super) fn memory(
        &self,
        measure: impl Fn(&std::path::Path) -> anyhow::Result<f64>,
    ) -> anyhow::Result<f64> {
        measure(&process::proc_dir(self.child.id()))
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let start = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if start.elapsed() > PATIENCE {
                self.child.kill().ok(); // it may have ended just now
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}

/// One agent that talks as fast as it can, and ends when it has said everything.
pub(super) fn flood(chat: Option<&FakeSlack>, step: &str, lines: u64) -> anyhow::Result<Flooded> {
    let dir = tempfile::tempdir()?;
    let go = dir.path().join("go");
    let mut command = vec![fixture().to_string_lossy().into_owned()];
    command.extend(flooding(&go, step));
    let mut reference = Reference::start(chat, 1, &command)?;
    let pid = reference.child.id();
    let cpu = process::settled_cpu_seconds(pid)?;
    let start = Instant::now();
    std::fs::write(&go, "")?;
    let ended = reference.line()?;
    let seconds = start.elapsed().as_secs_f64();
    ensure!(ended == format!("ended {lines}"), "the reference says {ended:?}");
    Ok(Flooded::new(lines, seconds, process::settled_cpu_seconds(pid)? - cpu))
}

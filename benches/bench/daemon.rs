//! The real daemon in directories of its own, gone at the end.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use intercom_testkit::client::{Connection, Events};
use intercom_testkit::harness::{fixture, intercom};
use intercom_testkit::slack::{APP_TOKEN, BOT_TOKEN, CHANNEL, FakeSlack};
use nix::sys::signal::{Signal, kill};
use serde_json::json;

use crate::process;

/// Longer than anything here takes; reaching it is a failure.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);
/// More sessions than are measured with, and none that outlives its daemon.
const CONFIG: &str = "[limits]\nmax_sessions = 4000\n[daemon]\non_stop = \"drain\"\n";
/// Who decides in the chat.
pub(crate) const PERSON: &str = "U1";

/// A build of intercom to be measured.
#[derive(Debug, Clone)]
pub(crate) struct Build {
    /// What its figures are marked with; empty for the one under test.
    pub(crate) name: String,
    pub(crate) path: PathBuf,
}

impl Build {
    pub(crate) fn this() -> Self {
        Self { name: String::new(), path: intercom() }
    }
}

#[derive(Debug)]
pub(crate) struct Daemon {
    pub(crate) build: Build,
    dir: tempfile::TempDir,
    child: Child,
}

impl Daemon {
    pub(crate) fn start(build: &Build) -> anyhow::Result<Self> {
        Self::start_with(build, CONFIG, |_| Ok(()))
    }

    /// In a state directory that is filled first.
    pub(crate) fn start_after(
        build: &Build,
        fill: impl FnOnce(&Path) -> anyhow::Result<()>,
    ) -> anyhow::Result<Self> {
        Self::start_with(build, CONFIG, fill)
    }

    /// Connected to a chat in which [`PERSON`] decides, or to none.
    pub(crate) fn start_in_chat(build: &Build, chat: Option<&FakeSlack>) -> anyhow::Result<Self> {
        let Some(chat) = chat else { return Self::start(build) };
        let daemon = Self::start_with(
            build,
            &format!(
                "{CONFIG}[[operator]]\nname = \"ana\"\nrole = \"approver\"\nslack = \"{PERSON}\"\n\
                 [slack]\nchannel = \"{CHANNEL}\"\napi_url = \"{}\"\n",
                chat.api_url()
            ),
            |_| Ok(()),
        )?;
        chat.wait_connected(1);
        Ok(daemon)
    }

    fn start_with(
        build: &Build,
        config: &str,
        fill: impl FnOnce(&Path) -> anyhow::Result<()>,
    ) -> anyhow::Result<Self> {
        let dir = tempfile::tempdir()?;
        std::fs::create_dir(dir.path().join("work"))?;
        std::fs::write(dir.path().join("config.toml"), config)?;
        fill(&dir.path().join("state"))?;
        let child = serve(build, dir.path())?;
        let mut daemon = Self { build: build.clone(), dir, child };
        daemon.wait_until_it_listens()?;
        Ok(daemon)
    }

    /// As if by accident: its agents live on.
    pub(crate) fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Another daemon in the same place. Returns when it has found what the first one left, and listens.
    pub(crate) fn restart(&mut self) -> anyhow::Result<()> {
        self.child = serve(&self.build, self.dir.path())?;
        self.wait_until_it_listens()
    }

    fn wait_until_it_listens(&mut self) -> anyhow::Result<()> {
        let start = Instant::now();
        while self.client().is_err() {
            if self.child.try_wait()?.is_some() || start.elapsed() > PATIENCE {
                bail!("the daemon does not listen: {}", self.log());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("state/intercom.sock")
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.dir.path().join("state/intercom.db")
    }

    /// Where its agents work.
    pub(crate) fn workspace(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    /// A path for a file that agents may wait for.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("daemon.log")).unwrap_or_default()
    }

    pub(crate) fn client(&self) -> anyhow::Result<Connection> {
        let client = Connection::open(&self.socket())?;
        client.waits(Some(PATIENCE))?;
        Ok(client)
    }

    /// Everything that happens from now on, in all sessions.
    pub(crate) fn follow_all(&self) -> anyhow::Result<Events> {
        self.events(&format!("after={}", last_seq(&mut self.client()?)?))
    }

    /// One session from its first event on.
    pub(crate) fn follow(&self, session: &str) -> anyhow::Result<Events> {
        self.events(&format!("after=0&session={session}"))
    }

    fn events(&self, query: &str) -> anyhow::Result<Events> {
        let path = format!("/api/v1/events?{query}");
        let (answer, events) = Events::ask(&self.socket(), "GET", &path, &[], "")?;
        let mut events = events.with_context(|| format!("{path}: {answer:?}"))?;
        events.waits(Some(PATIENCE))?;
        Ok(events)
    }

    /// Starts an agent; its session's id once it runs.
    pub(crate) fn run(&self, program: &Path, args: &[String]) -> anyhow::Result<String> {
        let body = json!({ "command": program, "args": args, "workspace": self.dir.path().join("work") });
        let (status, session) = self.client()?.post("/api/v1/sessions", &body)?;
        ensure!(status == 201, "no session: {session}; {}", self.log());
        Ok(session["id"].as_str().context("a session has an id")?.to_owned())
    }

    /// Starts an ACP agent with a prompt; its session's id once it runs.
    pub(crate) fn run_acp(&self, program: &Path, prompt: &str) -> anyhow::Result<String> {
        let workspace = self.dir.path().join("work");
        let body = json!({ "command": program, "protocol": "acp", "workspace": workspace, "prompt": prompt });
        let (status, session) = self.client()?.post("/api/v1/sessions", &body)?;
        ensure!(status == 201, "no session: {session}; {}", self.log());
        Ok(session["id"].as_str().context("a session has an id")?.to_owned())
    }

    pub(crate) fn end(&self, session: &str, how: &str) -> anyhow::Result<()> {
        let (status, answer) =
            self.client()?.post(&format!("/api/v1/sessions/{session}/{how}"), &json!({}))?;
        ensure!(status == 200, "the session does not end: {answer}");
        Ok(())
    }

    /// Agents that have said hello and now wait for their end.
    pub(crate) fn open_idle(&self, sessions: usize) -> anyhow::Result<()> {
        let mut events = self.follow_all()?;
        for _ in 0..sessions {
            self.run(&fixture(), &["status:hello".into(), "expect:session/interrupt".into()])?;
        }
        for _ in 0..sessions {
            events.until(|event| event["kind"] == "status")?;
        }
        Ok(())
    }

    /// ACP agents that are ready; the ids of their sessions.
    pub(crate) fn open_acp(
        &self,
        sessions: usize,
        program: &Path,
        args: &[String],
    ) -> anyhow::Result<Vec<String>> {
        let mut events = self.follow_all()?;
        let body =
            json!({ "command": program, "args": args, "protocol": "acp", "workspace": self.workspace() });
        let mut client = self.client()?;
        let mut ids = Vec::new();
        for _ in 0..sessions {
            let (status, session) = client.post("/api/v1/sessions", &body)?;
            ensure!(status == 201, "no session: {session}; {}", self.log());
            ids.push(session["id"].as_str().context("a session has an id")?.to_owned());
        }
        for _ in 0..sessions {
            events.until(|event| event["kind"] == "agent.ready")?;
        }
        Ok(ids)
    }

    /// How long a command of a person takes, from its start to its end.
    pub(crate) fn cli(&self, args: &[&str]) -> anyhow::Result<Duration> {
        let mut command = command(&self.build, self.dir.path());
        let start = Instant::now();
        let output = command.args(args).output()?;
        let took = start.elapsed();
        ensure!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(took)
    }

    /// Resident memory once nothing changes any more.
    pub(crate) fn settled_rss_kib(&self) -> anyhow::Result<f64> {
        process::settled_rss_kib(&process::proc_dir(self.child.id()))
    }

    /// The shims of this daemon's sessions: they work in their sessions' directories.
    pub(crate) fn shims(&self) -> anyhow::Result<Vec<PathBuf>> {
        let state = self.dir.path().join("state");
        let works_there = |process: &PathBuf| {
            std::fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd.starts_with(&state))
        };
        Ok(std::fs::read_dir("/proc")?.flatten().map(|entry| entry.path()).filter(works_there).collect())
    }

    /// What each session's shim takes, its share of what they have in common included.
    pub(crate) fn shim_pss_kib(&self) -> anyhow::Result<f64> {
        let shims = self.shims()?;
        Ok(sum_kib(&shims, process::pss_kib)? / f64::from(u32::try_from(shims.len())?))
    }

    /// What the daemon and all its shims have for themselves alone.
    pub(crate) fn private_kib(&self) -> anyhow::Result<f64> {
        sum_kib(&self.processes()?, process::private_kib)
    }

    /// The same with their share of what they have in common.
    pub(crate) fn pss_kib(&self) -> anyhow::Result<f64> {
        sum_kib(&self.processes()?, process::pss_kib)
    }

    fn processes(&self) -> anyhow::Result<Vec<PathBuf>> {
        Ok(self.shims()?.into_iter().chain([process::proc_dir(self.child.id())]).collect())
    }

    /// Seconds of processor time that the daemon has used, without its agents.
    pub(crate) fn cpu_seconds(&self) -> anyhow::Result<f64> {
        process::cpu_seconds(self.child.id())
    }

    /// The same once it has nothing left to do.
    pub(crate) fn settled_cpu_seconds(&self) -> anyhow::Result<f64> {
        process::settled_cpu_seconds(self.child.id())
    }

    /// Stops it and keeps its directory for a look at what it left.
    pub(crate) fn stop(&mut self) -> anyhow::Result<()> {
        if self.child.try_wait()?.is_none() {
            let pid = nix::unistd::Pid::from_raw(i32::try_from(self.child.id())?);
            kill(pid, Signal::SIGTERM)?;
        }
        let start = Instant::now();
        while self.child.try_wait()?.is_none() {
            if start.elapsed() > Duration::from_secs(10) {
                self.child.kill()?;
                self.child.wait()?;
                bail!("the daemon did not stop: {}", self.log());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

/// The program in its own environment.
fn command(build: &Build, dir: &Path) -> Command {
    let mut command = Command::new(&build.path);
    command
        .current_dir(dir) // by which `scripts/bench` finds what is left over
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", dir)
        .env("INTERCOM_STATE_DIR", dir.join("state"))
        .env("INTERCOM_CONFIG", dir.join("config.toml"))
        .stdin(Stdio::null());
    command
}

fn serve(build: &Build, dir: &Path) -> anyhow::Result<Child> {
    let log = std::fs::OpenOptions::new().create(true).append(true).open(dir.join("daemon.log"))?;
    command(build, dir)
        .arg("serve")
        // Of use only with a channel in the configuration.
        .env("INTERCOM_SLACK_APP_TOKEN", APP_TOKEN)
        .env("INTERCOM_SLACK_BOT_TOKEN", BOT_TOKEN)
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .with_context(|| format!("cannot start {}", build.path.display()))
}

fn sum_kib(processes: &[PathBuf], memory: impl Fn(&Path) -> anyhow::Result<f64>) -> anyhow::Result<f64> {
    processes.iter().map(|process| memory(process)).sum()
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            eprintln!("{error}");
        }
    }
}

pub(crate) fn last_seq(client: &mut Connection) -> anyhow::Result<u64> {
    let (_, health) = client.get("/api/v1/health")?;
    health["last_seq"].as_u64().with_context(|| format!("no last_seq in {health}"))
}

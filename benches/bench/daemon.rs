//! The real daemon in directories of its own, gone at the end.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use intercom_testkit::client::{Connection, Events};
use intercom_testkit::harness::{fixture, intercom};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{SysconfVar, sysconf};
use serde_json::json;

/// Longer than anything here takes; reaching it is a failure.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);
/// More sessions than are measured with, and none that outlives its daemon.
const CONFIG: &str = "[limits]\nmax_sessions = 10000\n[daemon]\non_stop = \"drain\"\n";

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
        let dir = tempfile::tempdir()?;
        std::fs::create_dir(dir.path().join("work"))?;
        std::fs::write(dir.path().join("config.toml"), CONFIG)?;
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
            std::thread::sleep(Duration::from_millis(5));
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

    /// Resident memory once nothing changes any more.
    pub(crate) fn settled_rss_kib(&self) -> anyhow::Result<f64> {
        let mut before = self.rss_kib()?;
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(100));
            let now = self.rss_kib()?;
            if (now - before).abs() < 8.0 {
                return Ok(now);
            }
            before = now;
        }
        Ok(before)
    }

    fn rss_kib(&self) -> anyhow::Result<f64> {
        kib(&format!("/proc/{}/status", self.child.id()), "VmRSS:")
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
        let mut all = 0.0;
        for shim in &shims {
            all += kib(&shim.join("smaps_rollup").to_string_lossy(), "Pss:")?;
        }
        Ok(all / f64::from(u32::try_from(shims.len())?))
    }

    /// What the daemon and all its shims have for themselves alone.
    pub(crate) fn private_kib(&self) -> anyhow::Result<f64> {
        let mut all = 0.0;
        let daemon = PathBuf::from(format!("/proc/{}", self.child.id()));
        for process in self.shims()?.into_iter().chain([daemon]) {
            for key in ["Private_Clean:", "Private_Dirty:"] {
                all += kib(&process.join("smaps_rollup").to_string_lossy(), key)?;
            }
        }
        Ok(all)
    }

    /// Seconds of processor time that the daemon has used, without its agents.
    pub(crate) fn cpu_seconds(&self) -> anyhow::Result<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        // The name in brackets may hold anything; user and system time are the 14th and 15th field.
        let fields = stat.rsplit_once(')').map(|(_, rest)| rest).context("odd stat")?.split_whitespace();
        let ticks: Vec<f64> = fields.skip(11).take(2).filter_map(|field| field.parse().ok()).collect();
        let per_second = sysconf(SysconfVar::CLK_TCK)?.context("no clock tick")?;
        #[expect(clippy::cast_precision_loss, reason = "a hundred")]
        Ok(ticks.iter().sum::<f64>() / per_second as f64)
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

fn serve(build: &Build, dir: &Path) -> anyhow::Result<Child> {
    let log = std::fs::OpenOptions::new().create(true).append(true).open(dir.join("daemon.log"))?;
    Command::new(&build.path)
        .arg("serve")
        .current_dir(dir) // by which `scripts/bench` finds what is left over
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", dir)
        .env("INTERCOM_STATE_DIR", dir.join("state"))
        .env("INTERCOM_CONFIG", dir.join("config.toml"))
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .with_context(|| format!("cannot start {}", build.path.display()))
}

/// A line of a file in `/proc`.
fn kib(file: &str, key: &str) -> anyhow::Result<f64> {
    let text = std::fs::read_to_string(file)?;
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    let number = line.and_then(|line| line.trim().strip_suffix(" kB"));
    number.and_then(|number| number.trim().parse().ok()).with_context(|| format!("no {key} in {file}"))
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

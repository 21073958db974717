//! The agent's process and the shim's ends of its pipes.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::SigSet;

use crate::cgroup::{Cgroup, CgroupLimits};
use crate::{ProcessIdentity, ProcessSpec, RunAs};

pub(super) struct ShimmedAgent {
    pub(super) identity: ProcessIdentity,
    pub(super) stdin: OwnedFd,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
}

impl ShimmedAgent {
    /// Starts the agent. The process runs when this returns, in a session, a group and, if there is one, a cgroup of
    /// its own. `unmet` are the limits that the cgroup does not support.
    #[expect(unsafe_code, reason = "session, cgroup and limits can only be asked for between fork and exec")]
    pub(super) fn start(
        spec: &ProcessSpec,
        cgroup: Option<&Cgroup>,
        unmet: &CgroupLimits,
        open_files: Option<u64>,
    ) -> io::Result<Self> {
        let mut command = Command::new(&spec.program);
        command
            .args(&spec.args)
            .env_clear()
            .envs(spec.env.iter().map(|(name, value)| (name, value)))
            .current_dir(&spec.cwd)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let (procs_file, unmet, user) = (cgroup.map(Cgroup::procs_file), unmet.clone(), spec.user.clone());
        // SAFETY: the shim has one thread, so nothing can be locked or half done in the child; the calls here would be
        // allowed at any other place as well.
        unsafe {
            command.pre_exec(move || {
                nix::unistd::setsid()?;
                // The shim blocks the signals that it reads from a descriptor, and a mask is inherited: the agent must
                // receive them as usual.
                SigSet::empty().thread_set_mask()?;
                if let Some(procs_file) = &procs_file {
                    std::fs::write(procs_file, "0")?;
                }
                if let Some(bytes) = unmet.memory_bytes {
                    setrlimit(Resource::RLIMIT_AS, bytes, bytes)?;
                }
                if let Some(count) = unmet.processes {
                    setrlimit(Resource::RLIMIT_NPROC, count, count)?;
                }
                if let Some(usual) = open_files {
                    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
                    setrlimit(Resource::RLIMIT_NOFILE, usual.min(hard), hard)?;
                }
                user.as_ref().map_or(Ok(()), RunAs::become_them)
            });
        }
        let mut child = command.spawn().map_err(|error| match &spec.user {
            Some(user) => user.explain(error),
            None => error,
        })?;
        let missing = || io::Error::other("a pipe is missing");
        let agent = Self {
            identity: ProcessIdentity::of(i32::try_from(child.id()).expect("pids fit into an i32")),
            stdin: child.stdin.take().ok_or_else(missing)?.into(),
            stdout: child.stdout.take().ok_or_else(missing)?.into(),
            stderr: child.stderr.take().ok_or_else(missing)?.into(),
        };
        for pipe in [&agent.stdin, &agent.stdout, &agent.stderr] {
            unblock(pipe)?;
        }
        Ok(agent) // `child` is not waited for: `ShimLoop::reap` reaps all children
    }
}

fn unblock(fd: impl AsFd) -> io::Result<()> {
    let flags = OFlag::from_bits_retain(fcntl(&fd, FcntlArg::F_GETFL)?);
    fcntl(&fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(())
}

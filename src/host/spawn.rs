//! Starting a process: its own session and group, its own environment, pipes on all three streams.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use tokio::net::unix::pipe;
use tokio::sync::{mpsc, oneshot};

use super::keeper::Keeper;
use super::pipes::{self, CHUNKS};
use super::tail::Tail;
use super::{Identity, Process, Spec};

#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    #[error("command not found: {0}")]
    NotFound(String),
    #[error("not an executable file: {0}")]
    NotExecutable(String),
    #[error("{program}: {source}")]
    Failed { program: String, source: std::io::Error },
}

/// Where a command is: a path (relative to the workspace) as it stands, a bare name on `PATH`.
pub fn resolve_program(command: &str, workspace: &Path, path: Option<&OsStr>) -> Result<PathBuf, SpawnError> {
    let executable = |file: &Path| {
        file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    if command.contains('/') {
        let file = workspace.join(command);
        return match file.exists() {
            false => Err(SpawnError::NotFound(command.to_owned())),
            true if executable(&file) => Ok(file),
            true => Err(SpawnError::NotExecutable(command.to_owned())),
        };
    }
    std::env::split_paths(path.unwrap_or_default())
        .map(|dir| workspace.join(dir).join(command))
        .find(|file| !command.is_empty() && executable(file))
        .ok_or_else(|| SpawnError::NotFound(command.to_owned()))
}

impl Process {
    /// Starts it. The process runs when this returns.
    pub async fn spawn(spec: Spec) -> Result<Self, SpawnError> {
        let limit = spec.stderr_tail_bytes;
        let program = spec.program.display().to_string();
        let failed = |source| SpawnError::Failed { program: program.clone(), source };
        // Starting a program reads it from disk: not on a thread that others share.
        let mut child = tokio::task::spawn_blocking(move || start(&spec))
            .await
            .map_err(|error| failed(std::io::Error::other(error)))?
            .map_err(&failed)?;
        let pid = i32::try_from(child.id()).expect("pids fit into an i32");
        let pipes = (|| -> std::io::Result<_> {
            let missing = || std::io::Error::other("a pipe is missing");
            let stdin = pipe::Sender::from_owned_fd(child.stdin.take().ok_or_else(missing)?.into())?;
            let stdout = pipe::Receiver::from_owned_fd(child.stdout.take().ok_or_else(missing)?.into())?;
            let stderr = pipe::Receiver::from_owned_fd(child.stderr.take().ok_or_else(missing)?.into())?;
            Ok((stdin, stdout, stderr))
        })();
        let (stdin, stdout, stderr) = match pipes {
            Ok(pipes) => pipes,
            Err(error) => {
                child.kill().ok(); // it cannot be talked to: it must not stay
                child.wait().ok();
                return Err(failed(error));
            }
        };
        let tail = Arc::new(Tail::new(limit));
        let (output_to, output) = mpsc::channel(CHUNKS);
        let (news_to, news) = mpsc::channel(512); // more than may be under way; a full one makes the writer wait
        let (input, input_from) = mpsc::unbounded_channel(); // bounded by the session: see `Process::send`
        let (control, control_from) = mpsc::unbounded_channel(); // stop and kill: a handful in a life
        let (eof_to, eof) = oneshot::channel();
        let (gone_to, gone) = tokio::sync::watch::channel(false);
        let identity = Identity::of(pid);
        let stdin_closer = tokio_util::sync::CancellationToken::new();
        tokio::spawn(pipes::read_stdout(stdout, output_to, eof_to, gone.clone()));
        tokio::spawn(pipes::drain_stderr(stderr, Arc::clone(&tail), gone));
        tokio::spawn(pipes::write_stdin(stdin, input_from, news_to.clone(), stdin_closer.clone()));
        let keeper = Keeper {
            pid,
            child,
            control: control_from,
            news: news_to,
            input: input.clone(),
            eof,
            gone: gone_to,
            stdin: stdin_closer,
            tail: Arc::clone(&tail),
            killed: std::collections::HashSet::new(),
        };
        tokio::spawn(keeper.run());
        Ok(Self { identity, output, news, control, input, stderr: tail })
    }
}

#[expect(unsafe_code, reason = "a new session can only be asked for between fork and exec")]
fn start(spec: &Spec) -> std::io::Result<Child> {
    let mut command = Command::new(&spec.program);
    command
        .args(&spec.args)
        .env_clear()
        .envs(spec.env.iter().map(|(name, value)| (name, value)))
        .current_dir(&spec.cwd)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // SAFETY: setsid(2) is async-signal-safe, and nothing else is done between fork and exec.
    unsafe {
        command.pre_exec(|| Ok(nix::unistd::setsid().map(drop)?));
    }
    command.spawn()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_on_the_path_or_beside_the_workspace() {
        let dir = tempfile::tempdir().unwrap();
        let tool = dir.path().join("tool");
        std::fs::write(&tool, "#!/bin/sh\n").unwrap();
        let find = |command: &str| resolve_program(command, dir.path(), Some(dir.path().as_os_str()));
        assert!(matches!(find("./tool"), Err(SpawnError::NotExecutable(_))));
        assert!(matches!(find("tool"), Err(SpawnError::NotFound(_))));
        std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(find("tool").unwrap(), tool);
        assert!(find("./tool").is_ok());
        assert_eq!(find(tool.to_str().unwrap()).unwrap(), tool);
        assert!(matches!(find("missing"), Err(SpawnError::NotFound(_))));
        assert!(matches!(find(""), Err(SpawnError::NotFound(_))));
    }
}

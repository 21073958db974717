//! The start of an agent: our own binary runs as a shim, which starts the agent.

use std::ffi::OsStr;
use std::fs::{DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

use super::client::ShimClient;
use super::environment::SESSION_VARIABLE;
use super::record::ShimMeta;
use super::shim::{MODE, ShimAnswer, ShimOrder};
use super::{AgentProcess, ProcessSpec, RuntimeDir, limits};

#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    #[error("command not found: {0}")]
    NotFound(String),
    #[error("not an executable file: {0}")]
    NotExecutable(String),
    #[error("{program}: {cause}")]
    Failed { program: String, cause: String },
}

/// Resolves a command: a path relative to the workspace, a bare name on `PATH`.
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

impl AgentProcess {
    /// Starts an agent. Its process runs when this returns; if that takes longer than `limit`, all of it is ended.
    pub async fn spawn(
        spec: ProcessSpec,
        runtime_dir: &RuntimeDir,
        limit: Duration,
    ) -> Result<Self, SpawnError> {
        let (program, session) = (spec.program.display().to_string(), spec.session.clone());
        let mut child = None;
        let cause = match tokio::time::timeout(limit, start(spec, runtime_dir, &mut child)).await {
            Ok(Ok(meta)) => {
                let client = ShimClient {
                    runtime_dir: runtime_dir.clone(),
                    meta,
                    consumed: 0,
                    stdout: None,
                    child,
                    accepted: None,
                };
                match client.reach().await {
                    Ok(process) => return Ok(process),
                    Err(lost) => lost.to_string(), // `reach` has ended it
                }
            }
            Ok(Err(error)) => limits::explain(&error).unwrap_or_else(|| error.to_string()),
            Err(_) => {
                if let Some(child) = &mut child {
                    child.start_kill().ok(); // it may have exited by itself
                    child.wait().await.ok(); // reaped, that is all
                }
                let meta = ShimMeta::unknown(&session, runtime_dir);
                let (runtime_dir, accepted) = (runtime_dir.clone(), None);
                ShimClient { runtime_dir, meta, consumed: 0, stdout: None, child: None, accepted }
                    .end_all()
                    .await;
                format!("no process after {} s", limit.as_secs())
            }
        };
        super::remove(&runtime_dir.dir);
        Err(SpawnError::Failed { program, cause })
    }
}

/// Starts a shim and puts it into `shim` as soon as it runs, so that the caller can end it if this future is dropped.
async fn start(
    spec: ProcessSpec,
    runtime_dir: &RuntimeDir,
    shim: &mut Option<Child>,
) -> io::Result<ShimMeta> {
    let dir = &runtime_dir.dir;
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let log = OpenOptions::new().create(true).append(true).mode(0o600).open(dir.join("shim.log"))?;
    // `/proc/self/exe` is this very program, even if another version has replaced it on disk. The environment is
    // cleared because the agent could read it. The shim of a part gets the session's mark: processes below it cannot
    // hide that they belong to the session.
    let mark = runtime_dir.part.as_ref().map(|_| (SESSION_VARIABLE, spec.session.as_str()));
    let child = Command::new("/proc/self/exe")
        .arg(MODE)
        .env_clear()
        .envs(mark)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()?;
    let child = shim.insert(child);
    let order = ShimOrder {
        spec,
        runtime_dir: runtime_dir.clone(),
        version: version(),
        open_files: super::original_open_files(),
    };
    match ask(child, &order).await? {
        ShimAnswer::Runs(meta) => Ok(*meta),
        ShimAnswer::Failed(cause) => {
            child.wait().await.ok(); // reaped, that is all
            Err(io::Error::other(cause))
        }
    }
}

/// Returns the protocol version of a new shim. Tests of debug builds may request an older one, as after an upgrade.
fn version() -> u32 {
    let asked = std::env::var("INTERCOM_SHIM_VERSION").ok().filter(|_| cfg!(debug_assertions));
    asked.and_then(|text| text.parse().ok()).unwrap_or(super::frame::VERSION)
}

async fn ask(child: &mut Child, order: &ShimOrder) -> io::Result<ShimAnswer> {
    let missing = || io::Error::other("a pipe is missing");
    let mut stdin = child.stdin.take().ok_or_else(missing)?;
    stdin.write_all(&serde_json::to_vec(order)?).await?;
    drop(stdin);
    let mut answer = Vec::new();
    child.stdout.take().ok_or_else(missing)?.read_to_end(&mut answer).await?;
    Ok(serde_json::from_slice(&answer)?)
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

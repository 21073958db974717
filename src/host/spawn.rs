//! Starting an agent: a shim of our own binary, which starts it.

use std::ffi::OsStr;
use std::fs::{DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

use super::client::Care;
use super::shim::{Answer, MODE, Order};
use super::{Keep, Process, Spec};

#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    #[error("command not found: {0}")]
    NotFound(String),
    #[error("not an executable file: {0}")]
    NotExecutable(String),
    #[error("{program}: {cause}")]
    Failed { program: String, cause: String },
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
    pub async fn spawn(spec: Spec, keep: &Keep) -> Result<Self, SpawnError> {
        let program = spec.program.display().to_string();
        let failed = |cause: String| SpawnError::Failed { program: program.clone(), cause };
        let result = start(spec, keep).await;
        if result.is_err() {
            super::remove(&keep.dir);
        }
        result.map_err(|error| failed(error.to_string()))
    }
}

async fn start(spec: Spec, keep: &Keep) -> io::Result<Process> {
    let dir = &keep.dir;
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let log = OpenOptions::new().create(true).append(true).mode(0o600).open(dir.join("shim.log"))?;
    // This very program, also if another one has taken its place on disk. Its environment is the agent's to read.
    let mut child = Command::new("/proc/self/exe")
        .arg(MODE)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()?;
    let order = Order { spec, keep: keep.clone(), version: version() };
    let answer = match ask(&mut child, &order).await {
        Ok(answer) => answer,
        Err(error) => {
            child.start_kill().ok(); // it may have gone by itself
            child.wait().await.ok(); // reaped, that is all
            return Err(error);
        }
    };
    let meta = match answer {
        Answer::Runs(meta) => meta,
        Answer::Failed(cause) => {
            child.wait().await.ok(); // as above
            return Err(io::Error::other(cause));
        }
    };
    let care = Care { keep: keep.clone(), meta, consumed: 0, stdout: None, child: Some(child) };
    care.reach().await.map_err(|lost| io::Error::other(lost.to_string()))
}

/// What a new shim is to speak. Tests of debug builds may ask for an older one, as after an upgrade.
fn version() -> u32 {
    let asked = std::env::var("INTERCOM_SHIM_VERSION").ok().filter(|_| cfg!(debug_assertions));
    asked.and_then(|text| text.parse().ok()).unwrap_or(super::frame::VERSION)
}

async fn ask(child: &mut tokio::process::Child, order: &Order) -> io::Result<Answer> {
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

//! `intercom backup`: a copy of the database, made by the running daemon.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::json;

use super::client::DaemonAnswer;
use super::failure::CliFailure;
use super::url::url;
use super::{CliContext, output};
use intercom_types::text::clean;
use intercom_types::{BackupProgress, BackupRequest, BackupResult, BackupState};

/// The interval between two progress updates.
const SHOW_EVERY: Duration = Duration::from_millis(250);

/// Copy the daemon's database to a file while it runs
#[derive(Debug, clap::Args)]
pub(super) struct BackupArgs {
    /// The target file; a relative path starts at the current directory
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Replace the file if it exists, once the new one is complete
    #[arg(long, short)]
    force: bool,
}

pub(super) async fn run(args: BackupArgs, cx: &CliContext) -> anyhow::Result<()> {
    let file = std::path::absolute(&args.file).context("could not make the path absolute")?;
    if file.is_dir() {
        return Err(CliFailure::failed(format!("{} is a directory", file.display())).into());
    }
    let exists = file.symlink_metadata().is_ok();
    if exists && !args.force {
        return Err(CliFailure::failed(format!("{} exists", file.display()))
            .hint("--force replaces it")
            .into());
    }
    let path = file.to_str().context("the path is not UTF-8")?.into();
    let answer = copy(cx, &json!(BackupRequest { path, replace: args.force })).await?;
    cx.print_answer(&answer, || {
        let BackupResult { bytes, .. } = answer.parse()?;
        Ok(format!("{} ({bytes} bytes)", clean(&file.to_string_lossy())))
    })
}

/// Waits for the copy and shows its progress on a terminal. The daemon cancels the copy when this connection ends.
async fn copy(cx: &CliContext, body: &serde_json::Value) -> anyhow::Result<DaemonAnswer> {
    let url = url(&["backup"], &[]);
    let mut copying = std::pin::pin!(cx.client.post(&url, body));
    if cx.json || !std::io::stderr().is_terminal() {
        return copying.await;
    }
    loop {
        if let Ok(answer) = tokio::time::timeout(SHOW_EVERY, copying.as_mut()).await {
            output::replace_line("");
            return answer;
        }
        // A backup must not fail because its progress cannot be read.
        let state = cx.client.get(&url).await.ok().and_then(|answer| answer.parse::<BackupState>().ok());
        if let Some(progress) = state.and_then(|state| state.running) {
            output::replace_line(&line(&progress));
        }
    }
}

/// Returns the progress: `copying: 350 of 1000 MiB (35 %)`.
fn line(&BackupProgress { copied_bytes, total_bytes, .. }: &BackupProgress) -> String {
    const MIB: u64 = 1024 * 1024;
    let percent = copied_bytes.saturating_mul(100).checked_div(total_bytes).unwrap_or(0);
    format!("copying: {} of {} MiB ({percent} %)", copied_bytes / MIB, total_bytes.div_ceil(MIB))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_progress_says_how_much_is_copied() {
        let line = |copied_bytes, total_bytes| {
            line(&BackupProgress { path: "copy.db".into(), copied_bytes, total_bytes })
        };
        assert_eq!(line(350 << 20, 1000 << 20), "copying: 350 of 1000 MiB (35 %)");
        assert_eq!(line(0, 0), "copying: 0 of 0 MiB (0 %)");
    }
}

//! `intercom backup`: a copy of the database, made by the daemon while it runs.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::Deserialize;
use serde_json::{Value, json};

use super::client::Answer;
use super::failure::Failure;
use super::url::url;
use super::{Context, out};
use crate::text::clean;

/// Copy the daemon's database to a file while it runs
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Where to; seen from here, not from the daemon
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Replace the file if it exists, once the new one is complete
    #[arg(long, short)]
    force: bool,
}

pub(super) async fn run(args: Args, cx: &Context) -> anyhow::Result<()> {
    let file = std::path::absolute(&args.file).context("could not make the path absolute")?;
    if file.is_dir() {
        return Err(Failure::failed(format!("{} is a directory", file.display())).into());
    }
    let exists = file.symlink_metadata().is_ok();
    if exists && !args.force {
        return Err(Failure::failed(format!("{} exists", file.display())).hint("--force replaces it").into());
    }
    let target = if exists { beside(&file) } else { file.clone() };
    let path = target.to_str().context("the path is not UTF-8")?;
    let answer = cx.client.post(&url(&["backup"], &[]), &json!({"path": path})).await?;
    if exists {
        std::fs::rename(&target, &file).with_context(|| format!("could not replace {}", file.display()))?;
    }
    if cx.json {
        return out::print(&if exists { renamed(&answer, &file)? } else { answer.body });
    }
    let Backup { bytes } = answer.parse()?;
    out::print(&format!("{} ({bytes} bytes)", clean(&file.to_string_lossy())))
}

#[derive(Debug, Deserialize)]
struct Backup {
    bytes: u64,
}

/// The old backup stays until the new one is whole.
fn beside(file: &Path) -> PathBuf {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    file.with_file_name(name)
}

fn renamed(answer: &Answer, file: &Path) -> anyhow::Result<String> {
    let mut body: Value = answer.parse()?;
    body["path"] = json!(file);
    Ok(body.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replacement_is_made_beside_the_old_file() {
        let new = beside(Path::new("/b/intercom.db"));
        assert_eq!(new.parent(), Some(Path::new("/b")));
        assert!(new.to_str().unwrap().starts_with("/b/intercom.db."));
        let answer = Answer { status: 200, body: r#"{"path": "/b/x.new", "bytes": 5}"#.to_owned() };
        assert_eq!(renamed(&answer, Path::new("/b/x")).unwrap(), r#"{"path":"/b/x","bytes":5}"#);
    }
}

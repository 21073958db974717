//! `intercom reload`: reloads the configuration.

use serde_json::json;

use super::CliContext;
use super::url::url;
use intercom_types::ConfigReload;
use intercom_types::text::{clean, plural};

/// Reload the daemon's configuration; an invalid file changes nothing
#[derive(Debug, clap::Args)]
pub(super) struct ReloadArgs {}

pub(super) async fn run(ReloadArgs {}: ReloadArgs, cx: &CliContext) -> anyhow::Result<()> {
    let answer = cx.client.post(&url(&["reload"], &[]), &json!({})).await?;
    cx.print_answer(&answer, || {
        let ConfigReload { rules, needs_restart, .. } = answer.parse()?;
        let restart = if needs_restart.is_empty() {
            String::new()
        } else {
            format!("; changes of [{}] need a restart", clean(&needs_restart.join("], [")))
        };
        Ok(format!("reloaded: {}{restart}", plural(rules, "rule")))
    })
}

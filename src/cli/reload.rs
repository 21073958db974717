//! `intercom reload`: the configuration, read again.

use serde_json::json;

use super::CliContext;
use super::url::url;
use intercom_types::ConfigReload;
use intercom_types::text::{clean, plural};

/// Let the daemon read its configuration again; a bad file changes nothing
#[derive(Debug, clap::Args)]
pub(super) struct ReloadArgs {}

pub(super) async fn run(ReloadArgs {}: ReloadArgs, cx: &CliContext) -> anyhow::Result<()> {
    let answer = cx.client.post(&url(&["reload"], &[]), &json!({})).await?;
    cx.print_answer(&answer, || {
        let ConfigReload { rules, needs_restart, .. } = answer.parse()?;
        let restart = if needs_restart.is_empty() {
            String::new()
        } else {
            format!("; changes of [{}] take a restart", clean(&needs_restart.join("], [")))
        };
        Ok(format!("reloaded: {}{restart}", plural(rules, "rule")))
    })
}

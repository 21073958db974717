//! `intercom open`: the web console in a browser.

use std::process::Stdio;
use std::time::Duration;

use serde_json::json;
use tokio::process::Command;

use super::console;
use super::failure::DaemonRefusal;
use super::transport::Transport;
use super::{CliContext, output};
use intercom_types::text::clean;

/// Open the web console in your browser, signed in; prints the link if there is no browser
#[derive(Debug, clap::Args)]
pub(super) struct OpenArgs {}

/// The programs that pass a link to the person's browser.
const OPENERS: &[&str] = if cfg!(target_os = "macos") { &["open"] } else { &["xdg-open", "wslview"] };

/// The time limit of an opener; one that still runs after this has become the browser itself.
const OPENS_WITHIN: Duration = Duration::from_secs(5);

pub(super) async fn run(OpenArgs {}: OpenArgs, cx: &CliContext) -> anyhow::Result<()> {
    let link = match (console::link(cx).await, cx.client.transport()) {
        (Err(error), Transport::Remote(remote)) if is_not_local(&error) => {
            output::print_note("this daemon is on another machine: sign in with your token");
            remote.console()
        }
        (link, _) => link?.url,
    };
    let opened = open(&link).await;
    if cx.json {
        return output::print_json(&json!({ "url": link, "opened": opened }).to_string());
    }
    if opened {
        output::print_note("the console is open in your browser; `intercom console` prints a link instead");
        return Ok(());
    }
    output::print_note("no browser could be started; open this link, which works once, within ten minutes");
    output::print(&clean(&link))
}

fn is_not_local(error: &anyhow::Error) -> bool {
    error.downcast_ref::<DaemonRefusal>().is_some_and(|refusal| refusal.code == "not_local")
}

async fn open(link: &str) -> bool {
    for opener in OPENERS {
        let mut command = Command::new(opener);
        command.arg(link).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let Ok(mut child) = command.spawn() else { continue }; // it is not installed
        match tokio::time::timeout(OPENS_WITHIN, child.wait()).await {
            Ok(Ok(status)) if !status.success() => {}
            _ => return true,
        }
    }
    false
}

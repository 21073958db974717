//! `intercom console`: a link to the web console.

use serde_json::json;

use super::client::DaemonAnswer;
use super::daemon_info::DaemonInfo;
use super::failure::DaemonRefusal;
use super::url::url;
use super::{CliContext, output};
use intercom_daemon::config;
use intercom_types::ConsoleCode;
use intercom_types::text::clean;

/// Print a link that opens the web console, signed in; it works once
#[derive(Debug, clap::Args)]
pub(super) struct ConsoleArgs {}

/// A link that signs in, and the daemon's answer with it.
pub(super) struct SignInLink {
    pub(super) url: String,
    answer: DaemonAnswer,
}

pub(super) async fn run(ConsoleArgs {}: ConsoleArgs, cx: &CliContext) -> anyhow::Result<()> {
    let SignInLink { url, answer } = link(cx).await?;
    cx.print_answer(&answer, || {
        output::print_note("the link works once, within ten minutes; `intercom open` opens it");
        Ok(clean(&url))
    })
}

/// Reports why the daemon has no console although the configuration asks for one, and how to get one.
pub(super) async fn say_if_missing(cx: &CliContext) {
    let has_none = DaemonInfo::read(&cx.paths.daemon_json()).is_some_and(|info| info.url.is_none());
    let mut api = config::load(Some(&cx.paths.config), cx.paths.config_explicit).unwrap_or_default().api;
    api.overridden(|name| std::env::var(name).ok()).ok(); // the daemon reports an error in it
    if !has_none || api.address().is_ok_and(|address| address.is_none()) {
        return;
    }
    // The daemon knows which process has its port, and which port is free.
    let Err(error) = link(cx).await else { return };
    if let Some(refusal) = error.downcast_ref::<DaemonRefusal>().filter(|refusal| refusal.code == "no_port") {
        output::advise(&clean(&refusal.to_string()));
        if let Some(remedy) = refusal.remedy() {
            output::advise(&format!("to get one, {}", clean(remedy)));
        }
    }
}

pub(super) async fn link(cx: &CliContext) -> anyhow::Result<SignInLink> {
    let answer = cx.client.post(&url(&["web", "codes"], &[]), &json!({})).await?;
    let ConsoleCode { url, .. } = answer.parse()?;
    Ok(SignInLink { url, answer })
}

//! `intercom console`: a way in to the web console.

use serde::Deserialize;
use serde_json::json;

use super::client::Answer;
use super::daemon_info::DaemonInfo;
use super::failure::Refusal;
use super::url::url;
use super::{Context, out};
use intercom_daemon::config;
use intercom_types::text::clean;

/// Print a link that opens the web console, signed in; it works once
#[derive(Debug, clap::Args)]
pub(super) struct Args {}

/// A link that signs in, and the answer that it came in.
pub(super) struct Link {
    pub(super) url: String,
    answer: Answer,
}

pub(super) async fn run(Args {}: Args, cx: &Context) -> anyhow::Result<()> {
    let Link { url, answer } = link(cx).await?;
    cx.answer(&answer, || {
        out::talk("the link works once, within ten minutes; `intercom open` opens it");
        Ok(clean(&url))
    })
}

/// Says why the daemon has no console although the configuration wants one, and how to get one.
pub(super) async fn say_if_missing(cx: &Context) {
    let has_none = DaemonInfo::read(&cx.paths.daemon_json()).is_some_and(|info| info.url.is_none());
    let mut api = config::load(Some(&cx.paths.config), cx.paths.config_explicit).unwrap_or_default().api;
    api.overridden(|name| std::env::var(name).ok()).ok(); // the daemon complains about it
    if !has_none || api.address().is_ok_and(|address| address.is_none()) {
        return;
    }
    // The daemon knows who has its port, and which one is free.
    let Err(error) = link(cx).await else { return };
    if let Some(refusal) = error.downcast_ref::<Refusal>().filter(|refusal| refusal.code == "no_port") {
        out::advise(&clean(&refusal.to_string()));
        if let Some(remedy) = refusal.remedy() {
            out::advise(&format!("to get one, {}", clean(remedy)));
        }
    }
}

pub(super) async fn link(cx: &Context) -> anyhow::Result<Link> {
    #[derive(Deserialize)]
    struct Code {
        url: String,
    }
    let answer = cx.client.post(&url(&["web", "codes"], &[]), &json!({})).await?;
    let Code { url } = answer.parse()?;
    Ok(Link { url, answer })
}

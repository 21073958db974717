//! `intercom console`: a way in to the web console.

use serde::Deserialize;
use serde_json::json;

use super::client::Answer;
use super::url::url;
use super::{Context, out};
use crate::text::clean;

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

pub(super) async fn link(cx: &Context) -> anyhow::Result<Link> {
    #[derive(Deserialize)]
    struct Code {
        url: String,
    }
    let answer = cx.client.post(&url(&["web", "codes"], &[]), &json!({})).await?;
    let Code { url } = answer.parse()?;
    Ok(Link { url, answer })
}

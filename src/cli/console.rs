//! `intercom console`: a way in to the web console.

use serde::Deserialize;
use serde_json::json;

use super::url::url;
use super::{Context, out};
use crate::text::clean;

/// Print a link that opens the web console, signed in; it works once
#[derive(Debug, clap::Args)]
pub(super) struct Args {}

pub(super) async fn run(Args {}: Args, cx: &Context) -> anyhow::Result<()> {
    #[derive(Deserialize)]
    struct Code {
        url: String,
    }
    let answer = cx.client.post(&url(&["web", "codes"], &[]), &json!({})).await?;
    cx.answer(&answer, || {
        let Code { url } = answer.parse()?;
        out::talk("the link works once, within ten minutes");
        Ok(clean(&url))
    })
}

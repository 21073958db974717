//! `intercom send`: a prompt for a running agent.

use std::io::{IsTerminal as _, Read as _};

use anyhow::Context as _;
use serde_json::json;

use super::failure::Failure;
use super::url::url;
use super::{Context, decide, interrupted, out};
use crate::answers::Prompt;
use crate::text::{clean, short};

/// Send a prompt to an agent, now or as soon as it takes one
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A session
    #[arg(value_name = "SES", value_parser = super::id())]
    session: String,
    /// What the agent shall do; `-` reads it from stdin
    #[arg(value_name = "TEXT")]
    text: String,
}

pub(super) async fn run(args: Args, cx: &Context) -> anyhow::Result<()> {
    let body = json!({"text": text(args.text)?});
    let name = clean(&args.session);
    interrupted::note(format!("see whether the prompt was delivered: {} prompts {name}", cx.call));
    let answer = cx.client.post(&url(&["sessions", &args.session, "prompts"], &[]), &body).await?;
    let prompt: Prompt = answer.parse()?;
    cx.answer(&answer, || Ok(format!("{} {}", short(&prompt.id), clean(&prompt.state))))?;
    decide::settle(&prompt.delivery())
}

/// What was typed, or stdin for `-` without its last line feed.
pub(super) fn text(typed: String) -> anyhow::Result<String> {
    let mut text = typed;
    if text == "-" {
        if std::io::stdin().is_terminal() {
            out::talk("reading from the terminal; end with Ctrl-D");
        }
        text.clear();
        std::io::stdin().read_to_string(&mut text).context("could not read stdin")?;
        if text.ends_with('\n') {
            text.pop();
        }
    }
    if text.trim().is_empty() {
        return Err(Failure::usage("the text is empty").into());
    }
    Ok(text)
}

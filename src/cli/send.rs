//! `intercom send`: sends a prompt to an agent.

use std::io::{IsTerminal as _, Read as _};

use anyhow::Context as _;
use serde_json::json;

use super::failure::{CliFailure, DaemonRefusal};
use super::url::url;
use super::{CliContext, ctrl_c, decide, output, shell_variables};
use intercom_types::text::{clean, short};
use intercom_types::{Delivery, FailureKind, NewPrompt, Phase, Prompt, PromptState, Session};

/// Send a prompt to an agent, now or as soon as it accepts one
#[derive(Debug, clap::Args)]
pub(super) struct SendArgs {
    /// A session
    #[arg(value_name = "SES", value_parser = super::non_empty_id())]
    session: String,
    /// The prompt; `-` reads it from stdin
    #[arg(value_name = "TEXT")]
    text: String,
}

pub(super) async fn run(args: SendArgs, cx: &CliContext) -> anyhow::Result<()> {
    let body = json!(NewPrompt::of(&text(args.text)?));
    let name = clean(&args.session);
    ctrl_c::set_note(format!("check whether the prompt was delivered: {} prompts {name}", cx.command_prefix));
    let sent = cx.client.post(&url(&["sessions", &args.session, "prompts"], &[]), &body).await;
    let answer = match sent {
        Err(error)
            if error.downcast_ref::<DaemonRefusal>().is_some_and(|refusal| refusal.code == "ended") =>
        {
            return Err(ended_without_log_in(&args.session, cx).await.unwrap_or(error));
        }
        sent => sent?,
    };
    let prompt: Prompt = answer.parse()?;
    cx.print_answer(&answer, || Ok(format!("{} {}", short(&prompt.id), clean(prompt.state.as_str()))))?;
    warn_missing_log_in(&args.session, &prompt, cx).await;
    decide::check_delivery(&match prompt.state {
        PromptState::Delivered => Delivery::Delivered,
        PromptState::Failed(cause) => Delivery::Failed(cause),
        other => Delivery::Other(other.as_str().to_owned()),
    })
}

async fn fetch_session(session: &str, cx: &CliContext) -> Option<Session> {
    cx.client.get(&url(&["sessions", session], &[])).await.ok()?.parse().ok()
}

/// Returns the failure of a session that has ended because of a missing log-in.
async fn ended_without_log_in(session: &str, cx: &CliContext) -> Option<anyhow::Error> {
    let session = fetch_session(session, cx).await?;
    let failed = session.failed.as_ref().filter(|failed| failed.kind == FailureKind::LogIn)?;
    Some(CliFailure::of_agent(&session, &failed.reason, cx).into())
}

/// Reports that a prompt waits until somebody logs in, with advice. The prompt is kept.
async fn warn_missing_log_in(session: &str, prompt: &Prompt, cx: &CliContext) {
    let Some(session) = fetch_session(session, cx).await else { return };
    let name = clean(&session.label());
    let failed = session.failed.as_ref().filter(|failed| failed.kind == FailureKind::LogIn);
    if let Some(failed) = failed {
        output::advise(&format!("warning: {name} failed: {}", clean(&failed.reason)));
        let hint = shell_variables::log_in_hint(&session, cx).or_else(|| failed.hint.clone());
        if let Some(hint) = hint {
            output::advise(&format!("hint: {}", clean(&hint)));
        }
    } else if prompt.state == PromptState::Queued && session.phase == Phase::Idle {
        let why = session.why.as_str();
        output::advise(&format!("warning: the prompt waits; {name}: {}", clean(why)));
    }
}

/// Returns the typed text, or stdin for `-` without its last line feed.
pub(super) fn text(typed: String) -> anyhow::Result<String> {
    let mut text = typed;
    if text == "-" {
        if std::io::stdin().is_terminal() {
            output::print_note("reading from the terminal; end with Ctrl-D");
        }
        text.clear();
        std::io::stdin().read_to_string(&mut text).context("could not read stdin")?;
        if text.ends_with('\n') {
            text.pop();
        }
    }
    if text.trim().is_empty() {
        return Err(CliFailure::usage("the text is empty").into());
    }
    Ok(text)
}

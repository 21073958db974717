//! The card of an agent whose process has exited.

use super::super::block_kit::{BlockBuilder, Button, ButtonStyle, CardMessage, MrkdwnText};
use super::{OperatorDirectory, at, id, project, title, who};
use intercom_types::{Session, SessionExit};

const STDERR_LINES: usize = 15;

pub(in crate::slack) fn exit(
    key: &str,
    session: &Session,
    again: Option<&str>,
    people: &OperatorDirectory,
    ping: &[String],
) -> CardMessage {
    let well = session.exit.as_ref().is_some_and(|exit| exit.status.code == Some(0));
    let header = title(if well { "⚫ The agent has ended" } else { "💥 The agent has ended" }, session);
    let how = how(session);
    let hint = session.failed.as_ref().and_then(|failed| failed.hint.as_deref()).filter(|_| again.is_none());
    let hint = hint.map(|hint| MrkdwnText::untrusted(hint).cut(600)).unwrap_or_default();
    let when = session.ended_at.map(|time| MrkdwnText::new("Ended").and(at(Some(time)))).unwrap_or_default();
    let tail = session.stderr_tail.trim_end();
    let lines: Vec<&str> = tail.lines().collect();
    let tail = lines[lines.len().saturating_sub(STDERR_LINES)..].join("\n");
    let wrote = if tail.trim().is_empty() { "" } else { "Last lines of stderr:" };
    let blocks = BlockBuilder::new(key).header(header);
    let blocks = if again.is_none() { blocks.section(people.notice_line(ping)) } else { blocks };
    let blocks = blocks.section(how.clone()).section(hint).section(wrote).code(&tail);
    let blocks = match again {
        Some(again) => blocks.section(MrkdwnText::new("🔄 ").and(MrkdwnText::untrusted(again).cut(300))),
        None => {
            blocks.actions(vec![Button::new("restart", "Restart", &session.id).style(ButtonStyle::Primary)])
        }
    };
    let text = MrkdwnText::untrusted(&project(session)).cut(60).and(": the agent has ended. ").and(how);
    blocks.context(vec![who(session), when, id(&session.id)]).message(text)
}

/// Returns the agent's reason if it exited by itself; else its status and who ended it.
fn how(session: &Session) -> MrkdwnText {
    let Some(exit) = &session.exit else { return MrkdwnText::new("The exit status is unknown.") };
    let by_itself = exit.reason.is_some() && exit.reason.as_ref() == Some(&session.why);
    match Some(session.why.as_str()).filter(|why| by_itself && !why.is_empty()) {
        Some(why) => MrkdwnText::untrusted(why).cut(500).bold(),
        None => status(exit),
    }
}

/// `Signal 9: killed by ana`.
fn status(exit: &SessionExit) -> MrkdwnText {
    let how = match (exit.status.code, exit.status.signal) {
        (Some(code), _) => MrkdwnText::new("Exit code ").and(MrkdwnText::untrusted(&code.to_string())),
        (None, Some(signal)) => MrkdwnText::new("Signal ").and(MrkdwnText::untrusted(&signal.to_string())),
        (None, None) => MrkdwnText::new("Exit status unknown"),
    };
    let reason = exit.reason.as_deref().filter(|reason| !reason.trim().is_empty());
    let reason = reason
        .map(|reason| MrkdwnText::new(": ").and(MrkdwnText::untrusted(reason).cut(500)))
        .unwrap_or_default();
    how.bold().and(reason)
}

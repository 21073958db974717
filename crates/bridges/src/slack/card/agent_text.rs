//! Messages with agent text, and short notes of our own.

use super::super::block_kit::{BlockBuilder, CardMessage, MrkdwnText, cut};
use super::project;
use intercom_types::Session;

const TURN_CHARS: usize = 2_500;

/// Counts of one turn or several.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(in crate::slack) struct TurnCounts {
    pub(in crate::slack) turns: usize,
    pub(in crate::slack) tools: usize,
    /// True if there may have been more tools.
    #[serde(default)]
    pub(in crate::slack) is_partial: bool,
    /// Clearances that rules decided.
    pub(in crate::slack) allowed: usize,
}

/// The summary of a turn: the agent's last message, and the counts.
pub(in crate::slack) fn turn(
    key: &str,
    session: &Session,
    said: &str,
    stop_reason: Option<&str>,
    TurnCounts { turns, tools, is_partial, allowed }: TurnCounts,
) -> CardMessage {
    let mut did = MrkdwnText::default();
    if tools > 0 {
        did = MrkdwnText::new(if is_partial { "at least " } else { "" });
        did = did.and(MrkdwnText::count(tools, "tool call"));
    }
    if allowed > 0 {
        did = MrkdwnText::join([did, MrkdwnText::number(allowed as u64).and(" allowed by rules")], ", ");
    }
    // A normal end needs no reason.
    let stopped = stop_reason.filter(|reason| !matches!(*reason, "end_turn" | "done" | ""));
    let stopped = stopped
        .map(|reason| MrkdwnText::new("reason: ").and(MrkdwnText::untrusted(reason).cut(100)))
        .unwrap_or_default();
    let over = match turns {
        0 | 1 => MrkdwnText::new("turn ended"),
        more => MrkdwnText::count(more, "turn").and(" ended; this is the last"),
    };
    let silent = if said.trim().is_empty() { "The turn ended without a message." } else { "" };
    BlockBuilder::new(key)
        .section(silent)
        .prose(&cut(said.trim(), TURN_CHARS))
        .context(vec![over, did, stopped])
        .message(spoken(session, said, "the turn has ended"))
}

/// A message of an agent that is still working.
pub(in crate::slack) fn talk(key: &str, session: &Session, said: &str) -> CardMessage {
    BlockBuilder::new(key).prose(said).message(spoken(session, said, "…"))
}

fn spoken(session: &Session, said: &str, nothing: &'static str) -> MrkdwnText {
    let begin = MrkdwnText::untrusted(&cut(said.trim(), 400)).cut(300);
    let begin = if begin.is_blank() { MrkdwnText::new(nothing) } else { begin };
    MrkdwnText::untrusted(&project(session)).cut(60).and(": ").and(begin)
}

/// A note of our own.
pub(in crate::slack) fn note(key: &str, words: impl Into<MrkdwnText>) -> CardMessage {
    let words = words.into();
    BlockBuilder::new(key).section(words.clone()).message(words)
}

const COMMANDS: &str = "\
*Anywhere*; only you see the answer:
• `/intercom ls` – list sessions; `/intercom status [session]` – show one
• `/intercom start &lt;agent&gt; [in &lt;workspace&gt;] &lt;prompt&gt;` – start a session
• `/intercom send &lt;session&gt; &lt;text&gt;`, `nudge`, `stop` – steer a session
• `/intercom clearances`, `policy`, `whoami`, `help`";

const THREAD: &str = "\
*In the thread of a session*, a message is a prompt to its agent, unless it is exactly one of these commands:
• `approve`, `deny &lt;reason&gt;`, `always` – decide its clearance
• `continue`, `refine &lt;text&gt;` – answer its question
• `nudge`, `nudge: &lt;text&gt;`, `interrupt`, `stop` – wake the agent, end its turn, stop the session
• `status`, `queue` – show its state, or its queued prompts
• `verbosity quiet`, `normal` or `stream` – set how much this thread shows";

/// The list of commands.
pub(in crate::slack) fn help(key: &str) -> CardMessage {
    BlockBuilder::new(key)
        .header("intercom")
        .section(COMMANDS)
        .section(THREAD)
        .context(vec![MrkdwnText::new("The Home tab of this app shows everything that is waiting for you.")])
        .message("Commands of intercom")
}

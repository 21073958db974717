//! Events on a terminal: the summary of each, behind its time, wrapped and coloured.

use std::borrow::Cow;

use super::gutter::{TextColumn, block};
use super::terminal::{Paint, TerminalStyle};
use intercom_types::event::Speaker;
use intercom_types::summary::{Summary, Tone};
use intercom_types::text::{columns, plural};

/// The number of lines of text below an entry that are shown of its beginning, and of its end.
const FIRST_BELOW: usize = 2;
const LAST_BELOW: usize = 3;
/// The gutter of text below a line of ours.
const BELOW: &str = "    │ ";

pub(super) const fn style(tone: Tone) -> TerminalStyle {
    match tone {
        Tone::Plain => TerminalStyle::Plain,
        Tone::Quiet => TerminalStyle::Dim,
        Tone::Strong => TerminalStyle::Bold,
        Tone::Person => TerminalStyle::Cyan,
        Tone::Good => TerminalStyle::Green,
        Tone::Warning => TerminalStyle::Yellow,
        Tone::Bad => TerminalStyle::Red,
    }
}

/// Returns the lines of a summary behind a lead such as the time. Each further line is indented, and has the mark or
/// the gutter of its text, so that no text looks like a line of ours.
pub(super) fn lines(summary: &Summary, lead: &str, width: Option<usize>, paint: Paint) -> String {
    let (plain_mark, style) = (summary.speaker.map_or("", Speaker::mark), style(summary.tone));
    let mark = paint.style(TerminalStyle::Dim, plain_mark);
    let blank = " ".repeat(columns(lead));
    let (gutter, indent) = match plain_mark {
        "" => (format!("{blank}    "), columns(lead) + 4),
        own => (format!("{blank}{mark}"), columns(lead) + columns(own)),
    };
    // The first line of ours is not indented. Counting an indentation makes it a little shorter than possible.
    let mut column = TextColumn::new(gutter, indent.max(1), width, style, paint);
    let text = column.write(&summary.text) + &column.pause();
    let mut lines = format!("{}{mark}{text}\n", paint.style(TerminalStyle::Dim, lead));
    if !summary.detail.is_empty() {
        lines.push_str(&block(&bounded(&summary.detail), BELOW, width, TerminalStyle::Plain, paint));
    }
    lines
}

/// Shortens text below an entry to a few lines: a log shows what happened, and `--raw` has the rest. Both ends are
/// kept, because the beginning matters most in a prompt and the end in stderr.
fn bounded(text: &str) -> Cow<'_, str> {
    let lines: Vec<&str> = text.lines().collect();
    // One omitted line would take as much room as the note about it.
    let Some(left_out) = lines.len().checked_sub(FIRST_BELOW + LAST_BELOW).filter(|more| *more > 1) else {
        return Cow::Borrowed(text);
    };
    let note = format!("… {left_out} more lines");
    let (first, rest) = lines.split_at(FIRST_BELOW);
    Cow::Owned([first, &[note.as_str()], &rest[left_out..]].concat().join("\n"))
}

/// Returns the last line of a summary, with its mark, for a list with one line each.
pub(super) fn last_line(summary: &Summary) -> String {
    let written = |line: &&str| !line.trim().is_empty();
    let mark = summary.speaker.map_or("", Speaker::mark);
    format!("{mark}{}", summary.text.lines().rfind(written).unwrap_or_default())
}

/// Returns `2 clearances, 1 question`, or nothing.
pub(super) fn waiting(clearances: usize, questions: usize) -> String {
    let mut parts = Vec::new();
    if clearances > 0 {
        parts.push(plural(clearances, "clearance"));
    }
    if questions > 0 {
        parts.push(plural(questions, "question"));
    }
    parts.join(", ")
}

#[cfg(test)]
pub(super) mod tests {
    use intercom_types::ReceivedEvent;
    use serde_json::Value;

    use super::*;
    use intercom_types::EventKind;
    use intercom_types::samples::sample;

    /// A recorded event of this kind, with these fields in place of its own.
    pub(in crate::cli) fn received(session: &str, kind: EventKind, fields: &Value) -> ReceivedEvent {
        let logged = sample(kind, fields);
        ReceivedEvent {
            seq: logged.seq,
            session: session.to_owned(),
            at: String::new(),
            event: logged.event(),
            data: logged.data,
            raw: String::new(),
        }
    }

    #[test]
    fn a_summary_is_behind_its_time_and_what_belongs_to_it_is_below() {
        let shown = |kind: EventKind, fields: Value| {
            lines(&sample(kind, &fields).event().summary(|_| String::new()), "14:02  ", Some(60), Paint::OFF)
        };
        let exited = serde_json::json!({ "code": 1, "steps": [], "killed": 0, "stderr_tail": "a\nb\n" });
        insta::assert_snapshot!(shown(EventKind::AgentExited, exited), @r"
        14:02  agent exited with code 1
            │ a
            │ b
        ");
        let status = serde_json::json!({ "message": "Running tests\nline two" });
        insta::assert_snapshot!(shown(EventKind::Status, status), @r"
        14:02  agent> Running tests
               agent> line two
        ");
    }
}

//! Events as people read them. A kind that we do not know is shown with its data, never left out.

use serde::Deserialize as _;
use serde_json::Value;

use super::gutter::{Column, block};
use super::style::{risk_style, status_style};
use super::terminal::{Paint, Style};
use super::time::date_time_zone;
use crate::action::{self, Parts};
use crate::answers::Event;
use crate::text::{clean, clean_block, columns, cut, plural, quoted, short};

mod acp;
mod errand;
mod stall;

pub(super) use acp::{call, call_line, is_quiet, topic, voice};

/// Marks of what an agent says. Every line of it begins with one, behind the time; no line of ours does.
pub(super) const AGENT: &str = "agent> ";
pub(super) const THOUGHT: &str = "think> ";
pub(super) const TOOL: &str = "tool>  ";
pub(super) const PLAN: &str = "plan>  ";
pub(super) const USER: &str = "user>  ";
/// Fields of an unknown event that are told, and columns of each.
const MAX_DETAILS: usize = 8;
const MAX_DETAIL: usize = 60;
/// The gutter of text below a line of ours.
const BELOW: &str = "    │ ";

/// One event: a line, and what belongs below it. Both are clean.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) style: Style,
    /// Who speaks, if it is not intercom.
    pub(super) mark: &'static str,
    pub(super) head: String,
    pub(super) below: String,
}

impl Shown {
    fn new(style: Style, head: impl Into<String>) -> Self {
        Self { style, mark: "", head: head.into(), below: String::new() }
    }

    /// What an agent says, on as many lines as it takes.
    fn said(mark: &'static str, style: Style, text: &str) -> Self {
        Self { style, mark, head: clean_block(text.trim_end()), below: String::new() }
    }

    /// Text of any length: its first line goes into the head, the rest below.
    fn with_text(style: Style, head: &str, text: &str) -> Self {
        let text = clean_block(text.trim_end());
        let (first, rest) = text.split_once('\n').unwrap_or((&text, ""));
        Self { style, mark: "", head: format!("{head}{first}"), below: rest.to_owned() }
    }

    /// Text of an agent in a line of ours: in quotes, or below if it has several lines.
    fn with_quote(style: Style, head: &str, text: &str) -> Self {
        let text = clean_block(text.trim_end());
        if text.contains('\n') {
            return Self { style, mark: "", head: head.to_owned(), below: text };
        }
        Self::new(style, format!("{head} {}", quoted(&text)))
    }

    /// Behind a lead such as the time. Each further line is indented, and has the mark or the gutter of its text, so
    /// that no text can pass for a line of ours.
    pub(super) fn lines(&self, lead: &str, width: Option<usize>, paint: Paint) -> String {
        let mark = paint.style(Style::Dim, self.mark);
        let blank = " ".repeat(columns(lead));
        let (gutter, indent) = match self.mark {
            "" => (format!("{blank}    "), columns(lead) + 4),
            own => (format!("{blank}{mark}"), columns(lead) + columns(own)),
        };
        // The first line of ours is not indented: counted as if it were, it is a little shorter than it could be.
        let mut column = Column::new(gutter, indent.max(1), width, self.style, paint);
        let head = column.write(&self.head) + &column.pause();
        let mut lines = format!("{}{mark}{head}\n", paint.style(Style::Dim, lead));
        if !self.below.is_empty() {
            lines.push_str(&block(&self.below, BELOW, width, Style::Plain, paint));
        }
        lines
    }

    /// The last of its lines, with its mark, for a list with one line each.
    pub(super) fn last_line(&self) -> String {
        let written = |line: &&str| !line.trim().is_empty();
        format!("{}{}", self.mark, self.head.lines().rfind(written).unwrap_or_default())
    }
}

pub(super) fn event(event: &Event) -> Shown {
    let data = Data(&event.data);
    session_event(&event.kind, &data)
        .or_else(|| talk_event(&event.kind, &data))
        .or_else(|| clearance_event(&event.kind, &data))
        .or_else(|| question_event(&event.kind, &data))
        .or_else(|| stall::event(&event.kind, &data))
        .or_else(|| acp::event(&event.kind, &data))
        .or_else(|| errand::event(&event.kind, &data))
        .unwrap_or_else(|| {
            Shown::new(Style::Plain, format!("{}{}", clean(&event.kind), details(&event.data)))
        })
}

/// `: level 2, steps …`: the fields of an event that we do not know, in words. `--raw` has their values in full.
fn details(data: &Value) -> String {
    let fields = data.as_object().into_iter().flatten();
    let words = fields.filter(|(_, value)| !value.is_null()).take(MAX_DETAILS).map(|(key, value)| {
        let value =
            if value.is_array() || value.is_object() { "…".to_owned() } else { said(&plain(value)) };
        format!("{} {}", clean(&key.replace('_', " ")), cut(&value, MAX_DETAIL))
    });
    let words: Vec<String> = words.collect();
    if words.is_empty() { String::new() } else { format!(": {}", words.join(", ")) }
}

/// The name of a message that we do not know. Its content is for `--raw`.
fn unknown(data: &Value) -> String {
    let method = data.get("message").and_then(|message| message.get("method")).and_then(Value::as_str);
    method.map_or_else(|| "without a method".to_owned(), said)
}

fn session_event(kind: &str, data: &Data) -> Option<Shown> {
    Some(match kind {
        "session.created" => {
            let agent =
                data.get("agent").or_else(|| data.get("command")).unwrap_or_else(|| "an agent".to_owned());
            let named = data.part(" ", "name", "");
            let (within, by) = (data.part(" in ", "workspace", ""), data.part(", by ", "by", ""));
            Shown::new(Style::Bold, format!("session{named} created: {agent}{within}{by}"))
        }
        "agent.spawned" => {
            Shown::new(Style::Plain, format!("agent started{}{}", data.part(", pid ", "pid", ""), life(data)))
        }
        "agent.ready" => Shown::new(Style::Plain, "agent is ready"),
        "turn.started" => Shown::new(Style::Plain, format!("turn started{}", data.part(": ", "cause", ""))),
        "turn.ended" => Shown::new(Style::Plain, format!("turn ended{}", data.said(": ", "stop_reason"))),
        "session.stopping" => {
            let (how, by) = (data.part(" (", "how", ")"), data.part(", by ", "by", ""));
            Shown::new(Style::Yellow, format!("stopping{how}{by}"))
        }
        "session.unenforced" => {
            Shown::new(Style::Red, "unenforced: it acts without ever having asked for a clearance")
        }
        "session.resumed" => {
            Shown::new(Style::Bold, format!("resumed{}{}", life(data), data.part(", by ", "by", "")))
        }
        "session.kept" => Shown::new(
            Style::Dim,
            format!("stays when its ACP client leaves: used{}", data.part(" by ", "by", "")),
        ),
        "session.adopted" => Shown::new(
            Style::Red,
            format!(
                "adopted as an orphan{}{}: {}",
                data.part(", pid ", "pid", ""),
                life(data),
                data.part("", "why", "")
            ),
        ),
        "session.ended" => Shown::new(Style::Bold, format!("session ended{}", data.end_in_words())),
        "session.seen" => Shown::new(
            Style::Dim,
            format!("its failure was seen{}{}", data.part(" by ", "by", ""), data.part(": ", "reason", "")),
        ),
        "output.incomplete" => {
            Shown::new(Style::Red, format!("output may be missing{}", data.part(": ", "why", "")))
        }
        "agent.exited" => exited(data),
        "line.rejected" => {
            let of = data.said(" of ", "method") + &data.said(", field ", "field");
            let (why, bytes) = (data.part(": ", "reason", ""), data.part(" (", "bytes", " bytes)"));
            let mut shown = Shown::new(Style::Red, format!("a line{of} was rejected{why}{bytes}"));
            shown.below = data.get("excerpt").unwrap_or_default();
            shown
        }
        "unknown" => Shown::new(Style::Dim, format!("unknown message {}", unknown(data.0))),
        _ => return None,
    })
}

fn talk_event(kind: &str, data: &Data) -> Option<Shown> {
    let by = data.part(" by ", "by", "");
    Some(match kind {
        "status" => Shown::said(AGENT, Style::Plain, data.text("message")?),
        "update" if data.0.get("update").is_some() => acp::update(data)?,
        "update" => {
            let (tool, status) = (data.part("", "tool", ": "), data.part(" (", "status", ")"));
            Shown::said(TOOL, Style::Dim, &format!("{tool}{}{status}", data.get("title")?))
        }
        "heartbeat" => {
            Shown::said(AGENT, Style::Dim, &format!("heartbeat{}", progress(data.0.get("progress"), "label")))
        }
        "prompt.queued" => {
            let prompt = data.id("prompt");
            Shown::with_text(
                Style::Cyan,
                &format!("prompt{prompt}{by}: "),
                data.text("text").unwrap_or_default(),
            )
        }
        "prompt.sending" => Shown::new(Style::Dim, format!("prompt{} leaves the queue", data.id("prompt"))),
        "prompt.delivered" => Shown::new(Style::Dim, format!("prompt{} delivered", data.id("prompt"))),
        "prompt.undelivered" => undelivered("prompt", data),
        "prompt.amended" => Shown::new(Style::Dim, format!("prompt{} changed{by}", data.id("prompt"))),
        "prompt.requeued" => {
            let (id, why) = (data.id("prompt"), data.part(": ", "cause", ""));
            Shown::new(
                Style::Yellow,
                format!("prompt{id} is kept and is sent again when the agent is restarted{why}"),
            )
        }
        "prompt.withdrawn" => Shown::new(Style::Dim, format!("prompt{} taken back{by}", data.id("prompt"))),
        "nudge" => Shown::with_text(
            Style::Cyan,
            &format!("nudged{by}{}", colon(data, "message")),
            data.text("message").unwrap_or_default(),
        ),
        "nudge.undelivered" => undelivered("the nudge", data),
        "interrupt.undelivered" => undelivered("the interrupt", data),
        "interrupt" => Shown::with_text(
            Style::Yellow,
            &format!("interrupted{by}{}", colon(data, "reason")),
            data.text("reason").unwrap_or_default(),
        ),
        _ => return None,
    })
}

fn clearance_event(kind: &str, data: &Data) -> Option<Shown> {
    let id = data.id("clearance");
    Some(match kind {
        "clearance.requested" => {
            let risk = data.get("risk").unwrap_or_else(|| "?".to_owned());
            Shown::new(risk_style(&risk), format!("asks for clearance{id} [{risk}]: {}", subject(data)))
        }
        "clearance.decided" => {
            let status = data.get("status").unwrap_or_else(|| "decided".to_owned());
            let by = decider(data) + &data.said(", option ", "option");
            // The agent's words come last: nothing in them can pass for our reason.
            let why = data.part(" (", "reason", ")");
            Shown::new(status_style(&status), format!("clearance{id} {status}{by}{why}{}", about(data)))
        }
        "clearance.approved" => {
            let (by, of) = (data.part(" by ", "by", ""), data.part(" of ", "needed", " approvals"));
            let given = data.get("approvals").unwrap_or_default();
            Shown::new(Style::Green, format!("clearance{id} approved{by} ({given}{of}){}", about(data)))
        }
        "clearance.outcome" => Shown::with_quote(
            Style::Plain,
            &format!("clearance{id}:"),
            data.text("outcome").unwrap_or_default(),
        ),
        "clearance.delivered" => {
            Shown::new(Style::Dim, format!("the decision on clearance{id} was delivered"))
        }
        "clearance.undelivered" => undelivered("the decision on clearance", data),
        "clearance.closed" => {
            let status = data.get("status").unwrap_or_else(|| "closed".to_owned());
            let why = data.part(" (", "reason", ")");
            Shown::new(Style::Dim, format!("clearance{id} {status}{why}{}", about(data)))
        }
        _ => return None,
    })
}

/// ` by ana`, ` by tests`, or the grant of somebody who allowed it always.
fn decider(data: &Data) -> String {
    match data.text("by").filter(|by| by.starts_with("grt_")) {
        Some(grant) => format!(" by grant {}", short(grant)),
        None => data.part(" by ", "by", ""),
    }
}

fn question_event(kind: &str, data: &Data) -> Option<Shown> {
    let id = data.id("question");
    Some(match kind {
        "question.asked" => {
            Shown::with_quote(Style::Yellow, &format!("asks{id}:"), data.text("text").unwrap_or_default())
        }
        "question.answered" => {
            let by = data.part(" by ", "by", "");
            let decision = data.get("decision").unwrap_or_else(|| "answered".to_owned());
            let head = format!("question{id} answered{by}: {decision}{}", colon(data, "instruction"));
            Shown::with_text(Style::Green, &head, data.text("instruction").unwrap_or_default())
        }
        "question.delivered" => Shown::new(Style::Dim, format!("the answer to question{id} was delivered")),
        "question.undelivered" => undelivered("the answer to question", data),
        "question.closed" => {
            let status = data.get("status").unwrap_or_else(|| "closed".to_owned());
            Shown::new(Style::Dim, format!("question{id} {status}{}", data.part(": ", "reason", "")))
        }
        _ => return None,
    })
}

fn exited(data: &Data) -> Shown {
    let how = match (data.get("code"), data.get("signal")) {
        (Some(code), _) => format!(" with code {code}"),
        (None, Some(signal)) => format!(" by signal {signal}"),
        (None, None) => String::new(),
    };
    let steps = list(data.0.get("steps")).map(|steps| format!(" after {steps}")).unwrap_or_default();
    let killed = match data.0.get("killed") {
        Some(Value::Bool(true)) => ", killed".to_owned(),
        Some(Value::Number(count)) if count.as_u64() != Some(0) => format!(", {count} killed"),
        _ => String::new(),
    };
    let well = data.get("code").is_some_and(|code| code == "0");
    let mut shown =
        Shown::new(if well { Style::Plain } else { Style::Red }, format!("agent exited{how}{steps}{killed}"));
    shown.below = data.block("stderr_tail");
    shown
}

fn undelivered(what: &str, data: &Data) -> Shown {
    let id = data.id(what.rsplit(' ').next().unwrap_or(what));
    Shown::new(Style::Red, format!("{what}{id} was NOT delivered{}", data.part(": ", "cause", "")))
}

/// What a request for a clearance is about. Daemons of old did not log its line.
fn subject(data: &Data) -> String {
    let more: Vec<String> =
        data.0.get("more_paths").and_then(|paths| Vec::deserialize(paths).ok()).unwrap_or_default();
    let action = data.get("action").or_else(|| {
        action::action(Parts {
            command: data.text("command"),
            tool: data.text("tool"),
            file_path: data.text("file_path"),
            more_paths: &more,
            diff: data.text("diff"),
        })
    });
    action::line(action.as_deref(), data.text("title").unwrap_or_default())
}

/// `: cargo test “Check it”`, or nothing where a daemon of old did not log it.
fn about(data: &Data) -> String {
    data.text("title").map(|_| format!(": {}", subject(data))).unwrap_or_default()
}

fn life(data: &Data) -> String {
    match data.0.get("generation").and_then(Value::as_u64) {
        None | Some(..2) => String::new(),
        Some(generation) => format!(", generation {generation}"),
    }
}

fn colon(data: &Data, key: &str) -> &'static str {
    if data.text(key).is_some() { ": " } else { "" }
}

/// `[x] done, [>] doing, [ ] to do`.
fn progress(progress: Option<&Value>, label: &str) -> String {
    let Some(Value::Array(items)) = progress else { return String::new() };
    let items: Vec<String> = items
        .iter()
        .map(|item| {
            let item = Data(item);
            let mark = match item.text("status") {
                Some("completed") => "[x]".to_owned(),
                Some("in_progress") => "[>]".to_owned(),
                Some("pending") | None => "[ ]".to_owned(),
                Some(other) => format!("[{}]", clean(other)),
            };
            format!("{mark} {}", item.get(label).unwrap_or_default())
        })
        .collect();
    if items.is_empty() { String::new() } else { format!(": {}", items.join(", ")) }
}

/// The elements of a list of words, or of anything.
pub(super) fn list(value: Option<&Value>) -> Option<String> {
    match value? {
        Value::Array(items) if items.is_empty() => None,
        Value::Array(items) => Some(items.iter().map(plain).collect::<Vec<_>>().join(", ")),
        Value::Null => None,
        other => Some(plain(other)),
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => clean(text),
        other => clean(&other.to_string()),
    }
}

/// A word of an agent as it is, anything longer in quotes.
fn said(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | '$');
    if (1..=40).contains(&text.len()) && text.chars().all(plain) { text.to_owned() } else { quoted(text) }
}

/// The data of an event: whatever the agent or the daemon put there, and perhaps not what we expect.
struct Data<'a>(&'a Value);

impl Data<'_> {
    /// Clean, on one line; `None` if absent, null or empty.
    fn get(&self, key: &str) -> Option<String> {
        match self.0.get(key)? {
            Value::Null => None,
            value => Some(plain(value)).filter(|text| !text.is_empty()),
        }
    }

    /// As it came: to be cleaned by whoever shows it.
    fn text(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.as_str().filter(|text| !text.is_empty())
    }

    /// Lines of text, clean.
    fn block(&self, key: &str) -> String {
        self.text(key).map(|text| clean_block(text.trim_end())).unwrap_or_default()
    }

    fn part(&self, before: &str, key: &str, after: &str) -> String {
        self.get(key).map(|value| format!("{before}{value}{after}")).unwrap_or_default()
    }

    /// The end of a process in words, else the short reason of older logs and of ends that somebody caused.
    fn end_in_words(&self) -> String {
        self.get("why").or_else(|| self.get("reason")).map(|why| format!(": {why}")).unwrap_or_default()
    }

    /// Text of an agent in a line of ours.
    fn said(&self, before: &str, key: &str) -> String {
        self.get(key).map(|value| format!("{before}{}", said(&value))).unwrap_or_default()
    }

    /// A time with its zone, as it stands alone in a line of ours.
    fn time(&self, key: &str) -> Option<String> {
        self.text(key).map(date_time_zone)
    }

    fn id(&self, key: &str) -> String {
        self.text(key).map(|id| format!(" {}", short(id))).unwrap_or_default()
    }
}

/// `2 clearances, 1 question`, or nothing.
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
mod tests {
    use serde_json::json;

    use super::*;

    pub(super) fn show(kind: &str, data: Value) -> String {
        let event_ = Event {
            seq: 1,
            session: "ses_1".into(),
            at: String::new(),
            kind: kind.into(),
            data,
            raw: String::new(),
        };
        event(&event_).lines("", None, Paint::OFF)
    }

    #[test]
    fn the_life_of_a_session() {
        let lines = [
            show(
                "session.created",
                json!({"name": "fix", "agent": "demo", "protocol": "intercom", "workspace": "/w", "by": "ana"}),
            ),
            show(
                "session.created",
                json!({"name": null, "agent": null, "command": "./agent", "workspace": "/w"}),
            ),
            show("agent.spawned", json!({"pid": 7, "generation": 1})),
            show("agent.ready", json!({"generation": 1})),
            show("turn.started", json!({"turn": "trn_1", "cause": "prompt"})),
            show("turn.ended", json!({"turn": "trn_1", "stop_reason": "done"})),
            show("session.stopping", json!({"how": "stop", "by": "ana"})),
            show(
                "agent.exited",
                json!({"code": null, "signal": 9, "steps": ["interrupt", "SIGKILL"], "killed": true, "stderr_tail": "a\nb\n"}),
            ),
            show(
                "agent.exited",
                json!({"code": 0, "signal": null, "steps": [], "killed": false, "stderr_tail": ""}),
            ),
            show("session.ended", json!({"reason": "stream closed", "why": "exited with code 0"})),
            show("session.ended", json!({"reason": "stopped by ana", "why": null})),
            show("session.resumed", json!({"generation": 2, "by": "ana"})),
        ];
        insta::assert_snapshot!(lines.concat(), @r"
        session fix created: demo in /w, by ana
        session created: ./agent in /w
        agent started, pid 7
        agent is ready
        turn started: prompt
        turn ended: done
        stopping (stop), by ana
        agent exited by signal 9 after interrupt, SIGKILL, killed
            │ a
            │ b
        agent exited with code 0
        session ended: exited with code 0
        session ended: stopped by ana
        resumed, generation 2, by ana
        ");
    }

    #[test]
    fn what_is_said() {
        let lines = [
            show("status", json!({"message": "Running tests\nline two"})),
            show(
                "heartbeat",
                json!({"progress": [{"label": "a", "status": "completed"}, {"label": "b", "status": "in_progress"}, {"label": "c", "status": "pending"}, {"label": "d", "status": "odd"}]}),
            ),
            show("heartbeat", json!({})),
            show("prompt.queued", json!({"prompt": "prm_0123456789", "text": "do it", "by": "ana"})),
            show("prompt.sending", json!({"prompt": "prm_0123456789", "turn": "trn_1"})),
            show("prompt.delivered", json!({"prompt": "prm_0123456789"})),
            show("prompt.undelivered", json!({"prompt": "prm_0123456789", "cause": "stream closed"})),
            show("prompt.requeued", json!({"prompt": "prm_0123456789", "cause": "the agent needs a log-in"})),
            show("prompt.withdrawn", json!({"prompt": "prm_0123456789", "by": "ana"})),
            show("nudge", json!({"message": "go on", "by": "ana"})),
            show("interrupt", json!({"reason": null, "by": "ana"})),
            show("interrupt.undelivered", json!({"cause": "stream closed"})),
            show(
                "line.rejected",
                json!({"reason": "malformed JSON", "excerpt": "{oops", "bytes": 5, "method": null, "field": null}),
            ),
            show(
                "line.rejected",
                json!({"reason": "missing field", "excerpt": "", "bytes": 9, "method": "status/update", "field": "message"}),
            ),
            show("unknown", json!({"message": {"method": "new/thing"}})),
        ];
        insta::assert_snapshot!(lines.concat(), @r"
        agent> Running tests
        agent> line two
        agent> heartbeat: [x] a, [>] b, [ ] c, [odd] d
        agent> heartbeat
        prompt prm_01234567 by ana: do it
        prompt prm_01234567 leaves the queue
        prompt prm_01234567 delivered
        prompt prm_01234567 was NOT delivered: stream closed
        prompt prm_01234567 is kept and is sent again when the agent is restarted: the agent needs a log-in
        prompt prm_01234567 taken back by ana
        nudged by ana: go on
        interrupted by ana
        the interrupt was NOT delivered: stream closed
        a line was rejected: malformed JSON (5 bytes)
            │ {oops
        a line of status/update, field message was rejected: missing field (9 bytes)
        unknown message new/thing
        ");
    }

    #[test]
    fn clearances_and_questions() {
        let lines = [
            show(
                "clearance.requested",
                json!({"clearance": "clr_0123456789", "title": "Edit", "diff": "--- a\n+++ b\n-x\n+y\n+z\n", "file_path": "src/a.rs", "risk": "high"}),
            ),
            show(
                "clearance.decided",
                json!({"clearance": "clr_0123456789", "status": "denied", "by": "ana", "reason": "no", "option": null}),
            ),
            show(
                "clearance.decided",
                json!({"clearance": "clr_0123456789", "status": "approved", "by": "grt_9zxf1vmef3q6qx43"}),
            ),
            show("clearance.delivered", json!({"clearance": "clr_0123456789"})),
            show("clearance.undelivered", json!({"clearance": "clr_0123456789", "cause": "stream closed"})),
            show(
                "clearance.closed",
                json!({"clearance": "clr_0123456789", "status": "withdrawn", "reason": "the agent exited"}),
            ),
            show(
                "question.asked",
                json!({"question": "qst_0123456789", "text": "Go on?\nReally?", "type": "continuation"}),
            ),
            show(
                "question.answered",
                json!({"question": "qst_0123456789", "decision": "refine", "instruction": "slower", "by": "ana"}),
            ),
            show(
                "question.answered",
                json!({"question": "qst_0123456789", "decision": "continue", "instruction": null, "by": "ana"}),
            ),
            show("question.delivered", json!({"question": "qst_0123456789"})),
            show("question.undelivered", json!({"question": "qst_0123456789", "cause": "exited"})),
            show(
                "question.closed",
                json!({"question": "qst_0123456789", "status": "withdrawn", "reason": null}),
            ),
        ];
        insta::assert_snapshot!(lines.concat(), @r"
        asks for clearance clr_01234567 [high]: src/a.rs +2 -1 “Edit”
        clearance clr_01234567 denied by ana (no)
        clearance clr_01234567 approved by grant grt_9zxf1vme
        the decision on clearance clr_01234567 was delivered
        the decision on clearance clr_01234567 was NOT delivered: stream closed
        clearance clr_01234567 withdrawn (the agent exited)
        asks qst_01234567:
            │ Go on?
            │ Really?
        question qst_01234567 answered by ana: refine: slower
        question qst_01234567 answered by ana: continue
        the answer to question qst_01234567 was delivered
        the answer to question qst_01234567 was NOT delivered: exited
        question qst_01234567 withdrawn
        ");
    }

    #[test]
    fn unknown_kinds_and_odd_data_are_shown_not_dropped() {
        assert_eq!(
            show("stall.later", json!({"level": 2, "the_plan": {"a": [1]}, "why": "say \"so\"", "x": null})),
            "stall.later: level 2, the plan …, why “say 'so'”\n"
        );
        assert_eq!(show("later", Value::Null), "later\n");
        assert_eq!(show("status", json!({"text": 5})), "status: text 5\n");
        assert_eq!(show("status", json!([1])), "status\n");
        assert_eq!(
            show("unknown", json!({"message": {"result": {"deep": [1]}}})),
            "unknown message without a method\n"
        );
    }

    #[test]
    fn nothing_an_agent_says_reaches_the_terminal_raw() {
        let evil = "\x1b]0;x\x07\u{202e}\u{200b}\r";
        let fields = [
            "name",
            "agent",
            "workspace",
            "by",
            "cause",
            "stop_reason",
            "message",
            "text",
            "prompt",
            "clearance",
            "title",
            "file_path",
            "diff",
            "risk",
            "status",
            "reason",
            "option",
            "question",
            "decision",
            "instruction",
            "excerpt",
            "method",
            "field",
            "how",
            "code",
            "stderr_tail",
            "steps",
            "step",
            "why",
            "summary",
            "until",
            "ladder",
            "limit",
            "waiting_for",
        ];
        let data: Value = fields
            .iter()
            .map(|field| ((*field).to_owned(), json!(evil)))
            .collect::<serde_json::Map<_, _>>()
            .into();
        for kind in [
            "session.created",
            "agent.spawned",
            "turn.started",
            "turn.ended",
            "session.stopping",
            "session.ended",
            "session.seen",
            "session.kept",
            "session.adopted",
            "output.incomplete",
            "agent.exited",
            "line.rejected",
            "unknown",
            "status",
            "heartbeat",
            "prompt.queued",
            "prompt.sending",
            "prompt.undelivered",
            "prompt.withdrawn",
            "nudge",
            "nudge.undelivered",
            "interrupt",
            "interrupt.undelivered",
            "clearance.requested",
            "clearance.decided",
            "clearance.undelivered",
            "clearance.closed",
            "question.asked",
            "question.answered",
            "question.undelivered",
            "question.closed",
            "stall.step",
            "stall.failed",
            "stall.recovered",
            "stall.reset",
            "stall.snoozed",
            "stall.ladder",
            "stall.reminder",
            "stall.limited",
            "agent.restarting",
            "session.parked",
            evil,
        ] {
            let shown = show(kind, data.clone());
            assert!(!shown.contains(['\x1b', '\x07', '\u{202e}', '\u{200b}', '\r']), "{kind}: {shown:?}");
        }
    }
}

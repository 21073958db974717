//! One English sentence per event, for `logs`, `watch`, the console, chats and the API.
//!
//! A summary is computed on reading and never stored, so that improved sentences also apply to old events. Text of an
//! agent is marked or quoted: it cannot be mistaken for a sentence of ours. All text is sanitized, so that a terminal
//! can print it.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::action::{self, ActionParts};
use crate::event::{AgentUpdate, ClearanceRequested, PlanStep, Speaker, UnknownMessage};
use crate::text::{clean, clean_block, cut, cut_words, plural, quoted, short};
use crate::{ClearanceId, Event, PromptId, QuestionId, Risk, Rung, SettingValue, Time};

mod requests;
mod sessions;
mod stalls;

/// The number of fields shown of an unknown event, and the columns of each.
const MAX_DETAILS: usize = 8;
const MAX_DETAIL: usize = 60;
/// The maximum length of an agent's word that needs no quotes.
const MAX_WORD: usize = 40;

/// The weight of a sentence; each bridge has its own colours for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Tone {
    Plain,
    /// A minor event.
    Quiet,
    /// A beginning or an end.
    Strong,
    /// A message of a person to the agent.
    Person,
    Good,
    Warning,
    Bad,
}

impl Tone {
    const fn of_risk(risk: Risk) -> Self {
        match risk {
            Risk::Low => Self::Good,
            Risk::Medium => Self::Warning,
            Risk::High | Risk::Critical => Self::Bad,
        }
    }
}

/// An event in English.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    pub tone: Tone,
    /// The speaker, unless it is intercom.
    pub speaker: Option<Speaker>,
    /// A sentence of ours, or the complete text of the speaker: one line or several.
    pub text: String,
    /// Lines below the sentence.
    pub detail: String,
}

impl Speaker {
    /// Returns the mark before each line of the speaker. No sentence of ours begins with it.
    pub const fn mark(self) -> &'static str {
        match self {
            Self::Agent => "agent> ",
            Self::Thought => "think> ",
            Self::Tool => "tool>  ",
            Self::Plan => "plan>  ",
            Self::User => "user>  ",
        }
    }
}

impl Summary {
    fn new(tone: Tone, text: impl Into<String>) -> Self {
        Self { tone, speaker: None, text: text.into(), detail: String::new() }
    }

    /// Creates a summary with the text of a speaker, on any number of lines.
    pub(crate) fn spoken(speaker: Speaker, tone: Tone, text: &str) -> Self {
        Self { tone, speaker: Some(speaker), text: clean_block(text.trim_end()), detail: String::new() }
    }

    /// Creates a summary with text of any length: its first line goes into the sentence, the rest below.
    fn with_text(tone: Tone, sentence: &str, text: &str) -> Self {
        let text = clean_block(text.trim_end());
        let (first, rest) = text.split_once('\n').unwrap_or((&text, ""));
        let detail = rest.to_owned();
        Self { tone, speaker: None, text: format!("{sentence}{first}"), detail }
    }

    /// Creates a summary with text of an agent in a sentence of ours: in quotes, or below if it has several lines.
    fn with_quote(tone: Tone, sentence: &str, text: &str) -> Self {
        let text = clean_block(text.trim_end());
        if text.contains('\n') {
            return Self { tone, speaker: None, text: sentence.to_owned(), detail: text };
        }
        Self::new(tone, format!("{sentence} {}", quoted(&text)))
    }

    fn below(self, detail: &str) -> Self {
        Self { detail: clean_block(detail.trim_end()), ..self }
    }

    /// Creates the summary of a tool call with a title and status from earlier events.
    pub fn of_tool_call(title: &str, status: &str) -> Self {
        let tone = if status == "failed" { Tone::Bad } else { Tone::Quiet };
        Self::spoken(Speaker::Tool, tone, &format!("{} ({})", clean(title), clean(status)))
    }

    /// Returns the sentence without its detail. The mark of a speaker precedes each line.
    pub fn sentence(&self) -> String {
        let mark = self.speaker.map_or("", Speaker::mark);
        self.text.lines().map(|line| format!("{mark}{line}")).collect::<Vec<_>>().join("\n")
    }
}

impl Event {
    /// Describes the event in English. `show_time` formats the times in it for the reader.
    pub fn summary(&self, show_time: fn(Time) -> String) -> Summary {
        sessions::summary(self)
            .or_else(|| self.spoken_summary())
            .or_else(|| self.prompt_summary())
            .or_else(|| requests::summary(self))
            .or_else(|| stalls::summary(self, show_time))
            .or_else(|| self.host_call_summary())
            .unwrap_or_else(|| other(self.name(), &self.data()))
    }

    /// Summarizes the text of an agent, and its invalid lines.
    fn spoken_summary(&self) -> Option<Summary> {
        Some(match self {
            Self::Status(message) => {
                let text = message.status_text().filter(|text| !text.is_empty())?;
                Summary::spoken(Speaker::Agent, Tone::Plain, &text)
            }
            Self::Heartbeat(message) => {
                let steps = steps(&message.progress());
                Summary::spoken(
                    Speaker::Agent,
                    Tone::Quiet,
                    &format!("heartbeat{}", clean_suffix(": ", &steps)),
                )
            }
            Self::Update(message) => agent_update(&message.update()?),
            Self::LineRejected(rejected) => {
                let rejection = &rejected.0;
                let of =
                    rejection.method.as_deref().map(|method| word_suffix(" of ", method)).unwrap_or_default()
                        + &rejection
                            .field
                            .as_deref()
                            .map(|field| word_suffix(", field ", field))
                            .unwrap_or_default();
                let (why, bytes) = (clean_suffix(": ", &rejection.reason), rejection.bytes);
                let sentence = format!("a line{of} was rejected{why} ({bytes} bytes)");
                Summary::new(Tone::Bad, sentence).below(&rejection.excerpt)
            }
            Self::UnknownMessage(unknown) => Summary::new(Tone::Quiet, unknown.in_words()),
            _ => return None,
        })
    }

    /// Summarizes messages of people to an agent.
    fn prompt_summary(&self) -> Option<Summary> {
        Some(match self {
            Self::PromptQueued(queued) => {
                let sentence = format!("prompt{}{}: ", prompt(queued.prompt), by(&queued.by));
                Summary::with_text(Tone::Person, &sentence, &queued.text)
            }
            Self::PromptSending(sending) => {
                Summary::new(Tone::Quiet, format!("prompt{} leaves the queue", prompt(sending.prompt)))
            }
            Self::PromptDelivered(delivered) => {
                Summary::new(Tone::Quiet, format!("prompt{} delivered", prompt(delivered.prompt)))
            }
            Self::PromptUndelivered(lost) => {
                undelivered(&format!("prompt{}", prompt(lost.prompt)), &lost.cause)
            }
            Self::PromptAmended(amended) => Summary::new(
                Tone::Quiet,
                format!("prompt{} changed{}", prompt(amended.prompt), by(&amended.by)),
            ),
            Self::PromptRequeued(requeued) => {
                let (id, why) = (prompt(requeued.prompt), clean_suffix(": ", &requeued.cause));
                Summary::new(
                    Tone::Warning,
                    format!("prompt{id} is kept and is sent again when the agent is restarted{why}"),
                )
            }
            Self::PromptWithdrawn(withdrawn) => Summary::new(
                Tone::Quiet,
                format!("prompt{} taken back{}", prompt(withdrawn.prompt), by(&withdrawn.by)),
            ),
            Self::Nudged(nudged) => {
                let sentence = format!("nudged{}{}", by(&nudged.by), colon(&nudged.message));
                Summary::with_text(Tone::Person, &sentence, &nudged.message)
            }
            Self::NudgeUndelivered(lost) => undelivered("the nudge", &lost.cause),
            Self::Interrupted(interrupted) => {
                let sentence = format!("interrupted{}{}", by(&interrupted.by), colon(&interrupted.reason));
                Summary::with_text(Tone::Warning, &sentence, &interrupted.reason)
            }
            Self::InterruptUndelivered(lost) => undelivered("the interrupt", &lost.cause),
            Self::AgentSetting(setting) => {
                let value = match &setting.value {
                    Some(SettingValue::Switch(on)) => on.to_string(),
                    Some(SettingValue::Value(value)) => clean(value),
                    None => String::new(),
                };
                let what =
                    setting.mode.as_deref().map(|mode| clean_suffix("mode ", mode)).unwrap_or_default()
                        + &setting
                            .model
                            .as_deref()
                            .map(|model| clean_suffix("model ", model))
                            .unwrap_or_default()
                        + &setting
                            .option
                            .as_deref()
                            .map(|name| format!("{} = ", clean(name)))
                            .unwrap_or_default()
                        + &value;
                Summary::new(Tone::Person, format!("set{}: {what}", by(&setting.by)))
            }
            Self::SettingAccepted(_) => Summary::new(Tone::Quiet, "the agent has set it"),
            Self::SettingRefused(refused) => Summary::new(
                Tone::Bad,
                format!("that could not be set{}", word_suffix(": ", &refused.reason)),
            ),
            _ => return None,
        })
    }

    /// Summarizes the host's work for an agent.
    fn host_call_summary(&self) -> Option<Summary> {
        Some(match self {
            Self::FileRead(read) => Summary::new(
                Tone::Quiet,
                format!("read{} for the agent ({} bytes)", word_suffix(" ", &read.path), read.bytes),
            ),
            Self::FileWritten(written) => Summary::new(
                Tone::Plain,
                format!("wrote{} for the agent ({} bytes)", word_suffix(" ", &written.path), written.bytes),
            ),
            Self::TerminalStarted(started) => {
                let (terminal, command) = (clean(&started.terminal), word_suffix(" ", &started.command));
                Summary::new(Tone::Plain, format!("{terminal} runs{command}, pid {}", started.pid))
            }
            Self::TerminalOutput(output) => Summary::new(
                Tone::Quiet,
                format!("{} was read ({} bytes)", clean(&output.terminal), output.bytes),
            ),
            Self::TerminalKilled(killed) => {
                Summary::new(Tone::Plain, format!("{} was ended by the agent", clean(&killed.terminal)))
            }
            Self::TerminalReleased(released) => {
                Summary::new(Tone::Quiet, format!("{} was released", clean(&released.terminal)))
            }
            Self::TerminalEnded(ended) => {
                let code = ended.code.map(|code| format!(": exit code {code}")).unwrap_or_default();
                let signal = ended.signal.map(|signal| format!(": signal {signal}")).unwrap_or_default();
                let why = ended.reason.as_deref().map(|why| clean_suffix(": ", why)).unwrap_or_default();
                Summary::new(Tone::Plain, format!("{} ended{code}{signal}{why}", clean(&ended.terminal)))
            }
            Self::HostCallFailed(failed) => Summary::new(
                Tone::Warning,
                format!("{} was not done{}", clean(&failed.method), clean_suffix(": ", &failed.reason)),
            ),
            _ => return None,
        })
    }
}

impl UnknownMessage {
    /// Returns the name of an unknown message. Only the raw log shows its content.
    ///
    /// A message without a method is an answer of the agent: to `session/close`, to a nudge during a turn, to a prompt
    /// that was cancelled before. Nothing depends on it any more.
    pub fn in_words(&self) -> String {
        let message = self.read();
        match (message.get("method").and_then(Value::as_str), message.get("error")) {
            (Some(method), _) => format!("unknown message {}", word_or_quote(method)),
            (None, Some(error)) => {
                let why = error
                    .get("message")
                    .and_then(Value::as_str)
                    .map(|why| cut_words(&quoted(why), MAX_DETAIL));
                let why = why.map(|why| format!(": {why}")).unwrap_or_default();
                format!("the agent answered with an error that no turn depends on{why}")
            }
            (None, None) if self.is_settled_answer() => "the agent's answer to an earlier request".to_owned(),
            (None, None) => "unknown message without a method".to_owned(),
        }
    }

    /// Reports whether it is an answer without an error, which is of no interest to people.
    pub fn is_settled_answer(&self) -> bool {
        let message = self.read();
        message.get("method").is_none() && message.get("result").is_some()
    }

    fn read(&self) -> Value {
        serde_json::from_str(self.message.as_str()).unwrap_or_default()
    }
}

fn agent_update(update: &AgentUpdate) -> Summary {
    let tells = |text: String| Summary::spoken(Speaker::Agent, Tone::Quiet, &text);
    let optional = |before: &str, text: &Option<String>| {
        text.as_deref().map(|text| clean_suffix(before, text)).unwrap_or_default()
    };
    match update {
        AgentUpdate::Chunk(chunk) => Summary::spoken(chunk.speaker, chunk.speaker.tone(), &chunk.text),
        AgentUpdate::ToolCall { id, title, status, .. } => {
            let title = clean(title.as_deref().unwrap_or(id));
            let status = status.as_deref().map(|status| format!(" ({})", clean(status))).unwrap_or_default();
            Summary::spoken(Speaker::Tool, Tone::Quiet, &format!("{title}{status}"))
        }
        AgentUpdate::Tool { tool, title, status } => {
            let tool = tool.as_deref().map(|tool| format!("{}: ", clean(tool))).unwrap_or_default();
            let status = status.as_deref().map(|status| format!(" ({})", clean(status))).unwrap_or_default();
            Summary::spoken(Speaker::Tool, Tone::Quiet, &format!("{tool}{}{status}", clean(title)))
        }
        AgentUpdate::Plan(entries) => Summary::spoken(Speaker::Plan, Tone::Quiet, &steps(entries)),
        AgentUpdate::Mode(mode) => tells(format!("mode{}", optional(": ", mode))),
        AgentUpdate::Title(title) => tells(format!("title{}", optional(": ", title))),
        AgentUpdate::Commands(count) => tells(format!("offers {}", plural(*count, "command"))),
        AgentUpdate::Options => tells("options changed".to_owned()),
        AgentUpdate::Usage { used, size } => {
            let used = used.map(|used| format!(": {used}")).unwrap_or_default();
            let size = size.map(|size| format!(" of {size}")).unwrap_or_default();
            tells(format!("context{used}{size}"))
        }
        AgentUpdate::Other(name) => tells(format!("update {}", word_or_quote(name))),
    }
}

impl Speaker {
    /// Returns the tone: the agent's messages stand out from the rest.
    pub const fn tone(self) -> Tone {
        match self {
            Self::Agent => Tone::Plain,
            Self::Thought | Self::Tool | Self::Plan | Self::User => Tone::Quiet,
        }
    }
}

/// Formats steps as `[x] done, [>] doing, [ ] to do`.
fn steps(steps: &[PlanStep]) -> String {
    let line = |step: &PlanStep| {
        let mark = match step.status.as_deref() {
            Some("completed") => "[x]".to_owned(),
            Some("in_progress") => "[>]".to_owned(),
            Some("pending") | None => "[ ]".to_owned(),
            Some(other) => format!("[{}]", clean(other)),
        };
        format!("{mark} {}", clean(step.label.as_deref().unwrap_or_default()))
    };
    steps.iter().map(line).collect::<Vec<_>>().join(", ")
}

/// Summarizes an event that this version does not know: its name, and its fields.
fn other(name: &str, data: &str) -> Summary {
    let data: Value = serde_json::from_str(data).unwrap_or_default();
    let fields = data.as_object().into_iter().flatten();
    let words = fields.filter(|(_, value)| !value.is_null()).take(MAX_DETAILS).map(|(key, value)| {
        let value = match value {
            Value::Array(_) | Value::Object(_) => "…".to_owned(),
            Value::String(text) => word_or_quote(&clean(text)),
            other => word_or_quote(&clean(&other.to_string())),
        };
        format!("{} {}", clean(&key.replace('_', " ")), cut(&value, MAX_DETAIL))
    });
    let words: Vec<String> = words.collect();
    Summary::new(Tone::Plain, format!("{}{}", clean(name), clean_suffix(": ", &words.join(", "))))
}

fn undelivered(what: &str, cause: &str) -> Summary {
    Summary::new(Tone::Bad, format!("{what} was NOT delivered{}", clean_suffix(": ", cause)))
}

/// Returns the subject of a request for a clearance. Older daemons did not log its line.
fn subject(requested: &ClearanceRequested) -> String {
    let action = requested.action.clone().or_else(|| {
        action::action(ActionParts {
            command: requested.command.as_deref(),
            tool: requested.tool.as_deref(),
            file_path: requested.file_path.as_deref(),
            more_paths: &requested.more_paths,
            diff: requested.diff.as_deref(),
        })
    });
    action::line(action.as_deref(), &requested.title)
}

/// Returns the end of a process in words, else the short reason of older logs and of requested ends.
fn exit_suffix(why: Option<&str>, reason: &str) -> String {
    clean_suffix(": ", why.unwrap_or(reason))
}

/// Returns `before` and the text on one line; nothing if the text is empty.
fn clean_suffix(before: &str, text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("{before}{}", clean(text)) }
}

/// Returns `before` and a word of an agent.
fn word_suffix(before: &str, text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("{before}{}", word_or_quote(&clean(text))) }
}

/// Returns a word of an agent unchanged, and anything longer in quotes.
fn word_or_quote(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | '$');
    if (1..=MAX_WORD).contains(&text.len()) && text.chars().all(plain) {
        text.to_owned()
    } else {
        quoted(text)
    }
}

fn by(name: &str) -> String {
    clean_suffix(" by ", name)
}

fn colon(text: &str) -> &'static str {
    if text.is_empty() { "" } else { ": " }
}

fn prompt(id: PromptId) -> String {
    format!(" {}", short(&id.to_string()))
}

fn clearance(id: ClearanceId) -> String {
    format!(" {}", short(&id.to_string()))
}

fn question(id: QuestionId) -> String {
    format!(" {}", short(&id.to_string()))
}

#[cfg(test)]
mod tests;

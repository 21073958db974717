//! What a permission request shows to people and to policy.
//!
//! Agents put the same things in different places: a diff in the request, in its raw input, or only in the tool call
//! announced before; a command in the raw input or only in the title. Doubt makes a request look more dangerous, never
//! less.

use std::borrow::Cow;

use super::request::Permission;
use super::tool::{ToolCall, joined};
use crate::domain::Choice;
use crate::wire::diff;

/// The tools that policy has words for.
const TOOLS: &[&str] =
    &["read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"];
/// Keeps policy from allowing a command that was not given: text with a comment is never plain words.
const FROM_TITLE: &str = "; # as the title says";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Card {
    pub title: String,
    pub description: Option<String>,
    pub tool: Option<String>,
    pub command: Option<String>,
    pub file_path: Option<String>,
    /// Must be judged as well.
    pub more_paths: Vec<String>,
    pub diff: Option<String>,
    pub options: Vec<Choice>,
}

/// `announced` is what the agent said of the same tool call before, if anything.
pub fn card(permission: &Permission<'_>, announced: Option<&ToolCall<'_>>, workspace: &str) -> Card {
    let call = match announced {
        Some(announced) => permission.tool.clone().after(announced),
        None => permission.tool.clone(),
    };
    let diff = diff(&call);
    let command = command(&call, workspace);
    let tool = tool(&call, command.is_some(), diff.is_some());
    let mut paths = paths(&call, tool.as_deref() == Some("execute")).into_iter();
    Card {
        title: title(&call),
        description: description(&call),
        file_path: paths.next(),
        more_paths: paths.collect(),
        tool,
        command,
        diff,
        options: permission.options.clone(),
    }
}

fn title(call: &ToolCall<'_>) -> String {
    let said = [&call.title, &call.name, &call.kind, &call.id].into_iter().flatten();
    said.map(|text| text.trim())
        .find(|text| !text.is_empty())
        .unwrap_or("the agent asks for permission")
        .to_owned()
}

fn description(call: &ToolCall<'_>) -> Option<String> {
    let mut parts: Vec<Cow<'_, str>> = call.input_description().into_iter().collect();
    parts.extend(call.texts.iter().filter(|text| !text.trim().is_empty()).cloned());
    (!parts.is_empty()).then(|| parts.join("\n\n"))
}

/// Whatever runs a command executes, also if the agent calls it reading; whatever brings a diff edits at least.
fn tool(call: &ToolCall<'_>, command: bool, diff: bool) -> Option<String> {
    let kind = call.kind.as_deref();
    let word = match kind {
        _ if command => "execute",
        Some("edit" | "delete" | "move" | "execute") => kind?,
        _ if diff => "edit",
        Some(kind) if TOOLS.contains(&kind) => kind,
        Some(_) => "other",
        None => return None,
    };
    Some(word.to_owned())
}

fn command(call: &ToolCall<'_>, workspace: &str) -> Option<String> {
    let Some(command) = call.command() else {
        let title = call.title.as_deref().map(|title| title.trim().trim_matches('`'));
        let title = title.filter(|title| !title.is_empty() && call.kind.as_deref() == Some("execute"))?;
        return Some(format!("{title}{FROM_TITLE}"));
    };
    let elsewhere = |folder: &Cow<'_, str>| {
        let here = |path: &str| path.trim_end_matches('/').to_owned();
        folder != "." && here(folder) != here(workspace)
    };
    Some(match call.folder().filter(elsewhere) {
        Some(folder) => format!("{} && {command}", joined(&["cd".into(), folder])),
        None => command.into_owned(),
    })
}

/// The locations of a command are hints on what to look at; what it does is in its words.
fn paths(call: &ToolCall<'_>, executes: bool) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let edits = call.edits.iter().map(|edit| edit.path.clone());
    let locations = call.locations.iter().filter(|_| !executes).cloned();
    for path in edits.chain(locations).chain(call.input_paths()) {
        if !all.iter().any(|known| *known == path) {
            all.push(path.into_owned());
        }
    }
    all
}

fn diff(call: &ToolCall<'_>) -> Option<String> {
    let edits = call.edits.iter();
    let made: String = edits.map(|edit| diff::unified(&edit.path, edit.old.as_deref(), &edit.new)).collect();
    if made.is_empty() { call.input_diff().map(Cow::into_owned) } else { Some(made) }
}

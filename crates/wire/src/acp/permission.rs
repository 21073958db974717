//! The content of a permission request, for people and for policy.
//!
//! Agents put the same things in different places: a diff in the request, in its raw input, or only in the tool call
//! announced before; a command in the raw input or only in the title. Doubt makes a request look more dangerous, never
//! less.

use std::borrow::Cow;

use super::input::InputFacts;
use super::request::PermissionRequest;
use super::tool::{ToolCall, quote_words};
use crate::diff;
use intercom_types::Choice;

/// The kinds of tools that policy distinguishes.
const TOOLS: &[&str] =
    &["read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"];
/// Prevents policy from allowing a command that is only in the title: text with a comment is never plain words.
const FROM_TITLE: &str = "; # as the title says";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PermissionDetails {
    pub(crate) title: String,
    pub(crate) description: Option<String>,
    pub(crate) tool: Option<String>,
    pub(crate) command: Option<String>,
    pub(crate) file_path: Option<String>,
    /// Further paths, which policy must assess as well.
    pub(crate) more_paths: Vec<String>,
    pub(crate) diff: Option<String>,
    pub(crate) options: Vec<Choice>,
}

/// Collects the details of a request. `announced` is the agent's earlier report of the same tool call, if any.
pub(crate) fn permission_details(
    permission: &PermissionRequest<'_>,
    announced: Option<&ToolCall<'_>>,
    workspace: &str,
) -> PermissionDetails {
    let call = match announced {
        Some(announced) => permission.tool.clone().with_earlier(announced),
        None => permission.tool.clone(),
    };
    let facts = call.facts();
    let diff = diff(&call, &facts);
    let command = command(&call, &facts, workspace);
    let tool = tool(&call, command.is_some(), diff.is_some());
    let mut paths = paths(&call, &facts, command.is_none()).into_iter();
    PermissionDetails {
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
    let candidates = [&call.title, &call.name, &call.kind, &call.id].into_iter().flatten();
    candidates
        .map(|text| text.trim())
        .find(|text| !text.is_empty())
        .unwrap_or("the agent asks for permission")
        .to_owned()
}

fn description(call: &ToolCall<'_>) -> Option<String> {
    let mut parts: Vec<Cow<'_, str>> = call.input_description().into_iter().collect();
    parts.extend(call.texts.iter().filter(|text| !text.trim().is_empty()).cloned());
    (!parts.is_empty()).then(|| parts.join("\n\n"))
}

/// Returns the agent's own kind of tool, which is a fact like any other: policy compares it with the command and the
/// diff.
fn tool(call: &ToolCall<'_>, command: bool, diff: bool) -> Option<String> {
    let word = match call.kind.as_deref() {
        Some(kind) if TOOLS.contains(&kind) => kind,
        Some(_) => "other",
        None if command => "execute",
        None if diff => "edit",
        None => return None,
    };
    Some(word.to_owned())
}

/// Returns everything that would be run, as one shell text, with its directory and its variables.
fn command(call: &ToolCall<'_>, facts: &InputFacts, workspace: &str) -> Option<String> {
    let mut parts: Vec<String> = Vec::new();
    let folders = facts.folders.iter().filter(|folder| is_elsewhere(folder, workspace));
    parts.extend(folders.map(|folder| quote_words(&["cd".into(), folder.into()])));
    if !facts.variables.is_empty() {
        parts.push(format!("export {}", facts.variables.join(" ")));
    }
    let command = match facts.commands.as_slice() {
        [] => {
            let title = call.title.as_deref().map(|title| title.trim().trim_matches('`'));
            let title = title.filter(|title| !title.is_empty() && call.kind.as_deref() == Some("execute"));
            title.map(|title| format!("{title}{FROM_TITLE}"))
        }
        [command] => Some(command.clone()),
        // A separate shell text for each: an open quote of one must not swallow another.
        several => {
            let own = |text: &String| quote_words(&["sh".into(), "-c".into(), text.into()]);
            Some(several.iter().map(own).collect::<Vec<_>>().join("\n"))
        }
    };
    if command.is_none() && facts.variables.is_empty() {
        return None;
    }
    parts.extend(command);
    Some(parts.join(" && "))
}

fn is_elsewhere(folder: &str, workspace: &str) -> bool {
    let here = |path: &str| path.trim_end_matches('/').to_owned();
    folder != "." && here(folder) != here(workspace)
}

/// Returns every path that the request names. The folder is one of them unless a command runs in it.
fn paths(call: &ToolCall<'_>, facts: &InputFacts, with_folders: bool) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let edits = call.edits.iter().filter_map(|edit| edit.path.as_deref());
    let locations = call.locations.iter().map(|path| &**path);
    let folders = facts.folders.iter().map(String::as_str).filter(|_| with_folders);
    for path in edits.chain(locations).chain(facts.paths.iter().map(String::as_str)).chain(folders) {
        if !path.is_empty() && !all.iter().any(|known| known == path) {
            all.push(path.to_owned());
        }
    }
    all
}

/// Returns the diffs of the request, and those in the input that differ.
fn diff(call: &ToolCall<'_>, facts: &InputFacts) -> Option<String> {
    let mut made = String::new();
    for edit in &call.edits {
        match (&edit.path, &edit.new) {
            (Some(path), Some(new)) => made.push_str(&diff::unified(path, edit.old.as_deref(), new)),
            // Policy cannot read this line as a diff, so that no rule allows the request.
            (path, _) => {
                let path = path.as_deref().unwrap_or("?");
                made.extend(["*** unknown change: ", &format!("{path:?}"), "\n"]);
            }
        }
    }
    let differs = |given: &&String| !diff::is_same_change(&made, given);
    let others: Vec<&String> = facts.diffs.iter().filter(differs).collect();
    for given in others {
        if !made.is_empty() && !made.ends_with('\n') {
            made.push('\n');
        }
        made.push_str(given);
    }
    (!made.is_empty()).then_some(made)
}

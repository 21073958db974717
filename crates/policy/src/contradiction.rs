//! Contradictory requests: an agent that calls it reading and sends a command that writes, or calls it deleting and
//! sends `ls`. One of the facts is wrong, and it is unknown which one: people are informed, and the risk is high.

use super::ResolvedRequest;
use super::shell::effects::{FileEffect, effects};

/// The beginning of each sentence, by which bridges recognise it among the reasons for the risk.
pub const CONTRADICTION: &str = "contradiction: ";

/// Returns one sentence per contradiction, short enough for a card.
pub(super) fn contradictions(request: &ResolvedRequest) -> Vec<String> {
    let subject = &request.subject;
    let Some(tool) = subject.tool.as_deref() else { return Vec::new() };
    let mut found = Vec::new();
    let mut add = |why: String| found.push(format!("{CONTRADICTION}it is called {tool}, but {why}"));
    // These kinds fit every command.
    let script = request.script.as_ref().filter(|_| !matches!(tool, "execute" | "other"));
    if let Some(script) = script {
        let effects = effects(script);
        let other = |allowed: &[FileEffect]| effects.iter().find(|(effect, _)| !allowed.contains(effect));
        let none_is = |wanted: &[FileEffect]| !effects.iter().any(|(effect, _)| wanted.contains(effect));
        match tool {
            "read" | "search" | "think" => {
                if let Some((_, what)) = other(&[FileEffect::Reads]) {
                    add(format!("the command does more: {what}"));
                }
            }
            "fetch" => {
                if let Some((_, what)) = other(&[FileEffect::Reads, FileEffect::Fetches]) {
                    add(format!("the command does more: {what}"));
                }
            }
            "delete" if none_is(&[FileEffect::Deletes, FileEffect::Unknown]) => {
                add("the command deletes nothing".to_owned());
            }
            "move" if none_is(&[FileEffect::Moves, FileEffect::Deletes, FileEffect::Unknown]) => {
                add("the command moves nothing".to_owned());
            }
            "edit"
                if none_is(&[
                    FileEffect::Changes,
                    FileEffect::Moves,
                    FileEffect::Deletes,
                    FileEffect::Unknown,
                ]) =>
            {
                add("the command changes nothing".to_owned());
            }
            "switch_mode" => add("it contains a command".to_owned()),
            _ => {}
        }
        if matches!(tool, "edit" | "delete" | "move")
            && let Some(place) = request.unnamed_places().next()
        {
            add(format!("the command does not name {}", place.written));
        }
    }
    if let Some(diff) = &subject.diff {
        match tool {
            "read" | "search" | "think" | "fetch" | "switch_mode" => add("it changes files".to_owned()),
            "delete" if diff.lines().any(|line| line.starts_with('+') && !line.starts_with("+++ ")) => {
                add("its diff adds lines".to_owned());
            }
            _ => {}
        }
    }
    found
}

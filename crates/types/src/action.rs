//! The line that describes a clearance: the command or change, then the agent's own title.
//!
//! Every bridge shows this line where a clearance takes one line: lists, logs, notifications, the audit. A title can
//! claim anything; a command, a path and the size of a diff are what the agent would do. Secrets are hidden from
//! everybody here, because this line travels further than the request itself.

use crate::text::{char_columns, clean, columns, cut, plural, quoted};
use crate::{Clearance, ClearanceRequest};
use intercom_redact::redact;

/// The maximum columns of an action; the complete command is in the request.
const MAX_ACTION: usize = 200;
/// The maximum columns of a title beside an action.
const MAX_TITLE: usize = 100;
/// The maximum columns of one path; its end is more informative than its beginning.
const MAX_PATH: usize = 60;
/// The number of paths that are named; the others are counted.
const MAX_PATHS: usize = 2;
/// The number of bytes of a command that are examined. Agents send commands of megabytes, and every list examines them
/// again.
const MAX_READ: usize = 16 * 1024;

/// The parts of a request that describe its effect.
#[derive(Debug, Clone, Copy, Default)]
pub struct ActionParts<'a> {
    pub(crate) command: Option<&'a str>,
    pub(crate) tool: Option<&'a str>,
    pub(crate) file_path: Option<&'a str>,
    pub(crate) more_paths: &'a [String],
    pub(crate) diff: Option<&'a str>,
}

impl<'a> From<&'a Clearance> for ActionParts<'a> {
    fn from(clearance: &'a Clearance) -> Self {
        Self {
            command: clearance.command.as_deref(),
            tool: clearance.tool.as_deref(),
            file_path: clearance.file_path.as_deref(),
            more_paths: &clearance.more_paths,
            diff: clearance.diff.as_deref(),
        }
    }
}

impl<'a> From<&'a ClearanceRequest> for ActionParts<'a> {
    fn from(ask: &'a ClearanceRequest) -> Self {
        Self {
            command: ask.command.as_deref(),
            tool: ask.tool.as_deref(),
            file_path: ask.file_path.as_deref(),
            more_paths: &ask.more_paths,
            diff: ask.diff.as_deref(),
        }
    }
}

/// Returns a request's command or change: `cargo test`, `src/a.rs +3 -1`, `delete a.txt, b.txt and 3 more files`.
/// `None` if the agent names neither a command nor a file.
pub fn action(parts: ActionParts<'_>) -> Option<String> {
    let command = parts.command.map(one_line).filter(|command| !command.is_empty());
    // A request that names both would do both.
    let is_change = parts.diff.is_some() || matches!(parts.tool, Some("edit" | "delete" | "move"));
    let action = match command {
        Some(command) => match is_change.then(|| change(parts)).flatten() {
            Some(change) => {
                let change = cut(&change, MAX_ACTION / 2);
                let room = MAX_ACTION.saturating_sub(columns(&change) + " (and )".len());
                format!("{} (and {change})", cut(&command, room))
            }
            None => command,
        },
        None => change(parts)?,
    };
    Some(cut(&action, MAX_ACTION))
}

fn change(parts: ActionParts<'_>) -> Option<String> {
    let mut paths: Vec<String> = Vec::new();
    for path in parts.file_path.into_iter().chain(parts.more_paths.iter().map(String::as_str)) {
        let path = short_path(&one_line(path));
        if !path.is_empty() && !paths.contains(&path) {
            paths.push(path);
        }
    }
    let size = parts.diff.filter(|diff| !diff.trim().is_empty()).map(diff_size);
    if paths.is_empty() {
        return size.map(|size| format!("diff {size}"));
    }
    let more = paths.len().saturating_sub(MAX_PATHS);
    let mut named = paths[..paths.len() - more].join(", ");
    if more > 0 {
        named = format!("{named} and {}", plural(more, "more file"));
    }
    Some(match (size, parts.tool.filter(|tool| is_word(tool))) {
        (Some(size), _) => format!("{named} {size}"),
        (None, Some(tool)) => format!("{tool} {named}"),
        (None, None) => named,
    })
}

/// Reports whether an agent's name of a tool is a word and not a sentence.
fn is_word(tool: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    (1..=20).contains(&tool.len()) && tool.chars().all(plain)
}

/// Redacts secrets and puts the text on one line. Whitespace collapses to one space, so that it cannot push the rest
/// out of sight.
fn one_line(text: &str) -> String {
    let text = redact(readable_prefix(text)).text;
    let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    let lines: Vec<String> = lines.filter(|line| !line.is_empty()).collect();
    clean(&lines.join(" ⏎ "))
}

/// Cuts the text between two words: half of a secret would not be recognised as one.
fn readable_prefix(text: &str) -> &str {
    if text.len() <= MAX_READ {
        return text;
    }
    let head = &text[..text.floor_char_boundary(MAX_READ)];
    head.rfind(char::is_whitespace).map_or("", |end| &head[..end])
}

/// Returns the end of a long path. The path is measured from its end, once: agents name paths of many kilobytes.
fn short_path(path: &str) -> String {
    let mut room = MAX_PATH;
    for (at, c) in path.char_indices().rev() {
        let Some(left) = room.checked_sub(char_columns(c)) else {
            // One column is for the ellipsis, which a character of two columns at the border may leave unused.
            let end = &path[at + c.len_utf8()..];
            let first = end.chars().next().filter(|_| room == 0);
            return format!("…{}", &end[first.map_or(0, char::len_utf8)..]);
        };
        room = left;
    }
    path.to_owned()
}

/// Counts the lines that a diff adds and removes, without the headers of its files: `+3 -1`.
pub fn diff_size(diff: &str) -> String {
    let (mut added, mut removed) = (0, 0);
    let mut lines = diff.lines().peekable();
    while let Some(line) = lines.next() {
        // One of the two without the other is a changed line that looks like a header.
        if line.starts_with("--- ") && lines.next_if(|next| next.starts_with("+++ ")).is_some() {
            continue;
        }
        added += usize::from(line.starts_with('+'));
        removed += usize::from(line.starts_with('-'));
    }
    format!("+{added} -{removed}")
}

/// Prepares a title for display beside an action: without secrets, on one line, of bounded length.
pub fn title(title: &str) -> String {
    cut(&one_line(title), MAX_TITLE)
}

/// Describes a request on one line: the command or change, then the agent's title in quotes, as in `cargo test “Check
/// that it works”`. A title that only repeats the action is omitted.
pub fn line(action: Option<&str>, title: &str) -> String {
    let title = self::title(title);
    let words = title.trim_matches(|c: char| matches!(c, '`' | '\'' | '"') || c.is_whitespace());
    match action.map(clean).filter(|action| !action.is_empty()) {
        None => quoted(&title),
        Some(action) if action.contains(words) => action,
        Some(action) => format!("{action} {}", quoted(&title)),
    }
}

/// Describes a clearance on one line, see [`line()`].
pub fn line_of(clearance: &Clearance) -> String {
    line(clearance.action.as_deref(), &clearance.title)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(command: Option<&str>, paths: &[&str], diff: Option<&str>, tool: Option<&str>) -> Option<String> {
        let more: Vec<String> = paths.iter().skip(1).map(|path| (*path).to_owned()).collect();
        action(ActionParts { command, tool, file_path: paths.first().copied(), more_paths: &more, diff })
    }

    #[test]
    fn a_command_is_what_would_run() {
        assert_eq!(of(Some("cargo test"), &["src/a.rs"], None, None).unwrap(), "cargo test");
        assert_eq!(
            of(Some(" \n# harmless\n  rm   -rf /\n"), &[], None, None).unwrap(),
            "# harmless ⏎ rm -rf /"
        );
        assert_eq!(
            of(Some("ls\r; rm\u{202e} x\u{1b}[2J"), &[], None, None).unwrap(),
            "ls ; rm<U+202E> x<U+001B>[2J"
        );
        assert_eq!(of(Some("  "), &["a"], None, None).unwrap(), "a");
        let both = of(Some("ls"), &["/etc/passwd"], None, Some("delete"));
        assert_eq!(both.unwrap(), "ls (and delete /etc/passwd)");
        let both = of(Some(&"x".repeat(500)), &["a"], Some("+b"), None).unwrap();
        assert!(both.ends_with("… (and a +1 -0)"), "{both}");
    }

    #[test]
    fn spaces_cannot_push_a_command_out_of_sight() {
        let command = format!("ls{}; rm -rf ~", " ".repeat(5_000));
        assert_eq!(of(Some(&command), &[], None, None).unwrap(), "ls ; rm -rf ~");
    }

    #[test]
    fn files_are_named_with_the_size_of_their_diff() {
        let diff = Some("--- a/src/a.rs\n+++ b/src/a.rs\n@@ -1,2 +1,3 @@\n-x\n+y\n+z\n+++ w\n q\n");
        assert_eq!(of(None, &["src/a.rs"], diff, Some("edit")).unwrap(), "src/a.rs +3 -1");
        assert_eq!(of(None, &["a", "b", "a"], diff, None).unwrap(), "a, b +3 -1");
        assert_eq!(of(None, &["a", "b", "c", "d"], diff, None).unwrap(), "a, b and 2 more files +3 -1");
        assert_eq!(of(None, &["a", "b", "c"], None, None).unwrap(), "a, b and 1 more file");
        assert_eq!(of(None, &["a.txt"], None, Some("delete")).unwrap(), "delete a.txt");
        assert_eq!(of(None, &["a.txt"], None, Some("approved by ana:")).unwrap(), "a.txt");
        assert_eq!(of(None, &[], diff, None).unwrap(), "diff +3 -1");
        assert_eq!(of(None, &[], None, Some("fetch")), None);
        let long = format!("/home/{}/src/main.rs", "deep/".repeat(40));
        let shown = of(None, &[&long], diff, None).unwrap();
        assert!(shown.starts_with('…') && shown.ends_with("/src/main.rs +3 -1"), "{shown}");
    }

    #[test]
    fn secrets_are_hidden_before_anything_is_cut() {
        let token = format!("ghp_{}", "a1B2c3D4e5".repeat(4));
        let filler = "x".repeat(MAX_ACTION - 20);
        let shown = of(Some(&format!("{filler} {token} y")), &[], None, None).unwrap();
        assert!(!shown.contains("ghp_"), "{shown}");
        let filler = "x ".repeat(MAX_READ / 2 - 10);
        assert!(!one_line(&format!("{filler}{token}")).contains("ghp_"));
    }

    #[test]
    fn the_title_stands_behind_in_quotes_unless_it_says_the_same() {
        assert_eq!(line(Some("rm -rf build"), "Clean up"), "rm -rf build “Clean up”");
        assert_eq!(line(Some("rm -rf build"), "`rm -rf build`"), "rm -rf build");
        assert_eq!(line(Some("src/a.rs +3 -1"), "src/a.rs"), "src/a.rs +3 -1");
        assert_eq!(line(None, "Clean\nup"), "“Clean ⏎ up”");
        assert_eq!(line(Some("ls"), "x” approved by “ana"), "ls “x' approved by 'ana”");
        assert_eq!(line(None, " "), "“”");
    }

    proptest! {
        #[test]
        fn an_action_is_one_bounded_line(command in any::<String>(), path in any::<String>(), tool in any::<String>(),
            diff in any::<String>(), title in any::<String>()) {
            for command in [Some(command.as_str()), None] {
                let action = of(command, &[&path], Some(&diff), Some(&tool));
                if let Some(action) = &action {
                    prop_assert!(!action.is_empty() && columns(action) <= MAX_ACTION);
                    prop_assert!(!action.chars().any(char::is_control));
                }
                let line = line(action.as_deref(), &title);
                prop_assert!(!line.chars().any(char::is_control));
                prop_assert!(columns(&line) <= MAX_ACTION + MAX_TITLE + 3);
            }
        }
    }
}

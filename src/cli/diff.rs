//! Diffs for people.

use super::gutter::block;
use super::terminal::{Paint, TerminalStyle, stdout_size};
use intercom_types::text::clean_block;

const GUTTER: &str = "│ ";

/// Returns a diff, cleaned and coloured line by line. Each line has a gutter, because an agent's diff may contain any
/// line at all.
pub(super) fn show(diff: &str, paint: Paint) -> String {
    let mut shown = String::with_capacity(diff.len());
    let width = stdout_size().map(|size| size.columns);
    for line in clean_block(diff).lines() {
        shown.push_str(&block(line, GUTTER, width, style(line), paint));
    }
    shown
}

fn style(line: &str) -> TerminalStyle {
    match line.as_bytes().first() {
        Some(b'+') if line.starts_with("+++ ") => TerminalStyle::Bold,
        Some(b'-') if line.starts_with("--- ") => TerminalStyle::Bold,
        Some(b'+') => TerminalStyle::Green,
        Some(b'-') => TerminalStyle::Red,
        Some(b'@') => TerminalStyle::Cyan,
        Some(b' ') | None => TerminalStyle::Plain,
        Some(_) => TerminalStyle::Dim,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_coloured_by_what_they_do() {
        let shown = show("--- a\n@@ -1\n-x\n+y\n z", Paint::ON);
        let styles: Vec<&str> =
            shown.lines().map(|line| line.trim_start_matches("\x1b[2m│ \x1b[0m")).collect();
        assert_eq!(styles[0], "\x1b[1m---\x1b[0m \x1b[1ma\x1b[0m");
        assert_eq!(styles[1], "\x1b[36m@@\x1b[0m \x1b[36m-1\x1b[0m");
        assert_eq!(styles[2..], ["\x1b[31m-x\x1b[0m", "\x1b[32m+y\x1b[0m", " z"]);
    }

    #[test]
    fn a_diff_cannot_hide_what_it_does() {
        assert_eq!(show("+rm -rf /\r+ok\x1b[1A", Paint::OFF), "│ +rm -rf /<U+000D>+ok<U+001B>[1A\n");
    }
}

//! Diffs for people.

use super::terminal::{Paint, Style};
use crate::text::clean_block;

/// Cleaned, and coloured line by line.
pub(super) fn show(diff: &str, paint: Paint) -> String {
    let mut shown = String::with_capacity(diff.len());
    for line in clean_block(diff).lines() {
        shown.push_str(&paint.style(style(line), line));
        shown.push('\n');
    }
    shown
}

fn style(line: &str) -> Style {
    match line.as_bytes().first() {
        Some(b'+') if line.starts_with("+++ ") => Style::Bold,
        Some(b'-') if line.starts_with("--- ") => Style::Bold,
        Some(b'+') => Style::Green,
        Some(b'-') => Style::Red,
        Some(b'@') => Style::Cyan,
        Some(b' ') | None => Style::Plain,
        Some(_) => Style::Dim,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_coloured_by_what_they_do() {
        let shown = show("--- a\n+++ b\n@@ -1 +1 @@\n-x\n+y\n z", Paint::ON);
        let expected = "\x1b[1m--- a\x1b[0m\n\x1b[1m+++ b\x1b[0m\n\x1b[36m@@ -1 +1 @@\x1b[0m\n\x1b[31m-x\x1b[0m\n\x1b[32m+y\x1b[0m\n z\n";
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_diff_cannot_hide_what_it_does() {
        assert_eq!(show("+rm -rf /\r+ok\x1b[1A", Paint::OFF), "+rm -rf /<U+000D>+ok<U+001B>[1A\n");
    }
}

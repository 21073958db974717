//! A unified diff of two texts, for people to read and for policy to count.
//!
//! `similar` finds the edit: the shortest one as long as that is cheap, a longer one after a bounded search. The header
//! and the lines are written here, because a name must not look like further lines, and only a line feed ends a line.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use similar::udiff::UnifiedHunkHeader;
use similar::{Algorithm, ChangeTag, DiffOp};

/// Unchanged lines around a change.
const CONTEXT: usize = 3;
/// The time limit of the search. Agents choose both texts, and the search for a short edit of many thousand mixed lines
/// takes seconds. After the limit the rest is replaced completely: policy then counts more changed lines, never fewer.
const LONGEST: Duration = Duration::from_millis(100);
const NO_NEWLINE: &str = "\\ No newline at end of file\n";

/// Returns the unified diff from `old` to `new`; `old` is `None` for a new file. Empty if nothing changes.
pub fn unified(path: &str, old: Option<&str>, new: &str) -> String {
    let before: Vec<&str> = old.unwrap_or_default().split_inclusive('\n').collect();
    let after: Vec<&str> = new.split_inclusive('\n').collect();
    if before == after && old.is_some() {
        return String::new();
    }
    let mut out = header(path, old.is_none());
    let deadline = Some(Instant::now() + LONGEST);
    let ops = similar::capture_diff_slices_deadline(Algorithm::Myers, &before, &after, deadline);
    for hunk in similar::group_diff_ops(ops, CONTEXT) {
        render(&mut out, &before, &after, &hunk);
    }
    out
}

/// Formats the header. Absolute paths are unchanged. An ambiguous name is quoted; policy never matches a quoted name
/// with a known path.
fn header(path: &str, new_file: bool) -> String {
    let odd = |c: char| c.is_control() || matches!(c, '"' | '\\' | '\u{2028}' | '\u{2029}');
    let name = |side: &str| {
        let name = if path.starts_with('/') { path.to_owned() } else { format!("{side}/{path}") };
        if name.contains(odd) { format!("{name:?}") } else { name }
    };
    let old = if new_file { "/dev/null".to_owned() } else { name("a") };
    format!("--- {old}\n+++ {}\n", name("b"))
}

/// Reports whether two diffs change the same lines of the same files, regardless of their context.
pub fn is_same_change(one: &str, other: &str) -> bool {
    let name = |line: &str| line.split('\t').next().unwrap_or(line).to_owned();
    let is_name = |line: &str| line.starts_with("--- ") || line.starts_with("+++ ");
    let changes = |diff: &str| -> Vec<String> {
        let lines = diff.lines().filter(|line| line.starts_with(['+', '-', '\\', '*']));
        lines.map(|line| if is_name(line) { name(line) } else { line.to_owned() }).collect()
    };
    let header = |line: &str| line.strip_prefix("--- ").or_else(|| line.strip_prefix("+++ ")).map(name);
    let names: Vec<String> = one.lines().filter_map(header).collect();
    let is_plain = |line: &str| match line.strip_prefix("Index: ") {
        Some(index) => names.iter().any(|known| known == index),
        None => line.starts_with(['+', '-', ' ', '\\', '@']) || line.starts_with("===="),
    };
    other.lines().all(is_plain) && changes(one) == changes(other)
}

fn render(out: &mut String, before: &[&str], after: &[&str], hunk: &[DiffOp]) {
    writeln!(out, "{}", UnifiedHunkHeader::new(hunk)).ok(); // a string takes every write
    for change in hunk.iter().flat_map(|op| op.iter_changes(before, after)) {
        out.push(match change.tag() {
            ChangeTag::Equal => ' ',
            ChangeTag::Delete => '-',
            ChangeTag::Insert => '+',
        });
        out.push_str(change.value());
        if !change.value().ends_with('\n') {
            out.push('\n');
            out.push_str(NO_NEWLINE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Applies a diff like a patch program.
    fn apply(old: &str, diff: &str) -> String {
        let old: Vec<&str> = old.split_inclusive('\n').collect();
        let mut out = String::new();
        let mut at = 0;
        let mut lines = diff.split_inclusive('\n').skip(2).peekable();
        while let Some(line) = lines.next() {
            if let Some(head) = line.strip_prefix("@@ -") {
                let (start, count) = numbers(head.split_once(" +").unwrap().0);
                let start = if count == 0 { start } else { start - 1 };
                out.extend(old[at..start].iter().copied());
                at = start;
                continue;
            }
            let unended = lines.next_if(|next| *next == NO_NEWLINE).is_some();
            let text = line.get(1..).unwrap();
            let text = if unended { text.strip_suffix('\n').unwrap() } else { text };
            if !line.starts_with('+') {
                assert_eq!(old[at], text, "{diff}");
                at += 1;
            }
            if !line.starts_with('-') {
                out.push_str(text);
            }
        }
        out.extend(old[at..].iter().copied());
        out
    }

    fn numbers(range: &str) -> (usize, usize) {
        let (start, count) = range.split_once(',').unwrap_or((range, "1"));
        (start.parse().unwrap(), count.parse().unwrap())
    }

    /// Lines that were added or removed.
    fn edits(diff: &str) -> usize {
        diff.lines().skip(2).filter(|line| line.starts_with(['+', '-'])).count()
    }

    #[test]
    fn it_reads_like_any_unified_diff() {
        let old = "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\nk\nl\n";
        let new = "a\nB\nc\nd\ne\nf\ng\nh\ni\nj\nl\nm";
        let expected = "--- a/x y.rs\n+++ b/x y.rs\n@@ -1,5 +1,5 @@\n a\n-b\n+B\n c\n d\n e\n@@ -8,5 +8,5 @@\n h\n i\n j\n-k\n l\n+m\n\\ No newline at end of file\n";
        assert_eq!(unified("x y.rs", Some(old), new), expected);
    }

    #[test]
    fn ends_and_empty_texts() {
        let cases: &[(Option<&str>, &str, &str)] = &[
            (None, "a\n", "--- /dev/null\n+++ /x\n@@ -0,0 +1 @@\n+a\n"),
            (None, "", "--- /dev/null\n+++ /x\n"),
            (Some(""), "a\nb", "--- /x\n+++ /x\n@@ -0,0 +1,2 @@\n+a\n+b\n\\ No newline at end of file\n"),
            (Some("a\n"), "", "--- /x\n+++ /x\n@@ -1 +0,0 @@\n-a\n"),
            (Some("a"), "a\n", "--- /x\n+++ /x\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n"),
            (Some("a\r\n"), "a\n", "--- /x\n+++ /x\n@@ -1 +1 @@\n-a\r\n+a\n"),
            (Some("a\n"), "a\n", ""),
            (Some(""), "", ""),
        ];
        for (old, new, expected) in cases {
            assert_eq!(unified("/x", *old, new), *expected);
        }
    }

    #[test]
    fn a_name_cannot_pass_for_more_lines() {
        let diff = unified("x\n+++ b/y\t\"", Some("a"), "b");
        assert!(diff.starts_with("--- \"a/x\\n+++ b/y\\t\\\"\"\n+++ \"b/x\\n"), "{diff}");
    }

    #[test]
    fn far_changes_are_found_and_large_ones_replaced() {
        let lines =
            |range: std::ops::Range<u32>| range.map(|n| format!("{n}\n")).collect::<Vec<_>>().concat();
        let old = lines(0..20_000);
        let new = format!("first\n{}last\n", lines(0..20_000).replace("\n777\n", "\n"));
        let diff = unified("x", Some(&old), &new);
        assert_eq!(edits(&diff), 3);
        assert_eq!(apply(&old, &diff), new);

        let (old, new) = (lines(0..50_000), lines(50_000..100_000));
        let diff = unified("x", Some(&old), &new);
        assert_eq!(edits(&diff), 100_000);
        assert_eq!(apply(&old, &diff), new);
    }

    proptest! {
        #[test]
        fn applied_to_the_old_text_it_gives_the_new(
            old in "([ab+-]{0,2}\n){0,40}[ab]?", new in "([ab+-]{0,2}\n){0,40}[ab]?"
        ) {
            prop_assert_eq!(apply(&old, &unified("x", Some(&old), &new)), new);
        }

        #[test]
        fn also_for_any_text(old in any::<String>(), new in any::<String>()) {
            prop_assert_eq!(apply(&old, &unified("x", Some(&old), &new)), new);
        }

        #[test]
        fn no_more_is_changed_than_has_to_be(
            old in prop::collection::vec("[abc]", 0..12), new in prop::collection::vec("[abc]", 0..12)
        ) {
            let text = |lines: &[String]| lines.iter().map(|line| format!("{line}\n")).collect::<Vec<_>>().concat();
            let diff = unified("x", Some(&text(&old)), &text(&new));
            let mut longest = vec![vec![0; new.len() + 1]; old.len() + 1];
            for (i, a) in old.iter().enumerate() {
                for (j, b) in new.iter().enumerate() {
                    let without = longest[i][j + 1].max(longest[i + 1][j]);
                    longest[i + 1][j + 1] = if a == b { longest[i][j] + 1 } else { without };
                }
            }
            prop_assert_eq!(edits(&diff), old.len() + new.len() - 2 * longest[old.len()][new.len()]);
        }
    }
}

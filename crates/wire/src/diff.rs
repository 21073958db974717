//! A unified diff of two texts, for people to read and for policy to count.
//!
//! Myers' greedy algorithm finds the shortest edit as long as that is cheap; a larger one replaces everything between
//! the first and the last line that differ.

use std::fmt::Write as _;

/// Unchanged lines around a change.
const CONTEXT: usize = 3;
/// The maximum number of edits searched, which bounds the memory (its square).
const MAX_EDITS: usize = 1000;
/// The approximate maximum number of line comparisons.
const MAX_WORK: usize = 4_000_000;
const NO_NEWLINE: &str = "\\ No newline at end of file\n";

/// Returns the unified diff from `old` to `new`; `old` is `None` for a new file. Empty if nothing changes.
pub fn unified(path: &str, old: Option<&str>, new: &str) -> String {
    let before: Vec<&str> = old.unwrap_or_default().split_inclusive('\n').collect();
    let after: Vec<&str> = new.split_inclusive('\n').collect();
    let changes = changes(&before, &after);
    if changes.is_empty() && old.is_some() {
        return String::new();
    }
    let mut out = header(path, old.is_none());
    for hunk in hunks(&changes) {
        render(&mut out, &before, &after, hunk);
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

/// A replacement of lines of the old text by lines of the new one; the lines between two changes are the same in both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LineChange {
    old: (usize, usize),
    new: (usize, usize),
}

fn changes(old: &[&str], new: &[&str]) -> Vec<LineChange> {
    let start = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let (old_rest, new_rest) = (part(old, start, old.len()), part(new, start, new.len()));
    let end = old_rest.iter().rev().zip(new_rest.iter().rev()).take_while(|(a, b)| a == b).count();
    let (old_rest, new_rest) =
        (part(old_rest, 0, old_rest.len() - end), part(new_rest, 0, new_rest.len() - end));
    if old_rest.is_empty() && new_rest.is_empty() {
        return Vec::new();
    }
    let whole = LineChange { old: (start, old.len() - end), new: (start, new.len() - end) };
    let Some(same) = common(old_rest, new_rest) else { return vec![whole] };
    let mut changes = Vec::new();
    let (mut x, mut y) = (0, 0);
    let last = std::iter::once((old_rest.len(), new_rest.len()));
    for (at_old, at_new) in same.into_iter().chain(last) {
        if (x, y) != (at_old, at_new) {
            changes.push(LineChange { old: (start + x, start + at_old), new: (start + y, start + at_new) });
        }
        (x, y) = (at_old + 1, at_new + 1);
    }
    changes
}

/// Returns the pairs of unchanged lines, in order; `None` if that would be too expensive.
fn common(old: &[&str], new: &[&str]) -> Option<Vec<(usize, usize)>> {
    let total = old.len() + new.len();
    let limit = MAX_EDITS.min(MAX_WORK / total.max(1)).min(total);
    // The furthest point of each diagonal after each number of edits: `rounds[d][i]` is the one of k = 2 i - d, where k
    // = x - y.
    let mut rounds: Vec<Vec<usize>> = Vec::new();
    for d in 0..=limit {
        let mut reach = Vec::with_capacity(d + 1);
        for i in 0..=d {
            let mut x = rounds.last().map_or(0, |before| step(before, d, i));
            // Diagonals that leave the old or the new text stay in the list, without progress.
            let mut y = (x + d).saturating_sub(2 * i);
            while old.get(x).is_some_and(|line| new.get(y) == Some(line)) {
                (x, y) = (x + 1, y + 1);
            }
            reach.push(x);
            if (x, y) == (old.len(), new.len()) {
                rounds.push(reach);
                return Some(walk_back(&rounds, i, old.len()));
            }
        }
        rounds.push(reach);
    }
    None
}

/// Returns the start of edit number `d` on its diagonal `i`: one line further down (added) or right (removed) from a
/// neighbour.
fn step(before: &[usize], d: usize, i: usize) -> usize {
    if comes_from_above(before, d, i) { reached(before, i) } else { reached(before, i - 1) + 1 }
}

/// Reports whether that edit adds a line.
fn comes_from_above(before: &[usize], d: usize, i: usize) -> bool {
    i == 0 || (i < d && reached(before, i - 1) < reached(before, i))
}

fn reached(round: &[usize], i: usize) -> usize {
    round.get(i).copied().unwrap_or(0)
}

/// Returns a range of lines, empty if it is outside.
fn part<'a, 't>(lines: &'a [&'t str], from: usize, to: usize) -> &'a [&'t str] {
    lines.get(from..to).unwrap_or_default()
}

fn walk_back(rounds: &[Vec<usize>], mut i: usize, mut x: usize) -> Vec<(usize, usize)> {
    let mut same = Vec::new();
    for d in (0..rounds.len()).rev() {
        let before = d.checked_sub(1).and_then(|last| rounds.get(last));
        let start = before.map_or(0, |before| step(before, d, i));
        while x > start {
            x -= 1;
            same.push((x, x + d - 2 * i));
        }
        if let Some(before) = before {
            let added = comes_from_above(before, d, i);
            (x, i) = if added { (start, i) } else { (start - 1, i - 1) };
        }
    }
    same.reverse();
    same
}

/// Groups changes whose context would touch.
fn hunks(changes: &[LineChange]) -> impl Iterator<Item = &[LineChange]> {
    changes.chunk_by(|one, next| next.old.0 - one.old.1 <= 2 * CONTEXT)
}

fn render(out: &mut String, old: &[&str], new: &[&str], hunk: &[LineChange]) {
    let (Some(first), Some(last)) = (hunk.first(), hunk.last()) else { return };
    let lead = first.old.0.min(CONTEXT);
    let trail = (old.len() - last.old.1).min(CONTEXT);
    let old_range = range(first.old.0 - lead, last.old.1 + trail);
    let new_range = range(first.new.0 - lead, last.new.1 + trail);
    writeln!(out, "@@ -{old_range} +{new_range} @@").ok(); // a string takes every write
    let mut at = first.old.0 - lead;
    for change in hunk {
        lines(out, ' ', part(old, at, change.old.0));
        lines(out, '-', part(old, change.old.0, change.old.1));
        lines(out, '+', part(new, change.new.0, change.new.1));
        at = change.old.1;
    }
    lines(out, ' ', part(old, at, at + trail));
}

/// Formats a range for a hunk's head: lines count from one, an empty range names the line before it.
fn range(start: usize, end: usize) -> String {
    match end - start {
        0 => format!("{start},0"),
        1 => format!("{}", start + 1),
        count => format!("{},{count}", start + 1),
    }
}

fn lines(out: &mut String, sign: char, lines: &[&str]) {
    for line in lines {
        out.push(sign);
        out.push_str(line);
        if !line.ends_with('\n') {
            out.push('\n');
            out.push_str(NO_NEWLINE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What a patch program would make of it.
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

//! Checks of diffs: those that we make can be applied, and no diff of others breaks the reader.

use intercom_policy::fuzzing::names_in_diff;
use intercom_wire::diff;

const NO_NEWLINE: &str = "\\ No newline at end of file\n";

/// A diff of two texts turns the one into the other, and policy finds the file that it names.
pub fn unified_diff(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let (old, new) = text.split_once('\0').unwrap_or((&text, ""));
    let made = diff::unified("directory/file", Some(old), new);
    assert_eq!(made.is_empty(), old == new);
    assert_eq!(apply(old, &made).as_deref(), Some(new), "{made}");
    assert!(diff::is_same_change(&made, &made), "{made}");
    if !made.is_empty() {
        assert!(names_in_diff(&made).iter().any(|name| name == "directory/file"), "{made}");
    }
}

/// Diffs of agents can be read and compared, whatever they are.
pub fn diff_reading(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let (one, other) = text.split_once('\0').unwrap_or((&text, ""));
    for diff in [one, other] {
        let names = names_in_diff(diff);
        assert!(names.len() <= 4 * diff.len(), "more names than text: {names:?}");
    }
    diff::is_same_change(one, other);
}

/// What a patch program would make of the old text; `None` if the diff does not fit it.
fn apply(old: &str, diff: &str) -> Option<String> {
    let old: Vec<&str> = old.split_inclusive('\n').collect();
    let (mut out, mut at) = (String::new(), 0);
    let mut lines = diff.split_inclusive('\n').skip(2).peekable();
    while let Some(line) = lines.next() {
        if let Some(head) = line.strip_prefix("@@ -") {
            let range = head.split_once(" +")?.0;
            let (start, count) = range.split_once(',').unwrap_or((range, "1"));
            let start = start.parse::<usize>().ok()? - usize::from(count != "0");
            out.extend(old.get(at..start)?.iter().copied());
            at = start;
            continue;
        }
        let is_unended = lines.next_if(|next| *next == NO_NEWLINE).is_some();
        let (sign, text) = line.split_at_checked(1)?;
        let text = if is_unended { text.strip_suffix('\n')? } else { text };
        if sign != "+" {
            (old.get(at) == Some(&text)).then_some(())?;
            at += 1;
        }
        if sign != "-" {
            out.push_str(text);
        }
    }
    out.extend(old.get(at..)?.iter().copied());
    Some(out)
}

//! The summary of a diff: the files that it names, and the number of changed lines. Any line that is not certainly
//! context or a header counts as changed.

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct DiffSummary {
    pub(super) names: Vec<String>,
    /// The names without their first directory, as some tools read them.
    pub(super) other_names: Vec<String>,
    /// There may be other names: no rule allows the diff.
    pub(super) unclear: bool,
    /// There are other names that `patch` or `git apply` would find: the risk is high, and every deny or ask rule about
    /// paths matches.
    pub(super) unreadable: bool,
    pub(super) changed: usize,
}

/// The state of a name's first directory, which tools remove.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DiffPathPrefix {
    /// It was `a/` or `b/` and was removed.
    Taken,
    MayBeTaken,
}

/// Lines between `diff --git` and `---`.
const EXTENDED: &[&str] = &[
    "index ",
    "new file mode ",
    "deleted file mode ",
    "old mode ",
    "new mode ",
    "similarity index ",
    "dissimilarity index ",
    "rename from ",
    "rename to ",
    "rename old ",
    "rename new ",
    "copy from ",
    "copy to ",
];
/// Lines with a name and nothing else.
const NAMING: &[&str] = &[
    "rename from ",
    "rename to ",
    "rename old ",
    "rename new ",
    "copy from ",
    "copy to ",
    "*** Update File: ",
    "*** Add File: ",
    "*** Delete File: ",
    "*** Move to: ",
];
/// Lines of a header that are not understood if they stand alone.
const UNREAD: &[&str] = &["--- ", "+++ ", "*** ", "***************", "Prereq:"];
/// Lines about changes in an unsupported format.
const BINARY: &[&str] = &["Binary files ", "GIT binary patch"];
/// Lines around a patch that name nothing.
const FRAMES: &[&str] = &["*** Begin Patch", "*** End Patch", "*** End of File"];
/// Beginnings of headers, which `patch` also finds after blanks, tabs, `X` and dashes.
const HEADERS: &[&str] = &["--- ", "+++ ", "*** ", "***************", "Index:", "diff --git ", "Prereq:"];
/// The characters that some tools treat as the end of a line.
const BREAKS: &[char] = &['\r', '\u{b}', '\u{c}', '\u{85}', '\u{2028}', '\u{2029}'];
const NO_NEWLINE: &str = "\\ No newline at end of file";

pub(super) fn read(text: &str) -> DiffSummary {
    let lines: Vec<&str> = text.lines().collect();
    let mut diff = DiffSummary {
        changed: text.lines().map(|line| line.matches(BREAKS).count()).sum(),
        ..DiffSummary::default()
    };
    diff.unclear = diff.changed > 0;
    // Headers without a hunk so far.
    let mut headers = 0;
    let mut at = 0;
    while let Some(line) = lines.get(at).copied() {
        at += 1;
        let next = lines.get(at).copied().unwrap_or_default();
        if let (Some(old), Some(new)) = (line.strip_prefix("--- "), next.strip_prefix("+++ ")) {
            diff.pair(old, new);
            at += 1;
            let has_hunk = lines.get(at).is_some_and(|line| hunk(line).is_some());
            diff.changed += if has_hunk { 0 } else { headers + 2 };
            headers = 0;
            continue;
        }
        if let Some(counts) = hunk(line) {
            diff.changed += std::mem::take(&mut headers);
            at += diff.hunk(&lines[at..], counts);
            continue;
        }
        if let Some(name) = NAMING.iter().find_map(|start| line.strip_prefix(start)) {
            diff.name(name);
        } else if let Some(name) = line.strip_prefix("Index:") {
            diff.dated(name.trim(), DiffPathPrefix::MayBeTaken);
        } else if let Some(both) = line.strip_prefix("diff --git ") {
            diff.both(both);
            diff.changed += std::mem::replace(&mut headers, 1);
            continue;
        } else if FRAMES.contains(&line.trim_end()) {
            // This line has no meaning.
        } else if UNREAD.iter().any(|start| line.starts_with(start)) || is_moved_header(line) {
            (diff.unclear, diff.unreadable) = (true, true);
        } else if BINARY.iter().any(|start| line.starts_with(start)) {
            diff.unclear = true;
        }
        if headers > 0 && headers < EXTENDED.len() && EXTENDED.iter().any(|start| line.starts_with(start)) {
            headers += 1;
        } else if line != NO_NEWLINE {
            diff.changed += std::mem::take(&mut headers) + 1;
        }
    }
    diff.changed += headers;
    diff
}

/// Reports whether a line is a header after an indentation or the dashes of a forwarded mail, both of which `patch`
/// removes.
fn is_moved_header(line: &str) -> bool {
    let bare = line.trim_start_matches([' ', '\t', 'X']).trim_start_matches("- ");
    let extended = || EXTENDED.iter().chain(HEADERS).any(|start| bare.starts_with(start));
    bare.len() < line.len() && extended()
}

/// Parses the numbers of old and new lines of a hunk: `@@ -1,3 +1,4 @@`.
fn hunk(line: &str) -> Option<(usize, usize)> {
    let (ranges, _) = line.strip_prefix("@@ -")?.split_once(" @@")?;
    let (old, new) = ranges.split_once(" +")?;
    let count = |range: &str| match range.split_once(',') {
        Some((start, count)) => start.parse::<usize>().and_then(|_| count.parse()).ok(),
        None => range.parse::<usize>().map(|_| 1).ok(),
    };
    Some((count(old)?, count(new)?))
}

/// Returns the positions in a header's name where a date may begin.
fn dates(name: &str) -> impl Iterator<Item = usize> {
    let is_date = |rest: &str| {
        let rest = rest.trim_start();
        rest.is_empty()
            || rest.starts_with(|c: char| c.is_ascii_digit() || matches!(c, 'M' | 'T' | 'W' | 'F' | 'S'))
    };
    name.match_indices(' ').map(|(at, _)| at).filter(move |at| is_date(&name[*at..]))
}

impl DiffSummary {
    /// Reads a hunk and returns its number of lines.
    fn hunk(&mut self, lines: &[&str], (mut old, mut new): (usize, usize)) -> usize {
        for (at, line) in lines.iter().enumerate() {
            if old == 0 && new == 0 {
                return at;
            }
            let next = lines.get(at + 1).copied().unwrap_or_default();
            // Two changed lines, or the next file after a hunk with a false length: `patch` may read it as that.
            let is_header = |line: &str, start: &str| line.starts_with(start) || is_moved_header(line);
            let may_be_header = is_header(line, "--- ") && is_header(next, "+++ ");
            self.unclear |= may_be_header;
            self.unreadable |= may_be_header;
            match line.chars().next() {
                Some(' ') | None if old > 0 && new > 0 => {
                    (old, new) = (old - 1, new - 1);
                    self.changed += usize::from(line.is_empty());
                }
                Some('-') if old > 0 => (old, self.changed) = (old - 1, self.changed + 1),
                Some('+') if new > 0 => (new, self.changed) = (new - 1, self.changed + 1),
                Some('\\') if *line == NO_NEWLINE => {}
                _ => return at,
            }
        }
        lines.len()
    }

    /// Adds the names after `---` and `+++`.
    fn pair(&mut self, old: &str, new: &str) {
        let names = [old, new].map(|name| name.split('\t').next().unwrap_or(name));
        let stripped = [names[0].strip_prefix("a/"), names[1].strip_prefix("b/")];
        let is_null = names.map(|name| name == "/dev/null");
        let names = match stripped {
            [Some(old), Some(new)] => [old, new],
            [Some(old), None] if is_null[1] => [old, names[1]],
            [None, Some(new)] if is_null[0] => [names[0], new],
            [None, None] => names,
            _ => {
                (self.unclear, self.unreadable) = (true, true);
                names
            }
        };
        for (name, stripped) in names.into_iter().zip(stripped) {
            self.dated(
                name,
                if stripped.is_none() { DiffPathPrefix::MayBeTaken } else { DiffPathPrefix::Taken },
            );
        }
        // Tools that remove nothing also find the prefixes.
        for (side, name) in ["a", "b"].into_iter().zip(stripped) {
            let Some(name) = name else { continue };
            let undated = dates(name).map(|at| name[..at].trim_end());
            self.other_names
                .extend(std::iter::once(name).chain(undated).map(|name| format!("{side}/{name}")));
        }
    }

    /// Adds the name without its first directory.
    fn stripped(&mut self, name: &str) {
        let below = name.split_once('/').map(|(_, below)| below.trim_start_matches('/'));
        self.other_names.extend(below.map(str::to_owned));
    }

    /// Adds the names after `diff --git`, which may contain blanks.
    fn both(&mut self, both: &str) {
        let mut splits = both.match_indices(" b/").map(|(at, _)| (&both[..at], &both[at + 3..]));
        match (splits.next(), splits.next()) {
            (Some((old, new)), None) if old.starts_with("a/") => {
                self.name(&old[2..]);
                self.name(new);
            }
            _ => (self.unclear, self.unreadable) = (true, true),
        }
    }

    /// Adds a name that a date may follow without a tab between them, which `patch` removes.
    fn dated(&mut self, name: &str, prefix: DiffPathPrefix) {
        self.name_or_below(name, prefix);
        for at in dates(name) {
            self.unclear = true;
            self.name_or_below(name[..at].trim_end(), prefix);
        }
    }

    fn name_or_below(&mut self, name: &str, prefix: DiffPathPrefix) {
        self.name(name);
        if prefix == DiffPathPrefix::MayBeTaken && name != "/dev/null" {
            self.stripped(name);
        }
    }

    fn name(&mut self, name: &str) {
        let is_quoted = name.starts_with('"');
        self.unclear |= is_quoted;
        self.unreadable |= is_quoted;
        if name != "/dev/null" && !self.names.iter().any(|known| known == name) {
            self.names.push(name.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_context_or_header_is_changed() {
        let head = "--- a/x\n+++ b/x\n";
        let cases = [
            (format!("{head}@@ -1,3 +1,3 @@\n same\n-old\n+new\n same\n"), 2),
            (format!("diff --git a/x b/x\nindex 1..2\n{head}@@ -1 +1 @@\n-a\n+b\n{NO_NEWLINE}\n"), 2),
            (format!("{head}{head}@@ -1 +1 @@\n-a\n+b\n"), 4),
            (format!("{head}@@ -1 +1 @@\n-a\n+b\n outside\n"), 3),
            (format!("{head}@@ -1,1 +1,1 @@\n same\rmore\rmore\n"), 2),
            (format!("{head}@@ -1 +1 @@\r\n-a\r\n+b\r\n"), 2),
            ("diff --git a/x b/y\nrename from x\nrename to y\n".to_owned(), 3),
            ("-a\n+b\n".to_owned(), 2),
            (" a\n b\n".to_owned(), 2),
        ];
        for (text, changed) in cases {
            assert_eq!(read(&text).changed, changed, "{text}");
        }
    }

    #[test]
    fn names_are_read_or_unclear() {
        let names = |text: &str| {
            let diff = read(text);
            (!diff.unclear).then(|| diff.names.join(" "))
        };
        let cases = [
            ("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n--- a/y\n+++ b/z\n", Some("x y z")),
            ("--- /dev/null\n+++ b/x\n", Some("x")),
            ("--- /etc/x\t2020-01-01\n+++ /etc/x\n", Some("/etc/x")),
            ("diff --git a/x b/y\nrename from x\nrename to y\n", Some("x y")),
            ("*** Update File: x\n*** Move to: y\n", Some("x y")),
            ("@@ -1 +1 @@\n-- a\n+b\n", Some("")),
            ("-a\n+b\n", Some("")),
            ("Index: x\n===\n--- x\n+++ x\n", Some("x")),
            ("*** Begin Patch\n*** Update File: x\n@@\n-a\n+b\n*** End Patch\n", Some("x")),
            ("    --- a/x\n    +++ b/x\n", None),
            ("\tIndex: x\n", None),
            ("XX--- a/x\n", None),
            ("- --- a/x\n", None),
            ("  diff --git a/x b/x\n", None),
            ("  rename to x\n", None),
            ("*** x\n--- x\n***************\n", None),
            ("--- a/x 2020-01-01\n+++ b/x 2020-01-01\n", None),
            ("--- a/x\n+++ x\n", None),
            ("--- a/x\n+++ a/x\n", None),
            ("--- \"a/x\"\n+++ \"b/x\"\n", None),
            ("diff --git a/x b/y b/z\n", None),
            ("+++ b/x\n", None),
            ("Binary files a/x and b/x differ\n", None),
            ("@@ -1,9 +1,9 @@\n a\n--- a/y\n+++ b/y\n", None),
            ("@@ -1 +1 @@\n a\r--- a/y\r+++ b/y\n", None),
        ];
        for (text, expected) in cases {
            assert_eq!(names(text).as_deref(), expected, "{text}");
        }
    }
}

//! Globs over paths, byte by byte: no case folding, no Unicode folding, so that a look-alike is another name.
//!
//! `*` and `?` stay within one component, `**` as a whole component stands for any number of them, `[a-z]` and
//! `[!a-z]` for one byte, and a backslash takes the meaning from what follows it. Dot files are like all others.

/// A pattern for a path without its leading `/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Glob {
    parts: Vec<GlobComponent>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum GlobComponent {
    AnyDepth,
    Name(Vec<GlobPiece>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum GlobPiece {
    Byte(u8),
    One,
    Many,
    Class { negated: bool, ranges: Vec<(u8, u8)> },
}

impl Glob {
    /// Parses a glob. Components `.` and empty ones are dropped.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        for component in text.split('/').filter(|component| !matches!(*component, "" | ".")) {
            parts.push(match component {
                ".." => return Err("a glob cannot contain `..`".to_owned()),
                "**" => GlobComponent::AnyDepth,
                name => GlobComponent::Name(pieces(name.as_bytes())?),
            });
        }
        Ok(Self { parts })
    }

    pub(super) fn matches(&self, path: &[u8]) -> bool {
        let names: Vec<&[u8]> = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).collect();
        // `reached[n]`: the parts so far can stand for the first `n` names.
        let mut reached = vec![false; names.len() + 1];
        reached[0] = true;
        for part in &self.parts {
            let mut next = vec![false; names.len() + 1];
            match part {
                GlobComponent::AnyDepth => {
                    let mut any = false;
                    for (before, after) in reached.iter().zip(&mut next) {
                        any |= before;
                        *after = any;
                    }
                }
                GlobComponent::Name(pieces) => {
                    for (n, name) in names.iter().enumerate() {
                        next[n + 1] = reached[n] && fits(pieces, name);
                    }
                }
            }
            reached = next;
        }
        reached[names.len()]
    }
}

/// Returns the glob that matches exactly this path.
pub(super) fn literal(path: &str) -> String {
    let mut glob = String::new();
    for c in path.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '\\') {
            glob.push('\\');
        }
        glob.push(c);
    }
    glob
}

/// Matches `name` against the pattern of one component; an invalid pattern stands for itself.
pub(super) fn name_fits(pattern: &str, name: &str) -> bool {
    pieces(pattern.as_bytes()).map_or(pattern == name, |pieces| fits(&pieces, name.as_bytes()))
}

fn pieces(pattern: &[u8]) -> Result<Vec<GlobPiece>, String> {
    let mut pieces = Vec::new();
    let mut rest = pattern;
    while let [first, after @ ..] = rest {
        rest = after;
        pieces.push(match first {
            b'*' => GlobPiece::Many,
            b'?' => GlobPiece::One,
            b'[' => {
                let (class, after) = class(rest).ok_or("a `[` without its `]`")?;
                rest = after;
                class
            }
            b'\\' => {
                let (escaped, after) = rest.split_first().ok_or("a backslash at the end")?;
                rest = after;
                GlobPiece::Byte(*escaped)
            }
            byte => GlobPiece::Byte(*byte),
        });
    }
    Ok(pieces)
}

fn class(text: &[u8]) -> Option<(GlobPiece, &[u8])> {
    let (negated, mut rest) = match text {
        [b'!' | b'^', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    let mut ranges = Vec::new();
    loop {
        rest = match rest {
            [b']', after @ ..] if !ranges.is_empty() => {
                return Some((GlobPiece::Class { negated, ranges }, after));
            }
            [from, b'-', to, after @ ..] if *to != b']' => {
                ranges.push((*from, *to));
                after
            }
            [byte, after @ ..] => {
                ranges.push((*byte, *byte));
                after
            }
            [] => return None,
        };
    }
}

/// Matches a name. Backtracks to the last `*` only, which is sufficient and keeps the time bounded.
fn fits(pieces: &[GlobPiece], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    loop {
        let step = match pieces.get(p) {
            Some(GlobPiece::Many) => {
                retry = Some((p, n));
                p += 1;
                continue;
            }
            None if n == name.len() => return true,
            None => None,
            Some(piece) => one(piece, &name[n..]),
        };
        match (step, retry) {
            (Some(length), _) => {
                p += 1;
                n += length;
            }
            (None, Some((star, from))) if from < name.len() => {
                retry = Some((star, from + 1));
                (p, n) = (star + 1, from + 1);
            }
            (None, _) => return false,
        }
    }
}

/// Returns the number of bytes that the piece takes; `?` takes a whole character.
fn one(piece: &GlobPiece, name: &[u8]) -> Option<usize> {
    let first = *name.first()?;
    match piece {
        GlobPiece::Byte(byte) => (*byte == first).then_some(1),
        GlobPiece::Class { negated, ranges } => {
            let within = ranges.iter().any(|(from, to)| (*from..=*to).contains(&first));
            (within != *negated && first.is_ascii()).then_some(1)
        }
        GlobPiece::One => Some(1 + name[1..].iter().take_while(|byte| **byte & 0xC0 == 0x80).count()),
        GlobPiece::Many => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_stand_for_paths() {
        let cases = [
            ("src/*.rs", "src/a.rs", true),
            ("src/*.rs", "src/a/b.rs", false),
            ("src/**", "src", true),
            ("src/**", "src/a/b.rs", true),
            ("src/**", "source/a.rs", false),
            ("**/*.rs", "a.rs", true),
            ("**/*.rs", "x/y/a.rs", true),
            ("**/b/**/c", "a/b/x/c", true),
            ("**/b/**/c", "a/c", false),
            ("./a//b", "a/b", true),
            ("a?c", "abc", true),
            ("a?c", "aéc", true),
            ("a?c", "ac", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[]]", "]", true),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
            ("*", ".env", true),
            (r"a\*", "a*", true),
            (r"a\*", "ab", false),
            ("cafe", "cafè", false),
        ];
        for (pattern, path, expected) in cases {
            assert_eq!(Glob::parse(pattern).unwrap().matches(path.as_bytes()), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn a_glob_that_makes_no_sense_is_refused() {
        for pattern in ["a/../b", "[a", "a\\"] {
            assert!(Glob::parse(pattern).is_err(), "{pattern}");
        }
    }

    #[test]
    fn a_literal_stands_for_itself_only() {
        let glob = Glob::parse(&literal("a/[x]*?\\.rs")).unwrap();
        assert!(glob.matches(b"a/[x]*?\\.rs"));
        assert!(!glob.matches(b"a/xyz.rs"));
    }

    #[test]
    fn many_stars_do_not_take_forever() {
        let pattern = "*a".repeat(200);
        assert!(!Glob::parse(&pattern).unwrap().matches("a".repeat(5_000).replace("aa", "ab").as_bytes()));
        let deep = "**/a/".repeat(100);
        assert!(!Glob::parse(&deep).unwrap().matches("b/".repeat(2_000).as_bytes()));
    }
}

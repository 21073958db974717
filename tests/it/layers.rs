//! The tree shows the architecture, and dependencies point down only: see "The tree" in the design.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What each part of `src/` may mention of the crate, besides itself. `domain` and below stand on nothing.
const ALLOWED: &[(&str, &[&str])] = &[
    // Of the bridges only what sets Slack up: it works without a daemon.
    (
        "cli",
        &[
            "action",
            "bridge",
            "config",
            "domain",
            "fold",
            "host",
            "lifecycle",
            "ops",
            "policy",
            "remote",
            "socket",
            "summary",
            "text",
            "wire",
        ],
    ),
    (
        "bridge",
        &[
            "ops",
            "supervisor",
            "session",
            "policy",
            "host",
            "store",
            "wire",
            "config",
            "bus",
            "domain",
            "fold",
            "redact",
            "remote",
            "action",
            "summary",
            "text",
            "failpoint",
        ],
    ),
    (
        "ops",
        &[
            "supervisor",
            "session",
            "policy",
            "host",
            "store",
            "config",
            "bus",
            "domain",
            "redact",
            "action",
            "text",
        ],
    ),
    ("supervisor", &["session", "driver", "policy", "host", "store", "wire", "config", "bus", "domain"]),
    (
        "session",
        &["driver", "policy", "host", "store", "wire", "domain", "failpoint", "redact", "action", "text"],
    ),
    ("driver", &["wire", "domain", "text"]),
    ("policy", &["domain"]),
    ("host", &["wire", "domain", "failpoint", "socket"]),
    ("store", &["wire", "bus", "domain", "failpoint"]),
    ("wire", &["domain", "text"]),
    ("domain", &[]),
    // Of tests only.
    ("published", &[]),
    ("action", &["domain", "redact", "text"]),
    ("bus", &["domain"]),
    ("failpoint", &[]),
    ("fold", &["domain"]),
    // Checks every reader of input, so it stands above them all. Nothing mentions it.
    ("fuzzing", &["cli", "config", "domain", "driver", "host", "policy", "redact", "wire"]),
    ("remote", &[]),
    ("socket", &[]),
    ("config", &["policy", "domain", "remote"]),
    ("demo", &[]),
    ("redact", &[]),
    ("summary", &["action", "domain", "text"]),
    ("telemetry", &[]),
    ("text", &[]),
];

/// These wire everything together, and decide nothing.
const WIRING: &[&str] = &["main", "lib", "lifecycle"];

const MAX_LINES: usize = 600;

pub(crate) fn sources() -> BTreeMap<PathBuf, String> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src"));
    let mut files = BTreeMap::new();
    let mut dirs = vec![root.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in dir.read_dir().unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                files.insert(path.strip_prefix(root).unwrap().to_owned(), text);
            }
        }
    }
    assert!(files.len() > 50, "the sources were not found");
    files
}

/// Tests that stand in the file itself are its end; those in a file of their own are only named.
pub(crate) fn without_tests(text: &str) -> &str {
    text.split("\n#[cfg(test)]\nmod tests {").next().unwrap()
}

/// What is compiled into the program: no tests, no comments.
fn code(text: &str) -> String {
    let text = without_tests(text);
    let lines = text.lines().map(|line| line.split("//").next().unwrap());
    lines.collect::<Vec<_>>().join("\n")
}

/// The first directory or file below `src/`.
fn part(path: &Path) -> String {
    let first = path.components().next().unwrap().as_os_str().to_str().unwrap();
    first.trim_end_matches(".rs").to_owned()
}

pub(crate) fn is_test(path: &Path) -> bool {
    path.components()
        .any(|component| component.as_os_str().to_str().unwrap().trim_end_matches(".rs") == "tests")
}

/// Every path after `crate::`; of `crate::{a, b::c}` each.
fn mentions(code: &str) -> Vec<String> {
    let path = |text: &str| -> String {
        text.chars().take_while(|c| c.is_alphanumeric() || matches!(c, '_' | ':')).collect()
    };
    let mut found = Vec::new();
    for rest in code.split("crate::").skip(1) {
        match rest.strip_prefix('{') {
            None => found.push(path(rest)),
            Some(list) => {
                let mut depth = 0;
                let mut item = String::new();
                for c in list.chars() {
                    match c {
                        '}' if depth == 0 => break,
                        ',' if depth == 0 => found.push(path(std::mem::take(&mut item).trim())),
                        _ => {
                            depth += i32::from(c == '{') - i32::from(c == '}');
                            item.push(c);
                        }
                    }
                }
                found.push(path(item.trim()));
            }
        }
    }
    found.retain(|path| !path.is_empty());
    found
}

#[test]
fn dependencies_point_down_only() {
    let mut wrong = Vec::new();
    for (path, text) in sources() {
        let part = part(&path);
        if WIRING.contains(&part.as_str()) || is_test(&path) {
            continue;
        }
        let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| *name == part) else {
            wrong.push(format!("{}: give {part} its place among the layers", path.display()));
            continue;
        };
        for mentioned in mentions(&code(&text)) {
            let fine = |allowed: &str| {
                mentioned.strip_prefix(allowed).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
            };
            if !fine(&part) && !allowed.iter().any(|allowed| fine(allowed)) {
                wrong.push(format!("{} mentions crate::{mentioned}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn no_layer_is_left_out_of_the_check() {
    let files = sources();
    for layer in [
        "cli",
        "bridge",
        "ops",
        "supervisor",
        "session",
        "driver",
        "host",
        "store",
        "wire",
        "domain",
        "config",
    ] {
        let files: Vec<_> = files.iter().filter(|(path, _)| part(path) == layer).collect();
        assert!(!files.is_empty(), "{layer} is not there");
    }
    assert_eq!(
        mentions("use crate::{a::b, c::{d, e}, f};\nx(crate::g::H::new())"),
        ["a::b", "c::", "f", "g::H::new"]
    );
    let test = "use crate::a;\n#[cfg(test)]\nmod tests { use crate::z; }";
    assert_eq!(mentions(&code(test)), ["a"]);
}

#[test]
fn files_are_small() {
    let long = |(path, text): (PathBuf, String)| {
        let lines = without_tests(&text).lines().count();
        (lines > MAX_LINES && !is_test(&path)).then(|| format!("{} has {lines} lines", path.display()))
    };
    let long: Vec<String> = sources().into_iter().filter_map(long).collect();
    assert!(long.is_empty(), "{long:#?}");
}

#[test]
fn what_is_pure_does_no_input_and_output() {
    const IO: &[&str] = &[
        "std::fs",
        "std::net",
        "std::process",
        "std::os::unix::net",
        "tokio::net",
        "tokio::fs",
        "tokio::process",
        "tokio::io",
    ];
    let mut wrong = Vec::new();
    for (path, text) in sources() {
        if !["session", "driver", "wire", "domain"].contains(&part(&path).as_str()) || is_test(&path) {
            continue;
        }
        let code = code(&text);
        wrong
            .extend(IO.iter().filter(|io| code.contains(**io)).map(|io| format!("{}: {io}", path.display())));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

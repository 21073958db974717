//! The sources, measured: names, comments and sizes must not get worse. A limit is lowered when the code has got better, and never
//! raised.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use intercom_types::EventKind;

use crate::layers::{is_test, sources, without_tests};

/// One type: the file that defines it, and its name.
type Definition = (PathBuf, String);

fn production() -> Vec<(PathBuf, String)> {
    let files = sources().into_iter().filter(|(path, _)| !is_test(path));
    files.map(|(path, text)| (path, without_tests(&text).to_owned())).collect()
}

fn definitions() -> Vec<Definition> {
    let mut found = Vec::new();
    for (path, text) in production() {
        for line in text.lines() {
            let line = line.trim_start().trim_start_matches("pub ");
            let line =
                line.split_once(") ").filter(|_| line.starts_with("pub(")).map_or(line, |(_, rest)| rest);
            let Some((keyword, rest)) = line.split_once(' ') else { continue };
            if ["struct", "enum", "trait", "union"].contains(&keyword) {
                let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                if !name.is_empty() {
                    found.push((path.clone(), name)); // a macro names its types elsewhere
                }
            }
        }
    }
    assert!(found.len() > 500, "the types were not found");
    found
}

/// Whole percents, rounded up.
fn percent(part: usize, whole: usize) -> usize {
    (part * 100).div_ceil(whole)
}

#[track_caller]
fn at_most(what: &str, found: usize, limit: usize, examples: &[String]) {
    assert!(found <= limit, "{what}: {found}, at most {limit}: {examples:#?}");
    assert!(found + 3 > limit, "{what}: {found} is better than the limit of {limit}; lower it");
}

#[test]
fn no_kind_of_an_event_is_spelled_outside_of_the_table() {
    let table = Path::new("crates/types/src/event.rs");
    let kinds: BTreeSet<String> = EventKind::ALL
        .iter()
        .map(|kind| kind.as_str())
        .filter(|kind| kind.contains('.'))
        .map(|kind| format!("\"{kind}\""))
        .collect();
    let mut spelled = Vec::new();
    for (path, text) in production().into_iter().filter(|(path, _)| path != table) {
        for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
            if kinds.iter().any(|kind| line.contains(kind.as_str())) {
                spelled.push(format!("{}: {}", path.display(), line.trim()));
            }
        }
    }
    assert!(spelled.is_empty(), "{spelled:#?}");
}

#[test]
fn one_name_stands_for_one_type() {
    let all = definitions();
    let mut places: BTreeMap<&str, BTreeSet<&Path>> = BTreeMap::new();
    for (path, name) in &all {
        places.entry(name).or_default().insert(path);
    }
    let shared: Vec<String> =
        places.iter().filter(|(_, paths)| paths.len() > 1).map(|(name, _)| (*name).to_owned()).collect();
    at_most(
        "percent of the names are those of several types",
        percent(shared.len(), places.len()),
        2,
        &shared,
    );
}

#[test]
fn a_name_says_enough_about_its_type() {
    let all = definitions();
    let is_one_word = |name: &str| name.chars().skip(1).all(|c| !c.is_uppercase());
    let bare: Vec<String> =
        all.iter().filter(|(_, name)| is_one_word(name)).map(|(_, name)| name.clone()).collect();
    at_most("percent of the types have a name of one word", percent(bare.len(), all.len()), 8, &[]);
}

#[test]
fn a_doc_comment_begins_with_a_noun_or_a_verb() {
    const VAGUE: &[&str] = &["What", "Who", "How", "Whether", "Of", "As"];
    let (mut vague, mut all) = (Vec::new(), 0);
    for (path, text) in production() {
        let mut before = "";
        for line in text.lines() {
            let doc = line.trim_start().strip_prefix("/// ").or_else(|| line.strip_prefix("//! "));
            let begins = !before.trim_start().starts_with("///") && !before.starts_with("//!");
            if let Some(comment) = doc.filter(|_| begins) {
                all += 1;
                let first = comment.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
                if VAGUE.contains(&first) {
                    vague.push(format!("{}: {comment}", path.display()));
                }
            }
            before = line;
        }
    }
    at_most("percent of the comments begin with What, Who, How …", percent(vague.len(), all), 3, &[]);
}

/// Files whose threads nothing waits for, and why not.
const THREADS_OF_THE_PROCESS: &[(&str, &str)] = &[
    ("src/demo.rs", "a read of stdin cannot be cancelled; the channel says when it is over"),
    ("src/cli/acp/stdio.rs", "neither can it here, and a client that does not read must not hold us up"),
];

/// Tells whether the statement that begins on this line spawns something and drops the handle.
fn discards_a_handle(lines: &[&str], at: usize) -> bool {
    const PATHS: &[&str] = &["tokio::", "tokio::task::", "thread::", "std::thread::"];
    let line = lines[at].trim_start();
    let spawns = ["spawn(", "spawn_blocking("]
        .iter()
        .any(|spawn| line.split_once(spawn).is_some_and(|(path, _)| PATHS.contains(&path)));
    let is_code = |line: &&&str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
    let before = lines[..at].iter().rfind(is_code).map_or("", |line| line.trim_end());
    let indent = &lines[at][..lines[at].len() - line.len()];
    let closes = |line: &&&str| line.strip_prefix(indent).is_some_and(|rest| !rest.starts_with(' '));
    let is_dropped = if line.ends_with(';') {
        line.ends_with(");") && !line.contains(".await")
    } else {
        lines[at + 1..].iter().find(closes).is_some_and(|last| ["});", ");"].contains(&last.trim()))
    };
    spawns && before.ends_with([';', '{', '}']) && is_dropped
}

#[test]
fn every_task_has_an_owner() {
    let mut discarded = Vec::new();
    for (path, text) in production() {
        let is_excused = THREADS_OF_THE_PROCESS.iter().any(|(excused, _)| path == Path::new(excused));
        let lines: Vec<&str> = text.lines().collect();
        let found = (0..lines.len()).filter(|at| discards_a_handle(&lines, *at));
        let found: Vec<String> = found.map(|at| format!("{}:{}", path.display(), at + 1)).collect();
        assert!(!is_excused || !found.is_empty(), "{} needs no excuse any more", path.display());
        discarded.extend(found.into_iter().filter(|_| !is_excused));
    }
    let how = "keep the handle, in a TaskTracker, a JoinSet or an AbortOnDropHandle";
    assert!(discarded.is_empty(), "tasks without an owner ({how}): {discarded:#?}");
}

#[test]
fn a_discarded_handle_is_found() {
    let is_found = |text: &str| {
        let lines: Vec<&str> = text.lines().collect();
        (0..lines.len()).any(|at| discards_a_handle(&lines, at))
    };
    assert!(is_found("{\n    tokio::spawn(async move {\n        work().await;\n    });\n}"));
    assert!(is_found("{\n    std::thread::spawn(work);\n}"));
    assert!(!is_found("{\n    tasks.spawn(async move {\n        work().await;\n    });\n}"));
    assert!(!is_found("{\n    let handle =\n        tokio::task::spawn_blocking(work);\n}"));
    assert!(!is_found("{\n    tokio::task::spawn_blocking(work).await.ok()\n}"));
}

/// Tells whether a struct is as wide as what it describes: a type of the model, or one that is only read from a document (a
/// configuration, a message, a stored layout), so that it derives `Deserialize` and not `Serialize`.
fn is_data(path: &Path, attributes: &str) -> bool {
    path.starts_with("crates/types")
        || (attributes.contains("Deserialize") && !attributes.contains(" Serialize"))
}

#[test]
fn no_struct_has_more_fields_than_a_reader_can_hold() {
    const MOST: usize = 16;
    let mut large = Vec::new();
    for (path, text) in production() {
        let (mut lines, mut attributes) = (text.lines(), String::new());
        while let Some(line) = lines.next() {
            if line.starts_with("#[") {
                attributes.push_str(line);
            }
            let is_struct = line.contains("struct ") && line.ends_with('{') && !line.starts_with(' ');
            if !is_struct {
                // Attributes and comments stand right above what they are about.
                if !line.starts_with(['#', '/', ' ', ')']) {
                    attributes.clear();
                }
                continue;
            }
            let body = lines.by_ref().take_while(|line| *line != "}");
            let fields = body.filter(|line| line.starts_with("    ") && !line.starts_with("     "));
            let is_field = |line: &&str| !line.trim_start().starts_with(['/', '#', '}', ')', ']']);
            let count = fields.filter(is_field).count();
            if count > MOST && !is_data(&path, &attributes) {
                large.push(format!("{}: {} has {count} fields", path.display(), line.trim_end_matches(" {")));
            }
            attributes.clear();
        }
    }
    assert!(large.is_empty(), "group the fields of these: {large:#?}");
}

/// Concurrent code owes the argument: why this order, why this bound, what would go wrong otherwise.
#[test]
fn concurrent_code_argues() {
    const PARTS: &[(&str, &[&str])] = &[
        ("the shim", &["crates/host/src/client", "crates/host/src/shim"]),
        ("the session actor", &["crates/daemon/src/session/actor"]),
        ("the writer", &["crates/store/src/checkpoint", "crates/store/src/pool", "crates/store/src/writer"]),
        (
            "ACP",
            &[
                "crates/bridges/src/acp/feed",
                "crates/bridges/src/acp/queue",
                "crates/bridges/src/acp/transport",
            ],
        ),
        (
            "Slack",
            &[
                "crates/bridges/src/slack/outbox",
                "crates/bridges/src/slack/publisher",
                "crates/bridges/src/slack/sender",
            ],
        ),
    ];
    let sources = production();
    for (part, modules) in PARTS {
        let (mut code, mut why) = (0, 0);
        for module in *modules {
            let is_of =
                |path: &Path| path.starts_with(module) || path.with_extension("") == Path::new(module);
            let files: Vec<_> = sources.iter().filter(|(path, _)| is_of(path)).collect();
            assert!(!files.is_empty(), "{module} was not found");
            for (_, text) in files {
                for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
                    let is_doc = line.starts_with("///") || line.starts_with("//!");
                    code += usize::from(!line.starts_with("//"));
                    why += usize::from(!is_doc && (line.starts_with("//") || line.contains(" // ")));
                }
            }
        }
        assert!(why * 100 >= code * 4, "{part}: {why} lines that say why beside {code} lines of code");
    }
}

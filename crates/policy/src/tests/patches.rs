//! Diffs as real tools apply them: every file that `patch` or `git apply` changes is named, or the diff is unreadable.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use proptest::prelude::*;

use super::*;
use crate::diff;

const FILES: &[&str] = &["x", "src/a", "deploy.sh"];

/// Diffs that apply to a tree in which each file holds `one`, `two` and `three`.
const PIECES: &[&str] = &[
    "--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n three\n",
    "--- a/src/a\t2020-01-01\n+++ b/src/a\t2020-01-01\n@@ -1,3 +1,2 @@\n one\n-two\n three\n",
    "--- a/deploy.sh 2020-01-01 00:00:00\n+++ b/deploy.sh 2020-01-01 00:00:00\n@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n three\n",
    "--- src/a\n+++ src/a\n@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n three\n",
    "--- sub/deploy.sh\n+++ sub/deploy.sh\n@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n three\n",
    "--- a/x\n+++ deploy.sh\n@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n three\n",
    "*** a/x\t2020-01-01\n--- b/x\t2020-01-01\n***************\n*** 1,3 ****\n  one\n! two\n  three\n--- 1,3 ----\n  one\n! TWO\n  three\n",
    "Index: a/deploy.sh\n2c2\n< two\n---\n> TWO\n",
    "Index:deploy.sh\n@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n three\n",
    "diff --git a/x b/y\nsimilarity index 100%\nrename from x\nrename to y\n",
    "diff --git a/src/a b/z\nsimilarity index 100%\ncopy from src/a\ncopy to z\n",
    "diff --git a/x b/x\nsimilarity index 100%\nrename old x\nrename new y\n",
    "@@ -1,2 +1,2 @@\n--- deploy.sh\n+++ deploy.sh\n@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n three\n",
    "@@ -1,2 +1,2 @@\n--- a/deploy.sh\n+++ b/deploy.sh\n@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n three\n",
    "diff --git a/new b/new\nnew file mode 100644\n--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+evil\n",
    "diff --git a/x b/x\nold mode 100644\nnew mode 100755\n",
    "--- a/x\n+++ /dev/null\n@@ -1,3 +0,0 @@\n-one\n-two\n-three\n",
    "some words before it\n",
];

const PREFIXES: &[&str] = &["", "    ", "\t", "X", " X ", "- ", "- - ", "> ", " ", "# "];

fn tree(root: &Path) {
    for file in FILES {
        let path = root.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "one\ntwo\nthree\n").unwrap();
    }
}

/// The content and the mode of every file but those that `patch` leaves behind.
fn content(root: &Path, below: &str, into: &mut BTreeMap<String, (Vec<u8>, u32)>) {
    use std::os::unix::fs::PermissionsExt;
    for entry in std::fs::read_dir(root.join(below)).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{below}{}", entry.file_name().to_str().unwrap());
        if entry.path().is_dir() {
            content(root, &format!("{name}/"), into);
        } else if ![".orig", ".rej"].iter().any(|ending| name.ends_with(ending)) {
            let mode = entry.metadata().unwrap().permissions().mode();
            into.insert(name, (std::fs::read(entry.path()).unwrap(), mode));
        }
    }
}

/// The files that a tool changes with this diff.
fn changed(tool: &[&str], text: &str) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    tree(dir.path());
    let mut before = BTreeMap::new();
    content(dir.path(), "", &mut before);
    let input = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(input.path(), text).unwrap();
    let mut command = Command::new(tool[0]);
    command.args(&tool[1..]).current_dir(dir.path()).stdin(std::fs::File::open(input.path()).unwrap());
    command.env("GIT_CEILING_DIRECTORIES", dir.path().parent().unwrap());
    // Many of these diffs do not apply; what counts is what has changed.
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
    let mut after = BTreeMap::new();
    content(dir.path(), "", &mut after);
    let names = before.keys().chain(after.keys());
    names.filter(|name| before.get(*name) != after.get(*name)).cloned().collect()
}

#[test]
fn every_file_that_real_tools_patch_is_named_or_the_diff_is_unreadable() {
    let mut texts: Vec<String> = Vec::new();
    for piece in PIECES {
        for prefix in PREFIXES {
            texts.push(piece.lines().map(|line| format!("{prefix}{line}\n")).collect::<Vec<_>>().concat());
        }
        texts.push(piece.replace('\n', "\r\n"));
        // A harmless diff before it, of which only the hunk or nothing is indented.
        texts.push(format!("{}{piece}", PIECES[0]));
        texts.push(piece.replace("\n@@", "\n  @@"));
        texts.push(piece.replacen("--- ", "  --- ", 1));
        texts.push(piece.replacen("+++ ", "X+++ ", 1));
    }
    let applied: usize = texts.iter().map(|text| applications(text)).sum();
    assert!(applied > 100, "only {applied} diffs were applied: the test tests little");
}

/// A name without `.`, `..` and empty parts, as rules see it.
fn lexically(name: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in name.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    let root = if name.starts_with('/') { "/" } else { "" };
    format!("{root}{}", parts.join("/"))
}

/// Gives the text to each tool; the number of those that changed something. Every file that one changes must be named.
#[track_caller]
fn applications(text: &str) -> usize {
    const TOOLS: &[&[&str]] = &[
        &["patch", "-p1", "-f", "-s"],
        &["patch", "-p0", "-f", "-s"],
        &["git", "apply", "-"],
        &["git", "apply", "-p0", "-"],
        &["patch", "-f", "-s"],
        &["patch", "-p2", "-f", "-s"],
    ];
    let read = diff::read(text);
    let mut applied = 0;
    for tool in TOOLS {
        let changed = changed(tool, text);
        applied += usize::from(!changed.is_empty());
        // Without a number, `patch` takes off every directory, and with a large one more than any other tool. People see the
        // whole name; no rule about the last part of it can hold for every directory.
        let takes_more = tool.contains(&"-p2") || tool.len() == 3;
        for name in changed {
            let end = format!("/{name}");
            let is_it = |known: &String| {
                let known = lexically(known);
                known == name || (takes_more && known.ends_with(&end))
            };
            let is_named = read.names.iter().chain(&read.other_names).any(is_it);
            assert!(is_named || read.unreadable, "{tool:?} changes {name} with {text:?}: {read:?}");
        }
    }
    applied
}

/// Lines as `patch` knows them, and some that only look like them.
fn any_diff() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec![
        "x",
        "a/x",
        "b/x",
        "src/a",
        "a/src/a",
        "deploy.sh",
        "sub/deploy.sh",
        "a/sub/deploy.sh",
        "/dev/null",
        "./x",
        "\"deploy.sh\"",
        "\"a/deploy\\056sh\"",
        "new",
        "src/../deploy.sh",
        "a//x",
    ]);
    let prefix = prop::sample::select(PREFIXES.to_vec());
    let stamp = prop::sample::select(vec!["", "\t2020-01-01", " 2020-01-01 00:00:00", "\t", " "]);
    let hunk = prop::sample::select(vec![
        "@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n three\n",
        "@@ -1,3 +1,2 @@\n one\n-two\n three\n",
        "@@ -0,0 +1 @@\n+evil\n",
        "@@ -1,3 +0,0 @@\n-one\n-two\n-three\n",
        "***************\n*** 1,3 ****\n  one\n! two\n  three\n--- 1,3 ----\n  one\n! TWO\n  three\n",
        "2c2\n< two\n---\n> TWO\n",
        "",
    ]);
    let marks = prop::sample::select(vec![
        ("--- ", "+++ "),
        ("*** ", "--- "),
        ("+++ ", "--- "),
        ("Index: ", ""),
        ("--- ", ""),
        ("", "+++ "),
        ("Prereq: ", ""),
        ("rename from ", "rename to "),
        ("copy from ", "copy to "),
    ]);
    let git = any::<bool>();
    let part = (name.clone(), name, prefix, stamp, hunk, marks, git).prop_map(
        |(old, new, prefix, stamp, hunk, (first, second), git)| {
            let line = |mark: &str, rest: String| if mark.is_empty() { String::new() } else { rest };
            let text = [
                line(if git { "diff" } else { "" }, format!("diff --git {old} {new}\n")),
                line(first, format!("{first}{old}{stamp}\n")),
                line(second, format!("{second}{new}{stamp}\n")),
                hunk.to_owned(),
            ]
            .concat();
            text.lines().map(|line| format!("{prefix}{line}\n")).collect::<Vec<_>>().concat()
        },
    );
    prop::collection::vec(part, 1..3).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn every_file_that_real_tools_patch_with_a_generated_diff_is_named(text in any_diff()) {
        applications(&text);
    }
}

#[test]
fn a_diff_that_cannot_be_read_is_of_high_risk_and_denied_and_never_allowed() {
    let ws = Path::new("/nowhere/ws");
    let with = |diff: &str| {
        resolve(PolicyRequest {
            diff: Some(diff.to_owned()),
            ..touching(ws, "edit", &["src/a"]).subject().clone()
        })
    };
    let indented = with("    --- a/deploy.sh\n    +++ b/deploy.sh\n    @@ -1 +1 @@\n    -a\n    +b\n");
    assert_eq!(outcome(&one("deny: path = 'deploy.sh'"), &indented), "deny");
    assert_eq!(outcome(&one("allow: path = '**'"), &indented), "ask");
    assert_eq!(outcome(&one("allow: tool = 'edit'"), &indented), "ask");
    assert_eq!(assess(&indented).computed, intercom_types::Risk::High);
    let readable = with("--- a/src/a\n+++ b/src/a\n@@ -1 +1 @@\n-a\n+b\n");
    assert_eq!(outcome(&one("deny: path = 'deploy.sh'"), &readable), "ask");
    assert_eq!(outcome(&one("allow: path = 'src/*'"), &readable), "allow");
    // `git apply` takes off the first directory.
    let stripped = with("--- src/deploy.sh\n+++ src/deploy.sh\n@@ -1 +1 @@\n-a\n+b\n");
    assert_eq!(outcome(&one("deny: path = 'deploy.sh'"), &stripped), "deny");
}

//! The tree shows the architecture. The crates' dependencies are what cargo allows; the rest, which the compiler does not see, is
//! checked here: no cycles between the modules of a crate, small files, and no input or output in what is pure.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const MAX_LINES: usize = 600;

/// The sources of the program and of all crates but those for tests, by their path below the root of the repository.
pub(crate) fn sources() -> BTreeMap<PathBuf, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = BTreeMap::new();
    let mut dirs = vec![root.join("src")];
    dirs.extend(root.join("crates").read_dir().unwrap().map(|entry| entry.unwrap().path().join("src")));
    dirs.retain(|dir| !dir.starts_with(root.join("crates/testkit")));
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
    assert!(files.len() > 300, "the sources were not found");
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

/// The crate of a source file, and its module directly below the root of that crate.
fn module(path: &Path) -> (String, String) {
    let (krate, within) = path.to_str().unwrap().split_once("src/").unwrap();
    let first = within.split('/').next().unwrap().trim_end_matches(".rs");
    (krate.trim_end_matches('/').to_owned(), first.to_owned())
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

/// Modules by the modules of the same crate that they mention.
type Mentions = BTreeMap<String, BTreeSet<String>>;

/// A way from a module back to itself, if there is one.
fn cycle(mentions: &Mentions) -> Option<Vec<String>> {
    fn walk(mentions: &Mentions, way: &mut Vec<String>, done: &mut BTreeSet<String>) -> bool {
        let here = way.last().unwrap().clone();
        for next in mentions.get(&here).into_iter().flatten() {
            let comes_back = way.contains(next);
            if done.contains(next) && !comes_back {
                continue;
            }
            way.push(next.clone());
            if comes_back || walk(mentions, way, done) {
                return true;
            }
            way.pop();
        }
        done.insert(here);
        false
    }
    let mut done = BTreeSet::new();
    mentions.keys().find_map(|module| {
        let mut way = vec![module.clone()];
        walk(mentions, &mut way, &mut done).then_some(way)
    })
}

#[test]
fn modules_do_not_depend_on_each_other_in_a_circle() {
    let mut crates: BTreeMap<String, Mentions> = BTreeMap::new();
    for (path, text) in sources() {
        let (krate, module) = module(&path);
        // These wire the rest together.
        if is_test(&path) || module == "lib" || module == "main" {
            continue;
        }
        let mut code = code(&text);
        if path.parent().is_some_and(|parent| parent.ends_with("src")) {
            code = code.replace("super::", "crate::");
        }
        let mentioned = mentions(&code).into_iter().map(|path| path.split(':').next().unwrap().to_owned());
        let of_others = mentioned.filter(|mentioned| *mentioned != module).collect::<Vec<_>>();
        crates.entry(krate).or_default().entry(module).or_default().extend(of_others);
    }
    assert!(crates.len() > 9, "{:?}", crates.keys());
    let circles: Vec<String> = crates
        .iter()
        .filter_map(|(krate, mentions)| cycle(mentions).map(|way| format!("{krate}: {}", way.join(" → "))))
        .collect();
    assert!(circles.is_empty(), "{circles:#?}");
}

#[test]
fn a_circle_is_found() {
    assert_eq!(
        mentions("use crate::{a::b, c::{d, e}, f};\nx(crate::g::H::new())"),
        ["a::b", "c::", "f", "g::H::new"]
    );
    let test = "use crate::a;\n#[cfg(test)]\nmod tests { use crate::z; }";
    assert_eq!(mentions(&code(test)), ["a"]);
    let graph = |edges: &[(&str, &str)]| {
        let mut mentions = Mentions::new();
        for (from, to) in edges {
            mentions.entry((*from).to_owned()).or_default().insert((*to).to_owned());
        }
        mentions
    };
    assert_eq!(cycle(&graph(&[("a", "b"), ("b", "c"), ("a", "c")])), None);
    assert!(cycle(&graph(&[("a", "b"), ("b", "c"), ("c", "b")])).is_some());
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
        let pure = [
            "crates/types/",
            "crates/wire/",
            "crates/policy/",
            "crates/redact/",
            "crates/daemon/src/session",
        ];
        // Where links lead is asked of the file system, in one file; samples are for tests only.
        let is_exempt = ["crates/policy/src/paths.rs", "crates/types/src/samples.rs"]
            .map(Path::new)
            .contains(&path.as_path());
        let is_pure = pure.iter().any(|pure| path.to_str().unwrap().starts_with(pure));
        if is_test(&path) || is_exempt || !is_pure {
            continue;
        }
        let code = code(&text);
        wrong
            .extend(IO.iter().filter(|io| code.contains(**io)).map(|io| format!("{}: {io}", path.display())));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

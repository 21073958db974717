//! How far allow rules reach, seen with real tools: commands that a rule allows run in a disposable directory, and
//! nothing outside of the workspace is read, written or run.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use proptest::prelude::*;
use proptest::sample::select;

use super::*;

const CANARY: &str = "the-content-of-a-file-outside";

/// Rules whose programs are installed wherever this is developed, and a command that each allows.
const ALLOWED: &[(&str, &str)] = &[
    ("cat", "cat a.txt"),
    ("head", "head -n 1 a.txt"),
    ("wc", "wc -l a.txt"),
    ("ls", "ls -la ."),
    ("grep", "grep -rn one ."),
    ("find", "find . -name a.txt"),
    ("sort", "sort -r a.txt"),
    ("uniq", "uniq -c a.txt"),
    ("cut", "cut -d o -f 1 a.txt"),
    ("diff", "diff -u a.txt b.txt"),
    ("sed -n", "sed -n 1,2p a.txt"),
    ("tar", "tar -cf t.tar src"),
    ("tar", "tar -tf t.tar"),
    ("jq", "jq -r .a a.json"),
    ("git", "git status -s"),
    ("git log", "git log --oneline"),
    ("git diff", "git diff --stat"),
    ("git show", "git show HEAD"),
    ("git grep", "git grep -n one"),
    ("git bisect", "git bisect"),
    ("git add", "git add a.txt"),
    ("mkdir", "mkdir -p src/new"),
    ("cp", "cp a.txt c.txt"),
    ("ln", "ln a.txt d.txt"),
    ("tee", "tee c.txt"),
];

/// Words that lead out of the workspace or run the program `evil` in one tool or another.
const WORDS: &[&str] = &[
    "out/secret",
    "link",
    "out",
    "./link",
    "src/up/secret",
    "-fout/secret",
    "-oout/new",
    "--output=out/new",
    "-o",
    "out/new",
    "../beside/secret",
    "--file=link",
    "-f",
    "-flink",
    "-I./evil",
    "-Ievil",
    "--to-command=./evil",
    "--checkpoint=1",
    "--checkpoint-action=exec=./evil",
    "-exec",
    "./evil",
    ";",
    "+",
    "-delete",
    "-fprint",
    "-execdir",
    "-L",
    "-R",
    "-r",
    "-S",
    "-H",
    "-C",
    "-xf",
    "-x",
    "x",
    "evil.tar",
    "links.tar",
    "-xfhost:x",
    "host:x",
    "--rsh-command=./evil",
    "--files0-from=link",
    "--compress-program=./evil",
    "-T",
    "--ext-diff",
    "--textconv",
    "--no-index",
    "--open-files-in-pager=./evil",
    "-O./evil",
    "merge-index",
    "-a",
    "-c",
    "alias.x=!./evil",
    "x",
    "core.pager=./evil",
    "remote-ext",
    "ext::./evil",
    "send-pack",
    "--receive-pack=./evil",
    "--exec=./evil",
    "run",
    "view",
    "visualize",
    "start",
    "--exec-path=.",
    "--git-dir=out",
    "bisect",
    "fetch",
    "clone",
    "config",
    "help",
    "difftool",
    "submodule",
    "foreach",
    "archive",
    "import \"out/secret\" as x; .",
    "include \"link\"; .",
    "$ENV",
    "env",
    "--rawfile",
    "--slurpfile",
    "--from-file",
    "e ./evil",
    "1e ./evil",
    "w out/new",
    "1w out/new",
    "r link",
    "1r link",
    "a.txt",
    "b.txt",
    ".",
    "-n",
    "-z",
    "--",
    "HEAD:out",
    "-s",
    "--reference=link",
    "hard",
];

/// `ws` with links to `beside`, which holds what must stay untouched, and `evil`, which tells when it was run.
fn stage() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let (ws, beside) = (root.join("ws"), root.join("beside"));
    std::fs::create_dir_all(ws.join("src")).unwrap();
    std::fs::create_dir(&beside).unwrap();
    std::fs::write(beside.join("secret"), format!("{CANARY}\n")).unwrap();
    std::fs::write(beside.join("secret.json"), format!("\"{CANARY}\"\n")).unwrap();
    std::fs::write(ws.join("a.txt"), "one\none\ntwo\n").unwrap();
    std::fs::write(ws.join("b.txt"), "one\ntwo\n").unwrap();
    std::fs::write(ws.join("a.json"), "{\"a\": 1}\n").unwrap();
    std::fs::write(ws.join("evil"), format!("#!/bin/sh\ntouch {}/ran\n", beside.display())).unwrap();
    std::fs::set_permissions(ws.join("evil"), std::fs::Permissions::from_mode(0o755)).unwrap();
    symlink("../beside", ws.join("out")).unwrap();
    symlink("../beside/secret", ws.join("link")).unwrap();
    symlink("../../beside", ws.join("src/up")).unwrap();
    run(&ws, &["git", "init", "-q"]);
    run(&ws, &["git", "add", "-A"]);
    run(&ws, &["git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"]);
    // An archive that writes through the link.
    std::fs::create_dir_all(root.join("made/out")).unwrap();
    std::fs::write(root.join("made/out/new"), "x").unwrap();
    run(&root.join("made"), &["tar", "-cf", "../ws/links.tar", "out/new"]);
    (dir, ws)
}

/// Runs it without a network, a home or anybody's settings; what it says.
fn run(ws: &Path, words: &[&str]) -> String {
    let output = Command::new("timeout")
        .args(["10", "unshare", "-rn", "--"])
        .args(words)
        .current_dir(ws)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("HOME", ws.parent().unwrap().join("home"))
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Tells whether the command is allowed in this workspace.
fn is_allowed(rule: &str, command: &str, ws: &Path) -> bool {
    let request = resolve(Subject { workspace: ws.to_owned(), ..running(command).subject().clone() });
    outcome(&one(&format!("allow: command = '{rule}'; risk = 'critical'")), &request) == "allow"
}

fn check(rule: &str, words: &[String]) -> Result<(), TestCaseError> {
    static JUDGED: LazyLock<(tempfile::TempDir, PathBuf)> = LazyLock::new(stage);
    let command = words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ");
    if !is_allowed(rule, &command, &JUDGED.1) {
        return Ok(());
    }
    let (_dir, ws) = stage();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let said = run(&ws, &words);
    prop_assert!(!said.contains(CANARY), "{command} reads outside: {said}");
    let beside = ws.parent().unwrap().join("beside");
    let mut left: Vec<_> =
        std::fs::read_dir(&beside).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    prop_assert_eq!(left, ["secret", "secret.json"], "{} writes or runs", command);
    prop_assert_eq!(
        std::fs::read_to_string(beside.join("secret")).unwrap(),
        format!("{CANARY}\n"),
        "{}",
        command
    );
    Ok(())
}

#[test]
fn each_rule_allows_its_ordinary_command_and_the_stage_can_fail() {
    let (_dir, ws) = stage();
    for (rule, command) in ALLOWED {
        assert!(is_allowed(rule, command, &ws), "{rule}: {command}");
    }
    assert!(run(&ws, &["cat", "link"]).contains(CANARY));
    assert!(run(&ws, &["jq", "-n", "import \"out/secret\" as $x; $x", "-L", "."]).contains(CANARY));
    run(&ws, &["tar", "-xf", "links.tar"]);
    run(&ws, &["find", "a.txt", "-exec", "./evil", ";"]);
    for file in ["ran", "new"] {
        assert!(ws.join("out").join(file).exists(), "{file}");
    }
}

/// rule, command; none may be allowed in the stage.
const OUT: &[(&str, &str)] = &[
    ("cat", "cat link"),
    ("cat", "cat out/secret"),
    ("cat", "cat ./src/up/secret"),
    ("cat", "cat src/up/new"),
    ("grep", "grep -flink one a.txt"),
    ("cp", "cp link c.txt"),
    ("cp", "cp a.txt out/new"),
    ("cp", "cp evil .git/hooks/post-commit"),
    ("tee", "tee .envrc"),
    ("ln", "ln a.txt .git/hooks/x"),
    ("mv", "mv evil .husky/x"),
    ("sort", "sort link"),
    ("uniq", "uniq a.txt b.txt"),
    ("diff", "diff -r src ."),
    ("git", "git merge-index ./evil -a"),
    ("git", "git x"),
    ("git", "git bisect start"),
    ("git", "git remote-ext origin ./evil"),
    ("git", "git send-pack ."),
    ("git", "git submodule update"),
    ("git merge-index", "git merge-index ./evil -a"),
    ("git send-pack", "git send-pack --receive-pack=./evil ."),
    ("git send-pack", "git send-pack ."),
    ("git bisect", "git bisect view"),
    ("git bisect", "git bisect visualize"),
    ("git bisect", "git bisect start"),
    ("git log", "git log -- link"),
    ("tar", "tar -xfhost:x"),
    ("tar", "tar -tfhost:x"),
    ("tar", "tar -tf host:x"),
    ("tar", "tar xf links.tar"),
    ("tar", "tar -xf links.tar"),
    ("jq", "jq 'import \"a\" as a; .' a.json"),
    ("jq", "jq 'include \"a\"; .' a.json"),
    ("jq", "jq -n env"),
    ("jq", "jq -n '$ENV'"),
    ("mvn", "mvn exec:exec"),
    ("mvn", "mvn test exec:java"),
    ("mvn test", "mvn test exec:exec"),
    ("gradle test", "gradle test run"),
    ("sbt", "sbt run"),
    ("cmake", "cmake -E env"),
    ("bazel", "bazel run x"),
    ("rake test", "rake test evil"),
];

#[test]
fn what_leads_out_is_not_allowed() {
    let (_dir, ws) = stage();
    let allowed: Vec<_> = OUT.iter().filter(|(rule, command)| is_allowed(rule, command, &ws)).collect();
    assert!(allowed.is_empty(), "{allowed:?}");
    // What the rule spells is the rule's own business.
    for (rule, command) in [
        ("cat link", "cat link"),
        ("mvn", "mvn clean verify"),
        ("git merge-index evil", "git merge-index evil"),
    ] {
        assert!(is_allowed(rule, command, &ws), "{rule}");
    }
}

#[test]
fn an_allowed_path_says_how_long_it_holds() {
    let (_dir, ws) = stage();
    let why = |command: &str| {
        let request = resolve(Subject { workspace: ws.clone(), ..running(command).subject().clone() });
        decide(&one("allow: command = 'cat'; name = 'reading'"), &request, &assess(&request), NOW).why
    };
    assert_eq!(why("cat a.txt"), "reading allows it (links were followed now, and can change afterwards)");
    assert_eq!(why("cat"), "reading allows it");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn no_word_behind_an_allowed_command_leaves_the_workspace(
        (rule, command) in select(ALLOWED), words in prop::collection::vec(select(WORDS), 1..4), keep in 0usize..3,
    ) {
        let own: Vec<&str> = command.split(' ').collect();
        let spelled = rule.split(' ').count();
        // With all of the command, with the rule alone, or with the words in between.
        let (front, back) = match keep {
            0 => (own.len(), own.len()),
            1 => (spelled, own.len()),
            _ => (spelled, spelled),
        };
        let words = own[..front].iter().chain(words.iter()).chain(&own[back..]);
        check(rule, &words.map(|word| (*word).to_owned()).collect::<Vec<_>>())?;
    }
}

//! How far allow rules reach, seen with real tools: commands that a rule allows run in a disposable directory, and
//! nothing outside of the workspace is opened, written or run. Their system calls are traced, and the kernel reports every
//! touch of the files beside the workspace.
//!
//! `INTERCOM_REACH_CASES` and `INTERCOM_REACH_TEXTS` set how much is tried, `INTERCOM_SHELL_SEED` the seed of the texts.

use std::cell::Cell;
use std::path::Path;

use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::TestRunner;

use super::differential::generator::Generator;
use super::differential::number;
use super::*;

mod stage;
mod trace;

use stage::{CANARY, Stage};

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
    ("cp", "cp a.txt src/b.txt"),
    ("mv", "mv b.txt c.txt"),
    ("touch", "touch c.txt"),
    ("rm", "rm b.txt"),
    ("chmod", "chmod 644 a.txt"),
    ("dd", "dd if=a.txt of=c.txt"),
    ("shred", "shred b.txt"),
    ("unlink", "unlink b.txt"),
    ("realpath", "realpath a.txt"),
    ("tail", "tail -n 1 a.txt"),
    ("du", "du -sh ."),
    ("stat", "stat -c %s a.txt"),
    ("test", "test a.txt"),
    ("git blame", "git blame a.txt"),
    ("git checkout", "git checkout -q"),
    ("git restore", "git restore a.txt"),
    ("git ls-files", "git ls-files -s"),
    ("git commit", "git commit -m x"),
    ("git stash", "git stash -q"),
    ("git branch", "git branch -a"),
    ("git tag", "git tag -l"),
    ("git merge", "git merge --ff-only"),
    ("git mv", "git mv b.txt c.txt"),
    ("git rm", "git rm b.txt"),
    ("git reset", "git reset"),
    ("git clone", "git clone -q . copy"),
    ("git fetch", "git fetch -q ."),
    ("git pull", "git pull -q ."),
    ("git push", "git push -q"),
    ("git remote", "git remote -v"),
];

/// Words that lead out of the workspace or run the program `evil` in one tool or another. `{root}` is the directory above
/// the workspace.
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
    "src",
    "src/.",
    "src/link",
    "if=link",
    "of=out/new",
    "HEAD",
    "HEAD~0",
    "-p",
    "-u",
    "-N",
    "-q",
    "-l",
    "-m",
    "-e",
    "one",
    "-v",
    "new",
    "pop",
    "add",
    "-newer",
    "-name",
    "-printf",
    "--oneline",
    "--exclude",
    "--exclude-dir",
    "--format",
    "--include",
    "-A",
    "/etc/passwd",
    "{root}/beside/secret",
    "--file={root}/beside/secret",
    "-f{root}/beside/secret",
];

/// Tells whether the command is allowed in this workspace.
fn is_allowed(rule: &str, command: &str, ws: &Path) -> bool {
    is_allowed_by(&one(&format!("allow: command = '{rule}'; risk = 'critical'")), command, ws)
}

fn is_allowed_by(rules: &Rules, command: &str, ws: &Path) -> bool {
    let request = resolve(PolicyRequest { workspace: ws.to_owned(), ..running(command).subject().clone() });
    outcome(rules, &request) == "allow"
}

/// Runs an allowed command in a fresh stage and tells whether nothing outside was opened, written or run.
fn check_run(command: &str, programs: &[&str], words: &[&str]) -> Result<(), TestCaseError> {
    let stage = Stage::fresh();
    let watch = stage.watch_outside();
    let words: Vec<String> = words.iter().map(|word| stage.at(word)).collect();
    let (said, reached) = stage.run_traced(programs, &words.iter().map(String::as_str).collect::<Vec<_>>());
    let touched = watch.touched();
    prop_assert!(reached.is_empty(), "{command} reaches outside: {reached:?}\n{said}");
    prop_assert!(touched.is_empty(), "{command} reaches outside: {touched:?}\n{said}");
    prop_assert!(!said.contains(CANARY), "{command} reads outside: {said}");
    prop_assert_eq!(stage.beside(), ["secret", "secret.json"], "{} writes or runs", command);
    Ok(())
}

#[test]
fn each_rule_allows_its_ordinary_command_and_the_stage_can_fail() {
    let stage = Stage::fresh();
    for (rule, command) in ALLOWED {
        assert!(is_allowed(rule, command, &stage.workspace), "{rule}: {command}");
        let words: Vec<&str> = command.split(' ').collect();
        check_run(command, &words[..1], &words).unwrap();
    }
    let touched_by = |words: &[&str]| {
        let watch = stage.watch_outside();
        stage.run(words);
        watch.touched()
    };
    assert!(stage.run(&["cat", "link"]).contains(CANARY));
    assert!(stage.run(&["jq", "-n", "import \"out/secret\" as $x; $x", "-L", "."]).contains(CANARY));
    // Also if nothing is said or left.
    assert!(!touched_by(&["wc", "-l", "link"]).is_empty());
    assert!(!touched_by(&["grep", "-q", "x", "out/secret.json"]).is_empty());
    assert!(!touched_by(&["find", "-L", ".", "-name", "x"]).is_empty());
    assert!(!touched_by(&["ls", ".."]).is_empty());
    assert!(touched_by(&["ls", "-l", "."]).is_empty());
    // Also far away, and by what it runs or calls.
    for words in [
        ["cat", "/etc/passwd"].as_slice(),
        &["cat", "link"],
        &["find", "a.txt", "-exec", "./evil", ";"],
        &["find", "a.txt", "-exec", "true", ";"],
        &["touch", "/tmp/../tmp"],
        &["mkdir", "out/folder"],
        &["rmdir", "out/folder"],
    ] {
        assert!(!stage.run_traced(&words[..1], words).1.is_empty(), "{words:?}");
    }
    let calls = ["bash", "-c", ": >/dev/udp/127.0.0.1/9"];
    assert!(!stage.run_traced(&calls[..1], &calls).1.is_empty());
    std::fs::remove_file(stage.workspace.join("../beside/ran")).unwrap();
    stage.run(&["tar", "-xf", "links.tar"]);
    stage.run(&["find", "a.txt", "-exec", "./evil", ";"]);
    assert_eq!(stage.beside(), ["new", "ran", "secret", "secret.json"]);
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
    ("diff", "diff . src"),
    ("diff", "diff a.txt src"),
    ("diff", "diff src a.txt"),
    ("cp", "cp a.txt src"),
    ("cp", "cp a.json ./a.txt src/."),
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
    // The second option is the text of the first.
    ("grep", "grep -v -e -e /etc/passwd"),
    ("grep", "grep -v --regexp --regexp /etc/passwd"),
    ("rg", "rg -v -e -e ../secret"),
    // The second option is the value of the first, which is no text.
    ("grep", "grep root --exclude -e /etc/passwd"),
    ("grep", "grep root --exclude-dir -e ../secret"),
    ("grep", "grep -A -e /etc/passwd"),
    ("rg", "rg x -g -e /etc/passwd"),
    ("rg", "rg x --iglob -e /etc/passwd"),
    ("stat", "stat --format -c /etc/passwd"),
    // Files that run later, by a link or in a directory.
    ("cp", "cp src/.envrc ."),
    ("cp", "cp src/.envrc ./"),
    ("cp", "cp src/config .git"),
    ("cp", "cp src/config git"),
    ("cp", "cp src/config git/config"),
    ("cp", "cp a.txt hooks"),
    ("cp", "cp a.txt rc"),
    ("tee", "tee rc"),
    ("dd", "dd if=a.txt of=git/config"),
    ("mv", "mv src/hooks .git"),
    ("mv", "mv src .github"),
    ("mv", "mv src .cargo"),
    ("mv", "mv .git x"),
    ("ln", "ln src/.envrc"),
    ("ln", "ln src/config git"),
    ("tar", "tar cf .git/hooks/x a.txt"),
    ("tar", "tar cf hooks/x a.txt"),
    ("wget", "wget example.org/x/.envrc"),
    ("git mv", "git mv a.txt .envrc"),
    ("git mv", "git mv src/.envrc ."),
    ("git clone", "git clone . .husky"),
    ("git clone", "git clone src/.husky"),
    ("git clone", "git clone . .git/hooks/x"),
];

#[test]
fn what_leads_out_is_not_allowed() {
    let stage = Stage::fresh();
    let ws = &stage.workspace;
    let allowed: Vec<_> = OUT.iter().filter(|(rule, command)| is_allowed(rule, command, ws)).collect();
    assert!(allowed.is_empty(), "{allowed:?}");
    // What the rule spells is the rule's own business.
    for (rule, command) in [
        ("cat link", "cat link"),
        ("mvn", "mvn clean verify"),
        ("git merge-index evil", "git merge-index evil"),
    ] {
        assert!(is_allowed(rule, command, ws), "{rule}");
    }
}

#[test]
fn an_allowed_path_says_how_long_it_holds() {
    let stage = Stage::fresh();
    let ws = &stage.workspace;
    let why = |command: &str| {
        let request = resolve(PolicyRequest { workspace: ws.clone(), ..running(command).subject().clone() });
        decide(&one("allow: command = 'cat'; name = 'reading'"), &request, &assess(&request), NOW).why
    };
    assert_eq!(why("cat a.txt"), "reading allows it (links were followed now, and can change afterwards)");
    assert_eq!(why("cat"), "reading allows it");
}

/// Words behind a command that a rule allows: behind all of it, behind the rule's words, or in between.
fn with_more_words(rule: &str, command: &str, more: &[&'static str], keep: usize) -> Vec<String> {
    let own: Vec<&str> = command.split(' ').collect();
    let spelled = rule.split(' ').count();
    let (front, back) = match keep {
        0 => (own.len(), own.len()),
        1 => (spelled, own.len()),
        _ => (spelled, spelled),
    };
    own[..front].iter().chain(more).chain(&own[back..]).map(|word| (*word).to_owned()).collect()
}

#[test]
#[expect(clippy::print_stdout, reason = "the number of commands that were run is a result")]
fn no_word_behind_an_allowed_command_leaves_the_workspace() {
    let judged = Stage::fresh();
    let (cases, run) = (number("INTERCOM_REACH_CASES", 150), Cell::new(0));
    let cases = u32::try_from(cases).unwrap();
    let strategy = (select(ALLOWED), prop::collection::vec(select(WORDS), 1..4), 0usize..3);
    let mut runner =
        TestRunner::new(ProptestConfig { cases, source_file: Some(file!()), ..ProptestConfig::default() });
    let outcome = runner.run(&strategy, |((rule, command), more, keep)| {
        let words = with_more_words(rule, command, &more, keep);
        let command = words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ");
        if !is_allowed(rule, &judged.at(&command), &judged.workspace) {
            return Ok(());
        }
        run.set(run.get() + 1);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        check_run(&command, &words[..1], &words)
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
    println!("{cases} cases, {} allowed and run", run.get());
    assert!(run.get() * 10 >= cases, "only {} of {cases} were allowed", run.get());
}

/// Programs of generated texts, and words that stand for theirs. The last program is allowed by no rule.
const REAL: &[(&str, &str)] = &[
    ("s0", "cat"),
    ("s1", "grep"),
    ("s2", "ls"),
    ("s3", "head"),
    ("s4", "wc"),
    ("s5", "sort"),
    ("s6", "find"),
    ("s7", "tee"),
    ("s8", "diff"),
    ("s9", "./evil"),
    ("'a b'", "'link'"),
    ("a#b", "out/secret"),
    ("$'a\\tb'", "a.txt"),
    ("\\#", "src/up/\\secret"),
    ("\\'", "o\"u\"t"),
    ("\\\"", "../beside/secret"),
];

#[test]
#[expect(clippy::print_stdout, reason = "the number of texts that were run is a result")]
fn no_generated_text_that_is_allowed_leaves_the_workspace() {
    let judged = Stage::fresh();
    let count = number("INTERCOM_REACH_TEXTS", 200);
    let mut generator = Generator::new(number("INTERCOM_SHELL_SEED", 1) as u64);
    let words: Vec<String> = REAL[..9].iter().map(|(_, program)| format!("[\"{program}\"]")).collect();
    let rule = one(&format!("allow: command = [{}]; risk = 'critical'", words.join(", ")));
    let programs: Vec<&str> = REAL[..9].iter().map(|(_, program)| *program).chain(["bash", "dash"]).collect();
    let (mut allowed, mut failed) = (0, Vec::new());
    for _ in 0..count {
        let text = REAL.iter().fold(generator.simple_text(), |text, (stub, real)| text.replace(stub, real));
        if !is_allowed_by(&rule, &text, &judged.workspace) {
            continue;
        }
        allowed += 1;
        for shell in ["bash", "dash"] {
            failed.extend(
                check_run(&text, &programs, &[shell, "-c", &text])
                    .err()
                    .map(|error| format!("{shell}: {error}")),
            );
        }
    }
    println!("{count} texts, {allowed} allowed and run");
    assert!(
        failed.is_empty(),
        "{} of {allowed}\n{}",
        failed.len(),
        failed[..failed.len().min(10)].join("\n\n")
    );
    assert!(allowed * 10 >= count, "only {allowed} of {count} were allowed");
}

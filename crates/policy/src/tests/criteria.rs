use std::os::unix::fs::symlink;
use std::path::Path;

use super::*;

/// A workspace `ws` with a link `out` to the directory beside it and a link `alias.rs` to `src/a.rs`.
fn workspace() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    std::fs::create_dir_all(root.join("ws/src/deep")).unwrap();
    std::fs::create_dir(root.join("beside")).unwrap();
    std::fs::write(root.join("ws/src/a.rs"), "").unwrap();
    std::fs::write(root.join("beside/secret.rs"), "").unwrap();
    symlink(root.join("beside"), root.join("ws/out")).unwrap();
    symlink("a.rs", root.join("ws/src/alias.rs")).unwrap();
    symlink(root.join("beside/new.rs"), root.join("ws/src/dangling.rs")).unwrap();
    (dir, root)
}

/// name, rule, paths, outcome
const PATHS: &[(&str, &str, &[&str], &str)] = &[
    ("a relative path", "allow: path = 'src/**'", &["src/a.rs"], "allow"),
    ("with a dot", "allow: path = 'src/**'", &["./src/./a.rs"], "allow"),
    ("not there yet", "allow: path = 'src/**'", &["src/x/y/new.rs"], "allow"),
    ("an absolute path", "allow: path = 'src/**'", &["{root}/ws/src/a.rs"], "allow"),
    ("an absolute glob", "allow: path = '{root}/ws/src/*.rs'", &["src/a.rs"], "allow"),
    ("one of several globs", "allow: path = ['docs/**', 'src/*.rs']", &["src/a.rs"], "allow"),
    ("all paths match", "allow: path = ['*', 'src/*.rs']", &["src/a.rs", "b"], "allow"),
    ("one path does not match", "allow: path = 'src/*.rs'", &["src/a.rs", "b"], "ask"),
    ("one star stays in its directory", "allow: path = 'src/*'", &["src/deep/b.rs"], "ask"),
    ("no path at all", "allow: path = '**'", &[], "ask"),
    ("a link out of the workspace", "allow: path = '**'", &["out/secret.rs"], "ask"),
    ("a link out, nothing there yet", "allow: path = '**'", &["out/new.rs"], "ask"),
    ("a link to nothing, out", "allow: path = 'src/**'", &["src/dangling.rs"], "ask"),
    ("a link out, no path in the rule", "allow: tool = 'edit'", &["out/secret.rs"], "ask"),
    ("a link out, allowed there", "allow: path = '{root}/beside/**'", &["out/secret.rs"], "allow"),
    ("a link inside, by where it leads", "allow: path = 'src/a.rs'", &["src/alias.rs"], "allow"),
    ("a link inside, by its name", "allow: path = 'src/alias.rs'", &["src/alias.rs"], "ask"),
    ("climbing out", "allow: path = '**'", &["../beside/secret.rs"], "ask"),
    ("climbing and coming back", "allow: path = '**'", &["src/../src/a.rs"], "ask"),
    ("climbing, no path in the rule", "allow: tool = 'edit'", &["src/../src/a.rs"], "ask"),
    ("climbing through nothing", "allow: path = '**'", &["none/../src/a.rs"], "ask"),
    ("outside, no path in the rule", "allow: tool = 'edit'", &["{root}/beside/x"], "ask"),
    ("inside, no path in the rule", "allow: tool = 'edit'", &["src/a.rs"], "allow"),
    ("a name that only begins alike", "allow: path = '**'", &["{root}/ws-other/a"], "ask"),
    ("a look-alike", "allow: path = 'src/a.rs'", &["src/\u{430}.rs"], "ask"),
    ("composed and decomposed", "allow: path = 'é'", &["e\u{301}"], "ask"),
    ("zero width", "allow: path = '**'", &["src/a\u{200b}.rs"], "ask"),
    ("right to left", "allow: path = '**'", &["src/\u{202e}sr.a"], "ask"),
    ("a newline", "allow: path = '**'", &["src/a\nb"], "ask"),
    ("capital letters", "allow: path = 'src/a.rs'", &["src/A.rs"], "ask"),
    ("a tilde", "allow: path = '**'", &["~/x"], "ask"),
    ("a URL", "allow: path = '**'", &["file:///etc/passwd"], "ask"),
    ("an empty path", "allow: path = '**'", &[""], "ask"),
    ("a file as a directory", "allow: path = '**'", &["src/a.rs/x"], "ask"),
    ("any path denies", "deny: path = 'src/**'", &["b", "src/a.rs"], "deny"),
    ("no path denies nothing", "deny: path = '**'", &[], "ask"),
    ("denied where it leads", "deny: path = '{root}/beside/**'", &["out/secret.rs"], "deny"),
    ("denied where it seems to be", "deny: path = 'out/**'", &["out/secret.rs"], "deny"),
    ("denied by climbing too", "deny: path = 'src/**'", &["docs/../src/x"], "deny"),
    ("denied by climbing out", "deny: path = '{root}/beside/**'", &["src/../../beside/x"], "deny"),
    ("denied by another name of it", "deny: path = 'src/a.rs'", &["src/alias.rs"], "deny"),
    ("denied although it cannot be resolved", "deny: path = 'src/a.rs/x'", &["src/a.rs/x"], "deny"),
];

#[test]
fn paths_are_matched_where_they_lead() {
    let (_dir, root) = workspace();
    let real = |text: &str| text.replace("{root}", root.to_str().unwrap());
    for (name, rule, paths, expected) in PATHS {
        let paths: Vec<String> = paths.iter().map(|path| real(path)).collect();
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        let request = touching(&root.join("ws"), "edit", &paths);
        assert_eq!(outcome(&one(&real(rule)), &request), *expected, "{name}: {:?}", request.places());
    }
}

#[test]
fn a_workspace_behind_a_link_is_known_by_both_names() {
    let (_dir, root) = workspace();
    symlink(root.join("ws"), root.join("link")).unwrap();
    let request = touching(&root.join("link"), "edit", &["src/a.rs"]);
    assert!(request.places()[0].inside && !request.places()[0].linked);
    for name in ["link", "ws", "*"] {
        let rule = format!("allow: workspace = '{}/{name}'", root.display());
        assert_eq!(outcome(&one(&rule), &request), "allow", "{name}");
    }
    let rule = format!("allow: workspace = '{}/other/**'", root.display());
    assert_eq!(outcome(&one(&rule), &request), "ask");
}

#[test]
fn without_rules_a_person_is_asked() {
    let request = running("ls");
    let ruling = decide(&Rules::default(), &request, &assess(&request), NOW);
    assert_eq!(ruling.outcome, PolicyOutcome::Ask { whom: vec![] });
    assert_eq!(ruling.rule, None);
    assert_eq!(ruling.why, "no rule matches");
}

#[test]
fn the_first_rule_that_matches_decides() {
    let (_dir, root) = workspace();
    let text = "
        [[rule]]
        name = 'no secrets'
        path = '**/secret*'
        then = 'deny'
        reason = 'ask ana'
        [[rule]]
        path = 'src/deep/**'
        then = 'ask'
        ask = ['ana', '@approver']
        [[rule]]
        path = 'src/**'
        then = 'allow'
        [[rule]]
        then = 'deny'";
    let rules = rules(text);
    let decide = |path: &str| {
        let request = touching(&root.join("ws"), "edit", &[path]);
        decide(&rules, &request, &assess(&request), NOW)
    };
    let denied = decide("src/secret.rs");
    assert_eq!(denied.outcome, PolicyOutcome::Deny { reason: Some("ask ana".to_owned()) });
    assert_eq!(denied.rule, Some((0, "no secrets".to_owned())));
    assert_eq!(denied.why, "no secrets denies it: ask ana");
    let asked = decide("src/deep/b.rs");
    assert_eq!(asked.outcome, PolicyOutcome::Ask { whom: vec!["ana".to_owned(), "@approver".to_owned()] });
    assert_eq!(decide("src/b.rs").outcome, PolicyOutcome::Allow);
    assert_eq!(decide("docs/x").rule, Some((3, "rule 4".to_owned())));
}

#[test]
fn a_rule_ends_when_it_says() {
    let until = |text: &str| outcome(&one(&format!("allow: command = 'ls'; {text}")), &running("ls"));
    assert_eq!(until("until = '2023-11-14T22:13:20Z'"), "ask"); // now
    assert_eq!(until("until = '2023-11-14T22:13:21Z'"), "allow");
    assert_eq!(until("until = '2023-11-15T00:13:21+02:00'"), "allow");
    assert_eq!(until("until = '2020-01-01T00:00:00Z'"), "ask");
    assert_eq!(until("for = '0s'"), "ask");
    assert_eq!(until("for = '1s'"), "allow");
    assert_eq!(until("for = '1s'; until = '2020-01-01T00:00:00Z'"), "ask");
    let rules = one("allow: command = 'ls'; for = '2h'");
    let request = running("ls");
    let later = Time::from_millis(NOW.millis() + 7_200_000);
    assert_eq!(decide(&rules, &request, &assess(&request), later).rule, None);
}

#[test]
fn agents_tools_and_risks_are_matched() {
    let cases = [
        ("allow: agent = 'claude'", "allow"),
        ("allow: agent = ['codex', 'claude']", "allow"),
        ("allow: agent = 'codex'", "ask"),
        ("allow: agent = 'c*'", "ask"),
        ("allow: tool = 'execute'", "allow"),
        ("allow: tool = ['read', 'execute']", "allow"),
        ("allow: tool = 'read'", "ask"),
        ("allow: risk = 'medium'", "allow"),
        ("allow: risk = 'high'", "allow"),
        ("allow: risk = 'low'", "ask"),
        ("allow: risk = ['medium']", "allow"),
        ("allow: risk = ['low', 'high']", "ask"),
        ("deny: risk = ['high', 'critical']", "ask"),
        ("deny: agent = 'claude'; tool = 'execute'; risk = 'critical'", "deny"),
    ];
    for (rule, expected) in cases {
        assert_eq!(outcome(&one(rule), &running("cargo build")), expected, "{rule}");
    }
    let nobody = resolve(PolicyRequest { workspace: "/nowhere/ws".into(), ..PolicyRequest::default() });
    assert_eq!(outcome(&one("deny: agent = 'claude'"), &nobody), "ask");
    assert_eq!(outcome(&one("deny: tool = 'edit'"), &nobody), "ask");
    assert_eq!(outcome(&one("allow: risk = 'medium'"), &nobody), "ask");
    assert_eq!(outcome(&one("allow: risk = 'critical'"), &running("rm -rf /")), "allow");
}

#[test]
fn a_rule_about_commands_does_not_allow_edits_that_come_with_one() {
    let claiming =
        |tool: &str| PolicyRequest { tool: Some(tool.to_owned()), ..running("ls").subject().clone() };
    let rules = one("allow: command = 'ls'");
    assert_eq!(outcome(&rules, &resolve(claiming("read"))), "allow");
    assert_eq!(outcome(&rules, &resolve(claiming("edit"))), "ask");
    assert_eq!(outcome(&one("allow: command = 'ls'; tool = 'edit'"), &resolve(claiming("edit"))), "allow");
}

#[test]
fn the_size_of_a_diff_is_limited() {
    let sized = |diff: Option<&str>, most: usize| {
        let subject = PolicyRequest {
            workspace: "/nowhere/ws".into(),
            tool: Some("edit".to_owned()),
            diff: diff.map(str::to_owned),
            ..PolicyRequest::default()
        };
        outcome(&one(&format!("allow: max_diff_lines = {most}")), &resolve(subject))
    };
    let diff = "--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@\n same\n-old\n+new\n same\n";
    assert_eq!(sized(Some(diff), 2), "allow");
    assert_eq!(sized(Some(diff), 1), "ask");
    assert_eq!(sized(Some("no diff\nbut\ntext"), 3), "allow");
    assert_eq!(sized(Some("no diff\nbut\ntext"), 2), "ask");
    assert_eq!(sized(None, 100), "ask");
}

#[test]
fn a_diff_names_paths_too() {
    let (_dir, root) = workspace();
    let ws = root.join("ws");
    let with = |paths: &[&str], tool: &str, command: Option<&str>, diff: &str| {
        let subject = touching(&ws, tool, paths).subject().clone();
        resolve(PolicyRequest { diff: Some(diff.to_owned()), command: command.map(str::to_owned), ..subject })
    };
    let own = "--- a/src/a.rs\n+++ b/src/a.rs\n@@ -1 +1 @@\n-a\n+b\n";
    let other = format!("{own}--- a/deploy.sh\n+++ b/deploy.sh\n@@ -1 +1 @@\n-a\n+b\n");
    let rules = one("allow: path = 'src/**'");
    assert_eq!(outcome(&rules, &with(&["src/a.rs"], "edit", None, own)), "allow");
    assert_eq!(outcome(&rules, &with(&[], "edit", None, own)), "allow");
    assert_eq!(outcome(&rules, &with(&["src/a.rs"], "edit", None, &other)), "ask");
    assert_eq!(outcome(&rules, &with(&["src/a.rs"], "edit", None, "--- a/src/a.rs\n+++ x\n")), "ask");
    assert_eq!(outcome(&one("allow: tool = 'edit'"), &with(&[], "edit", None, "+++ b/x\n")), "ask");
    assert_eq!(outcome(&one("deny: path = 'deploy.sh'"), &with(&["src/a.rs"], "edit", None, &other)), "deny");
    assert_eq!(outcome(&rules, &with(&["src/a.rs"], "execute", None, own)), "ask");
    let both = one("allow: path = 'src/**'; command = 'ls'; tool = ['execute', 'other']");
    assert_eq!(outcome(&both, &with(&["src/a.rs"], "execute", Some("ls"), own)), "ask");
    assert_eq!(outcome(&both, &with(&["src/a.rs"], "other", Some("ls"), own)), "allow");
    assert_eq!(outcome(&one("allow: command = 'ls'"), &with(&[], "execute", Some("ls"), own)), "ask");
    let paths = PolicyRequest {
        command: Some("ls".to_owned()),
        ..touching(&ws, "execute", &["src/a.rs"]).subject().clone()
    };
    assert_eq!(outcome(&one("allow: command = 'ls'"), &resolve(paths)), "ask");
}

#[test]
fn a_bad_rule_is_refused_with_its_key() {
    let cases = [
        ("then = 'allow'\nworkspace = 'relative'", "workspace"),
        ("then = 'allow'\nworkspace = '/a/../b'", "workspace"),
        ("then = 'allow'\npath = '[a'", "path"),
        ("then = 'allow'\npath = []", "path"),
        ("then = 'allow'\nagent = ''", "agent"),
        ("then = 'allow'\ntool = 'bash'", "tool"),
        ("then = 'allow'\nrisk = []", "risk"),
        ("then = 'allow'\nask = ['ana']", "ask"),
        ("then = 'ask'\nask = ['']", "ask"),
        ("then = 'allow'\nuntil = 'tomorrow'", "until"),
        ("then = 'allow'\nfor = '2'", "for"),
        ("then = 'allow'\nexact = true", "exact"),
        ("then = 'allow'\noptions = 'any'", "options"),
        ("then = 'deny'\ncommand = 'a'\noptions = 'any'", "options"),
        ("then = 'deny'\ncommand = 'a | b'", "command"),
    ];
    for (text, key) in cases {
        assert_eq!(try_rules(&format!("[[rule]]\n{text}")).unwrap_err().key, key, "{text}");
    }
    for text in
        ["then = 'maybe'", "path = '**'", "then = 'allow'\npaht = 'x'", "then = 'allow'\nrisk = 'tiny'"]
    {
        assert!(toml::from_str::<Rule>(text).is_err(), "{text}");
    }
}

#[test]
fn every_rule_is_explained() {
    let rules = rules(
        "
        [[rule]]
        name = 'old'
        until = '2020-01-01T00:00:00Z'
        then = 'allow'
        [[rule]]
        command = 'npm'
        then = 'deny'
        [[rule]]
        command = 'cargo test'
        then = 'allow'
        [[rule]]
        command = 'cargo'
        then = 'allow'
        [[rule]]
        then = 'ask'",
    );
    let request = running("cargo test --config x");
    let explained = explain(&rules, &request, &assess(&request), NOW);
    let line = |e: &RuleEvaluation| match &e.unmet {
        None => format!("{} {:?} matches{}", e.name, e.then, if e.decides { ", decides" } else { "" }),
        Some((key, why)) => format!("{} {:?} {key}: {why}", e.name, e.then),
    };
    let lines: Vec<String> = explained.iter().map(line).collect();
    insta::assert_snapshot!(lines.join("\n"), @r"
    old Allow until: the rule ended at 2020-01-01T00:00:00.000Z
    rule 2 Deny command: no command inside the text begins with these words
    rule 3 Allow command: `--config` goes beyond the rule
    rule 4 Allow command: `--config` goes beyond the rule
    rule 5 Ask matches, decides
    ");
}

#[test]
fn always_allow_proposes_the_narrowest_rule() {
    let (_dir, root) = workspace();
    let ws = root.join("ws");
    let propose = |request: &ResolvedRequest| proposal(request, &assess(request));
    let written = |request: &ResolvedRequest| match propose(request) {
        Ok(rule) => toml::to_string(&rule).unwrap().replace(root.to_str().unwrap(), "ROOT"),
        Err(why) => why,
    };
    insta::assert_snapshot!(written(&touching(&ws, "edit", &["src/a.rs"])), @r#"
    name = "always edit src/a.rs"
    agent = "claude"
    workspace = "ROOT/ws"
    tool = "edit"
    path = "src/a.rs"
    risk = "low"
    then = "allow"
    "#);
    insta::assert_snapshot!(written(&running("timeout 60 cargo test --lib")), @r#"
    name = "always cargo test"
    agent = "claude"
    workspace = "/nowhere/ws"
    tool = "execute"
    command = [["cargo", "test"]]
    risk = "medium"
    then = "allow"
    "#);
    let words = |command: &str| match propose(&running(command)) {
        Ok(rule) => (rule.command, rule.exact),
        Err(why) => panic!("{command}: {why}"),
    };
    let expected = |words: &[&str], exact| {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        (Some(Commands::Any(vec![CommandEntry::Words(words)])), exact)
    };
    assert_eq!(words("npm run build -- --x"), expected(&["npm", "run", "build", "--", "--x"], true));
    assert_eq!(words("npm run build a"), expected(&["npm", "run", "build"], false));
    assert_eq!(words("cargo test --config x"), expected(&["cargo", "test", "--config", "x"], true));
    assert_eq!(words("ls -la src"), expected(&["ls", "-la", "src"], true));
    assert_eq!(words("git push origin main"), expected(&["git", "push", "origin", "main"], true));
    assert_eq!(words("cargo add x"), expected(&["cargo", "add", "x"], true));
    assert_eq!(words("git log 'a b'"), expected(&["git", "log"], false));
}

#[test]
fn what_cannot_be_allowed_safely_is_not_proposed() {
    let (_dir, root) = workspace();
    let ws = root.join("ws");
    let none =
        |request: ResolvedRequest| assert!(proposal(&request, &assess(&request)).is_err(), "{request:?}");
    for command in [
        "cargo test; ls",
        "bash -c ls",
        "sudo ls",
        "rm -rf /",
        "X=1 cargo test",
        "python -c x",
        "cargo test $X",
        "npm exec x",
        "",
    ] {
        none(running(command));
    }
    for paths in [&["out/x"][..], &["../x"], &["/etc/hosts"], &["src/a\u{200b}.rs"], &["."], &[]] {
        none(touching(&ws, "edit", paths));
    }
    none(resolve(PolicyRequest { agent: None, ..running("ls").subject().clone() }));
    none(resolve(PolicyRequest { tool: None, ..touching(&ws, "edit", &["src/a.rs"]).subject().clone() }));
}

#[test]
fn a_proposal_allows_its_request_and_nothing_beside_it() {
    let (_dir, root) = workspace();
    let ws = root.join("ws");
    std::fs::write(ws.join("src/[x]*.rs"), "").unwrap();
    let request = touching(&ws, "edit", &["src/[x]*.rs"]);
    let rules = Rules::compile(vec![proposal(&request, &assess(&request)).unwrap()], |_| NOW).unwrap();
    assert_eq!(outcome(&rules, &request), "allow");
    assert_eq!(outcome(&rules, &touching(&ws, "edit", &["src/x.rs"])), "ask");
    assert_eq!(outcome(&rules, &touching(&ws, "delete", &["src/[x]*.rs"])), "ask");
    assert_eq!(outcome(&rules, &touching(Path::new("/"), "edit", &["src/[x]*.rs"])), "ask");
}

/// tool, command, paths, diff, what the card says about it
type Contradiction =
    (&'static str, Option<&'static str>, &'static [&'static str], Option<&'static str>, Option<&'static str>);

const CONTRADICTIONS: &[Contradiction] = &[
    ("delete", Some("ls"), &[], None, Some("it is called delete, but the command deletes nothing")),
    ("delete", Some("rm a"), &["a"], None, None),
    ("delete", Some("rm a"), &["b"], None, Some("it is called delete, but the command does not name b")),
    ("delete", None, &["b"], Some("--- a/b\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"), None),
    ("delete", None, &["b"], Some("+x\n"), Some("it is called delete, but its diff adds lines")),
    ("move", Some("cat a"), &[], None, Some("it is called move, but the command moves nothing")),
    ("move", Some("git mv a b"), &[], None, None),
    ("edit", Some("cat a"), &[], None, Some("it is called edit, but the command changes nothing")),
    ("edit", Some("sed -i s/a/b/ a"), &["a"], None, None),
    ("read", Some("cat a | head -3"), &["a"], None, None),
    ("read", Some("sed -n '1,20p' a"), &[], None, None),
    ("read", Some("cat a > b"), &[], None, Some("it is called read, but the command does more: cat")),
    (
        "search",
        Some("rg x | xargs rm"),
        &[],
        None,
        Some("it is called search, but the command does more: xargs"),
    ),
    ("read", Some("cat $X `y`"), &[], None, Some("it is called read, but the command does more: y")),
    ("read", None, &["a"], Some("+x\n"), Some("it is called read, but it changes files")),
    ("fetch", Some("curl u"), &[], None, None),
    ("fetch", Some("make"), &[], None, Some("it is called fetch, but the command does more: make")),
    ("switch_mode", Some("ls"), &[], None, Some("it is called switch_mode, but it contains a command")),
    ("execute", Some("rm a"), &["b"], None, None),
];

#[test]
fn facts_that_do_not_fit_together_are_said_and_are_of_high_risk() {
    for (tool, command, paths, diff, expected) in CONTRADICTIONS {
        let request = resolve(PolicyRequest {
            command: command.map(str::to_owned),
            diff: diff.map(str::to_owned),
            ..touching(Path::new("/nowhere/ws"), tool, paths).subject().clone()
        });
        let assessment = assess(&request);
        let said = assessment.reasons.iter().find_map(|why| why.strip_prefix(CONTRADICTION));
        assert_eq!(said, *expected, "{tool} {command:?} {assessment:?}");
        if expected.is_some() {
            assert!(assessment.risk >= intercom_types::Risk::High, "{tool} {command:?}");
            assert!(
                assessment.reasons[0].starts_with(CONTRADICTION) && assessment.reasons[0].len() <= 80,
                "{assessment:?}"
            );
        }
    }
}

#[test]
fn all_facts_must_be_allowed_and_any_denies() {
    let (_dir, root) = workspace();
    let ws = root.join("ws");
    let with = |tool: &str, command: Option<&str>, paths: &[&str], diff: Option<&str>| {
        let subject = touching(&ws, tool, paths).subject().clone();
        resolve(PolicyRequest {
            command: command.map(str::to_owned),
            diff: diff.map(str::to_owned),
            ..subject
        })
    };
    let cases = [
        ("allow: command = 'ls'", with("delete", Some("ls"), &[], None), "ask"),
        ("allow: command = 'ls'", with("fetch", Some("ls"), &[], None), "ask"),
        ("allow: command = 'ls'", with("switch_mode", Some("ls"), &[], None), "ask"),
        ("allow: command = 'ls'", with("search", Some("ls"), &[], None), "allow"),
        ("allow: command = 'ls'", with("execute", Some("ls src"), &["src"], None), "allow"),
        ("allow: command = 'ls'", with("execute", Some("ls"), &["src"], None), "ask"),
        ("allow: tool = 'read'", with("read", Some("ls"), &[], None), "ask"),
        ("allow: tool = 'read'", with("read", None, &["src/a.rs"], Some("+x\n")), "ask"),
        ("allow: tool = 'read'", with("read", None, &["src/a.rs"], None), "allow"),
        ("deny: tool = 'execute'", with("read", Some("ls"), &[], None), "deny"),
        ("deny: tool = 'edit'", with("read", None, &[], Some("+x\n")), "deny"),
        ("deny: tool = 'read'", with("read", Some("ls"), &[], None), "deny"),
        ("deny: tool = 'edit'", with("delete", Some("ls"), &[], Some("-x\n")), "ask"),
        ("deny: path = 'src/**'", with("execute", Some("cat src/a.rs"), &[], None), "deny"),
        ("deny: path = 'src/**'", with("execute", Some("cat < src/a.rs"), &[], None), "deny"),
        ("deny: path = 'src/**'", with("execute", Some("echo x >src/new"), &[], None), "deny"),
        ("deny: path = 'src/**'", with("execute", Some("cd src && cat a.rs"), &[], None), "deny"),
        ("deny: path = 'src/**'", with("execute", Some("git show HEAD:src/a.rs"), &[], None), "deny"),
        ("deny: path = 'src/**'", with("execute", Some("cat src/alias.rs"), &[], None), "deny"),
        ("deny: path = 'src/a.rs'", with("execute", Some("cat src/alias.rs"), &[], None), "deny"),
        ("deny: path = 'src/**'", with("execute", Some("cargo test"), &[], None), "ask"),
        (
            "deny: path = 'zz'",
            with(
                "execute",
                Some(&format!("ls {}", (0..3000).map(|n| n.to_string()).collect::<Vec<_>>().join(" "))),
                &[],
                None,
            ),
            "deny",
        ),
    ];
    for (rule, request, expected) in cases {
        assert_eq!(outcome(&one(rule), &request), expected, "{rule} {:?}", request.subject());
    }
}

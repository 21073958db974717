//! The shell reader: commands that must stay readable, and commands that hide others.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::*;

/// Commands of every day; `␤` stands for the end of a line.
fn ordinary() -> Vec<String> {
    let lines = include_str!("data/ordinary.txt").lines();
    lines
        .filter(|line| !line.starts_with("##") && !line.is_empty())
        .map(|line| line.replace('␤', "\n"))
        .collect()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Launch {
    text: String,
    #[serde(default)]
    runs: bool,
}

fn launches() -> Vec<Launch> {
    #[derive(Deserialize)]
    struct File {
        launch: Vec<Launch>,
    }
    toml::from_str::<File>(include_str!("data/launches.toml")).unwrap().launch
}

#[test]
fn ordinary_commands_are_readable() {
    let commands = ordinary();
    assert!(commands.iter().collect::<BTreeSet<_>>().len() >= 700, "{}", commands.len());
    let unreadable: Vec<_> =
        commands.iter().filter_map(|command| Some((command, read_command(command).unreadable?))).collect();
    assert!(unreadable.is_empty(), "{unreadable:#?}");
    // A rule against something else leaves them alone.
    let rule = one("deny: command = 'victim'");
    for command in &commands {
        assert_eq!(outcome(&rule, &running(command)), "ask", "{command}");
    }
}

#[test]
fn a_comment_hides_no_command() {
    let text = "ls # it's\nrm -rf precious # isn't";
    assert_eq!(read_command(text).programs, ["ls", "rm"]);
    assert_eq!(outcome(&one("deny: command = 'rm -rf'"), &running(text)), "deny");
    assert_eq!(assess(&running(text)).computed, intercom_types::Risk::High);
}

#[test]
fn an_unreadable_text_is_high_and_meant_by_every_deny_rule_and_no_allow_rule() {
    for text in
        ["$X y", "ls 'x", "eval \"$X\"", "ls\r\nrm x", "python3 -c x", "x=rm; $x y", "a\0b", "ls\u{a0}x"]
    {
        assert!(read_command(text).unreadable.is_some(), "{text:?}");
        assert!(assess(&running(text)).computed >= intercom_types::Risk::High, "{text:?}");
        assert_eq!(outcome(&one("deny: command = 'never-named'"), &running(text)), "deny", "{text:?}");
        assert_eq!(outcome(&one("ask: command = 'never-named'"), &running(text)), "ask", "{text:?}");
        for rule in [
            "allow: tool = 'execute'",
            "allow: risk = 'critical'",
            "allow: command = 'ls'; risk = 'critical'",
        ] {
            assert_eq!(outcome(&one(rule), &running(text)), "ask", "{text:?}");
        }
    }
}

#[test]
fn a_deny_rule_sees_the_commands_that_other_programs_take() {
    let launches = launches();
    assert!(launches.len() >= 250);
    let rule = one("deny: command = 'victim'");
    let missed: Vec<_> = launches
        .iter()
        .filter(|launch| outcome(&rule, &running(&launch.text)) != "deny")
        .map(|launch| (&launch.text, read_command(&launch.text)))
        .collect();
    assert!(missed.is_empty(), "{missed:#?}");
}

/// Otherwise the table would prove nothing.
#[test]
fn the_commands_that_other_programs_take_are_run_by_them() {
    let directory = tempfile::tempdir().unwrap();
    let stubs = directory.path().join("stubs");
    std::fs::create_dir(&stubs).unwrap();
    std::fs::write(stubs.join("victim"), "#!/bin/sh\necho x >>\"${0%/bin/*}/log\"\n").unwrap();
    std::fs::set_permissions(stubs.join("victim"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let launches: Vec<Launch> = launches().into_iter().filter(|launch| launch.runs).collect();
    assert!(launches.len() >= 150);
    let run = |n: usize, text: &str| {
        let home = directory.path().join(n.to_string());
        std::fs::create_dir_all(home.join("work")).unwrap();
        std::os::unix::fs::symlink("../stubs", home.join("bin")).unwrap();
        takes_effect(&home, text)
    };
    let without_effect: Vec<&str> = launches
        .iter()
        .enumerate()
        .filter(|(n, launch)| !run(*n, &launch.text))
        .map(|(_, launch)| launch.text.as_str())
        .collect();
    assert!(without_effect.is_empty(), "no effect: {without_effect:#?}");
}

/// Runs a text with the tools of the machine and the stub.
fn takes_effect(home: &Path, text: &str) -> bool {
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", home.join("bin").display());
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", "20", "/bin/bash", "-c", text]).current_dir(home.join("work"));
    command.env_clear().env("PATH", path).env("HOME", home).env("GIT_CONFIG_NOSYSTEM", "1");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().unwrap();
    home.join("log").exists()
}

/// Keys that the table knows; serde cannot refuse others in tables that it flattens.
#[test]
fn the_table_of_programs_has_no_unknown_keys() {
    const KEYS: &[&str] = &[
        "names",
        "kind",
        "markers",
        "safe",
        "subcommand",
        "texts",
        "code",
        "scripts",
        "programs",
        "settings",
        "running_settings",
        "harmless_settings",
        "alias_settings",
        "leading_settings",
        "valued",
        "placeholders",
        "after",
        "operands",
        "skip",
        "requires_command",
        "assignments",
        "appends",
        "bare_cluster",
        "escapes",
        "input",
        "own_files",
        "expands_variables",
    ];
    let table: toml::Table = toml::from_str(include_str!("../programs.toml")).unwrap();
    let rows = table["program"].as_array().unwrap();
    let mut names = BTreeSet::new();
    for row in rows {
        let row = row.as_table().unwrap();
        let subcommands = row.get("subcommand").and_then(toml::Value::as_array);
        let tables = subcommands.into_iter().flatten().filter_map(toml::Value::as_table).chain([row]);
        for key in tables.flat_map(toml::Table::keys) {
            assert!(KEYS.contains(&key.as_str()), "{key} in {row:?}");
        }
        for name in row["names"].as_array().unwrap() {
            let name = name.as_str().unwrap();
            assert!(names.insert(name.to_owned()), "{name} stands in two rows");
            assert_eq!(programs::base(name), name, "the table is searched by base names");
            assert!(programs::program(name).is_some());
        }
    }
}

#[test]
fn reading_is_linear() {
    let started = std::time::Instant::now();
    for piece in [
        "$(",
        "`",
        "${x:-",
        "((",
        "[[ ",
        "case x in ",
        "<<E\n",
        "$((",
        "a=(",
        "{a,",
        "\\\n",
        "# '\n",
        "f() { ",
        "eval '",
        "sh -c \"",
        "x='a[$(b)]';",
        "echo $x;",
        "<(",
        "\"$(",
        "awk '",
        "find . -exec ",
        "xargs ",
        "env ",
        "coproc ",
        "[[ a && ",
        "cat <<E\n$(a)\nE\n",
        "((a))\n",
        "trap 'a' EXIT;",
        "$'\\x41'",
        "!",
        "a|",
        "s/",
        "sudo ",
    ] {
        let text = piece.repeat(words::MAX_BYTES / piece.len());
        read_command(&text);
        read_command(&format!("sh -c '{}'", &text[..text.len().min(60_000)].replace('\'', "")));
    }
    // Half a second for each text, on a machine under load.
    assert!(started.elapsed() < std::time::Duration::from_secs(33), "{:?}", started.elapsed());
}

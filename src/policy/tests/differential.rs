//! The reader against real shells: every program that a text makes bash or dash execute was reported, or the text was
//! called unreadable.
//!
//! `INTERCOM_SHELL_TEXTS` sets the number of texts, `INTERCOM_SHELL_SEED` the seed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::policy::shell;

mod generator;

use generator::{Generator, STUBS};

const SHELLS: &[&str] = &["bash", "dash"];
/// Processes that run texts at the same time.
const WORKERS: usize = 4;
/// The share of texts that must be readable: a reader that calls everything unreadable proves nothing.
const MIN_READABLE_PERCENT: usize = 35;

/// Runs the texts from `$1` up to `$2` by the shell `$3`; each finds stubs only, and leaves their names in a log.
const DRIVER: &str = r#"
ulimit -t 5 -f 2048 -c 0
i=$1
while [ "$i" -lt "$2" ]; do
    cd "$ROOT/$3/$i" || exit 3
    if [ $((i % 2)) = 0 ]; then
        text=$(<../../texts/$i)
        PATH=$PWD/bin HOME=$PWD /usr/bin/timeout -s KILL 2 "/bin/$3" -c "$text" </dev/null >/dev/null 2>&1
    else
        PATH=$PWD/bin HOME=$PWD /usr/bin/timeout -s KILL 2 "/bin/$3" "../../texts/$i" </dev/null >/dev/null 2>&1
    fi
    i=$((i + 1))
done
"#;

fn number(variable: &str, otherwise: usize) -> usize {
    std::env::var(variable).ok().map_or(otherwise, |text| text.parse().unwrap())
}

/// Stub programs that append their name to the log beside the directory that they were found in.
fn write_stubs(directory: &Path) {
    fs::create_dir_all(directory).unwrap();
    for n in 0..STUBS {
        let file = directory.join(format!("s{n}"));
        let other = (n + 1) % STUBS;
        let text = format!(
            "#!/bin/dash\necho \"${{0##*/}}\" >>\"${{0%/bin/*}}/log\"\necho s{other}\nexit {}\n",
            n % 2
        );
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

/// A command in namespaces of its own, where the machine permits them: without network, and with processes that end
/// with it.
fn confined() -> Command {
    let namespaces =
        ["--user", "--map-root-user", "--net", "--pid", "--mount", "--ipc", "--fork", "--kill-child"];
    let probe = Command::new("unshare").args(namespaces).arg("true").stderr(Stdio::null()).status();
    if probe.is_ok_and(|status| status.success()) {
        let mut command = Command::new("unshare");
        command.args(namespaces).arg("/bin/bash");
        return command;
    }
    Command::new("/bin/bash")
}

/// Runs all texts by all shells.
fn run(root: &Path, texts: &[String]) {
    fs::create_dir(root.join("texts")).unwrap();
    write_stubs(&root.join("stubs"));
    for (n, text) in texts.iter().enumerate() {
        fs::write(root.join(format!("texts/{n}")), text).unwrap();
        for shell in SHELLS {
            let directory = root.join(format!("{shell}/{n}"));
            fs::create_dir_all(&directory).unwrap();
            symlink("../../stubs", directory.join("bin")).unwrap();
        }
    }
    fs::write(root.join("driver"), DRIVER).unwrap();
    let size = texts.len().div_ceil(WORKERS);
    let mut children = Vec::new();
    for shell in SHELLS {
        assert!(Path::new("/bin").join(shell).exists(), "{shell} is missing: install it");
        for from in (0..texts.len()).step_by(size) {
            let to = (from + size).min(texts.len());
            let mut command = confined();
            command.arg(root.join("driver")).args([from.to_string(), to.to_string(), (*shell).to_owned()]);
            command.env_clear().env("ROOT", root).env("PATH", "/usr/bin:/bin").stderr(Stdio::null());
            children.push(command.spawn().unwrap());
        }
    }
    for mut child in children {
        assert!(child.wait().unwrap().success(), "the driver failed");
    }
}

/// The names of the programs that were executed.
fn executed(root: &Path, shell: &str, n: usize) -> BTreeSet<String> {
    let log = fs::read_to_string(root.join(format!("{shell}/{n}/log"))).unwrap_or_default();
    log.lines().map(str::to_owned).collect()
}

#[test]
#[expect(clippy::print_stdout, reason = "the share of readable texts is a result")]
fn every_program_that_a_shell_executes_was_seen_by_the_reader() {
    let count = number("INTERCOM_SHELL_TEXTS", 1000);
    let mut generator = Generator::new(number("INTERCOM_SHELL_SEED", 1) as u64);
    let texts: Vec<String> = (0..count).map(|_| generator.text()).collect();
    let directory = tempfile::tempdir().unwrap();
    run(directory.path(), &texts);
    let (mut readable, mut effective, mut missed) = (0, 0, Vec::new());
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for (n, text) in texts.iter().enumerate() {
        let script = shell::read(text);
        let programs = script.programs();
        readable += usize::from(!script.opaque);
        *reasons.entry(script.reason.unwrap_or("readable")).or_default() += 1;
        for shell in SHELLS {
            let executed = executed(directory.path(), shell, n);
            effective += usize::from(!executed.is_empty() && !script.opaque);
            let unseen: Vec<_> = executed.iter().filter(|name| !programs.contains(name)).collect();
            if !script.opaque && !unseen.is_empty() {
                missed.push(format!("{shell} executed {unseen:?}, read {programs:?}:\n{text:?}"));
            }
        }
    }
    println!("{reasons:#?}");
    println!(
        "{count} texts, {readable} readable, {effective} runs of readable texts with effect, {} missed",
        missed.len()
    );
    assert!(missed.is_empty(), "{} missed\n{}", missed.len(), missed[..missed.len().min(10)].join("\n\n"));
    assert!(readable * 100 >= count * MIN_READABLE_PERCENT, "only {readable} of {count} are readable");
    assert!(effective * 4 >= count, "only {effective} readable runs of {count} texts had an effect");
}

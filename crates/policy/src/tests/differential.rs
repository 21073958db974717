//! The reader against real shells: every program that a text makes bash or dash execute was reported, or the text was
//! called unreadable.
//!
//! `INTERCOM_SHELL_TEXTS` sets the number of texts, `INTERCOM_SHELL_SEED` the seed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::shell;

pub(super) mod generator;

use generator::{Generator, STUBS};

const SHELLS: &[&str] = &["bash", "dash"];
/// Processes that run texts at the same time.
const WORKERS: usize = 4;
/// The share of texts that must be readable: a reader that calls everything unreadable proves nothing.
const MIN_READABLE_PERCENT: usize = 35;

/// The longest time that one worker may take for one text, on a machine that does other work as well.
const SECONDS_PER_TEXT: usize = 5;

/// Runs the texts from `$1` up to `$2` by the shell `$3`; each finds stubs only, and leaves their names in a log.
///
/// The driver is the first process of a PID namespace. After each text it gives the others of that namespace a moment to
/// end, since a text may have put a program into the background, and then kills them: an endless loop would otherwise run
/// beside all later texts.
const DRIVER: &str = r#"
[ $$ = 1 ] || exit 4
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
    tries=0
    while [ $tries -lt 20 ] && kill -0 -1 2>/dev/null; do /bin/sleep 0.01; tries=$((tries + 1)); done
    kill -KILL -1 2>/dev/null
    i=$((i + 1))
done
"#;

pub(super) fn number(variable: &str, otherwise: usize) -> usize {
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

/// Returns bash in namespaces of its own: without network, and with processes that end with it.
///
/// Nothing outlives the test: the kernel ends the namespace with its first process, that process with `unshare`, and
/// `unshare` with the thread that started it (also if that is killed) or after `seconds`.
fn confined_bash(seconds: usize) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "timeout", "-s", "KILL", &seconds.to_string()]);
    command.args(["setpriv", "--pdeathsig", "KILL", "unshare", "--user", "--map-root-user", "--net"]);
    command.args(["--pid", "--mount", "--ipc", "--fork", "--kill-child", "/bin/bash"]);
    command
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
            let mut command = confined_bash(60 + (to - from) * SECONDS_PER_TEXT);
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

/// The processes that work in a directory below `root`.
fn processes_below(root: &Path) -> Vec<String> {
    let is_below =
        |entry: &fs::DirEntry| fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(root));
    let entries = fs::read_dir("/proc").unwrap().map_while(Result::ok);
    entries.filter(is_below).map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn endless_loops_of_a_text_end_with_it() {
    let directory = tempfile::tempdir().unwrap();
    let endless = "until s1; do :; done & s2\n(trap '' TERM HUP; while :; do s4; done) &\n";
    // A worker runs two texts in a row.
    let texts = [endless, "while s8; do :; done", "s0 & s3", "s6", "s5"].map(str::to_owned);
    run(directory.path(), &texts);
    for shell in SHELLS {
        let executed = |n| executed(directory.path(), shell, n).into_iter().collect::<Vec<_>>();
        let all: Vec<_> = (0..texts.len()).map(executed).collect();
        assert_eq!(
            all,
            [vec!["s1", "s2", "s4"], vec!["s8"], vec!["s0", "s3"], vec!["s6"], vec!["s5"]],
            "{shell}"
        );
        // The second text runs until its time is over, which is two seconds; the loops of the first do not run beside it.
        let changed = |n: usize| {
            let log = directory.path().join(format!("{shell}/{n}/log"));
            log.metadata().unwrap().modified().unwrap()
        };
        let apart = changed(1).duration_since(changed(0)).unwrap_or_default();
        assert!(apart > Duration::from_secs(1), "{shell}: {apart:?}");
    }
    assert_eq!(processes_below(directory.path()), Vec::<String>::new());
}

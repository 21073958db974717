//! The agents that everybody knows: which are installed, whether Node is new enough for them, and who has logged in.
//! Of variables and files only that they are there is looked at.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use super::{Check, find};
use crate::config::{Config, FETCHER, KNOWN, Known};

/// Asking for its version takes it a fraction of a second.
const NODE_ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// What is on this machine.
struct Machine<'a> {
    program: &'a dyn Fn(&str) -> Option<PathBuf>,
    node: Option<Node>,
    is_set: &'a dyn Fn(&str) -> bool,
    home: Option<PathBuf>,
}

#[derive(Debug)]
struct Node {
    program: PathBuf,
    /// As it says it, such as `v22.1.0`.
    version: Option<String>,
}

impl Node {
    fn major(&self) -> Option<u32> {
        self.version.as_deref()?.strip_prefix('v')?.split('.').next()?.parse().ok()
    }
}

pub(in crate::cli) async fn known(config: &Config) -> Vec<Check> {
    let path = std::env::var_os("PATH");
    let program = |name: &str| find(Path::new(name), path.as_deref());
    let node = match program("node") {
        Some(program) => Some(Node { version: version(&program).await, program }),
        None => None,
    };
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let home = std::env::var_os("HOME").map(PathBuf::from);
    report(config, &Machine { program: &program, node, is_set: &is_set, home })
}

async fn version(node: &Path) -> Option<String> {
    let mut command = tokio::process::Command::new(node);
    command.arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let ran = tokio::time::timeout(NODE_ANSWERS_WITHIN, command.output()).await.ok()?.ok()?;
    Some(String::from_utf8(ran.stdout).ok()?.lines().next()?.trim().to_owned())
}

fn report(config: &Config, machine: &Machine) -> Vec<Check> {
    // A profile of the same name has a check of its own.
    let ours = KNOWN.iter().filter(|known| !config.agents.contains_key(known.name));
    let (installed, others): (Vec<_>, Vec<_>) =
        ours.map(|known| (known, (machine.program)(known.command))).partition(|(_, found)| found.is_some());
    let mut checks: Vec<Check> = Vec::new();
    let names: Vec<&Known> = installed.iter().map(|(known, _)| *known).collect();
    checks.push(node(machine, &names));
    for (known, found) in installed {
        let found = found.unwrap_or_default().display().to_string();
        checks.push(login(known, &found, machine));
    }
    let others: Vec<&Known> = others.into_iter().map(|(known, _)| known).collect();
    checks.extend(absent(&others, (machine.program)(FETCHER).is_some()));
    checks
}

/// A warning only if an agent that is installed cannot run.
fn node(machine: &Machine, installed: &[&Known]) -> Check {
    let wants = |known: &&&Known| known.node.is_some();
    let Some(node) = &machine.node else {
        let stuck: Vec<&str> = installed.iter().filter(wants).map(|known| known.name).collect();
        return if stuck.is_empty() {
            Check::ok("node", "none; some agents need it")
        } else {
            Check::warning("node", format!("none, and {} cannot run", stuck.join(", ")), "install Node.js")
        };
    };
    let place = node.program.display();
    let Some(major) = node.major() else {
        return Check::warning("node", format!("{place} does not say its version"), "try `node --version`");
    };
    let detail = format!("{}, {place}", node.version.as_deref().unwrap_or_default());
    let newer: Vec<&Known> =
        KNOWN.iter().filter(|known| known.node.is_some_and(|least| least > major)).collect();
    let Some(least) = newer.iter().filter_map(|known| known.node).max() else {
        return Check::ok("node", detail);
    };
    let names: Vec<&str> = newer.iter().map(|known| known.name).collect();
    let detail = format!("{detail}; too old for {}", names.join(", "));
    if newer.iter().any(|known| installed.iter().any(|other| other.name == known.name)) {
        Check::warning("node", detail, format!("install Node.js {least} or later"))
    } else {
        Check::ok("node", detail)
    }
}

fn login(known: &Known, found: &str, machine: &Machine) -> Check {
    let name = format!("agent {}", known.name);
    let key = known.keys.iter().find(|key| (machine.is_set)(key)).map(|key| format!("{key} is set"));
    let file = || {
        let home = machine.home.as_ref()?;
        let file = known.credentials.iter().find(|file| home.join(file).exists())?;
        Some(format!("~/{file} is there"))
    };
    match key.or_else(file) {
        Some(how) => Check::ok(&name, format!("{found}; {how}")),
        None if known.credentials.is_empty() => Check::ok(
            &name,
            format!("{found}; whether it is logged in is not seen from here: {}", known.login),
        ),
        None => Check::warning(&name, format!("{found}; no log-in was found"), known.login),
    }
}

/// One quiet line for all of them.
fn absent(others: &[&Known], can_fetch: bool) -> Option<Check> {
    let (fetched, missing): (Vec<&Known>, Vec<&Known>) =
        others.iter().partition(|known| can_fetch && known.package.is_some());
    let list = |agents: &[&Known]| agents.iter().map(|known| known.name).collect::<Vec<_>>().join(", ");
    let mut parts = Vec::new();
    if !fetched.is_empty() {
        parts.push(format!("fetched by {FETCHER} when started: {}", list(&fetched)));
    }
    if !missing.is_empty() {
        parts.push(format!("not installed: {}", list(&missing)));
    }
    (!parts.is_empty()).then(|| Check::ok("other agents", parts.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::super::Status;
    use super::*;

    fn checks(programs: &[&str], node: Option<&str>, set: &[&str], home: Option<&Path>) -> Vec<Check> {
        let program = |name: &str| programs.contains(&name).then(|| Path::new("/bin").join(name));
        let node =
            node.map(|version| Node { program: "/bin/node".into(), version: Some(version.to_owned()) });
        let is_set = |name: &str| set.contains(&name);
        let machine = Machine { program: &program, node, is_set: &is_set, home: home.map(Path::to_owned) };
        report(&Config::default(), &machine)
    }

    fn lines(checks: &[Check]) -> Vec<String> {
        let line = |check: &Check| format!("{:?} {}: {}", check.status, check.name, check.detail);
        checks.iter().map(line).collect()
    }

    #[test]
    fn with_nothing_installed_there_is_nothing_to_warn_of() {
        let checks = checks(&[], None, &[], None);
        assert!(checks.iter().all(|check| check.status == Status::Ok), "{:?}", lines(&checks));
        assert_eq!(
            lines(&checks),
            [
                "Ok node: none; some agents need it",
                "Ok other agents: not installed: claude, codex, copilot, cursor, gemini, goose, kimi, opencode, qwen, vibe",
            ]
        );
    }

    #[test]
    fn an_agent_that_nobody_logged_in_to_is_a_warning_with_what_to_do() {
        let found = checks(&["claude-agent-acp", "npx"], Some("v22.3.0"), &[], None);
        assert_eq!(
            lines(&found),
            [
                "Ok node: v22.3.0, /bin/node",
                "Warning agent claude: /bin/claude-agent-acp; no log-in was found",
                "Ok other agents: fetched by npx when started: codex, copilot, gemini, opencode, qwen; \
                 not installed: cursor, goose, kimi, vibe",
            ]
        );
        assert!(found[1].hint.as_ref().unwrap().contains("ANTHROPIC_API_KEY"));
        let with_key = checks(&["claude-agent-acp"], Some("v22.3.0"), &["ANTHROPIC_API_KEY"], None);
        assert_eq!(lines(&with_key)[1], "Ok agent claude: /bin/claude-agent-acp; ANTHROPIC_API_KEY is set");
    }

    #[test]
    fn that_the_credentials_are_there_is_enough() {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join(".codex")).unwrap();
        std::fs::write(home.path().join(".codex/auth.json"), "").unwrap();
        let found = checks(&["codex-acp"], Some("v22.3.0"), &[], Some(home.path()));
        assert_eq!(lines(&found)[1], "Ok agent codex: /bin/codex-acp; ~/.codex/auth.json is there");
    }

    #[test]
    fn an_old_node_is_a_warning_only_if_somebody_needs_a_newer_one() {
        let old = "node: v20.1.0, /bin/node; too old for claude, copilot, qwen";
        assert_eq!(lines(&checks(&[], Some("v20.1.0"), &[], None))[0], format!("Ok {old}"));
        let needed = checks(&["claude-agent-acp"], Some("v20.1.0"), &[], None);
        assert_eq!(lines(&needed)[0], format!("Warning {old}"));
        assert_eq!(needed[0].hint.as_deref(), Some("install Node.js 22 or later"));
        let none = checks(&["claude-agent-acp"], None, &[], None);
        assert_eq!(lines(&none)[0], "Warning node: none, and claude cannot run");
        let odd = checks(&[], Some("deno"), &[], None);
        assert_eq!(lines(&odd)[0], "Warning node: /bin/node does not say its version");
    }
}

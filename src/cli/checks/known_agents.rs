//! The well-known agents: whether they are installed, whether Node is new enough, and whether they have a log-in. Only
//! the existence of variables and files is checked, never their content.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use super::{Check, CheckStatus, configured_agents, find};
use crate::cli::daemon::InstalledService;
use crate::cli::daemon_info::DaemonInfo;
use crate::cli::{CliContext, shell_variables};
use intercom_daemon::config::{AGENT_CATALOG, CatalogAgent, Config, FETCHER};

/// The time limit for Node's version, which takes it a fraction of a second.
const NODE_ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// The programs and variables of this machine.
pub(super) struct LocalMachine<'a> {
    pub(super) program: &'a dyn Fn(&str) -> Option<PathBuf>,
    pub(super) node: Option<NodeInstallation>,
    /// Returns true if agents can get this variable: it is the daemon's, or this shell's without a daemon.
    pub(super) is_set: &'a dyn Fn(&str) -> bool,
    /// Returns true if this shell has this variable.
    pub(super) is_set_here: &'a dyn Fn(&str) -> bool,
    /// True if the daemon is run by a service manager.
    pub(super) is_service: bool,
    pub(super) home: Option<PathBuf>,
}

impl LocalMachine<'_> {
    /// Returns the ways to log in that work here.
    fn advice(&self, known: &CatalogAgent) -> String {
        known.login.advice(|program| (self.program)(program).is_some())
    }

    /// Returns a sentence about variables that are set here and not in the daemon, and the remedy.
    pub(super) fn not_in_daemon(&self, names: &[&str]) -> (String, String) {
        let command = shell_variables::restart_command(names, self.is_service);
        (shell_variables::daemon_lacks(names), format!("`{command}`"))
    }
}

#[derive(Debug)]
pub(super) struct NodeInstallation {
    program: PathBuf,
    /// The version in Node's own format, such as `v22.1.0`.
    pub(super) version: Option<String>,
}

impl NodeInstallation {
    /// Returns the major and the minor version.
    pub(super) fn number(&self) -> Option<(u32, u32)> {
        let mut parts = self.version.as_deref()?.strip_prefix('v')?.split('.');
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    }
}

/// Checks the configured and the well-known agents. The variables of the running daemon count, and those of this shell
/// only without a daemon.
pub(in crate::cli) async fn agents(
    config: &Config,
    daemon: Option<&DaemonInfo>,
    cx: &CliContext,
) -> Vec<Check> {
    let path = std::env::var_os("PATH");
    let program = |name: &str| find(Path::new(name), path.as_deref());
    let node = match program("node") {
        Some(program) => Some(NodeInstallation { version: version(&program).await, program }),
        None => None,
    };
    let variables = daemon.and_then(DaemonInfo::environment);
    let is_set_here = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_set = |name: &str| match &variables {
        Some(variables) => shell_variables::value(variables, name).is_some(),
        None => is_set_here(name),
    };
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let is_service = InstalledService::installed(cx).is_some();
    let machine = LocalMachine {
        program: &program,
        node,
        is_set: &is_set,
        is_set_here: &is_set_here,
        is_service,
        home,
    };
    let mut checks = configured_agents::checks(config, path.as_deref(), &machine);
    checks.extend(report(config, &machine));
    checks
}

async fn version(node: &Path) -> Option<String> {
    let mut command = tokio::process::Command::new(node);
    command.arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let ran = tokio::time::timeout(NODE_ANSWERS_WITHIN, command.output()).await.ok()?.ok()?;
    Some(String::from_utf8(ran.stdout).ok()?.lines().next()?.trim().to_owned())
}

fn report(config: &Config, machine: &LocalMachine) -> Vec<Check> {
    // A configured profile of the same name has a check of its own.
    let ours: Vec<&CatalogAgent> =
        AGENT_CATALOG.iter().filter(|known| !config.agents.contains_key(known.name)).collect();
    let can_fetch = (machine.program)(FETCHER).is_some();
    let (mut agents, mut missing, mut strangers) = (Vec::new(), Vec::new(), Vec::new());
    let mut on_node = Vec::new();
    for known in ours {
        let installed = (machine.program)(known.command);
        let place = match &installed {
            Some(program) => program.display().to_string(),
            None if can_fetch && known.package.is_some() => format!("fetched by {FETCHER} when started"),
            None => {
                missing.push(known.name);
                continue;
            }
        };
        if installed.as_deref().is_none_or(is_for_node) && known.node.is_some() {
            on_node.push(known);
        }
        match login(known, machine) {
            VisibleLogin::Found(how) => agents.push(Check::ok(&of(known), format!("{place}; {how}"))),
            VisibleLogin::Unseen => agents.push(Check::ok(
                &of(known),
                format!("{place}; its log-in cannot be checked: {}", machine.advice(known)),
            )),
            VisibleLogin::Partly(why) => {
                agents.push(Check::warning(&of(known), format!("{place}; {why}"), machine.advice(known)));
            }
            VisibleLogin::NotInDaemon(names) => {
                let (why, hint) = machine.not_in_daemon(&names);
                agents.push(Check::warning(&of(known), format!("{place}; {why}"), hint));
            }
            VisibleLogin::None if installed.is_some() => {
                let detail = format!("{place}; no log-in was found");
                agents.push(Check::warning(&of(known), detail, machine.advice(known)));
            }
            VisibleLogin::None => strangers.push(known),
        }
    }
    let ready = agents.iter().any(|check| check.status == CheckStatus::Ok);
    let mut checks = vec![node(machine, &on_node)];
    checks.extend(agents);
    let strangers: Vec<_> = strangers.into_iter().map(|known| (known.name, machine.advice(known))).collect();
    checks.extend(others(&strangers, &missing, ready));
    checks
}

fn of(known: &CatalogAgent) -> String {
    format!("agent {}", known.name)
}

/// Returns true for a script, which runs on Node, by itself or through a version manager; a binary needs no Node.
fn is_for_node(program: &Path) -> bool {
    let mut begin = [0; 2];
    let read = std::fs::File::open(program).and_then(|mut file| file.read_exact(&mut begin));
    read.is_err() || begin == *b"#!"
}

/// Returns a warning if an agent that can be started cannot run.
fn node(machine: &LocalMachine, agents: &[&CatalogAgent]) -> Check {
    let names =
        |agents: &[&CatalogAgent]| agents.iter().map(|known| known.name).collect::<Vec<_>>().join(", ");
    let Some(node) = &machine.node else {
        return if agents.is_empty() {
            Check::ok("node", "none; some agents need it")
        } else {
            Check::warning("node", format!("none, and {} cannot run", names(agents)), "install Node.js")
        };
    };
    let place = node.program.display();
    let Some(number) = node.number() else {
        return Check::warning("node", format!("{place} does not say its version"), "try `node --version`");
    };
    let detail = format!("{}, {place}", node.version.as_deref().unwrap_or_default());
    let is_newer = |known: &&CatalogAgent| known.node.is_some_and(|least| least > number);
    let newer: Vec<&CatalogAgent> = AGENT_CATALOG.iter().filter(is_newer).collect();
    let detail = if newer.is_empty() { detail } else { format!("{detail}; too old for {}", names(&newer)) };
    let Some((major, minor)) = agents.iter().copied().filter(is_newer).filter_map(|known| known.node).max()
    else {
        return Check::ok("node", detail);
    };
    let least = if minor == 0 { major.to_string() } else { format!("{major}.{minor}") };
    Check::warning("node", detail, format!("install Node.js {least} or later"))
}

/// The visible state of a log-in.
pub(super) enum VisibleLogin {
    Found(String),
    /// Some variables of a set are present, and others are not.
    Partly(String),
    /// This shell has these variables, and the daemon was started without them.
    NotInDaemon(Vec<&'static str>),
    None,
    /// The log-in leaves no trace that could be checked.
    Unseen,
}

pub(super) fn login(known: &CatalogAgent, machine: &LocalMachine) -> VisibleLogin {
    let set = |name: &&str| (machine.is_set)(name);
    if let Some(key) = known.keys.iter().find(|key| key.iter().all(&set)) {
        return VisibleLogin::Found(format!(
            "{} {} set",
            key.join(", "),
            if key.len() == 1 { "is" } else { "are" }
        ));
    }
    let file = machine.home.as_ref().and_then(|home| {
        known
            .credentials
            .iter()
            .find(|file| home.join(file).exists())
            .map(|file| format!("~/{file} is there"))
    });
    if let Some(file) = file {
        return VisibleLogin::Found(file);
    }
    let is_anywhere = |name: &&str| set(name) || (machine.is_set_here)(name);
    if let Some(key) = known.keys.iter().find(|key| key.iter().all(is_anywhere)) {
        return VisibleLogin::NotInDaemon(key.iter().copied().filter(|name| !set(name)).collect());
    }
    let partly = known.keys.iter().map(|key| key.iter().copied().partition::<Vec<&str>, _>(set));
    if let Some((there, missing)) = partly.into_iter().find(|(there, _)| !there.is_empty()) {
        return VisibleLogin::Partly(format!("{} set, but not {}", there.join(", "), missing.join(", ")));
    }
    if known.credentials.is_empty() { VisibleLogin::Unseen } else { VisibleLogin::None }
}

/// Returns one check for all agents without a log-in and all that are not installed; a warning while no agent is ready.
fn others(strangers: &[(&str, String)], missing: &[&str], ready: bool) -> Option<Check> {
    const NAME: &str = "other agents";
    let mut parts = Vec::new();
    if !strangers.is_empty() {
        let names: Vec<&str> = strangers.iter().map(|(name, _)| *name).collect();
        parts.push(format!("fetched by {FETCHER} when started, no log-in was found: {}", names.join(", ")));
    }
    if !missing.is_empty() {
        parts.push(format!("not installed: {}", missing.join(", ")));
    }
    if parts.is_empty() {
        return None;
    }
    let ways: Vec<String> = strangers.iter().map(|(name, advice)| format!("{name}: {advice}")).collect();
    let check = Check::ok(NAME, parts.join("; "));
    Some(match ways.is_empty() {
        true => check,
        false if ready => Check { hint: Some(ways.join("\n")), ..check },
        false => Check::warning(NAME, check.detail, ways.join("\n")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checks(programs: &[&str], node: Option<&str>, set: &[&str], home: Option<&Path>) -> Vec<Check> {
        let program = |name: &str| programs.contains(&name).then(|| Path::new("/bin").join(name));
        let node = node.map(|version| NodeInstallation {
            program: "/bin/node".into(),
            version: Some(version.to_owned()),
        });
        let is_set = |name: &str| set.contains(&name);
        let home = home.map(Path::to_owned);
        let (is_set_here, is_service) = (&is_set, false);
        let machine =
            LocalMachine { program: &program, node, is_set: &is_set, is_set_here, is_service, home };
        report(&Config::default(), &machine)
    }

    fn lines(checks: &[Check]) -> Vec<String> {
        let line = |check: &Check| format!("{:?} {}: {}", check.status, check.name, check.detail);
        checks.iter().map(line).collect()
    }

    #[test]
    fn with_nothing_installed_there_is_nothing_to_warn_of() {
        let checks = checks(&[], None, &[], None);
        assert!(checks.iter().all(|check| check.status == CheckStatus::Ok), "{:?}", lines(&checks));
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
        let found = checks(&["claude-agent-acp", "npx"], Some("v22.20.0"), &[], None);
        assert_eq!(
            lines(&found),
            [
                "Ok node: v22.20.0, /bin/node",
                "Warning agent claude: /bin/claude-agent-acp; no log-in was found",
                "Warning other agents: fetched by npx when started, no log-in was found: codex, copilot, gemini, kimi, \
                 opencode, qwen; not installed: cursor, goose, vibe",
            ]
        );
        assert!(found[1].hint.as_ref().unwrap().contains("ANTHROPIC_API_KEY"));
        assert!(
            found[2]
                .hint
                .as_ref()
                .unwrap()
                .contains("\ncopilot: run `npx -y @github/copilot@1.0.102 login`, or set")
        );
        let with_key = checks(&["npx"], Some("v22.20.0"), &["ANTHROPIC_API_KEY"], None);
        let found = lines(&with_key);
        assert_eq!(found[1], "Ok agent claude: fetched by npx when started; ANTHROPIC_API_KEY is set");
        assert!(found.last().unwrap().starts_with("Ok other agents: fetched"), "{found:?}");
    }

    #[test]
    fn variables_that_belong_together_are_a_log_in_only_together() {
        let some = checks(&["qwen"], Some("v22.20.0"), &["OPENAI_API_KEY"], None);
        assert_eq!(
            lines(&some)[1],
            "Warning agent qwen: /bin/qwen; OPENAI_API_KEY set, but not OPENAI_BASE_URL, OPENAI_MODEL"
        );
        let all = ["OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL"];
        assert_eq!(
            lines(&checks(&["qwen"], Some("v22.20.0"), &all, None))[1],
            "Ok agent qwen: /bin/qwen; OPENAI_API_KEY, OPENAI_BASE_URL, OPENAI_MODEL are set"
        );
        let own = ["COPILOT_PROVIDER_BASE_URL", "COPILOT_MODEL"];
        assert!(lines(&checks(&["copilot"], Some("v20.1.0"), &own, None))[1].starts_with("Ok agent copilot"));
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
    fn an_old_node_is_a_warning_wherever_an_agent_would_run_on_it() {
        let node = |programs: &[&str], version| {
            let mut found = checks(programs, version, &[], None);
            (lines(&found)[0].clone(), found.remove(0).hint)
        };
        let hint = |text: &str| Some(text.to_owned());
        let of = |status: &str, version: &str, names: &str| {
            format!("{status} node: {version}, /bin/node; too old for {names}")
        };
        let old = "v20.1.0";
        assert_eq!(node(&["claude-agent-acp"], Some(old)), (of("Ok", old, "kimi"), None));
        assert_eq!(
            node(&["npx"], Some(old)),
            (of("Warning", old, "kimi"), hint("install Node.js 22.19 or later"))
        );
        let all = "claude, codex, copilot, gemini, kimi, qwen";
        assert_eq!(
            node(&["claude-agent-acp"], Some("v18.1.0")),
            (of("Warning", "v18.1.0", all), hint("install Node.js 20 or later"))
        );
        let without = "Warning node: none, and claude cannot run".to_owned();
        assert_eq!(node(&["claude-agent-acp"], None), (without, hint("install Node.js")));
        assert_eq!(node(&[], Some("v18.1.0")).0, of("Ok", "v18.1.0", all), "nobody would run on it");
        assert_eq!(node(&[], Some("deno")).0, "Warning node: /bin/node does not say its version");
    }

    #[test]
    fn a_program_that_is_no_script_needs_no_node() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("kimi");
        for (begin, expected) in
            [("#!/usr/bin/env node\nx", true), ("#!/bin/sh\n", true), ("\x7fELF node", false)]
        {
            std::fs::write(&file, begin).unwrap();
            assert_eq!(is_for_node(&file), expected, "{begin:?}");
        }
    }
}

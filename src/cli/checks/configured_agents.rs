//! The configured agents: whether their programs are installed, whether Node is new enough, and whether they have a
//! log-in.

use std::ffi::OsStr;
use std::io::Read as _;
use std::path::Path;

use super::known_agents::{LocalMachine, VisibleLogin, login};
use super::{Check, find};
use intercom_daemon::config::{AGENT_CATALOG, AgentProfile, CatalogAgent, Config, FETCHER};

/// The maximum length of a script's first line.
const FIRST_LINE: u64 = 256;

pub(super) fn checks(config: &Config, search: Option<&OsStr>, machine: &LocalMachine<'_>) -> Vec<Check> {
    config.agents.iter().map(|(name, profile)| check(name, profile, search, machine)).collect()
}

fn check(name: &str, profile: &AgentProfile, search: Option<&OsStr>, machine: &LocalMachine<'_>) -> Check {
    let title = format!("agent {name}");
    let search = profile.env.get("PATH").map(OsStr::new).or(search);
    let known = AGENT_CATALOG.iter().find(|known| is_like(name, profile, known));
    let Some(program) = find(Path::new(&profile.command), search) else {
        let install =
            known.map_or_else(|| "install it".to_owned(), |known| format!("install it: {}", known.install));
        let detail = format!("the command {} was not found", profile.command);
        return Check::wrong(&title, detail, format!("{install}, or give its full path in the profile"));
    };
    let place = program.display();
    let least = known.and_then(|known| known.node);
    if let Some((why, hint)) = node_trouble(&program, least, machine) {
        return Check::warning(&title, format!("{place}; {why}"), hint);
    }
    let Some(known) = known else { return Check::ok(&title, place.to_string()) };
    // A key counts only if this agent gets it.
    let is_set = |name: &str| {
        let own = profile.env.get(name).is_some_and(|value| !value.is_empty());
        own || (profile.pass_env.iter().any(|passed| passed == name) && (machine.is_set)(name))
    };
    let is_set_here =
        |name: &str| profile.pass_env.iter().any(|passed| passed == name) && (machine.is_set_here)(name);
    let machine = LocalMachine {
        is_set: &is_set,
        is_set_here: &is_set_here,
        is_service: machine.is_service,
        program: machine.program,
        node: None,
        home: machine.home.clone(),
    };
    let hint = || known.log_in_hint(name, &profile.pass_env, |program| (machine.program)(program).is_some());
    match login(known, &machine) {
        VisibleLogin::Found(how) => Check::ok(&title, format!("{place}; {how}")),
        VisibleLogin::Unseen => Check::ok(&title, place.to_string()),
        VisibleLogin::Partly(why) => Check::warning(&title, format!("{place}; {why}"), hint()),
        VisibleLogin::NotInDaemon(names) => {
            let (why, hint) = machine.not_in_daemon(&names);
            Check::warning(&title, format!("{place}; {why}"), hint)
        }
        VisibleLogin::None => {
            let detail = format!("{place}; no log-in was found");
            Check::warning(&title, detail, hint())
        }
    }
}

/// Returns true if a profile starts this well-known agent: its program, or its package.
fn is_like(name: &str, profile: &AgentProfile, known: &CatalogAgent) -> bool {
    let program = Path::new(&profile.command).file_name().and_then(OsStr::to_str);
    let package = known.package.and_then(|package| package.rsplit_once('@')).map(|(package, _)| package);
    let fetches = |package: &str| {
        profile
            .args
            .iter()
            .any(|arg| arg.strip_prefix(package).is_some_and(|rest| rest.is_empty() || rest.starts_with('@')))
    };
    program == Some(known.command)
        || package.is_some_and(fetches)
        || (name == known.name && program == Some(FETCHER))
}

/// Returns the reason why a program for Node cannot run here, and the remedy.
fn node_trouble(
    program: &Path,
    least: Option<(u32, u32)>,
    machine: &LocalMachine<'_>,
) -> Option<(String, String)> {
    if !runs_on_node(program) {
        return None;
    }
    let least_in_words = least.map_or_else(String::new, |(major, minor)| match minor {
        0 => format!(" {major} or later"),
        _ => format!(" {major}.{minor} or later"),
    });
    let install = format!("install Node.js{least_in_words}");
    match &machine.node {
        None => Some(("it needs Node.js, which was not found".to_owned(), install)),
        Some(node) => {
            let is_old = node.number().zip(least).is_some_and(|(number, least)| number < least);
            let version = node.version.as_deref().unwrap_or_default();
            is_old.then(|| (format!("it needs Node.js{least_in_words}, and {version} is installed"), install))
        }
    }
}

/// Returns true if the program is Node, or a script whose first line names it.
fn runs_on_node(program: &Path) -> bool {
    let name = program.file_name().and_then(OsStr::to_str);
    if matches!(name, Some("node" | FETCHER)) {
        return true;
    }
    let mut begin = Vec::new();
    let read = std::fs::File::open(program).and_then(|file| file.take(FIRST_LINE).read_to_end(&mut begin));
    let begin = String::from_utf8_lossy(&begin);
    let first = begin.lines().next().unwrap_or_default();
    read.is_ok() && first.starts_with("#!") && first.split(['/', ' ']).any(|word| word.trim() == "node")
}

//! The variables of this shell compared with those of the running daemon, which passes them on to agents. Only names
//! are ever shown, never values.

use std::ffi::OsString;

use super::CliContext;
use super::daemon::InstalledService;
use super::daemon_info::DaemonInfo;
use super::transport::Transport;
use intercom_daemon::config::{self, CatalogAgent, catalog_agent};
use intercom_types::{FailureKind, Session};

/// The variables of a process.
pub(super) type Variables = Vec<(OsString, OsString)>;

/// Returns a non-empty variable of these.
pub(super) fn value<'a>(variables: &'a Variables, name: &str) -> Option<&'a OsString> {
    variables
        .iter()
        .find(|(other, _)| other == name)
        .map(|(_, value)| value)
        .filter(|value| !value.is_empty())
}

/// Returns a sentence about variables that this shell has and the daemon lacks.
pub(super) fn daemon_lacks(names: &[&str]) -> String {
    let (be, them) = if names.len() == 1 { ("is", "it") } else { ("are", "them") };
    format!("{} {be} set in this shell, but the daemon was started without {them}", names.join(", "))
}

/// Returns the command that restarts the daemon with these variables of this shell. A service does not get them by
/// itself.
pub(super) fn restart_command(names: &[&str], is_service: bool) -> String {
    if is_service {
        format!("systemctl --user import-environment {} && intercom daemon restart", names.join(" "))
    } else {
        "intercom daemon restart".to_owned()
    }
}

/// Returns advice about an agent without a log-in, if this shell has a key that the daemon lacks, or another value of
/// it.
pub(super) fn log_in_hint(session: &Session, cx: &CliContext) -> Option<String> {
    let failed = session.failed.as_ref().filter(|failed| failed.kind == FailureKind::LogIn)?;
    let known = session.agent.as_deref().and_then(catalog_agent)?;
    if !matches!(cx.client.transport(), Transport::Unix(_)) || !passes_keys(known, cx) {
        return None;
    }
    let daemon = DaemonInfo::read(&cx.paths.daemon_json())?.environment()?;
    let (names, why) = newer_key(known, &std::env::vars_os().collect(), &daemon)?;
    let command = restart_command(&names, InstalledService::installed(cx).is_some());
    let after = failed.after_log_in.as_ref().map(|after| format!("; then {after}")).unwrap_or_default();
    Some(format!("{why}: `{command}`{after}"))
}

/// Returns true if the agent with this name gets its keys from the daemon.
fn passes_keys(known: &CatalogAgent, cx: &CliContext) -> bool {
    let config = config::load(Some(&cx.paths.config), cx.paths.config_explicit).unwrap_or_default();
    let own = config.agents.get(known.name);
    own.is_none_or(|profile| {
        let is_passed = |name: &&str| profile.pass_env.iter().any(|passed| passed == name);
        known.keys.iter().any(|key| key.iter().all(is_passed))
    })
}

/// Returns the first complete key of this shell that the daemon lacks or has with other values, with a sentence about
/// it.
fn newer_key(
    known: &CatalogAgent,
    here: &Variables,
    daemon: &Variables,
) -> Option<(Vec<&'static str>, String)> {
    let key = known.keys.iter().find(|key| key.iter().all(|name| value(here, name).is_some()))?;
    let lacking: Vec<&str> = key.iter().copied().filter(|name| value(daemon, name).is_none()).collect();
    if !lacking.is_empty() {
        let why = daemon_lacks(&lacking);
        return Some((lacking, why));
    }
    let other: Vec<&str> =
        key.iter().copied().filter(|name| value(daemon, name) != value(here, name)).collect();
    let why = format!("the daemon was started with another value of {}", other.join(", "));
    (!other.is_empty()).then_some((other, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> Variables {
        pairs.iter().map(|(name, value)| (name.into(), value.into())).collect()
    }

    #[test]
    fn a_key_of_this_shell_is_named_if_the_daemon_lacks_it_or_has_another_and_no_value_is_shown() {
        let claude = catalog_agent("claude").unwrap();
        let check = |here: &[(&str, &str)], daemon: &[(&str, &str)]| {
            newer_key(claude, &variables(here), &variables(daemon)).map(|(_, why)| why)
        };
        let key = "ANTHROPIC_API_KEY";
        let lacks = "ANTHROPIC_API_KEY is set in this shell, but the daemon was started without it";
        assert_eq!(check(&[(key, "secret")], &[]).as_deref(), Some(lacks));
        assert_eq!(check(&[(key, "secret")], &[(key, "")]).as_deref(), Some(lacks));
        let other = "the daemon was started with another value of ANTHROPIC_API_KEY";
        assert_eq!(check(&[(key, "secret")], &[(key, "old")]).as_deref(), Some(other));
        assert_eq!(check(&[(key, "secret")], &[(key, "secret")]), None);
        assert_eq!(check(&[(key, "")], &[]), None);
        let qwen = catalog_agent("qwen").unwrap();
        let part = variables(&[("OPENAI_API_KEY", "x")]);
        assert_eq!(newer_key(qwen, &part, &variables(&[])), None, "the rest of the set is missing");
    }

    #[test]
    fn a_service_is_given_the_variables_first() {
        assert_eq!(restart_command(&["A"], false), "intercom daemon restart");
        let expected = "systemctl --user import-environment A B && intercom daemon restart";
        assert_eq!(restart_command(&["A", "B"], true), expected);
    }
}

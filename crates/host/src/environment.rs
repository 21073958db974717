//! An agent's environment: an allowlist, the variables that its profile names, and its session's id.

use std::ffi::{OsStr, OsString};

/// Variables that most programs need. None of the daemon's own variables and none that carries a secret.
const ALLOWED: &[&str] =
    &["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TERM", "TZ", "TMPDIR"];
const ALLOWED_PREFIXES: &[&str] = &["LC_", "XDG_"];
/// The variable with the session id: tells it to the agent, and marks the agent's processes for
/// [`crate::stray_processes`].
pub const SESSION_VARIABLE: &str = "INTERCOM_SESSION";
/// The variable with the part of the session, such as a terminal, if the part has its own shim.
pub const PART_VARIABLE: &str = "INTERCOM_PART";
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Returns the complete environment of an agent. `ours` is the daemon's environment; `passed` names its variables that
/// the profile passes on; `own` are the values of the profile and the caller, which take precedence.
pub fn agent_environment(
    ours: impl IntoIterator<Item = (OsString, OsString)>,
    passed: &[String],
    own: impl IntoIterator<Item = (String, String)>,
    session: &str,
) -> Vec<(OsString, OsString)> {
    let mut env: Vec<(OsString, OsString)> =
        ours.into_iter().filter(|(name, _)| allowed(name) || passed.iter().any(|p| **name == **p)).collect();
    if !env.iter().any(|(name, _)| name == "PATH") {
        env.push(("PATH".into(), DEFAULT_PATH.into()));
    }
    let session = (SESSION_VARIABLE.to_owned(), session.to_owned());
    for (name, value) in own.into_iter().chain([session]) {
        env.retain(|(known, _)| **known != *name.as_str());
        env.push((name.into(), value.into()));
    }
    env
}

fn allowed(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    ALLOWED.contains(&name) || ALLOWED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_listed_or_named_reaches_the_agent() {
        let ours = [
            ("PATH", "/bin"),
            ("LC_ALL", "C"),
            ("SLACK_BOT_TOKEN", "secret"),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
            ("MODEL_KEY", "passed on"),
            ("INTERCOM_TOKEN", "secret"),
            ("HOME", "/daemon"),
        ];
        let ours = ours.map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let own = [("HOME".to_owned(), "/agent".to_owned())];
        let mut env = agent_environment(ours, &["MODEL_KEY".to_owned()], own, "ses_1");
        env.sort();
        let env: Vec<String> =
            env.iter().map(|(name, value)| format!("{}={}", name.display(), value.display())).collect();
        assert_eq!(
            env,
            ["HOME=/agent", "INTERCOM_SESSION=ses_1", "LC_ALL=C", "MODEL_KEY=passed on", "PATH=/bin"]
        );
    }

    #[test]
    fn there_is_always_a_path() {
        let env = agent_environment([], &[], [], "ses_1");
        assert!(env.iter().any(|(name, value)| name == "PATH" && !value.is_empty()));
    }
}

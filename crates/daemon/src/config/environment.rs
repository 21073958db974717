//! Checks of the variables that an agent may get.

use super::locate::KeyPath;
use super::model::AgentProfile;
use super::validate::{ValidationResult, problem, without_nul};

/// Checks a profile's variables. An agent never gets a secret of the daemon, nor a variable that controls the daemon.
pub(super) fn environment(at: &KeyPath, profile: &AgentProfile) -> ValidationResult {
    let at_env = at.key("env");
    for (name, value) in &profile.env {
        let at = at_env.key(name);
        variable(&at, name)?;
        if name.starts_with("INTERCOM_") {
            return problem(at, "`INTERCOM_` variables are the daemon's own and cannot be set for an agent");
        }
        without_nul(at, value)?;
    }
    let at_pass = at.key("pass_env");
    for (index, name) in profile.pass_env.iter().enumerate() {
        let at = at_pass.index(index);
        variable(&at, name)?;
        if name.starts_with("INTERCOM_") || name.starts_with("SLACK_") {
            let message = format!("{name} may hold a secret of the daemon's and is never passed to an agent");
            return problem(at, message);
        }
        if profile.env.contains_key(name) {
            return problem(at, format!("{name} is also set in `env`, keep one of the two"));
        }
    }
    Ok(())
}

fn variable(at: &KeyPath, name: &str) -> ValidationResult {
    let rest = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if !name.is_empty() && name.chars().all(rest) && !name.starts_with(|c: char| c.is_ascii_digit()) {
        return Ok(());
    }
    problem(at.clone(), "a variable's name has letters, digits and `_` only and does not begin with a digit")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::config::parse;

    /// `line` is the third line of the text.
    fn agent(line: &str) -> String {
        format!("[agents.a]\ncommand = 'x'\n{line}\n")
    }

    fn check(text: &str, expect: &str) {
        let error = parse(text, Path::new("c")).expect_err("the text is wrong");
        assert_eq!(error.to_string(), format!("c:{expect}"), "for {text:?}");
    }

    #[test]
    fn the_daemons_own_variables_stay_with_the_daemon() {
        let own = "may hold a secret of the daemon's and is never passed to an agent";
        check(
            &agent("pass_env = ['HOME', 'INTERCOM_TOKEN']"),
            &format!("3: agents.a.pass_env[1]: INTERCOM_TOKEN {own}"),
        );
        check(
            &agent("pass_env = [\n 'SLACK_BOT_TOKEN']"),
            &format!("4: agents.a.pass_env[0]: SLACK_BOT_TOKEN {own}"),
        );
        check(
            &agent("env.INTERCOM_URL = 'x'"),
            "3: agents.a.env.INTERCOM_URL: `INTERCOM_` variables are the daemon's own and cannot be set for an agent",
        );
        check(
            &agent("env.A = 'x'\npass_env = ['A']"),
            "4: agents.a.pass_env[0]: A is also set in `env`, keep one of the two",
        );
        let sound = parse(&agent("env.SLACK_CHANNEL = 'x'\npass_env = ['INTERCOMS', '_A1']"), Path::new("c"));
        assert!(sound.is_ok(), "{sound:?}");
    }

    #[test]
    fn variables_have_sound_names_and_values() {
        let words = "a variable's name has letters, digits and `_` only and does not begin with a digit";
        check(&agent("env.\"A=B\" = 'x'"), &format!("3: agents.a.env.\"A=B\": {words}"));
        check(&agent("env.1A = 'x'"), &format!("3: agents.a.env.1A: {words}"));
        check(&agent("env.\"\" = 'x'"), &format!("3: agents.a.env.\"\": {words}"));
        check(&agent("pass_env = ['AWS_*']"), &format!("3: agents.a.pass_env[0]: {words}"));
        check(&agent("env.A = \"\\u0000\""), "3: agents.a.env.A: must not contain a NUL character");
    }
}

//! The checks that the types cannot express: ranges, names, and required settings.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::ops::RangeInclusive;

use super::access::ApiConfig;
use super::agent_catalog::{AGENT_CATALOG, catalog_agent};
use super::environment::environment;
use super::locate::KeyPath;
use crate::remote::RemoteUrl;
use intercom_policy::{BadRule, Rules};
use intercom_types::{Time, parse_duration};

use super::choices::Protocol;
use super::model::{AgentProfile, Config, DEMO_AGENT, DaemonLimits, NamedWorkspace};

const LINE_LENGTH: RangeInclusive<usize> = 1024..=1024 * 1024 * 1024;
const STARTUP_SECONDS: RangeInclusive<u64> = 1..=3600;
const RUN_SECONDS: RangeInclusive<u64> = 0..=3600;
const WAIT_SECONDS: RangeInclusive<f64> = 0.0..=60.0;
/// The allowed numbers of restarts within one window; more would be a loop.
const RESTARTS: RangeInclusive<u32> = 0..=100;
const AMOUNT: RangeInclusive<f64> = 0.0..=1_000_000.0;
/// The allowed days. The upper bounds of days and MiB keep sums with dates and byte counts far from overflow.
const DAYS: RangeInclusive<u64> = 0..=36_500;
const MIBS: RangeInclusive<u64> = 0..=1024 * 1024 * 1024;

/// A value that parses but cannot be used.
#[derive(Debug)]
pub(super) struct ConfigProblem {
    pub(super) path: KeyPath,
    pub(super) message: String,
}

pub(super) type ValidationResult = Result<(), ConfigProblem>;

pub(super) fn validate(config: &Config) -> ValidationResult {
    let acp = KeyPath::of(["acp"]);
    within(&acp, "max_line_length", &config.acp.max_line_length, &LINE_LENGTH)?;
    within(&acp, "startup_timeout_seconds", &config.acp.startup_timeout_seconds, &STARTUP_SECONDS)?;
    within(&acp, "interrupt_quiet_seconds", &config.acp.interrupt_quiet_seconds, &WAIT_SECONDS)?;
    within(&KeyPath::of(["run"]), "wait_seconds", &config.run.wait_seconds, &RUN_SECONDS)?;
    limits(&config.limits)?;
    let (stop, waits) = (KeyPath::of(["stop"]), &config.stop);
    within(&stop, "after_interrupt_seconds", &waits.after_interrupt_seconds, &WAIT_SECONDS)?;
    within(&stop, "after_stdin_closed_seconds", &waits.after_stdin_closed_seconds, &WAIT_SECONDS)?;
    within(&stop, "after_sigterm_seconds", &waits.after_sigterm_seconds, &WAIT_SECONDS)?;
    let retention = KeyPath::of(["retention"]);
    within(&retention, "days", &config.retention.days, &DAYS)?;
    within(&retention, "max_mib", &config.retention.max_mib, &MIBS)?;
    within(&KeyPath::of(["restart"]), "budget", &config.restart.budget, &RESTARTS)?;
    spend(&KeyPath::of(["spend"]), Some(config.spend.per_session), Some(config.spend.per_day))?;
    access(config)?;
    super::slack::validate(config)?;
    super::acp_server::validate(config)?;
    for (name, profile) in &config.agents {
        agent(&KeyPath::of(["agents", name]), name, profile)?;
    }
    for (name, place) in &config.workspaces {
        workspace(&KeyPath::of(["workspaces", name]), name, place, config)?;
    }
    Ok(())
}

fn access(config: &Config) -> ValidationResult {
    let at = KeyPath::of(["api"]);
    let ApiConfig { tls_cert, tls_key, hosts, .. } = &config.api;
    config.api.address().or_else(|message| problem(at.key("listen"), message).map(|()| None))?;
    match (tls_cert, tls_key) {
        (Some(_), None) => problem(at.key("tls_cert"), "`tls_key` is needed as well")?,
        (None, Some(_)) => problem(at.key("tls_key"), "`tls_cert` is needed as well")?,
        _ => {}
    }
    for (index, host) in hosts.iter().enumerate() {
        let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
        if host.is_empty() || !host.chars().all(fine) {
            problem(at.key("hosts").index(index), "must be a host name without a port")?;
        }
    }
    for (index, operator) in config.operators.iter().enumerate() {
        let at = KeyPath::of(["operator"]).index(index);
        if operator.name.trim().is_empty() || operator.name.chars().any(char::is_control) {
            problem(at.key("name"), "a name is needed, which other people see")?;
        }
        let earlier = &config.operators[..index];
        if earlier.iter().any(|other| other.name == operator.name) {
            problem(at.key("name"), format!("another operator is named {:?}", operator.name))?;
        }
        if operator.uid.is_some() && earlier.iter().any(|other| other.uid == operator.uid) {
            problem(at.key("uid"), "another operator has this uid")?;
        }
        let user = |id: &String| {
            id.starts_with(['U', 'W'])
                && id.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit())
        };
        if operator.slack.as_ref().is_some_and(|id| !user(id)) {
            problem(
                at.key("slack"),
                "must be a user's id such as \"U012AB3CD\": `/intercom whoami` shows it",
            )?;
        }
        if operator.slack.is_some() && earlier.iter().any(|other| other.slack == operator.slack) {
            problem(at.key("slack"), "another operator has this Slack id")?;
        }
    }
    if let Err(BadRule { index, key, message }) = Rules::compile(config.rules.clone(), |_| Time::now()) {
        problem(KeyPath::of(["rule"]).index(index).key(key), message)?;
    }
    let at = KeyPath::of(["clearances"]);
    for (risk, count) in config.clearances.quorum.each() {
        within(&at.key("quorum"), risk, count, &(1..=10))?;
    }
    for (risk, limit) in config.clearances.expire_after.each() {
        if parse_duration(limit).is_none_or(|limit| limit.is_zero()) {
            problem(at.key("expire_after").key(risk), "must be a time such as \"90s\", \"30m\" or \"2h\"")?;
        }
    }
    let (at, webhook) = (KeyPath::of(["webhook"]), &config.webhook);
    if let Some(url) = &webhook.url {
        if let Err(why) = RemoteUrl::parse(url) {
            problem(at.key("url"), why)?;
        }
        if webhook.secret_file.is_none() {
            problem(at.key("secret_file"), "a secret is needed to sign the messages")?;
        }
    }
    let (at, audit) = (KeyPath::of(["audit"]), &config.audit);
    if audit.anchor_file.as_ref().is_some_and(|file| !file.is_absolute()) {
        problem(at.key("anchor_file"), "must be an absolute path")?;
    }
    if audit.webhook && webhook.url.is_none() {
        problem(at.key("webhook"), "the `url` of [webhook] is needed as well")?;
    }
    Ok(())
}

fn spend(at: &KeyPath, per_session: Option<f64>, per_day: Option<f64>) -> ValidationResult {
    for (key, amount) in [("per_session", per_session), ("per_day", per_day)] {
        amount.map_or(Ok(()), |amount| within(at, key, &amount, &AMOUNT))?;
    }
    Ok(())
}

fn limits(limits: &DaemonLimits) -> ValidationResult {
    let at = KeyPath::of(["limits"]);
    within(&at, "max_sessions", &limits.max_sessions, &(1..=10_000))?;
    within(&at, "max_body_bytes", &limits.max_body_bytes, &(1024..=1024 * 1024 * 1024))?;
    within(&at, "max_queued_prompts", &limits.max_queued_prompts, &(1..=10_000))?;
    within(&at, "stderr_tail_bytes", &limits.stderr_tail_bytes, &(1024..=1024 * 1024))?;
    within(&at, "min_free_disk_mib", &limits.min_free_disk_mib, &MIBS)?;
    within(&at, "journal_mib", &limits.journal_mib, &(1..=1024 * 1024))?;
    within(&at, "min_free_memory_mib", &limits.min_free_memory_mib, &(0..=1024 * 1024))
}

fn agent(at: &KeyPath, name: &str, profile: &AgentProfile) -> ValidationResult {
    if name == DEMO_AGENT {
        return problem(at.clone(), format!("`{DEMO_AGENT}` is built in and reserved, choose another name"));
    }
    well_named(at, name)?;
    if profile.command.trim().is_empty() {
        return problem(at.key("command"), "a command is needed, the program that starts the agent");
    }
    without_nul(at.key("command"), &profile.command)?;
    if profile.command.contains('/') && !profile.command.starts_with('/') {
        let tilde = if profile.command.starts_with('~') { ", `~` is not expanded here" } else { "" };
        return problem(at.key("command"), format!("must be an absolute path or a name on the PATH{tilde}"));
    }
    for (index, arg) in profile.args.iter().enumerate() {
        without_nul(at.key("args").index(index), arg)?;
    }
    environment(at, profile)?;
    for (key, offered) in [("offer_files", profile.offer_files), ("offer_terminals", profile.offer_terminals)]
    {
        if offered && profile.protocol != Protocol::Acp {
            return problem(at.key(key), "takes `protocol = \"acp\"`");
        }
    }
    if let Some(mode) = &profile.mode {
        if profile.protocol != Protocol::Acp {
            return problem(at.key("mode"), "takes `protocol = \"acp\"`");
        }
        if mode.trim().is_empty() {
            return problem(
                at.key("mode"),
                "the id of a mode is needed; `intercom mode SES` lists those of a running agent",
            );
        }
    }
    if profile.offer_files && profile.run_as.is_some() {
        let why = "cannot be combined with `run_as`: files would be read and written as the daemon's user";
        return problem(at.key("offer_files"), why);
    }
    if let Some(length) = &profile.max_line_length {
        within(at, "max_line_length", length, &LINE_LENGTH)?;
    }
    if let Some(seconds) = &profile.startup_timeout_seconds {
        within(at, "startup_timeout_seconds", seconds, &STARTUP_SECONDS)?;
    }
    if let Some(seconds) = &profile.interrupt_quiet_seconds {
        within(at, "interrupt_quiet_seconds", seconds, &WAIT_SECONDS)?;
    }
    let (stop, waits) = (at.key("stop"), &profile.stop);
    for (key, wait) in [
        ("after_interrupt_seconds", waits.after_interrupt_seconds),
        ("after_stdin_closed_seconds", waits.after_stdin_closed_seconds),
        ("after_sigterm_seconds", waits.after_sigterm_seconds),
    ] {
        wait.map_or(Ok(()), |wait| within(&stop, key, &wait, &WAIT_SECONDS))?;
    }
    if let Some(budget) = &profile.restart.budget {
        within(&at.key("restart"), "budget", budget, &RESTARTS)?;
    }
    spend(&at.key("spend"), profile.spend.per_session, profile.spend.per_day)?;
    let (at_limits, limits) = (at.key("limits"), &profile.limits);
    for (key, limit, high) in [
        ("memory_mib", limits.memory_mib, 16 * 1024 * 1024),
        ("processes", limits.processes, 1_000_000),
        ("cpu_percent", limits.cpu_percent, 100_000),
    ] {
        limit.map_or(Ok(()), |limit| within(&at_limits, key, &limit, &(1..=high)))?;
    }
    Ok(())
}

fn workspace(at: &KeyPath, name: &str, workspace: &NamedWorkspace, config: &Config) -> ValidationResult {
    well_named(at, name)?;
    let (at_path, path) = (at.key("path"), &workspace.path);
    if path.as_os_str().is_empty() {
        return problem(at_path, "a path is needed, the directory of the workspace");
    }
    if !path.is_absolute() {
        let tilde = if path.starts_with("~") { ", `~` is not expanded here" } else { "" };
        return problem(at_path, format!("must be an absolute path{tilde}"));
    }
    without_nul(at_path, &path.to_string_lossy())?;
    match &workspace.agent {
        Some(agent) => is_agent(&at.key("agent"), agent, config),
        None => Ok(()),
    }
}

pub(super) fn is_agent(at: &KeyPath, agent: &str, config: &Config) -> ValidationResult {
    if agent == DEMO_AGENT || config.agents.contains_key(agent) || catalog_agent(agent).is_some() {
        return Ok(());
    }
    let built_in = AGENT_CATALOG.iter().map(|known| known.name).chain([DEMO_AGENT]);
    let known: BTreeSet<_> = config.agents.keys().map(String::as_str).chain(built_in).collect();
    let known: Vec<_> = known.into_iter().collect();
    problem(at.clone(), format!("no agent is named {agent:?}, known agents are {}", known.join(", ")))
}

pub(super) fn problem(path: KeyPath, message: impl Into<String>) -> ValidationResult {
    Err(ConfigProblem { path, message: message.into() })
}

/// Checks a range. NaN is refused as well, because no range contains it.
pub(super) fn within<T: PartialOrd + Display>(
    at: &KeyPath,
    key: &str,
    value: &T,
    range: &RangeInclusive<T>,
) -> ValidationResult {
    if range.contains(value) {
        return Ok(());
    }
    problem(at.key(key), format!("must be between {} and {}, not {value}", range.start(), range.end()))
}

/// Checks a name, because names are typed in shells and are part of URLs.
fn well_named(at: &KeyPath, name: &str) -> ValidationResult {
    let first = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let rest = |c: &u8| first(*c) || *c == b'-' || *c == b'_';
    if name.bytes().next().is_some_and(first) && name.as_bytes().iter().all(rest) {
        return Ok(());
    }
    problem(
        at.clone(),
        "a name has lowercase letters, digits, `-` and `_` only and begins with a letter or digit",
    )
}

/// Checks that a value has no NUL, with which no process could start; better reported here than at the start of every
/// session.
pub(super) fn without_nul(at: KeyPath, value: &str) -> ValidationResult {
    if value.contains('\0') { problem(at, "must not contain a NUL character") } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::config::parse;

    fn check(text: &str, expect: &str) {
        let error = parse(text, Path::new("c")).expect_err("the text is wrong");
        assert_eq!(error.to_string(), format!("c:{expect}"), "for {text:?}");
    }

    fn accept(text: &str) {
        parse(text, Path::new("c")).unwrap_or_else(|error| panic!("{error} for {text:?}"));
    }

    /// The lowest and highest values pass; one step beyond does not.
    #[test]
    fn numbers_keep_to_their_ranges() {
        for (section, key, low, high) in [
            ("acp", "max_line_length", 1024, 1_073_741_824),
            ("acp", "startup_timeout_seconds", 1, 3600),
            ("acp", "interrupt_quiet_seconds", 0, 60),
            ("limits", "max_sessions", 1, 10_000),
            ("limits", "max_body_bytes", 1024, 1_073_741_824),
            ("limits", "max_queued_prompts", 1, 10_000),
            ("limits", "stderr_tail_bytes", 1024, 1_048_576),
            ("limits", "min_free_disk_mib", 0, 1_073_741_824),
            ("limits", "journal_mib", 1, 1_048_576),
            ("limits", "min_free_memory_mib", 0, 1_048_576),
            ("agents.a.limits", "memory_mib", 1, 16_777_216),
            ("agents.a.limits", "processes", 1, 1_000_000),
            ("agents.a.limits", "cpu_percent", 1, 100_000),
            ("retention", "days", 0, 36_500),
            ("retention", "max_mib", 0, 1_073_741_824),
            ("stop", "after_interrupt_seconds", 0, 60),
            ("stop", "after_stdin_closed_seconds", 0, 60),
            ("stop", "after_sigterm_seconds", 0, 60),
            ("agents.a", "max_line_length", 1024, 1_073_741_824),
            ("agents.a", "startup_timeout_seconds", 1, 3600),
            ("agents.a", "interrupt_quiet_seconds", 0, 60),
            ("agents.a.stop", "after_interrupt_seconds", 0, 60),
            ("agents.a.stop", "after_stdin_closed_seconds", 0, 60),
            ("agents.a.stop", "after_sigterm_seconds", 0, 60),
        ] {
            let with = |value: i64| {
                let command = if section.starts_with("agents") { "agents.a.command = 'x'\n" } else { "" };
                // A header may not open again what a dotted key has opened, so all of it is dotted.
                format!("{command}{section}.{key} = {value}")
            };
            accept(&with(low));
            accept(&with(high));
            let line = if section.starts_with("agents") { 2 } else { 1 };
            for beyond in [low - 1, high + 1].into_iter().filter(|value| *value >= 0) {
                let expect =
                    format!("{line}: {section}.{key}: must be between {low} and {high}, not {beyond}");
                check(&with(beyond), &expect);
            }
        }
    }

    #[test]
    fn waits_are_finite() {
        check(
            "[stop]\nafter_sigterm_seconds = nan",
            "2: stop.after_sigterm_seconds: must be between 0 and 60, not NaN",
        );
        check(
            "[stop]\nafter_sigterm_seconds = inf",
            "2: stop.after_sigterm_seconds: must be between 0 and 60, not inf",
        );
        check(
            "[stop]\nafter_sigterm_seconds = -0.5",
            "2: stop.after_sigterm_seconds: must be between 0 and 60, not -0.5",
        );
        check(
            "[stop]\nafter_sigterm_seconds = -1",
            "2: stop.after_sigterm_seconds: must be between 0 and 60, not -1",
        );
    }

    #[test]
    fn the_first_wrong_value_is_found_at_its_own_line() {
        check(
            "[agents.a]\ncommand = 'x'\n\n[agents.b]\ncommand = 'x'\n\nmax_line_length = 5\n",
            "7: agents.b.max_line_length: must be between 1024 and 1073741824, not 5",
        );
    }

    #[test]
    fn names_are_plain() {
        let words =
            "a name has lowercase letters, digits, `-` and `_` only and begins with a letter or digit";
        for name in ["Claude", "a b", "-a", "_a", "", "a.b", "ä", "a/b"] {
            check(
                &format!("[agents.\"{name}\"]\ncommand = 'x'"),
                &match name {
                    "Claude" | "-a" | "_a" => format!("1: agents.{name}: {words}"),
                    _ => format!("1: agents.\"{name}\": {words}"),
                },
            );
        }
        check("[workspaces.Site]\npath = '/'", &format!("1: workspaces.Site: {words}"));
        for name in ["a", "0", "claude-4_5"] {
            accept(&format!("[agents.{name}]\ncommand = 'x'\n[workspaces.{name}]\npath = '/'"));
        }
    }

    #[test]
    fn the_demo_agent_cannot_be_redefined() {
        check(
            "[agents.demo]\ncommand = 'x'",
            "1: agents.demo: `demo` is built in and reserved, choose another name",
        );
    }

    #[test]
    fn only_acp_agents_are_offered_something_and_no_files_to_other_users() {
        for key in ["offer_files", "offer_terminals"] {
            check(
                &format!("[agents.a]\ncommand = 'x'\n{key} = true"),
                &format!("3: agents.a.{key}: takes `protocol = \"acp\"`"),
            );
            accept(&format!("[agents.a]\ncommand = 'x'\nprotocol = 'acp'\n{key} = true"));
        }
        check(
            "[agents.a]\ncommand = 'x'\nprotocol = 'acp'\nrun_as = 'b'\noffer_files = true",
            "5: agents.a.offer_files: cannot be combined with `run_as`: files would be read and written as the daemon's user",
        );
    }

    #[test]
    fn an_agent_needs_a_command() {
        let words = "agents.a.command: a command is needed, the program that starts the agent";
        check("\n[agents.a]\nargs = ['x']", &format!("2: {words}"));
        check("[agents.a]\n\ncommand = ' '", &format!("3: {words}"));
        check("[agents.a]\ncommand = \"a\\u0000\"", "2: agents.a.command: must not contain a NUL character");
        let words = "2: agents.a.command: must be an absolute path or a name on the PATH";
        check("[agents.a]\ncommand = './a'", words);
        check("[agents.a]\ncommand = 'bin/a'", words);
        check("[agents.a]\ncommand = '~/a'", &format!("{words}, `~` is not expanded here"));
        accept("[agents.a]\ncommand = '/a'");
        check(
            "[agents.a]\ncommand = 'a'\nargs = ['b', \"\\u0000\"]",
            "3: agents.a.args[1]: must not contain a NUL character",
        );
    }

    #[test]
    fn a_workspace_has_an_absolute_path_and_a_known_agent() {
        check("[workspaces.w]\n", "1: workspaces.w.path: a path is needed, the directory of the workspace");
        check("[workspaces.w]\npath = 'src'", "2: workspaces.w.path: must be an absolute path");
        check(
            "[workspaces.w]\npath = '~/src'",
            "2: workspaces.w.path: must be an absolute path, `~` is not expanded here",
        );
        check(
            "[agents.a]\ncommand = 'x'\n[workspaces.w]\npath = '/'\nagent = 'b'",
            "5: workspaces.w.agent: no agent is named \"b\", known agents are a, claude, codex, copilot, cursor, demo, gemini, goose, kimi, opencode, qwen, vibe",
        );
        accept("[workspaces.w]\npath = '/'\nagent = 'demo'");
        accept("[workspaces.w]\npath = '/'\nagent = 'claude'");
    }
}

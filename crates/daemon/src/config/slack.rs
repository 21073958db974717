//! The settings for Slack. Secrets are never among them: files or the environment have them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use super::choices::Verbosity;
use super::locate::KeyPath;
use super::model::{Config, NamedWorkspace};
use super::validate::{ValidationResult, problem, within};
use crate::remote::RemoteUrl;
use intercom_types::{DailyWindow, parse_duration};

pub(crate) const SLACK_API: &str = "https://slack.com/api";

/// All of `[slack]`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SlackConfig {
    /// The channel for threads; without one nothing is sent.
    pub channel: Option<String>,
    pub app_token_file: Option<PathBuf>,
    pub bot_token_file: Option<PathBuf>,
    pub(crate) verbosity: Verbosity,
    /// The names of the operators who are mentioned in new requests.
    pub ping: Vec<String>,
    /// The time that a request may wait before the next operator of `escalate_to` is mentioned.
    pub(crate) escalate_after: Option<String>,
    pub escalate_to: Vec<String>,
    /// The time in which only high risk causes a mention: `22:00-07:00`.
    pub(crate) quiet_hours: Option<String>,
    pub time_zone: String,
    pub api_url: String,
    /// The time-out of a call to Slack.
    pub timeout_seconds: u64,
    /// The delay before the next attempt to connect.
    pub reconnect_seconds: u64,
}

impl Default for SlackConfig {
    fn default() -> Self {
        Self {
            channel: None,
            app_token_file: None,
            bot_token_file: None,
            verbosity: Verbosity::Normal,
            ping: Vec::new(),
            escalate_after: None,
            escalate_to: Vec::new(),
            quiet_hours: None,
            time_zone: "UTC".to_owned(),
            api_url: SLACK_API.to_owned(),
            timeout_seconds: 20,
            reconnect_seconds: 10,
        }
    }
}

/// The overrides of one workspace.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WorkspaceSlackConfig {
    pub channel: Option<String>,
    pub(crate) verbosity: Option<Verbosity>,
    pub(crate) ping: Option<Vec<String>>,
}

/// The settings that apply to one session.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionSlackConfig {
    pub channel: String,
    pub verbosity: Verbosity,
    pub ping: Vec<String>,
}

impl SlackConfig {
    pub fn escalate_after(&self) -> Option<Duration> {
        self.escalate_after.as_deref().and_then(parse_duration)
    }

    pub fn quiet_hours(&self) -> Option<DailyWindow> {
        self.quiet_hours.as_deref().and_then(DailyWindow::parse)
    }

    /// Returns true if all settings are equal that need a restart to change.
    pub(crate) fn same_link(&self, other: &Self) -> bool {
        self.channel.is_some() == other.channel.is_some()
            && self.app_token_file == other.app_token_file
            && self.bot_token_file == other.bot_token_file
            && self.api_url == other.api_url
            && self.timeout_seconds == other.timeout_seconds
            && self.reconnect_seconds == other.reconnect_seconds
    }
}

impl Config {
    /// Returns the settings for a workspace; `None` while Slack is off.
    pub fn slack_here(&self, workspace: &Path) -> Option<SessionSlackConfig> {
        let slack = &self.slack;
        let place = self.workspace_of(workspace).map(|found| &found.slack);
        Some(SessionSlackConfig {
            channel: place.and_then(|place| place.channel.clone()).or(slack.channel.clone())?,
            verbosity: place.and_then(|place| place.verbosity).unwrap_or(slack.verbosity),
            ping: place.and_then(|place| place.ping.clone()).unwrap_or_else(|| slack.ping.clone()),
        })
    }

    /// Returns the innermost named workspace that contains the path.
    fn workspace_of(&self, path: &Path) -> Option<&NamedWorkspace> {
        let around = self.workspaces.values().filter(|workspace| path.starts_with(&workspace.path));
        around.max_by_key(|workspace| workspace.path.components().count())
    }
}

pub(super) fn validate(config: &Config) -> ValidationResult {
    let (at, slack) = (KeyPath::of(["slack"]), &config.slack);
    channel(&at, slack.channel.as_ref())?;
    for (name, workspace) in &config.workspaces {
        let at = KeyPath::of(["workspaces", name]).key("slack");
        channel(&at, workspace.slack.channel.as_ref())?;
        known(&at, "ping", workspace.slack.ping.as_deref().unwrap_or_default(), config)?;
        if workspace.slack.channel.is_some() && slack.channel.is_none() {
            return problem(at.key("channel"), "[slack] also needs a `channel`, for all other workspaces");
        }
    }
    known(&at, "ping", &slack.ping, config)?;
    known(&at, "escalate_to", &slack.escalate_to, config)?;
    if slack.escalate_after.is_some() && slack.escalate_after().is_none_or(|after| after.is_zero()) {
        return problem(at.key("escalate_after"), "must be a time such as \"15m\"");
    }
    if slack.escalate_after.is_some() == slack.escalate_to.is_empty() {
        return problem(at.key("escalate_after"), "`escalate_after` and `escalate_to` go together");
    }
    if slack.quiet_hours.is_some() && slack.quiet_hours().is_none() {
        return problem(at.key("quiet_hours"), "must be two times of day such as \"22:00-07:00\"");
    }
    if !DailyWindow::is_zone(&slack.time_zone) {
        return problem(
            at.key("time_zone"),
            "is not a time zone of this system; use one such as \"Europe/Berlin\"",
        );
    }
    within(&at, "timeout_seconds", &slack.timeout_seconds, &(1..=300))?;
    within(&at, "reconnect_seconds", &slack.reconnect_seconds, &(1..=300))?;
    match RemoteUrl::parse(&slack.api_url) {
        Err(why) => problem(at.key("api_url"), why),
        // The tokens would be sent unencrypted.
        Ok(url) if !url.tls && !url.is_local() => {
            problem(at.key("api_url"), "http:// is for this machine's own addresses only")
        }
        Ok(_) => Ok(()),
    }
}

/// Checks a channel's id. Names are not accepted: they change, and can be given to other channels.
fn channel(at: &KeyPath, channel: Option<&String>) -> ValidationResult {
    let fine = |id: &String| {
        id.starts_with(['C', 'G']) && id.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit())
    };
    match channel {
        Some(id) if !fine(id) => {
            problem(at.key("channel"), "must be a channel's id such as \"C0123ABCD\", not its name")
        }
        _ => Ok(()),
    }
}

fn known(at: &KeyPath, key: &str, names: &[String], config: &Config) -> ValidationResult {
    for (index, name) in names.iter().enumerate() {
        match config.operators.iter().find(|operator| operator.name == *name) {
            None => return problem(at.key(key).index(index), format!("there is no [[operator]] {name:?}")),
            Some(operator) if operator.slack.is_none() => {
                return problem(at.key(key).index(index), format!("operator {name:?} has no `slack` id"));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;

    fn read(text: &str) -> Result<Config, String> {
        parse(text, Path::new("c.toml")).map_err(|error| error.to_string())
    }

    #[test]
    fn the_innermost_workspace_says_where_a_thread_goes() {
        let config = read(
            "[slack]\nchannel = 'C1'\n[workspaces.a]\npath = '/a'\nslack = { channel = 'C2', verbosity = 'quiet' }\n\
             [workspaces.b]\npath = '/a/b'\nslack = { verbosity = 'stream' }\n",
        )
        .unwrap();
        let here = |path: &str| config.slack_here(Path::new(path)).unwrap();
        assert_eq!((here("/a/x").channel.as_str(), here("/a/x").verbosity), ("C2", Verbosity::Quiet));
        assert_eq!((here("/a/b/c").channel.as_str(), here("/a/b/c").verbosity), ("C1", Verbosity::Stream));
        assert_eq!(here("/ab").verbosity, Verbosity::Normal);
        assert_eq!(Config::default().slack_here(Path::new("/a")), None);
    }

    #[test]
    fn what_cannot_work_is_said_at_once() {
        for (text, expect) in [
            ("channel = '#general'", "c.toml:2: slack.channel: must be a channel's id"),
            ("ping = ['ana']", "c.toml:2: slack.ping[0]: there is no [[operator]] \"ana\""),
            ("quiet_hours = '22-7'", "c.toml:2: slack.quiet_hours: must be two times of day"),
            ("time_zone = 'Mars/Olympus'", "c.toml:2: slack.time_zone: is not a time zone"),
            ("api_url = 'http://slack.example/api'", "c.toml:2: slack.api_url: http:// is for this machine"),
            ("escalate_after = '15m'", "c.toml:2: slack.escalate_after: `escalate_after` and"),
            ("token = 'xoxb-1'", "c.toml:2: slack.token: unknown key"),
        ] {
            let error = read(&format!("[slack]\n{text}")).unwrap_err();
            assert!(error.starts_with(expect), "{error}");
        }
    }
}

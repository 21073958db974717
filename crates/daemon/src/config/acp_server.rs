//! The settings for ACP clients: their agents and their limits.

use std::ops::RangeInclusive;
use std::time::Duration;

use serde::Deserialize;

use super::choices::Busy;
use super::locate::KeyPath;
use super::model::Config;
use super::validate::{ValidationResult, is_agent, within};
use intercom_types::OnClientLeft;

const PROMPT_BYTES: RangeInclusive<usize> = 1..=64 * 1024 * 1024;
const ATTACHED_BYTES: RangeInclusive<usize> = 0..=256 * 1024 * 1024;
const MESSAGE_BYTES: RangeInclusive<usize> = 64 * 1024..=1024 * 1024 * 1024;
const CONNECTIONS: RangeInclusive<usize> = 1..=100_000;
const IDLE_SECONDS: RangeInclusive<u64> = 10..=86_400;
const TIMEOUT_SECONDS: RangeInclusive<u64> = 0..=7 * 86_400;
const GRACE_SECONDS: RangeInclusive<u64> = 0..=86_400;
const UNUSED_HOURS: RangeInclusive<u64> = 0..=8_760;
const ABANDONED_HOURS: RangeInclusive<f64> = 0.0..=8_760.0;

/// The server for editors and tools that speak the Agent Client Protocol.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AcpServerConfig {
    pub enabled: bool,
    /// The agent of new sessions if the client names none.
    pub agent: Option<String>,
    /// The maximum size of a prompt's text.
    pub max_prompt_bytes: usize,
    /// The maximum size of the images, sounds and embedded files of one prompt.
    pub max_attached_bytes: usize,
    pub max_message_bytes: usize,
    /// The handling of a prompt while another runs.
    pub busy: Busy,
    /// The time limit of a prompt; 0 means no limit.
    pub prompt_timeout_seconds: u64,
    /// The maximum number of concurrent connections.
    pub max_connections: usize,
    /// The time after which an HTTP connection without a stream and without a request is closed.
    pub idle_seconds: u64,
    /// The handling of sessions that a client started without a name and that nobody else has used, when the client
    /// leaves.
    pub on_close: OnClientLeft,
    /// The delay before `on_close` applies.
    pub close_grace_seconds: u64,
    /// The age at which a session is ended that was never prompted and that nobody is attached to; 0 means never.
    pub unused_hours: u64,
    /// The time without a client after which a session is ended that a client started; 0 means never.
    pub abandoned_hours: f64,
    /// True if requests without a connection are allowed.
    pub connectionless: bool,
}

impl Default for AcpServerConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            agent: None,
            max_prompt_bytes: 102_400,
            max_attached_bytes: 10 * 1024 * 1024,
            max_message_bytes: 16 * 1024 * 1024,
            busy: Busy::Queue,
            prompt_timeout_seconds: 0,
            max_connections: 2_000,
            idle_seconds: 300,
            on_close: OnClientLeft::Close,
            close_grace_seconds: 60,
            unused_hours: 24,
            abandoned_hours: 72.0,
            connectionless: false,
        }
    }
}

impl AcpServerConfig {
    pub fn prompt_timeout(&self) -> Option<Duration> {
        (self.prompt_timeout_seconds > 0).then(|| Duration::from_secs(self.prompt_timeout_seconds))
    }

    pub fn idle(&self) -> Duration {
        Duration::from_secs(self.idle_seconds)
    }

    pub fn close_grace(&self) -> Duration {
        Duration::from_secs(self.close_grace_seconds)
    }

    pub fn abandoned(&self) -> Option<Duration> {
        let after = Duration::try_from_secs_f64(self.abandoned_hours * 3600.0).unwrap_or_default();
        (!after.is_zero()).then_some(after)
    }

    pub fn unused(&self) -> Option<Duration> {
        (self.unused_hours > 0).then(|| Duration::from_hours(self.unused_hours))
    }
}

pub(super) fn validate(config: &Config) -> ValidationResult {
    let (at, settings) = (KeyPath::of(["acp_server"]), &config.acp_server);
    within(&at, "max_prompt_bytes", &settings.max_prompt_bytes, &PROMPT_BYTES)?;
    within(&at, "max_attached_bytes", &settings.max_attached_bytes, &ATTACHED_BYTES)?;
    within(&at, "max_message_bytes", &settings.max_message_bytes, &MESSAGE_BYTES)?;
    within(&at, "prompt_timeout_seconds", &settings.prompt_timeout_seconds, &TIMEOUT_SECONDS)?;
    within(&at, "max_connections", &settings.max_connections, &CONNECTIONS)?;
    within(&at, "idle_seconds", &settings.idle_seconds, &IDLE_SECONDS)?;
    within(&at, "close_grace_seconds", &settings.close_grace_seconds, &GRACE_SECONDS)?;
    within(&at, "unused_hours", &settings.unused_hours, &UNUSED_HOURS)?;
    within(&at, "abandoned_hours", &settings.abandoned_hours, &ABANDONED_HOURS)?;
    match &settings.agent {
        Some(agent) => is_agent(&at.key("agent"), agent, config),
        None => Ok(()),
    }
}

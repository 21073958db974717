//! The model of `config.toml`. All defaults are in the `Default` implementations.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use super::access::{AccessConfig, ApiConfig, AuditAnchors, ClearanceConfig, OperatorConfig, WebhookConfig};
use super::acp_server::AcpServerConfig;
use super::choices::{Framing, OnStop, PromptDelivery, Protocol};
use super::fetcher::{FETCHED_WITHIN_SECONDS, may_fetch};
use super::slack::{SlackConfig, WorkspaceSlackConfig};
use super::stall::{Restart, RestartOverrides, Spend, SpendOverrides, Stall, StallOverrides};
use super::table;
use intercom_policy::Rule;

/// The name of the built-in agent, which no other agent can have.
pub const DEMO_AGENT: &str = "demo";

const MIB: u64 = 1024 * 1024;

/// All of `config.toml`.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    #[serde(deserialize_with = "table::one")]
    pub daemon: DaemonConfig,
    #[serde(deserialize_with = "table::one")]
    pub(crate) acp: AcpConfig,
    #[serde(deserialize_with = "table::one")]
    pub limits: DaemonLimits,
    #[serde(deserialize_with = "table::one")]
    pub(crate) stop: StopWaits,
    #[serde(deserialize_with = "table::one")]
    pub(crate) stall: Stall,
    #[serde(deserialize_with = "table::one")]
    pub(crate) restart: Restart,
    #[serde(deserialize_with = "table::one")]
    pub(crate) spend: Spend,
    #[serde(deserialize_with = "table::one")]
    pub(crate) retention: LogRetention,
    #[serde(deserialize_with = "table::one")]
    pub api: ApiConfig,
    #[serde(deserialize_with = "table::one")]
    pub(crate) access: AccessConfig,
    #[serde(rename = "operator")]
    pub operators: Vec<OperatorConfig>,
    /// The rules in order; the first match decides.
    #[serde(rename = "rule")]
    pub rules: Vec<Rule>,
    #[serde(deserialize_with = "table::one")]
    pub(crate) clearances: ClearanceConfig,
    #[serde(deserialize_with = "table::one")]
    pub webhook: WebhookConfig,
    #[serde(deserialize_with = "table::one")]
    pub audit: AuditAnchors,
    #[serde(deserialize_with = "table::one")]
    pub slack: SlackConfig,
    #[serde(deserialize_with = "table::one", alias = "seats")]
    pub acp_server: AcpServerConfig,
    #[serde(deserialize_with = "table::one")]
    pub run: RunConfig,
    #[serde(deserialize_with = "table::each")]
    pub agents: BTreeMap<String, AgentProfile>,
    #[serde(deserialize_with = "table::each")]
    pub workspaces: BTreeMap<String, NamedWorkspace>,
}

/// The settings of the daemon itself.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DaemonConfig {
    pub on_stop: OnStop,
    /// True if agents get cgroups of their own where that is possible.
    pub cgroups: bool,
}

impl Default for DaemonConfig {
    fn default() -> Self {
        Self { on_stop: OnStop::Leave, cgroups: true }
    }
}

/// The settings of the command `intercom run`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RunConfig {
    /// The longest wait for the first output of a new agent; 0 does not wait.
    pub wait_seconds: u64,
}

impl Default for RunConfig {
    fn default() -> Self {
        Self { wait_seconds: 30 }
    }
}

/// The defaults for communication with agents; a profile overrides them.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AcpConfig {
    pub(crate) framing: Framing,
    /// The maximum size of a line in bytes, without the line end.
    pub(crate) max_line_length: usize,
    pub(crate) startup_timeout_seconds: u64,
    /// The silence after an interrupt that ends the turn if the agent does not end it.
    pub(crate) interrupt_quiet_seconds: f64,
}

impl Default for AcpConfig {
    fn default() -> Self {
        Self {
            framing: Framing::Ndjson,
            max_line_length: 1_048_576,
            startup_timeout_seconds: 30,
            interrupt_quiet_seconds: 5.0,
        }
    }
}

/// The limits on the daemon's load.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DaemonLimits {
    pub max_sessions: usize,
    pub max_body_bytes: usize,
    /// The maximum number of queued prompts per session.
    pub(crate) max_queued_prompts: usize,
    /// The number of bytes of stderr that are kept per session.
    pub(crate) stderr_tail_bytes: usize,
    /// The free space on the disk below which reading from agents pauses; 0 never pauses.
    pub min_free_disk_mib: u64,
    /// The maximum size of one agent's unread output on disk; beyond it the agent waits.
    pub(crate) journal_mib: u64,
    /// The free memory below which no agent is started.
    pub(crate) min_free_memory_mib: u64,
}

impl Default for DaemonLimits {
    fn default() -> Self {
        Self {
            max_sessions: 1000,
            max_body_bytes: 4 * 1024 * 1024,
            max_queued_prompts: 100,
            stderr_tail_bytes: 16_384,
            min_free_disk_mib: 64,
            journal_mib: 1024,
            min_free_memory_mib: 128,
        }
    }
}

impl DaemonLimits {
    pub(crate) fn min_free_disk_bytes(&self) -> u64 {
        self.min_free_disk_mib.saturating_mul(MIB)
    }

    pub(crate) fn min_free_memory_bytes(&self) -> u64 {
        self.min_free_memory_mib.saturating_mul(MIB)
    }

    pub(crate) fn journal_bytes(&self) -> u64 {
        self.journal_mib.saturating_mul(MIB)
    }
}

/// The time that each step of stopping an agent may take before the next, harder one.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StopWaits {
    pub after_interrupt_seconds: f64,
    pub after_stdin_closed_seconds: f64,
    pub after_sigterm_seconds: f64,
}

impl Default for StopWaits {
    fn default() -> Self {
        Self { after_interrupt_seconds: 1.0, after_stdin_closed_seconds: 1.0, after_sigterm_seconds: 2.0 }
    }
}

impl StopWaits {
    pub(crate) fn after_interrupt(&self) -> Duration {
        seconds(self.after_interrupt_seconds)
    }

    pub(crate) fn after_stdin_closed(&self) -> Duration {
        seconds(self.after_stdin_closed_seconds)
    }

    pub(crate) fn after_sigterm(&self) -> Duration {
        seconds(self.after_sigterm_seconds)
    }
}

/// Converts seconds. Validation rejects invalid values; an invalid value that was constructed in code means no wait
/// rather than a panic.
fn seconds(value: f64) -> Duration {
    Duration::try_from_secs_f64(value).unwrap_or(Duration::ZERO)
}

/// The retention of the log. Only ended sessions are ever removed.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LogRetention {
    /// The maximum age of ended sessions; 0 keeps them for ever.
    pub(crate) days: u64,
    /// The maximum size of the log; 0 means no limit.
    pub(crate) max_mib: u64,
}

impl Default for LogRetention {
    fn default() -> Self {
        Self { days: 30, max_mib: 0 }
    }
}

impl LogRetention {
    /// Returns the maximum size of the log; `None` is no limit.
    pub(crate) fn max_bytes(&self) -> Option<u64> {
        (self.max_mib > 0).then(|| self.max_mib.saturating_mul(MIB))
    }
}

/// The launch settings of an agent.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AgentProfile {
    pub description: Option<String>,
    pub command: String,
    pub args: Vec<String>,
    pub env: BTreeMap<String, String>,
    /// The names of the daemon's variables that this agent gets as well.
    pub pass_env: Vec<String>,
    pub protocol: Protocol,
    pub prompt_delivery: PromptDelivery,
    pub framing: Option<Framing>,
    pub max_line_length: Option<usize>,
    pub startup_timeout_seconds: Option<u64>,
    pub interrupt_quiet_seconds: Option<f64>,
    #[serde(deserialize_with = "table::one")]
    pub stop: StopOverrides,
    #[serde(deserialize_with = "table::one")]
    pub limits: AgentLimits,
    #[serde(deserialize_with = "table::one")]
    pub stall: StallOverrides,
    #[serde(deserialize_with = "table::one")]
    pub restart: RestartOverrides,
    #[serde(deserialize_with = "table::one")]
    pub spend: SpendOverrides,
    /// The log-in method of an ACP agent, for a log-in without a person.
    pub auth_method: Option<String>,
    /// The mode that an ACP agent is set to whenever its process starts.
    pub mode: Option<String>,
    /// True if an ACP agent may ask us to read and write files.
    pub offer_files: bool,
    /// True if an ACP agent may ask us to run commands.
    pub offer_terminals: bool,
    /// The system user that the agent runs as, instead of the daemon's; needs a daemon that runs as root.
    pub run_as: Option<String>,
    /// True if its sessions are resumed after a restart of the machine.
    pub resume_after_reboot: bool,
}

impl Default for AgentProfile {
    /// Returns a profile without a command, which the caller must set.
    fn default() -> Self {
        Self {
            description: None,
            command: String::new(),
            args: Vec::new(),
            env: BTreeMap::new(),
            pass_env: Vec::new(),
            protocol: Protocol::Intercom,
            prompt_delivery: PromptDelivery::Immediate,
            framing: None,
            max_line_length: None,
            startup_timeout_seconds: None,
            interrupt_quiet_seconds: None,
            stop: StopOverrides::default(),
            limits: AgentLimits::default(),
            stall: StallOverrides::default(),
            restart: RestartOverrides::default(),
            spend: SpendOverrides::default(),
            auth_method: None,
            mode: None,
            offer_files: false,
            offer_terminals: false,
            run_as: None,
            resume_after_reboot: false,
        }
    }
}

impl AgentProfile {
    pub(crate) fn framing(&self, acp: &AcpConfig) -> Framing {
        self.framing.unwrap_or(acp.framing)
    }

    pub(crate) fn max_line_length(&self, acp: &AcpConfig) -> usize {
        // ACP agents send images in one line.
        let usual = match self.protocol {
            Protocol::Intercom => acp.max_line_length,
            Protocol::Acp => acp.max_line_length.max(64 * 1024 * 1024),
        };
        self.max_line_length.unwrap_or(usual)
    }

    /// Returns the longest wait until the agent is ready. A download takes longer than the start of an installed
    /// program.
    pub(crate) fn startup_timeout(&self, acp: &AcpConfig) -> Duration {
        let usual = acp.startup_timeout_seconds;
        let fetched = may_fetch(&self.command, &self.args);
        let usual = if fetched { usual.max(FETCHED_WITHIN_SECONDS) } else { usual };
        Duration::from_secs(self.startup_timeout_seconds.unwrap_or(usual))
    }

    pub(crate) fn interrupt_quiet(&self, acp: &AcpConfig) -> Duration {
        seconds(self.interrupt_quiet_seconds.unwrap_or(acp.interrupt_quiet_seconds))
    }

    pub(crate) fn stop_waits(&self, waits: &StopWaits) -> StopWaits {
        let stop = &self.stop;
        StopWaits {
            after_interrupt_seconds: stop.after_interrupt_seconds.unwrap_or(waits.after_interrupt_seconds),
            after_stdin_closed_seconds: stop
                .after_stdin_closed_seconds
                .unwrap_or(waits.after_stdin_closed_seconds),
            after_sigterm_seconds: stop.after_sigterm_seconds.unwrap_or(waits.after_sigterm_seconds),
        }
    }
}

/// The waits of one agent that differ from `[stop]`.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StopOverrides {
    pub after_interrupt_seconds: Option<f64>,
    pub after_stdin_closed_seconds: Option<f64>,
    pub after_sigterm_seconds: Option<f64>,
}

/// The resource limits of one agent and all its descendants.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AgentLimits {
    pub memory_mib: Option<u64>,
    pub processes: Option<u64>,
    /// The maximum CPU usage; 100 is one core.
    pub cpu_percent: Option<u64>,
}

/// A directory with a name, so that people need not type its path.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NamedWorkspace {
    /// The absolute path.
    pub path: PathBuf,
    /// The agent to use here if none is named.
    pub agent: Option<String>,
    #[serde(deserialize_with = "table::one")]
    pub slack: WorkspaceSlackConfig,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_falls_back_to_the_general_settings() {
        let (acp, waits, profile) = (AcpConfig::default(), StopWaits::default(), AgentProfile::default());
        assert_eq!(profile.framing(&acp), Framing::Ndjson);
        assert_eq!(profile.max_line_length(&acp), 1_048_576);
        assert_eq!(profile.startup_timeout(&acp), Duration::from_secs(30));
        assert_eq!(profile.interrupt_quiet(&acp), Duration::from_secs(5));
        assert_eq!(profile.stop_waits(&waits), waits);
    }

    #[test]
    fn a_profile_overrides_only_what_it_names() {
        let profile = AgentProfile {
            framing: Some(Framing::Lsp),
            max_line_length: Some(2048),
            startup_timeout_seconds: Some(5),
            interrupt_quiet_seconds: Some(0.5),
            stop: StopOverrides { after_sigterm_seconds: Some(0.25), ..StopOverrides::default() },
            ..AgentProfile::default()
        };
        let acp = AcpConfig::default();
        assert_eq!(profile.framing(&acp), Framing::Lsp);
        assert_eq!(profile.max_line_length(&acp), 2048);
        assert_eq!(profile.startup_timeout(&acp), Duration::from_secs(5));
        assert_eq!(profile.interrupt_quiet(&acp), Duration::from_millis(500));
        let waits = profile.stop_waits(&StopWaits::default());
        assert_eq!(waits.after_interrupt(), Duration::from_secs(1));
        assert_eq!(waits.after_stdin_closed(), Duration::from_secs(1));
        assert_eq!(waits.after_sigterm(), Duration::from_millis(250));
    }

    #[test]
    fn zero_means_no_limit_in_retention() {
        let none = LogRetention { days: 0, max_mib: 0 };
        assert_eq!(none.max_bytes(), None);
        let some = LogRetention { days: 2, max_mib: 3 };
        assert_eq!(some.max_bytes(), Some(3_145_728));
    }

    #[test]
    fn a_wait_made_by_hand_never_panics() {
        for value in [-1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(seconds(value), Duration::ZERO);
        }
    }
}

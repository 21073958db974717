//! The plan of a session's process, and the ways in which its task begins.

use std::sync::Arc;
use std::time::Duration;

use crate::session::commit::StepSettings;
use crate::session::handle::CommandError;
use crate::session::stall::WatchPolicy;
use crate::session::state::{RequestAssessor, SessionInput};
use intercom_host::{AgentProcess, ProcessSpec, RuntimeDir, StopLadder};
use intercom_types::Time;
use intercom_wire::driver::Driver;
use intercom_wire::framing::Framer;

/// The plan to start this session's process and to talk to it.
pub(crate) struct ProcessPlan {
    pub(crate) spec: Result<ProcessSpec, String>,
    pub(crate) runtime_dir: RuntimeDir,
    pub(crate) framer: Framer,
    pub(crate) driver: Driver,
    pub(crate) ladder: StopLadder,
    pub(crate) assessor: Arc<dyn RequestAssessor>,
    pub(crate) startup_timeout: Duration,
    /// The description from which the session is started again later, in the supervisor's format.
    pub(crate) launch: String,
    /// A hash of the agent's command line.
    pub(crate) command_fingerprint: String,
    /// True if the session is resumed after a restart of the machine.
    pub(crate) resume_after_reboot: bool,
    /// Returns the plan for the generation with this number.
    pub(crate) next_plan: Arc<dyn Fn(u32) -> ProcessPlan + Send + Sync>,
}

impl ProcessPlan {
    pub(super) fn step_settings<'a>(
        &'a self,
        now: Time,
        watch_policy: &'a WatchPolicy,
        spent_elsewhere: u64,
    ) -> StepSettings<'a> {
        let (startup, command_fingerprint) = (self.startup_timeout, self.command_fingerprint.as_str());
        StepSettings { now, watch_policy, startup, command_fingerprint, spent_elsewhere }
    }
}

impl std::fmt::Debug for ProcessPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProcessPlan").field("spec", &self.spec).finish_non_exhaustive()
    }
}

/// The ways in which a session's task begins.
#[derive(Debug)]
pub(crate) enum TaskBeginning {
    /// A launch or a resume.
    New(SessionInput),
    /// A process that an earlier daemon started and that still runs, or whose end was found.
    Found(Box<FoundProcess>),
    /// A process that an earlier daemon started and that cannot be found any more, with the reason.
    Lost(String),
    /// No process: the session waits for a restart or for its first prompt.
    Resting,
}

/// A process that was found, and the extent of the log.
#[derive(Debug)]
pub(crate) struct FoundProcess {
    pub(crate) process: AgentProcess,
    pub(crate) consumed: u64,
    /// Messages that were recorded and whose arrival is not known.
    pub(crate) outbox: Vec<(u64, Vec<u8>)>,
}

/// The reasons why a session does not run after its start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error("{0}")]
    SpawnFailed(String),
    #[error("the daemon is stopping")]
    Closing,
    #[error(transparent)]
    Command(#[from] CommandError),
}

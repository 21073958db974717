//! A session: a pure state machine, and the task that owns it.

pub(crate) mod actor;
mod commit;
pub(crate) mod handle;
pub(crate) mod host_call;
pub(crate) mod recover;
pub(crate) mod restart;
pub(crate) mod stall;
pub(crate) mod state;
mod tail;

pub(crate) use actor::ProcessPlan;
pub(crate) use actor::StartError;
pub(crate) use actor::failed_commands;
pub(crate) use actor::quarantined_lines;
pub use handle::CommandError;
pub(crate) use handle::CommandOutcome;
pub(crate) use handle::SessionHandle;
pub(crate) use handle::StopOutcome;
pub(crate) use stall::SpendCaps;
pub(crate) use stall::StallThresholds;
pub(crate) use stall::WatchPolicy;
pub(crate) use state::AdoptedProcess;
pub(crate) use state::CommandRefusal;
pub(crate) use state::OpenRequests;
pub(crate) use state::RequestAssessment;
pub(crate) use state::RequestAssessor;
pub(crate) use state::SessionInput;
pub(crate) use state::SessionSpec;
pub(crate) use state::SessionState;
pub(crate) use state::TurnModel;

//! A session: a pure state machine, and the task that owns it.

pub mod actor;
mod commit;
pub mod handle;
pub mod host_call;
pub mod recover;
pub mod restart;
pub mod stall;
pub mod state;
mod tail;

pub use actor::{ProcessPlan, SessionActor, StartError, failed_commands, quarantined_lines};
pub use handle::{ArrivalWatch, CommandError, CommandOutcome, SessionHandle, StopOutcome};
pub use stall::{SpendCaps, StallThresholds, WatchPolicy};
pub use state::{
    AdoptedProcess, CommandRefusal, OpenRequests, RequestAssessment, RequestAssessor, SessionInput,
    SessionSpec, SessionState, TurnModel,
};

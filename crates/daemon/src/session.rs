//! One session: a pure state machine, and the task that owns it.

pub mod actor;
mod commit;
pub mod errand;
pub mod handle;
pub mod recover;
pub mod restart;
pub mod stall;
pub mod state;
mod tail;

pub use actor::{ProcessPlan, SessionActor, StartError, failed_commands, quarantined_lines};
pub use handle::{ArrivalWatch, CommandError, Done, SessionHandle, StopOutcome};
pub use stall::{SpendCaps, WatchPolicy};
pub use state::{
    AdoptedProcess, Input, OpenRequests, Refused, RequestAssessment, RequestAssessor, SessionSpec,
    SessionState,
};

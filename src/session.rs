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

pub use actor::{Actor, Plan, StartError, failed_commands, quarantined_lines};
pub use handle::{Arrival, CommandError, Done, Handle, Stopped};
pub use stall::{Caps, Vigil};
pub use state::{About, Adoption, Assessed, Input, Judge, OpenRequests, Refused, State};

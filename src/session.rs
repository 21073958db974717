//! One session: a pure state machine, and the task that owns it.

//pub mod actor;
//pub mod handle;
pub mod state;

//pub use handle::{CommandError, Handle};
pub use state::{How, Refused, State};

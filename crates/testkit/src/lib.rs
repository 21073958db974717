//! What the tests and benchmarks of all crates share. It stands on none of them, so that each of them may use it.

#![allow(clippy::unwrap_used, reason = "a test that fails here has failed")]
#![allow(clippy::return_self_not_must_use, reason = "what asserts something is called for that")]
#![allow(missing_debug_implementations, reason = "nobody prints the programs that a test started")]

pub mod acp_agent;
pub mod agent;
pub mod client;
pub mod harness;
mod published;
mod script;
pub mod seats;
pub mod slack;

pub use published::assert_published;

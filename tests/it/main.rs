//! The real binary with real processes. One test binary, so that it links once; one module per promise.

#![allow(clippy::unwrap_used, reason = "a test that fails here has failed")]

mod contract;
mod decisions;
mod errors;
mod events;
mod faults;
mod harness;
mod sessions;
mod survive;
mod trees;

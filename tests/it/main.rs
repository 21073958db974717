//! The real binary with real processes. One test binary, so that it links once; one module per promise.

#![allow(
    clippy::unwrap_used,
    clippy::format_push_string,
    reason = "tests may be plain: a panic is a failure"
)]

mod contract;
mod faults;
mod harness;
mod survive;
mod trees;

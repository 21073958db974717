//! intercom hosts headless coding agents and connects them to the people who run them.
//!
//! The layers, from the top; dependencies point down only:
//! `cli, bridge → ops → supervisor → session → driver, policy, host, store → wire → domain`.
//! `docs/ARCHITECTURE.md` is the map.

pub mod action;
pub mod bridge;
pub mod bus;
pub mod cli;
pub mod config;
pub mod demo;
pub mod domain;
pub mod driver;
pub mod failpoint;
pub mod fold;
#[doc(hidden)]
pub mod fuzzing;
pub mod host;
pub mod lifecycle;
pub mod ops;
pub mod policy;
#[cfg(test)]
mod published;
pub mod redact;
pub mod remote;
pub mod session;
pub mod socket;
pub mod store;
pub mod summary;
pub mod supervisor;
pub mod telemetry;
pub mod text;
pub mod wire;

//! The real binary with real processes. One test binary, so that it links once; one module per promise.

#![allow(clippy::unwrap_used, reason = "a test that fails here has failed")]

mod access;
mod acp;
mod acp_calls;
mod acp_door;
mod acp_prompts;
mod acp_relay;
mod agents;
mod cli;
mod contract;
mod decisions;
mod deferred;
mod demo;
mod errors;
mod events;
mod faults;
mod harness;
mod layers;
mod openapi;
mod peers;
mod policy;
mod presets;
mod process;
mod protocol_doc;
mod serve;
mod sessions;
#[path = "../fixtures/slack.rs"]
mod slack;
mod slack_bridge;
mod slack_fake;
mod stalls;
mod survive;
mod trees;
mod web;
mod webhook;

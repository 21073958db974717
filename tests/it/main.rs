//! The real binary with real processes. One test binary, so that it links once; one module per promise.

#![allow(clippy::unwrap_used, reason = "a test that fails here has failed")]

mod abandoned;
mod access;
mod acp;
mod acp_answers;
mod acp_calls;
mod acp_details;
mod acp_door;
mod acp_fuzz;
mod acp_peers_clients;
mod acp_prompts;
mod acp_relay;
mod acp_seed_002;
mod acp_seed_004;
mod acp_together;
mod agents;
mod audit_cut;
mod backup;
mod cli;
mod contract;
mod decisions;
mod deferred;
mod demo;
mod errors;
mod events;
mod failures;
mod faults;
mod first_use;
mod harness;
mod interrupts;
mod layers;
mod leftovers;
mod lines;
mod openapi;
mod orphans;
mod peer_identity;
mod peers;
mod policy;
mod presets;
mod process;
mod protocol_doc;
mod quarantine;
mod seats;
mod serve;
mod sessions;
mod shim_peers;
#[path = "../fixtures/slack.rs"]
mod slack;
mod slack_bridge;
mod slack_fake;
mod stalls;
mod survive;
mod trees;
mod web;
mod webhook;

//! Wires and decides nothing: one of the hidden modes of the binary, or the command line.

use std::process::ExitCode;

use intercom::{cli, demo, host::shim, supervisor::DEMO_MODE};

fn main() -> ExitCode {
    match std::env::args_os().nth(1) {
        Some(mode) if mode == shim::MODE => shim::main(),
        Some(mode) if mode == DEMO_MODE => demo::run(),
        _ => cli::main(),
    }
}

//! The program: one of the hidden modes of the binary, or the command line.

mod cli;
mod demo;
mod lifecycle;

use std::process::ExitCode;

use intercom_daemon::supervisor::DEMO_MODE;
use intercom_host::shim;

fn main() -> ExitCode {
    match std::env::args_os().nth(1) {
        Some(mode) if mode == shim::MODE => shim::main(),
        Some(mode) if mode == DEMO_MODE => demo::run(),
        _ => cli::main(),
    }
}

//! Wires and decides nothing: the demo agent's hidden mode, or the command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|mode| mode == intercom::supervisor::DEMO_MODE) {
        return intercom::demo::run();
    }
    intercom::cli::main()
}

//! Traces on stderr; `RUST_LOG` sets their level.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// The default level: ids and sizes at `info`, payloads at `trace`, secrets never.
const DEFAULT: &str = "warn,intercom=info";

pub fn init() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(DEFAULT));
    // This crate logs addresses with secrets in them, and we log its important events ourselves.
    let filter = filter.add_directive("slack_morphism=off".parse().expect("it is a directive"));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // On a full disk stderr cannot be written to. The subscriber would report that on stderr, and panic when that
        // fails, too.
        .log_internal_errors(false)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false);
    builder.try_init().ok(); // a test may have installed one already
}

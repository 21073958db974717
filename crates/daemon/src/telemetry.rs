//! Traces go to stderr; `RUST_LOG` says how much.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// Ids and sizes at `info`, payloads at `trace`, secrets never.
const DEFAULT: &str = "warn,intercom=info";

pub fn init() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(DEFAULT));
    // It prints addresses that let anybody in, and what matters of it we say ourselves.
    let filter = filter.add_directive("slack_morphism=off".parse().expect("it is a directive"));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // It would complain on stderr that stderr cannot be written to, as on a full disk, and panic when that fails, too.
        .log_internal_errors(false)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false);
    builder.try_init().ok(); // a test may have set one up before
}

//! `intercom serve`: reads the configuration, then hands over to the daemon.

use crate::cli::failure::Failure;
use crate::config::{self, Paths};
use crate::lifecycle::{self, ServeOptions};

/// Run the daemon in the foreground
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Also start a friendly scripted agent, to see what this is about
    #[arg(long)]
    demo: bool,
}

/// The configuration is read first: if it is wrong, nothing starts.
pub(super) fn run(args: &Args, paths: Paths) -> anyhow::Result<()> {
    let config = config::load(Some(&paths.config), paths.config_explicit)
        .map_err(|error| Failure::usage(error.to_string()))?;
    lifecycle::serve(ServeOptions { paths, config, demo: args.demo })
}

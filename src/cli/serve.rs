//! `intercom serve`: reads the configuration, then hands over to the daemon.

use crate::cli::failure::Failure;
use crate::config::{self, OnStop, Paths};
use crate::lifecycle::{self, ServeOptions};

/// Run the daemon in the foreground
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Also start a friendly scripted agent, to see what this is about
    #[arg(long)]
    demo: bool,
    /// What becomes of the agents when the daemon stops, instead of what the configuration says [leave or drain]
    #[arg(long, value_name = "HOW", overrides_with = "on_stop")]
    on_stop: Option<OnStop>,
}

/// The configuration is read first: if it is wrong, nothing starts.
pub(super) fn run(args: &Args, paths: Paths) -> anyhow::Result<()> {
    let mut config = config::load(Some(&paths.config), paths.config_explicit)
        .map_err(|error| Failure::usage(format!("{:#}", anyhow::Error::new(error))))?;
    config.daemon.on_stop = args.on_stop.unwrap_or(config.daemon.on_stop);
    lifecycle::serve(ServeOptions { paths, config, demo: args.demo })
}

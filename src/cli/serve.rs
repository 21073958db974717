//! `intercom serve`: reads the configuration, then hands over to the daemon.

use std::sync::Arc;

use crate::cli::failure::Failure;
use crate::config::{self, OnStop, Paths};
use crate::lifecycle::{self, ReadConfig, ServeOptions};

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
    let (file, explicit, on_stop) = (paths.config.clone(), paths.config_explicit, args.on_stop);
    let read_config: ReadConfig = Arc::new(move || {
        let mut config = config::load(Some(&file), explicit)?;
        config.daemon.on_stop = on_stop.unwrap_or(config.daemon.on_stop);
        Ok(config)
    });
    let config = read_config().map_err(|error| Failure::usage(format!("{:#}", anyhow::Error::new(error))))?;
    lifecycle::serve(ServeOptions { paths, config, read_config, demo: args.demo })
}

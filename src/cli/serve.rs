//! `intercom serve`: reads the configuration, then hands over to the daemon.

use std::sync::Arc;

use crate::cli::failure::CliFailure;
use crate::lifecycle::{self, ConfigReader, OccupiedPortPolicy, ServeOptions};
use intercom_daemon::config::{self, API_TOKEN, DEFAULT_LISTEN, DaemonPaths, OnStop};

/// Run the daemon in the foreground
#[derive(Debug, clap::Args)]
pub(super) struct ServeArgs {
    /// Also start a friendly scripted agent, to see what this is about
    #[arg(long)]
    demo: bool,
    /// Where the API and the console listen, instead of what the configuration says: an address and a port, or `off`; port 0
    /// is any free one
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<String>,
    /// What becomes of the agents when the daemon stops, instead of what the configuration says [leave or drain]
    #[arg(long, value_name = "HOW", overrides_with = "on_stop")]
    on_stop: Option<OnStop>,
    /// Leave the session of whoever started it, and with it their terminal and its signals
    #[arg(long, hide = true)]
    detached: bool,
}

/// The configuration is read first: if it is wrong, nothing starts.
pub(super) fn run(args: &ServeArgs, paths: DaemonPaths) -> anyhow::Result<()> {
    if args.detached {
        nix::unistd::setsid().ok(); // it fails for the leader of a group, who was detached by somebody else
    }
    let (file, explicit, on_stop) = (paths.config.clone(), paths.config_explicit, args.on_stop);
    let listen = args.listen.clone();
    let read_config: ConfigReader = Arc::new(move || {
        let mut config = config::load(Some(&file), explicit)?;
        config.daemon.on_stop = on_stop.unwrap_or(config.daemon.on_stop);
        config.api.overridden(|name| std::env::var(name).ok())?;
        config.api.listen = listen.clone().unwrap_or(config.api.listen);
        Ok(config)
    });
    let config =
        read_config().map_err(|error| CliFailure::usage(format!("{:#}", anyhow::Error::new(error))))?;
    let address = config.api.address();
    address.map_err(|wrong| CliFailure::usage(format!("--listen: {wrong}")))?;
    let token = given_token(std::env::var(API_TOKEN).ok())?;
    let taken_port = match args {
        // Whoever names a port on the command line means this one.
        ServeArgs { listen: Some(_), .. } => OccupiedPortPolicy::Fail,
        ServeArgs { demo: true, .. } => OccupiedPortPolicy::TakeNext,
        _ if config.api.listen == DEFAULT_LISTEN => OccupiedPortPolicy::GoWithout,
        _ => OccupiedPortPolicy::Fail,
    };
    lifecycle::serve(ServeOptions { paths, config, read_config, demo: args.demo, taken_port, token })
}

/// One that could be guessed is worse than none.
fn given_token(said: Option<String>) -> Result<Option<String>, CliFailure> {
    const LEAST: usize = 16;
    match said.filter(|token| !token.is_empty()) {
        Some(token) if token.chars().count() < LEAST => {
            Err(CliFailure::usage(format!("{API_TOKEN}: at least {LEAST} characters are needed")))
        }
        token => Ok(token),
    }
}

//! `intercom serve`: reads the configuration, then runs the daemon.

use std::sync::Arc;

use crate::cli::failure::CliFailure;
use crate::lifecycle::{self, ConfigReader, OccupiedPortPolicy, ServeOptions};
use intercom_daemon::config::{self, API_TOKEN, DEFAULT_LISTEN, DaemonPaths, OnStop};

/// Run the daemon in the foreground
#[derive(Debug, clap::Args)]
pub(super) struct ServeArgs {
    /// Also start a scripted demo agent, to try intercom
    #[arg(long)]
    demo: bool,
    /// The address and port of the API and the console, or `off`; overrides the configuration; port 0 chooses a free
    /// one
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<String>,
    /// The handling of the agents when the daemon stops; overrides the configuration [leave or drain]
    #[arg(long, value_name = "HOW", overrides_with = "on_stop")]
    on_stop: Option<OnStop>,
    /// Detach from the session of the parent process, and so from its terminal and signals
    #[arg(long, hide = true)]
    detached: bool,
}

/// Runs the daemon. The configuration is read first: if it is invalid, nothing starts.
pub(super) fn run(args: &ServeArgs, paths: DaemonPaths) -> anyhow::Result<()> {
    if args.detached {
        nix::unistd::setsid().ok(); // it fails for a group leader, which another program has detached
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
        // An explicit port must not be replaced by another one.
        ServeArgs { listen: Some(_), .. } => OccupiedPortPolicy::Fail,
        ServeArgs { demo: true, .. } => OccupiedPortPolicy::TakeNext,
        _ if config.api.listen == DEFAULT_LISTEN => OccupiedPortPolicy::GoWithout,
        _ => OccupiedPortPolicy::Fail,
    };
    lifecycle::serve(ServeOptions { paths, config, read_config, demo: args.demo, taken_port, token })
}

/// Checks a given token. A token that can be guessed is worse than none.
fn given_token(given: Option<String>) -> Result<Option<String>, CliFailure> {
    const LEAST: usize = 16;
    match given.filter(|token| !token.is_empty()) {
        Some(token) if token.chars().count() < LEAST => {
            Err(CliFailure::usage(format!("{API_TOKEN}: at least {LEAST} characters are needed")))
        }
        token => Ok(token),
    }
}

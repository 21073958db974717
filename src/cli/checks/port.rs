//! The port of the API and the console: its owner, and the console's address.

use super::Check;
use crate::cli::CliContext;
use crate::cli::daemon_info::DaemonInfo;
use crate::cli::transport::Transport;
use intercom_daemon::config::ApiConfig;
use intercom_host as host;

pub(in crate::cli) fn port(configured: &ApiConfig, cx: &CliContext) -> Vec<Check> {
    let about = DaemonInfo::read(&cx.paths.daemon_json());
    let mut checks = vec![of(configured, about.as_ref())];
    checks.extend(console(about.as_ref(), cx));
    checks
}

fn of(configured: &ApiConfig, about: Option<&DaemonInfo>) -> Check {
    let mut api = configured.clone();
    let address = match api.overridden(|name| std::env::var(name).ok()) {
        Ok(()) => api.address(),
        Err(error) => Err(error.to_string()),
    };
    let address = match address {
        Ok(Some(address)) => address,
        Ok(None) => return Check::ok("port", "off: there is no console"),
        Err(wrong) => return Check::wrong("port", wrong, "see [api] listen in the configuration"),
    };
    match host::listener(address) {
        None => Check::ok("port", format!("{address} is free")),
        Some(listener) if about.is_some_and(|about| listener.pids().any(|pid| pid == about.pid)) => {
            Check::ok("port", format!("{address} is the daemon's"))
        }
        Some(listener) => Check::warning(
            "port",
            format!("{address} is taken by {listener}"),
            "`intercom serve --listen 127.0.0.1:0` takes any free one; [api] listen sets one",
        ),
    }
}

/// Checks the console's address, if there is a daemon.
fn console(about: Option<&DaemonInfo>, cx: &CliContext) -> Option<Check> {
    if let Transport::Remote(remote) = cx.client.transport() {
        return Some(Check::ok("console", remote.console()));
    }
    Some(match about?.url.as_deref() {
        Some(url) => Check::ok("console", format!("{url}/, `intercom open` opens it")),
        None => Check::warning(
            "console",
            "none: the daemon has no port",
            "set `listen` below `[api]` in the configuration to a free one, and run `intercom daemon restart`",
        ),
    })
}

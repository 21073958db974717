//! The port of the API.

use std::io;
use std::net::SocketAddr;

use anyhow::{Context, bail};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use intercom_bridges::api::serve;
use intercom_daemon::config::{self, DEFAULT_LISTEN};
use intercom_daemon::ops::Operations;
use intercom_host as host;

/// The number of ports after a taken one that are tried before any free one is used.
const NEXT_PORTS: u16 = 20;

/// The reaction to a port that another process listens on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OccupiedPortPolicy {
    Fail,
    GoWithout,
    TakeNext,
}

/// The result of opening the port.
pub(super) enum PortOpening {
    /// The configuration has no port.
    Off,
    Port(BoundPort),
    Taken(OccupiedPort),
}

impl PortOpening {
    pub(super) fn url(&self) -> Option<String> {
        match self {
            Self::Port(port) => Some(port.url()),
            Self::Off | Self::Taken(_) => None,
        }
    }
}

pub(super) struct BoundPort {
    pub(super) listener: TcpListener,
    pub(super) tls: Option<TlsAcceptor>,
}

impl BoundPort {
    pub(super) fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let address = self.listener.local_addr().map(|address| address.to_string()).unwrap_or_default();
        format!("{scheme}://{address}")
    }
}

/// A port that could not be opened, and one that can.
pub(super) struct OccupiedPort {
    why: String,
    pub(super) free: SocketAddr,
}

impl OccupiedPort {
    async fn at(address: SocketAddr, error: &io::Error) -> Self {
        let why = match host::listener(address) {
            Some(listener) => format!("cannot listen on {address}: it is taken by {listener}"),
            None => format!("cannot listen on {address}: {error}"),
        };
        let free = match next_free(address).await {
            Ok(listener) => listener.local_addr().unwrap_or(address),
            Err(_) => SocketAddr::new(address.ip(), 0),
        };
        Self { why, free }
    }

    pub(super) fn why(&self) -> &str {
        &self.why
    }
}

/// Listens as configured, or reacts to a taken port as requested.
pub(super) async fn open(
    settings: &config::ApiConfig,
    taken: OccupiedPortPolicy,
    ops: &Operations,
) -> anyhow::Result<PortOpening> {
    let address = settings.address().map_err(anyhow::Error::msg)?;
    let Some(address) = address else { return Ok(PortOpening::Off) };
    let tls = match settings.tls() {
        None => None,
        Some((cert, key)) => Some(serve::tls(cert, key).map_err(anyhow::Error::msg).context("no TLS")?),
    };
    if !config::is_loopback(address.ip()) {
        if tls.is_none() {
            bail!("[api] listen = \"{address}\" can be reached from outside: it needs tls_cert and tls_key");
        }
        if !ops.has_tokens() {
            bail!(
                "[api] listen = \"{address}\" can be reached from outside, but there is no token yet: listen on \
                 {DEFAULT_LISTEN} and make one with `intercom token create` first"
            );
        }
    }
    let error = match TcpListener::bind(address).await {
        Ok(listener) => return Ok(PortOpening::Port(BoundPort { listener, tls })),
        Err(error) => error,
    };
    match taken {
        OccupiedPortPolicy::TakeNext if error.kind() == io::ErrorKind::AddrInUse => {
            let listener = next_free(address).await.with_context(|| format!("cannot listen on {address}"))?;
            Ok(PortOpening::Port(BoundPort { listener, tls }))
        }
        OccupiedPortPolicy::GoWithout => {
            let taken = OccupiedPort::at(address, &error).await;
            tracing::warn!("{}: the API is on the unix socket only", taken.why);
            Ok(PortOpening::Taken(taken))
        }
        OccupiedPortPolicy::TakeNext | OccupiedPortPolicy::Fail => {
            let OccupiedPort { why, free } = OccupiedPort::at(address, &error).await;
            bail!("{why}; use another port, such as --listen {free}")
        }
    }
}

/// Returns the first free port after this one, or any free one if too many are taken.
async fn next_free(address: SocketAddr) -> io::Result<TcpListener> {
    let near = (1..=NEXT_PORTS).filter_map(|step| address.port().checked_add(step));
    for port in near {
        if let Ok(listener) = TcpListener::bind(SocketAddr::new(address.ip(), port)).await {
            return Ok(listener);
        }
    }
    TcpListener::bind(SocketAddr::new(address.ip(), 0)).await
}

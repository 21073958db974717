//! The API's port, if it has one.

use anyhow::{Context, bail};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::bridge::api::{Api, serve};
use crate::config::{self, DEFAULT_LISTEN};

pub(super) struct Port {
    pub(super) listener: TcpListener,
    pub(super) tls: Option<TlsAcceptor>,
}

impl Port {
    pub(super) fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let address = self.listener.local_addr().map(|address| address.to_string()).unwrap_or_default();
        format!("{scheme}://{address}")
    }
}

/// Listens as configured. A default port that is taken is no reason not to start; a configured one is.
pub(super) async fn open(settings: &config::Api, api: &Api) -> anyhow::Result<Option<Port>> {
    let address = settings.address().map_err(anyhow::Error::msg)?;
    let Some(address) = address else { return Ok(None) };
    let tls = match settings.tls() {
        None => None,
        Some((cert, key)) => Some(serve::tls(cert, key).map_err(anyhow::Error::msg).context("no TLS")?),
    };
    if !config::is_loopback(address.ip()) {
        if tls.is_none() {
            bail!("[api] listen = \"{address}\" can be reached from outside: it needs tls_cert and tls_key");
        }
        if !api.has_tokens() {
            bail!(
                "[api] listen = \"{address}\" can be reached from outside, and there is no token yet: listen on \
                 {DEFAULT_LISTEN} and make one with `intercom token create` first"
            );
        }
    }
    match TcpListener::bind(address).await {
        Ok(listener) => Ok(Some(Port { listener, tls })),
        Err(error) if settings.listen == DEFAULT_LISTEN => {
            tracing::warn!(%address, %error, "the API is on the unix socket only");
            Ok(None)
        }
        Err(error) => Err(error).with_context(|| format!("cannot listen on {address}")),
    }
}

//! Connections to other machines: a URL, and a stream to it with or without TLS.

use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};

/// A URL of the form `scheme://host:port/path`; port and path have defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteUrl {
    pub tls: bool,
    pub(crate) host: String,
    pub(crate) port: u16,
    pub path: String,
}

impl RemoteUrl {
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let (tls, rest) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (None, Some(rest)) => (false, rest),
            (None, None) => return Err("must begin with https:// or http://"),
        };
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => {
                (host, port.parse().map_err(|_| "the port is not a number")?)
            }
            _ => (authority, if tls { 443 } else { 80 }),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let odd = |c: char| c.is_whitespace() || c.is_control();
        if host.is_empty() || host.contains(['@', '?', '#']) || text.contains(odd) {
            return Err("must be a host, a port and a path, nothing else");
        }
        let path = if path.is_empty() { "/" } else { path };
        Ok(Self { tls, host: host.to_owned(), port, path: path.to_owned() })
    }

    /// Returns the value of the `Host` header.
    pub fn authority(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    /// Returns true if data that is sent there stays on this machine.
    pub fn is_local(&self) -> bool {
        self.host == "localhost" || self.host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
    }

    /// Connects. Trusts the certificates in `ca_file`, or else those that the system trusts.
    pub async fn connect(&self, ca_file: Option<&Path>) -> io::Result<Box<dyn RemoteStream>> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        stream.set_nodelay(true)?;
        if !self.tls {
            return Ok(Box::new(stream));
        }
        let name = ServerName::try_from(self.host.clone()).map_err(io::Error::other)?;
        let connector = TlsConnector::from(match ca_file {
            Some(file) => Arc::new(trust(Some(file))?),
            None => system_trust()?,
        });
        Ok(Box::new(connector.connect(name, stream).await?))
    }
}

/// A stream in both directions.
pub trait RemoteStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> RemoteStream for T {}

/// Returns the TLS configuration with the system's trusted roots, which are read once.
fn system_trust() -> io::Result<Arc<ClientConfig>> {
    static SYSTEM: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    match SYSTEM.get() {
        Some(config) => Ok(Arc::clone(config)),
        None => trust(None).map(|config| Arc::clone(SYSTEM.get_or_init(|| Arc::new(config)))),
    }
}

fn trust(ca_file: Option<&Path>) -> io::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    match ca_file {
        Some(file) => {
            for cert in CertificateDer::pem_file_iter(file).map_err(io::Error::other)? {
                roots.add(cert.map_err(io::Error::other)?).map_err(io::Error::other)?;
            }
        }
        None => drop(roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs)),
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_a_scheme_a_host_a_port_and_a_path() {
        for (text, authority, path) in [
            ("http://127.0.0.1:7411", "127.0.0.1:7411", "/"),
            ("https://box.example", "box.example:443", "/"),
            ("http://[::1]:7411/a/b?c", "[::1]:7411", "/a/b?c"),
            ("http://box.example/x", "box.example:80", "/x"),
        ] {
            let url = RemoteUrl::parse(text).unwrap();
            assert_eq!((url.authority().as_str(), url.path.as_str()), (authority, path));
        }
        for text in [
            "box:7411",
            "ftp://x",
            "http://",
            "http:///x",
            "http://u@a",
            "http://a:b",
            "http://a b",
            "http://a/\r\nx",
        ] {
            assert!(RemoteUrl::parse(text).is_err(), "{text}");
        }
        assert!(RemoteUrl::parse("http://localhost:1").unwrap().is_local());
        assert!(!RemoteUrl::parse("http://box.example").unwrap().is_local());
    }
}

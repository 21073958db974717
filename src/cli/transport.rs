//! How the daemon is reached: its unix socket, or a URL with a token.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};

use super::failure::Failure;
use crate::socket;

const CONNECT: Duration = Duration::from_secs(10);

#[derive(Debug, Clone)]
pub(super) enum Transport {
    Unix(PathBuf),
    Remote(Arc<Remote>),
}

#[derive(Debug)]
pub(super) struct Remote {
    url: String,
    host: String,
    port: u16,
    tls: bool,
    /// The file with the certificates to trust; the system's own if there is none.
    ca_file: Option<PathBuf>,
    pub(super) token: Option<String>,
}

/// What was said about a remote daemon.
#[derive(Debug, Default)]
pub(super) struct Settings {
    pub(super) url: Option<String>,
    pub(super) token: Option<String>,
    pub(super) token_file: Option<PathBuf>,
    pub(super) ca_file: Option<PathBuf>,
}

/// Both ways at once.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Transport {
    /// By the URL if there is one, else by the socket.
    pub(super) fn choose(socket: &Path, settings: Settings) -> Result<Self, Failure> {
        let Settings { url, token, token_file, ca_file } = settings;
        let Some(url) = url else { return Ok(Self::Unix(socket.to_owned())) };
        let bad = |why: &str| Failure::usage(format!("INTERCOM_URL `{url}`: {why}"));
        let (tls, rest) = match (url.strip_prefix("https://"), url.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (None, Some(rest)) => (false, rest),
            (None, None) => return Err(bad("must begin with https:// or http://")),
        };
        let authority = rest.trim_end_matches('/');
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => {
                (host, port.parse().map_err(|_| bad("the port is not a number"))?)
            }
            _ => (authority, if tls { 443 } else { 80 }),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() || host.contains(['/', '@', '?', '#']) {
            return Err(bad("must be a host and a port, nothing else"));
        }
        let token = match (token, token_file) {
            (Some(token), _) => Some(token.trim().to_owned()),
            (None, Some(file)) => Some(read_token(&file)?),
            (None, None) => None,
        };
        let here = host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
        if !tls && token.is_some() && !here {
            return Err(bad("a token is not sent over http:// to another machine; use https://"));
        }
        let host = host.to_owned();
        Ok(Self::Remote(Arc::new(Remote { url: url.clone(), host, port, tls, ca_file, token })))
    }

    pub(super) async fn connect(&self) -> anyhow::Result<Box<dyn Stream>> {
        match self {
            Self::Unix(path) => {
                let stream = socket::connect(path).await.map_err(|error| no_socket(path, &error))?;
                Ok(Box::new(stream))
            }
            Self::Remote(remote) => {
                let connecting = tokio::time::timeout(CONNECT, remote.connect()).await;
                connecting.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(|error| {
                    Failure::failed(format!("could not reach the daemon at {}: {error}", remote.url)).into()
                })
            }
        }
    }

    /// What goes into `Host`.
    pub(super) fn host(&self) -> String {
        match self {
            Self::Unix(_) => "intercom".to_owned(),
            Self::Remote(remote) if remote.host.contains(':') => format!("[{}]:{}", remote.host, remote.port),
            Self::Remote(remote) => format!("{}:{}", remote.host, remote.port),
        }
    }

    pub(super) fn token(&self) -> Option<&str> {
        match self {
            Self::Unix(_) => None,
            Self::Remote(remote) => remote.token.as_deref(),
        }
    }
}

impl Remote {
    async fn connect(&self) -> io::Result<Box<dyn Stream>> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        stream.set_nodelay(true)?;
        if !self.tls {
            return Ok(Box::new(stream));
        }
        let name = ServerName::try_from(self.host.clone()).map_err(io::Error::other)?;
        let connector = TlsConnector::from(Arc::new(trust(self.ca_file.as_deref())?));
        Ok(Box::new(connector.connect(name, stream).await?))
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

fn read_token(file: &Path) -> Result<String, Failure> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| Failure::usage(format!("INTERCOM_TOKEN_FILE {}: {error}", file.display())))?;
    Ok(text.trim().to_owned())
}

fn no_socket(path: &Path, error: &io::Error) -> anyhow::Error {
    let socket = path.display();
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            Failure::failed("no daemon is running; start one with `intercom serve`")
                .hint(format!("looked for its socket at {socket}"))
                .into()
        }
        io::ErrorKind::PermissionDenied => Failure::failed("you may not talk to this daemon")
            .hint(format!("its socket {socket} belongs to another user"))
            .into(),
        _ => Failure::failed(format!("could not reach the daemon at {socket}: {error}")).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(url: &str, token: Option<&str>) -> Result<Transport, String> {
        let settings =
            Settings { url: Some(url.into()), token: token.map(Into::into), ..Settings::default() };
        Transport::choose(Path::new("/s"), settings).map_err(|error| error.to_string())
    }

    #[test]
    fn a_url_is_a_scheme_a_host_and_a_port() {
        for (url, host) in [
            ("http://127.0.0.1:7411", "127.0.0.1:7411"),
            ("http://localhost:7411/", "localhost:7411"),
            ("https://box.example", "box.example:443"),
            ("http://[::1]:7411", "[::1]:7411"),
        ] {
            assert_eq!(choose(url, Some("t")).unwrap().host(), host);
        }
        for url in ["box:7411", "ftp://x", "http://", "http://a/b", "http://u@a", "http://a:b"] {
            assert!(choose(url, None).is_err(), "{url}");
        }
    }

    #[test]
    fn a_token_does_not_leave_the_machine_in_the_clear() {
        let error = choose("http://box.example:7411", Some("t")).unwrap_err();
        assert!(error.contains("use https://"), "{error}");
        assert!(choose("http://box.example:7411", None).is_ok());
        assert!(choose("https://box.example:7411", Some("t")).is_ok());
    }
}

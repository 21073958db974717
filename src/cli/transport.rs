//! The connection to the daemon: its unix socket, or a URL with a token.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::failure::CliFailure;
use intercom_daemon::remote::{RemoteStream, RemoteUrl};
use intercom_host::socket;

const CONNECT: Duration = Duration::from_secs(10);

#[derive(Debug, Clone)]
pub(super) enum Transport {
    Unix(PathBuf),
    Remote(Arc<RemoteDaemon>),
}

/// The address of a daemon that is reached by a URL.
#[derive(Debug)]
pub(super) struct RemoteDaemon {
    url: RemoteUrl,
    /// The file with the trusted certificates; without one, the system's.
    ca_file: Option<PathBuf>,
    token: Option<String>,
}

impl RemoteDaemon {
    /// Returns the address of its console.
    pub(super) fn console(&self) -> String {
        let scheme = if self.url.tls { "https" } else { "http" };
        format!("{scheme}://{}/", self.url.authority())
    }

    pub(super) fn is_local(&self) -> bool {
        self.url.is_local()
    }
}

/// The settings for a remote daemon.
#[derive(Debug, Default)]
pub(super) struct RemoteDaemonSettings {
    pub(super) url: Option<String>,
    pub(super) token: Option<String>,
    pub(super) token_file: Option<PathBuf>,
    pub(super) ca_file: Option<PathBuf>,
}

impl Transport {
    /// Chooses the URL if there is one, or else the socket.
    pub(super) fn choose(socket: &Path, settings: RemoteDaemonSettings) -> Result<Self, CliFailure> {
        let RemoteDaemonSettings { url, token, token_file, ca_file } = settings;
        let Some(text) = url else { return Ok(Self::Unix(socket.to_owned())) };
        let bad = |why: &str| CliFailure::usage(format!("INTERCOM_URL `{text}`: {why}"));
        let url = RemoteUrl::parse(&text).map_err(bad)?;
        if url.path != "/" {
            return Err(bad("must be a host and a port, without a path"));
        }
        let token = match (token, token_file) {
            (Some(token), _) => Some(token.trim().to_owned()),
            (None, Some(file)) => Some(read_token(&file)?),
            (None, None) => None,
        };
        if !url.tls && token.is_some() && !url.is_local() {
            return Err(bad("a token is not sent over http:// to another machine; use https://"));
        }
        Ok(Self::Remote(Arc::new(RemoteDaemon { url, ca_file, token })))
    }

    pub(super) async fn connect(&self) -> anyhow::Result<Box<dyn RemoteStream>> {
        match self {
            Self::Unix(path) => {
                let stream = socket::connect(path).await.map_err(|error| no_socket(path, &error))?;
                Ok(Box::new(stream))
            }
            Self::Remote(remote) => {
                let connecting = remote.url.connect(remote.ca_file.as_deref());
                let connected = tokio::time::timeout(CONNECT, connecting).await;
                connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(|error| {
                    let at = remote.url.authority();
                    CliFailure::failed(format!("could not reach the daemon at {at}: {error}")).into()
                })
            }
        }
    }

    /// Returns the value of the `Host` header.
    pub(super) fn host(&self) -> String {
        match self {
            Self::Unix(_) => "intercom".to_owned(),
            Self::Remote(remote) => remote.url.authority(),
        }
    }

    pub(super) fn token(&self) -> Option<&str> {
        match self {
            Self::Unix(_) => None,
            Self::Remote(remote) => remote.token.as_deref(),
        }
    }
}

/// Returns true if a process listens on this socket. Errors of other kinds are left to the connection itself.
pub(super) async fn is_listening(socket: &Path) -> bool {
    match socket::connect(socket).await {
        Ok(_) => true,
        Err(error) => !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused),
    }
}

fn read_token(file: &Path) -> Result<String, CliFailure> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| CliFailure::usage(format!("INTERCOM_TOKEN_FILE {}: {error}", file.display())))?;
    Ok(text.trim().to_owned())
}

fn no_socket(path: &Path, error: &io::Error) -> anyhow::Error {
    let socket = path.display();
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            CliFailure::failed("no daemon is running; start one with `intercom daemon restart`")
                .hint(format!("looked for its socket at {socket}; `intercom run` starts one, too"))
                .into()
        }
        io::ErrorKind::PermissionDenied => CliFailure::failed("you have no access to this daemon")
            .hint(format!("its socket {socket} belongs to another user"))
            .into(),
        _ => CliFailure::failed(format!("could not reach the daemon at {socket}: {error}")).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(url: &str, token: Option<&str>) -> Result<Transport, String> {
        let settings = RemoteDaemonSettings {
            url: Some(url.into()),
            token: token.map(Into::into),
            ..RemoteDaemonSettings::default()
        };
        Transport::choose(Path::new("/s"), settings).map_err(|error| error.to_string())
    }

    #[test]
    fn a_token_does_not_leave_the_machine_in_the_clear() {
        let error = choose("http://box.example:7411", Some("t")).unwrap_err();
        assert!(error.contains("use https://"), "{error}");
        assert!(choose("http://box.example:7411", None).is_ok());
        assert!(choose("http://box.example/path", None).is_err());
        assert!(choose("https://box.example:7411", Some("t")).is_ok());
    }
}

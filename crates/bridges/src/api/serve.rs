//! Connections: accepted, with a time limit for every step, and closed.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::socket::{setsockopt, sockopt::TcpUserTimeout};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

mod conversation;
mod unrecognised;

use conversation::serve_connection;
use unrecognised::{UnixClients, UnrecognisedConnections};

pub(crate) use super::access::Peer;

/// The limit on concurrent connections over the network without a valid token.
const MAX_STRANGERS: usize = 256;
/// The limit on unrecognised connections on the unix socket, as a part of the limit on open files.
const UNIX_STRANGERS_PART: usize = 4;
const FEWEST_UNIX_STRANGERS: usize = 256;
/// No process has this pid.
const NO_CLIENT: i32 = 0;
/// The time limit for a connection to get a permit.
const WAITING: Duration = Duration::from_secs(30);
const HANDSHAKE: Duration = Duration::from_secs(10);
/// The time limit for the acknowledgement of sent data: a client that does not read is disconnected.
const UNREAD: Duration = Duration::from_mins(1);
/// The delay after a failed accept, most often for lack of descriptors.
const BREATHER: Duration = Duration::from_millis(100);

/// Serves the unix socket until `closing`, then until all running requests are answered.
pub async fn unix(listener: UnixListener, router: Router, closing: CancellationToken) {
    let (mut strangers, mut clients) =
        (UnrecognisedConnections::new(most_unix_strangers()), UnixClients::default());
    let conversations = TaskTracker::new();
    while let Some(accepted) = closing.run_until_cancelled(listener.accept()).await {
        match accepted {
            Ok((stream, _)) => {
                let uid = stream.peer_cred().ok().map(|peer| peer.uid());
                let client = clients.of(&stream);
                if client.as_ref().is_some_and(|client| client.exceeds_refusal_limit()) {
                    continue;
                }
                let (recognition, gone) =
                    strangers.add(client.as_ref().map_or(NO_CLIENT, |client| client.pid()));
                let (router, closing) = (router.clone(), closing.clone());
                conversations.spawn(gone.run_until_cancelled_owned(async move {
                    let turn = match &client {
                        None => None,
                        Some(client) => {
                            let turn = tokio::time::timeout(WAITING, client.turn());
                            let Some(Ok(turn)) = closing.run_until_cancelled(turn).await else { return };
                            turn
                        }
                    };
                    serve_connection(stream, Peer::Unix { uid, client, recognition }, router, closing).await;
                    drop(turn);
                }));
            }
            Err(error) => not_taken(&error).await,
        }
    }
    conversations.close();
    conversations.wait().await;
}

/// The same for a TCP port, with TLS if there is a certificate.
pub async fn tcp(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    router: Router,
    closing: CancellationToken,
) {
    let (mut strangers, conversations) = (UnrecognisedConnections::new(MAX_STRANGERS), TaskTracker::new());
    while let Some(accepted) = closing.run_until_cancelled(listener.accept()).await {
        let (stream, from) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                not_taken(&error).await;
                continue;
            }
        };
        let (recognition, gone) = strangers.add(NO_CLIENT);
        let (tls, router, closing) = (tls.clone(), router.clone(), closing.clone());
        conversations.spawn(async move {
            let conversation = async {
                let Ok(local) = prepare(&stream) else { return }; // it has gone already
                let peer = Peer::Tcp { from, local, tls: tls.is_some(), recognition };
                match tls {
                    None => serve_connection(stream, peer, router, closing).await,
                    Some(tls) => match tokio::time::timeout(HANDSHAKE, tls.accept(stream)).await {
                        Ok(Ok(stream)) => serve_connection(stream, peer, router, closing).await,
                        Ok(Err(error)) => tracing::debug!(%from, %error, "no TLS"),
                        Err(_) => tracing::debug!(%from, "TLS took too long"),
                    },
                }
            };
            gone.run_until_cancelled(conversation).await;
        });
    }
    conversations.close();
    conversations.wait().await;
}

fn most_unix_strangers() -> usize {
    let open_files = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft);
    let part = usize::try_from(open_files).unwrap_or(usize::MAX) / UNIX_STRANGERS_PART;
    part.max(FEWEST_UNIX_STRANGERS)
}

fn prepare(stream: &TcpStream) -> io::Result<std::net::SocketAddr> {
    stream.set_nodelay(true)?;
    let millis = u32::try_from(UNREAD.as_millis()).unwrap_or(u32::MAX);
    setsockopt(stream, TcpUserTimeout, &millis)?;
    stream.local_addr()
}

async fn not_taken(error: &io::Error) {
    tracing::warn!(%error, "a connection could not be accepted");
    tokio::time::sleep(BREATHER).await;
}

/// Builds the TLS acceptor from `tls_cert` and `tls_key`, or says why they are unusable.
pub fn tls(cert: &Path, key: &Path) -> Result<TlsAcceptor, String> {
    let unusable = |file: &Path, error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
    let certs = CertificateDer::pem_file_iter(cert)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unusable(cert, &error))?;
    if certs.is_empty() {
        return Err(unusable(cert, &"there is no certificate in it"));
    }
    let key = PrivateKeyDer::from_pem_file(key).map_err(|error| unusable(key, &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(certs, key))
        .map_err(|error| unusable(cert, &error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

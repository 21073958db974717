//! Connections: taken, given a time for everything, and let go.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use nix::sys::socket::{setsockopt, sockopt::TcpUserTimeout};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

mod conversation;

use conversation::converse;

pub use super::access::{Peer, Recognition};
use crate::host::PeerProcess;

/// Connections over the network without a valid token at the same time.
const MAX_STRANGERS: usize = 256;
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long what we send may stay unacknowledged: a client that does not read is let go.
const UNREAD: Duration = Duration::from_mins(1);
/// After a failed accept, most often for lack of descriptors.
const BREATHER: Duration = Duration::from_millis(100);

/// Serves the unix socket until `closing`, and then until what was being answered is.
pub async fn unix(listener: UnixListener, router: Router, closing: CancellationToken) {
    let conversations = TaskTracker::new();
    while let Some(accepted) = closing.run_until_cancelled(listener.accept()).await {
        match accepted {
            Ok((stream, _)) => {
                let uid = stream.peer_cred().ok().map(|peer| peer.uid());
                let process = PeerProcess::of(&stream).map(Arc::new);
                let peer = Peer::Unix { uid, process, recognition: Arc::default() };
                let serving = converse(stream, peer, router.clone(), closing.clone());
                conversations.spawn(serving);
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
    let (mut strangers, conversations) = (Strangers::default(), TaskTracker::new());
    while let Some(accepted) = closing.run_until_cancelled(listener.accept()).await {
        let (stream, from) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                not_taken(&error).await;
                continue;
            }
        };
        let (recognition, gone) = strangers.add();
        let (tls, router, closing) = (tls.clone(), router.clone(), closing.clone());
        conversations.spawn(async move {
            let conversation = async {
                let Ok(local) = prepare(&stream) else { return }; // it has gone already
                let peer = Peer::Tcp { from, local, tls: tls.is_some(), recognition };
                match tls {
                    None => converse(stream, peer, router, closing).await,
                    Some(tls) => match tokio::time::timeout(HANDSHAKE, tls.accept(stream)).await {
                        Ok(Ok(stream)) => converse(stream, peer, router, closing).await,
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

/// Connections of nobody in particular. When there are too many, the oldest of them goes: whoever has a token says so at
/// once, and is a stranger no more.
#[derive(Default)]
struct Strangers(VecDeque<(Arc<Recognition>, CancellationToken)>);

impl Strangers {
    fn add(&mut self) -> (Arc<Recognition>, CancellationToken) {
        // Those who have said who they are, and those who have gone, are not counted.
        self.0.retain(|(recognition, _)| !recognition.is_recognised() && Arc::strong_count(recognition) > 1);
        while self.0.len() >= MAX_STRANGERS {
            if let Some((_, gone)) = self.0.pop_front() {
                gone.cancel();
            }
        }
        let (recognition, gone) = (Arc::<Recognition>::default(), CancellationToken::new());
        self.0.push_back((Arc::clone(&recognition), gone.clone()));
        (recognition, gone)
    }
}

fn prepare(stream: &TcpStream) -> io::Result<std::net::SocketAddr> {
    stream.set_nodelay(true)?;
    let millis = u32::try_from(UNREAD.as_millis()).unwrap_or(u32::MAX);
    setsockopt(stream, TcpUserTimeout, &millis)?;
    stream.local_addr()
}

async fn not_taken(error: &io::Error) {
    tracing::warn!(%error, "a connection could not be taken");
    tokio::time::sleep(BREATHER).await;
}

/// What `tls_cert` and `tls_key` are good for.
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

//! The unix socket: listening and connecting, including paths that are longer than a socket address.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::socket::Backlog;
use tokio::net::{UnixListener, UnixStream};

/// The maximum length of a path: the address of a unix socket holds 108 bytes including the terminating NUL.
const MAX_PATH: usize = 107;
/// The backlog of connections. They are accepted in order: with the thousands that the system allows, a process that
/// opens connections in a loop would always be that far ahead of all others. Further connections wait in `connect`.
const BACKLOG: i32 = 128;
/// The time limit and the interval of attempts while the backlog is full.
const PATIENCE: Duration = Duration::from_secs(5);
const RETRY: Duration = Duration::from_millis(5);

/// Returns a path that fits into a socket address, and the directory that must stay open while it is used.
fn short(path: &Path) -> io::Result<(PathBuf, Option<OwnedFd>)> {
    if path.as_os_str().len() <= MAX_PATH {
        return Ok((path.to_owned(), None));
    }
    let invalid =
        || io::Error::new(io::ErrorKind::InvalidInput, "the socket's path has no directory or name");
    let (dir, name) = (path.parent().ok_or_else(invalid)?, path.file_name().ok_or_else(invalid)?);
    let dir: OwnedFd = std::fs::File::open(dir)?.into();
    let through = PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd())).join(name);
    Ok((through, Some(dir)))
}

/// Listens on a path. A socket file without a listener is replaced; one in use is an error.
pub async fn listen(path: &Path) -> io::Result<UnixListener> {
    // A full backlog also means that a process listens.
    let is_used =
        connect(path).await.map_or_else(|error| error.kind() == io::ErrorKind::WouldBlock, |_| true);
    if is_used {
        let message = format!("another process listens on {}", path.display());
        return Err(io::Error::new(io::ErrorKind::AddrInUse, message));
    }
    match path.symlink_metadata() {
        Ok(meta) if meta.file_type().is_socket() => std::fs::remove_file(path)?,
        // Not a socket, so not ours to delete.
        Ok(_) => {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is a file that is not a socket"));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let (address, dir) = short(path)?;
    let listener = UnixListener::bind(&address)?;
    nix::sys::socket::listen(&listener, Backlog::new(BACKLOG)?)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    drop(dir);
    Ok(listener)
}

pub async fn connect(path: &Path) -> io::Result<UnixStream> {
    let (address, dir) = short(path)?;
    let start = Instant::now();
    loop {
        match UnixStream::connect(&address).await {
            // The backlog is full: a blocking connect would wait.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && start.elapsed() < PATIENCE => {
                tokio::time::sleep(RETRY).await;
            }
            result => {
                drop(dir);
                return result;
            }
        }
    }
}

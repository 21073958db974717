//! The limit on open files: high for the daemon, as it was for its agents.

use std::sync::OnceLock;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// The soft limit that the daemon was started with.
static USUAL: OnceLock<u64> = OnceLock::new();

/// Each agent takes a handful of descriptors of the daemon.
pub fn raise_open_files() {
    match getrlimit(Resource::RLIMIT_NOFILE) {
        Ok((soft, hard)) if soft < hard => {
            USUAL.get_or_init(|| soft);
            if let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, hard, hard) {
                tracing::warn!(%error, soft, hard, "the limit on open files stays low");
            }
        }
        Ok(_) => {}
        Err(error) => tracing::warn!(%error, "the limit on open files is not known"),
    }
}

/// Returns the limit on open files for an agent: programs that use `select` cannot do with more.
pub(super) fn usual_open_files() -> Option<u64> {
    USUAL.get().copied()
}

//! The limit on open files: raised for the daemon, the original one for its agents.

use std::sync::OnceLock;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// The soft limit that the daemon was started with.
static ORIGINAL_LIMIT: OnceLock<u64> = OnceLock::new();

/// Raises the soft limit to the hard limit: each agent takes a handful of the daemon's descriptors.
pub fn raise_open_files() {
    match getrlimit(Resource::RLIMIT_NOFILE) {
        Ok((soft, hard)) if soft < hard => {
            ORIGINAL_LIMIT.get_or_init(|| soft);
            if let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, hard, hard) {
                tracing::warn!(%error, soft, hard, "the limit on open files stays low");
            }
        }
        Ok(_) => {}
        Err(error) => tracing::warn!(%error, "the limit on open files cannot be read"),
    }
}

/// Returns the limit on open files for an agent: programs that use `select` fail with descriptors above 1023.
pub(super) fn original_open_files() -> Option<u64> {
    ORIGINAL_LIMIT.get().copied()
}

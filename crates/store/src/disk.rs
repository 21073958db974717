//! The free space of the file system.

use std::path::Path;

/// Returns the free space beside a file; `None` if its directory does not exist.
#[allow(clippy::useless_conversion, reason = "a count of blocks has 32 bits on some systems")]
pub(super) fn free_bytes_beside(file: &Path) -> Option<u64> {
    let stat = nix::sys::statvfs::statvfs(file.parent()?).ok()?;
    Some(u64::from(stat.blocks_available()).saturating_mul(stat.fragment_size()))
}

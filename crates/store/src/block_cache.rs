//! The decoded blocks that readers share, so that a stream in pages does not decode a block for every page; and the
//! list of the blocks that could not be decoded.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::block::{Block, BlockHeader};

/// The memory that decoded blocks may take.
const MAX_BYTES: usize = 4 << 20;

#[derive(Debug, Default)]
pub(super) struct BlockCache {
    /// Locked only for a look-up or a change, never while a block is decoded.
    shared: Mutex<CacheShared>,
}

#[derive(Debug, Default)]
struct CacheShared {
    /// By first seq and checksum: the packer may store another block that begins with the same seq.
    blocks: HashMap<(i64, i64), CachedBlock>,
    bytes: usize,
    /// Counts uses, to find the block that was not used for the longest time.
    clock: u64,
    damaged: BTreeMap<i64, i64>,
    /// The number of blocks that were decoded, for tests and benchmarks.
    decoded: u64,
}

#[derive(Debug)]
struct CachedBlock {
    block: Arc<Block>,
    used: u64,
}

impl BlockCache {
    fn shared(&self) -> MutexGuard<'_, CacheShared> {
        // No code panics while it holds the lock.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, header: &BlockHeader) -> Option<Arc<Block>> {
        let mut shared = self.shared();
        shared.clock += 1;
        let now = shared.clock;
        let cached = shared.blocks.get_mut(&(header.first, header.checksum))?;
        cached.used = now;
        Some(Arc::clone(&cached.block))
    }

    pub(super) fn insert(&self, header: &BlockHeader, block: &Arc<Block>) {
        let mut shared = self.shared();
        shared.decoded += 1;
        let size = block.size();
        if size > MAX_BYTES {
            return;
        }
        while shared.bytes + size > MAX_BYTES {
            // The cache has some dozens of blocks, so a search costs less than an order of uses.
            let oldest = shared.blocks.iter().min_by_key(|(_, cached)| cached.used).map(|(key, _)| *key);
            let Some(removed) = oldest.and_then(|key| shared.blocks.remove(&key)) else { break };
            shared.bytes -= removed.block.size();
        }
        shared.clock += 1;
        let cached = CachedBlock { block: Arc::clone(block), used: shared.clock };
        let replaced = shared.blocks.insert((header.first, header.checksum), cached);
        shared.bytes = shared.bytes + size - replaced.map_or(0, |replaced| replaced.block.size());
    }

    /// Records a damaged block; the log has one line about each.
    pub(super) fn note_damage(&self, header: &BlockHeader) {
        let BlockHeader { first, last, .. } = *header;
        if self.shared().damaged.insert(first, last).is_none() {
            tracing::error!(
                first,
                last,
                "a block of the log is damaged; its events cannot be read, all others can"
            );
        }
    }

    /// Returns the first and the last seq of each damaged block that was found.
    pub(super) fn damaged(&self) -> Vec<(i64, i64)> {
        self.shared().damaged.iter().map(|(first, last)| (*first, *last)).collect()
    }

    pub(super) fn forget_damage(&self, first: i64) {
        self.shared().damaged.remove(&first);
    }

    #[cfg(test)]
    pub(super) fn decoded(&self) -> u64 {
        self.shared().decoded
    }
}

//! Subcommands of git: the only table for rules and risk. It is in `harmless.toml`.

use super::harmless_table::{TABLE, holds};

/// Reports whether the subcommand of git runs no program named by its operands.
pub(super) fn is_plain_git(subcommand: &str) -> bool {
    only_reads(subcommand) || holds(&TABLE.git.changes, subcommand)
}

/// Reports whether the subcommand of git changes only git's own caches.
pub(super) fn only_reads(subcommand: &str) -> bool {
    holds(&TABLE.git.reads, subcommand)
}

/// Returns the index of the subcommand in words that begin with `git`.
pub(super) fn subcommand_index(words: &[String]) -> usize {
    let mut next = 1;
    while let Some(word) = words.get(next).filter(|word| word.starts_with('-')) {
        next += if holds(&TABLE.git.valued, word) { 2 } else { 1 };
    }
    next.min(words.len())
}

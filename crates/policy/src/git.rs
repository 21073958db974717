//! Subcommands of git: the only table for rules and risk.

/// The kind of change that a subcommand makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GitEffect {
    /// Only git's own caches, with any operands.
    Reads,
    /// Something else, or it depends on its operands.
    Changes,
}

/// Subcommands that run no program named by their operands. For others, an allow rule must spell all arguments:
/// aliases, helpers and remotes of git are programs.
const SUBCOMMANDS: &[(&str, GitEffect)] = &[
    ("status", GitEffect::Reads),
    ("diff", GitEffect::Reads),
    ("log", GitEffect::Reads),
    ("show", GitEffect::Reads),
    ("blame", GitEffect::Reads),
    ("annotate", GitEffect::Changes),
    ("shortlog", GitEffect::Reads),
    ("whatchanged", GitEffect::Changes),
    ("rev-parse", GitEffect::Reads),
    ("rev-list", GitEffect::Reads),
    ("ls-files", GitEffect::Reads),
    ("ls-tree", GitEffect::Reads),
    ("cat-file", GitEffect::Reads),
    ("describe", GitEffect::Reads),
    ("grep", GitEffect::Reads),
    ("add", GitEffect::Changes),
    ("rm", GitEffect::Changes),
    ("mv", GitEffect::Changes),
    ("commit", GitEffect::Changes),
    ("branch", GitEffect::Changes),
    ("tag", GitEffect::Changes),
    ("stash", GitEffect::Changes),
    ("checkout", GitEffect::Changes),
    ("switch", GitEffect::Changes),
    ("restore", GitEffect::Changes),
    ("reset", GitEffect::Changes),
    ("merge", GitEffect::Changes),
    ("merge-base", GitEffect::Changes),
    ("fetch", GitEffect::Changes),
    ("pull", GitEffect::Changes),
    ("push", GitEffect::Changes),
    ("clone", GitEffect::Changes),
    ("remote", GitEffect::Changes),
    ("ls-remote", GitEffect::Changes),
    ("name-rev", GitEffect::Changes),
    ("reflog", GitEffect::Changes),
    ("show-ref", GitEffect::Changes),
    ("show-branch", GitEffect::Changes),
    ("for-each-ref", GitEffect::Changes),
    ("count-objects", GitEffect::Changes),
    ("cherry", GitEffect::Changes),
    ("check-ignore", GitEffect::Changes),
    ("check-attr", GitEffect::Changes),
    ("diff-tree", GitEffect::Changes),
    ("diff-index", GitEffect::Changes),
    ("diff-files", GitEffect::Changes),
    ("symbolic-ref", GitEffect::Changes),
    ("version", GitEffect::Changes),
];

/// Reports whether the subcommand of git runs no program named by its operands.
pub(super) fn is_plain_git(subcommand: &str) -> bool {
    SUBCOMMANDS.iter().any(|(name, _)| *name == subcommand)
}

/// Reports whether the subcommand of git changes only git's own caches.
pub(super) fn only_reads(subcommand: &str) -> bool {
    SUBCOMMANDS.contains(&(subcommand, GitEffect::Reads))
}

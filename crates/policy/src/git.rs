//! Subcommands of git: the one table that rules and risk look at.

/// The kind of change that a subcommand makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// Nothing but git's own caches, whatever its operands are.
    Reads,
    /// Something else, or it depends on its operands.
    Changes,
}

/// Subcommands that run no program that their operands name. Others must be spelled by a rule that allows them, with everything
/// behind them: aliases, helpers and remotes of git are programs.
const SUBCOMMANDS: &[(&str, Effect)] = &[
    ("status", Effect::Reads),
    ("diff", Effect::Reads),
    ("log", Effect::Reads),
    ("show", Effect::Reads),
    ("blame", Effect::Reads),
    ("annotate", Effect::Changes),
    ("shortlog", Effect::Reads),
    ("whatchanged", Effect::Changes),
    ("rev-parse", Effect::Reads),
    ("rev-list", Effect::Reads),
    ("ls-files", Effect::Reads),
    ("ls-tree", Effect::Reads),
    ("cat-file", Effect::Reads),
    ("describe", Effect::Reads),
    ("grep", Effect::Reads),
    ("add", Effect::Changes),
    ("rm", Effect::Changes),
    ("mv", Effect::Changes),
    ("commit", Effect::Changes),
    ("branch", Effect::Changes),
    ("tag", Effect::Changes),
    ("stash", Effect::Changes),
    ("checkout", Effect::Changes),
    ("switch", Effect::Changes),
    ("restore", Effect::Changes),
    ("reset", Effect::Changes),
    ("merge", Effect::Changes),
    ("merge-base", Effect::Changes),
    ("fetch", Effect::Changes),
    ("pull", Effect::Changes),
    ("push", Effect::Changes),
    ("clone", Effect::Changes),
    ("remote", Effect::Changes),
    ("ls-remote", Effect::Changes),
    ("name-rev", Effect::Changes),
    ("reflog", Effect::Changes),
    ("show-ref", Effect::Changes),
    ("show-branch", Effect::Changes),
    ("for-each-ref", Effect::Changes),
    ("count-objects", Effect::Changes),
    ("cherry", Effect::Changes),
    ("check-ignore", Effect::Changes),
    ("check-attr", Effect::Changes),
    ("diff-tree", Effect::Changes),
    ("diff-index", Effect::Changes),
    ("diff-files", Effect::Changes),
    ("symbolic-ref", Effect::Changes),
    ("version", Effect::Changes),
];

/// Tells whether the subcommand of git runs no program that its operands name.
pub(super) fn is_plain_git(subcommand: &str) -> bool {
    SUBCOMMANDS.iter().any(|(name, _)| *name == subcommand)
}

/// Tells whether the subcommand of git changes nothing but git's own caches.
pub(super) fn only_reads(subcommand: &str) -> bool {
    SUBCOMMANDS.contains(&(subcommand, Effect::Reads))
}

//! The ledger compared with the log that it is made from.

use serde::Serialize;

/// Whether a rebuilt ledger is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RebuildMode {
    Compare,
    Replace,
}

/// How far a rebuild has come.
#[derive(Debug, Clone, Copy)]
pub struct RebuildProgress {
    pub events: usize,
    pub total: usize,
}

/// The result of a rebuild.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct LedgerRebuild {
    /// Events that were read; messages that agents send in bulk change no row.
    pub events: usize,
    pub rows: usize,
    pub differences: Vec<LedgerDifference>,
    /// Events that do not fit the rows before them, in words.
    pub misfits: Vec<String>,
    /// Facts that an earlier release did not record, in words. The columns stay as they are.
    pub unknown: Vec<String>,
}

/// A row that is not what the log makes of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LedgerDifference {
    pub id: String,
    #[serde(flatten)]
    pub kind: DifferenceKind,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "difference", rename_all = "snake_case")]
pub enum DifferenceKind {
    /// The log knows it, and there is no row.
    Missing,
    /// There is a row, and the log does not know it. It is kept.
    NotInLog,
    Changed {
        columns: Vec<ColumnDifference>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ColumnDifference {
    pub column: String,
    pub stored: Option<String>,
    pub rebuilt: Option<String>,
}

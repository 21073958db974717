//! The comparison of the ledger with the log from which it is derived.

use serde::Serialize;

/// The handling of a rebuilt ledger: stored, or only compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RebuildMode {
    Compare,
    Replace,
}

/// The progress of a rebuild.
#[derive(Debug, Clone, Copy)]
pub struct RebuildProgress {
    pub events: usize,
    pub total: usize,
}

/// The result of a rebuild.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct LedgerRebuild {
    /// The number of events read, without messages that agents send in bulk, which change no row.
    pub events: usize,
    pub rows: usize,
    pub differences: Vec<LedgerDifference>,
    /// Descriptions of events that do not fit the rows before them.
    pub misfits: Vec<String>,
    /// Descriptions of facts that an earlier release did not record. Their columns stay unchanged.
    pub unknown: Vec<String>,
}

/// A row that differs from the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LedgerDifference {
    pub id: String,
    #[serde(flatten)]
    pub kind: DifferenceKind,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "difference", rename_all = "snake_case")]
pub enum DifferenceKind {
    /// The log has it, and there is no row.
    Missing,
    /// There is a row that the log does not have. It is kept.
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

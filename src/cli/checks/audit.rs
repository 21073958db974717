//! The audit chain, without reading every row.

use super::Check;
use crate::lifecycle::audit_warnings;
use intercom_daemon::config::{Config, DaemonPaths};

const NAME: &str = "audit";

pub(in crate::cli) fn audit(paths: &DaemonPaths, config: &Config) -> Check {
    match audit_warnings(paths, config) {
        Ok(warnings) if warnings.is_empty() => Check::ok(NAME, "no break was recorded"),
        Ok(warnings) => Check::warning(
            NAME,
            warnings.join("; "),
            "`intercom audit --verify` checks every row; removed rows are only in a backup",
        ),
        Err(error) => Check::warning(NAME, format!("{error:#}"), "the audit could not be read"),
    }
}

//! `intercom doctor --rebuild-ledger`: rebuilds the ledger of a damaged database from its log.

use std::fmt::Write as _;
use std::io::IsTerminal as _;

use serde::Serialize;

use crate::cli::failure::CliFailure;
use crate::cli::transport::Transport;
use crate::cli::{CliContext, output};
use crate::lifecycle;
use intercom_types::text::{clean, cut, plural};
use intercom_types::{
    ColumnDifference, DifferenceKind, LedgerDifference, LedgerRebuild, RebuildMode, RebuildProgress,
};

/// The maximum width of a value: a diff in the ledger may be long.
const MAX_VALUE: usize = 60;

#[derive(Serialize)]
struct RebuildReport<'a> {
    replaced: bool,
    #[serde(flatten)]
    rebuild: &'a LedgerRebuild,
}

pub(super) fn run(dry_run: bool, cx: &CliContext) -> anyhow::Result<()> {
    if let Transport::Remote(_) = cx.client.transport() {
        let failure =
            CliFailure::usage("--rebuild-ledger works on the machine of the database, not over INTERCOM_URL");
        return Err(failure.into());
    }
    let mode = if dry_run { RebuildMode::Compare } else { RebuildMode::Replace };
    // A daemon keeps open requests in memory: after a rebuild behind its back, the two would disagree.
    let lock =
        (mode == RebuildMode::Replace && cx.paths.state_dir.is_dir()).then(|| lifecycle::lock(&cx.paths));
    let _held = lock.transpose().map_err(|error| {
        let hint = format!("stop it first; agents keep running: {} daemon stop", cx.command_prefix);
        CliFailure::failed(error.to_string()).hint(hint)
    })?;
    let shows = !cx.json && std::io::stderr().is_terminal();
    let mut show = |progress: RebuildProgress| {
        if shows {
            output::replace_line(&format!(
                "reading the log: {} of {} events",
                progress.events, progress.total
            ));
        }
    };
    let rebuild = lifecycle::rebuild_ledger(&cx.paths, mode, &mut show).map_err(|error| {
        CliFailure::failed(format!("the ledger could not be rebuilt from the log: {error}"))
    });
    if shows {
        output::replace_line("");
    }
    report(&rebuild?, mode, cx)
}

fn report(rebuild: &LedgerRebuild, mode: RebuildMode, cx: &CliContext) -> anyhow::Result<()> {
    let differs = !rebuild.differences.is_empty();
    let replaced = mode == RebuildMode::Replace && differs;
    if cx.json {
        output::print_json(&serde_json::to_string(&RebuildReport { replaced, rebuild })?)?;
    } else {
        output::print(&in_words(rebuild, replaced))?;
    }
    if differs && !replaced {
        let rows = plural(rebuild.differences.len(), "row");
        let hint = format!("{} doctor --rebuild-ledger replaces them", cx.command_prefix);
        return Err(CliFailure::failed(format!("{rows} of the ledger differ from the log"))
            .hint(hint)
            .into());
    }
    Ok(())
}

fn in_words(rebuild: &LedgerRebuild, replaced: bool) -> String {
    let mut text: String = rebuild.differences.iter().map(difference).collect();
    let say = |text: &mut String, line: &str| writeln!(text, "{line}").expect("a string takes every write");
    for misfit in &rebuild.misfits {
        say(&mut text, &format!("left out: {}", clean(misfit)));
    }
    for fact in &rebuild.unknown {
        say(&mut text, &format!("unknown, and unchanged: {fact}"));
    }
    let read = format!("{} from {}", plural(rebuild.rows, "row"), plural(rebuild.events, "event"));
    let outcome = match (rebuild.differences.is_empty(), replaced) {
        (true, _) => format!("the ledger agrees with the log: {read}"),
        (false, true) => format!("the ledger was rebuilt from the log: {read}"),
        (false, false) => format!("compared with the log: {read}; nothing was changed"),
    };
    say(&mut text, &outcome);
    text
}

fn difference(LedgerDifference { id, kind }: &LedgerDifference) -> String {
    let what = match kind {
        DifferenceKind::Missing => "was missing".to_owned(),
        DifferenceKind::NotInLog => "is not in the log; it is kept".to_owned(),
        DifferenceKind::Changed { columns } => columns.iter().map(change).collect::<Vec<_>>().join("; "),
    };
    format!("{}  {what}\n", clean(id))
}

fn change(ColumnDifference { column, stored, rebuilt }: &ColumnDifference) -> String {
    let value = |value: &Option<String>| match value {
        Some(value) => cut(&clean(value), MAX_VALUE),
        None => "nothing".to_owned(),
    };
    format!("{column} was {}, is {} in the log", value(stored), value(rebuilt))
}

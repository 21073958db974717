//! `intercom clearances`: pending clearances, and the details of one before a decision.

use std::fmt::Write as _;

use jiff::Timestamp;

use super::gutter::{hanging, indented_block};
use super::style::{risk_style, status_style};
use super::table::{TerminalCell, TerminalColumnFit, TerminalTable};
use super::terminal::{Paint, TerminalStyle};
use super::time::{age, show_time};
use super::url::url;
use super::{CliContext, diff, output};
use intercom_types::action::diff_size;
use intercom_types::text::{clean, plural, quoted, short};
use intercom_types::{Choice, Clearance, ClearanceStatus, Time};

/// List the pending clearances, riskiest first, then oldest; or show one in full with its diff
#[derive(Debug, clap::Args)]
#[command(after_help = "\
With --json the list is the daemon's own answer, newest first.

Examples:
  intercom clearances
  intercom clearances 7k2m
  intercom clearances --session shop --all")]
pub(super) struct ClearancesArgs {
    /// A clearance to show in full
    #[arg(value_name = "CLR", value_parser = super::non_empty_id(), conflicts_with_all = ["all", "session"])]
    clearance: Option<String>,
    /// Include decided and closed clearances
    #[arg(long, short)]
    all: bool,
    /// Only clearances of this session
    #[arg(long, short, value_name = "SES", value_parser = super::non_empty_id())]
    session: Option<String>,
    /// Show each clearance in full, with its diff
    #[arg(long)]
    diff: bool,
}

pub(super) async fn run(args: ClearancesArgs, cx: &CliContext) -> anyhow::Result<()> {
    let now = Timestamp::now();
    if let Some(id) = args.clearance {
        let answer = cx.client.get(&url(&["clearances", &id], &[])).await?;
        return cx.print_answer(&answer, || Ok(detail(&answer.parse()?, cx.paint, now)));
    }
    let mut query = Vec::new();
    query.extend((!args.all).then_some(("status", "pending")));
    query.extend(args.session.as_deref().map(|session| ("session", session)));
    let list = cx.client.list(&["clearances"], &query).await?;
    if cx.json {
        return output::print_json(&list.body);
    }
    let mut clearances: Vec<Clearance> = list.items()?;
    Clearance::sort(&mut clearances);
    let nothing = if args.all { "no clearances" } else { "nothing waits for a decision" };
    if args.diff && !clearances.is_empty() {
        let shown: Vec<String> =
            clearances.iter().map(|clearance| detail(clearance, cx.paint, now)).collect();
        return output::print(&shown.join("\n"));
    }
    cx.table(&table(&clearances, args.all, now), nothing)?;
    if clearances.is_empty() && !args.all {
        report_other_requests(cx, "question", args.session.as_deref()).await;
    }
    Ok(())
}

/// Reports pending requests of the other kind to a person who found none and may have meant those.
pub(super) async fn report_other_requests(cx: &CliContext, what: &str, session: Option<&str>) {
    let mut query = vec![("status", "pending")];
    query.extend(session.map(|session| ("session", session)));
    let list = cx.client.list(&[&format!("{what}s")], &query).await;
    let count = list.and_then(|list| list.items::<serde_json::Value>()).map_or(0, |items| items.len());
    if count > 0 {
        let verb = if count == 1 { "waits" } else { "wait" };
        output::print_note(&format!("{} {verb}: intercom {what}s", plural(count, what)));
    }
}

/// Returns one line per clearance. All pending ones have the same status, so it is shown only with settled ones.
fn table(clearances: &[Clearance], all: bool, now: Timestamp) -> TerminalTable {
    let titles: &[_] = if all {
        &["ID", "SESSION", "RISK", "STATUS", "AGE", "WHAT"]
    } else {
        &["ID", "SESSION", "RISK", "AGE", "WHAT"]
    };
    let mut table = TerminalTable::new(titles)
        .fit(&["ID", "SESSION", "RISK", "STATUS", "AGE"], TerminalColumnFit::Whole)
        .fit(&["WHAT"], TerminalColumnFit::Below);
    for clearance in clearances {
        let id = TerminalCell::new(&short(&clearance.id));
        let session = TerminalCell::new(&clearance.session_label());
        let risk = TerminalCell::styled(risk_style(&clearance.risk), &clearance.risk);
        let age = TerminalCell::new(&age(Some(clearance.requested_at), now));
        let what = TerminalCell::new(&intercom_types::action::line_of(clearance));
        if all {
            let status = TerminalCell::styled(status_style(&clearance.status), &clearance.status);
            table.row([id, session, risk, status, age, what]);
        } else {
            table.row([id, session, risk, age, what]);
        }
    }
    table
}

/// Returns all details that matter for a decision.
fn detail(clearance: &Clearance, paint: Paint, now: Timestamp) -> String {
    let mut risk = match &clearance.claimed_risk {
        Some(claimed) if *claimed != *clearance.risk => {
            format!("{} (the agent says {claimed})", clearance.risk)
        }
        _ => clearance.risk.to_string(),
    };
    if !clearance.risk_why.is_empty() {
        let why = clearance.risk_why.join(", ");
        risk = format!("{risk}; seen {}: {why}", clearance.computed_risk);
    }
    let needed = clearance.needed;
    let approvals = (needed > 1).then(|| {
        let by = if clearance.approvals.is_empty() {
            String::new()
        } else {
            format!(" ({})", clearance.approvals.join(", "))
        };
        format!("{} of {needed}{by}", clearance.approvals.len())
    });
    let when = |at: Time| format!("{} ({} ago)", show_time(at), age(Some(at), now));
    let open = clearance.status == ClearanceStatus::Pending;
    let decided = clearance.decided_by.as_ref().map(|by| {
        let at = clearance.decided_at.map(when).map(|at| format!(", {at}")).unwrap_or_default();
        let via = clearance.decided_via.as_ref().map(|via| format!(" via {via}")).unwrap_or_default();
        format!("by {by}{via}{at}")
    });
    let session = match &clearance.session_name {
        Some(name) => format!("{name} ({})", clearance.session),
        None => clearance.session.to_string(),
    };
    let fields = [
        ("id", TerminalStyle::Plain, Some(clearance.id.to_string())),
        ("session", TerminalStyle::Plain, Some(session)),
        ("risk", risk_style(&clearance.risk), Some(risk)),
        ("command", TerminalStyle::Bold, clearance.command.clone()),
        ("file", TerminalStyle::Bold, clearance.file_path.clone()),
        (
            "also",
            TerminalStyle::Bold,
            (!clearance.more_paths.is_empty()).then(|| clearance.more_paths.join(", ")),
        ),
        ("title", TerminalStyle::Plain, Some(quoted(&clearance.title))),
        ("policy", TerminalStyle::Plain, clearance.ruling.as_ref().map(|ruling| ruling.why.clone())),
        ("approvals", TerminalStyle::Plain, approvals),
        ("expires", TerminalStyle::Yellow, clearance.expires_at.filter(|_| open).map(show_time)),
        (
            "hidden",
            TerminalStyle::Yellow,
            (!clearance.hidden.is_empty()).then(|| clearance.hidden.join(", ")),
        ),
        ("asked", TerminalStyle::Plain, Some(when(clearance.requested_at))),
        ("status", status_style(&clearance.status), Some(clearance.status.to_string())),
        ("decided", TerminalStyle::Plain, decided),
        ("reason", TerminalStyle::Plain, clearance.reason.clone()),
        ("delivery", TerminalStyle::Plain, (!open).then(|| clearance.delivery.describe())),
        ("outcome", TerminalStyle::Plain, clearance.outcome.clone()),
        ("options", TerminalStyle::Plain, Some(choices(&clearance.options))),
    ];
    let mut text = String::new();
    for (key, style, value) in fields {
        let Some(value) = value.filter(|value| !value.is_empty()) else { continue };
        let key = paint.style(TerminalStyle::Dim, &format!("{key:<10}"));
        writeln!(text, "{}", hanging(&key, &clean(&value), 10, style, paint))
            .expect("a string takes every write");
    }
    if let Some(description) = clearance.description.as_deref().filter(|text| !text.trim().is_empty()) {
        text.push('\n');
        text.push_str(&indented_block(description, paint));
    }
    if let Some(diff) = clearance.diff.as_deref().filter(|diff| !diff.is_empty()) {
        let size = format!("diff {}", diff_size(diff));
        write!(text, "\n{}\n{}", paint.style(TerminalStyle::Dim, &size), diff::show(diff, paint))
            .expect("a string takes every write");
    }
    text
}

/// Formats the options: `allow (Allow once, allow_once)`.
pub(super) fn choices(choices: &[Choice]) -> String {
    let shown: Vec<String> = choices
        .iter()
        .map(|choice| {
            let Choice { id, name, kind } = choice;
            format!("{id} ({name}, {kind})")
        })
        .collect();
    shown.join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn clearance() -> Clearance {
        serde_json::from_value(json!({
            "id": "clr_0123456789abcdef", "session": "ses_abcdef0123456789", "title": "Delete\u{202e} things",
            "description": "Because\n\tof that", "diff": "--- a\n+++ b\n-x\n", "file_path": "src/a.rs", "risk": "high",
            "claimed_risk": "low", "options": [{"id": "a", "name": "Allow", "kind": "allow_once"}],
            "status": "denied", "delivery": "failed", "delivery_cause": "stream closed",
            "requested_at": "2026-03-04T11:57:00.000Z", "decided_by": "ana", "decided_at": "2026-03-04T11:58:00.000Z",
            "reason": "no", "delivered_at": null, "outcome": null}))
        .unwrap()
    }

    #[test]
    fn one_clearance_is_shown_in_full() {
        let now = "2026-03-04T12:00:00.000Z".parse().unwrap();
        insta::assert_snapshot!(detail(&clearance(), Paint::OFF, now), @r"
        id        clr_0123456789abcdef
        session   ses_abcdef0123456789
        risk      high (the agent says low)
        file      src/a.rs
        title     “Delete<U+202E> things”
        asked     2026-03-04 11:57:00 UTC (3m ago)
        status    denied
        decided   by ana, 2026-03-04 11:58:00 UTC (2m ago)
        reason    no
        delivery  not delivered: stream closed
        options   a (Allow, allow_once)

          │ Because
          │     of that

        diff +0 -1
        │ --- a
        │ +++ b
        │ -x
        ");
    }

    #[test]
    fn clearances_are_listed_with_what_would_run_or_change_first() {
        let now = "2026-03-04T12:00:00.000Z".parse().unwrap();
        let pending = |id: &str, risk: &str, at: &str, action: Option<&str>| -> Clearance {
            serde_json::from_value(json!({
                "id": id, "session": "ses_abcdef0123456789", "session_name": "shop", "title": "Tidy up", "risk": risk,
                "action": action, "status": "pending", "requested_at": at}))
            .unwrap()
        };
        let mut open = [
            pending("clr_4444444444444444", "low", "2026-03-04T11:57:00.000Z", None),
            pending("clr_3333333333333333", "high", "2026-03-04T11:56:00.000Z", Some("src/a.rs +3 -1")),
            pending(
                "clr_1111111111111111",
                "critical",
                "2026-03-04T11:59:00.000Z",
                Some("rm -rf build && make all CFLAGS=-O2"),
            ),
            pending("clr_2222222222222222", "high", "2026-03-04T11:56:00.000Z", Some("cargo test")),
        ];
        Clearance::sort(&mut open);
        insta::assert_snapshot!(table(&open, false, now).render(Some(80), Paint::OFF), @r"
        ID            SESSION  RISK      AGE  WHAT
        clr_11111111  shop     critical  1m
          │ rm -rf build && make all CFLAGS=-O2 “Tidy up”
        clr_22222222  shop     high      4m   cargo test “Tidy up”
        clr_33333333  shop     high      4m   src/a.rs +3 -1 “Tidy up”
        clr_44444444  shop     low       3m   “Tidy up”
        ");
        insta::assert_snapshot!(table(&[clearance()], true, now).render(Some(80), Paint::OFF), @r"
        ID            SESSION       RISK  STATUS  AGE  WHAT
        clr_01234567  ses_abcdef01  high  denied  3m   “Delete<U+202E> things”
        ");
    }
}

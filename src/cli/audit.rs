//! `intercom audit`: the audit rows, and the verification of their chain.

mod sentence;

use anyhow::bail;
use serde_json::Value;
use serde_json::value::RawValue;

use super::client::parse;
use super::failure::CliFailure;
use super::gutter::wrapped;
use super::session_names::SessionNames;
use super::terminal::{TerminalStyle, stdout_size};
use super::time::{parse_shown, show_time};
use super::url::url;
use super::{CliContext, non_empty_id, output};
use intercom_types::text::{clean, columns, plural, short};
use intercom_types::{
    AGENT_PREFIX, Actor, AuditPage, AuditProblem, AuditRow, AuditVerdict, Time, VIA_POLICY, parse_duration,
};

const PAGE: &str = "1000";
const GRANT: &str = "grt_";
/// The indentation of the further lines of a row that is too long for the terminal.
const INDENT: usize = 8;

/// Show the audit: every decision, grant, token, start, stop and change of the configuration
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each row contains a hash of itself and of all rows before it. --verify checks every row and names rows that were altered, \
removed or reordered, also at the end; it also names every break that the daemon has recorded. The head that it prints, \
stored elsewhere ([audit] anchor_file does that), proves later that no row before it was rewritten.

With --json, each line is one row.")]
pub(super) struct AuditArgs {
    /// Only rows since then: an age such as 30d or 2h, or a time such as 2026-03-04, 2026-03-04 15:02 or
    /// 2026-03-04T12:00:00Z
    #[arg(long)]
    since: Option<String>,
    /// Only rows about this session
    #[arg(long, value_name = "SESSION", value_parser = non_empty_id())]
    session: Option<String>,
    /// Verify the audit chain; exit 1 if it is broken
    #[arg(long, conflicts_with_all = ["since", "session"])]
    verify: bool,
}

pub(super) async fn run(args: AuditArgs, cx: &CliContext) -> anyhow::Result<()> {
    if args.verify {
        return verify(cx).await;
    }
    let since = args.since.map(|text| moment(&text)).transpose()?;
    let mut names = if cx.json { SessionNames::default() } else { SessionNames::all(cx).await? };
    let mut after = "0".to_owned();
    loop {
        let mut query = vec![("after", after.as_str()), ("limit", PAGE)];
        query.extend(since.as_deref().map(|since| ("since", since)));
        query.extend(args.session.as_deref().map(|session| ("session", session)));
        let page: AuditPage<Box<RawValue>> = cx.client.get(&url(&["audit"], &query)).await?.parse()?;
        let mut text = String::new();
        for item in &page.items {
            if cx.json {
                text.push_str(item.get());
            } else {
                let row: AuditRow = parse(item.get())?;
                let data: Value = parse(row.data.as_str())?;
                note(&row, &data, &mut names);
                text.push_str(&line(&row, &data, &names, cx));
            }
            text.push('\n');
        }
        if cx.json {
            output::print_json(&text)?;
        } else {
            output::print(&text)?;
        }
        let Some(next) = page.next else { return Ok(()) };
        after = next.to_string();
    }
}

/// Converts an age or a time to a time.
pub(super) fn moment(text: &str) -> anyhow::Result<String> {
    if let Some(age) = parse_duration(text) {
        let millis = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
        return Ok(Time::now().minus_millis(millis).to_string());
    }
    match Time::parse(text) {
        Some(time) => Ok(time.to_string()),
        None => match parse_shown(text) {
            Some(at) => Ok(Time::from_millis(at.as_millisecond()).to_string()),
            None => bail!(CliFailure::usage(format!(
                "`{text}` is neither an age such as 30d nor a time such as 2026-03-04 15:02"
            ))),
        },
    }
}

fn line(row: &AuditRow, data: &Value, names: &SessionNames, cx: &CliContext) -> String {
    let head = format!("{:>6}  {}  ", row.n, show_time(row.at));
    let session = row.session.as_deref().map(|id| format!(" {}", names.label(id))).unwrap_or_default();
    let about = sentence::about(&row.action, data).map(|about| format!(": {about}")).unwrap_or_default();
    let text = format!("{}{session} by {}{about}", clean(&row.action), actor(row, data, names));
    let width = stdout_size().map(|size| size.columns);
    cx.paint.style(TerminalStyle::Dim, &head) + &wrapped(&text, columns(&head), INDENT, width)
}

/// Records the names in a row, because the sessions of old rows may have been removed.
fn note(row: &AuditRow, data: &Value, names: &mut SessionNames) {
    let name = data.get("name").and_then(Value::as_str).filter(|_| row.action.starts_with("session."));
    if let (Some(session), Some(name)) = (&row.session, name) {
        names.set_name(session, name);
    }
}

/// Returns `person ana (slack)`, `rule tests`, `agent of shop` or `intercom`.
fn actor(row: &AuditRow, data: &Value, names: &SessionNames) -> String {
    match row.actor.known() {
        Some(Actor::Agent) => {
            let session = row.by.strip_prefix(AGENT_PREFIX).unwrap_or(&row.by);
            format!("{AGENT_PREFIX}{}", names.label(session))
        }
        Some(Actor::Person) => {
            let via = data.get("via").and_then(Value::as_str);
            let via = via.map(|via| format!(" ({})", clean(via))).unwrap_or_default();
            format!("person {}{via}", clean(&row.by))
        }
        // A grant is a rule without a name of its own.
        Some(Actor::Rule) if row.by.starts_with(GRANT) => format!("grant {}", short(&row.by)),
        Some(Actor::Rule) if row.by != VIA_POLICY => format!("rule {}", clean(&row.by)),
        _ => clean(&row.by),
    }
}

async fn verify(cx: &CliContext) -> anyhow::Result<()> {
    let answer = cx.client.get(&url(&["audit", "verify"], &[])).await?;
    let AuditVerdict { whole, rows, head, problems, notes, anchors } = answer.parse()?;
    cx.print_answer(&answer, || {
        let line = |problem: &AuditProblem| format!("row {}: {}", problem.n, clean(&problem.what));
        let mut lines: Vec<String> = problems.iter().chain(&notes).map(line).collect();
        if whole {
            let rows = plural(usize::try_from(rows).unwrap_or(usize::MAX), "row");
            let anchors =
                if anchors == 0 { String::new() } else { format!(", {anchors} anchored heads match") };
            lines.insert(0, format!("whole: {rows}, head {head}{anchors}"));
        }
        Ok(lines.join("\n"))
    })?;
    if whole {
        return Ok(());
    }
    let found = plural(problems.len(), "problem");
    bail!(CliFailure::failed(format!("the audit chain is broken: {found} in {rows} rows")))
}

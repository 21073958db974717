//! `intercom audit`: who did what, and whether the record is whole.

use anyhow::bail;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::client::parse;
use super::failure::Failure;
use super::terminal::Style;
use super::time::date_time;
use super::url::url;
use super::{Context, id, out};
use crate::domain::{Time, parse_duration};
use crate::text::{clean, plural};

const PAGE: &str = "1000";

/// Show the audit: every decision, grant, token, start, stop and change of the configuration
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each row carries a hash of itself and of all rows before it. --verify looks at every one and names what was altered,
taken out or reordered; the head that it prints, kept elsewhere, shows later that nothing before it was rewritten.
With --json, each line is one row.")]
pub(super) struct Args {
    /// Only rows since then: an age such as 30d or 2h, or a time such as 2026-03-04T12:00:00Z
    #[arg(long)]
    since: Option<String>,
    /// Only rows about this session
    #[arg(long, value_name = "SESSION", value_parser = id())]
    session: Option<String>,
    /// Check that the record is whole; exit 1 if it is not
    #[arg(long, conflicts_with_all = ["since", "session"])]
    verify: bool,
}

#[derive(Deserialize)]
struct Page {
    items: Vec<Box<RawValue>>,
    next: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct Row {
    n: u64,
    at: String,
    action: String,
    by: String,
    session: Option<String>,
    data: Value,
}

pub(super) async fn run(args: Args, cx: &Context) -> anyhow::Result<()> {
    if args.verify {
        return verify(cx).await;
    }
    let since = args.since.map(|text| moment(&text)).transpose()?;
    let mut after = "0".to_owned();
    loop {
        let mut query = vec![("after", after.as_str()), ("limit", PAGE)];
        query.extend(since.as_deref().map(|since| ("since", since)));
        query.extend(args.session.as_deref().map(|session| ("session", session)));
        let page: Page = cx.client.get(&url(&["audit"], &query)).await?.parse()?;
        let mut text = String::new();
        for item in &page.items {
            if cx.json {
                text.push_str(item.get());
            } else {
                text.push_str(&line(&parse(item.get())?, cx));
            }
            text.push('\n');
        }
        if cx.json {
            out::print_json(&text)?;
        } else {
            out::print(&text)?;
        }
        let Some(next) = page.next else { return Ok(()) };
        after = next.to_string();
    }
}

/// What was asked for as an age or a time, as a time.
pub(super) fn moment(text: &str) -> anyhow::Result<String> {
    if let Some(age) = parse_duration(text) {
        let millis = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
        return Ok(Time::now().minus_millis(millis).to_string());
    }
    match Time::parse(text) {
        Some(time) => Ok(time.to_string()),
        None => bail!(Failure::usage(format!("`{text}` is neither an age such as 30d nor an RFC 3339 time"))),
    }
}

fn line(row: &Row, cx: &Context) -> String {
    let head = format!("{:>6}  {}", row.n, date_time(&row.at));
    let about: Vec<String> = row
        .data
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| {
            let shown = match value {
                Value::Null => return None,
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            (key != "by" && key != "session").then(|| format!("{key}={}", clean(&shown)))
        })
        .collect();
    let session = row.session.as_deref().map(|session| format!(" {}", clean(session))).unwrap_or_default();
    let about = cx.paint.style(Style::Dim, &about.join(" "));
    format!(
        "{}  {}{session} by {}  {about}",
        cx.paint.style(Style::Dim, &head),
        clean(&row.action),
        clean(&row.by)
    )
}

async fn verify(cx: &Context) -> anyhow::Result<()> {
    #[derive(Deserialize)]
    struct Verified {
        whole: bool,
        rows: u64,
        head: String,
        problems: Vec<Problem>,
    }
    #[derive(Deserialize)]
    struct Problem {
        n: u64,
        what: String,
    }
    let answer = cx.client.get(&url(&["audit", "verify"], &[])).await?;
    let Verified { whole, rows, head, problems } = answer.parse()?;
    cx.answer(&answer, || {
        if whole {
            return Ok(format!(
                "whole: {}, head {head}",
                plural(usize::try_from(rows).unwrap_or(usize::MAX), "row")
            ));
        }
        let lines = problems.iter().map(|problem| format!("row {}: {}", problem.n, clean(&problem.what)));
        Ok(lines.collect::<Vec<_>>().join("\n"))
    })?;
    if whole {
        return Ok(());
    }
    let found = plural(problems.len(), "problem");
    bail!(Failure::failed(format!("the audit is not whole: {found} in {rows} rows")))
}

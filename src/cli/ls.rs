//! `intercom ls`: the sessions as a table.

use jiff::Timestamp;

use super::checks::Status;
use super::render::waiting;
use super::style::phase_style;
use super::table::{Cell, Table};
use super::terminal::Style;
use super::time::age;
use super::{Context, out};
use crate::answers::Session;
use crate::text::{clean, short};

/// List the sessions
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Also the sessions that have ended
    #[arg(long, short)]
    all: bool,
}

pub(super) async fn run(args: Args, cx: &Context) -> anyhow::Result<()> {
    let query: &[_] = if args.all { &[("all", "true")] } else { &[] };
    let list = cx.client.list(&["sessions"], query).await?;
    if cx.json {
        return out::print_json(&list.body);
    }
    let nothing = if args.all { "no sessions" } else { "no live sessions; `intercom run` starts one" };
    cx.table(&table(&list.items()?, Timestamp::now()), nothing)?;
    // Whoever looks here may be waiting for what does not come there.
    if let Some(check) = super::slack::daemon(cx).await.filter(|check| check.status == Status::Wrong) {
        out::talk(&format!("slack: {}", clean(&check.detail)));
    }
    Ok(())
}

pub(super) fn table(sessions: &[Session], now: Timestamp) -> Table {
    let mut table = Table::new(&["ID", "NAME", "AGENT", "PHASE", "AGE", "WAITING", "WORKSPACE", "WHY"]);
    for session in sessions {
        table.row([
            Cell::new(&short(&session.id)),
            Cell::new(session.name.as_deref().unwrap_or_default()),
            Cell::new(session.agent.as_deref().unwrap_or("-")),
            Cell::styled(phase_style(session), &session.phase),
            Cell::new(&age(session.started_at.as_deref(), now)),
            Cell::styled(Style::Yellow, &waiting(session.pending_clearances(), session.pending_questions())),
            Cell::new(session.workspace.as_deref().unwrap_or_default()),
            match &session.unenforced {
                Some(_) => Cell::styled(Style::Red, "unenforced: it acts and never asks"),
                None => Cell::styled(Style::Dim, session.why.as_deref().unwrap_or_default()),
            },
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::terminal::Paint;
    use super::*;

    #[test]
    fn sessions_are_listed_for_people() {
        let sessions: Vec<Session> = serde_json::from_value(json!([
            {"id": "ses_0123456789abcdef", "name": "shop", "agent": "demo", "phase": "waiting", "why": "waits for you",
             "pending": {"clearances": 2, "questions": 1}, "started_at": "2026-03-04T11:57:00.000Z", "workspace": "/w"},
            {"id": "ses_abcdef0123456789", "name": "evil\u{1b}[2J", "agent": null, "phase": "idle", "why": null,
             "pending": {"clearances": 0, "questions": 0}, "started_at": null, "workspace": "/v"},
        ]))
        .unwrap();
        let now = "2026-03-04T12:00:00.000Z".parse().unwrap();
        insta::assert_snapshot!(table(&sessions, now).render(None, Paint::OFF), @r"
        ID            NAME             AGENT  PHASE    AGE  WAITING                   WORKSPACE  WHY
        ses_01234567  shop             demo   waiting  3m   2 clearances, 1 question  /w         waits for you
        ses_abcdef01  evil<U+001B>[2J  -      idle                                    /v
        ");
    }
}

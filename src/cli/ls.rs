//! `intercom ls`: the sessions as a table.

use jiff::Timestamp;

use super::checks::CheckStatus;
use super::render::waiting;
use super::style::phase_style;
use super::table::{TerminalCell, TerminalColumnFit, TerminalTable};
use super::terminal::{TerminalStyle, stdout_size};
use super::time::{age, local_times};
use super::transport::Transport;
use super::{CliContext, output};
use intercom_types::Session;
use intercom_types::text::{clean, short};

/// List the sessions: failed ones first, then those that wait for you
#[derive(Debug, clap::Args)]
#[command(after_help = "With --json the list is the daemon's own answer, newest first.")]
pub(super) struct LsArgs {
    /// Include ended sessions
    #[arg(long, short)]
    all: bool,
}

pub(super) async fn run(args: LsArgs, cx: &CliContext) -> anyhow::Result<()> {
    let scope = if args.all { ("all", "true") } else { ("failed", "true") };
    // The table has no column for the long fields, which cost the daemon a read of a file for each live session.
    let brief: &[_] = if cx.json { &[] } else { &[("brief", "true")] };
    let list = cx.client.list(&["sessions"], &[&[scope], brief].concat()).await?;
    if cx.json {
        return output::print_json(&list.body);
    }
    let nothing = if args.all {
        "no sessions; `intercom run` starts one"
    } else {
        "no live sessions; `intercom run` starts one, `intercom ls --all` lists the ended ones"
    };
    let mut sessions: Vec<Session> = list.items()?;
    sessions.sort_by_key(Session::urgency);
    // Scripts get whole paths, and the home directory of a remote daemon is not known.
    let at_home = stdout_size().is_some() && matches!(cx.client.transport(), Transport::Unix(_));
    let home = std::env::var("HOME").ok().filter(|home| at_home && home.len() > 1);
    cx.table(&table(&sessions, home.as_deref(), Timestamp::now()), nothing)?;
    super::checks::tell_warnings(cx).await;
    // A person who looks here may be waiting for a message in Slack that does not come.
    if let Some(check) = super::slack::daemon(cx).await.filter(|check| check.status == CheckStatus::Wrong) {
        output::advise(&format!("slack: {}", clean(&check.detail)));
    }
    Ok(())
}

/// Returns the table. Columns that people type again are never cut; `home` is the directory that is shown as `~`.
fn table(sessions: &[Session], home: Option<&str>, now: Timestamp) -> TerminalTable {
    let mut table = TerminalTable::new(&["ID", "NAME", "AGENT", "PHASE", "AGE", "WORKSPACE", "TITLE", "WHY"])
        .fit(&["ID", "NAME", "AGENT", "PHASE", "AGE"], TerminalColumnFit::Whole)
        .fit(&["WHY"], TerminalColumnFit::Below)
        .fit(&["WORKSPACE"], TerminalColumnFit::CutMiddle);
    for session in sessions {
        table.row([
            TerminalCell::new(&short(&session.id)),
            TerminalCell::new(session.name.as_deref().unwrap_or_default()),
            TerminalCell::new(session.agent.as_deref().unwrap_or("-")),
            TerminalCell::styled(phase_style(session), session.phase_word()),
            TerminalCell::new(&age(session.began_at(), now)),
            TerminalCell::new(&below_home(session.workspace.as_str(), home)),
            TerminalCell::new(session.own_title().unwrap_or_default()),
            why(session),
        ]);
    }
    table.without_empty()
}

fn below_home(workspace: &str, home: Option<&str>) -> String {
    let below = home.and_then(|home| workspace.strip_prefix(home));
    match below.filter(|below| below.is_empty() || below.starts_with('/')) {
        Some(below) => format!("~{below}"),
        None => workspace.to_owned(),
    }
}

/// Returns the reason of a phase, unless the other columns contain it.
pub(super) fn why(session: &Session) -> TerminalCell {
    if let Some(why) = &session.unenforced {
        return TerminalCell::styled(TerminalStyle::Red, &format!("unenforced: {why}"));
    }
    if let Some(failed) = session.failure() {
        return TerminalCell::styled(TerminalStyle::Red, &local_times(&failed.reason));
    }
    let why = session.why.as_str();
    match session.phase_word() {
        "waiting" => TerminalCell::styled(
            TerminalStyle::Yellow,
            &waiting(session.pending.clearances, session.pending.questions),
        ),
        // For an agent that simply works or is idle, the sentence repeats the phase; a sentence with a reason has a
        // colon.
        "working" | "idle" if !session.is_watched_closely() && !why.contains(": ") => TerminalCell::new(""),
        _ => TerminalCell::styled(TerminalStyle::Dim, &local_times(why)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::terminal::Paint;
    use super::*;

    fn sessions() -> Vec<Session> {
        serde_json::from_value(json!([
            {"id": "ses_0123456789abcdef", "name": "shop", "title": "Fix the rounding of prices in the basket",
             "agent": "claude", "phase": "waiting", "why": "waiting for you: 2 clearances and 1 question",
             "pending": {"clearances": 2, "questions": 1}, "started_at": "2026-03-04T11:57:00.000Z",
             "workspace": "/home/ana/src/customers/shop"},
            {"id": "ses_abcdef0123456789", "name": "api", "title": "api",
             "agent": null, "phase": "idle", "why": "turn over, ready for a prompt", "workspace": "/v",
             "pending": {"clearances": 0, "questions": 0}, "started_at": null},
            {"id": "ses_fedcba9876543210", "name": null, "title": "Tidy\u{1b}[2J", "agent": "demo", "phase": "ended",
             "why": "exited", "failed": {"reason": "exited with code 1 before it answered", "at": "2026-03-04T11:59:00.000Z"},
             "started_at": "2026-03-04T11:59:00.000Z", "workspace": "/home/ana"},
        ]))
        .unwrap()
    }

    #[test]
    fn sessions_are_listed_for_people() {
        let now = "2026-03-04T12:00:00.000Z".parse().unwrap();
        let mut sessions = sessions();
        sessions.sort_by_key(Session::urgency);
        let shown = |width, home| table(&sessions, home, now).render(width, Paint::OFF);
        insta::assert_snapshot!(shown(Some(80), Some("/home/ana")), @r"
        ID            NAME  AGENT   PHASE    AGE  WORKSPACE           TITLE
        ses_fedcba98        demo    failed   1m   ~                   Tidy<U+001B>[2J
          │ exited with code 1 before it answered
        ses_01234567  shop  claude  waiting  3m   ~/src…stomers/shop  Fix the rounding…
          │ 2 clearances, 1 question
        ses_abcdef01  api   -       idle          /v
        ");
        insta::assert_snapshot!(shown(None, None), @r"
        ID            NAME  AGENT   PHASE    AGE  WORKSPACE                     TITLE                                     WHY
        ses_fedcba98        demo    failed   1m   /home/ana                     Tidy<U+001B>[2J                           exited with code 1 before it answered
        ses_01234567  shop  claude  waiting  3m   /home/ana/src/customers/shop  Fix the rounding of prices in the basket  2 clearances, 1 question
        ses_abcdef01  api   -       idle          /v
        ");
        for line in shown(Some(80), None).lines() {
            assert!(intercom_types::text::columns(line) <= 80, "{line}");
        }
    }
}

//! `intercom show`: one session in full.

use std::fmt::Write as _;

use jiff::Timestamp;
use serde_json::json;

use super::failure::DaemonRefusal;
use super::gutter::{advice_lines, hanging, indented_block};
use super::render::waiting;
use super::style::phase_style;
use super::terminal::{Paint, TerminalStyle, stdout_size};
use super::time::{age, local_times, show_time};
use super::url::url;
use super::{CliContext, shell_variables};
use intercom_types::text::{clean, cut_words};
use intercom_types::{FailureSeen, Preset, Session, SessionExit, SessionProcess, Time, Usage};

/// Show one session in full, with its processes and the end of what its agent wrote to stderr
///
/// A failure that is shown to an operator here counts as seen: lists do not highlight it any more.
#[derive(Debug, clap::Args)]
pub(super) struct ShowArgs {
    /// A session
    #[arg(value_name = "SES", value_parser = super::non_empty_id())]
    session: String,
}

pub(super) async fn run(args: ShowArgs, cx: &CliContext) -> anyhow::Result<()> {
    let answer = cx.client.get(&url(&["sessions", &args.session], &[])).await?;
    cx.print_answer(&answer, || {
        let mut session: Session = answer.parse()?;
        if let Some(hint) = shell_variables::log_in_hint(&session, cx) {
            session.failed.iter_mut().for_each(|failed| failed.hint = Some(hint.clone()));
        }
        Ok(detail(&session, cx.paint, Timestamp::now()))
    })?;
    if !cx.json {
        super::checks::tell_warnings(cx).await;
    }
    let session: Session = answer.parse()?;
    // JSON is for programs, so it does not count as seen.
    if let Some(failed) = session.failed.filter(|_| !cx.json) {
        let path = url(&["sessions", &session.id, "seen"], &[]);
        // A viewer's look must not hide the failure from those who can act, so a refusal is ignored.
        match cx.client.post(&path, &json!(FailureSeen { at: Some(failed.at.to_string()) })).await {
            Err(error) if !error.is::<DaemonRefusal>() => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// The maximum width of a title, which may be the first prompt.
const MAX_TITLE: usize = 200;

/// The field with commands.
const WHAT_TO_DO: &str = "what to do";

/// Returns the verbs that show the pending requests.
fn waiting_verbs(session: &Session) -> &'static str {
    match (session.pending.clearances, session.pending.questions) {
        (0, _) => "`intercom questions`",
        (_, 0) => "`intercom clearances`",
        _ => "`intercom clearances` and `intercom questions`",
    }
}

fn detail(session: &Session, paint: Paint, now: Timestamp) -> String {
    let when = |at: Time| format!("{} ({} ago)", show_time(at), age(Some(at), now));
    let pending = waiting(session.pending.clearances, session.pending.questions);
    let queued = session.queue;
    let turn =
        session.turn.as_ref().map(|turn| format!("{}, for {}", turn.id, age(Some(turn.started_at), now)));
    let words = session.failed.as_ref().map_or(session.why.as_str(), |failed| failed.reason.as_str());
    let fields = [
        ("id", Some(session.id.to_string())),
        ("name", session.name.clone()),
        ("title", session.own_title().map(|title| cut_words(&clean(title), MAX_TITLE))),
        ("agent", session.agent.clone()),
        ("protocol", Some(session.protocol.clone())),
        ("workspace", Some(session.workspace.clone())),
        (
            "phase",
            Some(if session.failed.is_some() { &session.phase } else { session.phase_word() }.to_owned()),
        ),
        ("failed", session.failed.as_ref().map(|failed| local_times(&failed.reason))),
        ("failed at", session.failed.as_ref().map(|failed| when(failed.at))),
        (WHAT_TO_DO, session.failed.as_ref().and_then(|failed| failed.hint.as_deref()).map(local_times)),
        ("why", session.failed.is_none().then(|| local_times(&session.why))),
        ("preset", (session.preset != Preset::Full).then(|| session.preset.to_string())),
        ("policy", session.unenforced.as_ref().map(|why| format!("unenforced: {why}"))),
        ("waiting", (!pending.is_empty()).then(|| format!("{pending}: see {}", waiting_verbs(session)))),
        ("turn", turn),
        ("queued", (queued > 0).then(|| intercom_types::text::plural(queued, "prompt"))),
        ("pid", session.pid.map(|pid| pid.to_string())),
        ("generation", (session.generation > 0).then(|| session.generation.to_string())),
        ("started", session.started_at.map(when)),
        ("ended", session.ended_at.map(when)),
        ("mode", session.controls.as_ref().and_then(|controls| controls.mode.clone())),
        ("model", session.controls.as_ref().and_then(|controls| controls.model.clone())),
        (
            "spent",
            session.spent.as_ref().filter(|spent| spent.total_tokens > 0 || spent.cost > 0.0).map(spent),
        ),
        ("ladder", session.ladder().map(str::to_owned)),
        ("snoozed", session.snoozed_until().map(|at| format!("until {}", show_time(at)))),
        ("exit", session.exit.as_ref().and_then(|end| exit(end, words))),
    ];
    let mut text = String::new();
    for (name, value) in fields {
        let Some(value) = value.filter(|value| !value.is_empty()) else { continue };
        let style = match name {
            "phase" => phase_style(session),
            "failed" => TerminalStyle::Red,
            _ => TerminalStyle::Plain,
        };
        let label = paint.style(TerminalStyle::Dim, &format!("{name:<11}"));
        // Commands are for pasting: no line is broken inside of one.
        let line = if name == WHAT_TO_DO {
            let room = stdout_size().map(|size| size.columns.saturating_sub(11));
            let lines: Vec<String> =
                advice_lines(&clean(&value), room).iter().map(|line| line.trim_start().to_owned()).collect();
            format!("{label}{}", lines.join(&format!("\n{}", " ".repeat(11))))
        } else {
            hanging(&label, &clean(&value), 11, style, paint)
        };
        writeln!(text, "{line}").expect("a string takes every write");
    }
    let processes = session.processes.as_deref().unwrap_or_default();
    if !processes.is_empty() {
        text.push_str(&paint.style(TerminalStyle::Dim, "processes"));
        text.push('\n');
        for process in processes {
            writeln!(text, "  {}", one_process(process)).expect("a string takes every write");
        }
    }
    if let Some(tail) = Some(session.stderr_tail.as_str()).filter(|tail| !tail.trim().is_empty()) {
        text.push_str(&paint.style(TerminalStyle::Dim, "stderr"));
        text.push('\n');
        text.push_str(&indented_block(tail, paint));
    }
    text
}

fn spent(spent: &Usage) -> String {
    let turns = intercom_types::text::plural(usize::try_from(spent.turns).unwrap_or(usize::MAX), "turn");
    let tokens =
        if spent.total_tokens > 0 { format!(", {} tokens", spent.total_tokens) } else { String::new() };
    let currency = spent.currency.as_deref().unwrap_or_default();
    let cost = if spent.cost > 0.0 { format!(", {:.4} {currency}", spent.cost) } else { String::new() };
    format!("{turns}{tokens}{cost}")
}

fn one_process(process: &SessionProcess) -> String {
    let SessionProcess { cpu_seconds: cpu, state, .. } = process;
    let (mib, name) = (process.memory_bytes / (1024 * 1024), clean(&process.name));
    format!("{:>8}  {state}  {cpu:>8.1} s CPU  {mib:>6} MiB  {name}", process.pid)
}

/// Returns the exit status and its reason, unless a line above has the reason already. An agent that was never started
/// has no status.
fn exit(exit: &SessionExit, why: &str) -> Option<String> {
    let code = exit.status.code.map(|code| format!("code {code}"));
    let status = code.or_else(|| exit.status.signal.map(|signal| format!("signal {signal}")));
    let is_said = |reason: &&str| {
        let cause = reason.split_once(": ").map_or(*reason, |(_, cause)| cause);
        // The advice after a missing log-in has a field of its own.
        why.contains(cause) || (!why.is_empty() && reason.contains(why))
    };
    match (status, exit.reason.as_deref().filter(|reason| !is_said(reason))) {
        (Some(status), Some(reason)) => Some(format!("{status} ({reason})")),
        (Some(status), None) => Some(status),
        (None, reason) => reason.map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_failure_is_shown_with_what_to_do() {
        let session = serde_json::from_value(json!({
            "id": "ses_0123456789abcdef", "phase": "idle", "why": "failed: claude needs a login",
            "failed": {"kind": "log_in", "reason": "claude needs a login", "at": "2026-03-04T11:58:00.000Z",
                       "hint": "log in: run `claude`; then restart the agent"}}))
        .unwrap();
        let now = "2026-03-04T12:00:00.000Z".parse().unwrap();
        insta::assert_snapshot!(detail(&session, Paint::OFF, now), @r"
        id         ses_0123456789abcdef
        phase      idle
        failed     claude needs a login
        failed at  2026-03-04 11:58:00 UTC (2m ago)
        what to do log in: run `claude`; then restart the agent
        ");
    }

    #[test]
    fn a_session_is_shown_in_full() {
        let session = serde_json::from_value(json!({
            "id": "ses_0123456789abcdef", "name": null, "agent": "demo", "protocol": "intercom", "workspace": "/w",
            "phase": "ended", "why": "the agent exited", "preset": "read-only", "pid": null, "generation": 2, "turn": null,
            "pending": {"clearances": 0, "questions": 0}, "queue": 1, "stderr_tail": "boom\u{7}\nbang\n",
            "processes": [{"pid": 77, "parent": 1, "name": "agent", "state": "S", "cpu_seconds": 1.25,
                           "memory_bytes": 5_242_880}],
            "started_at": "2026-03-04T11:00:00.000Z", "ended_at": "2026-03-04T11:58:00.000Z",
            "exit": {"code": 3, "signal": null, "reason": "stream closed"}}))
        .unwrap();
        let now = "2026-03-04T12:00:00.000Z".parse().unwrap();
        insta::assert_snapshot!(detail(&session, Paint::OFF, now), @r"
        id         ses_0123456789abcdef
        agent      demo
        protocol   intercom
        workspace  /w
        phase      ended
        why        the agent exited
        preset     read-only
        queued     1 prompt
        generation 2
        started    2026-03-04 11:00:00 UTC (1h ago)
        ended      2026-03-04 11:58:00 UTC (2m ago)
        exit       code 3 (stream closed)
        processes
                77  S       1.2 s CPU       5 MiB  agent
        stderr
          │ boom<U+0007>
          │ bang
        ");
    }
}

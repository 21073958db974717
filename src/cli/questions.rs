//! `intercom questions`: the questions of agents.

use std::fmt::Write as _;

use jiff::Timestamp;

use super::clearances::report_other_requests;
use super::gutter::{TEXT_GUTTER, block};
use super::style::status_style;
use super::table::{TerminalCell, TerminalColumnFit, TerminalTable};
use super::terminal::{self, Paint, TerminalStyle};
use super::time::age;
use super::url::url;
use super::{CliContext, output};
use intercom_types::Question;
use intercom_types::text::short;

/// List the pending questions, oldest first, or show one
#[derive(Debug, clap::Args)]
#[command(after_help = "With --json the list is the daemon's own answer, newest first.")]
pub(super) struct QuestionsArgs {
    /// A question to show
    #[arg(value_name = "QST", value_parser = super::non_empty_id(), conflicts_with_all = ["all", "session"])]
    question: Option<String>,
    /// Include answered and closed questions
    #[arg(long, short)]
    all: bool,
    /// Only questions of this session
    #[arg(long, short, value_name = "SES", value_parser = super::non_empty_id())]
    session: Option<String>,
}

pub(super) async fn run(args: QuestionsArgs, cx: &CliContext) -> anyhow::Result<()> {
    let width = terminal::stdout_size().map(|size| size.columns);
    if let Some(id) = args.question {
        let answer = cx.client.get(&url(&["questions", &id], &[])).await?;
        return cx.print_answer(&answer, || Ok(show(&[answer.parse()?], width, cx.paint, Timestamp::now())));
    }
    let mut query = Vec::new();
    query.extend((!args.all).then_some(("status", "pending")));
    query.extend(args.session.as_deref().map(|session| ("session", session)));
    let list = cx.client.list(&["questions"], &query).await?;
    if cx.json {
        return output::print_json(&list.body);
    }
    let mut questions: Vec<Question> = list.items()?;
    Question::sort(&mut questions);
    if questions.is_empty() {
        output::print_note(if args.all { "no questions" } else { "nothing waits for an answer" });
        if !args.all {
            report_other_requests(cx, "clearance", args.session.as_deref()).await;
        }
        return Ok(());
    }
    output::print(&show(&questions, width, cx.paint, Timestamp::now()))
}

/// Prints a line for each question, and its whole text below it, because an answer needs all of it.
fn show(questions: &[Question], width: Option<usize>, paint: Paint, now: Timestamp) -> String {
    let mut table = TerminalTable::new(&["ID", "SESSION", "STATUS", "AGE", "TYPE", "ANSWER"])
        .fit(&["ID", "SESSION", "STATUS", "AGE"], TerminalColumnFit::Whole);
    for question in questions {
        table.row([
            TerminalCell::new(&short(&question.id)),
            TerminalCell::new(&question.session_label()),
            TerminalCell::styled(status_style(&question.status), &question.status),
            TerminalCell::new(&age(Some(question.asked_at), now)),
            TerminalCell::new(question.sort.as_deref().unwrap_or("-")),
            TerminalCell::new(&answered(question)),
        ]);
    }
    let lines = table.lines(width, paint);
    let mut text = format!("{}\n", lines[0]);
    for (line, question) in lines[1..].iter().zip(questions) {
        writeln!(text, "{line}").expect("a string takes every write");
        text.push_str(&block(&question.text, TEXT_GUTTER, width, TerminalStyle::Plain, paint));
    }
    text
}

fn answered(question: &Question) -> String {
    let Some(decision) = &question.decision else { return String::new() };
    let by = question.answered_by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
    let instruction = question.instruction.as_ref().map(|text| format!(": {text}")).unwrap_or_default();
    format!("{decision}{by}{instruction} ({})", question.delivery.describe())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn questions_are_listed_with_their_whole_text() {
        let questions: Vec<Question> = serde_json::from_value(json!([
            {"id": "qst_0123456789abcdef", "session": "ses_abcdef0123456789", "text": "Shall I go on?\n\nReally?\u{1b}",
             "type": "continuation", "status": "pending", "asked_at": "2026-03-04T11:57:00.000Z"},
            {"id": "qst_abcdef0123456789", "session": "ses_abcdef0123456789", "text": "How?", "type": null,
             "status": "answered", "decision": "refine", "instruction": "slowly", "answered_by": "ana",
             "asked_at": "2026-03-04T11:58:00.000Z", "delivery": "delivered"},
        ]))
        .unwrap();
        let now = "2026-03-04T12:00:00.000Z".parse().unwrap();
        insta::assert_snapshot!(show(&questions, None, Paint::OFF, now), @r"
        ID            SESSION       STATUS    AGE  TYPE          ANSWER
        qst_01234567  ses_abcdef01  pending   3m   continuation
          │ Shall I go on?
          │
          │ Really?<U+001B>
        qst_abcdef01  ses_abcdef01  answered  2m   -             refine by ana: slowly (delivered)
          │ How?
        ");
    }
}

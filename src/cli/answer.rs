//! `intercom answer`: answers an agent's question.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use serde_json::json;

use super::failure::{CliFailure, DaemonRefusal};
use super::url::url;
use super::{CliContext, decide, send};
use intercom_types::text::{clean, short};
use intercom_types::{Answer, ErrorAttachment, Question, QuestionAnswer};

/// Answer an agent's question
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  intercom answer 3f9q continue
  intercom answer 3f9q refine \"only the parser, leave the tests\"")]
pub(super) struct AnswerArgs {
    /// A question; see `intercom questions`
    #[arg(value_name = "QST", value_parser = super::non_empty_id())]
    question: String,
    /// The answer
    #[arg(value_parser = decisions())]
    decision: Answer,
    /// The instruction for `refine`; `-` reads it from stdin
    instruction: Option<String>,
}

/// Parses the answers, with their help. The model crate knows no command line.
fn decisions() -> impl TypedValueParser<Value = Answer> {
    let value = |answer: Answer, help: &'static str| PossibleValue::new(answer.as_str()).help(help);
    PossibleValuesParser::new([
        value(Answer::Continue, "Continue as proposed"),
        value(Answer::Refine, "Continue differently: needs an instruction"),
        value(Answer::Stop, "Stop"),
    ])
    .try_map(|word| Answer::parse(&word).ok_or("no such answer"))
}

pub(super) async fn run(args: AnswerArgs, cx: &CliContext) -> anyhow::Result<()> {
    if args.decision == Answer::Refine && args.instruction.is_none() {
        let hint = "intercom answer QST refine \"what to do instead\"";
        return Err(CliFailure::usage("`refine` needs an instruction").hint(hint).into());
    }
    if args.question.starts_with("clr_") {
        let hint = format!("intercom approve {0}, or intercom deny {0}", args.question);
        return Err(CliFailure::usage(format!("{} is a clearance, not a question", args.question))
            .hint(hint)
            .into());
    }
    let body = QuestionAnswer {
        decision: args.decision,
        instruction: args.instruction.map(send::text).transpose()?,
    };
    let answer = cx.client.post(&url(&["questions", &args.question, "answer"], &[]), &json!(body)).await;
    let answer = answer.map_err(|error| explain(error, cx))?;
    let question: Question = answer.parse()?;
    let delivery = &question.delivery;
    cx.print_answer(&answer, || {
        let decision = question.decision.as_deref().unwrap_or(args.decision.as_str());
        Ok(format!(
            "{} {}: {} ({})",
            clean(&question.status),
            short(&question.id),
            clean(decision),
            clean(&delivery.describe())
        ))
    })?;
    decide::check_delivery(delivery)
}

/// Adds to the error of a late answer the ways to act now. The error says who answered and when.
fn explain(error: anyhow::Error, cx: &CliContext) -> anyhow::Error {
    let refusal = match error.downcast::<DaemonRefusal>() {
        Ok(refusal) if refusal.code == "already_decided" => refusal,
        Ok(refusal) => return refusal.into(),
        Err(error) => return error,
    };
    let Some(ErrorAttachment::Question(question)) = &refusal.attached else { return refusal.into() };
    let (session, call) = (question.session_label(), &cx.command_prefix);
    let hint = format!("an answer cannot be changed; `{call} send {session} TEXT` can tell the agent more");
    refusal.hint(hint).into()
}

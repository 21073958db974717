//! Questions: list, show, answer.

use schemars::JsonSchema;
use serde::Deserialize;

use super::session_view::list;
use super::{Caller, OpError, OperationKind, Operations, limit, require_one};
use crate::session::{CommandError, CommandRefusal, SessionInput};
use intercom_store::QuestionFilter;
use intercom_types::{Answer, ErrorAttachment, List, Question, QuestionAnswer, QuestionStatus};

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QuestionQuery {
    #[schemars(with = "Option<String>")]
    pub(crate) status: Option<QuestionStatus>,
    pub(crate) session: Option<String>,
    pub(crate) limit: Option<usize>,
    pub(crate) cursor: Option<i64>,
}

impl Operations {
    pub async fn questions(&self, caller: &Caller, query: QuestionQuery) -> Result<List<Question>, OpError> {
        self.admit(caller, OperationKind::Read)?;
        let filter = QuestionFilter { status: query.status, session: self.session_id(query.session).await? };
        let page = self.store().questions(filter, query.cursor, limit(query.limit)?).await?;
        self.shown(caller, list(page, |question| question)).await
    }

    pub async fn question(&self, caller: &Caller, typed: &str) -> Result<Question, OpError> {
        self.admit(caller, OperationKind::Read)?;
        let question = self.stored_question(typed).await?;
        self.shown(caller, question).await
    }

    pub async fn answer(
        &self,
        caller: &Caller,
        typed: &str,
        answer: QuestionAnswer,
    ) -> Result<Question, OpError> {
        self.admit(caller, OperationKind::Answer)?;
        let question = self.stored_question(typed).await?;
        let QuestionAnswer { decision: answer, instruction } = answer;
        if answer == Answer::Refine && instruction.as_deref().is_none_or(|text| text.trim().is_empty()) {
            let message = "`refine` needs an instruction";
            return Err(OpError::unprocessable("instruction_required", message));
        }
        if question.status != QuestionStatus::Pending {
            return Err(already(question));
        }
        let input =
            SessionInput::Answer { question: question.id, answer, instruction, by: caller.name.clone() };
        match self.supervisor().command(question.session, input).await {
            Ok(done) => done.arrival.wait().await,
            Err(CommandError::Refused(refused @ (CommandRefusal::NotOpen | CommandRefusal::Ended))) => {
                let now = self.stored_question(&question.id).await?;
                let pending = now.status == QuestionStatus::Pending;
                return Err(if pending { CommandError::Refused(refused).into() } else { already(now) });
            }
            Err(error) => return Err(error.into()),
        }
        self.record_use(caller, question.session).await;
        self.stored_question(&question.id).await
    }

    async fn stored_question(&self, typed: &str) -> Result<Question, OpError> {
        require_one("question", typed, self.store().question(typed.to_owned()).await?)
    }
}

fn already(question: Question) -> OpError {
    let by = question.answered_by.as_deref().map(|by| format!(" by {by}")).unwrap_or_default();
    let at = question.answered_at.map(|at| format!(" at {at}")).unwrap_or_default();
    let message = format!("already {}{by}{at}", question.status.as_str());
    OpError::conflict("already_decided", message).with(ErrorAttachment::Question(Box::new(question)))
}

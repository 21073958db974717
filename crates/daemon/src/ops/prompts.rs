//! Prompts: send, list, change, withdraw.

use schemars::JsonSchema;
use serde::Deserialize;

use super::session_view::list;
use super::{Caller, OpError, OperationKind, Operations, limit, require_one};
use crate::session::{CommandError, CommandRefusal, SessionInput};
use intercom_store::IdLookup;
use intercom_types::{Content, List, NewPrompt, Prompt, PromptBody, PromptChange, PromptId, PromptState};

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PromptQuery {
    pub(crate) limit: Option<usize>,
    pub(crate) cursor: Option<i64>,
}

impl Operations {
    /// Returns the prompts of a session, newest first.
    pub async fn prompts(
        &self,
        caller: &Caller,
        session: &str,
        query: PromptQuery,
    ) -> Result<List<Prompt>, OpError> {
        self.admit(caller, OperationKind::Read)?;
        let session = self.session_record(session).await?.id;
        let page = self.store().prompts(session, query.cursor, limit(query.limit)?).await?;
        self.shown(caller, list(page, |prompt| prompt)).await
    }

    pub async fn send(&self, caller: &Caller, session: &str, prompt: NewPrompt) -> Result<Prompt, OpError> {
        self.admit(caller, OperationKind::SendPrompt)?;
        let wording = wording(&prompt)?;
        let session = self.session_record(session).await?;
        let id = prompt.id.as_deref().map(str::parse::<PromptId>).transpose();
        let id = id.map_err(|error| OpError::bad_request(format!("id: {error}")))?;
        let prompt = match self.sent_before(id).await? {
            Some(known) if known.session != session.id => {
                return Err(OpError::conflict("id_taken", "another session has a prompt with this id"));
            }
            Some(known) => known,
            None => {
                let input = SessionInput::Prompt { id, wording, by: caller.name.clone() };
                let done = self.command(&session, input).await?;
                if prompt.wait != Some(false) {
                    done.arrival.wait().await;
                }
                self.stored_prompt(&done.prompt.map(|id| id.to_string()).unwrap_or_default()).await?
            }
        };
        self.record_use(caller, session.id).await;
        Ok(prompt)
    }

    /// Withdraws a queued prompt; with a session, only if it is a prompt of that one.
    pub async fn withdraw_prompt(
        &self,
        caller: &Caller,
        typed: &str,
        session: Option<String>,
    ) -> Result<(), OpError> {
        self.admit(caller, OperationKind::TakeBackPrompt)?;
        let session = self.session_id(session).await?;
        let prompt = self.stored_prompt(typed).await?;
        if session.is_some_and(|session| session != prompt.session) {
            let hint = format!("it belongs to {}", prompt.session);
            return Err(OpError::not_found("prompt of this session", typed).hint(hint));
        }
        match prompt.state {
            PromptState::Withdrawn => {}
            PromptState::Queued => {
                self.supervisor().take_back(prompt.session, prompt.id, caller.name.clone()).await?;
            }
            _ => return Err(CommandError::Refused(CommandRefusal::NotQueued).into()),
        }
        self.record_use(caller, prompt.session).await;
        Ok(())
    }

    pub async fn change_prompt(
        &self,
        caller: &Caller,
        typed: &str,
        change: PromptChange,
    ) -> Result<Prompt, OpError> {
        self.admit(caller, OperationKind::ChangePrompt)?;
        let PromptChange { text, place } = change;
        if text.is_none() && place.is_none() {
            return Err(OpError::bad_request("`text` or `place` is needed"));
        }
        if text.as_deref().is_some_and(|text| text.trim().is_empty()) {
            return Err(OpError::bad_request("text must not be empty"));
        }
        let prompt = self.stored_prompt(typed).await?;
        let input = SessionInput::Amend { prompt: prompt.id, text, place, by: caller.name.clone() };
        self.supervisor().command(prompt.session, input).await?;
        self.record_use(caller, prompt.session).await;
        self.stored_prompt(&prompt.id).await
    }

    async fn sent_before(&self, id: Option<PromptId>) -> Result<Option<Prompt>, OpError> {
        let Some(id) = id else { return Ok(None) };
        Ok(match self.store().prompt(id.to_string()).await? {
            IdLookup::One(prompt) => Some(prompt),
            _ => None,
        })
    }

    async fn stored_prompt(&self, typed: &str) -> Result<Prompt, OpError> {
        require_one("prompt", typed, self.store().prompt(typed.to_owned()).await?)
    }
}

fn wording(prompt: &NewPrompt) -> Result<PromptBody, OpError> {
    let bad = || OpError::bad_request("content must be a list of content blocks, each an object");
    let content = prompt.content.as_ref().map(|raw| Content::read(raw).ok_or_else(bad)).transpose()?;
    let content = content.filter(|content| !content.is_empty());
    let given = prompt.text.clone().filter(|text| !text.trim().is_empty());
    let text = given.or_else(|| content.as_ref().map(Content::text)).unwrap_or_default();
    if text.is_empty() {
        return Err(OpError::bad_request("text must not be empty"));
    }
    Ok(PromptBody { text, content })
}

//! Clearances, questions and prompts: updated in the transactions of the log, and read by every bridge.

use std::path::PathBuf;

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::read::{IdLookup, RowPage, find, page, rows, text_id};
use super::{Store, StoreError};
use intercom_types::{
    Answer, Choice, Clearance, ClearanceId, ClearanceStatus, Content, Delivery, Json, Prompt, PromptId,
    PromptState, Question, QuestionId, QuestionStatus, Risk, SessionId, Time,
};

const CLEARANCE: &str = "c.id, s.id, c.generation, c.request, c.title, c.description, c.diff, c.file_path, c.risk,
    c.claimed_risk, c.options, c.status, c.delivery, c.delivery_cause, c.requested_at, c.decided_by, c.decided_at,
    c.reason, c.option, c.delivered_at, c.outcome, c.tool, c.command, c.computed_risk, c.risk_why, c.ruling, c.needed,
    c.approvals, c.expires_at, c.decided_via, c.more_paths, s.name, c.key FROM clearances c JOIN sessions s ON s.key = c.session";
const QUESTION: &str =
    "q.id, s.id, q.generation, q.request, q.text, q.sort, q.status, q.decision, q.instruction,
    q.asked_at, q.answered_by, q.answered_at, q.reason, q.delivery, q.delivery_cause, q.delivered_at, s.name, q.key
    FROM questions q JOIN sessions s ON s.key = q.session";
const PROMPT: &str = "p.id, s.id, p.text, p.state, p.cause, p.by, p.at, p.delivered_at, p.place, p.key
    FROM prompts p JOIN sessions s ON s.key = p.session";

/// A selection of clearances, newest first.
#[derive(Debug, Clone, Default)]
pub struct ClearanceFilter {
    pub status: Option<ClearanceStatus>,
    pub session: Option<SessionId>,
}

/// A request for a clearance, with the other input of policy.
#[derive(Debug, Clone)]
pub struct StoredRequest {
    pub key: i64,
    pub clearance: Clearance,
    pub agent: Option<String>,
    pub workspace: PathBuf,
}

/// A selection of questions, newest first.
#[derive(Debug, Clone, Default)]
pub struct QuestionFilter {
    pub status: Option<QuestionStatus>,
    pub session: Option<SessionId>,
}

impl Store {
    /// Finds a clearance by id or a unique prefix of one.
    pub async fn clearance(&self, typed: String) -> Result<IdLookup<Clearance>, StoreError> {
        self.read(move |connection| {
            find(connection, CLEARANCE, "c", ClearanceId::PREFIX, &typed, clearance, |c| c.id.to_string())
        })
        .await
    }

    pub async fn question(&self, typed: String) -> Result<IdLookup<Question>, StoreError> {
        self.read(move |connection| {
            find(connection, QUESTION, "q", QuestionId::PREFIX, &typed, question, |q| q.id.to_string())
        })
        .await
    }

    pub async fn prompt(&self, typed: String) -> Result<IdLookup<Prompt>, StoreError> {
        self.read(move |connection| {
            find(connection, PROMPT, "p", PromptId::PREFIX, &typed, prompt, |p| p.id.to_string())
        })
        .await
    }

    /// Returns the complete content of a prompt, if that is more than text.
    pub async fn content(&self, id: PromptId) -> Result<Option<Content>, StoreError> {
        self.read(move |connection| {
            let raw: Option<String> = connection
                .prepare_cached("SELECT content FROM prompts WHERE id = ?1")?
                .query_row([id.to_string()], |row| row.get(0))
                .optional()?
                .flatten();
            Ok(raw.and_then(|raw| Content::read(&Json::trusted(raw))))
        })
        .await
    }

    pub async fn clearances(
        &self,
        filter: ClearanceFilter,
        before: Option<i64>,
        limit: usize,
    ) -> Result<RowPage<Clearance>, StoreError> {
        let filter = (filter.status.map(ClearanceStatus::as_str), filter.session);
        self.read(move |connection| {
            page(connection, CLEARANCE, "c", "status", filter, before, limit, clearance)
        })
        .await
    }

    /// Returns the clearance requests since a time, oldest first, each with its session and agent.
    pub async fn requests(
        &self,
        since: Time,
        after: i64,
        limit: usize,
    ) -> Result<Vec<StoredRequest>, StoreError> {
        self.read(move |connection| {
            let columns = CLEARANCE.replacen("c.key FROM", "c.key, s.agent, s.workspace FROM", 1);
            let sql =
                format!("SELECT {columns} WHERE c.key > ?1 AND c.requested_at >= ?2 ORDER BY c.key LIMIT ?3");
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            let found = rows(connection, &sql, params![after, since.millis(), limit], |row| {
                let (clearance, key) = clearance(row)?;
                let workspace = PathBuf::from(row.get::<_, String>("workspace")?);
                Ok((StoredRequest { key, clearance, agent: row.get("agent")?, workspace }, key))
            })?;
            Ok(found.into_iter().map(|(request, _)| request).collect())
        })
        .await
    }

    pub async fn questions(
        &self,
        filter: QuestionFilter,
        before: Option<i64>,
        limit: usize,
    ) -> Result<RowPage<Question>, StoreError> {
        let filter = (filter.status.map(QuestionStatus::as_str), filter.session);
        self.read(move |connection| {
            page(connection, QUESTION, "q", "status", filter, before, limit, question)
        })
        .await
    }

    pub async fn prompts(
        &self,
        session: SessionId,
        before: Option<i64>,
        limit: usize,
    ) -> Result<RowPage<Prompt>, StoreError> {
        self.read(move |connection| {
            page(connection, PROMPT, "p", "state", (None, Some(session)), before, limit, prompt)
        })
        .await
    }
}

pub(super) fn clearance_by_id(connection: &Connection, id: &str) -> Result<Option<Clearance>, StoreError> {
    let sql = format!("SELECT {CLEARANCE} WHERE c.id = ?1");
    Ok(rows(connection, &sql, [id], clearance)?.pop().map(|(found, _)| found))
}

pub(super) fn question_by_id(connection: &Connection, id: &str) -> Result<Option<Question>, StoreError> {
    let sql = format!("SELECT {QUESTION} WHERE q.id = ?1");
    Ok(rows(connection, &sql, [id], question)?.pop().map(|(found, _)| found))
}

fn clearance(row: &Row<'_>) -> Result<(Clearance, i64), StoreError> {
    let corrupt = || StoreError::Corrupt { what: "a clearance" };
    let options: String = row.get(10)?;
    let delivery: String = row.get(12)?;
    let found = Clearance {
        id: text_id(row, 0)?,
        session: text_id(row, 1)?,
        session_name: row.get(31)?,
        action: None,
        title: row.get(4)?,
        description: row.get(5)?,
        diff: row.get(6)?,
        file_path: row.get(7)?,
        risk: Risk::parse(&row.get::<_, String>(8)?).ok_or_else(corrupt)?.into(),
        claimed_risk: row.get(9)?,
        options: serde_json::from_str::<Vec<Choice>>(&options).map_err(|_| corrupt())?,
        status: ClearanceStatus::parse(&row.get::<_, String>(11)?).ok_or_else(corrupt)?.into(),
        delivery: Delivery::from_parts(&delivery, row.get(13)?).ok_or_else(corrupt)?,
        requested_at: Time::from_millis(row.get(14)?),
        decided_by: row.get(15)?,
        decided_at: row.get::<_, Option<i64>>(16)?.map(Time::from_millis),
        reason: row.get(17)?,
        option: row.get(18)?,
        delivered_at: row.get::<_, Option<i64>>(19)?.map(Time::from_millis),
        outcome: row.get(20)?,
        tool: row.get(21)?,
        command: row.get(22)?,
        // Rows of the first schema have no computed risk.
        computed_risk: row
            .get::<_, Option<String>>(23)?
            .as_deref()
            .and_then(Risk::parse)
            .unwrap_or(Risk::Low)
            .into(),
        risk_why: serde_json::from_str(&row.get::<_, String>(24)?).map_err(|_| corrupt())?,
        ruling: match row.get::<_, Option<String>>(25)? {
            Some(json) => Some(serde_json::from_str(&json).map_err(|_| corrupt())?),
            None => None,
        },
        needed: row.get(26)?,
        approvals: serde_json::from_str(&row.get::<_, String>(27)?).map_err(|_| corrupt())?,
        expires_at: row.get::<_, Option<i64>>(28)?.map(Time::from_millis),
        decided_via: row.get(29)?,
        more_paths: serde_json::from_str(&row.get::<_, String>(30)?).map_err(|_| corrupt())?,
        hidden: Vec::new(),
    };
    Ok((found, row.get(32)?))
}

fn question(row: &Row<'_>) -> Result<(Question, i64), StoreError> {
    let corrupt = || StoreError::Corrupt { what: "a question" };
    let decision: Option<String> = row.get(7)?;
    let delivery: String = row.get(13)?;
    let found = Question {
        id: text_id(row, 0)?,
        session: text_id(row, 1)?,
        session_name: row.get(16)?,
        text: row.get(4)?,
        sort: row.get(5)?,
        status: QuestionStatus::parse(&row.get::<_, String>(6)?).ok_or_else(corrupt)?.into(),
        decision: decision
            .map(|text| Answer::parse(&text).map(Into::into).ok_or_else(corrupt))
            .transpose()?,
        instruction: row.get(8)?,
        asked_at: Time::from_millis(row.get(9)?),
        answered_by: row.get(10)?,
        answered_at: row.get::<_, Option<i64>>(11)?.map(Time::from_millis),
        reason: row.get(12)?,
        delivery: Delivery::from_parts(&delivery, row.get(14)?).ok_or_else(corrupt)?,
        delivered_at: row.get::<_, Option<i64>>(15)?.map(Time::from_millis),
    };
    Ok((found, row.get(17)?))
}

fn prompt(row: &Row<'_>) -> Result<(Prompt, i64), StoreError> {
    let state: String = row.get(3)?;
    let found = Prompt {
        id: text_id(row, 0)?,
        session: text_id(row, 1)?,
        text: row.get(2)?,
        state: PromptState::from_parts(&state, row.get(4)?)
            .ok_or(StoreError::Corrupt { what: "a prompt" })?,
        by: row.get(5)?,
        at: Time::from_millis(row.get(6)?),
        delivered_at: row.get::<_, Option<i64>>(7)?.map(Time::from_millis),
        place: row.get(8)?,
    };
    Ok((found, row.get(9)?))
}

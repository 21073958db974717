//! Clearances, questions and prompts: changed in step with the log, read by every bridge.

use std::path::PathBuf;

use rusqlite::{Connection, OptionalExtension, Row, ToSql, params};

use super::read::{Found, Page, find, page, rows, text_id};
use super::{Store, StoreError};
use crate::domain::{
    Answer, Choice, Clearance, ClearanceId, ClearanceStatus, Content, Delivery, Entry, Json, Prompt,
    PromptId, PromptState, Question, QuestionId, QuestionStatus, RequestId, Risk, Ruling, SessionId, Time,
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

/// Which clearances to list, newest first.
#[derive(Debug, Clone, Default)]
pub struct ClearanceFilter {
    pub status: Option<ClearanceStatus>,
    pub session: Option<SessionId>,
}

/// A request for a clearance, with what else policy looks at.
#[derive(Debug, Clone)]
pub struct Request {
    pub key: i64,
    pub clearance: Clearance,
    pub agent: Option<String>,
    pub workspace: PathBuf,
}

/// Which questions to list, newest first.
#[derive(Debug, Clone, Default)]
pub struct QuestionFilter {
    pub status: Option<QuestionStatus>,
    pub session: Option<SessionId>,
}

/// One change. What ends a pending row is compare-and-set.
pub(super) fn apply(connection: &Connection, session: i64, entry: &Entry) -> Result<(), StoreError> {
    let run = |sql: &str, values: &[&dyn ToSql]| connection.prepare_cached(sql)?.execute(values);
    match entry {
        Entry::ClearanceOpened { clearance, generation, request } => {
            insert_clearance(connection, session, clearance, *generation, request)?;
        }
        Entry::ClearanceDecided { id, status, by, via, at, reason, option, ruling } => swap(
            run(
                "UPDATE clearances SET status = ?2, delivery = 'pending', decided_by = ?3, decided_at = ?4, reason = ?5,
                     option = ?6, decided_via = ?7, ruling = coalesce(?8, ruling) WHERE id = ?1 AND status = 'pending'",
                params![
                    id.to_string(),
                    status.as_str(),
                    by,
                    at.millis(),
                    reason,
                    option,
                    via,
                    json_of(ruling.as_ref())
                ],
            )?,
            id,
        )?,
        Entry::ClearanceApproved { id, by } => swap(
            run(
                "UPDATE clearances SET approvals = json_insert(approvals, '$[#]', ?2)
                 WHERE id = ?1 AND status = 'pending'",
                params![id.to_string(), by],
            )?,
            id,
        )?,
        Entry::ClearanceOutcome { id, outcome } => {
            run("UPDATE clearances SET outcome = ?2 WHERE id = ?1", params![id.to_string(), outcome])?;
        }
        Entry::ClearanceClosed { id, status, at, reason } => swap(
            run(
                "UPDATE clearances SET status = ?2, decided_at = ?3, reason = ?4 WHERE id = ?1 AND status = 'pending'",
                params![id.to_string(), status.as_str(), at.millis(), reason],
            )?,
            id,
        )?,
        Entry::ClearanceDelivery { id, delivery, at } => {
            let at = (*delivery == Delivery::Delivered).then_some(at.millis());
            run(
                "UPDATE clearances SET delivery = ?2, delivery_cause = ?3, delivered_at = ?4 WHERE id = ?1",
                params![id.to_string(), delivery.as_str(), delivery.cause(), at],
            )?;
        }
        Entry::QuestionOpened { question, generation, request } => {
            insert_question(connection, session, question, *generation, request)?;
        }
        Entry::QuestionAnswered { id, decision, instruction, by, at } => swap(
            run(
                "UPDATE questions SET status = 'answered', delivery = 'pending', decision = ?2, instruction = ?3,
                     answered_by = ?4, answered_at = ?5 WHERE id = ?1 AND status = 'pending'",
                params![id.to_string(), decision.as_str(), instruction, by, at.millis()],
            )?,
            id,
        )?,
        Entry::QuestionClosed { id, status, at, reason } => swap(
            run(
                "UPDATE questions SET status = ?2, answered_at = ?3, reason = ?4 WHERE id = ?1 AND status = 'pending'",
                params![id.to_string(), status.as_str(), at.millis(), reason],
            )?,
            id,
        )?,
        Entry::QuestionDelivery { id, delivery, at } => {
            let at = (*delivery == Delivery::Delivered).then_some(at.millis());
            run(
                "UPDATE questions SET delivery = ?2, delivery_cause = ?3, delivered_at = ?4 WHERE id = ?1",
                params![id.to_string(), delivery.as_str(), delivery.cause(), at],
            )?;
        }
        Entry::PromptAdded { prompt: p, content } => {
            run(
                "INSERT INTO prompts (id, session, text, state, by, at, content) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                params![p.id.to_string(), session, p.text, p.state.as_str(), p.by, p.at.millis(), raw(content.as_ref())],
            )?;
        }
        Entry::PromptChanged { id, state, at } => {
            let at = (*state == PromptState::Delivered).then_some(at.millis());
            run(
                "UPDATE prompts SET state = ?2, cause = ?3, delivered_at = ?4 WHERE id = ?1",
                params![id.to_string(), state.as_str(), state.cause(), at],
            )?;
        }
        Entry::PromptReworded { id, text, content } => {
            run(
                "UPDATE prompts SET text = ?2, content = ?3 WHERE id = ?1",
                params![id.to_string(), text, raw(content.as_ref())],
            )?;
        }
        Entry::PromptsOrdered(ids) => {
            for (place, id) in (0u32..).zip(ids) {
                run("UPDATE prompts SET place = ?2 WHERE id = ?1", params![id.to_string(), place])?;
            }
        }
        Entry::AgentKnown(known) => super::known::learn(connection, known)?,
    }
    Ok(())
}

fn raw(content: Option<&Content>) -> Option<&str> {
    content.map(|content| content.as_json().as_str())
}

fn json_of(ruling: Option<&Ruling>) -> Option<String> {
    ruling.map(|ruling| serde_json::to_string(ruling).expect("strings serialise"))
}

fn insert_clearance(
    connection: &Connection,
    session: i64,
    c: &Clearance,
    generation: u32,
    request: &RequestId,
) -> Result<(), StoreError> {
    connection
        .prepare_cached("INSERT INTO clearances (id, session, generation, request, title, description, diff, file_path, risk,
                     claimed_risk, options, status, delivery, requested_at, tool, command, computed_risk, risk_why, ruling,
                     needed, expires_at, more_paths)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22)")?
        .execute(params![
                    c.id.to_string(),
                    session,
                    generation,
                    request.as_json(),
                    c.title,
                    c.description,
                    c.diff,
                    c.file_path,
                    c.risk.as_str(),
                    c.claimed_risk,
                    serde_json::to_string(&c.options).expect("strings serialise"),
                    c.status.as_str(),
                    c.delivery.as_str(),
                    c.requested_at.millis(),
                    c.tool,
                    c.command,
                    c.computed_risk.as_str(),
                    serde_json::to_string(&c.risk_why).expect("strings serialise"),
                    json_of(c.ruling.as_ref()),
                    c.needed,
                    c.expires_at.map(Time::millis),
                    serde_json::to_string(&c.more_paths).expect("strings serialise"),
                ])?;
    Ok(())
}

fn insert_question(
    connection: &Connection,
    session: i64,
    q: &Question,
    generation: u32,
    request: &RequestId,
) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "INSERT INTO questions (id, session, generation, request, text, sort, status, asked_at, delivery)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        )?
        .execute(params![
            q.id.to_string(),
            session,
            generation,
            request.as_json(),
            q.text,
            q.sort,
            q.status.as_str(),
            q.asked_at.millis(),
            q.delivery.as_str(),
        ])?;
    Ok(())
}

fn swap(changed: usize, id: &impl std::fmt::Display) -> Result<(), StoreError> {
    if changed == 1 { Ok(()) } else { Err(StoreError::Conflict(id.to_string())) }
}

impl Store {
    /// By id or a unique prefix of one.
    pub async fn clearance(&self, typed: String) -> Result<Found<Clearance>, StoreError> {
        self.read(move |connection| {
            find(connection, CLEARANCE, "c", ClearanceId::PREFIX, &typed, clearance, |c| c.id.to_string())
        })
        .await
    }

    pub async fn question(&self, typed: String) -> Result<Found<Question>, StoreError> {
        self.read(move |connection| {
            find(connection, QUESTION, "q", QuestionId::PREFIX, &typed, question, |q| q.id.to_string())
        })
        .await
    }

    pub async fn prompt(&self, typed: String) -> Result<Found<Prompt>, StoreError> {
        self.read(move |connection| {
            find(connection, PROMPT, "p", PromptId::PREFIX, &typed, prompt, |p| p.id.to_string())
        })
        .await
    }

    /// All that a prompt is made of, if that is more than its words.
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
    ) -> Result<Page<Clearance>, StoreError> {
        let filter = (filter.status.map(ClearanceStatus::as_str), filter.session);
        self.read(move |connection| {
            page(connection, CLEARANCE, "c", "status", filter, before, limit, clearance)
        })
        .await
    }

    /// What was asked since then, oldest first, with who asked where.
    pub async fn requests(&self, since: Time, after: i64, limit: usize) -> Result<Vec<Request>, StoreError> {
        self.read(move |connection| {
            let columns = CLEARANCE.replacen("c.key FROM", "c.key, s.agent, s.workspace FROM", 1);
            let sql =
                format!("SELECT {columns} WHERE c.key > ?1 AND c.requested_at >= ?2 ORDER BY c.key LIMIT ?3");
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            let found = rows(connection, &sql, params![after, since.millis(), limit], |row| {
                let (clearance, key) = clearance(row)?;
                let workspace = PathBuf::from(row.get::<_, String>("workspace")?);
                Ok((Request { key, clearance, agent: row.get("agent")?, workspace }, key))
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
    ) -> Result<Page<Question>, StoreError> {
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
    ) -> Result<Page<Prompt>, StoreError> {
        self.read(move |connection| {
            page(connection, PROMPT, "p", "state", (None, Some(session)), before, limit, prompt)
        })
        .await
    }
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
        // Rows of the first schema have no opinion of ours.
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

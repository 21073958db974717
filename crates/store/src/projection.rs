//! The ledger as a projection of the log: the effect of each event on the rows of clearances, questions and prompts.
//!
//! [`apply`] runs in the transaction that logs the event, before the event is logged. An event that ends a pending row
//! compares and sets: it applies to a pending row, or fails, and then it is not logged either. `rebuild` runs the same
//! function over a whole log, so there is no second implementation.

use rusqlite::{Connection, ToSql, params};
use serde::Serialize;

use super::{StoreError, capability_cache};
use intercom_types::event::{
    ClearanceClosed, ClearanceDecided, ClearanceRequested, PromptAmended, PromptQueued, QuestionAnswered,
    QuestionAsked,
};
use intercom_types::{
    ClearanceId, ClearanceStatus, Content, Delivery, Event, PromptId, PromptState, QuestionId,
    QuestionStatus, Risk, Time,
};

/// The author of the decision about a request that expired.
const CLOCK: (&str, &str) = ("intercom", "time limit");

/// Applies an event to the rows of its session.
pub(super) fn apply(
    connection: &Connection,
    session: i64,
    at: Time,
    event: &Event,
) -> Result<(), StoreError> {
    let rows = LedgerRows { connection, session, at };
    match event {
        Event::ClearanceRequested(requested) => rows.open_clearance(requested),
        Event::ClearanceApproved(approved) => rows.add_approval(approved.clearance, &approved.by),
        Event::ClearanceDecided(decided) => rows.decide_clearance(decided),
        Event::ClearanceClosed(closed) => rows.close_clearance(closed),
        Event::ClearanceDelivered(delivered) => {
            rows.deliver("clearances", &delivered.clearance, &Delivery::Delivered)
        }
        Event::ClearanceUndelivered(undelivered) => {
            let delivery = Delivery::Failed(undelivered.cause.clone());
            rows.deliver("clearances", &undelivered.clearance, &delivery)
        }
        Event::ClearanceOutcome(outcome) => match outcome.clearance {
            Some(id) => rows.note_outcome(id, &outcome.outcome),
            None => Ok(()),
        },
        Event::QuestionAsked(asked) => rows.open_question(asked),
        Event::QuestionAnswered(answered) => rows.answer_question(answered),
        Event::QuestionClosed(closed) => rows.close_question(closed.question, closed.status, &closed.reason),
        Event::QuestionDelivered(delivered) => {
            rows.deliver("questions", &delivered.question, &Delivery::Delivered)
        }
        Event::QuestionUndelivered(undelivered) => {
            let delivery = Delivery::Failed(undelivered.cause.clone());
            rows.deliver("questions", &undelivered.question, &delivery)
        }
        Event::PromptQueued(queued) => rows.add_prompt(queued),
        Event::PromptSending(sending) => rows.move_prompt(sending.prompt, &PromptState::Sending),
        Event::PromptDelivered(delivered) => rows.move_prompt(delivered.prompt, &PromptState::Delivered),
        Event::PromptUndelivered(undelivered) => {
            rows.move_prompt(undelivered.prompt, &PromptState::Failed(undelivered.cause.clone()))
        }
        Event::PromptWithdrawn(withdrawn) => rows.move_prompt(withdrawn.prompt, &PromptState::Withdrawn),
        Event::PromptRequeued(requeued) => {
            rows.move_prompt(requeued.prompt, &PromptState::Queued)?;
            rows.order_prompts(&requeued.order)
        }
        Event::PromptAmended(amended) => rows.amend_prompt(amended),
        Event::AgentReady(ready) => match (&ready.agent, &ready.command_fingerprint) {
            (Some(capabilities), Some(fingerprint)) => {
                capability_cache::cache_capabilities(connection, session, fingerprint, capabilities)
            }
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

/// The ledger rows of one session, at the time of one event.
struct LedgerRows<'a> {
    connection: &'a Connection,
    session: i64,
    at: Time,
}

impl LedgerRows<'_> {
    fn run(&self, sql: &str, values: &[&dyn ToSql]) -> Result<usize, StoreError> {
        Ok(self.connection.prepare_cached(sql)?.execute(values)?)
    }

    /// Updates the row of `id`, which must be pending: another decision may have come first.
    fn swap(&self, sql: &str, id: &impl std::fmt::Display, values: &[&dyn ToSql]) -> Result<(), StoreError> {
        match self.run(sql, values)? {
            1 => Ok(()),
            _ => Err(StoreError::Conflict(id.to_string())),
        }
    }

    fn open_clearance(&self, requested: &ClearanceRequested) -> Result<(), StoreError> {
        self.run(
            "INSERT INTO clearances (id, session, generation, request, title, description, diff, file_path, risk,
                 claimed_risk, options, status, delivery, requested_at, tool, command, computed_risk, risk_why, ruling,
                 needed, expires_at, more_paths)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22)",
            params![
                requested.clearance.to_string(),
                self.session,
                requested.generation.unwrap_or(1),
                requested.request.id.as_json(),
                requested.title,
                requested.description,
                requested.diff,
                requested.file_path,
                requested.risk.as_str(),
                requested.claimed_risk,
                json(&requested.options),
                ClearanceStatus::Pending.as_str(),
                Delivery::None.as_str(),
                self.at.millis(),
                requested.tool,
                requested.command,
                requested.computed_risk.map(Risk::as_str),
                json(&requested.risk_why),
                requested.ruling.as_ref().map(json),
                requested.needed,
                requested.expires_at.map(Time::millis),
                json(&requested.more_paths),
            ],
        )?;
        Ok(())
    }

    fn add_approval(&self, id: ClearanceId, by: &str) -> Result<(), StoreError> {
        self.swap(
            "UPDATE clearances SET approvals = json_insert(approvals, '$[#]', ?2)
             WHERE id = ?1 AND status = 'pending'",
            &id,
            params![id.to_string(), by],
        )
    }

    fn decide_clearance(&self, decided: &ClearanceDecided) -> Result<(), StoreError> {
        self.swap(
            "UPDATE clearances SET status = ?2, delivery = 'pending', decided_by = ?3, decided_at = ?4, reason = ?5,
                 option = ?6, decided_via = ?7, ruling = coalesce(?8, ruling) WHERE id = ?1 AND status = 'pending'",
            &decided.clearance,
            params![
                decided.clearance.to_string(),
                decided.status.as_str(),
                decided.by,
                self.at.millis(),
                decided.reason,
                decided.option,
                Some(&decided.via).filter(|via| !via.is_empty()), // the first release did not record it
                decided.ruling.as_ref().map(json),
            ],
        )
    }

    /// Closes a clearance. A withdrawn request has no answer; an expired one has: the agent receives the configured
    /// one.
    fn close_clearance(&self, closed: &ClearanceClosed) -> Result<(), StoreError> {
        let ClearanceClosed { clearance: id, status, decision, reason, option, .. } = closed;
        if decision.is_none() {
            return self.swap(
                "UPDATE clearances SET status = ?2, decided_at = ?3, reason = ?4 WHERE id = ?1 AND status = 'pending'",
                id,
                params![id.to_string(), status.as_str(), self.at.millis(), reason],
            );
        }
        let (by, via) = CLOCK;
        self.swap(
            "UPDATE clearances SET status = ?2, delivery = 'pending', decided_by = ?3, decided_at = ?4, reason = ?5,
                 option = ?6, decided_via = ?7 WHERE id = ?1 AND status = 'pending'",
            id,
            params![id.to_string(), status.as_str(), by, self.at.millis(), reason, option, via],
        )
    }

    fn note_outcome(&self, id: ClearanceId, outcome: &str) -> Result<(), StoreError> {
        self.run("UPDATE clearances SET outcome = ?2 WHERE id = ?1", params![id.to_string(), outcome])?;
        Ok(())
    }

    fn deliver(
        &self,
        table: &str,
        id: &impl std::fmt::Display,
        delivery: &Delivery,
    ) -> Result<(), StoreError> {
        let at = (*delivery == Delivery::Delivered).then_some(self.at.millis());
        let sql =
            format!("UPDATE {table} SET delivery = ?2, delivery_cause = ?3, delivered_at = ?4 WHERE id = ?1");
        self.run(&sql, params![id.to_string(), delivery.as_str(), delivery.cause(), at])?;
        Ok(())
    }

    fn open_question(&self, asked: &QuestionAsked) -> Result<(), StoreError> {
        self.run(
            "INSERT INTO questions (id, session, generation, request, text, sort, status, asked_at, delivery)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            params![
                asked.question.to_string(),
                self.session,
                asked.generation.unwrap_or(1),
                asked.request.id.as_json(),
                asked.text,
                asked.r#type,
                QuestionStatus::Pending.as_str(),
                self.at.millis(),
                Delivery::None.as_str(),
            ],
        )?;
        Ok(())
    }

    fn answer_question(&self, answered: &QuestionAnswered) -> Result<(), StoreError> {
        let QuestionAnswered { question: id, decision, instruction, by } = answered;
        self.swap(
            "UPDATE questions SET status = 'answered', delivery = 'pending', decision = ?2, instruction = ?3,
                 answered_by = ?4, answered_at = ?5 WHERE id = ?1 AND status = 'pending'",
            id,
            params![id.to_string(), decision.as_str(), instruction, by, self.at.millis()],
        )
    }

    fn close_question(&self, id: QuestionId, status: QuestionStatus, reason: &str) -> Result<(), StoreError> {
        self.swap(
            "UPDATE questions SET status = ?2, answered_at = ?3, reason = ?4 WHERE id = ?1 AND status = 'pending'",
            &id,
            params![id.to_string(), status.as_str(), self.at.millis(), reason],
        )
    }

    fn add_prompt(&self, queued: &PromptQueued) -> Result<(), StoreError> {
        let PromptQueued { prompt, text, content, by } = queued;
        self.run(
            "INSERT INTO prompts (id, session, text, state, by, at, content) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            params![
                prompt.to_string(),
                self.session,
                text,
                PromptState::Queued.as_str(),
                by,
                self.at.millis(),
                raw(content.as_ref()),
            ],
        )?;
        Ok(())
    }

    fn move_prompt(&self, id: PromptId, state: &PromptState) -> Result<(), StoreError> {
        let at = (*state == PromptState::Delivered).then_some(self.at.millis());
        self.run(
            "UPDATE prompts SET state = ?2, cause = ?3, delivered_at = ?4 WHERE id = ?1",
            params![id.to_string(), state.as_str(), state.cause(), at],
        )?;
        Ok(())
    }

    fn amend_prompt(&self, amended: &PromptAmended) -> Result<(), StoreError> {
        if let Some(text) = &amended.text {
            self.run(
                "UPDATE prompts SET text = ?2, content = ?3 WHERE id = ?1",
                params![amended.prompt.to_string(), text, raw(amended.content.as_ref())],
            )?;
        }
        self.order_prompts(&amended.order)
    }

    fn order_prompts(&self, order: &[PromptId]) -> Result<(), StoreError> {
        for (place, id) in (0u32..).zip(order) {
            self.run("UPDATE prompts SET place = ?2 WHERE id = ?1", params![id.to_string(), place])?;
        }
        Ok(())
    }
}

fn raw(content: Option<&Content>) -> Option<&str> {
    content.map(|content| content.as_json().as_str())
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("it has string keys only")
}

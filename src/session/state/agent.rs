//! What the agent says.

use serde::Serialize;
use serde_json::json;

use super::{Carries, Out, Stage, State};
use crate::domain::{
    Ask, Choice, Clearance, ClearanceId, ClearanceStatus, Delivery, Entry, Fault, FaultCode, Json, Kind,
    Outbound, Progress, Question, QuestionId, QuestionStatus, RequestId, Risk, Said,
};

// What agents sent is passed through as it came; a `serde_json::Value` in between would sort keys and round numbers.

#[derive(Serialize)]
struct Request<'a> {
    id: &'a RequestId,
    params: &'a Json,
}

#[derive(Serialize)]
struct Requested<'a> {
    clearance: ClearanceId,
    title: &'a str,
    description: Option<&'a str>,
    diff: Option<&'a str>,
    file_path: Option<&'a str>,
    risk: Risk,
    claimed_risk: Option<&'a str>,
    options: &'a [Choice],
    request: Request<'a>,
}

#[derive(Serialize)]
struct Asked<'a> {
    question: QuestionId,
    text: &'a str,
    r#type: Option<&'a str>,
    request: Request<'a>,
}

#[derive(Serialize)]
struct Unknown<'a> {
    message: &'a Json,
}

impl State {
    pub(super) fn said(&mut self, said: Said, out: &mut Out<'_, '_>) {
        // Banners and noise are no work; the first usable message is.
        if !self.spoke && !matches!(said, Said::Rejected { .. } | Said::Unknown { .. }) {
            self.spoke = true;
            self.dirty = true;
            self.begin_turn("agent", out);
        }
        match said {
            Said::Status { params } => out.record(Kind::Status, params),
            Said::Heartbeat { params, progress } => {
                out.record(Kind::Heartbeat, params);
                if progress == Progress::Completed {
                    self.end_turn("completed", out);
                }
                self.prompt_with_heartbeat(out);
            }
            Said::Clearance(ask) => self.open_clearance(ask, out),
            Said::Question { request, text, sort, params } => {
                self.open_question(request, text, sort, &params, out);
            }
            Said::TurnEnd { stop_reason, params } => self.end_turn_as_told(&stop_reason, &params, out),
            Said::Unknown { message, fault } => {
                out.record(Kind::Unknown, Json::of(&Unknown { message: &message }));
                self.fault(fault, out);
            }
            Said::Rejected { rejection, fault } => {
                out.record(Kind::LineRejected, Json::of(&rejection));
                self.fault(fault, out);
            }
        }
    }

    fn fault(&mut self, fault: Option<Fault>, out: &mut Out<'_, '_>) {
        if let Some(fault) = fault {
            self.send(Outbound::Fault(fault), Carries::Other, out);
        }
    }

    fn open_clearance(&mut self, ask: Ask, out: &mut Out<'_, '_>) {
        if self.is_open(&ask.request) {
            return self.duplicate(ask.request, &ask.params, "clearance/request", out);
        }
        let id = ClearanceId::from_seed(out.seed());
        let risk = Risk::of_claim(ask.claimed_risk.as_deref());
        let data = Requested {
            clearance: id,
            title: &ask.title,
            description: ask.description.as_deref(),
            diff: ask.diff.as_deref(),
            file_path: ask.file_path.as_deref(),
            risk,
            claimed_risk: ask.claimed_risk.as_deref(),
            options: &ask.options,
            request: Request { id: &ask.request, params: &ask.params },
        };
        out.record(Kind::ClearanceRequested, Json::of(&data));
        let requested_at = out.now();
        out.ledger(Entry::ClearanceOpened(Box::new(Clearance {
            id,
            session: self.about.id,
            generation: self.generation,
            request: ask.request.clone(),
            title: ask.title,
            description: ask.description,
            diff: ask.diff,
            file_path: ask.file_path,
            risk,
            claimed_risk: ask.claimed_risk,
            options: ask.options,
            status: ClearanceStatus::Pending,
            delivery: Delivery::None,
            requested_at,
            decided_by: None,
            decided_at: None,
            reason: None,
            option: None,
            delivered_at: None,
            outcome: None,
        })));
        self.clearances.insert(id, ask.request);
        self.dirty = true;
    }

    fn open_question(
        &mut self,
        request: RequestId,
        text: String,
        sort: Option<String>,
        params: &Json,
        out: &mut Out<'_, '_>,
    ) {
        if self.is_open(&request) {
            return self.duplicate(request, params, "prompt/forward", out);
        }
        let id = QuestionId::from_seed(out.seed());
        let request_json = Request { id: &request, params };
        let data = Asked { question: id, text: &text, r#type: sort.as_deref(), request: request_json };
        out.record(Kind::QuestionAsked, Json::of(&data));
        let asked_at = out.now();
        out.ledger(Entry::QuestionOpened(Box::new(Question {
            id,
            session: self.about.id,
            generation: self.generation,
            request: request.clone(),
            text,
            sort,
            status: QuestionStatus::Pending,
            decision: None,
            instruction: None,
            asked_at,
            answered_by: None,
            answered_at: None,
            reason: None,
            delivery: Delivery::None,
            delivered_at: None,
        })));
        self.questions.insert(id, request);
        self.dirty = true;
    }

    /// Request ids are the agent's; clearances and questions share one space of them, because answers do.
    fn is_open(&self, request: &RequestId) -> bool {
        self.clearances.values().chain(self.questions.values()).any(|open| open == request)
    }

    fn duplicate(&mut self, request: RequestId, params: &Json, method: &str, out: &mut Out<'_, '_>) {
        let reason = format!("a request with id {request} is open already");
        let text = params.as_str();
        let data = json!({
            "reason": reason, "excerpt": crate::wire::excerpt(text.as_bytes()), "bytes": text.len(),
            "method": method, "field": "id",
        });
        out.record(Kind::LineRejected, Json::of(&data));
        self.fault(Some(Fault { request, code: FaultCode::DuplicateId, message: reason }), out);
    }

    /// With `prompt_delivery = "heartbeat"`, one prompt leaves with each heartbeat.
    fn prompt_with_heartbeat(&mut self, out: &mut Out<'_, '_>) {
        if self.about.prompts_on_heartbeat && self.stage == Stage::Running {
            self.send_queued_prompt(out);
        }
    }
}

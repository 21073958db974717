//! What `approve` and `deny` have in common.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::clearances::choices;
use super::client::Answer;
use super::failure::{Failure, Refusal};
use super::terminal::Style;
use super::url::url;
use super::{Context, out};
use crate::answers::{Clearance, Delivery};
use crate::text::{clean, short};

#[derive(Debug, Clone, Copy)]
pub(super) enum Decision {
    Approve,
    Deny,
}

impl Decision {
    fn word(self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::Deny => "deny",
        }
    }
}

pub(super) async fn decide(
    cx: &Context,
    id: &str,
    decision: Decision,
    reason: Option<String>,
    option: Option<String>,
    remember: Option<Value>,
) -> anyhow::Result<()> {
    if id.starts_with("qst_") {
        let hint = format!("intercom answer {id} continue|refine|stop");
        return Err(Failure::usage(format!("{id} is a question: it is answered")).hint(hint).into());
    }
    let mut body = Map::new();
    body.insert("decision".to_owned(), decision.word().into());
    for (key, value) in [("reason", reason), ("option", option)] {
        body.extend(value.map(|value| (key.to_owned(), Value::from(value))));
    }
    body.extend(remember.map(|remember| ("remember".to_owned(), remember)));
    let answer = match cx.client.post(&url(&["clearances", id, "decision"], &[]), &body.into()).await {
        Ok(answer) => answer,
        Err(error) => return Err(explain(cx, id, error).await),
    };
    if answer.status == 202 {
        return cx.answer(&answer, || quorum(&answer));
    }
    let clearance: Clearance = answer.parse()?;
    cx.answer(&answer, || Ok(outcome(&clearance, cx)))?;
    settle(&clearance.delivery())
}

fn outcome(clearance: &Clearance, cx: &Context) -> String {
    let style = super::style::status_style(&clearance.status);
    let status = cx.paint.style(style, &clean(&clearance.status));
    let delivery = cx.paint.style(Style::Dim, &format!("({})", clean(&clearance.delivery().describe())));
    format!("{status} {}: {} {delivery}", short(&clearance.id), clean(&clearance.title))
}

/// A decision that did not arrive is recorded, but it is not done.
pub(super) fn settle(delivery: &Delivery) -> anyhow::Result<()> {
    match delivery {
        Delivery::Failed(cause) => {
            let hint = "it is recorded, but the agent will not hear of it";
            Err(Failure::failed(format!("not delivered: {cause}")).hint(hint).into())
        }
        Delivery::Other(state) if state == "pending" => {
            out::talk("recorded; the agent has not taken it yet");
            Ok(())
        }
        Delivery::Delivered | Delivery::Other(_) => Ok(()),
    }
}

fn quorum(answer: &Answer) -> anyhow::Result<String> {
    #[derive(Deserialize)]
    struct Quorum {
        approvals: Value,
        needed: u64,
    }
    let Quorum { approvals, needed } = answer.parse()?;
    let given = match &approvals {
        Value::Array(given) => given.len().to_string(),
        other => other.to_string(),
    };
    Ok(format!("recorded: {given} of {needed} approvals"))
}

/// Adds what the person needs for the next try: the options, or who was faster.
async fn explain(cx: &Context, id: &str, error: anyhow::Error) -> anyhow::Error {
    let refusal = match error.downcast::<Refusal>() {
        Ok(refusal) => refusal,
        Err(error) => return error,
    };
    match refusal.code.as_str() {
        "option_required" => {
            let clearance =
                cx.client.get(&url(&["clearances", id], &[])).await.and_then(|answer| answer.parse());
            match clearance.ok().and_then(|clearance: Clearance| clearance.options) {
                Some(options) => refusal.hint(format!("choose with --option: {}", choices(&options))).into(),
                None => refusal.into(),
            }
        }
        "already_decided" => match winner(&refusal.body) {
            Some(winner) => refusal.hint(winner).into(),
            None => refusal.into(),
        },
        _ => refusal.into(),
    }
}

fn winner(body: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Conflict {
        clearance: Clearance,
    }
    let Conflict { clearance } = serde_json::from_str(body).ok()?;
    let by = clearance.decided_by.map(|by| format!(" by {by}")).unwrap_or_default();
    let at =
        clearance.decided_at.map(|at| format!(" at {} UTC", super::time::date_time(&at))).unwrap_or_default();
    let reason = clearance.reason.map(|reason| format!(": {reason}")).unwrap_or_default();
    Some(format!("it was {}{by}{at}{reason}", clearance.status))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_decision_is_told_who_was_faster() {
        let body = r#"{"error": {"code": "already_decided", "message": "m", "hint": null}, "clearance":
            {"id": "clr_1", "session": "ses_1", "title": "t", "status": "approved", "decided_by": "ana",
             "decided_at": "2026-03-04T14:02:11.000Z", "reason": "fine"}}"#;
        assert_eq!(winner(body).unwrap(), "it was approved by ana at 2026-03-04 14:02:11 UTC: fine");
        assert_eq!(winner("{}"), None);
    }

    #[test]
    fn a_decision_that_did_not_arrive_is_a_failure() {
        let error = settle(&Delivery::Failed("write failed: stream closed".to_owned())).unwrap_err();
        assert_eq!(error.to_string(), "not delivered: write failed: stream closed");
        assert!(settle(&Delivery::Delivered).is_ok());
        assert!(settle(&Delivery::Other("pending".to_owned())).is_ok());
    }

    #[test]
    fn an_incomplete_quorum_is_counted() {
        let of = |body: &str| quorum(&Answer { status: 202, body: body.to_owned() }).unwrap();
        assert_eq!(of(r#"{"approvals": 1, "needed": 2}"#), "recorded: 1 of 2 approvals");
        assert_eq!(of(r#"{"approvals": ["ana"], "needed": 2}"#), "recorded: 1 of 2 approvals");
    }
}

//! The common part of `approve` and `deny`.

use serde_json::json;

use super::clearances::choices;
use super::client::DaemonAnswer;
use super::failure::{self, CliFailure, DaemonRefusal};
use super::gutter::wrapped;
use super::terminal::stdout_size;
use super::url::url;
use super::{CliContext, output};
use intercom_types::text::{clean, columns, short};
use intercom_types::{Clearance, Decision, Delivery, ErrorAttachment, Quorum};

/// Decides each clearance. For one, the daemon's answer is printed; of several, each is reported, and one failure fails
/// the command.
pub(super) async fn decide(cx: &CliContext, ids: &[String], decision: &Decision) -> anyhow::Result<()> {
    if let Some(id) = ids.iter().find(|id| id.starts_with("qst_")) {
        let hint = format!("intercom answer {id} continue|refine|stop");
        return Err(CliFailure::usage(format!("{id} is a question, not a clearance")).hint(hint).into());
    }
    if let [id] = ids {
        let answer = post(cx, id, decision).await?;
        cx.print_answer(&answer, || outcome(&answer, cx))?;
        return delivered(&answer);
    }
    let (mut bodies, mut failures) = (Vec::new(), 0);
    for id in ids {
        let done = match post(cx, id, decision).await {
            Ok(answer) => {
                if !cx.json {
                    output::print(&outcome(&answer, cx)?)?;
                }
                let done = delivered(&answer);
                bodies.push(answer.body);
                done
            }
            Err(error) => {
                bodies.push(failure::as_json(&error));
                Err(error)
            }
        };
        if let Err(error) = done {
            failures += 1;
            failure::report(&error.context(id.clone()), cx.paint);
        }
    }
    if cx.json {
        output::print_json(&format!(r#"{{"items":[{}],"next":null}}"#, bodies.join(",")))?;
    }
    match failures {
        0 => Ok(()),
        failures => Err(CliFailure::failed(format!("{failures} of {} failed", ids.len())).into()),
    }
}

async fn post(cx: &CliContext, id: &str, decision: &Decision) -> anyhow::Result<DaemonAnswer> {
    match cx.client.post(&url(&["clearances", id, "decision"], &[]), &json!(decision)).await {
        Ok(answer) => Ok(answer),
        Err(error) => Err(explain(cx, id, error).await),
    }
}

/// Returns the outcome in words. An approval that needs further approvals is answered with 202.
fn outcome(answer: &DaemonAnswer, cx: &CliContext) -> anyhow::Result<String> {
    if answer.status == 202 { quorum(answer) } else { Ok(decided(&answer.parse()?, cx)) }
}

fn delivered(answer: &DaemonAnswer) -> anyhow::Result<()> {
    if answer.status == 202 { Ok(()) } else { check_delivery(&answer.parse::<Clearance>()?.delivery) }
}

fn decided(clearance: &Clearance, cx: &CliContext) -> String {
    let style = super::style::status_style(&clearance.status);
    let (status, id) = (clean(&clearance.status), format!(" {}: ", short(&clearance.id)));
    let line = format!("{} ({})", intercom_types::action::line_of(clearance), clearance.delivery.describe());
    let width = stdout_size().map(|size| size.columns);
    let line = wrapped(&line, columns(&status) + columns(&id), 4, width);
    format!("{}{id}{line}", cx.paint.style(style, &status))
}

/// Fails for a decision that did not arrive: it is recorded, but the agent does not act on it.
pub(super) fn check_delivery(delivery: &Delivery) -> anyhow::Result<()> {
    match delivery {
        Delivery::Failed(cause) => {
            let hint = "it is recorded, but the agent will never receive it";
            Err(CliFailure::failed(format!("not delivered: {cause}")).hint(hint).into())
        }
        Delivery::Pending => {
            output::print_note("recorded; the agent has not read it yet");
            Ok(())
        }
        Delivery::None | Delivery::Delivered | Delivery::Other(_) => Ok(()),
    }
}

/// Returns a note if a delivery failed or is pending; nothing otherwise.
pub(super) fn delivery_note(delivery: &Delivery) -> String {
    match delivery {
        Delivery::Delivered => String::new(),
        other => format!(" ({})", clean(&other.describe())),
    }
}

fn quorum(answer: &DaemonAnswer) -> anyhow::Result<String> {
    let Quorum { approvals, needed, .. } = answer.parse()?;
    Ok(format!("recorded: {} of {needed} approvals", approvals.len()))
}

/// Adds advice for the next try: the options, or the ways to act after somebody else's decision.
async fn explain(cx: &CliContext, id: &str, error: anyhow::Error) -> anyhow::Error {
    let refusal = match error.downcast::<DaemonRefusal>() {
        Ok(refusal) => refusal,
        Err(error) => return error,
    };
    match refusal.code.as_str() {
        "option_required" => {
            let clearance =
                cx.client.get(&url(&["clearances", id], &[])).await.and_then(|answer| answer.parse());
            match clearance {
                Ok(Clearance { options, .. }) if !options.is_empty() => {
                    refusal.hint(format!("choose with --option: {}", choices(&options))).into()
                }
                _ => refusal.into(),
            }
        }
        "already_decided" => match hint_after_decision(&refusal, cx) {
            Some(hint) => refusal.hint(hint).into(),
            None => refusal.into(),
        },
        _ => refusal.into(),
    }
}

/// Returns the ways to act after a decision that cannot be changed. The error says who decided what and when.
fn hint_after_decision(refusal: &DaemonRefusal, cx: &CliContext) -> Option<String> {
    let Some(ErrorAttachment::Clearance(clearance)) = &refusal.attached else { return None };
    let (session, call) = (clearance.session_label(), &cx.command_prefix);
    Some(match clearance.status.as_str() {
        "approved" => format!(
            "a decision cannot be changed; `{call} interrupt {session}` stops the agent's turn, `{call} stop {session}` the agent"
        ),
        "denied" => format!(
            "a decision cannot be changed; `{call} send {session} TEXT` can tell the agent to ask again"
        ),
        _ => format!(
            "the agent does not wait for it any more; `{call} clearances --session {session}` shows its open ones"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decision_that_did_not_arrive_is_a_failure() {
        let error = check_delivery(&Delivery::Failed("write failed: stream closed".to_owned())).unwrap_err();
        assert_eq!(error.to_string(), "not delivered: write failed: stream closed");
        assert!(check_delivery(&Delivery::Delivered).is_ok());
        assert!(check_delivery(&Delivery::Pending).is_ok());
    }

    #[test]
    fn an_incomplete_quorum_is_counted() {
        let clearance = json!({
            "id": "clr_0123456789abcdef", "session": "ses_0123456789abcdef", "title": "t", "risk": "low", "status": "pending",
            "requested_at": "2026-03-04T11:57:00.000Z",
        });
        let body = json!({ "approvals": ["ana"], "needed": 2, "clearance": clearance }).to_string();
        assert_eq!(quorum(&DaemonAnswer { status: 202, body }).unwrap(), "recorded: 1 of 2 approvals");
    }
}

//! Clearances and questions as requests to a client, and the decisions in its answers. Pure.

use serde_json::{Value, json};

use super::update_encoder;
use intercom_policy::CONTRADICTION;
use intercom_types::action::line;
use intercom_types::event::{ClearanceRequested, QuestionAsked};
use intercom_types::{Answer, Choice, Decision, Event, Json, QuestionAnswer, Role, Verdict};
use intercom_wire::acp::method;

/// A request to a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClientRequest {
    /// The id of the clearance or question; also the id of the request.
    pub(super) id: String,
    pub(super) method: &'static str,
    pub(super) params: Json,
    pub(super) about: ClientRequestSubject,
}

/// The subject of a request, kept until the answer arrives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ClientRequestSubject {
    /// A clearance with the agent's options; an empty list stands for ours.
    Clearance(Vec<Choice>),
    /// A question with our options.
    Question,
    /// A question with a form, the agent's or ours.
    Form { ours: bool },
}

/// A client's decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ClientDecision {
    Clearance {
        decision: Decision,
        /// True if a rule of ours should allow similar requests from now on.
        always: bool,
    },
    Question(QuestionAnswer),
    /// No decision: the request stays open.
    Nothing,
}

const ALLOW: &str = "allow_once";
const ALWAYS: &str = "allow_always";
const REJECT: &str = "reject_once";
const CONTINUE: &str = "continue";
const STOP: &str = "stop";

/// Returns the request that an event becomes for a client of this role, if any.
pub(super) fn request_for(event: &Event, hosted: bool, forms: bool, role: Role) -> Option<ClientRequest> {
    match event {
        Event::ClearanceRequested(requested) if role >= Role::Approver => Some(clearance(requested)),
        Event::QuestionAsked(asked) if role >= Role::Operator => Some(question(asked, hosted, forms)),
        _ => None,
    }
}

/// Returns the id of the clearance or question that an event decides or closes.
pub(super) fn closed_by(event: &Event) -> Option<String> {
    Some(match event {
        Event::ClearanceDecided(decided) => decided.clearance.to_string(),
        Event::ClearanceClosed(closed) => closed.clearance.to_string(),
        Event::QuestionAnswered(answered) => answered.question.to_string(),
        Event::QuestionClosed(closed) => closed.question.to_string(),
        _ => return None,
    })
}

fn clearance(requested: &ClearanceRequested) -> ClientRequest {
    let (id, method) = (requested.clearance.to_string(), method::REQUEST_PERMISSION);
    if !requested.options.is_empty() {
        let params = with_contradictions(requested.request.params.clone(), &requested.risk_why);
        return ClientRequest {
            id,
            method,
            params,
            about: ClientRequestSubject::Clearance(requested.options.clone()),
        };
    }
    let options = json!([
        { "optionId": ALLOW, "name": "Allow", "kind": ALLOW },
        { "optionId": ALWAYS, "name": "Always allow", "kind": ALWAYS },
        { "optionId": REJECT, "name": "Reject", "kind": REJECT },
    ]);
    let params = Json::of(&json!({ "toolCall": call(requested), "options": options }));
    ClientRequest { id, method, params, about: ClientRequestSubject::Clearance(Vec::new()) }
}

/// Returns the agent's request unchanged, except that contradictions in it precede its content, where people see them.
fn with_contradictions(params: Json, risk_why: &[String]) -> Json {
    let mut blocks: Vec<Value> =
        risk_why.iter().filter(|why| why.starts_with(CONTRADICTION)).map(|why| block(why)).collect();
    if blocks.is_empty() {
        return params;
    }
    let Ok(mut value) = serde_json::from_str::<Value>(params.as_str()) else { return params };
    let Some(call) = value.get_mut("toolCall").and_then(Value::as_object_mut) else { return params };
    blocks.extend(call.get("content").and_then(Value::as_array).cloned().unwrap_or_default());
    call.insert("content".to_owned(), Value::Array(blocks));
    Json::of(&value)
}

fn block(text: &str) -> Value {
    json!({ "type": "content", "content": { "type": "text", "text": text } })
}

/// Returns a clearance as a tool call.
pub(super) fn call(requested: &ClearanceRequested) -> Value {
    let ClearanceRequested { description, command, diff, file_path, more_paths, risk_why, .. } = requested;
    let contradictions = risk_why.iter().filter(|why| why.starts_with(CONTRADICTION));
    let mut content: Vec<Value> = contradictions.map(|why| block(why)).collect();
    content.extend(description.as_deref().map(block));
    content.extend(command.as_ref().map(|command| block(&format!("```sh\n{command}\n```"))));
    content.extend(diff.as_ref().map(|diff| block(&format!("```diff\n{diff}\n```"))));
    let locations: Vec<Value> =
        file_path.iter().chain(more_paths).map(|path| json!({ "path": path })).collect();
    let kind = match update_encoder::kind(requested.tool.as_deref()) {
        "other" if command.is_some() => "execute",
        "other" if diff.is_some() => "edit",
        kind => kind,
    };
    json!({
        "toolCallId": requested.clearance, "title": line(requested.action.as_deref(), &requested.title),
        "kind": kind, "status": "pending", "content": content, "locations": locations,
        "rawInput": {
            "command": command, "file_path": file_path, "risk": requested.risk, "risk_why": risk_why,
        },
    })
}

fn question(asked: &QuestionAsked, hosted: bool, forms: bool) -> ClientRequest {
    let (id, text) = (asked.question.to_string(), &asked.text);
    if forms && hosted {
        let (about, params) = (ClientRequestSubject::Form { ours: false }, asked.request.params.clone());
        return ClientRequest { id, method: method::ELICITATION_CREATE, params, about };
    }
    if forms {
        let schema = json!({
            "type": "object",
            "properties": {
                "decision": {
                    "type": "string", "title": "Decision", "enum": ["continue", "refine", "stop"],
                    "default": "continue",
                },
                "instruction": { "type": "string", "title": "Instruction, if you refine" },
            },
            "required": ["decision"],
        });
        let params = Json::of(&json!({ "mode": "form", "message": text, "requestedSchema": schema }));
        let about = ClientRequestSubject::Form { ours: true };
        return ClientRequest { id, method: method::ELICITATION_CREATE, params, about };
    }
    let call = json!({
        "toolCallId": id, "title": text, "kind": "other", "status": "pending",
        "rawInput": { "question": text },
    });
    let options = json!([
        { "optionId": CONTINUE, "name": "Continue", "kind": ALLOW },
        { "optionId": STOP, "name": "Stop", "kind": REJECT },
    ]);
    let params = Json::of(&json!({ "toolCall": call, "options": options }));
    ClientRequest { id, method: method::REQUEST_PERMISSION, params, about: ClientRequestSubject::Question }
}

/// Reads a client's answer. An unreadable answer or an error decides nothing.
pub(super) fn decided(about: &ClientRequestSubject, result: &str) -> ClientDecision {
    let result: Value = serde_json::from_str(result).unwrap_or_default();
    let selected = || {
        let outcome = &result["outcome"];
        (outcome["outcome"] == "selected").then(|| outcome["optionId"].as_str()).flatten()
    };
    match about {
        ClientRequestSubject::Clearance(choices) => {
            selected().map_or(ClientDecision::Nothing, |option| chosen(choices, option))
        }
        ClientRequestSubject::Question => match selected() {
            Some(CONTINUE) => ClientDecision::Question(Answer::Continue.into()),
            Some(STOP) => ClientDecision::Question(Answer::Stop.into()),
            _ => ClientDecision::Nothing,
        },
        ClientRequestSubject::Form { ours } => form_decision(&result, *ours),
    }
}

fn chosen(choices: &[Choice], option: &str) -> ClientDecision {
    if choices.is_empty() {
        return match option {
            ALLOW | ALWAYS => {
                ClientDecision::Clearance { decision: Verdict::Approve.into(), always: option == ALWAYS }
            }
            REJECT => ClientDecision::Clearance { decision: Verdict::Deny.into(), always: false },
            _ => ClientDecision::Nothing,
        };
    }
    let Some(choice) = choices.iter().find(|choice| choice.id == option) else {
        return ClientDecision::Nothing;
    };
    let only = |kind: &str| {
        let mut fitting = choices.iter().filter(|choice| choice.kind == kind);
        fitting.next().filter(|_| fitting.next().is_none())
    };
    match choice.kind.as_str() {
        // The agent gets "once", and a rule of ours allows the rest: if the agent stopped asking, nobody could revoke
        // it.
        ALWAYS => match only(ALLOW) {
            Some(once) => ClientDecision::Clearance {
                decision: Decision::with_option(Verdict::Approve, &once.id),
                always: true,
            },
            None => ClientDecision::Clearance {
                decision: Decision::with_option(Verdict::Approve, &choice.id),
                always: false,
            },
        },
        kind if kind.starts_with("reject") => ClientDecision::Clearance {
            decision: Decision::with_option(Verdict::Deny, &choice.id),
            always: false,
        },
        _ => ClientDecision::Clearance {
            decision: Decision::with_option(Verdict::Approve, &choice.id),
            always: false,
        },
    }
}

fn form_decision(result: &Value, ours: bool) -> ClientDecision {
    let content = &result["content"];
    let answer: QuestionAnswer = match (result["action"].as_str(), ours) {
        (Some("accept"), true) => match (content["decision"].as_str(), content["instruction"].as_str()) {
            (Some("stop"), _) => Answer::Stop.into(),
            (Some("refine"), Some(words)) if !words.trim().is_empty() => QuestionAnswer::refine(words),
            (Some("refine"), _) => return ClientDecision::Nothing,
            _ => Answer::Continue.into(),
        },
        (Some("accept"), false) if content.is_object() => QuestionAnswer::refine(&content.to_string()),
        (Some("accept"), false) => Answer::Continue.into(),
        (Some("decline"), _) => Answer::Stop.into(),
        _ => return ClientDecision::Nothing,
    };
    ClientDecision::Question(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selected(option: &str) -> String {
        json!({ "outcome": { "outcome": "selected", "optionId": option } }).to_string()
    }

    fn choices(all: &[(&str, &str)]) -> ClientRequestSubject {
        let choice = |(id, kind): &(&str, &str)| Choice {
            id: (*id).to_owned(),
            name: (*id).to_owned(),
            kind: (*kind).to_owned(),
        };
        ClientRequestSubject::Clearance(all.iter().map(choice).collect())
    }

    #[test]
    fn always_is_a_rule_of_ours_and_the_agent_is_told_once() {
        let about = choices(&[("y", "allow_once"), ("a", "allow_always"), ("n", "reject_once")]);
        let body = json!({ "decision": "approve", "option": "y" });
        assert_eq!(
            decided(&about, &selected("a")),
            ClientDecision::Clearance { decision: serde_json::from_value(body).unwrap(), always: true }
        );
        let body = json!({ "decision": "deny", "option": "n" });
        assert_eq!(
            decided(&about, &selected("n")),
            ClientDecision::Clearance { decision: serde_json::from_value(body).unwrap(), always: false }
        );
        // Without exactly one word for once, it is the agent's own always.
        let about = choices(&[("a", "allow_always"), ("n", "reject_once")]);
        let body = json!({ "decision": "approve", "option": "a" });
        assert_eq!(
            decided(&about, &selected("a")),
            ClientDecision::Clearance { decision: serde_json::from_value(body).unwrap(), always: false }
        );
    }

    #[test]
    fn what_is_not_an_answer_decides_nothing() {
        let about = choices(&[("y", "allow_once")]);
        for result in [
            "null",
            "{}",
            r#"{"outcome":{"outcome":"cancelled"}}"#,
            r#"{"outcome":{"outcome":"selected","optionId":"z"}}"#,
            r#"{"outcome":"selected","optionId":"y"}"#,
            "not json",
        ] {
            assert_eq!(decided(&about, result), ClientDecision::Nothing, "{result}");
        }
        for about in [
            ClientRequestSubject::Question,
            ClientRequestSubject::Form { ours: true },
            ClientRequestSubject::Form { ours: false },
        ] {
            assert_eq!(decided(&about, r#"{"action":"cancel"}"#), ClientDecision::Nothing);
        }
    }

    #[test]
    fn forms_are_answers_to_questions() {
        let ours = ClientRequestSubject::Form { ours: true };
        let cases = [
            (r#"{"action":"accept","content":{"decision":"continue"}}"#, json!({ "decision": "continue" })),
            (r#"{"action":"accept","content":{"decision":"stop"}}"#, json!({ "decision": "stop" })),
            (r#"{"action":"decline"}"#, json!({ "decision": "stop" })),
            (
                r#"{"action":"accept","content":{"decision":"refine","instruction":"smaller"}}"#,
                json!({ "decision": "refine", "instruction": "smaller" }),
            ),
        ];
        for (result, body) in cases {
            assert_eq!(
                decided(&ours, result),
                ClientDecision::Question(serde_json::from_value(body).unwrap()),
                "{result}"
            );
        }
        let theirs = ClientRequestSubject::Form { ours: false };
        let body = json!({ "decision": "refine", "instruction": r#"{"n":1}"# });
        assert_eq!(
            decided(&theirs, r#"{"action":"accept","content":{"n":1}}"#),
            ClientDecision::Question(serde_json::from_value(body).unwrap())
        );
    }
}

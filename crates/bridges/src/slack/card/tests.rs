use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use super::super::limits::{calls, limits};
use super::*;
use intercom_types::{Clearance, Question};

mod clearances;
mod property;
mod sessions;
mod views;

pub(super) fn people() -> OperatorDirectory {
    OperatorDirectory::new(BTreeMap::from([("ana".into(), "U1".into()), ("bo".into(), "U2".into())]))
}

/// The first, with what the second says otherwise.
pub(super) fn changed(mut base: Value, with: Value) -> Value {
    if let (Some(base), Value::Object(with)) = (base.as_object_mut(), with) {
        base.extend(with);
    }
    base
}

pub(super) fn session(with: Value) -> Session {
    let base = json!({
        "id": "ses_0123456789abcdef", "name": "fix-login", "agent": "demo", "protocol": "intercom",
        "workspace": "/w/shop/", "phase": "working", "why": "working",
        "started_at": "2026-03-04T11:00:00.000Z",
    });
    serde_json::from_value(changed(base, with)).unwrap()
}

pub(super) fn a_clearance(with: Value) -> Clearance {
    let base = json!({
        "id": "clr_0123456789abcdef", "session": "ses_0123456789abcdef", "title": "Run the tests", "tool": "execute",
        "command": "cargo test --workspace", "risk": "low", "computed_risk": "low", "claimed_risk": "low",
        "risk_why": ["only tests"], "status": "pending", "requested_at": "2026-03-04T11:57:00.000Z",
        "ruling": {"outcome": "ask", "why": "no rule allows it"}, "needed": 1,
    });
    serde_json::from_value(changed(base, with)).unwrap()
}

pub(super) fn a_question(with: Value) -> Question {
    let base = json!({
        "id": "qst_0123456789abcdef", "session": "ses_0123456789abcdef", "text": "Drop the table?\nIt is *old*.",
        "type": "continuation", "status": "pending", "asked_at": "2026-03-04T11:57:00.000Z",
    });
    serde_json::from_value(changed(base, with)).unwrap()
}

/// A card as text, after it was checked: `#` a header, `|` a field, `>` text that Slack does not parse, `--` context,
/// `[text action]` a button with `!` for its style and `?` for what is asked before.
pub(super) fn shown(card: &impl Serialize) -> String {
    let card = json!(card);
    limits(&card);
    let mut lines: Vec<String> = Vec::new();
    for key in ["title", "submit", "close", "private_metadata", "callback_id"] {
        let text = card[key]["text"].as_str().or(card[key].as_str());
        lines.extend(text.map(|text| format!("{key}: {text}")));
    }
    lines.extend(card["text"].as_str().map(|text| format!("({text})")));
    for block in card["blocks"].as_array().unwrap() {
        lines.push(one_block(block));
    }
    lines.join("\n")
}

fn one_block(block: &Value) -> String {
    let list = |key: &str, each: &dyn Fn(&Value) -> String| {
        block[key].as_array().into_iter().flatten().map(each).collect::<Vec<_>>()
    };
    let text = |value: &Value| value["text"].as_str().unwrap_or_default().to_owned();
    match block["type"].as_str().unwrap() {
        "header" => format!("# {}", text(&block["text"])),
        "section" if block.get("fields").is_some() => {
            list("fields", &|field| format!("| {}", text(field).replace('\n', " "))).join("\n")
        }
        "section" => text(&block["text"]),
        "context" => format!("-- {}", list("elements", &text).join(" -- ")),
        "divider" => "----".to_owned(),
        "actions" => list("elements", &|button| {
            let style = match button["style"].as_str() {
                Some("primary") => " !",
                Some(_) => " !!",
                None => "",
            };
            let confirm =
                button.get("confirm").map(|ask| format!(" ? {} {}", text(&ask["title"]), text(&ask["text"])));
            let action = button["action_id"].as_str().unwrap();
            format!("[{} {action}{style}{}]", text(&button["text"]), confirm.unwrap_or_default())
        })
        .join(" "),
        "input" => {
            let element = &block["element"];
            let options = element["options"].as_array().into_iter().flatten();
            let options: Vec<String> = options
                .map(|option| format!("{}={}", text(&option["text"]), option["value"].as_str().unwrap()))
                .collect();
            let initial = element["initial_value"].as_str().or(element["initial_option"]["value"].as_str());
            let id = block["block_id"].as_str().unwrap();
            format!(
                "<{id}: {}> {} {}",
                text(&block["label"]),
                options.join(", "),
                initial.unwrap_or_default()
            )
            .trim()
            .to_owned()
        }
        _ => {
            let text = text(&block["elements"][0]["elements"][0]);
            text.lines().map(|line| format!("> {line}")).collect::<Vec<_>>().join("\n")
        }
    }
}

/// Every button of a card, with its value.
pub(super) fn values(card: &impl Serialize) -> Vec<(String, String)> {
    let card = json!(card);
    let blocks = card["blocks"].as_array().unwrap().iter().filter(|block| block["type"] == "actions");
    let buttons = blocks.flat_map(|block| block["elements"].as_array().unwrap());
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    buttons.map(|button| (text(&button["action_id"]), text(&button["value"]))).collect()
}

//! A second reading of Slack's rules, for the tests: it shares nothing with the kit that it checks.

use std::collections::BTreeSet;

use serde_json::Value;

/// Panics if Slack would refuse this message or view, or if it shows what it must not.
pub(super) fn limits(value: &Value) {
    let blocks = value["blocks"].as_array().expect("there are blocks");
    let view = value["type"].is_string();
    assert!(!blocks.is_empty() && blocks.len() <= if view { 100 } else { 50 }, "{} blocks", blocks.len());
    if view {
        self::view(value);
    } else {
        let text = value["text"].as_str().expect("there is a fallback");
        assert!(!text.trim().is_empty() && text.chars().count() <= 3_000);
        harmless_markup(text);
        let all: usize = blocks.iter().map(seen).sum();
        assert!(all <= 10_000, "{all} characters in all blocks");
    }
    let mut ids = BTreeSet::new();
    for block in blocks {
        if let Some(id) = block.get("block_id") {
            let id = id.as_str().expect("an id is text");
            sized(id, 255);
            assert!(ids.insert(id), "{id} comes twice");
        }
        self::block(block);
    }
}

fn view(value: &Value) {
    let modal = match value["type"].as_str() {
        Some("modal") => true,
        Some("home") => false,
        other => panic!("{other:?} is no view"),
    };
    for key in ["title", "submit", "close"] {
        if let Some(text) = value.get(key) {
            assert!(modal);
            plain(text, 24);
        }
    }
    assert_eq!(modal, value.get("title").is_some());
    let asks = value["blocks"].as_array().unwrap().iter().any(|block| block["type"] == "input");
    assert!(!asks || value.get("submit").is_some(), "a form needs a button");
    if let Some(id) = value.get("callback_id") {
        sized(id.as_str().unwrap(), 255);
    }
    if let Some(data) = value.get("private_metadata") {
        assert!(data.as_str().unwrap().chars().count() <= 3_000);
    }
}

fn block(block: &Value) {
    match block["type"].as_str().expect("a block has a type") {
        "header" => plain(&block["text"], 150),
        "section" => {
            assert!(block.get("text").is_some() || block.get("fields").is_some());
            if let Some(text) = block.get("text") {
                markup(text, 3_000);
            }
            for field in items(block.get("fields"), 10) {
                markup(field, 2_000);
            }
        }
        "context" => items(block.get("elements"), 10).iter().for_each(|text| markup(text, 3_000)),
        "actions" => {
            let mut ids = BTreeSet::new();
            for element in items(block.get("elements"), 25) {
                button(element);
                assert!(ids.insert(element["action_id"].as_str().unwrap()), "an action comes twice");
            }
        }
        "divider" => {}
        "input" => {
            plain(&block["label"], 2_000);
            entry(&block["element"]);
        }
        "rich_text" => {
            for part in items(block.get("elements"), 1) {
                assert!(matches!(
                    part["type"].as_str(),
                    Some("rich_text_preformatted" | "rich_text_section")
                ));
                for text in items(part.get("elements"), 1) {
                    assert_eq!(text["type"], "text");
                    let text = text["text"].as_str().unwrap();
                    assert!(!text.trim().is_empty());
                    visible(text, true);
                }
            }
        }
        other => panic!("{other} is no block"),
    }
}

fn button(button: &Value) {
    assert_eq!(button["type"], "button");
    plain(&button["text"], 75);
    sized(button["action_id"].as_str().unwrap(), 255);
    if let Some(value) = button.get("value") {
        sized(value.as_str().unwrap(), 2_000);
    }
    if let Some(style) = button.get("style") {
        assert!(style == "primary" || style == "danger");
    }
    if let Some(confirm) = button.get("confirm") {
        plain(&confirm["title"], 100);
        markup(&confirm["text"], 300);
        plain(&confirm["confirm"], 30);
        plain(&confirm["deny"], 30);
    }
}

fn entry(element: &Value) {
    sized(element["action_id"].as_str().unwrap(), 255);
    match element["type"].as_str().unwrap() {
        "plain_text_input" => {
            if let Some(placeholder) = element.get("placeholder") {
                plain(placeholder, 150);
            }
            if let Some(initial) = element.get("initial_value") {
                sized(initial.as_str().unwrap(), 3_000);
                visible(initial.as_str().unwrap(), true);
            }
        }
        sort @ ("static_select" | "radio_buttons") => {
            let options = items(element.get("options"), if sort == "static_select" { 100 } else { 10 });
            for option in options {
                plain(&option["text"], 75);
                sized(option["value"].as_str().unwrap(), 75);
            }
            if let Some(initial) = element.get("initial_option") {
                assert!(options.contains(initial));
            }
        }
        other => panic!("{other} is no entry"),
    }
}

fn items(value: Option<&Value>, most: usize) -> &[Value] {
    let items = value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    assert!(items.len() <= most, "{} items", items.len());
    assert!(value.is_none() || !items.is_empty(), "an empty list");
    items
}

fn sized(text: &str, most: usize) {
    let chars = text.chars().count();
    assert!((1..=most).contains(&chars), "{chars} characters, where 1 to {most} may be");
}

fn plain(text: &Value, most: usize) {
    assert_eq!(text["type"], "plain_text");
    let text = text["text"].as_str().unwrap();
    sized(text, most);
    assert!(!text.trim().is_empty());
    visible(text, false);
    for call in ["<!", "<@", "<#", "<http"] {
        assert!(!text.contains(call), "{text}");
    }
}

fn markup(text: &Value, most: usize) {
    assert_eq!((&text["type"], &text["verbatim"]), (&"mrkdwn".into(), &true.into()));
    let text = text["text"].as_str().unwrap();
    sized(text, most);
    assert!(!text.trim().is_empty());
    harmless_markup(text);
}

/// Brackets hold only mentions and dates, and every `&` is part of an escape.
fn harmless_markup(text: &str) {
    visible(text, true);
    let mut rest = text;
    while let Some(at) = rest.find(['<', '>', '&']) {
        let (found, after) = rest[at..].split_at(1);
        rest = match found {
            "&" => ["amp;", "lt;", "gt;"]
                .into_iter()
                .find_map(|escape| after.strip_prefix(escape))
                .unwrap_or_else(|| panic!("a lone & in {text:?}")),
            "<" => {
                let (token, after) = after.split_once('>').expect("a bracket closes");
                let user = token.strip_prefix('@').is_some_and(|user| {
                    user.starts_with(['U', 'W'])
                        && user.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit())
                });
                let date = token.strip_prefix("!date^").is_some_and(|date| {
                    date.starts_with(|c: char| c.is_ascii_digit()) && date.ends_with(" UTC")
                });
                assert!(user || date, "<{token}> in {text:?}");
                after
            }
            _ => panic!("a lone > in {text:?}"),
        };
    }
    let low = text.to_lowercase();
    for power in ["://", "www.", "@channel", "@here", "@everyone"] {
        assert!(!low.contains(power), "{power} in {text:?}");
    }
}

/// Everything in it can be seen, and runs forward.
fn visible(text: &str, lines: bool) {
    for c in text.chars() {
        let hidden = c.is_control() && !(lines && c == '\n')
            || matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
        assert!(!hidden, "U+{:04X} in {text:?}", u32::from(c));
    }
}

fn seen(value: &Value) -> usize {
    match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| {
                value
                    .as_str()
                    .filter(|_| key == "text")
                    .map_or_else(|| seen(value), |text| text.chars().count())
            })
            .sum(),
        Value::Array(items) => items.iter().map(seen).sum(),
        _ => 0,
    }
}

/// The calls in it: whom this message would ping.
pub(super) fn calls(value: &Value) -> Vec<String> {
    let text = value.to_string();
    text.match_indices("<@")
        .map(|(at, _)| text[at + 2..].split('>').next().unwrap_or_default().to_owned())
        .collect()
}

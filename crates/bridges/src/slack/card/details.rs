//! Everything that somebody may want to see before deciding.

use serde_json::Value;

use super::super::kit::{Blocks, Message, View, Words, cut};
use super::clearance::fields;
use super::{at, id, options};
use intercom_types::{Choice, Clearance, Session};

const MOST_RULES: usize = 40;
const RULES_TOGETHER: usize = 8;
const MOST_PATHS: usize = 200;
const LONG: usize = 8_000;

/// `explanation` is what the API says about the clearance: what each rule makes of it.
pub(in crate::slack) fn clearance_details(
    clearance: &Clearance,
    session: &Session,
    explanation: &Value,
) -> View {
    let blocks = details(clearance, session, explanation);
    View::modal("details", "Details", blocks).metadata(&clearance.id)
}

/// The same where no form can be opened; a message holds less than a form.
pub(in crate::slack) fn clearance_details_told(
    clearance: &Clearance,
    session: &Session,
    explanation: &Value,
) -> Message {
    let title =
        Words::new("Details: ").and(Words::said(&intercom_types::action::line_of(clearance)).cut(300));
    details(clearance, session, explanation).message(title)
}

fn details(clearance: &Clearance, session: &Session, explanation: &Value) -> Blocks {
    let asked = Words::new("asked").and(at(Some(clearance.requested_at)));
    let paths = paths(clearance);
    let blocks = Blocks::keyless()
        .section(Words::said(&clearance.title).cut(2_000).bold())
        .fields(fields(clearance, session))
        .section(why_risk(clearance));
    let blocks = titled(blocks, "Files", &paths);
    let blocks = match clearance.description.as_deref().map(str::trim).filter(|text| !text.is_empty()) {
        Some(text) => blocks.section(Words::new("What the agent says").bold()).prose(&cut(text, LONG)),
        None => blocks,
    };
    let blocks = rules(blocks, explanation).section(choices(clearance));
    let blocks = titled(blocks, "Command", clearance.command.as_deref().unwrap_or_default());
    let blocks = titled(blocks, "Change", clearance.diff.as_deref().unwrap_or_default());
    blocks.context(vec![asked, id(&clearance.id)])
}

/// Each reason in full; the field above has room for the first few words.
fn why_risk(clearance: &Clearance) -> Words {
    if clearance.risk_why.is_empty() {
        return Words::default();
    }
    let lines = clearance.risk_why.iter().take(20).map(|why| Words::new("• ").and(Words::said(why).cut(140)));
    Words::join([Words::new("Why this risk").bold()].into_iter().chain(lines), "\n")
}

fn titled(blocks: Blocks, title: &'static str, text: &str) -> Blocks {
    if text.trim().is_empty() {
        return blocks;
    }
    blocks.section(Words::new(title).bold()).code(&cut(text, LONG))
}

fn paths(clearance: &Clearance) -> String {
    // A path is one line, whatever it is called.
    let all =
        clearance.file_path.iter().chain(&clearance.more_paths).map(|path| intercom_types::text::clean(path));
    let mut paths: Vec<String> = all.take(MOST_PATHS).collect();
    let missing =
        (usize::from(clearance.file_path.is_some()) + clearance.more_paths.len()).saturating_sub(paths.len());
    if missing > 0 {
        paths.push(format!("… and {missing} more"));
    }
    paths.join("\n")
}

/// Lists the result of each rule, in their order; a few to a section, so that none is cut.
fn rules(blocks: Blocks, explanation: &Value) -> Blocks {
    let rules = explanation["rules"].as_array().map(Vec::as_slice).unwrap_or_default();
    let now = explanation["now"]["why"].as_str();
    let now = now.map(|why| Words::new("Now: ").and(Words::said(why).cut(300))).unwrap_or_default();
    let none = if rules.is_empty() { "There are none: people are asked." } else { "" };
    let more = match rules.len().saturating_sub(MOST_RULES) {
        0 => Words::default(),
        more => Words::new("… and ").and(Words::number(more as u64)).and(" more"),
    };
    let blocks = blocks.section(Words::new("What the rules say").bold()).section(none);
    let shown = &rules[..rules.len().min(MOST_RULES)];
    let blocks = shown
        .chunks(RULES_TOGETHER)
        .fold(blocks, |blocks, few| blocks.section(Words::join(few.iter().map(rule), "\n")));
    blocks.section(more).section(now)
}

fn rule(rule: &Value) -> Words {
    let text = |key: &str, limit| Words::said(rule[key].as_str().unwrap_or_default()).cut(limit);
    let (decides, matches) = (rule["decides"] == true, rule["matches"] == true);
    let says =
        Words::new(if decides { "▶ " } else { "○ " }).and(text("name", 80)).and(" (").and(text("then", 20));
    let says = says.and("): ");
    if decides {
        says.and(Words::new("decides").bold())
    } else if matches {
        says.and("would match, but another comes first")
    } else {
        says.and("does not match, ").and(Words::join([text("unmet", 40), text("why", 150)], ": "))
    }
}

/// The answers that the agent offers, where they are not simply ours.
fn choices(clearance: &Clearance) -> Words {
    let own = options::own(clearance);
    if own.is_empty() {
        return Words::default();
    }
    let line = |option: &Choice| {
        let kind = Words::said(&option.kind).cut(40);
        Words::new("• ").and(Words::said(options::name(option)).cut(100)).and(" (").and(kind).and(")")
    };
    let lines = own.iter().take(25).map(line);
    Words::join([Words::new("What the agent offers").bold()].into_iter().chain(lines), "\n")
}

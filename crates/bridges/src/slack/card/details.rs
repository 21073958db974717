//! The details of a clearance, for a person who decides it.

use serde_json::Value;

use super::super::block_kit::{BlockBuilder, CardMessage, MrkdwnText, SlackView, cut};
use super::clearance::fields;
use super::{at, id, options};
use intercom_types::{Choice, Clearance, Session};

const MOST_RULES: usize = 40;
const RULES_TOGETHER: usize = 8;
const MOST_PATHS: usize = 200;
const LONG: usize = 8_000;

/// `explanation` is the API's explanation of the clearance: the result of each rule.
pub(in crate::slack) fn clearance_details(
    clearance: &Clearance,
    session: &Session,
    explanation: &Value,
) -> SlackView {
    let blocks = details(clearance, session, explanation);
    SlackView::modal("details", "Details", blocks).metadata(&clearance.id)
}

/// The same as a message, if the form cannot be opened; a message holds less.
pub(in crate::slack) fn clearance_details_told(
    clearance: &Clearance,
    session: &Session,
    explanation: &Value,
) -> CardMessage {
    let title = MrkdwnText::new("Details: ")
        .and(MrkdwnText::untrusted(&intercom_types::action::line_of(clearance)).cut(300));
    details(clearance, session, explanation).message(title)
}

fn details(clearance: &Clearance, session: &Session, explanation: &Value) -> BlockBuilder {
    let asked = MrkdwnText::new("asked").and(at(Some(clearance.requested_at)));
    let paths = paths(clearance);
    let blocks = BlockBuilder::keyless()
        .section(MrkdwnText::untrusted(&clearance.title).cut(2_000).bold())
        .fields(fields(clearance, session))
        .section(why_risk(clearance));
    let blocks = titled(blocks, "Files", &paths);
    let blocks = match clearance.description.as_deref().map(str::trim).filter(|text| !text.is_empty()) {
        Some(text) => {
            blocks.section(MrkdwnText::new("The agent's description").bold()).prose(&cut(text, LONG))
        }
        None => blocks,
    };
    let blocks = rules(blocks, explanation).section(choices(clearance));
    let blocks = titled(blocks, "Command", clearance.command.as_deref().unwrap_or_default());
    let blocks = titled(blocks, "Change", clearance.diff.as_deref().unwrap_or_default());
    blocks.context(vec![asked, id(&clearance.id)])
}

/// Each reason in full; the field above has room for the first few words.
fn why_risk(clearance: &Clearance) -> MrkdwnText {
    if clearance.risk_why.is_empty() {
        return MrkdwnText::default();
    }
    let lines = clearance
        .risk_why
        .iter()
        .take(20)
        .map(|why| MrkdwnText::new("• ").and(MrkdwnText::untrusted(why).cut(140)));
    MrkdwnText::join([MrkdwnText::new("Why this risk").bold()].into_iter().chain(lines), "\n")
}

fn titled(blocks: BlockBuilder, title: &'static str, text: &str) -> BlockBuilder {
    if text.trim().is_empty() {
        return blocks;
    }
    blocks.section(MrkdwnText::new(title).bold()).code(&cut(text, LONG))
}

fn paths(clearance: &Clearance) -> String {
    // A path must stay one line, even with a line break in its name.
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
fn rules(blocks: BlockBuilder, explanation: &Value) -> BlockBuilder {
    let rules = explanation["rules"].as_array().map(Vec::as_slice).unwrap_or_default();
    let now = explanation["now"]["why"].as_str();
    let now =
        now.map(|why| MrkdwnText::new("Now: ").and(MrkdwnText::untrusted(why).cut(300))).unwrap_or_default();
    let none = if rules.is_empty() { "There are no rules: people decide." } else { "" };
    let more = match rules.len().saturating_sub(MOST_RULES) {
        0 => MrkdwnText::default(),
        more => MrkdwnText::new("… and ").and(MrkdwnText::number(more as u64)).and(" more"),
    };
    let blocks = blocks.section(MrkdwnText::new("Rules").bold()).section(none);
    let shown = &rules[..rules.len().min(MOST_RULES)];
    let blocks = shown
        .chunks(RULES_TOGETHER)
        .fold(blocks, |blocks, few| blocks.section(MrkdwnText::join(few.iter().map(rule), "\n")));
    blocks.section(more).section(now)
}

fn rule(rule: &Value) -> MrkdwnText {
    let text = |key: &str, limit| MrkdwnText::untrusted(rule[key].as_str().unwrap_or_default()).cut(limit);
    let (decides, matches) = (rule["decides"] == true, rule["matches"] == true);
    let says = MrkdwnText::new(if decides { "▶ " } else { "○ " })
        .and(text("name", 80))
        .and(" (")
        .and(text("then", 20));
    let says = says.and("): ");
    if decides {
        says.and(MrkdwnText::new("decides").bold())
    } else if matches {
        says.and("would match, but an earlier rule decides")
    } else {
        says.and("does not match, ").and(MrkdwnText::join([text("unmet", 40), text("why", 150)], ": "))
    }
}

/// Lists the agent's own options, if they differ from ours.
fn choices(clearance: &Clearance) -> MrkdwnText {
    let own = options::own(clearance);
    if own.is_empty() {
        return MrkdwnText::default();
    }
    let line = |option: &Choice| {
        let kind = MrkdwnText::untrusted(&option.kind).cut(40);
        MrkdwnText::new("• ")
            .and(MrkdwnText::untrusted(options::name(option)).cut(100))
            .and(" (")
            .and(kind)
            .and(")")
    };
    let lines = own.iter().take(25).map(line);
    MrkdwnText::join([MrkdwnText::new("The agent's options").bold()].into_iter().chain(lines), "\n")
}

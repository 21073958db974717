//! The card of a clearance: it asks for a decision, and later shows it.

use super::super::block_kit::{
    BlockBuilder, Button, ButtonStyle, CardMessage, ConfirmDialog, MrkdwnText, PlainText, cut_lines,
};
use super::{OperatorDirectory, field, id, options, outcome, title, who};
use intercom_types::{Choice, Clearance, ClearanceStatus, Risk, Session};

/// The most diff lines that a card shows; the rest is a file below it. With these bounds the whole card fits
/// into Slack's limits, unless an agent has many long options of its own: then the builder cuts once more, and only `…`
/// shows it.
const DIFF_LINES: usize = 60;
const CHARS: usize = 5_200;
const COMMAND_CHARS: usize = 3_000;
const DESCRIPTION_CHARS: usize = 600;

pub(in crate::slack) fn clearance(
    key: &str,
    clearance: &Clearance,
    session: &Session,
    people: &OperatorDirectory,
    ping: &[String],
) -> CardMessage {
    let open = clearance.status == ClearanceStatus::Pending;
    let status_line = if open { people.asked_line(ping) } else { outcome::decided(clearance, people) };
    let text = MrkdwnText::untrusted(&super::project(session)).cut(60).and(": ").and(if open {
        MrkdwnText::new("clearance requested, ").and(risk_words(clearance)).and(": ")
    } else {
        status_line.clone().cut(200).and(": ")
    });
    let blocks = BlockBuilder::new(key)
        .header(title(PlainText::new(badge(clearance)).and(" ").and(what(clearance)), session))
        .section(status_line)
        .section(MrkdwnText::untrusted(&clearance.title).cut(300).bold())
        .fields(fields(clearance, session))
        .prose(&super::super::block_kit::cut(
            clearance.description.as_deref().unwrap_or_default().trim(),
            DESCRIPTION_CHARS,
        ));
    let blocks = change(blocks, clearance);
    let blocks = blocks.section(approvals(clearance, people));
    let blocks = if open { blocks.actions(buttons(clearance)) } else { blocks };
    blocks
        .context(below(clearance, open))
        .message(text.and(MrkdwnText::untrusted(&intercom_types::action::line_of(clearance)).cut(300)))
}

/// Returns true if the card shows only a part of the diff, so that the whole has to be uploaded.
pub(in crate::slack) fn diff_is_cut(clearance: &Clearance) -> bool {
    diff(clearance).1 > 0
}

/// The same for the command.
pub(in crate::slack) fn command_is_cut(clearance: &Clearance) -> bool {
    command(clearance).1 > 0
}

fn diff(clearance: &Clearance) -> (String, usize) {
    let left = CHARS.saturating_sub(command(clearance).0.chars().count());
    cut_lines(clearance.diff.as_deref().unwrap_or_default(), DIFF_LINES, left)
}

fn command(clearance: &Clearance) -> (String, usize) {
    cut_lines(clearance.command.as_deref().unwrap_or_default(), usize::MAX, COMMAND_CHARS)
}

fn change(blocks: BlockBuilder, clearance: &Clearance) -> BlockBuilder {
    let more = |lines: usize| match lines {
        0 => MrkdwnText::default(),
        lines => MrkdwnText::new("… ").and(MrkdwnText::count(lines, "more line")).and(": see the file below"),
    };
    let ((command, more_command), (diff, more_diff)) = (command(clearance), diff(clearance));
    blocks.code(&command).section(more(more_command)).code(&diff).section(more(more_diff))
}

pub(super) fn badge(clearance: &Clearance) -> &'static str {
    match &*clearance.risk {
        "low" => "🟢",
        "medium" => "🟡",
        "high" => "🟠",
        "critical" => "🔴",
        _ => "⚪",
    }
}

/// An unknown risk counts as high.
pub(super) fn is_grave(clearance: &Clearance) -> bool {
    !matches!(clearance.risk.known(), Some(Risk::Low | Risk::Medium))
}

fn what(clearance: &Clearance) -> PlainText {
    let tool = clearance.tool.as_deref().filter(|tool| !tool.trim().is_empty());
    tool.map_or(PlainText::new("change"), |tool| PlainText::untrusted(tool).cut(60))
}

pub(super) fn risk_words(clearance: &Clearance) -> MrkdwnText {
    MrkdwnText::untrusted(&clearance.risk).cut(30).and(" risk")
}

/// `high (the agent says low): it deletes`.
pub(super) fn risk(clearance: &Clearance) -> MrkdwnText {
    let said = |text: &str| MrkdwnText::untrusted(text).cut(80);
    let differs = |risk: Option<&str>, what: &'static str| {
        let other = risk.filter(|other| *other != &*clearance.risk);
        other.map(|other| MrkdwnText::new(what).and(said(other))).unwrap_or_default()
    };
    let seen = differs(Some(&clearance.computed_risk), "intercom says ");
    let claimed = differs(clearance.claimed_risk.as_deref(), "the agent says ");
    let about = MrkdwnText::join([seen, claimed], ", ");
    let about = if about.is_blank() { about } else { MrkdwnText::new(" (").and(about).and(")") };
    let why = MrkdwnText::join(clearance.risk_why.iter().map(|why| said(why)), ", ");
    let why = if why.is_blank() { why } else { MrkdwnText::new(": ").and(why) };
    said(&clearance.risk).and(about).and(why)
}

pub(super) fn fields(clearance: &Clearance, session: &Session) -> Vec<MrkdwnText> {
    let said = |text: &Option<String>| MrkdwnText::untrusted(text.as_deref().unwrap_or_default());
    let path = said(&clearance.file_path).cut(270);
    let more = match clearance.more_paths.len() {
        0 => MrkdwnText::default(),
        more => MrkdwnText::new(" (+").and(MrkdwnText::number(more as u64)).and(" more)"),
    };
    vec![
        field("Session", who(session)),
        field("Tool", said(&clearance.tool)),
        field("Path", path.and(more)),
        field("Risk", risk(clearance)),
        field(
            "Reason for asking",
            clearance.ruling.as_ref().map(|ruling| MrkdwnText::untrusted(&ruling.why)).unwrap_or_default(),
        ),
    ]
}

/// `1 of 2 approvals (ana)`, where one is not enough.
fn approvals(clearance: &Clearance, people: &OperatorDirectory) -> MrkdwnText {
    let needed = clearance.needed;
    if needed <= 1 {
        return MrkdwnText::default();
    }
    let by = MrkdwnText::join(clearance.approvals.iter().take(10).map(|name| people.show(name)), ", ");
    let by = if by.is_blank() { by } else { MrkdwnText::new(" (").and(by).and(")") };
    MrkdwnText::number(clearance.approvals.len() as u64)
        .and(" of ")
        .and(MrkdwnText::number(needed.into()))
        .and(" approvals")
        .and(by)
}

fn buttons(clearance: &Clearance) -> Vec<Button> {
    let own = options::own(clearance);
    let mut buttons: Vec<Button> = own
        .iter()
        .take(options::MOST)
        .enumerate()
        .map(|(n, option)| own_button(clearance, n, option))
        .collect();
    if own.is_empty() {
        buttons.push(allow(clearance));
    }
    let id = &clearance.id;
    buttons.push(Button::new("always", "Always…", id));
    buttons.push(deny(clearance));
    buttons.push(Button::new("deny_reason", "Deny with reason…", id));
    buttons.push(details(clearance));
    buttons
}

pub(super) fn allow(clearance: &Clearance) -> Button {
    Button::new("allow", "Allow once", &clearance.id).style(ButtonStyle::Primary).confirm(confirm(clearance))
}

pub(super) fn deny(clearance: &Clearance) -> Button {
    Button::new("deny", "Deny", &clearance.id).style(ButtonStyle::Danger)
}

pub(super) fn details(clearance: &Clearance) -> Button {
    Button::new("details", "Details", &clearance.id)
}

fn own_button(clearance: &Clearance, n: usize, option: &Choice) -> Button {
    let text = PlainText::untrusted(options::name(option));
    let button = Button::new(&format!("option.{n}"), text, &clearance.id);
    if options::is_allow(&option.kind) {
        button.style(ButtonStyle::Primary).confirm(confirm(clearance))
    } else if option.kind.starts_with("reject") {
        button.style(ButtonStyle::Danger)
    } else {
        // An unknown kind may allow something, so it is confirmed.
        button.confirm(confirm(clearance))
    }
}

/// Returns the confirmation dialog for a dangerous request.
fn confirm(clearance: &Clearance) -> Option<ConfirmDialog> {
    is_grave(clearance).then(|| ConfirmDialog {
        title: PlainText::new("Allow a request of ")
            .and(PlainText::untrusted(&clearance.risk).cut(20))
            .and(" risk?"),
        text: risk_words(clearance)
            .bold()
            .and(": ")
            .and(MrkdwnText::untrusted(&intercom_types::action::line_of(clearance)).cut(200)),
        yes: "Allow it".into(),
        danger: true,
    })
}

fn below(clearance: &Clearance, open: bool) -> Vec<MrkdwnText> {
    let deadline = clearance.expires_at.filter(|_| open);
    let over = options::own(clearance).len().saturating_sub(options::MOST);
    let hidden = MrkdwnText::join(
        clearance.hidden.iter().take(5).map(|sort| MrkdwnText::untrusted(sort).cut(60)),
        ", ",
    );
    vec![
        deadline.map(|at| MrkdwnText::new("expires at ").and(MrkdwnText::date(at))).unwrap_or_default(),
        MrkdwnText::new("asked at ").and(MrkdwnText::date(clearance.requested_at)),
        if open && over > 0 {
            MrkdwnText::count(over, "more option").and(": see Details")
        } else {
            MrkdwnText::default()
        },
        if hidden.is_blank() { hidden } else { MrkdwnText::new("hidden here: ").and(hidden) },
        id(&clearance.id),
    ]
}

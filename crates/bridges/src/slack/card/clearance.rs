//! The card that asks for a decision, and later tells of it.

use super::super::kit::{Blocks, Button, Confirm, Message, Plain, Style, Words, cut_lines};
use super::{People, decided, field, id, options, title, who};
use intercom_types::{Choice, Clearance, ClearanceStatus, Risk, Session};

/// The most diff lines that a card shows; the rest is a file below it. With these bounds the whole card fits
/// into Slack's limits, unless an agent has many long options of its own: then the kit cuts once more, and
/// only `…` tells of it.
const DIFF_LINES: usize = 60;
const CHARS: usize = 5_200;
const COMMAND_CHARS: usize = 3_000;
const DESCRIPTION_CHARS: usize = 600;

pub(in crate::slack) fn clearance(
    key: &str,
    clearance: &Clearance,
    session: &Session,
    people: &People,
    ping: &[String],
) -> Message {
    let open = clearance.status == ClearanceStatus::Pending;
    let told = if open { people.asked(ping) } else { decided::decided(clearance, people) };
    let text = Words::said(&super::project(session)).cut(60).and(": ").and(if open {
        Words::new("clearance wanted, ").and(risk_words(clearance)).and(": ")
    } else {
        told.clone().cut(200).and(": ")
    });
    let blocks = Blocks::new(key)
        .header(title(Plain::new(badge(clearance)).and(" ").and(what(clearance)), session))
        .section(told)
        .section(Words::said(&clearance.title).cut(300).bold())
        .fields(fields(clearance, session))
        .prose(&super::super::kit::cut(
            clearance.description.as_deref().unwrap_or_default().trim(),
            DESCRIPTION_CHARS,
        ));
    let blocks = change(blocks, clearance);
    let blocks = blocks.section(approvals(clearance, people));
    let blocks = if open { blocks.actions(buttons(clearance)) } else { blocks };
    blocks
        .context(below(clearance, open))
        .message(text.and(Words::said(&intercom_types::action::line_of(clearance)).cut(300)))
}

/// Returns true if the card shows only a part of the diff, so that the whole has to be uploaded.
pub(in crate::slack) fn diff_is_cut(clearance: &Clearance) -> bool {
    diff(clearance).1 > 0
}

/// The same for its command.
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

fn change(blocks: Blocks, clearance: &Clearance) -> Blocks {
    let more = |lines: usize| match lines {
        0 => Words::default(),
        lines => Words::new("… ").and(Words::count(lines, "more line")).and(": see the file below"),
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

/// Anything that we do not know counts as much as what we know to be high.
pub(super) fn is_grave(clearance: &Clearance) -> bool {
    !matches!(clearance.risk.known(), Some(Risk::Low | Risk::Medium))
}

fn what(clearance: &Clearance) -> Plain {
    let tool = clearance.tool.as_deref().filter(|tool| !tool.trim().is_empty());
    tool.map_or(Plain::new("change"), |tool| Plain::said(tool).cut(60))
}

pub(super) fn risk_words(clearance: &Clearance) -> Words {
    Words::said(&clearance.risk).cut(30).and(" risk")
}

/// `high (the agent says low): it deletes`.
pub(super) fn risk(clearance: &Clearance) -> Words {
    let said = |text: &str| Words::said(text).cut(80);
    let differs = |risk: Option<&str>, what: &'static str| {
        let other = risk.filter(|other| *other != &*clearance.risk);
        other.map(|other| Words::new(what).and(said(other))).unwrap_or_default()
    };
    let seen = differs(Some(&clearance.computed_risk), "we see ");
    let claimed = differs(clearance.claimed_risk.as_deref(), "the agent says ");
    let about = Words::join([seen, claimed], ", ");
    let about = if about.is_blank() { about } else { Words::new(" (").and(about).and(")") };
    let why = Words::join(clearance.risk_why.iter().map(|why| said(why)), ", ");
    let why = if why.is_blank() { why } else { Words::new(": ").and(why) };
    said(&clearance.risk).and(about).and(why)
}

pub(super) fn fields(clearance: &Clearance, session: &Session) -> Vec<Words> {
    let said = |text: &Option<String>| Words::said(text.as_deref().unwrap_or_default());
    let path = said(&clearance.file_path).cut(270);
    let more = match clearance.more_paths.len() {
        0 => Words::default(),
        more => Words::new(" (+").and(Words::number(more as u64)).and(" more)"),
    };
    vec![
        field("Session", who(session)),
        field("Tool", said(&clearance.tool)),
        field("Path", path.and(more)),
        field("Risk", risk(clearance)),
        field(
            "Why you are asked",
            clearance.ruling.as_ref().map(|ruling| Words::said(&ruling.why)).unwrap_or_default(),
        ),
    ]
}

/// `1 of 2 approvals (ana)`, where one is not enough.
fn approvals(clearance: &Clearance, people: &People) -> Words {
    let needed = clearance.needed;
    if needed <= 1 {
        return Words::default();
    }
    let by = Words::join(clearance.approvals.iter().take(10).map(|name| people.show(name)), ", ");
    let by = if by.is_blank() { by } else { Words::new(" (").and(by).and(")") };
    Words::number(clearance.approvals.len() as u64)
        .and(" of ")
        .and(Words::number(needed.into()))
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
    Button::new("allow", "Allow once", &clearance.id).style(Style::Primary).confirm(confirm(clearance))
}

pub(super) fn deny(clearance: &Clearance) -> Button {
    Button::new("deny", "Deny", &clearance.id).style(Style::Danger)
}

pub(super) fn details(clearance: &Clearance) -> Button {
    Button::new("details", "Details", &clearance.id)
}

fn own_button(clearance: &Clearance, n: usize, option: &Choice) -> Button {
    let text = Plain::said(options::name(option));
    let button = Button::new(&format!("option.{n}"), text, &clearance.id);
    if options::is_allow(&option.kind) {
        button.style(Style::Primary).confirm(confirm(clearance))
    } else if option.kind.starts_with("reject") {
        button.style(Style::Danger)
    } else {
        // We do not know what it does, so it may well allow.
        button.confirm(confirm(clearance))
    }
}

/// Returns the confirmation dialog for a dangerous request.
fn confirm(clearance: &Clearance) -> Option<Confirm> {
    is_grave(clearance).then(|| Confirm {
        title: Plain::new("Allow something of ").and(Plain::said(&clearance.risk).cut(20)).and(" risk?"),
        text: risk_words(clearance)
            .bold()
            .and(": ")
            .and(Words::said(&intercom_types::action::line_of(clearance)).cut(200)),
        yes: "Allow it".into(),
        danger: true,
    })
}

fn below(clearance: &Clearance, open: bool) -> Vec<Words> {
    let deadline = clearance.expires_at.filter(|_| open);
    let over = options::own(clearance).len().saturating_sub(options::MOST);
    let hidden = Words::join(clearance.hidden.iter().take(5).map(|sort| Words::said(sort).cut(60)), ", ");
    vec![
        deadline.map(|at| Words::new("expires at ").and(Words::date(at))).unwrap_or_default(),
        Words::new("asked at ").and(Words::date(clearance.requested_at)),
        if open && over > 0 {
            Words::count(over, "more option").and(": see Details")
        } else {
            Words::default()
        },
        if hidden.is_blank() { hidden } else { Words::new("hidden here: ").and(hidden) },
        id(&clearance.id),
    ]
}

//! The state of a session, as text that stays true without edits.

use super::super::block_kit::MrkdwnText;
use intercom_types::{Session, Time};

/// The state of a session, from its phase and its agent's state. Ordered by how much it needs a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum DisplayState {
    Failed,
    WaitingForYou,
    Stuck,
    Gone,
    Orphan,
    WaitingForService,
    Working,
    Quiet,
    Starting,
    Idle,
    Stopping,
    Unknown,
    Parked,
    Ended,
}

impl DisplayState {
    pub(super) fn of(session: &Session) -> Self {
        let standing = session.standing.as_ref().and_then(|standing| standing.state.as_deref());
        match (session.phase.as_str(), standing) {
            _ if session.phase_word() == Session::FAILED => Self::Failed,
            ("created" | "starting", _) => Self::Starting,
            ("stopping", _) => Self::Stopping,
            ("parked", _) => Self::Parked,
            ("ended", _) => Self::Ended,
            ("waiting", _) | (_, Some("waiting_for_you")) => Self::WaitingForYou,
            (_, Some("waiting_for_service")) => Self::WaitingForService,
            (_, Some("stuck")) => Self::Stuck,
            (_, Some("gone")) => Self::Gone,
            (_, Some("orphan")) => Self::Orphan,
            (_, Some("quiet")) => Self::Quiet,
            ("working", _) | (_, Some("working")) => Self::Working,
            ("idle", _) => Self::Idle,
            _ => Self::Unknown,
        }
    }

    pub(super) const fn symbol(self) -> &'static str {
        match self {
            Self::WaitingForYou => "🙋",
            Self::Failed | Self::Stuck | Self::Gone | Self::Orphan => "🔴",
            Self::WaitingForService => "⏳",
            Self::Working | Self::Quiet => "🔵",
            Self::Starting | Self::Stopping => "🔄",
            Self::Idle => "💤",
            Self::Unknown => "⚪",
            Self::Parked => "⏸",
            Self::Ended => "⚫",
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::WaitingForYou => "waiting for you",
            Self::Stuck => "stuck",
            Self::Gone => "suspended: its process is stopped",
            Self::Orphan => "orphan: it can only be stopped",
            Self::WaitingForService => "waiting for its service",
            Self::Working => "working",
            Self::Quiet => "working, but quiet",
            Self::Starting => "starting",
            Self::Idle => "idle",
            Self::Stopping => "stopping",
            Self::Unknown => "in an unknown state",
            Self::Parked => "parked",
            Self::Ended => "ended",
        }
    }

    /// `🔵 working`.
    pub(super) fn show(self) -> MrkdwnText {
        MrkdwnText::new(self.symbol()).and(" ").and(MrkdwnText::new(self.words()).bold())
    }
}

/// Returns the reason for the state, with its beginning and end if they are known.
pub(super) fn why(session: &Session, state: DisplayState) -> MrkdwnText {
    let why = timeless(session.why.as_str());
    let why = MrkdwnText::untrusted(without_state(&why)).cut(600);
    let standing = session.standing.as_ref();
    let since = standing.and_then(|standing| standing.since);
    let since =
        since.filter(|_| matches!(state, DisplayState::Quiet | DisplayState::Stuck | DisplayState::Gone));
    let running = standing.and_then(|standing| Some(standing.running.as_ref()?.since));
    let until = standing.and_then(|standing| standing.until);
    let dated = |what: &'static str, at: Option<Time>| {
        at.map(|at| MrkdwnText::new(what).and(MrkdwnText::date(at))).unwrap_or_default()
    };
    let hint = session.failure().and_then(|failed| failed.hint.as_deref());
    let hint = hint.map(|hint| MrkdwnText::untrusted(hint).cut(600)).unwrap_or_default();
    let times = [
        dated("since ", since),
        dated("running since ", running),
        dated("ends at ", until),
        dated("snoozed until ", session.snoozed_until()),
    ];
    MrkdwnText::join([why, hint].into_iter().chain(times), " · ")
}

/// Removes a state at the beginning of a reason, such as `stuck: no CPU`: the card shows the state in its own words.
fn without_state(why: &str) -> &str {
    let states = [
        "failed",
        "working",
        "waiting for you",
        "waiting for its service",
        "idle",
        "quiet",
        "stuck",
        "gone",
        "orphan",
        "parked",
        "ended",
    ];
    let rest = states.into_iter().filter_map(|state| why.strip_prefix(state));
    let mut rest = rest.filter(|rest| rest.is_empty() || rest.starts_with([':', ';']));
    rest.next().map_or(why, |rest| rest.trim_start_matches([':', ';', ' ']))
}

/// Removes durations from a reason, because they grow without an edit of the card. Only where intercom puts them: the
/// command `sleep 30s` stays.
pub(super) fn timeless(why: &str) -> String {
    let mut kept: Vec<String> = Vec::new();
    for word in why.split(' ') {
        let core = word.trim_end_matches([',', ';', ':']);
        let tail = &word[core.len()..];
        let ends = |words: &[&str]| {
            kept.len() >= words.len()
                && kept[kept.len() - words.len()..].iter().zip(words).all(|(kept, word)| kept == word)
        };
        let gone = |words: &[&str]| is_span(core) && ends(words);
        let drop = if gone(&["over", "in"]) || gone(&["snoozed", "for"]) {
            2
        } else if core == "now" && ends(&["due"]) {
            1
        } else if is_span(core)
            && (ends(&["running"])
                || kept.len() == 1 && (ends(&["stuck"]) || ends(&["quiet"]) || ends(&["gone"])))
        {
            0
        } else {
            kept.push(word.to_owned());
            continue;
        };
        kept.truncate(kept.len() - drop);
        if let Some(last) = kept.last_mut() {
            let end = last.trim_end_matches([',', ';', ':']).len();
            last.truncate(end);
            last.push_str(tail);
        }
    }
    kept.join(" ")
}

/// `40s`, `7m`, `2h5m`, `3d`.
fn is_span(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_digit()) && intercom_types::parse_duration(word).is_some()
}

/// Returns the duration for which the session has been stuck, as the daemon gave it at the time of the
/// request: `7 min`.
pub(super) fn stuck_for(session: &Session) -> Option<MrkdwnText> {
    let mut words = session.why.split(' ');
    let state = words.next()?;
    let span = words.next()?.trim_end_matches([',', ';', ':']);
    let length =
        intercom_types::parse_duration(span).filter(|_| matches!(state, "stuck" | "gone"))?.as_secs();
    Some(match length {
        0..60 => MrkdwnText::number(length).and(" s"),
        60..3600 => MrkdwnText::number(length / 60).and(" min"),
        3600..86_400 => {
            MrkdwnText::number(length / 3600).and(" h ").and(MrkdwnText::number(length / 60 % 60)).and(" min")
        }
        _ => MrkdwnText::number(length / 86_400).and(" d"),
    })
}

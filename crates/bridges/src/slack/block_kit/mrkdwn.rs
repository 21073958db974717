//! Our own text, in Slack's markup.

use serde_json::{Value, json};

use intercom_types::Time;
use intercom_types::text::clean;

/// Markup that we composed. Text of others gets in only through [`MrkdwnText::untrusted`]; no other function takes a
/// `String`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::slack) struct MrkdwnText(Vec<MrkdwnSpan>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct MrkdwnSpan {
    text: String,
    /// The mark before and after the text, so that a cut cannot leave it open.
    mark: &'static str,
    /// True for a mention or a date, which must not be cut.
    whole: bool,
}

impl MrkdwnSpan {
    fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into(), mark: "", whole: false }
    }

    fn token(text: String) -> Self {
        Self { text, mark: "", whole: true }
    }

    fn chars(&self) -> usize {
        self.text.chars().count() + 2 * self.mark.len()
    }

    fn is_bare(&self) -> bool {
        self.mark.is_empty() && !self.whole
    }
}

impl MrkdwnText {
    /// Our own text: a literal, in Slack's markup.
    pub(in crate::slack) fn new(ours: &'static str) -> Self {
        Self(if ours.is_empty() { Vec::new() } else { vec![MrkdwnSpan::plain(ours)] })
    }

    /// Text of others, on one line and with its markup disarmed.
    pub(in crate::slack) fn untrusted(text: &str) -> Self {
        let text = disarm(&clean(text));
        Self(if text.is_empty() { Vec::new() } else { vec![MrkdwnSpan::plain(text)] })
    }

    /// `12,345`.
    pub(in crate::slack) fn number(number: u64) -> Self {
        let digits = number.to_string();
        let mut grouped = String::new();
        for (at, digit) in digits.chars().enumerate() {
            if at > 0 && (digits.len() - at).is_multiple_of(3) {
                grouped.push(',');
            }
            grouped.push(digit);
        }
        Self(vec![MrkdwnSpan::plain(grouped)])
    }

    pub(in crate::slack) fn decimal(number: f64, places: usize) -> Self {
        Self(vec![MrkdwnSpan::plain(format!("{number:.places$}"))])
    }

    pub(in crate::slack) fn count(number: usize, noun: &'static str) -> Self {
        Self(vec![MrkdwnSpan::plain(intercom_types::text::plural(number, noun))])
    }

    /// Mentions somebody; `None` if this is no id of a Slack user.
    pub(in crate::slack) fn mention(user: &str) -> Option<Self> {
        let rest = user.strip_prefix(['U', 'W'])?;
        let good = (1..=30).contains(&rest.len())
            && rest.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit());
        good.then(|| Self(vec![MrkdwnSpan::token(format!("<@{user}>"))]))
    }

    /// A time of day with its date, as the reader's own clock shows it.
    pub(in crate::slack) fn date(at: Time) -> Self {
        let seconds = at.millis().div_euclid(1000);
        if seconds < 0 {
            return Self::untrusted(&at.to_string());
        }
        let utc = Time::from_millis(seconds.saturating_mul(1000)).to_string();
        let utc = utc.get(..16).unwrap_or(&utc).replace('T', " ");
        // With the date: tomorrow "at 14:02" alone would mean another day.
        Self(vec![MrkdwnSpan::token(format!("<!date^{seconds}^{{time}}, {{date_short_pretty}}|{utc} UTC>"))])
    }

    pub(in crate::slack) fn bold(self) -> Self {
        self.marked("*")
    }

    pub(in crate::slack) fn code(self) -> Self {
        self.marked("`")
    }

    /// Adjacent pieces share one pair of marks. Whitespace at their ends stays outside: Slack would not recognise the
    /// marks.
    fn marked(self, mark: &'static str) -> Self {
        let mut pieces: Vec<MrkdwnSpan> = Vec::new();
        for piece in self.0 {
            match pieces.last_mut() {
                Some(last) if last.is_bare() && piece.is_bare() => last.text.push_str(&piece.text),
                _ => pieces.push(piece),
            }
        }
        for piece in pieces.iter_mut().filter(|piece| piece.is_bare()) {
            piece.text = piece.text.trim().to_owned();
            piece.mark = mark;
        }
        Self(pieces.into_iter().filter(|piece| !piece.text.is_empty()).collect())
    }

    #[must_use]
    pub(in crate::slack) fn and(mut self, more: impl Into<Self>) -> Self {
        self.0.extend(more.into().0);
        self
    }

    /// Joins the texts that are not blank.
    pub(in crate::slack) fn join(parts: impl IntoIterator<Item = Self>, between: &'static str) -> Self {
        let mut joined = Self::default();
        for part in parts.into_iter().filter(|part| !part.is_blank()) {
            if !joined.0.is_empty() {
                joined.0.push(MrkdwnSpan::plain(between));
            }
            joined.0.extend(part.0);
        }
        joined
    }

    pub(in crate::slack) fn is_blank(&self) -> bool {
        self.0.iter().all(|piece| piece.text.trim().is_empty())
    }

    pub(super) fn chars(&self) -> usize {
        self.0.iter().map(MrkdwnSpan::chars).sum()
    }

    /// At most `limit` characters of markup; escapes, mentions and dates stay whole, marks stay closed.
    #[must_use]
    pub(in crate::slack) fn cut(self, limit: usize) -> Self {
        if self.chars() <= limit {
            return self;
        }
        let mut left = limit.saturating_sub(1);
        let mut kept = Vec::new();
        for mut piece in self.0 {
            let size = piece.chars();
            if size <= left {
                left -= size;
                kept.push(piece);
                continue;
            }
            if !piece.whole {
                piece.text = whole_characters(&piece.text, left.saturating_sub(2 * piece.mark.len()));
                kept.extend((!piece.text.is_empty()).then_some(piece));
            }
            break;
        }
        if limit > 0 {
            kept.push(MrkdwnSpan::plain("…"));
        }
        Self(kept)
    }

    pub(super) fn markup(&self) -> String {
        let mut markup = String::new();
        for MrkdwnSpan { text, mark, .. } in &self.0 {
            markup.extend([mark, text.as_str(), mark]);
        }
        markup
    }

    /// Returns a text object. With `verbatim` Slack does not detect links and names by itself.
    pub(super) fn json(&self, limit: usize) -> Value {
        json!({ "type": "mrkdwn", "text": self.clone().cut(limit).markup(), "verbatim": true })
    }
}

impl From<&'static str> for MrkdwnText {
    fn from(ours: &'static str) -> Self {
        Self::new(ours)
    }
}

/// Returns the first characters of markup; an escape such as `&amp;` is one unit of five characters.
fn whole_characters(markup: &str, mut left: usize) -> String {
    let mut kept = String::new();
    let mut rest = markup;
    while let Some(c) = rest.chars().next() {
        let escape = ["&amp;", "&lt;", "&gt;"].into_iter().find(|escape| rest.starts_with(escape));
        let bytes = escape.map_or(c.len_utf8(), str::len);
        let places = escape.map_or(1, str::len);
        if places > left {
            break;
        }
        left -= places;
        kept.push_str(&rest[..bytes]);
        rest = &rest[bytes..];
    }
    kept
}

/// Disarms markup, links and mentions.
///
/// Slack has no escape for its marks, and the usual trick, a zero-width character after them, is what we make visible
/// elsewhere. Therefore marks become look-alike characters, and links and mentions get the brackets known from phishing
/// reports (`https[:]//`): readers see the change and can still read the original. Where every character counts
/// (commands, diffs), text is shown as code and stays unchanged.
fn disarm(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    let mut before = None;
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            // At the beginning of a line Slack makes a quotation of it, even escaped.
            '>' if before.is_none() => safe.push('›'),
            '>' => safe.push_str("&gt;"),
            '*' => safe.push('∗'),
            '~' => safe.push('∼'),
            '`' => safe.push('ˋ'),
            '_' if !inside_word(before, rest) => safe.push('ˍ'),
            ':' if rest.starts_with("//") => safe.push_str("[:]"),
            '.' if ends_with_www(&safe) => safe.push_str("[.]"),
            '@' if calls_all(rest) => safe.push_str("[@]"),
            c => safe.push(c),
        }
        before = Some(c);
    }
    safe
}

/// Returns true inside of a word: Slack does not treat `_` as markup there, so file names stay unchanged.
fn inside_word(before: Option<char>, after: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphanumeric();
    before.is_some_and(letter) && after.starts_with(letter)
}

fn ends_with_www(text: &str) -> bool {
    text.len().checked_sub(3).and_then(|at| text.get(at..)).is_some_and(|end| end.eq_ignore_ascii_case("www"))
}

fn calls_all(after: &str) -> bool {
    let begins = |word: &str| after.get(..word.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(word));
    ["channel", "here", "everyone", "group"].into_iter().any(begins)
}

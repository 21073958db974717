//! Error answers of agents, explained for people.
//!
//! Agents wrap their model provider's error in codes of their own, so the text has to be examined. A limit or a missing
//! log-in is reported only if the text is unambiguous.

use std::borrow::Cow;
use std::time::Duration;

use serde_json::Value;
use serde_json::value::RawValue;

use super::answer::AuthMethod;
use super::{optional_fields, string};
use intercom_types::Time;
use intercom_types::text::{cut, quoted};

/// The maximum columns of an agent's text in a sentence of ours; the event has the complete text.
const MAX_QUOTE: usize = 300;
const AUTH_REQUIRED: i64 = -32000;
const NOT_FOUND: i64 = -32002;
const CANCELLED: i64 = -32800;

/// An error answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ErrorAnswer {
    pub(crate) code: Option<i64>,
    /// The message for people; never empty.
    pub(crate) message: String,
    pub(crate) trouble: ErrorCause,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ErrorCause {
    /// A log-in is missing or was refused.
    Auth,
    Limit(ProviderLimit),
    /// The requested object does not exist, such as a session to load.
    NotFound,
    Cancelled,
    Other,
}

/// The model's provider refuses more work for now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProviderLimit {
    pub(crate) kind: LimitKind,
    pub(crate) resets: Option<ProviderLimitReset>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LimitKind {
    /// Too many requests; ends soon.
    Rate,
    /// The paid quota is used up.
    Usage,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ProviderLimitReset {
    After(Duration),
    At(Time),
    /// Text that only people understand: `3pm (Europe/Berlin)`.
    InWords(String),
}

const USAGE: &[&str] = &[
    "usage limit",
    "usage_limit",
    "usagelimit",
    "hit your limit",
    "reached your limit",
    "hour limit reached",
    "daily limit reached",
    "weekly limit reached",
    "session limit reached",
    "insufficient_quota",
    "quota_exhausted",
    "quota exceeded",
    "exceeded your current quota",
    "exceeded your quota",
    "exhausted your capacity",
    "credit balance is too low",
];
const RATE: &[&str] = &[
    "rate limit",
    "rate-limit",
    "rate_limit",
    "ratelimit",
    "too many requests",
    "resource_exhausted",
    "resource has been exhausted",
    "(429)",
    "status 429",
    "status: 429",
    "status code 429",
    "http 429",
    "error 429",
];
const AUTH: &[&str] = &[
    "authentication required",
    "not authenticated",
    "failed to authenticate",
    "authentication_error",
    "authentication_failed",
    "not logged in",
    "please log in",
    "please login",
    "please run /login",
    "invalid api key",
    "incorrect api key",
    "api key not valid",
    "missing api key",
    "401 unauthorized",
];

/// Phrases of agents and services about a refused key or token.
const REFUSED: &[&str] = &[
    "invalid api key",
    "incorrect api key",
    "invalid_api_key",
    "api key not valid",
    "api_key_invalid",
    "invalid x-api-key",
    "invalid bearer token",
    "invalid authentication credentials",
    "401",
    "expired",
    "revoked",
];
/// Phrases about a missing key: a service answers with 401 in that case, too.
const MISSING: &[&str] = &["missing", "no api key", "not logged in", "not provided"];

/// Sufficient together with the protocol's own code, which some agents use for any error.
const AUTH_HINTS: &[&str] =
    &["authent", "authoriz", "log in", "login", "logged", "sign in", "api key", "api_key", "credential"];

/// The advice about a missing or refused log-in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogInAdvice {
    /// The cause, without the agent's own words.
    pub(crate) reason: String,
    /// The remedy.
    pub(crate) how: String,
}

impl ErrorAnswer {
    pub(crate) fn read(error: &RawValue) -> Self {
        let [code, message, data] = optional_fields(Some(error), ["code", "message", "data"]);
        let code = code.and_then(|raw| raw.get().parse().ok());
        let raw_message = string(message).unwrap_or(Cow::Borrowed(error.get()));
        let data = data.and_then(|raw| serde_json::from_str::<Value>(raw.get()).ok()).unwrap_or_default();
        let inner = embedded(&raw_message);
        let words = format!("{raw_message} {data}").to_lowercase();
        let trouble = match ProviderLimit::of(code, &raw_message, &words, &[&data, &inner]) {
            Some(limit) => ErrorCause::Limit(limit),
            None if needs_login(code, &raw_message, &words) => ErrorCause::Auth,
            None if code == Some(NOT_FOUND) => ErrorCause::NotFound,
            None if code == Some(CANCELLED) => ErrorCause::Cancelled,
            None => ErrorCause::Other,
        };
        Self { code, message: readable_message(&raw_message, &inner, &data), trouble }
    }

    /// Returns the cause and the remedy as one paragraph. The agent's text is quoted, so that no command in it looks
    /// like ours.
    pub(crate) fn advice(&self, agent: &str, log_in: &LogInAdvice) -> String {
        let raw_message = quoted(&cut(self.message.trim_end_matches('.'), MAX_QUOTE));
        match &self.trouble {
            ErrorCause::Auth => format!("{}: {raw_message}; {}.", log_in.reason, log_in.how),
            ErrorCause::Limit(limit) => {
                let kind = match limit.kind {
                    LimitKind::Rate => "is asked to go slower",
                    LimitKind::Usage => "has used up what its account allows",
                };
                let until = match &limit.resets {
                    Some(ProviderLimitReset::After(wait)) => {
                        format!(" Try again in {} s.", wait.as_secs().max(1))
                    }
                    Some(ProviderLimitReset::At(time)) => format!(" It is lifted at {time}."),
                    Some(ProviderLimitReset::InWords(words)) => {
                        format!(" It is lifted: {}.", quoted(&cut(words, MAX_QUOTE)))
                    }
                    None => String::new(),
                };
                format!("{agent} {kind}: {raw_message}.{until}")
            }
            _ => format!("{agent} failed: {raw_message}."),
        }
    }

    /// Reports whether the agent says that a key or a log-in was refused.
    pub(crate) fn is_refused(&self) -> bool {
        !self.is_missing() && (self.code == Some(401) || has(&self.message.to_lowercase(), REFUSED))
    }

    /// Reports whether the agent says that it has no key and no log-in.
    pub(crate) fn is_missing(&self) -> bool {
        has(&self.message.to_lowercase(), MISSING)
    }
}

/// The beginnings of messages with which agents, without an error, ask people to log in.
const LOGIN_BEGINNINGS: &[&str] = &[
    "not logged in",
    "please run /login",
    "invalid api key · please run /login",
    "invalid api key · fix external api key",
    "oauth token has expired",
    "oauth token revoked",
    "login expired",
    "failed to authenticate",
    "authentication required",
    "api error: 401",
    // Codex, of the key of a provider that its configuration names.
    "missing environment variable: `",
];
/// A longer message is an answer that happens to begin like one of them.
const MAX_LOGIN_SENTENCE: usize = 300;

/// Reports whether an agent asks for a log-in. Only known beginnings count: models write about logging in, too.
pub(crate) fn wants_login(text: &str) -> bool {
    let words = text.trim().to_lowercase();
    words.len() <= MAX_LOGIN_SENTENCE && LOGIN_BEGINNINGS.iter().any(|known| words.starts_with(known))
}

/// Checks whether the beginning of a message may become a request to log in.
pub fn may_want_login(text: &str) -> bool {
    let words = text.trim().to_lowercase();
    wants_login(text) || LOGIN_BEGINNINGS.iter().any(|known| known.starts_with(&words))
}

/// The ways to log in that the agent offers, and those that always work.
pub(crate) fn login_methods(methods: &[AuthMethod]) -> String {
    let ways: Vec<String> = methods.iter().map(AuthMethod::advice).collect();
    // The agent's own words: no command in them may look like one that we advise.
    let words = ways.join("; ").replace(['“', '”', '"', '`'], "'");
    let ways = if ways.is_empty() { String::new() } else { format!(" (it says: “{words}”)") };
    format!(
        "{ways} as the user that the agent runs as, or put its key into `env` of its profile and run `intercom reload`"
    )
}

impl AuthMethod {
    /// One way to log in, in a few words.
    fn advice(&self) -> String {
        let name = &self.name;
        match (&self.command, &*self.variables, &self.description) {
            (Some(command), _, _) => format!("{name}, run `{command}`"),
            (None, [], Some(description)) => format!("{name}, {description}"),
            (None, [], None) => name.clone(),
            (None, variables, _) => format!("{name}, set {}", variables.join(", ")),
        }
    }
}

fn needs_login(code: Option<i64>, raw_message: &str, words: &str) -> bool {
    let hinted = raw_message.trim().is_empty() || has(words, AUTH_HINTS);
    code == Some(401) || has(words, AUTH) || (code == Some(AUTH_REQUIRED) && hinted)
}

impl ProviderLimit {
    fn of(code: Option<i64>, raw_message: &str, words: &str, data: &[&Value]) -> Option<Self> {
        let kind = if has(words, USAGE) {
            LimitKind::Usage
        } else if code == Some(429) || has(words, RATE) {
            LimitKind::Rate
        } else {
            return None;
        };
        let resets =
            data.iter().find_map(|data| reset_in_data(data, 0)).or_else(|| reset_in_words(raw_message));
        Some(Self { kind, resets })
    }

    /// Detects a limit in an agent's message. Codex ends such a turn without an error, with only a sentence of its own.
    /// Models write about limits, too, so only known beginnings count.
    pub(crate) fn from_agent_text(text: &str) -> Option<Self> {
        const BEGINNINGS: &[&str] = &[
            "exceeded retry limit, last status: 429",
            "you've hit your usage limit",
            "you've hit your limit",
            "claude ai usage limit reached|",
            "api error: request rejected (429)",
        ];
        let words = text.trim().to_lowercase().replace('\u{2019}', "'");
        let known = BEGINNINGS.iter().any(|beginning| words.starts_with(beginning));
        if known { Self::of(Some(429), text, &words, &[]) } else { None }
    }
}

fn has(words: &str, phrases: &[&str]) -> bool {
    phrases.iter().any(|phrase| words.contains(phrase))
}

/// Gemini's message is the provider's error as JSON text.
fn embedded(raw_message: &str) -> Value {
    let start = raw_message.find('{').and_then(|start| raw_message.get(start..));
    serde_json::from_str(start.unwrap_or_default()).unwrap_or_default()
}

/// Extracts the message for people from the provider's JSON.
fn readable_message(raw_message: &str, inner: &Value, data: &Value) -> String {
    let message = |value: &Value| value.get("message").and_then(Value::as_str).map(str::to_owned);
    let inner = inner.get("error").and_then(message).or_else(|| message(inner));
    let text = inner.unwrap_or_else(|| raw_message.trim().to_owned());
    // Many agents answer "Internal error" and put the reason into the data.
    let details = data.get("details").and_then(Value::as_str).or(data.as_str());
    match details.map(str::trim).filter(|details| !details.is_empty() && !text.contains(details)) {
        Some(details) if text.is_empty() => details.to_owned(),
        Some(details) => format!("{text}: {details}"),
        None if text.is_empty() => "an error without a message".to_owned(),
        None => text,
    }
}

/// Finds the end of a limit in a field of the error's data.
fn reset_in_data(value: &Value, depth: usize) -> Option<ProviderLimitReset> {
    if depth > 8 {
        return None;
    }
    match value {
        Value::Object(fields) => fields.iter().find_map(|(name, value)| {
            let name = name.to_lowercase().replace(['_', '-'], "");
            match &*name {
                "resetsat" | "resetat" => moment(value),
                "retryafter" | "retryafterseconds" | "resetsinseconds" | "retrydelay" => wait(value, 1000.0),
                "retryafterms" => wait(value, 1.0),
                _ => reset_in_data(value, depth + 1),
            }
        }),
        Value::Array(items) => items.iter().find_map(|item| reset_in_data(item, depth + 1)),
        _ => None,
    }
}

/// Parses RFC 3339, or seconds or milliseconds since 1970.
fn moment(value: &Value) -> Option<ProviderLimitReset> {
    let millis = match value {
        Value::String(text) => return Time::parse(text).map(ProviderLimitReset::At),
        other => other.as_i64()?,
    };
    epoch(millis).map(ProviderLimitReset::At)
}

/// Parses a Unix time of this century: other numbers have another meaning.
fn epoch(number: i64) -> Option<Time> {
    const SECONDS: std::ops::Range<i64> = 1_500_000_000..4_000_000_000;
    if SECONDS.contains(&number) {
        Some(Time::from_millis(number * 1000))
    } else if SECONDS.contains(&(number / 1000)) {
        Some(Time::from_millis(number))
    } else {
        None
    }
}

fn wait(value: &Value, millis: f64) -> Option<ProviderLimitReset> {
    let seconds = match value {
        Value::String(text) => return duration(text).map(ProviderLimitReset::After),
        other => other.as_f64()? * millis / 1000.0,
    };
    Duration::try_from_secs_f64(seconds).ok().map(ProviderLimitReset::After)
}

/// Finds the end of a limit in text: `try again in 6m0s`, `resets 3pm`.
fn reset_in_words(raw_message: &str) -> Option<ProviderLimitReset> {
    const IN: &[&str] =
        &["try again in ", "retry in ", "reset after ", "resets in ", "retry after ", "retry-after: "];
    const AT: &[&str] = &["resets at ", "reset at ", "try again at ", "resets "];
    if let Some((_, number)) = raw_message.rsplit_once('|')
        && let Some(time) = number.trim().parse().ok().and_then(epoch)
    {
        return Some(ProviderLimitReset::At(time));
    }
    let lower = raw_message.to_ascii_lowercase();
    let after = |phrases: &[&str]| {
        let found = phrases.iter().find_map(|phrase| lower.find(phrase).map(|at| at + phrase.len()));
        found.and_then(|at| raw_message.get(at..))
    };
    if let Some(wait) = after(IN).and_then(duration) {
        return Some(ProviderLimitReset::After(wait));
    }
    let rest = after(AT)?;
    let words = rest.split(['\n', '"', '|', '·']).next().unwrap_or_default();
    let words = words.trim().trim_end_matches('.');
    let first = words.split_whitespace().next().unwrap_or_default();
    if let Some(time) = Time::parse(first) {
        return Some(ProviderLimitReset::At(time));
    }
    // A clock or a calendar has digits.
    let fits = words.len() <= 60 && words.contains(|c: char| c.is_ascii_digit());
    fits.then(|| ProviderLimitReset::InWords(words.to_owned()))
}

/// Parses the duration at the beginning of a text: `34.07s`, `6m0s`, `2 hours 5 minutes`, `30` (seconds).
fn duration(text: &str) -> Option<Duration> {
    const LONGEST: f64 = 366.0 * 86_400.0;
    let mut rest = text.trim_start();
    let mut seconds = 0.0;
    let mut parts = 0;
    loop {
        let (digits, tail) = split_where(rest, |c| !c.is_ascii_digit() && c != '.');
        let Ok(number) = digits.trim_end_matches('.').parse::<f64>() else { break };
        let (letters, tail) = split_where(tail.trim_start(), |c| !c.is_ascii_alphabetic());
        let unit = match letters.to_ascii_lowercase().as_str() {
            "ms" | "milliseconds" => 0.001,
            "s" | "sec" | "secs" | "second" | "seconds" => 1.0,
            "m" | "min" | "mins" | "minute" | "minutes" => 60.0,
            "h" | "hr" | "hrs" | "hour" | "hours" => 3_600.0,
            "d" | "day" | "days" => 86_400.0,
            // A number without a unit counts seconds, as in the `Retry-After` header.
            "" if parts == 0 => 1.0,
            _ => break,
        };
        seconds += number * unit;
        parts += 1;
        rest = tail.trim_start_matches([' ', ',']);
        rest = rest.strip_prefix("and ").unwrap_or(rest);
    }
    (parts > 0 && seconds <= LONGEST).then(|| Duration::try_from_secs_f64(seconds).ok()).flatten()
}

/// Splits a text before the first character that `found` accepts.
fn split_where(text: &str, found: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at_checked(text.find(found).unwrap_or(text.len())).unwrap_or((text, ""))
}

//! Tokens that are known by their look, wherever they stand.

use super::{SecretSpan, is_word, skip};

/// The number of bytes examined to recognise a token.
const LOOK: usize = 64;

struct TokenFormat {
    prefix: &'static str,
    sort: &'static str,
    /// The bytes that may follow the prefix, and the least number of them.
    body: fn(u8) -> bool,
    least: usize,
    /// Not inside of a word: the prefix alone is too common.
    whole_word: bool,
}

const fn format(prefix: &'static str, sort: &'static str, body: fn(u8) -> bool, least: usize) -> TokenFormat {
    TokenFormat { prefix, sort, body, least, whole_word: false }
}

const fn whole_word_format(
    prefix: &'static str,
    sort: &'static str,
    body: fn(u8) -> bool,
    least: usize,
) -> TokenFormat {
    TokenFormat { prefix, sort, body, least, whole_word: true }
}

/// Longer prefixes before shorter ones that they begin with.
const FORMATS: &[TokenFormat] = &[
    format("ghp_", "GitHub token", snake, 20),
    format("gho_", "GitHub token", snake, 20),
    format("ghu_", "GitHub token", snake, 20),
    format("ghs_", "GitHub token", snake, 20),
    format("ghr_", "GitHub token", snake, 20),
    format("github_pat_", "GitHub token", snake, 20),
    format("glpat-", "GitLab token", dotted, 16),
    format("gldt-", "GitLab token", dotted, 16),
    format("glrt-", "GitLab token", dotted, 16),
    format("glsa_", "Grafana token", snake, 20),
    format("xoxa-", "Slack token", kebab, 10),
    format("xoxb-", "Slack token", kebab, 10),
    format("xoxe-", "Slack token", kebab, 10),
    format("xoxp-", "Slack token", kebab, 10),
    format("xoxr-", "Slack token", kebab, 10),
    format("xoxs-", "Slack token", kebab, 10),
    format("xoxe.xox", "Slack token", dotted, 10),
    format("xapp-", "Slack token", kebab, 10),
    format("hooks.slack.com/services/", "Slack webhook", slashed, 20),
    format("sk-ant-", "Anthropic key", kebab, 16),
    format("sk-proj-", "OpenAI key", kebab, 16),
    format("sk-svcacct-", "OpenAI key", kebab, 16),
    format("sk-admin-", "OpenAI key", kebab, 16),
    format("sk-or-v1-", "OpenRouter key", kebab, 16),
    whole_word_format("sk-", "OpenAI key", letters, 20),
    format("AIza", "Google key", kebab, 35),
    format("GOCSPX-", "Google key", kebab, 20),
    whole_word_format("ya29.", "Google token", kebab, 20),
    whole_word_format("AKIA", "AWS key id", upper, 16),
    whole_word_format("ASIA", "AWS key id", upper, 16),
    format("sk_live_", "Stripe key", letters, 12),
    format("rk_live_", "Stripe key", letters, 12),
    format("sk_test_", "Stripe key", letters, 12),
    format("rk_test_", "Stripe key", letters, 12),
    format("whsec_", "Stripe key", base64, 20),
    format("npm_", "npm token", letters, 30),
    format("pypi-", "PyPI token", kebab, 40),
    format("hf_", "Hugging Face token", letters, 30),
    format("dop_v1_", "DigitalOcean token", letters, 40),
    format("shpat_", "Shopify token", letters, 30),
    format("dckr_pat_", "Docker token", kebab, 20),
    format("lin_api_", "Linear key", letters, 30),
    format("tskey-", "Tailscale key", kebab, 20),
    whole_word_format("hvs.", "Vault token", kebab, 20),
    format("AGE-SECRET-KEY-1", "age key", upper, 40),
];

/// For each of the first three bytes of a text, a bit for each format that has it there.
static BEGINS: [[u64; 256]; 3] = begins();

const fn begins() -> [[u64; 256]; 3] {
    let mut begins = [[0; 256]; 3];
    let mut index = 0;
    while index < FORMATS.len() {
        let mut place = 0;
        while place < 3 {
            begins[place][FORMATS[index].prefix.as_bytes()[place] as usize] |= 1 << index;
            place += 1;
        }
        index += 1;
    }
    begins
}

const OURS: &str = "intercom_";
const JWT: &str = "eyJ";

fn letters(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
}

fn upper(byte: u8) -> bool {
    byte.is_ascii_uppercase() || byte.is_ascii_digit()
}

fn snake(byte: u8) -> bool {
    letters(byte) || byte == b'_'
}

fn kebab(byte: u8) -> bool {
    snake(byte) || byte == b'-'
}

fn dotted(byte: u8) -> bool {
    kebab(byte) || byte == b'.'
}

fn slashed(byte: u8) -> bool {
    letters(byte) || byte == b'/'
}

fn base64(byte: u8) -> bool {
    kebab(byte) || matches!(byte, b'+' | b'/' | b'=')
}

#[derive(Debug, Default)]
pub(super) struct TokenFinder {
    /// Before this, no JSON web token begins: the run of letters up to there was seen to end as none.
    no_jwt: usize,
}

impl TokenFinder {
    /// The token that begins at `at`.
    pub(super) fn at(&mut self, bytes: &[u8], at: usize) -> Option<SecretSpan> {
        let rest = &bytes[at..];
        match rest[0] {
            b'e' if at >= self.no_jwt && rest.starts_with(JWT.as_bytes()) => self.jwt(bytes, at),
            b'i' if rest.starts_with(OURS.as_bytes()) => intercom_token(bytes, at),
            _ => known(bytes, at),
        }
    }

    /// Three parts, of which the last may be cut off; five if it is encrypted.
    fn jwt(&mut self, bytes: &[u8], at: usize) -> Option<SecretSpan> {
        let head = skip(bytes, at, kebab);
        if head - at < 10 || bytes.get(head) != Some(&b'.') || skip(bytes, head + 1, kebab) - head < 10 {
            self.no_jwt = head;
            return None;
        }
        let end = without_dots(bytes, skip(bytes, head, dotted));
        Some(SecretSpan { start: at, end, sort: "web token" })
    }
}

/// The sort of the token that begins a value.
pub(super) fn sort(bytes: &[u8], at: usize) -> Option<&'static str> {
    (at < bytes.len()).then(|| TokenFinder::default().at(bytes, at)).flatten().map(|span| span.sort)
}

/// `intercom_<id>_<secret>`.
fn intercom_token(bytes: &[u8], at: usize) -> Option<SecretSpan> {
    let id = at + OURS.len();
    let secret = id + bytes[id..].iter().take(33).position(|&byte| !letters(byte))?;
    let body = &bytes[secret..];
    if secret - id < 8 || body[0] != b'_' {
        return None;
    }
    let end = skip(bytes, secret + 1, letters);
    let is_hex = bytes[secret + 1..end].iter().take(LOOK).all(u8::is_ascii_hexdigit);
    (is_hex && end - secret > 16).then_some(SecretSpan { start: at, end, sort: "intercom token" })
}

fn known(bytes: &[u8], at: usize) -> Option<SecretSpan> {
    let rest = &bytes[at..];
    let is_it = |format: &TokenFormat| rest.starts_with(format.prefix.as_bytes());
    let &[first, second, third, ..] = rest else { return None };
    let begin = |place: usize, byte: u8| BEGINS[place][usize::from(byte)];
    let mut may = begin(0, first) & begin(1, second) & begin(2, third);
    let format = loop {
        let format = FORMATS.get(may.trailing_zeros() as usize)?;
        if is_it(format) {
            break format;
        }
        may &= may - 1;
    };
    let body = at + format.prefix.len();
    let look = &bytes[body..bytes.len().min(body + LOOK)];
    let length = skip(look, 0, format.body);
    if length < format.least || !is_random(&look[..length]) {
        return None;
    }
    if format.whole_word && !begins_word(bytes, at) && !is_sure(bytes, at, &look[..length]) {
        return None;
    }
    let end = without_dots(bytes, skip(bytes, body + length, format.body));
    // Ids of keys have one length; longer, it is a part of something else.
    if format.sort == "AWS key id" && (end - body != 16 || bytes.get(end).is_some_and(|&byte| snake(byte))) {
        return None;
    }
    Some(SecretSpan { start: at, end, sort: format.sort })
}

/// The full stop behind a token is none of it.
fn without_dots(bytes: &[u8], end: usize) -> usize {
    end - bytes[..end].iter().rev().take_while(|byte| **byte == b'.').count()
}

/// Neither `xxxx` nor words: letters of both sizes or digits, and many different ones.
fn is_random(body: &[u8]) -> bool {
    let has = |of: fn(&u8) -> bool| body.iter().any(of);
    let seen = body.iter().fold(0_u128, |seen, byte| seen | 1 << (byte & 127));
    (has(u8::is_ascii_digit) || (has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase)))
        && seen.count_ones() >= 6
}

/// Tells whether what is glued to a word is a token all the same: no id is this long and this random. The id of an AWS key has
/// capitals only, and must not be the middle of a run of them.
fn is_sure(bytes: &[u8], at: usize, body: &[u8]) -> bool {
    let has = |of: fn(&u8) -> bool| body.iter().any(of);
    let mixed = has(u8::is_ascii_digit) && has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase);
    let id = body.iter().all(|byte| upper(*byte));
    (mixed && body.len() >= 24) || (id && !bytes[..at].last().is_some_and(|byte| upper(*byte)))
}

/// Checks that no word runs into `at`; the letter of an escape such as `\n` does not count as one.
fn begins_word(bytes: &[u8], at: usize) -> bool {
    match bytes[..at] {
        [.., b'\\', b'n' | b'r' | b't'] | [.., b'-', b'-'] | [] => true,
        [.., before] => !is_word(before) || before == b'.',
    }
}

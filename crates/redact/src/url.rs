//! The password of `scheme://user:password@host`.

use super::{SecretSpan, formats, is_blank, is_quote, skip, values};

/// Finds a password at the colon of `://`.
pub(super) fn at(text: &str, at: usize) -> Option<SecretSpan> {
    let bytes = text.as_bytes();
    if !bytes[at..].starts_with(b"://") || at == 0 || !bytes[at - 1].is_ascii_alphanumeric() {
        return None;
    }
    let start = at + 3;
    let end = skip(bytes, start, |byte| {
        !is_blank(byte)
            && !is_quote(byte)
            && !matches!(byte, b'/' | b'?' | b'#' | b'\n' | b'\r' | b'\\' | b'<')
    });
    let user = &text[start..end];
    let user = &user[..user.rfind('@')?];
    let password = start + user.find(':')? + 1;
    let end = start + user.len();
    let value = &text[password..end];
    if value.is_empty() || values::is_reference(value, false) || values::is_placeholder(value) {
        return None;
    }
    Some(SecretSpan { start: password, end, sort: formats::sort(bytes, password).unwrap_or("password") })
}

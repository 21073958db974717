//! Paths of the API, with what people typed percent-encoded into them.

use std::fmt::Write as _;

/// Returns `/api/v1` and the segments, then the query.
pub(super) fn url(segments: &[&str], query: &[(&str, &str)]) -> String {
    let mut url = "/api/v1".to_owned();
    for segment in segments {
        url.push('/');
        encode(segment, &mut url);
    }
    self::query(query, &mut url);
    url
}

/// Appends `?` and the pairs, if there are any.
pub(super) fn query(pairs: &[(&str, &str)], url: &mut String) {
    for (index, (key, value)) in pairs.iter().enumerate() {
        url.push(if index == 0 { '?' } else { '&' });
        encode(key, url);
        url.push('=');
        encode(value, url);
    }
}

/// Encodes everything but the unreserved characters of RFC 3986, so that no text can leave its segment or its value.
fn encode(text: &str, url: &mut String) {
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => url.push(char::from(byte)),
            _ => write!(url, "%{byte:02X}").expect("a string takes every write"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_ids_stay_as_they_are() {
        assert_eq!(url(&["sessions", "ses_01-a.b~c", "stop"], &[]), "/api/v1/sessions/ses_01-a.b~c/stop");
    }

    #[test]
    fn typed_text_cannot_leave_its_segment() {
        assert_eq!(url(&["sessions", "a/b?c#d%e f"], &[]), "/api/v1/sessions/a%2Fb%3Fc%23d%25e%20f");
        assert_eq!(url(&["sessions", "ü\r\n"], &[]), "/api/v1/sessions/%C3%BC%0D%0A");
    }

    #[test]
    fn query_values_are_encoded() {
        let query = [("status", "pending"), ("session", "a&b=c+d")];
        assert_eq!(url(&["clearances"], &query), "/api/v1/clearances?status=pending&session=a%26b%3Dc%2Bd");
    }
}

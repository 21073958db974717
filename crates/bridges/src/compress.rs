//! Gzip for answers to clients that accept it: on a slow line a list of sessions takes a tenth of the time.
//!
//! An answer is compressed as a whole or not at all. Streams pass unchanged: a compressor would hold their events back.

use std::io::Write as _;

use axum::body::{Body, Bytes, HttpBody as _, to_bytes};
use axum::extract::Request;
use axum::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, VARY};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use flate2::Compression;
use flate2::write::GzEncoder;

/// The shortest compressed answer. A shorter one fits into one packet anyway.
const SHORTEST: u64 = 1024;
pub(super) const GZIP: HeaderValue = HeaderValue::from_static("gzip");
const TEXTS: &[&str] = &["application/json", "application/schema+json", "text/plain"];

/// Compresses the answer to a client that accepts gzip, if it is text and its whole length is known.
pub(super) async fn compress(request: Request, next: Next) -> Response {
    let accepted = accepts_gzip(request.headers());
    let mut response = next.run(request).await;
    if !is_long_text(&response) {
        return response;
    }
    response.headers_mut().append(VARY, HeaderValue::from_static("accept-encoding"));
    if !accepted {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let Ok(bytes) = to_bytes(body, usize::MAX).await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let Ok(packed) = tokio::task::spawn_blocking(move || gzip(&bytes, Compression::fast())).await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    parts.headers.remove(CONTENT_LENGTH);
    parts.headers.insert(CONTENT_ENCODING, GZIP);
    Response::from_parts(parts, Body::from(packed))
}

fn is_long_text(response: &Response) -> bool {
    let headers = response.headers();
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    TEXTS.iter().any(|text| kind.starts_with(text))
        && !headers.contains_key(CONTENT_ENCODING)
        && response.body().size_hint().exact().is_some_and(|length| length >= SHORTEST)
}

/// Reads `Accept-Encoding`; a quality of zero refuses.
pub(super) fn accepts_gzip(headers: &HeaderMap) -> bool {
    let all = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    all.flat_map(|value| value.split(',')).any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        let refused = |part: &str| part.strip_prefix("q=").is_some_and(|q| q.parse() == Ok(0.0_f32));
        parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip")) && !parts.any(refused)
    })
}

pub(super) fn gzip(bytes: &[u8], level: Compression) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 4), level);
    let packed = encoder.write_all(bytes).and_then(|()| encoder.finish());
    packed.expect("a vector takes every write").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_says_whether_it_takes_gzip() {
        let accepts = |value: &'static str| {
            accepts_gzip(&HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static(value))]))
        };
        assert!(accepts("gzip, deflate, br, zstd"));
        assert!(accepts("br;q=1.0, GZIP;q=0.5"));
        assert!(!accepts("gzip;q=0, br"));
        assert!(!accepts("gzip; q=0.0"));
        assert!(!accepts("identity"));
        assert!(!accepts_gzip(&HeaderMap::new()));
    }
}

//! The web console's files, embedded in the binary, and the headers that confine its pages.

use std::sync::{LazyLock, OnceLock};

use axum::body::Bytes;
use axum::extract::Request;
use axum::http::header::{self, HeaderName, HeaderValue};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use flate2::Compression;
use ring::digest::{SHA256, digest};

use super::{no_such_method, no_such_path};
use crate::compress::{GZIP, accepts_gzip, gzip};
use intercom_types::hex;

/// The content security policy: only our own files, no framing, and no forms or base addresses elsewhere.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
     connect-src 'self'; font-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'self'; \
     frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

macro_rules! files {
    ($($path:literal),* $(,)?) => {
        &[$(($path, include_bytes!(concat!("../../../../assets", $path)).as_slice())),*]
    };
}

/// The files by the path at which they are served.
const FILES: &[(&str, &[u8])] = files![
    "/index.html",
    "/style.css",
    "/icon.svg",
    "/manifest.json",
    "/app.js",
    "/js/address.js",
    "/js/api.js",
    "/js/audit.js",
    "/js/auditwords.js",
    "/js/bind.js",
    "/js/card.js",
    "/js/card/buttons.js",
    "/js/card/decision.js",
    "/js/card/guarded.js",
    "/js/card/position.js",
    "/js/card/request.js",
    "/js/charts.js",
    "/js/charts/bars.js",
    "/js/checklist.js",
    "/js/diff.js",
    "/js/diffview.js",
    "/js/dom.js",
    "/js/figures.js",
    "/js/fleet.js",
    "/js/fleet/row.js",
    "/js/fold.js",
    "/js/inbox.js",
    "/js/keys.js",
    "/js/live.js",
    "/js/markdown.js",
    "/js/notify.js",
    "/js/page.js",
    "/js/policy.js",
    "/js/policy/grants.js",
    "/js/policy/rules.js",
    "/js/policy/trial.js",
    "/js/prompts.js",
    "/js/prompts/queue.js",
    "/js/question.js",
    "/js/select.js",
    "/js/session.js",
    "/js/session/actions.js",
    "/js/session/facts.js",
    "/js/session/header.js",
    "/js/session/requests.js",
    "/js/settings.js",
    "/js/signin.js",
    "/js/store.js",
    "/js/stream.js",
    "/js/syntax.js",
    "/js/table.js",
    "/js/text.js",
    "/js/timeline.js",
    "/js/timeline/bodies.js",
    "/js/timeline/entry.js",
    "/js/virtual.js",
    "/js/virtual/heights.js",
    "/js/virtual/reader.js",
];

struct ConsoleFile {
    path: &'static str,
    kind: &'static str,
    plain: EncodedFile,
    /// Created for the first browser that asks.
    packed: OnceLock<EncodedFile>,
}

/// The bytes of a file as sent, with their tag.
struct EncodedFile {
    bytes: Bytes,
    tag: HeaderValue,
}

impl From<Bytes> for EncodedFile {
    fn from(bytes: Bytes) -> Self {
        let hash = hex(&digest(&SHA256, &bytes).as_ref()[..12]);
        let tag = HeaderValue::from_str(&format!("\"{hash}\"")).unwrap_or(HeaderValue::from_static("\"\""));
        Self { bytes, tag }
    }
}

static SERVED: LazyLock<Vec<ConsoleFile>> = LazyLock::new(|| {
    let file = |(path, bytes): &(&'static str, &'static [u8])| {
        let plain = EncodedFile::from(Bytes::from_static(bytes));
        ConsoleFile { path, kind: kind(path), plain, packed: OnceLock::new() }
    };
    FILES.iter().map(file).collect()
});

fn kind(path: &str) -> &'static str {
    match path.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("json") => "application/manifest+json",
        _ => "application/octet-stream",
    }
}

/// Serves the console's files for every path outside of the API.
pub(super) async fn serve(request: Request) -> Response {
    let (parts, _) = request.into_parts();
    let path = if parts.uri.path() == "/" { "/index.html" } else { parts.uri.path() };
    let Some(file) = SERVED.iter().find(|file| file.path == path) else {
        return no_such_path(parts.uri).await.into_response();
    };
    match parts.method {
        Method::GET | Method::HEAD => answer(file, &parts.headers),
        method => no_such_method(method, parts.uri).await.into_response(),
    }
}

fn answer(file: &ConsoleFile, headers: &HeaderMap) -> Response {
    let packed = accepts_gzip(headers);
    let form = if packed {
        file.packed.get_or_init(|| gzip(&file.plain.bytes, Compression::best()).into())
    } else {
        &file.plain
    };
    // Revalidated each time: after an upgrade no page may mix old and new files.
    let about = [
        (header::ETAG, form.tag.clone()),
        (header::VARY, HeaderValue::from_static("accept-encoding")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (header::CONTENT_TYPE, HeaderValue::from_static(file.kind)),
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
        (HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
    ];
    let same = headers.get(header::IF_NONE_MATCH).is_some_and(|known| *known == form.tag);
    if same {
        return (StatusCode::NOT_MODIFIED, about).into_response();
    }
    let mut response = (about, form.bytes.clone()).into_response();
    if packed {
        response.headers_mut().insert(header::CONTENT_ENCODING, GZIP);
    }
    response
}

/// Sets the headers of every answer: no browser may guess its type, show it to another page, or cache agent text.
pub(super) async fn protect(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    let own = HeaderValue::from_static("same-origin");
    headers.insert(HeaderName::from_static("cross-origin-resource-policy"), own);
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assets() -> std::path::PathBuf {
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../assets").into()
    }

    #[test]
    fn every_file_of_the_console_is_served() {
        let mut dirs = vec![assets()];
        while let Some(dir) = dirs.pop() {
            for entry in dir.read_dir().unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    dirs.push(path);
                    continue;
                }
                let name = format!("/{}", path.strip_prefix(assets()).unwrap().display());
                // Types are for the checks of the sources; no browser reads them.
                if name.ends_with(".d.ts") {
                    continue;
                }
                assert!(FILES.iter().any(|(known, _)| *known == name), "{name} is not in the table");
                assert_ne!(kind(&name), "application/octet-stream", "{name}");
            }
        }
    }

    #[test]
    fn no_script_writes_html_and_nothing_comes_from_elsewhere() {
        const NEVER: &[&str] = &[
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "<script>",
            "onclick=",
            "style=",
        ];
        for (path, bytes) in FILES {
            let text = String::from_utf8_lossy(bytes);
            for never in NEVER {
                assert!(!text.contains(never), "{path} has {never}");
            }
            let elsewhere = text.replace("http://www.w3.org/", "");
            for start in ["src=\"http", "href=\"http", "url(http", "from \"http", "fetch(\"http"] {
                assert!(!elsewhere.contains(start), "{path} has {start}");
            }
        }
    }
}

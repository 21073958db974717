//! Protection of the port from foreign web pages and from guesses of tokens.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};

use axum::http::{HeaderMap, Method, StatusCode, header};

use super::error::ApiError;
use intercom_types::Time;

/// The limit on refused tokens per address within a window.
const TRIES: u32 = 10;
const WINDOW_MILLIS: i64 = 60_000;
/// The limit on remembered addresses; beyond it, the oldest are forgotten.
const ADDRESSES: usize = 1024;

/// Refuses requests of foreign web pages. A page that resolves its own name to our address (DNS rebinding) has that
/// name in `Host`; a page that only sends requests has its own `Origin`.
pub(super) fn host_and_origin(
    headers: &HeaderMap,
    local: SocketAddr,
    hosts: &[String],
) -> Result<(), ApiError> {
    let refuse = |code, message: &str| Err(ApiError::new(StatusCode::FORBIDDEN, code, message));
    let mut named = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (named.next(), named.next()) else {
        return Err(ApiError::bad_request("the request must have exactly one Host header"));
    };
    let ours = |authority: &str| is_ours(authority, local, hosts);
    if !host.to_str().is_ok_and(ours) {
        return refuse("bad_host", "this name is not one of the daemon's: see [api] hosts");
    }
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let authority = origin
        .to_str()
        .ok()
        .and_then(|origin| origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://")));
    if authority.is_some_and(ours) {
        return Ok(());
    }
    refuse("bad_origin", "requests from other web pages are refused")
}

/// Checks requests with a cookie. A browser also sends our cookie with requests of other pages on this machine, because
/// a site ignores ports. `Sec-Fetch-Site` is trusted where a browser sends it; a write must also show that our own page
/// made it.
pub(super) fn refuse_foreign_page(method: &Method, headers: &HeaderMap) -> Result<(), ApiError> {
    let site = headers.get("sec-fetch-site").map(|value| value.to_str().unwrap_or_default());
    if site.is_some_and(|site| !matches!(site, "same-origin" | "none")) {
        return Err(foreign());
    }
    if matches!(*method, Method::GET | Method::HEAD) {
        return Ok(());
    }
    own_page(headers)
}

/// Checks for an `Origin`, which [`host_and_origin`] has found to be ours, and for a header that a foreign page cannot
/// send.
pub(super) fn own_page(headers: &HeaderMap) -> Result<(), ApiError> {
    if headers.contains_key(header::ORIGIN) && headers.get("x-intercom").is_some_and(|value| value == "1") {
        return Ok(());
    }
    Err(foreign())
}

/// Checks a WebSocket with a cookie. Any page may open one to any address and read it, with our cookie and without
/// headers of its own, so the page must be from the very address that it calls.
pub(crate) fn own_address(headers: &HeaderMap) -> Result<(), ApiError> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let origin = text(header::ORIGIN).and_then(|origin| origin.split_once("://"));
    let (Some((_, origin)), Some(host)) = (origin, text(header::HOST)) else { return Err(foreign()) };
    if origin.eq_ignore_ascii_case(host) { Ok(()) } else { Err(foreign()) }
}

fn foreign() -> ApiError {
    ApiError::new(StatusCode::FORBIDDEN, "bad_origin", "requests from other web pages are refused")
        .hint("a program should use a token, not a cookie")
}

/// Returns true for an address of ours, `localhost` or a configured name, with our port or none.
fn is_ours(authority: &str, local: SocketAddr, hosts: &[String]) -> bool {
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (authority, None),
    };
    if port.is_some_and(|port| port.parse() != Ok(local.port())) {
        return false;
    }
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    // An IP address cannot be rebound; it must still be the one that was called.
    if let Ok(address) = bare.parse::<IpAddr>() {
        return address.to_canonical() == local.ip().to_canonical();
    }
    let same = |known: &str| host.eq_ignore_ascii_case(known);
    (same("localhost") && local.ip().to_canonical().is_loopback()) || hosts.iter().any(|known| same(known))
}

/// The counts of refused tokens by address.
#[derive(Debug, Default)]
pub(super) struct RefusedTokens(Mutex<HashMap<IpAddr, FailureWindow>>);

#[derive(Debug, Clone, Copy)]
struct FailureWindow {
    since: Time,
    count: u32,
}

pub(super) struct FailureCount {
    pub(super) is_first: bool,
    /// The end of the wait, once there were too many.
    pub(super) wait_seconds: Option<i64>,
}

impl RefusedTokens {
    /// Counts a refused token. Callers with a valid token are never counted, so others at their address cannot lock
    /// them out.
    pub(super) fn count(&self, from: IpAddr, now: Time) -> FailureCount {
        let from = neighbourhood(from);
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh =
            |window: &FailureWindow| now.millis().saturating_sub(window.since.millis()) < WINDOW_MILLIS;
        if windows.len() >= ADDRESSES && !windows.contains_key(&from) {
            windows.retain(|_, window| fresh(window));
            if windows.len() >= ADDRESSES {
                windows.clear(); // an attacker with very many addresses must not exhaust the memory
            }
        }
        let window = windows.entry(from).or_insert(FailureWindow { since: now, count: 0 });
        if !fresh(window) {
            *window = FailureWindow { since: now, count: 0 };
        }
        window.count += 1;
        let left = (window.since.millis() + WINDOW_MILLIS - now.millis()).max(1000) / 1000;
        FailureCount { is_first: window.count == 1, wait_seconds: (window.count > TRIES).then_some(left) }
    }
}

/// Returns the counted part of an address: a host can have any IPv6 address of its network.
fn neighbourhood(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.into(),
        IpAddr::V6(v6) => std::net::Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX)).into(),
    }
}

/// A limit on repeated notices: one per window for each session, or user.
#[derive(Debug)]
pub(super) struct NoticeLimiter<Key>(Mutex<HashMap<Key, Time>>);

impl<Key> Default for NoticeLimiter<Key> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<Key: Eq + Hash> NoticeLimiter<Key> {
    pub(super) fn is_news(&self, about: Key, now: Time) -> bool {
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        noted.retain(|_, at| now.millis().saturating_sub(at.millis()) < WINDOW_MILLIS);
        if noted.contains_key(&about) {
            return false;
        }
        noted.insert(about, now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(headers: &[(header::HeaderName, &str)], local: &str, hosts: &[&str]) -> Option<String> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(name.clone(), value.parse().unwrap());
        }
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        host_and_origin(&map, local.parse().unwrap(), &hosts).err().map(|error| error.code().to_owned())
    }

    #[test]
    fn only_our_own_names_are_answered() {
        let host = |name: &str| code(&[(header::HOST, name)], "127.0.0.1:7411", &["box.example"]);
        for fine in [
            "127.0.0.1:7411",
            "localhost:7411",
            "LOCALHOST:7411",
            "localhost",
            "box.example",
            "box.example:7411",
        ] {
            assert_eq!(host(fine), None, "{fine}");
        }
        for bad in [
            "evil.example",
            "evil.example:7411",
            "127.0.0.1:80",
            "127.0.0.1.evil.example:7411",
            "10.0.0.1:7411",
            "",
            "localhost:7411:7411",
            "[::1]:7411",
        ] {
            assert_eq!(host(bad).as_deref(), Some("bad_host"), "{bad}");
        }
        assert_eq!(code(&[(header::HOST, "[::1]:7411")], "[::1]:7411", &[]), None);
        assert_eq!(code(&[], "127.0.0.1:1", &[]).as_deref(), Some("bad_request"));
        let twice = [(header::HOST, "localhost"), (header::HOST, "localhost")];
        assert_eq!(code(&twice, "127.0.0.1:1", &[]).as_deref(), Some("bad_request"));
        assert_eq!(code(&[(header::HOST, "localhost")], "10.0.0.1:7411", &[]).as_deref(), Some("bad_host"));
    }

    #[test]
    fn pages_from_elsewhere_are_refused() {
        let origin = |name: &str| {
            code(
                &[(header::HOST, "localhost:7411"), (header::ORIGIN, name)],
                "127.0.0.1:7411",
                &["box.example"],
            )
        };
        assert_eq!(origin("http://localhost:7411"), None);
        assert_eq!(origin("https://box.example"), None);
        for bad in [
            "http://evil.example",
            "null",
            "http://localhost:80",
            "file://",
            "http://localhost:7411.evil.example",
        ] {
            assert_eq!(origin(bad).as_deref(), Some("bad_origin"), "{bad}");
        }
    }

    #[test]
    fn a_cookie_is_not_enough_for_a_write() {
        let headers = |all: &[(&'static str, &str)]| -> HeaderMap {
            all.iter()
                .map(|(name, value)| (header::HeaderName::from_static(name), value.parse().unwrap()))
                .collect()
        };
        let fine = |method: Method, all: &[(&'static str, &str)]| {
            refuse_foreign_page(&method, &headers(all)).is_ok()
        };
        let (origin, ours) = (("origin", "http://localhost:7411"), ("x-intercom", "1"));
        assert!(fine(Method::GET, &[]));
        assert!(fine(Method::POST, &[origin, ours]));
        assert!(fine(Method::POST, &[origin, ours, ("sec-fetch-site", "same-origin")]));
        for (method, bad) in [
            (Method::POST, &[origin][..]),
            (Method::POST, &[ours]),
            (Method::DELETE, &[]),
            (Method::POST, &[origin, ("x-intercom", "2")]),
            (Method::POST, &[origin, ours, ("sec-fetch-site", "same-site")]),
            (Method::GET, &[("sec-fetch-site", "cross-site")]),
        ] {
            assert!(!fine(method, bad), "{bad:?}");
        }
    }

    #[test]
    fn a_page_of_another_port_is_another_page() {
        let fine = |origin: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, "localhost:7411".parse().unwrap());
            if let Some(origin) = origin {
                headers.insert(header::ORIGIN, origin.parse().unwrap());
            }
            own_address(&headers).is_ok()
        };
        assert!(fine(Some("http://localhost:7411")));
        for bad in [None, Some("http://localhost"), Some("http://localhost:80"), Some("null"), Some("")] {
            assert!(!fine(bad), "{bad:?}");
        }
    }

    #[test]
    fn guessing_is_slowed_down_and_forgotten_after_a_while() {
        let (failures, from) = (RefusedTokens::default(), "10.0.0.1".parse().unwrap());
        let at = |millis| failures.count(from, Time::from_millis(millis));
        assert!(at(0).is_first);
        assert!((1..10).all(|n| at(n).wait_seconds.is_none()));
        assert_eq!(at(10).wait_seconds, Some(59));
        assert!(failures.count("10.0.0.2".parse().unwrap(), Time::from_millis(10)).is_first);
        assert!(at(WINDOW_MILLIS).is_first);
    }
}

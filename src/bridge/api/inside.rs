//! The API for another bridge of this process: the same endpoints, roles, checks, records and answers as for everybody.

use std::fmt::Write as _;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::connect_info::ConnectInfo;
use axum::http::{Method, Request, header};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tower::ServiceExt;

use super::access::{Peer, Person};

#[derive(Debug, Clone)]
pub struct Inside(Router);

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub body: Value,
}

impl Answer {
    pub fn is_ok(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Nothing was done, and the same may succeed later.
    pub fn is_fault(&self) -> bool {
        self.status >= 500
    }

    pub fn code(&self) -> &str {
        self.body.pointer("/error/code").and_then(Value::as_str).unwrap_or_default()
    }

    /// What is wrong and what to do, in one sentence.
    pub fn why(&self) -> String {
        let part = |name: &str| self.body.pointer(&format!("/error/{name}")).and_then(Value::as_str);
        let message = part("message").unwrap_or("it failed");
        part("hint").map_or_else(|| message.to_owned(), |hint| format!("{message}: {hint}"))
    }

    /// `None` if it was refused, or is not that.
    pub fn read<T: DeserializeOwned>(self) -> Option<T> {
        if self.is_ok() { serde_json::from_value(self.body).ok() } else { None }
    }
}

impl Inside {
    pub(super) fn new(router: Router) -> Self {
        Self(router)
    }

    pub async fn get(&self, who: &Person, path: &str) -> Answer {
        self.ask(who, Method::GET, path, Body::empty(), None).await
    }

    /// With a key, the same request is not carried out twice.
    pub async fn post(&self, who: &Person, path: &str, body: &Value, key: Option<&str>) -> Answer {
        self.ask(who, Method::POST, path, Body::from(body.to_string()), key).await
    }

    pub async fn delete(&self, who: &Person, path: &str) -> Answer {
        self.ask(who, Method::DELETE, path, Body::empty(), None).await
    }

    async fn ask(&self, who: &Person, method: Method, path: &str, body: Body, key: Option<&str>) -> Answer {
        let failed = |status: u16| Answer { status, body: Value::Null };
        let mut request = Request::builder()
            .method(method)
            .uri(format!("/api/v1{path}"))
            .header(header::CONTENT_TYPE, "application/json")
            .extension(ConnectInfo(Peer::Inside(who.clone())));
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        // A path is made of ids and of what people typed, which may be anything.
        let Ok(request) = request.body(body) else { return failed(404) };
        let Ok(response) = self.0.clone().oneshot(request).await;
        let status = response.status().as_u16();
        match to_bytes(response.into_body(), usize::MAX).await {
            Ok(bytes) => Answer { status, body: serde_json::from_slice(&bytes).unwrap_or(Value::Null) },
            Err(_) => failed(500),
        }
    }
}

/// A part of a path, whatever a person typed.
pub fn quoted(part: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    part.bytes().fold(String::new(), |mut path, byte| {
        if plain(&byte) {
            path.push(char::from(byte));
        } else {
            write!(path, "%{byte:02X}").expect("a string takes every write");
        }
        path
    })
}

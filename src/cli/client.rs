//! The client of the daemon: HTTP/1.1, one connection per request.

use std::fmt;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::task::JoinSet;

use super::failure::{CliFailure, DaemonRefusal};
use super::lost_daemon;
use super::transport::Transport;
use super::url::url;
use intercom_types::List;

/// The time limit of a read. Commands have none, because they may take long.
const READ_LIMIT: Duration = Duration::from_secs(30);
const PAGE: &str = "1000";

#[derive(Debug, Clone)]
pub(super) struct DaemonClient {
    transport: Transport,
    /// `intercom` with the flags that lead to this daemon, for advice.
    command_prefix: String,
}

/// The daemon's answer, unchanged.
#[derive(Debug)]
pub(super) struct DaemonAnswer {
    pub(super) status: u16,
    pub(super) body: String,
}

impl DaemonAnswer {
    pub(super) fn parse<T: DeserializeOwned>(&self) -> anyhow::Result<T> {
        parse(&self.body)
    }
}

pub(super) fn parse<T: DeserializeOwned>(body: &str) -> anyhow::Result<T> {
    serde_json::from_str(body).context("the daemon's answer is not what this version expects")
}

/// A whole list of any number of pages.
#[derive(Debug)]
pub(super) struct DaemonListing {
    pub(super) body: String,
}

type Page = List<Box<RawValue>>;

impl DaemonListing {
    pub(super) fn items<T: DeserializeOwned>(&self) -> anyhow::Result<Vec<T>> {
        parse::<Page>(&self.body)?.items.iter().map(|item| parse(item.get())).collect()
    }
}

/// The head of an answer whose body is not read yet. The connection lives as long as this value.
#[derive(Debug)]
pub(super) struct StreamedAnswer {
    pub(super) body: Incoming,
    status: u16,
    _connection: JoinSet<()>,
}

impl DaemonClient {
    pub(super) fn new(transport: Transport, call: &str) -> Self {
        Self { transport, command_prefix: call.to_owned() }
    }

    pub(super) fn command_prefix(&self) -> &str {
        &self.command_prefix
    }

    pub(super) fn transport(&self) -> &Transport {
        &self.transport
    }

    pub(super) async fn get(&self, url: &str) -> anyhow::Result<DaemonAnswer> {
        tokio::time::timeout(READ_LIMIT, self.call(Method::GET, url, None)).await.map_err(|_| {
            CliFailure::failed(format!("the daemon did not answer within {}s", READ_LIMIT.as_secs()))
                .hint(format!("check it with `{} doctor`", self.command_prefix))
        })?
    }

    pub(super) async fn post(&self, url: &str, body: &Value) -> anyhow::Result<DaemonAnswer> {
        self.call(Method::POST, url, Some(body)).await
    }

    pub(super) async fn delete(&self, url: &str) -> anyhow::Result<DaemonAnswer> {
        self.call(Method::DELETE, url, None).await
    }

    /// Returns all pages of a list. A single page is unchanged; several are joined, with their items unchanged.
    pub(super) async fn list(
        &self,
        segments: &[&str],
        query: &[(&str, &str)],
    ) -> anyhow::Result<DaemonListing> {
        let first = self.get(&url(segments, &[query, &[("limit", PAGE)]].concat())).await?;
        let Page { mut items, next } = first.parse()?;
        let Some(mut next) = next else { return Ok(DaemonListing { body: first.body }) };
        loop {
            let query = [query, &[("limit", PAGE), ("cursor", &next)]].concat();
            let page: Page = self.get(&url(segments, &query)).await?.parse()?;
            items.extend(page.items);
            match page.next {
                Some(further) => next = further,
                None => break,
            }
        }
        Ok(DaemonListing { body: serde_json::to_string(&Page::whole(items))? })
    }

    /// Requests an answer of any length, which is read piece by piece; a refusal is an error.
    pub(super) async fn download(&self, url: &str) -> anyhow::Result<Download> {
        let request = Request::builder().method(Method::GET).uri(url);
        let reply =
            self.send(request, Bytes::new()).await.map_err(|error| self.explain(error, false, url))?;
        if reply.is_success() {
            return Ok(Download(reply));
        }
        let answer = reply.read().await.map_err(|error| self.explain(error, false, url))?;
        Err(DaemonRefusal::new(answer.status, answer.body).into())
    }

    /// Sends a request and reads the whole answer; a refusal is an error.
    async fn call(&self, method: Method, url: &str, body: Option<&Value>) -> anyhow::Result<DaemonAnswer> {
        let changes = method != Method::GET;
        let mut request = Request::builder().method(method).uri(url).header(ACCEPT, "application/json");
        if body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let body = body.map_or_else(Bytes::new, |body| body.to_string().into());
        let reply = self.send(request, body).await.map_err(|error| self.explain(error, changes, url))?;
        let answer = reply.read().await.map_err(|error| self.explain(error, changes, url))?;
        if (200..300).contains(&answer.status) {
            Ok(answer)
        } else {
            Err(DaemonRefusal::new(answer.status, answer.body).into())
        }
    }

    /// Adds advice to a broken connection: the way back to the daemon and, after a command, the place that shows
    /// whether it was done.
    fn explain(&self, error: anyhow::Error, changes: bool, url: &str) -> anyhow::Error {
        if !error.is::<BrokenConnection>() {
            return error;
        }
        let back = lost_daemon::restart_hint(self);
        let failure = CliFailure::failed(error.to_string());
        let hint = match lost_daemon::command_to_check(url) {
            _ if !changes => back,
            Some(place) => {
                format!("{back}, then check whether it was done: `{} {place}`", self.command_prefix)
            }
            None => format!("{back}, and check whether it was done before you try again"),
        };
        failure.hint(hint).into()
    }

    /// Sends a request and returns as soon as the head of the answer has arrived.
    pub(super) async fn send(
        &self,
        request: hyper::http::request::Builder,
        body: Bytes,
    ) -> anyhow::Result<StreamedAnswer> {
        let stream = self.transport.connect().await?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|_| BrokenConnection)?;
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            connection.await.ok(); // the request fails as well, with the error
        });
        let token = self.transport.token().map(|token| format!("Bearer {token}"));
        let request = token.into_iter().fold(request, |request, token| request.header(AUTHORIZATION, token));
        let request = request.header(HOST, self.transport.host()).body(Full::new(body))?;
        let response: Response<Incoming> =
            sender.send_request(request).await.map_err(|_| BrokenConnection)?;
        let status = response.status().as_u16();
        Ok(StreamedAnswer { status, body: response.into_body(), _connection: tasks })
    }
}

/// An answer that is read piece by piece.
#[derive(Debug)]
pub(super) struct Download(StreamedAnswer);

impl Download {
    /// Returns the next bytes; `None` at the end.
    pub(super) async fn next(&mut self) -> anyhow::Result<Option<Bytes>> {
        while let Some(frame) = self.0.body.frame().await {
            if let Ok(bytes) = frame.map_err(|_| BrokenConnection)?.into_data() {
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }
}

impl StreamedAnswer {
    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    pub(super) async fn read(self) -> anyhow::Result<DaemonAnswer> {
        let body = self.body.collect().await.map_err(|_| BrokenConnection)?.to_bytes();
        Ok(DaemonAnswer { status: self.status, body: String::from_utf8_lossy(&body).into_owned() })
    }
}

/// The connection broke between the request and the end of the answer.
#[derive(Debug)]
struct BrokenConnection;

impl fmt::Display for BrokenConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the daemon went away before it answered")
    }
}

impl std::error::Error for BrokenConnection {}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::UnixListener;

    use super::*;

    /// Answers one connection after the other with the given bytes, and tells what it was asked.
    fn fake(
        answers: &'static [&'static str],
    ) -> (tempfile::TempDir, DaemonClient, mpsc::Receiver<String>, JoinSet<()>) {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("sock")).unwrap();
        let client = DaemonClient::new(Transport::Unix(dir.path().join("sock")), "intercom");
        let (sender, asked) = mpsc::channel();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            for answer in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = vec![0; 65536];
                let length = stream.read(&mut request).await.unwrap();
                sender.send(String::from_utf8(request[..length].to_vec()).unwrap()).unwrap();
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        (dir, client, asked, tasks)
    }

    #[tokio::test]
    async fn an_answer_is_kept_as_it_came() {
        let (_dir, client, asked, _tasks) =
            fake(&["HTTP/1.1 201 Created\r\ncontent-length: 9\r\n\r\n{\"b\": 1}\n"]);
        let answer = client.post("/api/v1/sessions", &serde_json::json!({"agent": "demo"})).await.unwrap();
        assert_eq!((answer.status, answer.body.as_str()), (201, "{\"b\": 1}\n"));
        let request = asked.recv().unwrap();
        assert!(request.starts_with("POST /api/v1/sessions HTTP/1.1\r\n"), "{request}");
        assert!(request.ends_with("{\"agent\":\"demo\"}"), "{request}");
    }

    #[tokio::test]
    async fn the_pages_of_a_list_are_joined() {
        let (_dir, client, asked, _tasks) = fake(&[
            "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{\"items\":[1.10],\"next\":\"a b\"}",
            "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{\"items\":[{\"z\":1,\"a\":2}],\"next\":null}",
        ]);
        let list = client.list(&["sessions"], &[("all", "true")]).await.unwrap();
        assert_eq!(list.body, r#"{"items":[1.10,{"z":1,"a":2}],"next":null}"#);
        assert!(asked.recv().unwrap().starts_with("GET /api/v1/sessions?all=true&limit=1000 HTTP"));
        assert!(
            asked.recv().unwrap().starts_with("GET /api/v1/sessions?all=true&limit=1000&cursor=a%20b HTTP")
        );
    }

    #[tokio::test]
    async fn a_refusal_is_an_error_with_the_daemons_words() {
        let (_dir, client, _asked, _tasks) = fake(&[
            "HTTP/1.1 409 Conflict\r\nconnection: close\r\n\r\n{\"error\":{\"code\":\"ended\",\"message\":\"it has ended\",\"hint\":null}}",
        ]);
        let error = client.get("/api/v1/x").await.unwrap_err();
        let refusal = error.downcast_ref::<DaemonRefusal>().unwrap();
        assert_eq!((refusal.status, refusal.code.as_str()), (409, "ended"));
        assert_eq!(error.to_string(), "it has ended");
    }

    #[tokio::test]
    async fn a_missing_daemon_and_a_dying_one_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let client = DaemonClient::new(Transport::Unix(dir.path().join("none")), "intercom");
        let error = client.get("/api/v1/health").await.unwrap_err();
        assert_eq!(error.to_string(), "no daemon is running; start one with `intercom daemon restart`");
        let (_dir, client, _asked, _tasks) = fake(&[""]);
        let error = client.get("/api/v1/health").await.unwrap_err();
        assert_eq!(error.to_string(), "the daemon went away before it answered");
    }
}

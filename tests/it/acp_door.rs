//! How an ACP client gets in: HTTP/1.1 and HTTP/2, streams and sockets, and who does not.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::{http1, http2};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use intercom_testkit::harness::{Daemon, PATIENCE, http_over};
use serde_json::{Value, json};
use tokio::net::UnixStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::access::{token, with_port};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Http {
    One,
    Two,
}

/// One connection per request with HTTP/1.1, one for all of them with HTTP/2.
struct Client<'a> {
    daemon: &'a Daemon,
    two: Option<http2::SendRequest<Full<Bytes>>>,
}

pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("it takes too long")
}

impl<'a> Client<'a> {
    async fn new(daemon: &'a Daemon, http: Http) -> Self {
        let two = match http {
            Http::One => None,
            Http::Two => {
                let stream = TokioIo::new(UnixStream::connect(daemon.socket()).await.unwrap());
                let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
                tokio::spawn(connection);
                Some(sender)
            }
        };
        Self { daemon, two }
    }

    async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Response<Incoming> {
        let mut request = Request::builder().method(method).uri(format!("http://localhost{path}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = Full::new(Bytes::copy_from_slice(body.as_bytes()));
        if let Some(two) = &self.two {
            return soon(two.clone().send_request(request.body(body).unwrap())).await.unwrap();
        }
        let stream = TokioIo::new(UnixStream::connect(self.daemon.socket()).await.unwrap());
        let (mut sender, connection) = http1::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        let request = request.uri(path).header("host", "localhost").body(body).unwrap();
        soon(sender.send_request(request)).await.unwrap()
    }
}

async fn read(response: Response<Incoming>) -> (u16, Value) {
    let status = response.status().as_u16();
    let body = soon(response.into_body().collect()).await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
}

pub(crate) type Socket = WebSocketStream<UnixStream>;

pub(crate) async fn socket(daemon: &Daemon, query: &str) -> Result<(Socket, Option<String>), Error> {
    let stream = UnixStream::connect(daemon.socket()).await.unwrap();
    let url = format!("ws://localhost/acp{query}");
    let (socket, response) =
        soon(tokio_tungstenite::client_async(url.into_client_request()?, stream)).await?;
    let name = response.headers().get("acp-connection-id");
    Ok((socket, name.map(|name| name.to_str().unwrap().to_owned())))
}

pub(crate) async fn hear(socket: &mut Socket) -> Value {
    loop {
        match soon(socket.next()).await.unwrap().unwrap() {
            Message::Text(text) => return serde_json::from_str(text.as_str()).unwrap(),
            Message::Close(frame) => panic!("{frame:?}"),
            _ => {}
        }
    }
}

pub(crate) fn initialize(id: u64) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": "initialize", "params": { "protocolVersion": 1 } })
}

#[tokio::test]
async fn the_api_speaks_http_1_and_http_2_on_the_same_socket() {
    let daemon = Daemon::start();
    for http in [Http::One, Http::Two] {
        let client = Client::new(&daemon, http).await;
        for _ in 0..3 {
            let (status, body) = read(client.send("GET", "/api/v1/health", &[], "").await).await;
            assert_eq!((status, &body["status"]), (200, &json!("ok")), "{http:?}");
        }
    }
}

#[tokio::test]
async fn with_http_2_a_web_page_from_elsewhere_is_turned_away_as_well() {
    let (daemon, address) = with_port("");
    let ana = token(&daemon, "ana", "viewer");
    let stream = TokioIo::new(tokio::net::TcpStream::connect(&address).await.unwrap());
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    for (host, more, expected) in [
        (address.as_str(), None, 200),
        ("evil.example", None, 403),
        (address.as_str(), Some(("host", "evil.example")), 400),
        ("evil.example", Some(("host", address.as_str())), 400),
        (address.as_str(), Some(("origin", "http://evil.example")), 403),
    ] {
        let mut request = Request::builder().uri(format!("http://{host}/api/v1/sessions"));
        request = request.header("authorization", format!("Bearer {ana}"));
        if let Some((name, value)) = more {
            request = request.header(name, value);
        }
        let response =
            soon(sender.send_request(request.body(Full::<Bytes>::default()).unwrap())).await.unwrap();
        assert_eq!(response.status().as_u16(), expected, "{host} {more:?}");
    }
}

#[tokio::test]
async fn a_web_socket_carries_messages_both_ways() {
    let daemon = Daemon::start();
    let (mut socket, name) = socket(&daemon, "?agent=x&on_close=keep&relay=0").await.unwrap();
    assert!(name.is_some_and(|name| name.starts_with("con_")));
    socket.send(Message::Binary(vec![0; 100].into())).await.unwrap();
    socket.send(Message::text(initialize(7).to_string())).await.unwrap();
    let answer = hear(&mut socket).await;
    assert_eq!((&answer["id"], &answer["result"]["protocolVersion"]), (&json!(7), &json!(1)), "{answer}");
    // A frame in two halves is one message.
    let text = json!({ "jsonrpc": "2.0", "id": 8, "method": "no/such" }).to_string();
    let (first, second) = text.split_at(20);
    let frame = |text: &str, op: u8| {
        let mut bytes = vec![op, 0x80 | u8::try_from(text.len()).unwrap(), 0, 0, 0, 0];
        bytes.extend(text.as_bytes());
        bytes
    };
    let stream = socket.get_mut();
    for bytes in [frame(first, 0x01), frame(second, 0x80)] {
        for byte in bytes {
            tokio::io::AsyncWriteExt::write_all(stream, &[byte]).await.unwrap();
        }
    }
    assert_eq!(hear(&mut socket).await["error"]["code"], -32601);
    let (_, figures) = daemon.get("/metrics");
    for figure in ["connections 1", "messages_in 2", "messages_out 2"] {
        assert!(figures.as_str().unwrap().contains(&format!("intercom_acp_{figure}\n")), "{figures}");
    }
}

#[tokio::test]
async fn what_is_no_web_socket_is_told_so() {
    let daemon = Daemon::start();
    for query in ["?agnet=x", "?on_close=maybe", "?relay=2"] {
        match socket(&daemon, query).await {
            Err(Error::Http(response)) => assert_eq!(response.status(), 400, "{query}"),
            other => panic!("{query}: {other:?}"),
        }
    }
    let ask = |headers: &str| {
        let stream = std::os::unix::net::UnixStream::connect(daemon.socket()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let head = format!("GET /acp HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\n{headers}\r\n");
        http_over(stream, &head, b"").0
    };
    let key = "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    assert_eq!(ask("connection: close\r\n"), 400);
    assert_eq!(ask(&format!("connection: upgrade\r\nsec-websocket-version: 8\r\n{key}")), 426);
    assert_eq!(ask("connection: upgrade\r\nsec-websocket-version: 13\r\n"), 400);
    assert_eq!(ask("connection: upgrade\r\nsec-websocket-version: 13\r\nsec-websocket-key: x\r\n"), 400);
    assert_eq!(ask(&format!("connection: upgrade\r\nsec-websocket-version: 13\r\n{key}{key}")), 400);
}

#[tokio::test]
async fn a_message_over_the_limit_ends_a_web_socket_and_nothing_else() {
    let daemon = Daemon::with_config("[seats]\nmax_message_bytes = 65536\n");
    let (mut other, _) = socket(&daemon, "").await.unwrap();
    let (mut socket, _) = socket(&daemon, "").await.unwrap();
    socket.send(Message::text("x".repeat(70_000))).await.ok(); // it may be cut short
    let code = loop {
        if let Message::Close(Some(frame)) = soon(socket.next()).await.unwrap().unwrap() {
            break u16::from(frame.code);
        }
    };
    assert_eq!(code, 1009);
    other.send(Message::text(initialize(1).to_string())).await.unwrap();
    assert_eq!(hear(&mut other).await["id"], 1);
}

#[tokio::test]
async fn there_are_as_many_connections_as_may_be_and_each_makes_room_when_it_goes() {
    let daemon = Daemon::with_config("[seats]\nmax_connections = 2\n");
    let (first, _) = socket(&daemon, "").await.unwrap();
    let (_second, _) = socket(&daemon, "").await.unwrap();
    let Err(Error::Http(response)) = socket(&daemon, "").await else { panic!("a third was taken") };
    assert_eq!(response.status(), 503);
    drop(first);
    let start = std::time::Instant::now();
    while let Err(error) = socket(&daemon, "").await {
        assert!(start.elapsed() < PATIENCE, "{error}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[test]
fn over_the_network_a_web_socket_needs_a_token_or_the_console_s_own_page() {
    let (daemon, address) = with_port("");
    let ana = token(&daemon, "ana", "viewer");
    let ask = |headers: &str| {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let head = format!(
            "GET /acp HTTP/1.1\r\nhost: {address}\r\nupgrade: websocket\r\nconnection: upgrade\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n{headers}\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        String::from_utf8_lossy(&answer[9..]).into_owned()
    };
    assert_eq!(ask(""), "401");
    assert_eq!(ask("authorization: Bearer nonsense\r\n"), "401");
    let token = format!("authorization: Bearer {ana}\r\n");
    assert_eq!(ask(&token), "101");
    assert_eq!(ask(&format!("{token}origin: http://evil.example\r\n")), "403");

    let head = format!(
        "POST /api/v1/web/sessions HTTP/1.1\r\nhost: {address}\r\norigin: http://{address}\r\nx-intercom: 1\r\n"
    );
    let body = json!({ "token": ana }).to_string();
    let mut stream = TcpStream::connect(&address).unwrap();
    write!(stream, "{head}connection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let cookie = answer.lines().find_map(|line| line.strip_prefix("set-cookie: ")).expect(&answer);
    let cookie = format!("cookie: {}\r\n", cookie.split(';').next().unwrap());
    assert_eq!(ask(&format!("{cookie}origin: http://{address}\r\n")), "101");
    for elsewhere in [
        "",
        "origin: http://127.0.0.1\r\n",
        "origin: http://evil.example\r\n",
        "sec-fetch-site: same-site\r\n",
    ] {
        assert_eq!(ask(&format!("{cookie}{elsewhere}")), "403", "{elsewhere}");
    }
}

#[tokio::test]
async fn a_seat_can_be_closed_to_all() {
    let daemon = Daemon::with_config("[seats]\nenabled = false\n");
    let Err(Error::Http(response)) = socket(&daemon, "").await else { panic!("it was taken") };
    assert_eq!(response.status(), 404);
}

const JSON: (&str, &str) = ("content-type", "application/json");
const STREAM: (&str, &str) = ("accept", "text/event-stream");

/// A stream of events: their ids and messages.
struct Events {
    body: Incoming,
    text: String,
}

impl Events {
    #[track_caller]
    fn of(response: Response<Incoming>) -> Self {
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { body: response.into_body(), text: String::new() }
    }

    /// `None` once it has ended.
    async fn next(&mut self) -> Option<(Option<u64>, Value)> {
        loop {
            while let Some((event, rest)) = self.text.split_once("\n\n") {
                let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name));
                let id = field("id: ").map(|id| id.parse().unwrap());
                let data = field("data: ").map(|data| serde_json::from_str(data).unwrap());
                let rest = rest.to_owned();
                self.text = rest;
                if let Some(data) = data {
                    return Some((id, data));
                }
            }
            let frame = soon(self.body.frame()).await?.ok()?;
            self.text += std::str::from_utf8(frame.data_ref()?).unwrap();
        }
    }
}

fn request(id: u64, method: &str, params: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string()
}

impl Client<'_> {
    /// A new connection's name.
    async fn connect(&self, query: &str) -> String {
        let path = format!("/acp{query}");
        let response = self.send("POST", &path, &[JSON], &initialize(0).to_string()).await;
        let name = response.headers()["acp-connection-id"].to_str().unwrap().to_owned();
        assert_eq!(response.headers()["content-type"], "application/json");
        let (status, answer) = read(response).await;
        assert_eq!((status, &answer["result"]["protocolVersion"]), (200, &json!(1)), "{answer}");
        name
    }

    async fn post(&self, name: &str, body: &str) -> u16 {
        let headers = [JSON, ("acp-connection-id", name)];
        self.send("POST", "/acp", &headers, body).await.status().as_u16()
    }

    async fn listen(&self, name: &str, more: &[(&str, &str)]) -> Response<Incoming> {
        let mut headers = vec![STREAM, ("acp-connection-id", name)];
        headers.extend(more);
        self.send("GET", "/acp", &headers, "").await
    }
}

#[tokio::test]
async fn over_http_requests_are_taken_and_answered_on_the_stream() {
    let daemon = Daemon::start();
    for http in [Http::One, Http::Two] {
        let client = Client::new(&daemon, http).await;
        let name = client.connect("?agent=demo&on_close=close").await;
        // What comes before the stream waits for it.
        assert_eq!(client.post(&name, &request(1, "no/such", &json!({}))).await, 202);
        let response = client.listen(&name, &[]).await;
        assert_eq!(response.headers()["acp-connection-id"], name.as_str());
        let mut events = Events::of(response);
        assert_eq!(events.next().await.unwrap().1["id"], 1);
        for id in 2..40 {
            assert_eq!(client.post(&name, &request(id, "no/such", &json!({ "text": "é" }))).await, 202);
            let (_, answer) = events.next().await.unwrap();
            assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(id), &json!(-32601)));
        }
        let deleted = client.send("DELETE", "/acp", &[("acp-connection-id", &name)], "").await;
        assert_eq!(deleted.status(), 202);
        assert_eq!(events.next().await, None);
        assert_eq!(client.post(&name, &request(1, "no/such", &json!({}))).await, 404);
    }
}

#[tokio::test]
async fn a_session_s_stream_can_be_opened_before_the_session_is() {
    let daemon = Daemon::start();
    let client = Client::new(&daemon, Http::Two).await;
    let name = client.connect("").await;
    let mut streams = vec![client.listen(&name, &[]).await];
    for n in 0..16 {
        let response = client.listen(&name, &[("acp-session-id", &format!("made-up-{n}"))]).await;
        assert_eq!(response.status(), 200, "{n}");
        streams.push(response);
    }
    assert_eq!(client.listen(&name, &[("acp-session-id", "one-more")]).await.status(), 404);
    let prompt = request(1, "session/prompt", &json!({ "sessionId": "made-up-1", "prompt": [] }));
    let headers = [JSON, ("acp-connection-id", name.as_str()), ("acp-session-id", "made-up-1")];
    assert_eq!(client.send("POST", "/acp", &headers, &prompt).await.status(), 202);
    assert_eq!(Events::of(streams.swap_remove(0)).next().await.unwrap().1["id"], 1);
}

#[tokio::test]
async fn a_stream_is_gone_on_with_after_the_last_event_that_arrived() {
    let daemon = Daemon::start();
    let client = Client::new(&daemon, Http::One).await;
    let name = client.connect("").await;
    let mut events = Events::of(client.listen(&name, &[]).await);
    let mut ids = Vec::new();
    for n in 1..=5 {
        assert_eq!(client.post(&name, &request(n, "no/such", &json!({}))).await, 202);
        ids.push(events.next().await.unwrap().0.unwrap());
    }
    assert!(ids.is_sorted());
    let last = ids[1].to_string();
    // The newest stream wins: what is left of the older one does not keep its client out.
    let mut again = Events::of(client.listen(&name, &[("last-event-id", &last)]).await);
    assert_eq!(events.next().await, None);
    for n in 3..=5 {
        let (id, answer) = again.next().await.unwrap();
        assert_eq!((id.unwrap(), &answer["id"]), (ids[n - 1], &json!(n)));
    }
    // Far behind, nothing is made up.
    for n in 6..=600 {
        assert_eq!(client.post(&name, &request(n, "no/such", &json!({}))).await, 202);
        assert_eq!(again.next().await.unwrap().1["id"], n);
    }
    for (id, status) in [(last.as_str(), 410), ("999999", 400), ("x", 400)] {
        assert_eq!(client.listen(&name, &[("last-event-id", id)]).await.status(), status, "{id}");
    }
}

/// Method, headers and body; status and code.
type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a str, u16, &'a str);

#[tokio::test]
async fn what_is_wrong_with_a_request_is_told_by_its_status() {
    let daemon = Daemon::with_config("[seats]\nmax_message_bytes = 65536\n");
    let ok = request(1, "no/such", &json!({}));
    let prompt = request(1, "session/prompt", &json!({ "sessionId": "a" }));
    for http in [Http::One, Http::Two] {
        let client = Client::new(&daemon, http).await;
        let name = client.connect("").await;
        let this = ("acp-connection-id", name.as_str());
        let other = ("acp-connection-id", "con_0");
        let huge = format!("{{\"method\":\"{}\"}}", "x".repeat(70_000));
        let cases: &[Case<'_>] = &[
            ("POST", &[this], &ok, 415, "not_json"),
            ("POST", &[this, ("content-type", "text/plain")], &ok, 415, "not_json"),
            ("POST", &[JSON], &ok, 400, "bad_request"),
            ("POST", &[JSON, other], &ok, 404, "not_found"),
            ("POST", &[JSON, this], "{", 400, "bad_json"),
            ("POST", &[JSON, this], "", 400, "bad_json"),
            ("POST", &[JSON], "nonsense", 400, "bad_json"),
            ("POST", &[JSON, this], "7", 400, "bad_request"),
            ("POST", &[JSON, this], "[]", 501, "batch"),
            ("POST", &[JSON], "[{\"id\":1,\"method\":\"initialize\"}]", 501, "batch"),
            ("POST", &[JSON, this], &huge, 413, "too_large"),
            ("POST", &[JSON, this, ("acp-session-id", "b")], &prompt, 400, "bad_request"),
            ("POST", &[JSON, this, this], &ok, 400, "bad_request"),
            ("GET", &[this], "", 406, "not_acceptable"),
            ("GET", &[STREAM], "", 400, "bad_request"),
            ("GET", &[STREAM, other], "", 404, "not_found"),
            ("DELETE", &[], "", 400, "bad_request"),
            ("DELETE", &[other], "", 404, "not_found"),
            ("PUT", &[this], "", 405, "method_not_allowed"),
        ];
        for (method, headers, body, status, code) in cases {
            let (got, answer) = read(client.send(method, "/acp", headers, body).await).await;
            assert_eq!(
                (got, &answer["error"]["code"]),
                (*status, &json!(code)),
                "{method} {headers:?} {answer}"
            );
        }
        for query in ["?relay=1", "?agnet=x", "?client_id=x"] {
            let path = format!("/acp{query}");
            let response = client.send("POST", &path, &[JSON], &initialize(0).to_string()).await;
            assert_eq!(response.status(), 400, "{query}");
        }
        assert_eq!(client.post(&name, &ok).await, 202, "none of it did any harm");
    }
}

#[tokio::test]
async fn a_connection_is_its_owner_s_alone() {
    let (daemon, address) = with_port("");
    let (ana, ben) = (token(&daemon, "ana", "operator"), token(&daemon, "ben", "admin"));
    let same = token(&daemon, "ana", "viewer");
    let send = |token: Option<&str>, method: &str, headers: &str, body: &str| {
        let token = token.map(|token| format!("authorization: Bearer {token}\r\n")).unwrap_or_default();
        let head = format!(
            "{method} /acp HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-type: application/json\r\n{token}{headers}\
             content-length: {}\r\n\r\n",
            body.len()
        );
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body.as_bytes()).unwrap();
        let mut answer = String::new();
        let mut reader = std::io::BufReader::new(stream);
        while !answer.ends_with("\r\n\r\n") {
            assert!(std::io::BufRead::read_line(&mut reader, &mut answer).unwrap() > 0, "{answer}");
        }
        answer
    };
    let status = |answer: &str| answer[9..12].to_owned();
    assert_eq!(status(&send(None, "POST", "", &initialize(0).to_string())), "401");
    let opened = send(Some(&ana), "POST", "", &initialize(0).to_string());
    let name = opened.lines().find_map(|line| line.strip_prefix("acp-connection-id: ")).unwrap().to_owned();
    let named = format!("acp-connection-id: {name}\r\naccept: text/event-stream\r\n");
    for (who, expected) in [(None, "401"), (Some(ben.as_str()), "404"), (Some(&same), "404")] {
        for method in ["GET", "DELETE"] {
            assert_eq!(status(&send(who, method, &named, "")), expected, "{method} {who:?}");
        }
        assert_eq!(status(&send(who, "POST", &named, &request(1, "x", &json!({})))), expected);
    }
    assert_eq!(status(&send(Some(&ana), "GET", &named, "")), "200");
    // Whoever is shown out has no connection any more.
    let tokens = daemon.cli(&["token", "list", "--json"]).ok().json();
    let is_hers = |token: &&Value| token["name"] == "ana" && token["role"] == "operator";
    let hers =
        tokens.as_array().or_else(|| tokens["items"].as_array()).unwrap().iter().find(is_hers).unwrap();
    daemon.cli(&["token", "revoke", hers["id"].as_str().unwrap()]).ok();
    let again = token(&daemon, "ana", "operator");
    let start = std::time::Instant::now();
    while status(&send(Some(&again), "POST", &named, &request(1, "x", &json!({})))) != "404" {
        assert!(start.elapsed() < PATIENCE);
    }
}

#[tokio::test]
async fn a_client_may_choose_its_own_name_and_post_before_it_listens() {
    let daemon = Daemon::start();
    let client = Client::new(&daemon, Http::One).await;
    let post = |query: &'static str, body: String| {
        let client = &client;
        async move { client.send("POST", &format!("/acp/rpc{query}"), &[JSON], &body).await.status().as_u16() }
    };
    assert_eq!(post("?client_id=a", initialize(1).to_string()).await, 202);
    assert_eq!(post("?client_id=b", initialize(2).to_string()).await, 202);
    let mut a = Events::of(client.send("GET", "/acp/sse?client_id=a", &[], "").await);
    let mut b = Events::of(client.send("GET", "/acp/sse?client_id=b", &[], "").await);
    assert_eq!(a.next().await.unwrap().1["result"]["protocolVersion"], 1);
    assert_eq!(b.next().await.unwrap().1["id"], 2);
    assert_eq!(post("?client_id=a", request(3, "no/such", &json!({}))).await, 202);
    let (id, answer) = a.next().await.unwrap();
    assert_eq!(answer["id"], 3);
    drop(a);
    assert_eq!(post("?client_id=a", request(4, "no/such", &json!({}))).await, 202);
    let id = id.unwrap().to_string();
    let back = client.send("GET", "/acp/sse?client_id=a", &[("last-event-id", &id)], "").await;
    assert_eq!(Events::of(back).next().await.unwrap().1["id"], 4);
    for (query, body, status) in [
        ("", initialize(1).to_string(), 400),
        ("?client_id=", initialize(1).to_string(), 400),
        ("?client_id=a&x=1", initialize(1).to_string(), 400),
        ("?client_id=a", "[]".to_owned(), 501),
        ("?client_id=a", "{".to_owned(), 400),
    ] {
        assert_eq!(post(query, body).await, status, "{query}");
    }
    assert_eq!(client.send("GET", "/acp/sse", &[], "").await.status(), 400);
    assert_eq!(client.send("POST", "/acp/rpc?client_id=a", &[], "{}").await.status(), 415);
}

#[tokio::test]
async fn requests_without_a_connection_are_answered_where_they_are_asked_if_that_is_wanted() {
    let ask = request(1, "no/such", &json!({}));
    let daemon = Daemon::start();
    let client = Client::new(&daemon, Http::One).await;
    assert_eq!(client.send("POST", "/acp", &[JSON], &ask).await.status(), 400);
    assert_eq!(client.send("GET", "/acp/events?session=x", &[], "").await.status(), 400);

    let daemon = Daemon::with_config("[seats]\nconnectionless = true\n");
    let client = Client::new(&daemon, Http::One).await;
    let response = client.send("POST", "/acp", &[JSON], &ask).await;
    assert!(response.headers().get("acp-connection-id").is_none());
    let length = response.headers()["content-length"].to_str().unwrap().to_owned();
    let (status, answer) = read(response).await;
    assert_eq!((status, &answer["error"]["code"]), (200, &json!(-32601)));
    assert_eq!(length, answer.to_string().len().to_string());
    let cancel = json!({ "jsonrpc": "2.0", "method": "no/such" }).to_string();
    assert_eq!(client.send("POST", "/acp", &[JSON], &cancel).await.status(), 202);
    let answer = json!({ "jsonrpc": "2.0", "id": 1, "result": {} }).to_string();
    assert_eq!(client.send("POST", "/acp", &[JSON], &answer).await.status(), 400);
    // A prompt is told about until it is answered.
    let prompt = request(2, "session/prompt", &json!({ "sessionId": "none", "prompt": [] }));
    let mut events = Events::of(client.send("POST", "/acp", &[JSON], &prompt).await);
    assert_eq!(events.next().await.unwrap().1["id"], 2);
    assert_eq!(events.next().await, None);
    assert_eq!(client.send("GET", "/acp/events?session=none", &[], "").await.status(), 404);
    assert_eq!(client.send("GET", "/acp/events", &[], "").await.status(), 400);
}

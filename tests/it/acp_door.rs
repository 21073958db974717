//! How an ACP client gets in: HTTP/1.1 and HTTP/2, streams and sockets, and who does not.

use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::{http1, http2};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use intercom_testkit::client::{Connection, EventText, PATIENCE, Place, WebSocket};
use intercom_testkit::harness::{Daemon, sign_in};
use serde_json::{Value, json};
use tokio::net::UnixStream;

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

async fn soon<T>(what: impl Future<Output = T>) -> T {
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

/// What it is named if it is taken, and the status if it is not.
pub(crate) fn socket(daemon: &Daemon, query: &str) -> Result<(WebSocket, Option<String>), u16> {
    let (answer, socket) = WebSocket::ask(&daemon.socket(), &format!("/acp{query}"), &[]).unwrap();
    let name = answer.header("acp-connection-id").map(str::to_owned);
    socket.map(|socket| (socket, name)).ok_or(answer.status)
}

pub(crate) fn hear(socket: &mut WebSocket) -> Value {
    serde_json::from_slice(&socket.message().unwrap().expect("it is open")).unwrap()
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

#[test]
fn a_web_socket_carries_messages_both_ways() {
    let daemon = Daemon::start();
    let (mut socket, name) = socket(&daemon, "?agent=x&on_close=keep&relay=0").unwrap();
    assert!(name.is_some_and(|name| name.starts_with("con_")));
    socket.frames.frame(0x82, &[0; 100]);
    socket.frames.text(&initialize(7).to_string());
    let answer = hear(&mut socket);
    assert_eq!((&answer["id"], &answer["result"]["protocolVersion"]), (&json!(7), &json!(1)), "{answer}");
    // A frame in two halves is one message.
    let text = json!({ "jsonrpc": "2.0", "id": 8, "method": "no/such" }).to_string();
    let (first, second) = text.split_at(20);
    let frame = |text: &str, op: u8| {
        let mut bytes = vec![op, 0x80 | u8::try_from(text.len()).unwrap(), 0, 0, 0, 0];
        bytes.extend(text.as_bytes());
        bytes
    };
    for bytes in [frame(first, 0x01), frame(second, 0x80)] {
        for byte in bytes {
            socket.frames.bytes(&[byte]);
        }
    }
    assert_eq!(hear(&mut socket)["error"]["code"], -32601);
    let (_, figures) = daemon.get("/metrics");
    for figure in ["connections 1", "messages_in 2", "messages_out 2"] {
        assert!(figures.as_str().unwrap().contains(&format!("intercom_acp_{figure}\n")), "{figures}");
    }
}

#[test]
fn what_is_no_web_socket_is_told_so() {
    let daemon = Daemon::start();
    for query in ["?agnet=x", "?on_close=maybe", "?relay=2"] {
        assert_eq!(socket(&daemon, query).unwrap_err(), 400, "{query}");
    }
    let ask = |headers: &[(&str, &str)]| {
        let headers = [&[("upgrade", "websocket")], headers].concat();
        let mut connection = Connection::open(&daemon.socket()).unwrap();
        connection.request("GET", "/acp", &headers, "").unwrap().status
    };
    let key = ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
    let (upgrade, version) = (("connection", "upgrade"), ("sec-websocket-version", "13"));
    assert_eq!(ask(&[("connection", "close")]), 400);
    assert_eq!(ask(&[upgrade, ("sec-websocket-version", "8"), key]), 426);
    assert_eq!(ask(&[upgrade, version]), 400);
    assert_eq!(ask(&[upgrade, version, ("sec-websocket-key", "x")]), 400);
    assert_eq!(ask(&[upgrade, version, key, key]), 400);
}

#[test]
fn a_message_over_the_limit_ends_a_web_socket_and_nothing_else() {
    let daemon = Daemon::with_config("[acp_server]\nmax_message_bytes = 65536\n");
    let (mut other, _) = socket(&daemon, "").unwrap();
    let (mut socket, _) = socket(&daemon, "").unwrap();
    socket.frames.text(&"x".repeat(70_000)); // it may be cut short
    let code = loop {
        if let (0x88, payload) = socket.frame().unwrap() {
            break payload;
        }
    };
    assert_eq!(code[..2], 1009_u16.to_be_bytes());
    other.frames.text(&initialize(1).to_string());
    assert_eq!(hear(&mut other)["id"], 1);
}

#[test]
fn there_are_as_many_connections_as_may_be_and_each_makes_room_when_it_goes() {
    let daemon = Daemon::with_config("[acp_server]\nmax_connections = 2\n");
    let (first, _) = socket(&daemon, "").unwrap();
    let (_second, _) = socket(&daemon, "").unwrap();
    assert_eq!(socket(&daemon, "").unwrap_err(), 503, "a third was taken");
    drop(first);
    let start = std::time::Instant::now();
    while let Err(status) = socket(&daemon, "") {
        assert!(start.elapsed() < PATIENCE, "{status}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn over_the_network_a_web_socket_needs_a_token_or_the_console_s_own_page() {
    let (daemon, address) = with_port("");
    let ana = token(&daemon, "ana", "viewer");
    let place = Place::open_port(&address);
    let ask = |headers: &[(&str, &str)]| WebSocket::ask(&place, "/acp", headers).unwrap().0.status;
    assert_eq!(ask(&[]), 401);
    assert_eq!(ask(&[("authorization", "Bearer nonsense")]), 401);
    let bearer = format!("Bearer {ana}");
    let token = ("authorization", bearer.as_str());
    assert_eq!(ask(&[token]), 101);
    assert_eq!(ask(&[token, ("origin", "http://evil.example")]), 403);

    let signed_in = sign_in(&address, &json!({ "token": ana }));
    let cookie = ("cookie", signed_in.cookie());
    assert_eq!(ask(&[cookie, ("origin", &format!("http://{address}"))]), 101);
    assert_eq!(ask(&[cookie]), 403);
    for elsewhere in
        [("origin", "http://127.0.0.1"), ("origin", "http://evil.example"), ("sec-fetch-site", "same-site")]
    {
        assert_eq!(ask(&[cookie, elsewhere]), 403, "{elsewhere:?}");
    }
}

#[test]
fn a_seat_can_be_closed_to_all() {
    let daemon = Daemon::with_config("[acp_server]\nenabled = false\n");
    assert_eq!(socket(&daemon, "").unwrap_err(), 404);
}

const JSON: (&str, &str) = ("content-type", "application/json");
const STREAM: (&str, &str) = ("accept", "text/event-stream");

/// A stream of events: their ids and messages.
struct Events {
    body: Incoming,
    text: EventText,
}

impl Events {
    #[track_caller]
    fn of(response: Response<Incoming>) -> Self {
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { body: response.into_body(), text: EventText::default() }
    }

    /// `None` once it has ended.
    async fn next(&mut self) -> Option<(Option<u64>, Value)> {
        loop {
            while let Some(event) = self.text.next_block() {
                let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name));
                if let Some(data) = field("data: ") {
                    let id = field("id: ").map(|id| id.parse().unwrap());
                    return Some((id, serde_json::from_str(data).unwrap()));
                }
            }
            let frame = soon(self.body.frame()).await?.ok()?;
            self.text.push(frame.data_ref()?).unwrap();
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
    let daemon = Daemon::with_config("[acp_server]\nmax_message_bytes = 65536\n");
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

#[test]
fn a_connection_is_its_owner_s_alone() {
    let (daemon, address) = with_port("");
    let (ana, ben) = (token(&daemon, "ana", "operator"), token(&daemon, "ben", "admin"));
    let same = token(&daemon, "ana", "viewer");
    let send = |token: Option<&str>, method: &str, headers: &[(&str, &str)], body: &str| {
        let place = Place::Port { address: address.clone(), token: token.map(str::to_owned) };
        let mut connection = Connection::open(&place).unwrap();
        connection.send(method, "/acp", &[&[JSON], headers].concat(), body).unwrap();
        connection.head().unwrap()
    };
    assert_eq!(send(None, "POST", &[], &initialize(0).to_string()).status, 401);
    let opened = send(Some(&ana), "POST", &[], &initialize(0).to_string());
    let name = opened.header("acp-connection-id").unwrap();
    let named = [("acp-connection-id", name), STREAM];
    for (who, expected) in [(None, 401), (Some(ben.as_str()), 404), (Some(&same), 404)] {
        for method in ["GET", "DELETE"] {
            assert_eq!(send(who, method, &named, "").status, expected, "{method} {who:?}");
        }
        assert_eq!(send(who, "POST", &named, &request(1, "x", &json!({}))).status, expected);
    }
    assert_eq!(send(Some(&ana), "GET", &named, "").status, 200);
    // Whoever is shown out has no connection any more.
    let tokens = daemon.cli(&["token", "list", "--json"]).ok().json();
    let is_hers = |token: &&Value| token["name"] == "ana" && token["role"] == "operator";
    let hers =
        tokens.as_array().or_else(|| tokens["items"].as_array()).unwrap().iter().find(is_hers).unwrap();
    daemon.cli(&["token", "revoke", hers["id"].as_str().unwrap()]).ok();
    let again = token(&daemon, "ana", "operator");
    let start = std::time::Instant::now();
    while send(Some(&again), "POST", &named, &request(1, "x", &json!({}))).status != 404 {
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

    let daemon = Daemon::with_config("[acp_server]\nconnectionless = true\n");
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

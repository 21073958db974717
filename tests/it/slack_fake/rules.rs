//! What the Slack of our tests does by itself: its rules, its faults, and its sockets without an SDK.

use std::io::Read;
use std::time::{Duration, Instant};

use intercom_testkit::client::{Answer, Connection, Place, WebSocket};
use intercom_testkit::slack::{APP_TOKEN, BOT_TOKEN, CHANNEL, FakeSlack, Fault, Kind, Redeliver};
use serde_json::{Value, json};

use super::{api, call, host, post, post_to};

/// The error of a call, or its absence.
fn error(slack: &FakeSlack, method: &str, args: &Value) -> Option<String> {
    api(slack, method, args)["error"].as_str().map(str::to_owned)
}

fn say(slack: &FakeSlack, text: &str) -> Value {
    api(slack, "chat.postMessage", &json!({ "channel": CHANNEL, "text": text }))
}

fn answer(slack: &FakeSlack, method: &str, args: &Value) -> Answer {
    call(&host(slack), &format!("/api/{method}"), Some(BOT_TOKEN), args)
}

/// A socket without an SDK, which acknowledges only what it is told to.
struct Raw(WebSocket);

impl Raw {
    fn connect(slack: &FakeSlack) -> Self {
        let (_, body) = post(slack, "apps.connections.open", Some(APP_TOKEN), &json!({}));
        let url = serde_json::from_str::<Value>(&body).unwrap()["url"].as_str().unwrap().to_owned();
        Self::open(&url).unwrap()
    }

    fn open(url: &str) -> Result<Self, Answer> {
        let (host, path) = url.strip_prefix("ws://").unwrap().split_once('/').unwrap();
        let (answer, socket) = WebSocket::ask(Place::open_port(host), &format!("/{path}"), &[]).unwrap();
        socket.map(Self).ok_or(answer)
    }

    #[track_caller]
    fn next(&mut self) -> Value {
        self.read().unwrap()
    }

    /// None at the end.
    fn read(&mut self) -> Option<Value> {
        let message = self.0.message().ok()??;
        Some(serde_json::from_slice(&message).unwrap())
    }

    fn ack(&mut self, envelope: &Value, payload: &Value) {
        let ack = json!({ "envelope_id": envelope["envelope_id"], "payload": payload });
        self.0.frames.text(&ack.to_string());
    }
}

#[test]
fn tokens_and_methods_are_looked_at() {
    let slack = FakeSlack::start();
    let code = |method: &str, token: Option<&str>| {
        let (_, body) = post(&slack, method, token, &json!({}));
        serde_json::from_str::<Value>(&body).unwrap()["error"].as_str().map(str::to_owned)
    };
    assert_eq!(code("auth.test", None).as_deref(), Some("not_authed"));
    assert_eq!(code("auth.test", Some("xoxb-other")).as_deref(), Some("invalid_auth"));
    assert_eq!(code("auth.test", Some(BOT_TOKEN)), None);
    assert_eq!(code("apps.connections.open", Some(BOT_TOKEN)).as_deref(), Some("not_allowed_token_type"));
    assert_eq!(code("chat.postMessage", Some(APP_TOKEN)).as_deref(), Some("not_allowed_token_type"));
    assert_eq!(code("chat.shout", Some(BOT_TOKEN)).as_deref(), Some("unknown_method"));
    slack.set_scopes("chat:write");
    assert_eq!(answer(&slack, "auth.test", &json!({})).header("x-oauth-scopes"), Some("chat:write"));
    // As Slack does it: only the fields of forms are seen here.
    let upload = json!({ "filename": "a", "length": 1 });
    assert_eq!(error(&slack, "files.getUploadURLExternal", &upload).as_deref(), Some("invalid_arguments"));
}

#[test]
fn messages_channels_threads_and_reactions_are_as_in_slack() {
    let slack = FakeSlack::start();
    let error = |method: &str, args: Value| error(&slack, method, &args);
    let to = |channel: &str| json!({ "channel": channel, "text": "a" });
    assert_eq!(error("chat.postMessage", to("C0NONE")).as_deref(), Some("channel_not_found"));
    slack.add_channel("C0OTHER", false);
    assert_eq!(error("chat.postMessage", to("C0OTHER")).as_deref(), Some("not_in_channel"));
    assert_eq!(error("conversations.join", json!({ "channel": "C0OTHER" })), None);
    assert_eq!(error("chat.postMessage", to("C0OTHER")), None);
    slack.archive("C0OTHER");
    assert_eq!(error("chat.postMessage", to("C0OTHER")).as_deref(), Some("is_archived"));

    let mut lost = to(CHANNEL);
    lost["thread_ts"] = json!("1.2");
    assert_eq!(error("chat.postMessage", lost).as_deref(), Some("thread_not_found"));
    let gone = json!({ "channel": CHANNEL, "ts": "1.2", "text": "a" });
    assert_eq!(error("chat.update", gone).as_deref(), Some("message_not_found"));

    let (first, second) = (say(&slack, "one"), say(&slack, "two"));
    let ts = first["ts"].as_str().unwrap();
    assert!(ts < second["ts"].as_str().unwrap(), "times increase");
    let reaction = json!({ "channel": CHANNEL, "timestamp": ts, "name": "eyes" });
    assert_eq!(error("reactions.add", reaction.clone()), None);
    assert_eq!(error("reactions.add", reaction.clone()).as_deref(), Some("already_reacted"));
    assert_eq!(slack.reactions(ts), ["eyes"]);
    assert_eq!(error("reactions.remove", reaction.clone()), None);
    assert_eq!(error("reactions.remove", reaction).as_deref(), Some("no_reaction"));

    let since = |inclusive: bool| {
        let args = json!({ "channel": CHANNEL, "oldest": ts, "inclusive": inclusive });
        api(&slack, "conversations.history", &args)["messages"].as_array().unwrap().len()
    };
    assert_eq!((since(false), since(true)), (1, 2));
    let link = api(&slack, "chat.getPermalink", &json!({ "channel": CHANNEL, "message_ts": ts }));
    assert!(link["permalink"].as_str().unwrap().ends_with(&ts.replace('.', "")), "{link}");
    let update = |more: Value| {
        let mut args = json!({ "channel": CHANNEL, "ts": ts });
        args.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        api(&slack, "chat.update", &args)["message"]["blocks"].is_array()
    };
    assert!(update(json!({ "text": "a", "blocks": [{ "type": "divider" }] })));
    assert!(
        update(json!({ "metadata": { "event_type": "a", "event_payload": {} } })),
        "what is not named stays"
    );
    assert!(!update(json!({ "text": "b" })), "a text alone takes the blocks away");
    let lost = json!({ "channel": CHANNEL, "cursor": "next_ts:1.2" });
    assert_eq!(error("conversations.history", lost).as_deref(), Some("invalid_cursor"));
    assert_eq!(error("chat.delete", json!({ "channel": CHANNEL, "ts": ts })), None);
    let reply = json!({ "channel": CHANNEL, "thread_ts": ts, "text": "too late" });
    assert_eq!(error("chat.postMessage", reply).as_deref(), Some("thread_not_found"));
    assert_eq!(
        error("chat.delete", json!({ "channel": CHANNEL, "ts": ts })).as_deref(),
        Some("message_not_found")
    );
    assert_eq!(error("users.info", json!({ "user": "U9" })).as_deref(), Some("user_not_found"));
    let whisper = json!({ "channel": CHANNEL, "user": "U1", "text": "psst" });
    assert_eq!(error("chat.postEphemeral", whisper), None);
    assert_eq!(slack.ephemerals("U1")[0].text, "psst");
    assert_eq!(slack.violations(), [] as [&str; 0]);
}

#[test]
fn what_is_beyond_a_limit_is_refused_and_noted() {
    let slack = FakeSlack::start();
    let blocks = json!([{ "type": "header", "text": { "type": "plain_text", "text": "x".repeat(151) } }]);
    let refused =
        api(&slack, "chat.postMessage", &json!({ "channel": CHANNEL, "text": "a", "blocks": blocks }));
    assert_eq!(refused["error"], "invalid_blocks");
    assert!(refused["errors"][0].as_str().unwrap().contains("150"), "{refused}");
    let quiet = json!({ "channel": CHANNEL, "text": "", "blocks": [{ "type": "divider" }] });
    assert_eq!(error(&slack, "chat.postMessage", &quiet).as_deref(), Some("no_text"));
    assert_eq!(slack.messages().len(), 0);
    assert_eq!(say(&slack, "<!here> all of you")["ok"], true, "Slack takes it; we should not have sent it");
    assert_eq!(slack.violations().len(), 3, "{:?}", slack.violations());
}

#[test]
fn calls_fail_in_the_way_that_was_asked_for() {
    let slack = FakeSlack::start();
    let body = json!({ "channel": CHANNEL, "text": "a" });
    let status = |fault: Fault| {
        slack.fail("chat.postMessage", fault, 1);
        post(&slack, "chat.postMessage", Some(BOT_TOKEN), &body)
    };
    assert_eq!(status(Fault::Status(503)).0, 503);
    slack.fail("*", Fault::RateLimited { retry_after_seconds: 7 }, 1);
    let limited = answer(&slack, "chat.postMessage", &body);
    assert!(limited.status == 429 && limited.header("retry-after") == Some("7"), "{limited:?}");
    assert!(status(Fault::Error("fatal_error")).1.contains("fatal_error"));
    assert!(status(Fault::Garbage).1.starts_with("<html>"));
    assert_eq!(slack.messages().len(), 0);
    assert!(say(&slack, "once is enough")["ok"].as_bool().unwrap());

    let closed = |fault: Fault| {
        slack.fail("*", fault, 1);
        let before = slack.messages().len();
        assert_eq!(answer(&slack, "chat.postMessage", &body).status, 0, "no answer at all");
        slack.messages().len() - before
    };
    assert_eq!(closed(Fault::CloseBefore), 0);
    assert_eq!(closed(Fault::CloseAfter), 1, "the effect is there though nobody was told");
    let last = slack.calls().pop().unwrap();
    assert!(last.answered.is_none() && last.answer.is_null(), "{last:?}");
}

#[test]
fn calls_are_delayed_side_by_side_and_one_that_hangs_ends_with_the_connection() {
    let slack = FakeSlack::start();
    let delay = Duration::from_millis(500);
    slack.delay(delay);
    let started = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..10 {
            scope.spawn(|| say(&slack, "a"));
        }
    });
    assert!(started.elapsed() >= delay && started.elapsed() < delay * 9, "{:?}", started.elapsed());
    assert!(slack.calls().iter().all(|call| call.answered.unwrap() - call.at >= delay));
    slack.delay(Duration::ZERO);

    slack.fail("auth.test", Fault::Hang, 1);
    std::thread::scope(|scope| {
        let hanging = scope.spawn(|| {
            let mut connection = Connection::open(Place::open_port(&host(&slack))).unwrap();
            connection.send("POST", "/api/auth.test", &[], "").unwrap();
            connection.read(&mut [0]).unwrap_or(0)
        });
        slack.wait_until("the call", |state| {
            state.calls.last().filter(|call| call.method == "auth.test").map(drop)
        });
        slack.go_away();
        assert_eq!(hanging.join().unwrap(), 0);
    });
}

#[test]
fn who_posts_too_fast_is_told_when_to_come_back() {
    let slack = FakeSlack::start();
    slack.rate_limit(0.5, 2);
    let statuses: Vec<u16> = (0..3)
        .map(|_| {
            post(&slack, "chat.postMessage", Some(BOT_TOKEN), &json!({ "channel": CHANNEL, "text": "a" })).0
        })
        .collect();
    assert_eq!(statuses, [200, 200, 429]);
    assert_eq!(slack.messages().len(), 2);
    slack.add_channel("C0OTHER", true);
    assert_eq!(error(&slack, "chat.postMessage", &json!({ "channel": "C0OTHER", "text": "a" })), None);
}

#[test]
fn it_goes_away_and_comes_back_on_the_same_ports() {
    let slack = FakeSlack::start();
    let mut socket = Raw::connect(&slack);
    assert_eq!(socket.next()["type"], "hello");
    slack.go_away();
    assert!(socket.read().is_none());
    let refused = Place::open_port(&host(&slack)).dial().unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    slack.go_away();
    slack.come_back();
    assert_eq!(say(&slack, "here again")["ok"], true);
    assert_eq!(Raw::connect(&slack).next()["type"], "hello");
}

#[test]
fn a_ticket_opens_one_socket() {
    let slack = FakeSlack::start();
    let (_, body) = post(&slack, "apps.connections.open", Some(APP_TOKEN), &json!({}));
    let url = serde_json::from_str::<Value>(&body).unwrap()["url"].as_str().unwrap().to_owned();
    let mut socket = Raw::open(&url).unwrap();
    assert_eq!(socket.next()["num_connections"], 1);
    assert!(Raw::open(&url).is_err());
    slack.never_hello(true);
    let _silent = Raw::connect(&slack);
    slack.wait_until("the second socket", |state| (state.sockets.len() == 2).then_some(()));
    for text in ["for the one", "that was greeted"] {
        slack.say("U1", CHANNEL, None, text);
        assert_eq!(socket.next()["payload"]["event"]["text"], text);
    }
    assert_eq!(slack.connections(), 1);
}

#[test]
fn what_is_not_acknowledged_is_told_again_three_times() {
    let slack = FakeSlack::start();
    slack.ack_timeout(Duration::from_millis(30));
    let mut socket = Raw::connect(&slack);
    socket.next();
    let said = slack.say("U1", CHANNEL, None, "hello?");
    let told: Vec<Value> = (0..4).map(|_| socket.next()).collect();
    let attempts: Vec<_> = told.iter().map(|one| (&one["retry_attempt"], &one["retry_reason"])).collect();
    assert_eq!(json!(attempts), json!([[0, ""], [1, "timeout"], [2, "timeout"], [3, "timeout"]]));
    assert!(told.iter().all(|one| one["payload"]["event_id"] == told[0]["payload"]["event_id"]));
    assert_ne!(told[0]["envelope_id"], told[1]["envelope_id"]);
    said.wait_failed();
    assert!(slack.failed_clicks().is_empty(), "nobody sees that an event fails");

    // A click is told once: the person sees an error and may click again.
    slack.slash("U1", CHANNEL, "ls").wait_failed();
    assert_eq!(socket.next()["type"], "slash_commands");
    assert_eq!(slack.failed_clicks().len(), 1);
    slack.redeliver(Kind::Slash, Redeliver::Yes);
    let again = slack.slash("U1", CHANNEL, "ls");
    let first = socket.next();
    std::thread::scope(|scope| {
        // However late an acknowledgement is on a busy machine, one of them is in time.
        let acks = scope.spawn(move || {
            let mut told = Vec::new();
            while let Some(envelope) = socket.read() {
                socket.ack(&envelope, &json!({ "text": "nothing there" }));
                told.push(envelope);
            }
            told
        });
        again.wait_acked();
        slack.drop_sockets();
        assert_eq!(acks.join().unwrap()[0]["payload"]["trigger_id"], first["payload"]["trigger_id"]);
    });
    assert_eq!(again.wait_ephemeral().text, "nothing there");
}

#[test]
fn a_socket_that_drops_hands_its_envelopes_to_the_next() {
    let slack = FakeSlack::start();
    let mut first = Raw::connect(&slack);
    first.next();
    let said = slack.say("U1", CHANNEL, None, "hello");
    first.next();
    let mut second = Raw::connect(&slack);
    second.next();
    drop(first);
    let again = second.next();
    assert_eq!(again["retry_attempt"], 1);
    second.ack(&again, &Value::Null);
    said.wait_acked();
    assert_eq!(said.delivery().envelopes.len(), 2);
}

#[test]
fn envelopes_come_twice_in_the_wrong_order_and_to_each_socket_in_turn() {
    let slack = FakeSlack::start();
    let mut socket = Raw::connect(&slack);
    socket.next();
    slack.deliver_twice(true);
    slack.say("U1", CHANNEL, None, "twice");
    let (one, two) = (socket.next(), socket.next());
    assert_eq!(one["payload"], two["payload"]);
    assert_ne!(one["envelope_id"], two["envelope_id"]);
    slack.deliver_twice(false);

    slack.out_of_order(true);
    for text in ["first", "second", "third"] {
        slack.say("U1", CHANNEL, None, text);
    }
    let mut text = || socket.next()["payload"]["event"]["text"].as_str().unwrap().to_owned();
    assert_eq!([text(), text()], ["second", "first"]);
    slack.out_of_order(false);
    assert_eq!(text(), "third");

    let mut other = Raw::connect(&slack);
    other.next();
    for n in 0..4 {
        slack.say("U1", CHANNEL, None, &format!("{n}"));
    }
    for socket in [&mut socket, &mut other] {
        socket.next();
        socket.next();
    }
}

#[test]
fn modals_need_a_fresh_trigger_and_answers_a_url_that_is_not_used_up() {
    let slack = FakeSlack::start();
    let mut socket = Raw::connect(&slack);
    socket.next();
    let input = json!({ "type": "input", "block_id": "b", "label": { "type": "plain_text", "text": "Why" },
        "element": { "type": "plain_text_input", "action_id": "why" } });
    let text = |text: &str| json!({ "type": "plain_text", "text": text });
    let view = json!({ "type": "modal", "title": text("Why"), "submit": text("Send"), "blocks": [input] });
    let open = |trigger: &str| error(&slack, "views.open", &json!({ "trigger_id": trigger, "view": view }));
    assert_eq!(open("1.2.x").as_deref(), Some("invalid_trigger_id"));
    let asked = slack.slash("U1", CHANNEL, "why");
    slack.expire_triggers();
    assert_eq!(open(&asked.trigger_id).as_deref(), Some("expired_trigger_id"));
    assert_eq!(open(&slack.slash("U1", CHANNEL, "why").trigger_id), None);
    socket.next();
    socket.next();

    // A submission that is refused leaves the modal open, with what is wrong at its fields.
    let submitted = slack.submit("U1", &slack.views()[0], &json!({ "why": "no" }));
    let told = socket.next();
    assert_eq!(told["accepts_response_payload"], true);
    socket.ack(&told, &json!({ "response_action": "errors", "errors": { "b": "longer, please" } }));
    submitted.wait_acked();
    assert_eq!(slack.views()[0].errors["b"], "longer, please");
    assert!(!slack.views()[0].closed);
    let stale = json!({ "view_id": slack.views()[0].id, "hash": "old", "view": view });
    assert_eq!(error(&slack, "views.update", &stale).as_deref(), Some("hash_conflict"));

    let url = asked.response_url.strip_prefix("http://").unwrap();
    let (host, path) = url.split_once('/').unwrap();
    let answer = json!({ "response_type": "ephemeral", "text": "only for you" });
    for _ in 0..5 {
        assert_eq!(post_to(host, &format!("/{path}"), None, &answer).0, 200);
    }
    assert_eq!(asked.ephemerals().len(), 5);
    assert_eq!(post_to(host, &format!("/{path}"), None, &answer).0, 404);

    let button = json!({ "type": "button", "text": text("Allow"), "action_id": "allow", "value": "clr_1" });
    let blocks = json!([{ "type": "actions", "elements": [button] }]);
    api(&slack, "chat.postMessage", &json!({ "channel": CHANNEL, "text": "card", "blocks": blocks }));
    let card = slack.message_with(|message| message.text == "card");
    let clicked = slack.click_value("U2", &card, "allow", "clr_1");
    let path = clicked.response_url.rsplit_once(host).unwrap().1;
    let replace = json!({ "replace_original": true, "text": "done" });
    assert_eq!(post_to(host, path, None, &replace).0, 200);
    assert_eq!(slack.message_with(|message| message.ts == card.ts).text, "done");
}

//! The Slack of our tests, checked with Slack's own SDKs: what they can live with is not only our reading of the
//! documentation. No daemon is needed.

mod rules;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use intercom_testkit::client::{Answer, PATIENCE, Place, exchange};
use intercom_testkit::harness::run;
use intercom_testkit::slack::{APP_TOKEN, BOT_TOKEN, BOT_USER, CHANNEL, FakeSlack};
use serde_json::{Value, json};

use crate::peers::peer;

/// An app on one of the SDKs: see the tables at the top of `tests/peers/python/slack.py`.
struct App {
    child: Child,
    lines: Receiver<Value>,
    seen: Vec<Value>,
}

impl App {
    fn start(slack: &FakeSlack, name: &str) -> Self {
        let mut child = Command::new(peer(name))
            .env("SLACK_API_URL", slack.api_url())
            .env("SLACK_APP_TOKEN", APP_TOKEN)
            .env("SLACK_BOT_TOKEN", BOT_TOKEN)
            .env("no_proxy", "127.0.0.1")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, lines) = channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                sender.send(serde_json::from_str(&line).unwrap_or_else(|_| json!(line))).ok(); // the test may be over
            }
        });
        Self { child, lines, seen: Vec::new() }
    }

    /// The next line like this, whatever comes before.
    #[track_caller]
    fn wait(&mut self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        loop {
            let Ok(line) = self.lines.recv_timeout(PATIENCE) else {
                panic!("no {what}; seen: {:#?}", self.seen)
            };
            self.seen.push(line.clone());
            assert!(line["failed"].is_null(), "{line}");
            if fits(&line) {
                return line;
            }
        }
    }

    #[track_caller]
    fn hello(&mut self) -> Value {
        self.wait("hello", |line| line["hello"].is_object())
    }

    #[track_caller]
    fn did(&mut self, job: &str) -> Value {
        self.wait(job, |line| line["did"] == job)
    }

    #[track_caller]
    fn got(&mut self, envelope: &str, kind: &str) -> Value {
        self.wait(kind, |line| line["got"] == envelope && (kind.is_empty() || line["kind"] == kind))
    }
}

impl Drop for App {
    fn drop(&mut self) {
        self.child.kill().ok(); // it may have ended by itself
        self.child.wait().unwrap();
    }
}

const APPS: [&str; 2] = ["slack-python", "slack-node"];

#[test]
fn the_calls_of_both_sdks_have_their_effect() {
    for name in APPS {
        let slack = FakeSlack::start();
        let mut app = App::start(&slack, name);
        app.hello();
        slack.wait_connected(1);

        slack.slash("U1", CHANNEL, "post").wait_acked();
        let ts = app.did("post")["ts"].as_str().unwrap().to_owned();
        let card = slack.message_with(|message| message.ts == ts);
        assert_eq!(card.versions.len(), 2, "{name}");
        assert_eq!((card.versions[0].text.as_str(), card.text.as_str()), ("a card", "a card, changed"));
        assert!(card.blocks[0]["block_id"].is_string(), "{}", card.blocks);
        assert_eq!(slack.thread(&ts).len(), 4);

        let asked = slack.slash("U1", CHANNEL, "modal");
        app.did("modal");
        let view = slack.views().pop().unwrap();
        assert_eq!((view.user.as_str(), view.body["callback_id"].as_str()), ("U1", Some("why")));
        assert_eq!(
            api(&slack, "views.open", &json!({ "trigger_id": asked.trigger_id, "view": view.body }))["error"],
            "exchanged_trigger_id"
        );

        slack.slash("U2", CHANNEL, "home");
        app.did("home");
        assert_eq!(slack.home("U2").unwrap().body["type"], "home");

        slack.slash("U1", CHANNEL, "upload");
        app.did("upload");
        let file = slack.files().pop().unwrap();
        assert_eq!((file.title.as_str(), file.content.as_deref()), ("Notes", Some(&b"all of the notes"[..])));
        let again = json!({ "files": [{ "id": file.id }], "channel_id": CHANNEL });
        assert_eq!(api(&slack, "files.completeUploadExternal", &again)["error"], "file_not_found");
        let shared = slack.message_with(|message| !message.files.is_empty());
        assert_eq!((shared.thread_ts.as_deref(), shared.text.as_str()), (Some(&*ts), "here"));

        for n in 0..3 {
            slack.say("U1", CHANNEL, None, &format!("word {n}"));
        }
        slack.slash("U1", CHANNEL, "read");
        let read = app.did("read");
        assert_eq!(
            read["replies"],
            json!(["a card, changed", "reply 0", "reply 1", "reply 2", "here"]),
            "{name}"
        );
        assert_eq!(read["history"], json!(["word 2", "word 1", "word 0", "a card, changed"]), "{name}");
        assert_eq!(read["user"], BOT_USER);

        slack.slash("U1", CHANNEL, "quit");
        assert!(app.child.wait().unwrap().success(), "{name}");
        assert_eq!(slack.violations(), [] as [&str; 0], "{name}");
    }
}

#[test]
fn every_sort_of_envelope_reaches_both_sdks_and_is_acknowledged() {
    for name in APPS {
        let slack = FakeSlack::start();
        let mut app = App::start(&slack, name);
        let hello = app.hello();
        if name == "slack-python" {
            assert_eq!(hello["hello"]["connection_info"]["app_id"], "A0FAKE", "{hello}");
        }
        slack.slash("U1", CHANNEL, "post");
        let ts = app.did("post")["ts"].as_str().unwrap().to_owned();
        let card = slack.message_with(|message| message.ts == ts);

        let clicked = slack.click("U1", &card, "allow");
        let got = app.got("interactive", "block_actions")["body"].clone();
        assert_eq!(
            (got["actions"][0]["value"].as_str(), got["user"]["id"].as_str()),
            (Some("yes"), Some("U1"))
        );
        assert_eq!(got["message"]["text"], "a card, changed");
        clicked.wait_acked();

        slack.slash("U1", CHANNEL, "modal");
        app.did("modal");
        let view = slack.views().pop().unwrap();
        let submitted = slack.submit("U1", &view, &json!({ "reason": "because" }));
        let got = app.got("interactive", "view_submission")["body"]["view"].clone();
        assert_eq!(got["state"]["values"]["why"]["reason"]["value"], "because");
        assert_eq!(got["private_metadata"], "m");
        submitted.wait_acked();
        slack.wait_until("the modal to close", |state| {
            state.views.last().filter(|view| view.closed).map(drop)
        });

        slack.slash("U1", CHANNEL, "modal");
        app.did("modal");
        let closed = slack.close_view("U1", &slack.views().pop().unwrap()).unwrap();
        app.got("interactive", "view_closed");
        closed.wait_acked();

        slack.slash("U1", CHANNEL, "home");
        app.did("home");
        let clicked = slack.click_view_value("U1", &slack.home("U1").unwrap(), "allow", "yes");
        let got = app.got("interactive", "block_actions")["body"].clone();
        assert_eq!(got["container"]["type"], "view");
        clicked.wait_acked();
        slack.shortcut("U1", &card, "explain").wait_acked();
        assert_eq!(app.got("interactive", "message_action")["body"]["callback_id"], "explain");

        let opened = slack.open_home("U1");
        app.got("events_api", "app_home_opened");
        opened.wait_acked();
        let said = slack.say("U1", CHANNEL, Some(&ts), &format!("<@{BOT_USER}> hello"));
        app.got("events_api", "app_mention");
        let got = app
            .wait("the message", |line| line["body"]["event"]["ts"] == said.ts && line["kind"] == "message");
        assert_eq!(got["body"]["event"]["thread_ts"], ts);
        said.wait_acked();
        slack.edit("U1", &said.ts, "hello again").wait_acked();
        app.wait("the edit", |line| line["body"]["event"]["message"]["text"] == "hello again");
        slack.say_with_file("U1", Some(&ts), "see this", "log.txt").wait_acked();
        app.wait("the file", |line| line["body"]["event"]["subtype"] == "file_share");
        slack.other_bot_says(Some(&ts), "beep").wait_acked();
        app.wait("the other app", |line| line["body"]["event"]["bot_id"] == "B0OTHER");
        assert_eq!(slack.violations(), [] as [&str; 0], "{name}");
    }
}

#[test]
fn both_sdks_come_back_after_a_disconnect_and_after_a_broken_network() {
    for name in APPS {
        let slack = FakeSlack::start();
        let mut app = App::start(&slack, name);
        app.hello();
        for reason in ["warning", "refresh_requested"] {
            slack.send_disconnect(reason);
            app.hello();
            slack.wait_connected(1);
        }
        slack.say("U1", CHANNEL, None, "after the disconnect").wait_acked();
        app.wait("what was said", |line| line["body"]["event"]["text"] == "after the disconnect");

        slack.drop_sockets();
        slack.wait_until("no socket", |state| state.sockets.is_empty().then_some(()));
        let said = slack.say("U1", CHANNEL, None, "into the void");
        let clickless = slack.slash("U1", CHANNEL, "post");
        app.hello();
        let got = app.wait("what was said", |line| line["body"]["event"]["text"] == "into the void");
        assert_eq!(got["retry"], 1, "{name}");
        said.wait_acked();
        assert!(clickless.failed(), "a command without a socket fails at once");
        assert_eq!(slack.failed_clicks().len(), 1);
    }
}

/// A call as any HTTP client makes it.
fn api(slack: &FakeSlack, method: &str, args: &Value) -> Value {
    let (status, body) = post(slack, method, Some(BOT_TOKEN), args);
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

fn post(slack: &FakeSlack, method: &str, token: Option<&str>, args: &Value) -> (u16, String) {
    post_to(&host(slack), &format!("/api/{method}"), token, args)
}

fn post_to(host: &str, path: &str, token: Option<&str>, args: &Value) -> (u16, String) {
    let answer = call(host, path, token, args);
    (answer.status, answer.body)
}

fn call(host: &str, path: &str, token: Option<&str>, args: &Value) -> Answer {
    let place = Place::Port { address: host.to_owned(), token: token.map(str::to_owned) };
    exchange(&place, "POST", path, &[("content-type", "application/json")], &args.to_string())
}

fn host(slack: &FakeSlack) -> String {
    slack.api_url().strip_prefix("http://").unwrap().strip_suffix("/api").unwrap().to_owned()
}

#[test]
fn slacks_own_models_tell_good_payloads_from_bad_ones() {
    let slack = FakeSlack::start();
    let dir = tempfile::tempdir().unwrap();
    let good = dir.path().join("good.jsonl");
    slack.write_payloads_to(&good);
    let text = |kind: &str, text: &str| json!({ "type": kind, "text": text });
    let blocks = json!([
        { "type": "header", "text": text("plain_text", "Head") },
        { "type": "section", "text": text("mrkdwn", "*bold*"), "fields": [text("mrkdwn", "a")],
          "accessory": { "type": "overflow", "action_id": "more",
            "options": [{ "text": text("plain_text", "One"), "value": "1" }] } },
        { "type": "context", "elements": [text("mrkdwn", "small")] },
        { "type": "rich_text", "elements": [
            { "type": "rich_text_preformatted", "elements": [{ "type": "text", "text": "code" }] },
            { "type": "rich_text_list", "style": "bullet", "elements": [
                { "type": "rich_text_section", "elements": [{ "type": "text", "text": "item" }] } ] } ] },
        { "type": "actions", "elements": [
            { "type": "button", "text": text("plain_text", "Yes"), "action_id": "y", "style": "danger",
              "confirm": { "title": text("plain_text", "Sure?"), "text": text("mrkdwn", "Really"),
                "confirm": text("plain_text", "Yes"), "deny": text("plain_text", "No") } } ] },
        { "type": "divider" },
    ]);
    assert_eq!(
        api(&slack, "chat.postMessage", &json!({ "channel": CHANNEL, "text": "a", "blocks": blocks }))["ok"],
        true
    );
    let home = json!({ "type": "home", "blocks": [{ "type": "divider" }] });
    assert_eq!(api(&slack, "views.publish", &json!({ "user_id": "U1", "view": home }))["ok"], true);
    let validate = |file: &Path| run(Command::new(peer("slack-validate")).arg(file));
    assert_eq!(validate(&good).ok().stdout, "2 payloads, 7 blocks: ok\n");

    let bad = [
        json!({ "blocks": [{ "type": "banner" }] }),
        json!({ "blocks": [{ "type": "divider", "colour": "red" }] }),
        json!({ "blocks": [{ "type": "header", "text": text("plain_text", &"x".repeat(151)) }] }),
        json!({ "blocks": [{ "type": "actions", "elements": [{ "type": "knob", "action_id": "a" }] }] }),
        json!({ "blocks": [{ "type": "actions", "elements": [
            { "type": "button", "text": text("plain_text", &"x".repeat(76)), "action_id": "a" }] }] }),
        json!({ "blocks": [{ "type": "rich_text", "elements": [
            { "type": "rich_text_section", "elements": [{ "type": "blink", "text": "a" }] }] }] }),
        json!({ "view": { "type": "modal", "title": text("plain_text", &"x".repeat(25)), "blocks": [{ "type": "divider" }] } }),
    ];
    for body in &bad {
        let file = dir.path().join("bad.jsonl");
        std::fs::write(&file, format!("{}\n", json!({ "method": "chat.postMessage", "body": body })))
            .unwrap();
        let ran = validate(&file);
        assert_eq!(ran.code, 1, "{body}: {ran:?}");
        assert!(ran.stdout.contains("1 of 1 payloads failed") && ran.stderr.is_empty(), "{ran:?}");
    }
    std::fs::write(dir.path().join("none.jsonl"), "").unwrap();
    assert_eq!(validate(&dir.path().join("none.jsonl")).code, 1);
}

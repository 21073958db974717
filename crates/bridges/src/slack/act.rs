//! People's actions in Slack, executed: each as the operator they are, through an operation, under an
//! idempotency key.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

mod click;
mod form;
mod request;
mod slash;
mod thread;

use self::request::{RequestResult, SlackRequest};
use super::access::SlackAccess;
use super::card::{self, People};
use super::deed::{Click, Deed, Said, Submit};
use super::kit::{Message, Words};
use super::sender::Wanted;
use super::web::{Trouble, Web};
use super::words::{Waiting, Word, typed, word};
use intercom_daemon::ops::{Attachment, Caller, ErrorKind, OpError};
use intercom_store::{SlackWant, SlackWish, Store};
use intercom_types::{Delivery, Json, OpenEnum, Session, SessionId};

/// A private answer is worth this many attempts; it is kept nowhere.
const TRIES: usize = 4;
/// So many are given at the same time; while Slack hangs, what is beyond that is not said.
const ASIDES: usize = 256;
const FIRST_WAIT: Duration = Duration::from_millis(300);
/// A stranger who talks in a thread is told once in a while.
const TOLD_FOR: Duration = Duration::from_mins(10);
const REPLY: &str = "reply";
const ALL: Waiting = Waiting { clearances: true, questions: true };
/// Homes that were looked at are kept up to date for a while.
const LOOKED_FOR: Duration = Duration::from_mins(30);

/// Our own store was in the way: the same may succeed later.
#[derive(Debug)]
pub(super) struct Again;

#[derive(Debug, Clone)]
pub(super) struct Actor(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    access: SlackAccess,
    store: Store,
    web: Arc<Web>,
    /// Rung when something is wanted of Slack.
    outbox: Arc<Notify>,
    /// Strangers who were told so; held for the moment of a look.
    told: Mutex<HashMap<String, Instant>>,
    /// Homes that are looked at or being shown; likewise.
    homes: Mutex<HashMap<String, Home>>,
    /// Private answers and forms that are on their way.
    asides: Arc<Semaphore>,
    tasks: TaskTracker,
    closing: CancellationToken,
}

/// The home of one person.
#[derive(Debug, Default)]
struct Home {
    /// When it was last opened by an operator.
    looked_at: Option<Instant>,
    /// Somebody is about to show it, and does so again while it is out of date.
    showing: bool,
    stale: bool,
}

/// Where a private answer goes.
#[derive(Debug, Clone, Default)]
pub(super) struct Desk {
    user: String,
    url: Option<String>,
    channel: Option<String>,
    thread: Option<String>,
}

impl Desk {
    fn of_click(click: &Click) -> Self {
        let Click { user, answer, channel, thread, .. } = click.clone();
        Self { user, url: answer, channel, thread }
    }

    fn of_said(said: &Said) -> Self {
        let Said { user, channel, thread, .. } = said.clone();
        Self { user, url: None, channel: Some(channel), thread }
    }
}

impl Actor {
    /// Creates the actor. The background work that it starts is among `tasks`, and ends with `closing`.
    pub(super) fn new(
        access: SlackAccess,
        store: Store,
        web: Arc<Web>,
        outbox: Arc<Notify>,
        tasks: TaskTracker,
        closing: CancellationToken,
    ) -> Self {
        let (told, homes, asides) = (Mutex::default(), Mutex::default(), Arc::new(Semaphore::new(ASIDES)));
        Self(Arc::new(Inner { access, store, web, outbox, told, homes, asides, tasks, closing }))
    }

    fn access(&self) -> &SlackAccess {
        &self.0.access
    }

    /// With `last`, what cannot be done is said to have failed.
    pub(super) async fn act(&self, key: &str, deed: &Deed, last: bool) -> Result<(), Again> {
        let key = &format!("slack {key}");
        let (desk, user, what) = match deed {
            Deed::Click(click) => (Desk::of_click(click), &click.user, format!("click {}", click.action)),
            Deed::Submit(submit) => {
                (self.desk_of(submit).await, &submit.user, format!("form {}", submit.form))
            }
            Deed::Shortcut { user, answer, .. } => (
                Desk { user: user.clone(), url: answer.clone(), ..Desk::default() },
                user,
                "shortcut".to_owned(),
            ),
            Deed::Slash { user, channel, answer, .. } => {
                let channel = Some(channel.clone());
                let desk = Desk { user: user.clone(), url: answer.clone(), channel, thread: None };
                (desk, user, "/intercom".to_owned())
            }
            Deed::Said(said) => {
                // Most of what people say to each other is none of our business.
                let thread = match self.thread_of(said).await {
                    Err(Again) if last => None,
                    found => found?,
                };
                let Some(thread) = thread else { return Ok(()) };
                let desk = Desk::of_said(said);
                let Some(who) = self.access().operator(&said.user) else {
                    let ordered = !matches!(word(&typed(&said.text), ALL), Word::Prompt(_));
                    self.stranger(&desk, &said.user, if ordered { "word" } else { REPLY }).await;
                    return Ok(());
                };
                let done = self.said(&who, key, said, &thread, &desk).await;
                return self.or_sorry(done, &desk, last).await;
            }
            Deed::HomeOpened { user } => {
                if self.access().operator(user).is_some() {
                    self.homes().entry(user.clone()).or_default().looked_at = Some(Instant::now());
                }
                self.show_home(user);
                return Ok(());
            }
            Deed::Unknown { what } => {
                tracing::debug!(what, "Slack sent something that nobody knows here");
                return Ok(());
            }
        };
        let Some(who) = self.access().operator(user) else {
            if let Deed::Slash { text, .. } = deed
                && matches!(super::words::slash(text), super::words::Slash::Whoami)
            {
                self.tell(&desk, &card::note("whoami", self.whoami_words(user))).await;
                return Ok(());
            }
            self.stranger(&desk, user, &what).await;
            return Ok(());
        };
        let done = match deed {
            Deed::Click(click) => self.click(&who, key, click, &desk).await,
            Deed::Submit(submit) => self.submit(&who, key, submit, &desk).await,
            Deed::Shortcut { text, trigger, .. } => {
                self.open_send(&desk, trigger, text).await;
                Ok(())
            }
            Deed::Slash { text, .. } => self.slash(&who, key, text, &desk).await,
            Deed::Said(_) | Deed::HomeOpened { .. } | Deed::Unknown { .. } => Ok(()),
        };
        self.or_sorry(done, &desk, last).await
    }

    async fn or_sorry(&self, done: Result<(), Again>, desk: &Desk, last: bool) -> Result<(), Again> {
        if done.is_err() && last {
            let sorry = "intercom could not write it down, so *nothing was done*. Please try again later.";
            self.say(desk, Words::new(sorry)).await;
            return Ok(());
        }
        done
    }

    /// Not an operator: told privately, and written down. People who talk to each other in a thread are not told, and not
    /// written down, with every word.
    async fn stranger(&self, desk: &Desk, user: &str, what: &str) {
        if what == REPLY && !self.is_news(&format!("{user} {:?}", desk.thread)) {
            return;
        }
        self.record(&format!("slack {user}"), &json!({ "slack": user, "what": what, "via": "slack" })).await;
        let words = "You are not an operator here, so nothing was done. Whoever runs intercom can add your Slack id: ";
        self.say(desk, Words::new(words).and(Words::said(user).code())).await;
    }

    fn is_news(&self, who: &str) -> bool {
        let mut told = self.0.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.retain(|_, at| at.elapsed() < TOLD_FOR);
        // Not renewed: who goes on is told again.
        let mut news = false;
        told.entry(who.to_owned()).or_insert_with(|| {
            news = true;
            Instant::now()
        });
        news
    }

    /// A refusal.
    async fn record(&self, by: &str, data: &Value) {
        self.access().ops().record("access.refused", by, None, Json::of(data)).await;
    }

    async fn say(&self, desk: &Desk, words: Words) {
        self.tell(desk, &card::note("answer", words)).await;
    }

    /// To this person only, and nobody waits for it: not those who act in the same thread.
    #[expect(clippy::unused_async, reason = "it belongs to what is awaited")]
    async fn tell(&self, desk: &Desk, message: &Message) {
        let (this, desk, body) = (self.clone(), desk.clone(), json!(message));
        self.aside(async move { this.tell_now(&desk, body).await });
    }

    /// Does something that changes nothing here. With too much of it on the way, it is not done, and this is `false`.
    fn aside(&self, what: impl Future<Output = ()> + Send + 'static) -> bool {
        let Ok(permit) = Arc::clone(&self.0.asides).try_acquire_owned() else {
            tracing::warn!("too many private answers are on their way: one is not given");
            return false;
        };
        let closing = self.0.closing.clone();
        self.0.tasks.spawn(async move {
            closing.run_until_cancelled(what).await;
            drop(permit);
        });
        true
    }

    /// A few attempts, and then it is not said: what was done is in the thread anyway.
    async fn tell_now(&self, desk: &Desk, body: Value) {
        let mut wait = FIRST_WAIT;
        let mut url = desk.url.clone();
        for _ in 0..TRIES {
            // Each way has arguments of its own: none of them may be left over for the next one.
            let mut body = body.clone();
            let told = match (&url, &desk.channel) {
                (Some(url), _) => {
                    body["response_type"] = json!("ephemeral");
                    body["replace_original"] = json!(false);
                    self.0.web.answer(url, &body).await
                }
                (None, Some(channel)) => {
                    body["channel"] = json!(channel);
                    body["user"] = json!(desk.user);
                    if let Some(thread) = &desk.thread {
                        body["thread_ts"] = json!(thread);
                    }
                    self.0.web.call("chat.postEphemeral", &body).await.map(drop)
                }
                (None, None) => {
                    body["channel"] = json!(desk.user);
                    self.0.web.call("chat.postMessage", &body).await.map(drop)
                }
            };
            match told {
                Ok(()) => return,
                // An address for answers is good for half an hour and five answers.
                Err(Trouble::Refused(_) | Trouble::Setup(_) | Trouble::Unknown(_)) if url.is_some() => {
                    url = None;
                }
                Err(Trouble::Unsure(why)) if url.is_some() && !why.starts_with("no answer") => url = None,
                Err(trouble @ (Trouble::Refused(_) | Trouble::Setup(_))) => {
                    tracing::warn!(%trouble, "a private answer was not taken");
                    return;
                }
                Err(Trouble::Slow(longer)) => tokio::time::sleep(longer.min(Duration::from_secs(10))).await,
                Err(_) => tokio::time::sleep(wait).await,
            }
            wait *= 2;
        }
    }

    /// Says what went wrong. Somebody who was faster is told with time and name. `true` if it was done all the same.
    async fn settle(&self, who: &Caller, desk: &Desk, error: &OpError) -> Result<bool, Again> {
        // The key is this deed's own: it was done before the daemon was killed, and now the same words mean something else.
        if error.code == "idempotency_key_reused" {
            return Ok(true);
        }
        let why = error.sentence();
        if error.kind.is_fault() {
            tracing::warn!(why, "what somebody wants in Slack cannot be done yet");
            return Err(Again);
        }
        if error.kind == ErrorKind::Forbidden {
            self.record(&who.name, &json!({ "why": why, "via": "slack" })).await;
        }
        let words = if error.code == "already_decided" { already(error) } else { Words::said(&why) };
        self.say(desk, words).await;
        Ok(false)
    }

    async fn carry_out(
        &self,
        who: &Caller,
        desk: &Desk,
        request: SlackRequest,
        key: &str,
    ) -> Result<bool, Again> {
        match request.carry_out(self.access().ops(), who, key).await {
            Ok(outcome) => {
                if let RequestResult::Sent(Delivery::Failed(cause)) = outcome {
                    self.say(desk, Words::new("It did not reach the agent: ").and(Words::said(&cause))).await;
                }
                Ok(true)
            }
            Err(error) => self.settle(who, desk, &error).await,
        }
    }

    /// Something that is to be seen in Slack.
    async fn want(&self, want: SlackWant) -> Result<(), Again> {
        self.0.store.slack_want(vec![want], None).await.map_err(|_| Again)?;
        self.0.outbox.notify_one();
        Ok(())
    }

    /// A reaction says that a reply was taken.
    async fn react(&self, key: String, session: SessionId, said: &Said, name: &str) -> Result<(), Again> {
        let wanted = Wanted::Reaction { of: said.ts.clone(), name: name.to_owned(), instead_of: None }.text();
        let (channel, memo) = (said.channel.clone(), String::new());
        let (session, thread) = (Some(session), None);
        self.want(SlackWant {
            key,
            session,
            channel,
            thread,
            wanted,
            open: false,
            memo,
            wish: SlackWish::IfNew,
        })
        .await
    }

    /// A form; if it does not open, this instead.
    #[expect(clippy::unused_async, reason = "it belongs to what is awaited")]
    async fn open(&self, desk: &Desk, trigger: &str, view: &super::kit::View, instead: Message) {
        let body = json!({ "trigger_id": trigger, "view": view });
        let (this, desk) = (self.clone(), desk.clone());
        self.aside(async move {
            if let Err(trouble) = this.0.web.call("views.open", &body).await {
                tracing::info!(%trouble, "a form did not open");
                this.tell(&desk, &instead).await;
            }
        });
    }

    async fn open_send(&self, desk: &Desk, trigger: &str, text: &str) {
        let sessions = self.access().live_sessions().await.unwrap_or_default();
        let view = card::send_to_agent(&sessions, &super::words::typed(text));
        let instead = Words::new("Use `/intercom send &lt;session&gt; &lt;text&gt;` instead.");
        self.open(desk, trigger, &view, not_opened(instead)).await;
    }

    fn homes(&self) -> std::sync::MutexGuard<'_, HashMap<String, Home>> {
        self.0.homes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows a home as it is now. Nobody waits for it: a call that hangs delays only the next picture of the same home.
    fn show_home(&self, user: &str) {
        {
            let mut homes = self.homes();
            let home = homes.entry(user.to_owned()).or_default();
            home.stale = true;
            if std::mem::replace(&mut home.showing, true) {
                return;
            }
        }
        let (this, whose) = (self.clone(), user.to_owned());
        let begun = self.aside(async move {
            while this.is_home_stale(&whose) {
                this.publish_home(&whose).await;
            }
        });
        if !begun && let Some(home) = self.homes().get_mut(user) {
            home.showing = false; // the next one who wants it shown begins again
        }
    }

    /// Takes the mark; without one, nobody shows this home any more.
    fn is_home_stale(&self, user: &str) -> bool {
        let mut homes = self.homes();
        let Some(home) = homes.get_mut(user) else { return false };
        home.showing = std::mem::take(&mut home.stale);
        let showing = home.showing;
        if !showing && home.looked_at.is_none() {
            homes.remove(user);
        }
        showing
    }

    async fn publish_home(&self, user: &str) {
        let who = self.access().operator(user);
        let view = match &who {
            None => card::home(&[], &[], &[], None),
            Some(who) => {
                let (live, recent, clearances, questions) = tokio::join!(
                    self.access().live_sessions(),
                    self.access().recent_sessions(),
                    self.access().pending_clearances(None),
                    self.access().pending_questions(None)
                );
                // What cannot be read now is not shown as nothing.
                let (Ok(mut sessions), Ok(recent), Ok(clearances), Ok(questions)) =
                    (live, recent, clearances, questions)
                else {
                    return;
                };
                let ended = |session: &Session| sessions.iter().all(|live| live.id != session.id);
                let ended: Vec<Session> = recent.into_iter().filter(ended).collect();
                sessions.extend(ended);
                card::home(&sessions, &clearances, &questions, Some((&who.name, who.role.as_str())))
            }
        };
        let body = json!({ "user_id": user, "view": view });
        if let Err(trouble) = self.0.web.call("views.publish", &body).await {
            tracing::info!(%trouble, user, "a home could not be shown");
        }
    }

    /// Shows the newest to those who have looked lately.
    pub(super) fn refresh_homes(&self) {
        let users: Vec<String> = {
            let mut homes = self.homes();
            let lately = |home: &Home| home.looked_at.is_some_and(|at| at.elapsed() < LOOKED_FOR);
            homes.retain(|_, home| home.showing || lately(home));
            homes.iter().filter(|(_, home)| lately(home)).map(|(user, _)| user.clone()).collect()
        };
        for user in users {
            self.show_home(&user);
        }
    }

    /// A form says nothing about where it came from: the thread of what it is about is as good.
    async fn desk_of(&self, submit: &Submit) -> Desk {
        let about = submit.about.split_whitespace().next().unwrap_or_default();
        let found = self.0.store.slack_message(about.to_owned()).await.ok().flatten();
        let root = match found.as_ref().and_then(|found| found.thread.clone()) {
            Some(root) => self.0.store.slack_message(root).await.ok().flatten(),
            None => found,
        };
        let (channel, thread) = root.map(|root| (Some(root.channel), root.ts)).unwrap_or_default();
        Desk { user: submit.user.clone(), url: None, channel, thread }
    }
}

pub(super) fn people(access: &SlackAccess) -> People {
    let config = access.config();
    let known = config.operators.iter();
    People::new(known.filter_map(|known| Some((known.name.clone(), known.slack.clone()?))).collect())
}

/// Returns a note with the text to type instead of filling in a form.
fn not_opened(instead: Words) -> Message {
    card::note("answer", Words::new("The form did not open. ").and(instead))
}

/// Names the person who decided first, and the time.
fn already(error: &OpError) -> Words {
    let (status, by, at) = match error.attached.as_deref() {
        Some(Attachment::Clearance(clearance)) => {
            (clearance.status.as_str(), clearance.decided_by.as_deref(), clearance.decided_at)
        }
        Some(Attachment::Question(question)) => {
            let decision = question.decision.as_ref().map(OpenEnum::as_str);
            let status = decision.unwrap_or(question.status.as_str());
            (status, question.answered_by.as_deref(), question.answered_at)
        }
        _ => ("decided", None, None),
    };
    let mut words = Words::new("Already ").and(Words::said(status));
    if let Some(by) = by {
        words = words.and(" by ").and(Words::said(by));
    }
    if let Some(at) = at {
        words = words.and(" at ").and(Words::date(at));
    }
    words.and(".")
}

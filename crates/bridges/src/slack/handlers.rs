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
use super::block_kit::{CardMessage, MrkdwnText};
use super::card::{self, OperatorDirectory};
use super::commands::{PendingKinds, ThreadCommand, decode_text, parse_thread_command};
use super::interaction::{ButtonClick, FormSubmission, Interaction, ThreadMessage};
use super::sender::DesiredContent;
use super::web_api::{SlackCallError, WebApi};
use intercom_daemon::ops::{Caller, ErrorKind, OpError};
use intercom_store::{DesiredMessage, Store, UpsertRule};
use intercom_types::{Delivery, ErrorAttachment, Json, OpenEnum, Session, SessionId};

/// A private answer is worth this many attempts; it is kept nowhere.
const TRIES: usize = 4;
/// So many are given at the same time; while Slack hangs, what is beyond that is not said.
const ASIDES: usize = 256;
const FIRST_WAIT: Duration = Duration::from_millis(300);
/// A stranger who talks in a thread is told once in a while.
const REFUSAL_NOTICE_EVERY: Duration = Duration::from_mins(10);
const REPLY: &str = "reply";
const ALL: PendingKinds = PendingKinds { clearances: true, questions: true };
/// Homes that were looked at are kept up to date for a while.
const LOOKED_FOR: Duration = Duration::from_mins(30);

/// Our own store was in the way: the same may succeed later.
#[derive(Debug)]
pub(super) struct Retry;

#[derive(Debug, Clone)]
pub(super) struct InteractionHandler(Arc<HandlerResources>);

#[derive(Debug)]
struct HandlerResources {
    access: SlackAccess,
    store: Store,
    web: Arc<WebApi>,
    /// Rung when something is wanted of Slack.
    outbox: Arc<Notify>,
    /// Strangers who were told so; held for the moment of a look.
    refusal_notices: Mutex<HashMap<String, Instant>>,
    /// Homes that are looked at or being shown; likewise.
    homes: Mutex<HashMap<String, HomeTabState>>,
    /// Private answers and forms that are on their way.
    reply_permits: Arc<Semaphore>,
    tasks: TaskTracker,
    closing: CancellationToken,
}

/// The home of one person.
#[derive(Debug, Default)]
struct HomeTabState {
    /// When it was last opened by an operator.
    looked_at: Option<Instant>,
    /// Somebody is about to show it, and does so again while it is out of date.
    showing: bool,
    stale: bool,
}

/// Where a private answer goes.
#[derive(Debug, Clone, Default)]
pub(super) struct ReplyTarget {
    user: String,
    url: Option<String>,
    channel: Option<String>,
    thread: Option<String>,
}

impl ReplyTarget {
    fn of_click(click: &ButtonClick) -> Self {
        let ButtonClick { user, answer, channel, thread, .. } = click.clone();
        Self { user, url: answer, channel, thread }
    }

    fn of_said(said: &ThreadMessage) -> Self {
        let ThreadMessage { user, channel, thread, .. } = said.clone();
        Self { user, url: None, channel: Some(channel), thread }
    }
}

impl InteractionHandler {
    /// Creates the actor. The background work that it starts is among `tasks`, and ends with `closing`.
    pub(super) fn new(
        access: SlackAccess,
        store: Store,
        web: Arc<WebApi>,
        outbox: Arc<Notify>,
        tasks: TaskTracker,
        closing: CancellationToken,
    ) -> Self {
        let (told, homes, asides) = (Mutex::default(), Mutex::default(), Arc::new(Semaphore::new(ASIDES)));
        Self(Arc::new(HandlerResources {
            access,
            store,
            web,
            outbox,
            refusal_notices: told,
            homes,
            reply_permits: asides,
            tasks,
            closing,
        }))
    }

    fn access(&self) -> &SlackAccess {
        &self.0.access
    }

    /// With `last`, what cannot be done is said to have failed.
    pub(super) async fn handle(&self, key: &str, deed: &Interaction, last: bool) -> Result<(), Retry> {
        let key = &format!("slack {key}");
        let (desk, user, what) = match deed {
            Interaction::Click(click) => {
                (ReplyTarget::of_click(click), &click.user, format!("click {}", click.action))
            }
            Interaction::Submit(submit) => {
                (self.reply_target_of(submit).await, &submit.user, format!("form {}", submit.form))
            }
            Interaction::Shortcut { user, answer, .. } => (
                ReplyTarget { user: user.clone(), url: answer.clone(), ..ReplyTarget::default() },
                user,
                "shortcut".to_owned(),
            ),
            Interaction::Slash { user, channel, answer, .. } => {
                let channel = Some(channel.clone());
                let desk = ReplyTarget { user: user.clone(), url: answer.clone(), channel, thread: None };
                (desk, user, "/intercom".to_owned())
            }
            Interaction::Message(said) => {
                // Most of what people say to each other is none of our business.
                let thread = match self.thread_of(said).await {
                    Err(Retry) if last => None,
                    found => found?,
                };
                let Some(thread) = thread else { return Ok(()) };
                let desk = ReplyTarget::of_said(said);
                let Some(who) = self.access().operator(&said.user) else {
                    let ordered = !matches!(
                        parse_thread_command(&decode_text(&said.text), ALL),
                        ThreadCommand::Prompt(_)
                    );
                    self.refuse_stranger(&desk, &said.user, if ordered { "word" } else { REPLY }).await;
                    return Ok(());
                };
                let done = self.handle_message(&who, key, said, &thread, &desk).await;
                return self.report_final_failure(done, &desk, last).await;
            }
            Interaction::HomeOpened { user } => {
                if self.access().operator(user).is_some() {
                    self.homes().entry(user.clone()).or_default().looked_at = Some(Instant::now());
                }
                self.show_home(user);
                return Ok(());
            }
            Interaction::Unknown { what } => {
                tracing::debug!(what, "Slack sent something that nobody knows here");
                return Ok(());
            }
        };
        let Some(who) = self.access().operator(user) else {
            if let Interaction::Slash { text, .. } = deed
                && matches!(super::commands::parse_slash_command(text), super::commands::SlashCommand::Whoami)
            {
                self.reply(&desk, &card::note("whoami", self.whoami_words(user))).await;
                return Ok(());
            }
            self.refuse_stranger(&desk, user, &what).await;
            return Ok(());
        };
        let done = match deed {
            Interaction::Click(click) => self.click(&who, key, click, &desk).await,
            Interaction::Submit(submit) => self.submit(&who, key, submit, &desk).await,
            Interaction::Shortcut { text, trigger, .. } => {
                self.open_send(&desk, trigger, text).await;
                Ok(())
            }
            Interaction::Slash { text, .. } => self.slash(&who, key, text, &desk).await,
            Interaction::Message(_) | Interaction::HomeOpened { .. } | Interaction::Unknown { .. } => Ok(()),
        };
        self.report_final_failure(done, &desk, last).await
    }

    async fn report_final_failure(
        &self,
        done: Result<(), Retry>,
        desk: &ReplyTarget,
        last: bool,
    ) -> Result<(), Retry> {
        if done.is_err() && last {
            let sorry = "intercom could not write it down, so *nothing was done*. Please try again later.";
            self.reply_text(desk, MrkdwnText::new(sorry)).await;
            return Ok(());
        }
        done
    }

    /// Not an operator: told privately, and written down. People who talk to each other in a thread are not told, and not
    /// written down, with every word.
    async fn refuse_stranger(&self, desk: &ReplyTarget, user: &str, what: &str) {
        if what == REPLY && !self.is_notice_due(&format!("{user} {:?}", desk.thread)) {
            return;
        }
        self.record_refusal(
            &format!("slack {user}"),
            &json!({ "slack": user, "what": what, "via": "slack" }),
        )
        .await;
        let words = "You are not an operator here, so nothing was done. Whoever runs intercom can add your Slack id: ";
        self.reply_text(desk, MrkdwnText::new(words).and(MrkdwnText::untrusted(user).code())).await;
    }

    fn is_notice_due(&self, who: &str) -> bool {
        let mut told = self.0.refusal_notices.lock().unwrap_or_else(PoisonError::into_inner);
        told.retain(|_, at| at.elapsed() < REFUSAL_NOTICE_EVERY);
        // Not renewed: who goes on is told again.
        let mut news = false;
        told.entry(who.to_owned()).or_insert_with(|| {
            news = true;
            Instant::now()
        });
        news
    }

    /// A refusal.
    async fn record_refusal(&self, by: &str, data: &Value) {
        self.access().ops().record("access.refused", by, None, Json::of(data)).await;
    }

    async fn reply_text(&self, desk: &ReplyTarget, words: MrkdwnText) {
        self.reply(desk, &card::note("answer", words)).await;
    }

    /// To this person only, and nobody waits for it: not those who act in the same thread.
    #[expect(clippy::unused_async, reason = "it belongs to what is awaited")]
    async fn reply(&self, desk: &ReplyTarget, message: &CardMessage) {
        let (this, desk, body) = (self.clone(), desk.clone(), json!(message));
        self.spawn_bounded(async move { this.send_reply(&desk, body).await });
    }

    /// Does something that changes nothing here. With too much of it on the way, it is not done, and this is `false`.
    fn spawn_bounded(&self, what: impl Future<Output = ()> + Send + 'static) -> bool {
        let Ok(permit) = Arc::clone(&self.0.reply_permits).try_acquire_owned() else {
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
    async fn send_reply(&self, desk: &ReplyTarget, body: Value) {
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
                Err(SlackCallError::Refused(_) | SlackCallError::Setup(_) | SlackCallError::Unknown(_))
                    if url.is_some() =>
                {
                    url = None;
                }
                Err(SlackCallError::Unsure(why)) if url.is_some() && !why.starts_with("no answer") => {
                    url = None;
                }
                Err(trouble @ (SlackCallError::Refused(_) | SlackCallError::Setup(_))) => {
                    tracing::warn!(%trouble, "a private answer was not taken");
                    return;
                }
                Err(SlackCallError::Slow(longer)) => {
                    tokio::time::sleep(longer.min(Duration::from_secs(10))).await;
                }
                Err(_) => tokio::time::sleep(wait).await,
            }
            wait *= 2;
        }
    }

    /// Says what went wrong. Somebody who was faster is told with time and name. `true` if it was done all the same.
    async fn handle_error(&self, who: &Caller, desk: &ReplyTarget, error: &OpError) -> Result<bool, Retry> {
        // The key is this deed's own: it was done before the daemon was killed, and now the same words mean something else.
        if error.code == "idempotency_key_reused" {
            return Ok(true);
        }
        let why = error.sentence();
        if error.kind.is_fault() {
            tracing::warn!(why, "what somebody wants in Slack cannot be done yet");
            return Err(Retry);
        }
        if error.kind == ErrorKind::Forbidden {
            self.record_refusal(&who.name, &json!({ "why": why, "via": "slack" })).await;
        }
        let words = if error.code == "already_decided" {
            already_decided(error)
        } else {
            MrkdwnText::untrusted(&why)
        };
        self.reply_text(desk, words).await;
        Ok(false)
    }

    async fn carry_out(
        &self,
        who: &Caller,
        desk: &ReplyTarget,
        request: SlackRequest,
        key: &str,
    ) -> Result<bool, Retry> {
        match request.carry_out(self.access().ops(), who, key).await {
            Ok(outcome) => {
                if let RequestResult::Sent(Delivery::Failed(cause)) = outcome {
                    self.reply_text(
                        desk,
                        MrkdwnText::new("It did not reach the agent: ").and(MrkdwnText::untrusted(&cause)),
                    )
                    .await;
                }
                Ok(true)
            }
            Err(error) => self.handle_error(who, desk, &error).await,
        }
    }

    /// Something that is to be seen in Slack.
    async fn enqueue(&self, want: DesiredMessage) -> Result<(), Retry> {
        self.0.store.slack_upsert(vec![want], None).await.map_err(|_| Retry)?;
        self.0.outbox.notify_one();
        Ok(())
    }

    /// A reaction says that a reply was taken.
    async fn react(
        &self,
        key: String,
        session: SessionId,
        said: &ThreadMessage,
        name: &str,
    ) -> Result<(), Retry> {
        let wanted =
            DesiredContent::Reaction { of: said.ts.clone(), name: name.to_owned(), instead_of: None }.text();
        let (channel, memo) = (said.channel.clone(), String::new());
        let (session, thread) = (Some(session), None);
        self.enqueue(DesiredMessage {
            key,
            session,
            channel,
            thread,
            wanted,
            open: false,
            memo,
            upsert_rule: UpsertRule::IfNew,
        })
        .await
    }

    /// A form; if it does not open, this instead.
    #[expect(clippy::unused_async, reason = "it belongs to what is awaited")]
    async fn open(
        &self,
        desk: &ReplyTarget,
        trigger: &str,
        view: &super::block_kit::SlackView,
        instead: CardMessage,
    ) {
        let body = json!({ "trigger_id": trigger, "view": view });
        let (this, desk) = (self.clone(), desk.clone());
        self.spawn_bounded(async move {
            if let Err(trouble) = this.0.web.call("views.open", &body).await {
                tracing::info!(%trouble, "a form did not open");
                this.reply(&desk, &instead).await;
            }
        });
    }

    async fn open_send(&self, desk: &ReplyTarget, trigger: &str, text: &str) {
        let sessions = self.access().live_sessions().await.unwrap_or_default();
        let view = card::send_to_agent(&sessions, &super::commands::decode_text(text));
        let instead = MrkdwnText::new("Use `/intercom send &lt;session&gt; &lt;text&gt;` instead.");
        self.open(desk, trigger, &view, not_opened(instead)).await;
    }

    fn homes(&self) -> std::sync::MutexGuard<'_, HashMap<String, HomeTabState>> {
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
        let begun = self.spawn_bounded(async move {
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
            let lately = |home: &HomeTabState| home.looked_at.is_some_and(|at| at.elapsed() < LOOKED_FOR);
            homes.retain(|_, home| home.showing || lately(home));
            homes.iter().filter(|(_, home)| lately(home)).map(|(user, _)| user.clone()).collect()
        };
        for user in users {
            self.show_home(&user);
        }
    }

    /// A form says nothing about where it came from: the thread of what it is about is as good.
    async fn reply_target_of(&self, submit: &FormSubmission) -> ReplyTarget {
        let about = submit.about.split_whitespace().next().unwrap_or_default();
        let found = self.0.store.slack_message(about.to_owned()).await.ok().flatten();
        let root = match found.as_ref().and_then(|found| found.thread.clone()) {
            Some(root) => self.0.store.slack_message(root).await.ok().flatten(),
            None => found,
        };
        let (channel, thread) = root.map(|root| (Some(root.channel), root.ts)).unwrap_or_default();
        ReplyTarget { user: submit.user.clone(), url: None, channel, thread }
    }
}

pub(super) fn people(access: &SlackAccess) -> OperatorDirectory {
    let config = access.config();
    let known = config.operators.iter();
    OperatorDirectory::new(
        known.filter_map(|known| Some((known.name.clone(), known.slack.clone()?))).collect(),
    )
}

/// Returns a note with the text to type instead of filling in a form.
fn not_opened(instead: MrkdwnText) -> CardMessage {
    card::note("answer", MrkdwnText::new("The form did not open. ").and(instead))
}

/// Names the person who decided first, and the time.
fn already_decided(error: &OpError) -> MrkdwnText {
    let (status, by, at) = match error.attached.as_deref() {
        Some(ErrorAttachment::Clearance(clearance)) => {
            (clearance.status.as_str(), clearance.decided_by.as_deref(), clearance.decided_at)
        }
        Some(ErrorAttachment::Question(question)) => {
            let decision = question.decision.as_ref().map(OpenEnum::as_str);
            let status = decision.unwrap_or(question.status.as_str());
            (status, question.answered_by.as_deref(), question.answered_at)
        }
        _ => ("decided", None, None),
    };
    let mut words = MrkdwnText::new("Already ").and(MrkdwnText::untrusted(status));
    if let Some(by) = by {
        words = words.and(" by ").and(MrkdwnText::untrusted(by));
    }
    if let Some(at) = at {
        words = words.and(" at ").and(MrkdwnText::date(at));
    }
    words.and(".")
}

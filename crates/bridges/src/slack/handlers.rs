//! The execution of people's actions in Slack: each as the operator that the person is, through an operation, under an
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
use intercom_store::{DesiredMessage, Store};
use intercom_types::{Delivery, ErrorAttachment, Json, OpenEnum, Session, SessionId};

/// The limit on attempts to send a private answer, which is not stored.
const MAX_ATTEMPTS: usize = 4;
/// The limit on concurrent private answers. While Slack hangs, further ones are dropped.
const MAX_REPLIES: usize = 256;
const FIRST_WAIT: Duration = Duration::from_millis(300);
/// The interval of refusal notices to a stranger who writes in a thread.
const REFUSAL_NOTICE_EVERY: Duration = Duration::from_mins(10);
const REPLY: &str = "reply";
const ALL: PendingKinds = PendingKinds { clearances: true, questions: true };
/// The time for which an opened home tab is kept up to date.
const HOME_REFRESH_TIME: Duration = Duration::from_mins(30);

/// A failure of our own store: the same action may succeed later.
#[derive(Debug)]
pub(super) struct Retry;

#[derive(Debug, Clone)]
pub(super) struct InteractionHandler(Arc<HandlerResources>);

#[derive(Debug)]
struct HandlerResources {
    access: SlackAccess,
    store: Store,
    web: Arc<WebApi>,
    /// Notified when there is a message to send.
    outbox: Arc<Notify>,
    /// The last notices to strangers; locked only for one lookup.
    refusal_notices: Mutex<HashMap<String, Instant>>,
    /// The home tabs that are open or being updated; locked only for one lookup.
    homes: Mutex<HashMap<String, HomeTabState>>,
    /// Permits for private answers and forms in flight.
    reply_permits: Arc<Semaphore>,
    tasks: TaskTracker,
    closing: CancellationToken,
}

/// The home tab of one person.
#[derive(Debug, Default)]
struct HomeTabState {
    /// The time at which an operator last opened it.
    viewed_at: Option<Instant>,
    /// True while a task updates it; the task repeats while it is stale.
    showing: bool,
    stale: bool,
}

/// The destination of a private answer.
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

    fn of_message(message: &ThreadMessage) -> Self {
        let ThreadMessage { user, channel, thread, .. } = message.clone();
        Self { user, url: None, channel: Some(channel), thread }
    }
}

impl InteractionHandler {
    /// Creates the handler. Its background tasks are tracked by `tasks` and end with `closing`.
    pub(super) fn new(
        access: SlackAccess,
        store: Store,
        web: Arc<WebApi>,
        outbox: Arc<Notify>,
        tasks: TaskTracker,
        closing: CancellationToken,
    ) -> Self {
        let (notices, homes, permits) =
            (Mutex::default(), Mutex::default(), Arc::new(Semaphore::new(MAX_REPLIES)));
        Self(Arc::new(HandlerResources {
            access,
            store,
            web,
            outbox,
            refusal_notices: notices,
            homes,
            reply_permits: permits,
            tasks,
            closing,
        }))
    }

    fn access(&self) -> &SlackAccess {
        &self.0.access
    }

    /// Executes an action. If `last` is set, a failure of the store is reported to the person instead of retried.
    pub(super) async fn handle(&self, key: &str, interaction: &Interaction, last: bool) -> Result<(), Retry> {
        let key = &format!("slack {key}");
        let (target, user, what) = match interaction {
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
                let target = ReplyTarget { user: user.clone(), url: answer.clone(), channel, thread: None };
                (target, user, "/intercom".to_owned())
            }
            Interaction::Message(message) => {
                // Most messages in a channel are not in threads of ours.
                let thread = match self.thread_of(message).await {
                    Err(Retry) if last => None,
                    found => found?,
                };
                let Some(thread) = thread else { return Ok(()) };
                let target = ReplyTarget::of_message(message);
                let Some(who) = self.access().operator(&message.user) else {
                    let ordered = !matches!(
                        parse_thread_command(&decode_text(&message.text), ALL),
                        ThreadCommand::Prompt(_)
                    );
                    self.refuse_stranger(&target, &message.user, if ordered { "word" } else { REPLY }).await;
                    return Ok(());
                };
                let done = self.handle_message(&who, key, message, &thread, &target).await;
                return self.report_final_failure(done, &target, last).await;
            }
            Interaction::HomeOpened { user } => {
                if self.access().operator(user).is_some() {
                    self.homes().entry(user.clone()).or_default().viewed_at = Some(Instant::now());
                }
                self.show_home(user);
                return Ok(());
            }
            Interaction::Unknown { what } => {
                tracing::debug!(what, "Slack sent an unknown interaction");
                return Ok(());
            }
        };
        let Some(who) = self.access().operator(user) else {
            if let Interaction::Slash { text, .. } = interaction
                && matches!(super::commands::parse_slash_command(text), super::commands::SlashCommand::Whoami)
            {
                self.reply(&target, &card::note("whoami", self.whoami_words(user))).await;
                return Ok(());
            }
            self.refuse_stranger(&target, user, &what).await;
            return Ok(());
        };
        let done = match interaction {
            Interaction::Click(click) => self.click(&who, key, click, &target).await,
            Interaction::Submit(submit) => self.submit(&who, key, submit, &target).await,
            Interaction::Shortcut { text, trigger, .. } => {
                self.open_send(&target, trigger, text).await;
                Ok(())
            }
            Interaction::Slash { text, .. } => self.slash(&who, key, text, &target).await,
            Interaction::Message(_) | Interaction::HomeOpened { .. } | Interaction::Unknown { .. } => Ok(()),
        };
        self.report_final_failure(done, &target, last).await
    }

    async fn report_final_failure(
        &self,
        done: Result<(), Retry>,
        target: &ReplyTarget,
        last: bool,
    ) -> Result<(), Retry> {
        if done.is_err() && last {
            let words = "intercom could not store this, so *nothing was done*. Please try again later.";
            self.reply_text(target, MrkdwnText::new(words)).await;
            return Ok(());
        }
        done
    }

    /// Tells a person privately that they are not an operator, and records it. People who talk to each other in a
    /// thread are told only once in a while.
    async fn refuse_stranger(&self, target: &ReplyTarget, user: &str, what: &str) {
        if what == REPLY && !self.is_notice_due(&format!("{user} {:?}", target.thread)) {
            return;
        }
        self.record_refusal(
            &format!("slack {user}"),
            &json!({ "slack": user, "what": what, "via": "slack" }),
        )
        .await;
        let words =
            "You are not an operator here, so nothing was done. The administrator can add your Slack id: ";
        self.reply_text(target, MrkdwnText::new(words).and(MrkdwnText::untrusted(user).code())).await;
    }

    fn is_notice_due(&self, who: &str) -> bool {
        let mut notices = self.0.refusal_notices.lock().unwrap_or_else(PoisonError::into_inner);
        notices.retain(|_, at| at.elapsed() < REFUSAL_NOTICE_EVERY);
        // Not renewed: a person who continues gets another notice.
        let mut is_new = false;
        notices.entry(who.to_owned()).or_insert_with(|| {
            is_new = true;
            Instant::now()
        });
        is_new
    }

    /// Records a refusal in the log.
    async fn record_refusal(&self, by: &str, data: &Value) {
        self.access().ops().record("access.refused", by, None, Json::of(data)).await;
    }

    async fn reply_text(&self, target: &ReplyTarget, words: MrkdwnText) {
        self.reply(target, &card::note("answer", words)).await;
    }

    /// Sends a message to this person only, in the background: other actions in the thread do not wait for it.
    #[expect(clippy::unused_async, reason = "it belongs to what is awaited")]
    async fn reply(&self, target: &ReplyTarget, message: &CardMessage) {
        let (this, target, body) = (self.clone(), target.clone(), json!(message));
        self.spawn_bounded(async move { this.send_reply(&target, body).await });
    }

    /// Starts background work that changes no state of ours. `false` if too much of it is in flight: then it is
    /// dropped.
    fn spawn_bounded(&self, what: impl Future<Output = ()> + Send + 'static) -> bool {
        let Ok(permit) = Arc::clone(&self.0.reply_permits).try_acquire_owned() else {
            tracing::warn!("too many private answers in flight: dropped one");
            return false;
        };
        let closing = self.0.closing.clone();
        self.0.tasks.spawn(async move {
            closing.run_until_cancelled(what).await;
            drop(permit);
        });
        true
    }

    /// Makes a few attempts, then gives up: the thread shows the outcome anyway.
    async fn send_reply(&self, target: &ReplyTarget, body: Value) {
        let mut wait = FIRST_WAIT;
        let mut url = target.url.clone();
        for _ in 0..MAX_ATTEMPTS {
            // Each method has its own arguments: none may be left over for the next attempt.
            let mut body = body.clone();
            let sent = match (&url, &target.channel) {
                (Some(url), _) => {
                    body["response_type"] = json!("ephemeral");
                    body["replace_original"] = json!(false);
                    self.0.web.answer(url, &body).await
                }
                (None, Some(channel)) => {
                    body["channel"] = json!(channel);
                    body["user"] = json!(target.user);
                    if let Some(thread) = &target.thread {
                        body["thread_ts"] = json!(thread);
                    }
                    self.0.web.call("chat.postEphemeral", &body).await.map(drop)
                }
                (None, None) => {
                    body["channel"] = json!(target.user);
                    self.0.web.call("chat.postMessage", &body).await.map(drop)
                }
            };
            match sent {
                Ok(()) => return,
                // A response URL is valid for half an hour and five answers; then we post as the bot.
                Err(SlackCallError::Refused(_) | SlackCallError::Setup(_) | SlackCallError::Unknown(_))
                    if url.is_some() =>
                {
                    url = None;
                }
                Err(SlackCallError::Unsure(why)) if url.is_some() && !why.starts_with("no answer") => {
                    url = None;
                }
                Err(trouble @ (SlackCallError::Refused(_) | SlackCallError::Setup(_))) => {
                    tracing::warn!(%trouble, "Slack refused a private answer");
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

    /// Reports an error to the person; if somebody else decided first, with name and time. `true` if the action was
    /// done after all.
    async fn handle_error(&self, who: &Caller, target: &ReplyTarget, error: &OpError) -> Result<bool, Retry> {
        // The key belongs to this interaction alone, so the action was done before the daemon was killed; the same text
        // only resolves to another request now.
        if error.code == "idempotency_key_reused" {
            return Ok(true);
        }
        let why = error.sentence();
        if error.kind.is_fault() {
            tracing::warn!(why, "an action in Slack failed; retrying");
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
        self.reply_text(target, words).await;
        Ok(false)
    }

    async fn carry_out(
        &self,
        who: &Caller,
        target: &ReplyTarget,
        request: SlackRequest,
        key: &str,
    ) -> Result<bool, Retry> {
        match request.carry_out(self.access().ops(), who, key).await {
            Ok(outcome) => {
                if let RequestResult::Sent(Delivery::Failed(cause)) = outcome {
                    self.reply_text(
                        target,
                        MrkdwnText::new("It did not reach the agent: ").and(MrkdwnText::untrusted(&cause)),
                    )
                    .await;
                }
                Ok(true)
            }
            Err(error) => self.handle_error(who, target, &error).await,
        }
    }

    /// Stores a message for the sender.
    async fn enqueue(&self, want: DesiredMessage) -> Result<(), Retry> {
        self.0.store.slack_upsert(vec![want], None).await.map_err(|_| Retry)?;
        self.0.outbox.notify_one();
        Ok(())
    }

    /// Acknowledges a reply with a reaction.
    async fn react(
        &self,
        key: String,
        session: SessionId,
        message: &ThreadMessage,
        name: &str,
    ) -> Result<(), Retry> {
        let reaction =
            DesiredContent::Reaction { of: message.ts.clone(), name: name.to_owned(), instead_of: None };
        self.enqueue(reaction.outside_of_threads(key, Some(session), message.channel.clone())).await
    }

    /// Opens a form; sends `instead` if that fails.
    #[expect(clippy::unused_async, reason = "it belongs to what is awaited")]
    async fn open(
        &self,
        target: &ReplyTarget,
        trigger: &str,
        view: &super::block_kit::SlackView,
        instead: CardMessage,
    ) {
        let body = json!({ "trigger_id": trigger, "view": view });
        let (this, target) = (self.clone(), target.clone());
        self.spawn_bounded(async move {
            // A trigger is valid for three seconds, so there is no second attempt.
            if let Err(trouble) = this.0.web.call("views.open", &body).await {
                tracing::info!(%trouble, "a form did not open");
                this.reply(&target, &instead).await;
            }
        });
    }

    async fn open_send(&self, target: &ReplyTarget, trigger: &str, text: &str) {
        let sessions = self.access().live_sessions().await.unwrap_or_default();
        let view = card::send_to_agent(&sessions, &super::commands::decode_text(text));
        let instead = MrkdwnText::new("Use `/intercom send &lt;session&gt; &lt;text&gt;` instead.");
        self.open(target, trigger, &view, not_opened(instead)).await;
    }

    fn homes(&self) -> std::sync::MutexGuard<'_, HashMap<String, HomeTabState>> {
        self.0.homes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Updates a home tab in the background. A call that hangs delays only the next update of the same tab.
    fn show_home(&self, user: &str) {
        {
            let mut homes = self.homes();
            let home = homes.entry(user.to_owned()).or_default();
            home.stale = true;
            if std::mem::replace(&mut home.showing, true) {
                return;
            }
        }
        let (this, user_id) = (self.clone(), user.to_owned());
        let begun = self.spawn_bounded(async move {
            while this.is_home_stale(&user_id) {
                this.publish_home(&user_id).await;
            }
        });
        if !begun && let Some(home) = self.homes().get_mut(user) {
            home.showing = false; // the next update starts a task again
        }
    }

    /// Takes the stale mark. Without a mark, the task of this home tab ends.
    fn is_home_stale(&self, user: &str) -> bool {
        let mut homes = self.homes();
        let Some(home) = homes.get_mut(user) else { return false };
        home.showing = std::mem::take(&mut home.stale);
        let showing = home.showing;
        if !showing && home.viewed_at.is_none() {
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
                // After a failed read an empty list would be wrong: leave the tab unchanged.
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
            tracing::info!(%trouble, user, "a home tab could not be updated");
        }
    }

    /// Updates the home tabs that were opened lately.
    pub(super) fn refresh_homes(&self) {
        let users: Vec<String> = {
            let mut homes = self.homes();
            let is_recent =
                |home: &HomeTabState| home.viewed_at.is_some_and(|at| at.elapsed() < HOME_REFRESH_TIME);
            homes.retain(|_, home| home.showing || is_recent(home));
            homes.iter().filter(|(_, home)| is_recent(home)).map(|(user, _)| user.clone()).collect()
        };
        for user in users {
            self.show_home(&user);
        }
    }

    /// Returns the thread for answers to a form. Slack does not report where the form was opened, so it is the thread
    /// of the form's request.
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

/// Returns a text with the person who decided first, and the time.
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

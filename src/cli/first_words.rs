//! The wait for a new agent: until it is ready and, with a prompt, until its first words or the end of its turn.
//!
//! An agent without a log-in starts, is ready, and fails its first turn half a minute later: only who waits that long sees it.

use std::io::IsTerminal as _;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::client::{Answer, Client};
use super::failure::{Failure, Refusal};
use super::stream::{Item, Stream};
use super::time::parse_duration;
use super::url::url;
use super::{Context, interrupted, lost_daemon, out, wait};
use intercom_daemon::config;
use intercom_types::event::{AgentUpdate, RawMessage, SettingRefused, Speaker};
use intercom_types::text::{clean, quoted, short};
use intercom_types::{Clearance, Phase, Question};
use intercom_types::{Event, Session};
use intercom_wire::acp::trouble::may_want_login;

/// How long to wait for an agent that starts.
#[derive(Debug, clap::Args)]
pub(super) struct WaitArgs {
    /// Do not wait for the agent
    #[arg(long, conflicts_with = "wait")]
    no_wait: bool,
    /// How long to wait for the agent's first words: seconds, or `30s`, `5m` [default: as configured, 30s]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    wait: Option<Duration>,
}

impl WaitArgs {
    /// The longest wait. A configuration that cannot be read is the daemon's to complain about.
    pub(super) fn limit(&self, cx: &Context) -> Duration {
        let configured = || {
            let config = config::load(Some(&cx.paths.config), cx.paths.config_explicit).unwrap_or_default();
            Duration::from_secs(config.run.wait_seconds)
        };
        if self.no_wait { Duration::ZERO } else { self.wait.unwrap_or_else(configured) }
    }
}

/// An agent that has been told to start.
pub(super) struct Started {
    /// The daemon's answer, and the session in it.
    pub(super) answer: Answer,
    pub(super) session: Session,
    /// A prompt waits for it.
    pub(super) prompted: bool,
    /// The end of the log before it was told to.
    pub(super) after: u64,
}

impl Started {
    /// Waits for its first words and says what to do next. With `--json` the session is printed once, when the wait is over.
    pub(super) async fn follow(self, limit: Duration, cx: &Context) -> anyhow::Result<()> {
        let Self { answer, session, prompted, after } = self;
        interrupted::note_session(&session.label(), cx);
        let waited = wait_for(&session, prompted, after, limit, cx).await;
        if cx.json {
            let now = cx.client.get(&url(&["sessions", &session.id], &[])).await;
            out::print_json(&now.map_or(answer.body, |now| now.body))?;
            return waited.map(drop).map_err(|failure| failure.answered().into());
        }
        let waited = waited?;
        waited.iter().for_each(wait::say_unenforced);
        if waited.is_some_and(|now| now.phase == Phase::Starting) {
            let name = clean(&session.label());
            out::advise(&format!("{name} is still starting; {} wait {name} --for idle", cx.call));
        }
        // For people only: a script finds what waits in the lists.
        if !std::io::stderr().is_terminal() {
            return Ok(());
        }
        if !say_requests(&session.id, cx).await {
            out::advise(&format!("next: {} logs -f {}", cx.call, clean(&session.label())));
        }
        Ok(())
    }
}

/// Says what the agent asks already, and how to answer. That it cannot be read now is no failure of the start.
async fn say_requests(session: &str, cx: &Context) -> bool {
    let of = [("status", "pending"), ("session", session)];
    let clearances = cx.client.list(&["clearances"], &of).await.and_then(|list| list.items());
    let questions = cx.client.list(&["questions"], &of).await.and_then(|list| list.items());
    let mut clearances: Vec<Clearance> = clearances.unwrap_or_default();
    let questions: Vec<Question> = questions.unwrap_or_default();
    Clearance::sort(&mut clearances);
    for one in &clearances {
        let id = short(&one.id);
        out::advise(&format!(
            "it asks for clearance [{}]: {}",
            &one.risk,
            intercom_types::action::line_of(one)
        ));
        out::advise(&format!(
            "next: {call} clearances {id}, then {call} approve {id} or {call} deny {id}",
            call = cx.call
        ));
    }
    for one in &questions {
        out::advise(&format!("it asks: {}", quoted(&clean(&one.text))));
        out::advise(&format!("next: {} answer {} continue", cx.call, short(&one.id)));
    }
    !clearances.is_empty() || !questions.is_empty()
}

/// The time that an agent without a handshake may take to say something by itself.
const TO_BEGIN: Duration = Duration::from_secs(2);

/// The time for a request that follows the first words. Many agents announce a tool call and ask for clearance a moment later:
/// whoever has just started one should hear of it.
const TO_ASK: Duration = Duration::from_secs(1);

/// The meaning of an event for the wait.
#[derive(Debug, PartialEq, Eq)]
enum Sign {
    Nothing,
    /// The agent works, and may ask for something next.
    Works,
    /// The agent is ready and has nothing to do, or asks for something.
    Waits,
    /// Something has ended: the session tells whether it failed.
    Ended,
}

#[derive(Debug, Default)]
struct Listener {
    prompted: bool,
    /// Ready means that it has answered.
    handshake: bool,
    /// The beginning of its first message.
    said: String,
}

impl Listener {
    fn hear(&mut self, event: &Event) -> Sign {
        match event {
            Event::AgentReady(_) if self.handshake && !self.prompted => Sign::Waits,
            Event::ClearanceRequested(_) | Event::QuestionAsked(_) => Sign::Waits,
            Event::Status(_) | Event::Heartbeat(_) => Sign::Works,
            Event::Update(message) => self.hear_update(message),
            Event::TurnEnded(_) | Event::SessionEnded(_) | Event::SessionParked(_) => Sign::Ended,
            _ => Sign::Nothing,
        }
    }

    /// Classifies an update. An agent's news about itself, such as its commands, is no work yet.
    fn hear_update(&mut self, message: &RawMessage) -> Sign {
        match message.update() {
            Some(AgentUpdate::Chunk(chunk)) => match chunk.speaker {
                Speaker::Agent => {
                    self.said.push_str(&chunk.text);
                    // "Not logged in" is a message as well: the end of the turn tells.
                    if may_want_login(&self.said) { Sign::Nothing } else { Sign::Works }
                }
                Speaker::Thought => Sign::Works,
                Speaker::Tool | Speaker::Plan | Speaker::User => Sign::Nothing,
            },
            None
            | Some(
                AgentUpdate::ToolCall { begins: true, .. } | AgentUpdate::Tool { .. } | AgentUpdate::Plan(_),
            ) => Sign::Works,
            Some(_) => Sign::Nothing,
        }
    }
}

/// The session after the wait; `None` without a wait. Fails if the agent does within the limit, or if the daemon goes away: nobody
/// knows then. An agent that takes longer is not waited for, and has not failed.
async fn wait_for(
    session: &Session,
    prompted: bool,
    after: u64,
    limit: Duration,
    cx: &Context,
) -> Result<Option<Session>, Failure> {
    let handshake = session.is_acp();
    let limit = if handshake || prompted { limit } else { limit.min(TO_BEGIN) };
    if limit.is_zero() {
        return Ok(None);
    }
    let listener = Listener { prompted, handshake, ..Listener::default() };
    let client = &cx.client;
    let followed = timeout_at(Instant::now() + limit, follow(session, listener, after, client)).await;
    let end = match followed {
        Ok(Ok(end)) => end,
        Ok(Err(error)) => return Err(lost(session, &error, client)),
        Err(_) => End::OutOfTime,
    };
    let now = look(session, client).await.map_err(|error| lost(session, &error, client))?;
    let failed = match &end {
        End::Works => None,
        End::Ended(event) => failure(&now, Some(event), cx),
        End::OutOfTime => failure(&now, None, cx),
    };
    failed.map_or(Ok(Some(now)), Err)
}

/// The end of the wait.
enum End {
    Works,
    /// This event ended the turn or the session.
    Ended(Box<Event>),
    OutOfTime,
}

async fn follow(
    session: &Session,
    mut listener: Listener,
    after: u64,
    client: &Client,
) -> anyhow::Result<End> {
    let mut stream = Stream::open(client, Some(&session.id), after).await?;
    let mut asks_until = None;
    loop {
        let item = match asks_until {
            None => stream.next().await?,
            Some(until) => match timeout_at(until, stream.next()).await {
                Ok(item) => item?,
                Err(_) => return Ok(End::Works),
            },
        };
        let event = match item {
            Item::Event(event) => event,
            Item::Lost => return Err(lost_daemon::while_following(session, client).into()),
            Item::Back => continue,
        };
        if let Event::SettingRefused(SettingRefused { set: None, reason, .. }) = &event.event {
            // A setting of the profile is not in force. A setting that a person asked for has a number.
            out::advise(&format!("warning: {}", clean(reason)));
        }
        match listener.hear(&event.event) {
            Sign::Nothing => {}
            Sign::Works => {
                asks_until.get_or_insert_with(|| Instant::now() + TO_ASK);
            }
            Sign::Waits => return Ok(End::Works),
            Sign::Ended => return Ok(End::Ended(Box::new(event.event))),
        }
    }
}

async fn look(session: &Session, client: &Client) -> anyhow::Result<Session> {
    client.get(&url(&["sessions", &session.id], &[])).await?.parse()
}

/// A daemon that refuses has its own words; one that is away has none.
fn lost(session: &Session, error: &anyhow::Error, client: &Client) -> Failure {
    if error.is::<Refusal>() {
        return Failure::failed(format!("{error:#}"));
    }
    lost_daemon::while_following(session, client)
}

/// The failure of a session that does not work any more.
fn failure(now: &Session, event: Option<&Event>, cx: &Context) -> Option<Failure> {
    let reason = now.failure().map(|failed| failed.reason.clone()).or_else(|| wait::failure(now, event))?;
    Some(Failure::of_agent(now, &reason, cx))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use intercom_types::EventKind;
    use intercom_types::samples::sample;

    fn event(kind: EventKind, fields: &Value) -> Event {
        sample(kind, fields).event()
    }

    fn chunk(text: &str) -> Event {
        let content = json!({ "type": "text", "text": text });
        event(
            EventKind::Update,
            &json!({ "update": { "sessionUpdate": "agent_message_chunk", "content": content } }),
        )
    }

    #[test]
    fn being_ready_is_enough_without_a_prompt_and_words_are_with_one() {
        let ready = event(EventKind::AgentReady, &json!({}));
        let listener = |prompted, handshake| Listener { prompted, handshake, ..Listener::default() };
        assert_eq!(listener(false, true).hear(&ready), Sign::Waits);
        assert_eq!(listener(true, true).hear(&ready), Sign::Nothing);
        assert_eq!(listener(false, false).hear(&ready), Sign::Nothing, "there is no handshake");
        let commands = json!({ "update": { "sessionUpdate": "available_commands_update" } });
        assert_eq!(listener(true, true).hear(&event(EventKind::Update, &commands)), Sign::Nothing);
        assert_eq!(listener(true, true).hear(&chunk("Looking")), Sign::Works);
        assert_eq!(listener(true, false).hear(&event(EventKind::Status, &json!({}))), Sign::Works);
        assert_eq!(listener(true, true).hear(&event(EventKind::TurnEnded, &json!({}))), Sign::Ended);
    }

    #[test]
    fn words_about_a_missing_log_in_are_waited_out() {
        let mut listener = Listener { prompted: true, handshake: true, ..Listener::default() };
        for text in ["Not", " logged in", " · Please run /login"] {
            assert_eq!(listener.hear(&chunk(text)), Sign::Nothing);
        }
        let mut listener = Listener::default();
        assert_eq!(listener.hear(&chunk("Not")), Sign::Nothing);
        assert_eq!(listener.hear(&chunk("hing to do")), Sign::Works);
    }
}

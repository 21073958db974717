//! The wait for a new agent: until it is ready and, with a prompt, until its first output or the end of its turn.
//!
//! An agent without a log-in starts, is ready, and fails its first turn half a minute later, so a shorter wait would
//! miss that.

use std::io::IsTerminal as _;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::client::{DaemonAnswer, DaemonClient};
use super::failure::{CliFailure, DaemonRefusal};
use super::stream::{DaemonEventStream, DaemonStreamItem};
use super::time::parse_duration;
use super::url::url;
use super::{CliContext, ctrl_c, lost_daemon, output, wait};
use intercom_daemon::config;
use intercom_types::event::{AgentUpdate, RawMessage, SettingRefused, Speaker};
use intercom_types::text::{clean, quoted, short};
use intercom_types::{Clearance, Phase, Question};
use intercom_types::{Event, Session};
use intercom_wire::acp::error_answer::may_want_login;

/// The time to wait for an agent that starts.
#[derive(Debug, clap::Args)]
pub(super) struct StartupWaitArgs {
    /// Do not wait for the agent
    #[arg(long, conflicts_with = "wait")]
    no_wait: bool,
    /// The longest wait for the agent's first output: seconds, or `30s`, `5m` [default: as configured, 30s]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    wait: Option<Duration>,
}

impl StartupWaitArgs {
    /// Returns the longest wait. An invalid configuration is reported by the daemon, not here.
    pub(super) fn limit(&self, cx: &CliContext) -> Duration {
        let configured = || {
            let config = config::load(Some(&cx.paths.config), cx.paths.config_explicit).unwrap_or_default();
            Duration::from_secs(config.run.wait_seconds)
        };
        if self.no_wait { Duration::ZERO } else { self.wait.unwrap_or_else(configured) }
    }
}

/// An agent whose start was requested.
pub(super) struct StartedAgent {
    /// The daemon's answer, and the session in it.
    pub(super) answer: DaemonAnswer,
    pub(super) session: Session,
    /// True if a prompt waits for it.
    pub(super) prompted: bool,
    /// The end of the log before the request.
    pub(super) after: u64,
}

impl StartedAgent {
    /// Waits for its first output and prints the next steps. With `--json` the session is printed once, when the wait
    /// is over.
    pub(super) async fn follow(self, limit: Duration, cx: &CliContext) -> anyhow::Result<()> {
        let Self { answer, session, prompted, after } = self;
        ctrl_c::set_session_note(&session.label(), cx);
        let waited = wait_for(&session, prompted, after, limit, cx).await;
        if cx.json {
            let now = cx.client.get(&url(&["sessions", &session.id], &[])).await;
            output::print_json(&now.map_or(answer.body, |now| now.body))?;
            return waited.map(drop).map_err(|failure| failure.answered().into());
        }
        let waited = waited?;
        waited.iter().for_each(wait::warn_if_unenforced);
        if waited.is_some_and(|now| now.phase == Phase::Starting) {
            let name = clean(&session.label());
            output::advise(&format!(
                "{name} is still starting; {} wait {name} --for idle",
                cx.command_prefix
            ));
        }
        // For people only: a script finds pending requests in the lists.
        if !std::io::stderr().is_terminal() {
            return Ok(());
        }
        if !report_requests(&session.id, cx).await {
            output::advise(&format!("next: {} logs -f {}", cx.command_prefix, clean(&session.label())));
        }
        Ok(())
    }
}

/// Prints the agent's pending requests, and how to answer them. A failed read is not a failure of the start.
async fn report_requests(session: &str, cx: &CliContext) -> bool {
    let of = [("status", "pending"), ("session", session)];
    let clearances = cx.client.list(&["clearances"], &of).await.and_then(|list| list.items());
    let questions = cx.client.list(&["questions"], &of).await.and_then(|list| list.items());
    let mut clearances: Vec<Clearance> = clearances.unwrap_or_default();
    let questions: Vec<Question> = questions.unwrap_or_default();
    Clearance::sort(&mut clearances);
    for one in &clearances {
        let id = short(&one.id);
        output::advise(&format!(
            "it asks for clearance [{}]: {}",
            &one.risk,
            intercom_types::action::line_of(one)
        ));
        output::advise(&format!(
            "next: {call} clearances {id}, then {call} approve {id} or {call} deny {id}",
            call = cx.command_prefix
        ));
    }
    for one in &questions {
        output::advise(&format!("it asks: {}", quoted(&clean(&one.text))));
        output::advise(&format!("next: {} answer {} continue", cx.command_prefix, short(&one.id)));
    }
    !clearances.is_empty() || !questions.is_empty()
}

/// The time for an agent without a handshake to begin by itself.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(2);

/// The time for a request after the first output. Many agents announce a tool call and ask for clearance a moment
/// later, and a person who has just started one should see that.
const REQUEST_WINDOW: Duration = Duration::from_secs(1);

/// The meaning of an event for the wait.
#[derive(Debug, PartialEq, Eq)]
enum StartupSignal {
    Nothing,
    /// The agent works, and may send a request next.
    Works,
    /// The agent is ready and idle, or has sent a request.
    Waits,
    /// Something has ended; the session shows whether it failed.
    Ended,
}

#[derive(Debug, Default)]
struct StartupObserver {
    prompted: bool,
    /// True if readiness proves that the agent has answered.
    handshake: bool,
    /// The beginning of its first message.
    message_text: String,
}

impl StartupObserver {
    fn observe(&mut self, event: &Event) -> StartupSignal {
        match event {
            Event::AgentReady(_) if self.handshake && !self.prompted => StartupSignal::Waits,
            Event::ClearanceRequested(_) | Event::QuestionAsked(_) => StartupSignal::Waits,
            Event::Status(_) | Event::Heartbeat(_) => StartupSignal::Works,
            Event::Update(message) => self.observe_update(message),
            Event::TurnEnded(_) | Event::SessionEnded(_) | Event::SessionParked(_) => StartupSignal::Ended,
            _ => StartupSignal::Nothing,
        }
    }

    /// Classifies an update. Facts about the agent itself, such as its commands, are not work.
    fn observe_update(&mut self, message: &RawMessage) -> StartupSignal {
        match message.update() {
            Some(AgentUpdate::Chunk(chunk)) => match chunk.speaker {
                Speaker::Agent => {
                    self.message_text.push_str(&chunk.text);
                    // "Not logged in" is a message as well; the end of the turn decides.
                    if may_want_login(&self.message_text) {
                        StartupSignal::Nothing
                    } else {
                        StartupSignal::Works
                    }
                }
                Speaker::Thought => StartupSignal::Works,
                Speaker::Tool | Speaker::Plan | Speaker::User => StartupSignal::Nothing,
            },
            None
            | Some(
                AgentUpdate::ToolCall { begins: true, .. } | AgentUpdate::Tool { .. } | AgentUpdate::Plan(_),
            ) => StartupSignal::Works,
            Some(_) => StartupSignal::Nothing,
        }
    }
}

/// Returns the session after the wait; `None` without a wait. Fails if the agent fails within the limit, or if the
/// daemon goes away, because nothing is known then. A slow agent has not failed.
async fn wait_for(
    session: &Session,
    prompted: bool,
    after: u64,
    limit: Duration,
    cx: &CliContext,
) -> Result<Option<Session>, CliFailure> {
    let handshake = session.is_acp();
    let limit = if handshake || prompted { limit } else { limit.min(BEGIN_TIMEOUT) };
    if limit.is_zero() {
        return Ok(None);
    }
    let listener = StartupObserver { prompted, handshake, ..StartupObserver::default() };
    let client = &cx.client;
    let followed = timeout_at(Instant::now() + limit, follow(session, listener, after, client)).await;
    let end = match followed {
        Ok(Ok(end)) => end,
        Ok(Err(error)) => return Err(connection_failure(session, &error, client)),
        Err(_) => StartupOutcome::OutOfTime,
    };
    let now =
        fetch_session(session, client).await.map_err(|error| connection_failure(session, &error, client))?;
    let failed = match &end {
        StartupOutcome::Works => None,
        StartupOutcome::Ended(event) => failure(&now, Some(event), cx),
        StartupOutcome::OutOfTime => failure(&now, None, cx),
    };
    failed.map_or(Ok(Some(now)), Err)
}

/// The end of the wait.
enum StartupOutcome {
    Works,
    /// This event ended the turn or the session.
    Ended(Box<Event>),
    OutOfTime,
}

async fn follow(
    session: &Session,
    mut listener: StartupObserver,
    after: u64,
    client: &DaemonClient,
) -> anyhow::Result<StartupOutcome> {
    let mut stream = DaemonEventStream::open(client, Some(&session.id), after).await?;
    let mut asks_until = None;
    loop {
        let item = match asks_until {
            None => stream.next().await?,
            Some(until) => match timeout_at(until, stream.next()).await {
                Ok(item) => item?,
                Err(_) => return Ok(StartupOutcome::Works),
            },
        };
        let event = match item {
            DaemonStreamItem::Event(event) => event,
            DaemonStreamItem::Lost => return Err(lost_daemon::while_following(session, client).into()),
            DaemonStreamItem::Back => continue,
        };
        if let Event::SettingRefused(SettingRefused { set: None, reason, .. }) = &event.event {
            // A setting of the profile was refused. Settings that a person asked for have a number.
            output::advise(&format!("warning: {}", clean(reason)));
        }
        match listener.observe(&event.event) {
            StartupSignal::Nothing => {}
            StartupSignal::Works => {
                asks_until.get_or_insert_with(|| Instant::now() + REQUEST_WINDOW);
            }
            StartupSignal::Waits => return Ok(StartupOutcome::Works),
            StartupSignal::Ended => return Ok(StartupOutcome::Ended(Box::new(event.event))),
        }
    }
}

async fn fetch_session(session: &Session, client: &DaemonClient) -> anyhow::Result<Session> {
    client.get(&url(&["sessions", &session.id], &[])).await?.parse()
}

/// Returns the daemon's error if it refused, or advice if it is away.
fn connection_failure(session: &Session, error: &anyhow::Error, client: &DaemonClient) -> CliFailure {
    if error.is::<DaemonRefusal>() {
        return CliFailure::failed(format!("{error:#}"));
    }
    lost_daemon::while_following(session, client)
}

/// Returns the failure of a session that does not work any more.
fn failure(now: &Session, event: Option<&Event>, cx: &CliContext) -> Option<CliFailure> {
    let reason = now.failure().map(|failed| failed.reason.clone()).or_else(|| wait::failure(now, event))?;
    Some(CliFailure::of_agent(now, &reason, cx))
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
        let listener =
            |prompted, handshake| StartupObserver { prompted, handshake, ..StartupObserver::default() };
        assert_eq!(listener(false, true).observe(&ready), StartupSignal::Waits);
        assert_eq!(listener(true, true).observe(&ready), StartupSignal::Nothing);
        assert_eq!(listener(false, false).observe(&ready), StartupSignal::Nothing, "there is no handshake");
        let commands = json!({ "update": { "sessionUpdate": "available_commands_update" } });
        assert_eq!(
            listener(true, true).observe(&event(EventKind::Update, &commands)),
            StartupSignal::Nothing
        );
        assert_eq!(listener(true, true).observe(&chunk("Looking")), StartupSignal::Works);
        assert_eq!(
            listener(true, false).observe(&event(EventKind::Status, &json!({}))),
            StartupSignal::Works
        );
        assert_eq!(
            listener(true, true).observe(&event(EventKind::TurnEnded, &json!({}))),
            StartupSignal::Ended
        );
    }

    #[test]
    fn words_about_a_missing_log_in_are_waited_out() {
        let mut listener = StartupObserver { prompted: true, handshake: true, ..StartupObserver::default() };
        for text in ["Not", " logged in", " · Please run /login"] {
            assert_eq!(listener.observe(&chunk(text)), StartupSignal::Nothing);
        }
        let mut listener = StartupObserver::default();
        assert_eq!(listener.observe(&chunk("Not")), StartupSignal::Nothing);
        assert_eq!(listener.observe(&chunk("hing to do")), StartupSignal::Works);
    }
}

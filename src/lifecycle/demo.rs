//! `serve --demo`: starts the demo agent and prints the next commands for a newcomer.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use tokio_util::task::AbortOnDropHandle;

use intercom_daemon::config::DEMO_AGENT;
use intercom_daemon::supervisor::{StartRequest, Supervisor};
use intercom_store::SessionScope;
use intercom_store::bus::Bell;
use intercom_types::action::line;
use intercom_types::text::shell_word;
use intercom_types::{Event, LoggedEvent, SessionId};

/// Starts the demo, or finds one that an earlier daemon left running, and starts the task that guides through it.
pub(super) async fn start(
    supervisor: &Supervisor,
    bell: &Bell,
    socket: &Path,
) -> anyhow::Result<AbortOnDropHandle<()>> {
    let live = supervisor.store().sessions(SessionScope::NotEnded, None, None, 1000).await?.items;
    let running = live.into_iter().find(|session| session.agent.as_deref() == Some(DEMO_AGENT));
    let id = match running {
        Some(session) => session.id,
        None => begin(supervisor).await?,
    };
    let guide = DemoGuide { intercom: intercom_command(socket) };
    say(&format!(
        "intercom is running, and a demo agent works in session {id}.\nIn a second terminal:\n\n  \
         {intercom} ls\n  {intercom} logs -f {id}\n  {intercom} questions\n  {intercom} clearances\n\n\
         Its requests appear here, with the commands that answer them.\nCtrl-C stops everything.\n",
        intercom = guide.intercom,
    ));
    let (store, mut listener) = (supervisor.store().clone(), bell.listen());
    Ok(AbortOnDropHandle::new(tokio::spawn(async move {
        let mut after = 0;
        loop {
            listener.newest();
            let mut fresh = Vec::new();
            while let Ok(Ok(events)) = store.events(Some(after), Some(id), 100).await {
                let Some(last) = events.last() else { break };
                after = last.seq;
                fresh.extend(events);
            }
            // A request that was answered before the guide read it needs no advice.
            let settled: HashSet<String> = fresh.iter().filter_map(settles).collect();
            let open = |event: &&LoggedEvent| asks(event).is_none_or(|id| !settled.contains(&id));
            fresh.iter().filter(open).filter_map(|event| guide.advice(event)).for_each(|advice| say(&advice));
            if !listener.wait_for_ring().await {
                return;
            }
        }
    })))
}

async fn begin(supervisor: &Supervisor) -> anyhow::Result<SessionId> {
    let request = StartRequest {
        agent: Some(DEMO_AGENT.to_owned()),
        workspace: std::env::current_dir()?.display().to_string(),
        prompt: Some("Show me around.".to_owned()),
        by: "the demo".to_owned(),
        ..StartRequest::default()
    };
    Ok(supervisor.start(request).await?)
}

/// Returns the id of the question or clearance that an event opens.
fn asks(logged: &LoggedEvent) -> Option<String> {
    match logged.event() {
        Event::QuestionAsked(asked) => Some(asked.question.to_string()),
        Event::ClearanceRequested(requested) => Some(requested.clearance.to_string()),
        _ => None,
    }
}

/// Returns the id of the question or clearance that an event settles.
fn settles(logged: &LoggedEvent) -> Option<String> {
    match logged.event() {
        Event::QuestionAnswered(answered) => Some(answered.question.to_string()),
        Event::QuestionClosed(closed) => Some(closed.question.to_string()),
        Event::ClearanceDecided(decided) => Some(decided.clearance.to_string()),
        Event::ClearanceClosed(closed) => Some(closed.clearance.to_string()),
        _ => None,
    }
}

struct DemoGuide {
    intercom: String,
}

impl DemoGuide {
    /// Returns the advice for a newcomer about an event, if there is any.
    fn advice(&self, logged: &LoggedEvent) -> Option<String> {
        let intercom = &self.intercom;
        Some(match logged.event() {
            Event::QuestionAsked(asked) => format!(
                "The agent asks: {}\n  {intercom} answer {} continue\n",
                intercom_types::text::quoted(&asked.text),
                asked.question
            ),
            Event::ClearanceRequested(requested) => format!(
                "The agent wants a clearance ({} risk): {}\n  {intercom} clearances {id}\n  {intercom} approve {id}\n  \
                 {intercom} deny {id} --reason \"not today\"\n",
                requested.risk.as_str(),
                line(requested.action.as_deref(), &requested.title),
                id = requested.clearance,
            ),
            Event::ClearanceDelivered(_) => "The decision has reached the agent.\n".to_owned(),
            Event::TurnEnded(ended) if ended.stop_reason != "exited" => format!(
                "The agent is done. Give it something else to do:\n  {intercom} send {} \"once more, please\"\n",
                logged.session
            ),
            _ => return None,
        })
    }
}

/// Prints on stderr, because stdout is for data and the daemon has none.
fn say(text: &str) {
    super::say(text);
}

/// Returns the command for this program in a second terminal, which has only the default environment.
fn intercom_command(socket: &Path) -> String {
    let exe = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("intercom"));
    let on_path = std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path)
            .any(|dir| dir.join("intercom").canonicalize().is_ok_and(|file| file == exe))
    });
    let here = std::env::current_dir().ok().and_then(|cwd| exe.strip_prefix(cwd).ok().map(Path::to_owned));
    let word = |path: &Path| shell_word(&path.display().to_string());
    let name = match (on_path, here) {
        (true, _) => "intercom".to_owned(),
        (false, Some(relative)) => word(&Path::new(".").join(relative)),
        (false, None) => word(&exe),
    };
    let flags = intercom_daemon::config::PathFlags { config: None, state_dir: None, socket: None };
    let usual =
        intercom_daemon::config::DaemonPaths::from_process(flags).is_ok_and(|paths| paths.socket == socket);
    // Neither a flag of this process nor its variables exist in another terminal.
    let explicit = !usual
        || ["INTERCOM_SOCKET", "INTERCOM_STATE_DIR"].iter().any(|name| std::env::var_os(name).is_some());
    if explicit { format!("{name} --socket {}", word(socket)) } else { name }
}

//! The life of a session and of its processes in English.

use super::{Summary, Tone, by, clean_suffix, exit_suffix, word_suffix};
use crate::Event;
use crate::event::{AgentExited, SessionCreated};
use crate::text::clean;

pub(super) fn summary(event: &Event) -> Option<Summary> {
    Some(match event {
        Event::SessionCreated(created) => session_created(created),
        Event::SessionAgentChanged(changed) => {
            let agent = changed.agent.as_deref().unwrap_or(&changed.command);
            Summary::new(Tone::Plain, format!("the agent is {}{}", clean(agent), by(&changed.by)))
        }
        Event::SessionPresetChanged(changed) => {
            Summary::new(Tone::Plain, format!("preset {}{}", changed.preset.as_str(), by(&changed.by)))
        }
        Event::AgentSpawned(spawned) => {
            let life = generation_suffix(spawned.generation);
            Summary::new(Tone::Plain, format!("agent started, pid {}{life}", spawned.pid))
        }
        Event::AgentReady(ready) => {
            let mode =
                ready.profile_mode().map(|mode| word_suffix(", in mode ", &mode) + " as its profile says");
            Summary::new(Tone::Plain, format!("agent is ready{}", mode.unwrap_or_default()))
        }
        Event::TurnStarted(started) => {
            Summary::new(Tone::Plain, format!("turn started{}", clean_suffix(": ", &started.cause)))
        }
        Event::TurnEnded(ended) => {
            Summary::new(Tone::Plain, format!("turn ended{}", word_suffix(": ", &ended.stop_reason)))
        }
        Event::SessionStopping(stopping) => Summary::new(
            Tone::Warning,
            format!("stopping ({}){}", stopping.mode.as_str(), clean_suffix(", by ", &stopping.by)),
        ),
        Event::SessionUnenforced(unenforced) => {
            let why = unenforced.why.as_deref();
            let why = why.unwrap_or("it acts without ever having asked for a clearance");
            Summary::new(Tone::Bad, format!("unenforced: {}", clean(why)))
        }
        Event::SessionResumed(resumed) => Summary::new(
            Tone::Strong,
            format!("resumed{}{}", generation_suffix(resumed.generation), clean_suffix(", by ", &resumed.by)),
        ),
        Event::SessionKept(kept) => {
            Summary::new(Tone::Quiet, format!("stays when its ACP client leaves: used{}", by(&kept.by)))
        }
        Event::SessionAdopted(adopted) => {
            let pid = adopted.pid.map(|pid| format!(", pid {pid}")).unwrap_or_default();
            let (life, why) = (generation_suffix(adopted.generation), clean(&adopted.why));
            Summary::new(Tone::Bad, format!("adopted as an orphan{pid}{life}: {why}"))
        }
        Event::SessionEnded(ended) => Summary::new(
            Tone::Strong,
            format!("session ended{}", exit_suffix(ended.why.as_deref(), &ended.reason)),
        ),
        Event::SessionSeen(seen) => Summary::new(
            Tone::Quiet,
            format!("its failure was seen{}{}", by(&seen.by), clean_suffix(": ", &seen.reason)),
        ),
        Event::OutputIncomplete(incomplete) => {
            Summary::new(Tone::Bad, format!("output may be missing{}", clean_suffix(": ", &incomplete.why)))
        }
        Event::AgentExited(exited) => agent_exited(exited),
        Event::SpendCapped(capped) => {
            Summary::new(Tone::Bad, format!("no new turn begins{}", clean_suffix(": ", &capped.why)))
        }
        _ => return None,
    })
}

fn session_created(created: &SessionCreated) -> Summary {
    let agent = created.agent.as_deref().unwrap_or(&created.command);
    let agent = if agent.is_empty() { "an agent".to_owned() } else { clean(agent) };
    let name = created.name.as_deref().map(|name| clean_suffix(" ", name)).unwrap_or_default();
    let within = clean_suffix(" in ", &created.workspace.display().to_string());
    Summary::new(
        Tone::Strong,
        format!("session{name} created: {agent}{within}{}", clean_suffix(", by ", &created.by)),
    )
}

fn agent_exited(exited: &AgentExited) -> Summary {
    let how = match (exited.code, exited.signal) {
        (Some(code), _) => format!(" with code {code}"),
        (None, Some(signal)) => format!(" by signal {signal}"),
        (None, None) => String::new(),
    };
    let steps = clean_suffix(" after ", &exited.steps.join(", "));
    let killed = if exited.killed == 0 { String::new() } else { format!(", {} killed", exited.killed) };
    let tone = if exited.code == Some(0) { Tone::Plain } else { Tone::Bad };
    Summary::new(tone, format!("agent exited{how}{steps}{killed}")).below(&exited.stderr_tail)
}

fn generation_suffix(generation: u32) -> String {
    if generation < 2 { String::new() } else { format!(", generation {generation}") }
}

//! The owner of a caller's process: an agent of this daemon or of another one, or no agent.

use std::net::SocketAddr;
use std::path::Path;

use super::Supervisor;
use crate::session::SessionHandle;
use intercom_host::{self as host, AgentTraces, OtherEnd, PeerProcess};
use intercom_store::IdLookup;
use intercom_types::SessionId;

/// The owner of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessOwner {
    /// Not an agent.
    Nobody,
    To(SessionId),
    /// An agent that is not a live session of ours: of another daemon, or left over.
    Elsewhere,
    /// Not known, because the process has ended or is hidden: not to be trusted.
    Unknown,
}

impl ProcessOwner {
    /// Returns the less trusted owner, for two processes that hold the same connection.
    fn or_worse(self, other: Self) -> Self {
        let rank = |belongs: Self| match belongs {
            Self::To(_) => 3,
            Self::Elsewhere => 2,
            Self::Unknown => 1,
            Self::Nobody => 0,
        };
        if rank(other) > rank(self) { other } else { self }
    }
}

/// The traces that another daemon's agent left on this daemon, if this daemon was started inside of that agent's
/// session. Processes of that session have the same traces and are trusted, because the daemon is theirs.
#[derive(Debug, Default)]
pub(super) struct DaemonSurroundings {
    sessions: Vec<String>,
    shims: Vec<i32>,
}

impl DaemonSurroundings {
    /// Returns true if a process has traces of an agent beyond those of the daemon itself.
    fn is_foreign(&self, traces: &AgentTraces) -> bool {
        traces.sessions.iter().any(|name| !self.sessions.contains(name))
            || traces.shims.iter().any(|pid| !self.shims.contains(pid))
    }
}

impl Supervisor {
    /// Inspects where the daemon itself was started; until then, every trace of an agent counts. Sessions of our own
    /// always count: an agent that restarts its own daemon must not become its admin.
    pub async fn inspect_surroundings(&self) {
        let Some(traces) = host::traces(std::process::id().cast_signed()) else { return };
        let mut surroundings = DaemonSurroundings::default();
        for name in traces.sessions {
            if matches!(self.store().session(name.clone()).await, Ok(IdLookup::None)) {
                surroundings.sessions.push(name);
            }
        }
        let own = self.agents_dir();
        let is_foreign = |pid: &i32| host::shim_directory(*pid).is_some_and(|dir| !is_below(&dir, &own));
        surroundings.shims.extend(traces.shims.into_iter().filter(is_foreign));
        if !surroundings.sessions.is_empty() || !surroundings.shims.is_empty() {
            let sessions = surroundings.sessions.join(", ");
            tracing::warn!(
                sessions,
                "this daemon runs inside of another daemon's session, whose processes are trusted"
            );
        }
        self.0.surroundings.set(surroundings).ok(); // inspected once
    }

    /// Returns the session whose agent this process belongs to: below its shim, in its cgroup, or with its mark.
    pub fn session_of(&self, process: &PeerProcess) -> ProcessOwner {
        let Some(traces) = process.traces() else { return ProcessOwner::Unknown };
        let sessions = self.sessions();
        let named = traces.sessions.iter().filter_map(|name| name.parse::<SessionId>().ok());
        let is_above = |handle: &SessionHandle| {
            handle.observer().is_some_and(|observer| traces.ancestors.contains(&observer.shim_pid()))
        };
        let below = || sessions.iter().find(|(_, slot)| slot.handle.as_ref().is_some_and(is_above));
        if let Some(id) = named.clone().find(|id| sessions.contains_key(id)) {
            return ProcessOwner::To(id);
        }
        if let Some((id, _)) = below() {
            return ProcessOwner::To(*id);
        }
        drop(sessions);
        let strict = DaemonSurroundings::default();
        let surroundings = self.0.surroundings.get().unwrap_or(&strict);
        if surroundings.is_foreign(&traces) { ProcessOwner::Elsewhere } else { ProcessOwner::Nobody }
    }

    /// Returns the same for the processes at the other ends of connections on this machine, in one pass over all
    /// processes. One holder of an end is enough.
    pub fn sessions_of_tcp(&self, connections: &[(SocketAddr, SocketAddr)]) -> Vec<ProcessOwner> {
        let ends: Vec<_> = connections.iter().map(|(from, to)| host::other_end(*from, *to)).collect();
        let known: Vec<OtherEnd> = ends.iter().copied().flatten().filter(|end| end.is_visible()).collect();
        let holders: Vec<_> = host::holders(&known)
            .into_iter()
            .map(|holder| (self.session_of(&holder.process), holder.ends))
            .collect();
        let owner = |end: &Option<OtherEnd>| match end {
            None => ProcessOwner::Unknown,
            // Processes of a user that we cannot inspect, and who runs none of our agents.
            Some(end) if !end.is_visible() => ProcessOwner::Nobody,
            Some(end) => {
                let of_holders =
                    holders.iter().filter(|(_, ends)| ends.contains(end)).map(|(owner, _)| *owner);
                // Without a holder the connection may be on its way between processes.
                of_holders.reduce(ProcessOwner::or_worse).unwrap_or(ProcessOwner::Unknown)
            }
        };
        ends.iter().map(owner).collect()
    }
}

fn is_below(dir: &Path, above: &Path) -> bool {
    let above = above.canonicalize().unwrap_or_else(|_| above.to_owned());
    dir.starts_with(above)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traces(sessions: &[&str], shims: &[i32]) -> AgentTraces {
        let sessions = sessions.iter().map(|name| (*name).to_owned()).collect();
        AgentTraces { ancestors: vec![7], sessions, shims: shims.to_vec() }
    }

    #[test]
    fn a_daemon_inside_of_a_session_takes_its_processes_for_equals_and_all_others_for_agents() {
        let outside = DaemonSurroundings::default();
        assert!(!outside.is_foreign(&traces(&[], &[])));
        assert!(outside.is_foreign(&traces(&["ses_1"], &[])) && outside.is_foreign(&traces(&[], &[3])));
        let inside = DaemonSurroundings { sessions: vec!["ses_1".to_owned()], shims: vec![3] };
        assert!(!inside.is_foreign(&traces(&["ses_1"], &[3])) && !inside.is_foreign(&traces(&[], &[])));
        assert!(inside.is_foreign(&traces(&["ses_1", "ses_2"], &[3])), "an agent within");
        assert!(inside.is_foreign(&traces(&["ses_1"], &[3, 4])));
    }

    #[test]
    fn the_holder_that_is_trusted_least_speaks_for_a_connection() {
        let session = ProcessOwner::To(SessionId::mint());
        for other in [ProcessOwner::Nobody, ProcessOwner::Unknown, ProcessOwner::Elsewhere] {
            assert_eq!((session.or_worse(other), other.or_worse(session)), (session, session));
        }
        assert_eq!(ProcessOwner::Nobody.or_worse(ProcessOwner::Unknown), ProcessOwner::Unknown);
        assert_eq!(ProcessOwner::Elsewhere.or_worse(ProcessOwner::Unknown), ProcessOwner::Elsewhere);
        assert_eq!(ProcessOwner::Nobody.or_worse(ProcessOwner::Nobody), ProcessOwner::Nobody);
    }
}

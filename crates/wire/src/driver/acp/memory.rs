//! The state that the driver has to remember, as it is stored.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::controls::PendingSetting;
use super::opening::OpenSession;
use crate::acp::answer::{AgentCapabilities, AuthMethod};
use intercom_types::{Controls, Json};

/// The state that the driver has to remember.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct DriverMemory {
    pub(super) next_id: u64,
    pub(super) pending: BTreeMap<u64, PendingCall>,
    #[serde(flatten)]
    pub(super) session: AgentSession,
    #[serde(flatten)]
    pub(super) turn: TurnMemory,
    pub(super) can: AgentCapabilities,
    pub(super) auth: Vec<AuthMethod>,
    pub(super) about: Option<Json>,
    pub(super) logged_in: bool,
    /// The forms of open questions, `null` without one; all other open requests are for permission.
    pub(super) questions: BTreeMap<String, Json>,
    pub(super) calls: VecDeque<(String, Json)>,
    pub(super) controls: Controls,
    /// The texts of nudges that wait for an answer, by our request.
    pub(super) steering: BTreeMap<u64, String>,
    /// The settings that wait for an answer, by our request.
    pub(super) setting: BTreeMap<u64, PendingSetting>,
    /// The pages of an incomplete list.
    pub(super) listed: Vec<Json>,
    /// The opened session, while the agent is asked to set the mode of its profile.
    pub(super) opening: Option<OpenSession>,
}

/// The agent's own session, in which we work.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct AgentSession {
    /// The agent's own id of it.
    #[serde(rename = "session")]
    pub(super) id: Option<String>,
    /// The session of an earlier process to resume.
    pub(super) earlier: Option<String>,
    /// A person has requested exactly that session.
    pub(super) explicit: bool,
    /// True while the agent replays updates that are in the log already.
    pub(super) replaying: bool,
}

/// The turn that runs, or ran last.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct TurnMemory {
    /// Our request; an answer to any other is too late.
    pub(super) prompt: Option<u64>,
    pub(super) last_words: String,
    /// The agent has thought, planned, asked or used a tool since its prompt.
    pub(super) worked: bool,
}

/// A request of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum PendingCall {
    Initialize,
    Authenticate,
    New,
    Load,
    Resume,
    Prompt,
    Set,
    List,
    Steer,
    Other,
}

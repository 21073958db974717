//! The domain types of intercom: ids, times, events, clearances, questions, prompts, sessions.
//!
//! Nothing here does I/O or knows a wire format. All layers above use these types; messages of agents and bridges are
//! converted to them at the edge.

mod access;
pub mod action;
pub mod agent;
mod agent_message;
mod agent_profile;
mod audit;
mod backup;
mod clearance;
mod content;
mod daily_window;
mod delivery;
mod duration;
mod error;
pub mod event;
mod failure;
pub mod fold;
mod health;
pub mod host_call;
pub mod id;
mod json;
mod ledger_rebuild;
mod list;
mod open_enum;
mod policy;
mod preset;
mod prompt;
mod question;
mod received_event;
#[cfg(any(test, feature = "samples"))]
pub mod samples;
mod session;
mod stall;
mod stats;
mod steering;
pub mod summary;
pub mod text;
mod time;

pub use access::{
    ConsoleCode, CreatedToken, Grant, ListedGrant, ListedToken, ListedWebSession, Role, SignIn, Token,
    TokenRequest, WebSession,
};
pub use agent::{
    AgentInfo, ControlChange, Controls, NamedSetting, ProgressStep, PromptCapabilities, SettingValue,
    TurnTokenCounts, UsageTotals,
};
pub use agent_message::{
    AgentCommand, AgentMessage, ClearanceRequest, FaultCode, HeartbeatProgress, LimitResetTime, LineExcerpt,
    LineRejection, RequestFault, ToolCallState,
};
pub use agent_profile::{KnownCapabilities, ListedAgent};
pub use audit::{
    AGENT_PREFIX, Actor, AuditPage, AuditProblem, AuditRow, AuditVerdict, NewAuditRow, VIA_POLICY,
};
pub use backup::{BackupProgress, BackupRequest, BackupResult, BackupState};
pub use clearance::{
    Choice, Clearance, ClearanceStatus, Decision, Outcome, Quorum, RememberChoice, RememberedRule, Risk,
    Ruling, Verdict,
};
pub use content::Content;
pub use daily_window::DailyWindow;
pub use delivery::Delivery;
pub use duration::parse_duration;
pub use error::{ErrorAttachment, ErrorBody, ErrorDetail};
pub use event::{Event, EventKind, LoggedEvent, NewEvent};
pub use failure::{Failure, FailureKind, NOT_STARTED};
pub use health::{Health, HealthCaller, HealthDetails, LogMigration, SessionCounts};
pub use host_call::{HostCall, HostCallReply, HostCallRequest, TerminalOperation};
pub use id::{ClearanceId, GrantId, PromptId, QuestionId, SessionId, TokenId, TurnId, WebSessionId};
pub use json::{Json, RequestId};
pub use ledger_rebuild::{
    ColumnDifference, DifferenceKind, LedgerDifference, LedgerRebuild, RebuildMode, RebuildProgress,
};
pub use list::List;
pub use open_enum::OpenEnum;
pub use policy::{
    ClearanceExplanation, ConfigReload, PolicySummary, RuleExplanation, RulesDifference, RulesTest,
    RulesTestResult,
};
pub use preset::Preset;
pub use prompt::{NewPrompt, Prompt, PromptBody, PromptChange, PromptState};
pub use question::{Answer, Question, QuestionAnswer, QuestionStatus};
pub use received_event::{EventBody, EventPage, ReceivedEvent};
pub use session::{
    AgentStanding, Exit, OnClientLeft, PendingRequests, Phase, RunningTool, Session, SessionExit,
    SessionFailure, SessionProcess, SessionRecord, SessionTurn, StopMode, Turn, Usage, WatchState,
};
pub use stall::{AgentCondition, LadderChoice, NUDGE_TEXT, Rung, RunningWork, Situation, span};
pub use stats::{DecisionStats, StatsInterval};
pub use steering::{
    AgentChange, FailureSeen, InterruptAnswer, InterruptRequest, LadderChange, NewSession, NudgeAnswer,
    NudgeRequest, PresetChange, SettingAgreed, SettingChange, SettingSent, SettingWait, SnoozeRequest,
    StopResult,
};
pub use time::Time;

/// Formats bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes every write");
        text
    })
}

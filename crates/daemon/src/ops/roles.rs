//! The least role of each operation, defined once: bridges, `openapi.json` and the callers table use it.

use super::{Caller, OpError, Operations};
use crate::config::AccessConfig;
use intercom_types::Role;

/// The operations that need a role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperationKind {
    /// Sessions, prompts, clearances and their explanations, questions, agents, policy, grants, figures.
    Read,
    StartSession,
    ResumeSession,
    ChangeAgent,
    StopSession,
    KillSession,
    RemoveSession,
    SendPrompt,
    ChangePrompt,
    TakeBackPrompt,
    Nudge,
    Interrupt,
    AcknowledgeFailure,
    Snooze,
    ChangeLadder,
    ChangeSetting,
    ListAgentSessions,
    ChangePreset,
    Decide,
    Answer,
    TestRules,
    RevokeGrant,
    Reload,
    ReadAudit,
    Backup,
    ManageTokens,
}

impl OperationKind {
    pub(crate) const fn least(self) -> RequiredRole {
        match self {
            Self::Read => RequiredRole::Role(Role::Viewer),
            Self::StopSession
            | Self::SendPrompt
            | Self::ChangePrompt
            | Self::TakeBackPrompt
            | Self::Nudge
            | Self::Interrupt
            | Self::AcknowledgeFailure
            | Self::Snooze
            | Self::ChangeLadder
            | Self::ChangeSetting
            | Self::ListAgentSessions
            | Self::ChangePreset
            | Self::Answer => RequiredRole::Role(Role::Operator),
            Self::Decide | Self::TestRules | Self::RevokeGrant => RequiredRole::Role(Role::Approver),
            Self::KillSession
            | Self::RemoveSession
            | Self::Reload
            | Self::ReadAudit
            | Self::Backup
            | Self::ManageTokens => RequiredRole::Role(Role::Admin),
            Self::StartSession | Self::ResumeSession | Self::ChangeAgent => RequiredRole::ToStart,
        }
    }
}

/// The least role for an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequiredRole {
    /// No role: also for callers without a name.
    Nothing,
    Role(Role),
    /// The role that may start agents, as configured.
    ToStart,
}

impl RequiredRole {
    /// Returns the default role.
    pub fn usual(self) -> Option<Role> {
        match self {
            Self::Nothing => None,
            Self::Role(role) => Some(role),
            Self::ToStart => Some(AccessConfig::default().start()),
        }
    }
}

impl From<Role> for RequiredRole {
    fn from(role: Role) -> Self {
        Self::Role(role)
    }
}

impl From<OperationKind> for RequiredRole {
    fn from(operation: OperationKind) -> Self {
        operation.least()
    }
}

impl Operations {
    pub(super) fn admit(&self, caller: &Caller, operation: OperationKind) -> Result<(), OpError> {
        self.admit_to(caller, operation.least())
    }

    /// Refuses a caller below this role.
    pub fn admit_to(&self, caller: &Caller, least: RequiredRole) -> Result<(), OpError> {
        let role = match least {
            RequiredRole::Nothing => return Ok(()),
            RequiredRole::Role(role) => role,
            RequiredRole::ToStart => self.supervisor().config().access.start(),
        };
        if caller.role >= role {
            return Ok(());
        }
        let error =
            OpError::forbidden(format!("this needs the role {role}; {} is {}", caller.name, caller.role));
        let hint = "`start = \"approver\"` below [access] in the configuration lets approvers start agents";
        let hints = least == RequiredRole::ToStart && role > Role::Approver && caller.role == Role::Approver;
        Err(if hints { error.hint(hint) } else { error })
    }
}

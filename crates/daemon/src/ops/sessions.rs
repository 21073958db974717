//! Sessions: list, show, start, resume, stop, remove.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use super::session_view::{self, list};
use super::steering::parse_ladder;
use super::{Caller, OpError, OperationKind, Operations, limit, require_one};
use crate::config::Protocol;
use crate::session::{CommandError, CommandOutcome, CommandRefusal, SessionInput};
use crate::supervisor::{StartRefusal, StartRequest};
use intercom_store::SessionScope;
use intercom_types::{
    AgentChange, Json as Raw, List, NewSession, OnClientLeft, Phase, Preset, PresetChange, Role, Session,
    SessionId, SessionRecord, StopMode, StopResult,
};

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionQuery {
    #[serde(default)]
    pub all: bool,
    /// Includes sessions that have ended and failed, until an operator has seen that.
    #[serde(default)]
    pub failed: bool,
    /// Only sessions of this workspace, which is an exact path.
    pub workspace: Option<String>,
    /// Omits each `stderr_tail` and `controls`, which may be long; `GET /sessions/{id}` has them.
    #[serde(default)]
    pub brief: bool,
    pub limit: Option<usize>,
    pub cursor: Option<i64>,
}

impl Operations {
    pub async fn sessions(&self, caller: &Caller, query: SessionQuery) -> Result<List<Session>, OpError> {
        self.admit(caller, OperationKind::Read)?;
        let most = limit(query.limit)?;
        let scope = match query {
            SessionQuery { all: true, .. } => SessionScope::All,
            SessionQuery { failed: true, .. } => SessionScope::LiveOrFailed,
            SessionQuery { .. } => SessionScope::NotEnded,
        };
        let page = self.store().sessions(scope, query.workspace, query.cursor, most).await?;
        let page = list(page, |record| {
            if query.brief {
                return session_view::session_in_brief(record);
            }
            let observer = self.supervisor().observer(record.id);
            session_view::session_in_list(record, observer.as_ref())
        });
        self.shown(caller, page).await
    }

    pub async fn session(&self, caller: &Caller, typed: &str) -> Result<Session, OpError> {
        self.admit(caller, OperationKind::Read)?;
        let session = self.observe(self.session_record(typed).await?);
        self.shown(caller, session).await
    }

    /// Returns a session without its processes and, while it runs, without the end of its stderr: only these two need
    /// a look at `/proc` and at the files of its shim, which most callers have no use for.
    pub async fn session_without_processes(&self, caller: &Caller, typed: &str) -> Result<Session, OpError> {
        self.admit(caller, OperationKind::Read)?;
        let session = session_view::session_in_list(self.session_record(typed).await?, None);
        self.shown(caller, session).await
    }

    pub async fn start(&self, caller: &Caller, start: NewSession) -> Result<Session, OpError> {
        self.admit(caller, OperationKind::StartSession)?;
        may_start(caller, &start)?;
        if start.agent.is_some() && start.protocol.is_some() {
            return Err(OpError::bad_request("`protocol` goes with `command`; a profile has its own"));
        }
        let protocol = start.protocol.as_deref().map(str::parse::<Protocol>).transpose();
        let protocol = protocol.map_err(|error| OpError::bad_request(format!("protocol: {error}")))?;
        check_env(&start.env)?;
        if start.mcp_servers.as_ref().is_some_and(|servers| servers.objects().is_none()) {
            return Err(OpError::bad_request("mcp_servers must be a list of servers, each an object"));
        }
        let request = StartRequest {
            agent: start.agent,
            command: start.command,
            protocol,
            args: start.args,
            workspace: start.workspace,
            prompt: start.prompt,
            name: start.name,
            env: start.env,
            resume: start.resume,
            mcp_servers: start.mcp_servers.map(|servers| servers.on_one_line()),
            ladder: start.ladder.as_deref().map(parse_ladder).transpose()?.unwrap_or_default(),
            defer: start.defer,
            preset: start.preset.as_deref().map(parse_preset).transpose()?.unwrap_or_default(),
            on_client_left: start.on_client_left.as_deref().map(parse_on_client_left).transpose()?,
            by: caller.name.clone(),
        };
        let id = self.supervisor().start(request).await?;
        self.view(id).await
    }

    pub async fn resume(&self, caller: &Caller, typed: &str) -> Result<Session, OpError> {
        self.admit(caller, OperationKind::ResumeSession)?;
        let record = self.session_record(typed).await?;
        let resumed = self.supervisor().resume(&record, caller.name.clone()).await;
        resumed.map_err(|refused| match refused {
            StartRefusal::Command(CommandError::Refused(CommandRefusal::Running)) => OpError::from(refused)
                .hint("stop it first: `intercom stop SES && intercom resume SES`")
                .naming(&record),
            refused => refused.into(),
        })?;
        self.view_after_use(caller, record.id).await
    }

    /// Chooses another agent for a deferred session that has had no process.
    pub async fn change_agent(
        &self,
        caller: &Caller,
        typed: &str,
        change: AgentChange,
    ) -> Result<Session, OpError> {
        self.admit(caller, OperationKind::ChangeAgent)?;
        let id = self.session_record(typed).await?.id;
        self.supervisor().change_agent(id, change.agent, caller.name.clone()).await?;
        self.view_after_use(caller, id).await
    }

    /// Sets the preset. A caller who may decide may also widen it.
    pub async fn change_preset(
        &self,
        caller: &Caller,
        typed: &str,
        change: PresetChange,
    ) -> Result<Session, OpError> {
        self.admit(caller, OperationKind::ChangePreset)?;
        let id = self.session_record(typed).await?.id;
        let preset = parse_preset(&change.preset)?;
        let may_widen = caller.role >= Role::Approver;
        self.supervisor().set_preset(id, preset, may_widen, caller.name.clone()).await?;
        self.view_after_use(caller, id).await
    }

    /// Ends its processes; returns when the process tree is gone.
    pub async fn stop(&self, caller: &Caller, typed: &str, mode: StopMode) -> Result<StopResult, OpError> {
        let operation = match mode {
            StopMode::Stop => OperationKind::StopSession,
            StopMode::Kill => OperationKind::KillSession,
        };
        self.admit(caller, operation)?;
        let record = self.session_record(typed).await?;
        let stopped = self.supervisor().stop(record.id, mode, caller.name.clone()).await?;
        // If the store does not work, the log does not have the end yet.
        let phase =
            if stopped.unrecorded { Phase::Ended } else { self.session_record(&record.id).await?.phase };
        Ok(StopResult {
            session: record.id,
            phase: phase.into(),
            steps: stopped.steps,
            killed: stopped.killed,
            recorded: !stopped.unrecorded,
        })
    }

    /// Removes an ended session, with its log.
    pub async fn remove(&self, caller: &Caller, typed: &str) -> Result<(), OpError> {
        self.admit(caller, OperationKind::RemoveSession)?;
        let record = self.session_record(typed).await?;
        if self.supervisor().remove(&record, caller.name.clone()).await? {
            return Ok(());
        }
        let message = "the session has not ended; only ended sessions can be removed";
        Err(OpError::conflict("running", message).hint("`intercom stop` ends it"))
    }

    /// Returns the session that a person meant.
    pub(crate) async fn session_record(&self, typed: &str) -> Result<SessionRecord, OpError> {
        require_one("session", typed, self.store().session(typed.to_owned()).await?)
    }

    /// Returns the id of the session that a person named, if they named one.
    pub(crate) async fn session_id(&self, typed: Option<String>) -> Result<Option<SessionId>, OpError> {
        Ok(match typed {
            Some(typed) => Some(self.session_record(&typed).await?.id),
            None => None,
        })
    }

    /// Passes a command to a session. The hint of a refusal contains the session's name.
    pub(super) async fn command(
        &self,
        session: &SessionRecord,
        input: SessionInput,
    ) -> Result<CommandOutcome, OpError> {
        let done = self.supervisor().command(session.id, input).await;
        done.map_err(|error| OpError::from(error).naming(session))
    }

    /// Records that a person uses the session: it does not end when the ACP client that started it leaves.
    pub(super) async fn record_use(&self, caller: &Caller, session: SessionId) {
        if !caller.is_acp_client() {
            self.supervisor().keep_session(session, caller.name.clone()).await;
        }
    }

    /// Returns the session after a change to it.
    pub(super) async fn view_after_use(&self, caller: &Caller, id: SessionId) -> Result<Session, OpError> {
        let session = self.view(id).await?;
        self.record_use(caller, id).await;
        Ok(session)
    }

    async fn view(&self, id: SessionId) -> Result<Session, OpError> {
        Ok(self.observe(self.session_record(&id).await?))
    }

    fn observe(&self, record: SessionRecord) -> Session {
        let observer = self.supervisor().observer(record.id);
        session_view::session(record, observer.as_ref())
    }
}

/// Checks the start. Everything that lets a caller run arbitrary programs is for admins, who choose the commands of the
/// profiles.
fn may_start(caller: &Caller, start: &NewSession) -> Result<(), OpError> {
    let servers =
        start.mcp_servers.as_ref().and_then(Raw::objects).is_some_and(|servers| !servers.is_empty());
    let beyond = [
        ("a custom command", start.command.is_some()),
        ("`env`", !start.env.is_empty()),
        ("`mcp_servers`", servers),
    ];
    match beyond.into_iter().find(|(_, is_asked)| *is_asked && caller.role < Role::Admin) {
        Some((what, _)) => {
            let message = format!("{what} needs the role admin; {} is {}", caller.name, caller.role);
            Err(OpError::forbidden(message).hint("start an agent that has a profile"))
        }
        None => Ok(()),
    }
}

fn check_env(env: &BTreeMap<String, String>) -> Result<(), OpError> {
    let bad = |name: &String, value: &String| {
        name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') || name.starts_with("INTERCOM_")
    };
    match env.iter().find(|(name, value)| bad(name, value)) {
        Some((name, _)) => Err(OpError::bad_request(format!("env: `{name}` cannot be set"))),
        None => Ok(()),
    }
}

fn parse_on_client_left(text: &str) -> Result<OnClientLeft, OpError> {
    text.parse().map_err(|error| OpError::bad_request(format!("on_client_left: {error}")))
}

fn parse_preset(text: &str) -> Result<Preset, OpError> {
    Preset::parse(text).ok_or_else(|| {
        let known = Preset::ALL.map(Preset::as_str).join(", ");
        OpError::bad_request(format!("preset: `{text}` is unknown, use one of {known}"))
    })
}

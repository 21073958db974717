//! Start and resume: from a request to the plan for a process.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::profiles::is_there;
use super::{Slot, SlotGuard, Supervisor, profiles};
use crate::config::{AgentProfile, CatalogAgent, Framing, PromptDelivery, Protocol, catalog_agent};
use crate::session::actor::TaskBeginning;
use crate::session::{
    CommandError, CommandRefusal, ProcessPlan, SessionInput, SessionSpec, SessionState, StartError, TurnModel,
};
use intercom_host::{
    AGENTS_DIR, CgroupLimits, ProcessSpec, RunAs, RuntimeDir, SpawnError, StopLadder, agent_environment,
    resolve_program, used_up_limit,
};
use intercom_store::{StoreError, StoredSession};
use intercom_types::{
    Delivery, Json, LadderChoice, OnClientLeft, Phase, Preset, SessionId, SessionRecord, Time,
};
use intercom_wire::acp::send::OfferedCapabilities;
use intercom_wire::driver::Driver;
use intercom_wire::driver::acp::{AcpDriver, AgentKey, DriverSetup};
use intercom_wire::framing::Framer;

/// The hidden mode of our own binary that plays the demo agent.
pub const DEMO_MODE: &str = "__demo-agent";

/// A request to start a session.
#[derive(Debug, Clone, Default)]
pub struct StartRequest {
    pub agent: Option<String>,
    pub command: Option<String>,
    /// The protocol of `command`.
    pub protocol: Option<Protocol>,
    pub args: Vec<String>,
    /// A configured name or an absolute path.
    pub workspace: String,
    pub prompt: Option<String>,
    pub name: Option<String>,
    pub env: BTreeMap<String, String>,
    /// The agent's own id of a session to continue.
    pub resume: Option<String>,
    /// The MCP servers for an ACP agent: a list on one line, passed on unchanged.
    pub mcp_servers: Option<Json>,
    pub ladder: LadderChoice,
    /// True if the process starts with the first prompt.
    pub defer: bool,
    /// The limit on what it may do.
    pub preset: Preset,
    /// Set if an ACP client starts the session.
    pub on_client_left: Option<OnClientLeft>,
    pub by: String,
}

/// The reasons why a session did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartRefusal {
    #[error("{0}")]
    Invalid(String),
    #[error("there are {0} sessions, the maximum (max_sessions)")]
    TooMany(usize),
    #[error("only {free} MiB of memory are available, and min_free_memory_mib is {needed}")]
    LowMemory { free: u64, needed: u64 },
    /// A limit of the machine is used up: the limit, and the way to raise it.
    #[error("{limit}")]
    UsedUp { limit: String, advice: String },
    #[error("a session named `{0}` is running already")]
    NameTaken(String),
    #[error("the daemon is stopping")]
    Closing,
    /// The session was created and ended at once: its id, and the cause.
    #[error("{cause}")]
    SpawnFailed { id: SessionId, cause: String },
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The description from which a session is started again later.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct LaunchSpec {
    agent: Option<String>,
    command: Option<String>,
    /// The protocol of a command; a profile has its own.
    #[serde(default)]
    protocol: Option<String>,
    args: Vec<String>,
    env: BTreeMap<String, String>,
    #[serde(default)]
    resume: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mcp_servers: Option<Json>,
}

/// Returns true if the text is a launch description.
pub(super) fn is_launch(text: &str) -> bool {
    serde_json::from_str::<LaunchSpec>(text).is_ok()
}

/// The description of a session, stored beside its process for a database that does not know it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SessionMemo {
    #[serde(rename = "about")]
    pub(super) spec: SessionSpec,
    launch: LaunchSpec,
}

impl SessionMemo {
    pub(super) fn launch(&self) -> String {
        serde_json::to_string(&self.launch).expect("strings serialise")
    }

    /// Returns the program, as people know it.
    pub(super) fn program(&self) -> String {
        self.launch.command.clone().or_else(|| self.launch.agent.clone()).unwrap_or_default()
    }

    /// Returns the memo of a process without a launch description: it cannot be started again.
    pub(super) fn of_nothing(spec: SessionSpec) -> Self {
        let (agent, command, protocol, resume, mcp_servers) = (None, None, None, None, None);
        let (args, env) = (Vec::new(), BTreeMap::new());
        Self { spec, launch: LaunchSpec { agent, command, protocol, args, env, resume, mcp_servers } }
    }
}

impl Supervisor {
    /// Starts a session. Returns its id once its process runs, or at once if it is deferred.
    pub async fn start(&self, request: StartRequest) -> Result<SessionId, StartRefusal> {
        let workspace = self.workspace(&request.workspace)?;
        let agent = match (&request.agent, &request.command) {
            (None, None) => workspace.agent,
            (agent, _) => agent.clone(),
        };
        let launch = LaunchSpec {
            agent,
            command: request.command,
            protocol: request.protocol.map(|protocol| protocol.to_string()),
            args: request.args,
            env: request.env,
            resume: request.resume,
            mcp_servers: request.mcp_servers,
        };
        let profile = self.profile(&launch)?;
        if launch.resume.is_some() && profile.protocol != Protocol::Acp {
            let message = "`resume` is for agents that speak ACP";
            return Err(StartRefusal::Invalid(message.to_owned()));
        }
        if request.defer && request.prompt.is_some() {
            let message = "`defer` waits for a first prompt and cannot be combined with `prompt`";
            return Err(StartRefusal::Invalid(message.to_owned()));
        }
        let id = SessionId::mint();
        let state = SessionState::new(SessionSpec {
            id,
            name: check_name(request.name)?,
            agent: launch.agent.clone(),
            protocol: profile.protocol.to_string(),
            workspace: workspace.path,
            created_at: Time::now(),
            turn_model: turn_model(&profile),
            max_queued_prompts: self.config().limits.max_queued_prompts,
            preset: request.preset,
            on_client_left: request.on_client_left,
        });
        let state = if request.defer { state.deferred() } else { state };
        let plan = self.plan(&launch, &profile, state.spec(), state.generation());
        self.reserve(id, state.spec().name.as_deref())?;
        // Only the command, because its arguments may contain secrets.
        let first = SessionInput::Launch {
            by: request.by.clone(),
            command: profile.command,
            prompt: request.prompt,
            ladder: request.ladder,
        };
        let result = self.host(state, plan, TaskBeginning::New(first)).await;
        outcome(id, result)
    }

    /// Starts the next generation of an ended session.
    pub(crate) async fn resume(&self, record: &SessionRecord, by: String) -> Result<(), StartRefusal> {
        let id = record.id;
        if record.phase == Phase::Created {
            return self.begin(id, by).await;
        }
        if record.phase.is_live() {
            return Err(CommandError::Refused(CommandRefusal::Running).into());
        }
        // Its task may be about to end: the end is in the log before the slot is free. A newer generation is not waited
        // for.
        while let Some(handle) = self.find(id).filter(|handle| handle.generation <= record.generation) {
            handle.closed().await;
            tokio::task::yield_now().await;
        }
        let amending = self.0.amending.lock().await;
        self.reserve(id, record.name.as_deref())?;
        drop(amending);
        let place = SlotGuard { supervisor: self, id };
        let (state, plan) = self.next_life(record).await?;
        std::mem::forget(place); // from here on its task releases the slot
        let result = self.host(state, plan, TaskBeginning::New(SessionInput::Resume { by })).await;
        outcome(id, result).map(drop)
    }

    /// Starts the first process of a deferred session.
    async fn begin(&self, id: SessionId, by: String) -> Result<(), StartRefusal> {
        let done = self.command(id, SessionInput::Resume { by }).await?;
        match done.arrival.outcome().await {
            Some(Delivery::Failed(cause)) => Err(StartRefusal::SpawnFailed { id, cause }),
            _ => Ok(()),
        }
    }

    /// Chooses another profile for a deferred session. The former agent's own session is dropped, because the new agent
    /// does not know it.
    pub(crate) async fn change_agent(
        &self,
        id: SessionId,
        agent: String,
        by: String,
    ) -> Result<(), StartRefusal> {
        let started = || StartRefusal::Command(CommandRefusal::Started.into());
        let handle = self.find(id).ok_or_else(started)?;
        let (stored, state) = self.stored(id).await?;
        let corrupt = StoreError::Corrupt { what: "a session's launch" };
        let launch: LaunchSpec = serde_json::from_str(&stored.launch).map_err(|_| corrupt)?;
        let (command, protocol, args, resume) = (None, None, Vec::new(), None);
        let launch = LaunchSpec { agent: Some(agent), command, protocol, args, resume, ..launch };
        let profile = self.profile(&launch)?;
        let spec = SessionSpec {
            agent: launch.agent.clone(),
            protocol: profile.protocol.to_string(),
            turn_model: turn_model(&profile),
            ..state.spec().clone()
        };
        let plan = self.plan(&launch, &profile, &spec, state.generation());
        let input = SessionInput::Agent { spec: Box::new(spec), command: profile.command, by };
        match handle.agent(input, plan).await {
            Err(CommandError::Refused(_)) => Err(started()),
            result => Ok(result.map(drop)?),
        }
    }

    /// Returns the state of an ended session and the plan to start its process again. Its slot must be reserved: nobody
    /// else may change it meanwhile.
    async fn next_life(&self, record: &SessionRecord) -> Result<(SessionState, ProcessPlan), StartRefusal> {
        let (stored, state) = self.stored(record.id).await?;
        let corrupt = StoreError::Corrupt { what: "a session's launch" };
        let launch: LaunchSpec = serde_json::from_str(&stored.launch).map_err(|_| corrupt)?;
        let profile = self.profile(&launch)?;
        if !record.workspace.is_dir() {
            let missing = format!("the workspace {} no longer exists", record.workspace.display());
            return Err(StartRefusal::Invalid(missing));
        }
        let plan = self.plan(&launch, &profile, state.spec(), state.generation() + 1);
        Ok((state, plan))
    }

    /// Reserves a slot for a session that is about to start.
    fn reserve(&self, id: SessionId, name: Option<&str>) -> Result<(), StartRefusal> {
        if self.0.closing.is_cancelled() {
            return Err(StartRefusal::Closing);
        }
        let (free, used_up) = (free_memory(), used_up_limit());
        let mut sessions = self.sessions();
        if sessions.contains_key(&id) {
            return Err(CommandError::Refused(CommandRefusal::Running).into());
        }
        if let Some((limit, advice)) = used_up {
            return Err(StartRefusal::UsedUp { limit, advice });
        }
        let needed = self.config().limits.min_free_memory_bytes();
        if free.is_some_and(|free| free < needed) {
            return Err(StartRefusal::LowMemory { free: free.unwrap_or(0) >> 20, needed: needed >> 20 });
        }
        let live = sessions.len();
        if live >= self.config().limits.max_sessions {
            return Err(StartRefusal::TooMany(live));
        }
        let taken = |name: &str| sessions.values().any(|other| other.name.as_deref() == Some(name));
        if let Some(name) = name.filter(|name| taken(name)) {
            return Err(StartRefusal::NameTaken(name.to_owned()));
        }
        sessions.insert(id, Slot { name: name.map(str::to_owned), handle: None });
        Ok(())
    }

    fn workspace(&self, asked: &str) -> Result<crate::config::NamedWorkspace, StartRefusal> {
        let invalid = |message: String| Err(StartRefusal::Invalid(message));
        let workspace = match self.config().workspaces.get(asked) {
            Some(workspace) => workspace.clone(),
            None if Path::new(asked).is_absolute() => {
                crate::config::NamedWorkspace { path: PathBuf::from(asked), ..Default::default() }
            }
            None => {
                return invalid(format!("workspace `{asked}` is neither configured nor an absolute path"));
            }
        };
        if !workspace.path.is_dir() {
            return invalid(format!(
                "the workspace {} is not an existing directory",
                workspace.path.display()
            ));
        }
        Ok(workspace)
    }

    /// Returns the profile to start: a named one, or one made from the request.
    fn profile(&self, launch: &LaunchSpec) -> Result<AgentProfile, StartRefusal> {
        match (&launch.agent, &launch.command) {
            (Some(_), Some(_)) | (None, None) => {
                Err(StartRefusal::Invalid("exactly one of `agent` and `command` is needed".to_owned()))
            }
            (None, Some(command)) => {
                let (command, args) = (command.clone(), launch.args.clone());
                let protocol = launch.protocol.as_deref().and_then(|word| word.parse().ok());
                let protocol = protocol.unwrap_or(Protocol::Intercom);
                Ok(AgentProfile { command, args, protocol, ..AgentProfile::default() })
            }
            (Some(_), None) if !launch.args.is_empty() => {
                Err(StartRefusal::Invalid("`args` goes with `command`; a profile has its own".to_owned()))
            }
            (Some(name), None) => self.agent(name).ok_or_else(|| {
                let known: Vec<String> = self.agents().into_iter().map(|agent| agent.name).collect();
                StartRefusal::Invalid(format!("no agent is named `{name}`; use one of {}", known.join(", ")))
            }),
        }
    }

    /// Returns the runtime directory of a generation's process.
    pub(super) fn runtime_dir(&self, id: SessionId, generation: u32, at_least: u64) -> RuntimeDir {
        let config = self.config();
        let limits = &config.limits;
        RuntimeDir {
            dir: self.agents_dir().join(id.to_string()).join(generation.to_string()),
            stderr_tail_bytes: limits.stderr_tail_bytes,
            journal_cap_bytes: limits.journal_bytes().max(at_least),
            part: None,
        }
    }

    /// Returns the directory for the runtime directories of all shims.
    pub(super) fn agents_dir(&self) -> PathBuf {
        self.store().path().with_file_name(AGENTS_DIR)
    }

    /// Returns the plan to continue a session whose process an earlier daemon started.
    pub(super) fn plan_again(
        &self,
        stored: &StoredSession,
        state: &SessionState,
    ) -> Result<ProcessPlan, StoreError> {
        let corrupt = StoreError::Corrupt { what: "a session's launch" };
        let launch: LaunchSpec = serde_json::from_str(&stored.launch).map_err(|_| corrupt)?;
        // If the profile was removed, its running agent continues with the defaults.
        Ok(self.plan_next(&launch, state.spec(), state.generation()))
    }

    /// Returns the plan for a generation. If the profile was removed, its `spec` is the error.
    fn plan_next(&self, launch: &LaunchSpec, spec: &SessionSpec, generation: u32) -> ProcessPlan {
        let profile = self.profile(launch).unwrap_or_default();
        self.plan(launch, &profile, spec, generation)
    }

    /// Returns the system user for an agent. It must be able to read neither our state nor our configuration.
    fn run_as(&self, name: &str) -> Result<RunAs, String> {
        let database = self.store().path();
        let state = database.parent().unwrap_or(database);
        let config = self.config();
        let secrets = [&config.api.tls_key, &config.webhook.secret_file].into_iter().flatten().cloned();
        let ours = [state.to_owned(), database.to_owned(), self.agents_dir()];
        RunAs::find(name, ours.into_iter().chain(secrets).collect())
    }

    fn plan(
        &self,
        launch: &LaunchSpec,
        profile: &AgentProfile,
        spec: &SessionSpec,
        generation: u32,
    ) -> ProcessPlan {
        let (config, workspace, session) = (self.config(), &spec.workspace, spec.id.to_string());
        // A session keeps its protocol, even if its profile has changed.
        let protocol = spec.protocol.parse().unwrap_or(profile.protocol);
        let profile = &AgentProfile { protocol, ..profile.clone() };
        let user = profile.run_as.as_ref().map(|name| self.run_as(name)).transpose();
        let home = user.as_ref().ok().and_then(Option::as_ref).map(RunAs::environment).unwrap_or_default();
        let own = home
            .iter()
            .map(|(name, value)| (name, value))
            .chain(&profile.env)
            .chain(&launch.env)
            .map(|(name, value)| (name.clone(), value.clone()));
        let env = agent_environment(std::env::vars_os(), &profile.pass_env, own, &session);
        let path = env.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.clone());
        let program = user.and_then(|user| {
            let program = resolve_program(&profile.command, workspace, path.as_deref());
            let with_advice = |error: SpawnError| match launch
                .agent
                .as_deref()
                .and_then(|name| self.how_to_install(name))
            {
                Some(how) => format!("{error}; install it: {how}"),
                None => error.to_string(),
            };
            Ok((program.map_err(with_advice)?, user))
        });
        let known = launch.agent.as_deref().and_then(catalog_agent);
        let key = known.and_then(|known| agent_key(known, &env, profile));
        let memo = SessionMemo { spec: spec.clone(), launch: launch.clone() };
        let process_spec = program.map(|(program, user)| ProcessSpec {
            memo: Some(serde_json::to_string(&memo).expect("it has string keys only")),
            user,
            session,
            program,
            args: profile.args.iter().map(Into::into).collect(),
            env,
            cwd: workspace.clone(),
            cgroup: self.0.cgroups.as_ref().map(|cgroups| cgroups.of(&format!("{}-{generation}", spec.id))),
            limits: CgroupLimits {
                memory_bytes: profile.limits.memory_mib.map(|mib| mib.saturating_mul(1 << 20)),
                processes: profile.limits.processes,
                cpu_percent: profile.limits.cpu_percent,
            },
        });
        let max_length = profile.max_line_length(&config.acp);
        let framer = match profile.framing(&config.acp) {
            Framing::Ndjson => Framer::ndjson(max_length),
            Framing::Lsp => Framer::lsp(max_length),
        };
        let driver = match profile.protocol {
            Protocol::Intercom => Driver::Intercom,
            Protocol::Acp => Driver::Acp(Box::new(AcpDriver::new(DriverSetup {
                agent: launch.agent.clone().unwrap_or_else(|| "the agent".to_owned()),
                workspace: workspace.to_string_lossy().into_owned(),
                offer: OfferedCapabilities {
                    read_files: profile.offer_files,
                    write_files: profile.offer_files,
                    terminals: profile.offer_terminals,
                    elicitation: true,
                },
                auth_method: profile.auth_method.clone(),
                mode: profile.mode.clone(),
                login: known.map(|known| {
                    let installed = |program: &str| is_there(program, path.as_deref().unwrap_or_default());
                    known.log_in_hint(known.name, &profile.pass_env, installed)
                }),
                key,
                resume: launch.resume.clone(),
                mcp_servers: launch.mcp_servers.clone(),
            }))),
        };
        let waits = profile.stop_waits(&config.stop);
        let (supervisor, next, who) = (self.clone(), launch.clone(), spec.clone());
        ProcessPlan {
            next_plan: Arc::new(move |generation| supervisor.plan_next(&next, &who, generation)),
            spec: process_spec,
            // Room for a few of the longest messages, whatever is configured: a message that does not fit would wait
            // for ever.
            runtime_dir: self.runtime_dir(spec.id, generation, 4 * max_length as u64),
            framer,
            driver,
            ladder: StopLadder {
                interrupt: Vec::new(),
                after_interrupt: waits.after_interrupt(),
                after_stdin_closed: waits.after_stdin_closed(),
                after_sigterm: waits.after_sigterm(),
            },
            assessor: Arc::new(self.0.policy_engine.clone()),
            startup_timeout: profile.startup_timeout(&config.acp),
            resume_after_reboot: profile.resume_after_reboot,
            launch: serde_json::to_string(launch).expect("strings serialise"),
            command_fingerprint: profiles::command_fingerprint(profile),
        }
    }
}

/// Returns the key that reaches an agent, if its variable is known. An empty variable does not count.
fn agent_key(known: &CatalogAgent, env: &[(OsString, OsString)], profile: &AgentProfile) -> Option<AgentKey> {
    let is_set = |name: &&str| env.iter().any(|(other, value)| other == name && !value.is_empty());
    let key = known.keys.iter().find(|key| key.iter().all(is_set))?;
    let names = key.join(", ");
    let how_to_replace = if key.iter().any(|name| profile.env.contains_key(*name)) {
        format!("set a valid key ({names}) in `env` of its profile and run `intercom reload`")
    } else {
        format!("set a valid key ({names}) and run `intercom daemon restart`")
    };
    Some(AgentKey { names, how_to_replace })
}

fn turn_model(profile: &AgentProfile) -> TurnModel {
    match (profile.protocol, profile.prompt_delivery) {
        (Protocol::Acp, _) => TurnModel::AgentOwned,
        (Protocol::Intercom, PromptDelivery::Immediate) => TurnModel::Immediate,
        (Protocol::Intercom, PromptDelivery::Heartbeat) => TurnModel::OnHeartbeat,
    }
}

fn outcome(id: SessionId, result: Result<(), StartError>) -> Result<SessionId, StartRefusal> {
    match result {
        Ok(()) => Ok(id),
        Err(StartError::Closing) => Err(StartRefusal::Closing),
        Err(StartError::SpawnFailed(cause)) => Err(StartRefusal::SpawnFailed { id, cause }),
        Err(StartError::Command(error)) => Err(error.into()),
    }
}

/// Returns the memory that the system could give to a new process, in bytes.
fn free_memory() -> Option<u64> {
    let info = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib * 1024)
}

/// Checks a name. It can be typed wherever an id can, so it must not look like one.
fn check_name(name: Option<String>) -> Result<Option<String>, StartRefusal> {
    let Some(name) = name else { return Ok(None) };
    let fine = (1..=64).contains(&name.chars().count())
        && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | '.'))
        && !name.starts_with(SessionId::PREFIX);
    if fine {
        Ok(Some(name))
    } else {
        let rule = "a name has 1 to 64 letters, digits, `-`, `_` or `.`, and does not begin with `ses_`";
        Err(StartRefusal::Invalid(rule.to_owned()))
    }
}

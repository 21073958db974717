//! The methods of the protocol, implemented with operations.

use std::sync::Arc;

use serde_json::{Value, json};

use super::capabilities;
use super::client::ClientState;
use super::client_requests::ClientDecision;
use super::feed::HistoryMode;
use super::refusal::RpcRefusal;
use intercom_daemon::ops::{SessionQuery, SettingResult};
use intercom_types::{
    AgentChange, Json, ListedAgent, NewSession, OnClientLeft, Phase, PresetChange, RememberChoice,
    RememberedRule, Session, SessionFailure, SessionId, SettingChange, SettingValue, SettingWait, StopMode,
};
use intercom_wire::acp::client_request::{
    self, NewSessionParams, SetModeParams, SetModelParams, SetOptionParams,
};

/// The page size of `session/list`.
const PAGE: usize = 50;

/// Returns the recorded ready message of the profile for this client's new sessions, if an agent of it ran before.
pub(super) async fn known(client: &ClientState) -> Option<Value> {
    let config = client.acp().0.ops.supervisor().config();
    let name = client.options().agent.clone().or_else(|| config.acp_server.agent.clone())?;
    let profiles = client.profiles().await.ok()?;
    profiles.into_iter().find(|profile| profile.name == name)?.known.map(|known| json!(known))
}

/// Starts a session, or attaches to the one that the client was started for. Returns the session, the answer, and the
/// history that the client receives.
pub(super) async fn begin(
    client: &ClientState,
    new: &NewSessionParams,
) -> Result<(Session, Value, HistoryMode), RpcRefusal> {
    if !new.cwd.starts_with('/') {
        let why = if new.cwd.is_empty() { "is empty" } else { "is not an absolute path" };
        return Err(RpcRefusal::params(format!("cwd {why}")));
    }
    let (seen, history) = match &client.options().attach {
        Some(typed) => {
            let seen = client.ops().session_without_processes(client.caller(), typed).await?;
            client.keep_session(seen.id).await;
            (seen, HistoryMode::After)
        }
        None => (start(client, new).await?, HistoryMode::News),
    };
    let mut result = opened(client, &seen).await;
    result["sessionId"] = json!(seen.id.to_string());
    Ok((seen, result, history))
}

async fn start(client: &ClientState, new: &NewSessionParams) -> Result<Session, RpcRefusal> {
    let profiles = client.profiles().await?;
    let ours = new.meta.as_ref().and_then(|meta| meta.intercom.as_ref());
    let asked = ours.and_then(|ours| ours.agent.clone()).or_else(|| client.options().agent.clone());
    let profile = pick(client, asked, &new.cwd, &profiles)?;
    // Without a recorded ready message, the agent's process must start to learn its capabilities. Otherwise it starts
    // with the first prompt: most windows of an editor never get one.
    let defer = profile.protocol != "acp" || profile.known.is_some();
    let name = ours.and_then(|ours| ours.name.clone());
    let session = NewSession {
        agent: Some(profile.name.clone()),
        workspace: new.cwd.clone(),
        mcp_servers: Some(Json::of(&new.mcp_servers)),
        defer,
        on_client_left: Some(on_client_left(client, name.as_deref()).as_str().to_owned()),
        name,
        ..NewSession::default()
    };
    let seen = client.ops().start(client.caller(), session).await?;
    if defer { Ok(seen) } else { ready(client, seen.id).await }
}

/// Returns the treatment of a new session when this client disconnects. A session with a name stays, unless the client
/// itself chose otherwise.
fn on_client_left(client: &ClientState, name: Option<&str>) -> OnClientLeft {
    let options = client.options();
    let wanted = options.on_close.unwrap_or(client.acp().0.ops.supervisor().config().acp_server.on_close);
    // A client without a connection disconnects after every request.
    let stays = options.connectionless || (name.is_some() && options.on_close.is_none());
    if stays { OnClientLeft::Keep } else { wanted }
}

/// Returns the profile for a new session: the named one, else the workspace's, the configured or the only one.
fn pick<'a>(
    client: &ClientState,
    asked: Option<String>,
    cwd: &str,
    profiles: &'a [ListedAgent],
) -> Result<&'a ListedAgent, RpcRefusal> {
    let config = client.acp().0.ops.supervisor().config();
    let here = || {
        let here = config.workspaces.values().find(|place| place.path.as_os_str() == cwd);
        here.and_then(|place| place.agent.clone())
    };
    let only = || match config.agents.keys().collect::<Vec<_>>().as_slice() {
        [one] => Some((*one).clone()),
        _ => None,
    };
    let names = || profiles.iter().map(|profile| profile.name.as_str()).collect::<Vec<_>>();
    let name = asked.or_else(here).or_else(|| config.acp_server.agent.clone()).or_else(only).ok_or_else(|| {
        let how = "no agent is selected: use `intercom acp --agent NAME`, or set `agent` under [acp_server] in the configuration";
        RpcRefusal::params(how).with(&json!({ "agents": names() }))
    })?;
    profiles.iter().find(|profile| profile.name == name).ok_or_else(|| {
        RpcRefusal::params(format!("no agent is named `{name}`")).with(&json!({ "agents": names() }))
    })
}

/// Waits until the session's agent is ready, and returns the session.
async fn ready(client: &ClientState, id: SessionId) -> Result<Session, RpcRefusal> {
    let mut bell = client.acp().0.ops.bell().listen_to(id);
    loop {
        let seen = client.session(&id).await?;
        if !seen.is_live() {
            let reason = match seen.failed {
                Some(SessionFailure { reason, hint: Some(hint), .. }) => format!("{reason}; {hint}"),
                Some(SessionFailure { reason, .. }) => reason,
                None => seen.why,
            };
            let data = json!({ "sessionId": id.to_string() });
            return Err(RpcRefusal::internal(format!("the agent did not start: {reason}")).with(&data));
        }
        // An agent that is being stopped has not started; its exit follows in a moment.
        if !(seen.phase == Phase::Starting || seen.phase == Phase::Stopping) || !bell.wait_for_ring().await {
            return Ok(seen);
        }
    }
}

/// Returns the answer to a client that opens a session.
pub(super) async fn opened(client: &ClientState, seen: &Session) -> Value {
    let agent_info = client.agent_session(seen).await;
    let profiles = client.profiles().await.unwrap_or_default();
    Value::Object(capabilities::opened(seen, agent_info.as_ref(), &profiles))
}

pub(super) async fn list(
    client: &ClientState,
    list: &client_request::ListSessionsParams,
) -> Result<Value, RpcRefusal> {
    let cursor = list.cursor.as_deref().map(str::parse::<i64>).transpose();
    let cursor = cursor.map_err(|_| RpcRefusal::params("no such cursor"))?;
    let (workspace, limit) = (list.cwd.clone(), Some(PAGE));
    let query = SessionQuery { all: true, workspace, cursor, limit, ..SessionQuery::default() };
    let page = client.reads().sessions(query).await?;
    let sessions: Vec<Value> = page.items.iter().map(capabilities::listed).collect();
    Ok(json!({ "sessions": sessions, "nextCursor": page.next }))
}

/// Closes a session for this client. Its agent is stopped if no other client is attached.
pub(super) async fn close(client: &ClientState, session: SessionId) -> Result<(), RpcRefusal> {
    if has_others(client, session) {
        return Ok(());
    }
    let seen = client.session(&session).await?;
    if seen.is_live() {
        client.ops().stop(client.caller(), &session, StopMode::Stop).await?;
    }
    Ok(())
}

pub(super) async fn delete(client: &ClientState, seen: &Session) -> Result<(), RpcRefusal> {
    if has_others(client, seen.id) {
        return Err(RpcRefusal::request("other clients are attached to this session"));
    }
    close(client, seen.id).await?;
    Ok(client.ops().remove(client.caller(), &seen.id).await?)
}

fn has_others(client: &ClientState, session: SessionId) -> bool {
    let ours = usize::from(client.feed(session).is_some());
    client.acp().clients_of(session) > ours
}

/// Returns the session with a running process, started if necessary: only a process can change its settings.
async fn with_process(client: &ClientState, seen: Session) -> Result<Session, RpcRefusal> {
    if seen.deferred || !seen.is_live() {
        client.ops().resume(client.caller(), &seen.id).await?;
        return ready(client, seen.id).await;
    }
    if seen.phase == Phase::Starting { ready(client, seen.id).await } else { Ok(seen) }
}

pub(super) async fn set_mode(client: &ClientState, set: &SetModeParams) -> Result<Value, RpcRefusal> {
    let seen = client.session(&set.session_id).await?;
    let agent_info = client.agent_session(&seen).await;
    if capabilities::has_our_modes(&seen, agent_info.as_ref()) {
        preset(client, seen.id, &set.mode_id).await?;
        return Ok(json!({}));
    }
    let seen = with_process(client, seen).await?;
    let answer = change_setting(
        client,
        seen.id,
        &SettingChange { mode: Some(set.mode_id.clone()), ..SettingChange::default() },
    )
    .await?;
    Ok(answer)
}

pub(super) async fn set_model(client: &ClientState, set: &SetModelParams) -> Result<Value, RpcRefusal> {
    let seen = client.session(&set.session_id).await?;
    let seen = with_process(client, seen).await?;
    change_setting(
        client,
        seen.id,
        &SettingChange { model: Some(set.model_id.clone()), ..SettingChange::default() },
    )
    .await
}

pub(super) async fn set_option(client: &ClientState, set: &SetOptionParams) -> Result<Value, RpcRefusal> {
    let seen = client.session(&set.session_id).await?;
    let id = seen.id;
    match (set.config_id.as_str(), &set.value) {
        (capabilities::POLICY, client_request::Value::Text(value)) => preset(client, id, value).await?,
        (capabilities::AGENT, client_request::Value::Text(value)) => {
            let change = AgentChange { agent: value.to_owned() };
            client.ops().change_agent(client.caller(), &id, change).await?;
        }
        (option, value) => {
            let value = match value {
                client_request::Value::Text(text) => SettingValue::Value(text.clone()),
                client_request::Value::Switch(on) => SettingValue::Switch(*on),
            };
            with_process(client, seen).await?;
            let (option, value) = (Some(option.to_owned()), Some(value));
            let change = SettingChange { option, value, ..SettingChange::default() };
            change_setting(client, id, &change).await?;
        }
    }
    let seen = client.session(&set.session_id).await?;
    let agent_info = client.agent_session(&seen).await;
    let profiles = client.profiles().await?;
    Ok(json!({ "configOptions": capabilities::options(&seen, agent_info.as_ref(), &profiles) }))
}

/// Changes a setting through the agent and returns the agent's answer.
async fn change_setting(
    client: &ClientState,
    id: SessionId,
    change: &SettingChange,
) -> Result<Value, RpcRefusal> {
    let change = SettingChange { wait: Some(SettingWait::Agent), ..change.clone() };
    let done = client.ops().change_setting(client.caller(), &id, change).await?;
    let answer: Option<Value> = match done {
        SettingResult::Agreed(agreed) => serde_json::from_str(agreed.answer.as_str()).ok(),
        SettingResult::Sent(_) => None,
    };
    Ok(answer.filter(Value::is_object).unwrap_or_else(|| json!({})))
}

async fn preset(client: &ClientState, id: SessionId, preset: &str) -> Result<(), RpcRefusal> {
    if !capabilities::PRESETS.iter().any(|(known, ..)| *known == preset) {
        let known = capabilities::PRESETS.map(|(known, ..)| known).join(", ");
        return Err(RpcRefusal::params(format!("there is no mode `{preset}`; the modes are {known}")));
    }
    let change = PresetChange { preset: preset.to_owned() };
    client.ops().change_preset(client.caller(), &id, change).await?;
    Ok(())
}

/// Applies a client's decision. A late or forbidden decision is only logged: the client learns the outcome from the
/// log.
pub(super) async fn decide(client: &Arc<ClientState>, id: &str, decision: ClientDecision) {
    let (ops, caller) = (client.ops(), client.caller());
    let done = match decision {
        ClientDecision::Nothing => return,
        ClientDecision::Question(answer) => ops.answer(caller, id, answer).await.map(drop),
        ClientDecision::Clearance { mut decision, always } => {
            if always {
                let rule = ops.explain(caller, id).await.ok().and_then(|explained| explained.proposal);
                let remember = |rule| RememberChoice::Rule(RememberedRule { rule, r#for: None });
                decision.remember = rule.map(remember);
            }
            ops.decide(caller, id, decision).await.map(drop)
        }
    };
    if let Err(error) = done {
        tracing::debug!(
            id,
            code = &*error.code,
            why = error.sentence(),
            "an ACP client's decision was refused"
        );
    }
}

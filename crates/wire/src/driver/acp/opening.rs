//! The handshake: identification, log-in, and the session to work in.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::controls::NO_NUMBER;
use super::{AcpDriver, PendingCall};
use crate::acp::answer::{AgentCapabilities, InitializeAnswer, SessionStartAnswer};
use crate::acp::error_answer::{ErrorAnswer, ErrorCause, LogInAdvice, login_methods, wants_login};
use crate::acp::send;
use crate::acp::{VERSION, method};
use intercom_types::text::quoted;
use intercom_types::{AgentMessage, ControlChange, Json, PromptCapabilities};

/// A session that the agent has opened, before it is reported as ready.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct OpenSession {
    resumed: bool,
    /// The agent's answer.
    answer: Json,
    /// Our request to set the mode.
    request: Option<u64>,
}

impl OpenSession {
    pub(super) fn waits_for(&self, request: Option<u64>) -> bool {
        self.request.is_some() && self.request == request
    }
}

impl AcpDriver {
    pub(super) fn handle_initialize_answer(&mut self, result: &RawValue, messages: &mut Vec<AgentMessage>) {
        let Some(hello) = InitializeAnswer::read(result) else {
            let reason = "its answer to `initialize` is not an object".to_owned();
            return messages.push(AgentMessage::Unusable { reason });
        };
        if let Some(version) = hello.version.filter(|version| *version != VERSION) {
            let reason = format!("it uses version {version} of the protocol, not {VERSION}");
            return messages.push(AgentMessage::Unusable { reason });
        }
        self.memory.can = hello.features;
        self.memory.auth = hello.auth_methods;
        self.memory.about = Some(Json::raw(result));
        self.open_session(messages);
    }

    /// Opens the session of an earlier process if the agent can resume it, else a new one.
    pub(super) fn open_session(&mut self, messages: &mut Vec<AgentMessage>) {
        let (cwd, servers) = (self.setup.workspace.clone(), self.setup.mcp_servers.clone());
        let servers = servers.as_ref();
        let text = match self.memory.session.earlier.clone() {
            Some(earlier) if self.memory.can.resume => {
                send::session_resume(&self.register_request(PendingCall::Resume), &earlier, &cwd, servers)
            }
            Some(earlier) if self.memory.can.load => {
                self.memory.session.replaying = true;
                send::session_load(&self.register_request(PendingCall::Load), &earlier, &cwd, servers)
            }
            _ => send::session_new(&self.register_request(PendingCall::New), &cwd, servers),
        };
        messages.push(AgentMessage::DriverText { text });
    }

    pub(super) fn handle_session_opened(
        &mut self,
        result: &RawValue,
        resumed: bool,
        messages: &mut Vec<AgentMessage>,
    ) {
        let started = SessionStartAnswer::read(result);
        let earlier = self.memory.session.earlier.take().filter(|_| resumed);
        let Some(session) = started.session.clone().map(Into::into).or(earlier) else {
            let reason = "its new session has no id".to_owned();
            return messages.push(AgentMessage::Unusable { reason });
        };
        // Some agents send the replay only after this answer: it lasts until our next request.
        self.store_controls(&started);
        messages.push(self.controls());
        self.memory.session.id = Some(session);
        let open = OpenSession { resumed, answer: Json::raw(result), request: None };
        match self.mode_to_set() {
            None => self.report_ready(open, None, messages),
            Some(Err(reason)) => {
                messages.push(AgentMessage::SettingRefused {
                    set: None,
                    reason,
                    error: Json::trusted("null"),
                });
                self.report_ready(open, None, messages);
            }
            // Not ready before the answer: the first prompt must not reach the agent in another mode.
            Some(Ok(mode)) => {
                let request = Some(self.memory.next_id);
                let text = self.set(&ControlChange::Mode(mode), NO_NUMBER);
                self.memory.opening = Some(OpenSession { request, ..open });
                messages.extend(text.map(|text| AgentMessage::DriverText { text }));
            }
        }
    }

    /// Returns the mode of the profile unless the agent is in it, or the reason why it cannot be set.
    fn mode_to_set(&self) -> Option<Result<String, String>> {
        let controls = &self.memory.controls;
        let mode = self.setup.mode.clone().filter(|mode| controls.current_mode().as_ref() != Some(mode))?;
        let (agent, offered) = (&self.setup.agent, controls.offered_modes());
        if offered.is_empty() {
            return Some(Err(format!(
                "the profile of {agent} wants mode `{mode}`, and the agent offers no modes"
            )));
        }
        let is_offered = offered.contains(&mode);
        let modes = offered.join(", ");
        Some(if is_offered {
            Ok(mode)
        } else {
            Err(format!("the profile of {agent} wants mode `{mode}`, and the agent offers only {modes}"))
        })
    }

    /// Handles the agent's answer about the mode of its profile. It is ready in either case.
    pub(super) fn opening_mode_answered(
        &mut self,
        open: OpenSession,
        result: Result<&RawValue, &RawValue>,
        messages: &mut Vec<AgentMessage>,
    ) {
        let wanted = self.setup.mode.clone().unwrap_or_default();
        match result {
            Ok(_) => self.report_ready(open, Some(&wanted), messages),
            Err(error) => {
                let why = quoted(&ErrorAnswer::read(error).message);
                let agent = &self.setup.agent;
                let reason =
                    format!("the profile of {agent} wants mode `{wanted}`, and the agent refuses it: {why}");
                messages.push(AgentMessage::SettingRefused { set: None, reason, error: Json::raw(error) });
                self.report_ready(open, None, messages);
            }
        }
    }

    fn report_ready(&mut self, open: OpenSession, mode: Option<&str>, messages: &mut Vec<AgentMessage>) {
        #[derive(Serialize)]
        struct ReadyInfo<'a> {
            agent_session: &'a str,
            resumed: bool,
            initialize: &'a Option<Json>,
            session: &'a Json,
            /// The mode of the profile that was set.
            #[serde(skip_serializing_if = "Option::is_none")]
            mode: Option<&'a str>,
        }
        let OpenSession { resumed, answer, request: _ } = open;
        let agent_session = self.memory.session.id.as_deref().unwrap_or_default();
        let info =
            ReadyInfo { agent_session, resumed, initialize: &self.memory.about, session: &answer, mode };
        let AgentCapabilities { image, audio, embedded_context, .. } = self.memory.can;
        messages.push(AgentMessage::Ready {
            supports_steering: self.memory.can.steer,
            supports_session_list: self.memory.can.list,
            resumed,
            prompt_capabilities: PromptCapabilities { image, audio, embedded_context },
            info: Json::of(&info),
        });
    }

    /// Handles a failed resume: the session is loaded if possible, else a new one begins, unless a person requested
    /// exactly that session.
    pub(super) fn handle_resume_failure(
        &mut self,
        may_load: bool,
        error: &RawValue,
        messages: &mut Vec<AgentMessage>,
    ) {
        if may_load && self.memory.can.load {
            self.memory.can.resume = false;
        } else if self.memory.session.explicit {
            return self.report_unusable(error, messages);
        } else {
            self.memory.session.earlier = None;
        }
        self.open_session(messages);
    }

    /// Handles a failure to open a session. If a log-in is missing, it is attempted if the profile names a method.
    pub(super) fn handle_open_failure(&mut self, error: &RawValue, messages: &mut Vec<AgentMessage>) {
        let wants_login = ErrorAnswer::read(error).trouble == ErrorCause::Auth;
        match self.setup.auth_method.clone().filter(|_| wants_login && !self.memory.logged_in) {
            Some(way) => {
                self.memory.logged_in = true;
                let text = send::authenticate(&self.register_request(PendingCall::Authenticate), &way);
                messages.push(AgentMessage::DriverText { text });
            }
            None => self.report_unusable(error, messages),
        }
    }

    pub(super) fn report_unusable(&mut self, error: &RawValue, messages: &mut Vec<AgentMessage>) {
        let failure = ErrorAnswer::read(error);
        self.report_login_needed(&failure, messages);
        let reason = failure.advice(&self.setup.agent, &self.log_in_advice(&failure));
        messages.push(AgentMessage::Unusable { reason });
    }

    /// Reports how to log in, if a log-in is missing.
    pub(super) fn report_login_needed(&self, failure: &ErrorAnswer, messages: &mut Vec<AgentMessage>) {
        if failure.trouble == ErrorCause::Auth {
            let LogInAdvice { reason, how } = self.log_in_advice(failure);
            let words = failure.message.trim_end_matches('.').to_owned();
            messages.push(AgentMessage::LogInNeeded { reason, words, how, untouched: self.is_untouched() });
        }
    }

    /// Returns the advice about a log-in, which is the same in the log, in hints, and for ACP clients.
    pub(super) fn log_in_advice(&self, failure: &ErrorAnswer) -> LogInAdvice {
        let agent = &self.setup.agent;
        let log_in = match &self.setup.login {
            Some(known) => format!("log in: {known}"),
            None => format!("log in{}", login_methods(&self.memory.auth)),
        };
        match (&self.setup.key, failure.is_refused()) {
            (Some(key), true) => LogInAdvice {
                reason: format!("the key of {agent} ({}) was refused", key.names),
                how: key.how_to_replace.clone(),
            },
            // Some agents report only that a log-in is missing, regardless of their service's answer.
            (Some(key), false) if !failure.is_missing() => LogInAdvice {
                reason: format!(
                    "{agent} needs a login although {} is set, so the key may be wrong",
                    key.names
                ),
                how: key.how_to_replace.clone(),
            },
            (None, true) => LogInAdvice {
                reason: format!("the login of {agent} was refused"),
                how: log_in.replacen("log in", "log in again", 1),
            },
            _ => LogInAdvice { reason: format!("{agent} needs a login"), how: log_in },
        }
    }

    /// Reports whether the agent has not processed its prompt, except for requesting a log-in.
    fn is_untouched(&self) -> bool {
        let words = self.memory.turn.last_words.trim();
        !self.memory.turn.worked && (words.is_empty() || wants_login(words))
    }

    /// Returns the unanswered request: the oldest of the handshake, or the prompt.
    pub(in crate::driver) fn unanswered(&self) -> Option<&'static str> {
        self.memory.pending.values().find_map(|pending| match pending {
            PendingCall::Initialize => Some(method::INITIALIZE),
            PendingCall::Authenticate => Some(method::AUTHENTICATE),
            PendingCall::New => Some(method::SESSION_NEW),
            PendingCall::Load => Some(method::SESSION_LOAD),
            PendingCall::Resume => Some(method::SESSION_RESUME),
            PendingCall::Prompt => Some(method::SESSION_PROMPT),
            PendingCall::Set | PendingCall::List | PendingCall::Steer | PendingCall::Other => None,
        })
    }
}

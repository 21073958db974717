//! The handshake: who we are, whether somebody has to log in, and the session to work in.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::controls::NO_NUMBER;
use super::{AcpDriver, PendingCall};
use crate::acp::answer::{AgentCapabilities, InitializeAnswer, SessionStarted};
use crate::acp::send;
use crate::acp::trouble::{Failure, LogInAdvice, Trouble, wants_login, ways_in};
use crate::acp::{VERSION, method};
use intercom_types::text::quoted;
use intercom_types::{Json, Said, Set, Takes};

/// A session that the agent has opened, before it is told to be ready.
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
    pub(super) fn initialized(&mut self, result: &RawValue, said: &mut Vec<Said>) {
        let Some(hello) = InitializeAnswer::read(result) else {
            let reason = "its answer to `initialize` is no object".to_owned();
            return said.push(Said::Unusable { reason });
        };
        if let Some(version) = hello.version.filter(|version| *version != VERSION) {
            let reason = format!("it speaks version {version} of the protocol, not {VERSION}");
            return said.push(Said::Unusable { reason });
        }
        self.mind.can = hello.can;
        self.mind.auth = hello.auth_methods;
        self.mind.about = Some(Json::raw(result));
        self.open_session(said);
    }

    /// The session of an earlier process if the agent can go on with it, else a new one.
    pub(super) fn open_session(&mut self, said: &mut Vec<Said>) {
        let (cwd, servers) = (self.setup.workspace.clone(), self.setup.mcp_servers.clone());
        let servers = servers.as_ref();
        let text = match self.mind.earlier.clone() {
            Some(earlier) if self.mind.can.resume => {
                send::session_resume(&self.ask(PendingCall::Resume), &earlier, &cwd, servers)
            }
            Some(earlier) if self.mind.can.load => {
                self.mind.replaying = true;
                send::session_load(&self.ask(PendingCall::Load), &earlier, &cwd, servers)
            }
            _ => send::session_new(&self.ask(PendingCall::New), &cwd, servers),
        };
        said.push(Said::Tell { text });
    }

    pub(super) fn opened(&mut self, result: &RawValue, resumed: bool, said: &mut Vec<Said>) {
        let started = SessionStarted::read(result);
        let earlier = self.mind.earlier.take().filter(|_| resumed);
        let Some(session) = started.session.clone().map(Into::into).or(earlier) else {
            let reason = "its new session has no id".to_owned();
            return said.push(Said::Unusable { reason });
        };
        // Some answer before they have told all of it: it goes on until they are asked something.
        self.learn(&started);
        said.push(self.controls());
        self.mind.session = Some(session);
        let open = OpenSession { resumed, answer: Json::raw(result), request: None };
        match self.mode_to_set() {
            None => self.ready(open, None, said),
            Some(Err(reason)) => {
                said.push(Said::NotSet { set: None, reason, error: Json::trusted("null") });
                self.ready(open, None, said);
            }
            // Not ready before the answer: the first prompt must not meet the agent in another mode.
            Some(Ok(mode)) => {
                let request = Some(self.mind.next_id);
                let text = self.set(&Set::Mode(mode), NO_NUMBER);
                self.mind.opening = Some(OpenSession { request, ..open });
                said.extend(text.map(|text| Said::Tell { text }));
            }
        }
    }

    /// Returns the mode of the profile unless the agent is in it, or the reason why it cannot be set.
    fn mode_to_set(&self) -> Option<Result<String, String>> {
        let controls = &self.mind.controls;
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

    /// The agent has answered whether it takes the mode of its profile. It is ready in either case.
    pub(super) fn opening_mode_answered(
        &mut self,
        open: OpenSession,
        result: Result<&RawValue, &RawValue>,
        said: &mut Vec<Said>,
    ) {
        let wanted = self.setup.mode.clone().unwrap_or_default();
        match result {
            Ok(_) => self.ready(open, Some(&wanted), said),
            Err(error) => {
                let why = quoted(&Failure::read(error).message);
                let agent = &self.setup.agent;
                let reason =
                    format!("the profile of {agent} wants mode `{wanted}`, and the agent refuses it: {why}");
                said.push(Said::NotSet { set: None, reason, error: Json::raw(error) });
                self.ready(open, None, said);
            }
        }
    }

    fn ready(&mut self, open: OpenSession, mode: Option<&str>, said: &mut Vec<Said>) {
        #[derive(Serialize)]
        struct ReadyInfo<'a> {
            agent_session: &'a str,
            resumed: bool,
            initialize: &'a Option<Json>,
            session: &'a Json,
            /// The mode that was set because the profile says so.
            #[serde(skip_serializing_if = "Option::is_none")]
            mode: Option<&'a str>,
        }
        let OpenSession { resumed, answer, request: _ } = open;
        let agent_session = self.mind.session.as_deref().unwrap_or_default();
        let info = ReadyInfo { agent_session, resumed, initialize: &self.mind.about, session: &answer, mode };
        let AgentCapabilities { image, audio, embedded_context, .. } = self.mind.can;
        said.push(Said::Ready {
            steers: self.mind.can.steer,
            lists: self.mind.can.list,
            resumed,
            takes: Takes { image, audio, embedded_context },
            info: Json::of(&info),
        });
    }

    /// Handles a failed resume: the session is loaded if possible, else a new one begins, unless somebody
    /// asked for just that session.
    pub(super) fn not_resumed(&mut self, may_load: bool, error: &RawValue, said: &mut Vec<Said>) {
        if may_load && self.mind.can.load {
            self.mind.can.resume = false;
        } else if self.mind.explicit {
            return self.unusable(error, said);
        } else {
            self.mind.earlier = None;
        }
        self.open_session(said);
    }

    /// Without a log-in, one is tried if the profile says how.
    pub(super) fn not_opened(&mut self, error: &RawValue, said: &mut Vec<Said>) {
        let wants_login = Failure::read(error).trouble == Trouble::Auth;
        match self.setup.auth_method.clone().filter(|_| wants_login && !self.mind.logged_in) {
            Some(way) => {
                self.mind.logged_in = true;
                let text = send::authenticate(&self.ask(PendingCall::Authenticate), &way);
                said.push(Said::Tell { text });
            }
            None => self.unusable(error, said),
        }
    }

    pub(super) fn unusable(&mut self, error: &RawValue, said: &mut Vec<Said>) {
        let failure = Failure::read(error);
        self.wants_login(&failure, said);
        let reason = failure.advice(&self.setup.agent, &self.log_in_advice(&failure));
        said.push(Said::Unusable { reason });
    }

    /// Says how to log in, if a log-in is what is missing.
    pub(super) fn wants_login(&self, failure: &Failure, said: &mut Vec<Said>) {
        if failure.trouble == Trouble::Auth {
            let LogInAdvice { reason, how } = self.log_in_advice(failure);
            let words = failure.message.trim_end_matches('.').to_owned();
            said.push(Said::LogInNeeded { reason, words, how, untouched: self.is_untouched() });
        }
    }

    /// The one piece of advice about a log-in: in the log, in hints, and for ACP clients.
    pub(super) fn log_in_advice(&self, failure: &Failure) -> LogInAdvice {
        let agent = &self.setup.agent;
        let log_in = match &self.setup.login {
            Some(known) => format!("log in: {known}"),
            None => format!("log in{}", ways_in(&self.mind.auth)),
        };
        match (&self.setup.key, failure.is_refused()) {
            (Some(key), true) => LogInAdvice {
                reason: format!("the key of {agent} ({}) was refused", key.names),
                how: key.how_to_replace.clone(),
            },
            // Some agents say no more than that, whatever their service has answered.
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

    /// Tells whether the agent has done nothing about its prompt but to ask for a log-in.
    fn is_untouched(&self) -> bool {
        let words = self.mind.last_words.trim();
        !self.mind.worked && (words.is_empty() || wants_login(words))
    }

    /// The request that the agent has not answered yet: the oldest of the handshake, or its prompt.
    pub(in crate::driver) fn unanswered(&self) -> Option<&'static str> {
        self.mind.pending.values().find_map(|pending| match pending {
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

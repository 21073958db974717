//! Agents' answers to our requests.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{capable, count, flag, list, optional_fields, owned, pick, string};

/// The capabilities of an agent, recorded with the session so that they are known after a restart of the daemon.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "each stands for a capability of its own")]
pub(crate) struct AgentCapabilities {
    pub(crate) load: bool,
    pub(crate) resume: bool,
    pub(crate) list: bool,
    pub(crate) close: bool,
    pub(crate) image: bool,
    pub(crate) audio: bool,
    pub(crate) embedded_context: bool,
    /// The agent accepts text during a turn, by an extension.
    pub(crate) steer: bool,
}

/// The answer to `initialize`.
#[derive(Debug)]
pub(crate) struct InitializeAnswer {
    pub(crate) version: Option<u64>,
    pub(crate) features: AgentCapabilities,
    pub(crate) auth_methods: Vec<AuthMethod>,
}

impl InitializeAnswer {
    /// Parses the answer; `None` if it is not an object.
    pub(crate) fn read(result: &RawValue) -> Option<Self> {
        let [version, capabilities, auth, meta] =
            pick(result, ["protocolVersion", "agentCapabilities", "authMethods", "_meta"])?;
        let mut can = AgentCapabilities::read(capabilities);
        can.steer |= steers(meta);
        Some(Self {
            version: count(version),
            features: can,
            auth_methods: list(auth).into_iter().filter_map(AuthMethod::read).collect(),
        })
    }
}

impl AgentCapabilities {
    fn read(capabilities: Option<&RawValue>) -> Self {
        let [load, session, prompt, meta] = optional_fields(
            capabilities,
            ["loadSession", "sessionCapabilities", "promptCapabilities", "_meta"],
        );
        let [resume, list, close] = optional_fields(session, ["resume", "list", "close"]);
        let [image, audio, embedded_context] = optional_fields(prompt, ["image", "audio", "embeddedContext"]);
        Self {
            load: flag(load),
            resume: capable(resume),
            list: capable(list),
            close: capable(close),
            image: flag(image),
            audio: flag(audio),
            embedded_context: flag(embedded_context),
            steer: steers(meta),
        }
    }
}

/// Reads the steering flag that Claude and Codex advertise beside the capabilities rather than among them.
fn steers(meta: Option<&RawValue>) -> bool {
    let [steering] = optional_fields(meta, ["steering"]);
    let [supported] = optional_fields(steering, ["supported"]);
    flag(supported)
}

/// A way to log in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AuthMethod {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) description: Option<String>,
    /// The command to run in a terminal, if the agent names one.
    pub(crate) command: Option<String>,
    /// The variables to set, if the agent names them.
    pub(crate) variables: Vec<String>,
}

impl AuthMethod {
    fn read(raw: &RawValue) -> Option<Self> {
        let [id, name, description, variables, meta] =
            pick(raw, ["id", "name", "description", "vars", "_meta"])?;
        let id = owned(id)?;
        let [terminal] = optional_fields(meta, ["terminal-auth"]);
        let [program, args] = optional_fields(terminal, ["command", "args"]);
        let args = list(args).into_iter().map(|arg| string(Some(arg)));
        let words: Option<Vec<_>> = std::iter::once(string(program)).chain(args).collect();
        let variable = |raw| owned(optional_fields(Some(raw), ["name"])[0]);
        Some(Self {
            name: owned(name).unwrap_or_else(|| id.clone()),
            description: owned(description),
            command: words.map(|words| words.join(" ")),
            variables: list(variables).into_iter().filter_map(variable).collect(),
            id,
        })
    }
}

/// The answer to `session/new`, `session/load` or `session/resume`; the latter two may be `null` and name no session.
#[derive(Debug, Default)]
pub(crate) struct SessionStartAnswer<'a> {
    pub(crate) session: Option<Cow<'a, str>>,
    pub(crate) modes: Option<&'a RawValue>,
    pub(crate) models: Option<&'a RawValue>,
    pub(crate) config_options: Option<&'a RawValue>,
}

impl<'a> SessionStartAnswer<'a> {
    pub(crate) fn read(result: &'a RawValue) -> Self {
        let [session, modes, old_models, config_options] =
            optional_fields(Some(result), ["sessionId", "modes", "models", "configOptions"]);
        Self { session: string(session), modes, models: old_models, config_options }
    }

    pub(crate) fn modes(&self) -> OptionSelection<'a> {
        OptionSelection::read(optional_fields(self.modes, ["currentModeId", "availableModes"]), "id")
    }

    /// Returns the models as older agents report them; for others the model is one of the config options.
    pub(crate) fn models(&self) -> OptionSelection<'a> {
        OptionSelection::read(optional_fields(self.models, ["currentModelId", "availableModels"]), "modelId")
    }
}

/// The current choice and the available ones.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct OptionSelection<'a> {
    pub(crate) current: Option<Cow<'a, str>>,
    pub(crate) available: Vec<NamedOption<'a>>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NamedOption<'a> {
    pub(crate) id: Cow<'a, str>,
    pub(crate) name: Cow<'a, str>,
}

impl<'a> OptionSelection<'a> {
    fn read([current, available]: [Option<&'a RawValue>; 2], id: &str) -> Self {
        let named = |raw| {
            let [id, name] = optional_fields(Some(raw), [id, "name"]);
            let id = string(id)?;
            Some(NamedOption { name: string(name).unwrap_or_else(|| id.clone()), id })
        };
        Self { current: string(current), available: list(available).into_iter().filter_map(named).collect() }
    }
}

/// An option of the session: a model, a mode, a level of effort.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ConfigOption<'a> {
    pub(crate) id: Cow<'a, str>,
    /// `mode`, `model`, `thought_level`, …
    pub(crate) category: Option<Cow<'a, str>>,
    /// `select`, `boolean`, …
    pub(crate) sort: Option<Cow<'a, str>>,
    /// The value as raw JSON: a string or a boolean.
    pub(crate) current: Option<&'a str>,
}

/// Parses config options, also those in the answer to `session/set_config_option` and in `config_option_update`.
pub(crate) fn config_options(raw: Option<&RawValue>) -> Vec<ConfigOption<'_>> {
    let read = |raw| {
        let [id, category, sort, current] =
            optional_fields(Some(raw), ["id", "category", "type", "currentValue"]);
        Some(ConfigOption {
            id: string(id)?,
            category: string(category),
            sort: string(sort),
            current: current.map(RawValue::get),
        })
    };
    list(raw).into_iter().filter_map(read).collect()
}

/// The answer to `session/prompt`.
#[derive(Debug)]
pub(crate) struct SessionPromptAnswer<'a> {
    pub(crate) stop_reason: Option<Cow<'a, str>>,
    pub(crate) tokens: Option<ReportedTokens>,
}

/// The token usage of a turn, as far as the agent reports it. Its cost comes with `usage_update`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReportedTokens {
    pub(crate) input: Option<u64>,
    pub(crate) output: Option<u64>,
    pub(crate) total: Option<u64>,
}

impl<'a> SessionPromptAnswer<'a> {
    /// Parses the answer; `None` if it is not an object.
    pub(crate) fn read(result: &'a RawValue) -> Option<Self> {
        let [stop_reason, usage, meta] = pick(result, ["stopReason", "usage", "_meta"])?;
        let tokens =
            ReportedTokens::read(optional_fields(usage, ["inputTokens", "outputTokens", "totalTokens"]));
        Some(Self {
            stop_reason: string(stop_reason),
            tokens: tokens.or_else(|| ReportedTokens::of_quota(meta)),
        })
    }
}

impl ReportedTokens {
    fn read([input, output, total]: [Option<&RawValue>; 3]) -> Option<Self> {
        let tokens = Self { input: count(input), output: count(output), total: count(total) };
        (tokens != Self::default()).then_some(tokens)
    }

    /// Reads the quota that Gemini sends instead of `usage`.
    fn of_quota(meta: Option<&RawValue>) -> Option<Self> {
        let [quota] = optional_fields(meta, ["quota"]);
        let [tokens] = optional_fields(quota, ["token_count"]);
        Self::read(optional_fields(tokens, ["input_tokens", "output_tokens", "total_tokens"]))
    }
}

/// Returns the cursor of the next page, from the answer to `session/list`.
pub(crate) fn next_session_page(result: &RawValue) -> Option<Cow<'_, str>> {
    let [_, next] = pick(result, ["sessions", "nextCursor"])?;
    string(next)
}

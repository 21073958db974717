//! The catalog of well-known agents: profiles that need no configuration. A configured profile of the same name
//! replaces the one here. `docs/AGENTS.md` has the sources of these facts.

use std::collections::BTreeMap;

use super::choices::Protocol;
use super::fetcher::FETCHED_WITHIN_SECONDS;
use super::model::{AgentProfile, StopOverrides};

/// The program that fetches and starts an agent that is not installed.
pub const FETCHER: &str = "npx";

const READY_WITHIN_SECONDS: u64 = 60;

/// Variables for proxies: without them an agent behind a proxy cannot reach its service, nor `npx` its packages.
const PROXIES: &[&str] = &[
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "NODE_EXTRA_CA_CERTS",
    "SSL_CERT_FILE",
];

/// The way to have an agent ask before it acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AskingSetup {
    /// The agent asks by default.
    Default,
    /// The agent asks in this mode, and starts in another one. A person who sets the variable chooses the first mode.
    Mode { mode: &'static str, chosen_by: &'static str },
    /// The agent asks if this variable has this value.
    Variable { name: &'static str, value: &'static str },
}

/// The ways in which a person logs in to an agent.
#[derive(Debug, Clone, Copy)]
pub struct LoginMethod {
    /// The program that logs in, and its arguments.
    pub(crate) program: &'static str,
    pub(crate) args: &'static str,
    /// The npm package with that program.
    pub(crate) package: Option<&'static str>,
    /// The step inside of the program, as the end of the sentence.
    pub(crate) then: &'static str,
    /// The variables that replace a log-in, for a sentence that begins with "or ".
    pub(crate) variables: &'static str,
}

impl LoginMethod {
    /// Returns the ways that work on this machine. `installed` returns true if a program is installed.
    pub fn advice(&self, installed: impl Fn(&str) -> bool) -> String {
        let Self { program, args, package, then, variables } = self;
        let line = match package {
            _ if installed(program) => (*program).to_owned(),
            Some(package) if installed(FETCHER) => format!("{FETCHER} -y {package}"),
            _ => return (*variables).to_owned(),
        };
        let line = if args.is_empty() { line } else { format!("{line} {args}") };
        format!("run `{line}`{then}, or {variables}")
    }
}

/// A well-known agent.
#[derive(Debug)]
pub struct CatalogAgent {
    pub name: &'static str,
    pub(crate) description: &'static str,
    /// The program's name once it is installed.
    pub command: &'static str,
    pub(crate) args: &'static [&'static str],
    /// The npm package with its version, if this is the package's only program.
    pub package: Option<&'static str>,
    /// The oldest tested version of Node, major and minor, if the npm package needs Node.
    pub node: Option<(u32, u32)>,
    /// The installation instruction, for a sentence that begins with "install it: ".
    pub install: &'static str,
    /// The way a person logs in.
    pub login: LoginMethod,
    /// Sets of variables, each of which logs the agent in if all of it are set. All are passed on.
    pub keys: &'static [&'static [&'static str]],
    /// Files below the home directory, each of which shows that somebody has logged in.
    pub credentials: &'static [&'static str],
    /// The ACP method for authentication with a key, when the agent asks for a log-in.
    pub(crate) auth_method: Option<&'static str>,
    /// The way to make it ask before it acts.
    pub(crate) asking: AskingSetup,
    /// Further variables that are passed on.
    pub(crate) settings: &'static [&'static str],
}

/// All well-known agents by name.
pub const AGENT_CATALOG: &[CatalogAgent] = &[
    CatalogAgent {
        name: "claude",
        description: "Claude Code, by its ACP adapter",
        command: "claude-agent-acp",
        args: &[],
        package: Some("@agentclientprotocol/claude-agent-acp@0.99.1"),
        node: Some((20, 0)),
        install: "npm install -g @agentclientprotocol/claude-agent-acp",
        login: LoginMethod {
            program: "claude",
            args: "",
            package: Some("@anthropic-ai/claude-code"),
            then: " and `/login` there",
            variables: "set ANTHROPIC_API_KEY",
        },
        keys: &[&["ANTHROPIC_API_KEY"], &["ANTHROPIC_AUTH_TOKEN"], &["CLAUDE_CODE_OAUTH_TOKEN"]],
        credentials: &[".claude/.credentials.json"],
        auth_method: None,
        asking: AskingSetup::Default,
        settings: &["ANTHROPIC_BASE_URL", "ANTHROPIC_MODEL", "CLAUDE_CONFIG_DIR", "CLAUDE_CODE_EXECUTABLE"],
    },
    CatalogAgent {
        name: "codex",
        description: "OpenAI's Codex, by its ACP adapter",
        command: "codex-acp",
        args: &[],
        package: Some("@agentclientprotocol/codex-acp@2.6.0"),
        node: Some((20, 0)),
        install: "npm install -g @agentclientprotocol/codex-acp",
        login: LoginMethod {
            program: "codex",
            args: "login",
            package: Some("@openai/codex"),
            then: "",
            variables: "set OPENAI_API_KEY",
        },
        keys: &[&["CODEX_API_KEY"], &["OPENAI_API_KEY"]],
        credentials: &[".codex/auth.json"],
        auth_method: Some("api-key"),
        asking: AskingSetup::Mode { mode: "read-only", chosen_by: "INITIAL_AGENT_MODE" },
        settings: &["CODEX_HOME", "CODEX_PATH", "CODEX_CONFIG", "MODEL_PROVIDER"],
    },
    CatalogAgent {
        name: "copilot",
        description: "GitHub Copilot CLI",
        command: "copilot",
        args: &["--acp"],
        package: Some("@github/copilot@1.0.102"),
        node: Some((20, 0)),
        install: "npm install -g @github/copilot",
        login: LoginMethod {
            program: "copilot",
            args: "login",
            package: Some("@github/copilot@1.0.102"),
            then: "",
            variables: "set COPILOT_GITHUB_TOKEN, or COPILOT_PROVIDER_BASE_URL and COPILOT_MODEL",
        },
        keys: &[&["COPILOT_GITHUB_TOKEN"], &["COPILOT_PROVIDER_BASE_URL", "COPILOT_MODEL"]],
        credentials: &[".copilot/config.json"],
        auth_method: None,
        asking: AskingSetup::Default,
        settings: &[
            "COPILOT_HOME",
            "COPILOT_GH_HOST",
            "COPILOT_OFFLINE",
            "COPILOT_PROVIDER_TYPE",
            "COPILOT_PROVIDER_API_KEY",
            "COPILOT_PROVIDER_API_KEY_COMMAND",
            "COPILOT_PROVIDER_BEARER_TOKEN",
            "COPILOT_PROVIDER_WIRE_API",
            "COPILOT_PROVIDER_TRANSPORT",
            "COPILOT_PROVIDER_AZURE_API_VERSION",
            "COPILOT_PROVIDER_HEADERS",
            "COPILOT_PROVIDER_MODEL_ID",
            "COPILOT_PROVIDER_WIRE_MODEL",
            "COPILOT_PROVIDER_MAX_PROMPT_TOKENS",
            "COPILOT_PROVIDER_MAX_OUTPUT_TOKENS",
        ],
    },
    CatalogAgent {
        name: "cursor",
        description: "Cursor's agent",
        command: "cursor-agent",
        args: &["acp"],
        package: None,
        node: None,
        install: "see cursor.com/cli",
        login: LoginMethod {
            program: "cursor-agent",
            args: "login",
            package: None,
            then: "",
            variables: "set CURSOR_API_KEY",
        },
        keys: &[&["CURSOR_API_KEY"], &["CURSOR_AUTH_TOKEN"]],
        credentials: &[],
        auth_method: Some("cursor_login"),
        asking: AskingSetup::Default,
        settings: &[],
    },
    CatalogAgent {
        name: "gemini",
        description: "Google's Gemini CLI",
        command: "gemini",
        args: &["--acp"],
        package: Some("@google/gemini-cli@0.61.0"),
        node: Some((20, 0)),
        install: "npm install -g @google/gemini-cli",
        login: LoginMethod {
            program: "gemini",
            args: "",
            package: Some("@google/gemini-cli@0.61.0"),
            then: " and log in there",
            variables: "set GEMINI_API_KEY",
        },
        keys: &[&["GEMINI_API_KEY"]],
        credentials: &[".gemini/oauth_creds.json", ".gemini/gemini-credentials.json"],
        auth_method: Some("gemini-api-key"),
        asking: AskingSetup::Default,
        settings: &[
            "GOOGLE_GEMINI_BASE_URL",
            "GOOGLE_CLOUD_PROJECT",
            "GOOGLE_CLOUD_LOCATION",
            "GEMINI_MODEL",
        ],
    },
    CatalogAgent {
        name: "goose",
        description: "goose, with the model of your choice",
        command: "goose",
        args: &["acp"],
        package: None,
        node: None,
        install: "see block.github.io/goose, or `intercom agents add` with its registry entry",
        login: LoginMethod {
            program: "goose",
            args: "configure",
            package: None,
            then: "",
            variables: "set GOOSE_PROVIDER, GOOSE_MODEL and the provider's key",
        },
        keys: &[&["GOOSE_PROVIDER"]],
        credentials: &[".config/goose/config.yaml"],
        auth_method: None,
        asking: AskingSetup::Variable { name: "GOOSE_MODE", value: "approve" },
        settings: &["GOOSE_MODEL", "OPENAI_API_KEY", "OPENAI_HOST", "ANTHROPIC_API_KEY"],
    },
    CatalogAgent {
        name: "kimi",
        description: "Moonshot's Kimi Code",
        command: "kimi",
        args: &["acp"],
        package: Some("@moonshot-ai/kimi-code@2.1.0"),
        node: Some((22, 19)),
        install: "npm install -g @moonshot-ai/kimi-code (the older kimi-cli is discontinued)",
        login: LoginMethod {
            program: "kimi",
            args: "",
            package: Some("@moonshot-ai/kimi-code@2.1.0"),
            then: " and `/login` there",
            variables: "set KIMI_MODEL_NAME and KIMI_MODEL_API_KEY",
        },
        keys: &[&["KIMI_MODEL_NAME", "KIMI_MODEL_API_KEY"]],
        credentials: &[".kimi-code/credentials"],
        auth_method: None,
        asking: AskingSetup::Default,
        settings: &[
            "KIMI_CODE_HOME",
            "KIMI_MODEL_BASE_URL",
            "KIMI_MODEL_PROVIDER_TYPE",
            "KIMI_MODEL_MAX_CONTEXT_SIZE",
        ],
    },
    CatalogAgent {
        name: "opencode",
        description: "OpenCode, with the model of your choice",
        command: "opencode",
        args: &["acp"],
        package: Some("opencode-ai@1.18.33"),
        node: None,
        install: "npm install -g opencode-ai",
        login: LoginMethod {
            program: "opencode",
            args: "auth login",
            package: Some("opencode-ai@1.18.33"),
            then: "",
            variables: "set the key of its provider, such as ANTHROPIC_API_KEY",
        },
        keys: &[&["ANTHROPIC_API_KEY"], &["OPENAI_API_KEY"]],
        credentials: &[".local/share/opencode/auth.json"],
        auth_method: None,
        asking: AskingSetup::Variable {
            name: "OPENCODE_PERMISSION",
            value: r#"{"edit":"ask","bash":"ask"}"#,
        },
        settings: &["OPENCODE_CONFIG"],
    },
    CatalogAgent {
        name: "qwen",
        description: "Alibaba's Qwen Code",
        command: "qwen",
        args: &["--acp"],
        package: Some("@qwen-code/qwen-code@0.24.4"),
        node: Some((20, 0)),
        install: "npm install -g @qwen-code/qwen-code",
        login: LoginMethod {
            program: "qwen",
            args: "",
            package: Some("@qwen-code/qwen-code@0.24.4"),
            then: " and `/auth` there",
            variables: "set OPENAI_API_KEY, OPENAI_BASE_URL and OPENAI_MODEL",
        },
        keys: &[&["OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL"]],
        credentials: &[".qwen/oauth_creds.json", ".qwen/.env"],
        auth_method: None,
        asking: AskingSetup::Default,
        settings: &[],
    },
    CatalogAgent {
        name: "vibe",
        description: "Mistral's Vibe",
        command: "vibe-acp",
        args: &[],
        package: None,
        node: None,
        install: "uv tool install mistral-vibe",
        login: LoginMethod {
            program: "vibe",
            args: "",
            package: None,
            then: " once",
            variables: "set MISTRAL_API_KEY",
        },
        keys: &[&["MISTRAL_API_KEY"]],
        credentials: &[".vibe/.env"],
        auth_method: None,
        asking: AskingSetup::Default,
        settings: &[],
    },
];

/// Returns the agent with this name.
pub fn catalog_agent(name: &str) -> Option<&'static CatalogAgent> {
    AGENT_CATALOG.iter().find(|known| known.name == name)
}

impl CatalogAgent {
    /// Returns true if all variables of any of its sets are present.
    pub(crate) fn has_key(&self, set: impl Fn(&str) -> bool) -> bool {
        self.keys.iter().any(|key| key.iter().all(|name| set(name)))
    }

    /// Returns the ways to log in here, and the step that makes a key reach an agent of this profile, whose `pass_env`
    /// is given. A daemon in the background keeps the variables of its start.
    pub fn log_in_hint(
        &self,
        profile: &str,
        pass_env: &[String],
        installed: impl Fn(&str) -> bool,
    ) -> String {
        let login = self.login.advice(installed);
        if self.keys.iter().any(|key| key.iter().all(|name| pass_env.iter().any(|own| own == name))) {
            return format!("{login} and run `intercom daemon restart`");
        }
        format!("{login}, name it in `pass_env` of [agents.{profile}] and run `intercom daemon restart`")
    }

    /// Returns the advice for a session that acts without asking, if none of its modes is known to ask.
    pub(crate) fn asking_advice(&self) -> Option<String> {
        match self.asking {
            AskingSetup::Default => None,
            AskingSetup::Mode { mode, .. } => {
                Some(format!("to be asked, set `mode = \"{mode}\"` in its profile and restart the agent"))
            }
            AskingSetup::Variable { name, value } => Some(format!(
                "to be asked, set {name}='{value}' for the agent (`env` of its profile, or the daemon's variable of that name) and \
                 restart it"
            )),
        }
    }

    /// Returns its profile on this machine. `installed` looks for a program, `set` for a variable.
    pub fn profile(&self, installed: impl Fn(&str) -> bool, set: impl Fn(&str) -> bool) -> AgentProfile {
        let own = self.args.iter().copied();
        let fetched = self.package.filter(|_| !installed(self.command) && installed(FETCHER));
        let (command, args, seconds): (_, Vec<&str>, _) = match fetched {
            Some(package) => {
                (FETCHER, ["-y", package].into_iter().chain(own).collect(), FETCHED_WITHIN_SECONDS)
            }
            None => (self.command, own.collect(), READY_WITHIN_SECONDS),
        };
        let mut passed: Vec<&str> =
            self.keys.iter().copied().flatten().chain(self.settings).chain(PROXIES).copied().collect();
        let (mut mode, mut env) = (None, BTreeMap::new());
        // A person who sets the agent's own variable has made the choice.
        match self.asking {
            AskingSetup::Mode { chosen_by: variable, .. } | AskingSetup::Variable { name: variable, .. }
                if set(variable) =>
            {
                passed.push(variable);
            }
            AskingSetup::Mode { mode: asking, .. } => mode = Some(asking.to_owned()),
            AskingSetup::Variable { name, value } => drop(env.insert(name.to_owned(), value.to_owned())),
            AskingSetup::Default => {}
        }
        AgentProfile {
            description: Some(self.description.to_owned()),
            command: command.to_owned(),
            args: args.into_iter().map(str::to_owned).collect(),
            env,
            pass_env: passed.into_iter().map(str::to_owned).collect(),
            mode,
            protocol: Protocol::Acp,
            startup_timeout_seconds: Some(seconds),
            // These agents end within a few seconds after the end of input, if at all; the later steps are for those
            // that do not.
            stop: StopOverrides {
                after_interrupt_seconds: None,
                after_stdin_closed_seconds: Some(3.0),
                after_sigterm_seconds: Some(3.0),
            },
            auth_method: self.auth_method.filter(|_| self.has_key(set)).map(str::to_owned),
            ..AgentProfile::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::model::{Config, DEMO_AGENT};
    use super::super::validate::validate;
    use super::*;

    #[test]
    fn every_known_agent_is_a_sound_profile_however_it_is_started() {
        for known in AGENT_CATALOG {
            for there in [&[known.command][..], &[FETCHER], &[]] {
                let profile = known.profile(|program| there.contains(&program), |_| true);
                assert_eq!(profile.protocol, Protocol::Acp, "{}", known.name);
                let config =
                    Config { agents: [(known.name.to_owned(), profile)].into(), ..Config::default() };
                validate(&config).unwrap_or_else(|problem| panic!("{}: {problem:?}", known.name));
            }
        }
    }

    #[test]
    fn names_are_unique_and_in_order_and_none_is_the_demo() {
        let names: Vec<_> = AGENT_CATALOG.iter().map(|known| known.name).collect();
        let sorted: BTreeSet<_> = names.iter().copied().collect();
        assert_eq!(names, sorted.into_iter().collect::<Vec<_>>());
        assert!(!names.contains(&DEMO_AGENT));
        assert!(catalog_agent("claude").is_some() && catalog_agent("nobody").is_none());
    }

    #[test]
    fn what_is_fetched_has_a_version_and_needs_what_fetches_it() {
        let claude = catalog_agent("claude").unwrap();
        let fetched = claude.profile(|program| program == FETCHER, |_| false);
        assert_eq!((fetched.command.as_str(), fetched.args[0].as_str()), ("npx", "-y"));
        assert_eq!(fetched.startup_timeout_seconds, Some(300));
        let installed = claude.profile(|_| true, |_| false);
        assert_eq!((installed.command.as_str(), installed.args.len()), ("claude-agent-acp", 0));
        let neither = claude.profile(|_| false, |_| false);
        assert_eq!(neither.command, "claude-agent-acp", "the error then names what is missing");
        for package in AGENT_CATALOG.iter().filter_map(|known| known.package) {
            let (name, version) = package.rsplit_once('@').expect("a version");
            assert!(!name.is_empty() && version.split('.').count() == 3, "{package}");
        }
    }

    #[test]
    fn an_agent_that_would_not_ask_is_told_to_unless_a_person_has_chosen() {
        let profile = |name: &str, variable: Option<&str>| {
            catalog_agent(name).unwrap().profile(|_| true, |asked| Some(asked) == variable)
        };
        let passes = |profile: &AgentProfile, name: &str| profile.pass_env.iter().any(|own| own == name);
        let codex = profile("codex", None);
        assert_eq!(codex.mode.as_deref(), Some("read-only"));
        let chosen = profile("codex", Some("INITIAL_AGENT_MODE"));
        assert!(chosen.mode.is_none() && passes(&chosen, "INITIAL_AGENT_MODE"));
        for (name, variable) in [("goose", "GOOSE_MODE"), ("opencode", "OPENCODE_PERMISSION")] {
            let asks = profile(name, None);
            assert!(asks.env.contains_key(variable) && !passes(&asks, variable), "{name}");
            let chosen = profile(name, Some(variable));
            assert!(chosen.env.is_empty() && passes(&chosen, variable), "{name}");
        }
        assert_eq!(profile("claude", None).mode, None);
    }

    #[test]
    fn only_a_program_that_is_there_is_advised_for_a_log_in() {
        let advice =
            |there: &[&str]| catalog_agent("claude").unwrap().login.advice(|name| there.contains(&name));
        assert_eq!(advice(&["claude", "npx"]), "run `claude` and `/login` there, or set ANTHROPIC_API_KEY");
        assert_eq!(
            advice(&["npx"]),
            "run `npx -y @anthropic-ai/claude-code` and `/login` there, or set ANTHROPIC_API_KEY"
        );
        assert_eq!(advice(&[]), "set ANTHROPIC_API_KEY");
        let codex = catalog_agent("codex").unwrap().login.advice(|name| name == "npx");
        assert_eq!(codex, "run `npx -y @openai/codex login`, or set OPENAI_API_KEY");
        assert_eq!(catalog_agent("cursor").unwrap().login.advice(|name| name == "npx"), "set CURSOR_API_KEY");
    }

    #[test]
    fn keys_are_passed_on_and_tell_how_to_log_in() {
        let codex = catalog_agent("codex").unwrap();
        let with = codex.profile(|_| true, |name| name == "OPENAI_API_KEY");
        assert_eq!(with.auth_method.as_deref(), Some("api-key"));
        assert!(with.pass_env.iter().any(|name| name == "OPENAI_API_KEY"));
        assert_eq!(codex.profile(|_| true, |_| false).auth_method, None);
        for known in AGENT_CATALOG {
            assert!(!known.keys.is_empty() && !known.install.is_empty());
            assert!(known.credentials.iter().all(|file| !file.starts_with(['/', '~'])), "{}", known.name);
        }
    }
}

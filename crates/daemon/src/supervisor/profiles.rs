//! The agents that can be started: configured ones, well-known ones, and the demo.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use super::Supervisor;
use super::launch::DEMO_MODE;
use crate::config::{AGENT_CATALOG, AgentProfile, CatalogAgent, Config, DEMO_AGENT, FETCHER, catalog_agent};
use intercom_host::{agent_environment, resolve_program};
use intercom_store::{CachedCapabilities, StoreError};
use intercom_types::{Json, hex};

/// An agent with its name.
#[derive(Debug, Clone)]
pub(crate) struct NamedAgent {
    pub(crate) name: String,
    pub(crate) profile: AgentProfile,
    pub(crate) availability: ProgramAvailability,
}

/// The availability of a profile's program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum ProgramAvailability {
    BuiltIn,
    Installed,
    /// The program is downloaded when the agent starts.
    OnDemand,
    Missing,
}

/// Every agent that has a name: what is configured comes first, and takes the place of what is built in.
pub(crate) fn agents(config: &Config) -> Vec<NamedAgent> {
    let path = search_path();
    let names = config.agents.keys().map(String::as_str);
    let others =
        AGENT_CATALOG.iter().map(|known| known.name).filter(|name| !config.agents.contains_key(*name));
    names.chain(others).chain([DEMO_AGENT]).filter_map(|name| find(config, name, &path)).collect()
}

impl Supervisor {
    pub(crate) fn agents(&self) -> Vec<NamedAgent> {
        agents(&self.config())
    }

    /// Returns all agents with the capabilities that each reported last, unless its command line has changed since.
    pub(crate) async fn known_agents(&self) -> Result<Vec<(NamedAgent, Option<Json>)>, StoreError> {
        let cache = self.store().known_agents().await?;
        let with_capabilities = |agent: NamedAgent| {
            let fingerprint = command_fingerprint(&agent.profile);
            let is_same = |cached: &&CachedCapabilities| {
                cached.name == agent.name && cached.command_fingerprint == fingerprint
            };
            let capabilities = cache.iter().find(is_same).map(|cached| cached.capabilities.clone());
            (agent, capabilities)
        };
        Ok(self.agents().into_iter().map(with_capabilities).collect())
    }

    pub(super) fn agent(&self, name: &str) -> Option<AgentProfile> {
        find(&self.config(), name, &search_path()).map(|agent| agent.profile)
    }

    /// Returns the way to install a program that is missing, if we know one.
    pub(super) fn how_to_install(&self, name: &str) -> Option<&'static str> {
        catalog_agent(name).filter(|_| !self.config().agents.contains_key(name)).map(|known| known.install)
    }
}

fn find(config: &Config, name: &str, path: &OsStr) -> Option<NamedAgent> {
    let (profile, availability) = if name == DEMO_AGENT {
        (demo(), ProgramAvailability::BuiltIn)
    } else if let Some(profile) = config.agents.get(name) {
        let path = profile.env.get("PATH").map_or(path, OsStr::new);
        let there = is_there(&profile.command, path);
        (profile.clone(), if there { ProgramAvailability::Installed } else { ProgramAvailability::Missing })
    } else {
        built_in(catalog_agent(name)?, path)
    };
    Some(NamedAgent { name: name.to_owned(), profile, availability })
}

/// Returns a hash of a command line, because arguments may contain secrets and are not stored.
pub(super) fn command_fingerprint(profile: &AgentProfile) -> String {
    let line = serde_json::to_string(&(&profile.command, &profile.args)).expect("strings serialise");
    hex(ring::digest::digest(&ring::digest::SHA256, line.as_bytes()).as_ref())
}

fn demo() -> AgentProfile {
    AgentProfile {
        description: Some("a friendly scripted agent that shows how intercom works".to_owned()),
        // The running binary, even after the file on disk was replaced.
        command: "/proc/self/exe".to_owned(),
        args: vec![DEMO_MODE.to_owned()],
        ..AgentProfile::default()
    }
}

fn built_in(known: &CatalogAgent, path: &OsStr) -> (AgentProfile, ProgramAvailability) {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let profile = known.profile(|program| is_there(program, path), set);
    let availability = if profile.command == FETCHER {
        ProgramAvailability::OnDemand
    } else if is_there(&profile.command, path) {
        ProgramAvailability::Installed
    } else {
        ProgramAvailability::Missing
    };
    (profile, availability)
}

/// Returns true if the program exists. Relative directories on the search path depend on the workspace and do not
/// count.
pub(super) fn is_there(program: &str, path: &OsStr) -> bool {
    resolve_program(program, Path::new("/"), Some(path)).is_ok()
}

/// Returns the search path of agents whose profile sets none.
fn search_path() -> OsString {
    let environment = agent_environment(std::env::vars_os(), &[], [], "");
    environment.into_iter().find(|(name, _)| name == "PATH").map(|(_, value)| value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn programs(names: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for name in names {
            let file = dir.path().join(name);
            std::fs::write(&file, "").unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        dir
    }

    fn availability(config: &Config, name: &str, path: &tempfile::TempDir) -> (String, ProgramAvailability) {
        let agent = find(config, name, path.path().as_os_str()).unwrap();
        (agent.profile.command, agent.availability)
    }

    #[test]
    fn an_installed_program_is_preferred_to_one_that_is_fetched() {
        let config = Config::default();
        let check = |names: &[&str], command: &str, expect: ProgramAvailability| {
            assert_eq!(availability(&config, "claude", &programs(names)), (command.to_owned(), expect));
        };
        check(&["claude-agent-acp", "npx"], "claude-agent-acp", ProgramAvailability::Installed);
        check(&["npx"], "npx", ProgramAvailability::OnDemand);
        check(&[], "claude-agent-acp", ProgramAvailability::Missing);
        let (_, goose) = availability(&config, "goose", &programs(&["npx"]));
        assert_eq!(goose, ProgramAvailability::Missing, "it has no package");
    }

    #[test]
    fn what_is_configured_takes_the_place_of_what_is_built_in() {
        let own = AgentProfile { command: "mine".to_owned(), ..AgentProfile::default() };
        let config = Config { agents: [("claude".to_owned(), own.clone())].into(), ..Config::default() };
        let dir = programs(&["claude-agent-acp"]);
        assert_eq!(find(&config, "claude", dir.path().as_os_str()).unwrap().profile, own);
        assert_eq!(availability(&config, "claude", &dir).1, ProgramAvailability::Missing);
        assert!(find(&config, "nobody", dir.path().as_os_str()).is_none());
        assert_eq!(availability(&config, DEMO_AGENT, &dir).1, ProgramAvailability::BuiltIn);
    }
}

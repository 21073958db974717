//! `config.toml`: its model and defaults, strict parsing, and the places of all files.
//!
//! No file is needed: every key has a default, and a demo agent is built in. An existing file is parsed strictly,
//! because a mistyped key that is ignored looks like a setting that does not work. Every error is one line for people,
//! `FILE:LINE: KEY.PATH: message`.
//!
//! ```text
//! text ─► toml (spans) ─► locate (place of every key) ─► model (serde) ─► validate (ranges, names)
//!                                    └─ names the line and key of any error ◄──┘
//! ```

mod access;
mod acp_server;
mod agent_catalog;
mod choices;
mod describe;
mod environment;
mod fetcher;
mod load;
mod locate;
mod model;
mod overrides;
mod paths;
mod slack;
mod stall;
mod syntax;
mod table;
mod validate;

pub use access::*;
pub use acp_server::AcpServerConfig;
pub use agent_catalog::{AGENT_CATALOG, CatalogAgent, FETCHER, catalog_agent};
pub use choices::*;
pub use fetcher::FETCHED_WITHIN_SECONDS;
pub(crate) use load::ConfigError;
pub use load::{load, parse};
pub use model::*;
pub use overrides::API_TOKEN;
pub use paths::{DaemonPaths, PathFlags};
pub use slack::{SessionSlackConfig, SlackConfig};
pub use stall::{Restart, RestartOverrides, Spend, SpendOverrides, Stall, StallOverrides};

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const EXAMPLE: &str = include_str!("../../../config.toml.example");

    /// The example with the lines marked `#: ` put to use.
    fn with_examples() -> String {
        let lines = EXAMPLE.lines().map(|line| line.strip_prefix("#: ").unwrap_or(line));
        lines.collect::<Vec<_>>().join("\n")
    }

    fn read(text: &str) -> Config {
        parse(text, Path::new("config.toml.example")).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn the_example_is_exactly_the_defaults() {
        assert_eq!(read(EXAMPLE), Config::default());
    }

    #[test]
    fn the_example_parses_with_its_examples_put_to_use() {
        let config = read(&with_examples());
        assert!(!config.agents.is_empty() && !config.workspaces.is_empty(), "{config:?}");
        assert!(!config.operators.is_empty() && config.rules.len() == 3, "{config:?}");
        let plain = Config {
            agents: [].into(),
            workspaces: [].into(),
            operators: Vec::new(),
            rules: Vec::new(),
            api: ApiConfig::default(),
            clearances: ClearanceConfig::default(),
            webhook: WebhookConfig::default(),
            audit: AuditAnchors::default(),
            slack: SlackConfig::default(),
            acp_server: AcpServerConfig::default(),
            ..config
        };
        assert_eq!(plain, Config::default());
    }

    /// The keys come from the parser itself, so a key added to the model and forgotten in the example is found.
    #[test]
    fn the_example_names_every_key() {
        let text = with_examples();
        for section in [
            "acp",
            "limits",
            "stop",
            "retention",
            "api",
            "clearances",
            "webhook",
            "audit",
            "seats",
            "agents.x",
            "agents.x.stop",
            "workspaces.x",
        ] {
            let probe = format!("[{section}]\nqqqqqqqqqqqq = 1");
            let error = parse(&probe, Path::new("probe")).expect_err("the key is unknown").to_string();
            let (_, known) = error.split_once("known keys are ").expect("the known keys are listed");
            for key in known.split(", ") {
                let named = |line: &str| {
                    line.starts_with(&format!("{key} = ")) || line.ends_with(&format!(".{key}]"))
                };
                assert!(text.lines().any(named), "{section}.{key} is not in the example");
            }
        }
    }
}

//! Reading of the file, with errors on one line.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::Deserialize as _;
use toml::de::{DeTable, Deserializer};

use super::describe::describe;
use super::locate::{DocumentMap, lines};
use super::model::Config;
use super::syntax;
use super::validate::validate;

/// The reasons why there is no configuration. `Unreadable` is fixed outside of the file, `Invalid` inside of it.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("{}: the configuration cannot be read", file.display())]
    Unreadable { file: PathBuf, source: std::io::Error },
    /// An invalid file. `key` is missing only if the line has none, as in `= 5`.
    #[error("{}:{line}: {}{message}", file.display(), prefix(key.as_deref()))]
    Invalid { file: PathBuf, line: usize, key: Option<String>, message: String },
    #[error("{name}: {message}")]
    Environment { name: &'static str, message: String },
}

fn prefix(key: Option<&str>) -> String {
    key.map(|key| format!("{key}: ")).unwrap_or_default()
}

/// Reads the configuration. Without a file the defaults apply, unless the file was named explicitly.
pub fn load(path: Option<&Path>, explicit: bool) -> Result<Config, ConfigError> {
    let Some(path) = path else { return Ok(Config::default()) };
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound && !explicit && !is_broken_link(path) => {
            return Ok(Config::default());
        }
        Err(source) => return Err(ConfigError::Unreadable { file: path.to_owned(), source }),
    };
    let text = String::from_utf8(bytes).map_err(|error| {
        let line = lines(&error.as_bytes()[..error.utf8_error().valid_up_to()]);
        let message = "the file is not UTF-8 text".to_owned();
        ConfigError::Invalid { file: path.to_owned(), line, key: None, message }
    })?;
    parse(&text, path)
}

/// Returns true for a broken link. Somebody created it and expects settings, so the defaults would be a surprise.
fn is_broken_link(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// Parses the configuration from text; `file` only names it in errors.
pub fn parse(text: &str, file: &Path) -> Result<Config, ConfigError> {
    let invalid = |line, key, message| ConfigError::Invalid { file: file.to_owned(), line, key, message };
    let document = DeTable::parse(text).map_err(|error| match syntax::error_in(text) {
        Some(syntax) => invalid(syntax.line, syntax.key, syntax.message),
        None => invalid(1, None, error.message().to_owned()),
    })?;
    let (places, document) = DocumentMap::number(text, document);
    let config = Config::deserialize(Deserializer::from(document)).map_err(|error| {
        let place = places.at(error.span());
        invalid(place.line, Some(place.path.to_string()), describe(error.message(), place))
    })?;
    validate(&config).map_err(|problem| {
        invalid(places.line(&problem.path), Some(problem.path.to_string()), problem.message)
    })?;
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Framing;

    fn check(text: &str, expect: &str) {
        let error = parse(text, Path::new("c.toml")).expect_err("the text is wrong");
        assert_eq!(error.to_string(), expect, "for {text:?}");
    }

    #[test]
    fn bad_syntax_is_named_by_line_and_key() {
        check(
            "[acp]\nframing = lsp",
            "c.toml:2: acp.framing: the value is neither a number nor a quoted string",
        );
        check("= 5", "c.toml:1: unquoted keys cannot be empty, expected letters, numbers, `-`, `_`");
        let deep = format!("[acp]\nframing = {}", "[".repeat(5_000));
        assert!(parse(&deep, Path::new("c")).is_err(), "nesting has a limit of its own");
    }

    #[test]
    fn a_full_file_reads_as_written() {
        let text = "
            stop = { after_sigterm_seconds = 5, after_interrupt_seconds = 0.5 }
            [acp]
            framing = 'lsp'
            [agents.claude]
            command = 'claude'
            args = ['--verbose']
            env.LANG = 'C'
            pass_env = ['ANTHROPIC_API_KEY']
            prompt_delivery = 'heartbeat'
            framing = 'ndjson'
            [workspaces.site]
            path = '/srv/site'
            agent = 'claude'
            [workspaces.play]
            path = '/srv/play'
            agent = 'demo'
        ";
        let config = parse(text, Path::new("c.toml")).unwrap();
        assert_eq!(config.stop.after_sigterm(), std::time::Duration::from_secs(5));
        assert_eq!(config.acp.framing, Framing::Lsp);
        let claude = &config.agents["claude"];
        assert_eq!(claude.framing(&config.acp), Framing::Ndjson);
        assert_eq!((claude.args[0].as_str(), claude.env["LANG"].as_str()), ("--verbose", "C"));
        assert_eq!(claude.pass_env, ["ANTHROPIC_API_KEY"]);
        assert_eq!(config.workspaces["site"].agent.as_deref(), Some("claude"));
        assert_eq!(parse("", Path::new("c.toml")).unwrap(), Config::default());
    }

    #[test]
    fn the_earlier_name_of_a_section_is_read_and_its_lines_are_found() {
        let config = parse("[seats]\nmax_connections = 7\n", Path::new("c.toml")).unwrap();
        assert_eq!(config.acp_server.max_connections, 7);
        check(
            "\n[seats]\nmax_connections = -1\n",
            "c.toml:3: acp_server.max_connections: expected a whole number, found a negative number",
        );
    }

    #[test]
    fn a_missing_file_is_an_error_only_if_it_was_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("config.toml");
        assert_eq!(load(None, false).unwrap(), Config::default());
        assert_eq!(load(Some(&file), false).unwrap(), Config::default());
        let error = load(Some(&file), true).unwrap_err();
        assert_eq!(error.to_string(), format!("{}: the configuration cannot be read", file.display()));
        assert!(std::error::Error::source(&error).is_some());
        std::fs::write(&file, "[limits]\nmax_sessions = 7\n").unwrap();
        assert_eq!(load(Some(&file), false).unwrap().limits.max_sessions, 7);
    }

    #[test]
    fn a_file_that_is_there_but_cannot_be_read_is_always_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("config.toml");
        std::os::unix::fs::symlink(dir.path().join("gone"), &link).unwrap();
        for path in [link.as_path(), dir.path()] {
            assert!(matches!(load(Some(path), false), Err(ConfigError::Unreadable { .. })), "{path:?}");
        }
    }

    #[test]
    fn text_that_is_not_utf8_is_named_by_its_line() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("config.toml");
        std::fs::write(&file, b"[acp]\nframing = '\xff'\n").unwrap();
        let error = load(Some(&file), false).unwrap_err().to_string();
        assert_eq!(error, format!("{}:2: the file is not UTF-8 text", file.display()));
    }
}

//! Adding one profile to the configuration file; the rest of the file stays unchanged.

use std::fmt::Write as _;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use intercom_daemon::config::{self, AgentProfile, Config};

/// Returns the table of a profile, formatted as a person would write it.
pub(super) fn table(name: &str, profile: &AgentProfile) -> String {
    let quoted = |text: &str| toml::Value::from(text).to_string();
    let list = |words: &[String]| toml::Value::from(words.to_vec()).to_string();
    let mut text = format!("[agents.{name}]\n");
    let mut key = |key: &str, value: String| writeln!(text, "{key} = {value}").expect("text takes text");
    if let Some(description) = &profile.description {
        key("description", quoted(description));
    }
    key("command", quoted(&profile.command));
    if !profile.args.is_empty() {
        key("args", list(&profile.args));
    }
    key("protocol", quoted(&profile.protocol.to_string()));
    if !profile.pass_env.is_empty() {
        key("pass_env", list(&profile.pass_env));
    }
    if let Some(seconds) = profile.startup_timeout_seconds {
        key("startup_timeout_seconds", seconds.to_string());
    }
    for (name, value) in &profile.env {
        key(&format!("env.{}", quoted(name)), quoted(value));
    }
    text
}

/// A pending change: the new text, and the text that it replaces.
#[derive(Debug)]
pub(super) struct ConfigFileEdit {
    file: PathBuf,
    old: Option<String>,
    new: String,
}

impl ConfigFileEdit {
    /// Prepares the change without writing it. The new file must be valid and differ by exactly this profile.
    pub(super) fn adding(file: &Path, name: &str, profile: &AgentProfile) -> anyhow::Result<Self> {
        // The link itself must not be replaced by a file.
        let target = file.canonicalize().unwrap_or_else(|_| file.to_owned());
        let old = match std::fs::read_to_string(&target) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == ErrorKind::NotFound && !file.is_symlink() => None,
            Err(error) => return Err(error).with_context(|| format!("{} cannot be read", file.display())),
        };
        let text = old.as_deref().unwrap_or_default();
        let before = config::parse(text, file)?;
        if before.agents.contains_key(name) {
            bail!("{} already has an agent `{name}`", file.display());
        }
        let line_end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        let gap = if text.is_empty() { "" } else { "\n" };
        let new = format!("{text}{line_end}{gap}{}", table(name, profile));
        let mut after =
            config::parse(&new, file).context("with this agent the configuration would be invalid")?;
        let added = after.agents.remove(name);
        if added.as_ref() != Some(profile) || after != before {
            bail!("{} cannot be extended automatically; use --print", file.display());
        }
        Ok(Self { file: target, old, new })
    }

    /// Writes the file atomically, and not if somebody else has changed it meanwhile.
    pub(super) fn write(&self) -> anyhow::Result<()> {
        let shown = self.file.display();
        let dir = self.file.parent().with_context(|| format!("{shown} is not a file"))?;
        std::fs::create_dir_all(dir).with_context(|| format!("{} cannot be made", dir.display()))?;
        let mode = self.file.metadata().map_or(0o600, |meta| meta.permissions().mode() & 0o7777);
        let temporary = self.file.with_extension(format!("toml.{}.new", std::process::id()));
        let written = self.write_to(&temporary, mode).and_then(|()| {
            if std::fs::read_to_string(&self.file).ok() != self.old {
                return Err(std::io::Error::other("somebody has changed it meanwhile"));
            }
            std::fs::rename(&temporary, &self.file)
        });
        if written.is_err() {
            std::fs::remove_file(&temporary).ok(); // it may not be there
        }
        written.with_context(|| format!("{shown} was not written"))
    }

    fn write_to(&self, file: &Path, mode: u32) -> std::io::Result<()> {
        let mut out = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?;
        out.write_all(self.new.as_bytes())?;
        out.set_permissions(std::fs::Permissions::from_mode(mode))?;
        out.sync_all()
    }
}

/// Validates a profile by itself, for profiles that are only printed.
pub(super) fn check(name: &str, profile: &AgentProfile) -> anyhow::Result<()> {
    let Config { agents, .. } = config::parse(&table(name, profile), Path::new("the new profile"))?;
    if agents.get(name) != Some(profile) {
        bail!("the profile cannot be written as a table");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use intercom_daemon::config::Protocol;

    fn profile() -> AgentProfile {
        AgentProfile {
            description: Some("says \"hi\"\n[agents.evil]\ncommand = 'x'".to_owned()),
            command: "npx".to_owned(),
            args: vec!["-y".to_owned(), "it's \"odd\"".to_owned()],
            protocol: Protocol::Acp,
            startup_timeout_seconds: Some(300),
            env: [("A".to_owned(), "b\nc".to_owned())].into(),
            ..AgentProfile::default()
        }
    }

    #[test]
    fn the_rest_of_the_file_stays_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("config.toml");
        for old in ["", "# mine\r\n[limits]\nmax_sessions = 5 # few\n", "[agents.a]\ncommand = 'x'"] {
            std::fs::write(&file, old).unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
            ConfigFileEdit::adding(&file, "new", &profile()).unwrap().write().unwrap();
            let new = std::fs::read_to_string(&file).unwrap();
            assert!(new.starts_with(old), "{new}");
            assert_eq!(config::parse(&new, &file).unwrap().agents["new"], profile());
            assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o640);
        }
        assert_eq!(dir.path().read_dir().unwrap().count(), 1, "nothing else is left there");
    }

    #[test]
    fn a_file_that_is_missing_is_made_and_a_link_stays_one() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("sub/config.toml"), dir.path().join("link.toml"));
        ConfigFileEdit::adding(&file, "new", &profile()).unwrap().write().unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        std::os::unix::fs::symlink(&file, &link).unwrap();
        ConfigFileEdit::adding(&link, "other", &profile()).unwrap().write().unwrap();
        assert!(link.is_symlink());
        assert_eq!(config::load(Some(&file), true).unwrap().agents.len(), 2);
    }

    #[test]
    fn what_would_not_be_sound_is_not_written() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("config.toml");
        let refused = |old: &str, name: &str| {
            std::fs::write(&file, old).unwrap();
            let error = ConfigFileEdit::adding(&file, name, &profile()).unwrap_err();
            assert_eq!(std::fs::read_to_string(&file).unwrap(), old);
            format!("{error:#}")
        };
        assert!(refused("[agents.new]\ncommand = 'x'\n", "new").ends_with("already has an agent `new`"));
        assert!(refused("agents.new.command = 'x'\n", "new").ends_with("already has an agent `new`"));
        assert!(refused("oops", "new").contains("config.toml:1: "));
        assert!(refused("", "demo").contains("`demo` is built in and reserved"));
        assert!(
            refused("agents = { a = { command = 'x' } }\n", "new")
                .contains("the configuration would be invalid")
        );
    }

    #[test]
    fn somebody_elses_change_is_not_lost() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("config.toml");
        std::fs::write(&file, "").unwrap();
        let edit = ConfigFileEdit::adding(&file, "new", &profile()).unwrap();
        std::fs::write(&file, "# theirs\n").unwrap();
        assert!(format!("{:#}", edit.write().unwrap_err()).contains("changed it meanwhile"));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "# theirs\n");
    }
}

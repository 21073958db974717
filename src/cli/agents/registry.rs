//! An entry of the ACP registry: an `agent.json`, or one of the agents in a whole `registry.json`. The file is
//! untrusted: versions must be pinned, and nothing in it may name a place on this machine.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail};
use serde::Deserialize;

/// The fields of an entry that we use. The format grows; other fields are ignored.
#[derive(Debug, Deserialize)]
pub(super) struct RegistryEntry {
    pub(super) id: String,
    version: String,
    pub(super) description: Option<String>,
    distribution: RegistryDistribution,
}

#[derive(Debug, Deserialize)]
struct RegistryDistribution {
    npx: Option<RegistryPackage>,
    uvx: Option<RegistryPackage>,
    #[serde(default)]
    binary: BTreeMap<String, PlatformArchive>,
}

#[derive(Debug, Deserialize)]
struct RegistryPackage {
    #[serde(rename = "package")]
    spec: String,
    /// The program, if the package's program does not have the package's name.
    cmd: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
}

/// An archive for one platform.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct PlatformArchive {
    pub(super) archive: String,
    pub(super) sha256: Option<String>,
    /// The program's path, relative to the archive.
    pub(super) cmd: String,
    #[serde(default)]
    pub(super) args: Vec<String>,
    #[serde(default)]
    pub(super) env: BTreeMap<String, String>,
}

/// The way an agent is installed on this machine.
#[derive(Debug)]
pub(super) enum InstallRecipe {
    /// A package that a fetcher downloads when the agent starts.
    Fetched {
        command: &'static str,
        args: Vec<String>,
        env: BTreeMap<String, String>,
    },
    Unpacked(PlatformArchive),
}

impl RegistryEntry {
    /// Parses an entry. `id` chooses from a whole registry, and is checked against a single entry.
    pub(super) fn parse(text: &str, id: Option<&str>) -> anyhow::Result<Self> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum RegistryFile {
            Registry { agents: Vec<serde_json::Value> },
            Entry(serde_json::Value),
        }
        let value = match serde_json::from_str(text).context("it is not JSON")? {
            RegistryFile::Entry(value) => value,
            RegistryFile::Registry { agents } => {
                let Some(id) = id else { bail!("it has {} agents; choose one with --id", agents.len()) };
                let found = agents.into_iter().find(|agent| agent["id"] == id);
                found.with_context(|| format!("it has no agent {id:?}"))?
            }
        };
        let entry: Self = serde_json::from_value(value).context("it is not an entry of the ACP registry")?;
        if !is_id(&entry.id) {
            bail!("its id {:?} is not of lowercase letters, digits and `-`", entry.id);
        }
        if id.is_some_and(|id| id != entry.id) {
            bail!("it is the agent {:?}", entry.id);
        }
        if !is_version(&entry.version) {
            bail!("its version {:?} is not one such as 1.2.3", entry.version);
        }
        Ok(entry)
    }

    /// Chooses the recipe: fetched packages before archives, unless an archive is given.
    pub(super) fn recipe(&self, platform: &str, archive_given: bool) -> anyhow::Result<InstallRecipe> {
        let RegistryDistribution { npx, uvx, binary } = &self.distribution;
        match (npx, uvx, binary.get(platform)) {
            (_, _, Some(target)) if archive_given => Ok(InstallRecipe::Unpacked(target.clone())),
            (Some(package), ..) if !archive_given => {
                let pinned = npm_package(&package.spec, &self.version)?;
                Ok(package.fetched("npx", vec!["-y".to_owned()], "--package", pinned))
            }
            (_, Some(package), _) if !archive_given => {
                let pinned = python_package(&package.spec, &self.version)?;
                Ok(package.fetched("uvx", Vec::new(), "--from", pinned))
            }
            (_, _, Some(target)) => Ok(InstallRecipe::Unpacked(target.clone())),
            _ => bail!("it cannot be installed here: it has nothing for {platform}"),
        }
    }
}

impl RegistryPackage {
    fn fetched(
        &self,
        command: &'static str,
        mut args: Vec<String>,
        from: &str,
        pinned: String,
    ) -> InstallRecipe {
        match &self.cmd {
            Some(program) => args.extend([from.to_owned(), pinned, program.clone()]),
            None => args.push(pinned),
        }
        args.extend(self.args.iter().cloned());
        InstallRecipe::Fetched { command, args, env: self.env.clone() }
    }
}

/// Returns this machine's platform in the registry's words.
pub(super) fn platform() -> String {
    let os = if std::env::consts::OS == "macos" { "darwin" } else { std::env::consts::OS };
    format!("{os}-{}", std::env::consts::ARCH)
}

fn is_id(id: &str) -> bool {
    let rest = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    id.len() <= 64 && id.starts_with(|c: char| c.is_ascii_lowercase()) && id.bytes().all(rest)
}

/// Returns true for exactly one version: no range, no tag.
fn is_version(version: &str) -> bool {
    let mut numbers = version.splitn(3, '.');
    let number = |part: Option<&str>| {
        part.is_some_and(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let last = |part: Option<&str>| {
        let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+');
        part.is_some_and(|part| part.starts_with(|c: char| c.is_ascii_digit()) && part.chars().all(fine))
    };
    number(numbers.next()) && number(numbers.next()) && last(numbers.next())
}

/// Returns true for a name of a package registry; options, paths, URLs and repositories are refused.
fn is_package_name(name: &str) -> bool {
    let rest = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(rest)
}

/// Parses `name@1.2.3` or `@scope/name@1.2.3`.
fn npm_package(package: &str, version: &str) -> anyhow::Result<String> {
    let (name, pinned) = match package.rsplit_once('@') {
        Some((name, pinned)) if !name.is_empty() => (name, pinned),
        _ => (package, version),
    };
    let sound = match name.strip_prefix('@') {
        Some(scoped) => scoped
            .split_once('/')
            .is_some_and(|(scope, name)| is_package_name(scope) && is_package_name(name)),
        None => is_package_name(name),
    };
    if sound && is_version(pinned) {
        return Ok(format!("{name}@{pinned}"));
    }
    bail!("its npm package {package:?} is not a name with one version, such as @scope/name@1.2.3")
}

/// Parses `name==1.2.3`, `name[extra]==1.2.3` or `name@1.2.3`.
fn python_package(package: &str, version: &str) -> anyhow::Result<String> {
    let (whole, pinned) =
        package.split_once("==").or_else(|| package.split_once('@')).unwrap_or((package, version));
    let (name, extras) = match whole.split_once('[') {
        Some((name, extras)) => (name, extras.strip_suffix(']')),
        None => (whole, Some("extra")),
    };
    let extras_sound = extras.is_some_and(|extras| extras.split(',').all(is_package_name));
    if is_package_name(name) && extras_sound && is_version(pinned) {
        return Ok(format!("{whole}=={pinned}"));
    }
    bail!("its Python package {package:?} is not a name with one version, such as name==1.2.3")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn entry(distribution: &Value) -> anyhow::Result<RegistryEntry> {
        let text = json!({"id": "x-1", "name": "X", "version": "1.2.3", "description": "d", "icon": "i",
            "distribution": distribution});
        RegistryEntry::parse(&text.to_string(), None)
    }

    fn args(distribution: &Value) -> Result<(&'static str, Vec<String>), String> {
        let recipe = entry(distribution).and_then(|entry| entry.recipe("linux-x86_64", false));
        match recipe.map_err(|error| format!("{error:#}"))? {
            InstallRecipe::Fetched { command, args, .. } => Ok((command, args)),
            InstallRecipe::Unpacked(target) => panic!("{target:?}"),
        }
    }

    #[track_caller]
    fn check(distribution: &Value, command: &str, expect: &[&str]) {
        let (found, args) = args(distribution).unwrap();
        assert_eq!((found, args.iter().map(String::as_str).collect::<Vec<_>>()), (command, expect.to_vec()));
    }

    #[test]
    fn packages_are_fetched_at_one_version() {
        check(
            &json!({"npx": {"package": "@a/b@0.9.1", "args": ["--acp"]}}),
            "npx",
            &["-y", "@a/b@0.9.1", "--acp"],
        );
        check(&json!({"npx": {"package": "@a/b"}}), "npx", &["-y", "@a/b@1.2.3"]);
        check(&json!({"npx": {"package": "b@1.0.0-preview.2"}}), "npx", &["-y", "b@1.0.0-preview.2"]);
        check(
            &json!({"npx": {"package": "b", "cmd": "c", "args": ["d"]}}),
            "npx",
            &["-y", "--package", "b@1.2.3", "c", "d"],
        );
        check(&json!({"uvx": {"package": "b==0.1.0", "args": ["acp"]}}), "uvx", &["b==0.1.0", "acp"]);
        check(&json!({"uvx": {"package": "b@0.1.0"}}), "uvx", &["b==0.1.0"]);
        check(
            &json!({"uvx": {"package": "b[acp]==0.1.0", "cmd": "b-acp"}}),
            "uvx",
            &["--from", "b[acp]==0.1.0", "b-acp"],
        );
        check(&json!({"npx": {"package": "b"}, "uvx": {"package": "c"}}), "npx", &["-y", "b@1.2.3"]);
    }

    #[test]
    fn what_is_not_a_name_and_a_version_is_refused() {
        for package in [
            "b@latest",
            "b@^1.0.0",
            "b@1",
            "b@",
            "",
            "@",
            "@a",
            "@a/",
            "-b",
            "--eval",
            "a/b",
            "./b",
            "/b",
            "../b@1.2.3",
            "git+https://h/b",
            "https://h/b.tgz",
            "file:b",
            "b c",
            "b;c",
            "@a/b/c",
            "npm:b@1.2.3",
            "a@npm:b@1.2.3",
        ] {
            assert!(args(&json!({"npx": {"package": package}})).is_err(), "{package:?}");
        }
        for package in ["b>=1", "b==1.*", "b[x", "b[]", "b@latest", "git+https://h/b", "-b", "b ==1.2.3", ""]
        {
            assert!(args(&json!({"uvx": {"package": package}})).is_err(), "{package:?}");
        }
    }

    #[test]
    fn ids_and_versions_are_plain() {
        for id in ["", "X", "../x", "a/b", "a.b", "a\nb", "-a", "1a", "a_b", &"a".repeat(65)] {
            let text = json!({"id": id, "version": "1.2.3", "distribution": {}}).to_string();
            assert!(RegistryEntry::parse(&text, None).is_err(), "{id:?}");
        }
        for version in ["", "1", "1.2", "latest", "1.2.x", "1.2.3/..", "1.2.3 ", "v1.2.3"] {
            let text = json!({"id": "a", "version": version, "distribution": {}}).to_string();
            assert!(RegistryEntry::parse(&text, None).is_err(), "{version:?}");
        }
        for text in ["", "[]", "{}", "5", "{\"id\": 5}"] {
            assert!(RegistryEntry::parse(text, None).is_err(), "{text:?}");
        }
    }

    #[test]
    fn one_of_a_whole_registry_is_chosen_by_its_id() {
        let agent =
            |id: &str| json!({"id": id, "version": "1.2.3", "distribution": {"npx": {"package": id}}});
        let text = json!({"version": "1.0.0", "agents": [agent("a"), agent("b")]}).to_string();
        assert_eq!(RegistryEntry::parse(&text, Some("b")).unwrap().id, "b");
        let error = |id| RegistryEntry::parse(&text, id).unwrap_err().to_string();
        assert_eq!(error(None), "it has 2 agents; choose one with --id");
        assert_eq!(error(Some("c")), "it has no agent \"c\"");
        let single = agent("a").to_string();
        assert_eq!(
            RegistryEntry::parse(&single, Some("b")).unwrap_err().to_string(),
            "it is the agent \"a\""
        );
    }

    #[test]
    fn an_archive_is_for_one_platform_and_preferred_if_it_is_given() {
        let both = json!({"npx": {"package": "b"}, "binary": {"linux-x86_64": {"archive": "https://h/b.zip", "cmd": "./b"}}});
        let entry = entry(&both).unwrap();
        assert!(matches!(entry.recipe("linux-x86_64", true).unwrap(), InstallRecipe::Unpacked(_)));
        assert!(matches!(entry.recipe("linux-x86_64", false).unwrap(), InstallRecipe::Fetched { .. }));
        let error = entry.recipe("linux-riscv64", true).unwrap_err().to_string();
        assert_eq!(error, "it cannot be installed here: it has nothing for linux-riscv64");
    }
}

//! `intercom agents add`: turns an entry of the ACP registry into a profile.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::json;

use super::super::failure::CliFailure;
use super::super::{CliContext, output};
use super::config_file::{self, ConfigFileEdit};
use super::install::ArchivePackage;
use super::registry::{InstallRecipe, PlatformArchive, RegistryEntry, platform};
use intercom_daemon::config::{AgentProfile, FETCHED_WITHIN_SECONDS, Protocol, catalog_agent};
use intercom_daemon::remote::RemoteUrl;
use intercom_types::text::clean;

/// The maximum size of an entry; the whole registry has less than a tenth of it.
const LARGEST: u64 = 16 * 1024 * 1024;

/// Add an agent to the configuration file from an entry of the ACP registry; needs no daemon
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Agents from npm and PyPI are started by `npx` and `uvx`, at the version of the entry. Others come as an archive that you \
download; its checksum must be in the entry or given with --sha256. It is unpacked below the state directory.

Examples:
  intercom agents add agent.json
  intercom agents add registry.json --id goose --archive goose-x86_64-unknown-linux-gnu.tar.bz2
  intercom agents add - --name mine --pass-env MY_API_KEY --print < agent.json")]
pub(super) struct AddAgentArgs {
    /// The `agent.json`, or a whole `registry.json`; `-` reads it from stdin
    #[arg(value_name = "FILE|-")]
    file: PathBuf,
    /// The agent's id, if the file is a whole registry
    #[arg(long)]
    id: Option<String>,
    /// The name of the profile [default: the agent's id]
    #[arg(long)]
    name: Option<String>,
    /// The downloaded archive, if the agent is a program for this machine
    #[arg(long, value_name = "FILE")]
    archive: Option<PathBuf>,
    /// The checksum of the archive, if the entry has none
    #[arg(long, value_name = "HEX", requires = "archive")]
    sha256: Option<String>,
    /// A variable of the daemon's that the agent gets, such as its key; may be given several times
    #[arg(long, value_name = "NAME")]
    pass_env: Vec<String>,
    /// Print the profile instead of adding it to the configuration file
    #[arg(long)]
    print: bool,
}

pub(super) fn run(args: &AddAgentArgs, cx: &CliContext) -> anyhow::Result<()> {
    let shown = args.file.display();
    let text = read(&args.file).with_context(|| format!("{shown} cannot be read"))?;
    let entry = RegistryEntry::parse(&text, args.id.as_deref()).with_context(|| shown.to_string())?;
    let recipe = entry.recipe(&platform(), args.archive.is_some()).with_context(|| shown.to_string())?;
    let name = args.name.clone().unwrap_or_else(|| entry.id.clone());
    let mut profile = AgentProfile {
        description: entry.description.clone(),
        pass_env: args.pass_env.clone(),
        protocol: Protocol::Acp,
        ..AgentProfile::default()
    };
    let mut package = None;
    match recipe {
        InstallRecipe::Fetched { command, args, env } => {
            (profile.command, profile.args, profile.env) = (command.to_owned(), args, env);
            profile.startup_timeout_seconds = Some(FETCHED_WITHIN_SECONDS);
        }
        InstallRecipe::Unpacked(target) => {
            // The name becomes a directory, so it is checked before anything is unpacked.
            config_file::check(&name, &AgentProfile { command: "x".to_owned(), ..profile.clone() })?;
            let (archive, found) = local_archive(&target, args, &name, cx)?;
            let command = found.command().into_os_string().into_string();
            profile.command = command.ok().context("the path of the state directory is not UTF-8")?;
            (profile.args, profile.env) = (target.args, target.env);
            package = Some((found, archive));
        }
    }
    config_file::check(&name, &profile)?;
    let edit =
        (!args.print).then(|| ConfigFileEdit::adding(&cx.paths.config, &name, &profile)).transpose()?;
    if let Some((package, archive)) = package {
        package.install(&archive)?;
    }
    if let Some(edit) = &edit {
        edit.write()?;
    }
    report_added(&name, &profile, edit.is_some(), cx)
}

fn report_added(name: &str, profile: &AgentProfile, added: bool, cx: &CliContext) -> anyhow::Result<()> {
    let table = config_file::table(name, profile);
    let file = added.then_some(&cx.paths.config);
    if cx.json {
        return output::print(&json!({ "name": name, "file": file, "table": table }).to_string());
    }
    let Some(file) = file else { return output::print(&clean_lines(&table)) };
    if catalog_agent(name).is_some() {
        output::print_note(&format!("`{name}` replaces the built-in agent of that name"));
    }
    output::print(&format!("added `{name}` to {}", clean(&file.display().to_string())))?;
    output::print_note("`intercom reload` makes a running daemon use it");
    Ok(())
}

fn clean_lines(text: &str) -> String {
    text.lines().map(|line| clean(line) + "\n").collect()
}

fn read(file: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    let source: Box<dyn std::io::Read> = if file == Path::new("-") {
        Box::new(std::io::stdin())
    } else {
        Box::new(std::fs::File::open(file)?)
    };
    source.take(LARGEST + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LARGEST {
        anyhow::bail!("it is larger than any registry");
    }
    Ok(text)
}

/// Returns the archive on this machine, and the recipe for it.
fn local_archive(
    target: &PlatformArchive,
    args: &AddAgentArgs,
    name: &str,
    cx: &CliContext,
) -> anyhow::Result<(PathBuf, ArchivePackage)> {
    let local = Some(PathBuf::from(&target.archive)).filter(|path| path.is_absolute());
    let Some(archive) = args.archive.clone().or(local) else {
        return Err(download_it(target, &args.file).into());
    };
    let sha256 = match (&target.sha256, &args.sha256) {
        (Some(entry), Some(given)) if !entry.eq_ignore_ascii_case(given) => {
            return Err(CliFailure::failed(format!("the entry has the checksum {entry}, not {given}")).into());
        }
        (Some(sha256), _) | (None, Some(sha256)) => sha256,
        (None, None) => {
            let hint = "get it from a source that you trust, and pass it with --sha256";
            return Err(CliFailure::failed("the entry has no checksum of the archive").hint(hint).into());
        }
    };
    let package = ArchivePackage::new(&cx.paths.state_dir, name, &target.archive, &target.cmd, sha256)?;
    Ok((archive, package))
}

fn download_it(target: &PlatformArchive, file: &Path) -> CliFailure {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._~:/?&=%+@".contains(c);
    let url = Some(&target.archive).filter(|url| url.chars().all(plain));
    match url.filter(|url| RemoteUrl::parse(url).is_ok_and(|url| url.tls)) {
        None => CliFailure::failed("the entry names no archive that can be downloaded with https"),
        Some(url) => {
            let name = url.split('?').next().and_then(|path| path.rsplit('/').next()).unwrap_or("archive");
            CliFailure::failed("this agent is a program that has to be downloaded first").hint(format!(
                "curl -fLo {name} '{url}', then `intercom agents add {} --archive {name}`",
                file.display()
            ))
        }
    }
}

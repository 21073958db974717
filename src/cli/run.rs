//! `intercom run`: starts a session.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::json;

use super::failure::{CliFailure, DaemonRefusal};
use super::start::DaemonStarter;
use super::startup_wait::{StartedAgent, StartupWaitArgs};
use super::url::url;
use super::{CliContext, ctrl_c, output, send};
use intercom_daemon::config::{self, DEMO_AGENT, catalog_agent};
use intercom_types::text::clean;
use intercom_types::{ErrorAttachment, ListedAgent, NewSession, Session};

/// Start an agent in a workspace and print the id of its session
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The id is printed at once. Then the command waits, 30 seconds at most (`wait_seconds` below [run] in the configuration), \
until the agent is ready and, with a prompt, until its first output or the end of its turn. If the agent fails meanwhile, the \
exit code is 1, with the reason and advice; also if the daemon goes away, in which case the agent keeps running. With --json the \
session is printed once, when the wait is over; a failure is in `failed`.

Examples:
  intercom run --agent demo \"Tidy up the error handling\"
  intercom run --workspace ~/src/shop --name shop --agent demo
  intercom run \"Fix the tests\" -- ./my-agent --verbose
  id=$(intercom run --agent demo - < task.md) && intercom wait $id --for ended

`run` starts a daemon in the background if there is none.")]
pub(super) struct RunArgs {
    /// A profile of the configuration; see `intercom agents`
    #[arg(long, value_name = "NAME", conflicts_with = "command")]
    agent: Option<String>,
    /// A directory, or the name of a configured workspace [default: the current directory]
    #[arg(long, short, value_name = "DIR|NAME")]
    workspace: Option<String>,
    /// The protocol that the agent speaks
    #[arg(long, value_parser = ["intercom", "acp"])]
    protocol: Option<String>,
    /// The name of the session
    #[arg(long, short)]
    name: Option<String>,
    /// A variable for the agent's environment; may be given several times
    #[arg(long, value_name = "K=V", value_parser = variable)]
    env: Vec<(String, String)>,
    /// The steps when it is stuck: `off`, or steps such as `alert,nudge,escalate` [default: as configured]
    #[arg(long, value_name = "off|STEPS")]
    ladder: Option<String>,
    /// The limit on its permissions, whatever the rules allow [default: full]
    #[arg(long, value_parser = ["full", "read-only", "safe", "sandbox"])]
    preset: Option<String>,
    /// The id of an ACP agent's own session to continue; see `intercom sessions`
    #[arg(long, value_name = "ID")]
    resume: Option<String>,
    #[command(flatten)]
    wait: StartupWaitArgs,
    /// Fail if no daemon is running, instead of starting one
    #[arg(long)]
    no_start: bool,
    /// The prompt; `-` reads it from stdin
    prompt: Option<String>,
    // Only for a better error: the parser's own message would not help.
    #[arg(hide = true)]
    more_words: Vec<String>,
    /// The agent's command and its arguments, instead of a profile
    #[arg(last = true, value_name = "CMD")]
    command: Vec<String>,
}

pub(super) async fn run(args: RunArgs, cx: &CliContext) -> anyhow::Result<()> {
    let meant = args.prompt.as_deref().filter(|word| args.agent.is_none() && is_agent(word, cx));
    if !args.more_words.is_empty() {
        let hint = meant.map(|name| format!("did you mean `--agent {name}`?"));
        let hint = hint.unwrap_or_else(|| "put the prompt in quotes".to_owned());
        return Err(CliFailure::usage("the prompt must be one argument").hint(hint).into());
    }
    // A named workspace may have an agent of its own, which only the daemon knows.
    if args.agent.is_none() && args.command.is_empty() && args.workspace.is_none() {
        let hint = match meant {
            Some(name) => format!("did you mean `--agent {name}`?"),
            None => profiles(cx).await,
        };
        return Err(CliFailure::usage("choose an agent with --agent NAME, or a command after `--`")
            .hint(hint)
            .into());
    }
    let (limit, prompted) = (args.wait.limit(cx), args.prompt.is_some());
    let starter = if args.no_start { None } else { DaemonStarter::local(cx) };
    let body = request(args, &std::env::current_dir()?)?;
    if let Some(starter) = starter {
        starter.ensure_with_console(cx).await?;
    }
    ctrl_c::set_note(format!("check whether the agent was started: {} ls", cx.command_prefix));
    let answer = match cx.client.post(&url(&["sessions"], &[]), &json!(body)).await {
        Ok(answer) => answer,
        Err(error) => return Err(not_spawned(error, cx)?),
    };
    let session: Session = answer.parse()?;
    if !cx.json {
        output::print(&clean(&session.id))?;
    }
    StartedAgent { answer, session, prompted, after: 0 }.follow(limit, cx).await
}

fn request(args: RunArgs, cwd: &Path) -> anyhow::Result<NewSession> {
    let (command, arguments) = match args.command.split_first() {
        Some((command, arguments)) => (Some(program(command, cwd)), arguments.to_vec()),
        None => (None, Vec::new()),
    };
    Ok(NewSession {
        agent: args.agent,
        command,
        args: arguments,
        workspace: workspace(args.workspace, cwd)?,
        protocol: args.protocol,
        prompt: args.prompt.map(send::text).transpose()?,
        name: args.name,
        env: args.env.into_iter().collect(),
        ladder: args.ladder,
        resume: args.resume,
        preset: args.preset,
        ..NewSession::default()
    })
}

/// Returns a directory as an absolute path; any other text is a name that the daemon may know.
fn workspace(typed: Option<String>, cwd: &Path) -> anyhow::Result<String> {
    let Some(typed) = typed else { return text(cwd.to_owned()) };
    let path = cwd.join(&typed);
    if path.is_dir() {
        return text(std::path::absolute(path)?);
    }
    if typed.is_empty() || typed.contains('/') {
        return Err(CliFailure::failed(format!("the workspace {typed:?} is not a directory")).into());
    }
    Ok(typed)
}

/// Returns the program. A path to a file here becomes absolute, because the daemon runs in another directory.
fn program(typed: &str, cwd: &Path) -> String {
    let here = cwd.join(typed);
    match here.to_str() {
        Some(absolute) if typed.contains('/') && here.is_file() => absolute.to_owned(),
        _ => typed.to_owned(),
    }
}

fn text(path: PathBuf) -> anyhow::Result<String> {
    path.into_os_string().into_string().ok().context("the path of the workspace is not UTF-8")
}

fn variable(typed: &str) -> Result<(String, String), String> {
    match typed.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE".to_owned()),
    }
}

/// Returns the error for a session whose program could not be started, with the command that starts it later. The
/// session exists and counts as failed.
fn not_spawned(error: anyhow::Error, cx: &CliContext) -> anyhow::Result<anyhow::Error> {
    let refusal = error.downcast::<DaemonRefusal>()?;
    let session = match refusal.attached {
        Some(ErrorAttachment::Session(session)) if refusal.code == "spawn_failed" => session,
        _ => return Ok(refusal.into()),
    };
    if !cx.json {
        output::print(&session)?;
    }
    let remedy = refusal.remedy().unwrap_or("fix that").to_owned();
    let hint = format!("{remedy}; then resume it: `{} resume {}`", cx.command_prefix, session.short());
    Ok(refusal.hint(hint).into())
}

/// Returns true if this is the name of an agent, with and without a daemon.
fn is_agent(word: &str, cx: &CliContext) -> bool {
    let config = config::load(Some(&cx.paths.config), cx.paths.config_explicit).unwrap_or_default();
    config.agents.contains_key(word) || word == DEMO_AGENT || catalog_agent(word).is_some()
}

async fn profiles(cx: &CliContext) -> String {
    let listed = cx.client.list(&["agents"], &[]).await.and_then(|list| list.items::<ListedAgent>());
    match listed {
        Ok(agents) if !agents.is_empty() => {
            let names: Vec<String> = agents.into_iter().map(|agent| agent.name).collect();
            format!("agents: {}", names.join(", "))
        }
        _ => "`intercom run --help` has examples".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::super::{CommandLine, RemoteCommand, TopLevelCommand};
    use super::*;

    fn parse(line: &[&str]) -> Result<RunArgs, clap::Error> {
        let cli = CommandLine::try_parse_from(["intercom", "run"].iter().chain(line))?;
        match cli.verb {
            TopLevelCommand::Remote(RemoteCommand::Run(args)) => Ok(args),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_profile_and_a_prompt() {
        let dir = tempfile::tempdir().unwrap();
        let line = ["--agent", "demo", "--env", "A=b=c", "--name", "n", "--preset", "safe", "do it"];
        let args = parse(&line).unwrap();
        let expected = json!({
            "workspace": dir.path(), "agent": "demo", "env": {"A": "b=c"}, "name": "n", "preset": "safe",
            "prompt": "do it",
        });
        assert_eq!(json!(request(args, dir.path()).unwrap()), expected);
    }

    #[test]
    fn a_command_after_the_dashes() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("agent"), "").unwrap();
        let args = parse(&["-w", "shop", "do it", "--", "./agent", "--flag", "-x"]).unwrap();
        let body = request(args, dir.path()).unwrap();
        let command = dir.path().join("./agent");
        assert_eq!(
            json!(body),
            json!({"workspace": "shop", "prompt": "do it", "command": command, "args": ["--flag", "-x"]})
        );
        let args = parse(&["--", "python3"]).unwrap();
        assert_eq!(request(args, dir.path()).unwrap().command.as_deref(), Some("python3"));
    }

    #[test]
    fn a_profile_and_a_command_exclude_each_other() {
        assert_eq!(parse(&["--agent", "demo", "--", "x"]).unwrap_err().exit_code(), 2);
        assert_eq!(parse(&["--env", "novalue"]).unwrap_err().exit_code(), 2);
    }

    #[test]
    fn a_directory_is_made_absolute_and_a_missing_one_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("sub")).unwrap();
        let of = |typed: &str| workspace(Some(typed.to_owned()), dir.path());
        assert_eq!(of("sub").unwrap(), dir.path().join("sub").to_str().unwrap());
        assert_eq!(of(".").unwrap(), dir.path().to_str().unwrap());
        assert_eq!(of("name").unwrap(), "name");
        assert_eq!(of("./none").unwrap_err().to_string(), "the workspace \"./none\" is not a directory");
    }
}

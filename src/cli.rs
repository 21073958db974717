//! The command line. One file per verb; every verb but `serve` is an ordinary client of the daemon's API.
//!
//! stdout is for data and stderr for messages. Exit codes: 0 done, 1 failed, 2 wrong usage or wrong configuration.

mod acp;
mod agents;
mod answer;
mod approve;
mod audit;
mod backup;
mod checks;
mod clearances;
mod client;
mod completions;
mod console;
mod ctrl_c;
mod daemon;
mod daemon_info;
mod decide;
mod deny;
mod diff;
mod doctor;
mod event_summarizer;
mod failure;
mod gutter;
mod help;
mod interrupt;
mod json_text;
mod kill;
mod ladder;
mod log_formatter;
mod logs;
mod lost_daemon;
mod ls;
mod mode;
mod nudge;
mod open;
mod output;
mod overview;
mod policy;
mod prompts;
mod questions;
mod reload;
mod render;
mod resume;
mod run;
mod send;
mod serve;
mod session_names;
mod sessions;
mod shell_variables;
mod show;
mod slack;
mod snooze;
mod start;
mod startup_wait;
mod stop;
mod stream;
mod style;
mod table;
mod terminal;
mod time;
mod token;
mod transport;
mod url;
mod wait;
mod watch;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::NonEmptyStringValueParser;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use self::client::{DaemonAnswer, DaemonClient};
use self::failure::CliFailure;
use self::table::TerminalTable;
use self::terminal::Paint;
use self::transport::{RemoteDaemonSettings, Transport};
use intercom_daemon::config::{DaemonPaths, PathFlags};
use intercom_types::text::shell_word;

/// Hosts headless coding agents and connects them to the people who run them.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100, next_help_heading = GLOBAL, after_help = AFTER_HELP)]
struct CommandLine {
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        help = "The configuration file; none is needed [env: INTERCOM_CONFIG]"
    )]
    config: Option<PathBuf>,
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        help = "Where the daemon keeps its state [env: INTERCOM_STATE_DIR]"
    )]
    state_dir: Option<PathBuf>,
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        help = "The daemon's unix socket [env: INTERCOM_SOCKET]"
    )]
    socket: Option<PathBuf>,
    #[arg(
        long,
        global = true,
        value_name = "URL",
        help = "The URL of a remote daemon; its token is in INTERCOM_TOKEN [env: INTERCOM_URL]"
    )]
    url: Option<String>,
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        help = "The file with the token for the remote daemon [env: INTERCOM_TOKEN_FILE]"
    )]
    token_file: Option<PathBuf>,
    /// Print the daemon's answer as JSON
    #[arg(long, global = true)]
    json: bool,
    /// Show times in UTC instead of the local zone; times in JSON are always UTC
    #[arg(long, global = true)]
    utc: bool,
    #[command(subcommand)]
    verb: TopLevelCommand,
}

const GLOBAL: &str = "Global options";
const AFTER_HELP: &str = "\
Name a session by its name, its id, or a unique prefix of its id, with or without `ses_`; clearances, questions and \
prompts by their ids in the same way.

Try it: `intercom serve --demo`, then `intercom clearances` in a second terminal.";

#[derive(Debug, Subcommand)]
#[expect(clippy::large_enum_variant, reason = "there is one of it, for a moment")]
enum TopLevelCommand {
    Serve(serve::ServeArgs),
    #[command(flatten)]
    Remote(RemoteCommand),
    Completions(completions::CompletionsArgs),
}

/// The verbs that talk to the daemon.
#[derive(Debug, Subcommand)]
enum RemoteCommand {
    Run(run::RunArgs),
    Ls(ls::LsArgs),
    Show(show::ShowArgs),
    Logs(logs::LogsArgs),
    Watch(watch::WatchArgs),
    Wait(wait::WaitForArgs),
    Send(send::SendArgs),
    Prompts(prompts::PromptsArgs),
    Clearances(clearances::ClearancesArgs),
    Approve(approve::ApproveArgs),
    Deny(deny::DenyArgs),
    Questions(questions::QuestionsArgs),
    Answer(answer::AnswerArgs),
    Nudge(nudge::NudgeArgs),
    Interrupt(interrupt::InterruptArgs),
    Snooze(snooze::SnoozeArgs),
    Ladder(ladder::LadderArgs),
    Mode(mode::ModeArgs),
    Sessions(sessions::SessionsArgs),
    Stop(stop::StopArgs),
    Kill(kill::KillArgs),
    Resume(resume::ResumeArgs),
    Agents(agents::AgentsArgs),
    Doctor(doctor::DoctorArgs),
    Backup(backup::BackupArgs),
    Policy(policy::PolicyArgs),
    Reload(reload::ReloadArgs),
    Slack(slack::SlackArgs),
    Token(token::TokenArgs),
    Open(open::OpenArgs),
    Console(console::ConsoleArgs),
    Acp(acp::AcpArgs),
    Audit(audit::AuditArgs),
    Daemon(daemon::DaemonArgs),
}

/// The context of every verb.
#[derive(Debug)]
struct CliContext {
    paths: DaemonPaths,
    /// True if the state directory or the socket was named by flag or variable.
    explicit_paths: bool,
    json: bool,
    paint: Paint,
    client: DaemonClient,
    /// `intercom` with the flags that lead to this daemon, for commands in advice.
    command_prefix: String,
}

impl CliContext {
    /// Prints the daemon's answer with `--json`, and otherwise the text that the verb makes of it.
    fn print_answer(
        &self,
        answer: &DaemonAnswer,
        human: impl FnOnce() -> anyhow::Result<String>,
    ) -> anyhow::Result<()> {
        if self.json { output::print_json(&answer.body) } else { output::print(&human()?) }
    }

    /// Prints a table, or a message if it is empty.
    fn table(&self, table: &TerminalTable, nothing: &str) -> anyhow::Result<()> {
        if table.is_empty() {
            output::print_note(nothing);
            return Ok(());
        }
        output::print(&table.render(terminal::stdout_size().map(|size| size.columns), self.paint))
    }
}

/// Runs one command line and returns its exit code.
pub(crate) fn main() -> ExitCode {
    let parsed =
        help::command().try_get_matches().and_then(|matches| CommandLine::from_arg_matches(&matches));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => {
            error.print().ok(); // there is no other place to report it
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    // The JSON of an error would be an invalid message to the peer of a verb that speaks a protocol on stdout.
    let json = cli.json && !matches!(cli.verb, TopLevelCommand::Remote(RemoteCommand::Acp(_)));
    match dispatch(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if json && !failure::is_answered(&error) {
                output::print_error(&failure::as_json(&error));
            }
            failure::report(&error, Paint::for_stderr())
        }
    }
}

fn dispatch(cli: CommandLine) -> anyhow::Result<()> {
    if let TopLevelCommand::Completions(args) = cli.verb {
        return completions::run(&args, &mut CommandLine::command()); // needs no home, no files and no daemon
    }
    time::choose_zone(cli.utc);
    let named = |key: &str| std::env::var_os(key).is_some_and(|value| !value.is_empty());
    let explicit_paths = cli.state_dir.is_some()
        || cli.socket.is_some()
        || named("INTERCOM_STATE_DIR")
        || named("INTERCOM_SOCKET");
    let call = command_prefix(&cli);
    let flags = PathFlags { config: cli.config, state_dir: cli.state_dir, socket: cli.socket };
    let cwd = std::env::current_dir().unwrap_or_default(); // it may be gone; `resolve` reports that
    let paths = DaemonPaths::resolve(flags, &|key| std::env::var_os(key), &cwd)
        .map_err(|error| CliFailure::usage(error.to_string()))?;
    let variable = |key: &str| std::env::var(key).ok().filter(|value| !value.is_empty());
    let transport = Transport::choose(
        &paths.socket,
        RemoteDaemonSettings {
            url: cli.url.or_else(|| variable("INTERCOM_URL")),
            // A file on the command line overrides a token in the environment.
            token: variable("INTERCOM_TOKEN").filter(|_| cli.token_file.is_none()),
            token_file: cli.token_file.or_else(|| variable("INTERCOM_TOKEN_FILE").map(PathBuf::from)),
            ca_file: variable("INTERCOM_CA_FILE").map(PathBuf::from),
        },
    )?;
    let client = DaemonClient::new(transport, &call);
    let cx = CliContext {
        paths,
        explicit_paths,
        json: cli.json,
        paint: Paint::for_stdout(),
        client,
        command_prefix: call,
    };
    match cli.verb {
        TopLevelCommand::Serve(args) => serve::run(&args, cx.paths),
        TopLevelCommand::Remote(verb) => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(run_client_command(verb, &cx))
        }
        TopLevelCommand::Completions(_) => Ok(()), // done above
    }
}

async fn run_client_command(verb: RemoteCommand, cx: &CliContext) -> anyhow::Result<()> {
    use RemoteCommand::{Logs, Resume, Run, Send, Wait};
    if matches!(verb, Run(_) | Resume(_) | Send(_) | Wait(_) | Logs(_)) {
        ctrl_c::end_on_ctrl_c();
    }
    match verb {
        RemoteCommand::Run(args) => run::run(args, cx).await,
        RemoteCommand::Ls(args) => ls::run(args, cx).await,
        RemoteCommand::Show(args) => show::run(args, cx).await,
        RemoteCommand::Logs(args) => logs::run(args, cx).await,
        RemoteCommand::Watch(args) => watch::run(args, cx).await,
        RemoteCommand::Wait(args) => wait::run(args, cx).await,
        RemoteCommand::Send(args) => send::run(args, cx).await,
        RemoteCommand::Prompts(args) => prompts::run(args, cx).await,
        RemoteCommand::Clearances(args) => clearances::run(args, cx).await,
        RemoteCommand::Approve(args) => approve::run(args, cx).await,
        RemoteCommand::Deny(args) => deny::run(args, cx).await,
        RemoteCommand::Questions(args) => questions::run(args, cx).await,
        RemoteCommand::Answer(args) => answer::run(args, cx).await,
        RemoteCommand::Nudge(args) => nudge::run(args, cx).await,
        RemoteCommand::Interrupt(args) => interrupt::run(args, cx).await,
        RemoteCommand::Snooze(args) => snooze::run(args, cx).await,
        RemoteCommand::Ladder(args) => ladder::run(args, cx).await,
        RemoteCommand::Mode(args) => mode::run(args, cx).await,
        RemoteCommand::Sessions(args) => sessions::run(args, cx).await,
        RemoteCommand::Stop(args) => stop::run(args, cx).await,
        RemoteCommand::Kill(args) => kill::run(args, cx).await,
        RemoteCommand::Resume(args) => resume::run(args, cx).await,
        RemoteCommand::Agents(args) => agents::run(args, cx).await,
        RemoteCommand::Doctor(args) => doctor::run(args, cx).await,
        RemoteCommand::Backup(args) => backup::run(args, cx).await,
        RemoteCommand::Policy(args) => policy::run(args, cx).await,
        RemoteCommand::Reload(args) => reload::run(args, cx).await,
        RemoteCommand::Slack(args) => slack::run(args, cx).await,
        RemoteCommand::Token(args) => token::run(args, cx).await,
        RemoteCommand::Open(args) => open::run(args, cx).await,
        RemoteCommand::Console(args) => console::run(args, cx).await,
        RemoteCommand::Acp(args) => acp::run(args, cx).await,
        RemoteCommand::Audit(args) => audit::run(args, cx).await,
        RemoteCommand::Daemon(args) => daemon::run(args, cx).await,
    }
}

fn command_prefix(cli: &CommandLine) -> String {
    let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
    let flags = [
        ("--config", path(&cli.config)),
        ("--state-dir", path(&cli.state_dir)),
        ("--socket", path(&cli.socket)),
        ("--url", cli.url.clone()),
        ("--token-file", path(&cli.token_file)),
    ];
    let given = flags.into_iter().filter_map(|(flag, value)| Some((flag, value?)));
    let words = given.map(|(flag, value)| format!(" {flag} {}", shell_word(&value)));
    format!("intercom{}", words.collect::<String>())
}

/// Accepts an id, a part of one, or a name; an empty text is refused.
fn non_empty_id() -> NonEmptyStringValueParser {
    NonEmptyStringValueParser::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn paragraphs_of_help_are_wrapped_by_the_terminal_alone() {
        let mut commands = vec![CommandLine::command()];
        while let Some(command) = commands.pop() {
            let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let lines: Vec<&str> = after.lines().collect();
            for pair in lines.windows(2) {
                let is_text = |line: &str| !line.is_empty() && !line.starts_with("  ");
                let breaks = is_text(pair[0]) && is_text(pair[1]) && !pair[0].ends_with(':');
                assert!(!breaks, "{}: a line break after {:?}", command.get_name(), pair[0]);
            }
            commands.extend(command.get_subcommands().cloned());
        }
    }

    #[test]
    fn every_verb_says_what_it_does() {
        for verb in CommandLine::command().get_subcommands() {
            assert!(verb.get_about().is_some(), "{} has no sentence", verb.get_name());
        }
    }

    #[test]
    fn the_next_command_leads_to_the_same_daemon() {
        let of = |line: &[&str]| {
            command_prefix(&CommandLine::try_parse_from(["intercom"].iter().chain(line)).unwrap())
        };
        assert_eq!(of(&["ls"]), "intercom");
        assert_eq!(
            of(&["--state-dir", "/a b", "ls", "--url", "http://x:1"]),
            "intercom --state-dir '/a b' --url http://x:1"
        );
    }

    #[test]
    fn json_and_the_paths_are_taken_before_and_after_the_verb() {
        let cli = CommandLine::try_parse_from(["intercom", "--json", "ls", "--socket", "/s"]).unwrap();
        assert!(cli.json && cli.socket == Some("/s".into()));
    }
}

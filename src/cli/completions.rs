//! `intercom completions`: completions for a shell; needs neither a daemon nor a home directory.

use clap_complete::Shell;

use super::output;

/// Print the completions for a shell
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  intercom completions bash > ~/.local/share/bash-completion/completions/intercom"
)]
pub(super) struct CompletionsArgs {
    shell: Shell,
}

pub(super) fn run(args: &CompletionsArgs, command: &mut clap::Command) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, command, "intercom", &mut script);
    output::print(&String::from_utf8_lossy(&script))
}

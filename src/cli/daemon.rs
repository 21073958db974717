//! `intercom daemon`: the running daemon, and the daemon as a service of the user's own systemd.
//!
//! The unit kills only the daemon itself, and its cgroup is delegated: agents live in cgroups of their own below it, so
//! neither a restart nor an upgrade of the daemon affects them.

mod process;

use std::path::{Path, PathBuf};
use std::process::Command;

use super::failure::CliFailure;
use super::{CliContext, output};

const UNIT: &str = "intercom.service";

const WITHOUT_SYSTEMD: &str = if cfg!(target_os = "macos") {
    "use launchd: docs/intercom.plist goes to ~/Library/LaunchAgents"
} else {
    "`intercom run` and `intercom acp` start a daemon in the background when they need one; to keep one running, let your own \
     supervisor or a terminal multiplexer run `intercom serve`; as root, `loginctl enable-linger USER` gives a user a systemd"
};

/// Show, restart or stop the running daemon, or make it a service of your own systemd
#[derive(Debug, clap::Args)]
pub(super) struct DaemonArgs {
    #[command(subcommand)]
    verb: DaemonCommand,
}

#[derive(Debug, clap::Subcommand)]
enum DaemonCommand {
    /// Write the unit, enable it and start it
    Install {
        /// Only print the unit; write and start nothing
        #[arg(long)]
        print: bool,
    },
    /// Show the running daemon (pid, start time, how it was started, version, socket, console, sessions) and the
    /// service
    Status,
    /// Stop the service and remove the unit; agents keep running
    Uninstall,
    /// Restart the daemon, or start one, with the variables of this shell and the previous daemon's keys; agents keep
    /// running, unless `on_stop` is "drain"
    Restart,
    /// Stop the running daemon; agents keep running, unless `on_stop` is "drain"
    Stop,
}

/// The command that starts the installed service, and the command that shows its log.
#[derive(Debug)]
pub(super) struct InstalledService {
    pub(super) program: &'static str,
    pub(super) args: Vec<String>,
    /// The command that shows its log.
    pub(super) log: &'static str,
}

impl InstalledService {
    /// Returns the service that runs the daemon of this command line.
    pub(super) fn installed(cx: &CliContext) -> Option<Self> {
        let env = |key: &str| std::env::var_os(key);
        let installed = std::fs::read_to_string(unit_file(&env).ok()?);
        if installed.is_ok_and(|installed| runs_same_daemon(&installed, &unit(Path::new("intercom"), cx))) {
            let args = ["--user", "start", UNIT].map(Into::into).into();
            return Some(Self { program: "systemctl", args, log: "see `journalctl --user -u intercom`" });
        }
        let plist = PathBuf::from(env("HOME")?).join("Library/LaunchAgents/intercom.plist");
        let usual = !cx.explicit_paths && !cx.paths.config_explicit;
        (usual && plist.exists()).then(|| {
            let args =
                vec!["kickstart".to_owned(), format!("gui/{}/intercom", nix::unistd::Uid::effective())];
            Self { program: "launchctl", args, log: "its property list names its log" }
        })
    }
}

/// Returns true if a unit runs a daemon with the same files as `ours`, wherever its binary is.
fn runs_same_daemon(unit: &str, ours: &str) -> bool {
    let command =
        |unit: &str| unit.lines().find_map(|line| line.strip_prefix("ExecStart=").map(str::to_owned));
    let (Some(unit), Some(ours)) = (command(unit), command(ours)) else { return false };
    let flags = ours.strip_prefix("intercom").unwrap_or(&ours);
    unit.strip_suffix(flags).is_some_and(|program| !program.contains(" --"))
}

pub(super) async fn run(args: DaemonArgs, cx: &CliContext) -> anyhow::Result<()> {
    let file = unit_file(&|key| std::env::var_os(key))?;
    match args.verb {
        DaemonCommand::Install { print } => {
            let unit = unit(&std::env::current_exe()?, cx);
            if print { output::print(&unit) } else { install(&file, &unit, cx) }
        }
        DaemonCommand::Status => process::status(&file, cx).await,
        DaemonCommand::Uninstall => uninstall(&file, cx),
        DaemonCommand::Restart => process::restart(cx).await,
        DaemonCommand::Stop => process::stop(cx).await,
    }
}

fn unit_file(env: &dyn Fn(&str) -> Option<std::ffi::OsString>) -> anyhow::Result<PathBuf> {
    let set = |key: &str| env(key).filter(|value| !value.is_empty()).map(PathBuf::from);
    let config = set("XDG_CONFIG_HOME").or_else(|| set("HOME").map(|home| home.join(".config")));
    let config = config.ok_or_else(|| CliFailure::failed("neither XDG_CONFIG_HOME nor HOME is set"))?;
    Ok(config.join("systemd/user").join(UNIT))
}

/// Returns the unit. `KillMode=process`: stopping the unit must not stop the agents.
fn unit(exe: &Path, cx: &CliContext) -> String {
    let mut command = vec![exe.display().to_string()];
    let paths = &cx.paths;
    if cx.explicit_paths {
        command.extend(["--state-dir".to_owned(), paths.state_dir.display().to_string()]);
        command.extend(["--socket".to_owned(), paths.socket.display().to_string()]);
    }
    if paths.config_explicit {
        command.extend(["--config".to_owned(), paths.config.display().to_string()]);
    }
    command.extend(["serve".to_owned(), "--on-stop".to_owned(), "leave".to_owned()]);
    let command: Vec<String> = command.iter().map(|word| quoted(word)).collect();
    format!(
        "[Unit]\n\
         Description=intercom, host of headless coding agents\n\
         \n\
         [Service]\n\
         Type=exec\n\
         ExecStart={}\n\
         # Agents outlive the daemon: only the daemon itself is killed, and they have cgroups of their own below ours.\n\
         KillMode=process\n\
         Delegate=yes\n\
         Restart=on-failure\n\
         RestartSec=1\n\
         \n\
         [Install]\n\
         WantedBy=default.target\n",
        command.join(" ")
    )
}

/// Quotes a word for systemd's command lines.
fn quoted(word: &str) -> String {
    let escaped = word.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%").replace('$', "$$");
    if word.contains([' ', '\t', '"', '\\', '\'', ';']) { format!("\"{escaped}\"") } else { escaped }
}

fn install(file: &Path, unit: &str, cx: &CliContext) -> anyhow::Result<()> {
    // Checked before anything is written: without a user instance the unit would be useless.
    if let Err(why) = systemctl(&["show-environment"]) {
        return Err(CliFailure::failed(format!("the systemd user instance cannot be reached: {why}"))
            .hint(WITHOUT_SYSTEMD)
            .into());
    }
    if let Some(dir) = file.parent() {
        std::fs::create_dir_all(dir)?;
    }
    std::fs::write(file, unit)?;
    let started = systemctl(&["daemon-reload"]).and_then(|()| systemctl(&["enable", "--now", UNIT]));
    if cx.json {
        output::print(&serde_json::json!({ "unit": file, "started": started.is_ok() }).to_string())?;
    } else {
        output::print(&file.display().to_string())?;
    }
    match started {
        Ok(()) => output::print_note("the daemon runs, and starts with your sessions from now on"),
        Err(error) => {
            output::print_note(&format!("the unit is written, but not started: {error}"));
            output::print_note(&format!(
                "start it with: systemctl --user daemon-reload && systemctl --user enable --now {UNIT}"
            ));
        }
    }
    let user = std::env::var("USER").unwrap_or_else(|_| "$USER".to_owned());
    if !Path::new("/var/lib/systemd/linger").join(&user).exists() {
        output::print_note(
            "your systemd ends with your last login and ends the agents; to keep them running:",
        );
        output::print_note(&format!("  loginctl enable-linger {user}"));
    }
    Ok(())
}

fn uninstall(file: &Path, cx: &CliContext) -> anyhow::Result<()> {
    if !file.exists() {
        return Err(CliFailure::failed(format!("{} is not installed", file.display())).into());
    }
    let stopped = systemctl(&["disable", "--now", UNIT]);
    std::fs::remove_file(file)?;
    systemctl(&["daemon-reload"]).ok(); // it reloads at its next start anyway
    if cx.json {
        output::print(&serde_json::json!({ "unit": file, "stopped": stopped.is_ok() }).to_string())?;
    } else {
        output::print(&file.display().to_string())?;
    }
    output::print_note(
        "removed; running agents keep running: `intercom daemon restart` starts a daemon that finds them",
    );
    Ok(())
}

fn systemctl(args: &[&str]) -> Result<(), String> {
    let output = Command::new("systemctl").arg("--user").args(args).output();
    let output = output.map_err(|error| format!("systemctl: {error}"))?;
    if output.status.success() {
        Ok(())
    } else {
        let stderr = String::from_utf8_lossy(&output.stderr);
        Err(stderr.trim().lines().next().unwrap_or("systemctl failed").to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_as_systemd_wants_them() {
        assert_eq!(quoted("/usr/bin/intercom"), "/usr/bin/intercom");
        assert_eq!(quoted("/a b/c"), "\"/a b/c\"");
        assert_eq!(quoted("100%"), "100%%");
        assert_eq!(quoted("a\"b"), "\"a\\\"b\"");
    }

    #[test]
    fn a_unit_with_other_files_is_not_the_one_that_is_meant() {
        let unit =
            |command: &str| format!("[Service]\nExecStart={command} serve --on-stop leave\nDelegate=yes\n");
        let check = |installed: &str, ours: &str| runs_same_daemon(&unit(installed), &unit(ours));
        assert!(check("/usr/bin/intercom", "intercom"));
        assert!(check("/a/intercom --state-dir /s --socket /s/x", "intercom --state-dir /s --socket /s/x"));
        assert!(!check("/a/intercom --state-dir /s --socket /s/x", "intercom"));
        assert!(!check("/usr/bin/intercom", "intercom --state-dir /s --socket /s/x"));
        assert!(!check("/a/intercom --config /c", "intercom --state-dir /s --socket /s/x"));
        assert!(!runs_same_daemon("", &unit("intercom")));
    }

    #[test]
    fn the_unit_is_where_systemd_looks() {
        let env = |key: &str| (key == "HOME").then(|| "/home/ana".into());
        assert_eq!(unit_file(&env).unwrap(), Path::new("/home/ana/.config/systemd/user/intercom.service"));
        assert!(unit_file(&|_| None).is_err());
    }
}

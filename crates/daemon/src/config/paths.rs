//! The places of files: the configuration, the state directory, the socket.
//!
//! Pure: the environment and the current directory are parameters, so that tests need neither.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The paths from the command line; a flag overrides its variable.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PathFlags {
    pub config: Option<PathBuf>,
    pub state_dir: Option<PathBuf>,
    pub socket: Option<PathBuf>,
}

/// The daemon's paths, all absolute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonPaths {
    pub config: PathBuf,
    /// True if the configuration was named explicitly and must exist.
    pub config_explicit: bool,
    pub state_dir: PathBuf,
    pub socket: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathsError {
    #[error(
        "HOME is not set to an absolute path, so there is no place for {what}; set HOME, {flag} or {variable}"
    )]
    NoHome { what: &'static str, flag: &'static str, variable: &'static str },
    #[error("{} is relative and the current directory is not known; give an absolute path", path.display())]
    NoCurrentDirectory { path: PathBuf },
}

type EnvLookup<'a> = &'a dyn Fn(&str) -> Option<OsString>;

impl DaemonPaths {
    /// Resolves the paths of this process. Everything that runs calls this once and passes the result on.
    pub fn from_process(flags: PathFlags) -> Result<Self, PathsError> {
        // The directory may not exist any more. That is reported only if a path needs it.
        let cwd = std::env::current_dir().unwrap_or_default();
        Self::resolve(flags, &|name| std::env::var_os(name), &cwd)
    }

    pub fn resolve(flags: PathFlags, env: EnvLookup<'_>, cwd: &Path) -> Result<Self, PathsError> {
        let named = |flag: Option<PathBuf>, variable| {
            let path = flag.or_else(|| set(env, variable).map(PathBuf::from));
            path.map(|path| absolute(&path, cwd)).transpose()
        };
        let config = named(flags.config, "INTERCOM_CONFIG")?;
        let config_explicit = config.is_some();
        let config = config.map_or_else(
            || {
                let home = base(env, "XDG_CONFIG_HOME", ".config").ok_or(PathsError::NoHome {
                    what: "the configuration",
                    flag: "--config",
                    variable: "INTERCOM_CONFIG",
                })?;
                Ok(home.join("intercom/config.toml"))
            },
            Ok,
        )?;

        let given_state = named(flags.state_dir, "INTERCOM_STATE_DIR")?;
        let state_explicit = given_state.is_some();
        let state_dir = given_state.map_or_else(
            || {
                let home = base(env, "XDG_STATE_HOME", ".local/state").ok_or(PathsError::NoHome {
                    what: "the state directory",
                    flag: "--state-dir",
                    variable: "INTERCOM_STATE_DIR",
                })?;
                Ok(home.join("intercom"))
            },
            Ok,
        )?;

        let socket = named(flags.socket, "INTERCOM_SOCKET")?.unwrap_or_else(|| {
            // A state directory of its own means a daemon of its own, which must not use the usual daemon's socket.
            let runtime = xdg(env, "XDG_RUNTIME_DIR").filter(|_| !state_explicit);
            runtime.as_ref().unwrap_or(&state_dir).join("intercom.sock")
        });
        Ok(Self { config, config_explicit, state_dir, socket })
    }

    pub fn database(&self) -> PathBuf {
        self.state_dir.join("intercom.db")
    }

    /// Returns the file with the address and the pid of the running daemon.
    pub fn daemon_json(&self) -> PathBuf {
        self.state_dir.join("daemon.json")
    }

    /// Returns the lock file, which is held as long as a daemon runs on this state directory.
    pub fn lock(&self) -> PathBuf {
        self.state_dir.join("daemon.lock")
    }
}

/// Returns the value of a variable; an empty one counts as not set.
fn set(env: EnvLookup<'_>, name: &str) -> Option<OsString> {
    env(name).filter(|value| !value.is_empty())
}

/// Returns the value of an XDG variable; the XDG specification requires that relative values are ignored.
fn xdg(env: EnvLookup<'_>, name: &str) -> Option<PathBuf> {
    set(env, name).map(PathBuf::from).filter(|path| path.is_absolute())
}

fn base(env: EnvLookup<'_>, variable: &str, in_home: &str) -> Option<PathBuf> {
    xdg(env, variable).or_else(|| xdg(env, "HOME").map(|home| home.join(in_home)))
}

/// Returns an absolute path. `..` is kept: its meaning depends on links, which only the system knows.
fn absolute(path: &Path, cwd: &Path) -> Result<PathBuf, PathsError> {
    let joined: PathBuf = cwd.join(path).components().collect();
    if joined.is_absolute() {
        Ok(joined)
    } else {
        Err(PathsError::NoCurrentDirectory { path: path.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: (&str, &str) = ("HOME", "/home/ada");

    fn resolve(flags: PathFlags, env: &[(&str, &str)], cwd: &str) -> Result<DaemonPaths, PathsError> {
        let lookup = |name: &str| env.iter().find(|(key, _)| *key == name).map(|(_, v)| OsString::from(v));
        DaemonPaths::resolve(flags, &lookup, Path::new(cwd))
    }

    /// `flags` are config, state directory and socket; "" is not given.
    fn check(flags: [&str; 3], env: &[(&str, &str)], expect: [&str; 3]) {
        let [config, state_dir, socket] = flags.map(|flag| (!flag.is_empty()).then(|| PathBuf::from(flag)));
        let paths = resolve(PathFlags { config, state_dir, socket }, env, "/home/ada").unwrap();
        let seen = [&paths.config, &paths.state_dir, &paths.socket].map(|path| path.to_str().unwrap());
        assert_eq!(seen, expect, "for {flags:?} {env:?}");
    }

    #[test]
    fn the_defaults_lie_in_the_home_directory() {
        let config = "/home/ada/.config/intercom/config.toml";
        let state = "/home/ada/.local/state/intercom";
        let inside = "/home/ada/.local/state/intercom/intercom.sock";
        check(["", "", ""], &[HOME], [config, state, inside]);
        check(["", "", ""], &[HOME, ("XDG_RUNTIME_DIR", "/run/1")], [config, state, "/run/1/intercom.sock"]);
    }

    #[test]
    fn xdg_directories_come_before_the_home_directory() {
        check(
            ["", "", ""],
            &[HOME, ("XDG_CONFIG_HOME", "/c"), ("XDG_STATE_HOME", "/s"), ("XDG_RUNTIME_DIR", "/r")],
            ["/c/intercom/config.toml", "/s/intercom", "/r/intercom.sock"],
        );
        // Not even a home is needed then.
        check(
            ["", "", ""],
            &[("XDG_CONFIG_HOME", "/c"), ("XDG_STATE_HOME", "/s")],
            ["/c/intercom/config.toml", "/s/intercom", "/s/intercom/intercom.sock"],
        );
    }

    #[test]
    fn variables_come_before_defaults_and_flags_before_variables() {
        let env = [
            HOME,
            ("XDG_RUNTIME_DIR", "/r"),
            ("INTERCOM_CONFIG", "/e/c.toml"),
            ("INTERCOM_STATE_DIR", "/e/state"),
            ("INTERCOM_SOCKET", "/e/sock"),
        ];
        check(["", "", ""], &env, ["/e/c.toml", "/e/state", "/e/sock"]);
        check(["/f/c.toml", "/f/state", "/f/sock"], &env, ["/f/c.toml", "/f/state", "/f/sock"]);
    }

    #[test]
    fn a_state_directory_that_was_named_holds_the_socket() {
        let config = "/home/ada/.config/intercom/config.toml";
        let run = ("XDG_RUNTIME_DIR", "/r");
        check(["", "/f", ""], &[HOME, run], [config, "/f", "/f/intercom.sock"]);
        check(["", "", ""], &[HOME, run, ("INTERCOM_STATE_DIR", "/e")], [config, "/e", "/e/intercom.sock"]);
        check(["", "/f", ""], &[HOME, run, ("INTERCOM_SOCKET", "/e")], [config, "/f", "/e"]);
    }

    #[test]
    fn empty_variables_and_relative_xdg_directories_count_as_not_set() {
        let env = [
            HOME,
            ("INTERCOM_CONFIG", ""),
            ("INTERCOM_STATE_DIR", ""),
            ("INTERCOM_SOCKET", ""),
            ("XDG_CONFIG_HOME", ""),
            ("XDG_STATE_HOME", "state"),
            ("XDG_RUNTIME_DIR", ""),
        ];
        let state = "/home/ada/.local/state/intercom";
        let socket = "/home/ada/.local/state/intercom/intercom.sock";
        check(["", "", ""], &env, ["/home/ada/.config/intercom/config.toml", state, socket]);
    }

    #[test]
    fn relative_paths_are_taken_from_the_current_directory() {
        check(
            ["c.toml", "./state", "../sock"],
            &[],
            ["/home/ada/c.toml", "/home/ada/state", "/home/ada/../sock"],
        );
        let config = PathFlags { config: Some("c.toml".into()), ..PathFlags::default() };
        let error = resolve(config, &[HOME], "").unwrap_err().to_string();
        assert_eq!(error, "c.toml is relative and the current directory is not known; give an absolute path");
    }

    #[test]
    fn without_a_home_the_error_says_what_to_set() {
        let check = |flags: PathFlags, env: &[(&str, &str)], expect: &str| {
            assert_eq!(resolve(flags, env, "/home/ada").unwrap_err().to_string(), expect);
        };
        let config = "HOME is not set to an absolute path, so there is no place for the configuration; \
                      set HOME, --config or INTERCOM_CONFIG";
        check(PathFlags::default(), &[], config);
        check(PathFlags::default(), &[("HOME", "")], config);
        check(PathFlags::default(), &[("HOME", "ada")], config);
        check(
            PathFlags { config: Some("/c".into()), ..PathFlags::default() },
            &[],
            "HOME is not set to an absolute path, so there is no place for the state directory; \
             set HOME, --state-dir or INTERCOM_STATE_DIR",
        );
    }

    #[test]
    fn only_a_configuration_that_was_named_has_to_be_there() {
        let named = PathFlags { config: Some("/c".into()), ..PathFlags::default() };
        assert!(resolve(named, &[HOME], "/").unwrap().config_explicit);
        assert!(
            resolve(PathFlags::default(), &[HOME, ("INTERCOM_CONFIG", "/c")], "/").unwrap().config_explicit
        );
        assert!(!resolve(PathFlags::default(), &[HOME], "/").unwrap().config_explicit);
    }

    #[test]
    fn files_of_the_daemon_lie_in_the_state_directory() {
        let state = PathFlags { state_dir: Some("/s".into()), ..PathFlags::default() };
        let paths = resolve(state, &[HOME], "/").unwrap();
        let files = [paths.database(), paths.daemon_json(), paths.lock()];
        assert_eq!(files, ["/s/intercom.db", "/s/daemon.json", "/s/daemon.lock"].map(PathBuf::from));
    }
}

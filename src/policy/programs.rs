//! Programs that run other programs, and the options that make a program run or write something else.
//!
//! Both tables are for well-known tools and cannot be complete: a rule with `exact = true` does not depend on them.

/// How a program runs another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Runs {
    /// Runs the command in its arguments as it stands; looked through.
    Through,
    /// A shell: a script file, a text, or what it is sent.
    Shell,
    /// An interpreter, with the options before its script that run nothing.
    Code(&'static [&'static str]),
    /// Runs the program named after one of these words; after its own name if there are none.
    Named(&'static [&'static str]),
    /// The same, in ways we do not follow; only with one of these words, or always if there are none.
    Unclear(&'static [&'static str]),
}

/// The file name of a program, in lower case and without version: `/usr/bin/python3.11` is `python`.
pub(super) fn base(program: &str) -> String {
    let name = program.rsplit(['/', '\\']).next().unwrap_or(program).to_ascii_lowercase();
    let name = name.strip_suffix(".exe").unwrap_or(&name);
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-'));
    if stem.is_empty() { name.to_owned() } else { stem.to_owned() }
}

/// The file name of a program, in lower case.
pub(super) fn file_name(program: &str) -> String {
    let name = program.rsplit('/').next().unwrap_or(program).to_ascii_lowercase();
    name.strip_suffix(".exe").map(str::to_owned).unwrap_or(name)
}

/// By [`base`] name; `None` for a program that runs no other as far as we know.
pub(super) fn runs(base: &str) -> Option<Runs> {
    Some(match base {
        "env" | "timeout" | "nice" | "nohup" | "sudo" => Runs::Through,
        "sh" | "bash" | "dash" | "zsh" | "ksh" | "mksh" | "ash" | "fish" | "csh" | "tcsh" | "rbash" => Runs::Shell,
        "python" | "pypy" => Runs::Code(&["-m", "-u", "-B", "-O", "-I", "-s", "-V", "--version"]),
        "node" | "nodejs" => Runs::Code(&["--test", "-v", "--version"]),
        "perl" | "ruby" | "php" | "lua" | "luajit" | "tclsh" | "osascript" | "awk" | "gawk" | "mawk" | "rscript"
        | "guile" => Runs::Code(&["-v", "--version"]),
        "npx" | "bunx" | "uvx" | "pipx" => Runs::Named(&[]),
        "pnpm" | "yarn" | "bundle" => Runs::Named(&["exec", "dlx"]),
        "uv" | "poetry" | "pipenv" | "hatch" | "pdm" | "conda" | "rye" => Runs::Named(&["run"]),
        // A keyword, or a builtin that runs or redefines what comes after it.
        "if" | "then" | "else" | "elif" | "fi" | "for" | "while" | "until" | "do" | "done" | "case" | "esac" | "select"
        | "function" | "in" | "[[" | "{" | "}" | "(" | "!" | "time" | "coproc" | "eval" | "exec" | "source" | "."
        | "command" | "builtin" | "trap" | "alias" | "unalias" | "set" | "shopt" | "export" | "declare" | "typeset"
        | "readonly" | "local" | "enable" | "hash" | "bind" | "complete" | "noglob" | "nocorrect" | "autoload"
        | "emulate" | "zmodload" | "let" | "mapfile" | "readarray" | "fc"
        // Programs.
        | "xargs" | "parallel" | "ssh" | "su" | "doas" | "runuser" | "pkexec" | "chroot" | "nsenter" | "unshare" | "setsid"
        | "setpriv" | "stdbuf" | "unbuffer" | "script" | "expect" | "watch" | "strace" | "ltrace" | "gdb" | "lldb"
        | "perf" | "flock" | "ionice" | "taskset" | "chrt" | "setarch" | "at" | "batch" | "crontab" | "screen" | "tmux"
        | "systemd-run" | "entr" | "watchexec" | "busybox" | "toybox" | "nix-shell" | "firejail" | "bwrap" | "proot"
        | "fakeroot" | "dbus-run-session" | "start-stop-daemon" | "run-parts" | "rlwrap" | "socat" | "vi" | "vim" | "nvim"
        | "ex" | "ed" | "emacs" | "less" | "more" | "man" | "pwsh" | "powershell" | "cmd" | "wsl" | "open" | "xdg-open"
        | "prlimit" | "chronic" | "numactl" | "cpulimit" | "valgrind" | "torsocks" | "proxychains" | "ifne"
        | "ld-linux-x86-64.so" | "rundll" => Runs::Unclear(&[]),
        "docker" | "podman" | "nerdctl" | "kubectl" | "oc" | "lxc" | "distrobox" | "toolbox" | "vagrant" | "flatpak" => {
            Runs::Unclear(&["run", "exec", "create", "debug", "enter", "ssh", "attach", "cp"])
        }
        "ip" => Runs::Unclear(&["exec"]),
        "npm" => Runs::Unclear(&["exec", "x", "explore"]),
        "bun" | "deno" => Runs::Unclear(&["x", "exec", "eval", "-e", "--eval", "-p", "--print"]),
        "mise" | "asdf" | "direnv" | "nix" | "devbox" | "op" | "doppler" | "dotenv" | "rustup" => {
            Runs::Unclear(&["exec", "x", "run", "shell", "develop", "-c", "--command"])
        }
        "find" => Runs::Unclear(&["-exec", "-execdir", "-ok", "-okdir"]),
        "fd" | "fdfind" => Runs::Unclear(&["-x", "-X", "--exec", "--exec-batch"]),
        "git" => Runs::Unclear(&["filter-branch", "difftool", "mergetool", "foreach", "send-email", "instaweb", "daemon"]),
        _ => return None,
    })
}

/// Options that widen what an allow rule allows, unless the rule spells them.
struct Widening {
    programs: &'static [&'static str],
    /// Without their dashes. An abbreviation of one counts as it, with two dashes or, for [`SINGLE_DASH`], with one.
    long: &'static [&'static str],
    /// Letters, alone or in a cluster.
    short: &'static str,
}

/// These hold for every program.
const ANY: &[&str] =
    &["exec", "eval", "config", "plugin", "rsh", "shell", "require", "preload", "pager", "cmd"];

/// Tools that write long options with one dash.
const SINGLE_DASH: &[&str] =
    &["find", "go", "java", "javac", "terraform", "gcc", "cc", "clang", "g++", "clang++", "c++"];

const WIDENINGS: &[Widening] = &[
    Widening {
        programs: &["git"],
        long: &[
            "upload-pack",
            "receive-pack",
            "extcmd",
            "open-files-in-pager",
            "output",
            "ext-diff",
            "textconv",
            "template",
        ],
        short: "xO",
    },
    Widening {
        programs: &["cargo"],
        long: &["manifest-path", "target-dir", "out-dir", "artifact-dir"],
        short: "ZC",
    },
    Widening {
        programs: &["npm", "pnpm", "yarn", "bun"],
        long: &[
            "prefix",
            "dir",
            "cwd",
            "script-shell",
            "node-options",
            "userconfig",
            "globalconfig",
            "registry",
            "scripts-prepend-node-path",
            "workspace-root",
            "global",
            "location",
            "cache",
        ],
        short: "Cg",
    },
    Widening {
        programs: &["make", "gmake", "ninja"],
        long: &["file", "makefile", "directory", "include-dir", "environment-overrides", "what-if"],
        short: "fCIEe",
    },
    Widening {
        programs: &["just", "task"],
        long: &["justfile", "working-directory", "set", "taskfile", "dir"],
        short: "fdt",
    },
    Widening {
        programs: &["mvn", "gradle", "gradlew", "mvnw"],
        long: &[
            "file",
            "init-script",
            "build-file",
            "settings-file",
            "project-dir",
            "settings",
            "include-build",
        ],
        short: "fIbcpsD",
    },
    Widening {
        programs: &["tar", "bsdtar", "gtar"],
        long: &[
            "to-command",
            "checkpoint-action",
            "use-compress-program",
            "rsh-command",
            "rmt-command",
            "info-script",
            "new-volume-script",
            "directory",
            "absolute-names",
        ],
        short: "IFCP",
    },
    Widening { programs: &["rg"], long: &["pre", "hostname-bin"], short: "" },
    Widening { programs: &["sort"], long: &["compress-program", "output"], short: "oT" },
    Widening { programs: &["rsync"], long: &["rsync-path", "remove-source-files", "delete"], short: "e" },
    Widening { programs: &["scp", "sftp"], long: &[], short: "oSFDJ" },
    Widening {
        programs: &["curl"],
        long: &[
            "output",
            "remote-name",
            "output-dir",
            "upload-file",
            "data",
            "form",
            "engine",
            "proxy",
            "netrc",
        ],
        short: "oOKTdFxn",
    },
    Widening {
        programs: &["wget"],
        long: &[
            "execute",
            "output-document",
            "directory-prefix",
            "input-file",
            "use-askpass",
            "post-file",
            "body-file",
        ],
        short: "eOPi",
    },
    Widening {
        programs: &["go"],
        long: &["exec", "toolexec", "vettool", "overlay", "modfile", "C", "o", "ldflags", "gccgoflags"],
        short: "",
    },
    Widening {
        programs: &["find"],
        long: &["delete", "fprint", "fprint0", "fprintf", "fls", "files0-from"],
        short: "",
    },
    Widening {
        programs: &["pytest", "py.test"],
        long: &["rootdir", "confcutdir", "override-ini"],
        short: "cpo",
    },
    Widening {
        programs: &["jest", "vitest", "mocha"],
        long: &["rootDir", "root", "globalSetup", "runner", "file"],
        short: "cr",
    },
    Widening {
        programs: &["eslint", "prettier", "stylelint"],
        long: &["rulesdir", "parser", "resolve-plugins-relative-to", "format"],
        short: "cf",
    },
    Widening {
        programs: &["pip"],
        long: &["index-url", "extra-index-url", "target", "prefix", "root", "python", "user"],
        short: "iter",
    },
    // bash evaluates the subscript of a variable's name: `test -v 'a[$(x)]'`.
    Widening { programs: &["test", "printf"], long: &[], short: "v" },
    Widening { programs: &["tree"], long: &["output"], short: "o" },
    Widening { programs: &["date"], long: &["set"], short: "s" },
    Widening { programs: &["zip"], long: &["unzip-command"], short: "T" },
    Widening { programs: &["terraform"], long: &["chdir"], short: "" },
    Widening {
        programs: &["gcc", "cc", "clang", "g++", "clang++", "c++"],
        long: &["wrapper", "fplugin", "specs", "B", "o"],
        short: "",
    },
];

/// The first of `words`, which come after what the rule spells, that makes `program` do something else.
pub(super) fn widening<'a>(program: &str, words: &'a [String]) -> Option<&'a str> {
    let rows: Vec<&Widening> = WIDENINGS.iter().filter(|row| row.programs.contains(&program)).collect();
    let long = |name: &str| {
        let name = name.split('=').next().unwrap_or(name);
        !name.is_empty() && rows.iter().flat_map(|row| row.long).chain(ANY).any(|long| long.starts_with(name))
    };
    let widens = |word: &str| {
        if let Some(name) = word.strip_prefix("--") {
            return long(name);
        }
        match word.strip_prefix('-') {
            Some(name) if SINGLE_DASH.contains(&program) => {
                let name = name.split('=').next().unwrap_or(name);
                rows.iter().flat_map(|row| row.long).any(|long| *long == name)
            }
            Some(letters) => rows.iter().any(|row| letters.contains(|c| row.short.contains(c))),
            // `make SHELL=…`, and a toolchain for cargo.
            None => match program {
                "make" | "gmake" | "just" => word.contains('='),
                "cargo" => word.starts_with('+'),
                _ => word.starts_with('@') && SINGLE_DASH.contains(&program),
            },
        }
    };
    // What follows `--` goes to the tests that cargo runs; elsewhere `--` could be the value of an option.
    let own = if program == "cargo" { words.iter().position(|word| word == "--") } else { None };
    words[..own.unwrap_or(words.len())].iter().map(String::as_str).find(|word| widens(word))
}

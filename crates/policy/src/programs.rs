//! Programs that run other programs, and the options that make a program run or write something else.
//!
//! Both tables cover well-known tools and cannot be complete: a rule with `exact = true` does not depend on them.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde::Deserialize;

/// The way a program runs another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LaunchMode {
    /// A transparent wrapper: runs the command in its arguments unchanged.
    Through,
    /// A shell: runs a script file, a text, or its input.
    Shell,
    /// An interpreter, with the options before its script that run nothing.
    Code(&'static [&'static str]),
    /// Runs the program after one of these words, or after its own name if there are none.
    Named(&'static [&'static str]),
    /// Runs another program in a way that is not followed; only with one of these words, or always if there are none.
    Unclear(&'static [&'static str]),
}

/// Returns the file name of a program, in lower case and without version: `/usr/bin/python3.11` is `python`.
pub(super) fn base(program: &str) -> String {
    let name = program.rsplit(['/', '\\']).next().unwrap_or(program).to_ascii_lowercase();
    let name = name.strip_suffix(".exe").unwrap_or(&name);
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-'));
    if stem.is_empty() { name.to_owned() } else { stem.to_owned() }
}

/// Returns the file name of a program, in lower case.
pub(super) fn file_name(program: &str) -> String {
    let name = program.rsplit('/').next().unwrap_or(program).to_ascii_lowercase();
    name.strip_suffix(".exe").map(str::to_owned).unwrap_or(name)
}

/// Looks up a program by its [`base`] name; `None` for a program that is not known to run others.
pub(super) fn runs(base: &str) -> Option<LaunchMode> {
    program(base).and_then(|program| program.runs)
}

/// One row of the table in `programs.toml`, where the keys are described.
#[derive(Debug)]
pub(super) struct ProgramEntry {
    runs: Option<LaunchMode>,
    pub(super) grammar: ArgumentGrammar,
    pub(super) subcommand: Vec<SubcommandGrammar>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
#[expect(clippy::struct_excessive_bools, reason = "the keys of the table")]
pub(super) struct ArgumentGrammar {
    pub(super) texts: Vec<String>,
    pub(super) code: Vec<String>,
    pub(super) scripts: Vec<String>,
    pub(super) programs: Vec<String>,
    pub(super) settings: Vec<String>,
    pub(super) running_settings: Vec<String>,
    pub(super) harmless_settings: Vec<String>,
    pub(super) alias_settings: Vec<String>,
    pub(super) leading_settings: bool,
    pub(super) valued: Vec<String>,
    pub(super) placeholders: Vec<String>,
    pub(super) after: Vec<String>,
    pub(super) operands: OperandMeaning,
    pub(super) skip: usize,
    pub(super) requires_command: bool,
    pub(super) assignments: bool,
    pub(super) appends: bool,
    pub(super) bare_cluster: bool,
    pub(super) escapes: Vec<String>,
    pub(super) input: Option<StdinMeaning>,
    pub(super) own_files: Vec<String>,
    pub(super) expands_variables: bool,
}

/// The options and operands after a subcommand.
#[derive(Debug, Deserialize)]
pub(super) struct SubcommandGrammar {
    pub(super) names: Vec<String>,
    #[serde(flatten)]
    pub(super) grammar: ArgumentGrammar,
}

/// The meaning of a program's operands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum OperandMeaning {
    #[default]
    None,
    Command,
    Text,
    Script,
    Awk,
    Sed,
    Scripts,
    Settings,
    Aliases,
    Unreadable,
}

/// The meaning of a program's input, for programs that run it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum StdinMeaning {
    Text,
    Code,
}

/// The meaning of a variable's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum VariableUse {
    Command,
    Code,
    Options,
}

/// Returns the row of a program, by its [`base`] name.
pub(super) fn program(base: &str) -> Option<&'static ProgramEntry> {
    TABLE.programs.get(base).map(|row| &TABLE.rows[*row])
}

/// Returns the row of a variable that makes programs run something.
pub(super) fn variable(name: &str) -> Option<&'static VariableRow> {
    TABLE.variables.iter().find(|row| row.names.iter().any(|pattern| is_named(pattern, name)))
}

/// Reports whether a name matches a pattern with at most two `*`.
pub(super) fn is_named(pattern: &str, name: &str) -> bool {
    let Some((beginning, rest)) = pattern.split_once('*') else { return name == pattern };
    let Some(name) = name.strip_prefix(beginning) else { return false };
    match rest.split_once('*') {
        None => name.ends_with(rest),
        Some((middle, end)) => name.find(middle).is_some_and(|at| name[at + middle.len()..].ends_with(end)),
    }
}

struct ProgramTable {
    rows: Vec<ProgramEntry>,
    programs: HashMap<String, usize>,
    variables: Vec<VariableRow>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TableFile {
    program: Vec<ProgramRow>,
    variable: Vec<VariableRow>,
}

#[derive(Deserialize)]
struct ProgramRow {
    names: Vec<String>,
    kind: ProgramKind,
    #[serde(default)]
    markers: Vec<String>,
    #[serde(default)]
    safe: Vec<String>,
    #[serde(default)]
    subcommand: Vec<SubcommandGrammar>,
    #[serde(flatten)]
    grammar: ArgumentGrammar,
}

/// Variables whose values have the same meaning.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct VariableRow {
    names: Vec<String>,
    #[serde(rename = "use")]
    pub(super) meaning: VariableUse,
    /// The program whose options the value holds.
    #[serde(default)]
    pub(super) program: String,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ProgramKind {
    Through,
    Shell,
    Code,
    Named,
    Unclear,
    Plain,
}

static TABLE: LazyLock<ProgramTable> = LazyLock::new(|| {
    let file: TableFile = toml::from_str(include_str!("programs.toml")).expect("a test reads the table");
    let mut table = ProgramTable { rows: Vec::new(), programs: HashMap::new(), variables: file.variable };
    for row in file.program {
        let runs = match row.kind {
            ProgramKind::Through => Some(LaunchMode::Through),
            ProgramKind::Shell => Some(LaunchMode::Shell),
            ProgramKind::Code => Some(LaunchMode::Code(forever(row.safe))),
            ProgramKind::Named => Some(LaunchMode::Named(forever(row.markers))),
            ProgramKind::Unclear => Some(LaunchMode::Unclear(forever(row.markers))),
            ProgramKind::Plain => None,
        };
        table.programs.extend(row.names.into_iter().map(|name| (name, table.rows.len())));
        table.rows.push(ProgramEntry { runs, grammar: row.grammar, subcommand: row.subcommand });
    }
    table
});

/// The table is read once and lives as long as the process.
fn forever(words: Vec<String>) -> &'static [&'static str] {
    let words: Vec<&'static str> = words.into_iter().map(|word| &*word.leak()).collect();
    words.leak()
}

/// Options that widen an allow rule, unless the rule contains them.
struct WideningOptions {
    programs: &'static [&'static str],
    /// Long options without dashes. An abbreviation counts, with two dashes or, for [`SINGLE_DASH`], with one.
    long: &'static [&'static str],
    /// Letters, alone or in a cluster.
    short: &'static str,
}

/// Long options that count for every program.
const ANY: &[&str] =
    &["exec", "eval", "config", "plugin", "rsh", "shell", "require", "preload", "pager", "cmd"];

/// Tools that write long options with one dash.
const SINGLE_DASH: &[&str] =
    &["find", "go", "java", "javac", "terraform", "gcc", "cc", "clang", "g++", "clang++", "c++"];

const WIDENINGS: &[WideningOptions] = &[
    WideningOptions {
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
    WideningOptions {
        programs: &["cargo"],
        long: &["manifest-path", "target-dir", "out-dir", "artifact-dir"],
        short: "ZC",
    },
    WideningOptions {
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
    WideningOptions {
        programs: &["make", "gmake", "ninja"],
        long: &["file", "makefile", "directory", "include-dir", "environment-overrides", "what-if"],
        short: "fCIEe",
    },
    WideningOptions {
        programs: &["just", "task"],
        long: &["justfile", "working-directory", "set", "taskfile", "dir"],
        short: "fdt",
    },
    WideningOptions {
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
    WideningOptions {
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
    WideningOptions { programs: &["rg"], long: &["pre", "hostname-bin"], short: "" },
    WideningOptions { programs: &["sort"], long: &["compress-program", "output"], short: "oT" },
    WideningOptions {
        programs: &["rsync"],
        long: &["rsync-path", "remove-source-files", "delete"],
        short: "e",
    },
    WideningOptions { programs: &["scp", "sftp"], long: &[], short: "oSFDJ" },
    WideningOptions {
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
    WideningOptions {
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
    WideningOptions {
        programs: &["go"],
        long: &["exec", "toolexec", "vettool", "overlay", "modfile", "C", "o", "ldflags", "gccgoflags"],
        short: "",
    },
    WideningOptions {
        programs: &["find"],
        long: &["delete", "fprint", "fprint0", "fprintf", "fls", "files0-from"],
        short: "",
    },
    WideningOptions {
        programs: &["pytest", "py.test"],
        long: &["rootdir", "confcutdir", "override-ini"],
        short: "cpo",
    },
    WideningOptions {
        programs: &["jest", "vitest", "mocha"],
        long: &["rootDir", "root", "globalSetup", "runner", "file"],
        short: "cr",
    },
    WideningOptions {
        programs: &["eslint", "prettier", "stylelint"],
        long: &["rulesdir", "parser", "resolve-plugins-relative-to", "format"],
        short: "cf",
    },
    WideningOptions {
        programs: &["pip"],
        long: &["index-url", "extra-index-url", "target", "prefix", "root", "python", "user"],
        short: "iter",
    },
    // bash evaluates the subscript of a variable's name: `test -v 'a[$(x)]'`.
    WideningOptions { programs: &["test", "printf"], long: &[], short: "v" },
    WideningOptions { programs: &["tree"], long: &["output"], short: "o" },
    WideningOptions { programs: &["date"], long: &["set"], short: "s" },
    WideningOptions { programs: &["zip"], long: &["unzip-command"], short: "T" },
    WideningOptions { programs: &["terraform"], long: &["chdir"], short: "" },
    WideningOptions {
        programs: &["gcc", "cc", "clang", "g++", "clang++", "c++"],
        long: &["wrapper", "fplugin", "specs", "B", "o"],
        short: "",
    },
];

/// Returns the first of `words`, which follow those of the rule, that makes `program` do something else.
pub(super) fn widening<'a>(program: &str, words: &'a [String]) -> Option<&'a str> {
    let rows: Vec<&WideningOptions> =
        WIDENINGS.iter().filter(|row| row.programs.contains(&program)).collect();
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
    // Arguments after `--` go to the tests that cargo runs; elsewhere `--` could be the value of an option.
    let own = if program == "cargo" { words.iter().position(|word| word == "--") } else { None };
    words[..own.unwrap_or(words.len())].iter().map(String::as_str).find(|word| widens(word))
}

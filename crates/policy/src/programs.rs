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
    widening: WideningTable,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TableFile {
    program: Vec<ProgramRow>,
    variable: Vec<VariableRow>,
    widening: WideningTable,
}

/// Options that widen an allow rule, unless the rule contains them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WideningTable {
    any: Vec<String>,
    single_dash: Vec<String>,
    options: Vec<WideningOptions>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WideningOptions {
    programs: Vec<String>,
    #[serde(default)]
    long: Vec<String>,
    #[serde(default)]
    short: String,
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
    let TableFile { program, variable: variables, widening } = file;
    let mut table = ProgramTable { rows: Vec::new(), programs: HashMap::new(), variables, widening };
    for row in program {
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

/// Returns the first of `words`, which follow those of the rule, that makes `program` do something else.
pub(super) fn widening<'a>(program: &str, words: &'a [String]) -> Option<&'a str> {
    let WideningTable { any, single_dash, options } = &TABLE.widening;
    let is_listed = |programs: &[String]| programs.iter().any(|known| known == program);
    let rows: Vec<&WideningOptions> = options.iter().filter(|row| is_listed(&row.programs)).collect();
    let single_dash = is_listed(single_dash);
    let long = |name: &str| {
        let name = name.split('=').next().unwrap_or(name);
        !name.is_empty()
            && rows.iter().flat_map(|row| &row.long).chain(any).any(|long| long.starts_with(name))
    };
    let widens = |word: &str| {
        if let Some(name) = word.strip_prefix("--") {
            return long(name);
        }
        match word.strip_prefix('-') {
            Some(name) if single_dash => {
                let name = name.split('=').next().unwrap_or(name);
                rows.iter().flat_map(|row| &row.long).any(|long| *long == name)
            }
            Some(letters) => rows.iter().any(|row| letters.contains(|c| row.short.contains(c))),
            // `make SHELL=…`, and a toolchain for cargo.
            None => match program {
                "make" | "gmake" | "just" => word.contains('='),
                "cargo" => word.starts_with('+'),
                _ => word.starts_with('@') && single_dash,
            },
        }
    };
    // Arguments after `--` go to the tests that cargo runs; elsewhere `--` could be the value of an option.
    let own = if program == "cargo" { words.iter().position(|word| word == "--") } else { None };
    words[..own.unwrap_or(words.len())].iter().map(String::as_str).find(|word| widens(word))
}

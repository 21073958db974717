//! The effects of a command on files: whether it only reads, and which of its words name files that it
//! writes. The table is in `effects.toml`.

use std::sync::LazyLock;

use serde::Deserialize;

use super::{ShellScript, ShellWord, SimpleCommand};
use crate::git;
use crate::programs::{LaunchMode, base, file_name, runs};

/// The kind of change that a command makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FileEffect {
    Reads,
    Fetches,
    Moves,
    Deletes,
    Changes,
    /// The effect of a program that is not in the table.
    #[serde(skip)]
    Unknown,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum WrittenOperands {
    #[default]
    None,
    Last,
    All,
    /// All operands after the first.
    After,
}

const TARS: &[&str] = &["tar", "bsdtar", "gtar"];
/// Letters of tar that take a value.
const TAR_VALUES: &str = "fCbTXgIVNLFHK";

/// The origin of what a program writes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ContentOrigin {
    /// Its input: a copy, another name, or text.
    #[default]
    Given,
    /// Made from its input: a program from its source.
    Made,
    /// Unpacked from its input, under names that are not in the command.
    Unpacked,
    /// Nothing, or content that nobody chooses.
    Nothing,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProgramEffects {
    names: Vec<String>,
    effect: FileEffect,
    #[serde(default)]
    writes: WrittenOperands,
    #[serde(default)]
    content: ContentOrigin,
    #[serde(default)]
    options: Vec<String>,
    #[serde(default)]
    flags: Vec<String>,
    #[serde(default)]
    prefixes: Vec<String>,
}

static PROGRAMS: LazyLock<Vec<ProgramEffects>> = LazyLock::new(|| {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct EffectTableFile {
        program: Vec<ProgramEffects>,
    }
    let file: EffectTableFile =
        toml::from_str(include_str!("effects.toml")).expect("the table is part of the program, and tested");
    file.program
});

/// Reports whether the program is known to change nothing, unless an option makes it write a file.
pub(crate) fn only_reads(program: &str) -> bool {
    row(program).is_some_and(|row| row.effect == FileEffect::Reads)
}

/// Returns the origin of a program's output files; `None` for a program that is not in the table.
pub(crate) fn content(program: &str) -> Option<ContentOrigin> {
    if program == "git" { Some(ContentOrigin::Given) } else { row(program).map(|row| row.content) }
}

fn row(program: &str) -> Option<&'static ProgramEffects> {
    PROGRAMS.iter().find(|row| row.names.iter().any(|name| name == program))
}

/// Returns the effects of all commands inside a text; the caller selects the most severe.
pub(crate) fn effects(script: &ShellScript) -> Vec<(FileEffect, String)> {
    let mut all: Vec<(FileEffect, String)> = script.commands.iter().filter_map(of_simple).collect();
    if script.opaque {
        all.push((FileEffect::Unknown, "it is unclear what it runs".to_owned()));
    }
    all
}

fn of_simple(simple: &SimpleCommand) -> Option<(FileEffect, String)> {
    let views = simple.views();
    let own = views.first()?;
    let name = file_name(&own[0].text);
    // The text of `sh -c` is a separate command in the same script.
    let hands_on = runs(&base(&name)) == Some(LaunchMode::Shell)
        && own[1..].iter().any(|word| word.text.starts_with('-') && word.text.ends_with('c'));
    let effect = match () {
        () if hands_on => FileEffect::Reads,
        () if simple.writes.iter().any(|file| is_file(file)) => FileEffect::Changes,
        () if views.len() > 1 => FileEffect::Unknown,
        () => of_words(&name, own),
    };
    Some((effect, name))
}

fn of_words(name: &str, own: &[ShellWord]) -> FileEffect {
    let words: Vec<&str> = own[1..].iter().map(|word| word.text.as_str()).collect();
    let operands = || words.iter().filter(|word| !word.starts_with('-'));
    match name {
        "git" => match operands().next().copied() {
            Some(subcommand) if git::only_reads(subcommand) && written(name, own).is_empty() => {
                FileEffect::Reads
            }
            Some("rm" | "clean") => FileEffect::Deletes,
            Some("mv") => FileEffect::Moves,
            _ => FileEffect::Changes,
        },
        "find" if words.contains(&"-delete") => FileEffect::Deletes,
        // Only programs of sed that print lines are known.
        "sed" => {
            let lines = |script: &&&str| script.chars().all(|c| c.is_ascii_digit() || ",$p; ".contains(c));
            let options = words.iter().filter(|word| word.starts_with('-'));
            let prints = operands().next().is_some_and(|script| lines(&script));
            let only_n = options.into_iter().all(|word| *word == "-n" || *word == "-nE" || *word == "-E");
            if prints && only_n { FileEffect::Reads } else { FileEffect::Changes }
        }
        name => match row(name) {
            None => FileEffect::Unknown,
            Some(row) if row.effect == FileEffect::Reads && !written(name, own).is_empty() => {
                FileEffect::Changes
            }
            Some(row) => row.effect,
        },
    }
}

/// Reports whether a target is a file, not a device such as `/dev/null` or the number of a descriptor.
pub(crate) fn is_file(target: &str) -> bool {
    let devices = ["/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty"];
    !devices.contains(&target) && !target.chars().all(|c| c.is_ascii_digit())
}

/// Returns the words of a command, which begins with its program, that name files it writes.
pub(crate) fn written<'a>(program: &str, words: &'a [ShellWord]) -> Vec<&'a str> {
    let arguments: Vec<&str> = words.iter().skip(1).map(|word| word.text.as_str()).collect();
    written_among(program, &arguments)
}

/// The same for the words after the program.
pub(crate) fn written_among<'a>(program: &str, arguments: &[&'a str]) -> Vec<&'a str> {
    if program == "git" {
        return git_writes(arguments);
    }
    let Some(row) = row(program) else { return Vec::new() };
    let mut files = Vec::new();
    let mut operands = Vec::new();
    let mut writes_all = row.writes == WrittenOperands::All;
    let mut only_operands = false;
    let mut at = 0;
    while let Some(word) = arguments.get(at).copied() {
        at += 1;
        if only_operands || !word.starts_with('-') || word == "-" {
            operands.push(word);
        } else if word == "--" {
            only_operands = true;
        } else {
            writes_all |= row.flags.iter().any(|flag| word == flag || is_glued(word, flag));
            match value(row, word) {
                Some("") => {
                    files.extend(arguments.get(at).copied());
                    at += 1;
                }
                Some(value) => files.push(value),
                None => {}
            }
        }
    }
    files.extend(
        arguments
            .iter()
            .filter_map(|word| row.prefixes.iter().find_map(|prefix| word.strip_prefix(prefix.as_str()))),
    );
    // `tar cf a b` is `tar -c -f a b`.
    if TARS.contains(&program)
        && let Some((cluster, rest)) = arguments.split_first()
        && !cluster.starts_with('-')
    {
        let values = cluster.chars().filter(|letter| TAR_VALUES.contains(*letter)).count();
        files.extend(rest.iter().take(values));
    }
    match row.writes {
        _ if writes_all => files.extend(operands),
        WrittenOperands::Last if operands.len() > 1 => files.extend(operands.last()),
        WrittenOperands::After => files.extend(operands.iter().skip(1)),
        _ => {}
    }
    files.retain(|file| is_file(file) && *file != "-");
    files
}

/// Returns the files that a subcommand of git writes in addition to the repository and the work tree.
fn git_writes<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    let mut operands = arguments.iter().copied().filter(|word| !word.starts_with('-'));
    let mut files: Vec<&str> = Vec::new();
    match operands.next() {
        Some("mv" | "init") => files.extend(operands),
        Some("clone" | "worktree" | "bundle") => files.extend(operands.skip(1)),
        _ => {}
    }
    files.extend(arguments.iter().filter_map(|word| word.strip_prefix("--output=")));
    let is_output = |word: &str| matches!(word, "-o" | "--output" | "--output-directory");
    files.extend(arguments.windows(2).filter(|pair| is_output(pair[0])).map(|pair| pair[1]));
    files
}

/// Reports whether a word is a flag with a value, such as `-i.bak` or `--in-place=.bak`.
fn is_glued(word: &str, flag: &str) -> bool {
    let rest = word.strip_prefix(flag);
    rest.is_some_and(
        |rest| if flag.starts_with("--") { rest.starts_with('=') } else { !word.starts_with("--") },
    )
}

/// Returns the value of an option that names a file; empty if it is the next word. `None` for another option.
fn value<'a>(row: &ProgramEffects, word: &'a str) -> Option<&'a str> {
    // `-out` is not `-o` with the value `ut`.
    if row.options.iter().any(|option| option == word) {
        return Some("");
    }
    row.options.iter().find_map(|option| {
        if let Some(name) = option.strip_prefix("--") {
            let given = word.strip_prefix("--")?;
            let (given, value) = given.split_once('=').unwrap_or((given, ""));
            // Long options may be abbreviated.
            return (!given.is_empty() && name.starts_with(given)).then_some(value);
        }
        if option.len() > 2 {
            return (word == option).then_some("");
        }
        // The letter, alone or at the end of a cluster, or with its value attached.
        let letters = word.strip_prefix('-').filter(|letters| !letters.starts_with('-'))?;
        letters.split_once(&option[1..]).map(|(_, value)| value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell;

    #[test]
    fn the_table_names_each_program_once() {
        let mut names: Vec<&String> = PROGRAMS.iter().flat_map(|row| &row.names).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
        for row in PROGRAMS.iter() {
            assert!(
                row.options.iter().chain(&row.flags).all(|option| option.starts_with('-')),
                "{:?}",
                row.names
            );
        }
    }

    #[test]
    fn written_files_are_found_by_position_and_by_option() {
        let cases: &[(&str, &[&str])] = &[
            ("uniq a", &[]),
            ("uniq -c a b", &["b"]),
            ("uniq -- a -b", &["-b"]),
            ("cp a b c", &["c"]),
            ("cp -t d a b", &["d", "b"]),
            ("cp --target-dir=d a", &["d"]),
            ("mv a b", &["a", "b"]),
            ("ln -s /etc/passwd x", &["x"]),
            ("sort -uo out in", &["out"]),
            ("sort -oout in", &["out"]),
            ("sort --output=out in", &["out"]),
            ("sort --outp out in", &["out"]),
            ("sort in", &[]),
            ("sed -n 1p a", &[]),
            ("sed -i s/a/b/ x", &["s/a/b/", "x"]),
            ("sed -i.bak s/a/b/ x", &["s/a/b/", "x"]),
            ("sed --in-place=.b s/a/b/ x", &["s/a/b/", "x"]),
            ("tee -a x y", &["x", "y"]),
            ("dd if=a of=b", &["b"]),
            ("find . -name a -fprint b", &["b"]),
            ("curl -so b u", &["b"]),
            ("curl u", &[]),
            ("tar -xzf a -C d", &["a", "d"]),
            ("tar czf a b", &["a"]),
            ("tar xfC a d b", &["a", "d"]),
            ("git mv a b", &["a", "b"]),
            ("git clone u d", &["d"]),
            ("git diff --output=a", &["a"]),
            ("git archive -o a HEAD", &["a"]),
            ("git log a", &[]),
            ("openssl enc -in a -out b", &["b"]),
            ("base64 -d -o b", &["b"]),
            ("cat a b", &[]),
            ("tee /dev/null", &[]),
        ];
        for (text, expected) in cases {
            let script = shell::read(text);
            let words = &script.commands[0].words;
            assert_eq!(written(&words[0].text, words), *expected, "{text}");
        }
    }

    #[test]
    fn effects_are_told_apart() {
        let cases: &[(&str, FileEffect)] = &[
            ("cat a", FileEffect::Reads),
            ("cat a > b", FileEffect::Changes),
            ("cat a 2>/dev/null", FileEffect::Reads),
            ("sed -n '1,20p' a", FileEffect::Reads),
            ("sed -n 'w x' a", FileEffect::Changes),
            ("uniq a b", FileEffect::Changes),
            ("rm a", FileEffect::Deletes),
            ("find . -delete", FileEffect::Deletes),
            ("git rm a", FileEffect::Deletes),
            ("git log", FileEffect::Reads),
            ("git mv a b", FileEffect::Moves),
            ("xargs rm", FileEffect::Unknown),
            ("curl u", FileEffect::Fetches),
            ("./x", FileEffect::Unknown),
        ];
        for (text, expected) in cases {
            assert_eq!(effects(&shell::read(text))[0].0, *expected, "{text}");
        }
    }
}

//! What no mutation of an allowed command may achieve, against a reference that was written for this test only.

use proptest::prelude::*;
use proptest::sample::select;

use super::*;

/// The words of a rule, and what may stand behind them.
const PREFIXES: &[(&[&str], &[&str])] = &[
    (&["cargo", "test"], &["", " --lib", " a b", " 'a b'", " -q", " -- --nocapture"]),
    (&["git", "log"], &["", " --oneline", " a b", " 'a b'", " -ps"]),
    (&["npm", "run", "build"], &["", " --silent", " a b", " 'a b'", " -s"]),
    (&["make", "all"], &["", " -k", " -j4", " -ks"]),
    (&["rg", "todo"], &["", " --hidden", " a b", " 'a b'", " -nl"]),
];

/// Anything that could make a shell run something else, or that only looks like what is allowed.
const SNIPPETS: &[&str] = &[
    ";", "&", "&&", "|", "||", "|&", "\n", "\r", "$(x)", "`x`", "$X", "${X}", "$'x'", "$\"x\"", "<", ">",
    ">>", "<<X", "<(x)", "*", "?", "[a]", "{a,b}", "~", "~/x", "!", "!!", "#", "#x", "'", "\"", "\\", "''",
    "\"\"", "' '", "\" \"", "\\ ", " ", "\t", "(", ")", "=", "X=1", "X=1 ", "\u{a0}", "\u{200b}", "\u{202e}",
    "\u{feff}", "\u{430}", "\u{ff1b}", "\0", "\u{1b}", "e", "; rm x", " && rm x", " | sh", " > x",
    "\"$(x)\"", "'a;b'", "\"a|b\"", "\\;", "^", "%", "@", "{", "}", "é", "/", "./", "-",
];

const BEFORE: &[&str] = &[
    "timeout 5 ",
    "nice ",
    "nice 5 ",
    "nice -5 ",
    "prlimit ",
    "nohup ",
    "env -i ",
    "sudo ",
    "env X=1 ",
    "X=1 ",
    "bash -c ",
    "sh ",
    "xargs ",
    "time ",
    "exec ",
    "eval ",
    "command ",
    "! ",
    "ssh h ",
    "find . -exec ",
    "docker run a ",
    "\\",
    "/bin/",
    "./",
    "npx ",
    "python -m ",
    "if ",
];

const WIDENING: &[&str] = &[
    "--config x",
    "--config=x",
    "--manifest-path /x",
    "--upload-pack=x",
    "--output=x",
    "--prefix /x",
    "-f x",
    "-C /x",
    "--pre x",
    "--eval x",
    "--pre=x",
    "--exec x",
    "--ext-diff",
    "--script-shell=x",
    "SHELL=x",
    "-- --x=y",
    "--x=y",
    "-- --logfile=/x",
    "-- -Clinker=x",
    "-qu x",
    "-Hx sh",
    "-kf x",
    "/x",
    "../x",
    "a/../../x",
    "--color=/x",
    "@x",
];

#[derive(Debug, Clone)]
enum Mutation {
    Insert(usize, &'static str),
    Before(&'static str),
    Behind(&'static str),
    Remove(usize),
    Quote(usize, char),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    prop_oneof![
        4 => (any::<usize>(), select(SNIPPETS)).prop_map(|(at, text)| Mutation::Insert(at, text)),
        2 => select(BEFORE).prop_map(Mutation::Before),
        2 => select(WIDENING).prop_map(Mutation::Behind),
        1 => any::<usize>().prop_map(Mutation::Remove),
        1 => (any::<usize>(), select(&['\'', '"'][..])).prop_map(|(n, mark)| Mutation::Quote(n, mark)),
    ]
}

fn mutate(text: &str, mutation: &Mutation) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    match mutation {
        Mutation::Insert(at, snippet) => {
            let at = at % (chars.len() + 1);
            chars.splice(at..at, snippet.chars());
        }
        Mutation::Before(before) => return format!("{before}{text}"),
        Mutation::Behind(option) => return format!("{text} {option}"),
        Mutation::Remove(at) if !chars.is_empty() => {
            chars.remove(at % chars.len());
        }
        Mutation::Remove(_) => {}
        Mutation::Quote(n, mark) => {
            let mut words: Vec<String> = text.split(' ').map(str::to_owned).collect();
            let n = n % words.len();
            words[n] = format!("{mark}{}{mark}", words[n]);
            return words.join(" ");
        }
    }
    chars.into_iter().collect()
}

/// The words of a text that is nothing but words with literal quoting, by cutting it at the front with a list of what
/// is forbidden; the parser under test goes by a list of what is permitted.
fn reference(text: &str) -> Option<Vec<String>> {
    let unseen = ['\u{a0}', '\u{200b}', '\u{202e}', '\u{feff}', '\n', '\r', '\0', '\u{1b}'];
    if text.contains(unseen) {
        return None;
    }
    let mut words = Vec::new();
    let mut rest = text.trim_start_matches([' ', '\t']);
    while !rest.is_empty() {
        let mut word = String::new();
        if rest.starts_with(['~', '=', '^']) {
            return None;
        }
        while let Some(first) = rest.chars().next() {
            match first {
                ' ' | '\t' => break,
                '\'' => {
                    let (inside, after) = rest[1..].split_once('\'')?;
                    word.push_str(inside);
                    rest = after;
                }
                '"' => rest = reference_double(&rest[1..], &mut word)?,
                '\\' => {
                    let escaped = rest[1..].chars().next()?;
                    word.push(escaped);
                    rest = &rest[1 + escaped.len_utf8()..];
                }
                ';' | '&' | '|' | '<' | '>' | '(' | ')' | '$' | '`' | '*' | '?' | '[' | ']' | '{' | '}'
                | '!' | '#' => {
                    return None;
                }
                other => {
                    word.push(other);
                    rest = &rest[other.len_utf8()..];
                }
            }
        }
        words.push(word);
        rest = rest.trim_start_matches([' ', '\t']);
    }
    Some(words)
}

fn reference_double<'a>(text: &'a str, word: &mut String) -> Option<&'a str> {
    let mut rest = text;
    loop {
        let at = rest.find(['"', '\\', '$', '`', '!'])?;
        word.push_str(&rest[..at]);
        match &rest[at..] {
            after if after.starts_with('"') => return Some(&after[1..]),
            after
                if after.starts_with("\\\"")
                    || after.starts_with("\\\\")
                    || after.starts_with("\\$")
                    || after.starts_with("\\`") =>
            {
                word.push_str(&after[1..2]);
                rest = &after[2..];
            }
            after if after.starts_with('\\') && !after.starts_with("\\!") => {
                word.push('\\');
                rest = &after[1..];
            }
            _ => return None,
        }
    }
}

/// Whether the text runs the program of the prefix with its leading words, and nothing else.
fn runs_only(text: &str, prefix: &[&str]) -> bool {
    let Some(words) = reference(text) else { return false };
    let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
    loop {
        let wrapper = match words.as_slice() {
            ["timeout", "5", ..] | ["nice", "-5", ..] => 2,
            ["nice" | "nohup", ..] => 1,
            ["env", rest @ ..] => 1 + rest.iter().take_while(|word| **word == "-i").count(),
            _ => break,
        };
        words.drain(..wrapper);
    }
    words.starts_with(prefix) && !dangerous(&words[prefix.len()..], prefix[0])
}

/// Which of the options in `WIDENING` matter to which program.
fn dangerous(words: &[&str], program: &str) -> bool {
    let options: &[&str] = match program {
        "cargo" => &["--manifest-path", "-C"],
        "git" => &["--upload-pack=x", "--output=x", "--ext-diff"],
        "npm" => &["--prefix", "--script-shell=x", "-C"],
        "make" => &["-f", "-C", "SHELL=x"],
        _ => &["--pre", "--pre=x"],
    };
    let any = ["--config", "--config=x", "--eval", "--exec", "--x=y", "--logfile=/x", "-Clinker=x", "-kf"];
    let leaves = |word: &str| {
        word.starts_with(['/', '@'])
            || word.split('/').any(|name| name == "..")
            || (word.starts_with("--") && word.contains("=/"))
    };
    let is_target = |word: &str| program == "make" && !word.starts_with('-');
    words.iter().enumerate().any(|(at, word)| {
        // `rg -e` takes a text.
        let is_text =
            at > 0 && program == "rg" && words[at - 1].starts_with('-') && words[at - 1].ends_with('e');
        let is_program = matches!(*word, "-qu" | "-Hx") && program != "rg";
        options.contains(word)
            || any.contains(word)
            || is_program
            || (leaves(word) && !is_text)
            || is_target(word)
    })
}

/// Ways to run `rm x` that leave it readable; each takes the text of the one inside.
const DODGES: &[fn(&str) -> String] = &[
    |inner| format!("ls; {inner}"),
    |inner| format!("ls && {inner} | cat"),
    |inner| format!("true\n{inner}"),
    |inner| format!("( {inner} )"),
    |inner| format!("echo $({inner})"),
    |inner| format!("if {inner}; then ls; fi"),
    |inner| format!("X=1 {inner}"),
    |inner| format!("cat <({inner})"),
    |inner| format!("2>/dev/null {inner}"),
    |inner| format!("sh -c '{}'", inner.replace('\'', r"'\''")),
    |inner| format!("sudo -u bob bash -lc '{}'", inner.replace('\'', r"'\''")),
    |inner| format!("eval '{}'", inner.replace('\'', r"'\''")),
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn no_mutation_of_an_allowed_command_runs_anything_else(
        (prefix, behind) in select(PREFIXES).prop_flat_map(|(prefix, behind)| (Just(prefix), select(behind))),
        mutations in prop::collection::vec(mutation(), 1..5),
    ) {
        let list: Vec<String> = prefix.iter().map(|word| format!("'{word}'")).collect();
        let rules = one(&format!("allow: command = [{}]; risk = 'critical'", list.join(", ")));
        let command = format!("{}{behind}", prefix.join(" "));
        prop_assert_eq!(outcome(&rules, &running(&command)), "allow");
        let mutated = mutations.iter().fold(command, |text, mutation| mutate(&text, mutation));
        if outcome(&rules, &running(&mutated)) == "allow" {
            prop_assert!(runs_only(&mutated, prefix), "{mutated:?} is allowed");
        }
    }

    #[test]
    fn a_denied_command_is_found_however_deep(dodges in prop::collection::vec(select(DODGES), 0..5)) {
        let command = dodges.iter().fold("rm x".to_owned(), |inner, dodge| dodge(&inner));
        prop_assert_eq!(outcome(&one("deny: command = 'rm x'"), &running(&command)), "deny", "{}", command);
    }

    #[test]
    fn nothing_that_an_agent_writes_makes_it_panic(
        command in any::<String>(),
        shellish in "[a-z '\"\\\\$`(){}<>|&;*\\[\\]\n=!#~é-]{0,60}",
        path in any::<String>(),
        diff in any::<String>(),
    ) {
        let rules = rules("
            [[rule]]
            then = 'deny'
            command = 'a b -rf --force'
            [[rule]]
            then = 'deny'
            path = '**/[a-z]*?x'
            [[rule]]
            then = 'allow'
            command = 'a'
            max_diff_lines = 5
            [[rule]]
            then = 'allow'
            path = '**'");
        for command in [command, shellish] {
            let subject = PolicyRequest {
                agent: Some("claude".to_owned()),
                tool: Some("edit".to_owned()),
                command: Some(command),
                paths: vec![path.clone()],
                diff: Some(diff.clone()),
                ..touching(std::path::Path::new("/nowhere/ws"), "edit", &[]).subject().clone()
            };
            let request = resolve(subject);
            let assessment = assess(&request);
            decide(&rules, &request, &assessment, NOW);
            explain(&rules, &request, &assessment, NOW);
            proposal(&request, &assessment).ok();
        }
    }
}

//! Commands that run the output of another command, in any form: a pipe, a substitution, or a file in between.

use super::RiskFindings;
use crate::programs::{LaunchMode, base, file_name, runs};
use crate::shell::effects::written;
use crate::shell::{ShellScript, ShellWord, SimpleCommand};
use intercom_types::Risk;

const FETCHERS: &[&str] = &[
    "curl", "wget", "fetch", "aria2c", "http", "https", "xh", "nc", "ncat", "netcat", "socat", "scp", "sftp",
    "ftp",
];
/// Operands that mean the standard input.
const STDIN: &[&str] = &["-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"];

pub(super) fn assess_downloads(script: &ShellScript, found: &mut RiskFindings) {
    let views: Vec<&[ShellWord]> = script.commands.iter().flat_map(SimpleCommand::views).collect();
    let runs_code = |view: &&&[ShellWord]| is_interpreter(view);
    let is_piped = script.commands.iter().any(|simple| simple.piped);
    let is_fed = is_piped
        && (views.iter().filter(runs_code).any(|view| reads_input(view))
            || views.iter().any(|view| takes_input(view)));
    let is_built = views.iter().filter(runs_code).any(|view| view[1..].iter().any(|word| word.expanded));
    let downloads = views.iter().any(|view| is_fetcher(view));
    if downloads && (is_fed || is_built || runs_file(script, &views)) {
        found.add(Risk::Critical, "runs what it downloads");
    } else if is_fed {
        found.add(Risk::High, "runs what another command writes");
    } else if is_built {
        found.add(Risk::High, "runs code that is made on the spot");
    }
}

fn is_fetcher(view: &[ShellWord]) -> bool {
    FETCHERS.contains(&file_name(&view[0].text).as_str())
        || view.iter().any(|word| word.text.starts_with("/dev/tcp/"))
}

fn is_interpreter(view: &[ShellWord]) -> bool {
    let name = base(&view[0].text);
    matches!(name.as_str(), "eval" | "source" | ".")
        || matches!(runs(&name), Some(LaunchMode::Shell | LaunchMode::Code(_)))
}

/// Reports whether a program other than an interpreter runs its standard input, now or later.
fn takes_input(view: &[ShellWord]) -> bool {
    let name = base(&view[0].text);
    let is_input = |word: &str| STDIN.contains(&word);
    let has_file = |option: &str| {
        view.windows(2).any(|pair| pair[0].text == option && is_input(&pair[1].text))
            || view[1..].iter().any(|word| word.text.strip_prefix(option).is_some_and(is_input))
    };
    match name.as_str() {
        "make" | "gmake" | "sed" | "awk" | "gawk" | "mawk" => ["-f", "--file="].into_iter().any(has_file),
        "at" | "batch" => true,
        "crontab" => view[1..].iter().any(|word| is_input(&word.text)),
        _ => false,
    }
}

/// Reports whether it runs its standard input: without a script, or with `-s`, which makes all operands arguments.
fn reads_input(view: &[ShellWord]) -> bool {
    let arguments = &view[1..];
    let is_option = |word: &ShellWord| word.text.starts_with(['-', '+']) && word.text.len() > 1;
    let script = arguments.iter().find(|word| !is_option(word));
    let has_s = arguments
        .iter()
        .take_while(|word| is_option(word))
        .any(|word| !word.text.starts_with("--") && word.text.starts_with('-') && word.text.contains('s'));
    script.is_none_or(|script| STDIN.contains(&script.text.as_str()))
        || (has_s && runs(&base(&view[0].text)) == Some(LaunchMode::Shell))
}

/// Reports whether a downloaded file is run by another command, or made executable.
fn runs_file(script: &ShellScript, views: &[&[ShellWord]]) -> bool {
    let mut files: Vec<&str> = Vec::new();
    for simple in &script.commands {
        let own = simple.views();
        let Some(own) = own.first() else { continue };
        let name = file_name(&own[0].text);
        let fetches = is_fetcher(own);
        // The output of a download may reach a file through a pipe as well.
        if fetches || simple.piped {
            files.extend(simple.writes.iter().map(String::as_str));
            let last = simple.words.len() - own.len();
            files.extend(written(&name, &simple.words[last..]));
        }
        if fetches {
            let urls = simple.words.iter().filter(|word| word.text.contains('/'));
            files.extend(urls.filter_map(|word| word.text.rsplit('/').next()));
        }
    }
    let same = |word: &ShellWord| {
        let plain = |text: &str| text.trim_start_matches("./").to_owned();
        files.iter().any(|file| !file.is_empty() && plain(file) == plain(&word.text))
    };
    views.iter().any(|view| {
        let makes_executable = file_name(&view[0].text) == "chmod";
        same(&view[0]) || ((is_interpreter(view) || makes_executable) && view[1..].iter().any(same))
    })
}

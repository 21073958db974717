//! The checks with an ordinary build: over the kept corpus, and over random mutations of it.
//!
//! `INTERCOM_FUZZ_RUNS` sets how many mutations each target gets, `INTERCOM_FUZZ_TARGET` chooses one target, and
//! `INTERCOM_FUZZ_SEED` sets another seed.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::TARGETS;

const DEFAULT_RUNS: u64 = 1500;
const DEFAULT_SEED: u64 = 20_261_118;
/// Inputs do not grow beyond this.
const MAX_INPUT: usize = 4096;
/// Any input of this size takes a tiny part of it, also on a busy machine.
const MAX_TIME: Duration = Duration::from_secs(20);
/// Texts that mean something to one reader or another.
const TOKENS: &[&str] = &[
    "\n",
    "\r\n",
    "\0",
    "\"",
    "'",
    "`",
    "\\",
    "$(",
    ")",
    "${",
    "}",
    "<<E\n",
    "\nE\n",
    "#",
    ";;",
    "&&",
    "|",
    "<(",
    "$'",
    "if ",
    "fi",
    "case x in ",
    "esac",
    "{",
    "[",
    "]",
    ":",
    ",",
    "=",
    "-",
    "--- a/",
    "+++ b/",
    "@@ -1 +1 @@\n",
    "diff --git a/x b/x",
    "Content-Length: 3\r\n\r\n",
    "data: ",
    "id: ",
    "\"id\":",
    "\"method\":",
    "\"params\":",
    "out.00000000000000000001",
    "token=",
    "password: ",
    "ghp_",
    "-----BEGIN PRIVATE KEY-----",
    "-----END PRIVATE KEY-----",
    "://u:p@",
    "[agents.a]\n",
    "é",
    "\u{2028}",
    "\u{feff}",
    "18446744073709551615",
    "-1",
    "null",
    "rm -rf /",
    "sh -c ",
    "env -S",
    "eval ",
    "xargs ",
];

/// A small generator of numbers: xorshift64*.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16;
        usize::try_from(number % (limit.max(1) as u64)).unwrap()
    }

    fn byte(&mut self) -> u8 {
        u8::try_from(self.below(256)).unwrap()
    }

    /// A part of the bytes, often a small one.
    fn part<'a>(&mut self, of: &'a [u8]) -> &'a [u8] {
        let start = self.below(of.len() + 1);
        let longest = if self.below(2) == 0 { 8 } else { of.len() };
        let length = self.below((of.len() - start).min(longest) + 1);
        &of[start..start + length]
    }

    /// Changes the input in one to eight places.
    fn mutate(&mut self, input: &mut Vec<u8>, corpus: &[Vec<u8>]) {
        for _ in 0..=self.below(8) {
            let at = self.below(input.len() + 1);
            match self.below(7) {
                0 => input.insert(at, self.byte()),
                1 if at < input.len() => input[at] = self.byte(),
                2 if at < input.len() => input[at] ^= 1 << self.below(8),
                3 => {
                    let end = at + self.below((input.len() - at).min(16) + 1);
                    input.drain(at..end);
                }
                4 => {
                    let copy = self.part(input).to_owned();
                    input.splice(at..at, copy);
                }
                5 => {
                    let other = &corpus[self.below(corpus.len())];
                    input.splice(at..at, self.part(other).iter().copied());
                }
                _ => drop(input.splice(at..at, TOKENS[self.below(TOKENS.len())].bytes())),
            }
        }
        input.truncate(MAX_INPUT);
    }
}

/// Prints the input if the check panics.
struct Report<'a> {
    target: &'a str,
    input: &'a [u8],
}

impl Drop for Report<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{} fails with b\"{}\"", self.target, self.input.escape_ascii());
        }
    }
}

fn check(target: &str, check: fn(&[u8]), input: &[u8]) {
    let _report = Report { target, input };
    let start = Instant::now();
    check(input);
    assert!(start.elapsed() < MAX_TIME, "took {:?}", start.elapsed());
}

fn fuzz_directory() -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz")).to_owned()
}

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let mut files: Vec<PathBuf> = fs::read_dir(fuzz_directory().join("corpus").join(target))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort_unstable();
    assert!(!files.is_empty(), "{target} has no corpus");
    files.iter().map(|file| fs::read(file).unwrap()).collect()
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().expect("a number"))
}

#[test]
fn the_kept_corpus_and_mutations_of_it_break_no_promise() {
    let runs = setting("INTERCOM_FUZZ_RUNS").unwrap_or(DEFAULT_RUNS);
    let seed = setting("INTERCOM_FUZZ_SEED").unwrap_or(DEFAULT_SEED);
    let chosen = std::env::var("INTERCOM_FUZZ_TARGET").ok();
    let chosen = TARGETS.iter().filter(|(name, _)| chosen.as_deref().is_none_or(|chosen| chosen == *name));
    let mut count = 0;
    for (name, body) in chosen {
        count += 1;
        let start = Instant::now();
        let corpus = corpus(name);
        for input in &corpus {
            check(name, *body, input);
        }
        let mut chance = Chance(seed | 1);
        for _ in 0..runs {
            let mut input = corpus[chance.below(corpus.len())].clone();
            chance.mutate(&mut input, &corpus);
            check(name, *body, &input);
        }
        eprintln!("{name}: {} files, {runs} mutations, {:?}", corpus.len(), start.elapsed());
    }
    assert!(count > 0, "INTERCOM_FUZZ_TARGET names no target");
}

#[test]
fn every_target_has_its_file_and_its_corpus_and_nothing_else_has() {
    let names: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(names.len(), TARGETS.len(), "a name stands for two targets");
    let entries = |directory: &str| -> BTreeSet<String> {
        let entries = fs::read_dir(fuzz_directory().join(directory)).unwrap();
        let name = |path: PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
        entries.map(|entry| name(entry.unwrap().path())).collect()
    };
    assert_eq!(entries("corpus"), names);
    assert_eq!(entries("fuzz_targets"), names);
}

//! What the scripts of both fixture agents have in common.

use std::io::{self, Write};
use std::process::ExitCode;
use std::{fs, process};

use nix::errno::Errno;
use serde_json::Value;

/// Floods are written in blocks of about this size.
pub(crate) const BLOCK: usize = 64 * 1024;

/// Where a flood counts; as wide as the counter.
pub(crate) const COUNTER: &str = "0000000000";

/// Why the agent ends before its last step.
#[derive(Debug)]
pub(crate) enum Stop {
    Exit(u8),
    Script(String),
    Io(io::Error),
}

impl From<String> for Stop {
    fn from(problem: String) -> Self {
        Self::Script(problem)
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Self {
        Self::Io(errno.into())
    }
}

/// How the program called this ends.
pub(crate) fn ended(program: &str, outcome: Result<(), Stop>) -> ExitCode {
    let (problem, code) = match outcome {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Stop::Exit(code)) => return ExitCode::from(code),
        Err(Stop::Script(problem)) => (problem, 64),
        Err(Stop::Io(error)) => (error.to_string(), 74),
    };
    eprintln!("{program}: {problem}");
    ExitCode::from(code)
}

pub(crate) fn split(text: &str) -> (&str, &str) {
    text.split_once(':').unwrap_or((text, ""))
}

pub(crate) fn number<N: std::str::FromStr>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| format!("{text:?} is not a fitting number"))
}

pub(crate) fn number_or<N: std::str::FromStr>(text: &str, default: N) -> Result<N, String> {
    if text.is_empty() { Ok(default) } else { number(text) }
}

/// `#7` is a number, all else a string.
pub(crate) fn parse_id(text: &str) -> Value {
    let number = text.strip_prefix('#').and_then(|digits| serde_json::from_str(digits).ok());
    number.filter(Value::is_number).unwrap_or_else(|| text.into())
}

pub(crate) fn unhex(text: &str) -> Result<Vec<u8>, String> {
    let digits = text.chars().filter(|digit| !digit.is_whitespace()).map(|digit| digit.to_digit(16));
    let digits: Vec<u32> = digits.collect::<Option<_>>().ok_or("not hexadecimal")?;
    let (pairs, rest) = digits.as_chunks::<2>();
    if !rest.is_empty() {
        return Err("half a byte is left over".into());
    }
    pairs.iter().map(|[high, low]| u8::try_from(high * 16 + low).map_err(|error| error.to_string())).collect()
}

/// Adds one to a decimal number, in place: much cheaper than formatting it.
pub(crate) fn increment(digits: &mut [u8]) {
    for digit in digits.iter_mut().rev() {
        if *digit < b'9' {
            *digit += 1;
            return;
        }
        *digit = b'0';
    }
}

pub(crate) fn flood_stderr(mut bytes: usize) -> io::Result<()> {
    let block = format!("{}\n", "e".repeat(99)).repeat(BLOCK / 100).into_bytes();
    while bytes > 0 {
        let part = bytes.min(block.len());
        io::stderr().write_all(&block[..part])?;
        bytes -= part;
    }
    Ok(())
}

/// Whole at once for whoever waits for it.
pub(crate) fn pid_file(path: &str) -> io::Result<()> {
    let unfinished = format!("{path}.unfinished");
    fs::write(&unfinished, process::id().to_string())?;
    fs::rename(unfinished, path)
}

//! The only module that prints: data to stdout, messages to stderr.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use super::gutter::advice_lines;
use super::terminal::stderr_columns;
use intercom_types::text::escape_json;

/// The error for a stdout that its reader has closed (`intercom logs … | head`). It ends the command without a message
/// and with success.
#[derive(Debug)]
pub(super) struct StdoutClosed;

impl fmt::Display for StdoutClosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("stdout was closed")
    }
}

impl std::error::Error for StdoutClosed {}

/// True once there is data on stdout.
static PRINTED: AtomicBool = AtomicBool::new(false);

/// Prints an error as JSON, unless something was printed before: one answer is one document.
pub(super) fn print_error(json: &str) {
    if !PRINTED.load(Ordering::Relaxed) {
        print_json(json).ok(); // the error is on stderr as well
    }
}

/// True while the last line on stdout has no end.
static LINE_IS_OPEN: AtomicBool = AtomicBool::new(false);

/// Ends an unfinished line on stdout, and returns whether there was one.
pub(super) fn end_line() -> bool {
    let is_open = LINE_IS_OPEN.swap(false, Ordering::Relaxed);
    if is_open {
        draw("\n").ok(); // there is no other place to report it
    }
    is_open
}

/// Prints lines of data; a missing last line feed is added, an empty text prints nothing.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    PRINTED.fetch_or(!text.is_empty(), Ordering::Relaxed);
    write_to(&mut io::stdout().lock(), text)
}

/// Prints JSON: unchanged to a program, and to a terminal with everything escaped that could deceive the person before
/// it.
pub(super) fn print_json(text: &str) -> anyhow::Result<()> {
    if io::stdout().is_terminal() { print(&escape_json(text)) } else { print(text) }
}

/// Writes to the terminal unchanged, without adding a line feed.
pub(super) fn draw(text: &str) -> anyhow::Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    let mut stdout = io::stdout().lock();
    LINE_IS_OPEN.store(!text.ends_with('\n'), Ordering::Relaxed);
    settle(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()))
}

/// Prints a message that is not data.
pub(super) fn print_note(text: &str) {
    writeln!(io::stderr().lock(), "{text}").ok(); // there is no other place to report it
}

/// Prints advice on the next step, wrapped between words.
pub(super) fn advise(text: &str) {
    print_note(&advice_lines(text, stderr_columns()).join("\n"));
}

/// Replaces the last line of the terminal on stderr; nothing clears it.
pub(super) fn replace_line(text: &str) {
    let mut stderr = io::stderr().lock();
    write!(stderr, "\r\x1b[K{text}").and_then(|()| stderr.flush()).ok(); // stderr may be closed
}

fn write_to(target: &mut impl Write, text: &str) -> anyhow::Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    let end: &[u8] = if text.ends_with('\n') { b"" } else { b"\n" };
    settle(
        target.write_all(text.as_bytes()).and_then(|()| target.write_all(end)).and_then(|()| target.flush()),
    )
}

fn settle(written: io::Result<()>) -> anyhow::Result<()> {
    written.map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => anyhow::Error::new(StdoutClosed),
        _ => anyhow::Error::new(error).context("could not write to stdout"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_feed_is_added_once() {
        for (text, expected) in [("", ""), ("a", "a\n"), ("a\n", "a\n"), ("a\nb", "a\nb\n")] {
            let mut target = Vec::new();
            write_to(&mut target, text).unwrap();
            assert_eq!(target, expected.as_bytes());
        }
    }

    #[test]
    fn a_closed_reader_is_told_apart_from_other_errors() {
        struct Broken(io::ErrorKind);
        impl Write for Broken {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(self.0.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        assert!(write_to(&mut Broken(io::ErrorKind::BrokenPipe), "x").unwrap_err().is::<StdoutClosed>());
        assert!(!write_to(&mut Broken(io::ErrorKind::StorageFull), "x").unwrap_err().is::<StdoutClosed>());
    }
}

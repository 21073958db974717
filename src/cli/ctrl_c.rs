//! Ctrl-C: the command ends at once, with the exit code of an interrupted program and a note that the agent keeps
//! running.

use std::fmt;
use std::io::{self, IsTerminal as _};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Duration;

use super::{CliContext, output};
use intercom_types::text::{clean, shell_word};

/// The exit code of a program that SIGINT has ended, as shells count.
pub(super) const EXIT: u8 = 130;

/// The time limit of the note: the reader of our output may have stopped reading.
const NOTE_TIMEOUT: Duration = Duration::from_millis(200);

/// The note that is printed at the end. Locked only to copy it.
static NOTE: Mutex<Option<String>> = Mutex::new(None);

/// The error of a command that the person has ended.
#[derive(Debug)]
pub(super) struct InterruptedByUser;

impl fmt::Display for InterruptedByUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for InterruptedByUser {}

/// Sets the note that is printed if this command is interrupted from here on.
pub(super) fn set_note(text: String) {
    *NOTE.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
}

/// Sets the note about a session: its agent keeps running without this command.
pub(super) fn set_session_note(session: &str, cx: &CliContext) {
    let (name, call) = (shell_word(&clean(session)), &cx.command_prefix);
    set_note(format!(
        "the agent of {name} is not stopped; follow it: {call} logs -f {name}; stop it: {call} stop {name}"
    ));
}

/// Ends this process at the next SIGINT. A thread of its own waits for it, so that a command that reads from its
/// terminal or writes into a full pipe ends as well.
pub(super) fn end_on_ctrl_c() {
    if is_ignored() {
        return; // a shell has started us in the background
    }
    let wait = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
        // Without a runtime there is no handler, and the system ends the process without a note.
        let Ok(runtime) = runtime else { return };
        if runtime.block_on(tokio::signal::ctrl_c()).is_ok() {
            end();
        }
    };
    std::thread::Builder::new().name("ctrl-c".to_owned()).spawn(wait).ok(); // as above
}

fn end() {
    let (sender, heard) = mpsc::channel();
    let last_words = move || {
        let ended_line = output::end_line();
        // The terminal prints `^C` at the cursor.
        if io::stderr().is_terminal() && !ended_line {
            output::print_note("");
        }
        let note = NOTE.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(note) = note {
            output::advise(&note);
        }
        sender.send(()).ok(); // the time limit may be over
    };
    if std::thread::Builder::new().spawn(last_words).is_ok() {
        heard.recv_timeout(NOTE_TIMEOUT).ok(); // the process ends either way
    }
    std::process::exit(i32::from(EXIT));
}

/// Returns true if this process was started with SIGINT ignored.
fn is_ignored() -> bool {
    const SIGINT_BIT: u64 = 1 << 1;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & SIGINT_BIT != 0)
}

//! Ctrl-C: the command ends at once, with the exit code of an interrupted program and a word about the agent, which runs on.

use std::fmt;
use std::io::{self, IsTerminal as _};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Duration;

use super::{CliContext, output};
use intercom_types::text::{clean, shell_word};

/// The exit code of a program that SIGINT has ended, as shells count.
pub(super) const EXIT: u8 = 130;

/// The last words may take this long: whoever reads our output may have stopped reading.
const NOTE_TIMEOUT: Duration = Duration::from_millis(200);

/// The word that is said at the end. Held for the moment of a copy.
static NOTE: Mutex<Option<String>> = Mutex::new(None);

/// The person has ended the command.
#[derive(Debug)]
pub(super) struct InterruptedByUser;

impl fmt::Display for InterruptedByUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for InterruptedByUser {}

/// Sets the word that is said if this command is interrupted from here on.
pub(super) fn set_note(text: String) {
    *NOTE.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
}

/// The same about a session: its agent runs on without this command.
pub(super) fn set_session_note(session: &str, cx: &CliContext) {
    let (name, call) = (shell_word(&clean(session)), &cx.command_prefix);
    set_note(format!(
        "the agent of {name} is not stopped; see what it does: {call} logs -f {name}; stop it: {call} stop {name}"
    ));
}

/// Ends this process at the next SIGINT. A thread of its own hears it, so that a command that reads from its terminal or
/// writes into a full pipe ends as well.
pub(super) fn end_on_ctrl_c() {
    if is_ignored() {
        return; // a shell has started us in the background
    }
    let wait = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
        // Without a handler the system ends us, without a word.
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
        // The terminal shows `^C` where the cursor was.
        if io::stderr().is_terminal() && !ended_line {
            output::print_note("");
        }
        let note = NOTE.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(note) = note {
            output::advise(&note);
        }
        sender.send(()).ok(); // it took too long
    };
    if std::thread::Builder::new().spawn(last_words).is_ok() {
        heard.recv_timeout(NOTE_TIMEOUT).ok(); // it is over either way
    }
    std::process::exit(i32::from(EXIT));
}

/// Tells whether this process was started to ignore SIGINT.
fn is_ignored() -> bool {
    const SIGINT_BIT: u64 = 1 << 1;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & SIGINT_BIT != 0)
}

//! The built-in demo agent: a scripted story for newcomers, over the intercom protocol on stdin and stdout.
//!
//! It greets, reports progress, asks a question and requests two clearances, reacts to every answer, and then waits for
//! more prompts. It never touches the disk; it only pretends, and says so.
//!
//! [`DemoStory`] is the story; this module gives it messages and time.

use std::env;
use std::io::{self, BufRead, Write};
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Instant;

use serde_json::Value;

use self::story::DemoStory;

mod story;

/// The maximum number of messages read ahead from stdin. At the limit reading pauses until the story has caught up.
const READ_AHEAD: usize = 64;

/// Runs the story until stdin ends.
pub(crate) fn run() -> ExitCode {
    let mut story = DemoStory::new(env::var("INTERCOM_SESSION").ok());
    match drive(&mut story, &incoming(), &mut io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("demo: {error}");
            ExitCode::FAILURE
        }
    }
}

fn drive(story: &mut DemoStory, incoming: &Receiver<Value>, out: &mut impl Write) -> io::Result<()> {
    let mut due = story.pause().map(|pause| Instant::now() + pause);
    loop {
        let received = match due {
            Some(at) => incoming.recv_timeout(at.saturating_duration_since(Instant::now())),
            None => incoming.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        let messages = match received {
            Ok(message) => story.handle(&message),
            Err(RecvTimeoutError::Timeout) => {
                due = None;
                story.tick().into_iter().collect()
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        };
        for message in messages {
            writeln!(out, "{message}")?;
        }
        out.flush()?;
        // A message during a pause must not prolong the pause.
        due = story.pause().map(|pause| due.unwrap_or_else(|| Instant::now() + pause));
    }
}

/// Reads messages from stdin in a thread of its own; the channel closes at EOF.
fn incoming() -> Receiver<Value> {
    let (sender, receiver) = mpsc::sync_channel(READ_AHEAD);
    thread::spawn(move || {
        for line in io::stdin().lock().split(b'\n').map_while(Result::ok) {
            let Ok(message) = serde_json::from_slice(&line) else { continue };
            if sender.send(message).is_err() {
                break;
            }
        }
    });
    receiver
}

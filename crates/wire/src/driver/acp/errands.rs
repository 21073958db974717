//! The agent's requests to its client: files and terminals, where they were offered.

use crate::acp::request::{Request, TerminalVerb};
use crate::acp::send::{self, Offer, TerminalExit};
use crate::driver::line;
use intercom_types::errand::Command;
use intercom_types::{Errand, Exit, Json, Reply, RequestId, Said, Verb, Wants};

/// `None` if it was not offered.
pub(super) fn errand(
    request: &RequestId,
    method: &str,
    wanted: Request<'_>,
    offer: Offer,
    params: impl FnOnce() -> Json,
    text: &str,
) -> Option<Said> {
    let wants = match wanted {
        Request::ReadFile(read) if offer.read_files => {
            Wants::Read { path: read.path.into_owned(), line: read.line, limit: read.limit }
        }
        Request::WriteFile(write) if offer.write_files => {
            Wants::Write { path: write.path.into_owned(), content: write.content.into_owned() }
        }
        Request::CreateTerminal(create) if offer.terminals => Wants::Run(Command {
            program: create.command.into_owned(),
            args: create.args.into_iter().map(Into::into).collect(),
            env: create.env.into_iter().map(|(name, value)| (name.into(), value.into())).collect(),
            cwd: create.cwd.map(Into::into),
            output_limit: create.output_byte_limit,
        }),
        Request::Terminal(about) if offer.terminals => Wants::Terminal {
            terminal: about.terminal.into_owned(),
            verb: match about.verb {
                TerminalVerb::Output => Verb::Output,
                TerminalVerb::Wait => Verb::Wait,
                TerminalVerb::Kill => Verb::Kill,
                TerminalVerb::Release => Verb::Release,
            },
        },
        _ => return None,
    };
    Some(Said::Errand(Box::new(Errand {
        request: request.clone(),
        method: method.to_owned(),
        wants,
        params: params(),
        line: line(text),
    })))
}

pub(super) fn answer(request: &RequestId, reply: &Reply) -> String {
    match reply {
        Reply::Content(text) => send::file_read(request, text),
        Reply::Written => send::file_written(request),
        Reply::Started { terminal } => send::terminal_created(request, terminal),
        Reply::Output { text, truncated, exit } => {
            send::terminal_output(request, text, *truncated, exit.as_ref().map(ended).as_ref())
        }
        Reply::Exited(exit) => send::terminal_exited(request, &ended(exit)),
        Reply::Killed => send::terminal_killed(request),
        Reply::Released => send::terminal_released(request),
    }
}

fn ended(exit: &Exit) -> TerminalExit {
    TerminalExit {
        code: exit.code.and_then(|code| u32::try_from(code).ok()),
        signal: exit.signal.map(signal_name),
    }
}

/// By its usual name, such as `SIGKILL`.
fn signal_name(number: i32) -> String {
    nix::sys::signal::Signal::try_from(number)
        .map_or_else(|_| format!("signal {number}"), |signal| signal.as_str().to_owned())
}

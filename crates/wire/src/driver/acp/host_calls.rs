//! The agent's requests to its client: files and terminals, if they were offered.

use crate::acp::request::{AcpAgentRequest, TerminalVerb};
use crate::acp::send::{self, OfferedCapabilities, TerminalExit};
use crate::driver::line;
use intercom_types::host_call::TerminalCommand;
use intercom_types::{
    AgentMessage, Exit, HostCall, HostCallReply, HostCallRequest, Json, RequestId, TerminalOperation,
};

/// Converts a request to a host call; `None` if it was not offered.
pub(super) fn read_host_call(
    request: &RequestId,
    method: &str,
    wanted: AcpAgentRequest<'_>,
    offer: OfferedCapabilities,
    params: impl FnOnce() -> Json,
    text: &str,
) -> Option<AgentMessage> {
    let operation = match wanted {
        AcpAgentRequest::ReadFile(read) if offer.read_files => {
            HostCallRequest::Read { path: read.path.into_owned(), line: read.line, limit: read.limit }
        }
        AcpAgentRequest::WriteFile(write) if offer.write_files => {
            HostCallRequest::Write { path: write.path.into_owned(), content: write.content.into_owned() }
        }
        AcpAgentRequest::CreateTerminal(create) if offer.terminals => HostCallRequest::Run(TerminalCommand {
            program: create.command.into_owned(),
            args: create.args.into_iter().map(Into::into).collect(),
            env: create.env.into_iter().map(|(name, value)| (name.into(), value.into())).collect(),
            cwd: create.cwd.map(Into::into),
            output_limit: create.output_byte_limit,
        }),
        AcpAgentRequest::Terminal(about) if offer.terminals => HostCallRequest::Terminal {
            terminal: about.terminal.into_owned(),
            verb: match about.verb {
                TerminalVerb::Output => TerminalOperation::Output,
                TerminalVerb::Wait => TerminalOperation::Wait,
                TerminalVerb::Kill => TerminalOperation::Kill,
                TerminalVerb::Release => TerminalOperation::Release,
            },
        },
        _ => return None,
    };
    Some(AgentMessage::HostCall(Box::new(HostCall {
        request: request.clone(),
        method: method.to_owned(),
        operation,
        params: params(),
        line: line(text),
    })))
}

pub(super) fn encode_reply(request: &RequestId, reply: &HostCallReply) -> String {
    match reply {
        HostCallReply::Content(text) => send::file_read(request, text),
        HostCallReply::Written => send::file_written(request),
        HostCallReply::Started { terminal } => send::terminal_created(request, terminal),
        HostCallReply::Output { text, truncated, exit } => {
            send::terminal_output(request, text, *truncated, exit.as_ref().map(terminal_exit).as_ref())
        }
        HostCallReply::Exited(exit) => send::terminal_exited(request, &terminal_exit(exit)),
        HostCallReply::Killed => send::terminal_killed(request),
        HostCallReply::Released => send::terminal_released(request),
    }
}

fn terminal_exit(exit: &Exit) -> TerminalExit {
    TerminalExit {
        code: exit.code.and_then(|code| u32::try_from(code).ok()),
        signal: exit.signal.map(signal_name),
    }
}

/// Returns the name of a signal, such as `SIGKILL`.
fn signal_name(number: i32) -> String {
    nix::sys::signal::Signal::try_from(number)
        .map_or_else(|_| format!("signal {number}"), |signal| signal.as_str().to_owned())
}

//! Calls of an agent to the host: read or write a file, run a command in a terminal.

use serde::{Deserialize, Serialize};

use super::{Exit, Json, LineExcerpt, RequestId};

/// A request of the agent that the host carries out, not a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostCall {
    pub request: RequestId,
    /// The name of the method in the agent's protocol.
    pub method: String,
    pub operation: HostCallRequest,
    /// All parameters that the agent sent, known or not.
    pub params: Json,
    pub line: LineExcerpt,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostCallRequest {
    Read {
        path: String,
        /// The first line, counted from one.
        line: Option<u64>,
        limit: Option<u64>,
    },
    Write {
        path: String,
        content: String,
    },
    Run(TerminalCommand),
    /// A call about a terminal that was created before.
    Terminal {
        terminal: String,
        verb: TerminalOperation,
    },
}

/// A command to run in a terminal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalCommand {
    pub program: String,
    pub args: Vec<String>,
    pub env: Vec<(String, String)>,
    pub cwd: Option<String>,
    /// The size of the tail of the output that is kept.
    pub output_limit: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TerminalOperation {
    Output,
    Wait,
    Kill,
    Release,
}

/// The answer to a host call that was carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostCallReply {
    Content(String),
    Written,
    Started { terminal: String },
    Output { text: String, truncated: bool, exit: Option<Exit> },
    Exited(Exit),
    Killed,
    Released,
}

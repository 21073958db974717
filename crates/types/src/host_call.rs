//! What an agent wants to have done by us: a file read or written, a command run in a terminal.

use serde::{Deserialize, Serialize};

use super::{Exit, Json, LineExcerpt, RequestId};

/// A request of the agent's that is not for a person to answer, but for us to carry out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostCall {
    pub request: RequestId,
    /// As the agent's protocol calls it.
    pub method: String,
    pub operation: HostCallRequest,
    /// Everything the agent sent, known or not.
    pub params: Json,
    pub line: LineExcerpt,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostCallRequest {
    Read {
        path: String,
        /// The first line, counted from one, and how many.
        line: Option<u64>,
        limit: Option<u64>,
    },
    Write {
        path: String,
        content: String,
    },
    Run(TerminalCommand),
    /// About a terminal that was created before.
    Terminal {
        terminal: String,
        verb: TerminalOperation,
    },
}

/// A command to be run in a terminal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalCommand {
    pub program: String,
    pub args: Vec<String>,
    pub env: Vec<(String, String)>,
    pub cwd: Option<String>,
    /// How much of the end of its output is kept.
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

/// The answer to a host call that was performed.
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

//! Requests of agents. A request that we would carry out must be well-formed; one that we cannot serve is answered with
//! an error immediately.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::tool::ToolCall;
use super::{method, owned, pick, string};
use intercom_types::{Choice, RequestId};

#[derive(Debug)]
pub(crate) enum AcpAgentRequest<'a> {
    Permission(PermissionRequest<'a>),
    ReadFile(ReadFile<'a>),
    WriteFile(WriteFile<'a>),
    CreateTerminal(CreateTerminal<'a>),
    Terminal(TerminalRequest<'a>),
    Elicitation(Elicitation<'a>),
    /// An unknown request: an extension, or a later version.
    Unknown,
}

/// The reason why parameters are invalid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("field `{field}` must be {wanted}")]
pub(crate) struct InvalidParams {
    pub(crate) field: &'static str,
    pub(crate) wanted: &'static str,
}

#[derive(Debug)]
pub(crate) struct PermissionRequest<'a> {
    pub(crate) tool: ToolCall<'a>,
    /// The options in the agent's order, without those that have no id and therefore cannot be chosen.
    pub(crate) options: Vec<Choice>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ReadFile<'a> {
    pub(crate) path: Cow<'a, str>,
    /// The first line, counted from one.
    pub(crate) line: Option<u64>,
    pub(crate) limit: Option<u64>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct WriteFile<'a> {
    pub(crate) path: Cow<'a, str>,
    pub(crate) content: Cow<'a, str>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CreateTerminal<'a> {
    pub(crate) command: Cow<'a, str>,
    pub(crate) args: Vec<Cow<'a, str>>,
    pub(crate) env: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    pub(crate) cwd: Option<Cow<'a, str>>,
    pub(crate) output_byte_limit: Option<u64>,
}

/// A request about a terminal that was created before.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TerminalRequest<'a> {
    pub(crate) terminal: Cow<'a, str>,
    pub(crate) verb: TerminalVerb,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TerminalVerb {
    Output,
    Wait,
    Kill,
    Release,
}

/// A question with a form to fill in, or a page to visit.
#[derive(Debug)]
pub(crate) struct Elicitation<'a> {
    pub(crate) message: Cow<'a, str>,
    /// `form`, `url`, …
    pub(crate) mode: Option<Cow<'a, str>>,
    pub(crate) schema: Option<&'a RawValue>,
    pub(crate) url: Option<Cow<'a, str>>,
}

impl<'a> AcpAgentRequest<'a> {
    pub(crate) fn read(name: &str, params: Option<&'a RawValue>) -> Result<Self, InvalidParams> {
        let params = params.ok_or(NO_PARAMS);
        Ok(match name {
            method::REQUEST_PERMISSION => Self::Permission(PermissionRequest::read(params?)?),
            method::READ_TEXT_FILE => Self::ReadFile(ReadFile::read(params?)?),
            method::WRITE_TEXT_FILE => Self::WriteFile(WriteFile::read(params?)?),
            method::TERMINAL_CREATE => Self::CreateTerminal(CreateTerminal::read(params?)?),
            method::TERMINAL_OUTPUT => Self::Terminal(TerminalRequest::read(params?, TerminalVerb::Output)?),
            method::TERMINAL_WAIT => Self::Terminal(TerminalRequest::read(params?, TerminalVerb::Wait)?),
            method::TERMINAL_KILL => Self::Terminal(TerminalRequest::read(params?, TerminalVerb::Kill)?),
            method::TERMINAL_RELEASE => {
                Self::Terminal(TerminalRequest::read(params?, TerminalVerb::Release)?)
            }
            method::ELICITATION_CREATE => Self::Elicitation(Elicitation::read(params?)?),
            _ => Self::Unknown,
        })
    }
}

impl<'a> PermissionRequest<'a> {
    /// Lenient: people judge incomplete requests. Only the tool call must be an object without duplicate names.
    fn read(params: &'a RawValue) -> Result<Self, InvalidParams> {
        let [_, tool, options] = fields(params, ["sessionId", "toolCall", "options"])?;
        let tool = match tool {
            Some(tool) => ToolCall::read(tool).ok_or(bad("toolCall", OBJECT))?,
            None => ToolCall::default(),
        };
        let choice = |raw| {
            let [id, name, kind] = pick(raw, ["optionId", "name", "kind"])?;
            let id = owned(id)?;
            Some(Choice {
                name: owned(name).unwrap_or_else(|| id.clone()),
                kind: owned(kind).unwrap_or_default(),
                id,
            })
        };
        let options = super::list(options).into_iter().filter_map(choice).collect();
        Ok(Self { tool, options })
    }
}

impl<'a> ReadFile<'a> {
    fn read(params: &'a RawValue) -> Result<Self, InvalidParams> {
        let [_, path, line, limit] = fields(params, ["sessionId", "path", "line", "limit"])?;
        Ok(Self { path: text("path", path)?, line: number("line", line)?, limit: number("limit", limit)? })
    }
}

impl<'a> WriteFile<'a> {
    fn read(params: &'a RawValue) -> Result<Self, InvalidParams> {
        let [_, path, content] = fields(params, ["sessionId", "path", "content"])?;
        Ok(Self { path: text("path", path)?, content: text("content", content)? })
    }
}

impl<'a> CreateTerminal<'a> {
    fn read(params: &'a RawValue) -> Result<Self, InvalidParams> {
        let [_, command, args, env, cwd, limit] =
            fields(params, ["sessionId", "command", "args", "env", "cwd", "outputByteLimit"])?;
        let args = items("args", args)?.into_iter().map(|arg| text("args", Some(arg)));
        let variable = |raw| {
            let [name, value] = fields(raw, ["name", "value"])?;
            Ok((text("env", name)?, text("env", value)?))
        };
        Ok(Self {
            command: text("command", command)?,
            args: args.collect::<Result<_, _>>()?,
            env: items("env", env)?.into_iter().map(variable).collect::<Result<_, _>>()?,
            cwd: cwd.map(|cwd| text("cwd", Some(cwd))).transpose()?,
            output_byte_limit: number("outputByteLimit", limit)?,
        })
    }
}

impl<'a> TerminalRequest<'a> {
    fn read(params: &'a RawValue, verb: TerminalVerb) -> Result<Self, InvalidParams> {
        let [_, terminal] = fields(params, ["sessionId", "terminalId"])?;
        Ok(Self { terminal: text("terminalId", terminal)?, verb })
    }
}

impl<'a> Elicitation<'a> {
    fn read(params: &'a RawValue) -> Result<Self, InvalidParams> {
        let [_, _, message, mode, schema, url, _] = fields(
            params,
            ["sessionId", "toolCallId", "message", "mode", "requestedSchema", "url", "elicitationId"],
        )?;
        Ok(Self { message: text("message", message)?, mode: string(mode), schema, url: string(url) })
    }
}

/// Returns the request that the agent withdraws (`$/cancel_request`).
pub(crate) fn cancelled(params: &RawValue) -> Option<RequestId> {
    let [request] = pick(params, ["requestId"])?;
    RequestId::parse(request?.get())
}

const OBJECT: &str = "an object that names no field twice";
const NO_PARAMS: InvalidParams = bad("params", OBJECT);

const fn bad(field: &'static str, wanted: &'static str) -> InvalidParams {
    InvalidParams { field, wanted }
}

fn fields<'a, const N: usize>(
    params: &'a RawValue,
    names: [&str; N],
) -> Result<[Option<&'a RawValue>; N], InvalidParams> {
    pick(params, names).ok_or(NO_PARAMS)
}

fn text<'a>(field: &'static str, raw: Option<&'a RawValue>) -> Result<Cow<'a, str>, InvalidParams> {
    string(raw).ok_or(bad(field, "a string"))
}

fn number(field: &'static str, raw: Option<&RawValue>) -> Result<Option<u64>, InvalidParams> {
    raw.map(|raw| raw.get().parse().map_err(|_| bad(field, "a whole number"))).transpose()
}

fn items<'a>(field: &'static str, raw: Option<&'a RawValue>) -> Result<Vec<&'a RawValue>, InvalidParams> {
    let Some(raw) = raw else { return Ok(Vec::new()) };
    serde_json::from_str(raw.get()).map_err(|_| bad(field, "a list"))
}

//! Host calls of an agent: their assessment before they are recorded, and the files that are read and written for it.
//!
//! ```text
//!  HostCall ──assess──► Refused                         an error at once
//!                       Free(job)                       performed at once
//!                       Ask(job, …) ──► a clearance ──► performed, or denied
//! ```
//! A path is resolved once, during the assessment. Whatever is done later is done at that place and nowhere else.

use std::borrow::Cow;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::state::{RequestAssessment, RequestAssessor, SessionSpec};
use intercom_host::{Confined, FileError};
use intercom_policy::{self as policy, PolicyRequest};
use intercom_types::host_call::TerminalCommand;
use intercom_types::{
    ClearanceRequest, FaultCode, HostCall, HostCallRequest, Outcome, Risk, TerminalOperation, hex,
};
use intercom_wire::acp::tool::quote_words;
use intercom_wire::diff;

#[cfg(test)]
mod tests;

/// The largest file that is read or written for an agent.
pub(crate) const MAX_FILE_BYTES: u64 = 10 << 20;
/// The number of bytes kept from the end of a terminal's output: the default, and the maximum.
const USUAL_OUTPUT: u64 = 1 << 20;
const MAX_OUTPUT: u64 = 10 << 20;
/// Prefixes of variables that agents must not set, because the daemon reads them.
const RESERVED_VARIABLE_PREFIXES: &[&str] = &["INTERCOM_", "SLACK_"];

/// A host call to perform, with the results of its assessment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum HostCallJob {
    Read {
        path: String,
        /// The resolved path, in the workspace.
        at: String,
        line: Option<u64>,
        limit: Option<u64>,
    },
    Write {
        path: String,
        at: String,
        content: String,
        /// A digest of the file that people saw the change of; `None` if there was no file.
        before: Option<String>,
    },
    Run(TerminalRun),
    Terminal {
        terminal: String,
        verb: TerminalOperation,
    },
}

/// A command for a terminal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TerminalRun {
    /// The terminal's id, chosen by the session.
    pub(crate) terminal: String,
    pub(crate) program: String,
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    /// A directory in the workspace.
    pub(crate) cwd: String,
    pub(crate) output_limit: u64,
    /// The command line as people read it.
    pub(crate) line: String,
}

impl TerminalRun {
    /// Returns true if the program is a whole command line for a shell.
    pub(crate) fn is_line(&self) -> bool {
        self.args.is_empty() && self.program.contains(char::is_whitespace)
    }
}

/// The assessment of a host call: refused, allowed without asking, or subject to a clearance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HostCallAssessment {
    Refused(HostCallError),
    Allowed(HostCallJob),
    Ask(HostCallJob, Box<ClearanceRequest>, Box<RequestAssessment>),
}

/// The reason why a host call was not performed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostCallError {
    pub(crate) code: FaultCode,
    pub(crate) why: String,
}

impl HostCallError {
    pub(crate) fn failed(why: impl Into<String>) -> Self {
        Self { code: FaultCode::Failed, why: why.into() }
    }

    fn invalid(why: impl Into<String>) -> Self {
        Self { code: FaultCode::InvalidField, why: why.into() }
    }
}

impl From<FileError> for HostCallError {
    fn from(error: FileError) -> Self {
        let code = if matches!(error, FileError::Missing) { FaultCode::NotFound } else { FaultCode::Failed };
        Self { code, why: error.to_string() }
    }
}

/// The result of a host call that was performed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HostCallResult {
    Read { text: String, bytes: u64, missing: bool },
    Written { bytes: u64 },
    Started { pid: i32 },
    Output { text: String, truncated: bool },
    Released,
}

/// Assesses a host call. Blocks for a few file system calls.
pub(crate) fn assess(
    assessor: &dyn RequestAssessor,
    spec: &SessionSpec,
    call: &HostCall,
) -> HostCallAssessment {
    let assessment = match &call.operation {
        HostCallRequest::Read { path, line, limit } => read(assessor, spec, call, path, *line, *limit),
        HostCallRequest::Write { path, content } => write(assessor, spec, call, path, content),
        HostCallRequest::Run(command) => run(assessor, spec, call, command),
        HostCallRequest::Terminal { terminal, verb } => {
            Ok(HostCallAssessment::Allowed(HostCallJob::Terminal { terminal: terminal.clone(), verb: *verb }))
        }
    };
    assessment.unwrap_or_else(HostCallAssessment::Refused)
}

/// Resolves a path to a path relative to the workspace.
fn resolve_in_workspace(spec: &SessionSpec, path: &str) -> Result<String, HostCallError> {
    let subject = PolicyRequest {
        workspace: spec.workspace.clone(),
        paths: vec![path.to_owned()],
        ..PolicyRequest::default()
    };
    let resolved = policy::resolve(subject);
    let real = resolved.places().first().and_then(|place| place.real.as_deref());
    let real = real.ok_or_else(|| HostCallError::invalid(format!("cannot tell where {path:?} is")))?;
    let below = real
        .strip_prefix(resolved.workspace())
        .map_err(|_| HostCallError::invalid(format!("{path:?} is outside of the workspace")))?;
    let below =
        below.to_str().ok_or_else(|| HostCallError::invalid(format!("{path:?} is not a readable name")))?;
    Ok(below.to_owned())
}

fn ask(call: &HostCall, tool: &str, title: String) -> ClearanceRequest {
    ClearanceRequest {
        request: call.request.clone(),
        title,
        description: None,
        diff: None,
        file_path: None,
        more_paths: Vec::new(),
        tool: Some(tool.to_owned()),
        command: None,
        claims_risk: false,
        claimed_risk: None,
        options: Vec::new(),
        params: call.params.clone(),
        line: call.line.clone(),
    }
}

fn read(
    assessor: &dyn RequestAssessor,
    spec: &SessionSpec,
    call: &HostCall,
    path: &str,
    line: Option<u64>,
    limit: Option<u64>,
) -> Result<HostCallAssessment, HostCallError> {
    let job = HostCallJob::Read { path: path.to_owned(), at: resolve_in_workspace(spec, path)?, line, limit };
    let ask =
        ClearanceRequest { file_path: Some(path.to_owned()), ..ask(call, "read", format!("Read {path}")) };
    let assessed = assessor.assess(spec, &ask);
    Ok(if reads_freely(&assessed) {
        HostCallAssessment::Allowed(job)
    } else {
        HostCallAssessment::Ask(job, Box::new(ask), Box::new(assessed))
    })
}

/// Returns true if reading needs no clearance: the agent could read the file by itself, so a clearance is needed only
/// if a rule or the computed risk says so.
fn reads_freely(assessed: &RequestAssessment) -> bool {
    match &assessed.ruling {
        Some(ruling) if ruling.outcome == Outcome::Allow => true,
        Some(ruling) if ruling.outcome == Outcome::Deny || ruling.rule.is_some() => false,
        _ => assessed.risk == Risk::Low,
    }
}

fn write(
    assessor: &dyn RequestAssessor,
    spec: &SessionSpec,
    call: &HostCall,
    path: &str,
    content: &str,
) -> Result<HostCallAssessment, HostCallError> {
    if content.len() as u64 > MAX_FILE_BYTES {
        return Err(FileError::TooLarge(MAX_FILE_BYTES).into());
    }
    let at = resolve_in_workspace(spec, path)?;
    let current = match Confined::open(&spec.workspace)?.read(Path::new(&at), MAX_FILE_BYTES) {
        Ok(current) => Some(current),
        Err(FileError::Missing) => None,
        Err(error) => return Err(error.into()),
    };
    let old = current.as_deref().map(std::str::from_utf8).transpose();
    let (diff, description) = match old {
        Ok(old) => (Some(diff::unified(path, old, content)).filter(|diff| !diff.is_empty()), None),
        Err(_) => (None, Some("replaces a file that is not text".to_owned())),
    };
    let file_path = Some(path.to_owned());
    let ask = ClearanceRequest { description, diff, file_path, ..ask(call, "edit", format!("Write {path}")) };
    let assessed = assessor.assess(spec, &ask);
    let before = current.map(|current| content_digest(&current));
    let job = HostCallJob::Write { path: path.to_owned(), at, content: content.to_owned(), before };
    Ok(HostCallAssessment::Ask(job, Box::new(ask), Box::new(assessed)))
}

fn run(
    assessor: &dyn RequestAssessor,
    spec: &SessionSpec,
    call: &HostCall,
    command: &TerminalCommand,
) -> Result<HostCallAssessment, HostCallError> {
    let TerminalCommand { program, args, env, cwd, output_limit } = command.clone();
    let nul = |text: &String| text.contains('\0');
    if program.trim().is_empty() || nul(&program) || args.iter().any(nul) {
        return Err(HostCallError::invalid("field `command` must be a command"));
    }
    for (name, value) in &env {
        let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && !name.starts_with(|c: char| c.is_ascii_digit());
        if name.is_empty() || !plain || nul(value) {
            return Err(HostCallError::invalid(format!(
                "{name:?} is not a valid variable name, or has no value"
            )));
        }
        if RESERVED_VARIABLE_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
            return Err(HostCallError::invalid(format!("agents must not set the variable {name}")));
        }
    }
    let cwd = cwd.map_or_else(|| Ok(String::new()), |cwd| resolve_in_workspace(spec, &cwd))?;
    if !spec.workspace.join(&cwd).is_dir() {
        return Err(HostCallError::invalid(format!("{cwd:?} is not a directory")));
    }
    let output_limit = output_limit.unwrap_or(USUAL_OUTPUT).min(MAX_OUTPUT);
    let mut run =
        TerminalRun { terminal: String::new(), program, args, env, cwd, output_limit, line: String::new() };
    run.line = line(&run);
    let command = Some(run.line.clone());
    let ask = ClearanceRequest { command, ..ask(call, "execute", format!("Run {}", run.line)) };
    let assessed = assessor.assess(spec, &ask);
    Ok(HostCallAssessment::Ask(HostCallJob::Run(run), Box::new(ask), Box::new(assessed)))
}

/// Returns the command line for a shell, with its working directory and its environment, because both can change what
/// the command does.
fn line(run: &TerminalRun) -> String {
    let quoted = |word: &str| quote_words(&[Cow::from("x"), Cow::from(word)])[2..].to_owned();
    let mut words: Vec<Cow<'_, str>> = vec![Cow::from(run.program.as_str())];
    words.extend(run.args.iter().map(|arg| Cow::from(arg.as_str())));
    let set: Vec<String> = run.env.iter().map(|(name, value)| format!("{name}={}", quoted(value))).collect();
    let mut line = match (run.is_line(), set.is_empty()) {
        (true, true) => run.program.clone(),
        (true, false) => format!("export {} && {}", set.join(" "), run.program),
        (false, true) => quote_words(&words),
        (false, false) => format!("{} {}", set.join(" "), quote_words(&words)),
    };
    if !run.cwd.is_empty() {
        line = format!("{} && {line}", quote_words(&["cd".into(), run.cwd.as_str().into()]));
    }
    line
}

/// Reads or writes a file. Repeating it is harmless: a daemon that is killed before it recorded the result repeats it.
pub(crate) fn perform(workspace: &Path, job: &HostCallJob) -> Result<HostCallResult, HostCallError> {
    let files = Confined::open(workspace)?;
    match job {
        HostCallJob::Read { at, line, limit, .. } => match files.read(Path::new(at), MAX_FILE_BYTES) {
            Ok(content) => {
                let text =
                    String::from_utf8(content).map_err(|_| HostCallError::failed("the file is not text"))?;
                let bytes = text.len() as u64;
                Ok(HostCallResult::Read { text: cut(text, *line, *limit), bytes, missing: false })
            }
            // An agent may read the whole file before it creates it, and some cannot continue after an error.
            Err(FileError::Missing) if line.is_none() && limit.is_none() => {
                Ok(HostCallResult::Read { text: String::new(), bytes: 0, missing: true })
            }
            Err(error) => Err(error.into()),
        },
        HostCallJob::Write { at, content, before, .. } => {
            let current = match files.read(Path::new(at), MAX_FILE_BYTES) {
                Ok(current) => Some(current),
                Err(FileError::Missing) => None,
                Err(error) => return Err(error.into()),
            };
            let done = current.as_deref() == Some(content.as_bytes());
            if !done && current.map(|current| content_digest(&current)) != *before {
                return Err(HostCallError::failed("the file has changed since it was shown"));
            }
            if !done {
                files.write(Path::new(at), content.as_bytes())?;
            }
            Ok(HostCallResult::Written { bytes: content.len() as u64 })
        }
        HostCallJob::Run(_) | HostCallJob::Terminal { .. } => {
            Err(HostCallError::failed("the call is not about a file"))
        }
    }
}

/// Returns these lines of a text, counted from one.
fn cut(text: String, line: Option<u64>, limit: Option<u64>) -> String {
    if line.is_none() && limit.is_none() {
        return text;
    }
    let number = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let skipped = number(line.unwrap_or(1).saturating_sub(1));
    text.split_inclusive('\n').skip(skipped).take(limit.map_or(usize::MAX, number)).collect()
}

fn content_digest(content: &[u8]) -> String {
    hex(ring::digest::digest(&ring::digest::SHA256, content).as_ref())
}

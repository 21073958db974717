//! The risk of a request, as far as it can be computed. The agent's claim can raise the risk, never lower it.

use super::contradiction::contradictions;
use super::shell::effects::{self, FileEffect};
use super::{ResolvedPath, ResolvedRequest, words};
use intercom_types::Risk;

mod commands;
mod downloads;
pub(super) mod places;

use places::{is_system, looks_secret, runs_later};

/// The maximum number of reasons shown.
const MAX_REASONS: usize = 8;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RiskAssessment {
    /// The higher of the computed risk and the agent's claim.
    pub risk: Risk,
    pub computed: Risk,
    /// Short, for people, contradictions first and then the gravest: `outside of the workspace: /etc/hosts`.
    pub reasons: Vec<String>,
}

/// The reasons so far.
#[derive(Default)]
struct RiskFindings(Vec<(Risk, String)>);

impl RiskFindings {
    fn add(&mut self, risk: Risk, why: impl Into<String>) {
        self.0.push((risk, why.into()));
    }
}

pub fn assess(request: &ResolvedRequest) -> RiskAssessment {
    let subject = &request.subject;
    let mut found = RiskFindings::default();
    let contradictions = contradictions(request);
    for contradiction in &contradictions {
        found.add(Risk::High, contradiction.clone());
    }
    tool(request, &mut found);
    let reads = !request.places.is_empty() && only_reads(request);
    for place in &request.places {
        location(request, place, reads, &mut found);
    }
    if let (Some(text), Some(script)) = (&subject.command, &request.script) {
        // The workspace before and after links are followed.
        let names = [&request.workspace, &subject.workspace];
        let names = names.into_iter().filter_map(|name| name.to_str()).filter(|name| name.len() > 1);
        let script = names.fold(script.clone(), |script, name| script.relative_to(name));
        commands::assess_command(text, &script, &mut found);
    }
    for later in request.operands.iter().flat_map(|operands| &operands.written) {
        found.add(later.risk, format!("is run later by other programs: {}", later.file));
    }
    if subject.diff.as_deref().is_some_and(deletes_all) {
        found.add(Risk::High, "deletes the whole file");
    }
    if request.diff.as_ref().is_some_and(|diff| diff.unreadable) {
        found.add(Risk::High, "it is unclear which files the diff changes");
    }
    let known = subject.tool.is_some() || subject.command.is_some() || !request.places.is_empty();
    let computed = found.0.iter().map(|(risk, _)| *risk).max().unwrap_or(Risk::Low);
    // Without any facts only the claim counts, and a missing claim counts as high.
    let claimed = subject.claimed.unwrap_or(if known { Risk::Low } else { Risk::of_claim(None) });
    // Contradictions come first, so that the limit never hides them.
    found.0.sort_by_key(|(risk, why)| (!contradictions.contains(why), std::cmp::Reverse(*risk)));
    let mut why: Vec<String> = Vec::new();
    for (risk, reason) in found.0 {
        if risk > Risk::Low && why.len() < MAX_REASONS && !why.contains(&reason) {
            why.push(reason);
        }
    }
    RiskAssessment { risk: computed.max(claimed), computed, reasons: why }
}

fn tool(request: &ResolvedRequest, found: &mut RiskFindings) {
    match request.subject.tool.as_deref() {
        Some("delete") => found.add(Risk::High, "deletes"),
        Some("execute") if request.subject.command.is_none() => {
            found.add(Risk::High, "runs an unknown command");
        }
        Some("fetch") => found.add(Risk::Medium, "uses the network"),
        Some("move") => found.add(Risk::Medium, "moves files"),
        // Editing files of the workspace is an agent's normal work.
        Some("edit" | "read" | "search" | "think" | "execute") | None => {}
        Some(_) => found.add(Risk::Medium, "does something of its own kind"),
    }
}

/// Reports whether the request only reads.
fn only_reads(request: &ResolvedRequest) -> bool {
    let subject = &request.subject;
    let called_reading = matches!(subject.tool.as_deref(), Some("read" | "search" | "think"));
    let reads = match &request.script {
        None => called_reading,
        Some(script) => {
            let may_read = called_reading || matches!(subject.tool.as_deref(), Some("execute") | None);
            may_read && effects::effects(script).iter().all(|(effect, _)| *effect == FileEffect::Reads)
        }
    };
    reads && subject.diff.is_none()
}

fn location(request: &ResolvedRequest, place: &ResolvedPath, reads: bool, found: &mut RiskFindings) {
    let name = &place.written;
    if place.is_hidden() {
        found.add(Risk::High, format!("invisible characters: {name:?}"));
    }
    let Some(real) = &place.real else {
        return found.add(Risk::High, format!("cannot tell where it is: {name:?}"));
    };
    // The workspace itself may be below a dot directory; only the path below it counts.
    let below = real.strip_prefix(&request.workspace).unwrap_or(real);
    let secret = below.to_str().is_none_or(looks_secret) || looks_secret(name);
    if secret {
        let risk = if place.inside || reads { Risk::High } else { Risk::Critical };
        found.add(risk, format!("looks like a secret: {name}"));
    }
    if !place.inside {
        let risk = match (reads, is_system(real)) {
            (true, _) => Risk::Medium,
            (false, false) => Risk::High,
            (false, true) => Risk::Critical,
        };
        found.add(risk, format!("outside of the workspace: {}", real.display()));
    }
    if place.linked {
        found.add(Risk::Medium, format!("is a link: {name}"));
    }
    if place.has_parent_dir() {
        found.add(Risk::Medium, format!("contains `..`: {name}"));
    }
    let later = below.to_str().and_then(runs_later).filter(|_| !reads);
    if let Some(risk) = later {
        found.add(risk, format!("is run later by other programs: {name}"));
    }
    if later != Some(Risk::High)
        && !reads
        && below.iter().any(|part| part.as_encoded_bytes().starts_with(b"."))
    {
        found.add(Risk::Medium, format!("a dot file: {name}"));
    }
}

/// Reports whether a diff deletes a whole file.
fn deletes_all(diff: &str) -> bool {
    diff.lines().any(|line| line.starts_with("deleted file mode") || line.trim_end() == "+++ /dev/null")
}

fn is_hidden(text: &str) -> bool {
    words::hidden(&text.replace('\n', " ")).is_some()
}

//! The requests that presets forbid, regardless of rules. In doubt a preset forbids.

use super::{ResolvedRequest, RiskAssessment};
use intercom_types::{Preset, Risk};

/// Returns the reason why the preset forbids the request, if it does.
pub fn forbids(preset: Preset, request: &ResolvedRequest, assessment: &RiskAssessment) -> Option<String> {
    let why = match preset {
        Preset::Full => None,
        Preset::ReadOnly => changes(request),
        Preset::Safe => risky(assessment),
        Preset::Sandbox => local(request).or_else(|| risky(assessment)),
    };
    why.map(|why| format!("{} denies it: {why}", preset.rule()))
}

/// Returns all presets that forbid the request.
pub fn forbidden_by(request: &ResolvedRequest, assessment: &RiskAssessment) -> Vec<Preset> {
    Preset::ALL.into_iter().filter(|preset| forbids(*preset, request, assessment).is_some()).collect()
}

fn changes(request: &ResolvedRequest) -> Option<String> {
    let subject = &request.subject;
    let why = match subject.tool.as_deref() {
        _ if subject.command.is_some() => "it runs a command",
        _ if subject.diff.is_some() => "it changes a file",
        Some("read" | "search" | "think" | "fetch") => return None,
        Some("execute") => "it runs a command",
        Some("edit" | "delete" | "move") => "it changes files",
        Some(_) | None => "it is unclear whether it only reads",
    };
    Some(why.to_owned())
}

fn risky(assessment: &RiskAssessment) -> Option<String> {
    (assessment.risk >= Risk::High).then(|| format!("its risk is {}", assessment.risk.as_str()))
}

fn local(request: &ResolvedRequest) -> Option<String> {
    let subject = &request.subject;
    let why = match subject.tool.as_deref() {
        _ if subject.command.is_some() => "it runs a command",
        _ if subject.diff.is_some() || !request.places.is_empty() => "it concerns local files",
        Some("think" | "fetch") => return None,
        Some("execute") => "it runs a command",
        Some("read" | "search" | "edit" | "delete" | "move") => "it concerns local files",
        Some(_) | None => "it is unclear whether it concerns local files or commands",
    };
    Some(why.to_owned())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use proptest::prelude::*;

    use super::*;
    use crate::{PolicyRequest, TOOLS, assess};

    fn request(subject: PolicyRequest) -> (ResolvedRequest, RiskAssessment) {
        let subject = PolicyRequest { workspace: PathBuf::from("/project"), ..subject };
        let request = crate::resolve(subject);
        let assessment = assess(&request);
        (request, assessment)
    }

    /// In the order of `Preset::ALL`.
    #[track_caller]
    fn check(subject: &PolicyRequest, expect: [bool; 4]) {
        let (request, assessment) = request(subject.clone());
        let found = Preset::ALL.map(|preset| forbids(preset, &request, &assessment).is_some());
        assert_eq!(found, expect, "{subject:?}");
    }

    fn tool(name: &str) -> PolicyRequest {
        PolicyRequest { tool: Some(name.to_owned()), ..PolicyRequest::default() }
    }

    #[test]
    fn each_forbids_its_own() {
        let at = |name: &str, path: &str| PolicyRequest { paths: vec![path.to_owned()], ..tool(name) };
        let run = |text: &str| PolicyRequest { command: Some(text.to_owned()), ..tool("execute") };
        check(&at("read", "src/a.rs"), [false, false, false, true]);
        check(&at("read", ".env"), [false, false, true, true]);
        check(&at("edit", "src/a.rs"), [false, true, false, true]);
        check(&at("edit", "/etc/passwd"), [false, true, true, true]);
        check(&run("cargo test"), [false, true, false, true]);
        check(&run("rm -rf /"), [false, true, true, true]);
        check(&tool("search"), [false, false, false, true]);
        check(&tool("think"), [false, false, false, false]);
        check(&tool("fetch"), [false, false, false, false]);
        check(&tool("switch_mode"), [false, true, false, true]);
        check(&tool("other"), [false, true, false, true]);
        // Without any facts, the risk is high.
        check(&PolicyRequest::default(), [false, true, true, true]);
    }

    #[test]
    fn what_an_agent_calls_reading_and_is_not_is_forbidden() {
        let text = Some("cargo test".to_owned());
        check(&PolicyRequest { command: text.clone(), ..tool("read") }, [false, true, true, true]);
        check(&PolicyRequest { command: text, ..tool("think") }, [false, true, true, true]);
        check(&PolicyRequest { command: Some("ls".to_owned()), ..tool("read") }, [false, true, false, true]);
        check(&PolicyRequest { diff: Some("+a".to_owned()), ..tool("search") }, [false, true, true, true]);
        check(
            &PolicyRequest { paths: vec!["a.rs".to_owned()], ..tool("fetch") },
            [false, false, false, true],
        );
        check(&PolicyRequest { claimed: Some(Risk::Critical), ..tool("think") }, [false, false, true, true]);
    }

    proptest! {
        #[test]
        fn what_does_not_widen_forbids_all_that_was_forbidden(
            tool in proptest::option::of(0..TOOLS.len()), path in proptest::option::of("[a-z./]{1,12}"),
            command in proptest::option::of("(cargo test|rm -rf /|git push --force|ls)"), diff in any::<bool>(),
            claimed in proptest::option::of(0u8..4),
        ) {
            let risks = [Risk::Low, Risk::Medium, Risk::High, Risk::Critical];
            let (request, assessment) = request(PolicyRequest {
                tool: tool.map(|at| TOOLS[at].to_owned()),
                paths: path.into_iter().collect(),
                command,
                diff: diff.then(|| "--- a\n+++ b\n+x\n".to_owned()),
                claimed: claimed.map(|at| risks[usize::from(at)]),
                ..PolicyRequest::default()
            });
            let forbidden = forbidden_by(&request, &assessment);
            prop_assert!(!forbidden.contains(&Preset::Full));
            for from in Preset::ALL {
                for to in Preset::ALL.into_iter().filter(|to| !from.widens_to(*to)) {
                    prop_assert!(!forbidden.contains(&from) || forbidden.contains(&to), "{:?} to {:?}", from, to);
                }
            }
        }
    }
}

//! Checks of policy: the shell reader misses no command, and doubt never allows.

use std::path::PathBuf;
use std::sync::LazyLock;

use intercom_policy::{
    Commands, PolicyOutcome, PolicyRequest, Rule, RuleAction, Rules, assess, decide, explain, forbidden_by,
    proposal, read_command, resolve,
};
use intercom_types::{Risk, Time};

/// A program that no text names by chance.
const MARKER: &str = "intercom-marker";

/// A command on a line of its own is found behind any text that can be read.
pub fn shell_reading(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let reading = read_command(&text);
    assert_eq!(reading, read_command(&text), "{text:?}");
    assert!(reading.programs.len() <= text.len(), "more programs than text");
    // A backslash at the end makes one line of the two.
    if reading.unreadable.is_some() || text.ends_with('\\') {
        return;
    }
    let longer = format!("{text}\n{MARKER} x\n");
    let reading = read_command(&longer);
    let is_found = reading.programs.iter().any(|program| program == MARKER);
    assert!(is_found || reading.unreadable.is_some(), "{longer:?} gives {reading:?}");
}

static ALLOW: LazyLock<Rules> = LazyLock::new(|| rules(Rule::new(RuleAction::Allow)));
static DENY: LazyLock<Rules> = LazyLock::new(|| {
    let mut rule = Rule::new(RuleAction::Deny);
    rule.command = Some(Commands::Line(MARKER.to_owned()));
    rules(rule)
});

fn rules(rule: Rule) -> Rules {
    Rules::compile(vec![rule], |_| Time::now()).expect("the rule is sound")
}

/// A command that cannot be read is at least high, is never allowed, and is met by every rule that denies.
pub fn request_assessment(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let mut parts = text.split('\0');
    let mut part = || parts.next().filter(|part| !part.is_empty()).map(str::to_owned);
    let (command, diff, path) = (part(), part(), part());
    let is_unreadable = command.as_deref().is_some_and(|text| read_command(text).unreadable.is_some());
    let request = resolve(PolicyRequest {
        agent: Some("agent".to_owned()),
        workspace: PathBuf::from("/nonexistent/workspace"),
        tool: part(),
        title: part().unwrap_or_default(),
        paths: path.into_iter().collect(),
        command,
        diff,
        claimed: None,
    });
    let assessment = assess(&request);
    let now = Time::now();
    if is_unreadable {
        assert!(assessment.risk >= Risk::High, "{:?}: {assessment:?}", request.subject());
        let allowed = decide(&ALLOW, &request, &assessment, now);
        assert!(allowed.outcome != PolicyOutcome::Allow, "{:?}: {allowed:?}", request.subject());
        let denied = decide(&DENY, &request, &assessment, now);
        assert!(matches!(denied.outcome, PolicyOutcome::Deny { .. }), "{:?}: {denied:?}", request.subject());
    }
    explain(&ALLOW, &request, &assessment, now);
    forbidden_by(&request, &assessment);
    proposal(&request, &assessment).ok();
}

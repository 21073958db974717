//! Serde's errors about invalid values, in words for people.

use std::fmt::Write as _;

use super::locate::{KeyLocation, RENAMED_SECTION};

/// Rewrites a serde error for people.
pub(super) fn describe(message: &str, place: &KeyLocation) -> String {
    if let Some(expected) = message.strip_prefix("unknown field `") {
        return unknown_key(expected, place);
    }
    let mismatch = message.starts_with("invalid type: ") || message.starts_with("invalid value: ");
    match message.rsplit_once(", expected ") {
        // Serde quotes the value, which may be a secret, so only its type is repeated.
        Some((_, expected)) if mismatch => format!("expected {}, found {}", plain(expected), place.found),
        _ => message.to_owned(),
    }
}

/// Returns a common name for a Rust type.
fn plain(expected: &str) -> &str {
    match expected {
        "usize" | "u64" => "a whole number",
        "f64" => "a number",
        "a map" => "a table",
        "a sequence" => "a list",
        "path string" => "a string",
        other => other,
    }
}

fn unknown_key(expected: &str, place: &KeyLocation) -> String {
    let mut message = "unknown key".to_owned();
    let Some(key) = place.path.last_key() else { return message };
    // The rest is "`, expected one of `a`, `b`": the known keys are every second part between backticks.
    let known = expected.strip_prefix(key).and_then(|rest| rest.strip_prefix('`')).unwrap_or_default();
    let known = known.split('`').skip(1).step_by(2);
    let known: Vec<_> = known.filter(|known| *known != RENAMED_SECTION.0).collect();
    let nearest = known.iter().map(|known| (distance(key, known), *known)).min();
    match nearest {
        Some((edits, known)) if edits <= 1 + key.len() / 4 => {
            write!(message, ", did you mean `{known}`?").expect("a string takes all text");
        }
        Some(_) => {
            write!(message, ", known keys are {}", known.join(", ")).expect("a string takes all text");
        }
        None => {}
    }
    message
}

/// Returns the Levenshtein distance: the number of letters to insert, remove or change.
fn distance(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.chars().count()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.chars().enumerate() {
            let changed = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[to.chars().count()]
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::config::parse;

    fn check(text: &str, expect: &str) {
        let error = parse(text, Path::new("c.toml")).expect_err("the text is wrong");
        assert_eq!(error.to_string(), expect, "for {text:?}");
    }

    #[test]
    fn unknown_keys_are_named_with_a_hint() {
        check(
            "\n[acp]\nmax_line_lenght = 1",
            "c.toml:3: acp.max_line_lenght: unknown key, did you mean `max_line_length`?",
        );
        check("[limit]\n", "c.toml:1: limit: unknown key, did you mean `limits`?");
        check(
            "port = 1",
            "c.toml:1: port: unknown key, known keys are daemon, acp, limits, stop, stall, restart, spend, retention, api, access, operator, rule, clearances, webhook, audit, slack, acp_server, run, agents, workspaces",
        );
        check(
            "[retention]\nhours = 1",
            "c.toml:2: retention.hours: unknown key, known keys are days, max_mib",
        );
        check(
            "[agents.a]\ncmd = 'x'\n[agents.a.stop]\n'we`ird' = 1",
            concat!(
                "c.toml:2: agents.a.cmd: unknown key, known keys are description, command, args, env, pass_env, protocol, ",
                "prompt_delivery, framing, max_line_length, startup_timeout_seconds, interrupt_quiet_seconds, stop, limits, stall, restart, spend, auth_method, mode, offer_files, offer_terminals, run_as, resume_after_reboot",
            ),
        );
        check(
            "[agents.a.stop]\n'after`' = 1",
            concat!(
                "c.toml:2: agents.a.stop.\"after`\": unknown key, known keys are after_interrupt_seconds, ",
                "after_stdin_closed_seconds, after_sigterm_seconds",
            ),
        );
        check("agents.a.comand = 'x'", "c.toml:1: agents.a.comand: unknown key, did you mean `command`?");
        check(
            "workspaces = { w = { pth = '/' } }",
            "c.toml:1: workspaces.w.pth: unknown key, did you mean `path`?",
        );
    }

    #[test]
    fn wrong_types_are_named_without_the_value() {
        check(
            "[acp]\n\nmax_line_length = 'x'",
            "c.toml:3: acp.max_line_length: expected a whole number, found a string",
        );
        check(
            "acp.max_line_length = 1.5",
            "c.toml:1: acp.max_line_length: expected a whole number, found a decimal number",
        );
        check("[acp]\nframing = 5", "c.toml:2: acp.framing: expected a string, found a whole number");
        check("[acp.framing]\nlsp = {}", "c.toml:1: acp.framing: expected a string, found a table");
        check(
            "[limits]\nmax_sessions = -1",
            "c.toml:2: limits.max_sessions: expected a whole number, found a negative number",
        );
        check(
            "[limits]\nmax_sessions = 99999999999999999999",
            "c.toml:2: limits.max_sessions: expected a whole number, found a number that is too large",
        );
        check(
            "[limits]\nmax_sessions = 2026-01-01",
            "c.toml:2: limits.max_sessions: expected a whole number, found a date or time",
        );
        check(
            "[stop]\nafter_sigterm_seconds = true",
            "c.toml:2: stop.after_sigterm_seconds: expected a number, found true or false",
        );
        check("[agents.a]\ncommand = ['x']", "c.toml:2: agents.a.command: expected a string, found a list");
        check("[agents.a]\nargs = 'x'", "c.toml:2: agents.a.args: expected a list, found a string");
        check(
            "[agents.a]\nargs = [\n  'x',\n  5,\n]",
            "c.toml:4: agents.a.args[1]: expected a string, found a whole number",
        );
        check("[agents.a]\nenv = ['K=secret']", "c.toml:2: agents.a.env: expected a table, found a list");
        check("[agents.a]\nenv = 'K=secret'", "c.toml:2: agents.a.env: expected a table, found a string");
        check("[agents.a.env]\nK = 1", "c.toml:2: agents.a.env.K: expected a string, found a whole number");
        check(
            "[agents.a]\nmax_line_length = 'x'",
            "c.toml:2: agents.a.max_line_length: expected a whole number, found a string",
        );
        check(
            "[workspaces.w]\npath = 1",
            "c.toml:2: workspaces.w.path: expected a string, found a whole number",
        );
    }

    #[test]
    fn a_section_is_a_table() {
        check("limits = [5]", "c.toml:1: limits: expected a table, found a list");
        check("[[limits]]\nmax_sessions = 5", "c.toml:1: limits: expected a table, found a list");
        check("agents = 1", "c.toml:1: agents: expected a table, found a whole number");
        check("[agents]\n\ncommand = 'x'", "c.toml:3: agents.command: expected a table, found a string");
        check("[agents]\na = ['x']", "c.toml:2: agents.a: expected a table, found a list");
        check("[agents.a]\nstop = [1]", "c.toml:2: agents.a.stop: expected a table, found a list");
        check("[workspaces]\nw = ['/']", "c.toml:2: workspaces.w: expected a table, found a list");
        check(
            "[limits.max_sessions.x]",
            "c.toml:1: limits.max_sessions: expected a whole number, found a table",
        );
        check("[[agents.a]]\ncommand = 'x'", "c.toml:1: agents.a: expected a table, found a list");
    }

    #[test]
    fn wrong_words_are_named_with_the_right_ones() {
        check(
            "[acp]\nframing = 'xml'",
            r#"c.toml:2: acp.framing: "xml" is not known, use "ndjson" or "lsp""#,
        );
        check(
            "[agents.a]\ncommand = 'x'\nprotocol = 'mcp'",
            r#"c.toml:3: agents.a.protocol: "mcp" is not known, use "intercom" or "acp""#,
        );
        check(
            "[agents.a]\nprompt_delivery = 'later'",
            r#"c.toml:2: agents.a.prompt_delivery: "later" is not known, use "immediate" or "heartbeat""#,
        );
        check(
            "[agents.a]\nframing = ''",
            r#"c.toml:2: agents.a.framing: "" is not known, use "ndjson" or "lsp""#,
        );
    }
}

//! The parser of commands that people type, in a thread or after `/intercom`. Pure.

use intercom_daemon::config::Verbosity;

/// The default duration of "always".
const USUALLY: &str = "8h";

/// A message in a session's thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ThreadCommand {
    Approve {
        which: Option<String>,
    },
    /// The lifetime of the rule, and the beginning of the digest of the rule that was shown.
    Always {
        lasts: String,
        rule: Option<String>,
    },
    Deny {
        which: Option<String>,
        reason: Option<String>,
    },
    Continue,
    Refine(String),
    Stop,
    Interrupt,
    Nudge(Option<String>),
    Status,
    Queue,
    Verbosity(Verbosity),
    Help,
    /// A prompt: every other message.
    Prompt(String),
}

/// The kinds of pending requests in the thread: some words are commands only with a request that they answer.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PendingKinds {
    pub(super) clearances: bool,
    pub(super) questions: bool,
}

/// Parses a message in a thread. A word is a command if it is the whole message or answers a pending request.
/// Everything else is a prompt: `stop using tabs` must not stop the agent.
pub(super) fn parse_thread_command(text: &str, waiting: PendingKinds) -> ThreadCommand {
    let bare = text.trim().trim_matches('`').trim();
    let (first, rest) = bare.split_once(char::is_whitespace).unwrap_or((bare, ""));
    let (first, rest) = (first.to_ascii_lowercase(), rest.trim());
    let clearance = |text: &str| {
        text.strip_prefix("clr_").is_some_and(|id| id.len() >= 4 && !id.contains(char::is_whitespace))
    };
    let said = (!rest.is_empty()).then(|| rest.to_owned());
    match (first.as_str(), &said) {
        ("approve" | "allow", None) => ThreadCommand::Approve { which: None },
        ("approve" | "allow", Some(id)) if clearance(id) => ThreadCommand::Approve { which: said },
        ("always", None) if waiting.clearances => {
            ThreadCommand::Always { lasts: USUALLY.to_owned(), rule: None }
        }
        ("always", Some(rest)) if waiting.clearances => match always(rest) {
            Some((lasts, rule)) => ThreadCommand::Always { lasts, rule },
            None => ThreadCommand::Prompt(text.trim().to_owned()),
        },
        ("deny", None) => ThreadCommand::Deny { which: None, reason: None },
        ("deny", Some(rest)) if waiting.clearances => {
            let (id, reason) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
            if clearance(id) {
                let reason = Some(reason.trim().to_owned()).filter(|reason| !reason.is_empty());
                ThreadCommand::Deny { which: Some(id.to_owned()), reason }
            } else {
                ThreadCommand::Deny { which: None, reason: said }
            }
        }
        ("continue", None) if waiting.questions => ThreadCommand::Continue,
        ("refine", Some(how)) if waiting.questions => ThreadCommand::Refine(how.clone()),
        ("stop", None) => ThreadCommand::Stop,
        ("interrupt", None) => ThreadCommand::Interrupt,
        ("nudge", None) => ThreadCommand::Nudge(None),
        ("nudge:", Some(how)) => ThreadCommand::Nudge(Some(how.clone())),
        ("status", None) => ThreadCommand::Status,
        ("queue", None) => ThreadCommand::Queue,
        ("help", None) => ThreadCommand::Help,
        ("verbosity", Some(how)) => match how.to_ascii_lowercase().parse() {
            Ok(verbosity) => ThreadCommand::Verbosity(verbosity),
            Err(_) => ThreadCommand::Prompt(text.trim().to_owned()),
        },
        _ => ThreadCommand::Prompt(text.trim().to_owned()),
    }
}

/// `8h`, or `8h 0123abcd`.
fn always(text: &str) -> Option<(String, Option<String>)> {
    let (lasts, rule) = split_first_word(text);
    intercom_types::parse_duration(lasts)?;
    let known = rule.len() == 8 && rule.bytes().all(|byte| byte.is_ascii_hexdigit());
    (rule.is_empty() || known).then(|| (lasts.to_owned(), known.then(|| rule.to_ascii_lowercase())))
}

/// `/intercom …`
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SlashCommand {
    Help,
    Ls,
    Start {
        agent: String,
        workspace: Option<String>,
        prompt: String,
    },
    Stop(String),
    Nudge {
        session: String,
        message: Option<String>,
    },
    Send {
        session: String,
        text: String,
    },
    Status(Option<String>),
    Clearances,
    Policy,
    Whoami,
    /// An invalid command, with the reason.
    Wrong(String),
}

pub(super) fn parse_slash_command(text: &str) -> SlashCommand {
    let (verb, rest) = split_first_word(text);
    let session = |rest: &str| match split_first_word(rest) {
        ("", _) => {
            Err(SlashCommand::Wrong(format!("“{verb}” needs a session: its name or the beginning of its id")))
        }
        (session, rest) => Ok((session.to_owned(), rest.to_owned())),
    };
    // Extra words had a meaning for the person: do nothing rather than something else.
    let alone = |alone: SlashCommand, left: &str| match left {
        "" => Ok(alone),
        left => Err(SlashCommand::Wrong(format!("“{verb}” does not take “{left}”, so nothing was done"))),
    };
    let parsed = match verb.to_ascii_lowercase().as_str() {
        "" | "help" => Ok(SlashCommand::Help),
        "ls" | "list" => alone(SlashCommand::Ls, rest),
        "start" => start(rest),
        "stop" => session(rest).and_then(|(session, left)| alone(SlashCommand::Stop(session), &left)),
        "nudge" => session(rest).map(|(session, message)| SlashCommand::Nudge {
            session,
            message: Some(message).filter(|text| !text.is_empty()),
        }),
        "send" => session(rest).and_then(|(session, text)| {
            if text.is_empty() {
                return Err(SlashCommand::Wrong("“send” needs a text after the session".to_owned()));
            }
            Ok(SlashCommand::Send { session, text })
        }),
        "status" if rest.is_empty() => Ok(SlashCommand::Status(None)),
        "status" => {
            session(rest).and_then(|(session, left)| alone(SlashCommand::Status(Some(session)), &left))
        }
        "clearances" => alone(SlashCommand::Clearances, rest),
        "policy" => alone(SlashCommand::Policy, rest),
        "whoami" => alone(SlashCommand::Whoami, rest),
        other => {
            Err(SlashCommand::Wrong(format!("“{other}” is not a command; /intercom help lists all commands")))
        }
    };
    parsed.unwrap_or_else(|wrong| wrong)
}

fn split_first_word(text: &str) -> (&str, &str) {
    let text = text.trim();
    let (first, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (first, rest.trim())
}

/// `<agent> [in <workspace>] <prompt>`; a workspace with spaces stands in quotes.
fn start(text: &str) -> Result<SlashCommand, SlashCommand> {
    let wrong = |what: &str| SlashCommand::Wrong(format!("{what}: start <agent> [in <workspace>] <prompt>"));
    let (agent, rest) = split_first_word(text);
    if agent.is_empty() {
        return Err(wrong("an agent is needed"));
    }
    let (workspace, prompt) = match split_first_word(rest) {
        ("in", rest) => {
            let (workspace, prompt) = quoted(rest).unwrap_or_else(|| split_first_word(rest));
            if workspace.is_empty() {
                return Err(wrong("a workspace is needed after “in”"));
            }
            (Some(workspace.to_owned()), prompt)
        }
        _ => (None, rest),
    };
    Ok(SlashCommand::Start { agent: agent.to_owned(), workspace, prompt: prompt.to_owned() })
}

/// Splits a quoted word from the rest. Phones type typographic quotes.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let inside = text.strip_prefix(['"', '“', '\''])?;
    let (inside, rest) = inside.split_once(['"', '”', '\''])?;
    Some((inside, rest.trim()))
}

/// Returns the text that a person typed, from Slack's encoding: `&lt;`, `<@U1>`, `<https://x|x>`.
pub(super) fn decode_text(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find('<') {
        plain.push_str(&rest[..start]);
        rest = &rest[start + 1..];
        let Some(end) = rest.find('>') else {
            plain.push('<');
            break;
        };
        plain.push_str(&mark(&rest[..end]));
        rest = &rest[end + 1..];
    }
    plain.push_str(rest);
    plain.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
}

fn mark(inside: &str) -> String {
    let (target, label) =
        inside.split_once('|').map_or((inside, None), |(target, label)| (target, Some(label)));
    match target.chars().next() {
        Some('@') => format!("@{}", label.unwrap_or(&target[1..])),
        Some('#') => format!("#{}", label.unwrap_or(&target[1..])),
        Some('!') => format!("@{}", label.unwrap_or(&target[1..]).trim_start_matches('@')),
        _ => target.strip_prefix("mailto:").unwrap_or(target).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: PendingKinds = PendingKinds { clearances: true, questions: true };
    const NONE: PendingKinds = PendingKinds { clearances: false, questions: false };

    fn prompt(text: &str) -> ThreadCommand {
        ThreadCommand::Prompt(text.to_owned())
    }

    #[test]
    fn a_word_alone_is_a_command_and_a_sentence_is_for_the_agent() {
        assert_eq!(parse_thread_command(" Stop ", NONE), ThreadCommand::Stop);
        assert_eq!(parse_thread_command("`approve`", NONE), ThreadCommand::Approve { which: None });
        assert_eq!(parse_thread_command("stop using tabs", BOTH), prompt("stop using tabs"));
        assert_eq!(parse_thread_command("nudge the reviewer", BOTH), prompt("nudge the reviewer"));
        assert_eq!(
            parse_thread_command("nudge: look at the lock", NONE),
            ThreadCommand::Nudge(Some("look at the lock".to_owned()))
        );
        assert_eq!(parse_thread_command("status of the tests?", NONE), prompt("status of the tests?"));
        assert_eq!(parse_thread_command("approve it all", BOTH), prompt("approve it all"));
        assert_eq!(
            parse_thread_command("verbosity stream", NONE),
            ThreadCommand::Verbosity(Verbosity::Stream)
        );
        assert_eq!(parse_thread_command("verbosity of logs", NONE), prompt("verbosity of logs"));
    }

    #[test]
    fn words_that_answer_need_something_to_answer() {
        let reason = Some("touches prod".to_owned());
        assert_eq!(
            parse_thread_command("deny touches prod", BOTH),
            ThreadCommand::Deny { which: None, reason }
        );
        assert_eq!(parse_thread_command("deny touches prod", NONE), prompt("deny touches prod"));
        let which = Some("clr_abcd".to_owned());
        assert_eq!(
            parse_thread_command("deny clr_abcd", BOTH),
            ThreadCommand::Deny { which: which.clone(), reason: None }
        );
        assert_eq!(
            parse_thread_command("deny clr_abcd no way", BOTH),
            ThreadCommand::Deny { which: which.clone(), reason: Some("no way".to_owned()) }
        );
        assert_eq!(parse_thread_command("approve clr_abcd", NONE), ThreadCommand::Approve { which });
        assert_eq!(
            parse_thread_command("refine use sqlite", BOTH),
            ThreadCommand::Refine("use sqlite".to_owned())
        );
        assert_eq!(parse_thread_command("refine use sqlite", NONE), prompt("refine use sqlite"));
        assert_eq!(parse_thread_command("continue", NONE), prompt("continue"));
        assert_eq!(
            parse_thread_command("always 1h", BOTH),
            ThreadCommand::Always { lasts: "1h".to_owned(), rule: None }
        );
        let rule = Some("0123abcd".to_owned());
        assert_eq!(
            parse_thread_command("always 1h 0123ABCD", BOTH),
            ThreadCommand::Always { lasts: "1h".to_owned(), rule }
        );
        assert_eq!(parse_thread_command("always 1h later", BOTH), prompt("always 1h later"));
        assert_eq!(parse_thread_command("always run the tests", BOTH), prompt("always run the tests"));
    }

    #[test]
    fn a_start_may_name_its_workspace() {
        let start = |agent: &str, workspace: Option<&str>, prompt: &str| SlashCommand::Start {
            agent: agent.to_owned(),
            workspace: workspace.map(str::to_owned),
            prompt: prompt.to_owned(),
        };
        assert_eq!(parse_slash_command("start claude fix the tests"), start("claude", None, "fix the tests"));
        assert_eq!(
            parse_slash_command("start claude in website fix it"),
            start("claude", Some("website"), "fix it")
        );
        assert_eq!(
            parse_slash_command("start claude in “/a b” go  on"),
            start("claude", Some("/a b"), "go  on")
        );
        assert_eq!(parse_slash_command("start claude"), start("claude", None, ""));
        assert!(
            matches!(parse_slash_command("start"), SlashCommand::Wrong(_))
                && matches!(parse_slash_command("start claude in"), SlashCommand::Wrong(_))
        );
        assert_eq!(parse_slash_command(" LS "), SlashCommand::Ls);
        assert_eq!(parse_slash_command(""), SlashCommand::Help);
        assert!(
            matches!(parse_slash_command("send api"), SlashCommand::Wrong(_))
                && matches!(parse_slash_command("dance"), SlashCommand::Wrong(_))
        );
        assert_eq!(parse_slash_command("status"), SlashCommand::Status(None));
    }

    #[test]
    fn what_is_left_over_is_not_passed_over() {
        for text in
            ["ls all of them", "stop api now", "status api web", "clearances x", "policy x", "whoami x"]
        {
            let SlashCommand::Wrong(why) = parse_slash_command(text) else { panic!("{text}") };
            assert!(why.ends_with("so nothing was done"), "{why}");
        }
        assert_eq!(parse_slash_command("stop api"), SlashCommand::Stop("api".to_owned()));
    }

    #[test]
    fn what_people_typed_is_what_the_agent_reads() {
        assert_eq!(decode_text("if a &lt; b &amp;&amp; c &gt; d"), "if a < b && c > d");
        assert_eq!(
            decode_text("see <https://a.example/x|a.example/x> and <@U1>"),
            "see https://a.example/x and @U1"
        );
        assert_eq!(
            decode_text("<!here> <#C1|general> <mailto:a@b.example|a@b.example>"),
            "@here #general a@b.example"
        );
        assert_eq!(decode_text("a <b"), "a <b");
        assert_eq!(decode_text("&amp;lt;"), "&lt;");
    }

    proptest::proptest! {
        #[test]
        fn reading_never_fails(text in "\\PC{0,80}") {
            parse_thread_command(&text, BOTH);
            parse_slash_command(&text);
            decode_text(&text);
        }
    }
}

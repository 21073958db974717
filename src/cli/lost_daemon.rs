//! Advice for a command whose daemon goes away: the way back, and the place that shows whether the command was done.

use super::client::DaemonClient;
use super::failure::CliFailure;
use super::transport::Transport;
use intercom_types::Session;
use intercom_types::text::{clean, shell_word};

/// Returns the command that brings the daemon back. Agents keep running meanwhile.
pub(super) fn restart_hint(client: &DaemonClient) -> String {
    match client.transport() {
        Transport::Unix(_) => {
            format!("get the daemon back with `{} daemon restart`", client.command_prefix())
        }
        Transport::Remote(_) => {
            "start the daemon again on its machine with `intercom daemon restart`".to_owned()
        }
    }
}

/// Returns the command that shows whether a request with this URL was carried out; `None` if no list shows it.
pub(super) fn command_to_check(url: &str) -> Option<String> {
    let path = url.strip_prefix("/api/v1/")?.split('?').next()?;
    let words: Vec<&str> = path.split('/').collect();
    // An encoded name is not the name that people type, so the list is named instead.
    let place = match words[..] {
        ["sessions"] => "ls".to_owned(),
        ["sessions", id, _] if id.contains('%') => "ls".to_owned(),
        ["sessions", id, "prompts"] => format!("prompts {id}"),
        ["sessions", id, _] => format!("show {id}"),
        ["clearances", id, "decision"] if !id.contains('%') => format!("clearances {id}"),
        ["questions", id, "answer"] if !id.contains('%') => format!("questions {id}"),
        _ => return None,
    };
    Some(place)
}

/// Returns the failure for a daemon that went away while a command followed the agent of this session.
pub(super) fn while_following(session: &Session, client: &DaemonClient) -> CliFailure {
    let name = clean(&session.label());
    let follow = format!("{} logs -f {}", client.command_prefix(), shell_word(&name));
    CliFailure::failed(format!("the daemon went away; the agent of {name} keeps running"))
        .hint(format!("{}, then follow the agent: `{follow}`", restart_hint(client)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_a_place_that_shows_whether_it_was_done() {
        let place = |url: &str| command_to_check(url).unwrap_or_default();
        assert_eq!(place("/api/v1/sessions"), "ls");
        assert_eq!(place("/api/v1/sessions/shop/prompts"), "prompts shop");
        assert_eq!(place("/api/v1/sessions/shop/stop"), "show shop");
        assert_eq!(place("/api/v1/sessions/a%20b/stop"), "ls");
        assert_eq!(place("/api/v1/clearances/7k2m/decision"), "clearances 7k2m");
        assert_eq!(place("/api/v1/questions/q1/answer"), "questions q1");
        assert_eq!(place("/api/v1/reload"), "");
    }
}

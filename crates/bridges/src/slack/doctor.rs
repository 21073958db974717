//! The checks of `intercom slack doctor`: setup problems that prevent a first approval in Slack. Needs no daemon.

use std::collections::BTreeSet;

use serde_json::Value;

use super::web_api::{SlackCallError, SlackTokens, WebApi};
use intercom_daemon::config::Config;
use intercom_types::Role;

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetupFinding {
    pub name: String,
    pub detail: String,
    /// The step that fixes the problem; `None` if all is well.
    pub hint: Option<String>,
}

fn fine(name: &str, detail: impl Into<String>) -> SetupFinding {
    SetupFinding { name: name.to_owned(), detail: detail.into(), hint: None }
}

fn wrong(name: &str, detail: impl Into<String>, hint: impl Into<String>) -> SetupFinding {
    SetupFinding { hint: Some(hint.into()), ..fine(name, detail) }
}

fn failed(name: &str, trouble: &SlackCallError) -> SetupFinding {
    let hint = match trouble {
        SlackCallError::Setup(_) => trouble.advice().unwrap_or("see docs/SLACK.md"),
        SlackCallError::Refused(_) | SlackCallError::Unknown(_) => "see docs/SLACK.md",
        _ => "can this machine reach Slack?",
    };
    wrong(name, trouble.to_string(), hint)
}

/// Runs all checks in the order of the setup.
pub async fn check(config: &Config) -> Vec<SetupFinding> {
    let Some(channel) = &config.slack.channel else {
        return vec![wrong(
            "channel",
            "[slack] has no `channel`: Slack is off",
            "docs/SLACK.md describes the setup",
        )];
    };
    let mut found = vec![people(config)];
    let tokens = match SlackTokens::read(&config.slack) {
        Ok(tokens) => tokens,
        Err(why) => {
            found.push(wrong(
                "tokens",
                why,
                "[slack] app_token_file and bot_token_file name the files; docs/SLACK.md",
            ));
            return found;
        }
    };
    found.push(fine("tokens", "one for the app and one for the bot"));
    let web = match WebApi::new(&config.slack, &tokens) {
        Ok(web) => web,
        Err(error) => {
            found.push(wrong("tls", error.to_string(), "the system's root certificates cannot be loaded"));
            return found;
        }
    };
    found.push(match web.can_connect().await {
        Ok(()) => fine("app token", "a connection can be opened"),
        Err(trouble) => failed("app token", &trouble),
    });
    match web.identify().await {
        Err(trouble) => {
            found.push(failed("bot token", &trouble));
            return found;
        }
        Ok(who) => {
            found.push(fine("bot token", format!("we are {} in {}", who.user, who.team)));
            let missing = who.missing();
            found.push(match (&who.scopes, missing.is_empty()) {
                (None, _) => fine("scopes", "Slack does not report them"),
                (Some(_), true) => fine("scopes", "complete"),
                (Some(_), false) => {
                    let each: Vec<String> = missing.iter().map(|(scope, what)| format!("{scope} ({what})")).collect();
                    let hint = "add them in the app's \"OAuth & Permissions\", then install it again; `intercom slack manifest` lists all";
                    wrong("scopes", format!("missing: {}", each.join(", ")), hint)
                }
            });
        }
    }
    let channels: BTreeSet<&String> = [channel]
        .into_iter()
        .chain(config.workspaces.values().filter_map(|workspace| workspace.slack.channel.as_ref()))
        .collect();
    for channel in channels {
        found.push(check_channel(&web, channel).await);
    }
    found
}

/// Checks that an operator with a Slack id exists: nobody else can act there.
fn people(config: &Config) -> SetupFinding {
    let known = config.operators.iter().filter(|operator| operator.slack.is_some());
    let approvers: Vec<&str> = known
        .clone()
        .filter(|operator| operator.role() >= Role::Approver)
        .map(|operator| operator.name.as_str())
        .collect();
    match (approvers.is_empty(), known.count()) {
        (false, _) => fine("people", format!("{} may approve", approvers.join(", "))),
        (true, 0) => wrong(
            "people",
            "no [[operator]] has a `slack` id: nobody can act in Slack",
            "your id: your profile in Slack → ⋮ → Copy member ID; docs/SLACK.md, step 6",
        ),
        (true, _) => wrong(
            "people",
            "no operator with a `slack` id is approver or admin",
            "set `role` of an [[operator]]",
        ),
    }
}

async fn check_channel(web: &WebApi, channel: &str) -> SetupFinding {
    let name = format!("channel {channel}");
    match web.query("conversations.info", &[("channel", channel.to_owned())]).await {
        Err(trouble) => failed(&name, &trouble),
        Ok(answer) => {
            let about = &answer["channel"];
            let shown = format!("#{}", about["name"].as_str().unwrap_or("?"));
            if about["is_archived"] == Value::Bool(true) {
                return wrong(&name, format!("{shown} is archived"), "choose another one");
            }
            if about["is_member"] != Value::Bool(true) {
                return wrong(
                    &name,
                    format!("the app is not in {shown}"),
                    "in the channel: /invite @intercom",
                );
            }
            fine(&name, format!("{shown}; the app is a member"))
        }
    }
}

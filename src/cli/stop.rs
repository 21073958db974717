//! `intercom stop`: ends sessions in parallel and reports the steps that were needed.

use serde_json::json;
use tokio::task::JoinSet;

use super::failure::{self, CliFailure};
use super::session_names::name_and_id;
use super::url::url;
use super::{CliContext, output};
use intercom_types::StopResult;
use intercom_types::text::{clean, plural};

/// Stop sessions gently, and by force only if necessary
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Returns when every process of the sessions is gone, and reports the steps that were needed."
)]
pub(super) struct StopArgs {
    /// One or more sessions
    #[arg(value_name = "SES", required = true, value_parser = super::non_empty_id())]
    sessions: Vec<String>,
}

pub(super) async fn run(args: StopArgs, cx: &CliContext) -> anyhow::Result<()> {
    end(cx, args.sessions, "stop").await
}

/// Ends all sessions at the same time. A failure of one does not affect the others.
pub(super) async fn end(cx: &CliContext, sessions: Vec<String>, how: &'static str) -> anyhow::Result<()> {
    let mut tasks = JoinSet::new();
    for (index, session) in sessions.iter().enumerate() {
        let (client, typed, wants_name) = (cx.client.clone(), session.clone(), !cx.json);
        tasks.spawn(async move {
            let ended = client.post(&url(&["sessions", &typed, how], &[]), &json!({})).await;
            let id = ended.as_ref().ok().and_then(|answer| Some(answer.parse::<StopResult>().ok()?.session));
            let name = match id {
                Some(id) if wants_name => name_and_id(Some(&id), &typed, &client).await,
                _ => clean(&typed),
            };
            (index, name, ended)
        });
    }
    let mut bodies = vec![String::new(); sessions.len()];
    let (mut failures, mut printed) = (Vec::new(), Ok(()));
    while let Some(done) = tasks.join_next().await {
        let (index, session, result) = done?;
        match result {
            Ok(answer) => {
                if !cx.json && printed.is_ok() {
                    printed = answer
                        .parse()
                        .and_then(|ended| output::print(&format!("{session} {}", tell(&ended))));
                }
                bodies[index] = answer.body;
            }
            Err(error) => {
                bodies[index] = failure::as_json(&error);
                failures.push((session, error));
            }
        }
    }
    printed?;
    if cx.json {
        output::print(&join(&bodies))?;
    }
    sum_up(failures, sessions.len(), how)
}

/// Joins the answers: a single one is unchanged; of several each has its line, in the order of the arguments.
fn join(bodies: &[String]) -> String {
    match bodies {
        [body] => body.clone(),
        several => several.iter().map(|body| body.trim().replace(['\n', '\r'], " ") + "\n").collect(),
    }
}

fn sum_up(mut failures: Vec<(String, anyhow::Error)>, of: usize, how: &str) -> anyhow::Result<()> {
    if of == 1 {
        return failures.pop().map_or(Ok(()), |(_, error)| Err(error));
    }
    if failures.is_empty() {
        return Ok(());
    }
    for (session, error) in &failures {
        output::print_note(&format!("{session}: {}", clean(&format!("{error:#}"))));
    }
    Err(CliFailure::failed(format!("could not {how} {} of {}", failures.len(), plural(of, "session"))).into())
}

fn tell(ended: &StopResult) -> String {
    let steps = match ended.steps.as_slice() {
        [] => String::new(),
        steps => format!(" after {}", clean(&steps.join(", "))),
    };
    let killed = if ended.killed > 0 { format!(", {} killed", ended.killed) } else { String::new() };
    let unrecorded = if ended.recorded { "" } else { "; not recorded yet: the database cannot be written" };
    format!("{}{steps}{killed}{unrecorded}", clean(&ended.phase))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_took_is_told() {
        let sentence = |mut body: serde_json::Value| {
            body["session"] = "ses_0123456789abcdef".into();
            tell(&serde_json::from_value(body).unwrap())
        };
        assert_eq!(sentence(json!({"phase": "ended", "steps": [], "killed": 0})), "ended");
        let body = json!({"phase": "ended", "steps": ["interrupt", "SIGTERM"], "killed": 0});
        assert_eq!(sentence(body), "ended after interrupt, SIGTERM");
        assert_eq!(
            sentence(json!({"phase": "ended", "steps": ["SIGKILL"], "killed": 3})),
            "ended after SIGKILL, 3 killed"
        );
        assert_eq!(
            sentence(json!({"phase": "ended", "recorded": false})),
            "ended; not recorded yet: the database cannot be written"
        );
    }

    #[test]
    fn one_body_is_unchanged_and_several_have_a_line_each() {
        assert_eq!(join(&["{\n}\n".to_owned()]), "{\n}\n");
        assert_eq!(join(&["{\n}".to_owned(), "null".to_owned()]), "{ }\nnull\n");
    }

    #[test]
    fn the_only_failure_is_passed_on_and_several_are_counted() {
        let failure = || ("a".to_owned(), CliFailure::failed("gone").into());
        assert_eq!(sum_up(vec![failure()], 1, "stop").unwrap_err().to_string(), "gone");
        assert_eq!(
            sum_up(vec![failure()], 2, "stop").unwrap_err().to_string(),
            "could not stop 1 of 2 sessions"
        );
        assert!(sum_up(vec![], 2, "stop").is_ok());
    }
}

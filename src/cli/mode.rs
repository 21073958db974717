//! `intercom mode`: an agent's mode, model and options.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::url::url;
use super::{Context, decide};
use crate::answers::{Controls, Named, Sent, Session};
use crate::text::clean;

/// Show or set an agent's mode, model or options
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  intercom mode shop                      what can be set, and what is
  intercom mode shop plan                 sets the mode
  intercom mode shop --model fast         sets the model
  intercom mode shop --option effort=high")]
pub(super) struct Args {
    /// A session
    #[arg(value_name = "SES", value_parser = super::id())]
    session: String,
    /// The mode to set
    #[arg(conflicts_with_all = ["model", "option"])]
    mode: Option<String>,
    /// The model to set
    #[arg(long, conflicts_with = "option")]
    model: Option<String>,
    /// An option to set
    #[arg(long, value_name = "ID=VALUE")]
    option: Option<String>,
}

pub(super) async fn run(args: Args, cx: &Context) -> anyhow::Result<()> {
    let body = match (&args.mode, &args.model, args.option.as_deref().map(|text| text.split_once('='))) {
        (Some(mode), _, _) => json!({ "mode": mode }),
        (_, Some(model), _) => json!({ "model": model }),
        (_, _, Some(Some((id, value)))) => json!({ "option": id, "value": value }),
        (_, _, Some(None)) => {
            return Err(super::failure::Failure::usage("an option is set as ID=VALUE").into());
        }
        (None, None, None) => {
            let answer = cx.client.get(&url(&["sessions", &args.session], &[])).await?;
            let session: Session = answer.parse()?;
            return cx.answer(&answer, || Ok(session.controls.as_ref().map_or_else(nothing, list)));
        }
    };
    let answer = cx.client.post(&url(&["sessions", &args.session, "set"], &[]), &body).await?;
    let delivery = answer.parse::<Sent>()?.delivery();
    cx.answer(&answer, || Ok(format!("{} was told{}", clean(&args.session), delivery.unless_delivered())))?;
    decide::settle(&delivery)
}

fn nothing() -> String {
    "there is nothing to be set".to_owned()
}

fn list(controls: &Controls) -> String {
    let mut text = String::new();
    choice(&mut text, "mode", controls.mode.as_deref(), &controls.modes);
    choice(&mut text, "model", controls.model.as_deref(), &controls.models);
    for option in controls.options.as_array().into_iter().flatten() {
        let get = |key: &str| option.get(key).and_then(Value::as_str).map(clean).unwrap_or_default();
        let current = option.get("currentValue").map(|value| match value {
            Value::String(text) => clean(text),
            other => clean(&other.to_string()),
        });
        writeln!(text, "option {:<12} {}  {}", get("id"), current.unwrap_or_default(), get("name"))
            .expect("a string takes every write");
    }
    text.trim_end().to_owned()
}

fn choice(text: &mut String, what: &str, current: Option<&str>, all: &[Named]) {
    for Named { id, name } in all {
        let mark = if Some(id.as_str()) == current { '*' } else { ' ' };
        writeln!(text, "{what} {mark} {:<18} {}", clean(id), clean(name))
            .expect("a string takes every write");
    }
}

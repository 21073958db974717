//! `intercom mode`: an agent's mode, model and options.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::CliContext;
use super::failure::{CliFailure, DaemonRefusal};
use super::url::url;
use intercom_types::text::clean;
use intercom_types::{Controls, NamedSetting, Session, SettingChange, SettingValue, SettingWait};

/// Show or set an agent's mode, model or options
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  intercom mode shop                      shows the settings and their values
  intercom mode shop plan                 sets the mode
  intercom mode shop --model fast         sets the model
  intercom mode shop --option effort=high

The agent has 30 seconds to accept the change. If it does not offer or refuses the value, the exit code is 1.")]
pub(super) struct ModeArgs {
    /// A session
    #[arg(value_name = "SES", value_parser = super::non_empty_id())]
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

/// A setting that the person chooses.
#[derive(Debug)]
struct ChosenSetting<'a> {
    /// `mode`, `model`, or the id of an option.
    id: &'a str,
    value: &'a str,
}

pub(super) async fn run(args: ModeArgs, cx: &CliContext) -> anyhow::Result<()> {
    let answer = cx.client.get(&url(&["sessions", &args.session], &[])).await?;
    let session: Session = answer.parse()?;
    let option = args.option.as_deref().map(|text| text.split_once('='));
    let (wanted, mut change) = match (args.mode.as_deref(), args.model.as_deref(), option) {
        (Some(value), _, _) => {
            let mode = Some(value.to_owned());
            (ChosenSetting { id: "mode", value }, SettingChange { mode, ..SettingChange::default() })
        }
        (_, Some(value), _) => {
            let model = Some(value.to_owned());
            (ChosenSetting { id: "model", value }, SettingChange { model, ..SettingChange::default() })
        }
        (_, _, Some(Some((id, value)))) => {
            let (option, setting) = (Some(id.to_owned()), Some(SettingValue::Value(value.to_owned())));
            let change = SettingChange { option, value: setting, ..SettingChange::default() };
            (ChosenSetting { id, value }, change)
        }
        (_, _, Some(None)) => return Err(CliFailure::usage("the option must have the form ID=VALUE").into()),
        (None, None, None) => {
            return cx.print_answer(&answer, || Ok(session.controls.as_ref().map_or_else(nothing, list)));
        }
    };
    let name = clean(&session.label());
    let offered = session.controls.as_ref().map(|controls| offered(controls, wanted.id)).unwrap_or_default();
    let hint = || format!("{} of {name}: {}", wanted.id, clean(&offered.join(", ")));
    // Some agents accept any value.
    if !offered.is_empty() && !offered.iter().any(|known| known == wanted.value) {
        let message = format!("{name} does not offer {} `{}`", wanted.id, wanted.value);
        return Err(CliFailure::failed(message).hint(hint()).into());
    }
    change.wait = Some(SettingWait::Agent);
    let answer = cx.client.post(&url(&["sessions", &args.session, "set"], &[]), &json!(change)).await;
    let answer = answer.map_err(|error| match error.downcast::<DaemonRefusal>() {
        Ok(refusal) if refusal.code == "not_set" && !offered.is_empty() => refusal.hint(hint()).into(),
        Ok(refusal) if refusal.code == "not_set" => {
            refusal.hint(format!("`{} mode {name}` shows the settings", cx.command_prefix)).into()
        }
        Ok(refusal) => refusal.into(),
        Err(error) => error,
    })?;
    cx.print_answer(&answer, || Ok(format!("{name}: {} is {} now", clean(wanted.id), clean(wanted.value))))
}

/// Returns the values that the agent offers for a mode, a model or an option; none if it does not report them.
fn offered(controls: &Controls, id: &str) -> Vec<String> {
    let named = match id {
        "mode" => &controls.modes[..],
        "model" => &controls.models[..],
        _ => &[],
    };
    if !named.is_empty() {
        return named.iter().map(|named| named.id.clone()).collect();
    }
    let is_meant = |option: &Value| option["id"] == id || option["category"] == id;
    let option = controls.option_list().unwrap_or_default().into_iter().find(is_meant);
    let values = option.as_ref().and_then(|option| option["options"].as_array()).into_iter().flatten();
    // Values may come in groups.
    let each = |value: &Value| match value["options"].as_array() {
        Some(group) => group.clone(),
        None => vec![value.clone()],
    };
    values.flat_map(each).filter_map(|value| value["value"].as_str().map(str::to_owned)).collect()
}

fn nothing() -> String {
    "the agent has no settings".to_owned()
}

fn list(controls: &Controls) -> String {
    let mut text = String::new();
    choice(&mut text, "mode", controls.mode.as_deref(), &controls.modes);
    choice(&mut text, "model", controls.model.as_deref(), &controls.models);
    for option in controls.option_list().unwrap_or_default() {
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

fn choice(text: &mut String, what: &str, current: Option<&str>, all: &[NamedSetting]) {
    for NamedSetting { id, name } in all {
        let mark = if Some(id.as_str()) == current { '*' } else { ' ' };
        writeln!(text, "{what} {mark} {:<18} {}", clean(id), clean(name))
            .expect("a string takes every write");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_the_old_lists_or_of_the_options_also_in_groups() {
        let controls = |value: Value| serde_json::from_value::<Controls>(value).unwrap();
        let old =
            controls(json!({ "mode": "ask", "modes": [{ "id": "ask", "name": "Ask" }], "options": null }));
        assert_eq!(offered(&old, "mode"), ["ask"]);
        assert_eq!(offered(&old, "model"), [] as [&str; 0]);
        let new = controls(json!({ "options": [
            { "id": "m", "category": "mode", "options": [{ "value": "a" }, { "value": "b" }] },
            { "id": "effort", "options": [{ "group": "g", "options": [{ "value": "high" }] }] },
            { "id": "fast", "type": "boolean" },
        ] }));
        assert_eq!(offered(&new, "mode"), ["a", "b"]);
        assert_eq!(offered(&new, "effort"), ["high"]);
        assert_eq!(offered(&new, "fast"), [] as [&str; 0]);
    }
}

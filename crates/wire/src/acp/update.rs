//! `session/update`: reports of a working agent, which go into the log unchanged.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::tool::ToolCall;
use super::{count, list, optional_fields, string};
use crate::unquote;
use intercom_types::agent::{MAX_STEPS, ProgressStep};

/// The parts of an update that we read. Updates are very frequent, so this takes one pass and copies nothing.
#[derive(Debug)]
pub(crate) struct SessionUpdateParts<'a> {
    /// The kind, such as `agent_message_chunk` or `tool_call`; any other word is allowed.
    pub(crate) kind: Option<Cow<'a, str>>,
    params: &'a RawValue,
}

/// The kinds of update that we act on.
#[derive(Debug)]
pub(crate) enum UpdateDetail<'a> {
    Tool(ToolCall<'a>),
    Plan(Vec<ProgressStep>),
    Usage(ContextUsage<'a>),
    /// The agent's current mode.
    Mode(Cow<'a, str>),
    /// The agent's title of the session; `None` removes it.
    Title(Option<Cow<'a, str>>),
    /// Its config options, all of them, raw.
    Config(&'a RawValue),
    Nothing,
}

/// The fill of the context and the cost of the session so far: the last one counts, they do not add up.
#[derive(Debug, PartialEq)]
pub(crate) struct ContextUsage<'a> {
    pub(crate) used: Option<u64>,
    pub(crate) size: Option<u64>,
    pub(crate) cost: Option<SessionCost<'a>>,
}

#[derive(Debug, PartialEq)]
pub(crate) struct SessionCost<'a> {
    pub(crate) amount: f64,
    pub(crate) currency: Option<Cow<'a, str>>,
}

impl<'a> SessionUpdateParts<'a> {
    /// `None` if it is not an object with an update inside.
    pub(crate) fn read(params: &'a RawValue) -> Option<Self> {
        #[derive(Deserialize)]
        struct RawUpdateParams<'a> {
            #[serde(borrow)]
            update: RawUpdateKind<'a>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct RawUpdateKind<'a> {
            #[serde(borrow)]
            session_update: Option<&'a RawValue>,
        }
        // serde would take an array for an object.
        let object = params.get().starts_with('{');
        let RawUpdateParams { update } = object.then(|| serde_json::from_str(params.get()).ok())??;
        let kind = update.session_update.and_then(|raw| unquote(raw.get()));
        Some(Self { kind, params })
    }

    pub(crate) fn detail(&self) -> UpdateDetail<'a> {
        let [update] = optional_fields(Some(self.params), ["update"]);
        let detail = match self.kind.as_deref() {
            Some("tool_call" | "tool_call_update") => update.and_then(ToolCall::read).map(UpdateDetail::Tool),
            Some("plan") => Some(UpdateDetail::Plan(steps(update))),
            Some("plan_update") => Some(UpdateDetail::Plan(steps(optional_fields(update, ["plan"])[0]))),
            Some("usage_update") => Some(UpdateDetail::Usage(ContextUsage::read(update))),
            Some("current_mode_update") => {
                string(optional_fields(update, ["currentModeId"])[0]).map(UpdateDetail::Mode)
            }
            Some("session_info_update") => titled(update),
            Some("config_option_update") => {
                optional_fields(update, ["configOptions"])[0].map(UpdateDetail::Config)
            }
            _ => None,
        };
        detail.unwrap_or(UpdateDetail::Nothing)
    }

    /// Returns the text of a chunk.
    pub(crate) fn text(&self) -> Option<Cow<'a, str>> {
        let [update] = optional_fields(Some(self.params), ["update"]);
        let [content] = optional_fields(update, ["content"]);
        string(optional_fields(content, ["text"])[0])
    }
}

/// Reads a change of the title: `null` removes it, a missing field leaves it as it is.
fn titled(update: Option<&RawValue>) -> Option<UpdateDetail<'_>> {
    let fields: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_str(update?.get()).ok()?;
    let title = *fields.get("title")?;
    let words = unquote(title.get());
    (words.is_some() || title.get() == "null").then_some(UpdateDetail::Title(words))
}

fn steps(plan: Option<&RawValue>) -> Vec<ProgressStep> {
    let [entries] = optional_fields(plan, ["entries"]);
    let step = |raw: &RawValue| {
        let [content, status] = optional_fields(Some(raw), ["content", "status"]);
        Some(ProgressStep::new(&string(content)?, &string(status).unwrap_or_default()))
    };
    list(entries).into_iter().take(MAX_STEPS).filter_map(step).collect()
}

impl<'a> ContextUsage<'a> {
    fn read(update: Option<&'a RawValue>) -> Self {
        let [used, size, cost] = optional_fields(update, ["used", "size", "cost"]);
        let [amount, currency] = optional_fields(cost, ["amount", "currency"]);
        let amount = amount.and_then(|raw| serde_json::from_str::<f64>(raw.get()).ok());
        let cost = amount.map(|amount| SessionCost { amount, currency: string(currency) });
        Self { used: count(used), size: count(size), cost }
    }
}

//! Modes, models and options: what can be set, and what has been.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{AcpDriver, PendingCall};
use crate::acp::answer::{self, ConfigOption, Selection, SessionStarted};
use crate::acp::send;
use crate::acp::trouble::Failure;
use crate::acp::update::Cost;
use intercom_types::{Controls, Json, Named, Said, Set, agent};

/// The most pages read of a list of sessions.
const MAX_PAGES: usize = 20;

/// The number of a setting that no person asked for.
pub(super) const NO_NUMBER: u64 = 0;

/// A setting that waits for the agent's answer.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct PendingSetting {
    /// Ours, for whoever waits.
    number: u64,
    /// The mode that applies once the agent agrees, where it does not report that itself.
    mode: Option<String>,
    model: Option<String>,
}

impl AcpDriver {
    /// Returns the message that sets a mode, a model or an option. Older agents call a mode or a model what
    /// others have as an option.
    pub(super) fn set(&mut self, set: &Set, number: u64) -> Option<String> {
        let session = self.mind.session.clone()?;
        let (mode, model) = (self.option_of("mode"), self.option_of("model"));
        let old_modes = !self.mind.controls.modes.is_empty();
        let mut setting = PendingSetting { number, ..PendingSetting::default() };
        let ours = self.mind.next_id;
        let id = self.ask(PendingCall::Set);
        let text = match set {
            Set::Mode(value) => {
                if let Some(option) = mode.filter(|_| !old_modes) {
                    send::set_config_option(&id, &session, &option, value)
                } else {
                    setting.mode = Some(value.clone());
                    send::set_mode(&id, &session, value)
                }
            }
            Set::Model(value) => {
                if let Some(option) = model {
                    send::set_config_option(&id, &session, &option, value)
                } else {
                    setting.model = Some(value.clone());
                    send::set_model(&id, &session, value)
                }
            }
            Set::Option { id: option, value: agent::Setting::Switch(on) } => {
                send::switch_config_option(&id, &session, option, *on)
            }
            Set::Option { id: option, value: agent::Setting::Value(value) } => match value.as_str() {
                "true" | "false" if self.is_switch(option) => {
                    send::switch_config_option(&id, &session, option, value == "true")
                }
                _ => send::set_config_option(&id, &session, option, value),
            },
        };
        self.mind.setting.insert(ours, setting);
        Some(text)
    }

    /// The agent has answered; where it tells its options again, they are as it says.
    pub(super) fn is_set(
        &mut self,
        ours: Option<u64>,
        result: Result<&RawValue, &RawValue>,
        said: &mut Vec<Said>,
    ) {
        let setting = ours.and_then(|id| self.mind.setting.remove(&id));
        let set = setting.as_ref().map(|setting| setting.number).filter(|number| *number != NO_NUMBER);
        let open = self.mind.opening.take_if(|open| open.waits_for(ours));
        match (result, open) {
            (Ok(result), open) => {
                let before = self.mind.controls.clone();
                let controls = &mut self.mind.controls;
                let options = SessionStarted::read(result).config_options.map(Json::raw);
                controls.options = options.or(controls.options.take());
                if let Some(PendingSetting { mode, model, .. }) = setting {
                    controls.mode = mode.or(controls.mode.take());
                    controls.model = model.or(controls.model.take());
                }
                if *controls != before {
                    said.push(self.controls());
                }
                match open {
                    Some(open) => self.opening_mode_answered(open, Ok(result), said),
                    None => said.push(Said::IsSet { set, result: Json::raw(result) }),
                }
            }
            (Err(error), Some(open)) => self.opening_mode_answered(open, Err(error), said),
            (Err(error), None) => {
                let failure = Failure::read(error);
                let reason = failure.advice(&self.setup.agent, &self.log_in_advice(&failure));
                said.push(Said::NotSet { set, reason, error: Json::raw(error) });
            }
        }
    }

    pub(super) fn learn(&mut self, started: &SessionStarted<'_>) {
        let (old_style, options) = (named(started.models()), started.config_options.map(Json::raw));
        let (mode, modes) = named(started.modes());
        self.mind.controls = Controls { mode, modes, model: old_style.0, models: old_style.1, options };
    }

    pub(super) fn controls(&mut self) -> Said {
        self.dirty = true;
        Said::Controls(Box::new(self.mind.controls.clone()))
    }

    /// Page by page; all of it is told at once.
    pub(super) fn listed(&mut self, result: &RawValue, said: &mut Vec<Said>) {
        let page = answer::SessionsListed::read(result);
        self.mind.listed.push(Json::raw(result));
        let next = page.and_then(|page| page.next).filter(|_| self.mind.listed.len() < MAX_PAGES);
        if let Some(next) = next {
            let text =
                send::session_list(&self.ask(PendingCall::List), Some(&self.setup.workspace), Some(&next));
            return said.push(Said::Tell { text });
        }
        let mut all: Vec<serde_json::Value> = Vec::new();
        for page in std::mem::take(&mut self.mind.listed) {
            let mut page: serde_json::Value = serde_json::from_str(page.as_str()).unwrap_or_default();
            // Not by `page["sessions"]`: that panics where the page is no object.
            let sessions = page.get_mut("sessions").and_then(serde_json::Value::as_array_mut);
            all.extend(sessions.map(std::mem::take).unwrap_or_default());
        }
        said.push(Said::Listed { result: Json::of(&serde_json::json!({ "sessions": all })), ok: true });
    }

    fn options(&self) -> Vec<ConfigOption<'_>> {
        let raw = self.mind.controls.options.as_ref();
        answer::config_options(raw.and_then(|raw| serde_json::from_str(raw.as_str()).ok()))
    }

    fn option_of(&self, category: &str) -> Option<String> {
        let options = self.options().into_iter();
        let mut fitting = options.filter(|option| option.category.as_deref() == Some(category));
        fitting.next().map(|option| option.id.into_owned())
    }

    fn is_switch(&self, option: &str) -> bool {
        self.options().iter().any(|known| known.id == option && known.sort.as_deref() == Some("boolean"))
    }
}

fn named(all: Selection<'_>) -> (Option<String>, Vec<Named>) {
    let named = |one: answer::NamedOption<'_>| Named { id: one.id.into(), name: one.name.into() };
    (all.current.map(Into::into), all.available.into_iter().map(named).collect())
}

/// In millionths; what is no sum of money is left out.
pub(super) fn cost_of(cost: &Cost<'_>) -> Option<Said> {
    let micros = (cost.amount * 1e6).round();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it was looked at")]
    let micros = (0.0..1e15).contains(&micros).then_some(micros as u64)?;
    Some(Said::Cost { micros, currency: cost.currency.clone().map(Into::into) })
}

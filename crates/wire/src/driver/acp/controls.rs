//! Modes, models and options: the offered settings and their values.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{AcpDriver, PendingCall};
use crate::acp::answer::{self, ConfigOption, OptionSelection, SessionStartAnswer};
use crate::acp::error_answer::ErrorAnswer;
use crate::acp::send;
use crate::acp::update::SessionCost;
use intercom_types::{AgentMessage, ControlChange, Controls, Json, NamedSetting, agent};

/// The maximum number of pages read of a list of sessions.
const MAX_PAGES: usize = 20;

/// The number of a setting that no person has requested.
pub(super) const NO_NUMBER: u64 = 0;

/// A setting that waits for the agent's answer.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct PendingSetting {
    /// Our number, for the waiting caller.
    number: u64,
    /// The mode that applies once the agent accepts, if it does not report the mode itself.
    mode: Option<String>,
    model: Option<String>,
}

impl AcpDriver {
    /// Returns the message that sets a mode, a model or an option. Older agents have separate methods for modes and
    /// models.
    pub(super) fn set(&mut self, set: &ControlChange, number: u64) -> Option<String> {
        let session = self.memory.session.id.clone()?;
        let (mode, model) = (self.option_of("mode"), self.option_of("model"));
        let old_modes = !self.memory.controls.modes.is_empty();
        let mut setting = PendingSetting { number, ..PendingSetting::default() };
        let request = self.memory.next_id;
        let id = self.register_request(PendingCall::Set);
        let text = match set {
            ControlChange::Mode(value) => {
                if let Some(option) = mode.filter(|_| !old_modes) {
                    send::set_config_option(&id, &session, &option, value)
                } else {
                    setting.mode = Some(value.clone());
                    send::set_mode(&id, &session, value)
                }
            }
            ControlChange::Model(value) => {
                if let Some(option) = model {
                    send::set_config_option(&id, &session, &option, value)
                } else {
                    setting.model = Some(value.clone());
                    send::set_model(&id, &session, value)
                }
            }
            ControlChange::Option { id: option, value: agent::SettingValue::Switch(on) } => {
                send::switch_config_option(&id, &session, option, *on)
            }
            ControlChange::Option { id: option, value: agent::SettingValue::Value(value) } => {
                match value.as_str() {
                    "true" | "false" if self.is_switch(option) => {
                        send::switch_config_option(&id, &session, option, value == "true")
                    }
                    _ => send::set_config_option(&id, &session, option, value),
                }
            }
        };
        self.memory.setting.insert(request, setting);
        Some(text)
    }

    /// Handles the agent's answer. If it repeats the options, they replace ours.
    pub(super) fn handle_setting_answer(
        &mut self,
        request: Option<u64>,
        result: Result<&RawValue, &RawValue>,
        messages: &mut Vec<AgentMessage>,
    ) {
        let setting = request.and_then(|id| self.memory.setting.remove(&id));
        let set = setting.as_ref().map(|setting| setting.number).filter(|number| *number != NO_NUMBER);
        let open = self.memory.opening.take_if(|open| open.waits_for(request));
        match (result, open) {
            (Ok(result), open) => {
                let before = self.memory.controls.clone();
                let controls = &mut self.memory.controls;
                let options = SessionStartAnswer::read(result).config_options.map(Json::raw);
                controls.options = options.or(controls.options.take());
                if let Some(PendingSetting { mode, model, .. }) = setting {
                    controls.mode = mode.or(controls.mode.take());
                    controls.model = model.or(controls.model.take());
                }
                if *controls != before {
                    messages.push(self.controls());
                }
                match open {
                    Some(open) => self.opening_mode_answered(open, Ok(result), messages),
                    None => messages.push(AgentMessage::SettingAccepted { set, result: Json::raw(result) }),
                }
            }
            (Err(error), Some(open)) => self.opening_mode_answered(open, Err(error), messages),
            (Err(error), None) => {
                let failure = ErrorAnswer::read(error);
                let reason = failure.advice(&self.setup.agent, &self.log_in_advice(&failure));
                messages.push(AgentMessage::SettingRefused { set, reason, error: Json::raw(error) });
            }
        }
    }

    pub(super) fn store_controls(&mut self, started: &SessionStartAnswer<'_>) {
        let (old_style, options) = (named_options(started.models()), started.config_options.map(Json::raw));
        let (mode, modes) = named_options(started.modes());
        self.memory.controls = Controls { mode, modes, model: old_style.0, models: old_style.1, options };
    }

    pub(super) fn controls(&mut self) -> AgentMessage {
        self.dirty = true;
        AgentMessage::Controls(Box::new(self.memory.controls.clone()))
    }

    /// Adds a page of sessions; the complete list is reported at the end.
    pub(super) fn add_session_page(&mut self, result: &RawValue, messages: &mut Vec<AgentMessage>) {
        self.memory.listed.push(Json::raw(result));
        let next = answer::next_session_page(result).filter(|_| self.memory.listed.len() < MAX_PAGES);
        if let Some(next) = next {
            let text = send::session_list(
                &self.register_request(PendingCall::List),
                Some(&self.setup.workspace),
                Some(&next),
            );
            return messages.push(AgentMessage::DriverText { text });
        }
        let mut all: Vec<serde_json::Value> = Vec::new();
        for page in std::mem::take(&mut self.memory.listed) {
            let mut page: serde_json::Value = serde_json::from_str(page.as_str()).unwrap_or_default();
            // Not by `page["sessions"]`, which panics if the page is not an object.
            let sessions = page.get_mut("sessions").and_then(serde_json::Value::as_array_mut);
            all.extend(sessions.map(std::mem::take).unwrap_or_default());
        }
        messages.push(AgentMessage::SessionList {
            result: Json::of(&serde_json::json!({ "sessions": all })),
            ok: true,
        });
    }

    fn options(&self) -> Vec<ConfigOption<'_>> {
        let raw = self.memory.controls.options.as_ref();
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

fn named_options(all: OptionSelection<'_>) -> (Option<String>, Vec<NamedSetting>) {
    let named = |one: answer::NamedOption<'_>| NamedSetting { id: one.id.into(), name: one.name.into() };
    (all.current.map(Into::into), all.available.into_iter().map(named).collect())
}

/// Converts a cost to millionths; `None` if it is not a valid amount.
pub(super) fn cost_of(cost: &SessionCost<'_>) -> Option<AgentMessage> {
    let micros = (cost.amount * 1e6).round();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range was checked")]
    let micros = (0.0..1e15).contains(&micros).then_some(micros as u64)?;
    Some(AgentMessage::Cost { micros, currency: cost.currency.clone().map(Into::into) })
}

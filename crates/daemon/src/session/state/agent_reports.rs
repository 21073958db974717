//! The agent's reports about itself, its settings, and its spending caps.

use super::{CommandRefusal, EffectSink, LifeStage, OutboundKind, SessionState};
use intercom_types::event::{AgentSetting, SpendCapped};
use intercom_types::{AgentCommand, AgentInfo, ControlChange, Controls, Event, ProgressStep, agent};

impl SessionState {
    pub(super) fn controls(&mut self, controls: Controls) {
        // In another mode the agent may ask, so the warning begins anew.
        if controls.current_mode() != self.agent.info.controls.current_mode() {
            self.requests.unenforced = None;
        }
        self.agent.info.controls = controls;
    }

    pub(super) fn title(&mut self, title: Option<String>) {
        if title != self.agent.info.title {
            self.agent.info.title = title;
        }
    }

    /// Updates the steps of its plan. A heartbeat without steps changes nothing.
    pub(super) fn steps(&mut self, steps: Vec<ProgressStep>) {
        if !steps.is_empty() && steps != self.agent.info.steps {
            self.agent.info.steps = steps;
        }
    }

    pub(super) fn cost(&mut self, micros: u64, currency: Option<&str>, out: &EffectSink<'_, '_>) {
        self.agent.info.spent.add_cost(micros, currency, out.now());
    }

    pub(super) fn set(
        &mut self,
        set: ControlChange,
        by: &str,
        out: &mut EffectSink<'_, '_>,
    ) -> Result<(), CommandRefusal> {
        self.running()?;
        if !self.agent_owns_turns() {
            return Err(CommandRefusal::NothingToSet);
        }
        self.agent.settings_sent += 1;
        let number = self.agent.settings_sent;
        let (mode, model, option, value) = match set.clone() {
            ControlChange::Mode(mode) => (Some(mode), None, None, None),
            ControlChange::Model(model) => (None, Some(model), None, None),
            ControlChange::Option { id, value } => (None, None, Some(id), Some(value)),
        };
        let by = by.to_owned();
        out.record(Event::AgentSetting(AgentSetting { mode, model, option, value, by, set: number }));
        self.send(AgentCommand::ChangeSetting { set, number }, OutboundKind::Other, out);
        Ok(())
    }

    /// Asks the agent for its sessions. Not an act that resets the ladder.
    pub(super) fn list(&mut self, out: &mut EffectSink<'_, '_>) -> Result<(), CommandRefusal> {
        self.running()?;
        if !self.agent.supports_session_list {
            return Err(CommandRefusal::NothingToList);
        }
        self.send(AgentCommand::ListSessions, OutboundKind::Other, out);
        Ok(())
    }

    /// Returns true if another turn may begin. If a spending cap prevents it, that is reported once.
    pub(super) fn may_spend(&mut self, out: &mut EffectSink<'_, '_>) -> bool {
        let why = self.cap(out);
        if let Some(why) = why.clone().filter(|_| self.agent.info.capped.is_none()) {
            out.record(Event::SpendCapped(SpendCapped { why }));
        }
        if why != self.agent.info.capped {
            self.agent.info.capped = why;
        }
        self.agent.info.capped.is_none()
    }

    fn cap(&self, out: &EffectSink<'_, '_>) -> Option<String> {
        let (spent, caps) = (&self.agent.info.spent, &out.watch_policy().spend);
        let currency = spent.currency.as_deref().unwrap_or("USD");
        let today = spent.cost_on_day(agent::day(out.now())).saturating_add(out.cx.spent_elsewhere);
        let over = |spent: u64, cap: Option<u64>, when: &str| {
            let cap = cap.filter(|cap| spent >= *cap)?;
            Some(format!("{} of {} {currency} are spent {when}", money(spent), money(cap)))
        };
        over(spent.cost_micros, caps.per_session, "in this session")
            .or_else(|| over(today, caps.per_day, "today"))
    }

    /// Checks the spending cap again, because it may have been raised, or the day may be over.
    pub(super) fn recheck_spend_cap(&mut self, out: &mut EffectSink<'_, '_>) {
        if self.agent.info.capped.is_some() && self.life.stage == LifeStage::Running && self.may_spend(out) {
            self.flush_prompts(out);
        }
    }

    pub(crate) fn agent_info(&self) -> &AgentInfo {
        &self.agent.info
    }
}

/// Formats millionths as an amount of money.
fn money(micros: u64) -> String {
    format!("{}.{:02}", micros / 1_000_000, micros % 1_000_000 / 10_000)
}

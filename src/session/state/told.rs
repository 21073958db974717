//! What the agent tells about itself, what is set, and what may be spent.

use super::{Carries, Out, Refused, Stage, State};
use crate::domain::event::{AgentSetting, SpendCapped};
use crate::domain::{Controls, Event, Outbound, Set, Step, Told, agent};

impl State {
    pub(super) fn controls(&mut self, controls: Controls) {
        // In another mode the agent may ask: it is judged anew.
        if controls.current_mode() != self.told.controls.current_mode() {
            self.unenforced = None;
        }
        self.told.controls = controls;
        self.dirty = true;
    }

    pub(super) fn title(&mut self, title: Option<String>) {
        self.dirty |= title != self.told.title;
        self.told.title = title;
    }

    /// A heartbeat that says nothing about them changes nothing.
    pub(super) fn steps(&mut self, steps: Vec<Step>) {
        if !steps.is_empty() && steps != self.told.steps {
            self.told.steps = steps;
            self.dirty = true;
        }
    }

    pub(super) fn cost(&mut self, micros: u64, currency: Option<&str>, out: &Out<'_, '_>) {
        self.told.spent.add_cost(micros, currency, out.now());
        self.dirty = true;
    }

    pub(super) fn set(&mut self, set: Set, by: &str, out: &mut Out<'_, '_>) -> Result<(), Refused> {
        self.running()?;
        if !self.about.strict {
            return Err(Refused::NothingToSet);
        }
        self.sets += 1;
        let number = self.sets;
        let (mode, model, option, value) = match set.clone() {
            Set::Mode(mode) => (Some(mode), None, None, None),
            Set::Model(model) => (None, Some(model), None, None),
            Set::Option { id, value } => (None, None, Some(id), Some(value)),
        };
        let by = by.to_owned();
        out.record(Event::AgentSetting(AgentSetting { mode, model, option, value, by, set: number }));
        self.send(Outbound::Set { set, number }, Carries::Other, out);
        Ok(())
    }

    /// No act of a person's that would change anything.
    pub(super) fn list(&mut self, out: &mut Out<'_, '_>) -> Result<(), Refused> {
        self.running()?;
        if !self.lists {
            return Err(Refused::NothingToList);
        }
        self.send(Outbound::List, Carries::Other, out);
        Ok(())
    }

    /// Whether another turn may begin. If not, that is told once.
    pub(super) fn may_spend(&mut self, out: &mut Out<'_, '_>) -> bool {
        let why = self.cap(out);
        if let Some(why) = why.clone().filter(|_| self.told.capped.is_none()) {
            out.record(Event::SpendCapped(SpendCapped { why }));
        }
        self.dirty |= why != self.told.capped;
        self.told.capped = why;
        self.told.capped.is_none()
    }

    fn cap(&self, out: &Out<'_, '_>) -> Option<String> {
        let (spent, caps) = (&self.told.spent, &out.vigil().spend);
        let currency = spent.currency.as_deref().unwrap_or("USD");
        let today = spent.on(agent::day(out.now())).saturating_add(out.cx.spent_elsewhere);
        let over = |spent: u64, cap: Option<u64>, when: &str| {
            let cap = cap.filter(|cap| spent >= *cap)?;
            Some(format!("{} of {} {currency} are spent {when}", money(spent), money(cap)))
        };
        over(spent.cost_micros, caps.per_session, "in this session")
            .or_else(|| over(today, caps.per_day, "today"))
    }

    /// A cap may have been raised, or a day be over.
    pub(super) fn look_at_purse(&mut self, out: &mut Out<'_, '_>) {
        if self.told.capped.is_some() && self.stage == Stage::Running && self.may_spend(out) {
            self.flush_prompts(out);
        }
    }

    pub fn told(&self) -> &Told {
        &self.told
    }
}

/// Millionths as people write them.
fn money(micros: u64) -> String {
    format!("{}.{:02}", micros / 1_000_000, micros % 1_000_000 / 10_000)
}

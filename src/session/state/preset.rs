//! What a session may do at most.

use super::{Out, Refused, State, Words};
use crate::domain::event::SessionPresetChanged;
use crate::domain::{ClearanceId, Event, Preset, Verdict};

impl State {
    /// Holds from now on, also for what waits to be decided.
    pub(super) fn choose_preset(
        &mut self,
        preset: Preset,
        widens: bool,
        by: &str,
        out: &mut Out<'_, '_>,
    ) -> Result<(), Refused> {
        let from = self.about.preset;
        if from == preset {
            return Ok(());
        }
        if from.widens_to(preset) && !widens {
            return Err(Refused::Widens { from, to: preset });
        }
        self.about.preset = preset;
        out.record(Event::SessionPresetChanged(SessionPresetChanged { preset, by: by.to_owned() }));
        if self.steerable().is_ok() {
            self.deny_forbidden(preset, out); // otherwise its end withdraws them
        }
        Ok(())
    }

    fn deny_forbidden(&mut self, preset: Preset, out: &mut Out<'_, '_>) {
        let forbidden: Vec<ClearanceId> = self
            .terms
            .iter()
            .filter(|(_, terms)| terms.forbidden_by.contains(&preset))
            .map(|(id, _)| *id)
            .collect();
        for id in forbidden {
            let option = self.chosen(id, Verdict::Deny, None).unwrap_or_default();
            let Some((request, terms)) = self.take_open(id) else { continue };
            let reason = Some(format!("{} denies it", preset.rule()));
            let words = Words { reason, option, by: preset.rule(), via: "policy".to_owned(), ruling: None };
            self.close_decided(id, request, &terms.approvals, Verdict::Deny, words, out);
            self.watch.heard(out.now()); // it was not its turn to speak until now
        }
    }
}

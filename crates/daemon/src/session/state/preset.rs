//! The preset: the limit on what a session may do.

use super::{CommandRefusal, DecisionDetails, EffectSink, SessionState};
use intercom_types::event::SessionPresetChanged;
use intercom_types::{Event, Preset, Verdict};

impl SessionState {
    /// Sets the preset, which also applies to pending clearances.
    pub(super) fn choose_preset(
        &mut self,
        preset: Preset,
        widens: bool,
        by: &str,
        out: &mut EffectSink<'_, '_>,
    ) -> Result<(), CommandRefusal> {
        let from = self.spec.preset;
        if from == preset {
            return Ok(());
        }
        if from.widens_to(preset) && !widens {
            return Err(CommandRefusal::Widens { from, to: preset });
        }
        self.spec.preset = preset;
        out.record(Event::SessionPresetChanged(SessionPresetChanged { preset, by: by.to_owned() }));
        if self.steerable().is_ok() {
            self.deny_forbidden(preset, out); // otherwise the agent's exit withdraws them
        }
        Ok(())
    }

    fn deny_forbidden(&mut self, preset: Preset, out: &mut EffectSink<'_, '_>) {
        for id in self.requests.forbidden_by(preset) {
            let option = self.chosen(id, Verdict::Deny, None).unwrap_or_default();
            let Some(open) = self.requests.clearances.remove(&id) else { continue };
            let reason = Some(format!("{} denies it", preset.rule()));
            let details =
                DecisionDetails { reason, option, by: preset.rule(), via: "policy".to_owned(), ruling: None };
            self.close_decided(id, open, Verdict::Deny, details, out);
            self.oversight.tracker.record_sign_of_life(out.now()); // it was waiting for us until now
        }
    }
}

//! Trace entries for rejected lines.

use super::SessionActor;
use crate::session::state::StepEffect;
use intercom_redact::redact;
use intercom_types::event::LineRejected;
use intercom_types::{Event, LineRejection, NewEvent};

/// The number of rejected lines per process that cause a warning each; the rest is in the log only.
const LOUD_REJECTIONS: u32 = 20;

impl SessionActor {
    /// Logs a warning for each rejected line, whether the driver or the state machine rejected it.
    pub(super) fn warn(&mut self, effects: &[StepEffect]) {
        for effect in effects {
            if let StepEffect::Record(NewEvent {
                event: Event::LineRejected(LineRejected(rejection)), ..
            }) = effect
            {
                self.warn_of(rejection);
            }
        }
    }

    fn warn_of(&mut self, rejection: &LineRejection) {
        self.output.rejections += 1;
        if self.output.rejections > LOUD_REJECTIONS {
            return;
        }
        tracing::warn!(
            method = rejection.method,
            field = rejection.field,
            bytes = rejection.bytes,
            line = %redact(&rejection.excerpt).text.escape_debug(),
            "a line was rejected: {}", rejection.reason
        );
        if self.output.rejections == LOUD_REJECTIONS {
            tracing::warn!("further rejected lines of this process are in its log only");
        }
    }
}

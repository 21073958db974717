//! What the trace says of lines that were no use.

use super::Actor;
use crate::domain::{Fact, Json, Kind, Rejection};
use crate::redact::redact;
use crate::session::state::Effect;

/// Unusable lines that are worth a warning each, per process; the rest is in the log only.
const LOUD_REJECTIONS: u32 = 20;

impl Actor {
    /// Says which lines were no use, whoever found that out.
    pub(super) fn warn(&mut self, effects: &[Effect]) {
        for effect in effects {
            if let Effect::Record(Fact { kind: Kind::LineRejected, data, .. }) = effect {
                self.warn_of(data);
            }
        }
    }

    fn warn_of(&mut self, rejection: &Json) {
        self.rejections += 1;
        if self.rejections > LOUD_REJECTIONS {
            return;
        }
        if let Ok(rejection) = serde_json::from_str::<Rejection>(rejection.as_str()) {
            tracing::warn!(
                method = rejection.method,
                field = rejection.field,
                bytes = rejection.bytes,
                line = %redact(&rejection.excerpt).text.escape_debug(),
                "a line was rejected: {}", rejection.reason
            );
        }
        if self.rejections == LOUD_REJECTIONS {
            tracing::warn!("further rejected lines of this process are in its log only");
        }
    }
}

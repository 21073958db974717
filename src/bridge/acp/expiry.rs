//! Sessions that a client began and never used. Editors open one for each window, and most windows are closed again.

use std::time::Duration;

use super::Acp;
use crate::domain::{Phase, SessionRecord, Time};
use crate::session::How;

const LOOK: Duration = Duration::from_mins(10);
/// What the record says.
const BY: &str = "intercom, unused";

impl Acp {
    /// Until the daemon ends.
    pub async fn keep_house(self) {
        let closing = self.0.closing.clone();
        let looking = async {
            let mut look = tokio::time::interval(LOOK);
            loop {
                look.tick().await;
                self.end_unused(Time::now()).await;
            }
        };
        closing.run_until_cancelled(looking).await;
    }

    async fn end_unused(&self, now: Time) {
        let (supervisor, mut before) = (&self.0.supervisor, None);
        let Some(unused) = supervisor.config().seats.unused() else { return };
        loop {
            let Ok(page) = supervisor.store().sessions(false, None, before, 1000).await else { return };
            for record in page.items.iter().filter(|record| is_unused(record, now, unused)) {
                if self.clients_of(record.id) > 0 {
                    continue;
                }
                if let Err(error) = supervisor.stop(record.id, How::Stop, BY.to_owned()).await {
                    tracing::warn!(session.id = %record.id, %error, "an unused session could not be ended");
                }
            }
            before = page.next;
            if before.is_none() {
                return;
            }
        }
    }
}

/// It has had no process, and nobody has touched it for so long.
fn is_unused(record: &SessionRecord, now: Time, unused: Duration) -> bool {
    let touched = record.updated_at.unwrap_or(record.created_at);
    record.phase == Phase::Created && now.since(touched) >= unused
}

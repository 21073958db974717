//! The ACP client that started a session, and its other users.

use super::{EffectSink, SessionState};
use intercom_types::event::SessionKept;
use intercom_types::{Event, OnClientLeft};

impl SessionState {
    /// Records another user than the client that started it: the session stays when that client leaves.
    pub(super) fn keep(&mut self, by: &str, out: &mut EffectSink<'_, '_>) {
        if self.spec.on_client_left == Some(OnClientLeft::Close) {
            self.spec.on_client_left = Some(OnClientLeft::Keep);
            out.record(Event::SessionKept(SessionKept { by: by.to_owned() }));
        }
    }

    /// Records whether ACP clients are attached.
    pub(super) fn clients(&mut self, attached: bool, out: &EffectSink<'_, '_>) {
        let left_at = (!attached).then(|| self.life.left_at.unwrap_or(out.now()));
        if self.spec.on_client_left.is_some() && left_at != self.life.left_at {
            self.life.left_at = left_at;
        }
    }
}

//! The names and titles of sessions, for lines that would otherwise show ids only.

use std::collections::HashMap;

use super::CliContext;
use super::client::DaemonClient;
use super::url::url;
use intercom_types::event::AgentUpdate;
use intercom_types::text::{clean, cut_words, quoted, short};
use intercom_types::{Event, ReceivedEvent, Session};

/// Returns the name and the id of the session in an answer, or the typed text if the answer has none.
pub(super) async fn name_and_id(answered: Option<&str>, typed: &str, client: &DaemonClient) -> String {
    let id = answered.unwrap_or(typed);
    let session = client.get(&url(&["sessions", id], &[])).await.and_then(|answer| answer.parse::<Session>());
    session.map_or_else(|_| clean(typed), |session| clean(&session.name_and_id()))
}

/// The maximum number of remembered sessions; others are shown with their ids.
const MAX_SESSIONS: usize = 20_000;
/// The maximum width of a title beside an id.
const MAX_TITLE: usize = 24;

#[derive(Debug, Default)]
pub(super) struct SessionNames(HashMap<String, NameAndTitle>);

#[derive(Debug, Default)]
struct NameAndTitle {
    name: Option<String>,
    title: Option<String>,
}

impl SessionNames {
    /// Returns the names of all sessions that the daemon knows.
    pub(super) async fn all(cx: &CliContext) -> anyhow::Result<Self> {
        let sessions: Vec<Session> =
            cx.client.list(&["sessions"], &[("all", "true"), ("brief", "true")]).await?.items()?;
        let mut names = Self::default();
        for session in &sessions {
            names.learn(session);
        }
        Ok(names)
    }

    pub(super) fn learn(&mut self, session: &Session) {
        let title = session.own_title().map(str::to_owned);
        if let Some(known) = self.known(&session.id) {
            known.name.clone_from(&session.name);
            known.title = title.or(known.title.take());
        }
    }

    pub(super) fn set_name(&mut self, id: &str, name: &str) {
        if let Some(known) = self.known(id) {
            known.name = Some(name.to_owned());
        }
    }

    /// Records a name or a title from an event: the start of a session, its first prompt, its agent's title.
    pub(super) fn hear(&mut self, received: &ReceivedEvent) {
        let id = &received.session;
        let is_written = |text: &String| !text.trim().is_empty();
        match &received.event {
            Event::SessionCreated(created) => {
                if let Some(name) = created.name.as_ref().filter(|name| is_written(name)) {
                    self.set_name(id, name);
                }
            }
            Event::PromptQueued(queued) if is_written(&queued.text) => {
                if let Some(known) = self.known(id) {
                    known.title.get_or_insert_with(|| queued.text.clone());
                }
            }
            Event::Update(message) => {
                if let Some(AgentUpdate::Title(Some(title))) = message.update()
                    && is_written(&title)
                    && let Some(known) = self.known(id)
                {
                    known.title = Some(title);
                }
            }
            _ => {}
        }
    }

    /// Returns the name, or the short id: either can be typed.
    pub(super) fn label(&self, id: &str) -> String {
        let name = self.0.get(id).and_then(|known| known.name.as_deref());
        name.map_or_else(|| short(id), clean)
    }

    /// Returns the name, or the short id with the beginning of the title.
    pub(super) fn label_with_title(&self, id: &str) -> String {
        let known = self.0.get(id);
        match known
            .and_then(|known| known.title.as_deref())
            .filter(|_| known.is_some_and(|known| known.name.is_none()))
        {
            Some(title) => format!("{} {}", short(id), quoted(&cut_words(&clean(title), MAX_TITLE))),
            None => self.label(id),
        }
    }

    fn known(&mut self, id: &str) -> Option<&mut NameAndTitle> {
        if !self.0.contains_key(id) && self.0.len() >= MAX_SESSIONS {
            return None;
        }
        Some(self.0.entry(id.to_owned()).or_default())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::render::tests::received;
    use super::*;
    use intercom_types::EventKind;

    #[test]
    fn a_session_goes_by_its_name_or_by_its_id_and_title() {
        let mut names = SessionNames::default();
        names.hear(&received("ses_0123456789", EventKind::SessionCreated, &json!({ "name": "shop" })));
        names.hear(&received("ses_0123456789", EventKind::PromptQueued, &json!({ "text": "Fix it" })));
        assert_eq!(names.label_with_title("ses_0123456789"), "shop");
        names.hear(&received("ses_abcdefghij", EventKind::SessionCreated, &json!({ "name": null })));
        assert_eq!(names.label_with_title("ses_abcdefghij"), "ses_abcdefgh");
        names.hear(&received(
            "ses_abcdefghij",
            EventKind::PromptQueued,
            &json!({ "text": "Fix the \"rounding\" of prices\nnow" }),
        ));
        names.hear(&received("ses_abcdefghij", EventKind::PromptQueued, &json!({ "text": "And then?" })));
        assert_eq!(names.label_with_title("ses_abcdefghij"), "ses_abcdefgh “Fix the 'rounding' of…”");
        let title = json!({ "update": { "sessionUpdate": "session_info_update", "title": "Prices\u{1b}" } });
        names.hear(&received("ses_abcdefghij", EventKind::Update, &title));
        assert_eq!(names.label_with_title("ses_abcdefghij"), "ses_abcdefgh “Prices<U+001B>”");
        assert_eq!(names.label("ses_abcdefghij"), "ses_abcdefgh");
    }
}

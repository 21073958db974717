//! Events as the bytes that readers receive: JSON objects, and frames of a stream of server-sent events.
//!
//! The bytes depend on the events and the [`LogView`] only, never on the reader: so the readers of one view share them.

use std::io::Write as _;

use super::LogReader;
use super::log::SummaryMode;
use super::viewer_log::ViewerLog;
use intercom_store::StoreError;
use intercom_types::{LoggedEvent, SessionId};

/// The limit on events per read of the log.
pub(super) const BATCH: usize = 500;
/// The size at which frames are passed on together; the last one may exceed it.
pub(super) const CHUNK_BYTES: usize = 64 * 1024;

/// The selection and form of the events that a reader receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct LogView {
    /// `None` is all sessions.
    pub(super) session: Option<SessionId>,
    /// Secrets are hidden.
    pub(super) is_viewer: bool,
    pub(super) summaries: SummaryMode,
}

/// Encodes the events of one view, in the order of the log, as server-sent events.
///
/// A frame's id is the position from which its reader resumes after it. In a viewer's log an event may be held until
/// later ones show that its text contains no secret; the id then is before any event that is still held.
#[derive(Debug)]
pub(super) struct FrameEncoder {
    view: LogView,
    viewer: Option<ViewerLog>,
}

impl FrameEncoder {
    /// Creates the encoder of a reader that has received everything up to its position.
    pub(super) fn new(view: LogView) -> Self {
        Self { view, viewer: view.is_viewer.then(ViewerLog::default) }
    }

    /// Appends the frames that may be sent once this event has arrived.
    pub(super) async fn push(
        &mut self,
        log: &LogReader,
        event: LoggedEvent,
        out: &mut Vec<u8>,
    ) -> Result<(), StoreError> {
        let Some(viewer) = &mut self.viewer else {
            append_frame(event.seq, &event, self.view.summaries, out);
            return Ok(());
        };
        let mut released = Vec::new();
        viewer.push(log, event, &mut released).await?;
        for (at, event) in released.iter().enumerate() {
            let unsent = released.iter().skip(at + 1).map(|event| event.seq.saturating_sub(1));
            let resume = unsent.fold(viewer.resume_point(event.seq), u64::min);
            append_frame(resume, event, self.view.summaries, out);
        }
        Ok(())
    }

    /// Returns true if no event is held: a new encoder would continue in the same way.
    pub(super) fn is_clean(&self) -> bool {
        self.viewer.as_ref().is_none_or(|viewer| !viewer.is_held())
    }
}

fn append_frame(resume: u64, event: &LoggedEvent, summaries: SummaryMode, out: &mut Vec<u8>) {
    write!(out, "id: {resume}\ndata: ").ok(); // a vector takes everything
    append_event(event, summaries, out);
    out.extend_from_slice(b"\n\n");
}

/// Appends an event as JSON on one line: the same fields as an `EventBody`, without copies of its strings.
pub(super) fn append_event(event: &LoggedEvent, summaries: SummaryMode, out: &mut Vec<u8>) {
    // A vector takes everything, and strings always serialise.
    write!(
        out,
        "{{\"seq\":{},\"session\":\"{}\",\"at\":\"{}\",\"kind\":",
        event.seq, event.session, event.at
    )
    .ok();
    serde_json::to_writer(&mut *out, &event.kind).ok();
    out.extend_from_slice(b",\"data\":");
    let start = out.len();
    out.extend_from_slice(event.data.as_str().as_bytes());
    // Between JSON tokens a line break is only white space, and strings contain none. Here it would end the line.
    for byte in out.iter_mut().skip(start).filter(|byte| matches!(**byte, b'\n' | b'\r')) {
        *byte = b' ';
    }
    if let Some((sentence, tone)) = summaries.summary(event) {
        out.extend_from_slice(b",\"summary\":");
        serde_json::to_writer(&mut *out, &sentence).ok();
        out.extend_from_slice(b",\"tone\":");
        serde_json::to_writer(&mut *out, &tone).ok();
    }
    out.push(b'}');
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use intercom_types::{EventKind, Json, Time};

    fn event(kind: &str, data: &str) -> LoggedEvent {
        let (session, at) = (SessionId::mint(), Time::from_millis(1_772_632_931_123));
        LoggedEvent { seq: 7, session, at, kind: kind.to_owned(), data: Json::trusted(data) }
    }

    #[test]
    fn an_event_has_the_same_json_as_in_a_page() {
        let events = [
            event("status", r#"{"message":"say \"hi\" \u001b"}"#),
            event("odd \"kind\"\n", r#"{"a":1.10,"b":[ ]}"#),
            event(EventKind::AgentExited.as_str(), r#"{"code":1,"stderr_tail":"no\nway"}"#),
            event("update", "null"),
        ];
        for event in events {
            for summaries in [SummaryMode::True, SummaryMode::False, SummaryMode::Own] {
                let mut bytes = Vec::new();
                append_event(&event, summaries, &mut bytes);
                let expected = serde_json::to_string(&summaries.body(event.clone())).unwrap();
                assert_eq!(String::from_utf8(bytes).unwrap(), expected);
            }
        }
    }

    #[test]
    fn a_line_break_between_json_tokens_does_not_end_the_frame() {
        let event = event("status", "{\n\"message\":\r\n \"a\\nb\" }");
        let mut bytes = Vec::new();
        append_frame(3, &event, SummaryMode::False, &mut bytes);
        let text = String::from_utf8(bytes).unwrap();
        let lines: Vec<&str> = text.split('\n').collect();
        let [id, data, "", ""] = lines[..] else { panic!("{text:?}") };
        assert_eq!(id, "id: 3");
        let sent: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(sent["data"]["message"], "a\nb");
        assert!(!data.contains('\r'));
    }
}

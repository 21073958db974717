//! Drivers: the translation of an agent's messages into domain types and back, one file per protocol.
//!
//! Sans-I/O: frames in, [`AgentMessage`] out; [`AgentCommand`] in, text out. The session, not the driver, decides what
//! is open and what may be sent. The driver's own state goes into the session's snapshot.
//!
//! Like all of this crate, it must not panic on any input of an agent.

#![deny(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::string_slice,
    clippy::unreachable,
    clippy::unwrap_used
)]

pub mod acp;
pub mod intercom;

use crate::frame::Frame;
use crate::{excerpt, trim_json};
use intercom_types::{
    AgentCommand, AgentMessage, FaultCode, Json, LineExcerpt, LineRejection, RequestFault, RequestId,
};

/// Tools that change something.
const CHANGING_TOOLS: &[&str] = &["edit", "delete", "move", "execute"];

/// One agent's protocol. The session keeps a copy to return to if a command could not be recorded.
#[derive(Debug, Clone)]
pub enum Driver {
    Intercom,
    Acp(Box<acp::AcpDriver>),
}

impl Driver {
    /// Decodes a frame into messages of the agent, if it has any.
    pub fn decode(&mut self, frame: &Frame, messages: &mut Vec<AgentMessage>) {
        let text = match frame_text(frame) {
            Ok(text) if trim_json(text).is_empty() => return,
            Ok(text) => text,
            Err(rejected) => return messages.push(*rejected),
        };
        match self {
            Self::Intercom => messages.push(intercom::decode(text)),
            Self::Acp(driver) => driver.decode(text, messages),
        }
    }

    /// Replaces a frame at which decoding failed: the line is rejected, and the request or answer in it is settled with
    /// an error, so that nothing waits for it.
    pub fn decode_failed(&mut self, frame: &Frame, reason: &str, messages: &mut Vec<AgentMessage>) {
        let Ok(text) = frame_text(frame) else { return messages.push(Self::reject_frame(frame, reason)) };
        match self {
            Self::Intercom => intercom::decode_failed(text, reason, messages),
            Self::Acp(driver) => driver.decode_failed(text, reason, messages),
        }
    }

    /// Rejects a frame without examining its content, as a last resort.
    pub fn reject_frame(frame: &Frame, reason: &str) -> AgentMessage {
        match frame {
            Frame::Text(text) => rejected(text, reason.to_owned(), None, None, None),
            Frame::NotUtf8 { excerpt, bytes }
            | Frame::BadHeader { excerpt, bytes }
            | Frame::TooLong { excerpt, bytes, .. } => *unreadable(reason, excerpt, *bytes),
        }
    }

    /// Encodes a command as one message, without framing. `None` if there is nothing to send.
    pub fn encode(&mut self, message: &AgentCommand) -> Option<String> {
        match self {
            Self::Intercom => intercom::encode(message),
            Self::Acp(driver) => driver.encode(message),
        }
    }

    /// Returns the state for the next daemon, if it has changed since the last call.
    pub fn save(&mut self) -> Option<Json> {
        match self {
            Self::Intercom => None,
            Self::Acp(driver) => driver.save(),
        }
    }

    /// Continues with the state of another daemon.
    pub fn restore(&mut self, saved: Option<&Json>) {
        if let (Self::Acp(driver), Some(saved)) = (self, saved) {
            driver.restore(saved);
        }
    }

    /// Returns our unanswered request, if the protocol has answers.
    pub fn unanswered(&self) -> Option<&'static str> {
        match self {
            Self::Intercom => None,
            Self::Acp(driver) => driver.unanswered(),
        }
    }

    /// Takes over state from an earlier process of the same session.
    pub fn inherit(&mut self, saved: Option<&Json>) {
        if let (Self::Acp(driver), Some(saved)) = (self, saved) {
            driver.inherit(saved);
        }
    }
}

/// Returns the text of a frame, or its rejection.
fn frame_text(frame: &Frame) -> Result<&str, Box<AgentMessage>> {
    match frame {
        Frame::Text(text) => Ok(text),
        Frame::NotUtf8 { excerpt, bytes } => Err(unreadable("not valid UTF-8", excerpt, *bytes)),
        Frame::BadHeader { excerpt, bytes } => Err(unreadable("no Content-Length header", excerpt, *bytes)),
        Frame::TooLong { excerpt, bytes, request, method } => {
            let reason = "longer than max_line_length";
            let fault = request.clone().map(|request| fault(request, FaultCode::TooLong, reason));
            let (excerpt, method) = (excerpt.clone(), method.clone());
            let rejection =
                LineRejection { reason: reason.to_owned(), excerpt, bytes: *bytes, method, field: None };
            Err(Box::new(AgentMessage::Rejected { rejection, fault }))
        }
    }
}

fn unreadable(reason: &str, excerpt: &str, bytes: u64) -> Box<AgentMessage> {
    let (reason, excerpt) = (reason.to_owned(), excerpt.to_owned());
    let rejection = LineRejection { reason, excerpt, bytes, method: None, field: None };
    Box::new(AgentMessage::Rejected { rejection, fault: None })
}

/// Rejects a readable but unusable line.
fn rejected(
    text: &str,
    reason: String,
    method: Option<String>,
    field: Option<&str>,
    fault: Option<RequestFault>,
) -> AgentMessage {
    let (LineExcerpt { excerpt, bytes }, field) = (line(text), field.map(str::to_owned));
    AgentMessage::Rejected { rejection: LineRejection { reason, excerpt, bytes, method, field }, fault }
}

fn fault(request: RequestId, code: FaultCode, message: &str) -> RequestFault {
    RequestFault { request, code, message: message.to_owned() }
}

fn line(text: &str) -> LineExcerpt {
    LineExcerpt { excerpt: excerpt(text.as_bytes()), bytes: text.len() as u64 }
}

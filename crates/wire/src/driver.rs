//! Drivers turn an agent's messages into domain terms and back, one file per protocol.
//!
//! Sans-I/O: frames in, [`AgentMessage`] out; [`AgentCommand`] in, text out. What is open and what may be sent is the session's
//! business, not the driver's. What a driver has to remember goes into the session's snapshot.
//!
//! Like `wire`, it may not panic, whatever an agent says.

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

/// One agent's protocol. A copy is where a command goes back to that could not be recorded.
#[derive(Debug, Clone)]
pub enum Driver {
    Intercom,
    Acp(Box<acp::AcpDriver>),
}

impl Driver {
    /// What the agent said with this frame, if it means anything.
    pub fn decode(&mut self, frame: &Frame, said: &mut Vec<AgentMessage>) {
        let text = match frame_text(frame) {
            Ok(text) if trim_json(text).is_empty() => return,
            Ok(text) => text,
            Err(rejected) => return said.push(*rejected),
        };
        match self {
            Self::Intercom => said.push(intercom::decode(text)),
            Self::Acp(driver) => driver.decode(text, said),
        }
    }

    /// Stands in for a frame that we failed at: the line is rejected, and nobody waits in vain for the answer to it or
    /// for the answer that it was.
    pub fn decode_failed(&mut self, frame: &Frame, reason: &str, said: &mut Vec<AgentMessage>) {
        let Ok(text) = frame_text(frame) else { return said.push(Self::reject_frame(frame, reason)) };
        match self {
            Self::Intercom => intercom::decode_failed(text, reason, said),
            Self::Acp(driver) => driver.decode_failed(text, reason, said),
        }
    }

    /// The same without a look at the line: the last resort.
    pub fn reject_frame(frame: &Frame, reason: &str) -> AgentMessage {
        match frame {
            Frame::Text(text) => rejected(text, reason.to_owned(), None, None, None),
            Frame::NotUtf8 { excerpt, bytes }
            | Frame::BadHeader { excerpt, bytes }
            | Frame::TooLong { excerpt, bytes, .. } => *unreadable(reason, excerpt, *bytes),
        }
    }

    /// How to say this to the agent: one message, without framing. `None` if there is nothing to say.
    pub fn encode(&mut self, message: &AgentCommand) -> Option<String> {
        match self {
            Self::Intercom => intercom::encode(message),
            Self::Acp(driver) => driver.encode(message),
        }
    }

    /// What the next daemon has to know, if that has changed since it was asked for last.
    pub fn save(&mut self) -> Option<Json> {
        match self {
            Self::Intercom => None,
            Self::Acp(driver) => driver.save(),
        }
    }

    /// Goes on where another daemon stopped.
    pub fn restore(&mut self, saved: Option<&Json>) {
        if let (Self::Acp(driver), Some(saved)) = (self, saved) {
            driver.restore(saved);
        }
    }

    /// The request of ours that the agent has not answered, where its protocol has answers.
    pub fn unanswered(&self) -> Option<&'static str> {
        match self {
            Self::Intercom => None,
            Self::Acp(driver) => driver.unanswered(),
        }
    }

    /// Takes over from an earlier process of the same session what outlives it.
    pub fn inherit(&mut self, saved: Option<&Json>) {
        if let (Self::Acp(driver), Some(saved)) = (self, saved) {
            driver.inherit(saved);
        }
    }
}

/// The text of a frame, or why there is none.
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

/// A line that is legible and no use.
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

//! Drivers turn an agent's messages into domain terms and back, one file per protocol.
//!
//! Sans-I/O: frames in, [`Said`] out; [`Outbound`] in, text out. What is open and what may be sent is the session's
//! business, not the driver's.

pub mod intercom;

use std::fmt;

use crate::domain::{Outbound, Said};
use crate::wire::framing::Frame;

/// One agent's protocol.
pub trait Driver: fmt::Debug + Send {
    /// What the agent said with this frame; `None` for what means nothing (an empty line).
    fn decode(&mut self, frame: Frame) -> Option<Said>;

    /// How to say this to the agent: one message, without framing.
    fn encode(&mut self, message: &Outbound) -> String;
}

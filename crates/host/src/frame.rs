//! The control protocol between a shim and the daemon: small frames over a unix socket, in both directions.
//!
//! `type (1) · length of payload (4, LE) · n (8, LE) · payload`. The shim speaks first, with [`ShimFrame::Hello`]. A daemon
//! speaks this version and the one before; a shim lives as long as its agent and never changes its own.

// Whoever can open the socket can send these bytes: reading them may not panic.
#![deny(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

use serde::{Deserialize, Serialize};

use super::ProcessIdentity;
use intercom_types::Exit;

/// The version of the protocol that this program speaks. Version 1 had no `Nack`, `Note`, `Kill` and `Seen`.
pub(super) const VERSION: u32 = 2;
/// The oldest shim that a daemon of this version still talks to.
pub(super) const OLDEST: u32 = 1;

const HEADER: usize = 13;
/// A prompt can be as large as a request's body; nothing else comes near.
const MAX_PAYLOAD: usize = 1 << 30;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ShimFrame {
    // from the shim
    Hello(ShimHello),
    /// The journal has grown to this offset. Coalesced: one stands for all before it.
    Bell(u64),
    /// Message n is wholly in the agent's pipe.
    Ack(u64),
    /// Message n never will be.
    Nack(u64),
    /// Everything is over: the journal ends here.
    Exit(u64, ExitRecord),
    /// Something a person should know: the disk is full, …
    Note(String),
    // from the daemon
    /// Sent first; everything below this offset is in the log.
    Attach(u64),
    /// One whole message for the agent.
    Stdin(u64, Vec<u8>),
    /// Everything below this offset is in the log.
    Trim(u64),
    /// Everything below this offset has been read, if not yet understood: a long message takes more than one look.
    Seen(u64),
    Stop(LadderWaits, Vec<u8>),
    Kill,
    /// A type that this version does not know: skipped.
    Other(u8),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ShimHello {
    pub(super) version: u32,
    pub(super) agent: ProcessIdentity,
    pub(super) shim: ProcessIdentity,
    pub(super) journal_end: u64,
    /// The last message for the agent that was accepted. Shims did not say so from the beginning.
    #[serde(default)]
    pub(super) accepted: Option<u64>,
}

/// The shim's record of the end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ExitRecord {
    pub(super) exit: Exit,
    pub(super) reason: String,
    pub(super) steps: Vec<String>,
    pub(super) killed: u32,
    pub(super) journal_end: u64,
    /// The last message that was wholly in the agent's pipe.
    #[serde(default)]
    pub(super) written: u64,
    /// The number of bytes rescued from the pipe of an agent that nobody listened to for a while: more may be
    /// missing. A shim that lives to write this record has listened all the time.
    #[serde(skip)]
    pub(super) rescued: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::struct_field_names, reason = "each says after what")]
pub(super) struct LadderWaits {
    pub(super) after_interrupt_ms: u64,
    pub(super) after_stdin_closed_ms: u64,
    pub(super) after_sigterm_ms: u64,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a frame of this protocol: {0}")]
pub(super) struct BadFrame(&'static str);

impl LadderWaits {
    /// No steps, no waits: straight to the end.
    pub(super) const NONE: Self =
        Self { after_interrupt_ms: 0, after_stdin_closed_ms: 0, after_sigterm_ms: 0 };
}

impl ShimFrame {
    /// Since when a shim says or understands it.
    pub(super) fn since(&self) -> u32 {
        match self {
            Self::Nack(_) | Self::Note(_) | Self::Kill | Self::Seen(_) => 2,
            _ => 1,
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let json = |value: &dyn erased::ErasedPayload| value.to_vec();
        let (kind, n, payload) = match self {
            Self::Hello(hello) => (1, 0, json(hello)),
            Self::Bell(end) => (2, *end, Vec::new()),
            Self::Ack(n) => (3, *n, Vec::new()),
            Self::Nack(n) => (4, *n, Vec::new()),
            Self::Exit(end, left) => (5, *end, json(left)),
            Self::Note(text) => (6, 0, text.clone().into_bytes()),
            Self::Attach(offset) => (65, *offset, Vec::new()),
            Self::Stdin(n, message) => (66, *n, message.clone()),
            Self::Trim(offset) => (67, *offset, Vec::new()),
            Self::Stop(waits, interrupt) => {
                let mut payload = json(waits);
                payload.push(b'\n');
                payload.extend_from_slice(interrupt);
                (68, 0, payload)
            }
            Self::Kill => (69, 0, Vec::new()),
            Self::Seen(offset) => (70, *offset, Vec::new()),
            Self::Other(kind) => (*kind, 0, Vec::new()),
        };
        let mut out = Vec::with_capacity(HEADER + payload.len());
        out.push(kind);
        // The other side refuses a payload that is over its limit, and this length is.
        out.extend_from_slice(&u32::try_from(payload.len()).unwrap_or(u32::MAX).to_le_bytes());
        out.extend_from_slice(&n.to_le_bytes());
        out.extend_from_slice(&payload);
        out
    }

    /// The first whole frame in `bytes` and how long it is; `None` if there is not enough yet.
    pub(super) fn decode(bytes: &[u8]) -> Result<Option<(Self, usize)>, BadFrame> {
        let Some((kind, rest)) = bytes.split_first() else { return Ok(None) };
        let Some((length, rest)) = rest.split_first_chunk() else { return Ok(None) };
        let Some((n, rest)) = rest.split_first_chunk() else { return Ok(None) };
        let length = u32::from_le_bytes(*length) as usize;
        if length > MAX_PAYLOAD {
            return Err(BadFrame("too long"));
        }
        let Some(payload) = rest.get(..length) else { return Ok(None) };
        let n = u64::from_le_bytes(*n);
        let bad = |_| BadFrame("payload");
        let frame = match *kind {
            1 => Self::Hello(serde_json::from_slice(payload).map_err(bad)?),
            2 => Self::Bell(n),
            3 => Self::Ack(n),
            4 => Self::Nack(n),
            5 => Self::Exit(n, serde_json::from_slice(payload).map_err(bad)?),
            6 => Self::Note(String::from_utf8_lossy(payload).into_owned()),
            65 => Self::Attach(n),
            66 => Self::Stdin(n, payload.to_vec()),
            67 => Self::Trim(n),
            68 => {
                let end = memchr::memchr(b'\n', payload).ok_or(BadFrame("stop"))?;
                let (waits, interrupt) = payload.split_at_checked(end).ok_or(BadFrame("stop"))?;
                let waits = serde_json::from_slice(waits).map_err(bad)?;
                Self::Stop(waits, interrupt.iter().skip(1).copied().collect())
            }
            69 => Self::Kill,
            70 => Self::Seen(n),
            other => Self::Other(other),
        };
        Ok(Some((frame, HEADER + length)))
    }

    /// Takes the first whole frame off the front of `buf`.
    pub(super) fn take(buf: &mut bytes::BytesMut) -> Result<Option<Self>, BadFrame> {
        let Some((frame, length)) = Self::decode(buf)? else { return Ok(None) };
        bytes::Buf::advance(buf, length);
        Ok(Some(frame))
    }
}

mod erased {
    /// A value with a JSON form; so that one closure serves for all payloads.
    pub(super) trait ErasedPayload {
        fn to_vec(&self) -> Vec<u8>;
    }

    impl<T: serde::Serialize> ErasedPayload for T {
        fn to_vec(&self) -> Vec<u8> {
            // It always has one; without it, the other side calls the frame bad.
            serde_json::to_vec(self).unwrap_or_default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<ShimFrame> {
        let who = ProcessIdentity { pid: 7, boot: "b".into(), started: 9 };
        let waits = LadderWaits { after_interrupt_ms: 1, after_stdin_closed_ms: 2, after_sigterm_ms: 3 };
        vec![
            ShimFrame::Hello(ShimHello {
                version: 1,
                agent: who.clone(),
                shim: who,
                journal_end: 5,
                accepted: Some(3),
            }),
            ShimFrame::Bell(u64::MAX),
            ShimFrame::Ack(1),
            ShimFrame::Nack(2),
            ShimFrame::Exit(3, ExitRecord::default()),
            ShimFrame::Note("disk".into()),
            ShimFrame::Attach(4),
            ShimFrame::Stdin(5, b"{}\n".to_vec()),
            ShimFrame::Trim(6),
            ShimFrame::Stop(waits, b"line\nmore\n".to_vec()),
            ShimFrame::Kill,
            ShimFrame::Seen(7),
            ShimFrame::Other(200),
        ]
    }

    #[test]
    fn frames_survive_the_wire_in_any_pieces() {
        let bytes: Vec<u8> = all().iter().flat_map(ShimFrame::encode).collect();
        let mut buf = bytes::BytesMut::new();
        let mut seen = Vec::new();
        for byte in bytes {
            buf.extend_from_slice(&[byte]);
            while let Some(frame) = ShimFrame::take(&mut buf).unwrap() {
                seen.push(frame);
            }
        }
        assert_eq!(seen, all());
        assert!(buf.is_empty());
    }

    #[test]
    fn an_absurd_length_is_refused() {
        let mut bytes = ShimFrame::Kill.encode();
        bytes[1..5].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(ShimFrame::decode(&bytes).is_err());
    }
}

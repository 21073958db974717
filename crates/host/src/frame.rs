//! The control protocol between a shim and the daemon: small frames over a unix socket, in both directions.
//!
//! `type (1) · length of payload (4, LE) · n (8, LE) · payload`. The shim sends first, with [`ShimFrame::Hello`]. A
//! daemon supports this version and the one before; a shim lives as long as its agent and never changes its version.

// Any process that can open the socket can send these bytes: parsing them must not panic.
#![deny(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

use serde::{Deserialize, Serialize};

use super::ProcessIdentity;
use intercom_types::Exit;

/// The version of the protocol that this program speaks. Version 1 had no `Nack`, `Note`, `Kill` and `Seen`.
pub(super) const VERSION: u32 = 2;
/// The oldest protocol version of a shim that this daemon supports.
pub(super) const OLDEST: u32 = 1;

const HEADER: usize = 13;
/// The limit of a payload. A prompt can be as large as a request's body; all other payloads are far smaller.
const MAX_PAYLOAD: usize = 1 << 30;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ShimFrame {
    // from the shim
    Hello(ShimHello),
    /// The journal has grown to this offset. Coalesced: a bell replaces all earlier ones.
    Bell(u64),
    /// Message n is completely in the agent's pipe.
    Ack(u64),
    /// Message n will never reach the agent.
    Nack(u64),
    /// The whole tree has ended, and the journal ends at this offset.
    Exit(u64, ExitRecord),
    /// A message for the log, such as a full disk.
    Note(String),
    // from the daemon
    /// The daemon's first frame; everything below this offset is in the log.
    Attach(u64),
    /// One whole message for the agent.
    Stdin(u64, Vec<u8>),
    /// Everything below this offset is in the log.
    Trim(u64),
    /// Everything below this offset has been read, though not necessarily parsed: a long message takes several reads.
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
    /// The last message for the agent that was accepted; missing in the hello of older shims.
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
    /// The last message that was completely in the agent's pipe.
    #[serde(default)]
    pub(super) written: u64,
    /// The number of bytes rescued from the pipe of an agent that nobody read for a while: more may be missing. A shim
    /// that writes this record itself has read all the time.
    #[serde(skip)]
    pub(super) rescued: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::struct_field_names, reason = "each name says what it follows")]
pub(super) struct LadderWaits {
    pub(super) after_interrupt_ms: u64,
    pub(super) after_stdin_closed_ms: u64,
    pub(super) after_sigterm_ms: u64,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a frame of this protocol: {0}")]
pub(super) struct BadFrame(&'static str);

impl LadderWaits {
    /// No gentle steps and no waits: SIGKILL immediately.
    pub(super) const NONE: Self =
        Self { after_interrupt_ms: 0, after_stdin_closed_ms: 0, after_sigterm_ms: 0 };
}

impl ShimFrame {
    /// Returns the first protocol version that has this frame.
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
            Self::Exit(end, record) => (5, *end, json(record)),
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
        // A length that does not fit becomes `u32::MAX`, which is above the receiver's limit: it rejects the frame.
        out.extend_from_slice(&u32::try_from(payload.len()).unwrap_or(u32::MAX).to_le_bytes());
        out.extend_from_slice(&n.to_le_bytes());
        out.extend_from_slice(&payload);
        out
    }

    /// Decodes the first complete frame in `bytes` and its length; `None` if it is not complete yet.
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

    /// Removes the first complete frame from the front of `buf`.
    pub(super) fn take(buf: &mut bytes::BytesMut) -> Result<Option<Self>, BadFrame> {
        let Some((frame, length)) = Self::decode(buf)? else { return Ok(None) };
        bytes::Buf::advance(buf, length);
        Ok(Some(frame))
    }
}

mod erased {
    /// A serializable value, as an object type so that one closure serves all payloads.
    pub(super) trait ErasedPayload {
        fn to_vec(&self) -> Vec<u8>;
    }

    impl<T: serde::Serialize> ErasedPayload for T {
        fn to_vec(&self) -> Vec<u8> {
            // Payloads always serialize; an empty payload would make the receiver reject the frame.
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

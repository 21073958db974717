//! The codec of a block: many events of bulk kinds in one row, grouped by session.
//!
//! A body begins with its version, the names of its kinds and a header for each session; then follow per event the
//! differences of seq and time, the kind and the length, and at the end the data of all events. Numbers are varints.
//! Bodies of the hot path are stored as they are; the packer stores zstd frames of such bodies.

#[cfg(test)]
mod tests;

use std::ops::Range;

use super::StoreError;

/// The maximum distance between the first and the last seq of a block, so that a reader knows where to look for blocks
/// that may contain a seq.
pub(super) const MAX_SPAN: i64 = 4096;
/// The version of the body's format.
const VERSION: u8 = 1;
/// The compression level: the packer is in no hurry, and the levels above save little.
const LEVEL: i32 = 3;
const DAMAGED: StoreError = StoreError::Corrupt { what: "a block of the log" };

/// The encoding of a body. The values are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlockCodec {
    Plain = 0,
    Zstd = 1,
}

/// The columns of a block beside its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlockHeader {
    pub(super) first: i64,
    pub(super) last: i64,
    /// The key of its session; `None` if it has events of several.
    pub(super) session: Option<i64>,
    pub(super) events: i64,
    pub(super) codec: i64,
    /// CRC-32 of these columns and the body.
    pub(super) checksum: i64,
}

/// The first and the last seq of a session in one block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SessionSpan {
    pub(super) session: i64,
    pub(super) first: i64,
    pub(super) last: i64,
}

/// A block as it is stored.
#[derive(Debug)]
pub(super) struct EncodedBlock {
    pub(super) header: BlockHeader,
    pub(super) spans: Vec<SessionSpan>,
    pub(super) body: Vec<u8>,
}

impl BlockHeader {
    pub(super) fn checksum_of(&self, body: &[u8]) -> i64 {
        let mut hasher = crc32fast::Hasher::new();
        for number in [self.first, self.last, self.session.unwrap_or(0), self.events, self.codec] {
            hasher.update(&number.to_le_bytes());
        }
        hasher.update(body);
        hasher.finalize().into()
    }

    /// Decodes a body after checking it.
    pub(super) fn decode(&self, body: &[u8]) -> Result<Block, StoreError> {
        if self.checksum_of(body) != self.checksum {
            return Err(DAMAGED);
        }
        let block = if self.codec == BlockCodec::Plain as i64 {
            Block::parse(body)
        } else if self.codec == BlockCodec::Zstd as i64 {
            let (length, frame) = body.split_first_chunk::<4>().ok_or(DAMAGED)?;
            let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(0);
            Block::parse(&zstd::bulk::decompress(frame, length).map_err(|_| DAMAGED)?)
        } else {
            None
        };
        block.filter(|block| i64::try_from(block.events.len()) == Ok(self.events)).ok_or(DAMAGED)
    }
}

/// The events of one session in a block that is being built.
#[derive(Debug)]
struct Section {
    span: SessionSpan,
    first_at: i64,
    last_at: i64,
    events: u64,
}

/// Builds a block of events that come session by session, each in order of seq.
#[derive(Debug, Default)]
pub(super) struct BlockBuilder {
    kinds: Vec<Box<str>>,
    sections: Vec<Section>,
    numbers: Vec<u8>,
    data: Vec<u8>,
}

impl BlockBuilder {
    pub(super) fn push(&mut self, session: i64, seq: i64, at: i64, kind: &str, data: &str) {
        if self.sections.last().is_none_or(|section| section.span.session != session) {
            let span = SessionSpan { session, first: seq, last: seq };
            self.sections.push(Section { span, first_at: at, last_at: at, events: 0 });
        }
        let Some(section) = self.sections.last_mut() else { return };
        put(&mut self.numbers, unsigned(seq - section.span.last));
        put(&mut self.numbers, zigzag(at.wrapping_sub(section.last_at)));
        section.span.last = seq;
        section.last_at = at;
        section.events += 1;
        let kind = self.kinds.iter().position(|known| **known == *kind).unwrap_or_else(|| {
            self.kinds.push(kind.into());
            self.kinds.len() - 1
        });
        put(&mut self.numbers, kind as u64);
        put(&mut self.numbers, data.len() as u64);
        self.data.extend_from_slice(data.as_bytes());
    }

    /// Returns the size of the events' data.
    pub(super) fn bytes(&self) -> usize {
        self.data.len()
    }

    /// Returns the block, and leaves an empty builder with the memory of this one. `None` without events.
    pub(super) fn take(&mut self, codec: BlockCodec) -> Result<Option<EncodedBlock>, StoreError> {
        let spans: Vec<SessionSpan> = self.sections.iter().map(|section| section.span).collect();
        let (Some(first), Some(last)) =
            (spans.iter().map(|span| span.first).min(), spans.iter().map(|span| span.last).max())
        else {
            return Ok(None);
        };
        let mut raw = Vec::with_capacity(64 + 40 * spans.len() + self.numbers.len() + self.data.len());
        raw.push(VERSION);
        put(&mut raw, self.kinds.len() as u64);
        for kind in self.kinds.drain(..) {
            put(&mut raw, kind.len() as u64);
            raw.extend_from_slice(kind.as_bytes());
        }
        put(&mut raw, self.sections.len() as u64);
        let mut events = 0;
        for section in self.sections.drain(..) {
            put(&mut raw, unsigned(section.span.session));
            put(&mut raw, section.events);
            put(&mut raw, unsigned(section.span.first));
            put(&mut raw, zigzag(section.first_at));
            events += section.events;
        }
        raw.append(&mut self.numbers);
        raw.append(&mut self.data);
        let body = match codec {
            BlockCodec::Plain => raw,
            BlockCodec::Zstd => compress(&raw)?,
        };
        let session = match &*spans {
            [span] => Some(span.session),
            _ => None,
        };
        let events = i64::try_from(events).unwrap_or(i64::MAX);
        let mut header = BlockHeader { first, last, session, events, codec: codec as i64, checksum: 0 };
        header.checksum = header.checksum_of(&body);
        Ok(Some(EncodedBlock { header, spans, body }))
    }
}

fn compress(raw: &[u8]) -> Result<Vec<u8>, StoreError> {
    let unavailable = |error: std::io::Error| StoreError::Unavailable(error.to_string());
    let frame = zstd::bulk::compress(raw, LEVEL).map_err(unavailable)?;
    let length = u32::try_from(raw.len()).map_err(|_| DAMAGED)?;
    Ok([&length.to_le_bytes(), &*frame].concat())
}

/// A decoded block: its events by session, each in order of seq.
#[derive(Debug)]
pub(super) struct Block {
    text: Box<str>,
    kinds: Vec<Box<str>>,
    events: Vec<BlockEvent>,
    sections: Vec<(i64, Range<usize>)>,
    /// The events in order of seq; empty if they are stored in it.
    order: Vec<u32>,
}

/// An event of a block.
#[derive(Debug, Clone, Copy)]
pub(super) struct BlockEvent {
    pub(super) seq: i64,
    pub(super) at: i64,
    pub(super) session: i64,
    start: u32,
    end: u32,
    kind: u32,
}

impl Block {
    fn parse(raw: &[u8]) -> Option<Self> {
        let mut rest = raw;
        let (version, after) = rest.split_first()?;
        rest = after;
        if *version != VERSION {
            return None;
        }
        let mut kinds = Vec::new();
        for _ in 0..number(&mut rest)? {
            let length = usize::try_from(number(&mut rest)?).ok()?;
            let (kind, after) = rest.split_at_checked(length)?;
            kinds.push(std::str::from_utf8(kind).ok()?.into());
            rest = after;
        }
        let mut heads = Vec::new();
        for _ in 0..number(&mut rest)? {
            let session = i64::try_from(number(&mut rest)?).ok()?;
            let (events, first) = (number(&mut rest)?, i64::try_from(number(&mut rest)?).ok()?);
            heads.push((session, events, first, unzigzag(number(&mut rest)?)));
        }
        let (mut events, mut sections, mut start) = (Vec::new(), Vec::with_capacity(heads.len()), 0u32);
        for (session, count, mut seq, mut at) in heads {
            let begin = events.len();
            for _ in 0..count {
                seq = seq.checked_add(i64::try_from(number(&mut rest)?).ok()?)?;
                at = at.wrapping_add(unzigzag(number(&mut rest)?));
                let kind = u32::try_from(number(&mut rest)?).ok()?;
                kinds.get(usize::try_from(kind).ok()?)?;
                let end = start.checked_add(u32::try_from(number(&mut rest)?).ok()?)?;
                events.push(BlockEvent { seq, at, session, start, end, kind });
                start = end;
            }
            sections.push((session, begin..events.len()));
        }
        let text = std::str::from_utf8(rest).ok()?;
        // The slices of `data` are valid: their ends are characters' ends, and the last one is the end of the text.
        let whole = text.len() == usize::try_from(start).ok()?
            && events
                .iter()
                .all(|event| usize::try_from(event.end).is_ok_and(|end| text.is_char_boundary(end)));
        let mut order = Vec::new();
        if sections.len() > 1 {
            order = (0..u32::try_from(events.len()).ok()?).collect();
            order.sort_unstable_by_key(|at| events.get(*at as usize).map(|event| event.seq));
        }
        whole.then(|| Self { text: text.into(), kinds, events, sections, order })
    }

    /// Returns the range of the places of a session's events, or of all.
    pub(super) fn places(&self, session: Option<i64>) -> Range<usize> {
        match session {
            None => 0..self.events.len(),
            Some(key) => {
                let found = self.sections.iter().find(|(session, _)| *session == key);
                found.map_or(0..0, |(_, range)| range.clone())
            }
        }
    }

    /// Returns the event at a place: in order of seq among all, or among those of one session.
    pub(super) fn at(&self, place: usize, session: Option<i64>) -> Option<&BlockEvent> {
        match session {
            None if !self.order.is_empty() => self.events.get(*self.order.get(place)? as usize),
            _ => self.events.get(place),
        }
    }

    /// Returns all events, by session.
    pub(super) fn events(&self) -> &[BlockEvent] {
        &self.events
    }

    pub(super) fn spans(&self) -> impl Iterator<Item = SessionSpan> {
        self.sections.iter().filter_map(|(session, range)| {
            let events = self.events.get(range.clone())?;
            Some(SessionSpan { session: *session, first: events.first()?.seq, last: events.last()?.seq })
        })
    }

    pub(super) fn kind(&self, event: &BlockEvent) -> &str {
        self.kinds.get(event.kind as usize).map_or("", |kind| kind)
    }

    pub(super) fn data(&self, event: &BlockEvent) -> &str {
        self.text.get(event.start as usize..event.end as usize).unwrap_or_default()
    }

    /// Returns its approximate size in memory.
    pub(super) fn size(&self) -> usize {
        self.text.len() + self.events.len() * (size_of::<BlockEvent>() + size_of::<u32>()) + 256
    }
}

fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push((number & 0x7f) as u8);
}

fn number(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0) // seqs, their differences and keys are not negative
}

fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)).cast_unsigned()
}

fn unzigzag(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
}

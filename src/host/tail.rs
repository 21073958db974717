//! The last bytes of a stream.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// Keeps at most `limit` bytes; older ones go.
#[derive(Debug)]
pub(super) struct Tail {
    limit: usize,
    /// Guards the bytes for the moment of a copy.
    bytes: Mutex<VecDeque<u8>>,
}

impl Tail {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, bytes: Mutex::default() }
    }

    pub(super) fn push(&self, more: &[u8]) {
        let more = &more[more.len().saturating_sub(self.limit)..];
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let excess = (bytes.len() + more.len()).saturating_sub(self.limit);
        bytes.drain(..excess);
        bytes.extend(more);
    }

    /// As text; a character that was cut in half at the front is left out.
    pub(super) fn text(&self) -> String {
        let bytes: Vec<u8> =
            self.bytes.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect();
        let cut = bytes.len() >= self.limit;
        let start =
            if cut { bytes.iter().take(3).take_while(|byte| **byte & 0xC0 == 0x80).count() } else { 0 };
        String::from_utf8_lossy(&bytes[start..]).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_is_kept_and_no_character_is_cut() {
        let tail = Tail::new(5);
        tail.push(b"abc");
        tail.push(b"defg");
        assert_eq!(tail.text(), "cdefg");
        tail.push("éé€".as_bytes());
        assert_eq!(tail.text(), "é€");
        tail.push(&[b'x'; 100]);
        assert_eq!(tail.text(), "xxxxx");
    }
}

//! The end of a terminal's output, up to a limit.

use std::borrow::Cow;

/// The number of bytes beyond the limit that collect before they are removed in one piece: each byte is moved once or
/// twice instead of with every chunk.
const SLACK: usize = 64 * 1024;

#[derive(Debug)]
pub(super) struct OutputTail {
    bytes: Vec<u8>,
    limit: usize,
    /// True if earlier output was dropped.
    truncated: bool,
}

impl OutputTail {
    pub(super) fn new(limit: u64) -> Self {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        Self { bytes: Vec::new(), limit, truncated: false }
    }

    pub(super) fn push(&mut self, chunk: &[u8]) {
        self.bytes.extend_from_slice(chunk);
        self.truncated |= self.bytes.len() > self.limit;
        if self.bytes.len() > self.limit.saturating_add(SLACK) {
            self.bytes.drain(..self.bytes.len() - self.limit);
        }
    }

    /// Returns the kept text, and whether earlier output was dropped. It never begins inside of a character. While
    /// `over` is false it does not end inside of one either, because the rest may come.
    pub(super) fn text(&self, over: bool) -> (String, bool) {
        let skipped = self.bytes.len().saturating_sub(self.limit);
        let mut kept = &self.bytes[skipped..];
        if self.truncated {
            let torn = kept.iter().take(3).take_while(|byte| *byte & 0b1100_0000 == 0b1000_0000).count();
            kept = &kept[torn..];
        }
        if !over {
            kept = &kept[..kept.len() - unfinished(kept)];
        }
        let text = match String::from_utf8_lossy(kept) {
            Cow::Borrowed(text) => text.to_owned(),
            // Invalid bytes take more room as replacement characters.
            Cow::Owned(text) => {
                let cut = text.ceil_char_boundary(text.len().saturating_sub(self.limit));
                return (text[cut..].to_owned(), self.truncated || cut > 0);
            }
        };
        (text, self.truncated)
    }
}

/// Returns the number of bytes at the end that begin an incomplete character.
fn unfinished(bytes: &[u8]) -> usize {
    (1..=bytes.len().min(3))
        .find(|back| {
            let tail = &bytes[bytes.len() - back..];
            std::str::from_utf8(tail)
                .is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
        })
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn kept(limit: u64, chunks: &[&[u8]]) -> (String, bool) {
        let mut tail = OutputTail::new(limit);
        for chunk in chunks {
            tail.push(chunk);
        }
        tail.text(true)
    }

    #[test]
    fn the_end_is_kept_from_a_whole_character_on() {
        assert_eq!(kept(10, &[b"hello"]), ("hello".to_owned(), false));
        assert_eq!(kept(5, &[b"hello"]), ("hello".to_owned(), false));
        assert_eq!(kept(4, &[b"hel", b"lo"]), ("ello".to_owned(), true));
        assert_eq!(kept(0, &[b"hello"]), (String::new(), true));
        assert_eq!(kept(5, &["aäöü".as_bytes()]), ("öü".to_owned(), true));
        assert_eq!(kept(3, &["x🦀".as_bytes()]), (String::new(), true));
        assert_eq!(kept(4, &["x🦀".as_bytes()]), ("🦀".to_owned(), true));
    }

    #[test]
    fn half_a_character_waits_for_its_other_half() {
        let mut tail = OutputTail::new(100);
        tail.push(&"a🦀".as_bytes()[..3]);
        assert_eq!(tail.text(false), ("a".to_owned(), false));
        assert_eq!(tail.text(true).0, "a\u{fffd}");
        tail.push(&"a🦀".as_bytes()[3..]);
        assert_eq!(tail.text(false), ("a🦀".to_owned(), false));
    }

    #[test]
    fn what_is_no_text_stays_within_the_limit() {
        let (text, truncated) = kept(10, &[&[0xff; 8]]);
        assert!(text.len() <= 10 && truncated, "{text:?}");
    }

    proptest! {
        #[test]
        fn it_is_the_end_of_the_whole_and_within_the_limit(text in "\\PC{0,60}", limit in 0u64..80, at in 0usize..60) {
            let bytes = text.as_bytes();
            let at = at.min(bytes.len());
            let (kept, truncated) = kept(limit, &[&bytes[..at], &bytes[at..]]);
            prop_assert!(text.ends_with(&kept));
            prop_assert!(kept.len() as u64 <= limit);
            prop_assert_eq!(truncated, bytes.len() as u64 > limit);
            // Only what does not fit is left out.
            prop_assert!(!truncated || kept.len() as u64 + 3 >= limit.min(bytes.len() as u64));
        }
    }
}

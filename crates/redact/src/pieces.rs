//! The redaction of text that arrives in pieces: the streamed messages of an agent.
//!
//! Half of a secret does not look like one. So a piece is released only when no following text can make any of it part
//! of a secret: its text is *settled*. The released pieces add up to the redacted text of the whole.
//!
//! ```text
//!   context, released │ settled: released now │ held: an incomplete line or key
//! ```

use std::borrow::Cow;
use std::collections::VecDeque;

use super::{PASSES, SecretSpan, is_blank, lines, marked, pem};

/// The length of text before the first held line that is kept as context, such as the `curl` of an option.
const CONTEXT: usize = 1024;
/// The length from which a line is settled word by word: it is not prose, and no reader should wait for its end.
const LONGEST_LINE: usize = 16 * 1024;
/// The maximum length of held text. Beyond it, all but the last [`ALWAYS_HELD`] bytes are released.
const MAX_HELD: usize = 128 * 1024;
const ALWAYS_HELD: usize = 4096;
/// The number of times that the border is lowered. Text that needs more is held as a whole.
const ROUNDS: usize = 8;
/// The placeholder for held text that has to be shown before it is settled.
const UNFINISHED: &str = "unfinished text";

/// Returns the length of the beginning of `text` whose redaction no following text can change.
///
/// A private key extends beyond its line, and so may the value of a name (see [`lines`]). Within a line, words are
/// settled as long as nothing in it could assign or quote a value.
///
/// Nothing is settled if that ends before `least`, which costs little to find out.
fn settled(text: &str, least: usize) -> usize {
    let border = settled_in_first_pass(text);
    let most = bounded(text, border);
    if most < least {
        return 0;
    }
    let is_forced = most > border;
    if is_forced { most } else { bounded(text, settled_in_passes(text, border)).min(most) }
}

fn settled_in_first_pass(text: &str) -> usize {
    let line = line_start(text, text.len());
    let rest = text.as_bytes().get(line..).unwrap_or_default();
    let assigns = |byte: &u8| matches!(byte, b'=' | b':' | b'"' | b'\'' | b'`' | b'@' | b'\\' | b'-');
    let assigns = rest.iter().any(assigns);
    let word = || line + rest.iter().rposition(|byte| is_blank(*byte)).map_or(0, |at| at + 1);
    let border = if assigns && rest.len() <= LONGEST_LINE { line } else { word() };
    unfinished(text, border)
}

fn line_start(text: &str, at: usize) -> usize {
    memchr::memrchr(b'\n', &text.as_bytes()[..at]).map_or(0, |at| at + 1)
}

/// Returns the start, at most `border`, of a key or value that text after `border` may belong to.
fn unfinished(text: &str, border: usize) -> usize {
    lines::unfinished(text, pem::unfinished(text.as_bytes(), border))
}

/// Lowers the border until no pass of the redaction depends on what is after it. A redacted secret takes quotes and line
/// breaks with it, so in a later pass a quotation may continue that was closed in the text.
fn settled_in_passes(text: &str, mut border: usize) -> usize {
    for _ in 0..ROUNDS {
        match unfinished_in_passes(text, border) {
            Some(earlier) => border = earlier,
            None => return border,
        }
    }
    0
}

fn unfinished_in_passes(text: &str, border: usize) -> Option<usize> {
    let (mut hidden, mut shown) = (Vec::new(), Cow::Borrowed(text));
    for _ in 0..PASSES {
        let after = text.len() - border;
        let in_shown = shown.len() - after;
        let earlier = unfinished(&shown, in_shown);
        if earlier < in_shown {
            return Some(super::OriginalPlaces::new(&hidden).start(earlier));
        }
        let found: Vec<_> = super::spans(&shown).into_iter().filter(|span| span.end <= in_shown).collect();
        if found.is_empty() {
            break;
        }
        let found = super::in_original(&found, &hidden);
        hidden = super::apart(hidden.into_iter().chain(found).collect());
        shown = Cow::Owned(super::without(text, &hidden));
    }
    None
}

/// Moves the border so that no more than [`MAX_HELD`] is held.
fn bounded(text: &str, border: usize) -> usize {
    let forced = text.len().saturating_sub(ALWAYS_HELD);
    if text.len() - border > MAX_HELD { text.floor_char_boundary(forced).max(border) } else { border }
}

/// The redactor of one text that arrives in pieces.
#[derive(Debug, Default)]
pub struct PieceRedactor {
    /// The context, followed by the held text.
    text: String,
    /// The start of the next piece to release.
    released: usize,
    /// The ends of the held pieces, in order.
    held: VecDeque<usize>,
}

impl PieceRedactor {
    /// Adds a piece; returns the redacted texts of the pieces that are settled by now, in order.
    pub fn push(&mut self, piece: &str) -> Vec<String> {
        self.text.push_str(piece);
        self.held.push_back(self.text.len());
        let first = self.held.front().copied().unwrap_or_default();
        let settled = settled(&self.text, first);
        let count = self.held.iter().take_while(|end| **end <= settled).count();
        if count == 0 {
            return Vec::new();
        }
        let spans = super::hidden_spans(&self.text);
        let given = self.render(count, &spans);
        self.forget(&spans);
        given
    }

    /// Marks all text so far as released elsewhere: it is only context.
    pub fn begin_here(&mut self) {
        self.released = self.text.len();
        self.held.clear();
    }

    /// Ends the text and returns the rest of the pieces.
    pub fn finish(&mut self) -> Vec<String> {
        let given = self.render(self.held.len(), &super::hidden_spans(&self.text));
        *self = Self::default();
        given
    }

    /// Returns the held pieces, as far as they may be shown before the text is complete.
    pub fn release_unsettled(&mut self) -> Vec<String> {
        let (settled, end) = (settled(&self.text, 0), self.text.len());
        let mut spans = super::hidden_spans(&self.text);
        spans.retain(|span| span.start < settled);
        spans.push(SecretSpan { start: settled, end, sort: UNFINISHED });
        let given = self.render(self.held.len(), &super::apart(spans));
        *self = Self::default();
        given
    }

    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        self.text.capacity() + self.held.capacity() * size_of::<usize>()
    }

    fn render(&mut self, count: usize, spans: &[SecretSpan]) -> Vec<String> {
        let mut out = Vec::with_capacity(count);
        for end in self.held.drain(..count) {
            out.push(without(&self.text, spans, self.released, end));
            self.released = end;
        }
        out
    }

    /// Drops complete lines of context that are no longer needed.
    fn forget(&mut self, spans: &[SecretSpan]) {
        let line = line_start(&self.text, self.released);
        let most = self.text.floor_char_boundary(line.saturating_sub(CONTEXT));
        let mut cut =
            memchr::memchr(b'\n', &self.text.as_bytes()[most..]).map_or(0, |at| most + at + 1).min(line);
        // Lines that a secret joins are one line to later passes.
        for span in spans.iter().rev().filter(|span| span.start < line) {
            if span.start < cut && cut <= span.end {
                cut = line_start(&self.text, span.start);
            }
        }
        // An endless line has no context except its own last words.
        let cut = if self.released - cut > MAX_HELD {
            self.text.floor_char_boundary(self.released - ALWAYS_HELD)
        } else {
            cut
        };
        // Rarely, so that the total cost is linear.
        if cut >= CONTEXT {
            self.text.drain(..cut);
            self.released -= cut;
            self.held.iter_mut().for_each(|end| *end -= cut);
        }
    }
}

/// Returns a part of a text with its secrets redacted. The mark is at the start of a secret.
fn without(text: &str, spans: &[SecretSpan], start: usize, end: usize) -> String {
    let (mut out, mut done) = (String::with_capacity(end - start), start);
    for span in spans.iter().filter(|span| span.end > start && span.start < end) {
        if span.start >= done {
            out.push_str(&text[done..span.start]);
            out.push_str(&marked(span.sort));
        }
        done = span.end.min(end).max(done);
    }
    out.push_str(&text[done..end]);
    out
}

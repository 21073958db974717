//! Checks of what reads input that somebody else chose: plain functions of any bytes, which panic if a promise is broken.
//!
//! ```text
//!   fuzz/fuzz_targets/NAME.rs ──┐  inputs found by coverage (scripts/fuzz)
//!   fuzz/corpus/NAME/* ─────────┼──► TARGETS: NAME ──► check(bytes)
//!   mutations of the corpus ────┘  with an ordinary build (the tests here)
//! ```

mod decoders;
mod diffs;
mod redaction;
mod requests;
#[cfg(test)]
mod tests;

pub use decoders::{
    acp_protocol, configuration, framing, intercom_protocol, journal_names, overlong_scan,
    server_sent_events, shim_frames,
};
pub use diffs::{diff_reading, unified_diff};
pub use redaction::{json_redaction, streamed_redaction, text_redaction};
pub use requests::{request_assessment, shell_reading};

/// A check and its name, which is also the name of its fuzz target and of its corpus.
pub type Target = (&'static str, fn(&[u8]));

pub const TARGETS: &[Target] = &[
    ("acp_protocol", acp_protocol),
    ("configuration", configuration),
    ("diff_reading", diff_reading),
    ("framing", framing),
    ("intercom_protocol", intercom_protocol),
    ("journal_names", journal_names),
    ("json_redaction", json_redaction),
    ("overlong_scan", overlong_scan),
    ("request_assessment", request_assessment),
    ("server_sent_events", server_sent_events),
    ("shell_reading", shell_reading),
    ("shim_frames", shim_frames),
    ("streamed_redaction", streamed_redaction),
    ("text_redaction", text_redaction),
    ("unified_diff", unified_diff),
];

/// Pieces that bytes are cut into, at most.
const MAX_PIECES: usize = 24;
/// The same for texts: redaction looks at everything again with each of them.
const MAX_TEXT_PIECES: usize = 6;

/// The sizes of pieces, which the input begins with, and the bytes that are cut into them.
fn sizes_and_bytes(input: &[u8]) -> (&[u8], &[u8]) {
    input.split_at_checked(4).unwrap_or((&[], input))
}

/// The bytes cut into pieces of these sizes, over and over; the last piece is the rest.
fn pieces<'a>(sizes: &[u8], bytes: &'a [u8]) -> Vec<&'a [u8]> {
    let (mut rest, mut out) = (bytes, Vec::new());
    for size in sizes.iter().cycle().take(if sizes.is_empty() { 0 } else { MAX_PIECES }) {
        let (piece, more) = rest.split_at(usize::from(*size).min(rest.len()));
        out.push(piece);
        rest = more;
    }
    out.push(rest);
    out
}

/// The same for a text, never inside of a character.
fn text_pieces<'a>(sizes: &[u8], text: &'a str) -> Vec<&'a str> {
    let (mut rest, mut out) = (text, Vec::new());
    for size in sizes.iter().cycle().take(if sizes.is_empty() { 0 } else { MAX_TEXT_PIECES }) {
        let (piece, more) = rest.split_at(rest.floor_char_boundary(usize::from(*size)));
        out.push(piece);
        rest = more;
    }
    out.push(rest);
    out
}

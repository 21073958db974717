//! The scanner that finds `id` and `method` of a message too long to parse, byte by byte and with bounded memory.

use super::frame::Frame;
use super::{EXCERPT_CHARS, excerpt, trim_json};
use intercom_types::RequestId;

/// The maximum length of an id or a method.
const MAX_TOKEN: usize = 1024;

/// A message over the limit while it is skipped.
#[derive(Debug, Default)]
pub(super) struct OverlongMessage {
    bytes: u64,
    head: Vec<u8>,
    scan: TopLevelScan,
}

impl OverlongMessage {
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        let room = (EXCERPT_CHARS * 4).saturating_sub(self.head.len());
        self.head.extend(bytes.iter().take(room));
        self.scan.feed(bytes);
    }

    pub(super) fn finish(self) -> Frame {
        Frame::TooLong {
            excerpt: excerpt(&self.head),
            bytes: self.bytes,
            request: self.scan.id,
            method: self.scan.method,
        }
    }
}

/// Scans an object's top level. Invalid JSON gives wrong or no results, never a panic.
#[derive(Debug, Default)]
struct TopLevelScan {
    depth: u32,
    in_string: bool,
    escaped: bool,
    after_colon: bool,
    /// The key or value at the top level that is being collected; `None` while it is ignored.
    token: Option<Vec<u8>>,
    key: Vec<u8>,
    id: Option<RequestId>,
    method: Option<String>,
}

impl TopLevelScan {
    fn feed(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.step(byte);
        }
    }

    fn step(&mut self, byte: u8) {
        if self.in_string {
            self.keep(byte);
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return;
        }
        match byte {
            b'"' => {
                self.in_string = true;
                if self.depth == 1 && !self.after_colon {
                    self.token = Some(Vec::new()); // a key
                }
                self.keep(byte);
            }
            b':' if self.depth == 1 => {
                self.token.take().unwrap_or_default().trim_ascii_end().clone_into(&mut self.key);
                self.after_colon = true;
                let wanted = self.key == b"\"id\"" || self.key == b"\"method\"";
                self.token = wanted.then(Vec::new);
            }
            b',' if self.depth == 1 => self.value_ends(),
            b'{' | b'[' => {
                self.keep(byte);
                self.depth = self.depth.saturating_add(1);
            }
            b'}' | b']' => {
                if self.depth == 1 {
                    self.value_ends();
                }
                self.depth = self.depth.saturating_sub(1);
                self.keep(byte);
            }
            _ => self.keep(byte),
        }
    }

    fn keep(&mut self, byte: u8) {
        if let Some(token) = &mut self.token {
            if token.len() < MAX_TOKEN {
                token.push(byte);
            } else {
                self.token = None;
            }
        }
    }

    fn value_ends(&mut self) {
        self.after_colon = false;
        let Some(token) = self.token.take() else { return };
        let Ok(text) = std::str::from_utf8(&token) else { return };
        if self.key == b"\"id\"" && self.id.is_none() {
            self.id = RequestId::parse(trim_json(text));
        } else if self.key == b"\"method\"" && self.method.is_none() {
            self.method = serde_json::from_str(text).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, id: Option<&str>, method: Option<&str>) {
        let mut scan = TopLevelScan::default();
        scan.feed(text.as_bytes());
        assert_eq!(scan.id.as_ref().map(RequestId::as_json), id, "{text}");
        assert_eq!(scan.method.as_deref(), method, "{text}");
    }

    #[test]
    fn id_and_method_are_found_at_the_top_level_only() {
        check(r#"{"id": 7, "method":"a/b", "params":{}}"#, Some("7"), Some("a/b"));
        check(r#"{"params":{"id":1,"x":[{"id":2}]},"method":"m","id":"x\"}"}"#, Some(r#""x\"}""#), Some("m"));
        check(r#"{"params":{"t":"\",\"id\":5"},"method":"m"}"#, None, Some("m"));
        check("{\"id\" \t: 7, \"method\" :\"m\"}", Some("7"), Some("m"));
        check(r#"{"xid":3,"id":null}"#, None, None);
        check(r#"[{"id":3}]"#, None, None);
        check(r#"{"id":true,"method":5}"#, None, None);
        check(r#"}}}]]{"id":1"#, None, None);
    }
}

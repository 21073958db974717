//! A frame: one message cut out of a stream of bytes, or the reason why it is invalid.

use intercom_types::RequestId;

/// The bytes of one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    Text(String),
    NotUtf8 {
        excerpt: String,
        bytes: u64,
    },
    /// A message over the size limit; its id and method are extracted if possible.
    TooLong {
        excerpt: String,
        bytes: u64,
        request: Option<RequestId>,
        method: Option<String>,
    },
    /// Bytes between two messages that are not a header (`Content-Length` framing only).
    BadHeader {
        excerpt: String,
        bytes: u64,
    },
}

//! One message as it was cut out of a stream of bytes, or why it is none.

use intercom_types::RequestId;

/// The bytes between two ends of messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    Text(String),
    NotUtf8 {
        excerpt: String,
        bytes: u64,
    },
    /// Over the limit; its id and method are scanned out where they can be found.
    TooLong {
        excerpt: String,
        bytes: u64,
        request: Option<RequestId>,
        method: Option<String>,
    },
    /// Bytes between two messages that are no header (`Content-Length` framing only).
    BadHeader {
        excerpt: String,
        bytes: u64,
    },
}

//! Checks of the decoders: no bytes make them panic, no split of the bytes changes the result, and encoded messages decode again.

use std::path::Path;

use bytes::BytesMut;
use serde_json::value::RawValue;

use super::{pieces, sizes_and_bytes};
use intercom_types::{AgentCommand, Json, PromptBody, RequestId};
use intercom_wire::acp::client_request::AcpClientRequest;
use intercom_wire::driver::{Driver, acp};
use intercom_wire::frame::Frame;
use intercom_wire::framing::Framer;
use intercom_wire::jsonrpc::{self, RpcMessage};
use intercom_wire::{ParsedText, intercom, sse};

/// Longer tokens are not looked for in an overlong message.
const MAX_SCANNED: usize = 1000;
const HANDSHAKE: &[&str] = &[
    r#"{"id":1,"result":{"protocolVersion":1,"agentCapabilities":{"loadSession":true,"sessionCapabilities":{"list":{}}}}}"#,
    r#"{"id":2,"result":{"sessionId":"s"}}"#,
];

fn frames(mut framer: Framer, pieces: &[&[u8]]) -> Vec<Frame> {
    let (mut buf, mut out) = (BytesMut::new(), Vec::new());
    for piece in pieces {
        buf.extend_from_slice(piece);
        out.extend(std::iter::from_fn(|| framer.next(&mut buf)));
    }
    out.extend(std::iter::from_fn(|| framer.finish(&mut buf)));
    assert!(buf.is_empty(), "bytes were left behind: {buf:?}");
    out
}

/// Any split of a stream gives the same frames, and the text of a frame can be framed again.
pub fn framing(input: &[u8]) {
    let (sizes, bytes) = sizes_and_bytes(input);
    for make in [Framer::ndjson as fn(usize) -> Framer, Framer::lsp] {
        for max_length in [16, 1 << 20] {
            let whole = frames(make(max_length), &[bytes]);
            assert_eq!(frames(make(max_length), &pieces(sizes, bytes)), whole);
            let texts = whole.iter().filter(|frame| is_one_line(frame));
            for frame in texts {
                let Frame::Text(text) = frame else { continue };
                let again = make(max_length).wrap(text);
                assert_eq!(frames(make(max_length), &[&again]), std::slice::from_ref(frame));
            }
        }
    }
}

/// Tells whether it is a text that can be sent as a line: our own messages have no line breaks.
fn is_one_line(frame: &Frame) -> bool {
    matches!(frame, Frame::Text(text) if !text.contains(['\n', '\r']))
}

/// The id and the method of a message over the limit are those that a parser finds.
pub fn overlong_scan(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    // The scan does not look for keys or values that are spelled with escapes, nor for long ones.
    if text.contains(['\n', '\r', '\\']) || text.len() > MAX_SCANNED {
        return;
    }
    let Ok(message) = jsonrpc::parse(&text) else { return };
    let (id, name) = match message {
        RpcMessage::Request { id, method, .. } => (Some(id), Some(method.into_owned())),
        RpcMessage::Notification { method, .. } => (None, Some(method.into_owned())),
        RpcMessage::Answer { id, .. } => (id, None),
    };
    let found = frames(Framer::ndjson(1), &[text.as_bytes()]);
    let [Frame::TooLong { request, method, bytes, .. }] = &found[..] else { panic!("{found:?}") };
    assert_eq!((request, method, *bytes), (&id, &name, text.len() as u64));
}

/// Decodes every line with the driver, also as a line that failed to decode, and restores the driver's saved memory.
fn decode_lines(mut driver: Driver, bytes: &[u8]) {
    let mut messages = Vec::new();
    for frame in frames(Framer::ndjson(1 << 20), &[bytes]) {
        driver.clone().decode_failed(&frame, "a reason", &mut messages);
        driver.decode(&frame, &mut messages);
        if let Some(saved) = driver.save() {
            assert_is_json(saved.as_str());
            driver.restore(Some(&saved));
        }
    }
}

fn assert_is_json(text: &str) {
    assert!(serde_json::from_str::<&RawValue>(text).is_ok(), "not JSON: {text}");
}

fn assert_is_kept(text: ParsedText<'_>) {
    assert_is_json(text.to_json().as_str());
}

/// No line breaks the driver of our own protocol.
pub fn intercom_protocol(input: &[u8]) {
    decode_lines(Driver::Intercom, input);
    for line in String::from_utf8_lossy(input).lines() {
        if let Ok((_, text)) = intercom::parse(line) {
            assert_is_kept(text);
        }
    }
}

/// No line breaks the driver of ACP, before and behind the handshake, nor the reader of requests to our own ACP server.
pub fn acp_protocol(input: &[u8]) {
    let mut driver = Driver::Acp(Box::new(acp::AcpDriver::new(acp::DriverSetup::default())));
    decode_lines(driver.clone(), input);
    driver.encode(&AgentCommand::Hello);
    let mut messages = Vec::new();
    for line in HANDSHAKE {
        driver.decode(&Frame::Text((*line).to_owned()), &mut messages);
    }
    driver.encode(&AgentCommand::ListSessions);
    driver.encode(&AgentCommand::Prompt {
        wording: PromptBody { text: "go".to_owned(), content: None },
        turn: None,
    });
    decode_lines(driver, input);
    String::from_utf8_lossy(input).lines().for_each(json_rpc_message);
}

/// A message that can be read is the same when it is sent again.
fn json_rpc_message(line: &str) {
    jsonrpc::find_id(line);
    jsonrpc::is_version_2(line);
    RequestId::parse(line);
    let Ok((message, text)) = jsonrpc::parse_whole(line) else { return };
    assert_is_kept(text);
    let own = |params: Option<&RawValue>| params.map_or_else(|| Json::trusted("{}"), Json::raw);
    let sent = match &message {
        RpcMessage::Request { id, method, params } => {
            AcpClientRequest::read(method, *params).ok();
            jsonrpc::request(id, method, &own(*params))
        }
        RpcMessage::Notification { method, params } => {
            AcpClientRequest::read(method, *params).ok();
            jsonrpc::notification(method, &own(*params))
        }
        RpcMessage::Answer { id: Some(id), result: Ok(result) } => jsonrpc::result(id, *result),
        RpcMessage::Answer { .. } => return,
    };
    let again = jsonrpc::parse(&sent);
    let is_same = match (&message, &again) {
        (RpcMessage::Request { id, method, .. }, Ok(RpcMessage::Request { id: again, method: name, .. })) => {
            id == again && method == name
        }
        (RpcMessage::Notification { method, .. }, Ok(RpcMessage::Notification { method: name, .. })) => {
            method == name
        }
        (RpcMessage::Answer { id, .. }, Ok(RpcMessage::Answer { id: again, .. })) => id == again,
        _ => false,
    };
    assert!(is_same, "{line} was sent as {sent}");
}

/// Any split of what comes over a shim's socket gives the same frames, and a frame that is read can be sent.
pub fn shim_frames(input: &[u8]) {
    let (sizes, bytes) = sizes_and_bytes(input);
    intercom_host::fuzzing::check_frames(&pieces(sizes, bytes), bytes);
}

/// A file is a segment of a journal only under the name that the segment is opened by.
pub fn journal_names(input: &[u8]) {
    for name in String::from_utf8_lossy(input).lines() {
        if let Some(start) = intercom_host::fuzzing::segment_start(name) {
            assert_eq!(intercom_host::fuzzing::segment_name(start), name);
        }
    }
    if let Some(start) = input.first_chunk().map(|start| u64::from_le_bytes(*start)) {
        let name = intercom_host::fuzzing::segment_name(start);
        assert_eq!(intercom_host::fuzzing::segment_start(&name), Some(start));
    }
}

/// Any split of a stream of events gives the same messages.
pub fn server_sent_events(input: &[u8]) {
    let (sizes, bytes) = sizes_and_bytes(input);
    let messages = |pieces: &[&[u8]]| {
        let (mut parser, mut messages) = (sse::SseParser::default(), Vec::new());
        for piece in pieces {
            messages.extend(parser.feed(piece)?);
        }
        Ok::<_, sse::SseLineTooLong>(messages)
    };
    assert_eq!(messages(&pieces(sizes, bytes)), messages(&[bytes]));
}

/// A configuration is read, or refused with an error of one line.
pub fn configuration(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    if let Err(error) = intercom_daemon::config::parse(&text, Path::new("config.toml")) {
        let error = error.to_string();
        assert_eq!(error.lines().count(), 1, "{error:?}");
    }
}

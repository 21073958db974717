//! Server-sent events: parses bytes in any pieces into messages. Sans-I/O.

/// The maximum length of a line; an agent's line may have 64 MiB, and grows a little as JSON.
const MAX_LINE: usize = 256 * 1024 * 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SseMessage {
    pub id: Option<String>,
    pub data: String,
}

#[derive(Debug, PartialEq, Eq)]
pub struct SseLineTooLong;

/// Lines may end with LF, CR or CRLF; a message ends with an empty line.
#[derive(Debug, Default)]
pub struct SseParser {
    line: Vec<u8>,
    /// The last byte was a CR that ended a line; an LF right after it belongs to it.
    after_cr: bool,
    begun: bool,
    id: Option<String>,
    data: Option<String>,
}

impl SseParser {
    pub fn feed(&mut self, mut bytes: &[u8]) -> Result<Vec<SseMessage>, SseLineTooLong> {
        let mut messages = Vec::new();
        while !bytes.is_empty() {
            if std::mem::take(&mut self.after_cr) {
                bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
            }
            let mut parts = bytes.splitn(2, |byte| matches!(byte, b'\n' | b'\r'));
            let line = parts.next().unwrap_or_default();
            self.append(line)?;
            let Some(rest) = parts.next() else { break };
            self.after_cr = bytes.get(line.len()) == Some(&b'\r');
            bytes = rest;
            let line = std::mem::take(&mut self.line);
            messages.extend(self.take_line(&line));
        }
        Ok(messages)
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), SseLineTooLong> {
        if self.line.len() + bytes.len() > MAX_LINE {
            return Err(SseLineTooLong);
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn take_line(&mut self, line: &[u8]) -> Option<SseMessage> {
        let line = String::from_utf8_lossy(line);
        let line = if self.begun { &line } else { line.strip_prefix('\u{feff}').unwrap_or(&line) };
        self.begun = true;
        if line.is_empty() {
            let id = self.id.take();
            return self.data.take().map(|data| SseMessage { id, data });
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => match &mut self.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => self.data = Some(value.to_owned()),
            },
            "id" if !value.contains('\0') => self.id = Some(value.to_owned()),
            _ => {} // a comment, `event`, `retry`, or an unknown field
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message(id: &str, data: &str) -> SseMessage {
        SseMessage { id: Some(id.to_owned()), data: data.to_owned() }
    }

    #[test]
    fn messages_comments_and_unknown_fields() {
        let stream =
            ": hello\n\nid: 1\ndata: {\"a\":1}\n\nretry: 5\nevent: x\n\nid:2\ndata:a\ndata: b\n\n: bye\n";
        let messages = SseParser::default().feed(stream.as_bytes()).unwrap();
        assert_eq!(messages, [message("1", "{\"a\":1}"), message("2", "a\nb")]);
    }

    #[test]
    fn a_message_without_its_empty_line_is_not_complete() {
        let mut parser = SseParser::default();
        assert_eq!(parser.feed(b"id: 1\ndata: x\n").unwrap(), []);
        assert_eq!(parser.feed(b"\n").unwrap(), [message("1", "x")]);
    }

    #[test]
    fn every_line_ending_counts_once() {
        for stream in [
            "id: 1\ndata: x\n\n",
            "id: 1\r\ndata: x\r\n\r\n",
            "id: 1\rdata: x\r\r",
            "\u{feff}id: 1\ndata: x\r\n\n",
        ] {
            assert_eq!(
                SseParser::default().feed(stream.as_bytes()).unwrap(),
                [message("1", "x")],
                "{stream:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_split_yields_the_same_messages(
            lines in prop::collection::vec(
                prop_oneof![Just("id: 7".to_owned()), Just(String::new()), "data: [a-zäß世:]{0,6}", ": .{0,4}", "[a-z]{0,3}"],
                0..24,
            ),
            ending in prop_oneof![Just("\n"), Just("\r\n"), Just("\r")],
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        ) {
            let stream = lines.iter().flat_map(|line| [line, ending]).collect::<String>().into_bytes();
            let whole = SseParser::default().feed(&stream).unwrap();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
            cuts.sort_unstable();
            let (mut parser, mut pieces, mut start) = (SseParser::default(), Vec::new(), 0);
            for end in cuts.into_iter().chain([stream.len()]) {
                pieces.extend(parser.feed(&stream[start..end]).unwrap());
                start = end;
            }
            prop_assert_eq!(pieces, whole);
        }
    }
}

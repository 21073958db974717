//! What was done for an agent, as people read it.

use super::{Data, Shown};
use crate::cli::terminal::Style;

pub(super) fn event(kind: &str, data: &Data) -> Option<Shown> {
    let bytes = data.part(" (", "bytes", " bytes)");
    Some(match kind {
        "file.read" => Shown::new(Style::Dim, format!("read{} for the agent{bytes}", data.said(" ", "path"))),
        "file.written" => {
            Shown::new(Style::Plain, format!("wrote{} for the agent{bytes}", data.said(" ", "path")))
        }
        "terminal.started" => {
            let pid = data.part(", pid ", "pid", "");
            Shown::new(
                Style::Plain,
                format!("{} runs{}{pid}", data.get("terminal")?, data.said(" ", "command")),
            )
        }
        "terminal.output" => Shown::new(Style::Dim, format!("{} was read{bytes}", data.get("terminal")?)),
        "terminal.killed" => {
            Shown::new(Style::Plain, format!("{} was ended by the agent", data.get("terminal")?))
        }
        "terminal.released" => Shown::new(Style::Dim, format!("{} was released", data.get("terminal")?)),
        "terminal.ended" => {
            let how = data.part(": exit code ", "code", "") + &data.part(": signal ", "signal", "");
            let why = data.part(": ", "reason", "");
            Shown::new(Style::Plain, format!("{} ended{how}{why}", data.get("terminal")?))
        }
        "call.failed" => {
            let why = data.part(": ", "reason", "");
            Shown::new(Style::Yellow, format!("{} was not done{why}", data.get("method")?))
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::answers::Event;
    use crate::cli::render::event;

    #[test]
    fn each_deed_is_a_sentence() {
        let show = |kind: &str, data: serde_json::Value| {
            let text =
                json!({ "seq": 1, "session": "ses_1", "at": "", "kind": kind, "data": data }).to_string();
            event(&serde_json::from_str::<Event>(&text).unwrap()).head
        };
        let written = json!({ "path": "a.txt", "bytes": 3 });
        assert_eq!(show("file.written", written.clone()), "wrote a.txt for the agent (3 bytes)");
        assert_eq!(show("file.read", written), "read a.txt for the agent (3 bytes)");
        let started = json!({ "terminal": "term-1", "command": "make", "pid": 7 });
        assert_eq!(show("terminal.started", started), "term-1 runs make, pid 7");
        let ended = json!({ "terminal": "term-1", "code": 2, "signal": null, "reason": null });
        assert_eq!(show("terminal.ended", ended), "term-1 ended: exit code 2");
        let failed = json!({ "method": "fs/read_text_file", "reason": "it is not text" });
        assert_eq!(show("call.failed", failed), "fs/read_text_file was not done: it is not text");
    }
}

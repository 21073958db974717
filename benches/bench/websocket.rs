//! An ACP client that reads when it is told to.

use std::path::Path;

use anyhow::{Context, ensure};
use intercom_testkit::client::{Frames, WebSocket};
use serde_json::{Value, json};

use crate::daemon::PATIENCE;

#[derive(Debug)]
pub(crate) struct Seat {
    socket: WebSocket,
    asked: u64,
}

impl Seat {
    /// One that has introduced itself.
    pub(crate) fn open(socket: &Path) -> anyhow::Result<Self> {
        let (answer, socket) = WebSocket::ask(socket, "/acp", &[])?;
        let socket = socket.with_context(|| format!("no WebSocket: {answer:?}"))?;
        socket.connection.waits(Some(PATIENCE))?;
        let mut seat = Self { socket, asked: 0 };
        seat.ask("initialize", &json!({ "protocolVersion": 1, "clientCapabilities": {} }))?;
        Ok(seat)
    }

    /// By which it can be hung up from elsewhere.
    pub(crate) fn handle(&self) -> Frames {
        self.socket.frames.clone()
    }

    /// Sends a request; its id.
    pub(crate) fn begin(&mut self, method: &str, params: &Value) -> u64 {
        self.asked += 1;
        let message = json!({ "jsonrpc": "2.0", "id": self.asked, "method": method, "params": params });
        self.socket.frames.text(&message.to_string());
        self.asked
    }

    /// Sends a request and waits for its result.
    pub(crate) fn ask(&mut self, method: &str, params: &Value) -> anyhow::Result<Value> {
        let id = self.begin(method, params);
        loop {
            let message: Value = serde_json::from_slice(&self.next()?)?;
            if message["id"] == id && message.get("method").is_none() {
                ensure!(message.get("result").is_some(), "{method}: {message}");
                return Ok(message["result"].clone());
            }
        }
    }

    /// The next message.
    pub(crate) fn next(&mut self) -> anyhow::Result<Vec<u8>> {
        self.socket.message()?.context("the daemon hung up")
    }
}

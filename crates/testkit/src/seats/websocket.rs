//! Over WebSocket.

use std::sync::mpsc::{Receiver, channel};

use serde_json::Value;

use super::Wire;
use crate::client::{Frames, Place, WebSocket};

pub(super) fn open(place: &Place) -> (Frames, Receiver<Value>) {
    let (answer, socket) = WebSocket::ask(place, "/acp", &[]).unwrap();
    let mut socket = socket.unwrap_or_else(|| panic!("no WebSocket: {answer:?}"));
    socket.connection.waits(None).unwrap();
    let frames = socket.frames.clone();
    let (tell, heard) = channel();
    std::thread::spawn(move || {
        while let Ok(Some(message)) = socket.message() {
            let message = serde_json::from_slice(&message).expect("JSON in a text frame");
            if tell.send(message).is_err() {
                break;
            }
        }
    });
    (frames, heard)
}

impl Wire for Frames {
    fn send(&mut self, text: &str) -> bool {
        self.text(text);
        true
    }

    fn hang_up(&mut self) {
        Frames::hang_up(self);
    }
}

//! The queue of messages for the agent's stdin: each is accepted once, written whole and in order, and acknowledged
//! when it is completely in the pipe.
//!
//! A daemon that comes back sends unacknowledged messages again. An accepted message is not accepted twice; its result,
//! written or failed, is reported again.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use nix::errno::Errno;

use crate::frame::ShimFrame;

/// The number of the stop ladder's own interrupt, which is not acknowledged.
pub(super) const UNNUMBERED: u64 = 0;

pub(super) struct StdinQueue {
    pipe: Option<OwnedFd>,
    queue: VecDeque<(u64, Vec<u8>)>,
    /// The number of bytes of the first message that are in the pipe.
    begun: usize,
    accepted: u64,
    written: u64,
}

impl StdinQueue {
    pub(super) fn new(pipe: OwnedFd) -> Self {
        Self { pipe: Some(pipe), queue: VecDeque::new(), begun: 0, accepted: 0, written: 0 }
    }

    /// The pipe, if there is something to write.
    pub(super) fn waiting(&self) -> Option<&OwnedFd> {
        self.pipe.as_ref().filter(|_| !self.queue.is_empty())
    }

    pub(super) fn accepted(&self) -> u64 {
        self.accepted
    }

    pub(super) fn written(&self) -> u64 {
        self.written
    }

    pub(super) fn accept(&mut self, n: u64, message: Vec<u8>, out: &mut Vec<ShimFrame>) {
        // A repeated message: report its result, if there is one yet; if it is still queued, its answer follows anyway.
        if n != UNNUMBERED && n <= self.accepted {
            if n <= self.written {
                out.push(ShimFrame::Ack(n));
            } else if self.pipe.is_none() {
                out.push(ShimFrame::Nack(n));
            }
            return;
        }
        self.accepted = self.accepted.max(n);
        self.queue.push_back((n, message));
        if self.pipe.is_none() {
            self.give_up(out);
        }
    }

    /// Writes as much as the pipe takes, without blocking.
    pub(super) fn pump(&mut self, out: &mut Vec<ShimFrame>) {
        while let (Some(pipe), Some((n, message))) = (&self.pipe, self.queue.front()) {
            match nix::unistd::write(pipe, &message[self.begun..]) {
                Ok(written) => self.begun += written,
                Err(Errno::EINTR) => continue,
                Err(Errno::EAGAIN) => return,
                // Usually EPIPE: the agent has closed its stdin, so no later message can arrive either.
                Err(_) => return self.close(out),
            }
            if self.begun == message.len() {
                if *n != UNNUMBERED {
                    self.written = *n;
                    out.push(ShimFrame::Ack(*n));
                }
                self.queue.pop_front();
                self.begun = 0;
            }
        }
    }

    /// Closes the agent's stdin and fails all messages that are not completely written.
    pub(super) fn close(&mut self, out: &mut Vec<ShimFrame>) {
        self.pipe = None;
        self.give_up(out);
    }

    fn give_up(&mut self, out: &mut Vec<ShimFrame>) {
        let numbers = self.queue.drain(..).map(|(n, _)| n).filter(|n| *n != UNNUMBERED);
        out.extend(numbers.map(ShimFrame::Nack));
        self.begun = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn pipe() -> (std::io::PipeReader, StdinQueue) {
        let (reader, writer) = std::io::pipe().unwrap();
        let writer = OwnedFd::from(writer);
        let flags = nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK);
        nix::fcntl::fcntl(&writer, flags).unwrap();
        (reader, StdinQueue::new(writer))
    }

    fn reported(act: impl FnOnce(&mut Vec<ShimFrame>)) -> Vec<ShimFrame> {
        let mut out = Vec::new();
        act(&mut out);
        out
    }

    #[test]
    fn a_message_is_written_once_however_often_it_is_sent() {
        let (mut reader, mut input) = pipe();
        assert_eq!(reported(|out| input.accept(1, b"a\n".to_vec(), out)), []);
        assert_eq!(reported(|out| input.accept(1, b"a\n".to_vec(), out)), [], "accepted, not written yet");
        assert_eq!(reported(|out| input.pump(out)), [ShimFrame::Ack(1)]);
        assert_eq!(
            reported(|out| input.accept(1, b"a\n".to_vec(), out)),
            [ShimFrame::Ack(1)],
            "reported again"
        );
        input.accept(2, b"b\n".to_vec(), &mut Vec::new());
        assert_eq!(reported(|out| input.pump(out)), [ShimFrame::Ack(2)]);
        input.close(&mut Vec::new());
        let mut seen = String::new();
        reader.read_to_string(&mut seen).unwrap();
        assert_eq!(seen, "a\nb\n");
    }

    #[test]
    fn what_the_agent_does_not_take_waits_and_fails_when_the_pipe_closes() {
        let (reader, mut input) = pipe();
        input.accept(1, vec![b'x'; 1 << 20], &mut Vec::new());
        input.accept(2, b"b\n".to_vec(), &mut Vec::new());
        assert_eq!(reported(|out| input.pump(out)), []);
        drop(reader);
        assert_eq!(reported(|out| input.pump(out)), [ShimFrame::Nack(1), ShimFrame::Nack(2)]);
        assert_eq!(
            reported(|out| input.accept(2, b"b\n".to_vec(), out)),
            [ShimFrame::Nack(2)],
            "reported again"
        );
        assert_eq!(reported(|out| input.accept(3, b"c\n".to_vec(), out)), [ShimFrame::Nack(3)]);
    }
}

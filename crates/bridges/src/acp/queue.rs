//! The two bounded queues between a client's transport and its connection. At a bound, the sender waits.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use intercom_types::{RequestId, SessionId};

/// The limit on unprocessed messages of a client. At the limit, its transport stops reading.
const INBOX: usize = 64;
/// The limit on messages that wait for a client to read. At the limit, its feeds stop reading the log.
const OUTBOX: usize = 256;
/// The limit on their total size. A longer message takes all of it and passes alone.
const OUTBOX_BYTES: usize = 8 << 20;

/// The other side of the queue was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the connection is closed")]
pub(crate) struct ConnectionClosed;

/// The transport's end for messages of the client. Dropping it disconnects the client.
#[derive(Debug)]
pub(crate) struct ClientInlet(mpsc::Sender<String>);

impl ClientInlet {
    /// Puts one message; waits while the queue is full.
    pub(crate) async fn put(&self, text: String) -> Result<(), ConnectionClosed> {
        self.0.send(text).await.map_err(|_| ConnectionClosed)
    }
}

/// The transport's end for messages to the client. It ends when the connection is closed from our side.
#[derive(Debug)]
pub(crate) struct ClientOutlet {
    messages: mpsc::Receiver<ClientMessage>,
    over: CancellationToken,
}

impl ClientOutlet {
    pub(crate) async fn next(&mut self) -> Option<ClientMessage> {
        tokio::select! {
            biased;
            () = self.over.cancelled() => {}
            message = self.messages.recv() => return message,
        }
        self.messages.close();
        self.messages.recv().await
    }
}

/// One message for a client.
#[derive(Debug)]
pub(crate) struct ClientMessage {
    /// The message, one line of JSON.
    pub(crate) text: String,
    /// The session of the message.
    pub(crate) session: Option<SessionId>,
    /// The id and method of the request that it answers.
    pub(crate) answers: Option<(RequestId, String)>,
    /// The position in the log that a client has reached with this message.
    pub(crate) seq: Option<u64>,
    /// The message's share of [`OUTBOX_BYTES`], returned on drop.
    #[expect(dead_code, reason = "dropping it is its use")]
    room: OwnedSemaphorePermit,
}

/// The connection's side of an [`ClientOutlet`].
#[derive(Debug, Clone)]
pub(super) struct ClientOutbox {
    messages: mpsc::Sender<ClientMessage>,
    room: Arc<Semaphore>,
    over: CancellationToken,
}

/// Metadata that goes with a message.
#[derive(Debug, Clone, Default)]
pub(super) struct MessageMeta {
    pub(super) session: Option<SessionId>,
    pub(super) answers: Option<(RequestId, String)>,
    pub(super) seq: Option<u64>,
}

/// Reserved room for one message.
#[derive(Debug)]
pub(super) struct OutboxPermit {
    place: mpsc::OwnedPermit<ClientMessage>,
    room: OwnedSemaphorePermit,
}

impl OutboxPermit {
    pub(super) fn put(self, text: String, about: MessageMeta) {
        let (MessageMeta { session, answers, seq }, room) = (about, self.room);
        self.place.send(ClientMessage { text, session, answers, seq, room });
    }
}

impl ClientOutbox {
    /// Reserves room for a message of this size. Waits while the client does not read. Cancel-safe: the message itself
    /// is not moved in before there is room.
    pub(super) async fn room(&self, size: usize) -> Result<OutboxPermit, ConnectionClosed> {
        let size = u32::try_from(size.min(OUTBOX_BYTES)).unwrap_or(u32::MAX);
        let bytes = Arc::clone(&self.room).acquire_many_owned(size);
        let room = tokio::select! {
            room = bytes => room.map_err(|_| ConnectionClosed)?,
            () = self.messages.closed() => return Err(ConnectionClosed),
        };
        let place = self.messages.clone().reserve_owned().await.map_err(|_| ConnectionClosed)?;
        Ok(OutboxPermit { place, room })
    }

    /// Puts one message; waits while the client does not read.
    pub(super) async fn put(&self, text: String, about: MessageMeta) -> Result<(), ConnectionClosed> {
        self.room(text.len()).await?.put(text, about);
        Ok(())
    }

    /// Closes the connection from our side: the client still gets the messages that are queued now, and nothing after
    /// them.
    pub(super) fn close(&self) {
        self.over.cancel();
    }

    /// Waits until the transport has dropped its end.
    pub(super) async fn closed(&self) {
        self.messages.closed().await;
    }
}

pub(super) fn inlet() -> (ClientInlet, mpsc::Receiver<String>) {
    let (to, inbox) = mpsc::channel(INBOX);
    (ClientInlet(to), inbox)
}

pub(super) fn outlet() -> (ClientOutbox, ClientOutlet) {
    let (messages, from) = mpsc::channel(OUTBOX);
    let (room, over) = (Arc::new(Semaphore::new(OUTBOX_BYTES)), CancellationToken::new());
    (ClientOutbox { messages, room, over: over.clone() }, ClientOutlet { messages: from, over })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn whoever_is_shown_out_is_told_what_waits_and_nothing_of_what_is_still_being_read() {
        let (outbox, mut outlet) = outlet();
        for _ in 0..OUTBOX {
            outbox.put("before".to_owned(), MessageMeta::default()).await.unwrap();
        }
        let theirs = outbox.clone();
        let feed = tokio::spawn(async move {
            while theirs.put("after".to_owned(), MessageMeta::default()).await.is_ok() {}
        });
        tokio::task::yield_now().await;
        outbox.close();
        let mut received = 0;
        while let Some(next) = outlet.next().await {
            assert_eq!(next.text, "before");
            received += 1;
        }
        assert_eq!(received, OUTBOX);
        feed.await.unwrap();
    }
}

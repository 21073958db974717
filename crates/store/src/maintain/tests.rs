use std::sync::Arc;

use intercom_types::event::RawMessage;
use intercom_types::{Event, NewEvent, SessionRecord};

use super::*;
use crate::bus::Bell;
use crate::tests::{record, write};
use crate::{SessionSnapshot, SessionWrite};

#[tokio::test]
async fn each_step_of_a_removal_is_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("intercom.db"), Bell::new()).unwrap();
    let (id, ended_at) = (SessionId::mint(), Some(Time::from_millis(9)));
    let record = SessionRecord { phase: Phase::Ended, ended_at, ..record(id) };
    let snapshot = SessionSnapshot { record, state: "{}".into(), launch: Some("{}".into()) };
    store.write(Arc::new(SessionWrite { snapshot: Some(Box::new(snapshot)), ..write(id) })).await.unwrap();
    let events = |kind: fn(RawMessage) -> Event, count: usize| {
        let data = Json::trusted(format!("{{\"message\":\"{}\"}}", "x".repeat(200)));
        let new = NewEvent { at: Time::from_millis(1), event: kind(RawMessage(data)) };
        Arc::new(SessionWrite { events: vec![new; count], ..write(id) })
    };
    store.write(events(Event::AgentSessions, 5000)).await.unwrap();
    for _ in 0..60 {
        store.write(events(Event::Status, 1000)).await.unwrap();
    }
    let now = Time::from_millis(10);
    assert!(store.transact(move |connection| remove(connection, id, "ana".into(), now)).await.unwrap());
    let mut rows = Vec::new();
    while rows.last() != Some(&0) {
        rows.push(store.transact_later(CHUNK, delete_rows).await.unwrap());
    }
    assert_eq!(rows, [CHUNK, CHUNK, 1000, 0]);
    let stored = async || {
        let size = "SELECT coalesce(sum(length(body)), 0) FROM blocks";
        let size: Result<i64, _> =
            store.read(move |read| Ok(read.query_row(size, [], |row| row.get(0))?)).await;
        size.unwrap()
    };
    let mut before = stored().await;
    assert!(before > 2 * BLOCK_BYTES_AT_ONCE);
    while before > 0 {
        assert!(store.transact_later(1, delete_blocks).await.unwrap() <= 1000 * BLOCKS_AT_ONCE);
        let after = stored().await;
        assert!(before - after <= BLOCK_BYTES_AT_ONCE && before > after, "{before} bytes, then {after}");
        before = after;
    }
    assert!(store.transact(forget_emptied).await.unwrap());
}

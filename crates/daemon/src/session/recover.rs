//! Changes to sessions without a task: lost processes, amendments, adoptions.

use std::sync::Arc;

use super::commit::{StepSettings, prepare, step};
use super::handle::CommandError;
use super::stall::WatchPolicy;
use super::state::{AdoptedProcess, AgentExit, SessionInput, SessionState};
use intercom_store::{OutgoingChange, Store, StoreError};

/// Records the end of a session whose process is gone. Open requests are withdrawn, visibly.
pub(crate) async fn record_lost_process(
    store: &Store,
    mut state: SessionState,
    reason: &str,
) -> Result<(), StoreError> {
    let mut effects = Vec::new();
    let agent_exit = AgentExit { reason: reason.to_owned(), ..AgentExit::default() };
    let watch_policy = WatchPolicy::off();
    let settings = StepSettings::without_process(&watch_policy);
    if step(&mut state, settings, SessionInput::Exited(Box::new(agent_exit)), &mut effects).is_err() {
        return Ok(()); // it has ended already
    }
    let (mut write, _) = prepare(&mut state, effects, None);
    write.outgoing = vec![OutgoingChange::Cleared];
    store.write(Arc::new(write)).await
}

/// Applies an input to a session without a process. The caller makes sure that nobody starts a process meanwhile.
pub(crate) async fn amend(
    store: &Store,
    mut state: SessionState,
    input: SessionInput,
) -> Result<(), CommandError> {
    let mut effects = Vec::new();
    step(&mut state, StepSettings::without_process(&WatchPolicy::off()), input, &mut effects)?;
    let (write, _) = prepare(&mut state, effects, None);
    if write.events.is_empty() && write.snapshot.is_none() {
        return Ok(()); // nothing has changed
    }
    Ok(store.write(Arc::new(write)).await?)
}

/// Records a running process whose messages the database does not know. `launch` is its launch description, if the
/// database does not know the session at all; `consumed` is the offset at which its stored output begins.
pub(crate) async fn adopt(
    store: &Store,
    state: &mut SessionState,
    adoption: AdoptedProcess,
    launch: Option<String>,
    consumed: u64,
) -> Result<(), StoreError> {
    let mut effects = Vec::new();
    let watch_policy = WatchPolicy::off();
    let settings = StepSettings::without_process(&watch_policy);
    if step(state, settings, SessionInput::Adopt(Box::new(adoption)), &mut effects).is_err() {
        return Ok(()); // it is never refused
    }
    let (mut write, _) = prepare(state, effects, None);
    if let Some(snapshot) = &mut write.snapshot {
        snapshot.launch = launch;
    }
    (write.adopts, write.consumed, write.outgoing) = (true, Some(consumed), vec![OutgoingChange::Cleared]);
    store.write(Arc::new(write)).await
}

//! Reassessment of pending clearances after a change of policy: a reload, a new grant, or a start of the daemon.
//!
//! ```text
//!   policy changes ──► task: reads the pending clearances, assesses each ──► rulings ──► the session decides them
//! ```
//! Assessing follows links on a file system that may be slow, so the session does not wait for it. Rulings of a policy
//! that has changed meanwhile are dropped: that change starts another task. A daemon that dies in between has decided
//! nothing, and the next one begins with such a task.

use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::{ASSESSING, RETRY_LAST, SessionActor};
use crate::session::state::{RequestAssessor, SessionInput, SessionSpec};
use intercom_failpoint as failpoint;
use intercom_store::{ClearanceFilter, Store, StoreError};
use intercom_types::{Clearance, ClearanceId, ClearanceStatus, Outcome, Ruling};

/// The number of clearances in one read.
const PAGE: usize = 200;

/// The version of the policy in force, and the task that applies it to pending clearances.
pub(super) struct PolicyReassessment {
    policy: watch::Receiver<u64>,
    task: Option<AbortOnDropHandle<Vec<(ClearanceId, Ruling)>>>,
    /// The version of the policy that the running task applies.
    version: u64,
}

/// A step of the reassessment.
pub(super) enum ReassessmentStep {
    PolicyChanged,
    /// The pending clearances that policy decides.
    Ruled(Vec<(ClearanceId, Ruling)>),
}

impl PolicyReassessment {
    pub(super) fn new(mut policy: watch::Receiver<u64>) -> Self {
        policy.mark_changed(); // an earlier daemon may have died before it applied a change
        Self { policy, task: None, version: 0 }
    }

    /// Waits for the next step; cancelling it loses nothing.
    pub(super) async fn next(&mut self) -> ReassessmentStep {
        loop {
            let finished = async {
                match &mut self.task {
                    Some(task) => task.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                // Biased: a change makes a result that is ready at the same time outdated.
                Ok(()) = self.policy.changed() => return ReassessmentStep::PolicyChanged,
                rulings = finished => {
                    self.task = None;
                    match rulings {
                        Ok(rulings) if *self.policy.borrow() == self.version => return ReassessmentStep::Ruled(rulings),
                        Ok(_) => {} // the change is the next step
                        Err(error) => tracing::error!(%error, "pending clearances could not be reassessed"),
                    }
                }
            }
        }
    }
}

impl SessionActor {
    pub(super) async fn reassessed(&mut self, step: ReassessmentStep) {
        match step {
            ReassessmentStep::PolicyChanged => {
                self.reassessment.version = *self.reassessment.policy.borrow();
                let (store, assessor) = (self.store.clone(), Arc::clone(&self.plan.assessor));
                let spec = self.state.spec().clone();
                self.reassessment.task = self
                    .state
                    .has_clearances()
                    .then(|| AbortOnDropHandle::new(tokio::spawn(assess_pending(store, assessor, spec))));
            }
            ReassessmentStep::Ruled(rulings) if rulings.is_empty() => {}
            ReassessmentStep::Ruled(rulings) => {
                failpoint::visit("policy.ruled");
                let inputs =
                    rulings.into_iter().map(|(clearance, ruling)| SessionInput::Ruled { clearance, ruling });
                self.absorb(inputs.collect(), None).await;
            }
        }
    }
}

/// Returns the rulings on the session's pending clearances that need no person.
async fn assess_pending(
    store: Store,
    assessor: Arc<dyn RequestAssessor>,
    spec: SessionSpec,
) -> Vec<(ClearanceId, Ruling)> {
    let pending = loop {
        match pending(&store, &spec).await {
            Ok(pending) => break pending,
            Err(error) => {
                tracing::warn!(%error, "pending clearances cannot be read; will try again");
                tokio::time::sleep(RETRY_LAST).await;
            }
        }
    };
    // One after the other: this runs beside the session, and must not occupy all blocking threads.
    let mut rulings = Vec::new();
    for clearance in pending {
        let (assessor, spec, id) = (Arc::clone(&assessor), spec.clone(), clearance.id);
        let assessing = tokio::task::spawn_blocking(move || assessor.rule_pending(&spec, &clearance));
        match tokio::time::timeout(ASSESSING, assessing).await {
            Ok(Ok(ruling)) if ruling.outcome != Outcome::Ask => rulings.push((id, ruling)),
            Ok(Ok(_)) => {}
            _ => tracing::error!(clearance = %id, "a clearance could not be reassessed; people decide"),
        }
    }
    rulings
}

/// Returns all pending clearances of the session, oldest first.
async fn pending(store: &Store, spec: &SessionSpec) -> Result<Vec<Clearance>, StoreError> {
    let filter = ClearanceFilter { status: Some(ClearanceStatus::Pending), session: Some(spec.id) };
    let (mut found, mut before) = (Vec::new(), None);
    loop {
        let page = store.clearances(filter.clone(), before, PAGE).await?;
        found.extend(page.items);
        before = page.next;
        if before.is_none() {
            found.reverse();
            return Ok(found);
        }
    }
}

//! What people see, and what becomes of it.

use super::*;

#[test]
fn a_clearance_is_asked_decided_delivered_and_shown_so() {
    let office = Office::open();
    let session = office.daemon.run(ASKS);
    let root = office.root(&session);
    let clearance = office.daemon.clearance(&session);
    let card = office.card(&clearance);
    assert_eq!(card.thread_ts.as_deref(), Some(root.ts.as_str()), "in the session's thread");
    assert_eq!(buttons(&card), ["allow", "always", "deny", "deny_reason", "details"]);
    assert!(shown(&card).contains("src/main.rs") && shown(&card).contains("medium"), "{}", shown(&card));
    let click = office.slack.click(ANA, &card, "allow");
    assert_eq!(answered(&office, &session)["status"], "approved");
    let done = office.card_when(&clearance, |card| shown(card).contains("delivered"));
    assert!(buttons(&done).is_empty() && shown(&done).contains("ana"), "{}", shown(&done));
    assert!(click.acked_at().is_some());
    // Who comes late is told, and nobody else.
    let late = office.slack.click(BO, &card, "deny");
    let told = late.wait_ephemeral();
    assert!(told.text.contains("Already approved by ana"), "{told:?}");
    assert!(office.slack.ephemerals(ANA).is_empty());
    assert_eq!(office.slack.messages().iter().filter(|message| key(message) == clearance).count(), 1);
}

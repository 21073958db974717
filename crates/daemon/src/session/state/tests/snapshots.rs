//! Snapshots of earlier releases, made by their binaries from real agents: `flat/` by the one before the parts, `parts/` by the first
//! one with them.

use super::*;

const SHOP: &str = include_str!("flat/shop.json");
const CHAT: &str = include_str!("flat/chat.json");
const GONE: &str = include_str!("flat/gone.json");

fn read(snapshot: &str) -> SessionState {
    let mut read: SessionState = serde_json::from_str(snapshot).unwrap();
    assert!(read.take_dirty() && !read.take_dirty(), "it is stored in parts with the next event");
    let parts = serde_json::to_string(&read).unwrap();
    assert_eq!(serde_json::from_str::<SessionState>(&parts).unwrap(), read);
    read
}

#[test]
fn what_was_open_is_open_with_its_terms_choices_and_subject() {
    let shop = read(SHOP);
    assert_eq!(
        (shop.phase(), shop.why().as_str()),
        (Phase::Waiting, "waiting for you: 1 clearance and 1 question")
    );
    let open = shop.requests.clearances.values().next().unwrap();
    assert_eq!((open.request.as_json(), open.terms.needed), (r#""c1""#, 2));
    assert_eq!(
        (open.terms.approvals.as_slice(), open.terms.on_expiry),
        (&["root".to_owned()][..], Verdict::Deny)
    );
    assert_eq!(
        (open.subject.action.as_deref(), open.subject.title.as_str()),
        (Some("rm -rf build"), "Delete it")
    );
    assert!(open.choices.is_empty() && shop.requests.has_asked);
    assert!(shop.requests.decided_as(&id(r#""c2""#)).is_some(), "its agent may still say what came of it");
    assert_eq!(shop.next_message(), 4);

    let chat = read(CHAT);
    let open = chat.requests.clearances.values().next().unwrap();
    let kinds: Vec<&str> = open.choices.iter().map(|choice| choice.kind.as_str()).collect();
    assert_eq!(kinds, ["allow_once", "allow_always", "reject_once"]);
    let queued: Vec<&str> = chat.turns.queue.iter().map(|queued| queued.text.as_str()).collect();
    assert_eq!(queued, ["say:second", "say:third"]);
    assert!(chat.agent.driver.is_some() && chat.turns.turn.is_some() && chat.agent_owns_turns());
    assert_eq!(chat.agent_info().controls.modes.len(), 3);
}

#[test]
fn the_two_switches_of_before_are_a_turn_model_and_stay_readable_by_their_release() {
    for (model, on_heartbeat, strict) in [
        (TurnModel::Immediate, false, false),
        (TurnModel::OnHeartbeat, true, false),
        (TurnModel::AgentOwned, false, true),
    ] {
        let spec = SessionSpec { turn_model: model, ..World::new().state.spec().clone() };
        let mut stored = serde_json::to_value(&spec).unwrap();
        assert_eq!(
            (&stored["prompts_on_heartbeat"], &stored["strict"]),
            (&on_heartbeat.into(), &strict.into())
        );
        assert_eq!(serde_json::from_value::<SessionSpec>(stored.clone()).unwrap(), spec);
        stored.as_object_mut().unwrap().remove("strict"); // the first releases knew no ACP
        let read = serde_json::from_value::<SessionSpec>(stored).unwrap();
        assert_eq!(read.turn_model, if strict { TurnModel::Immediate } else { model });
    }
}

#[test]
fn an_end_is_an_end_and_its_failure_is_still_unseen() {
    let gone = read(GONE);
    assert!(gone.is_ended() && gone.pid().is_none());
    assert_eq!(gone.failed().unwrap().reason, "exited with code 3 during a turn: “oh no”");
    assert_eq!(gone.record().exit.unwrap().code, Some(3));
}

#[test]
fn the_two_that_wait_go_on_where_they_were() {
    let mut world = World::new();
    world.state = read(SHOP);
    let clearance = *world.state.requests.clearances.keys().next().unwrap();
    let effects = world.go(decide_as("ana", clearance, Verdict::Approve));
    assert_eq!(effects.iter().filter_map(kind).collect::<Vec<_>>(), ["clearance.decided"]);
    assert!(
        matches!(sent(&effects)[..], [(4, AgentCommand::Decision { approved: true, .. })]),
        "{effects:?}"
    );
}

#[test]
fn a_snapshot_in_parts_is_stored_under_the_names_that_it_was_read_from() {
    for snapshot in [include_str!("parts/halt.json"), include_str!("parts/chat.json")] {
        let read: SessionState = serde_json::from_str(snapshot).unwrap();
        let before: serde_json::Value = serde_json::from_str(snapshot).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), before);
    }
}

#[test]
fn a_snapshot_of_the_first_version_is_read() {
    let mut snapshot: serde_json::Value = serde_json::from_str(SHOP).unwrap();
    let fields = snapshot.as_object_mut().unwrap();
    for new in
        ["terms", "choices", "subjects", "decided", "asked", "unenforced", "watch", "errands", "failures"]
    {
        fields.remove(new);
    }
    let read: SessionState = serde_json::from_str(&snapshot.to_string()).unwrap();
    let open = read.requests.clearances.values().next().unwrap();
    assert_eq!((open.request.as_json(), &open.terms), (r#""c1""#, &DecisionTerms::default()));
}

#[test]
fn what_is_no_snapshot_says_what_it_lacks() {
    for (snapshot, missing) in [("{}", "spec"), (r#"{"turns":null}"#, "spec")] {
        let error = serde_json::from_str::<SessionState>(snapshot).unwrap_err().to_string();
        assert_eq!(error, format!("the snapshot has no `{missing}`"));
    }
    let mut flat: serde_json::Value = serde_json::from_str(GONE).unwrap();
    flat.as_object_mut().unwrap().remove("stage");
    let error = serde_json::from_str::<SessionState>(&flat.to_string()).unwrap_err().to_string();
    assert_eq!(error, "the snapshot has no `stage`");
}

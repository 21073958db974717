//! The ACP client that started a session comes and goes.

use super::*;

fn of_client(on_client_left: OnClientLeft) -> World {
    let mut world = World::with(|spec| spec.on_client_left = Some(on_client_left));
    world.launch();
    world
}

fn left_at(world: &World) -> Option<i64> {
    world.state.record().watch_state.left_at.map(Time::millis)
}

#[test]
fn since_when_its_client_is_gone_is_kept_until_one_comes() {
    let mut world = of_client(OnClientLeft::Close);
    assert_eq!(left_at(&world), None);
    world.go(SessionInput::Clients { attached: false });
    let since = left_at(&world);
    assert_eq!(since, Some(world.time));
    world.reload();
    world.go(SessionInput::Clients { attached: false });
    assert_eq!(left_at(&world), since, "another daemon has seen no client either");
    world.go(SessionInput::Clients { attached: true });
    assert_eq!(left_at(&world), None);
    let mut world = World::running();
    world.state.take_dirty();
    world.go(SessionInput::Clients { attached: false });
    assert_eq!((left_at(&world), world.state.take_dirty()), (None, false), "no client started it");
}

#[test]
fn a_client_that_comes_after_the_end_counts_for_the_next_life() {
    let mut world = of_client(OnClientLeft::Close);
    world.go(SessionInput::Clients { attached: false });
    let first = left_at(&world);
    world.go(SessionInput::Exited(Box::default()));
    assert!(world.state.is_ended());
    world.go(SessionInput::Clients { attached: true });
    world.reload();
    assert_eq!(left_at(&world), None);
    world.go(SessionInput::Resume { by: "ana".into() });
    world.time += 1;
    world.go(SessionInput::Clients { attached: false });
    assert!(left_at(&world) > first, "the time counts from the second client's leaving");
}

#[test]
fn what_somebody_else_uses_is_kept_and_said_once() {
    let keep = || SessionInput::Keep { by: "ana".into() };
    let mut world = of_client(OnClientLeft::Close);
    assert_eq!(world.kinds(keep()), ["session.kept"]);
    world.reload();
    assert_eq!(world.state.record().watch_state.on_client_left, Some(OnClientLeft::Keep));
    assert_eq!(world.go(keep()), []);
    assert_eq!(World::running().go(keep()), []);
    assert_eq!(of_client(OnClientLeft::Keep).go(keep()), []);
}

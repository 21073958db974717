//! What is set of an agent, and what it makes of that.

use super::prompts::{data, strict};
use super::*;
use intercom_types::{Set, Setting};

fn mode(mode: &str) -> Input {
    Input::Set { set: Set::Mode(mode.into()), by: "ana".into() }
}

#[test]
fn what_is_set_has_a_number_and_so_has_what_the_agent_makes_of_it() {
    let mut world = strict();
    let effects = world.go(mode("plan"));
    assert_eq!(data(&effects, EventKind::AgentSetting)["set"], 1);
    assert!(matches!(sent(&effects)[..], [(_, Outbound::Set { number: 1, .. })]), "{effects:?}");
    let option = Set::Option { id: "fast".into(), value: Setting::Switch(true) };
    let effects = world.go(Input::Set { set: option, by: "ana".into() });
    let told = data(&effects, EventKind::AgentSetting);
    assert_eq!((&told["set"], &told["value"]), (&2.into(), &true.into()));
    let effects = world.say(Said::IsSet { set: Some(2), result: Json::trusted(r#"{"n": 1.0}"#) });
    let Some(StepEffect::Record(new)) = effects.first() else { panic!("{effects:?}") };
    assert_eq!(
        (new.event.name(), new.event.data().as_ref()),
        ("agent.set_done", r#"{"set":2,"result":{"n": 1.0}}"#)
    );
    let error = Json::trusted(r#"{"code":-32602}"#);
    let effects = world.say(Said::NotSet { set: Some(1), reason: "no".into(), error });
    let told = data(&effects, EventKind::SettingRefused);
    assert_eq!((&told["set"], &told["reason"]), (&1.into(), &"no".into()));
    assert_eq!(told["error"]["code"], -32602);
    // No number is used twice, not even in another life.
    world.go(gone());
    world.go(Input::Resume { by: "ana".into() });
    world.go(Input::Spawned { pid: 43 });
    world.say(Said::Ready {
        steers: false,
        lists: false,
        resumed: false,
        takes: intercom_types::Takes::default(),
        info: Json::trusted("{}"),
    });
    assert_eq!(data(&world.go(mode("code")), EventKind::AgentSetting)["set"], 3);
}

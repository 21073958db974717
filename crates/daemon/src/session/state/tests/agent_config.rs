//! What is set of an agent, and what it makes of that.

use super::prompts::{agent_owned, data};
use super::*;
use intercom_types::{ControlChange, SettingValue};

fn mode(mode: &str) -> SessionInput {
    SessionInput::Set { set: ControlChange::Mode(mode.into()), by: "ana".into() }
}

#[test]
fn what_is_set_has_a_number_and_so_has_what_the_agent_makes_of_it() {
    let mut world = agent_owned();
    let effects = world.go(mode("plan"));
    assert_eq!(data(&effects, EventKind::AgentSetting)["set"], 1);
    assert!(
        matches!(sent(&effects)[..], [(_, AgentCommand::ChangeSetting { number: 1, .. })]),
        "{effects:?}"
    );
    let option = ControlChange::Option { id: "fast".into(), value: SettingValue::Switch(true) };
    let effects = world.go(SessionInput::Set { set: option, by: "ana".into() });
    let told = data(&effects, EventKind::AgentSetting);
    assert_eq!((&told["set"], &told["value"]), (&2.into(), &true.into()));
    let effects =
        world.say(AgentMessage::SettingAccepted { set: Some(2), result: Json::trusted(r#"{"n": 1.0}"#) });
    let Some(StepEffect::Record(new)) = effects.first() else { panic!("{effects:?}") };
    assert_eq!(
        (new.event.name(), new.event.data().as_ref()),
        ("agent.set_done", r#"{"set":2,"result":{"n": 1.0}}"#)
    );
    let error = Json::trusted(r#"{"code":-32602}"#);
    let effects = world.say(AgentMessage::SettingRefused { set: Some(1), reason: "no".into(), error });
    let told = data(&effects, EventKind::SettingRefused);
    assert_eq!((&told["set"], &told["reason"]), (&1.into(), &"no".into()));
    assert_eq!(told["error"]["code"], -32602);
    // No number is used twice, not even in another life.
    world.go(agent_exit());
    world.go(SessionInput::Resume { by: "ana".into() });
    world.go(SessionInput::Spawned { pid: 43 });
    world.say(AgentMessage::Ready {
        supports_steering: false,
        supports_session_list: false,
        resumed: false,
        prompt_capabilities: intercom_types::PromptCapabilities::default(),
        info: Json::trusted("{}"),
    });
    assert_eq!(data(&world.go(mode("code")), EventKind::AgentSetting)["set"], 3);
}

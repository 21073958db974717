//! Prompts on their way: what is told of them, and what they are made of.

use super::*;
use intercom_types::{Content, PromptBody};

const BLOCKS: &str =
    r#"[{"type":"text","text":"look"},{"type":"image","data":"AA==","mimeType":"image/png"}]"#;

fn content(raw: &str) -> Content {
    Content::read(&Json::trusted(raw)).unwrap()
}

fn with_content() -> SessionInput {
    SessionInput::Prompt {
        id: None,
        wording: PromptBody { text: "look".into(), content: Some(content(BLOCKS)) },
        by: "ana".into(),
    }
}

pub(super) fn data(effects: &[StepEffect], kind: EventKind) -> serde_json::Value {
    let found = effects.iter().find_map(|effect| match effect {
        StepEffect::Record(new) if new.event.kind() == Some(kind) => Some(new.event.data()),
        _ => None,
    });
    serde_json::from_str(&found.unwrap()).unwrap()
}

pub(super) fn agent_owned() -> World {
    let mut world = World::with(|spec| spec.turn_model = TurnModel::AgentOwned);
    world.launch();
    world.say(ready());
    world
}

pub(super) fn ready() -> AgentMessage {
    let (takes, info) = (intercom_types::PromptCapabilities::default(), Json::trusted("{}"));
    AgentMessage::Ready {
        supports_steering: false,
        supports_session_list: false,
        resumed: false,
        prompt_capabilities: takes,
        info,
    }
}

#[test]
fn a_prompt_leaves_the_queue_in_a_turn_that_has_begun_and_before_it_is_sent() {
    let mut world = agent_owned();
    let effects = world.go(prompt("one"));
    let kinds: Vec<_> = effects.iter().filter_map(kind).collect();
    assert_eq!(kinds, ["prompt.queued", "turn.started", "prompt.sending"]);
    assert!(matches!(effects.last(), Some(StepEffect::Send { .. })), "{effects:?}");
    let (sending, began) = (data(&effects, EventKind::PromptSending), data(&effects, EventKind::TurnStarted));
    assert_eq!(sending["prompt"], data(&effects, EventKind::PromptQueued)["prompt"]);
    assert_eq!(sending["turn"], began["turn"]);
    // One that waits leaves when the turn before it has ended.
    assert_eq!(world.kinds(prompt("two")), ["prompt.queued"]);
    let effects = world.say(turn_end());
    let kinds: Vec<_> = effects.iter().filter_map(kind).collect();
    assert_eq!(kinds, ["turn.ended", "turn.started", "prompt.sending"]);
}

#[test]
fn a_prompt_in_the_middle_of_a_turn_says_which() {
    let mut world = World::running();
    let began = data(&world.go(prompt("one")), EventKind::TurnStarted);
    let effects = world.go(prompt("two"));
    assert_eq!(effects.iter().filter_map(kind).collect::<Vec<_>>(), ["prompt.queued", "prompt.sending"]);
    assert_eq!(data(&effects, EventKind::PromptSending)["turn"], began["turn"]);
}

#[test]
fn what_a_prompt_is_made_of_is_recorded_kept_and_told_as_it_came() {
    let mut world = agent_owned();
    world.go(prompt("one"));
    let effects = world.go(with_content());
    let StepEffect::Record(new) = &effects[0] else { panic!("{effects:?}") };
    assert!(new.event.data().contains(BLOCKS), "{:?}", new.event);
    // It waits in a snapshot as well as here.
    world.state = serde_json::from_str(&serde_json::to_string(&world.state).unwrap()).unwrap();
    let told = sent(&world.say(turn_end()));
    let wording = PromptBody { text: "look".into(), content: Some(content(BLOCKS)) };
    assert_eq!(told, [(3, prompted(wording))]);
    assert!(
        !data(&world.go(prompt("plain")), EventKind::PromptQueued)
            .as_object()
            .unwrap()
            .contains_key("content")
    );
}

#[test]
fn a_prompt_with_other_words_keeps_its_other_blocks() {
    let mut world = agent_owned();
    world.go(prompt("one"));
    world.go(with_content());
    let prompt = world.state.turns.queue[0].id;
    let amend = SessionInput::Amend { prompt, text: Some("see".into()), place: None, by: "ana".into() };
    let effects = world.go(amend);
    let expected = content(BLOCKS).with_text("see");
    assert_eq!(data(&effects, EventKind::PromptAmended)["content"][1]["type"], "image");
    let amended = effects.iter().find_map(|effect| match effect {
        StepEffect::Record(NewEvent { event: Event::PromptAmended(amended), .. }) => Some(amended),
        _ => None,
    });
    let amended = amended.unwrap();
    assert_eq!((amended.text.as_deref(), amended.content.as_ref()), (Some("see"), Some(&expected)));
    let told = sent(&world.say(turn_end()));
    assert_eq!(told, [(3, prompted(PromptBody { text: "see".into(), content: Some(expected) }))]);
}

#[test]
fn a_repeated_prompt_is_repeated_whole() {
    let mut world = agent_owned();
    world.state.life.stage =
        LifeStage::Resting { reason: "exited".into(), at: Time::from_millis(0), attempt: 1 };
    let wording = PromptBody { text: "look".into(), content: Some(content(BLOCKS)) };
    world.go(SessionInput::Restart { prompt: Some(wording.clone()) });
    world.go(SessionInput::Spawned { pid: 43 });
    let effects = world.say(AgentMessage::Ready {
        supports_steering: false,
        supports_session_list: false,
        resumed: true,
        prompt_capabilities: intercom_types::PromptCapabilities::default(),
        info: Json::trusted("{}"),
    });
    assert_eq!(sent(&effects).last(), Some(&(2, prompted(wording))));
}

#[test]
fn a_turn_that_ends_with_an_error_says_so() {
    let mut world = agent_owned();
    let end = |failed| AgentMessage::TurnEnd {
        stop_reason: "error: no".into(),
        tokens: intercom_types::TurnTokenCounts::default(),
        params: Json::trusted(r#"{"code":-32603,"message":"no"}"#),
        failed,
        turn: None,
        message: Json::trusted("{}"),
    };
    world.go(prompt("one"));
    let ended = data(&world.say(end(true)), EventKind::TurnEnded);
    assert_eq!((&ended["failed"], &ended["params"]["code"]), (&true.into(), &(-32603).into()));
    world.go(prompt("two"));
    assert_eq!(data(&world.say(end(false)), EventKind::TurnEnded).get("failed"), None);
}

#[test]
fn a_session_is_known_by_what_its_agent_calls_it_and_by_what_people_asked_first() {
    let mut world = agent_owned();
    world.go(SessionInput::Nudge { message: "wake up".into(), by: "ana".into() });
    assert_eq!(world.state.agent_info().first_prompt, None, "that is not what it was asked");
    world.say(turn_end());
    world.go(prompt("Fix the tests\nall of them"));
    world.go(prompt("and more"));
    assert_eq!(world.state.agent_info().first_prompt.as_deref(), Some("Fix the tests"));
    world.state.take_dirty();
    world.say(AgentMessage::Title(Some("Tests".into())));
    assert!(world.state.take_dirty(), "it is kept");
    assert_eq!(world.state.record().agent_info.title.as_deref(), Some("Tests"));
    world.say(AgentMessage::Title(None));
    assert_eq!(world.state.record().agent_info.title, None);
}

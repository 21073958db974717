//! Ten sessions at once are as fast as one, while each call of Slack takes its time.

use std::time::{Duration, Instant};

use super::*;

/// One call of Slack.
const CALL: Duration = Duration::from_millis(300);

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

const ASK: &str = r#"["clearance:c1:{\"title\":\"May I?\",\"risk_level\":\"low\"}","answer:c1"]"#;

/// From request to card, and from click to agent.
fn round(office: &Office, count: usize) -> (Duration, Duration) {
    let sessions: Vec<String> = (0..count).map(|_| office.daemon.run(&["serve"])).collect();
    let roots: Vec<Message> = sessions.iter().map(|session| office.root(session)).collect();
    drop(roots);
    let mut asked = Vec::new();
    for session in &sessions {
        let before = Instant::now();
        office.daemon.prompt(session, ASK);
        asked.push(before);
    }
    let cards: Vec<Message> =
        sessions.iter().map(|session| office.card(&office.daemon.clearance(session))).collect();
    let to_card = cards.iter().zip(&asked).map(|(card, asked)| card.versions[0].at - *asked).collect();
    let mut clicks = Vec::new();
    for card in &cards {
        clicks.push(office.slack.click(ANA, card, "allow").at);
    }
    let mut to_agent = Vec::new();
    for ((session, card), clicked) in sessions.iter().zip(&cards).zip(&clicks) {
        let event = office.daemon.wait_kind(session, "clearance.delivered");
        let delivered: jiff::Timestamp = event["at"].as_str().unwrap().parse().unwrap();
        let now = (Instant::now(), jiff::Timestamp::now());
        let ago = Duration::try_from(now.1.duration_since(delivered)).unwrap_or_default();
        let at = now.0.checked_sub(ago).unwrap();
        to_agent.push(at.saturating_duration_since(*clicked));
        // The agent has its answer before the card says so.
        let done = office.card_when(key(card), |card| buttons(card).is_empty());
        assert!(done.versions.last().unwrap().at >= at, "the card was first");
    }
    for session in &sessions {
        office.daemon.cli(&["kill", session]).ok();
    }
    (median(to_card), median(to_agent))
}

#[test]
fn ten_sessions_are_as_fast_as_one() {
    let office = Office::open();
    office.slack.delay(CALL);
    let (card_of_one, agent_of_one) = round(&office, 1);
    let (card_of_ten, agent_of_ten) = round(&office, 10);
    eprintln!(
        "request to card: {card_of_one:?} alone, {card_of_ten:?} with ten; click to agent: {agent_of_one:?}, {agent_of_ten:?}"
    );
    assert!(card_of_ten <= card_of_one.mul_f64(1.2), "{card_of_one:?} {card_of_ten:?}");
    // Milliseconds: what the machine does besides would be measured, too.
    let least = Duration::from_millis(40);
    assert!(agent_of_ten <= agent_of_one.max(least).mul_f64(1.2), "{agent_of_one:?} {agent_of_ten:?}");
}

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

/// From request to card, and from click to agent; the clicks all at once, or one after the other.
fn round(office: &Office, count: usize, at_once: bool) -> (Vec<Duration>, Vec<Duration>) {
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
    let click = |card: &Message| office.slack.click(ANA, card, "allow").at;
    let clicks: Vec<Instant> = if at_once { cards.iter().map(click).collect() } else { Vec::new() };
    let mut to_agent = Vec::new();
    for (n, (session, card)) in sessions.iter().zip(&cards).enumerate() {
        let clicked = clicks.get(n).copied().unwrap_or_else(|| click(card));
        let event = office.daemon.wait_kind(session, "clearance.delivered");
        let delivered: jiff::Timestamp = event["at"].as_str().unwrap().parse().unwrap();
        let now = (Instant::now(), jiff::Timestamp::now());
        let ago = Duration::try_from(now.1.duration_since(delivered)).unwrap_or_default();
        let at = now.0.checked_sub(ago).unwrap();
        to_agent.push(at.saturating_duration_since(clicked));
        // The agent has its answer before the card says so.
        let done = office.card_when(key(card), |card| buttons(card).is_empty());
        assert!(done.versions.last().unwrap().at >= at, "the card was first");
    }
    for session in &sessions {
        office.daemon.cli(&["kill", session]).ok();
    }
    (to_card, to_agent)
}

/// The figures of some rounds, each in a channel of its own: Slack takes only so many messages per minute in one.
fn rounds(rounds: usize, count: usize, at_once: bool) -> (Duration, Duration) {
    let (mut to_card, mut to_agent) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let office = Office::open();
        office.slack.delay(CALL);
        let (card, agent) = round(&office, count, at_once);
        to_card.extend(card);
        to_agent.extend(agent);
    }
    (median(to_card), median(to_agent))
}

/// Alone on the machine, as `scripts/test` runs it at the end, the ratio is what was promised. Among a hundred other tests, and
/// with all ten clicks in the same moment, only that nobody waits for anybody else's call.
#[test]
fn ten_sessions_are_as_fast_as_one() {
    if std::env::var_os("INTERCOM_TEST_ALONE").is_none() {
        let ((card_of_one, _), (card_of_ten, agent_of_ten)) = (rounds(1, 1, true), rounds(1, 10, true));
        assert!(card_of_ten <= card_of_one + CALL, "{card_of_one:?} {card_of_ten:?}");
        assert!(agent_of_ten <= CALL, "{agent_of_ten:?}");
        return;
    }
    let ((card_of_one, agent_of_one), (card_of_ten, agent_of_ten)) =
        (rounds(7, 1, false), rounds(2, 10, false));
    eprintln!(
        "p50 from request to card: {card_of_one:?} with one session, {card_of_ten:?} with ten; \
         from click to agent: {agent_of_one:?}, {agent_of_ten:?}"
    );
    assert!(card_of_ten <= card_of_one.mul_f64(1.2), "{card_of_one:?} {card_of_ten:?}");
    // No call of Slack is between a click and its agent. What is left is a few milliseconds, and how many is the machine's:
    // less than a tenth of a call is nothing.
    assert!(agent_of_ten <= agent_of_one.mul_f64(1.2).max(CALL / 10), "{agent_of_one:?} {agent_of_ten:?}");
}

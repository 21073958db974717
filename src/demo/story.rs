//! The story of the demo agent: messages in, messages out, without clock and I/O.
//!
//! ```text
//!             tick: the next beat                 answer
//!   running ──────────────────────► waiting ──────────────► running
//!      │ last beat, or interrupt       │ interrupt
//!      ▼                               ▼
//!     idle ◄───────────────────────────┘        idle ── prompt ──► running (a small round)
//! ```

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::{Value, json};

/// A step of the story, with a pause before it.
#[derive(Debug)]
enum StoryBeat {
    Say(String),
    /// A heartbeat: so many entries of the checklist are done, and the next one is in progress.
    Progress(usize),
    Ask(DemoRequest),
    SumUp,
    End,
}

/// A request that the story waits for.
#[derive(Debug, Clone)]
enum DemoRequest {
    HowToGoOn,
    Fix { instruction: Option<String> },
    CleanUp,
    Errand { number: u32, text: String },
}

const FIX_DIFF: &str = "\
--- a/src/due.rs
+++ b/src/due.rs
@@ -12,4 +12,4 @@ impl Ord for Task {
     fn cmp(&self, other: &Self) -> Ordering {
-        other.due.cmp(&self.due)
+        self.due.cmp(&other.due)
     }
 }
";

impl DemoRequest {
    fn id(&self) -> String {
        match self {
            Self::HowToGoOn => "question-1".into(),
            Self::Fix { .. } => "fix-1".into(),
            Self::CleanUp => "cleanup-1".into(),
            Self::Errand { number, .. } => format!("errand-{number}"),
        }
    }

    fn title(&self) -> &'static str {
        match self {
            Self::HowToGoOn => "Shall I fix it?",
            Self::Fix { .. } => "Edit src/due.rs",
            Self::CleanUp => "Run `rm -rf target/old-cache`",
            Self::Errand { .. } => "Edit NOTES.md",
        }
    }

    fn message(&self) -> Value {
        let params = match self {
            Self::HowToGoOn => {
                let text =
                    "Shall I fix it? `continue`: yes. `refine`: yes, with your instruction. `stop`: no.";
                let params = json!({ "text": text, "type": "continuation" });
                return json!({ "method": "prompt/forward", "id": self.id(), "params": params });
            }
            Self::Fix { instruction } => {
                let description = match instruction {
                    None => "Sort tasks by due date, the earliest first.".to_owned(),
                    Some(text) => format!("Sort tasks by due date, with your instruction in mind: {text}"),
                };
                json!({
                    "title": self.title(),
                    "description": description,
                    "file_path": "src/due.rs",
                    "diff": FIX_DIFF,
                    "risk_level": "low",
                })
            }
            Self::CleanUp => json!({
                "title": self.title(),
                "description": "Deletes 48 MB of old build output. This cannot be undone.",
                "command": "rm -rf target/old-cache",
                "risk_level": "high",
            }),
            Self::Errand { text, .. } => json!({
                "title": self.title(),
                "description": "Adds your request to the list of things to do.",
                "file_path": "NOTES.md",
                "diff": format!(
                    "--- a/NOTES.md\n+++ b/NOTES.md\n@@ -1,2 +1,3 @@\n # To do\n \n+- {text}\n"
                ),
                "risk_level": "medium",
            }),
        };
        json!({ "method": "clearance/request", "id": self.id(), "params": params })
    }
}

/// The state of the story.
#[derive(Debug)]
pub(super) struct DemoStory {
    session: Option<String>,
    /// The rest of this turn; empty when idle.
    agenda: VecDeque<StoryBeat>,
    checklist: &'static [&'static str],
    waiting: Option<DemoRequest>,
    /// The daemon's id of the turn.
    turn: Value,
    errands: u32,
    /// The parts of the summary at the end of the turn.
    outcome: Vec<&'static str>,
}

impl DemoStory {
    pub(super) fn new(session: Option<String>) -> Self {
        let say = |text: &str| StoryBeat::Say(text.into());
        let agenda = VecDeque::from([
            say("Hello! I am the demo agent. I only pretend to work: no file is read, written or deleted."),
            StoryBeat::Progress(0),
            say("Looking for the reason why the test `earliest_task_comes_first` fails …"),
            say("Found it: `Task::cmp` in src/due.rs compares the wrong way round."),
            StoryBeat::Progress(1),
            StoryBeat::Ask(DemoRequest::HowToGoOn),
        ]);
        let checklist = &["Find the bug", "Fix it", "Clean up", "Sum up"];
        Self { session, agenda, checklist, waiting: None, turn: Value::Null, errands: 0, outcome: Vec::new() }
    }

    /// Returns the time until the next [`tick`](Self::tick); `None` while the story waits for a message.
    pub(super) fn pause(&self) -> Option<Duration> {
        if self.waiting.is_some() {
            return None;
        }
        let millis = match self.agenda.front()? {
            StoryBeat::Say(_) => 700,
            StoryBeat::Progress(_) | StoryBeat::SumUp => 400,
            StoryBeat::Ask(_) => 500,
            StoryBeat::End => 300,
        };
        Some(Duration::from_millis(millis))
    }

    /// Performs the next step after its pause.
    pub(super) fn tick(&mut self) -> Option<Value> {
        if self.waiting.is_some() {
            return None;
        }
        Some(match self.agenda.pop_front()? {
            StoryBeat::Say(text) => status(&text),
            StoryBeat::Progress(done) => self.heartbeat(done),
            StoryBeat::Ask(ask) => {
                let message = ask.message();
                self.waiting = Some(ask);
                message
            }
            StoryBeat::SumUp => status(&self.summary()),
            StoryBeat::End => self.end(),
        })
    }

    /// Handles a message. Unknown methods of newer daemons are ignored.
    pub(super) fn handle(&mut self, message: &Value) -> Vec<Value> {
        let params = &message["params"];
        let text = |key: &str| params[key].as_str().filter(|text| !text.trim().is_empty());
        match message["method"].as_str() {
            Some("clearance/response" | "prompt/response" | "error") => {
                match self.waiting.take_if(|ask| message["id"] == ask.id()) {
                    Some(ask) => vec![self.answered(&ask, message)],
                    None => {
                        vec![status("That answer came too late: I have moved on and ignore it.")]
                    }
                }
            }
            Some("prompt/send") => {
                self.turn = params["turn"].clone();
                vec![self.prompted(text("text").unwrap_or("(nothing)"))]
            }
            Some("nudge") => vec![status(&format!("Still here! {}", self.situation()))],
            Some("session/interrupt") => {
                let was_idle = self.is_idle();
                self.agenda.clear();
                self.waiting = None;
                let reason = text("reason").map(|reason| format!(" ({reason})")).unwrap_or_default();
                let words = format!("Interrupted{reason}: I stop here and wait for a prompt.");
                if was_idle { vec![status(&words)] } else { vec![status(&words), self.end()] }
            }
            _ => Vec::new(),
        }
    }

    fn answered(&mut self, ask: &DemoRequest, message: &Value) -> Value {
        let params = &message["params"];
        if message["method"] == "error" {
            self.outcome.clear();
            self.agenda = VecDeque::from([StoryBeat::End]);
            let cause = params["message"].as_str().unwrap_or("no cause given");
            return status(&format!("The daemon did not take my request ({cause}), so I stop here."));
        }
        if let DemoRequest::HowToGoOn = ask {
            return self.continue_as_answered(params);
        }
        let approved = params["status"] == "approved";
        let thanks = if approved {
            format!("Approved: {}. Thank you! (I only pretend to do it.)", ask.title())
        } else {
            let reason = params["reason"].as_str().map(|reason| format!(" (“{}”)", first_line(reason)));
            format!("Denied: {}{}. I leave it alone.", ask.title(), reason.unwrap_or_default())
        };
        let (outcome, next) = match (ask, approved) {
            (DemoRequest::HowToGoOn | DemoRequest::Fix { .. }, true) => {
                ("the fix is in", after_the_fix(true))
            }
            (DemoRequest::HowToGoOn | DemoRequest::Fix { .. }, false) => {
                ("the bug is still there", after_the_fix(false))
            }
            (DemoRequest::CleanUp, true) => ("the old cache is gone", closing(3)),
            (DemoRequest::CleanUp, false) => ("the old cache is kept", closing(3)),
            (DemoRequest::Errand { .. }, true) => ("your request is noted", closing(2)),
            (DemoRequest::Errand { .. }, false) => ("your request is not written down", closing(2)),
        };
        self.outcome.push(outcome);
        self.agenda = next;
        status(&thanks)
    }

    fn continue_as_answered(&mut self, params: &Value) -> Value {
        let instruction = params["instruction"].as_str().map(first_line);
        let text = match (params["decision"].as_str(), &instruction) {
            (Some("stop"), _) => {
                self.outcome.push("the bug is found, and left as it is");
                self.agenda = VecDeque::from([StoryBeat::SumUp, StoryBeat::End]);
                return status("As you wish, I leave it there.");
            }
            (Some("refine"), Some(text)) => format!("Understood: {text}"),
            _ => "Good, I continue with the fix.".to_owned(),
        };
        self.agenda = VecDeque::from([StoryBeat::Ask(DemoRequest::Fix { instruction })]);
        status(&text)
    }

    fn prompted(&mut self, text: &str) -> Value {
        let text = first_line(text);
        if !self.is_idle() {
            return status(&format!("Noted: “{text}”. I am a demo, though, and finish my story first."));
        }
        self.errands += 1;
        self.outcome.clear();
        self.checklist = &["Read your request", "Write it down", "Sum up"];
        let acknowledged = status(&format!("You asked: {text}"));
        let errand = DemoRequest::Errand { number: self.errands, text };
        self.agenda = VecDeque::from([StoryBeat::Progress(1), StoryBeat::Ask(errand)]);
        acknowledged
    }

    /// Ends the turn. The turn that the agent begins by itself has no id.
    fn end(&mut self) -> Value {
        let mut params = json!({ "stop_reason": "end_turn" });
        if self.turn.is_string() {
            params["turn"] = self.turn.take();
        }
        json!({ "method": "turn/end", "params": params })
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_none() && self.agenda.is_empty()
    }

    fn situation(&self) -> String {
        match &self.waiting {
            Some(DemoRequest::HowToGoOn) => "I wait for an answer to my question.".into(),
            Some(ask) => format!("I wait for a decision on: {}.", ask.title()),
            None if self.is_idle() => "I am idle and wait for a prompt.".into(),
            None => "I am working, the next step is on its way.".into(),
        }
    }

    fn heartbeat(&self, done: usize) -> Value {
        let entry = |(index, label): (usize, &&str)| {
            let status = match index.cmp(&done) {
                std::cmp::Ordering::Less => "completed",
                std::cmp::Ordering::Equal => "in_progress",
                std::cmp::Ordering::Greater => "pending",
            };
            json!({ "label": label, "status": status })
        };
        let progress: Value = self.checklist.iter().enumerate().map(entry).collect();
        json!({ "method": "heartbeat", "params": { "progress": progress } })
    }

    fn summary(&self) -> String {
        let session = self.session.as_deref().unwrap_or("SESSION");
        format!("Done: {}. More? `intercom send {session} \"…\"`", self.outcome.join(", "))
    }
}

fn after_the_fix(fixed: bool) -> VecDeque<StoryBeat> {
    let text = if fixed {
        "Ran the tests (pretended): 12 passed, 0 failed."
    } else {
        "One thing is left that has nothing to do with the bug."
    };
    VecDeque::from([
        StoryBeat::Say(text.into()),
        StoryBeat::Progress(2),
        StoryBeat::Ask(DemoRequest::CleanUp),
    ])
}

/// Returns the last steps. The last entry of the checklist stays open: if all were completed, the heartbeat would end
/// the turn before `turn/end`.
fn closing(done: usize) -> VecDeque<StoryBeat> {
    VecDeque::from([StoryBeat::Progress(done), StoryBeat::SumUp, StoryBeat::End])
}

fn status(text: &str) -> Value {
    json!({ "method": "status/update", "params": { "message": text } })
}

/// Returns the beginning of a text, short enough to be quoted in a sentence.
fn first_line(text: &str) -> String {
    const LONGEST: usize = 80;
    let line = text.trim().lines().next().unwrap_or_default();
    match line.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets the story run until only a message can move it on.
    fn run(story: &mut DemoStory) -> Vec<Value> {
        let mut sent = Vec::new();
        while story.pause().is_some() {
            sent.extend(story.tick());
        }
        sent
    }

    fn tell(story: &mut DemoStory, method: &str, id: &str, params: &Value) -> Vec<Value> {
        let mut sent = story.handle(&json!({ "method": method, "id": id, "params": params }));
        sent.extend(run(story));
        sent
    }

    fn decide(story: &mut DemoStory, id: &str, status: &str) -> Vec<Value> {
        tell(story, "clearance/response", id, &json!({ "status": status, "reason": "not today" }))
    }

    fn go_on(story: &mut DemoStory) -> Vec<Value> {
        tell(story, "prompt/response", "question-1", &json!({ "decision": "continue", "instruction": null }))
    }

    fn methods(sent: &[Value]) -> Vec<&str> {
        sent.iter().filter_map(|message| message["method"].as_str()).collect()
    }

    fn mentions(sent: &[Value], text: &str) -> bool {
        sent.iter().any(|message| message["params"].to_string().contains(text))
    }

    #[test]
    fn the_whole_story_asks_a_question_and_two_clearances_and_ends_its_turn() {
        let mut story = DemoStory::new(Some("ses_1".into()));
        let mut sent = run(&mut story);
        sent.extend(go_on(&mut story));
        sent.extend(decide(&mut story, "fix-1", "approved"));
        sent.extend(decide(&mut story, "cleanup-1", "approved"));
        let asked = |method: &&str| *method == "prompt/forward" || *method == "clearance/request";
        assert_eq!(
            methods(&sent).into_iter().filter(asked).collect::<Vec<_>>(),
            ["prompt/forward", "clearance/request", "clearance/request"]
        );
        assert_eq!(methods(&sent).last(), Some(&"turn/end"));
        assert!(mentions(&sent, "the fix is in, the old cache is gone"));
        assert!(mentions(&sent, "intercom send ses_1"));
        assert!(story.is_idle());
    }

    #[test]
    fn no_heartbeat_ends_the_turn_early() {
        let mut story = DemoStory::new(None);
        let mut sent = run(&mut story);
        sent.extend(go_on(&mut story));
        sent.extend(decide(&mut story, "fix-1", "approved"));
        sent.extend(decide(&mut story, "cleanup-1", "approved"));
        sent.extend(tell(&mut story, "prompt/send", "", &json!({ "text": "More" })));
        sent.extend(decide(&mut story, "errand-1", "approved"));
        for heartbeat in sent.iter().filter(|message| message["method"] == "heartbeat") {
            assert!(heartbeat["params"].to_string().contains("in_progress"), "{heartbeat}");
        }
    }

    #[test]
    fn a_denial_is_quoted_with_its_reason_and_the_story_goes_on() {
        let mut story = DemoStory::new(None);
        run(&mut story);
        go_on(&mut story);
        let sent = decide(&mut story, "fix-1", "rejected");
        assert!(mentions(&sent[..1], "not today"));
        assert!(!mentions(&sent, "passed"));
        assert_eq!(methods(&sent).last(), Some(&"clearance/request"));
        let sent = decide(&mut story, "cleanup-1", "rejected");
        assert!(mentions(&sent, "the bug is still there, the old cache is kept"));
    }

    #[test]
    fn refine_is_heard_and_stop_ends_the_turn() {
        let mut story = DemoStory::new(None);
        run(&mut story);
        let refine = json!({ "decision": "refine", "instruction": "use sort_by_key" });
        let sent = tell(&mut story, "prompt/response", "question-1", &refine);
        assert!(mentions(&sent[1..], "in mind: use sort_by_key"));

        let mut story = DemoStory::new(None);
        run(&mut story);
        let sent = tell(&mut story, "prompt/response", "question-1", &json!({ "decision": "stop" }));
        assert_eq!(methods(&sent).last(), Some(&"turn/end"));
        assert!(!mentions(&sent, "diff"));
    }

    #[test]
    fn a_prompt_in_a_turn_is_noted_and_one_while_idle_starts_a_round() {
        let mut story = DemoStory::new(None);
        run(&mut story);
        let sent = tell(&mut story, "prompt/send", "", &json!({ "text": "Faster" }));
        assert_eq!(sent.len(), 1);
        assert!(mentions(&sent, "Noted: “Faster”"));
        tell(&mut story, "prompt/response", "question-1", &json!({ "decision": "stop" }));
        let sent = tell(&mut story, "prompt/send", "", &json!({ "text": "Water the plants" }));
        assert_eq!(methods(&sent), ["status/update", "heartbeat", "clearance/request"]);
        assert!(mentions(&sent[2..], "+- Water the plants"));
        assert_eq!(methods(&decide(&mut story, "errand-1", "rejected")).last(), Some(&"turn/end"));
    }

    #[test]
    fn an_interrupt_makes_it_idle_and_a_late_answer_changes_nothing() {
        let mut story = DemoStory::new(None);
        run(&mut story);
        let sent = tell(&mut story, "session/interrupt", "", &json!({ "reason": "lunch" }));
        assert_eq!(methods(&sent), ["status/update", "turn/end"]);
        assert!(mentions(&sent, "lunch"));
        let sent = tell(&mut story, "session/interrupt", "", &json!({}));
        assert_eq!(methods(&sent), ["status/update"], "there is no turn to be ended");
        assert!(mentions(&go_on(&mut story), "too late"));
        assert!(story.is_idle());
        assert_eq!(methods(&tell(&mut story, "prompt/send", "", &json!({ "text": "Go" }))).len(), 3);
    }

    #[test]
    fn a_nudge_is_told_what_the_story_waits_for() {
        let mut story = DemoStory::new(None);
        assert!(mentions(&story.handle(&json!({ "method": "nudge" })), "working"));
        run(&mut story);
        go_on(&mut story);
        let nudge = json!({ "message": "Continue" });
        assert!(mentions(&tell(&mut story, "nudge", "", &nudge), "Edit src/due.rs"));
    }

    #[test]
    fn strange_input_is_survived() {
        let mut story = DemoStory::new(None);
        run(&mut story);
        for strange in
            [json!(null), json!([1]), json!({ "method": 7 }), json!({ "method": "no/such", "id": 1 })]
        {
            assert!(story.handle(&strange).is_empty());
        }
        let refused = json!({ "code": "duplicate_id", "message": "the id is taken" });
        let sent = tell(&mut story, "error", "question-1", &refused);
        assert_eq!(methods(&sent), ["status/update", "turn/end"]);
        let long = "ä".repeat(500);
        assert!(mentions(&tell(&mut story, "prompt/send", "", &json!({ "text": long })), "ä…"));
    }
}

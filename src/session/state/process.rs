//! The process comes and goes.

use serde_json::json;

use super::{Effect, Gone, How, Out, Refused, Stage, State};
use crate::domain::{ClearanceStatus, Delivery, Entry, Json, Kind, QuestionStatus};

impl State {
    /// A first prompt waits in the queue until the process runs.
    pub(super) fn launch(
        &mut self,
        by: String,
        command: &str,
        prompt: Option<String>,
        out: &mut Out<'_, '_>,
    ) -> Result<(), Refused> {
        let about = &self.about;
        let data = json!({
            "name": about.name, "agent": about.agent, "protocol": about.protocol,
            "workspace": about.workspace, "command": command, "by": by,
        });
        out.record(Kind::SessionCreated, Json::of(&data));
        self.stage = Stage::Starting;
        if let Some(text) = prompt {
            self.prompt(text, by, out)?;
        }
        out.effects.push(Effect::Spawn);
        Ok(())
    }

    /// The next generation: new numbers, new turn, what waits in the queue stays there.
    pub(super) fn resume(&mut self, by: &str, out: &mut Out<'_, '_>) -> Result<(), Refused> {
        if !self.is_ended() {
            return Err(Refused::Running);
        }
        self.generation += 1;
        self.spoke = false;
        self.next_n = 1;
        self.exit = None;
        self.decided.clear(); // request ids begin anew
        self.stderr_tail.clear();
        self.stage = Stage::Starting;
        out.record(Kind::SessionResumed, Json::of(&json!({ "generation": self.generation, "by": by })));
        out.effects.push(Effect::Spawn);
        Ok(())
    }

    pub(super) fn spawned(&mut self, pid: i32, out: &mut Out<'_, '_>) {
        if self.is_ended() {
            return;
        }
        self.pid = Some(pid);
        self.started_at = Some(out.now());
        out.record(Kind::AgentSpawned, Json::of(&json!({ "pid": pid, "generation": self.generation })));
        if self.stage == Stage::Starting {
            // Our own protocol has no handshake: an agent is ready as soon as it runs.
            self.stage = Stage::Running;
            out.record(Kind::AgentReady, Json::of(&json!({ "generation": self.generation })));
            self.flush_prompts(out);
        }
    }

    pub(super) fn spawn_failed(&mut self, cause: &str, out: &mut Out<'_, '_>) {
        let reason = format!("spawn failed: {cause}");
        self.fail_in_flight(&reason, out);
        self.end(reason, out);
    }

    pub(super) fn exited(&mut self, gone: Gone, out: &mut Out<'_, '_>) {
        if self.is_ended() {
            return;
        }
        let reason = match &self.stage {
            Stage::Stopping { how: How::Stop, by } => format!("stopped by {by}"),
            Stage::Stopping { how: How::Kill, by } => format!("killed by {by}"),
            _ => gone.reason.clone(),
        };
        self.fail_in_flight(&reason, out);
        out.record(
            Kind::AgentExited,
            Json::of(&json!({
                "code": gone.exit.code, "signal": gone.exit.signal, "steps": gone.steps, "killed": gone.killed,
                "stderr_tail": gone.stderr_tail, "generation": self.generation,
            })),
        );
        self.exit = Some(gone.exit);
        self.stderr_tail = gone.stderr_tail;
        self.end(reason, out);
    }

    /// Nothing may be sent from here on, not even what a settled message made room for.
    fn fail_in_flight(&mut self, reason: &str, out: &mut Out<'_, '_>) {
        self.stage = Stage::Ended { reason: reason.to_owned(), at: out.now() };
        let in_flight: Vec<u64> = self.in_flight.keys().copied().collect();
        for n in in_flight {
            self.settle(n, Some(Delivery::STREAM_CLOSED), out);
        }
    }

    fn end(&mut self, reason: String, out: &mut Out<'_, '_>) {
        self.withdraw_open(out);
        self.end_turn("exited", out);
        self.pid = None;
        out.record(Kind::SessionEnded, Json::of(&json!({ "reason": reason })));
        self.stage = Stage::Ended { reason, at: out.now() };
    }

    fn withdraw_open(&mut self, out: &mut Out<'_, '_>) {
        const WHY: &str = "the agent ended before it was decided";
        let at = out.now();
        self.terms.clear();
        for id in std::mem::take(&mut self.clearances).into_keys() {
            let status = ClearanceStatus::Withdrawn;
            let data = json!({ "clearance": id, "status": status, "reason": WHY });
            out.record(Kind::ClearanceClosed, Json::of(&data));
            out.ledger(Entry::ClearanceClosed { id, status, at, reason: WHY.to_owned() });
        }
        for id in std::mem::take(&mut self.questions).into_keys() {
            let status = QuestionStatus::Withdrawn;
            let data = json!({ "question": id, "status": status, "reason": WHY });
            out.record(Kind::QuestionClosed, Json::of(&data));
            out.ledger(Entry::QuestionClosed { id, status, at, reason: WHY.to_owned() });
        }
    }
}

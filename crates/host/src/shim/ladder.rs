//! The stop ladder as a pure value: the next step and its time.

use std::time::{Duration, Instant};

use crate::frame::LadderWaits;

#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(super) enum StopRung {
    Interrupt,
    CloseStdin,
    Sigterm,
    Sigkill,
}

#[derive(Debug)]
pub(super) struct LadderClimb {
    waits: LadderWaits,
    /// The next rung and its time; `None` after the last.
    next: Option<(StopRung, Instant)>,
}

impl LadderClimb {
    /// Starts the ladder at `now`. Without an interrupt to send, it begins with closing stdin.
    pub(super) fn new(waits: LadderWaits, interrupt: bool, now: Instant) -> Self {
        let first = if interrupt { StopRung::Interrupt } else { StopRung::CloseStdin };
        Self { waits, next: Some((first, now)) }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.next.map(|(_, at)| at)
    }

    /// Returns the rung that is due, if any. Its successor is scheduled from `now`, not from the planned time: a
    /// delayed shim must not shorten the time that the agent gets.
    pub(super) fn due(&mut self, now: Instant) -> Option<StopRung> {
        let (rung, _) = self.next.filter(|(_, at)| *at <= now)?;
        let after = |ms| now + Duration::from_millis(ms);
        self.next = match rung {
            StopRung::Interrupt => Some((StopRung::CloseStdin, after(self.waits.after_interrupt_ms))),
            StopRung::CloseStdin => Some((StopRung::Sigterm, after(self.waits.after_stdin_closed_ms))),
            StopRung::Sigterm => Some((StopRung::Sigkill, after(self.waits.after_sigterm_ms))),
            StopRung::Sigkill => None,
        };
        Some(rung)
    }

    /// Skips to SIGTERM: the agent has exited, so nothing is left that reads an interrupt or stdin, and the rest of the
    /// tree gets the signal.
    pub(super) fn skip_to_signal(&mut self, now: Instant) {
        if let Some((StopRung::Interrupt | StopRung::CloseStdin, _)) = self.next {
            self.next = Some((StopRung::Sigterm, now));
        }
    }

    /// Reports whether the processes still have time to end by themselves.
    pub(super) fn is_patient(&self) -> bool {
        self.next.is_some()
    }

    /// Skips to SIGKILL.
    pub(super) fn skip_to_kill(&mut self, now: Instant) {
        if self.next.is_some() {
            self.next = Some((StopRung::Sigkill, now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits() -> LadderWaits {
        LadderWaits { after_interrupt_ms: 10, after_stdin_closed_ms: 20, after_sigterm_ms: 30 }
    }

    #[test]
    fn rungs_come_in_order_each_after_its_wait() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut ladder = LadderClimb::new(waits(), true, start);
        assert_eq!(ladder.due(at(0)), Some(StopRung::Interrupt));
        assert_eq!(ladder.due(at(9)), None);
        assert_eq!(ladder.due(at(10)), Some(StopRung::CloseStdin));
        assert_eq!(ladder.due(at(29)), None);
        assert_eq!(ladder.due(at(30)), Some(StopRung::Sigterm));
        assert_eq!(ladder.deadline(), Some(at(60)));
        assert_eq!(ladder.due(at(60)), Some(StopRung::Sigkill));
        assert_eq!(ladder.due(at(999)), None);
    }

    #[test]
    fn what_an_agent_leaves_behind_gets_the_signal_at_once_and_its_whole_wait() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut ladder = LadderClimb::new(waits(), true, start);
        ladder.due(start);
        ladder.skip_to_signal(at(5));
        assert_eq!(ladder.due(at(5)), Some(StopRung::Sigterm));
        ladder.skip_to_signal(at(6));
        assert_eq!((ladder.deadline(), ladder.is_patient()), (Some(at(35)), true));
        assert_eq!(ladder.due(at(35)), Some(StopRung::Sigkill));
        assert!(!ladder.is_patient());
    }

    #[test]
    fn a_kill_skips_what_is_left() {
        let start = Instant::now();
        let mut ladder = LadderClimb::new(waits(), true, start);
        ladder.due(start);
        ladder.skip_to_kill(start);
        assert_eq!(ladder.due(start), Some(StopRung::Sigkill));
        ladder.skip_to_kill(start);
        assert_eq!(ladder.due(start), None, "once is enough");
    }
}

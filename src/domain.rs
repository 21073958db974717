//! The words of intercom as types: ids, times, events, clearances, questions, prompts, sessions.
//!
//! Nothing here does I/O or knows a wire format. Everything above speaks in these types; what an agent or a bridge
//! says is turned into them at its edge.

pub mod clearance;
pub mod delivery;
pub mod event;
pub mod id;
pub mod json;
pub mod ledger;
pub mod prompt;
pub mod question;
pub mod said;
pub mod session;
pub mod time;

pub use clearance::{Choice, Clearance, ClearanceStatus, Risk, Verdict};
pub use delivery::Delivery;
pub use event::{Event, Fact, Kind};
pub use id::{ClearanceId, PromptId, QuestionId, SessionId, TurnId};
pub use json::{Json, RequestId};
pub use ledger::Entry;
pub use prompt::{Prompt, PromptState};
pub use question::{Answer, Question, QuestionStatus};
pub use said::{Ask, Fault, FaultCode, Outbound, Progress, Rejection, Said};
pub use session::{Exit, Phase, SessionRecord, Turn};
pub use time::Time;

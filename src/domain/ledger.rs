//! Changes to the ledger: what happened to a clearance, a question or a prompt.

use super::{
    Answer, Clearance, ClearanceId, ClearanceStatus, Content, Delivery, Json, Prompt, PromptId, PromptState,
    Question, QuestionId, QuestionStatus, RequestId, Ruling, Time,
};

/// What an agent of a profile is like, by its own word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownAgent {
    /// The profile's.
    pub name: String,
    /// Stands for the command line that it was started with.
    pub command: String,
    pub told: Json,
}

/// One change. Those that end a `pending` row are compare-and-set in the store: they apply to a pending row or fail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    ClearanceOpened {
        clearance: Box<Clearance>,
        generation: u32,
        /// The agent's own id of the request.
        request: RequestId,
    },
    ClearanceDecided {
        id: ClearanceId,
        status: ClearanceStatus,
        by: String,
        via: String,
        at: Time,
        reason: Option<String>,
        option: Option<String>,
        /// The ruling that takes the place of the request's own.
        ruling: Option<Ruling>,
    },
    /// One of several approvals that are needed.
    ClearanceApproved {
        id: ClearanceId,
        by: String,
    },
    /// What came of it, by the agent's own word.
    ClearanceOutcome {
        id: ClearanceId,
        outcome: String,
    },
    ClearanceClosed {
        id: ClearanceId,
        status: ClearanceStatus,
        at: Time,
        reason: String,
    },
    ClearanceDelivery {
        id: ClearanceId,
        delivery: Delivery,
        at: Time,
    },
    QuestionOpened {
        question: Box<Question>,
        generation: u32,
        request: RequestId,
    },
    QuestionAnswered {
        id: QuestionId,
        decision: Answer,
        instruction: Option<String>,
        by: String,
        at: Time,
    },
    QuestionClosed {
        id: QuestionId,
        status: QuestionStatus,
        at: Time,
        reason: String,
    },
    QuestionDelivery {
        id: QuestionId,
        delivery: Delivery,
        at: Time,
    },
    PromptAdded {
        prompt: Box<Prompt>,
        content: Option<Content>,
    },
    PromptChanged {
        id: PromptId,
        state: PromptState,
        at: Time,
    },
    PromptReworded {
        id: PromptId,
        text: String,
        content: Option<Content>,
    },
    /// All that wait, in the order in which they leave.
    PromptsOrdered(Vec<PromptId>),
    /// What an agent told when it became ready.
    AgentKnown(Box<KnownAgent>),
}

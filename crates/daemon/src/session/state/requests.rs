//! Pending requests of the agent: open clearances with the terms of their decision, and open questions.
//!
//! Invariant: a request is in here from the event that opens it to the event that closes it, and no longer.
//! All data about an open clearance is stored with it, so that nothing of it is left behind.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::CommandRefusal;
use intercom_types::action::{self, ActionParts};
use intercom_types::{Choice, ClearanceId, ClearanceRequest, Preset, QuestionId, RequestId, Time, Verdict};

/// The maximum number of decided clearances that are kept, because the agent may report their outcome later.
const MAX_DECIDED: usize = 256;

/// All open requests of one session, and the clearances that were decided last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RequestTable {
    pub(super) clearances: BTreeMap<ClearanceId, OpenClearance>,
    pub(super) questions: BTreeMap<QuestionId, RequestId>,
    /// Decided clearances whose outcome the agent may still report.
    pub(super) decided: VecDeque<(RequestId, ClearanceId)>,
    /// True once the agent has asked for a clearance.
    #[serde(rename = "asked")]
    pub(super) has_asked: bool,
    /// The warning that the agent acts and has never asked for a clearance.
    pub(super) unenforced: Option<String>,
}

/// A pending clearance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct OpenClearance {
    pub(super) request: RequestId,
    pub(super) terms: DecisionTerms,
    /// The agent's options, if it offers any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) choices: Vec<Choice>,
    pub(super) subject: RequestSubject,
}

/// The terms on which a clearance is decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DecisionTerms {
    pub(super) needed: u32,
    pub(super) approvals: Vec<String>,
    /// The option that the approvers chose.
    #[serde(default)]
    pub(super) option: Option<String>,
    pub(super) expires_at: Option<Time>,
    pub(super) on_expiry: Verdict,
    /// The presets that forbid the request.
    #[serde(default)]
    pub(super) forbidden_by: Vec<Preset>,
}

impl Default for DecisionTerms {
    fn default() -> Self {
        Self {
            needed: 1,
            approvals: Vec::new(),
            option: None,
            expires_at: None,
            on_expiry: Verdict::Deny,
            forbidden_by: Vec::new(),
        }
    }
}

/// The subject of a clearance, kept without the request itself: the decision, the audit and the bridges need no more.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RequestSubject {
    pub(super) action: Option<String>,
    pub(super) title: String,
}

impl RequestSubject {
    pub(super) fn of(ask: &ClearanceRequest) -> Self {
        let action = action::action(ActionParts::from(ask));
        Self { action, title: action::title(&ask.title) }
    }
}

impl RequestTable {
    pub(super) fn len(&self) -> usize {
        self.clearances.len() + self.questions.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the agent's ids of all open requests. Clearances and questions share them, because answers do.
    pub(super) fn open(&self) -> impl Iterator<Item = &RequestId> {
        self.clearances.values().map(|open| &open.request).chain(self.questions.values())
    }

    pub(super) fn clearance_of(&self, request: &RequestId) -> Option<ClearanceId> {
        self.clearances.iter().find(|(_, open)| open.request == *request).map(|(id, _)| *id)
    }

    pub(super) fn question_of(&self, request: &RequestId) -> Option<QuestionId> {
        self.questions.iter().find(|(_, open)| *open == request).map(|(id, _)| *id)
    }

    /// Inserts a clearance. From here on the agent counts as one that asks.
    pub(super) fn insert(&mut self, id: ClearanceId, open: OpenClearance) {
        self.clearances.insert(id, open);
        (self.has_asked, self.unenforced) = (true, None);
    }

    pub(super) fn remember_decided(&mut self, request: RequestId, id: ClearanceId) {
        if self.decided.len() >= MAX_DECIDED {
            self.decided.pop_front();
        }
        self.decided.push_back((request, id));
    }

    /// Returns the clearance that was decided last under this id of the agent.
    pub(super) fn decided_as(&self, request: &RequestId) -> Option<ClearanceId> {
        self.decided.iter().rev().find(|(known, _)| known == request).map(|(_, id)| *id)
    }

    pub(super) fn next_expiry(&self) -> Option<Time> {
        self.clearances.values().filter_map(|open| open.terms.expires_at).min()
    }

    pub(super) fn due(&self, now: Time) -> Vec<ClearanceId> {
        self.find(|terms| terms.expires_at.is_some_and(|at| at <= now))
    }

    pub(super) fn forbidden_by(&self, preset: Preset) -> Vec<ClearanceId> {
        self.find(|terms| terms.forbidden_by.contains(&preset))
    }

    fn find(&self, wanted: impl Fn(&DecisionTerms) -> bool) -> Vec<ClearanceId> {
        self.clearances.iter().filter(|(_, open)| wanted(&open.terms)).map(|(id, _)| *id).collect()
    }
}

impl OpenClearance {
    /// Adds an approval; returns true if no more are needed.
    pub(super) fn approve(&mut self, by: &str, option: Option<&String>) -> Result<bool, CommandRefusal> {
        let terms = &mut self.terms;
        if terms.approvals.iter().any(|approved| approved == by) {
            return Err(CommandRefusal::Approved(terms.needed));
        }
        if let Some(before) = terms.option.as_ref().filter(|before| Some(*before) != option) {
            return Err(CommandRefusal::OtherOption(before.clone()));
        }
        terms.option = option.cloned();
        terms.approvals.push(by.to_owned());
        Ok(terms.approvals.len() >= terms.needed as usize)
    }

    /// Returns the agent's option for a decision: without a choice, the only one that fits. Not for agents without
    /// options.
    pub(super) fn chosen(
        &self,
        verdict: Verdict,
        asked: Option<String>,
    ) -> Result<Option<String>, CommandRefusal> {
        let of = |kind: &str| self.choices.iter().filter(|choice| choice.kind == kind).collect::<Vec<_>>();
        let fits = |choice: &Choice| match verdict {
            Verdict::Approve => !choice.kind.starts_with("reject"),
            Verdict::Deny => !choice.kind.starts_with("allow"),
        };
        let fitting = || {
            let ids = self.choices.iter().filter(|choice| fits(choice)).map(|choice| choice.id.as_str());
            ids.collect::<Vec<_>>().join(", ")
        };
        match (asked, verdict) {
            (Some(asked), _) if self.choices.iter().any(|choice| choice.id == asked && fits(choice)) => {
                Ok(Some(asked))
            }
            (Some(_), _) => Err(CommandRefusal::OptionRequired(fitting())),
            (None, Verdict::Approve) => match of("allow_once").as_slice() {
                [only] => Ok(Some(only.id.clone())),
                _ => Err(CommandRefusal::OptionRequired(fitting())),
            },
            (None, Verdict::Deny) => {
                let rejections = of("reject_once").into_iter().chain(of("reject_always"));
                Ok(rejections.map(|choice| choice.id.clone()).next())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(needed: u32, choices: &[(&str, &str)]) -> OpenClearance {
        let choice = |(id, kind): &(&str, &str)| Choice {
            id: (*id).to_owned(),
            name: (*id).to_owned(),
            kind: (*kind).to_owned(),
        };
        OpenClearance {
            request: RequestId::parse("1").unwrap(),
            terms: DecisionTerms { needed, ..DecisionTerms::default() },
            choices: choices.iter().map(choice).collect(),
            subject: RequestSubject::default(),
        }
    }

    #[test]
    fn approvals_come_from_different_people_who_chose_the_same() {
        let mut waiting = open(2, &[]);
        let option = "once".to_owned();
        assert_eq!(waiting.approve("ana", Some(&option)), Ok(false));
        let before = waiting.clone();
        assert_eq!(waiting.approve("ana", Some(&option)), Err(CommandRefusal::Approved(2)));
        assert_eq!(waiting.approve("ben", None), Err(CommandRefusal::OtherOption(option.clone())));
        assert_eq!(waiting, before, "a refusal changes nothing");
        assert_eq!(waiting.approve("ben", Some(&option)), Ok(true));
    }

    #[test]
    fn without_a_choice_only_the_one_way_to_allow_once_is_taken() {
        let one = open(1, &[("a", "allow_once"), ("b", "allow_always"), ("c", "reject_always")]);
        assert_eq!(one.chosen(Verdict::Approve, None), Ok(Some("a".to_owned())));
        assert_eq!(one.chosen(Verdict::Deny, None), Ok(Some("c".to_owned())));
        assert_eq!(
            one.chosen(Verdict::Deny, Some("a".to_owned())),
            Err(CommandRefusal::OptionRequired("c".to_owned()))
        );
        let two = open(1, &[("a", "allow_once"), ("b", "allow_once")]);
        assert_eq!(
            two.chosen(Verdict::Approve, None),
            Err(CommandRefusal::OptionRequired("a, b".to_owned()))
        );
    }

    #[test]
    fn nothing_of_a_clearance_is_left_when_it_is_closed() {
        let (mut table, id) = (RequestTable::default(), ClearanceId::mint());
        let mut waiting = open(1, &[("a", "allow_once")]);
        waiting.terms.expires_at = Some(Time::from_millis(5));
        waiting.terms.forbidden_by = vec![Preset::Safe];
        table.insert(id, waiting);
        assert_eq!((table.due(Time::from_millis(5)), table.forbidden_by(Preset::Safe)), (vec![id], vec![id]));
        table.clearances.remove(&id);
        let empty = RequestTable { has_asked: true, ..RequestTable::default() };
        assert_eq!((table.next_expiry(), table), (None, empty));
    }

    #[test]
    fn only_the_last_decisions_are_remembered() {
        let mut table = RequestTable::default();
        let ids: Vec<ClearanceId> = (0..=MAX_DECIDED).map(|_| ClearanceId::mint()).collect();
        let request = |n: usize| RequestId::parse(&n.to_string()).unwrap();
        for (n, id) in ids.iter().enumerate() {
            table.remember_decided(request(n), *id);
        }
        assert_eq!((table.decided_as(&request(0)), table.decided_as(&request(1))), (None, Some(ids[1])));
    }
}

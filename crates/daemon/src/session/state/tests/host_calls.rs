//! What is done for the agent, from the request to the answer.

use super::*;
use crate::session::host_call::{
    HostCallAssessment, HostCallError, HostCallJob, HostCallResult, TerminalRun,
};
use intercom_types::{Exit, HostCall, HostCallReply, HostCallRequest, TerminalOperation};

fn call(request: &str, job: HostCallJob, asks: bool) -> SessionInput {
    let line = LineExcerpt { excerpt: String::new(), bytes: 0 };
    // What is wanted has been looked at: only the job counts.
    let wants = HostCallRequest::Read { path: String::new(), line: None, limit: None };
    let params = Json::trusted("{}");
    let call = HostCall { request: id(request), method: "m".to_owned(), operation: wants, params, line };
    let looked = if asks {
        HostCallAssessment::Ask(job, Box::new(ask(request)), Box::default())
    } else {
        HostCallAssessment::Allowed(job)
    };
    SessionInput::HostCall(Box::new(call), Box::new(looked))
}

/// A file to be written, about which this was found out.
pub(super) fn to_write(request: &str, assessed: RequestAssessment) -> SessionInput {
    let SessionInput::HostCall(call, _) = call(request, write("x"), true) else { unreachable!() };
    let looked = HostCallAssessment::Ask(write("x"), Box::new(ask(request)), Box::new(assessed));
    SessionInput::HostCall(call, Box::new(looked))
}

fn write(content: &str) -> HostCallJob {
    HostCallJob::Write { path: "a".to_owned(), at: "a".to_owned(), content: content.to_owned(), before: None }
}

fn run() -> HostCallJob {
    HostCallJob::Run(TerminalRun {
        terminal: String::new(),
        program: "make".to_owned(),
        args: Vec::new(),
        env: Vec::new(),
        cwd: String::new(),
        output_limit: 10,
        line: "make".to_owned(),
    })
}

fn on(terminal: &str, verb: TerminalOperation) -> HostCallJob {
    HostCallJob::Terminal { terminal: terminal.to_owned(), verb }
}

fn orders(effects: &[StepEffect]) -> Vec<HostCallJob> {
    let orders = effects.iter().filter_map(|effect| match effect {
        StepEffect::Do { job, .. } => Some(job.clone()),
        _ => None,
    });
    orders.collect()
}

fn done(request: &str, result: Result<HostCallResult, HostCallError>) -> SessionInput {
    SessionInput::HostCallDone { request: id(request), result: Box::new(result) }
}

fn decide(clearance: ClearanceId, verdict: Verdict) -> SessionInput {
    let (by, via) = ("ana".to_owned(), "api".to_owned());
    SessionInput::Decide { clearance, verdict, reason: Some("why".to_owned()), option: None, by, via }
}

impl World {
    fn wants(&mut self, request: &str, job: HostCallJob) -> ClearanceId {
        assert_eq!(orders(&self.go(call(request, job, true))), [], "people come first");
        *self.state.requests.clearances.iter().find(|(_, open)| open.request.as_json() == request).unwrap().0
    }

    /// One that runs.
    fn terminal(&mut self, request: &str) -> String {
        let clearance = self.wants(request, run());
        let [HostCallJob::Run(run)] = &orders(&self.go(decide(clearance, Verdict::Approve)))[..] else {
            panic!("nothing is run")
        };
        self.go(done(request, Ok(HostCallResult::Started { pid: 7 })));
        run.terminal.clone()
    }
}

fn ended(terminal: &str) -> SessionInput {
    let exit = Exit { code: Some(0), signal: None };
    SessionInput::TerminalEnded { terminal: terminal.to_owned(), exit, why: None }
}

#[test]
fn what_is_approved_is_done_once_and_then_answered() {
    let mut world = World::running();
    let clearance = world.wants("1", write("x"));
    let effects = world.go(decide(clearance, Verdict::Approve));
    assert_eq!(orders(&effects), [write("x")]);
    assert_eq!(sent(&effects), [], "the answer follows the deed");
    // It is in the snapshot until then, and there only.
    let to_restart: SessionState =
        serde_json::from_str(&serde_json::to_string(&world.state).unwrap()).unwrap();
    assert_eq!(to_restart.unfinished_host_calls(), [(id("1"), write("x"))]);
    let effects = world.go(done("1", Ok(HostCallResult::Written { bytes: 1 })));
    assert_eq!(effects.iter().filter_map(kind).collect::<Vec<_>>(), ["file.written"]);
    let [(n, AgentCommand::Reply { reply: HostCallReply::Written, .. })] = &sent(&effects)[..] else {
        panic!("{effects:?}")
    };
    assert_eq!(world.kinds(SessionInput::Delivered { n: *n }), ["clearance.delivered"]);
    assert_eq!(world.state.unfinished_host_calls(), []);
    assert_eq!(world.go(done("1", Ok(HostCallResult::Written { bytes: 1 }))), [], "once is enough");
}

#[test]
fn what_is_denied_or_fails_is_an_error_with_the_reason() {
    let mut world = World::running();
    let clearance = world.wants("1", write("x"));
    let effects = world.go(decide(clearance, Verdict::Deny));
    let [(_, AgentCommand::Fault(fault))] = &sent(&effects)[..] else { panic!("{effects:?}") };
    assert_eq!((fault.code, fault.message.as_str()), (FaultCode::Failed, "denied: why"));
    assert_eq!(orders(&effects), []);
    world.go(call(
        "2",
        HostCallJob::Read { path: "a".into(), at: "a".into(), line: None, limit: None },
        false,
    ));
    let effects = world.go(done("2", Err(HostCallError::failed("no"))));
    assert_eq!(effects.iter().filter_map(kind).collect::<Vec<_>>(), ["call.failed"]);
    assert!(matches!(&sent(&effects)[..], [(_, AgentCommand::Fault(_))]));
}

#[test]
fn an_id_that_is_taken_is_taken_until_it_is_answered() {
    let mut world = World::running();
    world.wants("1", write("x"));
    assert_eq!(world.kinds(call("1", write("y"), true)), ["line.rejected"]);
    world.go(call(
        "2",
        HostCallJob::Read { path: "a".into(), at: "a".into(), line: None, limit: None },
        false,
    ));
    assert_eq!(world.say(clearance("2")).iter().find_map(kind), Some("line.rejected"));
}

#[test]
fn the_end_of_the_agent_ends_what_waits_and_what_is_being_done() {
    let mut world = World::running();
    world.wants("1", write("x"));
    let doing = world.wants("2", write("y"));
    world.go(decide(doing, Verdict::Approve));
    world.terminal("3");
    let kinds = world.kinds(SessionInput::Exited(Box::default()));
    assert!(kinds.contains(&"clearance.closed") && kinds.contains(&"clearance.undelivered"), "{kinds:?}");
    assert_eq!((world.state.unfinished_host_calls(), world.state.terminals().count()), (Vec::new(), 0));
    assert_eq!(world.go(done("2", Ok(HostCallResult::Written { bytes: 1 }))), []);
}

#[test]
fn too_much_is_refused() {
    let mut world = World::running();
    for request in 0..4 {
        world.wants(&request.to_string(), write(&"x".repeat(8 << 20)));
    }
    assert_eq!(world.kinds(call("9", write("x"), true)), ["call.failed"]);
    for request in 10..42 {
        world.wants(&request.to_string(), run());
    }
    assert_eq!(world.kinds(call("99", run(), true)), ["call.failed"]);
}

#[test]
fn a_terminal_answers_who_waits_for_it_when_it_ends() {
    let mut world = World::running();
    let terminal = world.terminal("1");
    assert_eq!(world.kinds(call("2", on("none", TerminalOperation::Wait), false)), ["call.failed"]);
    assert_eq!(world.go(call("3", on(&terminal, TerminalOperation::Wait), false)), []);
    assert_eq!(
        orders(&world.go(call("4", on(&terminal, TerminalOperation::Kill), false))),
        [on(&terminal, TerminalOperation::Kill)]
    );
    // What is released is ended first, also by the next daemon.
    let release = world.go(call("5", on(&terminal, TerminalOperation::Release), false));
    assert_eq!(orders(&release), [on(&terminal, TerminalOperation::Kill)]);
    assert_eq!(world.state.unfinished_host_calls().len(), 2);
    let effects = world.go(ended(&terminal));
    let answers: Vec<AgentCommand> = sent(&effects).into_iter().map(|(_, message)| message).collect();
    let exit = Exit { code: Some(0), signal: None };
    assert_eq!(
        answers,
        [
            AgentCommand::Reply { request: id("3"), reply: HostCallReply::Exited(exit) },
            AgentCommand::Reply { request: id("4"), reply: HostCallReply::Killed },
        ]
    );
    assert_eq!(orders(&effects), [on(&terminal, TerminalOperation::Release)]);
    let effects = world.go(done("5", Ok(HostCallResult::Released)));
    assert!(matches!(&sent(&effects)[..], [(_, AgentCommand::Reply { reply: HostCallReply::Released, .. })]));
    assert_eq!(world.state.terminals().count(), 0);
    assert_eq!(world.kinds(ended(&terminal)), Vec::<&str>::new());
}

#[test]
fn who_takes_waiting_back_is_told_and_what_is_done_is_answered() {
    let mut world = World::running();
    let terminal = world.terminal("1");
    world.go(call("2", on(&terminal, TerminalOperation::Wait), false));
    let back = |request: &str| AgentMessage::Withdrawn { request: id(request), message: Json::trusted("{}") };
    let effects = world.say(back("2"));
    assert!(
        matches!(&sent(&effects)[..], [(_, AgentCommand::Fault(fault))] if fault.code == FaultCode::Cancelled)
    );
    world.go(call("3", on(&terminal, TerminalOperation::Output), false));
    assert_eq!(sent(&world.say(back("3"))), []);
    let waits = world.wants("4", write("x"));
    assert_eq!(sent(&world.say(back("4"))).len(), 1);
    assert!(world.try_go(decide(waits, Verdict::Approve)).is_err());
    assert_eq!(orders(&world.go(SessionInput::Expire)), []);
}

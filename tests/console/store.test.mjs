// The console's models: events in, models out.

import assert from "node:assert/strict";
import test from "node:test";
import * as store from "../../assets/js/store.js";

const at = (second) => `2026-01-01T00:00:${String(second).padStart(2, "0")}.000Z`;
const session = (id, more = {}) => ({
  id,
  name: null,
  agent: "demo",
  protocol: "intercom",
  workspace: "/w",
  phase: "working",
  why: "",
  created_at: at(0),
  started_at: at(0),
  progress: [],
  standing: null,
  ...more,
});
const clearance = (id, more = {}) => ({
  id,
  session: "ses_a",
  title: "t",
  risk: "low",
  status: "pending",
  requested_at: at(1),
  ...more,
});
const event = (seq, kind, data = {}, session_ = "ses_a") => ({ seq, session: session_, at: at(seq), kind, data });

function state() {
  const state = store.empty();
  state.you = { name: "ana", role: "approver" };
  store.putSession(state, session("ses_a"));
  return state;
}

test("the same fact twice changes nothing", () => {
  const known = state();
  const heartbeat = (label) => event(5, "heartbeat", { progress: [{ label, status: "pending" }] });
  store.apply(known, heartbeat("a"));
  assert.deepEqual(store.apply(known, heartbeat("b")), {});
  assert.equal(known.sessions.get("ses_a").progress[0].text, "a");
  assert.deepEqual(store.apply(known, event(6, "turn.ended")), { session: "ses_a" });
  assert.deepEqual(store.apply(known, event(6, "turn.ended")), {});
});

test("the phase of a session is the daemon's word: a turn that ends asks for it", () => {
  const known = state();
  assert.deepEqual(store.apply(known, event(5, "turn.ended")), { session: "ses_a" });
  assert.equal(known.sessions.get("ses_a").phase, "working");
  store.putSession(known, session("ses_a", { phase: "idle", since: at(5) }));
  assert.equal(known.sessions.get("ses_a").phase, "idle");
  assert.equal(known.sessions.get("ses_a").since, at(5));
});

test("how long it is as it is, is the daemon's word", () => {
  const known = state();
  store.putSession(known, session("ses_a", { phase: "idle", started_at: at(1), since: at(7) }));
  assert.equal(known.sessions.get("ses_a").since, at(7));
  store.putSession(known, session("ses_a", { phase: "idle", since: null }));
  assert.equal(known.sessions.get("ses_a").since, at(7));
});

test("talk needs no look at the session, a session that is not known does", () => {
  const known = state();
  assert.deepEqual(store.apply(known, event(1, "status", { message: "x" })), {});
  assert.deepEqual(store.apply(known, event(2, "status", {}, "ses_b")), { session: "ses_b" });
});

test("a decision closes a clearance at once, and a late answer does not open it again", () => {
  const known = state();
  store.putClearance(known, clearance("clr_1"));
  const look = store.apply(known, event(3, "clearance.decided", { clearance: "clr_1", status: "approved", by: "ben" }));
  assert.equal(look.clearance, "clr_1");
  store.putClearance(known, clearance("clr_1"));
  const now = known.clearances.get("clr_1");
  assert.deepEqual([now.status, now.decided_by], ["approved", "ben"]);
  store.apply(known, event(4, "clearance.undelivered", { clearance: "clr_1", cause: "gone" }));
  assert.deepEqual(
    [known.clearances.get("clr_1").delivery, known.clearances.get("clr_1").delivery_cause],
    ["failed", "gone"],
  );
  assert.equal(store.waiting(known), 0);
});

test("a list leaves out what is long, and takes nothing away that is known", () => {
  const known = state();
  const whole = clearance("clr_1", { description: "why", diff: "+x" });
  store.putBrief(known, clearance("clr_1", { description: null, diff: null }));
  assert.equal(known.clearances.get("clr_1").brief, true);
  store.putExplained(known, { clearance: whole, proposal: null, no_proposal: "critical", may_not_approve: null });
  const now = () => known.clearances.get("clr_1");
  assert.deepEqual([now().brief, now().diff, now().explained.no_proposal], [undefined, "+x", "critical"]);
  store.putBrief(known, clearance("clr_1", { description: null, diff: null, approvals: ["ana"] }));
  assert.deepEqual([now().brief, now().diff, now().description, now().approvals], [undefined, "+x", "why", ["ana"]]);
  store.putClearance(known, { ...whole, status: "approved" });
  assert.deepEqual([now().status, now().explained.no_proposal], ["approved", "critical"]);

  store.putSession(known, session("ses_a", { processes: [], stderr_tail: "oh", controls: { mode: "ask" } }));
  store.putSession(known, session("ses_a", { processes: null, stderr_tail: "", controls: null, phase: "idle" }));
  const { processes, stderr_tail, controls, phase } = known.sessions.get("ses_a");
  assert.deepEqual([processes, stderr_tail, controls.mode, phase], [[], "oh", "ask", "idle"]);
});

test("what waits comes first, the riskiest before the others", () => {
  const known = state();
  store.putSession(known, session("ses_b"));
  store.putSession(known, session("ses_c", { phase: "idle" }));
  store.putSession(known, session("ses_d", { phase: "ended", ended_at: at(9) }));
  store.putClearance(known, clearance("clr_1", { session: "ses_a" }));
  store.putClearance(known, clearance("clr_2", { session: "ses_b", risk: "critical" }));
  const ids = (wish) => store.fleet(known, wish).map((row) => row.session.id);
  assert.deepEqual(ids(), ["ses_b", "ses_a", "ses_c"]);
  assert.deepEqual(ids({ show: "ended" }), ["ses_d"]);
  assert.deepEqual(ids({ show: "all" }).length, 4);
  assert.deepEqual(ids({ search: "SES_C demo" }), ["ses_c"]);
  assert.deepEqual(
    store.pendingClearances(known).map((each) => each.id),
    ["clr_2", "clr_1"],
  );
});

test("heartbeats are progress", () => {
  const known = state();
  store.apply(
    known,
    event(1, "heartbeat", {
      progress: [
        { label: "a", status: "completed" },
        { label: "b", status: "in_progress" },
      ],
    }),
  );
  const { done, of } = store.progress(known.sessions.get("ses_a"));
  assert.deepEqual([done, of], [1, 2]);
  store.apply(known, event(2, "heartbeat", { progress: "nonsense" }));
  store.apply(known, event(3, "heartbeat", null));
  assert.equal(store.progress(known.sessions.get("ses_a")).of, 2);
  const entries = [{ content: "c", status: "completed" }];
  store.apply(known, event(4, "update", { update: { sessionUpdate: "plan", entries } }));
  assert.deepEqual(known.sessions.get("ses_a").progress, [{ text: "c", status: "completed" }]);
});

test("nothing that an agent plans breaks the stream", () => {
  const known = state();
  const odd = { toString: 1, valueOf: null };
  store.apply(known, event(1, "heartbeat", { progress: [{ label: odd, status: odd }, null, 7] }));
  assert.equal(known.sessions.get("ses_a").progress[0].text, '{"toString":1,"valueOf":null}');
});

test("what was settled long ago is forgotten, what waits is not", () => {
  const known = state();
  store.putClearance(known, clearance("clr_open"));
  for (let n = 0; n < 600; n += 1) store.putClearance(known, clearance(`clr_${n}`, { status: "approved" }));
  store.prune(known);
  assert.equal(known.clearances.size, 500);
  assert.deepEqual(
    [known.clearances.has("clr_open"), known.clearances.has("clr_0"), known.clearances.has("clr_599")],
    [true, false, true],
  );
});

test("roles are in order", () => {
  const known = state();
  assert.equal(store.may(known, "viewer"), true);
  assert.equal(store.may(known, "admin"), false);
  assert.equal(store.may(store.empty(), "viewer"), false);
});

test("a hundred thousand facts take no time to speak of", () => {
  const known = state();
  const begin = performance.now();
  for (let n = 1; n <= 100000; n += 1) store.apply(known, event(n, "status", { message: "x" }));
  assert.ok(performance.now() - begin < 2000);
});

test("a session that failed comes first until somebody has seen it, also after its end", () => {
  const failure = { kind: "turn", reason: "no log-in", at: "2026-01-01T00:00:00.000Z", hint: "log in" };
  const state = store.empty();
  store.putSession(state, session("ses_a", { phase: "idle" }));
  store.putSession(state, session("ses_b", { phase: "ended", failed: failure }));
  store.putSession(state, session("ses_c", { phase: "idle", failed: failure }));
  store.putSession(state, session("ses_d", { phase: "ended", failed: null }));
  assert.deepEqual(
    store.fleet(state).map((row) => [row.session.id, row.group]),
    [
      ["ses_b", "failed"],
      ["ses_c", "failed"],
      ["ses_a", "idle"],
    ],
  );
  assert.equal(store.failures(state), 2);
  store.putSession(state, session("ses_c", { phase: "working", failed: failure }));
  assert.equal(store.group(state.sessions.get("ses_c")), "working");
  assert.equal(store.failures(state), 1);
});

test("a session whose agent is stuck, or whose process is stopped, is in the group of the stuck", () => {
  for (const standing of ["stuck", "gone"])
    assert.equal(store.group(session("ses_a", { standing: { state: standing } })), "stuck");
  assert.equal(store.group(session("ses_a", { standing: { state: "quiet" } })), "working");
});

test("a row of the fleet shows what would run, of the riskiest and oldest", () => {
  const known = state();
  const put = (id, more) => store.putClearance(known, clearance(id, { risk: "high", title: "Trust me", ...more }));
  put("clr_new", { action: "make", requested_at: at(3) });
  put("clr_old", { action: "rm -rf build", requested_at: at(2) });
  put("clr_low", { action: "ls", risk: "low", requested_at: at(1) });
  const [row] = store.fleet(known);
  assert.equal(row.waits.first, "rm -rf build “Trust me”");
  assert.equal(row.waits.risk, "high");
});

// What is known: sessions, clearances, questions. Events go in, models come out; no network and no page in here.

import { line, quoted, said } from "./text.js";

export const RANK = { low: 0, medium: 1, high: 2, critical: 3 };
export const ROLES = ["viewer", "operator", "approver", "admin"];

export function empty() {
  return {
    seq: 0,
    start: 0,
    last: new Map(),
    you: null,
    sessions: new Map(),
    clearances: new Map(),
    questions: new Map(),
  };
}

export const may = (state, role) => ROLES.indexOf(state.you?.role) >= ROLES.indexOf(role);

/** As the API shows it, with since when it is as it is. */
export function putSession(state, view) {
  const known = state.sessions.get(view.id);
  const since = view.since ?? (known && known.phase === view.phase ? known.since : guessSince(view));
  const { seen = null, said = null } = known ?? {};
  // A list leaves out what takes room: it is kept from the last whole view.
  const { processes = null, stderr_tail = view.stderr_tail, controls = view.controls } = known ?? {};
  const kept = view.processes === null ? { processes, stderr_tail, controls } : {};
  state.sessions.set(view.id, { ...view, ...kept, since, seen, said });
}

/** For one that a daemon left which did not write it down. */
function guessSince(view) {
  if (view.ended_at) return view.ended_at;
  if (view.phase === "working") return view.turn?.started_at ?? view.started_at ?? view.created_at;
  return view.standing?.since ?? view.turn?.started_at ?? view.started_at ?? view.created_at;
}

export function putClearance(state, view) {
  const known = state.clearances.get(view.id);
  // An answer that was on its way while the decision came must not open it again.
  if (known && known.status !== "pending" && view.status === "pending") return;
  const kept = view.brief && known ? { brief: known.brief, description: known.description, diff: known.diff } : {};
  state.clearances.set(view.id, { explained: known?.explained, ...view, ...kept });
}

/** One of a list: without its description and its diff. */
export const putBrief = (state, view) => putClearance(state, { ...view, brief: true });

/** A whole one, with the rule that "always" would add, and why the caller may not approve it. */
export const putExplained = (state, { clearance, ...explained }) => putClearance(state, { ...clearance, explained });

export function putQuestion(state, view) {
  const known = state.questions.get(view.id);
  if (known && known.status !== "pending" && view.status === "pending") return;
  state.questions.set(view.id, view);
}

const PHASES = {
  "session.created": "created",
  "agent.spawned": "starting",
  "agent.ready": "idle",
  "turn.started": "working",
  "turn.ended": "idle",
  "session.stopping": "stopping",
  "session.parked": "parked",
  "session.ended": "ended",
};

/** Kinds that tell nothing new about a session as a whole. */
const TALK = new Set([
  "status",
  "update",
  "file.read",
  "file.written",
  "terminal.output",
  "terminal.started",
  "terminal.ended",
  "terminal.released",
  "line.rejected",
  "unknown",
  "prompt.sending",
  "prompt.delivered",
  "clearance.delivered",
  "question.delivered",
]);

/**
 * One fact. Returns what has to be looked up, since the log does not say it in words:
 * `{session}`, `{clearance}`, `{question}`, each an id or nothing. The same fact twice changes nothing.
 */
export function apply(state, event) {
  // In order within a session only: words of one that may hold a secret come later than what others said after them.
  if (event.seq <= (state.last.get(event.session) ?? state.start)) return {};
  state.last.set(event.session, event.seq);
  state.seq = event.resume ?? event.seq;
  const { kind, data } = event;
  const session = state.sessions.get(event.session);
  const look = {};
  if (!session) look.session = event.session;
  else {
    session.seen = event.at;
    if (kind === "status" && typeof data?.message === "string") session.said = data.message.slice(0, 200);
    const phase = PHASES[kind];
    if (phase && phase !== session.phase) {
      session.phase = phase;
      session.since = event.at;
    }
    const steps = stepsOf(event);
    if (steps) session.progress = steps;
    if (!TALK.has(kind) && kind !== "heartbeat") look.session = event.session;
  }
  if (kind.startsWith("clearance.") && data?.clearance) {
    patchClearance(state, event);
    look.clearance = data.clearance;
  }
  if (kind.startsWith("question.") && data?.question) {
    patchQuestion(state, event);
    look.question = data.question;
  }
  return look;
}

/** A plan, in the words of either protocol: `[{text, status}]`, or nothing if nothing is planned. */
export function stepsOf({ kind, data }) {
  const acp = kind === "update" && data?.update?.sessionUpdate === "plan";
  const steps = kind === "heartbeat" ? data?.progress : acp ? data.update.entries : null;
  if (!Array.isArray(steps) || !steps.length) return null;
  return steps.map((step) => ({ text: said(acp ? step?.content : step?.label), status: said(step?.status) }));
}

/** What a fact says about how its clearance stands, in the fields of the API. */
export function standingOf({ kind, at, data }) {
  if (kind === "clearance.decided")
    return {
      status: data.status ?? "decided",
      decided_by: data.by ?? null,
      decided_at: at,
      reason: data.reason ?? null,
      delivery: "pending",
    };
  if (kind === "clearance.closed")
    return { status: data.status ?? "withdrawn", decided_at: at, reason: data.reason ?? null };
  if (kind === "clearance.delivered") return { delivery: "delivered", delivered_at: at };
  if (kind === "clearance.undelivered") return { delivery: "failed", delivery_cause: data.cause ?? null };
  if (kind === "clearance.outcome") return { outcome: data.outcome ?? null };
  return {};
}

function patchClearance(state, event) {
  const known = state.clearances.get(event.data.clearance);
  if (known) state.clearances.set(known.id, { ...known, ...standingOf(event) });
}

function patchQuestion(state, { kind, at, data }) {
  const known = state.questions.get(data.question);
  if (!known) return;
  const set = (more) => state.questions.set(known.id, { ...known, ...more });
  if (kind === "question.answered") {
    set({
      status: "answered",
      decision: data.decision ?? null,
      answered_by: data.by ?? null,
      answered_at: at,
      instruction: data.instruction ?? null,
    });
  } else if (kind === "question.closed") set({ status: data.status ?? "withdrawn", reason: data.reason ?? null });
  else if (kind === "question.delivered") set({ delivery: "delivered" });
}

/** Settled ones that are kept, to show what became of them. */
const KEPT = 500;

/** Forgets the oldest of what is settled: a page may be open for weeks. */
export function prune(state) {
  for (const known of [state.clearances, state.questions]) {
    let surplus = known.size - KEPT;
    for (const [id, each] of known) {
      if (surplus <= 0) break;
      if (each.status === "pending") continue;
      known.delete(id);
      surplus -= 1;
    }
  }
}

/** The riskiest first, then the oldest. */
export const byRisk = (a, b) => RANK[b.risk] - RANK[a.risk] || a.requested_at.localeCompare(b.requested_at);

export const pendingClearances = (state, session) =>
  [...state.clearances.values()]
    .filter((c) => c.status === "pending" && (!session || c.session === session))
    .sort(byRisk);

export const pendingQuestions = (state, session) =>
  [...state.questions.values()]
    .filter((q) => q.status === "pending" && (!session || q.session === session))
    .sort((a, b) => a.asked_at.localeCompare(b.asked_at));

/** How many answers are waited for. */
export function waiting(state) {
  let count = 0;
  for (const c of state.clearances.values()) if (c.status === "pending") count += 1;
  for (const q of state.questions.values()) if (q.status === "pending") count += 1;
  return count;
}

/** What waits, by session; `first` is the riskiest, of these the oldest. */
export function waitingBySession(state) {
  const by = new Map();
  const of = (id) =>
    by.get(id) ?? by.set(id, { clearances: 0, questions: 0, risk: null, since: null, first: null }).get(id);
  for (const c of pendingClearances(state)) {
    const entry = of(c.session);
    entry.clearances += 1;
    entry.risk ??= c.risk;
    entry.first ??= line(c);
    if (!entry.since || c.requested_at < entry.since) entry.since = c.requested_at;
  }
  for (const q of pendingQuestions(state)) {
    const entry = of(q.session);
    entry.questions += 1;
    entry.first ??= quoted(q.text);
    if (!entry.since || q.asked_at < entry.since) entry.since = q.asked_at;
  }
  return by;
}

/** A failure that no operator has seen yet, unless the agent works again. */
export const failed = (session) => (["working", "waiting"].includes(session.phase) ? null : (session.failed ?? null));

/** How many sessions have failed, and nobody has seen it yet. */
export const failures = (state) => [...state.sessions.values()].filter(failed).length;

/** `failed` and `waiting` are for you; `stuck` needs a look; the rest as it is. */
export function group(session, waits) {
  if (failed(session)) return "failed";
  if (session.phase === "ended") return "ended";
  if (waits && waits.clearances + waits.questions > 0) return "waiting";
  const standing = session.standing?.state;
  if (session.phase === "parked" || ["stuck", "gone", "orphan"].includes(standing)) return "stuck";
  if (session.phase === "waiting") return "waiting";
  if (["working", "starting", "stopping"].includes(session.phase)) return "working";
  return "idle";
}

export const GROUPS = ["failed", "waiting", "stuck", "working", "idle", "ended"];

/** The fleet as it is shown: filtered, searched and sorted; what waits for you first. */
export function fleet(state, { show = "live", search = "", sort = "waiting" } = {}) {
  const waits = waitingBySession(state);
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  const rows = [];
  for (const session of state.sessions.values()) {
    const waits_ = waits.get(session.id);
    const row = { session, waits: waits_, group: group(session, waits_) };
    if (show === "live" && row.group === "ended") continue;
    if (show !== "live" && show !== "all" && row.group !== show) continue;
    if (words.length) {
      const text = [session.id, session.name, session.agent, session.workspace, session.why, session.phase]
        .join(" ")
        .toLowerCase();
      if (!words.every((word) => text.includes(word))) continue;
    }
    rows.push(row);
  }
  const name = (row) => (row.session.name ?? row.session.id).toLowerCase();
  const newest = (a, b) => b.session.created_at.localeCompare(a.session.created_at);
  const orders = {
    waiting: (a, b) =>
      GROUPS.indexOf(a.group) - GROUPS.indexOf(b.group) ||
      (RANK[b.waits?.risk] ?? -1) - (RANK[a.waits?.risk] ?? -1) ||
      String(a.waits?.since ?? "").localeCompare(String(b.waits?.since ?? "")) ||
      newest(a, b),
    newest,
    name: (a, b) => name(a).localeCompare(name(b)) || newest(a, b),
    quiet: (a, b) => String(a.session.since ?? "").localeCompare(String(b.session.since ?? "")),
  };
  return rows.sort(orders[sort] ?? orders.waiting);
}

/** How far it has come: `{done, of}`, or nothing without a plan. */
export function progress(session) {
  const steps = session.progress ?? [];
  if (!steps.length) return null;
  return { done: steps.filter((step) => step.status === "completed").length, of: steps.length, steps };
}

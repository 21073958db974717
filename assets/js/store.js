// @ts-check
// What is known: sessions, clearances, questions. Events go in, models come out; no network and no page in here.

import { fieldsOf, line, quoted, said } from "./text.js";
/**
 * @import {
 *   About, Clearance, ClearanceView, ExplanationView, Group, LoggedEvent, LookUps, Progress, Question, Role, Row, Session,
 *   SessionView, Standing, State, Step, Waits
 * } from "../types/models"
 */

/** @type {Record<string, number>} */
export const RANK = { low: 0, medium: 1, high: 2, critical: 3 };
/** @type {Role[]} */
export const ROLES = ["viewer", "operator", "approver", "admin"];

/** @returns {State} */
export function empty() {
  return {
    seq: 0,
    start: 0,
    last: new Map(),
    you: null,
    version: "",
    bridges: {},
    sessions: new Map(),
    clearances: new Map(),
    questions: new Map(),
  };
}

/** @type {(state: State, role: Role) => boolean} */
export const may = (state, role) => ROLES.findIndex((each) => each === state.you?.role) >= ROLES.indexOf(role);

/**
 * As the API shows it, with since when it is as it is.
 *
 * @param {State} state
 * @param {SessionView} view
 */
export function putSession(state, view) {
  const known = state.sessions.get(view.id);
  const since = view.since ?? (known && known.phase === view.phase ? known.since : guessSince(view));
  const { said = null } = known ?? {};
  // A list leaves out what takes room: it is kept from the last whole view.
  const { processes = null, stderr_tail = view.stderr_tail, controls = view.controls } = known ?? {};
  const kept = view.processes === null ? { processes, stderr_tail, controls } : {};
  state.sessions.set(view.id, { ...view, ...kept, since, said });
}

/**
 * For one that a daemon left which did not write it down.
 *
 * @param {SessionView} view
 */
function guessSince(view) {
  if (view.ended_at) return view.ended_at;
  if (view.phase === "working") return view.turn?.started_at ?? view.started_at ?? view.created_at;
  return view.standing?.since ?? view.turn?.started_at ?? view.started_at ?? view.created_at;
}

/**
 * @param {State} state
 * @param {Clearance} view
 */
export function putClearance(state, view) {
  const known = state.clearances.get(view.id);
  // An answer that was on its way while the decision came must not open it again.
  if (known && known.status !== "pending" && view.status === "pending") return;
  const kept = view.brief && known ? { brief: known.brief, description: known.description, diff: known.diff } : {};
  state.clearances.set(view.id, { explained: known?.explained, ...view, ...kept });
}

/**
 * One of a list: without its description and its diff.
 *
 * @type {(state: State, view: ClearanceView) => void}
 */
export const putBrief = (state, view) => putClearance(state, { ...view, brief: true });

/**
 * A whole one, with the rule that "always" would add, and why the caller may not approve it.
 *
 * @type {(state: State, view: ExplanationView) => void}
 */
export const putExplained = (state, { clearance, ...explained }) => putClearance(state, { ...clearance, explained });

/**
 * @param {State} state
 * @param {Question} view
 */
export function putQuestion(state, view) {
  const known = state.questions.get(view.id);
  if (known && known.status !== "pending" && view.status === "pending") return;
  state.questions.set(view.id, view);
}

/** @type {Record<string, string>} */
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
 * What an event says about its session, in the fields of the API; nothing if it says nothing.
 *
 * @param {Session} session
 * @param {LoggedEvent} event
 * @returns {Partial<Session> | null}
 */
function newsOf(session, event) {
  const phase = PHASES[event.kind];
  if (phase && phase !== session.phase) return { phase, since: event.at };
  const progress = stepsOf(event);
  if (progress) return { progress };
  const { message } = event.kind === "status" ? fieldsOf(event.data) : {};
  return typeof message === "string" ? { said: message.slice(0, 200) } : null;
}

/**
 * One fact. Returns what has to be looked up, since the log does not say it in words:
 * `{session}`, `{clearance}`, `{question}`, each an id or nothing. The same fact twice changes nothing.
 *
 * @param {State} state
 * @param {LoggedEvent} event
 */
export function apply(state, event) {
  // In order within a session only: words of one that may hold a secret come later than what others said after them.
  if (event.seq <= (state.last.get(event.session) ?? state.start)) return {};
  state.last.set(event.session, event.seq);
  state.seq = event.resume ?? event.seq;
  const { kind } = event;
  const session = state.sessions.get(event.session);
  /** @type {LookUps} */
  const look = {};
  if (!session) look.session = event.session;
  else {
    const more = newsOf(session, event);
    // Replaced, not changed: pages compare.
    if (more) state.sessions.set(session.id, { ...session, ...more });
    if (!TALK.has(kind) && kind !== "heartbeat") look.session = event.session;
  }
  if (isAbout(event, "clearance")) {
    patchClearance(state, event);
    look.clearance = event.data.clearance;
  }
  if (isAbout(event, "question")) {
    patchQuestion(state, event);
    look.question = event.data.question;
  }
  return look;
}

/**
 * Tells whether an event is one in the life of a clearance, a question or a prompt, and names it.
 *
 * @template {"clearance" | "question" | "prompt"} Field
 * @param {LoggedEvent} event
 * @param {Field} field
 * @returns {event is About<Field>}
 */
export const isAbout = (event, field) => event.kind.startsWith(`${field}.`) && Boolean(fieldsOf(event.data)[field]);

/**
 * A plan, in the words of either protocol, or nothing if nothing is planned.
 *
 * @param {LoggedEvent} event
 * @returns {Step[] | null}
 */
export function stepsOf({ kind, data }) {
  const said_ = fieldsOf(data);
  const update = kind === "update" ? fieldsOf(said_.update) : {};
  const acp = update.sessionUpdate === "plan";
  const steps = kind === "heartbeat" ? said_.progress : acp ? update.entries : null;
  if (!Array.isArray(steps) || !steps.length) return null;
  return steps.map((step) => ({ text: said(acp ? step?.content : step?.label), status: said(step?.status) }));
}

/**
 * What a fact says about how its clearance stands, in the fields of the API.
 *
 * @param {LoggedEvent} event
 * @returns {Standing}
 */
export function standingOf({ kind, at, data }) {
  switch (kind) {
    case "clearance.decided":
      return {
        status: data.status,
        decided_by: data.by,
        decided_at: at,
        reason: data.reason ?? null,
        delivery: "pending",
      };
    case "clearance.closed":
      return { status: data.status, decided_at: at, reason: data.reason };
    case "clearance.delivered":
      return { delivery: "delivered", delivered_at: at };
    case "clearance.undelivered":
      return { delivery: "failed", delivery_cause: data.cause };
    case "clearance.outcome":
      return { outcome: data.outcome };
    default:
      return {};
  }
}

/**
 * @param {State} state
 * @param {About<"clearance">} event
 */
function patchClearance(state, event) {
  const known = state.clearances.get(event.data.clearance);
  if (known) state.clearances.set(known.id, { ...known, ...standingOf(event) });
}

/**
 * @param {About<"question">} event
 * @returns {Partial<Question>}
 */
function answerOf({ kind, at, data }) {
  switch (kind) {
    case "question.answered":
      return {
        status: "answered",
        decision: data.decision,
        answered_by: data.by,
        answered_at: at,
        instruction: data.instruction ?? null,
      };
    case "question.closed":
      return { status: data.status, reason: data.reason };
    case "question.delivered":
      return { delivery: "delivered" };
    default:
      return {};
  }
}

/**
 * @param {State} state
 * @param {About<"question">} event
 */
function patchQuestion(state, event) {
  const known = state.questions.get(event.data.question);
  if (known) state.questions.set(known.id, { ...known, ...answerOf(event) });
}

/** Settled ones that are kept, to show what became of them. */
const KEPT = 500;

/**
 * Forgets the oldest of what is settled: a page may be open for weeks.
 *
 * @param {State} state
 */
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

/**
 * The riskiest first, then the oldest.
 *
 * @type {(a: Clearance, b: Clearance) => number}
 */
export const byRisk = (a, b) => RANK[b.risk] - RANK[a.risk] || a.requested_at.localeCompare(b.requested_at);

/** @type {(state: State, session?: string) => Clearance[]} */
export const pendingClearances = (state, session) =>
  [...state.clearances.values()]
    .filter((c) => c.status === "pending" && (!session || c.session === session))
    .sort(byRisk);

/** @type {(state: State, session?: string) => Question[]} */
export const pendingQuestions = (state, session) =>
  [...state.questions.values()]
    .filter((q) => q.status === "pending" && (!session || q.session === session))
    .sort((a, b) => a.asked_at.localeCompare(b.asked_at));

/**
 * How many answers are waited for.
 *
 * @param {State} state
 */
export function waiting(state) {
  let count = 0;
  for (const c of state.clearances.values()) if (c.status === "pending") count += 1;
  for (const q of state.questions.values()) if (q.status === "pending") count += 1;
  return count;
}

/**
 * What waits, by session.
 *
 * @param {State} state
 */
export function waitingBySession(state) {
  /** @type {Map<string, Waits>} */
  const by = new Map();
  /** @type {(id: string, since: string, first: () => string, risk?: Waits["risk"]) => Waits} */
  const of = (id, since, first, risk = null) => {
    const known = by.get(id) ?? { clearances: 0, questions: 0, risk, since, first: first() };
    by.set(id, known);
    if (since < known.since) known.since = since;
    return known;
  };
  // The riskiest come first, and requests before questions.
  for (const c of pendingClearances(state)) of(c.session, c.requested_at, () => line(c), c.risk).clearances += 1;
  for (const q of pendingQuestions(state)) of(q.session, q.asked_at, () => quoted(q.text)).questions += 1;
  return by;
}

/**
 * A failure that no operator has seen yet, unless the agent works again.
 *
 * @param {Session} session
 */
export const failed = (session) => (["working", "waiting"].includes(session.phase) ? null : (session.failed ?? null));

/**
 * How many sessions have failed, and nobody has seen it yet.
 *
 * @param {State} state
 */
export const failures = (state) => [...state.sessions.values()].filter(failed).length;

/**
 * `failed` and `waiting` are for you; `stuck` needs a look; the rest as it is.
 *
 * @param {Session} session
 * @param {Waits | undefined} waits
 * @returns {Group}
 */
export function group(session, waits) {
  if (failed(session)) return "failed";
  if (session.phase === "ended") return "ended";
  if (waits && waits.clearances + waits.questions > 0) return "waiting";
  if (session.phase === "parked" || ["stuck", "gone", "orphan"].includes(session.standing?.state ?? "")) return "stuck";
  if (session.phase === "waiting") return "waiting";
  if (["working", "starting", "stopping"].includes(session.phase)) return "working";
  return "idle";
}

/** @type {Group[]} */
export const GROUPS = ["failed", "waiting", "stuck", "working", "idle", "ended"];

/** @typedef {(a: Row, b: Row) => number} Order */

/** @param {Row} row */
const nameOf = ({ session }) => (session.name ?? session.id).toLowerCase();
/** @type {Order} */
const newest = (a, b) => b.session.created_at.localeCompare(a.session.created_at);
/** @param {Row} row */
const rankOf = ({ waits }) => (waits?.risk ? RANK[waits.risk] : -1);

/** @type {Record<string, Order>} */
const ORDERS = {
  waiting: (a, b) =>
    GROUPS.indexOf(a.group) - GROUPS.indexOf(b.group) ||
    rankOf(b) - rankOf(a) ||
    String(a.waits?.since ?? "").localeCompare(String(b.waits?.since ?? "")) ||
    newest(a, b),
  newest,
  name: (a, b) => nameOf(a).localeCompare(nameOf(b)) || newest(a, b),
  quiet: (a, b) => String(a.session.since ?? "").localeCompare(String(b.session.since ?? "")),
};

/**
 * The fleet as it is shown: filtered, searched and sorted; what waits for you first.
 *
 * @param {State} state
 */
export function fleet(state, { show = "live", search = "", sort = "waiting" } = {}) {
  const waits = waitingBySession(state);
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  /** @type {Row[]} */
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
  return rows.sort(ORDERS[sort] ?? ORDERS.waiting);
}

/**
 * How far it has come, or nothing without a plan.
 *
 * @param {Session} session
 * @returns {Progress | null}
 */
export function progress(session) {
  const steps = session.progress ?? [];
  if (!steps.length) return null;
  return { done: steps.filter((step) => step.status === "completed").length, of: steps.length, steps };
}

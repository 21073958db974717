// @ts-check
// The state: sessions, clearances, questions. Events in, models out; without network and page.

import { fieldsOf, line, quoted, said } from "./text.js";
/**
 * @import {
 *   Clearance, ClearanceState, ApiClearance, EventAbout, ClearanceExplanation, FleetGroup, FleetRow, LoggedEvent, LookUpIds,
 *   PendingRequests, PlanStep, Progress, Question, Role, Session, ApiSession, State
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
 * Stores a session of the API. Parts that a list omits are kept from before.
 *
 * @param {State} state
 * @param {ApiSession} view
 */
export function putSession(state, view) {
  const known = state.sessions.get(view.id);
  // Older daemons did not record it.
  const since = view.since ?? (known && known.phase === view.phase ? known.since : view.ended_at);
  const { said = null } = known ?? {};
  // A list omits large fields: they are kept from the last complete view.
  const { processes = null, stderr_tail = view.stderr_tail, controls = view.controls } = known ?? {};
  const kept = view.processes === null ? { processes, stderr_tail, controls } : {};
  state.sessions.set(view.id, { ...view, ...kept, since, said });
}

/**
 * @param {State} state
 * @param {Clearance} view
 */
export function putClearance(state, view) {
  const known = state.clearances.get(view.id);
  // A response that crossed the decision must not reopen it.
  if (known && known.status !== "pending" && view.status === "pending") return;
  const kept = view.brief && known ? { brief: known.brief, description: known.description, diff: known.diff } : {};
  state.clearances.set(view.id, { explained: known?.explained, ...view, ...kept });
}

/**
 * Stores an entry of a list: without description and diff.
 *
 * @type {(state: State, view: ApiClearance) => void}
 */
export const putBrief = (state, view) => putClearance(state, { ...view, brief: true });

/**
 * Stores a complete clearance, with the rule that "always" would add, and the reason why the caller may not approve it.
 *
 * @type {(state: State, view: ClearanceExplanation) => void}
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

/** The event kinds that do not change a session as a whole. */
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
 * The fields that an agent's message changes in its session; the daemon has the rest.
 *
 * @param {LoggedEvent} event
 * @returns {Partial<Session> | null}
 */
function newsOf(event) {
  const progress = stepsOf(event);
  if (progress) return { progress };
  const { message } = event.kind === "status" ? fieldsOf(event.data) : {};
  return typeof message === "string" ? { said: message.slice(0, 200) } : null;
}

/**
 * Applies one event. Returns the objects to look up, because the event does not contain their new state:
 * `{session}`, `{clearance}`, `{question}`, each an id or nothing. A repeated event changes nothing.
 *
 * @param {State} state
 * @param {LoggedEvent} event
 */
export function apply(state, event) {
  // In order within a session only: text that may hold a secret arrives later than newer events of other sessions.
  if (event.seq <= (state.last.get(event.session) ?? state.start)) return {};
  state.last.set(event.session, event.seq);
  state.seq = event.resume ?? event.seq;
  const { kind } = event;
  const session = state.sessions.get(event.session);
  /** @type {LookUpIds} */
  const look = {};
  if (!session) look.session = event.session;
  else {
    const more = newsOf(event);
    // Replaced, not mutated: pages compare by identity.
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
 * Returns true for an event of a clearance, a question or a prompt, with its id.
 *
 * @template {"clearance" | "question" | "prompt"} Field
 * @param {LoggedEvent} event
 * @param {Field} field
 * @returns {event is EventAbout<Field>}
 */
export const isAbout = (event, field) => event.kind.startsWith(`${field}.`) && Boolean(fieldsOf(event.data)[field]);

/**
 * A plan of either protocol; nothing if it is empty.
 *
 * @param {LoggedEvent} event
 * @returns {PlanStep[] | null}
 */
export function stepsOf({ kind, data }) {
  const words = fieldsOf(data);
  const update = kind === "update" ? fieldsOf(words.update) : {};
  const acp = update.sessionUpdate === "plan";
  const steps = kind === "heartbeat" ? words.progress : acp ? update.entries : null;
  if (!Array.isArray(steps) || !steps.length) return null;
  return steps.map((step) => ({ text: said(acp ? step?.content : step?.label), status: said(step?.status) }));
}

/**
 * The state of a clearance by one of its events, in the fields of the API.
 *
 * @param {LoggedEvent} event
 * @returns {ClearanceState}
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
 * @param {EventAbout<"clearance">} event
 */
function patchClearance(state, event) {
  const known = state.clearances.get(event.data.clearance);
  if (known) state.clearances.set(known.id, { ...known, ...standingOf(event) });
}

/**
 * @param {EventAbout<"question">} event
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
 * @param {EventAbout<"question">} event
 */
function patchQuestion(state, event) {
  const known = state.questions.get(event.data.question);
  if (known) state.questions.set(known.id, { ...known, ...answerOf(event) });
}

/** The limit on settled requests that are kept to show their outcome. */
const KEPT = 500;

/**
 * Forgets the oldest settled requests: a page may be open for weeks.
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
 * Counts pending clearances and questions.
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
 * The pending requests of each session.
 *
 * @param {State} state
 */
export function waitingBySession(state) {
  /** @type {Map<string, PendingRequests>} */
  const by = new Map();
  /** @type {(id: string, since: string, first: () => string, risk?: PendingRequests["risk"]) => PendingRequests} */
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
 * Counts the sessions whose failure nobody has seen yet.
 *
 * @param {State} state
 */
export const failures = (state) => [...state.sessions.values()].filter(failed).length;

/**
 * The group of a session: `failed` and `waiting` need a person, `stuck` may; the rest does not.
 *
 * @param {Session} session
 * @returns {FleetGroup}
 */
export function group(session) {
  const { phase, standing } = session;
  if (failed(session)) return "failed";
  if (phase === "ended" || phase === "waiting") return phase;
  if (phase === "parked" || ["stuck", "gone", "orphan"].includes(standing?.state ?? "")) return "stuck";
  return ["working", "starting", "stopping"].includes(phase) ? "working" : "idle";
}

/** @type {FleetGroup[]} */
export const GROUPS = ["failed", "waiting", "stuck", "working", "idle", "ended"];

/** @typedef {(a: FleetRow, b: FleetRow) => number} Order */

/** @param {FleetRow} row */
const nameOf = ({ session }) => (session.name ?? session.id).toLowerCase();
/** @type {Order} */
const newest = (a, b) => b.session.created_at.localeCompare(a.session.created_at);
/** @param {FleetRow} row */
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
 * The fleet: filtered, searched and sorted; waiting sessions first.
 *
 * @param {State} state
 */
export function fleet(state, { show = "live", search = "", sort = "waiting" } = {}) {
  const waits = waitingBySession(state);
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  /** @type {FleetRow[]} */
  const rows = [];
  for (const session of state.sessions.values()) {
    const waiting = waits.get(session.id);
    const row = { session, waits: waiting, group: group(session) };
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
 * The progress of a session; nothing without a plan.
 *
 * @param {Session} session
 * @returns {Progress | null}
 */
export function progress(session) {
  const steps = session.progress ?? [];
  if (!steps.length) return null;
  return { done: steps.filter((step) => step.status === "completed").length, of: steps.length, steps };
}

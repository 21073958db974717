// @ts-check
// The one connection: loads the state, then follows the log. It reconnects automatically and resumes from its position.

import * as api from "./api.js";
import * as store from "./store.js";
import { reader } from "./stream.js";
/** @import { ConnectionState, LoggedEvent, LookUpIds, State } from "../types/models" */

/**
 * @typedef {object} Listeners
 * @property {() => void} change
 * @property {(events: LoggedEvent[]) => void} events
 * @property {() => void} status
 * @property {() => void} anew
 */

export const state = store.empty();

/** @type {{ [what in keyof Listeners]: Set<Listeners[what]> }} */
const listeners = { change: new Set(), events: new Set(), status: new Set(), anew: new Set() };

/**
 * `change`: models have changed. `events`: raw events, in order. `status`: the connection. `anew`: some events will
 * never arrive, so a listener that collects them has to start again. Returns a function that stops.
 *
 * @template {keyof Listeners} What
 * @param {What} what
 * @param {Listeners[What]} listener
 */
export function on(what, listener) {
  listeners[what].add(listener);
  return () => void listeners[what].delete(listener);
}

/** @param {"change" | "status" | "anew"} what */
const tell = (what) => listeners[what].forEach((listener) => listener());

/**
 * The state of the connection; `again` is the time of the next attempt.
 *
 * @type {ConnectionState}
 */
export let status = { name: "connecting" };

/** @param {ConnectionState} now */
function become(now) {
  status = now;
  tell("status");
}

let changed = false;
/** Notifies at most once per frame, for any number of events. */
export function touch() {
  if (changed) return;
  changed = true;
  const run = () => {
    changed = false;
    tell("change");
  };
  if (document.hidden) setTimeout(run, 250);
  else requestAnimationFrame(run);
}

const PENDING = "/clearances?status=pending&brief=true";

/** Fetches all live sessions, the newest ended ones, and those with an unseen failure. */
async function allSessions() {
  const recent = await api.get("/sessions?all=true&brief=true&limit=1000");
  return recent.next ? [...recent.items, ...(await api.all("/sessions?failed=true&brief=true", 10000))] : recent.items;
}

/** Loads everything: at the start, and when retention has removed events after our position. */
export async function load() {
  const health = await api.get("/health");
  if (!health.you) throw new api.Refused(401, { error: { code: "unauthorized", message: "sign in", hint: null } });
  state.you = health.you;
  state.version = health.version;
  state.bridges = health.bridges ?? {};
  const [sessions, clearances, questions] = await Promise.all([
    allSessions(),
    api.all(PENDING, 10000),
    api.all("/questions?status=pending", 10000),
  ]);
  state.sessions.clear();
  state.clearances.clear();
  state.questions.clear();
  sessions.forEach((view) => store.putSession(state, view));
  // Lists are newest first; of two requests in the same millisecond the first stays the first.
  clearances.reverse().forEach((view) => store.putBrief(state, view));
  questions.reverse().forEach((view) => store.putQuestion(state, view));
  state.seq = state.start = health.last_seq ?? 0;
  state.last.clear();
  tell("anew");
  touch();
}

/** @type {Record<keyof LookUpIds, Set<string>>} */
const wanted = { session: new Set(), clearance: new Set(), question: new Set() };
/** @type {ReturnType<typeof setTimeout> | null} */
let looking = null;
/** The limit on single look-ups; beyond it, the whole list is fetched. */
const FEW = 12;

/** @param {LookUpIds} found */
function lookUp(found) {
  if (found.session) wanted.session.add(found.session);
  if (found.clearance) wanted.clearance.add(found.clearance);
  if (found.question) wanted.question.add(found.question);
  if (!looking && Object.values(wanted).some((ids) => ids.size)) looking = setTimeout(lookNow, 120);
}

/**
 * Looks up the requested objects of one type: a few one by one, many as a list.
 *
 * @template View
 * @param {keyof LookUpIds} what
 * @param {() => Promise<Array<View & { id: string }>>} list
 * @param {(id: string) => Promise<void>} one looks up one of them, and keeps it
 * @param {(state: State, view: View) => void} putOfList
 */
async function lookAt(what, list, one, putOfList) {
  const ids = [...wanted[what]];
  wanted[what].clear();
  try {
    let single = ids;
    if (ids.length > FEW) {
      const views = await list();
      views.forEach((view) => putOfList(state, view));
      // An object that is no longer in the list has ended.
      const known = new Set(views.map((view) => view.id));
      const gone = ids.filter((id) => !known.has(id));
      single = gone.slice(0, FEW);
      gone.slice(FEW).forEach((id) => wanted[what].add(id));
    }
    await Promise.all(single.map((id) => one(id).catch(missing)));
    return true;
  } catch {
    // The stream does not repeat the events about them, so the look-up is retried until it succeeds.
    ids.forEach((id) => wanted[what].add(id));
    return false;
  }
}

async function lookNow() {
  const many = wanted.session.size > FEW;
  const found = await Promise.all([
    lookAt(
      "session",
      () => api.all("/sessions?failed=true&brief=true", 10000),
      async (id) => store.putSession(state, await api.get(`/sessions/${id}`)),
      store.putSession,
    ),
    lookAt(
      "clearance",
      () => api.all(PENDING, 10000),
      async (id) => store.putExplained(state, await api.get(`/clearances/${id}/explanation`)),
      store.putBrief,
    ),
    lookAt(
      "question",
      () => api.all("/questions?status=pending", 10000),
      async (id) => store.putQuestion(state, await api.get(`/questions/${id}`)),
      store.putQuestion,
    ),
  ]);
  store.prune(state);
  touch();
  // With many sessions the next look-up waits a little longer.
  const longer = many || found.includes(false);
  looking = null;
  if (Object.values(wanted).some((ids) => ids.size)) looking = setTimeout(lookNow, longer ? 1500 : 250);
}

/**
 * Fetches a complete clearance, and the rule that "always" would add.
 *
 * @param {string} id
 */
export async function explain(id) {
  const found = await api.get(`/clearances/${id}/explanation`);
  store.putExplained(state, found);
  touch();
  return found;
}

/**
 * @param {unknown} error
 * @returns {null}
 */
function missing(error) {
  if (api.statusOf(error) === 404) return null;
  throw error;
}

/** @param {LoggedEvent[]} events */
function take(events) {
  for (const event of events) lookUp(store.apply(state, event));
  listeners.events.forEach((listener) => listener(events));
  touch();
}

/** The idle timeout of the stream: the daemon sends a comment every 15 seconds. */
const SILENCE = 40000;
const WAITS = [500, 1000, 2000, 4000, 8000, 15000];
let stopped = false;
let wake = () => {};

export function stop() {
  stopped = true;
  wake();
}

/** Follows the log until stopped. */
export async function follow() {
  let failures = 0;
  while (!stopped) {
    const opened = () => {
      failures = 0;
      become({ name: "live" });
    };
    try {
      // A daemon with an older log than ours is another one.
      if (failures > 0 && ((await api.get("/health")).last_seq ?? 0) < state.seq) await load();
      await stream(opened);
    } catch (error) {
      if (api.statusOf(error) === 401) return void dispatchEvent(new Event("signed-out"));
      if (api.statusOf(error) === 410) await load().catch(() => {});
    }
    if (stopped) return;
    const wait = WAITS[Math.min(failures, WAITS.length - 1)] * (0.8 + 0.4 * Math.random());
    failures += 1;
    become({ name: "offline", again: Date.now() + wait });
    await /** @type {Promise<void>} */ (
      new Promise((resolve) => {
        wake = resolve;
        setTimeout(resolve, wait);
      })
    );
  }
}

/** Retries now. */
export const retry = () => wake();
addEventListener("online", retry);
document.addEventListener("visibilitychange", () => !document.hidden && status.name === "offline" && retry());

/** @param {() => void} opened */
async function stream(opened) {
  const abort = new AbortController();
  let alarm = setTimeout(() => abort.abort(), SILENCE);
  const alive = () => {
    clearTimeout(alarm);
    alarm = setTimeout(() => abort.abort(), SILENCE);
  };
  try {
    const response = await fetch(`/api/v1/events?after=${state.seq}&summary=own`, {
      headers: { accept: "text/event-stream" },
      credentials: "same-origin",
      cache: "no-store",
      signal: abort.signal,
    });
    if (!response.ok) throw new api.Refused(response.status, null);
    opened();
    if (!response.body) return;
    const pieces = response.body.pipeThrough(new TextDecoderStream()).getReader();
    const read = reader();
    for (;;) {
      const { done, value } = await pieces.read();
      if (done) return;
      alive();
      const events = read(value);
      if (events.length) take(events);
    }
  } finally {
    clearTimeout(alarm);
    abort.abort();
  }
}

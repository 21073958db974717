// The one connection: loads what is there, then follows the log. Comes back by itself, from where it stopped.

import * as api from "./api.js";
import * as store from "./store.js";
import { reader } from "./stream.js";

export const state = store.empty();

const listeners = { change: new Set(), events: new Set(), status: new Set(), anew: new Set() };

/**
 * `change`: models are different. `events`: raw facts, in order. `status`: the connection. `anew`: some facts will never be told, so
 * whoever keeps them has to begin again. Returns how to stop.
 */
export function on(what, listener) {
  listeners[what].add(listener);
  return () => listeners[what].delete(listener);
}

const tell = (what, ...news) => listeners[what].forEach((listener) => listener(...news));

/** `connecting`, `live`, `offline` (with `again`: when it is tried next). */
export let status = { name: "connecting" };

function become(name, more = {}) {
  status = { name, ...more };
  tell("status", status);
}

let changed = false;
/** At most once for each picture, however many facts there are. */
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

/** Of those that have ended, the newest and those that failed unseen; of the others, all. */
async function allSessions() {
  const recent = await api.get("/sessions?all=true&brief=true&limit=1000");
  return recent.next ? [...recent.items, ...(await api.all("/sessions?failed=true&brief=true", 10000))] : recent.items;
}

/** Everything anew: at the start, and when the log has been trimmed below where we are. */
export async function load() {
  const health = await api.get("/health");
  if (!health.you) throw new api.Refused(401, { error: { code: "unauthorized", message: "sign in" } });
  state.you = health.you;
  state.version = health.version;
  state.bridges = health.bridges;
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
  state.seq = health.last_seq;
  state.start = health.last_seq;
  state.last.clear();
  tell("anew");
  touch();
}

const wanted = { session: new Set(), clearance: new Set(), question: new Set() };
let looking = null;
/** So many single look-ups at once; with more, the whole list is asked for. */
const FEW = 12;

function lookUp(found) {
  for (const what of Object.keys(wanted)) if (found[what]) wanted[what].add(found[what]);
  if (!looking && Object.values(wanted).some((ids) => ids.size)) looking = setTimeout(lookNow, 120);
}

async function lookNow() {
  const take = (what) => {
    const ids = [...wanted[what]];
    wanted[what].clear();
    return ids;
  };
  const each = async (what, list, one, put, putOfList = put) => {
    const ids = take(what);
    try {
      let single = ids;
      if (ids.length > FEW) {
        const views = await api.all(list, 10000);
        views.forEach((view) => putOfList(state, view));
        // What is not in the list any more has come to an end.
        const known = new Set(views.map((view) => view.id));
        const gone = ids.filter((id) => !known.has(id));
        single = gone.slice(0, FEW);
        gone.slice(FEW).forEach((id) => wanted[what].add(id));
      }
      const views = await Promise.all(single.map((id) => api.get(one(id)).catch(missing)));
      views.forEach((view) => view && put(state, view));
    } catch {
      // The stream goes on after what told us of them: they are looked for until they are found.
      ids.forEach((id) => wanted[what].add(id));
      failed = true;
    }
  };
  let failed = false;
  const many = wanted.session.size > FEW;
  await Promise.all([
    each("session", "/sessions?failed=true&brief=true", (id) => `/sessions/${id}`, store.putSession),
    each("clearance", PENDING, explanationOf, store.putExplained, store.putBrief),
    each("question", "/questions?status=pending", (id) => `/questions/${id}`, store.putQuestion),
  ]);
  store.prune(state);
  touch();
  // With many sessions the next look waits a little longer.
  looking = null;
  if (Object.values(wanted).some((ids) => ids.size)) looking = setTimeout(lookNow, many || failed ? 1500 : 250);
}

const explanationOf = (id) => `/clearances/${id}/explanation`;

/** Fetches the whole of a clearance, and the rule that "always" would add. */
export async function explain(id) {
  const found = await api.get(explanationOf(id));
  store.putExplained(state, found);
  touch();
  return found;
}

function missing(error) {
  if (error instanceof api.Refused && error.status === 404) return null;
  throw error;
}

function take(events) {
  for (const event of events) lookUp(store.apply(state, event));
  tell("events", events);
  touch();
}

/** Silence for longer than this is a broken connection: there is a comment every 15 seconds. */
const SILENCE = 40000;
const WAITS = [500, 1000, 2000, 4000, 8000, 15000];
let stopped = false;
let wake = () => {};

export function stop() {
  stopped = true;
  wake();
}

/** Follows until told to stop. */
export async function follow() {
  let failures = 0;
  while (!stopped) {
    const opened = () => {
      failures = 0;
      become("live");
    };
    try {
      // A daemon that knows less than we do is another one.
      if (failures > 0 && (await api.get("/health")).last_seq < state.seq) await load();
      await stream(opened);
    } catch (error) {
      if (error.status === 401) return dispatchEvent(new Event("signed-out"));
      if (error.status === 410) await load().catch(() => {});
    }
    if (stopped) return;
    const wait = WAITS[Math.min(failures, WAITS.length - 1)] * (0.8 + 0.4 * Math.random());
    failures += 1;
    become("offline", { again: Date.now() + wait });
    await new Promise((resolve) => {
      wake = resolve;
      setTimeout(resolve, wait);
    });
  }
}

/** Tries now instead of later. */
export const retry = () => wake();
addEventListener("online", retry);
document.addEventListener("visibilitychange", () => !document.hidden && status.name === "offline" && retry());

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

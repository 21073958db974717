// Events as people read them: what belongs together becomes one item of the timeline. Pure.

import { standingOf, stepsOf } from "./store.js";
import { localTimes, quoted, said as one } from "./text.js";

const SILENT = new Set([
  "heartbeat",
  "unknown",
  "clearance.delivered",
  "clearance.approved",
  "question.delivered",
  "prompt.delivered",
  "terminal.output",
  "terminal.released",
]);

const CHUNKS = { agent_message_chunk: "message", agent_thought_chunk: "thought", user_message_chunk: "echo" };
/** Updates that end a message; the agent tells all others about itself. */
const ENDING = new Set(["tool_call", "tool_call_update", "plan"]);
/** Events that are no part of the conversation: a message goes on after them. */
const ASIDE = new Set([
  "unknown",
  "line.rejected",
  "prompt.delivered",
  "clearance.delivered",
  "question.delivered",
  "session.kept",
  "session.seen",
  "session.unenforced",
]);

/**
 * `open` is the message that more pieces may continue. Of the beginning, `prepend` wants to know what could continue a
 * message from before: `leading` is the first message, until anything else has `begun`; `blank` are pieces without words.
 */
export function timeline() {
  return { items: [], byKey: new Map(), plan: null, open: null, begun: false, leading: null, blank: [] };
}

const updateOf = ({ kind, data }) =>
  kind === "update" && data?.update && typeof data.update === "object" && !Array.isArray(data.update)
    ? data.update
    : null;

/**
 * What an event means for the message that is open: a piece of it, "aside" or "end". The rule of src/fold.rs, with the
 * same cases: tests/console/fold-cases.json.
 */
function foldOf(event) {
  const update = updateOf(event);
  if (!update) return event.kind.startsWith("stall.") || ASIDE.has(event.kind) ? "aside" : "end";
  const sort = update.sessionUpdate;
  if (typeof sort !== "string" || !Object.hasOwn(CHUNKS, sort)) return ENDING.has(sort) ? "end" : "aside";
  const { content, messageId } = update;
  const text =
    typeof content?.text === "string"
      ? content.text
      : `[${typeof content?.type === "string" ? content.type : "no text"}]`;
  return { type: CHUNKS[sort], message: typeof messageId === "string" ? messageId : null, text };
}

/** Whether a piece continues a message: the same speaker, and ids that do not differ. */
const continues = (item, piece) =>
  item.type === piece.type && (item.message == null || piece.message == null || item.message === piece.message);

function say(line, event, piece) {
  if (line.open && continues(line.open, piece))
    return grow(line.open, event, { text: line.open.text + piece.text, message: line.open.message ?? piece.message });
  if (!piece.text.trim()) {
    if (!line.begun && !line.leading) line.blank.push(event);
    return null;
  }
  const first = !line.begun && !line.leading;
  line.open = put(line, event, { ...piece, chunk: true });
  if (first) line.leading = line.open;
  line.begun = line.begun || !first;
  return line.open;
}

/** Adds one event. Returns the item that it changed or made, or nothing if it says nothing new. */
export function add(line, event) {
  const { kind, data } = event;
  const fold = foldOf(event);
  if (typeof fold === "object") return say(line, event, fold);
  if (fold === "end") {
    line.open = null;
    line.begun = true;
  }
  const update = updateOf(event);
  if (update) return acp(line, event, update);
  if (kind.startsWith("clearance.") && data?.clearance) return joined(line, event, "clearance", data.clearance);
  if (kind.startsWith("question.") && data?.question) return joined(line, event, "question", data.question);
  if (kind.startsWith("prompt.") && data?.prompt) return joined(line, event, "prompt", data.prompt);
  if (kind === "heartbeat") return plan(line, event, stepsOf(event));
  if (SILENT.has(kind)) return null;
  if (kind === "status") return put(line, event, { type: "message", text: one(data?.message) });
  return put(line, event, { type: "fact", kind });
}

/**
 * Puts what came before in front, without looking at all of it again: only what began there and went on here is joined.
 * The same as if all had been added in order, but for plans that are repeated across the seam.
 */
export function prepend(line, events) {
  const before = timeline();
  for (const event of events) add(before, event);
  for (const event of line.blank) add(before, event);
  const begin = line.leading;
  if (begin && before.open && continues(before.open, foldOf(begin.events[0]))) {
    for (const event of begin.events) add(before, event);
    line.items.splice(line.items.indexOf(begin), 1);
    if (line.last === begin) line.last = before.last;
    if (line.open === begin) line.open = before.open;
  } else if (!begin && !line.begun) line.open = before.open;
  line.begun = before.begun || line.begun || (before.leading != null && begin != null);
  line.leading = before.begun || before.leading ? before.leading : begin;
  line.blank = before.blank;
  const moved = new Set();
  for (const [key, item] of line.byKey) {
    if (before.byKey.has(key) && item.sent) {
      // It left the queue on this side of the seam, and stands there.
      const queued = before.byKey.get(key);
      before.items.splice(before.items.lastIndexOf(queued), 1);
      item.events.unshift(...queued.events);
      item.text ||= queued.text;
      item.data = { ...queued.data, ...item.data };
      item.version += 1;
      before.byKey.set(key, item);
    } else if (before.byKey.has(key)) {
      for (const event of item.events) add(before, event);
      moved.add(item);
    } else before.byKey.set(key, item);
  }
  const rest = moved.size ? line.items.filter((item) => !moved.has(item)) : line.items;
  line.items = before.items.concat(rest);
  line.byKey = before.byKey;
  line.plan ??= before.plan;
  line.last = rest.length ? line.last : before.last;
  if (moved.has(line.last)) line.last = line.items[line.items.length - 1];
  return line;
}

function put(line, event, more, key = null) {
  const item = { seq: event.seq, at: event.at, events: [event], version: 0, ...more };
  line.items.push(item);
  if (key) line.byKey.set(key, item);
  line.last = item;
  return item;
}

function grow(item, event, more = {}) {
  item.events.push(event);
  item.version += 1;
  return Object.assign(item, more);
}

/** A clearance, a question, a prompt: one item from its beginning to its end. */
function joined(line, event, type, id) {
  const known = line.byKey.get(id);
  const { kind, data } = event;
  const standing = type === "clearance" ? standingOf(event) : null;
  if (!known) {
    const state = stateOf(kind, data);
    const sent = kind === "prompt.sending";
    return put(line, event, { type, id, text: one(data.text ?? data.title), data, state, standing, sent }, id);
  }
  const more = {
    state: stateOf(kind, data) ?? known.state,
    data: { ...known.data, ...data },
    standing: { ...known.standing, ...standing },
  };
  if (kind === "prompt.amended" && data.text) more.text = one(data.text);
  // A prompt stands where it left the queue: what was said before that was not said about it.
  if (kind === "prompt.sending") {
    Object.assign(more, { at: event.at, sent: true });
    line.items.splice(line.items.lastIndexOf(known), 1);
    line.items.push(known);
    line.last = known;
  }
  return grow(known, event, more);
}

function stateOf(kind, data) {
  const end = kind.split(".")[1];
  if (end === "requested" || end === "asked" || end === "queued" || end === "requeued") return "pending";
  if (end === "decided" || end === "closed") return one(data.status) || end;
  if (end === "answered") return "answered";
  if (end === "withdrawn" || end === "undelivered") return end;
  if (kind === "prompt.delivered") return "delivered";
  return null;
}

function plan(line, event, steps) {
  if (!steps) return null;
  const same = line.plan && line.last === line.plan;
  // The same plan a step further is the same item, as long as nothing was said in between.
  if (same) return grow(line.plan, event, { steps });
  if (line.plan && JSON.stringify(line.plan.steps) === JSON.stringify(steps)) return null;
  line.plan = put(line, event, { type: "plan", steps });
  return line.plan;
}

function acp(line, event, update) {
  const sort = update.sessionUpdate;
  if (sort === "tool_call" || sort === "tool_call_update") {
    const key = `tool ${one(update.toolCallId)}`;
    const known = update.toolCallId ? line.byKey.get(key) : null;
    const more = {};
    for (const name of ["title", "status", "kind"])
      if (update[name] != null) more[name === "kind" ? "tool" : name] = one(update[name]);
    if (Array.isArray(update.content) && update.content.length) more.content = update.content;
    if (known) return grow(known, event, more);
    return put(line, event, { type: "tool", title: one(update.toolCallId), status: "pending", ...more }, key);
  }
  if (sort === "plan") return plan(line, event, stepsOf(event));
  return told(update) ? put(line, event, { type: "fact", kind: sort }) : null;
}

/** What an ACP agent tells about itself, in words; nothing for counters, and for updates that we do not know. */
function told(update) {
  if (update.sessionUpdate === "current_mode_update" && update.currentModeId)
    return `Mode: ${word(update.currentModeId)}`;
  if (update.sessionUpdate === "session_info_update" && update.title) return `Title: ${quoted(one(update.title))}`;
  return null;
}

/** A word of an agent as it is, anything longer in quotes. */
const word = (text) => (/^[\w./$-]{1,40}$/.test(one(text)) ? one(text) : quoted(one(text)));

/** Text of a fact that no item of its own shows: the daemon's sentence, and whether it is bad news. */
export function sentence({ kind, data, summary, tone }) {
  if (kind === "update") return { text: ofUpdate(data), bad: false };
  const text = localTimes(summary ?? kind);
  return { text: text.charAt(0).toUpperCase() + text.slice(1), bad: tone === "bad" };
}

/** An update in words; one in our own protocol is about a tool. */
function ofUpdate(data) {
  if (data?.update) return told(data.update) || "Update";
  const of = (name, before = "", after = "") => (data?.[name] ? `${before}${one(data[name])}${after}` : "");
  return `${of("tool", "", ": ")}${of("title")}${of("status", " (", ")")}`;
}

// @ts-check
// The folding of events into items of the timeline, as people read them. Pure.

import { isAbout, standingOf, stepsOf } from "./store.js";
import { fieldsOf, localTimes, quoted, said as one } from "./text.js";
/**
 * @import {
 *   EventAbout, FactItem, Item, JoinedItem, LoggedEvent, MessageItem, NewItem, PlanItem, PromptItem, PlanStep, ToolItem
 * } from "../types/models"
 */

/** @typedef {{ type: MessageItem["type"], message: string | null, text: string }} Piece of a message */
/** @typedef {Record<string, unknown>} Update of an ACP agent */
/**
 * @typedef {object} Timeline
 * @property {Item[]} items
 * @property {Map<string, JoinedItem | ToolItem>} byKey
 * @property {PlanItem | null} plan
 * @property {MessageItem | null} open
 * @property {boolean} begun
 * @property {MessageItem | null} leading
 * @property {LoggedEvent[]} blank
 * @property {Item} [last]
 */

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

/** @type {Record<string, MessageItem["type"]>} */
const CHUNKS = { agent_message_chunk: "message", agent_thought_chunk: "thought", user_message_chunk: "echo" };
/** The updates that end a message; all others are about the agent itself. */
/** @type {Set<unknown>} */
const ENDING = new Set(["tool_call", "tool_call_update", "plan"]);
/** The events outside of the conversation: a message continues after them. */
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
 * `open` is the message that more pieces may continue. For `prepend`, which must know what could continue an earlier
 * message: `leading` is the first message, until anything else has `begun`; `blank` are pieces without text.
 *
 * @returns {Timeline}
 */
export function timeline() {
  return { items: [], byKey: new Map(), plan: null, open: null, begun: false, leading: null, blank: [] };
}

/**
 * @param {LoggedEvent} event
 * @returns {Update | null}
 */
function updateOf({ kind, data }) {
  const { update } = kind === "update" ? fieldsOf(data) : {};
  return update && typeof update === "object" && !Array.isArray(update) ? fieldsOf(update) : null;
}

/**
 * The effect of an event on the open message: a piece of it, "aside" or "end". The rule of src/fold.rs, with the
 * same cases: tests/console/fold-cases.json.
 *
 * @param {LoggedEvent} event
 * @returns {Piece | "aside" | "end"}
 */
function foldOf(event) {
  const update = updateOf(event);
  if (!update) return event.kind.startsWith("stall.") || ASIDE.has(event.kind) ? "aside" : "end";
  const sort = update.sessionUpdate;
  if (typeof sort !== "string" || !Object.hasOwn(CHUNKS, sort)) return ENDING.has(sort) ? "end" : "aside";
  const { messageId } = update;
  const content = fieldsOf(update.content);
  const text =
    typeof content.text === "string"
      ? content.text
      : `[${typeof content.type === "string" ? content.type : "no text"}]`;
  return { type: CHUNKS[sort], message: typeof messageId === "string" ? messageId : null, text };
}

/**
 * Returns true if a piece continues a message: the same speaker, and ids that do not differ.
 *
 * @param {MessageItem} item
 * @param {Piece} piece
 */
const continues = (item, piece) =>
  item.type === piece.type && (item.message == null || piece.message == null || item.message === piece.message);

/**
 * @param {Timeline} line
 * @param {LoggedEvent} event
 * @param {Piece} piece
 */
function say(line, event, piece) {
  if (line.open && continues(line.open, piece))
    return grow(line.open, event, { text: line.open.text + piece.text, message: line.open.message ?? piece.message });
  if (!piece.text.trim()) {
    if (!line.begun && !line.leading) line.blank.push(event);
    return null;
  }
  const first = !line.begun && !line.leading;
  /** @type {MessageItem} */
  const item = put(line, event, { ...piece, chunk: true });
  line.open = item;
  if (first) line.leading = line.open;
  line.begun = line.begun || !first;
  return line.open;
}

/**
 * Adds one event. Returns the changed or created item, or nothing if the event adds nothing.
 *
 * @param {Timeline} line
 * @param {LoggedEvent} event
 * @returns {Item | null}
 */
export function add(line, event) {
  const { kind } = event;
  const fold = foldOf(event);
  if (typeof fold === "object") return say(line, event, fold);
  if (fold === "end") {
    line.open = null;
    line.begun = true;
  }
  const update = updateOf(event);
  if (update) return acp(line, event, update);
  if (isAbout(event, "clearance")) return joined(line, event, "clearance", event.data.clearance);
  if (isAbout(event, "question")) return joined(line, event, "question", event.data.question);
  if (isAbout(event, "prompt")) return joined(line, event, "prompt", event.data.prompt);
  if (kind === "heartbeat") return plan(line, event, stepsOf(event));
  if (SILENT.has(kind)) return null;
  if (kind === "status") return put(line, event, { type: "message", text: one(fieldsOf(event.data).message) });
  return put(line, event, { type: "fact", kind });
}

/**
 * Prepends earlier events without folding everything again: only items that continue across the seam are joined.
 * The result is the same as if all had been added in order, except for plans that are repeated across the seam.
 *
 * @param {Timeline} line
 * @param {LoggedEvent[]} events
 */
export function prepend(line, events) {
  const before = timeline();
  for (const event of events) add(before, event);
  for (const event of line.blank) add(before, event);
  const begin = line.leading;
  const piece = begin && foldOf(begin.events[0]);
  if (begin && before.open && typeof piece === "object" && piece && continues(before.open, piece)) {
    for (const event of begin.events) add(before, event);
    line.items.splice(line.items.indexOf(begin), 1);
    if (line.last === begin) line.last = before.last;
    if (line.open === begin) line.open = before.open;
  } else if (!begin && !line.begun) line.open = before.open;
  line.begun = before.begun || line.begun || (before.leading != null && begin != null);
  line.leading = before.begun || before.leading ? before.leading : begin;
  line.blank = before.blank;
  const moved = joinKeyed(line, before);
  const rest = moved.size ? line.items.filter((item) => !moved.has(item)) : line.items;
  line.items = before.items.concat(rest);
  line.byKey = before.byKey;
  line.plan ??= before.plan;
  line.last = rest.length ? line.last : before.last;
  if (line.last && moved.has(line.last)) line.last = line.items[line.items.length - 1];
  return line;
}

/**
 * Joins items that continue across the seam. Returns the items before the seam.
 *
 * @param {Timeline} line
 * @param {Timeline} before
 */
function joinKeyed(line, before) {
  /** @type {Set<Item>} */
  const moved = new Set();
  for (const [key, item] of line.byKey) {
    const known = before.byKey.get(key);
    if (known?.type === "prompt" && item.type === "prompt" && item.sent) {
      // It left the queue on this side of the seam, which is its place.
      before.items.splice(before.items.lastIndexOf(known), 1);
      item.events.unshift(...known.events);
      item.text ||= known.text;
      item.data = { ...known.data, ...item.data };
      item.version += 1;
      before.byKey.set(key, item);
    } else if (known) {
      for (const event of item.events) add(before, event);
      moved.add(item);
    } else before.byKey.set(key, item);
  }
  return moved;
}

/**
 * @template {Item} Made
 * @param {Timeline} line
 * @param {LoggedEvent} event
 * @param {NewItem<Made>} more
 * @returns {Made}
 */
function put(line, event, more) {
  const item = /** @type {any} */ ({ seq: event.seq, at: event.at, events: [event], version: 0, ...more });
  line.items.push(item);
  line.last = item;
  return item;
}

/**
 * @template {Item} Grown
 * @param {Grown} item
 * @param {LoggedEvent} event
 * @param {Partial<Grown>} more
 */
function grow(item, event, more) {
  item.events.push(event);
  item.version += 1;
  return Object.assign(item, more);
}

/**
 * A clearance, a question or a prompt: one item for all of its events.
 *
 * @param {Timeline} line
 * @param {EventAbout<"clearance"> | EventAbout<"question"> | EventAbout<"prompt">} event
 * @param {JoinedItem["type"]} type
 * @param {string} id
 */
function joined(line, event, type, id) {
  const known = line.byKey.get(id);
  const { kind } = event;
  const data = fieldsOf(event.data);
  const standing = type === "clearance" ? standingOf(event) : null;
  const state = stateOf(kind, data);
  if (!known || known.type === "tool") {
    const text = one(data.text ?? data.title);
    const made = { type, id, text, data, state, standing, sent: kind === "prompt.sending" };
    const item = put(line, event, /** @type {NewItem<JoinedItem>} */ (/** @type {unknown} */ (made)));
    line.byKey.set(id, item);
    return item;
  }
  const text = kind === "prompt.amended" && data.text ? one(data.text) : known.text;
  grow(known, event, { state: state ?? known.state, text });
  known.data = { ...known.data, ...data };
  if (known.type === "clearance") known.standing = { ...known.standing, ...standing };
  if (kind === "prompt.sending" && known.type === "prompt") leaveQueue(line, event, known);
  return known;
}

/**
 * The place of a prompt is where it left the queue: earlier messages are not about it.
 *
 * @param {Timeline} line
 * @param {LoggedEvent} event
 * @param {PromptItem} prompt
 */
function leaveQueue(line, event, prompt) {
  Object.assign(prompt, { at: event.at, sent: true });
  line.items.splice(line.items.lastIndexOf(prompt), 1);
  line.items.push(prompt);
  line.last = prompt;
}

/**
 * @param {string} kind
 * @param {Record<string, unknown>} data
 */
function stateOf(kind, data) {
  const end = kind.split(".")[1];
  if (end === "requested" || end === "asked" || end === "queued" || end === "requeued") return "pending";
  if (end === "decided" || end === "closed") return one(data.status) || end;
  if (end === "answered") return "answered";
  if (end === "withdrawn" || end === "undelivered") return end;
  if (kind === "prompt.delivered") return "delivered";
  return null;
}

/**
 * @param {Timeline} line
 * @param {LoggedEvent} event
 * @param {PlanStep[] | null} steps
 */
function plan(line, event, steps) {
  if (!steps) return null;
  // A later state of the same plan is the same item, as long as no message came in between.
  if (line.plan && line.last === line.plan) return grow(line.plan, event, { steps });
  if (line.plan && JSON.stringify(line.plan.steps) === JSON.stringify(steps)) return null;
  line.plan = put(line, event, /** @type {NewItem<PlanItem>} */ ({ type: "plan", steps }));
  return line.plan;
}

/**
 * @param {Timeline} line
 * @param {LoggedEvent} event
 * @param {Update} update
 */
function acp(line, event, update) {
  const sort = update.sessionUpdate;
  if (sort === "tool_call" || sort === "tool_call_update") return toolCall(line, event, update);
  if (sort === "plan") return plan(line, event, stepsOf(event));
  return told(update) ? put(line, event, /** @type {NewItem<FactItem>} */ ({ type: "fact", kind: sort })) : null;
}

/**
 * @param {Timeline} line
 * @param {LoggedEvent} event
 * @param {Update} update
 */
function toolCall(line, event, update) {
  const key = `tool ${one(update.toolCallId)}`;
  const known = update.toolCallId ? line.byKey.get(key) : null;
  /** @type {Partial<ToolItem>} */
  const more = {};
  if (update.title != null) more.title = one(update.title);
  if (update.status != null) more.status = one(update.status);
  if (update.kind != null) more.tool = one(update.kind);
  if (Array.isArray(update.content) && update.content.length) more.content = update.content;
  if (known?.type === "tool") return grow(known, event, more);
  /** @type {NewItem<ToolItem>} */
  const call = { type: "tool", title: one(update.toolCallId), status: "pending", ...more };
  /** @type {ToolItem} */
  const item = put(line, event, call);
  line.byKey.set(key, item);
  return item;
}

/**
 * The text of an ACP agent's update about itself; nothing for counters and unknown updates.
 *
 * @param {Update} update
 */
function told(update) {
  if (update.sessionUpdate === "current_mode_update" && update.currentModeId)
    return `Mode: ${word(update.currentModeId)}`;
  if (update.sessionUpdate === "session_info_update" && update.title) return `Title: ${quoted(one(update.title))}`;
  return null;
}

/**
 * An agent's text: one word unchanged, anything longer in quotes.
 *
 * @param {unknown} text
 */
const word = (text) => (/^[\w./$-]{1,40}$/.test(one(text)) ? one(text) : quoted(one(text)));

/**
 * The daemon's summary of an event without an item of its own, and whether it reports a problem.
 *
 * @param {LoggedEvent} event
 */
export function sentence({ kind, data, summary, tone }) {
  if (kind === "update") return { text: ofUpdate(data), bad: false };
  const text = localTimes(summary ?? kind);
  return { text: text.charAt(0).toUpperCase() + text.slice(1), bad: tone === "bad" };
}

/**
 * The text of an update; in our own protocol, updates are about tools.
 *
 * @param {unknown} said
 */
function ofUpdate(said) {
  const data = fieldsOf(said);
  if (data.update) return told(fieldsOf(data.update)) || "Update";
  /** @param {string} name */
  const of = (name, before = "", after = "") => (data[name] ? `${before}${one(data[name])}${after}` : "");
  return `${of("tool", "", ": ")}${of("title")}${of("status", " (", ")")}`;
}

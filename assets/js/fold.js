// Events as people read them: what belongs together becomes one item of the timeline. Pure.

import { standingOf, stepsOf } from "./store.js";
import { said as one } from "./text.js";

const SILENT = new Set([
  "heartbeat",
  "clearance.delivered",
  "clearance.approved",
  "question.delivered",
  "prompt.delivered",
  "terminal.output",
  "terminal.released",
]);

export function timeline() {
  return { items: [], byKey: new Map(), plan: null };
}

/** Adds one event. Returns the item that it changed or made, or nothing if it says nothing new. */
export function add(line, event) {
  const { kind, data } = event;
  const update = kind === "update" && data?.update && typeof data.update === "object" ? data.update : null;
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
  const [end, begin] = [before.last, line.items[0]];
  if (end?.chunk && begin?.chunk && end.type === begin.type && before.items[before.items.length - 1] === end) {
    grow(end, begin.events[0], { text: end.text + begin.text });
    end.events.push(...begin.events.slice(1));
    line.items.shift();
    if (line.last === begin) line.last = end;
  }
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
  if (end === "requested" || end === "asked" || end === "queued") return "pending";
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

const CHUNKS = { agent_message_chunk: "message", agent_thought_chunk: "thought", user_message_chunk: "echo" };

function acp(line, event, update) {
  const sort = update.sessionUpdate;
  const type = Object.hasOwn(CHUNKS, sort) ? CHUNKS[sort] : null;
  if (type) {
    const text =
      typeof update.content?.text === "string" ? update.content.text : `(${one(update.content?.type) || "no text"})`;
    if (line.last?.type === type && line.last.chunk) return grow(line.last, event, { text: line.last.text + text });
    return put(line, event, { type, text, chunk: true });
  }
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
  if (sort === "usage_update" || sort === "available_commands_update") return null;
  return put(line, event, { type: "fact", kind: one(sort) || "update" });
}

/** What an ACP agent told that is neither said nor done: in words, or as it came. */
function told(update) {
  const { sessionUpdate: sort, ...rest } = update;
  if (sort === "current_mode_update" && update.currentModeId) return `Mode: ${one(update.currentModeId)}`;
  if (sort === "session_info_update" && update.title) return `Title: ${one(update.title)}`;
  return `${one(sort) || "update"} ${JSON.stringify(rest)}`;
}

/** Text of a fact that no item of its own shows: a sentence, and whether it is bad news. */
export function sentence(event) {
  const data = event.data ?? {};
  const by = data.by ? ` by ${one(data.by)}` : "";
  const of = (name, before = "", after = "") =>
    data[name] == null || data[name] === "" ? "" : `${before}${one(data[name])}${after}`;
  const say = {
    "session.created": () =>
      `Session created: ${one(data.agent ?? data.command ?? "an agent")}${of("workspace", " in ")}${by}`,
    "agent.spawned": () =>
      `Agent started${of("pid", ", pid ")}${data.generation > 1 ? `, generation ${data.generation}` : ""}`,
    "agent.ready": () => "Agent is ready",
    "turn.started": () => `Turn started${of("cause", ": ")}`,
    "turn.ended": () => `Turn ended${of("stop_reason", ": ")}`,
    "session.stopping": () => `Stopping${of("how", " (", ")")}${by}`,
    "session.resumed": () => `Resumed${by}`,
    "session.kept": () => `Stays when its ACP client leaves: used${by}`,
    "session.adopted": () => `Adopted as an orphan${of("pid", ", pid ")}${of("why", ": ")}`,
    "session.ended": () => `Session ended${of("reason", ": ")}`,
    "session.parked": () => `Parked${of("reason", ": ")}`,
    "session.seen": () => `Its failure was seen${by}`,
    "session.unenforced": () => "Unenforced: it acts without ever having asked",
    "agent.exited": () => `Agent exited${data.code != null ? ` with code ${data.code}` : of("signal", " by signal ")}`,
    "agent.restarting": () =>
      `To be started again${of("attempt", " (attempt ", "")}${of("of", " of ", ")")}${of("reason", ": ")}`,
    "agent.set": () =>
      `Set${by}: ${[data.mode && `mode ${one(data.mode)}`, data.model && `model ${one(data.model)}`, data.option && `${one(data.option)} = ${one(data.value)}`].filter(Boolean).join(", ")}`,
    "agent.set_done": () => "The agent has set it",
    "agent.not_set": () => `That could not be set${of("reason", ": ")}`,
    nudge: () => `Nudged${by}${of("message", ": ")}`,
    "nudge.undelivered": () => `The nudge was NOT delivered${of("cause", ": ")}`,
    interrupt: () => `Interrupted${by}${of("reason", ": ")}`,
    "interrupt.undelivered": () => `The interrupt was NOT delivered${of("cause", ": ")}`,
    update: () => (data.update ? told(data.update) : `${of("tool", "", ": ")}${of("title")}${of("status", " (", ")")}`),
    "file.read": () => `Read ${of("path")} for the agent`,
    "file.written": () => `Wrote ${of("path")} for the agent`,
    "terminal.started": () => `${of("terminal")} runs ${of("command")}`,
    "terminal.ended": () => `${of("terminal")} ended${of("code", ": exit code ")}${of("signal", ": signal ")}`,
    "terminal.killed": () => `${of("terminal")} was ended by the agent`,
    "call.failed": () => `${of("method")} was not done${of("reason", ": ")}`,
    "line.rejected": () => `A line was rejected${of("reason", ": ")}`,
    "stall.step": () => `${of("name")}${of("why", ": ")}`,
    "stall.failed": () => `${of("name")} did not help`,
    "stall.recovered": () => of("summary") || "Recovered",
    "stall.reset": () => `${of("by")} acts: the ladder begins anew`,
    "stall.snoozed": () => (data.until ? `Left in peace until ${one(data.until)}${by}` : `Watched again${by}`),
    "stall.ladder": () => `Ladder: ${of("ladder")}${by}`,
    "stall.reminder": () => `Still waiting for you: ${of("waiting_for")}`,
    "stall.limited": () => `Waits for its service: ${of("limit")} limit${of("until", ", until ")}`,
    "stall.limit_over": () => `The ${of("limit")} limit should be over`,
    "spend.capped": () => `No new turn begins${of("why", ": ")}`,
  }[event.kind];
  const text = say ? say() : `${event.kind} ${event.data == null ? "" : JSON.stringify(event.data)}`;
  const bad =
    /rejected|undelivered|unenforced|parked|failed|not_set|capped/.test(event.kind) ||
    (event.kind === "agent.exited" && data.code !== 0) ||
    (event.kind === "stall.step" && ["alert", "escalate"].includes(data.step));
  return { text, bad };
}

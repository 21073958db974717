// @ts-check
// The content of each entry of a session's timeline.

import * as api from "../api.js";
import { checklist } from "../checklist.js";
import { h, replace } from "../dom.js";
import { sentence } from "../fold.js";
import { badge, fate, whole } from "../card/request.js";
import { renderLong } from "../markdown.js";
import { RANK } from "../store.js";
import { clean, cleanBlock, cut, fieldsOf, line as subject, short } from "../text.js";
/** @import { Child, ClearanceItem, FactItem, Item, PromptItem, QuestionItem, ToolItem } from "../../types/models" */

/** The limit on shown characters of a tool's output. */
const OUTPUT = 4000;

/** @type {Record<string, string>} */
const TOOL = { completed: "done", failed: "failed", in_progress: "running", pending: "pending" };

/** @param {unknown} part */
function toolOutput(part) {
  const { type, content, path } = fieldsOf(part);
  const { text } = fieldsOf(content);
  if (type === "content" && typeof text === "string") return h("pre", { tabindex: "0" }, cleanBlock(cut(text, OUTPUT)));
  return type === "diff" ? h("p", { class: "mono wrap" }, `changes ${clean(path)}`) : null;
}

/** @param {ToolItem} item */
function tool({ status, tool, title, content }) {
  const output = (content ?? []).map(toolOutput).filter((part) => part);
  const word = Object.hasOwn(TOOL, status) ? TOOL[status] : clean(status);
  return [
    h(
      "p",
      {},
      h("span", { class: `badge tool ${status}` }, word),
      " ",
      tool && h("span", { class: "faint" }, `${clean(tool)} `),
      h("span", { class: "mono wrap" }, clean(cut(title, 400))),
    ),
    output.length > 0 && h("details", { class: "more" }, h("summary", {}, "Output"), output),
  ];
}

/** @type {Record<string, string>} */
const PROMPT = { pending: "queued", withdrawn: "withdrawn", undelivered: "NOT delivered" };

/** @param {PromptItem} item */
function prompt({ data, state, text }) {
  const word = PROMPT[state ?? ""];
  const by = data.by ? clean(data.by) : "somebody";
  return [h("p", { class: "faint" }, by, word && h("span", { class: "badge" }, word)), renderLong(text)];
}

/**
 * The command and the change of a clearance, fetched when it is opened.
 *
 * @param {ClearanceItem} item
 */
function request(item) {
  const place = h("div", { class: "content" });
  const details = h("details", { class: "more request" }, h("summary", {}, "Request"), place);
  details.addEventListener("toggle", async () => {
    item.opened = details.open;
    if (!details.open || place.childElementCount) return;
    try {
      item.whole ??= await api.get(`/clearances/${item.id}`);
      replace(place, whole(item.whole));
    } catch (error) {
      place.replaceChildren(h("p", { class: "trouble" }, api.why(error)));
    }
  });
  details.open = item.opened === true;
  return details;
}

/** @param {ClearanceItem} item */
function clearance(item) {
  const { id, data, standing, text } = item;
  const { reason } = standing;
  const words = standing.status ? fate(standing) : ["pending"];
  const action = data.action ?? data.command ?? data.file_path;
  const risk = data.risk && Object.hasOwn(RANK, data.risk) ? data.risk : "high";
  return [
    h("p", {}, badge(risk), " ", h("strong", { class: "wrap" }, subject({ action, title: text }))),
    h(
      "p",
      { class: `settlement ${clean(standing.status)}` },
      words.join(" · "),
      reason && h("span", { class: "faint" }, ` “${clean(reason)}”`),
      " ",
      h("span", { class: "mono faint" }, short(id)),
    ),
    request(item),
  ];
}

/** @param {QuestionItem} item */
function answerOf({ state, data }) {
  if (state === "pending") return "pending";
  if (state !== "answered") return clean(state);
  return `${clean(data.decision ?? "answered")}${data.by ? ` by ${clean(data.by)}` : ""}`;
}

/** @param {QuestionItem} item */
function question(item) {
  const { instruction } = item.data;
  const more = instruction && h("span", { class: "faint" }, ` “${clean(instruction)}”`);
  return [renderLong(item.text), h("p", { class: "settlement" }, answerOf(item), more)];
}

/** @param {FactItem} item */
function fact({ events: [event] }) {
  const told = sentence(event);
  const { stderr_tail: stderr } = fieldsOf(event.data);
  return [
    h("p", { class: told.bad ? "bad" : "" }, clean(cut(told.text, 600))),
    typeof stderr === "string" &&
      stderr.trim() !== "" &&
      h("pre", { class: "stderr", tabindex: "0" }, cleanBlock(stderr)),
  ];
}

/**
 * @param {Item} item
 * @returns {Child}
 */
export function body(item) {
  switch (item.type) {
    case "message":
      return renderLong(item.text);
    case "echo":
      return h("p", { class: "faint" }, clean(item.text));
    case "thought":
      return h("details", { class: "thought" }, h("summary", {}, "Thought"), renderLong(item.text));
    case "plan":
      return checklist(item.steps);
    case "tool":
      return tool(item);
    case "prompt":
      return prompt(item);
    case "clearance":
      return clearance(item);
    case "question":
      return question(item);
    case "fact":
      return fact(item);
  }
}

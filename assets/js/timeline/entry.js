// @ts-check
// One entry of a session's timeline, with its raw events.

import { button, confirm, h, replace, toast } from "../dom.js";
import { SHOWN } from "../markdown.js";
import { cleanBlock, clock, cut } from "../text.js";
import { body } from "./bodies.js";
/** @import { Item } from "../../types/models" */

/** The speaker of an entry, for screen readers. */
const SPEAKERS = {
  message: "agent",
  thought: "agent",
  tool: "tool",
  plan: "plan",
  prompt: "prompt",
  clearance: "clearance",
  question: "question",
  echo: "you",
  fact: "event",
};

/** @param {Item} item */
async function showRaw(item) {
  const text = item.events.map((event) => JSON.stringify(event, null, 2)).join("\n");
  const copy = button("Copy", async () => {
    try {
      await navigator.clipboard.writeText(text);
      toast("Copied");
    } catch {
      toast("The browser does not allow copying", "error");
    }
  });
  await confirm({
    title: `Events ${item.seq}`,
    body: [
      h("div", { class: "row" }, h("span", { class: "faint grow" }, `${item.events.length} in the log`), copy),
      h("pre", { class: "raw", tabindex: "0" }, cleanBlock(cut(text, SHOWN))),
    ],
    yes: "Close",
    no: null,
  });
}

/** @param {Item} item */
export function entry(item) {
  let current = item;
  const inner = h("div", { class: "body" }, body(item));
  const raw = { type: "button", class: "plain rawbutton", "aria-label": "Raw events", onclick: () => showRaw(current) };
  const element = h(
    "article",
    { class: `item ${item.type}`, tabindex: "-1", "aria-label": `${SPEAKERS[item.type]}, ${clock(item.at)}` },
    h(
      "div",
      { class: "gutter" },
      h("time", { class: "tabular faint", datetime: item.at }, clock(item.at)),
      h("button", raw, "{ }"),
    ),
    inner,
  );
  /** @param {Item} now */
  const update = (now) => {
    current = now;
    const opened = inner.querySelector("details.thought[open]") !== null;
    replace(inner, body(now));
    if (opened) inner.querySelector("details.thought")?.setAttribute("open", "");
  };
  return { element, update };
}

// @ts-check
// What an agent means to do, and how far it has come.

import { h } from "./dom.js";
import { clean } from "./text.js";
/** @import { Step } from "../types/models" */

/** @param {Step[]} steps */
export function checklist(steps) {
  /** @param {string} status */
  const mark = (status) => (status === "completed" ? "✓" : status === "in_progress" ? "▸" : "·");
  return h(
    "ul",
    { class: "checklist" },
    steps.map((step) =>
      h(
        "li",
        { class: step.status === "completed" ? "done" : step.status === "in_progress" ? "now" : "" },
        h("span", { class: "mark", "aria-hidden": "true" }, mark(step.status)),
        clean(step.text),
        h("span", { class: "unseen" }, ` (${clean(step.status)})`),
      ),
    ),
  );
}

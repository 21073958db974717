// @ts-check
// The plan of an agent and its progress.

import { h } from "./dom.js";
import { clean } from "./text.js";
/** @import { PlanStep } from "../types/models" */

/** @param {PlanStep[]} steps */
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

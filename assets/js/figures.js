// @ts-check
// A few large numbers with labels.

import { h } from "./dom.js";

/** @param {Array<[string | number, string]>} all */
export const figures = (all) =>
  h(
    "div",
    { class: "figures" },
    all.map(([value, label]) =>
      h(
        "div",
        { class: "figure" },
        h("strong", { class: "tabular" }, String(value)),
        h("span", { class: "faint" }, label),
      ),
    ),
  );

// @ts-check
// Tables that scroll by themselves when they are wide.

import { h } from "./dom.js";
/** @import { Child } from "../types/models" */

/**
 * A column without a title holds what can be done with a row.
 *
 * @param {string[]} titles
 * @param {HTMLElement[] | HTMLTableSectionElement} rows
 * @param {string} [name]
 */
export function table(titles, rows, name) {
  const head = titles.map((title) => h("th", { scope: "col" }, title || h("span", { class: "unseen" }, "Actions")));
  const body = Array.isArray(rows) ? h("tbody", {}, rows) : rows;
  return h(
    "div",
    { class: "scroll", tabindex: "0" },
    h("table", { class: name }, h("thead", {}, h("tr", {}, head)), body),
  );
}

/**
 * @param {Child[]} cells
 */
export const row = (...cells) =>
  h(
    "tr",
    {},
    cells.map((cell) => h("td", {}, cell)),
  );

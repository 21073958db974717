// @ts-check
// The rules in force.

import { h } from "../dom.js";
import { row, table } from "../table.js";
import { clean } from "../text.js";

/**
 * The conditions of a rule, with the names of the configuration.
 *
 * @param {object} rule
 */
export function criteria(rule) {
  const parts = Object.entries(rule).filter(
    ([name, value]) => !["then", "name"].includes(name) && value != null && !(Array.isArray(value) && !value.length),
  );
  if (!parts.length) return h("span", { class: "faint" }, "anything");
  return h("span", { class: "mono wrap" }, parts.map(([name, value]) => `${clean(name)} = ${clean(value)}`).join(", "));
}

/** @param {Array<Record<string, unknown>>} rules */
export function ruleTable(rules) {
  if (!rules.length) return h("p", { class: "faint" }, "There are no rules: people decide everything.");
  const rows = rules.map((rule, n) => {
    const then = clean(rule.then ?? "ask");
    const badge = h("span", { class: `badge then-${then}` }, then);
    return row(h("span", { class: "tabular" }, n + 1), badge, clean(rule.name), criteria(rule));
  });
  return table(["#", "Then", "Name", "If"], rows);
}

// @ts-check
// The text of a clearance: the request and its outcome.

import { h } from "../dom.js";
import { clean, cleanBlock, clock } from "../text.js";
import { render as renderDiff } from "../diffview.js";
import { renderLong } from "../markdown.js";
/** @import { Child, ApiClearance, ClearanceState } from "../../types/models" */

/** @type {Record<string, string>} */
const FATE = { approved: "Allowed", denied: "Denied", withdrawn: "Withdrawn", expired: "Expired" };

/**
 * The decision with its author, its delivery and its outcome.
 *
 * @param {ClearanceState} clearance
 */
export function fate({ status = "", decided_by, decided_at, delivery, delivery_cause, outcome }) {
  const by = decided_by ? ` by ${clean(decided_by)}` : "";
  const at = decided_at ? ` ${clock(decided_at)}` : "";
  const steps = [`${FATE[status] ?? clean(status)}${by}${at}`];
  if (["approved", "denied"].includes(status)) {
    if (delivery === "delivered") steps.push("delivered");
    else if (delivery === "failed") steps.push(`NOT delivered${delivery_cause ? `: ${clean(delivery_cause)}` : ""}`);
    else steps.push("being delivered");
  }
  if (outcome) steps.push(clean(outcome));
  return steps;
}

/** @param {string} risk */
export const badge = (risk) => h("span", { class: `badge ${risk}` }, risk);

/** @param {string[]} words */
const listed = (words) => words.map(clean).join(", ");

/** @param {ApiClearance} clearance */
export function facts(clearance) {
  const { command, file_path: file, more_paths: more, claimed_risk: claimed, approvals } = clearance;
  const approved = approvals.length ? ` (${listed(approvals)})` : "";
  /** @type {Array<[string, Child]>} */
  const all = [
    ["Command", command && h("code", { class: "command", tabindex: "0" }, cleanBlock(command))],
    [more.length ? "Files" : "File", file && h("span", { class: "mono wrap" }, listed([file, ...more]))],
    ["Tool", clean(clearance.tool)],
    ["Why", clearance.risk_why.map(clean).join("; ")],
    ["Claimed", claimed && claimed !== clearance.risk && `${clean(claimed)} by the agent`],
    ["Policy", clean(clearance.ruling?.why)],
    ["Approvals", clearance.needed > 1 && `${approvals.length} of ${clearance.needed}${approved}`],
    ["Hidden", clearance.hidden.length && `from viewers: ${listed(clearance.hidden)}`],
  ];
  const rows = all.filter(([, value]) => value).map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]);
  return h("dl", { class: "facts", hidden: !rows.length }, rows);
}

/**
 * The whole request: description, command or paths, and change.
 *
 * @param {ApiClearance} clearance
 * @returns {Child[]}
 */
export const whole = (clearance) => [
  clearance.description && h("div", { class: "description" }, renderLong(clearance.description)),
  facts(clearance),
  clearance.diff && renderDiff(clearance.diff, clearance.file_path),
];

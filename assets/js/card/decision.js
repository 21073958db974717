// @ts-check
// Deciding a clearance: once, with an option where the agent offers several, with a reason, or as a rule.

import * as api from "../api.js";
import { h, ask, toast } from "../dom.js";
import { explain, state, touch } from "../live.js";
import { putClearance, RANK } from "../store.js";
import { clean, line, localTimes } from "../text.js";
/** @import { PostBody, Clearance } from "../../types/models" */

/** @typedef {PostBody<"/clearances/x/decision">} Decision */

/** @param {Clearance} clearance */
export const isRisky = (clearance) => RANK[clearance.risk] >= RANK.high;

/** @type {Set<string>} */
const deciding = new Set();

/**
 * Decides once, even with a double click. If somebody else was faster, says who.
 *
 * @param {Clearance} clearance
 * @param {Decision} body
 */
export async function decide(clearance, body) {
  if (deciding.has(clearance.id)) return;
  deciding.add(clearance.id);
  const key = `web-${clearance.id}-${crypto.randomUUID()}`;
  try {
    const answer = await api.post(`/clearances/${clearance.id}/decision`, body, key);
    const now = "clearance" in answer ? answer.clearance : answer;
    putClearance(state, now);
    if (now.status === "pending") toast(`${now.approvals.length} of ${now.needed} approvals`);
    else toast(`${now.status === "approved" ? "Allowed" : "Denied"}: ${line(now)}`);
  } catch (error) {
    const { code = "", body: told = null, message = "" } = error instanceof api.Refused ? error : {};
    if (told?.clearance) putClearance(state, told.clearance);
    if (code === "already_decided") toast(`Too late: ${localTimes(message)}`);
    else if (code === "option_required") return choose(clearance, body);
    else toast(api.why(error), "error");
  } finally {
    deciding.delete(clearance.id);
    touch();
  }
}

/**
 * Asks for one of the agent's options if it offers several.
 *
 * @param {Clearance} clearance
 * @param {Decision} body
 */
async function choose(clearance, body) {
  const wanted = body.decision === "approve" ? "allow" : "reject";
  const options = clearance.options.filter((option) => option.kind.startsWith(wanted));
  const fields = options.map((option, n) =>
    h(
      "label",
      { class: "choice" },
      h("input", { type: "radio", name: "option", value: option.id, checked: n === 0 }),
      ` ${clean(option.name)}`,
    ),
  );
  const picked = await ask({
    title: "How?",
    body: fields,
    yes: body.decision === "approve" ? "Allow" : "Deny",
    read: (form) => new FormData(form).get("option"),
  });
  if (typeof picked === "string") await decide(clearance, { ...body, option: picked });
}

/** @param {Clearance} clearance */
export async function denyWithReason(clearance) {
  const field = h("textarea", { id: "reason", rows: "3", required: true });
  const body = [h("label", { for: "reason" }, "Reason, for the agent"), field];
  const title = `Deny: ${line(clearance)}`;
  const reason = await ask({ title, body, yes: "Deny", danger: true, read: () => field.value.trim() });
  if (reason) await decide(clearance, { decision: "deny", reason });
}

/** The lifetimes of a rule. The shortest comes first, because it is the default. */
const LASTS = [
  ["1h", "for an hour"],
  ["8h", "for eight hours"],
  ["7d", "for a week"],
  ["", "until revoked"],
];

/** @param {object} rule */
function ruleFacts(rule) {
  const fields = Object.entries(rule).filter(([, value]) => value != null && !(Array.isArray(value) && !value.length));
  const rows = fields.map(([name, value]) => [h("dt", {}, clean(name)), h("dd", { class: "mono wrap" }, clean(value))]);
  return h("dl", { class: "rule" }, rows);
}

/**
 * Shows the rule and its lifetime before it is stored.
 *
 * @param {Clearance} clearance
 */
export async function always(clearance) {
  const found = await explain(clearance.id).catch((error) => toast(api.why(error), "error"));
  if (!found) return;
  const { proposal: rule } = found;
  if (!rule) return toast(`No safe rule can be derived from this request: ${clean(found.no_proposal)}`, "error");
  const options = LASTS.map(([value, label]) => h("option", { value }, label));
  const lasts = h("select", { id: "lasts" }, options);
  const sure = await ask({
    title: "Allow always?",
    body: [
      h("p", {}, "Requests that match this rule are allowed from now on:"),
      ruleFacts(rule),
      h("label", { for: "lasts" }, "How long"),
      lasts,
      isRisky(clearance) && h("p", { class: "trouble" }, `This request is of ${clearance.risk} risk.`),
    ],
    yes: "Allow always",
    danger: isRisky(clearance),
    read: () => ({ rule, for: lasts.value || null }),
  });
  if (sure) await decide(clearance, { decision: "approve", remember: sure });
}

// @ts-check
// Rows of the audit in words: who acted, and the details without keys. Pure; the same as `intercom audit`
// (src/cli/audit/sentence.rs), with the same cases: tests/console/audit-cases.json.

import { clean, clock, cut, fieldsOf, line, short } from "./text.js";

/** A command or a reason beyond this is in `intercom audit --json`. */
const LONGEST = 200;

/** @param {unknown} value */
const said = (value) => {
  if (value == null) return null;
  const text = Array.isArray(value)
    ? value.map((each) => clean(typeof each === "object" ? JSON.stringify(each) : each)).join(", ")
    : clean(typeof value === "object" ? JSON.stringify(value) : value);
  return cut(text, LONGEST);
};

/** @typedef {string | null | undefined} Detail */

/**
 * The details of a row; empty if the action is enough.
 *
 * @param {string} action
 * @param {unknown} details
 */
export function about(action, details) {
  const data = fieldsOf(details);
  /** @param {string} key */
  const get = (key, before = "") => (said(data[key]) ? before + said(data[key]) : null);
  /** @param {string} key */
  const time = (key, before = "") => (data[key] ? before + (clock(said(data[key])) || said(data[key])) : null);
  const subject = () => {
    if (data.title == null) return get("action");
    return line({ action: get("action"), title: said(data.title) });
  };
  const started = () => [get("agent") ?? get("command"), get("workspace", "in "), get("preset")];
  const signed = () => [get("name"), get("role"), time("expires_at", "until ")];
  const decided = () => [get("status"), get("option", "option "), get("reason"), subject()];
  const loaded = () => [get("version", "version "), get("rules", "rules: "), get("needs_restart", "needs a restart: ")];
  /** @type {Record<string, () => Detail[]>} */
  const words = {
    "clearance.decided": decided,
    "clearance.closed": decided,
    "clearance.approved": () => [
      data.approvals != null && data.needed != null
        ? `${said(data.approvals)} of ${said(data.needed)} approvals`
        : null,
      get("reason"),
      subject(),
    ],
    "question.answered": () => [get("decision"), get("instruction")],
    "session.created": started,
    "session.agent": started,
    "session.deleted": started,
    "session.preset": () => [get("preset")],
    "session.resumed": () => [get("generation", "generation ")],
    "session.stopping": () => [get("how"), get("why")],
    "session.ended": () => [get("reason")],
    "session.parked": () => [get("reason")],
    "stall.snoozed": () => [time("until", "until ") ?? "no longer"],
    "stall.ladder": () => [get("ladder")],
    "token.created": signed,
    "web.signed_in": signed,
    "token.revoked": () => [get("name")],
    "web.signed_out": () => [get("name")],
    "token.used": () => [get("from", "from ")],
    "grant.created": () => [
      data.rule && typeof data.rule === "object"
        ? said(fieldsOf(data.rule).name) || Object.values(data.rule).map(said).filter(Boolean).join(" ")
        : null,
      time("expires_at", "until "),
    ],
    "grant.revoked": () => [typeof data.grant === "string" ? short(data.grant) : null],
    "config.reloaded": loaded,
    "daemon.started": loaded,
    backup: () => [get("path")],
    "access.refused": () => [get("from", "from "), get("what"), get("why")],
    "access.from_agent": () => [get("via")],
  };
  const everything = () =>
    Object.keys(data)
      .filter((key) => !["by", "session", "via"].includes(key))
      .map((key) => get(key, `${clean(key.replaceAll("_", " "))} `));
  return (Object.hasOwn(words, action) ? words[action] : everything)().filter(Boolean).join(", ");
}

/**
 * `person ana (slack)`, `rule tests`, `agent of shop`, `intercom`; `nameOf` is what a session is called.
 *
 * @param {{ actor: string, by: string, data: unknown }} row
 * @param {(id: string) => string} nameOf
 */
export function actor(row, nameOf) {
  const by = clean(row.by);
  if (row.actor === "agent") return `agent of ${nameOf(String(row.by).replace(/^agent of /, ""))}`;
  const { via } = fieldsOf(row.data);
  if (row.actor === "person") return `person ${by}${via ? ` (${clean(via)})` : ""}`;
  if (row.actor === "rule" && by.startsWith("grt_")) return `grant ${short(row.by)}`;
  return row.actor === "rule" && row.by !== "policy" ? `rule ${by}` : by;
}

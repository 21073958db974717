// @ts-check
// Grants: requests that are allowed from now on.

import * as api from "../api.js";
import { h, button, confirm, toast } from "../dom.js";
import { state } from "../live.js";
import { may } from "../store.js";
import { row, table } from "../table.js";
import { clean, clock, fieldsOf } from "../text.js";
import { criteria } from "./rules.js";
/** @import { GetAnswer } from "../../types/models" */

/** @typedef {GetAnswer<"/grants">["items"][number]} Grant */

/** @param {Grant} grant */
function lasts({ revoked_at, expires_at, valid }) {
  if (revoked_at) return `revoked ${clock(revoked_at)}`;
  if (!expires_at) return "until revoked";
  return `${valid ? "until" : "expired"} ${clock(expires_at)}`;
}

/**
 * @param {Grant} grant
 * @param {() => void} again
 */
async function revoke(grant, again) {
  const body = h("p", { class: "mono wrap" }, clean(grant.rule));
  if (!(await confirm({ title: "Revoke this grant?", body, yes: "Revoke", danger: true }))) return;
  try {
    await api.del(`/grants/${grant.id}`);
    toast("Revoked");
  } catch (error) {
    toast(api.why(error), "error");
  }
  again();
}

/**
 * @param {Grant[]} grants
 * @param {() => void} again shows them as they are now
 */
export function grantTable(grants, again) {
  if (!grants.length) return h("p", { class: "faint" }, "There are no grants.");
  const rows = grants.map((grant) => {
    const by = `${clean(grant.created_by)}, ${clock(grant.created_at)}`;
    const offered = grant.valid && may(state, "approver");
    const act = offered && button("Revoke…", () => revoke(grant, again), { class: "small danger" });
    const element = row(criteria(fieldsOf(grant.rule)), by, lasts(grant), act);
    element.className = grant.valid ? "" : "faint";
    return element;
  });
  return table(["Allows", "By", "Valid", ""], rows);
}

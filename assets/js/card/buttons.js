// @ts-check
// The buttons of a clearance's card, and the keys that press them.

import { h, button, single, toast } from "../dom.js";
import { state } from "../live.js";
import { may } from "../store.js";
import { clean } from "../text.js";
import { always, decide, denyWithReason, isRisky } from "./decision.js";
import { guarded } from "./guarded.js";
/** @import { Clearance } from "../../types/models" */

/** @typedef {{ element: HTMLElement, press: Record<string, () => unknown> }} Buttons with what each key does */

/**
 * The reason why this person may not approve it; nothing if they may.
 *
 * @param {Clearance} clearance
 */
function barred({ explained, approvals }) {
  if (explained?.may_not_approve) return `You cannot approve this: ${clean(explained.may_not_approve)}`;
  const approved = approvals.includes(state.you?.name ?? "");
  return approved ? "You have approved this; another approval is needed" : null;
}

/**
 * The buttons of a pending clearance, without decisions that this person may not make and rules that cannot be created.
 *
 * @param {Clearance} clearance
 * @returns {Buttons}
 */
export function buttons(clearance) {
  // No decision about a request that is not fully visible yet.
  if (clearance.brief) return { element: h("p", { class: "faint" }, "Loading…"), press: {} };
  if (!may(state, "approver")) {
    const words = `Deciding needs the role approver; you are ${state.you?.role}.`;
    return { element: h("p", { class: "faint" }, words), press: {} };
  }
  const approve = () => decide(clearance, { decision: "approve" });
  const deny = () => decide(clearance, { decision: "deny" });
  const reason = () => denyWithReason(clearance);
  const why = barred(clearance);
  const guard = isRisky(clearance) && !why ? guarded("Hold to allow", approve) : null;
  const allow = guard?.element ?? button("Allow once", single(approve), { class: "primary" });
  const remember = clearance.explained?.proposal && !why ? () => always(clearance) : null;
  const noRule = why ?? `No rule can be created: ${clean(clearance.explained?.no_proposal)}`;
  const element = h(
    "div",
    { class: "row actions" },
    why ? h("p", { class: "faint" }, why) : allow,
    remember && button("Always…", single(remember), {}),
    h("span", { class: "grow" }),
    button("Deny", single(deny), { class: "danger" }),
    button("Deny with reason…", single(reason), {}),
  );
  const a = why ? () => toast(why) : (guard?.press ?? approve);
  return { element, press: { a, A: remember ?? (() => toast(noRule)), d: deny, r: reason } };
}

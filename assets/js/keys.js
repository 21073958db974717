// @ts-check
// Keyboard shortcuts. They act on the focused card only; in a field, they are letters.

import { h, confirm } from "./dom.js";
import { state } from "./live.js";
import { may } from "./store.js";
/** @import { Role } from "../types/models" */

/**
 * The keys, their meaning, and the least role for them.
 *
 * @type {Array<[string, string, Role]>}
 */
const HELP = [
  ["a", "allow once", "approver"],
  ["A", "allow always: shows the rule first", "approver"],
  ["d", "deny", "approver"],
  ["r", "deny with a reason", "approver"],
  ["n", "nudge the agent", "operator"],
  ["j, k", "next, previous card or row", "viewer"],
  ["i", "write to the agent", "operator"],
  ["o, Enter", "open the session", "viewer"],
  ["/", "search", "viewer"],
  ["g f, g c, g p, g h, g s", "fleet, clearances, policy, charts, settings", "viewer"],
  ["g a", "audit", "admin"],
  ["?", "this help", "viewer"],
];

/** @param {Event} event */
export const typing = (event) => {
  const at = event.target;
  return at instanceof HTMLElement && (at.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(at.tagName));
};

export function help() {
  const rows = HELP.filter(([, , least]) => may(state, least)).map(([keys, what]) => [
    h(
      "dt",
      {},
      keys.split(", ").map((key, n) => [n ? " " : "", h("kbd", {}, key)]),
    ),
    h("dd", {}, what),
  ]);
  return confirm({
    title: "Keys",
    body: [h("p", { class: "faint" }, "Keys act on the focused card or row."), h("dl", { class: "keys" }, rows)],
    yes: "Close",
    no: null,
  });
}

/**
 * Moves the focus among cards, then rows.
 *
 * @param {1 | -1} step
 */
export function move(step) {
  const all = [...document.querySelectorAll("[data-stop]")]
    .filter((element) => element instanceof HTMLElement)
    .filter((element) => element.offsetParent !== null);
  if (!all.length) return;
  const current = document.activeElement?.closest("[data-stop]");
  const at = current instanceof HTMLElement ? all.indexOf(current) + step : step > 0 ? 0 : all.length - 1;
  const next = all[Math.max(0, Math.min(all.length - 1, at))];
  next.focus();
  next.scrollIntoView({ block: "nearest" });
}

function focusSearch() {
  const field = document.querySelector("input[type=search]");
  if (field instanceof HTMLElement) field.focus();
}

/** @type {Record<string, string>} */
const PLACES = { f: "#/", c: "#/clearances", p: "#/policy", a: "#/audit", h: "#/charts", s: "#/settings" };
let going = 0;
/** Returns true if the next key is the second of a shortcut to a page, and so not meant for a card. */
export const onTheWay = () => Date.now() - going < 1500;

export function listen() {
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event) || document.querySelector("dialog[open]"))
      return;
    if (onTheWay() && PLACES[event.key] && (event.key !== "a" || may(state, "admin")))
      location.hash = PLACES[event.key];
    else if (event.key === "j") move(1);
    else if (event.key === "k") move(-1);
    else if (event.key === "?") help();
    else if (event.key === "g") {
      going = Date.now();
      return;
    } else if (event.key === "/") focusSearch();
    else return;
    going = 0;
    event.preventDefault();
  });
}

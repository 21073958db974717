// @ts-check
// The fleet: all sessions; those that wait for the reader come first.

import { pageBindings } from "./page.js";
import { h, text, attribute, keyed } from "./dom.js";
import { state } from "./live.js";
import * as address from "./address.js";
import { fleet, pendingClearances, pendingQuestions, group } from "./store.js";
import { plural } from "./text.js";
import { fleetRow } from "./fleet/row.js";
/** @import { FleetGroup, View } from "../types/models" */
/** @import { Bind } from "./bind.js" */

/** @type {Array<[FleetGroup | "live" | "all", string]>} */
const SHOWS = [
  ["live", "Live"],
  ["failed", "Failed"],
  ["waiting", "Waiting"],
  ["stuck", "Stuck"],
  ["working", "Working"],
  ["idle", "Idle"],
  ["ended", "Ended"],
  ["all", "All"],
];
const SORTS = [
  ["waiting", "Waiting first"],
  ["newest", "Newest"],
  ["name", "Name"],
  ["quiet", "Longest unchanged"],
];
/** The number of rows that are rendered at once; the rest on demand. */
const PAGE = 200;

/** The default filters. */
const USUAL = { show: "live", search: "", sort: "waiting", rows: PAGE };

/** @typedef {(name: keyof typeof USUAL, value: string | number) => void} SetWish */

/** Counts the sessions of each tab. */
function counts() {
  const found = { live: 0, all: state.sessions.size, failed: 0, waiting: 0, stuck: 0, working: 0, idle: 0, ended: 0 };
  for (const session of state.sessions.values()) found[group(session)] += 1;
  found.live = found.all - found.ended;
  return found;
}

/**
 * @param {Bind} bind
 * @param {typeof USUAL} filters
 * @param {SetWish} set
 */
function tabs(bind, filters, set) {
  const all = SHOWS.map(([name, label]) => {
    const number = h("span", { class: "count tabular" });
    const tab = h("button", { type: "button", class: "tab", onclick: () => set("show", name) }, label, number);
    return { name, tab, number };
  });
  bind(
    () => ({ ...counts(), show: filters.show }),
    (found) => {
      for (const { name, tab, number } of all) {
        attribute(tab, "aria-pressed", String(name === found.show));
        text(number, found[name] || "");
      }
    },
  );
  const buttons = all.map(({ tab }) => tab);
  return h("div", { class: "tabs", role: "group", "aria-label": "Filter sessions" }, buttons);
}

/** @param {Bind} bind */
function callout(bind) {
  const element = h("a", { class: "callout", href: "#/clearances" });
  bind(
    () => [pendingClearances(state).length, pendingQuestions(state).length],
    ([clearances, questions]) => {
      const total = clearances + questions;
      element.hidden = !total;
      const words = [clearances && plural(clearances, "clearance"), questions && plural(questions, "question")];
      text(element, `${words.filter(Boolean).join(" and ")} ${total === 1 ? "waits" : "wait"} for you`);
    },
  );
  return element;
}

/** The text in place of rows. */
function nothing() {
  if (state.sessions.size) return h("p", {}, "No session matches.");
  if (!state.you?.may_start) return h("p", {}, "No agent is running yet.");
  return h(
    "div",
    {},
    h("p", {}, "No agent is running yet. Start one in a terminal:"),
    h("pre", { tabindex: "0" }, h("code", {}, 'intercom run --agent claude "fix the failing test"')),
  );
}

/**
 * @param {Bind} bind
 * @param {typeof USUAL} filters
 * @param {SetWish} set
 */
function rows(bind, filters, set) {
  const list = h("ul", { class: "fleet" });
  const empty = h("div", { class: "empty" });
  const onclick = () => set("rows", filters.rows + PAGE);
  const more = h("button", { type: "button", class: "wide", hidden: true, onclick });
  bind(
    // Each row compares itself with its model.
    () => [fleet(state, filters)],
    ([all]) => {
      keyed(list, all.slice(0, filters.rows), (row) => row.session.id, fleetRow);
      more.hidden = all.length <= filters.rows;
      text(more, `Show ${Math.min(PAGE, all.length - filters.rows)} more of ${all.length}`);
      empty.hidden = all.length > 0;
    },
  );
  bind(
    () => [state.sessions.size > 0, state.you?.may_start],
    () => empty.replaceChildren(nothing()),
  );
  return [list, empty, more];
}

/** @returns {View} */
export function view() {
  const filters = address.filters(USUAL);
  const { bind, draw, close } = pageBindings(5000);
  /** @type {SetWish} */
  const set = (name, value) => {
    Object.assign(filters, { [name]: value });
    address.keep(filters, USUAL);
    draw();
  };
  const search = h("input", {
    type: "search",
    placeholder: "Search",
    "aria-label": "Search sessions",
    value: filters.search,
    oninput: () => set("search", search.value),
  });
  const sort = h(
    "select",
    { "aria-label": "Sort", onchange: () => set("sort", sort.value) },
    SORTS.map(([value, label]) => h("option", { value, selected: value === filters.sort }, label)),
  );
  const element = h(
    "div",
    { class: "page" },
    h("div", { class: "row head" }, h("h1", {}, "Fleet"), h("span", { class: "grow" }), search, sort),
    tabs(bind, filters, set),
    callout(bind),
    rows(bind, filters, set),
  );
  return { element, title: "Fleet", close };
}

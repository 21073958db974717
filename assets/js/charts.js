// @ts-check
// Charts of the human loop: time to decisions, agents' waiting time, number of events.

import * as api from "./api.js";
import { h } from "./dom.js";
import { on, state } from "./live.js";
import * as address from "./address.js";
import { bars } from "./charts/bars.js";
import { figures } from "./figures.js";
import { select } from "./select.js";
import { clean, plural, short, span } from "./text.js";
/** @import { GetAnswer, View } from "../types/models" */

/** @typedef {GetAnswer<"/figures">} Figures */

/** @type {Array<[number, string]>} */
const SPANS = [
  [1, "an hour"],
  [24, "a day"],
  [168, "a week"],
  [720, "a month"],
];
const USUAL = { hours: 24, session: "" };
/** The limit on sessions in the menu, the newest. */
const MOST = 200;
/** The shortest interval between updates of the charts. */
const AGAIN = 15000;

/** @param {number | null} value */
const seconds = (value) => (value == null ? "–" : value < 10 ? `${value.toFixed(1)}s` : span(value * 1000));

/** @param {number} value */
const rate = (value) => `${value >= 10 ? Math.round(value).toLocaleString() : value.toFixed(1)} per minute`;

/** @param {Figures} found */
function charts(found) {
  const stretch = found.stretch_seconds;
  /** @param {(stretch: Figures["stretches"][number]) => number | null} value */
  const points = (value) => found.stretches.map((each) => ({ at: each.at, value: value(each) ?? 0 }));
  return [
    bars({
      title: "Time to decision",
      note: `Median of ${plural(found.decided, "decision")} by people`,
      points: points((each) => each.median_seconds),
      say: seconds,
      stretch,
    }),
    bars({
      title: "Blocked agent-minutes",
      note: `Agents waited for people ${seconds(found.blocked_seconds)} in total`,
      points: points((each) => each.blocked_seconds),
      say: seconds,
      stretch,
    }),
    bars({
      title: "Events per minute",
      note: `${found.events.toLocaleString()} in total`,
      points: points((each) => (each.events * 60) / stretch),
      say: rate,
      stretch,
    }),
  ];
}

/**
 * @param {HTMLElement} place
 * @param {Figures} found
 */
function draw(place, found) {
  const tables = () => [...place.querySelectorAll(".chart")].map((chart) => chart.querySelector("details"));
  // An opened table stays open.
  const open = tables().map((table) => table?.open ?? false);
  place.replaceChildren(
    figures([
      [seconds(found.median_seconds), "median to a decision"],
      [seconds(found.ninetieth_seconds), "90th percentile"],
      [found.decided, "decided by people"],
      [seconds(found.blocked_seconds), "agents waited"],
      [found.events.toLocaleString(), "events"],
    ]),
    h("div", { class: "charts" }, charts(found)),
  );
  tables().forEach((table, n) => table && (table.open = open[n] ?? false));
}

/** @returns {Array<[string, string]>} */
function sessions() {
  const newest = [...state.sessions.values()].sort((a, b) => b.created_at.localeCompare(a.created_at)).slice(0, MOST);
  return [
    ["", "All sessions"],
    ...newest.map(({ id, name }) => /** @type {[string, string]} */ ([id, name ? clean(name) : short(id)])),
  ];
}

/** @returns {View} */
export function view() {
  const filters = address.filters(USUAL);
  const place = h("div", {});
  let turn = 0;
  async function load() {
    const mine = (turn += 1);
    try {
      const found = await api.get(
        `/figures?hours=${filters.hours}${filters.session ? `&session=${filters.session}` : ""}`,
      );
      if (mine === turn) draw(place, found); // unless another selection was made meanwhile
    } catch (error) {
      if (mine === turn) place.replaceChildren(h("p", { class: "trouble" }, api.why(error)));
    }
  }
  /** @param {Partial<typeof filters>} more */
  const want = (more) => {
    Object.assign(filters, more);
    address.keep(filters, USUAL);
    load();
  };
  const session = select(sessions(), filters.session, (value) => want({ session: value }), { "aria-label": "Session" });
  const hours = select(SPANS, filters.hours, (value) => want({ hours: Number(value) }), { "aria-label": "Time range" });
  load();
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let due;
  const later = () => {
    due = undefined;
    load();
  };
  const off = on("change", () => {
    due ??= setTimeout(later, AGAIN);
  });
  const head = h("div", { class: "row head" }, h("h1", {}, "Charts"), h("span", { class: "grow" }), session, hours);
  const close = () => {
    off();
    clearTimeout(due);
  };
  return { element: h("div", { class: "page" }, head, place), title: "Charts", close };
}

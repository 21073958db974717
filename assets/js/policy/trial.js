// @ts-check
// A trial of other rules against past requests.

import * as api from "../api.js";
import { badge } from "../card/request.js";
import { button, h } from "../dom.js";
import { figures } from "../figures.js";
import { select } from "../select.js";
import { row, table } from "../table.js";
import { clean, line, short } from "../text.js";
/** @import { PostAnswer } from "../../types/models" */

const EXAMPLE = '[[rule]]\nname = "tests"\nthen = "allow"\ncommand = "cargo test"\n';
/** @type {Array<[string, string]>} */
const DAYS = [
  ["1", "day"],
  ["7", "week"],
  ["30", "month"],
  ["", "(all time)"],
];
/** The limit on shown differences. */
const MOST = 200;

/** @param {PostAnswer<"/policy/test">} tried */
function result({ requests, allowed, denied, asked, different, differences }) {
  const rows = differences
    .slice(0, MOST)
    .map((each) =>
      row(
        badge(each.risk),
        h("a", { class: "wrap", href: `#/s/${each.session}` }, line(each)),
        `${clean(each.was)} → ${clean(each.would.outcome)}`,
        clean(each.would.why),
        h("span", { class: "mono" }, short(each.clearance)),
      ),
    );
  return h(
    "div",
    {},
    figures([
      [requests, "requests"],
      [allowed, "allowed"],
      [denied, "denied"],
      [asked, "asked"],
      [different, "decided differently"],
    ]),
    rows.length
      ? table(["Risk", "Request", "Was → would be", "Why", "Id"], rows)
      : h("p", {}, "No decision would have been different."),
  );
}

export function trial() {
  const field = h("textarea", { id: "rules", class: "mono", rows: "7", spellcheck: "false", value: EXAMPLE });
  const days = select(DAYS, "7", () => {}, { id: "since" });
  const place = h("div", { "aria-live": "polite" });
  const run = async () => {
    place.replaceChildren(h("p", { class: "faint" }, "Testing …"));
    try {
      const since = days.value ? new Date(Date.now() - Number(days.value) * 86400000).toISOString() : null;
      place.replaceChildren(result(await api.post("/policy/test", { rules: field.value, since })));
    } catch (error) {
      const words = error instanceof Error ? error.message : error;
      place.replaceChildren(h("pre", { class: "trouble", tabindex: "0" }, clean(words)));
    }
  };
  const about = "Tests rules, in the format of the configuration, against past requests. Nothing changes.";
  const since = h("label", { for: "since" }, "Requests of the last");
  return [
    h("p", { class: "faint" }, about),
    h("label", { for: "rules" }, "Rules"),
    field,
    h("div", { class: "row" }, since, days, button("Try", run, { class: "primary" })),
    place,
  ];
}

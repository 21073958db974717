// @ts-check
// Policy: the rules in force, grants, and a trial of other rules.

import * as api from "./api.js";
import { h } from "./dom.js";
import { state } from "./live.js";
import { may } from "./store.js";
import { clock, fieldsOf } from "./text.js";
import { grantTable } from "./policy/grants.js";
import { ruleTable } from "./policy/rules.js";
import { trial } from "./policy/trial.js";
/** @import { View } from "../types/models" */

/** @returns {View} */
export function view() {
  const [rules, grants] = [h("div", {}), h("div", {})];
  const loaded = h("span", { class: "faint" });
  const load = async () => {
    try {
      const [policy, list] = await Promise.all([api.get("/policy"), api.get("/grants")]);
      loaded.textContent = `in force since ${clock(policy.loaded_at)}`;
      rules.replaceChildren(ruleTable(policy.rules.map(fieldsOf)));
      grants.replaceChildren(grantTable(list.items, load));
    } catch (error) {
      rules.replaceChildren(h("p", { class: "trouble" }, api.why(error)));
    }
  };
  load();
  const element = h(
    "div",
    { class: "page" },
    h("h1", {}, "Policy"),
    h(
      "section",
      { class: "panel" },
      h("div", { class: "row" }, h("h2", {}, "Rules"), loaded),
      h("p", { class: "faint" }, "The first matching rule decides; if none matches, people decide."),
      rules,
    ),
    h("section", { class: "panel" }, h("h2", {}, "Grants"), grants),
    may(state, "approver") && h("section", { class: "panel" }, h("h2", {}, "Try other rules"), trial()),
  );
  return { element, title: "Policy", close() {} };
}

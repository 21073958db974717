// Policy: the rules in force, what was allowed always, and what other rules would have done.

import * as api from "./api.js";
import { h, button, ask, toast } from "./dom.js";
import { state } from "./live.js";
import { may } from "./store.js";
import { clean, clock, line, short } from "./text.js";
import { badge } from "./card.js";

const shown = (value) => clean(typeof value === "object" ? JSON.stringify(value) : String(value));

function criteria(rule) {
  const skip = new Set(["then", "name"]);
  const parts = Object.entries(rule).filter(
    ([name, value]) => !skip.has(name) && value != null && !(Array.isArray(value) && !value.length),
  );
  if (!parts.length) return h("span", { class: "faint" }, "anything");
  return h("span", { class: "mono wrap" }, parts.map(([name, value]) => `${clean(name)} = ${shown(value)}`).join(", "));
}

function ruleTable(rules) {
  if (!rules.length) return h("p", { class: "faint" }, "There are none: everything is asked.");
  const row = (rule, n) =>
    h(
      "tr",
      {},
      h("td", { class: "tabular" }, String(n + 1)),
      h("td", {}, h("span", { class: `badge then-${clean(rule.then ?? "ask")}` }, clean(rule.then ?? "ask"))),
      h("td", {}, rule.name ? clean(rule.name) : ""),
      h("td", {}, criteria(rule)),
    );
  return h(
    "div",
    { class: "scroll", tabindex: "0" },
    h(
      "table",
      {},
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          ["#", "Then", "Name", "If"].map((title) => h("th", { scope: "col" }, title)),
        ),
      ),
      h("tbody", {}, rules.map(row)),
    ),
  );
}

function grantTable(grants, again) {
  if (!grants.length) return h("p", { class: "faint" }, "Nothing is allowed always.");
  const revoke = async (grant) => {
    if (
      !(await ask({
        title: "Revoke this grant?",
        body: [h("p", { class: "mono wrap" }, shown(grant.rule))],
        yes: "Revoke",
        danger: true,
      }))
    )
      return;
    try {
      await api.del(`/grants/${grant.id}`);
      toast("Revoked");
    } catch (error) {
      toast(api.why(error), "error");
    }
    again();
  };
  const stand = (grant) =>
    grant.revoked_at
      ? `revoked ${clock(grant.revoked_at)}`
      : grant.expires_at
        ? `${grant.valid ? "until" : "expired"} ${clock(grant.expires_at)}`
        : "until revoked";
  const row = (grant) =>
    h(
      "tr",
      { class: grant.valid ? "" : "faint" },
      h("td", {}, criteria(grant.rule ?? {})),
      h("td", {}, `${clean(grant.created_by)}, ${clock(grant.created_at)}`),
      h("td", {}, stand(grant)),
      h(
        "td",
        {},
        grant.valid && may(state, "approver")
          ? button("Revoke…", () => revoke(grant), { class: "small danger" })
          : null,
      ),
    );
  return h(
    "div",
    { class: "scroll", tabindex: "0" },
    h(
      "table",
      {},
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          ["Allows", "By", "Lasts", ""].map((title) =>
            h("th", { scope: "col" }, title || h("span", { class: "unseen" }, "Actions")),
          ),
        ),
      ),
      h("tbody", {}, grants.map(row)),
    ),
  );
}

const EXAMPLE = '[[rule]]\nname = "tests"\nthen = "allow"\ncommand = "cargo test"\n';

function dryRun() {
  const field = h("textarea", { id: "rules", class: "mono", rows: "7", spellcheck: "false", value: EXAMPLE });
  const days = h(
    "select",
    { id: "since" },
    [
      ["1", "a day"],
      ["7", "a week"],
      ["30", "a month"],
      ["", "all time"],
    ].map(([value, label]) => h("option", { value, selected: value === "7" }, label)),
  );
  const place = h("div", { "aria-live": "polite" });
  const run = async () => {
    place.replaceChildren(h("p", { class: "faint" }, "Trying …"));
    try {
      const since = days.value ? new Date(Date.now() - Number(days.value) * 86400000).toISOString() : null;
      place.replaceChildren(result(await api.post("/policy/test", { rules: field.value, since })));
    } catch (error) {
      place.replaceChildren(h("pre", { class: "trouble", tabindex: "0" }, clean(error.message)));
    }
  };
  return [
    h("p", { class: "faint" }, "Rules in the form of the configuration, held against what was asked. Nothing changes."),
    h("label", { for: "rules" }, "Rules"),
    field,
    h(
      "div",
      { class: "row" },
      h("label", { for: "since" }, "What was asked in"),
      days,
      button("Try", run, { class: "primary" }),
    ),
    place,
  ];
}

function result(tried) {
  const numbers = [
    ["asked for", tried.requests],
    ["allowed", tried.allowed],
    ["denied", tried.denied],
    ["asked", tried.asked],
    ["different from what was", tried.different],
  ];
  const row = (each) =>
    h(
      "tr",
      {},
      h("td", {}, badge(each.risk)),
      h("td", {}, h("a", { class: "wrap", href: `#/s/${each.session}` }, line(each))),
      h("td", {}, `${clean(each.was)} → ${clean(each.would.outcome)}`),
      h("td", {}, clean(each.would.why)),
      h("td", { class: "mono" }, short(each.clearance)),
    );
  return h(
    "div",
    {},
    h(
      "div",
      { class: "figures" },
      numbers.map(([label, value]) =>
        h(
          "div",
          { class: "figure" },
          h("strong", { class: "tabular" }, String(value)),
          h("span", { class: "faint" }, label),
        ),
      ),
    ),
    tried.differences.length
      ? h(
          "div",
          { class: "scroll", tabindex: "0" },
          h(
            "table",
            {},
            h(
              "thead",
              {},
              h(
                "tr",
                {},
                ["Risk", "What", "Was, would be", "Why", "Id"].map((title) => h("th", { scope: "col" }, title)),
              ),
            ),
            h("tbody", {}, tried.differences.slice(0, 200).map(row)),
          ),
        )
      : h("p", {}, "Nothing would have gone another way."),
  );
}

export function view() {
  const [rules, grants] = [h("div", {}), h("div", {})];
  const loaded = h("span", { class: "faint" });
  const load = async () => {
    try {
      const [policy, list] = await Promise.all([api.get("/policy"), api.get("/grants")]);
      loaded.textContent = `in force since ${clock(policy.loaded_at)}`;
      rules.replaceChildren(ruleTable(policy.rules));
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
      h("p", { class: "faint" }, "The first that matches decides; without one, people are asked."),
      rules,
    ),
    h("section", { class: "panel" }, h("h2", {}, "Allowed always"), grants),
    may(state, "approver") ? h("section", { class: "panel" }, h("h2", {}, "Try other rules"), dryRun()) : null,
  );
  return { element, title: "Policy", close() {} };
}

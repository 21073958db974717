// The audit: who did what, and whether anything was changed since.

import * as api from "./api.js";
import { h, button, text } from "./dom.js";
import { state } from "./live.js";
import * as address from "./address.js";
import { may } from "./store.js";
import { about, actor } from "./auditwords.js";
import { clean, clock, plural, short } from "./text.js";

/** Rows that are fetched, the newest; who wants more has the command line. */
const MOST = 20000;
const PAGE = 200;
/** What is listed unless the address says otherwise; no days are all of them. */
const USUAL = { days: "7", search: "" };

/** The name of a session by the rows of the audit, else by what is known of it, else its id. */
const nameIn = (names) => (id) => clean(names.get(id) ?? state.sessions.get(id)?.name ?? short(id));

export function view() {
  if (!may(state, "admin"))
    return {
      element: h(
        "div",
        { class: "page" },
        h("h1", {}, "Audit"),
        h("p", { class: "faint" }, `The audit is for admins; you are ${state.you?.role}.`),
      ),
      title: "Audit",
      close() {},
    };
  const wish = address.filters(USUAL);
  const keep = () => address.keep({ days: days.value, search: search.value }, USUAL);
  let [rows, most, turn] = [[], PAGE, 0];
  const names = new Map();
  const nameOf = nameIn(names);
  // Whether there is more than we have.
  let older = false;
  const body = h("tbody", {});
  const said = h("p", { class: "faint", role: "status" });
  const search = h("input", {
    type: "search",
    placeholder: "Search",
    "aria-label": "Search the audit",
    value: wish.search,
    oninput: () => ((most = PAGE), keep(), draw()),
  });
  const days = h(
    "select",
    { "aria-label": "How far back", onchange: () => (keep(), load()) },
    [
      ["1", "a day"],
      ["7", "a week"],
      ["30", "a month"],
      ["", "all"],
    ].map(([value, label]) => h("option", { value, selected: value === wish.days }, label)),
  );
  const more = button("Show more", () => ((most += PAGE), draw()), { class: "wide" });
  const verified = h("span", { class: "faint", role: "status" });
  const verify = button("Verify", async () => {
    verified.textContent = "Looking at every row …";
    try {
      const found = await api.get("/audit/verify");
      verified.textContent = found.whole
        ? `Whole: ${plural(found.rows, "row")}, head ${found.head.slice(0, 16)}…`
        : `The chain is broken: ${found.problems.map((each) => `row ${each.n}: ${clean(each.what)}`).join("; ")}`;
    } catch (error) {
      verified.textContent = api.why(error);
    }
  });

  const row = (each) =>
    h(
      "tr",
      {},
      h("td", { class: "tabular" }, String(each.n)),
      h("td", { class: "tabular" }, clock(each.at)),
      h("td", {}, clean(each.action)),
      h("td", {}, actor(each, nameOf)),
      h("td", {}, each.session ? h("a", { href: `#/s/${each.session}` }, nameOf(each.session)) : ""),
      h("td", { class: "wrap faint" }, about(each.action, each.data)),
    );

  function draw() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = rows.filter((each) => {
      if (!words.length) return true;
      const all = [
        each.n,
        each.action,
        actor(each, nameOf),
        each.session,
        each.session && nameOf(each.session),
        JSON.stringify(each.data),
      ]
        .join(" ")
        .toLowerCase();
      return words.every((word) => all.includes(word));
    });
    body.replaceChildren(...found.slice(0, most).map(row));
    more.hidden = found.length <= most;
    const all = `${found.length.toLocaleString()} of ${plural(rows.length, "row")}, newest first`;
    text(said, older ? `${all}; older ones: intercom audit` : all);
  }

  async function load() {
    const mine = (turn += 1);
    const read = [];
    text(said, "Reading …");
    const since = days.value
      ? `&since=${encodeURIComponent(new Date(Date.now() - Number(days.value) * 86400000).toISOString())}`
      : "";
    try {
      let before = Number.MAX_SAFE_INTEGER;
      while (before && read.length < MOST) {
        const page = await api.get(`/audit?limit=1000&before=${before}${since}`);
        if (mine !== turn) return; // another stretch of time is wanted by now, or another page
        read.push(...page.items);
        before = page.next;
      }
      [rows, older] = [read, Boolean(before)];
      for (const { session, action, data } of rows)
        if (session && action.startsWith("session.") && typeof data?.name === "string") names.set(session, data.name);
      draw();
    } catch (error) {
      if (mine === turn) text(said, api.why(error));
    }
  }
  load();
  const element = h(
    "div",
    { class: "page" },
    h("div", { class: "row head" }, h("h1", {}, "Audit"), h("span", { class: "grow" }), search, days, verify),
    verified,
    said,
    h(
      "div",
      { class: "scroll", tabindex: "0" },
      h(
        "table",
        { class: "audit" },
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            ["#", "When", "What", "By", "Session", "Details"].map((title) => h("th", { scope: "col" }, title)),
          ),
        ),
        body,
      ),
    ),
    more,
  );
  return { element, title: "Audit", close: () => (turn += 1) };
}

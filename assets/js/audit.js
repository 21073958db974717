// @ts-check
// The audit: the actions of everybody, and the verification of its chain.

import * as api from "./api.js";
import { bindings } from "./bind.js";
import { h, button, text } from "./dom.js";
import { state } from "./live.js";
import * as address from "./address.js";
import { may } from "./store.js";
import { select } from "./select.js";
import { about, actor } from "./auditwords.js";
import { table } from "./table.js";
import { clean, clock, fieldsOf, plural, short } from "./text.js";
/** @import { GetAnswer, View } from "../types/models" */

/** @typedef {GetAnswer<"/audit">["items"][number]} AuditRow */
/** @typedef {(id: string) => string} NameOf a session */

/** The limit on fetched rows, the newest; the command line has the rest. */
const MOST = 20000;
const PAGE = 200;
/** The default filters; an empty `days` means all. */
const USUAL = { days: "7", search: "" };
/** @type {Array<[string, string]>} */
const DAYS = [
  ["1", "a day"],
  ["7", "a week"],
  ["30", "a month"],
  ["", "all time"],
];

/**
 * The name of a session from the rows of the audit, else from the state, else its id.
 *
 * @param {AuditRow[]} rows
 * @returns {NameOf}
 */
function namesIn(rows) {
  /** @type {Map<string, string>} */
  const names = new Map();
  for (const { session, action, data } of rows) {
    const { name } = fieldsOf(data);
    if (session && action.startsWith("session.") && typeof name === "string") names.set(session, name);
  }
  return (id) => clean(names.get(id) ?? state.sessions.get(id)?.name ?? short(id));
}

/**
 * The newest rows of some days, or nothing once `isWanted` says no. `older`: there are more than these.
 *
 * @param {string} days
 * @param {() => boolean} isWanted
 */
async function read(days, isWanted) {
  const from = new Date(Date.now() - Number(days) * 86400000).toISOString();
  const since = days ? `&since=${encodeURIComponent(from)}` : "";
  /** @type {AuditRow[]} */
  const rows = [];
  /** @type {number | null} */
  let before = Number.MAX_SAFE_INTEGER;
  while (before && rows.length < MOST) {
    /** @type {GetAnswer<"/audit">} */
    const page = await api.get(`/audit?limit=1000&before=${before}${since}`);
    if (!isWanted()) return null;
    rows.push(...page.items);
    before = page.next;
  }
  return { rows, older: Boolean(before), nameOf: namesIn(rows) };
}

/**
 * The rows that contain all of these words.
 *
 * @param {AuditRow[]} rows
 * @param {NameOf} nameOf
 * @param {string} search
 */
function matching(rows, nameOf, search) {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return rows;
  return rows.filter((each) => {
    const { n, action, session, data } = each;
    const all = [n, action, actor(each, nameOf), session, session && nameOf(session), JSON.stringify(data)];
    const text = all.join(" ").toLowerCase();
    return words.every((word) => text.includes(word));
  });
}

/**
 * @param {AuditRow} each
 * @param {NameOf} nameOf
 */
const line = (each, nameOf) =>
  h(
    "tr",
    {},
    h("td", { class: "tabular" }, String(each.n)),
    h("td", { class: "tabular" }, clock(each.at)),
    h("td", {}, clean(each.action)),
    h("td", {}, actor(each, nameOf)),
    h("td", {}, each.session && h("a", { href: `#/s/${each.session}` }, nameOf(each.session))),
    h("td", { class: "wrap faint" }, about(each.action, each.data)),
  );

/** The button that verifies the chain, with its result. */
function verification() {
  const found = h("span", { class: "faint", role: "status" });
  const verify = button("Verify", async () => {
    found.textContent = "Verifying every row …";
    try {
      const { whole, rows, head, problems } = await api.get("/audit/verify");
      const broken = problems.map((each) => `row ${each.n}: ${clean(each.what)}`).join("; ");
      found.textContent = whole
        ? `Intact: ${plural(rows, "row")}, head ${head.slice(0, 16)}…`
        : `The chain is broken: ${broken}`;
    } catch (error) {
      found.textContent = api.why(error);
    }
  });
  return { verify, found };
}

/** The model of the selected rows, and its loading. */
function audit() {
  const filters = { ...address.filters(USUAL), most: PAGE };
  /** @type {{ rows: AuditRow[], older: boolean, nameOf: NameOf, words: string | null }} */
  let known = { rows: [], older: false, nameOf: namesIn([]), words: null };
  const { bind, draw } = bindings();
  let turn = 0;

  async function load() {
    const mine = (turn += 1);
    known = { ...known, words: "Loading …" };
    draw();
    try {
      const found = await read(filters.days, () => mine === turn);
      if (!found) return; // the person has chosen another time range or page meanwhile
      known = { ...found, words: null };
    } catch (error) {
      if (mine !== turn) return;
      known = { ...known, words: api.why(error) };
    }
    draw();
  }
  /** @param {Partial<typeof filters>} more */
  const want = (more) => {
    Object.assign(filters, more);
    address.keep({ days: filters.days, search: filters.search }, USUAL);
    if ("days" in more) load();
    else draw();
  };
  load();
  return { filters, want, bind, known: () => known, close: () => void (turn += 1) };
}

/** @param {ReturnType<typeof audit>} model */
function listing({ filters, want, bind, known }) {
  const body = h("tbody", {});
  const said = h("p", { class: "faint", role: "status" });
  const more = button("Show more", () => want({ most: filters.most + PAGE }), { class: "wide" });
  bind(
    () => ({ ...filters, ...known() }),
    ({ rows, older, nameOf, search, most, words }) => {
      if (words) return text(said, words);
      const found = matching(rows, nameOf, search);
      body.replaceChildren(...found.slice(0, most).map((each) => line(each, nameOf)));
      more.hidden = found.length <= most;
      const all = `${found.length.toLocaleString()} of ${plural(rows.length, "row")}, newest first`;
      text(said, older ? `${all}; older ones: intercom audit` : all);
    },
  );
  return [said, table(["#", "When", "What", "By", "Session", "Details"], body, "audit"), more];
}

/** @returns {View} */
export function view() {
  if (!may(state, "admin")) {
    const words = `The audit is for admins; you are ${state.you?.role}.`;
    const element = h("div", { class: "page" }, h("h1", {}, "Audit"), h("p", { class: "faint" }, words));
    return { element, title: "Audit", close() {} };
  }
  const model = audit();
  const { filters, want } = model;
  const search = h("input", {
    type: "search",
    placeholder: "Search",
    "aria-label": "Search the audit",
    value: filters.search,
    oninput: () => want({ search: search.value, most: PAGE }),
  });
  const days = select(DAYS, filters.days, (value) => want({ days: value }), { "aria-label": "Time range" });
  const { verify, found } = verification();
  const head = [h("h1", {}, "Audit"), h("span", { class: "grow" }), search, days, verify];
  const element = h("div", { class: "page" }, h("div", { class: "row head" }, head), found, listing(model));
  return { element, title: "Audit", close: model.close };
}

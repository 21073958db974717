// The fleet: every session, and first those that wait for you.

import { h, text, attribute, keyed } from "./dom.js";
import { state, on } from "./live.js";
import * as address from "./address.js";
import { fleet, progress, pendingClearances, pendingQuestions, GROUPS, waitingBySession, group } from "./store.js";
import { clean, cost, localTimes, plural, project, short, since } from "./text.js";
import { checklist } from "./checklist.js";

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
  ["quiet", "Longest as it is"],
];
/** Rows that are drawn at once; the rest on demand. */
const PAGE = 200;

/** What is listed unless the address says otherwise. */
const USUAL = { show: "live", search: "", sort: "waiting", rows: PAGE };

export const phaseWord = (row) => {
  if (row.waits && row.waits.clearances + row.waits.questions > 0) return "waiting";
  if (row.group === "failed") return "failed";
  if (row.group === "stuck" && row.session.standing?.state === "orphan") return "orphan";
  if (row.group === "stuck") return row.session.phase === "parked" ? "parked" : "stuck";
  return row.session.phase;
};

function waits(row) {
  const { clearances = 0, questions = 0, risk } = row.waits ?? {};
  return [
    clearances && (clearances === 1 ? `${risk} risk` : `${clearances} clearances, ${risk}`),
    questions && plural(questions, "question"),
  ]
    .filter(Boolean)
    .join(", ");
}

function create() {
  const parts = {
    dot: h("span", { class: "dot", "aria-hidden": "true" }),
    phase: h("span", { class: "phase" }),
    time: h("span", { class: "time tabular" }),
    name: h("span", { class: "name" }),
    place: h("span", { class: "place faint" }),
    why: h("span", { class: "why" }),
    waits: h("span", { class: "badge wait" }),
    stall: h("span", { class: "badge stall" }),
    unenforced: h("span", { class: "badge unenforced" }, "unenforced"),
    bar: h("progress", { max: "1", value: 0 }),
    step: h("span", { class: "step faint" }),
    list: h("div", {}),
  };
  const link = h(
    "a",
    { class: "session", data: { stop: "row" } },
    h("span", { class: "status" }, parts.dot, parts.phase, parts.time),
    h("span", { class: "who" }, parts.name, parts.place),
    h("span", { class: "what" }, parts.why, h("span", { class: "badges" }, parts.waits, parts.stall, parts.unenforced)),
  );
  // Beside the link, not in it: it opens by itself.
  const plan = h("details", { class: "steps" }, h("summary", { class: "progress" }, parts.bar, parts.step), parts.list);
  return { element: h("li", {}, link, plan), link, plan, parts };
}

function update({ element, link, plan, parts }, row) {
  const { session } = row;
  const word = phaseWord(row);
  attribute(link, "href", `#/s/${session.id}`);
  attribute(link, "class", `session ${row.group}`);
  attribute(link, "data-risk", row.waits?.risk ?? null);
  text(parts.phase, word);
  text(parts.time, since(row.waits?.since ?? session.since));
  text(parts.name, session.name ? clean(session.name) : short(session.id));
  const place = [project(session.workspace), clean(session.agent ?? session.protocol), cost(session.spent)];
  text(parts.place, place.filter(Boolean).join(" · "));
  const said = session.said && row.group !== "ended" ? ` · ${session.said}` : "";
  text(parts.why, clean(row.waits?.first ?? localTimes(`${session.why}${said}`)));
  const waiting = waits(row);
  parts.waits.hidden = !waiting;
  attribute(parts.waits, "class", `badge wait ${row.waits?.risk ?? ""}`);
  text(parts.waits, waiting);
  const stall = session.standing?.done;
  parts.stall.hidden = !stall;
  text(parts.stall, stall ? clean(stall) : "");
  parts.unenforced.hidden = !session.unenforced;
  attribute(parts.unenforced, "title", session.unenforced ? clean(session.unenforced) : "");
  const made = progress(session);
  plan.hidden = !made;
  attribute(element, "class", made ? "planned" : null);
  if (!made) return;
  attribute(parts.bar, "max", made.of);
  if (parts.bar.value !== made.done) parts.bar.value = made.done;
  attribute(parts.bar, "aria-label", `${made.done} of ${made.of} steps done`);
  const now =
    made.steps.find((step) => step.status === "in_progress") ?? made.steps.find((step) => step.status !== "completed");
  text(parts.step, `${made.done}/${made.of}${now ? ` ${clean(now.text)}` : ""}`);
  const version = JSON.stringify(made.steps);
  if (version === parts.list.dataset.version) return;
  parts.list.dataset.version = version;
  parts.list.replaceChildren(checklist(made.steps));
}

export function view() {
  const wish = address.filters(USUAL);
  const set = (name, value) => {
    wish[name] = value;
    address.keep(wish, USUAL);
    draw();
  };
  const list = h("ul", { class: "fleet" });
  const empty = h("div", { class: "empty" });
  const more = h("button", {
    type: "button",
    class: "wide",
    hidden: true,
    onclick: () => set("rows", wish.rows + PAGE),
  });
  const call = h("a", { class: "callout", href: "#/clearances" });
  const search = h("input", {
    type: "search",
    placeholder: "Search",
    "aria-label": "Search sessions",
    value: wish.search,
    oninput: () => set("search", search.value),
  });
  const tabs = SHOWS.map(([name, label]) => {
    const number = h("span", { class: "count tabular" });
    const tab = h("button", { type: "button", class: "tab", onclick: () => set("show", name) }, label, number);
    return { name, tab, number };
  });
  const sort = h(
    "select",
    { "aria-label": "Sort", onchange: () => set("sort", sort.value) },
    SORTS.map(([value, label]) => h("option", { value, selected: value === wish.sort }, label)),
  );
  const element = h(
    "div",
    { class: "page" },
    h("div", { class: "row head" }, h("h1", {}, "Fleet"), h("span", { class: "grow" }), search, sort),
    h(
      "div",
      { class: "tabs", role: "group", "aria-label": "Which sessions" },
      tabs.map(({ tab }) => tab),
    ),
    call,
    list,
    empty,
    more,
  );
  function draw() {
    const waitsBy = waitingBySession(state);
    const counts = Object.fromEntries(GROUPS.map((name) => [name, 0]));
    for (const session of state.sessions.values()) counts[group(session, waitsBy.get(session.id))] += 1;
    counts.all = state.sessions.size;
    counts.live = counts.all - counts.ended;
    for (const { name, tab, number } of tabs) {
      attribute(tab, "aria-pressed", String(name === wish.show));
      text(number, counts[name] || "");
    }
    const rows = fleet(state, wish);
    keyed(list, rows.slice(0, wish.rows), (row) => row.session.id, create, update);
    more.hidden = rows.length <= wish.rows;
    text(more, `Show ${Math.min(PAGE, rows.length - wish.rows)} more of ${rows.length}`);
    const waiting = [pendingClearances(state).length, pendingQuestions(state).length];
    call.hidden = !(waiting[0] + waiting[1]);
    const words = [waiting[0] && plural(waiting[0], "clearance"), waiting[1] && plural(waiting[1], "question")]
      .filter(Boolean)
      .join(" and ");
    text(call, `${words} ${waiting[0] + waiting[1] === 1 ? "waits" : "wait"} for you`);
    empty.hidden = rows.length > 0;
    if (rows.length === 0) {
      empty.replaceChildren(
        state.sessions.size
          ? h("p", {}, "No session matches.")
          : state.you?.may_start
            ? h(
                "div",
                {},
                h("p", {}, "No agent runs yet. Start one in a terminal:"),
                h("pre", { tabindex: "0" }, h("code", {}, 'intercom run --agent claude "fix the failing test"')),
              )
            : h("p", {}, "No agent runs yet."),
      );
    }
  }
  draw();
  const off = on("change", draw);
  const tick = setInterval(draw, 5000);
  return { element, title: "Fleet", close: () => (off(), clearInterval(tick)) };
}

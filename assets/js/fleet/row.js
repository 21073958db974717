// @ts-check
// One session in the fleet: its state, its pending requests, its progress.

import { bindings } from "../bind.js";
import { h, text, attribute } from "../dom.js";
import { progress } from "../store.js";
import { clean, cost, localTimes, plural, project, short, since } from "../text.js";
import { checklist } from "../checklist.js";
/** @import { FleetRow, PlanStep } from "../../types/models" */
/** @import { Bind } from "../bind.js" */

/** @typedef {() => FleetRow} RowModel */

/** @param {FleetRow} row */
export function phaseWord({ session, group }) {
  if (group === "failed") return "failed";
  if (group !== "stuck") return session.phase;
  if (session.standing?.state === "orphan") return "orphan";
  return session.phase === "parked" ? "parked" : "stuck";
}

/** @param {FleetRow} row */
function waitsFor({ waits }) {
  if (!waits) return "";
  const { clearances, questions, risk } = waits;
  const asked = clearances === 1 ? `${risk} risk` : `${clearances} clearances, ${risk}`;
  return [clearances && asked, questions && plural(questions, "question")].filter(Boolean).join(", ");
}

/**
 * @param {Bind} bind
 * @param {RowModel} row
 */
function status(bind, row) {
  const phase = h("span", { class: "phase" });
  const time = h("span", { class: "time tabular" });
  bind(
    () => phaseWord(row()),
    (word) => text(phase, word),
  );
  bind(
    () => since(row().waits?.since ?? row().session.since),
    (lasts) => text(time, lasts),
  );
  return h("span", { class: "status" }, h("span", { class: "dot", "aria-hidden": "true" }), phase, time);
}

/**
 * @param {Bind} bind
 * @param {RowModel} row
 */
function who(bind, row) {
  const [name, place] = [h("span", { class: "name" }), h("span", { class: "place faint" })];
  bind(
    () => row().session,
    (session) => {
      text(name, session.name ? clean(session.name) : short(session.id));
      const parts = [project(session.workspace), clean(session.agent ?? session.protocol), cost(session.spent)];
      text(place, parts.filter(Boolean).join(" · "));
    },
  );
  return h("span", { class: "who" }, name, place);
}

/**
 * @param {Bind} bind
 * @param {RowModel} row
 */
function what(bind, row) {
  const why = h("span", { class: "why" });
  const waits = h("span", { class: "badge wait" });
  const stall = h("span", { class: "badge stall" });
  const unenforced = h("span", { class: "badge unenforced" }, "unenforced");
  bind(
    () => {
      const { session, waits, group } = row();
      const said = session.said && group !== "ended" ? ` · ${session.said}` : "";
      return clean(waits?.first ?? localTimes(`${session.why}${said}`));
    },
    (reason) => text(why, reason),
  );
  bind(
    () => ({ words: waitsFor(row()), risk: row().waits?.risk ?? "" }),
    ({ words, risk }) => {
      waits.hidden = !words;
      attribute(waits, "class", `badge wait ${risk}`);
      text(waits, words);
    },
  );
  bind(
    () => row().session.standing?.done,
    (done) => {
      stall.hidden = !done;
      text(stall, done ? clean(done) : "");
    },
  );
  bind(
    () => row().session.unenforced,
    (reason) => {
      unenforced.hidden = !reason;
      attribute(unenforced, "title", reason ? clean(reason) : "");
    },
  );
  return h("span", { class: "what" }, why, h("span", { class: "badges" }, waits, stall, unenforced));
}

/** @param {PlanStep[]} steps */
const current = (steps) =>
  steps.find((step) => step.status === "in_progress") ?? steps.find((step) => step.status !== "completed");

/**
 * @param {Bind} bind
 * @param {RowModel} row
 */
function plan(bind, row) {
  const bar = h("progress", { max: "1", value: 0 });
  const step = h("span", { class: "step faint" });
  const list = h("div", {});
  const element = h("details", { class: "steps" }, h("summary", { class: "progress" }, bar, step), list);
  bind(
    () => row().session.progress,
    () => {
      const made = progress(row().session);
      element.hidden = !made;
      if (!made) return;
      attribute(bar, "max", made.of);
      bar.value = made.done;
      attribute(bar, "aria-label", `${made.done} of ${made.of} steps done`);
      const now = current(made.steps);
      text(step, `${made.done}/${made.of}${now ? ` ${clean(now.text)}` : ""}`);
    },
  );
  bind(
    () => JSON.stringify(row().session.progress),
    () => list.replaceChildren(checklist(row().session.progress)),
  );
  return element;
}

/** @param {FleetRow} first */
export function fleetRow(first) {
  let now = first;
  const row = () => now;
  const { bind, draw } = bindings();
  const link = h("a", { data: { stop: "row" } }, status(bind, row), who(bind, row), what(bind, row));
  // Beside the link, not inside of it: it opens on its own.
  const element = h("li", {}, link, plan(bind, row));
  bind(
    () => ({ id: now.session.id, group: now.group, risk: now.waits?.risk }),
    ({ id, group, risk }) => {
      attribute(link, "href", `#/s/${id}`);
      attribute(link, "class", `session ${group}`);
      attribute(link, "data-risk", risk);
    },
  );
  bind(
    () => now.session.progress.length > 0,
    (planned) => attribute(element, "class", planned ? "planned" : null),
  );
  /** @param {FleetRow} row */
  const update = (row) => {
    now = row;
    draw();
  };
  return { element, update };
}

// @ts-check
// Panels about a session: its plan, its facts, and the end of its stderr.

import { checklist } from "../checklist.js";
import { h } from "../dom.js";
import { state } from "../live.js";
import { progress } from "../store.js";
import { clean, cleanBlock, clock, since, span, usage } from "../text.js";
/** @import { Child, Session } from "../../types/models" */
/** @import { Bind } from "../bind.js" */

/**
 * @param {Bind} bind
 * @param {string} id
 */
export function plan(bind, id) {
  const element = h("section", { class: "panel" });
  bind(
    () => JSON.stringify(state.sessions.get(id)?.progress ?? []),
    () => {
      const session = state.sessions.get(id);
      const made = session ? progress(session) : null;
      element.hidden = !made;
      if (!made) return;
      element.replaceChildren(
        h("h2", {}, `Plan ${made.done}/${made.of}`),
        h("progress", { max: made.of, value: made.done, "aria-label": "Progress" }),
        checklist(made.steps),
      );
    },
  );
  return element;
}

/** @param {NonNullable<Session["processes"]>[number]} process */
function processWords({ name, pid, cpu_seconds, memory_bytes }) {
  return `${clean(name)} (${pid}, ${span(cpu_seconds * 1000)} CPU, ${Math.round(memory_bytes / 1048576)} MB)`;
}

/** @param {string} text */
const mono = (text) => h("span", { class: "mono wrap" }, clean(text));

/**
 * @param {Session} session
 * @returns {Array<[string, Child]>}
 */
function factsOf(session) {
  const { standing, spent, controls } = session;
  return [
    ["Id", mono(session.id)],
    ["Agent", clean(session.agent)],
    ["Protocol", clean(session.protocol)],
    ["Workspace", mono(session.workspace)],
    ["Process", session.pid],
    ["Generation", session.generation > 1 && session.generation],
    ["Started", clock(session.started_at)],
    ["Ended", clock(session.ended_at)],
    ["Ladder", standing?.ladder],
    ["Snoozed", standing?.snoozed_until && `until ${clock(standing.snoozed_until)}`],
    ["Running", standing?.running && `${clean(standing.running.name)}, ${since(standing.running.since)}`],
    ["Unenforced", clean(session.unenforced)],
    ["Used", usage(spent)],
    ["Capped", clean(spent?.capped)],
    ["Mode", clean(controls?.mode)],
    ["Model", clean(controls?.model)],
    ["Processes", session.processes?.map(processWords).join(", ")],
  ];
}

/**
 * @param {Bind} bind
 * @param {string} id
 */
export function facts(bind, id) {
  const element = h("section", { class: "panel" });
  bind(
    () => {
      const session = state.sessions.get(id);
      return session && JSON.stringify({ ...session, why: "", since: "", said: "", updated_at: "", progress: [] });
    },
    () => {
      const session = state.sessions.get(id);
      if (!session) return;
      const rows = factsOf(session)
        .filter(([, value]) => value)
        .map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]);
      element.replaceChildren(h("h2", {}, "About"), h("dl", { class: "facts" }, rows));
    },
  );
  return element;
}

/**
 * @param {Bind} bind
 * @param {string} id
 */
export function stderr(bind, id) {
  const element = h("section", { class: "panel" });
  bind(
    () => state.sessions.get(id)?.stderr_tail ?? "",
    (tail) => {
      element.hidden = !tail.trim();
      element.replaceChildren(h("h2", {}, "stderr"), h("pre", { class: "stderr", tabindex: "0" }, cleanBlock(tail)));
    },
  );
  return element;
}

// @ts-check
// The head of a session's page: its name, its state with the reason, and its failure.

import * as api from "../api.js";
import { back } from "../address.js";
import { h, attribute, icon, text, toast } from "../dom.js";
import { phaseWord } from "../fleet/row.js";
import { state, touch } from "../live.js";
import { group, may, putSession, waitingBySession } from "../store.js";
import { clean, localTimes, project, short, since, usage } from "../text.js";
import { actions } from "./actions.js";
/** @import { FleetRow, Session } from "../../types/models" */
/** @import { Bind } from "../bind.js" */

/**
 * @param {string} id
 * @returns {FleetRow | null}
 */
function rowOf(id) {
  const session = state.sessions.get(id);
  const waits = waitingBySession(state).get(id);
  return session ? { session, waits, group: group(session) } : null;
}

/** @param {Session} session */
function reasons({ workspace, why, standing, unenforced, spent }) {
  const done = standing?.done;
  const parts = [
    localTimes(why),
    done && !why.includes(done) ? done : null,
    unenforced ? `unenforced: ${unenforced}` : null,
  ];
  return [project(workspace), ...parts.filter((part) => part).map(clean), usage(spent)].filter(Boolean).join(" · ");
}

/**
 * A failure counts as seen once an operator has this page open; it is shown until the agent works again.
 *
 * @param {Bind} bind
 * @param {string} id
 */
function failure(bind, id) {
  const element = h("p", { class: "failure", role: "status", hidden: true });
  /** @type {Session["failed"]} */
  let shown = null;
  /** @type {string | null} */
  let told = null;
  bind(
    () => {
      const session = state.sessions.get(id);
      if (["working", "waiting"].includes(session?.phase ?? "")) shown = null;
      else if (session?.failed) shown = session.failed;
      return shown;
    },
    (failed) => {
      element.hidden = !failed;
      text(element, failed && localTimes(`Failed: ${clean(failed.reason)}. What to do: ${clean(failed.hint)}`));
    },
  );
  bind(
    () => (document.hidden || !may(state, "operator") ? null : (state.sessions.get(id)?.failed?.at ?? null)),
    (at) => {
      if (!at || at === told) return;
      told = at;
      api.post(`/sessions/${id}/seen`, { at }).then(
        (view) => {
          putSession(state, view);
          touch();
        },
        (error) => toast(api.why(error), "error"),
      );
    },
  );
  return element;
}

/**
 * @param {Bind} bind
 * @param {string} id
 */
export function header(bind, id) {
  const dot = h("span", { class: "dot", "aria-hidden": "true" });
  const name = h("h1", {});
  const phase = h("span", { class: "phase" });
  const why = h("p", { class: "why" });
  bind(
    () => {
      const row = rowOf(id);
      if (!row) return null;
      const { session, waits } = row;
      return {
        name: session.name ? clean(session.name) : short(session.id),
        group: row.group,
        phase: `${phaseWord(row)} ${since(waits?.since ?? session.since)}`,
        why: reasons(session),
      };
    },
    (now) => {
      if (!now) return;
      text(name, now.name);
      attribute(dot, "class", `dot ${now.group}`);
      text(phase, now.phase);
      text(why, now.why);
    },
  );
  const leave = h("a", { class: "back", href: "#/", "aria-label": "Back", onclick: back }, icon("back"));
  return h(
    "header",
    { class: "session-head" },
    h("div", { class: "row" }, leave, dot, name, phase, h("span", { class: "grow" }), actions(bind, id)),
    why,
    failure(bind, id),
  );
}

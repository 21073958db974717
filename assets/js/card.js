// @ts-check
// The clearance card: the request, its risk with the reasons, the change, and the decision.

import * as api from "./api.js";
import { bindings } from "./bind.js";
import { h, attribute, button, announce, keyed, replace, text } from "./dom.js";
import { explain, state } from "./live.js";
import { may } from "./store.js";
import { clean, line, project, short, since } from "./text.js";
import { onTheWay } from "./keys.js";
import { buttons } from "./card/buttons.js";
import { keepInView, whenNear } from "./card/position.js";
import { badge, facts, fate, whole } from "./card/request.js";
import { sendNudge } from "./session/actions.js";
/** @import { Clearance } from "../types/models" */
/** @import { Bind } from "./bind.js" */

/** @typedef {() => Clearance} ClearanceModel */
/** @typedef {{ link?: boolean }} CardOptions `link`: with a way to its session */

/** @param {Clearance} clearance */
function ageOf({ status, requested_at, expires_at }) {
  if (status !== "pending") return "";
  const left = expires_at ? `, ${since(new Date().toISOString(), Date.parse(expires_at))} left` : "";
  return `waiting ${since(requested_at)}${left}`;
}

/**
 * The origin: project, agent and session.
 *
 * @param {Bind} bind
 * @param {ClearanceModel} clearance
 * @param {CardOptions} options
 */
function origin(bind, clearance, { link = true }) {
  const where = h("span", { class: "where" });
  const { session: id } = clearance();
  bind(
    () => {
      const { name, workspace, agent } = state.sessions.get(id) ?? {};
      return {
        name: name ? clean(name) : short(id),
        place: `${project(workspace)} · ${agent ? `${clean(agent)} · ` : ""}`,
      };
    },
    ({ name, place }) => replace(where, place, link ? h("a", { href: `#/s/${id}` }, name) : name, " · "),
  );
  return h("div", { class: "sub faint" }, where, h("span", { class: "mono" }, short(clearance().id)));
}

/**
 * @param {Bind} bind
 * @param {ClearanceModel} clearance
 */
function content(bind, clearance) {
  const element = h("div", { class: "content" });
  bind(
    () => clearance().brief,
    () => replace(element, whole(clearance())),
  );
  bind(
    // Facts change as others approve; an opened diff must not be rendered again.
    () => JSON.stringify([clearance().approvals, clearance().status]),
    () => element.querySelector(".facts")?.replaceWith(facts(clearance())),
  );
  return element;
}

/**
 * The decision, its delivery and its outcome.
 *
 * @param {Bind} bind
 * @param {ClearanceModel} clearance
 */
function outcome(bind, clearance) {
  const element = h("div", { class: "outcome", hidden: true });
  let first = true;
  bind(
    () => JSON.stringify([fate(clearance()), clearance().reason]),
    () => {
      const { status, reason } = clearance();
      element.hidden = status === "pending";
      if (!element.hidden) {
        const steps = fate(clearance()).map((step) => h("li", {}, step));
        replace(
          element,
          h("ol", { class: `fate ${status}` }, steps),
          reason && h("p", { class: "reason" }, clean(reason)),
        );
        if (!first) announce(`${line(clearance())}: ${fate(clearance())[0]}`);
      }
      first = false;
    },
  );
  return element;
}

/**
 * The buttons of a pending clearance, at the lower edge of a long card. Also returns the action of each key.
 *
 * @param {Bind} bind
 * @param {ClearanceModel} clearance
 */
function foot(bind, clearance) {
  const place = h("div", {});
  const words = h("span", { class: "clip" }, line(clearance()));
  const element = h("div", { class: "foot" }, h("p", { class: "subject" }, badge(clearance().risk), words), place);
  /** @type {Record<string, () => unknown>} */
  const press = {};
  bind(
    () => {
      const { status, approvals, brief, explained } = clearance();
      const { proposal, may_not_approve } = explained ?? {};
      return JSON.stringify([status, approvals, brief, proposal != null, may_not_approve, state.you?.role]);
    },
    () => {
      const open = clearance().status === "pending";
      const focused = element.contains(document.activeElement);
      element.hidden = !open;
      for (const key of Object.keys(press)) delete press[key];
      if (open) {
        const made = buttons(clearance());
        Object.assign(press, made.press);
        place.replaceChildren(made.element);
      }
      const card = element.closest(".card");
      if (focused && card instanceof HTMLElement) card.focus({ preventScroll: true });
    },
  );
  return { element, place, press };
}

/**
 * Fetches the parts that the initial list omits. If that fails, the card offers a retry.
 *
 * @param {ClearanceModel} clearance
 * @param {HTMLElement} place
 */
async function complete(clearance, place) {
  if (clearance().explained) return;
  try {
    await explain(clearance().id);
  } catch (error) {
    if (!clearance().brief) return;
    const words = `The request could not be loaded: ${api.why(error)} `;
    const again = button("Try again", () => complete(clearance, place), { class: "small" });
    place.replaceChildren(h("p", { class: "trouble" }, words), again);
  }
}

/**
 * Keys act on the card that has the focus.
 *
 * @param {HTMLElement} element
 * @param {string} session
 * @param {Record<string, () => unknown>} press
 */
function listen(element, session, press) {
  const open = () => (location.hash = `#/s/${session}`);
  /** @type {Record<string, () => unknown>} */
  const more = {
    n: () => may(state, "operator") && sendNudge(session),
    i: () => may(state, "operator") && (location.hash = `#/s/${session}/write`),
    o: open,
    Enter: open,
  };
  element.addEventListener("keydown", (event) => {
    if (event.target !== element || event.ctrlKey || event.metaKey || event.altKey || onTheWay() || event.repeat)
      return;
    const act = press[event.key] ?? more[event.key];
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  });
}

/**
 * The card of a clearance. `update` brings it up to date and leaves unchanged parts alone.
 *
 * @param {Clearance} first
 * @param {CardOptions} options
 */
function card(first, options) {
  let now = first;
  const clearance = () => now;
  const { bind, draw } = bindings();
  const age = h("span", { class: "age faint" });
  const head = h("header", {}, badge(first.risk), h("h3", { class: "title" }, clean(first.title)), age);
  const element = h("article", {
    class: `card risk-${first.risk}`,
    tabindex: "0",
    data: { stop: "card", id: first.id },
    "aria-label": `Clearance, ${first.risk} risk: ${line(first)}`,
  });
  const edge = foot(bind, clearance);
  replace(
    element,
    head,
    origin(bind, clearance, options),
    content(bind, clearance),
    outcome(bind, clearance),
    edge.element,
  );
  bind(
    () => ageOf(now),
    (words) => text(age, words),
  );
  bind(
    () => ({ open: now.status === "pending", brief: now.brief }),
    ({ open, brief }) => {
      element.classList.toggle("settled", !open);
      attribute(element, "aria-busy", brief ? "true" : null);
    },
  );
  whenNear(element, () => complete(clearance, edge.place));
  keepInView(head, edge.element);
  listen(element, first.session, edge.press);
  /** @param {Clearance} clearance */
  const update = (clearance) => {
    now = clearance;
    draw();
  };
  return { element, update };
}

/**
 * A list of cards, kept up to date. Decided ones stay for a while, so that their outcome is visible.
 *
 * @param {HTMLElement} parent
 * @param {Clearance[]} list
 * @param {CardOptions} options
 */
export const cards = (parent, list, options = {}) =>
  keyed(
    parent,
    list,
    (each) => each.id,
    (each) => card(each, options),
  );

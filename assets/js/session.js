// @ts-check
// The page of one session: its pending requests, its timeline and its actions.

import * as api from "./api.js";
import { pageBindings } from "./page.js";
import { h } from "./dom.js";
import { state, touch } from "./live.js";
import { may, putSession } from "./store.js";
import { clean, short } from "./text.js";
import { typing } from "./keys.js";
import { log } from "./timeline.js";
import { composer } from "./prompts.js";
import { facts, plan, stderr } from "./session/facts.js";
import { header } from "./session/header.js";
import { requests } from "./session/requests.js";
/** @import { View } from "../types/models" */

/** The interval at which the session is fetched again: not all of its state is in the log. */
const LOOK = 15000;

const missing = () =>
  h("div", { class: "empty" }, h("p", {}, "This session does not exist."), h("a", { href: "#/" }, "Back to the fleet"));

/**
 * @param {string} id
 * @param {{ write: boolean }} options `write`: the reader comes to write a prompt
 * @returns {View}
 */
export function view(id, { write }) {
  const { bind, draw, close } = pageBindings(1000);
  const timeline = log(id);
  const box = composer(id);
  const waiting = requests(bind, draw, id);
  const side = h("aside", { class: "side", "aria-label": "About this session" });
  side.append(waiting.element, plan(bind, id), facts(bind, id), stderr(bind, id));
  const body = h(
    "div",
    { class: "session-body" },
    h("div", { class: "main-column" }, timeline.element, box.element),
    side,
  );
  bind(
    () => waiting.element.hidden,
    (none) => body.classList.toggle("deciding", !none),
  );
  const element = h("div", { class: "page session-page" }, waiting.jump, header(bind, id), body);
  element.addEventListener("keydown", (event) => {
    if (event.key !== "i" || event.ctrlKey || event.metaKey || typing(event) || !may(state, "operator")) return;
    event.preventDefault();
    box.focus();
  });
  async function refresh() {
    try {
      putSession(state, await api.get(`/sessions/${id}`));
      touch();
    } catch (error) {
      if (api.statusOf(error) === 404) element.replaceChildren(missing());
    }
  }
  refresh();
  const look = setInterval(() => !document.hidden && refresh(), LOOK);
  if (write && may(state, "operator")) setTimeout(box.focus);
  return {
    element,
    get title() {
      return clean(state.sessions.get(id)?.name ?? short(id));
    },
    close() {
      clearInterval(look);
      for (const part of [{ close }, waiting, timeline, box]) part.close();
    },
  };
}

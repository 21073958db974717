// @ts-check
// A question of an agent: continue, refine, or stop.

import * as api from "./api.js";
import { bindings } from "./bind.js";
import { h, button, ask, toast, keyed, replace, single, text } from "./dom.js";
import { state, touch } from "./live.js";
import { may, putQuestion } from "./store.js";
import { clean, clock, cut, localTimes, project, short, since } from "./text.js";
import { renderLong } from "./markdown.js";
/** @import { PostBody, Question } from "../types/models" */
/** @import { Bind } from "./bind.js" */

/** @typedef {{ link?: boolean }} CardOptions `link`: with a way to its session */

/** @type {Set<string>} */
const answering = new Set();

/**
 * @param {Question} question
 * @param {PostBody<"/questions/x/answer">} body
 */
async function answer(question, body) {
  if (answering.has(question.id)) return;
  answering.add(question.id);
  try {
    putQuestion(state, await api.post(`/questions/${question.id}/answer`, body));
    toast(`Answered: ${body.decision}`);
  } catch (error) {
    const refused = error instanceof api.Refused ? error : null;
    if (refused?.body?.question) putQuestion(state, refused.body.question);
    if (refused?.code === "already_decided") toast(`Too late: ${localTimes(refused.message)}`);
    else toast(api.why(error), "error");
  }
  answering.delete(question.id);
  touch();
}

/** @param {Question} question */
async function refine(question) {
  const field = h("textarea", { id: "instruction", rows: "4", required: true });
  const body = [h("label", { for: "instruction" }, "Instruction for the agent"), field];
  const instruction = await ask({ title: "Refine", body, yes: "Send", read: () => field.value.trim() });
  if (instruction) await answer(question, { decision: "refine", instruction });
}

/** @param {Question} question */
function settlement({ answered_by, answered_at, decision, status, instruction }) {
  const by = answered_by ? ` by ${clean(answered_by)} ${clock(answered_at)}` : "";
  const steps = [`${clean(decision ?? status)}${by}`, clean(instruction)].filter(Boolean);
  return h(
    "ol",
    { class: "fate" },
    steps.map((step) => h("li", {}, step)),
  );
}

/** @param {Question} question */
function buttons(question) {
  if (!may(state, "operator"))
    return [h("p", { class: "faint" }, `Answering needs the role operator; you are ${state.you?.role}.`)];
  const words = h("span", { class: "clip" }, clean(cut(question.text, 200)));
  return [
    h("p", { class: "subject" }, h("span", { class: "badge ask" }, "question"), words),
    h(
      "div",
      { class: "row actions" },
      button(
        "Continue",
        single(() => answer(question, { decision: "continue" })),
        { class: "primary" },
      ),
      button(
        "Refine…",
        single(() => refine(question)),
        {},
      ),
      h("span", { class: "grow" }),
      button(
        "Stop",
        single(() => answer(question, { decision: "stop" })),
        { class: "danger" },
      ),
    ),
  ];
}

/**
 * The origin: project and session.
 *
 * @param {Bind} bind
 * @param {Question} question
 * @param {CardOptions} options
 */
function origin(bind, { id, session }, { link = true }) {
  const where = h("span", { class: "where" });
  bind(
    () => {
      const { name, workspace } = state.sessions.get(session) ?? {};
      return { name: name ? clean(name) : short(session), place: `${project(workspace)} · ` };
    },
    ({ name, place }) => replace(where, place, link ? h("a", { href: `#/s/${session}` }, name) : name, " · "),
  );
  return h("div", { class: "sub faint" }, where, h("span", { class: "mono" }, short(id)));
}

/**
 * @param {Bind} bind
 * @param {() => Question} question
 */
function foot(bind, question) {
  const element = h("div", { class: "foot" });
  bind(
    () => [question().status, state.you?.role],
    ([status]) => {
      const focused = element.contains(document.activeElement);
      replace(element, status === "pending" ? buttons(question()) : settlement(question()));
      const card = element.closest(".card");
      if (focused && status !== "pending" && card instanceof HTMLElement) card.focus({ preventScroll: true });
    },
  );
  return element;
}

/**
 * @param {HTMLElement} element
 * @param {string} session
 */
function listen(element, session) {
  element.addEventListener("keydown", (event) => {
    if (event.target !== element || !["Enter", "o", "i"].includes(event.key)) return;
    if (event.key === "i" && !may(state, "operator")) return;
    event.preventDefault();
    location.hash = `#/s/${session}${event.key === "i" ? "/write" : ""}`;
  });
}

/**
 * @param {Question} first
 * @param {CardOptions} options
 */
function card(first, options) {
  let now = first;
  const { bind, draw } = bindings();
  const age = h("span", { class: "age faint" });
  const badge = h("span", { class: "badge ask" }, "question");
  const element = h(
    "article",
    {
      class: "card question",
      tabindex: "0",
      data: { stop: "card", id: first.id },
      "aria-label": `Question: ${clean(first.text).slice(0, 120)}`,
    },
    h("header", {}, badge, h("h3", { class: "title" }, "Continue?"), age),
    origin(bind, first, options),
    h("div", { class: "description" }, renderLong(first.text)),
    foot(bind, () => now),
  );
  bind(
    () => (now.status === "pending" ? `waiting ${since(now.asked_at)}` : ""),
    (words) => text(age, words),
  );
  bind(
    () => now.status !== "pending",
    (settled) => element.classList.toggle("settled", settled),
  );
  listen(element, first.session);
  /** @param {Question} question */
  const update = (question) => {
    now = question;
    draw();
  };
  return { element, update };
}

/**
 * @param {HTMLElement} parent
 * @param {Question[]} list
 * @param {CardOptions} options
 */
export const cards = (parent, list, options = {}) =>
  keyed(
    parent,
    list,
    (each) => each.id,
    (each) => card(each, options),
  );
